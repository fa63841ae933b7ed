"""Train a small network with Nero, and measure what the paper's theory says of every step.

    python examples/relative_trust.py        # under a minute; needs nero-tools and matplotlib
    python docs/images/dark_mode.py docs/images/relative-trust.svg

At each of 100 steps this measures both sides of deep relative trust (Definition 4) and of stability
(Definition 3): for Nero's own step, and for a random step of the same size in every layer. There are
three losses: the cross-entropy that is trained, the logit of the right class, which is linear in
the network's output, and that logit of a single sample. After training it searches for the angle at
which the network ceases to be alpha-robust (Definition 6), tries random rotations beside it, and
bounds the error rate. There are no biases, so that the theory is about the whole network. It writes
records/theory-relative-trust.json and docs/images/relative-trust.svg.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nero import Nero, __version__
from nero_tools.theory import (
    RelativeTrust,
    generalisation_bound,
    proposed_update,
    relative_trust,
    search_robustness,
    weight_space,
)
from nero_tools.theory.evaluation import evaluate
from nero_tools.theory.rotation import Rotation

ROOT = Path(__file__).parents[1]
NUM_SAMPLES, BATCH, SIDE, NUM_CLASSES, WIDTH = 512, 128, 14, 10, 64


def main() -> None:
    """Parse the command line, train, measure and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--record", type=Path, default=ROOT / "records/theory-relative-trust.json")
    parser.add_argument("--figure", type=Path, default=ROOT / "docs/images/relative-trust.svg")
    parser.add_argument("--draw", action="store_true", help="only draw the record that is there")
    options = parser.parse_args()
    if options.draw:
        draw(json.loads(options.record.read_text()), options.figure)
        return
    torch.manual_seed(0)
    images, labels = make_images()
    model = make_model()
    optimizer = Nero(model, lr=options.lr)

    steps = []
    for _ in range(options.steps):
        steps.append(measured_step(model, optimizer, images, labels))
    record: dict[str, Any] = {
        "about": "examples/relative_trust.py",
        "versions": {"nero": __version__, "torch": torch.__version__},
        "lr": options.lr,
        "num_steps": options.steps,
        "layers": [name for name, _ in model.named_parameters()],
        "summary": summary(steps),
        "robustness": robustness(model, images, labels),
        "random_rotations": random_rotations(model, images, labels),
        "steps": steps,
    }
    print_summary(record)
    write(record, options.record)
    draw(record, options.figure)


def make_images() -> tuple[Tensor, Tensor]:
    """Make noisy images of ten smooth patterns."""
    coarse = torch.randn(NUM_CLASSES, 1, 4, 4)
    patterns = F.interpolate(coarse, size=(SIDE, SIDE), mode="bicubic").flatten(1)
    labels = torch.randint(NUM_CLASSES, (NUM_SAMPLES,))
    return (patterns / patterns.std())[labels] + torch.randn(NUM_SAMPLES, SIDE**2), labels


def make_model() -> nn.Module:
    """Make a perceptron of three layers."""
    return nn.Sequential(
        nn.Linear(SIDE**2, WIDTH, bias=False),
        nn.ReLU(),
        nn.Linear(WIDTH, WIDTH, bias=False),
        nn.ReLU(),
        nn.Linear(WIDTH, NUM_CLASSES, bias=False),
    )


def measured_step(
    model: nn.Module, optimizer: Nero, images: Tensor, labels: Tensor
) -> dict[str, dict[str, Any]]:
    """Take one step of training, and return what was measured of it before."""
    batch = torch.randperm(NUM_SAMPLES)[:BATCH]
    x, y = images[batch], labels[batch]

    def cross_entropy(net: nn.Module) -> Tensor:
        return F.cross_entropy(net(x), y)

    def linear(net: nn.Module) -> Tensor:
        return F.nll_loss(net(x), y)  # the mean of -logit: there is no softmax in it

    def one_sample(net: nn.Module) -> Tensor:
        return F.nll_loss(net(x[:1]), y[:1])

    optimizer.zero_grad()
    cross_entropy(model).backward()
    update = proposed_update(model, optimizer)
    noise = {name: torch.randn_like(step) for name, step in update.items()}
    random = {
        name: noise[name] * (step.norm() / noise[name].norm()) for name, step in update.items()
    }
    found = {
        f"{kind}, {loss_fn.__name__}": as_dict(relative_trust(model, loss_fn, step))
        for kind, step in (("nero", update), ("random", random))
        for loss_fn in (cross_entropy, linear, one_sample)
    }
    sizes = [(step, model.get_parameter(name).detach()) for name, step in update.items()]
    # How much larger the relative step is in the norm of the largest singular value.
    found["nero, cross_entropy"]["spectral_over_frobenius"] = [
        _short(_spectral(step, weight) / (step.norm() / weight.norm()).item())
        for step, weight in sizes
    ]
    optimizer.step()
    return found


def as_dict(trust: RelativeTrust) -> dict[str, Any]:
    """Return what is worth keeping of one measurement."""
    layers = trust.layers
    return {
        "trust": _short(layers[0].trust),
        "gradient_change": [_short(layer.gradient_change) for layer in layers],
        "cosine": [_short(layer.cosine) for layer in layers],
        "is_trusted": [layer.obeys_trust for layer in layers],
        "is_stable": [layer.is_stable for layer in layers],
        "loss_change": _short(trust.loss_after - trust.loss),
    }


def summary(steps: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return fractions and means over all steps."""

    def mean(kind: str, key: str) -> list[float]:
        return _rounded(torch.tensor([step[kind][key] for step in steps]).double().mean(0))

    told: dict[str, dict[str, Any]] = {}
    for kind in steps[0]:
        changes = torch.tensor([step[kind]["gradient_change"] for step in steps])
        trusts = torch.tensor([[step[kind]["trust"]] for step in steps])
        told[kind] = {
            "fraction_trusted": mean(kind, "is_trusted"),
            "fraction_stable": mean(kind, "is_stable"),
            "fraction_all_stable": sum(all(s[kind]["is_stable"]) for s in steps) / len(steps),
            "fraction_loss_fell": sum(s[kind]["loss_change"] < 0 for s in steps) / len(steps),
            "median_left_over_right": _rounded((changes / trusts).median(0).values),
        }
    told["nero, cross_entropy"]["mean_spectral_over_frobenius"] = mean(
        "nero, cross_entropy", "spectral_over_frobenius"
    )
    return told


def robustness(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Search for the angle at which the trained network errs, and bound the error rate with it."""
    num_errors = int((model(images).argmax(1) != labels).sum())
    if num_errors:
        return {"num_errors": num_errors}
    found = search_robustness(model, images, labels, max_angle_rad=0.5)
    space = weight_space(model)
    bounds = [
        generalisation_bound(
            space, num_samples=NUM_SAMPLES, angle_rad=found.angle_rad, is_exact=is_exact
        )
        for is_exact in (False, True)
    ]
    return {
        "num_errors": 0,
        "alpha_below_rad": _short(found.angle_rad),
        "nothing_found_at_rad": _short(found.searched_rad),
        "sample": found.sample,
        "num_samples": NUM_SAMPLES,
        "num_dims": space.num_dims,
        "bound_paper": _short(bounds[0].error_bound.linear),
        "bound_exact": _short(bounds[1].error_bound.linear),
        "samples_needed_paper": bounds[0].samples_needed,
        "samples_needed_exact": bounds[1].samples_needed,
    }


def random_rotations(model: nn.Module, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Turn all neurons at random, 20 times for each of some angles, and count the errors."""
    generator = torch.Generator().manual_seed(0)
    told = {}
    for angle in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8):
        errors = []
        for _ in range(20):
            turned = {
                name: Rotation((1,)).at_random(p.detach(), angle, generator).float()
                for name, p in model.named_parameters()
            }
            logits = evaluate(model, lambda net: net(images), turned)
            errors.append((logits.argmax(1) != labels).float().mean().item())
        told[str(angle)] = {
            "fraction_with_an_error": sum(e > 0 for e in errors) / len(errors),
            "mean_error_rate": _short(sum(errors) / len(errors)),
        }
    return told


def print_summary(record: dict[str, Any]) -> None:
    """Print what came out."""
    for kind, told in (*record["summary"].items(), ("robustness", record["robustness"])):
        print(f"{kind}:")
        for key, value in told.items():
            print(f"  {key:30} {value}")
    print("random rotations:")
    for angle, told in record["random_rotations"].items():
        print(f"  {angle:5} {told}")


def write(record: dict[str, Any], path: Path) -> None:
    """Write JSON with one line per step; whether an inequality held follows from its two sides."""
    kept = [
        {kind: {k: v for k, v in told.items() if k[:3] != "is_"} for kind, told in step.items()}
        for step in record["steps"]
    ]
    steps = ",\n".join(f"    {json.dumps(step)}" for step in kept)
    text = json.dumps({**record, "steps": []}, indent=2)
    path.write_text(text.replace('"steps": []', f'"steps": [\n{steps}\n  ]') + "\n")


def draw(record: dict[str, Any], path: Path) -> None:
    """Draw both sides of both definitions, a panel a layer."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        print("the figure needs matplotlib: pip install matplotlib")
        return
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    steps, names = record["steps"], record["layers"]
    nero, random = ([s[f"{kind}, cross_entropy"] for s in steps] for kind in ("nero", "random"))
    lines: list[Any] = []
    for i, axes in enumerate(figure.subplots(1, len(names), sharey=True)):
        lines = [
            *axes.plot([s["cosine"][i] for s in nero], color="#9e9e9e", label="cosine"),
            *axes.plot([s["gradient_change"][i] for s in nero], color="#3f51b5", label="nero"),
            *axes.plot([s["gradient_change"][i] for s in random], color="#ef6c00", linewidth=1),
            *axes.plot([s["trust"] for s in nero], color="#c62828", linestyle="--"),
        ]
        axes.set(yscale="log", xlabel="step", title=names[i])
        axes.set_ylabel("relative to the gradient" if i == 0 else "")
        axes.grid(alpha=0.25)
    labels = (
        "stable below this: cosine of Nero's step",
        "gradient change, Nero's step",
        "gradient change, random step of the same size",
        "deep relative trust",
    )
    figure.legend(lines, labels, loc="outside lower center", ncols=2, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, transparent=True)


def _spectral(step: Tensor, weight: Tensor) -> float:
    largest = [torch.linalg.matrix_norm(x.double(), ord=2).item() for x in (step, weight)]
    return float(largest[0] / largest[1])


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _rounded(values: Tensor) -> list[float]:
    return [_short(value) for value in values.tolist()]


if __name__ == "__main__":
    main()
