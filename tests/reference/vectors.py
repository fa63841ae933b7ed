"""Make the conformance vectors from the float64 loop: `python -m reference.vectors` in tests/."""

import json
import math
import random
from pathlib import Path

from reference.algorithm1 import Parameter
from reference.neurons import columns, conv_transpose, experts

FOLDER = Path(__file__).parents[2] / "conformance" / "vectors"
ROWS = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
NUM_STEPS = 6
TOLERANCE = 1e-12


def case(
    name, rule, *, neurons=ROWS, shape=None, neuron_dims=(0,), num_groups=1,
    role="neuron", weight=None, gradients=None, lr=0.01, **options,
):  # fmt: skip
    draw = random.Random(name)
    size = 12 if neurons is ROWS else max(map(max, neurons), default=5) + 1
    weight = [draw.gauss(0.2, 1) for _ in range(size)] if weight is None else weight
    if gradients is None:
        gradients = [[draw.gauss(0.1, 1) for _ in range(size)] for _ in range(NUM_STEPS)]
    rates = lr if isinstance(lr, list) else [lr] * len(gradients)
    options = {"beta": 0.999, "bias_scale": 0.01, "radius": 1.0, "centre": True} | {
        "maximize": False, "gain_penalty": 0.0,
    } | options  # fmt: skip
    made = {
        "name": name,
        "rule": rule,
        "role": role,
        "neurons": neurons,
        "shape": shape or ([len(neurons), len(neurons[0])] if neurons else [size]),
        "neuron_dims": neuron_dims if neurons else None,
        "num_groups": num_groups,
        "options": options,
        "tolerance": TOLERANCE,
        "weight": list(weight),
        "gradients": [None if g is None else [_plain(x) for x in g] for g in gradients],
        "lr": rates,
    }
    penalty = options["gain_penalty"] if role == "gain" else 0.0
    effective = options | {"gain_penalty": penalty}
    if len(neurons) > 0 and len(neurons[0]) == 2 and options["radius"] is not None:
        effective["centre"] = False  # the rule for fan-in 2
    fan_in_one = neurons and len(neurons[0]) == 1
    parameter = Parameter(list(weight), [] if fan_in_one else neurons, **effective)
    made["expected"] = [_snapshot(parameter)]
    for grad, rate in zip(gradients, rates, strict=True):
        if grad is not None:
            parameter.update(grad, lr=rate)
        made["expected"].append(_snapshot(parameter))
    return made


def _plain(x):
    return x if math.isfinite(x) else repr(x)


def _snapshot(parameter):
    return {
        "weight": list(parameter.weight),
        "average": [math.sqrt(v) for v in parameter.average_sq],
        "step": parameter.step,
        "num_skipped": parameter.num_skipped,
    }


def cases():
    draw = random.Random(0)

    def grads(n=NUM_STEPS, size=12, scale=1.0):
        return [[scale * draw.gauss(0, 1) for _ in range(size)] for _ in range(n)]

    def with_row(rows, index, value):
        changed = [list(r) for r in rows]
        for i in ROWS[index]:
            changed[0][i] = value
        return changed

    yield case("balanced", "Algorithm 1: mean zero, norm one")
    yield case(
        "columns", "a kernel stored as (in, out)",
        neurons=columns((4, 3)), shape=(4, 3), neuron_dims=(1,),
    )  # fmt: skip
    yield case(
        "kernel-last", "a convolution stored as (height, width, in, out)",
        neurons=columns((8, 3)), shape=(2, 2, 2, 3), neuron_dims=(3,), momentum=0.9,
    )  # fmt: skip
    yield case(
        "experts", "a stack of kernels, (expert, in, out)",
        neurons=experts((2, 4, 3), transposed=True), shape=(2, 4, 3), neuron_dims=(0, 2),
    )  # fmt: skip
    for name, more in {
        "groups": {"momentum": 0.9},
        "groups-initial": {"radius": "initial"},
    }.items():
        yield case(
            name, "a transposed convolution, (in, out/groups, kernel): each group has its own inputs",
            neurons=conv_transpose((4, 3, 2), 2), shape=(4, 3, 2), neuron_dims=(1,), num_groups=2,
            **more,
        )  # fmt: skip
    yield case("norm-only", "norm one, mean free", centre=False)
    yield case("mean-only", "mean zero, norm free", radius=None)
    yield case("unconstrained", "the relative update alone", radius=None, centre=False)
    yield case("initial-radius", "each neuron keeps its norm", radius="initial", centre=False)
    yield case("initial-radius-centred", "its norm, and mean zero", radius="initial")
    yield case("radius-3", "another radius", radius=3.0)
    yield case("large-step", "lr = 0.5", lr=0.5)
    yield case("beta-0", "no memory: every step turns by lr", beta=0.0)
    yield case("beta-0.9", "a short memory", beta=0.9)
    yield case("schedule", "lr changes at every step", lr=[0.01, 0.02, 0.005, 0.001, 0.1, 0.01])
    yield case("maximize", "the gradient is negated", maximize=True)
    yield case("radius-sqrt-dim", "the norm is the root of the fan-in", radius="sqrt_dim")
    yield case("momentum", "along an average of the gradient, a step ahead", momentum=0.9)
    yield case("momentum-maximize", "the same, negated", momentum=0.5, maximize=True)
    yield case("momentum-bias", "biases have it, too", neurons=[], role="bias", momentum=0.9)
    peak = {"norm": "peak", "beta": 0.9}
    yield case("peak", "divided by the largest norm, which decays", **peak)
    yield case("peak-momentum", "of the direction, not of the gradient", momentum=0.8, **peak)
    yield case("peak-polar", "of the row of the factor", direction="polar", **peak)
    yield case("peak-bias", "biases have it, too", neurons=[], role="bias", **peak)
    yield case("peak-beta-0", "every step turns by lr", norm="peak", beta=0.0)
    yield case("polar", "along the polar factor of all rows", direction="polar")
    yield case("polar-momentum", "that of the average", direction="polar", momentum=0.9)
    yield case("bias", "no fan-in: the bias update, scale = mean |b|", neurons=[], role="bias")
    yield case(
        "bias-from-zero", "a zero parameter takes bias_scale as its scale",
        neurons=[], role="bias", weight=[0.0] * 6,
    )  # fmt: skip
    yield case(
        "bias-scale-1",
        "another bias_scale",
        neurons=[],
        role="bias",
        weight=[0.0] * 6,
        bias_scale=1.0,
    )
    yield case("gain", "gains take the bias update", neurons=[], role="gain", weight=[1.0] * 6)
    yield case(
        "gain-penalty", "gains are pulled towards one by penalty/2 * (gain - 1)^2",
        neurons=[], role="gain", gain_penalty=0.5,
    )  # fmt: skip
    yield case("gain-penalty-spares-neurons", "the penalty is for gains only", gain_penalty=0.5)
    yield case(
        "fan-in-1", "no balanced neuron exists: elementwise", neurons=[[0], [1], [2], [3], [4], [5]]
    )
    yield case(
        "fan-in-2", "mean and norm would leave two points: norm only", neurons=[[0, 1], [2, 3]]
    )
    start = [draw.gauss(0, 1) for _ in range(12)]
    zero_row = [0.0 if i in ROWS[1] else x for i, x in enumerate(start)]
    yield case("zero-row", "takes the direction of -g at its first gradient", weight=zero_row)
    constant = [0.25 if i in ROWS[1] else x for i, x in enumerate(start)]
    yield case("constant-row", "left alone, then takes the direction of -g", weight=constant)
    for name, more in {
        "zero-row-mean-only": {"radius": None},
        "zero-row-unconstrained": {"radius": None, "centre": False},
        "zero-row-initial-radius": {"radius": "initial", "centre": False},
    }.items():
        yield case(name, "no norm is prescribed: it takes bias_scale", weight=zero_row, **more)
    padding = [[0.0 if i in ROWS[1] else x for i, x in enumerate(g)] for g in grads()]
    yield case("padding-row", "no gradient ever: stays zero", weight=zero_row, gradients=padding)
    yield case(
        "zero-gradient-row", "the row is not touched, its average decays",
        gradients=grads(2) + with_row(grads(2), 1, 0.0) + grads(2),
    )  # fmt: skip
    yield case(
        "lr-0", "changes nothing: no weight, no average, no counter",
        lr=[0.0, 0.01, 0.0, 0.01, 0.0, 0.01], gradients=grads(),
    )  # fmt: skip
    yield case(
        "lr-0-zero-gradient-first", "what checkpoint tools do to make state",
        lr=[0.0, 0.01, 0.01], gradients=[[0.0] * 12, *grads(2)],
    )  # fmt: skip
    for name, value in {"nan": math.nan, "inf": math.inf, "minus-inf": -math.inf}.items():
        bad = grads()
        bad[2][5] = value
        yield case(
            f"{name}-gradient", "that neuron is skipped, its corrected average kept", gradients=bad
        )
    bad = grads(size=6)
    bad[1][3] = math.nan
    yield case("nan-bias", "that element is skipped", neurons=[], role="bias", gradients=bad)
    waiting = grads()
    waiting[0] = waiting[3] = None
    yield case("no-gradient", "the parameter is not touched and does not count", gradients=waiting)
    for scale in (1e-15, 1e15):
        yield case(
            f"gradients-{scale:g}", "the scale does not matter", gradients=grads(scale=scale)
        )
    yield case(
        "momentum-zero-gradient", "a neuron without a gradient goes on, and its average decays",
        momentum=0.9, gradients=grads(2) + with_row(grads(2), 1, 0.0) + grads(2),
    )  # fmt: skip
    yield case(
        "momentum-nan-gradient", "a skipped neuron keeps both averages",
        momentum=0.9, gradients=grads(2) + with_row(grads(2), 1, math.nan) + grads(2),
    )  # fmt: skip
    yield case(
        "polar-nan-gradient", "a skipped neuron has no part in the others' factor",
        direction="polar", momentum=0.9,
        gradients=grads(2) + with_row(grads(2), 1, math.nan) + with_row(grads(2), 0, 0.0),
    )  # fmt: skip
    late = {
        "beta-0.9": {"beta": 0.9},
        "momentum": {"momentum": 0.9},
        "polar": {"direction": "polar"},
    }
    for name, more in {"": {}, **late}.items():
        yield case(
            f"nan-at-first{'-' if name else ''}{name}",
            "missed steps: no turn beyond lr until a gradient is no longer than the average",
            gradients=[with_row([g], 1, math.nan)[0] for g in grads(4)] + grads(6), **more,
        )  # fmt: skip
    short = with_row(grads(1, scale=0.1), 0, 0.0) + with_row(grads(1), 1, math.nan)
    yield case("nan-after-zero", "a gradient of zero is not missing", gradients=short + grads(4))
    bad = [[math.nan if i == 3 else g for i, g in enumerate(row)] for row in grads(3, size=6)]
    yield case(
        "nan-bias-at-first", "an element that has missed steps",
        neurons=[], role="bias", gradients=bad + grads(3, size=6),
    )  # fmt: skip
    for name, value in {"zero": 0.0, "nan": math.nan}.items():
        yield case(
            f"peak-{name}-gradient", "a peak decays without a gradient, and stays if it is skipped",
            gradients=grads(2) + with_row(grads(2), 1, value) + grads(2), **peak,
        )  # fmt: skip
    yield case(
        "peak-nan-at-first", "a neuron that has missed steps turns by no more than lr anyway",
        gradients=[with_row([g], 1, math.nan)[0] for g in grads(4)] + grads(4), **peak,
    )  # fmt: skip


def render(made):
    """JSON with one line a field and a snapshot, so that diffs can be read."""
    lines = []
    for key, value in made.items():
        if key in ("gradients", "expected"):
            inner = ",\n    ".join(json.dumps(item) for item in value)
            lines.append(f'  "{key}": [\n    {inner}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for made in cases():
        (FOLDER / f"{made['name']}.json").write_text(render(made))


if __name__ == "__main__":
    main()
