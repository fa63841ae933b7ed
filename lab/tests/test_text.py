"""The text tasks: their models, their batches and their losses."""

import dataclasses
import math
from itertools import islice
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from nero_lab.data import multi30k as multi30k_data
from nero_lab.data import wikitext2 as wikitext2_data
from nero_lab.models.gpt import GPT
from nero_lab.models.language_model import LanguageModel
from nero_lab.models.translation import Translator
from nero_lab.models.word_losses import word_losses
from nero_lab.task import Experiment, Setting, Task
from nero_lab.tasks.multi30k import MULTI30K
from nero_lab.tasks.shakespeare import SHAKESPEARE
from nero_lab.tasks.wikitext2 import WIKITEXT2, perplexities

TASKS = (SHAKESPEARE, WIKITEXT2, MULTI30K)
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def build(task: Task, data_dir: Path, *, rank: int = 0, world_size: int = 1) -> Any:
    torch.manual_seed(0)
    recipe = task.recipes["smoke"]
    return task.build(Setting(recipe, 0, data_dir, rank=rank, world_size=world_size))


def nothing(player: str, loss: Tensor) -> None:
    """Take no step."""


def tiny_translator(**options: Any) -> Translator:
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "width": 16, "num_heads": 2, "hidden": 24, "longest": 12}
    return Translator(vocabulary=30, padding=0, **(sizes | options))


class TestModels:
    def test_the_language_model_has_19_tensors(self) -> None:
        with torch.device("meta"):
            model = LanguageModel(vocabulary=33_278)
        assert len(list(model.parameters())) == 19

    def test_the_translator_has_121_tensors(self) -> None:
        with torch.device("meta"):
            model = Translator(vocabulary=9_521, padding=0)
        assert len(list(model.parameters())) == 121

    @pytest.mark.parametrize("kind", ["gpt", "language model", "translator"])
    def test_no_word_sees_a_later_one(self, kind: str) -> None:
        torch.manual_seed(0)
        tokens = torch.randint(1, 20, (2, 9))
        if kind == "gpt":
            model: nn.Module = GPT(vocabulary=20, context=9, num_layers=2, width=16, num_heads=2)
        elif kind == "language model":
            model = LanguageModel(vocabulary=20, width=16, hidden=16)
        else:
            translator = tiny_translator()
            source = torch.randint(1, 20, (2, 5))
            model = translator

        def logits(words: Tensor) -> Tensor:
            return cast(Tensor, model(source, words) if kind == "translator" else model(words))

        model.eval()
        changed = tokens.clone()
        changed[:, 6] = (changed[:, 6] + 1) % 19 + 1
        before, after = logits(tokens), logits(changed)
        torch.testing.assert_close(before[:, :6], after[:, :6])
        assert (before[:, 6:] - after[:, 6:]).abs().amax() > 1e-3

    def test_padding_leaves_the_losses_of_words_alone(self) -> None:
        model = tiny_translator().eval()
        source, target = torch.randint(1, 30, (3, 6)), torch.randint(1, 30, (3, 7))
        pad = nn.functional.pad
        plain = model(source, target[:, :-1], target[:, 1:])
        longer_source, longer = pad(source, (0, 4)), pad(target, (0, 3))
        padded = model(longer_source, longer[:, :-1], longer[:, 1:])
        for expected, found in zip(plain, padded, strict=True):
            assert len(found) == 3 * 6
            torch.testing.assert_close(found, expected)

    def test_smoothed_losses_are_those_of_torch(self) -> None:
        model = tiny_translator(smoothing=0.3).eval()
        source, target = torch.randint(1, 30, (3, 6)), torch.randint(1, 30, (3, 7))
        logits = cast(Tensor, model(source, target[:, :-1])).flatten(0, 1)
        words = target[:, 1:].flatten()
        plain, smooth = model(source, target[:, :-1], target[:, 1:])
        torch.testing.assert_close(plain, cross_entropy(logits, words, reduction="none"))
        expected = cross_entropy(logits, words, reduction="none", label_smoothing=0.3)
        torch.testing.assert_close(smooth, expected)


class TestWordLosses:
    @pytest.mark.parametrize("has_bias", [True, False])
    def test_the_fast_losses_and_gradients_are_the_plain_ones(self, has_bias: bool) -> None:
        torch.manual_seed(0)
        rows, words, width = 123, 301, 40  # not a multiple of the rows that are done at once
        features = torch.randn(rows, width).bfloat16().float().requires_grad_()
        weight = (0.3 * torch.randn(words, width)).bfloat16().float().requires_grad_()
        bias = torch.randn(words, requires_grad=True) if has_bias else None
        targets = torch.randint(words, (rows,))
        inputs = [features, weight] if bias is None else [features, weight, bias]
        plain = cross_entropy(linear(features, weight, bias), targets, reduction="none")
        with torch.autocast("cpu", torch.bfloat16):
            fast = word_losses(features, weight, bias, targets)
        # Logits of about 2 are rounded to 8 bits: errors of 2**-8 each.
        torch.testing.assert_close(fast, plain, atol=0.03, rtol=0.0)
        factors = torch.rand(rows)
        for expected, found in zip(
            torch.autograd.grad((plain * factors).sum(), inputs),
            torch.autograd.grad((fast * factors).sum(), inputs),
            strict=True,
        ):
            # Relative to the whole tensor, the rounding of the products: below 2**-7.
            assert (found - expected).norm() < 2**-7 * expected.norm()

    def test_huge_logits_give_finite_losses(self) -> None:
        features = torch.full((3, 4), 1e4, requires_grad=True)
        weight = torch.eye(4)[:, :4] * torch.tensor([1.0, -1.0, 1.0, 1.0])
        with torch.autocast("cpu", torch.bfloat16):
            losses = word_losses(features, weight, None, torch.tensor([0, 1, 2]))
        assert losses.isfinite().all()
        assert losses[1] > 1e4

    def test_without_gradients_the_losses_are_the_same(self) -> None:
        torch.manual_seed(0)
        features, weight = torch.randn(5, 8, requires_grad=True), torch.randn(11, 8)
        targets = torch.randint(11, (5,))
        with torch.autocast("cpu", torch.bfloat16):
            losses = word_losses(features, weight, None, targets)
            with torch.no_grad():
                assert word_losses(features, weight, None, targets).equal(losses)


class TestBatches:
    @each_task
    def test_a_late_start_gives_the_tail(self, task: Task, data_dir: Path) -> None:
        experiment = build(task, data_dir)
        whole, tail = list(experiment.batches(1, 0)), list(experiment.batches(1, 3))
        assert len(whole) == experiment.steps_per_epoch
        assert len(tail) == len(whole) - 3
        for expected, found in zip(whole[3:], tail, strict=True):
            assert all(a.equal(b) for a, b in zip(expected, found, strict=True))

    @each_task
    def test_two_ranks_partition_a_batch(self, task: Task, data_dir: Path) -> None:
        alone, *parts = (
            list(islice(build(task, data_dir, rank=rank, world_size=size).batches(0, 0), 4))
            for rank, size in ((0, 1), (0, 2), (1, 2))
        )
        for whole, *shares in zip(alone, *parts, strict=True):
            assert rows(whole) == sorted(row for share in shares for row in rows(share))
            assert len(shares[0][0]) == len(shares[1][0])

    @each_task
    def test_two_ranks_evaluate_what_one_does(self, task: Task, data_dir: Path) -> None:
        sums = [
            build(task, data_dir, rank=rank, world_size=size).evaluate()["loss"]
            for rank, size in ((0, 1), (0, 2), (1, 2))
        ]
        assert sums[0][1] == sums[1][1] + sums[2][1] > 0
        torch.testing.assert_close(sums[0][0], sums[1][0] + sums[2][0])

    @pytest.mark.parametrize("task", [SHAKESPEARE, MULTI30K], ids=lambda task: task.name)
    def test_epochs_differ(self, task: Task, data_dir: Path) -> None:
        experiment = build(task, data_dir)
        first, second = (next(experiment.batches(epoch, 0)) for epoch in (0, 1))
        assert rows(first) != rows(second)

    def test_windows_run_on_through_the_text(self, data_dir: Path) -> None:
        experiment = build(WIKITEXT2, data_dir)
        batches = list(experiment.batches(0, 0))
        inputs = torch.cat([batch[0] for batch in batches], dim=1)
        targets = torch.cat([batch[1] for batch in batches], dim=1)
        assert inputs[:, 1:].equal(targets[:, :-1])
        text = wikitext2_data.load(data_dir / "wikitext-2", num_tokens=4000).train
        assert inputs.flatten().tolist() == [
            word for piece in text.view(4, 1000) for word in piece[:-1].tolist()
        ]

    def test_every_sentence_comes_at_most_once_an_epoch(self) -> None:
        lengths = torch.randint(3, 30, (1000, 2), generator=torch.Generator().manual_seed(0))
        batches = list(multi30k_data.bucketed(lengths, 16, seed=0, epoch=0))
        assert len(batches) == 62
        assert torch.cat(batches).unique().numel() == 62 * 16


class TestScores:
    @each_task
    def test_the_loss_of_a_new_model_is_that_of_guessing(self, task: Task, data_dir: Path) -> None:
        experiment: Experiment = build(task, data_dir)
        total, count = experiment.evaluate()["loss"]
        (model,) = experiment.players.values()
        words = next(p for p in model.parameters() if p.ndim == 2).shape[0]
        assert float(total) / count == pytest.approx(math.log(words), rel=0.15)
        assert model.training

    def test_perplexity_is_the_exponential_of_the_mean_over_words(self, data_dir: Path) -> None:
        experiment = build(WIKITEXT2, data_dir)
        (player,) = experiment.players.values()
        player.eval()
        sums = [experiment.advance(batch, nothing)["loss"] for batch in experiment.batches(0, 0)]
        count = sum(number for _, number in sums)
        mean = float(sum(total for total, _ in sums)) / count
        logits = [player(inputs).flatten(0, 1) for inputs, _ in experiment.batches(0, 0)]
        targets = [targets.flatten() for _, targets in experiment.batches(0, 0)]
        expected = cross_entropy(torch.cat(logits), torch.cat(targets)).exp()
        found = experiment.derive({"train_loss": mean})["train_perplexity"]
        assert found == pytest.approx(expected.item(), rel=1e-4)

    def test_an_unbounded_loss_has_infinite_perplexity(self) -> None:
        assert perplexities({"valid_loss": 1e4}) == {"valid_perplexity": math.inf}

    @each_task
    @pytest.mark.parametrize("precision", ["float32", "bfloat16"])
    def test_a_few_steps_lower_the_loss(self, task: Task, precision: str, data_dir: Path) -> None:
        experiment = build(task, data_dir)
        (model,) = experiment.players.values()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

        def take(player: str, loss: Tensor) -> None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            before, count = experiment.evaluate()["loss"]
            for batch in islice(experiment.batches(0, 0), 12):
                experiment.advance(batch, take)
            after, _ = experiment.evaluate()["loss"]
        assert float(after) / count < float(before) / count - 0.1


@each_task
def test_every_recipe_names_the_same_options(task: Task) -> None:
    assert set(task.recipes) == {"paper", "cpu", "smoke"}
    (options,) = {tuple(sorted(recipe.options)) for recipe in task.recipes.values()}
    assert options
    assert dataclasses.asdict(task.metric)["name"].startswith("valid_")


def rows(batch: tuple[Tensor, Tensor]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the pairs of a batch without padding, in one order."""
    return sorted(
        tuple(tuple(word for word in row.tolist() if word != multi30k_data.PAD) for row in pair)
        for pair in zip(*batch, strict=True)
    )
