"""The results in the README are those of the records, rounded once."""

import re
from pathlib import Path

import pytest
from made_up_runs import best_of, judge, read_results

from nero_lab.report.runs import Results
from nero_lab.report.tables import MODERN_TASK

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "lab" / "results"

ROWS = {
    "best-cifar-vgg11": "VGG-11: Nero is the best of four",
    "constraints-help": "VGG-11: it takes both constraints",
    "reparameterisation": "Reparameterised Adam depends on the scale of the raw weights",
    "middle-ground-without": "VGG-11: per neuron beats per layer, without constraints",
    "middle-ground-with": "VGG-11: the same with constraints",
    "whom-constraints-help": "VGG-11: constraints leave Madam as it was",
    "best-cifar-resnet18": "ResNet-18: Nero is the best of four",
    "best-wikitext2": "WikiText-2: Nero is the best of four",
    "best-multi30k": "Multi30k: Nero is the best of four",
    "out-of-the-box": "The default rate of 0.01 is near the best",
    "best-pong": "Pong: Nero is the best of four",
    "deep": "Only Nero trains 100 plain layers",
}
SCORES = {
    ("best-cifar-vgg11", "cifar-vgg11", ".1f"): {
        **{"nero": "Nero {}%", "lamb": "LAMB {}%", "adam": "Adam {}%", "sgd": "SGD {}%"}
    },
    ("constraints-help", "cifar-vgg11", ".1f"): {
        **{"nero": "both {}%", "nero-mean": "mean only {}%"},
        **{"nero-norm": "norm only {}%", "nero-none": "none {}%"},
    },
    ("middle-ground-without", "cifar-vgg11", ".1f"): {"nero-none": "Nero {}%", "lamb": "LAMB {}%"},
    ("middle-ground-with", "cifar-vgg11", ".1f"): {"nero": "Nero {}%", "lamb-balanced": "LAMB {}%"},
    ("whom-constraints-help", "cifar-vgg11", ".1f"): {
        **{"madam": "{}% at 0.02 without", "madam-balanced": "{}% at 0.06 with"}
    },
    ("best-cifar-resnet18", "cifar-resnet18", ".1f"): {
        **{"nero": "Nero {}%", "lamb": "LAMB {}%", "adam": "Adam {}%", "sgd": "SGD {}%"}
    },
    ("best-wikitext2", "wikitext2", ".0f"): {
        **{"nero": "Nero {}", "lamb": "LAMB {}", "adam": "Adam {}", "sgd": "SGD {}"}
    },
    ("best-multi30k", "multi30k", ".2f"): {"nero": "Nero {}", "adam": "Adam {}"},
    ("best-pong", "pong", ".1f"): {"nero": "Nero {}", "adam": "Adam {}"},
}
TODAY = {
    **{"muon": "Muon", "schedule-free": "Schedule-Free AdamW", "adamw": "AdamW"},
    **{"nero": "Nero at lr 0.1, its best rate", "prodigy": "Prodigy"},
    "sgd-momentum": "SGD with momentum",
}


@pytest.fixture(scope="module")
def results() -> dict[str, Results]:
    return read_results(RECORDS)


def row(title: str) -> list[str]:
    """Return the cells after the first of the row of a table of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^\| {re.escape(title)} \|(.*)\|$", text, flags=re.MULTILINE)
    return [cell.strip() for cell in found.split("|")]


@pytest.mark.parametrize("key", ROWS)
def test_verdict_is_that_of_the_report(key: str) -> None:
    judgement = judge(RECORDS, key)
    _, seeds, verdict = row(ROWS[key])
    assert verdict.strip("*").removeprefix("withdrawn: ") == judgement.outcome
    assert seeds == str(judgement.num_seeds)


@pytest.mark.parametrize(("key", "task", "digits"), SCORES)
def test_scores_are_those_of_the_records(
    key: str, task: str, digits: str, results: dict[str, Results]
) -> None:
    for optimizer, words in SCORES[key, task, digits].items():
        mean = best_of(results[task], optimizer).mean
        assert words.format(format(mean, digits)) in row(ROWS[key])[0]


def test_comparison_with_today_is_that_of_the_records(results: dict[str, Results]) -> None:
    for optimizer, title in TODAY.items():
        assert row(title) == [f"{best_of(results[MODERN_TASK], optimizer).mean:.2f}"]
    default = results[MODERN_TASK].rate("nero", 0.01)
    assert default is not None
    assert row("Nero at its default of 0.01") == [f"{default.mean:.2f}"]


@pytest.mark.parametrize(
    ("task", "title"), [("cifar-resnet18", "ResNet-18"), ("cifar-vgg11", "VGG-11")]
)
def test_sizes_are_those_of_the_records(task: str, title: str, results: dict[str, Results]) -> None:
    full = results[task].task.paper_parameters
    assert full is not None
    (ours,) = set(results[task].runs.num_parameters)
    assert row(title) == [f"{ours:,}", f"{full / 1e6:.1f}M"]
