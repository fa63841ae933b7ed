"""The report, from made-up records of which every number is known."""

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from nero_lab import records
from nero_lab.config import RunConfig
from nero_lab.report import figures, modern, paper, report_command, write_report
from nero_lab.report.claims import CLAIMS
from nero_lab.report.comments import read_comments
from nero_lab.report.curves import legend_of, ours
from nero_lab.report.pictures import pictures
from nero_lab.report.results import Line, TaskResults, collect
from nero_lab.report.style import LOOKS, order
from nero_lab.report.tables import final_table, summary_table
from nero_lab.tasks import TASKS

METRICS = {name: task.metric.name for name, task in TASKS.items()}


def write_run(
    folder: Path,
    config: RunConfig,
    values: Sequence[float],
    *,
    status: str = "finished",
    epoch: float | None = None,
) -> None:
    """Write the records of a run whose metric takes the given values, epoch by epoch."""
    recipe, metric = config.recipe, METRICS[config.task]
    described = {name: getattr(config, name) for name in ("task", "scale", "optimizer", "lr")}
    described |= {"seed": config.seed, "variant": config.variant, "epochs": config.epochs}
    lines: list[dict[str, Any]] = [
        {
            "kind": "run",
            **described,
            "options": dict(config.options),
            "recipe": {
                "epochs": recipe.epochs,
                "batch_size": recipe.batch_size,
                "schedule": repr(recipe.schedule),
                "clip_norm": recipe.clip_norm,
                "precision": recipe.precision,
                "options": dict(recipe.options),
            },
            "command": config.command,
            "num_parameters": 1000,
            "versions": {"torch": "2.13.0"},
            "commit": "0123abc",
            "hardware": {"device": "a CPU", "cores": 2, "threads": 1},
            "clock": {"started": "2026-01-02T03:04:05+00:00"},
        }
    ]
    for index, value in enumerate(values):
        lines.append({"kind": "epoch", "epoch": index + 1, "step": 10 * (index + 1), metric: value})
        step = {"step": 10 * (index + 1), "epoch": index + 1.0, "lr": config.lr}
        lines.append({"kind": "step", **step, metric.split("_", 1)[1]: value})
    if status != "unfinished":
        end = float(len(values) if epoch is None else epoch)
        clock = {"seconds": 60.0, "seconds_per_step": 0.25, "peak_memory_bytes": 5_000_000}
        lines.append(
            {
                "kind": "end",
                "status": status,
                "step": int(10 * end),
                "epoch": end,
                "optimizer_state_bytes": 4000,
                "clock": clock,
            }
        )
    path = folder / f"{config.name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_finals(
    folder: Path, task: str, finals: Mapping[str, Sequence[float]], *, scale: str = "cpu"
) -> None:
    """Write runs of several optimisers, a seed for each final value."""
    for optimizer, values in finals.items():
        for seed, value in enumerate(values):
            write_run(folder, RunConfig(task, scale, optimizer, seed=seed), [2 * value, value])


def read_results(folder: Path) -> dict[str, TaskResults]:
    return collect(records.read_all(folder), TASKS, order)


def line_of(results: TaskResults, optimizer: str) -> Line:
    line = results.line(optimizer)
    assert line is not None
    return line


def outcome(folder: Path, key: str) -> str:
    claim = next(claim for claim in CLAIMS if claim.key == key)
    return claim.judge(read_results(folder)).outcome


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
    markdown = (out / "report.md").read_text(encoding="utf-8")
    return markdown, (out / "report.html").read_text(encoding="utf-8"), out


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
        re.findall(r"^## [^\n]*\(`([^\n]+)`\)\n(.*?)(?=^## )", markdown, re.MULTILINE | re.DOTALL)
    )
    assert list(sections) == list(TASKS)
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


def test_table_has_the_numbers_of_the_records(tmp_path: Path) -> None:
    write_finals(tmp_path, "cifar-vgg11", {"nero": (10.0, 12.5, 12.0), "sgd": (14.0,)})
    rows = final_table(read_results(tmp_path)["cifar-vgg11"]).splitlines()
    nero, sgd = ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows[2:])
    assert nero[:5] == ["Nero", "0.01", "3", "11.50", "10.00 to 12.50"]
    assert nero[5] == "11.16 ± 0.17 at lr 0.01; 8.61 ± 0.22 at lr 0.02 (ablation)"
    assert nero[6:] == ["250 ms", "5.0 MB", "4.0 kB"]
    assert sgd[:4] == ["SGD", "0.1", "1", "14.00"]


def test_summary_marks_the_best_of_each_line(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0, 3.0), "adam": (5.0, 6.0)})
    rows = summary_table(TASKS, read_results(tmp_path)).splitlines()
    index = next(i for i, row in enumerate(rows) if row.startswith("| pong"))
    assert "**20.62 ± 0.05 at lr 0.01**" in rows[index]
    assert "**5.500 (5.000 to 6.000, 2 seeds) at lr 0.0001**" in rows[index + 1]
    assert "| 2.000 (1.000 to 3.000, 2 seeds) at lr 0.01 |" in rows[index + 1]


def test_best_rate_is_chosen_by_seeds_that_all_rates_have(tmp_path: Path) -> None:
    for lr, finals in {0.01: (10.0, 14.0, 15.0), 0.02: (11.0,), 0.06: (12.0, 9.0)}.items():
        for seed, final in enumerate(finals):
            write_run(tmp_path, RunConfig("cifar-vgg11", "cpu", "nero", lr, seed), [final])
    line = line_of(read_results(tmp_path)["cifar-vgg11"], "nero")
    assert line.best.lr == 0.01
    assert line.score is not None
    assert line.score.mean == 13.0


def test_lost_runs_are_marked_and_count_as_worst(tmp_path: Path) -> None:
    for seed, (values, status, epoch) in enumerate(
        [([60.0, 40.0], "finished", 2.0), ([60.0, 70.0], "diverged", 2.4), ([], "failed", 0.3)]
    ):
        config = RunConfig("cifar-vgg11", "cpu", "sgd", seed=seed)
        write_run(tmp_path, config, values, status=status, epoch=epoch)
    results = read_results(tmp_path)["cifar-vgg11"]
    (picture,) = pictures(results)
    (track,) = picture.tracks
    assert legend_of(track) == "SGD, lr 0.1: 2 of 3 failed at epoch 3, 1"
    assert track.arm.score is not None
    assert track.arm.score.mean == math.inf
    curve = ours(track, "valid_error", by_step=False)
    assert (curve.x, curve.mean) == ([1, 2], [60.0, 40.0])
    assert [stray.lost_at for stray in curve.strays] == [2.4, 0.3]


def test_diverged_run_has_a_cross_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig("cifar-vgg11", "cpu", "sgd")
    write_run(tmp_path, config, [60.0, 70.0], status="diverged", epoch=2.4)
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: drawn.append(self))
    (picture,) = pictures(read_results(tmp_path)["cifar-vgg11"])
    figures.draw(picture, tmp_path / "picture.png")
    (axes,) = drawn[0].axes
    crosses = [np.asarray(line.get_xydata()) for line in axes.lines if line.get_marker() == "x"]
    assert np.array_equal(crosses, [[[2.0, 70.0]]])
    (legend,) = drawn[0].legends
    assert legend.get_texts()[0].get_text() == "SGD, lr 0.1: diverged at epoch 3"


def test_unfinished_run_is_shown_but_not_counted(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0, 3.0)})
    write_run(tmp_path, RunConfig("pong", "cpu", "nero", seed=2), [9.0], status="unfinished")
    results = read_results(tmp_path)["pong"]
    score = results.score("nero")
    assert score is not None
    assert (score.mean, score.num_seeds) == (2.0, 2)
    assert "(1 unfinished)" in legend_of(pictures(results)[0].tracks[0])


@pytest.mark.parametrize(
    ("nero", "rival", "expected"),
    [
        ((10.0, 11.0), (12.0, 13.0), "held"),
        ((12.0, 13.0), (10.0, 11.0), "did not hold"),
        ((10.0, 12.5), (12.0, 13.0), "undecided"),
    ],
)
def test_claim_of_the_best_flips_with_the_numbers(
    tmp_path: Path, nero: tuple[float, ...], rival: tuple[float, ...], expected: str
) -> None:
    rivals = {"sgd": (20.0, 21.0), "adam": rival, "lamb": (22.0, 23.0)}
    write_finals(tmp_path, "cifar-resnet18", {"nero": nero, **rivals})
    assert outcome(tmp_path, "best-cifar-resnet18") == expected


def test_claim_is_undecided_without_all_rivals_and_untested_by_smoke(tmp_path: Path) -> None:
    assert outcome(tmp_path, "best-wikitext2") == "not tested"
    write_finals(tmp_path, "wikitext2", {"nero": (1.0, 1.1), "sgd": (2.0, 2.1)}, scale="smoke")
    assert outcome(tmp_path, "best-wikitext2") == "not tested"
    write_finals(tmp_path, "wikitext2", {"nero": (1.0, 1.1), "sgd": (2.0, 2.1)})
    assert outcome(tmp_path, "best-wikitext2") == "undecided"


@pytest.mark.parametrize(
    ("key", "task", "holds", "fails"),
    [
        (
            "constraints-help",
            "cifar-vgg11",
            {"nero": (9, 9.2), "nero-norm": (10, 10), "nero-mean": (12, 12), "nero-none": (12, 13)},
            {"nero": (9, 9.2), "nero-norm": (8, 8), "nero-mean": (12, 12), "nero-none": (12, 13)},
        ),
        (
            "middle-ground-with",
            "cifar-vgg11",
            {"nero": (9, 9.2), "madam-balanced": (12, 12), "lamb-balanced": (10, 10)},
            {"nero": (9, 9.2), "madam-balanced": (12, 12), "lamb-balanced": (8, 8)},
        ),
        (
            "deep",
            "mnist-deep",
            {"nero": (0.9, 0.8), "sgd": (0.1, 0.1), "adam": (0.1, 0.1), "lamb": (0.2, 0.7)},
            {"nero": (0.4, 0.3), "sgd": (0.1, 0.1), "adam": (0.1, 0.1), "lamb": (0.1, 0.2)},
        ),
        (
            "sgd-unstable",
            "multi30k",
            {"nero": (11, 12), "sgd": (30, 200), "adam": (12, 13), "lamb": (16, 17)},
            {"nero": (11, 12), "sgd": (30, 31), "adam": (12, 13), "lamb": (16, 17)},
        ),
        (
            "lamb-pong",
            "pong",
            {"nero": (10, 12), "lamb": (-20, -20.5)},
            {"nero": (10, 12), "lamb": (-3, 0)},
        ),
    ],
)
def test_claims_flip_with_the_numbers(
    tmp_path: Path,
    key: str,
    task: str,
    holds: dict[str, tuple[float, ...]],
    fails: dict[str, tuple[float, ...]],
) -> None:
    write_finals(tmp_path / "holds", task, holds)
    write_finals(tmp_path / "fails", task, fails)
    assert outcome(tmp_path / "holds", key) == "held"
    assert outcome(tmp_path / "fails", key) == "did not hold"


@pytest.mark.parametrize(("large", "expected"), [(0.5, "held"), (0.9, "did not hold")])
def test_sensitivity_to_the_scale_of_weights(tmp_path: Path, large: float, expected: str) -> None:
    for seed in (0, 1):
        for variant, value in (("sigma-1", 0.9), ("sigma-100", large)):
            config = RunConfig("mnist-reparam", "cpu", "adam", seed=seed, variant=variant)
            write_run(tmp_path, config, [0.1, value + 0.01 * seed])
    assert outcome(tmp_path, "reparameterisation") == expected


@pytest.mark.parametrize(("default", "expected"), [(10.3, "held"), (12.0, "did not hold")])
def test_default_rate_must_be_near_the_best(tmp_path: Path, default: float, expected: str) -> None:
    for task in paper.TABLE_TASKS[:5]:
        for lr, final in ((0.003, 10.0), (0.01, default)):
            write_run(tmp_path, RunConfig(task, "cpu", "nero", lr), [final])
    assert outcome(tmp_path, "out-of-the-box") == expected


def test_modern_question_compares_defaults_with_tuned_rivals(tmp_path: Path) -> None:
    assert modern.rows(read_results(tmp_path)) == []
    for seed in (0, 1):
        write_run(tmp_path, RunConfig("shakespeare", "cpu", "nero", 0.01, seed), [1.5 + 0.1 * seed])
        for lr, final in ((1e-3, 1.2), (3e-3, 2.0)):
            write_run(tmp_path, RunConfig("shakespeare", "cpu", "adamw", lr, seed), [final])
        write_run(
            tmp_path, RunConfig("shakespeare", "cpu", "muon", 0.02, seed), [1.4 + 0.15 * seed]
        )
    adamw, muon = modern.rows(read_results(tmp_path))
    assert adamw[:2] == ["AdamW, lr 0.001", "2"]
    assert adamw[3:] == ["+0.3500", "apart", "worse"]
    assert muon[4:] == ["overlap", "not told apart"]


def test_largest_scale_is_shown_unless_another_is_asked_for(tmp_path: Path) -> None:
    for scale in ("smoke", "cpu"):
        write_finals(tmp_path, "pong", {"nero": (1.0,)}, scale=scale)
    assert read_results(tmp_path)["pong"].scale == "cpu"
    assert read_results(tmp_path)["pong"].other_scales == {"smoke": 1}
    chosen = collect(records.read_all(tmp_path), TASKS, order, "smoke")
    assert chosen["pong"].scale == "smoke"


def test_report_without_any_records(tmp_path: Path) -> None:
    write_report(tmp_path, tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert text.count("**Recipe only**") == len(TASKS)
    assert f"Of {len(CLAIMS)} claims: {len(CLAIMS)} not tested." in text


def test_published_numbers_agree_with_published_curves() -> None:
    task = TASKS["multi30k"]
    for curve in paper.best_curves(task, "valid_perplexity"):
        (number,) = paper.published(task, curve.optimizer)
        assert curve.lr == number.lr
        # Curves are stored with four digits.
        assert curve.mean[-1] == pytest.approx(number.mean, rel=1e-3)


def test_every_optimiser_has_a_colour_of_its_own() -> None:
    colours = [look.colour for look in LOOKS.values()]
    assert len(set(colours)) == len(colours)


def test_optimiser_of_ones_own_is_drawn_beside_nero(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0,), "sgd": (2.0,)})
    path = next((tmp_path / "pong" / "cpu").glob("sgd*"))
    text = path.read_text().replace('"optimizer": "sgd"', '"optimizer": "mine:build"')
    path.with_name("mine.jsonl").write_text(text)
    rivals, others = pictures(read_results(tmp_path)["pong"])
    assert [line.optimizer for line in rivals.lines] == ["nero", "sgd"]
    assert [line.optimizer for line in others.lines] == ["nero", "mine:build"]
