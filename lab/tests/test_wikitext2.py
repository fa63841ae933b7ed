"""The small language model and WikiText-2."""

import math
from pathlib import Path

import pytest
import torch
from parameters import inner_matrices
from text_tasks import assert_no_word_sees_a_later_one, build
from torch import Tensor
from torch.nn.functional import cross_entropy

from nero_lab.data import wikitext2
from nero_lab.engine.task import Setting
from nero_lab.experiments.perplexity import perplexities
from nero_lab.models.language_model import LanguageModel
from nero_lab.tasks.wikitext2 import WIKITEXT2


def nothing(player: str, loss: Tensor) -> None:
    """Take no step."""


def test_the_language_model_has_19_tensors() -> None:
    with torch.device("meta"):
        model = LanguageModel(vocabulary=33_278)
    assert len(list(model.parameters())) == 19


def test_no_word_sees_a_later_one() -> None:
    torch.manual_seed(0)
    assert_no_word_sees_a_later_one(LanguageModel(vocabulary=20, width=16, hidden=16).eval())


def test_only_encoder_layers_lie_between_the_outer_layers() -> None:
    matrices = inner_matrices(LanguageModel(vocabulary=20, width=16, hidden=16))
    assert len(matrices) == 2 * 4
    assert all(name.startswith("layers.") for name in matrices)


def test_windows_run_on_through_the_text(data_dir: Path) -> None:
    experiment = build(WIKITEXT2, data_dir)
    batches = list(experiment.batches(0, 0))
    inputs = torch.cat([batch[0] for batch in batches], dim=1)
    targets = torch.cat([batch[1] for batch in batches], dim=1)
    assert inputs[:, 1:].equal(targets[:, :-1])
    text = wikitext2.load(data_dir / "wikitext-2", num_tokens=4000).train
    assert inputs.flatten().tolist() == [
        word for piece in text.view(4, 1000) for word in piece[:-1].tolist()
    ]


def test_perplexity_is_the_exponential_of_the_mean_over_words(data_dir: Path) -> None:
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


def test_an_unbounded_loss_has_infinite_perplexity() -> None:
    assert perplexities({"valid_loss": 1e4}) == {"valid_perplexity": math.inf}


def test_at_paper_scale_the_gradients_of_sgd_alone_are_clipped(tmp_path: Path) -> None:
    recipe = WIKITEXT2.recipes["paper"]
    found = {
        name: Setting(recipe, seed=0, data_dir=tmp_path, optimizer=name).clip_norm
        for name in ("sgd", "nero", "adam", "lamb")
    }
    assert found == {"sgd": 0.25, "nero": None, "adam": None, "lamb": None}
    assert Setting(WIKITEXT2.recipes["cpu"], 0, tmp_path, optimizer="nero").clip_norm == 0.25
