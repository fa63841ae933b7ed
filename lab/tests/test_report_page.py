"""The page of the report: figures, tables, comments and origin."""

import argparse
import json
import math
import re
import shlex
from html import escape
from pathlib import Path

import pytest
from made_up_runs import best_of, read_results, report_text, write_finals, write_run, write_times

from nero_lab.cli.arguments import parse
from nero_lab.engine import records
from nero_lab.engine.errors import ConfigError
from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.report import formatting, report_command, write_report
from nero_lab.report.comments import read_comments
from nero_lab.report.formatting import NOTHING
from nero_lab.report.page import SWEEP
from nero_lab.report.runs import PROTOCOL_SCALE
from nero_lab.report.tables import final_table, modern_table, summary_table
from nero_lab.runner.config import RunConfig
from nero_lab.tasks import TASKS


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, Path]:
    """Return a report in Markdown and in HTML, and its folder."""
    folder = tmp_path_factory.mktemp("results")
    out = tmp_path_factory.mktemp("report")
    write_finals(
        folder, "cifar-vgg11", {"nero": (10.0, 12.0), "sgd": (14.0, 15.0), "nero-none": (13.0,)}
    )
    write_run(folder, RunConfig("cifar-vgg11", "cpu", "nero", 0.02, 0), [30.0, 9.0])
    for seed in (0, 1):
        config = RunConfig("cifar-vgg11", "cpu", "adam", seed=seed)
        write_run(folder, config, [50.0, 60.0], status="diverged", epoch=2.4)
    for variant, value in (("sigma-1", 0.9), ("sigma-100", 0.5)):
        config = RunConfig("mnist-reparam", "cpu", "adam", variant=variant)
        write_run(folder, config, [0.1, value])
    write_finals(folder, "pong", {"nero": (-5.0,)}, scale="smoke")
    (folder / "comments.toml").write_text(
        '[cifar-vgg11]\ncomment = "A word on `VGG`."\n'
        '[cifar-vgg11.pictures]\nrivals = "A word on rivals."\n'
        '[imagenet]\nrecipe_only = "two days on four GPUs"\n'
        '[verdict]\ndeep = "A word on depth."\n'
    )
    report_command(argparse.Namespace(results=folder, out=out, scale=None))
    return report_text(out), report_text(out, "html"), out


def test_every_figure_is_written_and_in_both_pages(report: tuple[str, str, Path]) -> None:
    markdown, html, out = report
    in_markdown = re.findall(r"\]\((figures/[^)]+\.png)\)", markdown)
    assert len(in_markdown) >= 3
    assert in_markdown == re.findall(r'src="(figures/[^"]+\.png)"', html)
    assert {f"figures/{path.name}" for path in (out / "figures").iterdir()} == set(in_markdown)
    for file in in_markdown:
        assert (out / file).read_bytes().startswith(b"\x89PNG")


def test_html_keeps_tables_and_commands(report: tuple[str, str, Path]) -> None:
    markdown, html, _ = report
    tables = len(re.findall(r"^\| -", markdown, flags=re.MULTILINE))
    assert tables == html.count("<table>")
    assert html.count("<details>") == markdown.count("<details")
    assert "| ---" not in html
    assert "```" not in html
    command = "nero-lab run cifar-vgg11 --scale cpu --optimizer nero --lr 0.02 --seed 0"
    assert command in markdown
    assert command in html


def test_task_without_records_is_a_recipe_only(report: tuple[str, str, Path]) -> None:
    markdown, _, _ = report
    sections = dict(
        re.findall(
            r"^# [^\n]*\(`([^\n]+)`\)\n(.*?)(?=^Back to )", markdown, re.MULTILINE | re.DOTALL
        )
    )
    assert set(sections) == set(TASKS)
    assert "**Recipe only**: two days on four GPUs." in sections["imagenet"]
    assert "**Recipe only**: not run yet." in sections["cgan"]
    assert "nero-lab run cgan --scale cpu" in sections["cgan"]
    assert "Recipe only" not in sections["cifar-vgg11"]


def test_comments_and_origin_are_shown(report: tuple[str, str, Path]) -> None:
    markdown, html, _ = report
    for words in ("A word on rivals.", "A word on depth.", "0123abc", "torch 2.13.0", "a CPU"):
        assert words in markdown
        assert words in html
    assert "<code>VGG</code>" in html
    for task in TASKS.values():
        for difference in task.differences:
            assert escape(difference, quote=False) in html


def test_comment_that_fits_nothing_is_an_error(tmp_path: Path) -> None:
    for text in ("[mnist]\ncomment = 'x'", "[pong]\ncoment = 'x'", "[verdict]\nfoo = 'x'"):
        (tmp_path / "comments.toml").write_text(text)
        with pytest.raises(ValueError, match=r"comments\.toml"):
            read_comments(tmp_path, tasks=TASKS, claims=["deep"])


def test_time_of_a_step_is_what_was_timed(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-vgg11", {"nero": (10.0,), "sgd": (14.0,)})
    write_times(tmp_path / "times.json", "cifar-vgg11", {"nero": [0.2, 0.25, 0.3]})
    table = final_table(read_results(tmp_path)["cifar-vgg11"])
    assert table["time per step"].tolist() == ["250 ms", NOTHING]
    write_report(tmp_path, tmp_path / "out")
    assert "Measured on a CPU, threads: 1." in report_text(tmp_path / "out")


def test_table_has_the_numbers_of_the_records(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-vgg11", {"nero": (10.0, 12.5, 12.0), "sgd": (14.0,)})
    table = final_table(read_results(tmp_path)["cifar-vgg11"])
    nero, sgd = table.to_numpy().tolist()
    assert nero[:5] == ["Nero", "0.01", "3", "11.50", "10.00 to 12.50"]
    assert nero[5] == "1"
    assert nero[6] == "11.16 ± 0.17 at lr 0.01; 8.61 ± 0.22 at lr 0.02 (ablation)"
    assert nero[7:] == ["5 MB", "4 kB"]
    assert "time per step" not in table  # that of a run beside others is none
    assert sgd[:4] == ["SGD", "0.1", "1", "14.00"]


def test_page_says_how_far_a_network_was_shrunk(report: tuple[str, str, Path]) -> None:
    markdown, _, _ = report
    assert "| cpu: 1,000 parameters (paper scale: 28.1M) |" in markdown  # in the verdict
    assert "The network has 1,000 parameters (paper scale: 28.1M)." in markdown
    assert "ours, cpu scale, 1,000 parameters (paper scale: 28.1M)" in markdown
    assert "cpu: 1,000 parameters" in markdown  # of a task that is not shrunk


def test_page_calls_a_claim_with_few_seeds_likely(report: tuple[str, str, Path]) -> None:
    markdown, html, _ = report
    likely = '<span class="likely">↗ likely (1 seed)</span>'
    assert likely in markdown
    assert likely in html
    assert 'class="held"' not in markdown
    assert 'class="did-not-hold"' not in markdown


def test_summary_marks_the_best_of_each_line(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0, 3.0), "adam": (5.0, 6.0)})
    rows = summary_table(TASKS, read_results(tmp_path))
    index = rows.index[rows.task == "pong"][0]
    assert rows.Nero[index] == "**20.62 ± 0.05 at lr 0.01**"
    ours = rows.loc[index + 1]
    assert ours.Adam == "**5.500 (5.000 to 6.000, 2 seeds) at lr 0.0001, the only one tried**"
    assert ours.Nero == "2.000 (1.000 to 3.000, 2 seeds) at lr 0.01, the only one tried"


def test_summary_has_a_line_per_scale_on_which_the_papers_optimizers_ran(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0, 3.0)})
    write_finals(tmp_path, "pong", {"nero": (-20.0,)}, scale=PROTOCOL_SCALE)
    write_finals(tmp_path, "cgan", {"nero": (30.0,)}, scale=PROTOCOL_SCALE)
    write_finals(tmp_path, "wikitext2", {"muon": (400.0,)})
    own = read_results(tmp_path, PROTOCOL_SCALE)
    rows = summary_table(TASKS, read_results(tmp_path), own)
    rows.task = rows.task.where(rows.task != "").ffill()
    found = {task: list(lines) for task, lines in rows.groupby("task").source}
    assert found["pong"] == [
        "paper",
        "ours, cpu scale, 1,000 parameters",
        "ours, mini scale, 1,000 parameters",
    ]
    assert found["cgan"][1].startswith("ours, mini scale")
    assert len(found["cgan"]) == 2
    assert found["wikitext2"] == ["paper", "ours"]


def test_modern_question_compares_defaults_with_tuned_rivals(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, RunConfig("shakespeare", "cpu", "nero", 0.01, seed), [1.5 + 0.1 * seed])
        for lr, final in ((1e-3, 1.2), (3e-3, 2.0)):
            write_run(tmp_path, RunConfig("shakespeare", "cpu", "adamw", lr, seed), [final])
        write_run(
            tmp_path, RunConfig("shakespeare", "cpu", "muon", 0.02, seed), [1.4 + 0.15 * seed]
        )
    adamw, muon = modern_table(read_results(tmp_path)["shakespeare"]).to_numpy().tolist()
    assert adamw[:2] == ["AdamW, lr 0.001", "2"]
    assert adamw[3].startswith(f"{formatting.MINUS}0.35 (")
    assert adamw[4] == "worse"
    assert muon[4:] == ["worse"]


def test_modern_question_says_how_many_runs_diverged(tmp_path: Path) -> None:
    for seed, status in enumerate(("finished", "diverged")):
        write_run(tmp_path, RunConfig("shakespeare", "cpu", "nero", 0.01, seed), [1.5])
        write_run(
            tmp_path, RunConfig("shakespeare", "cpu", "adamw", seed=seed), [1.2], status=status
        )
    (row,) = modern_table(read_results(tmp_path)["shakespeare"]).to_numpy().tolist()
    _, _, score, advantage, outcome = row
    assert score == "1 of 2 runs diverged, others 1.200"
    assert (advantage, outcome) == ("1 of 2 runs diverged", "inconclusive")


def test_best_rate_is_a_disagreement_only_if_the_published_one_was_tried(tmp_path: Path) -> None:
    def text() -> str:
        write_report(tmp_path / "runs", tmp_path / "out")
        return report_text(tmp_path / "out")

    for lr, final in ((0.03, 8.0), (1.0, 9.0)):
        write_run(tmp_path / "runs", RunConfig("cifar-resnet18", "cpu", "sgd", lr), [final])
    assert "Best learning rate for SGD" not in text()
    write_run(tmp_path / "runs", RunConfig("cifar-resnet18", "cpu", "sgd", 0.1), [10.0])
    assert "Best learning rate for SGD: 0.03 here (of 3 tried), 0.1 in the paper." in text()


def test_claim_that_is_not_shown_is_told_in_its_section(tmp_path: Path) -> None:
    chance = dict.fromkeys(("sgd", "adam", "lamb"), (0.1,))
    write_finals(tmp_path, "mnist-deep", {"nero": (0.9,), **chance})
    write_report(tmp_path, tmp_path / "out")
    text = report_text(tmp_path / "out")
    assert "a 100-layer MLP.” was not shown, because its rivals were not tuned enough" in text
    assert '<span class="not-shown">? not shown</span>' in text
    for optimizer, lrs in {"sgd": (0.01, 1.0), "adam": (1e-4, 1e-2), "lamb": (1e-3, 0.1)}.items():
        for lr in lrs:
            write_run(tmp_path, RunConfig("mnist-deep", "cpu", optimizer, lr), [0.09])
    write_report(tmp_path, tmp_path / "out")
    text = report_text(tmp_path / "out")
    assert "likely (1 seed)" in text


def test_differences_of_optimizers_are_told_once_each(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-vgg11", {"lamb": (9.0,), "lamb-balanced": (8.0,), "sgd": (9.0,)})
    write_report(tmp_path, tmp_path / "out")
    text = report_text(tmp_path / "out")
    told = formatting.plain(OPTIMIZERS["lamb"].differences)
    assert f"- LAMB; LAMB, constrained: {told}" in text


def test_runs_are_read_where_they_were_made(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0, 3.0), "sgd": (2.0,)})
    for folder in tmp_path.rglob("nero*"):
        (folder / "checkpoint.pt").touch()
    begun = tmp_path / "pong" / "cpu" / "adam-lr0.0001-seed0" / records.FILE_NAME
    begun.parent.mkdir()
    begun.write_text('{"kind": "ru')  # being written
    results = read_results(tmp_path)["pong"]
    assert results.runs.optimizer.value_counts().to_dict() == {"nero": 2, "sgd": 1}


def test_run_that_could_not_begin_is_told_and_not_counted(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0,)})
    config = RunConfig("pong", "cpu", "sgd")
    write_run(tmp_path, config, [])
    path = tmp_path / config.name / records.FILE_NAME
    header = json.loads(path.read_text().splitlines()[0])
    for name in ("num_parameters", "versions", "commit", "hardware", "clock"):
        del header[name]  # they are not known so early
    end = {"kind": "end", "status": "failed", "message": "ValueError: no such game"}
    path.write_text(f"{json.dumps(header)}\n{json.dumps(end)}\n")
    assert "sgd" not in read_results(tmp_path)["pong"].best(("nero", "sgd"))
    write_report(tmp_path, tmp_path / "out")
    text = report_text(tmp_path / "out")
    assert f"- `{config.command}`: ValueError: no such game" in text


def test_sweep_of_the_page_has_the_published_rates() -> None:
    args = parse(shlex.split(SWEEP)[1:])
    rates = TASKS[args.task].lrs
    assert set(args.optimizers) == set(rates)
    assert set(rates.values()) <= set(args.lrs)


def test_largest_scale_is_shown_unless_another_is_asked_for(tmp_path: Path) -> None:
    for scale in ("smoke", "cpu"):
        write_finals(tmp_path, "pong", {"nero": (1.0,)}, scale=scale)
    assert read_results(tmp_path)["pong"].scale == "cpu"
    assert read_results(tmp_path)["pong"].other_scales == {"smoke": 1}
    assert read_results(tmp_path, "smoke")["pong"].scale == "smoke"


@pytest.mark.parametrize("folder", ["", "mistyped"])
def test_report_without_any_records_leaves_the_old_one(tmp_path: Path, folder: str) -> None:
    old = tmp_path / "out" / "report.md"
    old.parent.mkdir()
    old.write_text("what was there")
    with pytest.raises(ConfigError, match=r"no records below .*--results"):
        write_report(tmp_path / folder, tmp_path / "out")
    assert old.read_text() == "what was there"
    assert list(old.parent.iterdir()) == [old]


def test_scale_without_any_records_leaves_the_old_report(tmp_path: Path) -> None:
    write_run(tmp_path, RunConfig("cifar-resnet18"), [12.0])
    write_report(tmp_path, tmp_path / "out")
    kept = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="has begun at papr scale"):
        write_report(tmp_path, tmp_path / "out", scale="papr")
    assert sorted(tmp_path.rglob("*")) == kept


def test_report_removes_old_figures_of_its_own_only(tmp_path: Path) -> None:
    figures = tmp_path / "out" / "figures"
    figures.mkdir(parents=True)
    for name in ("pong-rivals.png", "mine.png"):
        (figures / name).touch()
    write_run(tmp_path, RunConfig("cifar-resnet18"), [12.0])
    write_report(tmp_path, tmp_path / "out")
    assert not (figures / "pong-rivals.png").exists()
    assert (figures / "mine.png").exists()


def test_tasks_without_records_are_recipes_only(tmp_path: Path) -> None:
    write_run(tmp_path, RunConfig("cifar-resnet18"), [12.0])
    write_report(tmp_path, tmp_path / "out")
    text = report_text(tmp_path / "out")
    assert text.count("**Recipe only**") == len(TASKS) - 1


def test_a_run_that_has_begun_at_a_larger_scale_hides_none(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-resnet18", {"nero": (12.0,), "sgd": (13.0,)})
    for status in ("unfinished", "finished"):
        write_run(tmp_path, RunConfig("cifar-resnet18", "paper", "nero"), [12.0], status=status)
        found = read_results(tmp_path)["cifar-resnet18"]
        assert found.scale == "cpu"
        assert found.other_scales == {"paper": 1}
    write_run(tmp_path, RunConfig("cifar-resnet18", "paper", "sgd"), [13.0])
    assert read_results(tmp_path)["cifar-resnet18"].scale == "paper"


def test_runs_of_different_recipes_are_not_compared(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-resnet18", {"nero": (12.0,), "sgd": (13.0,)})
    path = next(tmp_path.rglob("sgd*/records.jsonl"))
    path.write_text(path.read_text().replace('"batch_size": 128', '"batch_size": 64'))
    with pytest.raises(ConfigError, match=r"batch_size is 64 in .*sgd.* and 128 in .*nero"):
        read_results(tmp_path)


def test_a_score_that_is_no_number_is_a_lost_run(tmp_path: Path) -> None:
    write_run(tmp_path, RunConfig("shakespeare", "cpu", "nero"), [2.0, math.nan])
    nero = best_of(read_results(tmp_path)["shakespeare"], "nero")
    assert (nero.mean, nero.num_diverged, nero.num_seeds) == (math.inf, 1, 1)


@pytest.mark.parametrize(
    "text",
    ['{"loss": 1.0}\n', "[1, 2]\n", "no JSON\n", '{"kind": "run", "task": "pong"}\n', "\xff\n"],
    ids=["foreign", "list", "text", "half", "bytes"],
)
def test_file_that_holds_something_else_is_skipped_with_a_word(
    tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0,)})
    (tmp_path / "foreign.jsonl").write_text(text, encoding="latin-1")
    report_command(argparse.Namespace(results=tmp_path, out=tmp_path / "out", scale=None))
    assert f"skipped {tmp_path / 'foreign.jsonl'}" in capsys.readouterr().err
    page = report_text(tmp_path / "out")
    assert "- `foreign.jsonl`: " in page
    assert "from the records of 1 runs" in page


def test_run_with_a_broken_line_is_left_out(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0, 3.0)})
    path = next(tmp_path.rglob("nero*seed1/records.jsonl"))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], lines[3][:10] + "\n", *lines[4:]]))
    records = write_report(tmp_path, tmp_path / "out")
    assert list(records.skipped) == [path]
    assert best_of(read_results(tmp_path)["pong"], "nero").values == (1.0,)
