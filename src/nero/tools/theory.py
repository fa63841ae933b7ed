"""Bound the error rate of the networks that fit all training samples.

The bound follows from the spheres on which the model's neurons lie: by the paper's estimate of the measure
of a cap, and by its exact measure.
"""

import argparse
import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nero.numbers import json_values
from nero.tables import aligned
from nero.theory.generalisation import GeneralisationBound, generalisation_bound
from nero.theory.weight_space import weight_space
from nero.tools.arguments import CommandError, add_model_argument, number_between, whole_number
from nero.tools.load import load_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``nero theory``."""
    add_model_argument(parser)
    parser.add_argument(
        "--n", type=whole_number(2), required=True, metavar="N", help="number of training samples"
    )
    parser.add_argument(
        "--alpha",
        type=_angle,
        required=True,
        metavar="RADIANS",
        help="the angle by which all neurons may turn at once without an error",
    )
    parser.add_argument(
        "--delta",
        type=_proportion,
        default=0.05,
        metavar="D",
        help="proportion of training sets for which the bound may fail (default: %(default)s)",
    )
    parser.add_argument(
        "--log-k",
        type=float,
        default=0.0,
        metavar="LN_K",
        help="logarithm of the number of distinct solutions (default: 0, for one solution)",
    )


def run(args: argparse.Namespace) -> None:
    """Bound the error rate of a model's version space, and print how.

    Raises:
        CommandError: if the model has no neurons on spheres, or so many solutions do not fit.
    """
    model = load_model(args.model)
    try:
        space = weight_space(model, constraint=args.constraint)
        paper, exact = (
            generalisation_bound(
                space,
                num_samples=args.n,
                angle_rad=args.alpha,
                delta=args.delta,
                log_solutions=args.log_k,
                is_exact=is_exact,
            )
            for is_exact in (False, True)
        )
    except ValueError as error:
        raise CommandError(str(error)) from error
    if args.json:
        print(json.dumps(json_values(as_dict(paper, exact)), indent=2))
    else:
        print(text(paper, exact))


def text(paper: GeneralisationBound, exact: GeneralisationBound) -> str:
    """Return two tables: the measure of one solution, layer by layer, and the bounds."""
    space, angle = paper.space, paper.angle_rad
    layers = [["parameter", "neurons", "fan-in", "sphere", "ln P, paper", "ln P, exact"]]
    for s in space.spheres:
        logs = (_number(s.log_measure(angle, is_exact=is_exact)) for is_exact in (False, True))
        sizes = (f"{n:,}" for n in (s.num_neurons, s.fan_in, s.sphere_dim))
        layers.append([s.name, *sizes, *logs])
    totals = (_number(space.log_measure(angle, is_exact=is_exact)) for is_exact in (False, True))
    layers.append(["all", f"{space.num_neurons:,}", "", f"{space.num_dims:,}", *totals])

    both = (paper, exact)
    bounds = [
        ["", "paper", "exact"],
        ["ln P of the version space", *(_number(b.log_measure) for b in both)],
        [
            "error rate, at most; from 1 on it says nothing",
            *(_number(b.error_bound.linear) for b in both),
        ],
        ["the same, by the middle of Eq. 4", *(_number(b.error_bound.error) for b in both)],
        ["n from which it is below 1", *(f"{b.samples_needed:,}" for b in both)],
        ["ln K beyond which it is below 1", *(_number(b.log_solutions_needed) for b in both)],
        ["ln K that fits, at most", "", _number(-space.log_measure(angle, is_exact=True))],
    ]
    title = (
        f"alpha = {angle:g} rad, n = {paper.num_samples:,}, delta = {paper.delta:g}, "
        f"ln K = {paper.log_solutions:g}"
    )
    return "\n".join([aligned(layers), *_left_out(space.left_out), "", title, aligned(bounds)])


def as_dict(paper: GeneralisationBound, exact: GeneralisationBound) -> dict[str, Any]:
    """Return the same figures as plain values, for JSON."""
    space, angle = paper.space, paper.angle_rad
    layers = [
        {
            "name": s.name,
            "num_neurons": s.num_neurons,
            "fan_in": s.fan_in,
            "sphere_dim": s.sphere_dim,
            "log_measure_paper": s.log_measure(angle, is_exact=False),
            "log_measure_exact": s.log_measure(angle, is_exact=True),
        }
        for s in space.spheres
    ]
    bounds = {
        name: {
            "log_measure": b.log_measure,
            **b.error_bound._asdict(),
            "is_vacuous": b.error_bound.is_vacuous,
            "samples_needed": b.samples_needed,
            "log_solutions_needed": b.log_solutions_needed,
        }
        for name, b in (("paper", paper), ("exact", exact))
    }
    return {
        "num_samples": paper.num_samples,
        "angle_rad": angle,
        "delta": paper.delta,
        "log_solutions": paper.log_solutions,
        "log_solutions_that_fit": -space.log_measure(angle, is_exact=True),
        "num_neurons": space.num_neurons,
        "num_dims": space.num_dims,
        "layers": layers,
        "left_out": dict(space.left_out),
        "bounds": bounds,
    }


def _left_out(left_out: Sequence[tuple[str, str]]) -> list[str]:
    """Say in one line how many parameters have no sphere, and why."""
    counts = Counter(reason for _, reason in left_out)
    shown = ", ".join(f"{num} x {reason}" for reason, num in counts.items())
    return [f"left out, because no sphere describes them: {shown}"] if counts else []


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _angle(text: str) -> float:
    return number_between(text, 1e-300, math.pi, "an angle in radians, from 1e-300 to pi")


def _proportion(text: str) -> float:
    return number_between(text, math.ulp(0.0), 1.0, "a proportion, above 0 and at most 1")
