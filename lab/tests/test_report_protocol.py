"""The tables and sentences of the protocol's runs."""

from pathlib import Path

import pytest
from made_up_runs import read_results, report_text, write_finals, write_run

from nero_lab.protocol.plan import PLAN
from nero_lab.report import protocol, today, write_report
from nero_lab.report.runs import PROTOCOL_SCALE
from nero_lab.runner.config import RunConfig

RATES = (3e-4, 1e-3, 3e-3, 6e-3, 1e-2)


def make_up(folder: Path, *, num_seeds: int = 3, muon_status: str = "finished") -> None:
    """Write runs of shakespeare: polar is best at a rate that is not its default."""
    for lr, loss in ((0.015, 1.1), (0.03, 1.5), (0.06, 1.0)):
        write_run(folder, RunConfig("shakespeare", "mini", "nero-polar", lr), [2.0, loss])
    for lr in RATES:
        loss = 2.0 if lr == 3e-3 else 2.5
        write_run(folder, RunConfig("shakespeare", "mini", "adamw", lr), [3.0, loss])
    write_run(
        folder, RunConfig("shakespeare", "mini", "muon", 0.006), [2.0, 1.5], status=muon_status
    )
    for seed in range(1, num_seeds):
        shift = 0.01 * seed
        polar = RunConfig("shakespeare", "mini", "nero-polar", 0.03, seed)
        write_run(folder, polar, [2.0, 1.5 + shift])
        write_run(folder, RunConfig("shakespeare", "mini", "adamw", 3e-3, seed), [2.0, 2.0 - shift])


def today_of(folder: Path) -> protocol.Scored:
    (found,) = protocol.scored(read_results(folder, PROTOCOL_SCALE))["shakespeare"]
    return found


def test_every_comparison_has_a_title_or_no_table() -> None:
    names = {comparison.key.partition("/")[0] for comparison in PLAN}
    assert names == {*protocol._TITLES} | {*protocol._WITHOUT_TABLE}
    assert not {*protocol._TITLES} & {*protocol._WITHOUT_TABLE}


def test_a_preset_is_scored_at_its_default_and_a_rival_at_its_best(tmp_path: Path) -> None:
    make_up(tmp_path)
    found = today_of(tmp_path)
    rows = {row[0]: row[1:] for row in protocol.table(found).to_numpy().tolist()}
    assert rows["Nero, preset polar"][:3] == ["0.03 (default)", "1 (default)", "3"]
    assert rows["AdamW"][:3] == ["0.003", "5", "3"]
    assert rows["AdamW"][3:] == ["1.990", "1.980 to 2.000"]
    assert found.missing == ["Nero, preset rows"]


def test_sentences_have_the_interval_the_seeds_and_the_rates(tmp_path: Path) -> None:
    make_up(tmp_path)
    adamw, muon = protocol.sentences(today_of(tmp_path))
    assert adamw.startswith(
        "Nero, preset polar: 24.1% ahead of AdamW (95% interval 21.6% to 26.6%)"
    )
    assert adamw.endswith("; 3 seeds; default against best of 5 learning rates.")
    assert "; 1 seed, so no interval; " in muon
    assert "no clear difference from Muon, 0.0%" in muon


def test_a_comparison_without_a_rival_is_not_shown(tmp_path: Path) -> None:
    for name in ("nero-rows", "nero-polar"):
        write_run(tmp_path, RunConfig("shakespeare", "mini", name, 0.03), [2.0])
    assert protocol.scored(read_results(tmp_path, PROTOCOL_SCALE)) == {}


def test_two_seeds_show_a_tendency(tmp_path: Path) -> None:
    make_up(tmp_path, num_seeds=2)
    assert "; 2 seeds, so at most a tendency; " in protocol.sentences(today_of(tmp_path))[0]


@pytest.mark.parametrize(
    ("status", "words"),
    [("diverged", "the only run diverged"), ("stopped", "stopped halfway, far behind")],
)
def test_a_lost_rival_is_told(tmp_path: Path, status: str, words: str) -> None:
    make_up(tmp_path, muon_status=status)
    assert any(words in sentence for sentence in protocol.sentences(today_of(tmp_path)))


def test_its_runs_stand_beside_those_of_another_scale(tmp_path: Path) -> None:
    make_up(tmp_path / "runs")
    write_finals(tmp_path / "runs", "shakespeare", {"nero": (1.0, 1.1)})
    assert read_results(tmp_path / "runs")["shakespeare"].scale == "cpu"
    write_report(tmp_path / "runs", tmp_path / "out")
    text = report_text(tmp_path / "out")
    assert "### Protocol runs" not in (tmp_path / "out" / "report.md").read_text()
    assert "## Protocol runs" in (tmp_path / "out" / "task-shakespeare.md").read_text()
    assert "ahead of AdamW (" in text
    assert (tmp_path / "out" / "figures" / "today.png").stat().st_size > 5_000
    overview = (tmp_path / "out" / "report.md").read_text()
    assert "Nero, preset polar 1.510" in overview
    assert "figures/today.png" in overview
    assert "| shakespeare | mini | 13 |" in text  # machine time


def test_the_picture_has_a_row_for_each_preset(tmp_path: Path) -> None:
    make_up(tmp_path)
    found = today.rows(protocol.scored(read_results(tmp_path, PROTOCOL_SCALE)))
    assert [(task, preset.optimizer) for task, preset, _ in found] == [
        ("shakespeare", "nero-polar")
    ]
    assert [rival.optimizer for rival in found[0][2]] == ["adamw", "muon"]


def test_a_learning_rate_that_is_fixed_is_not_called_the_default(tmp_path: Path) -> None:
    for name in ("nero-rows", "nero-polar"):
        for lr in (0.003, 0.03):
            write_run(tmp_path, RunConfig("mnist-deep", "mini", name, lr), [0.5, lr])
    comparisons = protocol.scored(read_results(tmp_path, PROTOCOL_SCALE))["mnist-deep"]
    (found,) = (one for one in comparisons if one.name == "lower")
    assert set(protocol.table(found).lr) == {"0.003 (fixed)"}
    assert protocol.sentences(found)[0].endswith("lr 0.003 against lr 0.003.")
