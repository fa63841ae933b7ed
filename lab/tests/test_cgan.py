"""The GAN, and the distance that scores it."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nero import describe
from nero_lab.engine.task import Setting, Take
from nero_lab.experiments import fid, fid_classifier
from nero_lab.experiments.conditional_gan import ConditionalGAN
from nero_lab.models.biggan import Discriminator, Generator
from nero_lab.tasks.cgan import CGAN


class Identity(nn.Module):
    """Features that are the numbers themselves."""

    num_features = 3

    def forward(self, numbers: Tensor) -> Tensor:
        return numbers


def distance(real: Tensor, fake: Tensor) -> float:
    metric = fid.frechet(Identity(), real)
    fid.update(metric, fake, real=False)
    return float(metric.compute())


def drawn(num: int, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Draw numbers whose sample moments are exactly those of N(mean, std^2)."""
    raw = torch.randn(num, 3, dtype=torch.float64)
    centred = raw - raw.mean(0)
    white: Tensor = centred @ torch.linalg.inv(torch.linalg.cholesky(centred.T.cov())).T
    return mean + std * white


def test_distance_of_a_set_to_itself_is_zero() -> None:
    numbers = torch.randn(200, 3)
    assert distance(numbers, numbers) == pytest.approx(0, abs=1e-6)


def test_distance_is_the_closed_form_of_gaussians() -> None:
    # ||m1 - m2||^2 + sum (s1 - s2)^2 for covariances that commute
    assert distance(drawn(200, 1.0, 2.0), drawn(300, -1.0, 0.5)) == pytest.approx(3 * (4 + 2.25))


def test_distance_of_correlated_gaussians_is_that_of_a_symmetric_square_root() -> None:
    real, fake = (torch.randn(500, 3).double() @ torch.randn(3, 3).double() for _ in range(2))
    values, vectors = torch.linalg.eigh(real.T.cov())
    root = vectors @ values.sqrt().diag() @ vectors.T
    cross = torch.linalg.eigvalsh(root @ fake.T.cov() @ root).clamp_min(0).sqrt().sum()
    moved = (real.mean(0) - fake.mean(0)).square().sum()
    expected = moved + real.T.cov().trace() + fake.T.cov().trace() - 2 * cross
    assert distance(real, fake) == pytest.approx(float(expected))


@pytest.fixture
def pictures() -> tuple[Tensor, Tensor]:
    """Ten flat colours with some noise: easy to tell apart."""
    torch.manual_seed(0)
    classes = torch.arange(320) % 10
    colours = torch.randint(40, 216, (10, 3, 1, 1))
    noisy = colours[classes] + torch.randint(-20, 20, (320, 3, 32, 32))
    return noisy.to(torch.uint8), classes


def test_distance_grows_with_noise(pictures: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    found = fid_classifier.load_or_train(pictures, pictures, width=4, epochs=4, cache_dir=tmp_path)
    images, _ = pictures
    metric = fid.frechet(found.classifier, images)
    distances = []
    for strength in (0, 10, 30, 90):
        noisy = images + strength * torch.randn(images.shape)
        fid.update(metric, noisy.clamp(0, 255).to(torch.uint8), real=False)
        distances.append(float(metric.compute()))
        metric.reset()
    assert distances == sorted(distances)
    assert distances[0] == pytest.approx(0, abs=1e-4)
    assert distances[-1] > 10 * distances[1]


def test_classifier_is_trained_once_and_leaves_random_numbers_alone(
    pictures: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = torch.get_rng_state()
    first = fid_classifier.load_or_train(pictures, pictures, width=2, epochs=4, cache_dir=tmp_path)
    monkeypatch.setattr(fid_classifier, "_train_", None)
    second = fid_classifier.load_or_train(pictures, pictures, width=2, epochs=4, cache_dir=tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.accuracy == second.accuracy
    for mine, other in zip(
        first.classifier.parameters(), second.classifier.parameters(), strict=True
    ):
        assert torch.equal(mine, other)
    assert [path.name for path in tmp_path.iterdir()] == [
        "cifar-classifier-width2-epochs4-images320.pt"
    ]


def test_published_fid_needs_its_weights(
    pictures: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    assert fid.inception(pictures[0], cache_dir=tmp_path) is None


@pytest.fixture
def gan(pictures: tuple[Tensor, Tensor], tmp_path: Path) -> ConditionalGAN:
    smoke = CGAN.recipes["smoke"]
    options = {**smoke.options, "classifier_epochs": 8}  # colours are soon told apart
    recipe = dataclasses.replace(smoke, batch_size=16, options=options)
    return ConditionalGAN(Setting(recipe, 0, tmp_path), pictures, pictures)


def test_every_weight_but_the_gains_is_a_neuron() -> None:
    for model in (Generator(8), Discriminator(8)):
        for row in describe(model).rows:
            is_weight = len(row.shape) > 1
            assert (row.role in ("neuron", "embedding")) == is_weight, row
            assert row.num_neurons == (row.shape[0] if is_weight else max(sum(row.shape), 1))


def test_discriminator_sees_the_class() -> None:
    model, images = Discriminator(8), torch.rand(4, 3, 32, 32)
    model.eval()
    zeros, ones = (model(images, torch.full((4,), label)) for label in (0, 1))
    assert not torch.allclose(zeros, ones)


def recording(gan: ConditionalGAN, after: Callable[[str], None]) -> Take:
    """Return a ``take`` as the loop's, which also looks at what came of it."""
    optimizers = {
        name: torch.optim.SGD(player.parameters(), 0.01) for name, player in gan.players.items()
    }

    def take(player: str, loss: Tensor) -> None:
        optimizers[player].zero_grad()
        with torch.autocast("cpu", enabled=False):
            loss.backward()
        optimizers[player].step()
        after(player)

    return take


def gradients(player: nn.Module) -> list[Tensor]:
    """Return the gradients of a player, all of which must be there."""
    found = {name: param.grad for name, param in player.named_parameters() if param.requires_grad}
    missing = [name for name, gradient in found.items() if gradient is None]
    assert found
    assert not missing
    return [gradient for gradient in found.values() if gradient is not None]


@pytest.mark.parametrize("low", [False, True], ids=["float32", "bfloat16"])
def test_each_player_gets_its_own_gradients(gan: ConditionalGAN, low: bool) -> None:
    order: list[str] = []
    kept: list[Tensor] = []

    def after(player: str) -> None:
        order.append(player)
        found = gradients(gan.players[player])
        if player == "discriminator":
            kept[:] = [gradient.clone() for gradient in found]

    take = recording(gan, after)
    for batch in list(gan.batches(0, 0))[:2]:
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            gan.advance(batch, take)
        # The generator's loss went through the discriminator and left nothing in it.
        for now, gradient in zip(gradients(gan.players["discriminator"]), kept, strict=True):
            assert torch.equal(now, gradient)
    assert order == ["discriminator", "generator"] * 2


def test_generator_faces_the_updated_discriminator_in_bfloat16(gan: ConditionalGAN) -> None:
    bias = gan.players["discriminator"].get_parameter("score.bias")
    losses: list[float] = []

    def take(player: str, loss: Tensor) -> None:
        losses.append(loss.item())
        if player == "discriminator":
            with torch.no_grad():  # a step larger than any other influence on the score
                bias.fill_(1000.0)

    with torch.autocast("cpu", torch.bfloat16):
        gan.advance(next(gan.batches(0, 0)), take)
    assert losses[1] < -500


def test_evaluation_repeats_and_changes_nothing(gan: ConditionalGAN) -> None:
    before = {name: value.clone() for name, value in gan.players["generator"].state_dict().items()}
    state = torch.get_rng_state()
    first, second = gan.evaluate(), gan.evaluate()
    assert first == second
    assert first["cifar_frechet"][0] > 0
    assert 0 < first["classifier_accuracy"][0] <= 1
    assert torch.equal(torch.get_rng_state(), state)
    assert gan.players["generator"].training
    after = gan.players["generator"].state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_batches_resume(gan: ConditionalGAN) -> None:
    whole, rest = list(gan.batches(3, 0)), list(gan.batches(3, 5))
    assert len(whole) == gan.steps_per_epoch
    assert len(rest) == len(whole) - 5
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole[5:], rest, strict=True))


def test_broken_generator_has_no_distance(gan: ConditionalGAN) -> None:
    with torch.no_grad():
        gan.players["generator"].get_parameter("last.bias").fill_(torch.nan)
    value = torch.as_tensor(gan.evaluate()["cifar_frechet"][0])
    assert value.isnan()
