"""Bound the error rate of the networks that fit all training samples.

The bound follows from the spheres on which the model's neurons lie: by the paper's estimate of the measure
of a cap, and by its exact measure.
"""

import argparse
import json
import math
from collections import Counter
from typing import Any

from nero.cli.arguments import CommandError, add_model_argument
from nero.cli.load import load_model
from nero.numbers import json_values
from nero.tables import aligned
from nero_tools.arguments import number_between, whole_number
from nero_tools.theory.generalisation import GeneralisationBound, generalisation_bound
from nero_tools.theory.weight_space import Spheres, WeightSpace, weight_space


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
        figures = as_dict(paper, exact)
    except ValueError as error:
        raise CommandError(str(error)) from error
    print(json.dumps(json_values(figures), indent=2) if args.json else text(figures))


def as_dict(paper: GeneralisationBound, exact: GeneralisationBound) -> dict[str, Any]:
    """Return all figures, for JSON: the measure of one solution, layer by layer, and the bounds."""
    space, angle = paper.space, paper.angle_rad

    def measures(of: Spheres | WeightSpace) -> dict[str, float]:
        names = {"log_measure_paper": False, "log_measure_exact": True}
        return {n: of.log_measure(angle, is_exact=is_exact) for n, is_exact in names.items()}

    sizes = ("name", "num_neurons", "fan_in", "sphere_dim")
    layers = [{**{n: getattr(s, n) for n in sizes}, **measures(s)} for s in space.spheres]
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
        **measures(space),
        "layers": layers,
        "left_out": dict(space.left_out),
        "bounds": bounds,
    }


def text(figures: dict[str, Any]) -> str:
    """Return two tables: the measure of one solution, layer by layer, and the bounds."""
    rows = [*figures["layers"], {**figures, "name": "all", "sphere_dim": figures["num_dims"]}]
    columns = {
        "name": "parameter",
        "num_neurons": "neurons",
        "fan_in": "fan-in",
        "sphere_dim": "sphere",
        "log_measure_paper": "ln P, paper",
        "log_measure_exact": "ln P, exact",
    }
    layers = [[*columns.values()], *([_shown(row.get(c, "")) for c in columns] for row in rows)]
    bounds = [["", *figures["bounds"]]]
    for key, title in {
        "log_measure": "ln P of the version space",
        "linear": "bound on the error rate (vacuous if >= 1)",
        "error": "the same, from the middle term of Eq. 4",
        "samples_needed": "smallest n for a bound below 1",
        "log_solutions_needed": "smallest ln K for a bound below 1",
    }.items():
        bounds.append([title, *(_shown(bound[key]) for bound in figures["bounds"].values())])
    bounds.append(["largest possible ln K", "", _shown(figures["log_solutions_that_fit"])])
    title = "alpha = {angle_rad:g} rad, n = {num_samples:,}, delta = {delta:g}, ln K = {log_solutions:g}"
    left_out = _left_out(figures["left_out"])
    return "\n".join([aligned(layers), *left_out, "", title.format(**figures), aligned(bounds)])


def _left_out(reasons: dict[str, str]) -> list[str]:
    """Say in one line how many parameters have no sphere, and why."""
    counts = Counter(reasons.values())
    shown = ", ".join(f"{num} x {reason}" for reason, num in counts.items())
    return [f"left out, because no sphere describes them: {shown}"] if counts else []


def _shown(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:.4g}"


def _angle(text: str) -> float:
    return number_between(text, 1e-300, math.pi, "an angle in radians, from 1e-300 to pi")


def _proportion(text: str) -> float:
    return number_between(text, math.ulp(0.0), 1.0, "a proportion, above 0 and at most 1")
