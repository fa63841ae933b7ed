"""The perceptrons and MNIST."""

import gzip
import math

import pytest
import torch
from image_examples import mean_and_spread
from parameters import inner_matrices, num_params
from torch import nn

from nero_lab.data import files, mnist
from nero_lab.models.mlp import MLP


def test_the_deep_perceptron_has_the_size_of_the_papers():
    model = MLP(num_layers=100)
    # 99 x (784 x 784 + 784) + 784 x 10 + 10
    assert num_params(model) == 60_936_410
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize("sigma", [None, 1.0])
def test_first_and_last_layers_are_the_outer_ones(sigma):
    model = MLP(num_layers=4, width=8, sigma=sigma)
    assert model.outer_layers == ("layers.0", "layers.3")
    kind = "weight" if sigma is None else "parametrizations.weight.original"
    assert inner_matrices(model) == {f"layers.{number}.{kind}" for number in (1, 2)}


def test_reparameterised_rows_are_balanced():
    for layer in MLP(num_layers=3, width=32, sigma=100.0).layers:
        # float32 sums of up to 784 terms of size 1/28
        torch.testing.assert_close(
            layer.weight.sum(1), torch.zeros(len(layer.bias)), atol=1e-5, rtol=0
        )
        torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(len(layer.bias)))


def test_sigma_changes_only_the_scale_of_raw_weights():
    models = []
    for sigma in (1.0, 100.0):
        torch.manual_seed(0)
        models.append(MLP(num_layers=3, width=32, sigma=sigma))
    one, hundred = models
    for a, b in zip(one.layers, hundred.layers, strict=True):
        assert torch.equal(
            100 * a.parametrizations.weight.original, b.parametrizations.weight.original
        )
        assert torch.equal(a.bias, b.bias)
    images = torch.randn(4, 1, 28, 28)
    torch.testing.assert_close(one(images), hundred(images))


@pytest.mark.parametrize(("init", "shrinkage"), [("he", 1.0), ("torch", 3**-0.5)])
def test_a_signal_shrinks_by_a_known_factor_a_layer(init, shrinkage):
    torch.manual_seed(0)
    model = MLP(num_layers=12, width=784, init=init)
    for layer in model.layers:
        nn.init.zeros_(layer.bias)  # a bias would take the place of a signal that shrinks
    signal = torch.randn(64, 784)
    with torch.no_grad():
        logits = model(signal)
    # The mean square over 64 x 10 logits of a network of 12 layers is known to about 20%.
    expected = math.log(shrinkage)
    assert math.log(logits.square().mean().sqrt()) / 12 == pytest.approx(expected, abs=0.05)


def test_mnist_has_the_published_mean_and_spread(data_dir):
    pixels, labels = mnist.load(files.folder("mnist", data_dir), "train")
    assert pixels.shape == (60_000, 28, 28, 1)
    assert labels.bincount()[:2].tolist() == [5923, 6742]
    assert mean_and_spread(pixels) == (list(mnist.MEAN), list(mnist.STD))
    assert len(mnist.load(files.folder("mnist", data_dir), "valid")[1]) == 10_000


def test_a_file_that_is_not_idx_is_refused(tmp_path):
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"<html>"))
    with pytest.raises(ValueError, match="not an IDX file"):
        mnist.load(tmp_path, "valid")
