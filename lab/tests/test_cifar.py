"""The networks of CIFAR-10, and its images."""

import pytest
import torch
from image_examples import mean_and_spread, noise
from parameters import num_params

from nero_lab.data import cifar10, files
from nero_lab.models.resnet import resnet18
from nero_lab.models.vgg import VGG11
from nero_lab.tasks.cifar_resnet18 import CIFAR_RESNET18
from nero_lab.tasks.cifar_vgg11 import CIFAR_VGG11


def vgg11_at_paper_scale():
    options = CIFAR_VGG11.recipes["paper"].options
    return VGG11(**{name: options[name] for name in ("width", "init", "biases", "head")})


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (vgg11_at_paper_scale, CIFAR_VGG11.paper_parameters),
        # Convolutions of 9,220,480 with their biases, and a head of 512 x 10 + 10.
        (VGG11, 9_225_610),
        (resnet18, CIFAR_RESNET18.paper_parameters),
    ],
)
def test_a_model_has_the_size_of_the_papers_and_ten_outputs(model, count):
    model = model()
    assert num_params(model) == count
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("init", ["he", "he-fan-out", "torch"])
def test_no_parameter_of_vgg11_is_zero(init):
    # Madam multiplies, and could not move one.
    assert all((param != 0).all() for param in VGG11(width=0.25, init=init).parameters())


def test_cifar10_has_the_published_mean_and_spread(data_dir):
    folder = files.folder("cifar10", data_dir)
    pixels, labels = cifar10.load(folder, "train")
    assert labels.bincount().tolist() == [5000] * 10
    assert mean_and_spread(pixels) == (list(cifar10.MEAN), list(cifar10.STD))
    assert cifar10.load(folder, "valid")[0].shape == (10_000, 32, 32, 3)


def test_fan_out_keeps_the_size_of_gradients_where_channels_double():
    torch.manual_seed(0)
    _, second = (VGG11(init=init).features[3].weight for init in ("he", "he-fan-out"))
    assert second.std().item() == pytest.approx((2 / (128 * 9)) ** 0.5, rel=0.02)


def test_a_quarter_turn_is_a_rotation_and_no_turn_is_none():
    pixels = noise(2).pixels
    same, turned = cifar10.rotated(pixels, torch.tensor([0.0, 90.0]))
    assert torch.equal(same, pixels[0])
    assert torch.equal(turned, pixels[1].rot90(-1)) or torch.equal(turned, pixels[1].rot90(1))


def test_rotation_is_drawn_within_its_limits_and_leaves_the_rest_as_it_was():
    pixels, draws = noise(2).pixels, torch.rand(2, 4)
    assert torch.equal(
        cifar10.augmented(pixels, draws), cifar10.crop_and_flip(pixels, draws[:, :3])
    )
    draws[:, 3] = torch.tensor([0.0, 1.0])
    shifted = cifar10.crop_and_flip(pixels, draws[:, :3])
    ends = cifar10.rotated(shifted, torch.tensor([-15.0, 15.0]))
    assert torch.equal(cifar10.augmented(pixels, draws, rotation=15.0), ends)


def test_crop_and_flip_shifts_and_mirrors():
    pixels = noise(3).pixels
    middle = 4.5 / 9  # the fifth of nine shifts is none
    draws = torch.tensor([[middle, middle, 0.9], [middle, middle, 0.1], [0.0, 0.99, 0.9]])
    same, mirrored, shifted = cifar10.crop_and_flip(pixels, draws)
    assert torch.equal(same, pixels[0])
    assert torch.equal(mirrored, pixels[1].flip(1))
    assert torch.equal(shifted[4:, :-4], pixels[2, :-4, 4:])
    assert not shifted[:4].any()
    assert not shifted[:, -4:].any()
