"""The vision transformer."""

import pytest
import torch
from parameters import inner_matrices, num_params

import nero
from nero_lab.models.vit import ViT
from nero_lab.tasks.cifar_vit import CIFAR_VIT


def tiny_vit(*, patch: int = 8) -> ViT:
    torch.manual_seed(0)
    return ViT(num_layers=2, width=16, num_heads=2, patch=patch)


@pytest.mark.parametrize("scale", ["paper", "cpu"])
def test_size_and_outputs(scale: str) -> None:
    options = CIFAR_VIT.recipes[scale].options
    names = ("patch", "num_layers", "width", "num_heads")
    model = ViT(**{name: options[name] for name in names})
    width, num_layers = options["width"], options["num_layers"]
    block = 12 * width**2 + 2 * width  # matrices and gains
    assert num_params(model) == num_layers * block + (48 + 64 + 1 + 10) * width
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)


def test_every_patch_sees_every_other() -> None:
    model = tiny_vit()
    stream = torch.randn(1, 16, 16, requires_grad=True)
    model.blocks[0](stream)[0, 0].sum().backward()
    assert stream.grad is not None
    assert (stream.grad.abs().amax(-1) > 0).all()


def test_patches_are_the_squares_of_the_image() -> None:
    model, image = tiny_vit(), torch.randn(1, 3, 32, 32)
    square = image[0, :, 8:16, 24:32]  # in the second row, the last of four
    expected = model.patches.weight.flatten(1) @ square.flatten()
    found = model.patches(image).flatten(2)[0, :, 7]
    torch.testing.assert_close(found, expected)


def test_positions_tell_patches_apart() -> None:
    model, image = tiny_vit(), torch.randn(1, 3, 32, 32)
    moved = image.roll(8, -1)
    assert (model(image) - model(moved)).abs().amax() > 1e-4
    model.position.weight.data[:] = 0
    torch.testing.assert_close(model(image), model(moved))


def test_patches_that_do_not_tile_the_image_are_refused() -> None:
    with pytest.raises(ValueError, match="patches of 5 pixels do not tile an image of 32"):
        tiny_vit(patch=5)


def test_a_patch_is_the_fan_in_of_the_first_layer() -> None:
    rows = {row.name: row for row in nero.describe(tiny_vit()).rows}
    first, positions = rows["patches.weight"], rows["position.weight"]
    assert (first.role, first.num_neurons, first.fan_in) == ("neuron", 16, 3 * 8 * 8)
    assert (positions.role, positions.num_neurons) == ("embedding", 16)


def test_only_blocks_lie_between_the_outer_layers() -> None:
    matrices = inner_matrices(tiny_vit())
    assert len(matrices) == 2 * 4
    assert all(name.startswith("blocks.") for name in matrices)
