"""The results in the README and the guides are those of the records, rounded once."""

import json
import re
from pathlib import Path
from typing import Any

import pandas
import pytest

from nero.numbers import human_bytes
from nero_lab.protocol.plan import PLAIN_TASKS, TRANSFER_VARIANTS
from nero_lab.report import paper, transfer
from nero_lab.report.claims import CLAIMS
from nero_lab.report.differences import against
from nero_lab.report.protocol import Scored, scored
from nero_lab.report.rates import Rate
from nero_lab.report.runs import PROTOCOL_SCALE, Records, Results, collect, read_records
from nero_lab.report.tables import MODERN_TASK
from nero_lab.report.verdicts import headline
from nero_lab.tasks import TASKS

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "lab" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")
STUDY = (ROOT / "docs" / "presets-study.md").read_text(encoding="utf-8")
PLAN = ROOT / "tools" / "reports" / "2026-11-16-plan-llama-8b.json"

# A row of the README's table: the lab's name, the rate (of several, the best), the name of `nero plan`.
ROWS = {
    "AdamW": ("adamw", None, "adamw"),
    "Muon + AdamW": ("muon", None, "muon"),
    "`Nero(model)`": ("nero", 0.01, "nero"),
    "`Nero(model, lr=0.03)`": ("nero", 0.03, "nero"),
    '`preset="rows"`': ("nero-rows", 0.03, "nero-rows"),
    '`preset="polar"`': ("nero-polar", 0.03, "nero-polar"),
}


@pytest.fixture(scope="module")
def records() -> Records:
    return read_records(RECORDS, TASKS)


@pytest.fixture(scope="module")
def results(records: Records) -> dict[str, Results]:
    return collect(records, TASKS)


@pytest.fixture(scope="module")
def mini(records: Records) -> dict[str, Results]:
    return collect(records, TASKS, PROTOCOL_SCALE)


def in_one_line(text: str) -> str:
    """Return a text as if its lines were not wrapped."""
    return re.sub(r"\s+", " ", text)


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


def with_range(results: Results, optimizer: str, lr: float | None, variant: str) -> str:
    """Return a mean with the range over seeds, as the README writes it."""
    if lr is None:
        rate = results.best([optimizer], variant)[optimizer]
    else:
        rate = results.rate(optimizer, lr, variant)
    assert rate is not None
    if rate.num_seeds < 3:
        return cell(results, optimizer, lr, variant)
    return f"{rate.mean:.2f} ({rate.low:.2f} to {rate.high:.2f})"


@pytest.mark.parametrize("title", ROWS)
def test_losses_are_those_of_the_records(title: str, results: dict[str, Results]) -> None:
    optimizer, lr, _ = ROWS[title]
    found = [with_range(results[MODERN_TASK], optimizer, lr, variant) for variant in ("", "long")]
    assert row(title)[:2] == found


# Where the README's states and step times were measured, and under which names.
STEPS = {
    "AdamW": {
        "2026-11-18-step-peak.json": "adamw-fused",
        "2026-11-19-step-polar.json": "adamw-fused",
    },
    "Muon + AdamW": {"2026-11-15-step-rivals.json": "muon"},
    "`Nero(model)`": {"2026-11-18-step-peak.json": "nero", "2026-11-19-step-polar.json": "nero"},
    "`Nero(model, lr=0.03)`": {
        "2026-11-18-step-peak.json": "nero",
        "2026-11-19-step-polar.json": "nero",
    },
    '`preset="rows"`': {
        "2026-11-18-step-peak.json": "nero-rows-peak",
        "2026-11-19-step-polar.json": "nero-rows",
    },
    '`preset="polar"`': {"2026-11-19-step-polar.json": "nero-polar"},
}


def measured(title: str) -> list[dict[str, Any]]:
    """Return what each run measured for GPT-2 124M with two threads."""
    found = []
    for file, optimizer in STEPS[title].items():
        for result in json.loads((PLAN.parent / file).read_text(encoding="utf-8"))["results"]:
            if (result["model"], result["threads"]) == ("gpt2-124m", 2):
                found.append(dict(result.get("optimizers", result.get("rivals"))[optimizer]))
    assert len(found) == len(STEPS[title])
    return found


def step_time(title: str) -> str:
    """Return a ratio as the tables write it, or the range of several runs."""
    medians = [run["ratios"]["adamw-fused"]["median"] for run in measured(title)]
    low, high = (f"{end:.2f}" if end < 1 else f"{end:.0f}" for end in (min(medians), max(medians)))
    return low if low == high else f"{low} to {high}"


@pytest.mark.parametrize("title", STEPS)
def test_states_are_those_that_were_measured(title: str) -> None:
    (size,) = {run["state_bytes"] for run in measured(title)}
    assert row(title)[2] == human_bytes(size)


def test_polar_has_the_state_of_rows() -> None:
    (plan,) = json.loads(PLAN.read_text(encoding="utf-8"))["plans"]
    rows, polar = (plan["costs"][name]["state_bytes"] for name in ("nero-rows", "nero-polar"))
    assert rows == polar
    assert row('`preset="polar"`')[2] == row('`preset="rows"`')[2]


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/from-adamw.md"])
def test_step_times_are_those_that_were_measured(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if page == "README.md":
        for title in STEPS:  # Muon was timed on another machine
            assert row(title)[3] == ("\N{EN DASH}" if title == "Muon + AdamW" else step_time(title))
    else:
        others = ("AdamW", "`Nero(model)`", '`preset="rows"`', '`preset="polar"`')
        of_others = [step_time(title) for title in others]
        assert row("step time on 2 CPU threads, relative to fused AdamW", text) == of_others


def test_the_study_has_the_same_losses() -> None:
    titles = {
        "Nero as in the paper, lr 0.01": "`Nero(model)`",
        "Muon, best learning rate": "Muon + AdamW",
    }
    titles |= {"AdamW, best learning rate": "AdamW"}
    titles |= {title: title for title in ('`preset="rows"`', '`preset="polar"`')}
    for here, there in titles.items():
        losses = [loss.partition(" (")[0] for loss in row(there)[:2]]
        assert row(here, STUDY)[-2:] == losses


# Rows of the study's table of the protocol: the task, and the digits of a score.
PROTOCOL = {
    "tiny GPT, Shakespeare, 300 steps: loss": ("shakespeare", 2),
    "mixture-of-experts GPT, Shakespeare, 200 steps: loss": ("shakespeare-moe", 2),
    "language model, WikiText-2, 286 steps: test perplexity": ("wikitext2", 0),
    "translation, Multi30k, 400 steps: test perplexity": ("multi30k", 1),
    "toy with Zipf-distributed words, 600 steps: excess loss": ("zipf-words", 2),
    "tiny ViT, CIFAR-10, 256 steps: error in %": ("cifar-vit", 1),
    "ResNet-18 of width 8, CIFAR-10, 320 steps: error in %": ("cifar-resnet18", 1),
    "VGG-11 without batch norm, CIFAR-10, 512 steps: error in %": ("cifar-vgg11", 1),
    "50-layer MLP without normalization, MNIST, 960 steps: training accuracy": ("mnist-deep", 2),
}


@pytest.fixture(scope="module")
def today(mini: dict[str, Results]) -> dict[str, Scored]:
    found = scored(mini)
    return {task: one for task, several in found.items() for one in several if one.name == "today"}


OURS = ("nero-rows", "nero-polar")
RIVALS = ("adamw", "muon", "normuon", "soap", "schedule-free", "sgd-momentum")


@pytest.fixture(scope="module")
def protocol(mini: dict[str, Results]) -> dict[str, dict[str, Rate]]:
    """Return the scores of each task, in both comparisons with today's optimizers."""
    found: dict[str, dict[str, Rate]] = {}
    for task, several in scored(mini).items():
        for one in several:
            if one.name in ("today", "others"):
                assert not one.missing
                found.setdefault(task, {}).update(one.rates)
    return found


@pytest.mark.parametrize("title", PROTOCOL)
def test_the_study_has_the_scores_of_the_protocol(
    title: str, protocol: dict[str, dict[str, Rate]]
) -> None:
    task, digits = PROTOCOL[title]
    rates = [protocol[task].get(optimizer) for optimizer in (*OURS, *RIVALS)]
    ran = [rate for rate in rates if rate is not None]
    best = min(ran, key=lambda rate: rate.badness)
    cells = [f"{rate.mean:.{digits}f}" if rate else "\N{EN DASH}" for rate in rates]
    cells[rates.index(best)] = f"**{cells[rates.index(best)]}**"
    assert row(title, STUDY) == cells
    # What the page says of all of them.
    assert {rate.num_seeds for rate in ran} == {3 if task in PLAIN_TASKS else 5}
    assert all(rate.num_rates >= 5 for rate in ran if rate.optimizer not in OURS)


def test_the_study_leaves_out_no_finished_comparison(
    protocol: dict[str, dict[str, Rate]],
) -> None:
    assert {*protocol} == {task for task, _ in PROTOCOL.values()}


NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def wins(protocol: dict[str, dict[str, Rate]], ours: str, rival: str) -> tuple[int, int]:
    """Return on how many tasks a preset has the better mean, and how many both ran on."""
    both = [rates for rates in protocol.values() if rival in rates]
    return sum(rates[ours].badness < rates[rival].badness for rates in both), len(both)


@pytest.mark.parametrize("ours", OURS)
def test_the_study_counts_the_wins(ours: str, protocol: dict[str, dict[str, Rate]]) -> None:
    counted = [wins(protocol, ours, rival) for rival in RIVALS]
    title = f"`{ours.removeprefix('nero-')}`"
    assert row(title, STUDY) == [f"{won} of {of}" for won, of in counted]


@pytest.mark.parametrize("page", ["README.md", "docs/choose.md", "docs/how-to/presets.md"])
def test_the_pages_count_the_wins(page: str, protocol: dict[str, dict[str, Rate]]) -> None:
    text = in_one_line((ROOT / page).read_text(encoding="utf-8"))
    for rival, name in (("adamw", "AdamW"), ("muon", "Muon")):
        won, of = wins(protocol, "nero-polar", rival)
        assert re.search(rf"(?<![\w-]){name} on {NUMBERS[won]} of (the )?{NUMBERS[of]}", text)
    if page == "README.md":
        newer = {name: wins(protocol, "nero-polar", name) for name in ("normuon", "soap")}
        said = {name: f"on {NUMBERS[won]} of {NUMBERS[of]}" for name, (won, of) in newer.items()}
        assert f"NorMuon {said['normuon']} and SOAP {said['soap']}" in text


def test_the_study_says_what_twice_the_rate_gains_on_the_toy(mini: dict[str, Results]) -> None:
    toy = mini["zipf-words"]
    (score,) = {f"{toy.rate(name, 0.06, '').mean:.2f}" for name in ("nero-rows", "nero-polar")}
    text = in_one_line(STUDY)
    assert f"`lr=0.06` takes `rows` and `polar` to {score}, still behind Muon" in text
    assert float(score) > toy.best(["muon"], "")["muon"].mean


def test_the_study_says_what_half_and_twice_the_rate_cost(
    mini: dict[str, Results], today: dict[str, Scored]
) -> None:
    changes: dict[float, dict[tuple[str, str], float]] = {0.015: {}, 0.06: {}}
    for task in {task for task, _ in PROTOCOL.values()} - {"mnist-deep"}:
        for name in ("nero-rows", "nero-polar"):
            variant = today[task].comparison.variant or ""
            default = mini[task].rate(name, 0.03, variant).badness_by_seed[0]
            for lr, found in changes.items():
                score = mini[task].rate(name, lr, variant).badness_by_seed[0]
                found[name, task] = 100 * (score - default) / abs(default)
    text = in_one_line(STUDY)
    for found in changes.values():
        best, worst = min(found.values()), max(found.values())
        assert f"between {-best:.0f}% better and {worst:.0f}% worse" in text
    assert max(changes[0.06], key=lambda each: changes[0.06][each]) == ("nero-rows", "multi30k")


@pytest.fixture(scope="module")
def lower(mini: dict[str, Results]) -> list[str]:
    """Return the accuracies of polar and rows on the deep MLP at a tenth of their default."""
    found = [mini["mnist-deep"].rate(name, 0.003) for name in ("nero-polar", "nero-rows")]
    assert [rate and rate.num_seeds for rate in found] == [3, 3]
    return [f"{rate.mean:.2f}" for rate in found if rate]


def test_the_study_says_what_a_tenth_of_the_rate_gains_on_the_deep_mlp(
    lower: list[str], protocol: dict[str, dict[str, Rate]]
) -> None:
    polar, rows = lower
    text = in_one_line(STUDY)
    assert f"`polar` reaches a training accuracy of {polar} and `rows` {rows} (three seeds)" in text
    best = [protocol["mnist-deep"][name].lr for name in ("adamw", "muon")]
    assert "far smaller learning rates: {:g} and {:g},".format(*best) in text


@pytest.mark.parametrize(
    ("task", "name", "rival", "said"),
    [
        ("multi30k", "nero-polar", "muon", "Muon is {} ahead of `polar`"),
        ("multi30k", "nero-rows", "muon", "{} ahead of `rows`"),
        ("zipf-words", "nero-polar", "muon", "Muon is {} ahead of `polar`"),
        ("zipf-words", "nero-polar", "adamw", "AdamW is {} ahead of `polar`"),
        ("zipf-words", "nero-rows", "adamw", "{} ahead of `rows`"),
    ],
)
def test_the_study_says_how_far_a_rival_is_ahead(
    task: str, name: str, rival: str, said: str, protocol: dict[str, dict[str, Rate]]
) -> None:
    ours, theirs = (protocol[task][each] for each in (name, rival))
    assert against(theirs, ours) == "better"
    assert said.format(f"{100 * (ours.mean / theirs.mean - 1):.0f}%") in in_one_line(STUDY)


def test_the_study_says_which_wins_are_too_close_to_call(
    protocol: dict[str, dict[str, Rate]],
) -> None:
    close = {
        (task, ours, rival)
        for task, rates in protocol.items()
        for ours in OURS
        for rival in RIVALS
        if rival in rates
        and rates[ours].badness < rates[rival].badness
        and against(rates[ours], rates[rival]) == "inconclusive"
    }
    assert close == {
        ("cifar-resnet18", "nero-polar", "soap"),
        ("cifar-resnet18", "nero-rows", "adamw"),
        ("cifar-vit", "nero-rows", "soap"),
        ("shakespeare-moe", "nero-rows", "schedule-free"),
    }
    text = in_one_line(STUDY)
    assert "On ResNet-18, `polar` does not differ clearly from SOAP, nor `rows` from AdamW." in text
    assert "On the ViT, `rows` does not differ clearly from SOAP, nor, on the mixture" in text


def test_the_study_says_how_the_papers_schedule_does(mini: dict[str, Results]) -> None:
    found = mini["wikitext2"].best(["sgd", "adam"])
    text = in_one_line(STUDY)
    assert f"SGD without momentum reaches a test perplexity of {found['sgd'].mean:.0f}" in text
    assert f"Adam without momentum {found['adam'].mean:.0f}." in text
    assert {rate.num_seeds for rate in found.values()} == {3}


def test_the_study_says_what_initial_norms_change(mini: dict[str, Results]) -> None:
    found = [
        mini["wikitext2"].rate(f"{name}-initial", 0.03, "cosine")
        for name in ("nero-rows", "nero-polar")
    ]
    rows, polar = (f"{rate.mean:.0f}" for rate in found if rate)
    said = f"a test perplexity of {rows} (`rows`) and {polar} (`polar`), with three seeds"
    assert said in in_one_line(STUDY)
    assert {rate.num_seeds for rate in found if rate} == {3}


LENGTHS = {
    "`lr=0.015` (0.0176 for 3,525 steps)": (0.015, 0.015, 0.0176),
    "`lr=0.03`, the default": (0.03,) * 3,
    "`lr=0.06`": (0.06,) * 3,
}


@pytest.mark.parametrize("title", LENGTHS)
def test_the_study_says_how_polars_rate_goes_with_the_length(
    title: str, mini: dict[str, Results]
) -> None:
    scores = [
        mini["shakespeare"].rate("nero-polar", lr, variant).badness_by_seed[0]
        for lr, variant in zip(LENGTHS[title], ("", "16 epochs", "47 epochs"), strict=True)
    ]
    assert row(title, STUDY) == [f"{score:.3f}" for score in scores]


# Rows of the table of norms: the task, how its runs were set, and the digits of a score.
NORMS = {
    "GPT, 600 steps: loss": ("shakespeare", "", 2),
    "mixture-of-experts GPT: loss": ("shakespeare-moe", "", 2),
    "small ViT: error in %": ("cifar-vit", "", 1),
    "ResNet-18, 780 steps: error in %": ("cifar-resnet18", "precision float32, 2 epochs", 1),
    "Multi30k: validation perplexity": (
        "multi30k",
        "hidden 256, num_sentences 10000, precision float32, schedule Cosine(warmup=0.1), width 128, "
        "8 epochs",
        1,
    ),
    "WikiText-2: validation perplexity": (
        "wikitext2",
        "num_tokens 200000, precision float32, schedule Cosine(warmup=0.1), 3 epochs",
        0,
    ),
}


@pytest.mark.parametrize("title", NORMS)
def test_the_decision_compares_the_norms(title: str, results: dict[str, Results]) -> None:
    text = (ROOT / "docs" / "decisions" / "peak-norm.md").read_text(encoding="utf-8")
    task, variant, digits = NORMS[title]
    names = ("nero-rows-rms", "nero-rows", "nero-polar-rms", "nero-polar")
    scores = [results[task].rate(name, 0.03, variant) for name in names]
    shown = ["not run" if score is None else f"{score.mean:.{digits}f}" for score in scores]
    assert row(title, text) == shown


# Rows of the study's table of rates, and the settings in its columns.
HELD = {
    "`rows`, `lr=0.03`": "nero-rows",
    "`polar`, `lr=0.03`": "nero-polar",
    "Muon, `lr=0.02`": "muon",
    "AdamW, `lr=0.01`": "adamw",
}
SETTINGS = [variant or "" for variant in TRANSFER_VARIANTS]


@pytest.mark.parametrize("title", HELD)
def test_the_study_says_how_far_one_rate_goes(title: str, mini: dict[str, Results]) -> None:
    found = transfer.gaps(mini["shakespeare-transfer"])
    held = found[found.is_one & (found.optimizer == HELD[title])].set_index("variant")
    assert title.endswith(f" `lr={held.lr.iloc[0]:g}`")
    assert {*held.index} == {*SETTINGS}
    assert held.num_rates.min() >= (4 if "nero" in HELD[title] else 5)
    cells = [f"{held.gap[one]:.1f}%" for one in SETTINGS]
    assert row(title, STUDY) == cells


def test_the_study_says_how_well_one_rate_transfers(mini: dict[str, Results]) -> None:
    text = in_one_line(STUDY)
    found = transfer.gaps(mini["shakespeare-transfer"])
    presets = found[found.optimizer.isin(OURS)]
    gaps = {lr: presets[presets.lr == lr].gap for lr in (0.015, 0.03, 0.06, 0.12)}
    assert {len(gap) for gap in gaps.values()} == {len(OURS) * len(SETTINGS)}
    worst = {lr: f"{gap.max():.1f}%" for lr, gap in gaps.items()}
    assert f"the presets' default is within {worst[0.03]} of the best" in text
    assert f"the presets are within {worst[0.06]} of their best, also with 16 layers" in text
    assert f"at half, {gaps[0.015].min():.1f}% to {worst[0.015]} behind" in text
    low, high = gaps[0.12].min(), gaps[0.12].max()
    assert f"at four times, {low:.0f}% to {high:.0f}%, but none diverged" in text
    wide = found[found.is_one & (found.variant == "width-256")].set_index("optimizer").gap
    assert f"costs Muon {wide['muon']:.1f}% and AdamW {wide['adamw']:.1f}%" in text
    large = presets[presets.variant.isin(("width-256", "layers-8", "layers-16"))]
    assert not large[large.is_one].gap.any()  # "for the larger networks it is the best"
    best = found.groupby(["variant", "optimizer"]).score.min().unstack()
    default = presets[presets.is_one].pivot(index="variant", columns="optimizer", values="score")
    assert (default["nero-polar"] < best[["muon", "adamw"]].min(axis=1)).all()
    assert (default["nero-rows"] < best["adamw"]).all()


@pytest.mark.parametrize("title", [title for title, (_, _, name) in ROWS.items() if name])
def test_collectives_are_those_that_were_counted(title: str) -> None:
    (plan,) = json.loads(PLAN.read_text(encoding="utf-8"))["plans"]
    assert row(title)[-1] == f"{plan['costs'][ROWS[title][2]]['num_collectives']:,}"


def test_claims_are_counted_as_in_the_report(
    results: dict[str, Results], mini: dict[str, Results]
) -> None:
    counted = headline(claim.verdict(results, mini) for claim in CLAIMS).removesuffix(".")
    number, outcomes = re.fullmatch(r"Of (\d+) claims: (.*)", counted).groups()  # type: ignore[union-attr]
    papers = sum("not in the paper" not in claim.where for claim in CLAIMS)
    start = f"Of {number} claims ({papers} are the paper's, one is ours), "
    said = in_one_line(README).partition(start)[2].partition(".")[0]
    said = re.sub(r" and (?=\d+ (were|was))", ", ", said)
    assert re.sub(r"looks? |is |are |were |was ", "", said) == outcomes


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_curves_end_where_the_page_says(page: str, results: dict[str, Results]) -> None:
    text = in_one_line((ROOT / page).read_text(encoding="utf-8"))
    (legend,) = re.findall(r"!\[(Validation loss[^]]*)\]\(\S*loss-curves\.svg\)", text)
    optimizers = {"AdamW": "adamw", "rows": "nero-rows", "Muon": "muon", "polar": "nero-polar"}
    for name, end in re.findall(r"(AdamW|rows|Muon|polar)(?: ends)? at (\d\.\d\d)", legend):
        lr = 0.03 if "nero" in optimizers[name] else None
        assert cell(results[MODERN_TASK], optimizers.pop(name), lr, "") == end
    assert not optimizers


@pytest.mark.parametrize("page", ["README.md", "docs/choose.md", "docs/index.md"])
def test_vgg_is_that_of_the_records(page: str, mini: dict[str, Results]) -> None:
    text = in_one_line((ROOT / page).read_text(encoding="utf-8"))
    names = ("nero", "lamb", "lamb-balanced", "adam", "sgd")
    rates = mini["cifar-vgg11"].best(names)
    assert all(rate.num_rates == 5 and rate.num_seeds >= 3 for rate in rates.values())
    nero, lamb, constrained, adam, sgd = (f"{rates[name].mean:.1f}%" for name in names)
    assert f"ends at {nero} error, LAMB at {lamb}" in text
    assert re.search(rf"({constrained} with|with Nero's constraints ends at {constrained})", text)
    assert f"Adam at {adam} and SGD at {sgd}. Each is at the best of five learning rates" in text
    seeds = [rate.num_seeds for rate in rates.values()]
    assert f"with {min(seeds)} to {max(seeds)} seeds." in text


def test_the_guide_has_the_errors_of_resnet_18(
    mini: dict[str, Results], protocol: dict[str, dict[str, Rate]]
) -> None:
    text = in_one_line((ROOT / "docs" / "choose.md").read_text(encoding="utf-8"))
    names = ("nero-polar", "soap", "nero-rows", "adamw")
    polar, soap, rows, adamw = (f"{protocol['cifar-resnet18'][n].mean:.1f}%" for n in names)
    said = f"`polar` ends at {polar} error, SOAP at {soap} (not a clear difference), "
    said += f"`rows` at {rows} and AdamW at {adamw}"
    assert said in text
    rates = mini["cifar-resnet18"].best(["nero", "adam", "lamb", "sgd"])
    nero = rates.pop("nero")
    assert f"its best learning rate, {nero.lr:g}," in text
    assert {against(nero, rival) for rival in rates.values()} == {"inconclusive"}


def test_the_guide_has_the_accuracies_of_the_deep_mlp(
    mini: dict[str, Results], protocol: dict[str, dict[str, Rate]], lower: list[str]
) -> None:
    text = in_one_line((ROOT / "docs" / "choose.md").read_text(encoding="utf-8"))
    tuned = {name: f"{rate.mean:.2f}" for name, rate in protocol["mnist-deep"].items()}
    assert f"AdamW ({tuned['adamw']} training accuracy) and Muon ({tuned['muon']})" in text
    polar, rows = lower
    assert f"With `lr=0.003`, `polar` reaches {polar} and `rows` {rows}" in text
    rates = mini["mnist-deep"].best(["nero", "adam", "lamb"])
    nero, adam, lamb = (f"{rates[name].mean:.2f}" for name in ("nero", "adam", "lamb"))
    assert f"reaches {nero}, behind Adam ({adam}) and LAMB ({lamb})" in text


def test_nero_without_momentum_is_level_with_adamw_after_3_000_steps(
    results: dict[str, Results],
) -> None:
    text = (ROOT / "docs" / "choose.md").read_text(encoding="utf-8")
    ours = cell(results[MODERN_TASK], "nero", 0.03, "long")
    theirs = cell(results[MODERN_TASK], "adamw", None, "long")
    assert ours == theirs
    assert f"(both {ours}, 3 seeds each)" in text


def test_the_presets_in_the_guide_are_those_of_the_records(results: dict[str, Results]) -> None:
    text = in_one_line((ROOT / "docs" / "choose.md").read_text(encoding="utf-8"))
    gpt = {
        (name, variant): cell(results[MODERN_TASK], name, lr, variant).partition(" (")[0]
        for name, lr in (("nero-rows", 0.03), ("nero-polar", 0.03), ("adamw", None), ("muon", None))
        for variant in ("", "long")
    }
    assert f"({gpt['nero-polar', '']} against {gpt['muon', '']})" in text
    assert f"({gpt['nero-polar', 'long']} against {gpt['muon', 'long']})" in text
    long = results[MODERN_TASK].rate("nero-polar", 0.03, "long")
    rival = results[MODERN_TASK].best(["muon"], "long")["muon"]
    assert against(long, rival) == "inconclusive"  # the page says that they are level
    assert f"({gpt['nero-rows', '']} against {gpt['adamw', '']})" in text


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


FINE_TUNED = {
    "frozen features, a new head, AdamW": "head-adamw-lr0.01",
    "AdamW": "adamw-lr0.0001",
    '**Nero, `"initial"`**': "nero-initial-lr0.001",
    "rank-8 LoRA, AdamW": "lora-adamw-lr0.002",
    '**rank-8 LoRA, Nero, `"none"`**': "lora-nero-none-lr0.1",
}
FINE_TUNING_FILE = RECORDS / "minilm-captions" / "cpu.jsonl"
FINE_TUNING_RUNS = pandas.read_json(FINE_TUNING_FILE, lines=True).set_index("run")
FINE_TUNING = (ROOT / "docs" / "how-to" / "fine-tune.md").read_text(encoding="utf-8")


def accuracy(run: str, split: str) -> float:
    """Return the accuracy of a fine-tuned MiniLM at its end, in percent."""
    return 100 * float(FINE_TUNING_RUNS.epoch[run][-1][f"{split}_accuracy"])


@pytest.mark.parametrize("title", FINE_TUNED)
def test_fine_tuned_accuracies_are_those_of_the_records(title: str) -> None:
    found = [accuracy(f"{FINE_TUNED[title]}-seed{seed}", "test") for seed in range(3)]
    cells = [", ".join(f"{each:.1f}" for each in found), f"{sum(found) / 3:.1f}"]
    assert row(title, FINE_TUNING)[1:] == cells


@pytest.mark.parametrize("run", ["adamw", "nero-initial", "lora-adamw", "lora-nero-none"])
def test_the_rate_of_fine_tuning_was_the_best_on_validation_captions(run: str) -> None:
    """All rates ran with one seed, and those within two points of the best with three."""
    rates: dict[float, list[float]] = {}
    for name in sorted(FINE_TUNING_RUNS.index):
        if name.startswith(f"{run}-lr"):
            rates.setdefault(FINE_TUNING_RUNS.lr[name], []).append(accuracy(name, "valid"))
    first = max(by_seed[0] for by_seed in rates.values())
    leaders = {rate: found for rate, found in rates.items() if found[0] > first - 2}
    assert {len(found) for found in leaders.values()} == {3}
    chosen = max(leaders, key=lambda rate: sum(leaders[rate]))
    assert f"{run}-lr{chosen:g}" in FINE_TUNED.values()
    assert min(rates) < chosen < max(rates)
