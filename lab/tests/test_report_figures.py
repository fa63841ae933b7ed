"""The pictures of the report: who is in them, what the curves are, and how far the axes go."""

import math
from pathlib import Path

import numpy as np
import pytest
from made_up_runs import best_of, read_results, write_finals, write_run
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nero_lab.engine.optimizers import OPTIMIZERS
from nero_lab.report import figures
from nero_lab.report.comparisons import Picture, pictures
from nero_lab.report.curves import ours
from nero_lab.report.style import LOOKS
from nero_lab.runner.config import RunConfig


def drawn(picture: Picture, monkeypatch: pytest.MonkeyPatch) -> Figure:
    """Draw a picture, and return it rather than write it."""
    kept: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, path: kept.append(self))
    figures.draw(picture, Path("picture.png"))
    return kept[0]


def crosses(
    axes: Axes, *, is_fraction: bool = False, marker: str = "x"
) -> list[tuple[float, float]]:
    """Return where the crosses of a panel are; on request, y as a fraction of the height."""
    found = []
    for line in axes.lines:
        if line.get_marker() == marker:
            ((x, y),) = np.asarray(line.get_xydata())
            if is_fraction:
                _, y = axes.transAxes.inverted().transform(line.get_transform().transform((x, y)))
            found.append((float(x), float(y)))
    return found


def test_diverged_runs_count_as_worst_and_failed_ones_not_at_all(tmp_path: Path) -> None:
    for seed, (values, status, epoch) in enumerate(
        [([60.0, 40.0], "finished", 2.0), ([60.0, 70.0], "diverged", 2.4), ([], "failed", 0.3)]
    ):
        config = RunConfig("cifar-vgg11", "cpu", "sgd", seed=seed)
        write_run(tmp_path, config, values, status=status, epoch=epoch)
    results = read_results(tmp_path)["cifar-vgg11"]
    (picture,) = pictures(results)
    (track,) = picture.tracks
    assert picture.legend_of(track) == "SGD, lr 0.1: 1 of 2 diverged at epoch 3 (1 failed)"
    assert track.mean == math.inf
    curve = ours(picture, track, "valid_error")
    assert dict(curve.band["mean"]) == {1: 60.0, 2: 40.0}
    assert [lost_at for _, lost_at in curve.strays] == [2.4, 0.3]


def test_diverged_run_has_a_cross_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig("cifar-vgg11", "cpu", "sgd")
    write_run(tmp_path, config, [60.0, 70.0], status="diverged", epoch=2.4)
    (picture,) = pictures(read_results(tmp_path)["cifar-vgg11"])
    figure = drawn(picture, monkeypatch)
    (axes,) = figure.axes
    assert np.array_equal(crosses(axes), [[2.0, 70.0]])
    (legend,) = figure.legends
    assert legend.get_texts()[0].get_text() == "SGD, lr 0.1: diverged at epoch 3"


def test_neither_a_spike_nor_a_lost_run_sets_the_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = [40.0, 30.0, 25.0, 20.0, 18.0, 16.0, 14.0, 12.0]
    spiking = [*calm[:5], 95.0, *calm[6:]]
    write_run(tmp_path, RunConfig("cifar-vgg11", "cpu", "nero", seed=0), calm)
    write_run(tmp_path, RunConfig("cifar-vgg11", "cpu", "nero", seed=1), spiking)
    lost = RunConfig("cifar-vgg11", "cpu", "sgd")
    write_run(tmp_path, lost, [50.0, 1e6], status="diverged", epoch=2.4)
    at_once = RunConfig("cifar-vgg11", "cpu", "adam")
    write_run(tmp_path, at_once, [], status="diverged", epoch=0.1)
    (picture,) = pictures(read_results(tmp_path)["cifar-vgg11"])
    (axes,) = drawn(picture, monkeypatch).axes
    low, high = axes.get_ylim()
    assert 5.0 < low < 12.0
    assert 40.0 > high > 30.0  # of the first fifth, only the last epoch counts
    for _, fraction in crosses(axes, is_fraction=True):
        assert 0.9 < fraction < 1.0
    assert [x for x, _ in crosses(axes)] == [2.0, 0.1]


def test_rate_that_is_far_off_is_a_triangle_inside_the_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lr, final in ((0.003, 1.6), (0.01, 1.5), (0.02, 1.55), (0.03, 1.7), (0.06, 9000.0)):
        write_run(tmp_path, RunConfig("shakespeare", "cpu", "nero", lr), [2.0, final])
    (picture,) = pictures(read_results(tmp_path)["shakespeare"])
    _, rates = drawn(picture, monkeypatch).axes
    assert rates.get_ylim()[1] < 2.0
    assert crosses(rates) == []  # it was not lost
    ((lr, fraction),) = crosses(rates, is_fraction=True, marker="^")
    assert lr == 0.06
    assert 0.9 < fraction < 1.0


def test_best_rate_of_a_bad_optimizer_stays_in_the_panel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lr, final in ((0.003, 10.0), (0.01, 9.0), (0.02, 9.5), (0.03, 11.0)):
        write_run(tmp_path, RunConfig("cifar-vgg11", "cpu", "nero", lr), [final])
    write_run(tmp_path, RunConfig("cifar-vgg11", "cpu", "sgd"), [90.0])
    (picture,) = pictures(read_results(tmp_path)["cifar-vgg11"])
    figure = drawn(picture, monkeypatch)
    for axes in figure.axes:
        assert axes.get_ylim()[1] > 90.0
        assert crosses(axes) == []


def test_reparameterised_curves_are_beside_the_authors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variant in ("sigma-1", "sigma-100"):
        for optimizer in ("adam", "adam-momentum"):
            config = RunConfig("mnist-reparam", "cpu", optimizer, 0.01, variant=variant)
            write_run(tmp_path, config, [0.1, 0.9])
    write_run(tmp_path, RunConfig("mnist-reparam", "cpu", "nero"), [0.1, 0.9])
    main, others = pictures(read_results(tmp_path)["mnist-reparam"])
    assert set(others.rates.optimizer) == {"adam"}
    ours, theirs = drawn(main, monkeypatch).axes
    own = {line.get_label(): line.get_color() for line in ours.lines}
    assert len(set(own.values())) == len(own) == 3
    for line in theirs.lines:
        label = str(line.get_label()).replace("Adam", "Adam with momentum")
        assert own[label] == line.get_color()


def test_unfinished_run_is_shown_but_not_counted(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0, 3.0)})
    write_run(tmp_path, RunConfig("pong", "cpu", "nero", seed=2), [9.0], status="unfinished")
    results = read_results(tmp_path)["pong"]
    nero = best_of(results, "nero")
    assert (nero.mean, nero.num_seeds) == (2.0, 2)
    assert "(1 unfinished)" in pictures(results)[0].legends[0]


def test_every_optimizer_has_a_colour_of_its_own() -> None:
    assert LOOKS.keys() == OPTIMIZERS.keys()
    colours = [look.colour for look in LOOKS.values()]
    assert len(set(colours)) == len(colours)


def test_optimizer_of_ones_own_is_drawn_beside_nero(tmp_path: Path) -> None:
    write_finals(tmp_path, "pong", {"nero": (1.0,), "sgd": (2.0,)})
    path = next((tmp_path / "pong" / "cpu").glob("sgd*/records.jsonl"))
    text = path.read_text().replace('"optimizer": "sgd"', '"optimizer": "mine:build"')
    (path.parents[1] / "mine").mkdir()
    (path.parents[1] / "mine" / path.name).write_text(text)
    rivals, others = pictures(read_results(tmp_path)["pong"])
    assert list(rivals.rates.optimizer) == ["nero", "sgd"]
    assert list(others.rates.optimizer) == ["nero", "mine:build"]


def test_fine_tuning_is_one_picture(tmp_path: Path) -> None:
    write_finals(tmp_path, "minilm-captions", {"nero-initial": (0.8,), "adamw": (0.8,)})
    (picture,) = pictures(read_results(tmp_path)["minilm-captions"])
    assert set(picture.rates.optimizer) == {"nero-initial", "adamw"}


def test_logarithmic_axis_has_plain_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, RunConfig("wikitext2", "cpu", "sgd"), [430.0, 300.0, 190.0])
    (picture,) = pictures(read_results(tmp_path)["wikitext2"])
    figure = drawn(picture, monkeypatch)
    figure.draw_without_rendering()
    axis = figure.axes[0].yaxis
    labels = [
        label.get_text() for label in (*axis.get_majorticklabels(), *axis.get_minorticklabels())
    ]
    assert {"200", "300", "400"} <= set(labels)
    assert all(not label or float(label) for label in labels)
