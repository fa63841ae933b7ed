"""The results in the README are those of the records, rounded once."""

import re
from pathlib import Path

import pytest
from made_up_runs import best_of, judge, read_results

from nero_lab.report import paper
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
    "deep": "100 plain layers, the authors' setting: only Nero trains",
    "deep-tuned": "100 plain layers, all tuned from He initialisation: only Nero trains",
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
    ("deep-tuned", "mnist-deep", ".2f"): {
        **{"nero": "Nero {}", "lamb": "LAMB {}", "adam": "Adam {}", "sgd": "SGD {}"}
    },
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
    assert verdict == judgement.outcome
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
    for optimizer, lr, title in (
        ("nero", 0.01, "Nero at its default of 0.01"),
        ("nero-rows", 0.03, 'Nero, `preset="rows"`, at its default of 0.03'),
    ):
        default = results[MODERN_TASK].rate(optimizer, lr)
        assert default is not None
        assert default.num_seeds == 3
        assert row(title) == [f"{default.mean:.2f}"]


@pytest.mark.parametrize(
    ("task", "title"),
    [
        ("cifar-resnet18", "ResNet-18"),
        ("cifar-vgg11", "VGG-11"),
        ("mnist-deep", "100-layer perceptron"),
    ],
)
def test_sizes_are_those_of_the_records(task: str, title: str, results: dict[str, Results]) -> None:
    full = results[task].task.paper_parameters
    assert full is not None
    ours = results[task].runs.num_parameters.min()  # others were run at full width
    assert row(title) == [f"{ours:,}", f"{full / 1e6:.1f}M"]


@pytest.mark.parametrize("step", [20, 40, 80])
def test_the_reparameterised_curve_is_the_authors(step: int, results: dict[str, Results]) -> None:
    found = results["mnist-reparam"]
    rate = found.rate("adam-momentum", 0.01, "sigma-100")
    steps = found.records.steps
    ours = steps[steps.run.isin(found.runs_of(rate).index) & (steps.step == step)]
    assert len(ours) == 3
    theirs = paper.best_curves("mnist-reparam", "train_accuracy").query(f"x == {step}")
    (mean,) = theirs[theirs.variant == "sigma-100"]["mean"]
    assert ours.accuracy.mean() == pytest.approx(mean, abs=0.05)
