"""The map of one rate over sizes and lengths."""

import math
from pathlib import Path

import pytest
from made_up_runs import read_results, report_text, write_run

from nero_lab.report import write_report
from nero_lab.report.formatting import NOTHING
from nero_lab.report.transfer import gaps, table
from nero_lab.runner.config import RunConfig
from nero_lab.tasks.shakespeare_transfer import SHAKESPEARE_TRANSFER

LOSSES = {
    ("nero-rows", 0.03, None): 2.0,
    ("nero-rows", 0.06, None): 1.9,
    ("nero-rows", 0.03, "width-64"): 2.0,
    ("nero-rows", 0.06, "width-64"): 2.2,
    ("nero-rows", 0.03, "steps-600"): math.inf,
    ("nero-rows", 0.06, "steps-600"): 1.8,
    ("adamw", 0.003, None): 2.1,
    ("adamw", 0.006, None): 2.4,
    ("adamw", 0.003, "width-64"): 2.5,
    ("adamw", 0.006, "width-64"): 2.0,
}


def write(folder: Path) -> None:
    for (optimizer, lr, variant), loss in LOSSES.items():
        config = RunConfig("shakespeare-transfer", "cpu", optimizer, lr, variant=variant)
        write_run(folder, config, [loss], status="diverged" if math.isinf(loss) else "finished")


def test_gaps_are_from_the_best_rate_of_the_same_optimizer(tmp_path: Path) -> None:
    write(tmp_path)
    found = gaps(read_results(tmp_path)["shakespeare-transfer"])
    by_rate = found.set_index(["variant", "optimizer", "lr"]).gap
    assert by_rate["", "nero-rows", 0.03] == pytest.approx(100 * 0.1 / 1.9)
    assert by_rate["width-64", "nero-rows", 0.03] == 0
    assert by_rate["width-64", "adamw", 0.003] == pytest.approx(25)
    assert by_rate["steps-600", "nero-rows", 0.03] == math.inf


def test_a_preset_is_held_at_its_default_and_others_at_their_best_without_a_variant(
    tmp_path: Path,
) -> None:
    write(tmp_path)
    found = table(read_results(tmp_path)["shakespeare-transfer"]).set_index("network")
    assert list(found.columns) == ["Nero, preset rows at 0.03", "AdamW at 0.003"]
    assert found.index[0] == "width 128, layers 4, steps 300"
    assert found.iloc[0, 0] == "2.000, +5.3% (best at 0.06)"
    assert found.loc["width 64", "AdamW at 0.003"] == "2.500, +25.0% (best at 0.006)"
    assert found.loc["steps 600"].tolist() == ["diverged", NOTHING]


def test_a_single_rate_is_not_called_the_best(tmp_path: Path) -> None:
    for variant, rates in {None: (0.03, 0.06), "steps-600": (0.03,)}.items():
        for lr in rates:
            config = RunConfig("shakespeare-transfer", "cpu", "nero-polar", lr, variant=variant)
            write_run(tmp_path, config, [2.0])
    results = read_results(tmp_path)["shakespeare-transfer"]
    found = gaps(results)
    held = found[found.is_one]
    assert dict(zip(held.variant, held.num_rates, strict=True)) == {"": 2, "steps-600": 1}
    assert table(results).iloc[:, 1].tolist() == ["2.000, +0.0%", "2.000, the only one tried"]


def test_a_network_on_which_every_rate_diverged_is_not_one_that_was_not_run(tmp_path: Path) -> None:
    config = RunConfig("shakespeare-transfer", "cpu", "nero-rows", 0.03, variant="layers-16")
    write_run(tmp_path, config, [math.inf], status="diverged")
    assert gaps(read_results(tmp_path)["shakespeare-transfer"]).gap.tolist() == [math.inf]


def test_unfinished_runs_and_optimizers_of_others_do_not_stop_the_report(tmp_path: Path) -> None:
    for optimizer in ("nero-rows", "torch.optim:SGD"):
        config = RunConfig("shakespeare-transfer", "cpu", optimizer, 0.03)
        write_run(tmp_path / "runs", config, [2.0], status="unfinished")
    write_report(tmp_path / "runs", tmp_path / "out")
    write_run(tmp_path / "runs", config, [2.0])
    write_report(tmp_path / "runs", tmp_path / "out")
    assert "torch.optim:SGD at 0.03" in report_text(tmp_path / "out")


def test_the_page_has_one_map_and_no_curves(tmp_path: Path) -> None:
    write(tmp_path / "runs")
    write_report(tmp_path / "runs", tmp_path / "out")
    figures = {path.name for path in (tmp_path / "out" / "figures").glob("shakespeare-transfer*")}
    assert figures == {"shakespeare-transfer-rates.png"}
    markdown = report_text(tmp_path / "out")
    assert "figures/shakespeare-transfer-rates.png" in markdown
    assert "| width 64 | 2.000, +0.0% | 2.500, +25.0% (best at 0.006) |" in markdown


@pytest.mark.parametrize("variant", SHAKESPEARE_TRANSFER.variants)
def test_a_variant_changes_one_thing(variant: str) -> None:
    plain = RunConfig("shakespeare-transfer").recipe
    changed = RunConfig("shakespeare-transfer", variant=variant).recipe
    differs = {name for name in plain.options if plain.options[name] != changed.options[name]}
    differs |= {"epochs"} if plain.epochs != changed.epochs else set()
    assert differs in ({"width", "num_heads"}, {"num_layers"}, {"epochs"})
