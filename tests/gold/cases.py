"""The named cases of the gold record: what is built, and how it steps.

Only the public API is used, so that the same cases run on any version of the package.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

import nero
from nero.baselines import Fromage, Lamb, Lars, Madam
from tests.gold.interpreter import step_in_interpreter
from tests.gold.networks import NETWORKS, seeded
from tests.gold.trajectory import (
    FULL,
    SHORTEST,
    Gradients,
    assign_gradients,
    base_rates,
    tensors_of,
    train,
)

BuildOptimizer: TypeAlias = Callable[[nn.Module], Optimizer]
Stepper: TypeAlias = Literal["eager", "inductor", "aot_eager", "interpreter"]


@dataclass(frozen=True)
class Case:
    """One trajectory of one optimizer on one network."""

    name: str
    network: str
    build: BuildOptimizer
    dtype: torch.dtype = torch.float32
    gradients: Gradients = field(default_factory=Gradients)
    stepper: Stepper = "eager"
    steps: range = FULL

    @property
    def missing(self) -> str | None:
        """Name the optional package that this case needs and that is not installed."""
        needed = ["transformers"] if self.network == "transformers layer" else []
        needed += ["triton"] if self.stepper == "interpreter" else []
        return next((name for name in needed if importlib.util.find_spec(name) is None), None)

    def model(self) -> nn.Module:
        """Build the network, with the same weights every time."""
        return seeded(NETWORKS[self.network]()).to(self.dtype)

    def run(self, steps: range | None = None) -> dict[str, Tensor]:
        """Return the weights and the optimizer state after the last step."""
        model = self.model()
        optimizer = self.build(model)
        steps = self.steps if steps is None else steps
        self.advance(model, optimizer, steps, rates=base_rates(optimizer))
        return tensors_of(model, optimizer)

    def advance(
        self, model: nn.Module, optimizer: Optimizer, steps: range, *, rates: list[float]
    ) -> None:
        """Take ``steps``, which need not begin at zero."""
        train(
            optimizer,
            self._step(optimizer),
            rates=rates,
            steps=steps,
            set_gradients=lambda i: assign_gradients(model, self.gradients.draw(model, i)),
        )

    def _step(self, optimizer: Optimizer) -> Callable[[], Any]:
        if self.stepper == "eager":
            return optimizer.step
        if self.stepper == "interpreter":
            return lambda: step_in_interpreter(optimizer)
        torch.compiler.reset()
        return torch.compile(optimizer.step, backend=self.stepper)


BACKENDS: dict[str, dict[str, Any]] = {"plain": {"fused": False}, "kernel": {"fused": None}}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CONSTRAINTS: dict[str, Any] = {
    "norm": "norm",
    "mean": "mean",
    "none": "none",
    "initial": "initial",
    "radius 3": nero.Sphere(radius=3.0),
    "balanced initial": nero.Sphere(radius="initial"),
}
OVERRIDES = [
    ("0.weight", {"lr": 0.002, "constraint": "norm"}),
    ("*.bias", {"beta": 0.9, "lr": 0.05}),
    ("3.weight", {"neuron_dims": (1,), "constraint": "mean"}),
]


def build_nero(**options: Any) -> BuildOptimizer:
    """Return a builder of Nero from a model."""
    return lambda model: nero.Nero(model, **options)


def _nero_cases() -> Iterator[Case]:
    for backend, fused in BACKENDS.items():
        for dtype in DTYPES:
            yield Case(
                f"{backend}, every layer, {_short(dtype)}",
                "every layer",
                build_nero(**fused),
                dtype,
            )
        for dtype in (torch.float32, torch.bfloat16):
            build = build_nero(overrides={"columns.weight": {"neuron_dims": (1,)}}, **fused)
            yield Case(f"{backend}, every width, {_short(dtype)}", "every width", build, dtype)
        for name, constraint in CONSTRAINTS.items():
            build = build_nero(constraint=constraint, **fused)
            yield Case(f"{backend}, constraint {name}", "embedding first", build)
        yield Case(
            f"{backend}, every layer, constraint initial",
            "every layer",
            build_nero(constraint="initial", **fused),
        )
        yield from _option_cases(backend, fused)
        yield from _rounding_cases(backend, fused)
        yield Case(f"{backend}, many weights", "many weights", build_nero(**fused))
        yield Case(f"{backend}, transformers layer", "transformers layer", build_nero(**fused))
        yield Case(f"{backend}, tiny GPT", "tiny GPT", build_nero(**fused))
    yield Case("fused=True", "embedding first", build_nero(fused=True))


def _option_cases(backend: str, fused: dict[str, Any]) -> Iterator[Case]:
    for name, options in {
        "defaults": {},
        "gain penalty": {"gain_penalty": 0.1},
        "maximize": {"maximize": True},
        "bias scale and beta": {"bias_scale": 0.3, "beta": 0.9},
        "tensor lr": {"lr": torch.tensor(0.02)},
        "float64 tensor lr": {"lr": torch.tensor(0.02, dtype=torch.float64)},
        "overrides": {"overrides": OVERRIDES},
    }.items():
        yield Case(f"{backend}, {name}", "embedding first", build_nero(**options, **fused))
    yield Case(
        f"{backend}, contiguous gradients",
        "convolutions",
        build_nero(**fused),
        gradients=Gradients(is_contiguous=True),
    )
    yield Case(
        f"{backend}, nonfinite skip",
        "every layer",
        build_nero(nonfinite="skip", **fused),
        gradients=Gradients(nonfinite_steps=(0, 3, 16, 23, 33)),
    )
    yield Case(
        f"{backend}, nonfinite propagate",
        "embedding first",
        build_nero(nonfinite="propagate", **fused),
        gradients=Gradients(nonfinite_steps=(24,)),
    )
    yield Case(
        f"{backend}, parameters without a model",
        "embedding first",
        lambda model: nero.Nero([*model.parameters()], **fused),
    )
    yield Case(
        f"{backend}, named parameters",
        "convolutions",
        lambda model: nero.Nero([*model.named_parameters()], **fused),
    )


def _rounding_cases(backend: str, fused: dict[str, Any]) -> Iterator[Case]:
    for network, dtype in [
        ("embedding first", torch.bfloat16),
        ("embedding first", torch.float16),
        ("embedding later", torch.bfloat16),
        ("convolutions", torch.bfloat16),
    ]:
        yield Case(
            f"{backend}, stochastic rounding, {network}, {_short(dtype)}",
            network,
            build_nero(stochastic_rounding=True, seed=3, **fused),
            dtype,
        )


BASELINES: dict[str, BuildOptimizer] = {
    "Lamb": lambda model: Lamb(model, lr=0.01),
    "Lamb, betas, max_norm": lambda model: Lamb(model, 0.01, (0.0, 0.99), max_norm=1.0),
    "Lars": lambda model: Lars(model, lr=1.0),
    "Lars, trust": lambda model: Lars(model, 0.5, 0.8, 0.01, 0.02, maximize=True),
    "Fromage": Fromage,
    "Madam": Madam,
    "Madam, bounds": lambda model: Madam(model, 0.02, 0.9, max_ratio=2.0, weight_bound=1.5),
    "Lamb, tensor lr": lambda model: Lamb(model, lr=torch.tensor(0.01)),
    "Madam, maximize": lambda model: Madam(model, maximize=True),
    "Fromage, parameters": lambda model: Fromage(model.parameters(), lr=0.02),
    "Lamb, overrides": lambda model: Lamb(model, overrides={"*.bias": {"weight_decay": 0.0}}),
}
WRAPPED: dict[str, BuildOptimizer] = {
    "Balanced SGD": lambda model: nero.Balanced(
        torch.optim.SGD(nero.param_groups(model), lr=0.05, momentum=0.9)
    ),
    "Balanced SGD, parameters": lambda model: nero.Balanced(
        torch.optim.SGD(model.parameters(), lr=0.05)
    ),
    "Balanced Adam": lambda model: nero.Balanced(
        torch.optim.Adam(nero.param_groups(model), lr=0.01)
    ),
    "Balanced Adam, initial": lambda model: nero.Balanced(
        torch.optim.Adam(nero.param_groups(model), lr=0.01), "initial"
    ),
    "Balanced SGD, radius 3": lambda model: nero.Balanced(
        torch.optim.SGD(nero.param_groups(model), lr=0.05), nero.Sphere(radius=3.0)
    ),
    "Balanced Lamb": lambda model: nero.Balanced(Lamb(nero.param_groups(model), lr=0.01)),
    "Balanced Madam": lambda model: nero.Balanced(Madam(nero.param_groups(model))),
}


def _other_cases() -> Iterator[Case]:
    for name, build in (BASELINES | WRAPPED).items():
        if ", " in name and "initial" not in name:
            yield Case(name, "embedding first", build)
            continue
        yield Case(f"{name}, every layer", "every layer", build)
        for dtype in (torch.bfloat16, torch.float64):
            yield Case(f"{name}, {_short(dtype)}", "embedding first", build, dtype)
    for constraint in ("balanced", "norm", "mean"):
        yield Case(f"project_ {constraint}", "every layer", _projected(constraint))


def _projected(constraint: str) -> BuildOptimizer:
    def build(model: nn.Module) -> Optimizer:
        nero.project_(model, constraint=constraint)
        return torch.optim.SGD(model.parameters(), lr=0.0)

    return build


def _interpreter_cases() -> Iterator[Case]:
    def case(name: str, network: str, dtype: torch.dtype = torch.float32, **options: Any) -> Case:
        build = build_nero(**options)
        return Case(
            f"interpreter, {name}", network, build, dtype, stepper="interpreter", steps=SHORTEST
        )

    for dtype in DTYPES:
        yield case(f"embedding first, {_short(dtype)}", "embedding first", dtype)
    yield case("every layer", "every layer")
    yield case("constraint initial", "embedding first", constraint="initial")
    yield case("gain penalty", "embedding first", gain_penalty=0.1)
    columns = {"columns.weight": {"neuron_dims": (1,)}}
    yield case("every width", "every width", overrides=columns)
    for network in ("embedding first", "embedding later"):
        options = {"stochastic_rounding": True, "seed": 3}
        yield case(f"stochastic rounding, {network}", network, torch.bfloat16, **options)


def _compiled_cases() -> Iterator[Case]:
    rate = torch.tensor(0.02)
    builds: dict[str, BuildOptimizer] = {
        "kernel": build_nero(),
        "kernel, tensor lr": build_nero(lr=rate),
        "plain": build_nero(fused=False),
        "plain, tensor lr": build_nero(fused=False, lr=rate),
        "kernel, stochastic rounding": build_nero(stochastic_rounding=True, lr=rate),
        "Lamb": lambda model: Lamb(model, lr=torch.tensor(0.01)),
    }
    for name, build in builds.items():
        dtype = torch.bfloat16 if "rounding" in name else torch.float32
        # Inductor compiles for a minute wherever a number changes, so it gets a tensor lr only.
        for stepper in ("aot_eager", "inductor") if "tensor" in name else ("aot_eager",):
            yield Case(
                f"{stepper}, {name}",
                "embedding first",
                build,
                dtype,
                stepper=stepper,  # type: ignore[arg-type]
                steps=SHORTEST,
            )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


EAGER = {case.name: case for case in [*_nero_cases(), *_other_cases()]}
INTERPRETER = {case.name: case for case in _interpreter_cases()}
COMPILED = {case.name: case for case in _compiled_cases()}
