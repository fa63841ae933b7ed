"""The character GPT on Tiny Shakespeare with a mixture of experts instead of each MLP."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from nero_lab.engine.task import Metric, Recipe, Setting, Sums, Take, Task
from nero_lab.experiments.next_token import Windows
from nero_lab.models.experts import Experts, mean_imbalance
from nero_lab.tasks.shakespeare import SHAKESPEARE, Shakespeare


class ShakespeareMoE(Shakespeare):
    """Next-character prediction, with a penalty on experts that are used unevenly."""

    def __init__(self, setting: Setting) -> None:
        options = {name: setting.option(name) for name in ("num_experts", "num_active")}
        super().__init__(setting, perceptron=partial(Experts, **options))

    def advance(self, batch: Windows, take: Take) -> Sums:
        """Train on one batch of windows; the loss that is seen is that without the penalty."""
        loss = self.loss(batch)
        # Each rank balances its own windows.
        imbalance = mean_imbalance(self.players["gpt"])
        take("gpt", loss + self.setting.option("balance") * imbalance)
        count = batch[1].numel()
        return {
            "loss": (loss.detach() * count, count),
            "imbalance": (imbalance.detach() * count, count),
        }


def _with_experts(
    scale: str, *, takes: str, options: Mapping[str, Any] | None = None, **changes: Any
) -> Recipe:
    recipe = SHAKESPEARE.recipes[scale]
    experts: Mapping[str, Any] = {"num_experts": 4, "num_active": 2, "balance": 0.01}
    merged = {**recipe.options, **experts, **(options or {})}
    return replace(recipe, options=merged, takes=takes, **changes)


SHAKESPEARE_MOE = Task(
    name="shakespeare-moe",
    title="a mixture-of-experts character GPT on Tiny Shakespeare",
    data="shakespeare",
    metric=Metric("valid_loss", "validation loss (nats per character)"),
    recipes={
        "paper": _with_experts("paper", takes="not run"),
        "cpu": _with_experts(
            "cpu",
            takes="5 to 12 minutes on one core",
            precision="float32",
        ),
        "mini": _with_experts(
            "mini",
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            options={"steps_per_epoch": 50},
            shrunk="3 layers of width 96 instead of 6 of width 384, context 64, 200 steps, batch size 16",
        ),
        "smoke": _with_experts("smoke", takes="seconds"),
    },
    build=ShakespeareMoE,
    differences=(
        "This experiment is not in the paper. Except for its experts, and float32 at cpu scale, it is "
        "the task shakespeare.",
        "Each block has four MLPs of the usual size and sends each character through two of them, so its "
        "MLPs compute twice as much as in the task shakespeare, with four times the weights.",
        "The reported loss is the prediction loss. In training, a penalty of 0.01 times the experts' "
        "imbalance is added.",
    ),
)
