"""No wrong use of the tools' functions is silent: each ends in one message that says what to do."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from wrong_uses_of_tools import PLAN, SINKS, THEORY

import nero
import nero_tools
from nero_tools import sinks, theory
from nero_tools.plan.mesh import Ranks, parse_ranks
from nero_tools.plan.simulate import plan
from tests.contract.wrong_uses import check_is_heard
from tests.contract.wrong_uses import namespace as core_names

WRONG_USES = [*THEORY, *SINKS, *PLAN]


def namespace() -> dict[str, Any]:
    """Return what the rows may use, made anew for each."""
    names = core_names()
    classifier = nn.Linear(2, 2, bias=False)
    classifier.weight.data.copy_(torch.eye(2))

    def robustness(**changed: Any) -> Any:
        arguments: dict[str, Any] = {
            **{"model": classifier, "inputs": torch.eye(2), "labels": torch.arange(2)},
            **{"constraint": "norm", **changed},
        }
        rows = [arguments.pop(key) for key in ("model", "inputs", "labels")]
        return theory.search_robustness(*rows, **arguments)

    def trust(**changed: Any) -> Any:
        def loss_fn(other: nn.Module) -> Tensor:
            return mse_loss(other(torch.eye(4)), torch.ones(4, 2))

        update = {"0.weight": torch.full((3, 4), 0.01)}
        arguments: dict[str, Any] = {"model": names["model"], "loss_fn": loss_fn, "update": update}
        arguments |= changed
        rows = [arguments.pop(key) for key in ("model", "loss_fn", "update")]
        return theory.relative_trust(*rows, **arguments)

    return {
        **names,
        **{name: getattr(theory, name) for name in theory.__all__},
        **{name: getattr(sinks, name) for name in sinks.__all__},
        **{f.__name__: f for f in (Ranks, parse_ranks, plan, robustness, trust)},
        "space": theory.WeightSpace((theory.Spheres(10, 20),)),
    }


def test_the_table_is_long_and_names_nothing_twice():
    codes = [code for code, _, _ in WRONG_USES]
    assert len(set(codes)) == len(codes) >= 100


@pytest.mark.parametrize(
    ("code", "kind", "named"), WRONG_USES, ids=[code for code, _, _ in WRONG_USES]
)
def test_is_heard(code: str, kind: type[Exception], named: str):
    packages = [Path(package.__file__).parent for package in (nero, nero_tools)]
    check_is_heard(code, kind, named, namespace(), packages)
