"""The results in the README and the guides are those of the records, rounded once."""

import json
import re
from pathlib import Path
from typing import Any

import pandas
import pytest
from made_up_runs import best_of

from nero.numbers import human_bytes
from nero_lab.report import paper, transfer
from nero_lab.report.claims import CLAIMS
from nero_lab.report.differences import against
from nero_lab.report.protocol import Scored, scored
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


NO_CONVOLUTIONS = "no convolutions"  # torch's Muon
# Rows of the study's table of other tasks: the task, how its runs were set, and the digits of a score.
OTHER_TASKS = {
    "mixture-of-experts GPT, Shakespeare, 600 steps: loss": ("shakespeare-moe", "", 2),
    "small ViT, CIFAR-10, 500 steps: error in %": ("cifar-vit", "", 1),
    "ResNet-18 of width 8, CIFAR-10, 780 steps: error in %": (
        "cifar-resnet18",
        "precision float32, 2 epochs",
        1,
    ),
    "translation, Multi30k, 630 steps: validation perplexity": (
        "multi30k",
        "hidden 256, num_sentences 10000, precision float32, schedule Cosine(warmup=0.1), width 128, "
        "8 epochs",
        1,
    ),
    "language model, WikiText-2, 860 steps: validation perplexity": (
        "wikitext2",
        "num_tokens 200000, precision float32, schedule Cosine(warmup=0.1), 3 epochs",
        0,
    ),
}


@pytest.mark.parametrize("title", OTHER_TASKS)
def test_the_study_has_the_scores_of_other_tasks(title: str, results: dict[str, Results]) -> None:
    task, variant, digits = OTHER_TASKS[title]
    found, cells = results[task], []
    for optimizer in ("adamw", "nero-rows", "muon", "nero-polar"):
        if optimizer.startswith("nero"):
            score = found.rate(optimizer, 0.03, variant)
            cells.append("not run" if score is None else f"{score.mean:.{digits}f}")
            continue
        best = found.best([optimizer], variant).get(optimizer)
        tried = found.rates[found.rates.optimizer == optimizer]
        num_rates = (tried.variant == variant).sum()
        cells.append(f"{best.mean:.{digits}f} ({num_rates})" if best else NO_CONVOLUTIONS)
    assert row(title, STUDY) == cells


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


@pytest.mark.parametrize("title", PROTOCOL)
def test_the_study_has_the_scores_of_the_protocol(title: str, today: dict[str, Scored]) -> None:
    task, digits = PROTOCOL[title]
    cells = []
    for optimizer in ("adamw", "nero-rows", "muon", "nero-polar"):
        rate = today[task].rates.get(optimizer)
        cells.append(NO_CONVOLUTIONS if rate is None else f"{rate.mean:.{digits}f}")
        # What the page says of all of them.
        assert rate is None or rate.num_seeds == 3
        assert rate is None or "nero" in optimizer or rate.num_rates >= 5
    assert row(title, STUDY) == cells


def test_the_study_leaves_out_no_finished_comparison(today: dict[str, Scored]) -> None:
    finished = {
        task
        for task, one in today.items()
        if not one.missing and all(rate.num_seeds >= 3 for rate in one.rates.values())
    }
    assert finished == {task for task, _ in PROTOCOL.values()}


# Rows of the study's table of newer rivals.
NEWER = {
    "tiny GPT: loss": ("shakespeare", 2),
    "mixture-of-experts GPT: loss (200 steps)": ("shakespeare-moe", 2),
    "WikiText-2: test perplexity": ("wikitext2", 0),
    "Multi30k: test perplexity": ("multi30k", 1),
    "toy: excess loss": ("zipf-words", 2),
    "tiny ViT: error in %": ("cifar-vit", 1),
    "ResNet-18 of width 8: error in % (320 steps)": ("cifar-resnet18", 1),
}


@pytest.mark.parametrize("title", NEWER)
def test_the_study_has_the_scores_of_newer_rivals(title: str, mini: dict[str, Results]) -> None:
    task, digits = NEWER[title]
    (found,) = (one for one in scored(mini)[task] if one.name == "others")
    optimizers = ("nero-rows", "nero-polar", "normuon", "soap", "schedule-free", "sgd-momentum")
    rates = [found.rates.get(optimizer) for optimizer in optimizers]
    ran = [rate for rate in rates if rate is not None]
    best = min(ran, key=lambda rate: rate.badness)
    cells = [f"{rate.mean:.{digits}f}" if rate else "\N{EN DASH}" for rate in rates]
    cells[rates.index(best)] = f"**{cells[rates.index(best)]}**"
    assert row(title, STUDY) == cells
    assert not found.missing
    assert all(rate.num_seeds == 3 for rate in ran)
    assert all(rate.num_rates >= 5 for rate in ran if "nero" not in rate.optimizer)


def test_the_readme_counts_the_wins_over_newer_rivals(mini: dict[str, Results]) -> None:
    compared = [one for task, _ in NEWER.values() for one in scored(mini)[task]]
    rates = [one.rates for one in compared if one.name == "others"]
    for rival, wins, of in (("normuon", 4, 6), ("soap", 5, 7)):
        found = [each for each in rates if rival in each]
        assert sum(each["nero-polar"].badness < each[rival].badness for each in found) == wins
        assert len(found) == of
    assert "NorMuon on four of six and SOAP on five of seven" in in_one_line(README)
    assert "of NorMuon on four of six tasks and of SOAP on five of seven" in in_one_line(STUDY)


def test_the_study_counts_the_wins_of_longer_runs(results: dict[str, Results]) -> None:
    cells = []
    for ours in ("nero-polar", "nero-rows"):
        for rival in ("adamw", "muon"):
            won = []
            for task, variant, _ in ((MODERN_TASK, "", 2), *OTHER_TASKS.values()):
                mine = results[task].rate(ours, 0.03, variant)
                best = results[task].best([rival], variant).get(rival)
                if mine and best:
                    won.append(mine.badness < best.badness)
            cells.append(f"{sum(won)} of {len(won)}")
    title = "[longer runs](#longer-runs): 500 to 860 steps, most with one seed; "
    title += "the 3,000-step runs of the small GPT are not counted"
    assert row(title, STUDY) == cells


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
    deep = mini["mnist-deep"].rate("nero-polar", 0.015, "").mean
    scored = today["mnist-deep"].rates["nero-polar"].mean
    said = f"0.015 raises the training accuracy of `polar` from {scored:.2f} to {deep:.2f}"
    assert said in text


def test_the_study_counts_the_wins(today: dict[str, Scored]) -> None:
    """The bullets of its summary, for the tasks of the table."""
    rates = [today[task].rates for task, _ in PROTOCOL.values()]
    wins = {
        (ours, rival): sum(r[ours].badness < r[rival].badness for r in rates if rival in r)
        for ours in ("nero-rows", "nero-polar")
        for rival in ("adamw", "muon")
    }
    of = {rival: sum(rival in r for r in rates) for rival in ("adamw", "muon")}
    cells = [f"{won} of {of[rival]}" for (_, rival), won in wins.items()]
    title = "[protocol runs](#protocol-runs): about a minute each, three seeds"
    assert row(title, STUDY) == [*cells[2:], *cells[:2]]
    numbers = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    beats = f"AdamW on {numbers[wins['nero-polar', 'adamw']]} of {numbers[of['adamw']]}"
    for page in ("README.md", "docs/choose.md", "docs/how-to/presets.md"):
        text = in_one_line((ROOT / page).read_text(encoding="utf-8"))
        assert beats in text
        assert f"Muon on {numbers[wins['nero-polar', 'muon']]} of" in text
    text = in_one_line(STUDY)
    for task, name, behind in (
        ("multi30k", "nero-polar", "Muon is 10% ahead of `polar`"),
        ("multi30k", "nero-rows", "31% ahead of `rows`"),
        ("zipf-words", "nero-polar", "Muon is 18% ahead of `polar`"),
    ):
        ours, theirs = (today[task].rates[each].mean for each in (name, "muon"))
        (said,) = re.findall(r"\d+%", behind)
        assert f"{100 * (ours / theirs - 1):.0f}%" == said
        assert behind in text


def test_the_study_says_how_the_papers_schedule_does(mini: dict[str, Results]) -> None:
    found = mini["wikitext2"].best(["sgd", "adam"])
    text = in_one_line(STUDY)
    assert f"plain SGD reaches a test perplexity of {found['sgd'].mean:.0f}" in text
    assert f"Adam without momentum {found['adam'].mean:.0f}." in text
    assert {rate.num_seeds for rate in found.values()} == {3}


def test_the_study_says_what_initial_norms_change(mini: dict[str, Results]) -> None:
    text = in_one_line(STUDY)
    rows, polar = (
        f"{mini['wikitext2'].rate(f'{name}-initial', 0.03, 'cosine').mean:.0f}"
        for name in ("nero-rows", "nero-polar")
    )
    assert f"a test perplexity of {rows} and {polar} in the protocol's, with three" in text
    after, before = (
        mini["cifar-vgg11"].rate(name, 0.03, "").badness_by_seed[0]
        for name in ("nero-polar-initial", "nero-polar")
    )
    assert f"{after:.1f}% error instead of {before:.1f}% (one seed each)" in text


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


# Rows of the study's table of norms: the task, how its runs were set, and the digits of a score.
NORMS = {
    "GPT, 600 steps: loss": ("shakespeare", "", 2),
    "mixture-of-experts GPT: loss": ("shakespeare-moe", "", 2),
    "small ViT: error in %": ("cifar-vit", "", 1),
    "ResNet-18: error in %": OTHER_TASKS["ResNet-18 of width 8, CIFAR-10, 780 steps: error in %"],
    "Multi30k: validation perplexity": OTHER_TASKS[
        "translation, Multi30k, 630 steps: validation perplexity"
    ],
    "WikiText-2: validation perplexity": OTHER_TASKS[
        "language model, WikiText-2, 860 steps: validation perplexity"
    ],
}


@pytest.mark.parametrize("title", NORMS)
def test_the_study_compares_the_norms(title: str, results: dict[str, Results]) -> None:
    task, variant, digits = NORMS[title]
    names = ("nero-rows-rms", "nero-rows", "nero-polar-rms", "nero-polar")
    scores = [results[task].rate(name, 0.03, variant) for name in names]
    shown = ["not run" if score is None else f"{score.mean:.{digits}f}" for score in scores]
    assert row(title, STUDY) == shown


# Rows of the study's table of rates, and the settings in its columns.
HELD = {
    "`rows`, `lr=0.03`": "nero-rows",
    "`polar`, `lr=0.03`": "nero-polar",
    "Muon, `lr=0.02`": "muon",
    "AdamW, `lr=0.006`": "adamw",
}
SETTINGS = ("", "width-64", "layers-2", "layers-8", "steps-600")


@pytest.mark.parametrize("title", HELD)
def test_the_study_says_how_far_one_rate_goes(title: str, results: dict[str, Results]) -> None:
    found = transfer.gaps(results["shakespeare-transfer"])
    held = found[found.is_one & (found.optimizer == HELD[title])].set_index("variant")
    assert title.endswith(f" `lr={held.lr.iloc[0]:g}`")
    compared = held[held.num_rates > 1].gap
    assert {*compared.index} <= {*SETTINGS}
    none = "\N{EN DASH}"
    cells = [f"{compared[one]:.1f}%" if one in compared.index else none for one in SETTINGS]
    assert row(title, STUDY) == cells


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
def test_vgg_is_that_of_the_records(page: str, results: dict[str, Results]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    vgg, digits = results["cifar-vgg11"], ".1f" if page == "README.md" else ".0f"
    rates = [best_of(vgg, name) for name in ("nero", "lamb", "adam", "sgd", "lamb-balanced")]
    rates.append(vgg.rate("nero", 0.01, ""))
    for rate in rates:
        assert f"{rate.mean:{digits}}%" in text


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
    task, variant, _ = OTHER_TASKS["ResNet-18 of width 8, CIFAR-10, 780 steps: error in %"]
    resnet = results[task]
    errors = [resnet.rate(name, 0.03, variant).mean for name in ("nero-polar", "nero-rows")]
    best = resnet.best(["adamw"], variant)["adamw"].mean
    said = "{:.0f}% error (`polar`) and {:.0f}% (`rows`) against {:.0f}%"
    assert said.format(*errors, best) in text


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
