"""The mixture of experts of the character GPT."""

from functools import partial
from pathlib import Path

import pytest
import torch
from parameters import inner_matrices
from text_tasks import assert_no_word_sees_a_later_one, build
from torch import Tensor, nn

import nero
from nero_lab.models.experts import Experts, mean_imbalance
from nero_lab.models.gpt import GPT
from nero_lab.tasks.shakespeare import SHAKESPEARE
from nero_lab.tasks.shakespeare_moe import SHAKESPEARE_MOE


def experts(num_experts: int = 4, num_active: int = 2) -> Experts:
    torch.manual_seed(0)
    return Experts(8, num_experts=num_experts, num_active=num_active)


def tiny_gpt() -> GPT:
    torch.manual_seed(0)
    perceptron = partial(Experts, num_experts=4, num_active=2)
    sizes = {"vocabulary": 20, "context": 9, "num_layers": 2, "width": 16, "num_heads": 2}
    return GPT(**sizes, perceptron=perceptron)


def test_no_character_sees_a_later_one() -> None:
    assert_no_word_sees_a_later_one(tiny_gpt().eval())


@pytest.mark.parametrize("num_active", [1, 2, 4])
def test_a_token_goes_through_the_experts_with_the_largest_shares(num_active: int) -> None:
    mixture = experts(num_active=num_active)
    features = torch.randn(3, 5, 8)
    found = mixture(features)
    assert found.shape == features.shape
    for token, mixed in zip(features.flatten(0, 1), found.flatten(0, 1), strict=True):
        shares = mixture.router(token).softmax(0)
        chosen = sorted(range(4), key=lambda number: -shares[number])[:num_active]
        expected = sum(shares[number] * mixture.experts[number](token) for number in chosen)
        torch.testing.assert_close(mixed, expected)


def test_the_imbalance_is_one_if_all_experts_are_used_equally() -> None:
    mixture = experts()
    nn.init.zeros_(mixture.router.weight)
    mixture.router.weight.data[:, :4] = 8 * torch.eye(4)
    each_twice = torch.eye(4, 8) + torch.eye(4, 8).roll(1, 0)  # two experts for each token
    mixture(each_twice)
    assert mixture.imbalance.item() == pytest.approx(1)
    mixture(each_twice[:1].expand(4, 8))  # the same two for all
    assert mixture.imbalance.item() == pytest.approx(2, rel=1e-2)


def test_stepping_down_the_imbalance_evens_out_the_experts() -> None:
    mixture, tokens = experts(num_active=1), torch.randn(256, 8) + 1
    mixture.router.weight.data[0] += 0.3  # most tokens go to the first
    optimizer = torch.optim.SGD(mixture.router.parameters(), lr=1.0)

    def step() -> float:
        optimizer.zero_grad()
        mixture(tokens)
        mixture.imbalance.backward()
        optimizer.step()
        return mixture.imbalance.item()

    first, *_, last = (step() for _ in range(100))
    assert first > 1.5
    assert last < 1.1


def test_an_expert_that_nobody_chose_has_a_gradient_of_zero() -> None:
    mixture = experts(num_active=1)
    nn.init.zeros_(mixture.router.weight)
    mixture.router.weight.data[1] = 1.0
    mixture(torch.ones(6, 8)).sum().backward()
    grads = [expert.widen.weight.grad for expert in mixture.experts]
    assert [bool(grad.any()) for grad in grads] == [False, True, False, False]


@pytest.mark.parametrize("num_active", [0, 5])
def test_more_experts_than_there_are_cannot_be_chosen(num_active: int) -> None:
    with pytest.raises(ValueError, match=f"1 to 4 of 4 experts, not {num_active}"):
        experts(num_active=num_active)


def test_neurons_are_those_of_each_expert_and_of_the_router() -> None:
    rows = {row.name: row for row in nero.describe(tiny_gpt()).rows}
    block = "blocks.1.perceptron."
    assert [name for name in rows if name.startswith(block)] == [
        f"{block}router.weight",
        *(
            f"{block}experts.{number}.{layer}.weight"
            for number in range(4)
            for layer in ("widen", "shrink")
        ),
    ]
    for name, sizes in {
        "router.weight": (4, 16),
        "experts.2.widen.weight": (64, 16),
        "experts.2.shrink.weight": (16, 64),
    }.items():
        row = rows[block + name]
        assert (row.role, row.num_neurons, row.fan_in) == ("neuron", *sizes)


def test_only_blocks_lie_between_the_outer_layers() -> None:
    matrices = inner_matrices(tiny_gpt())
    assert len(matrices) == 2 * (2 + 1 + 4 * 2)
    assert all(name.startswith("blocks.") for name in matrices)


def test_the_penalty_is_trained_on_and_not_scored(data_dir: Path) -> None:
    experiment = build(SHAKESPEARE_MOE, data_dir)
    taken: list[Tensor] = []
    batch = next(experiment.batches(0, 0))
    seen = experiment.advance(batch, lambda player, loss: taken.append(loss))
    loss, imbalance = (float(total) / count for total, count in seen.values())
    assert list(seen) == ["loss", "imbalance"]
    assert imbalance == pytest.approx(mean_imbalance(experiment.players["gpt"]).item(), rel=1e-5)
    assert 1 <= imbalance < 2
    assert taken[0].item() == pytest.approx(loss + 0.01 * imbalance, rel=1e-6)
    assert list(experiment.evaluate()) == ["loss"]


def test_recipes_are_those_of_shakespeare_apart_from_experts() -> None:
    own = {"num_experts", "num_active", "balance"}
    for scale, recipe in SHAKESPEARE_MOE.recipes.items():
        assert set(recipe.options) - set(SHAKESPEARE.recipes[scale].options) == own
        assert recipe.schedule == SHAKESPEARE.recipes[scale].schedule
