"""The results in the README and the guides are those of the records, rounded once."""

import json
import re
from pathlib import Path

import pytest
from made_up_runs import best_of, read_results

from nero_lab.report import paper
from nero_lab.report.claims import CLAIMS
from nero_lab.report.runs import Results
from nero_lab.report.tables import MODERN_TASK
from nero_lab.report.verdicts import headline

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "lab" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAN = ROOT / "benchmarks" / "reports" / "2026-11-16-plan-llama-8b.json"

# A row of the README's table: the lab's name, the rate (of several, the best), the name of `nero plan`.
ROWS = {
    "SGD with momentum": ("sgd-momentum", None, None),
    "AdamW": ("adamw", None, "adamw"),
    "Muon, with AdamW": ("muon", None, "muon"),
    "`Nero(model)`": ("nero", 0.01, "nero"),
    '`preset="rows"`': ("nero-rows", 0.03, "nero-rows"),
    '`preset="polar"`': ("nero-polar", 0.03, "nero-polar"),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Results]:
    return read_results(RECORDS)


def row(title: str, text: str = README) -> list[str]:
    """Return the cells after the first of the row of a table, of the README's by default."""
    (found,) = re.findall(rf"^\| {re.escape(title)} \|(.*)\|$", text, flags=re.MULTILINE)
    return [cell.strip() for cell in found.split("|")]


def cell(results: Results, optimizer: str, lr: float | None, variant: str) -> str:
    """Return a mean as the README writes it, with the number of seeds if there are few."""
    if lr is None:
        rate = results.best([optimizer], variant).get(optimizer)
    else:
        rate = results.rate(optimizer, lr, variant)
    if rate is None:
        return "not run"
    few = {1: " (1 seed)", 2: " (2 seeds)"}
    return f"{rate.mean:.2f}{few.get(rate.num_seeds, '')}"


@pytest.mark.parametrize("title", ROWS)
def test_losses_are_those_of_the_records(title: str, results: dict[str, Results]) -> None:
    optimizer, lr, _ = ROWS[title]
    found = [cell(results[MODERN_TASK], optimizer, lr, variant) for variant in ("", "long")]
    assert row(title)[:2] == found


def test_the_page_of_presets_has_the_same_losses() -> None:
    page = (ROOT / "docs" / "how-to" / "presets.md").read_text(encoding="utf-8")
    titles = {
        "Nero as in the paper, lr 0.01": "`Nero(model)`",
        "Muon, best rate": "Muon, with AdamW",
    }
    titles |= {"AdamW, best rate": "AdamW"}
    titles |= {title: title for title in ('`preset="rows"`', '`preset="polar"`')}
    for here, there in titles.items():
        losses = [loss.removesuffix(" (1 seed)") for loss in row(there)[:2]]
        assert row(here, page)[-2:] == losses


@pytest.mark.parametrize("title", [title for title, (_, _, name) in ROWS.items() if name])
def test_collectives_are_those_that_were_counted(title: str) -> None:
    (plan,) = json.loads(PLAN.read_text(encoding="utf-8"))["plans"]
    assert row(title)[-1] == f"{plan['costs'][ROWS[title][2]]['num_collectives']:,}"


def test_claims_are_counted_as_in_the_report(results: dict[str, Results]) -> None:
    counted = headline(claim.verdict(results) for claim in CLAIMS).removesuffix(".")
    number, outcomes = re.fullmatch(r"Of (\d+) claims: (.*)", counted).groups()  # type: ignore[union-attr]
    assert f"Of {number} claims, {outcomes}" in re.sub(r"\s+", " ", README)


@pytest.mark.parametrize("page", ["README.md", "docs/choose.md", "docs/index.md"])
def test_vgg_is_that_of_the_records(page: str, results: dict[str, Results]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    digits = ".1f" if page == "README.md" else ".0f"
    for optimizer in ("nero", "lamb", "adam", "sgd"):
        assert f"{best_of(results['cifar-vgg11'], optimizer).mean:{digits}}%" in text


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
