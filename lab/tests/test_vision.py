"""The image classifiers: their models, their batches and their experiment."""

import gzip
import math
import shutil
from dataclasses import replace
from itertools import islice

import pytest
import torch
from PIL import Image
from torch import nn

from nero_lab.classification import Classification, StoredImages
from nero_lab.data import cifar10, files, mnist
from nero_lab.data.files import DataError
from nero_lab.data.image_folder import ImageFolder, centre_crop, random_crop
from nero_lab.models.mlp import MLP
from nero_lab.models.resnet import resnet18, resnet50
from nero_lab.models.vgg import VGG11
from nero_lab.task import Recipe, Setting
from nero_lab.tasks.cifar_resnet18 import CIFAR_RESNET18
from nero_lab.tasks.cifar_vgg11 import CIFAR_VGG11
from nero_lab.tasks.imagenet import IMAGENET, make_up_images
from nero_lab.tasks.mnist_deep import MNIST_DEEP
from nero_lab.tasks.mnist_reparam import MNIST_REPARAM

TASKS = [MNIST_REPARAM, MNIST_DEEP, CIFAR_VGG11, CIFAR_RESNET18, IMAGENET]


def num_params(model):
    return sum(param.numel() for param in model.parameters())


def setting(tmp_path, *, batch_size=8, seed=0, **changes):
    return Setting(Recipe(epochs=1, batch_size=batch_size), seed, tmp_path, **changes)


def noise(num_images=40, *, augment=cifar10.crop_and_flip):
    pixels = torch.randint(256, (num_images, 32, 32, 3), dtype=torch.uint8)
    return StoredImages(
        pixels, torch.arange(num_images), cifar10.MEAN, cifar10.STD, augment, cifar10.NUM_DRAWS
    )


@pytest.fixture(scope="module")
def images():
    """A folder of made-up images: four classes, eight images each for training."""
    root = make_up_images(0, num_images=8)
    yield root
    shutil.rmtree(root)


# Models


@pytest.mark.parametrize(
    ("model", "count", "shape"),
    [
        # 99 x (784 x 784 + 784) + 784 x 10 + 10
        (lambda: MLP(num_layers=100), 60_936_410, (2, 1, 28, 28)),
        # Convolutions of 9,220,480 with their biases, and a head of 512 x 10 + 10.
        (lambda: VGG11(), 9_225_610, (2, 3, 32, 32)),
        (lambda: resnet18(), 11_173_962, (2, 3, 32, 32)),
    ],
)
def test_a_model_has_the_size_of_the_papers_and_ten_outputs(model, count, shape):
    model = model()
    assert num_params(model) == count
    assert model(torch.randn(shape)).shape == (2, 10)


def test_resnet50_has_its_well_known_size():
    model = resnet50()
    assert num_params(model) == 25_557_032
    assert model(torch.randn(2, 3, 64, 64)).shape == (2, 1000)


@pytest.mark.parametrize("init", ["he", "torch"])
def test_no_parameter_of_vgg11_is_zero(init):
    # Madam multiplies, and could not move one.
    assert all((param != 0).all() for param in VGG11(width=0.25, init=init).parameters())


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


# Data


def mean_and_spread(pixels):
    """Return those of each channel to four places, by counting how often each byte occurs."""
    values = torch.arange(256, dtype=torch.float64) / 255
    means, spreads = [], []
    for channel in pixels.unbind(-1):
        share = channel.flatten().bincount(minlength=256) / channel.numel()
        mean = (share * values).sum()
        means.append(round(mean.item(), 4))
        spreads.append(round((share * (values - mean) ** 2).sum().sqrt().item(), 4))
    return means, spreads


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


def test_cifar10_has_the_published_mean_and_spread(data_dir):
    folder = files.folder("cifar10", data_dir)
    pixels, labels = cifar10.load(folder, "train")
    assert labels.bincount().tolist() == [5000] * 10
    assert mean_and_spread(pixels) == (list(cifar10.MEAN), list(cifar10.STD))
    assert cifar10.load(folder, "valid")[0].shape == (10_000, 32, 32, 3)


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


def test_random_crops_lie_within_the_image_and_depend_on_their_generator_alone():
    column = torch.arange(60, dtype=torch.uint8).expand(40, 60)
    image = Image.fromarray(torch.stack([column + 1] * 3, 2).numpy())
    crops = [random_crop(image, 16, torch.Generator().manual_seed(n % 50)) for n in range(100)]
    assert all(crop.size == (16, 16) and crop.getextrema()[0][0] > 0 for crop in crops)
    assert [crop.tobytes() for crop in crops[:50]] == [crop.tobytes() for crop in crops[50:]]
    ascending = sum(crop.getpixel((0, 0)) < crop.getpixel((15, 0)) for crop in crops[:50])
    assert 10 < ascending < 40  # mirrored half of the time; 4 standard deviations


def test_a_very_long_image_is_cropped_at_its_centre():
    image = Image.new("RGB", (400, 4))
    image.paste((255, 255, 255), (190, 0, 210, 4))
    crop = random_crop(image, 8, torch.Generator().manual_seed(0))
    assert crop.getextrema()[0] == (255, 255)


def test_a_centre_crop_keeps_seven_eighths():
    image = Image.new("RGB", (48, 32))
    image.paste((255, 255, 255), (10, 2, 38, 30))
    assert centre_crop(image, 28).getextrema()[0] == (255, 255)


# Batches, of both kinds of examples


@pytest.fixture(params=["stored", "folder"])
def examples(request, images):
    return noise(32) if request.param == "stored" else ImageFolder(images / "train", size=16)


def test_batches_from_a_start_are_the_tail(examples, tmp_path):
    where = setting(tmp_path)
    whole, tail = list(examples.shuffled(where, 1, 0)), list(examples.shuffled(where, 1, 3))
    assert len(whole) == 4
    for (a, b), (c, d) in zip(whole[3:], tail, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def test_ranks_share_a_batch(examples, tmp_path):
    one = setting(tmp_path)
    two = [replace(one, rank=rank, world_size=2) for rank in range(2)]
    parts = zip(*(examples.shuffled(rank, 0, 0) for rank in two), strict=True)
    for (pixels, labels), ((a, c), (b, d)) in zip(examples.shuffled(one, 0, 0), parts, strict=True):
        assert torch.equal(pixels, torch.stack([a, b], 1).flatten(0, 1))
        assert torch.equal(labels, torch.stack([c, d], 1).flatten(0, 1))


def test_augmentation_changes_with_the_epoch_and_the_seed(examples, tmp_path):
    def first(seed, epoch):
        batches = examples.shuffled(setting(tmp_path, seed=seed, batch_size=32), epoch, 0)
        return next(batches)[0].sum((1, 2, 3)).sort().values

    assert torch.equal(first(0, 0), first(0, 0))
    assert not torch.allclose(first(0, 0), first(0, 1))
    assert not torch.allclose(first(0, 0), first(1, 0))


def test_batches_leave_the_global_generator_alone(examples, tmp_path):
    before = torch.get_rng_state()
    list(examples.shuffled(setting(tmp_path), 0, 0))
    list(examples.in_order(setting(tmp_path)))
    assert torch.equal(before, torch.get_rng_state())


def test_a_batch_is_in_the_layout_of_fast_convolutions(examples, tmp_path):
    batch, _ = next(examples.shuffled(setting(tmp_path), 0, 0))
    assert batch.is_contiguous(memory_format=torch.channels_last)


# The folder of images


def test_an_image_folder_reads_what_was_written(tmp_path):
    for name, value in (("ant", 0), ("bee", 51)):
        (tmp_path / "val" / name).mkdir(parents=True)
        for number in range(3):
            colour = (value, value + number, 255)
            Image.new("RGB", (20, 30), colour).save(tmp_path / "val" / name / f"{number}.PNG")
        (tmp_path / "val" / name / "notes.txt").write_text("not an image")
    folder = ImageFolder(tmp_path / "val", size=8)
    assert (folder.classes, len(folder)) == (["ant", "bee"], 6)
    pixels, labels = next(folder.in_order(setting(tmp_path)))
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    bytes_ = (pixels[:, :, 4, 4] * std + mean) * 255
    expected = [[v, v + n, 255] for v in (0, 51) for n in range(3)]
    torch.testing.assert_close(bytes_, torch.tensor(expected, dtype=torch.float32))


def test_workers_read_what_one_process_reads(images, tmp_path):
    where = setting(tmp_path)
    alone = ImageFolder(images / "train", size=16).shuffled(where, 0, 2)
    helped = ImageFolder(images / "train", size=16, num_workers=2).shuffled(where, 0, 2)
    for (a, b), (c, d) in zip(alone, helped, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def test_a_folder_can_be_cut_to_its_first_classes(images):
    folder = ImageFolder(images / "train", size=16, num_classes=2)
    assert (len(folder.classes), len(folder)) == (2, 16)
    with pytest.raises(DataError, match="4 classes, not 5"):
        _ = ImageFolder(images / "train", size=16, num_classes=5).classes


def test_missing_images_are_asked_for_by_their_layout(tmp_path):
    where = Setting(IMAGENET.recipes["paper"], 0, tmp_path)
    with pytest.raises(DataError, match=r"imagenet.*\{train,val\}.*<class>.*\.JPEG"):
        IMAGENET.build(where)
    (tmp_path / "imagenet" / "train" / "ant").mkdir(parents=True)
    with pytest.raises(DataError, match="no images in"):
        len(ImageFolder(tmp_path / "imagenet" / "train", size=8))


# The experiment


def test_an_experiment_learns_and_says_its_error(tmp_path):
    torch.manual_seed(0)
    pixels = torch.randint(100, (64, 4, 4, 1), dtype=torch.uint8)
    labels = torch.arange(64) % 2
    pixels[labels == 1] += 100
    data = StoredImages(pixels, labels, (0.5,), (0.25,))
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    experiment = Classification(setting(tmp_path), model, train=data, valid=data)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def take(player, loss):
        assert player == "model"
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    for batch in experiment.batches(0, 0):
        seen = experiment.advance(batch, take)
        assert set(seen) == {"loss", "accuracy"}
        assert seen["loss"][1] == 8
    total, count = experiment.evaluate()["accuracy"]
    assert (total, count) == (64, 64)
    assert model.training
    scores = experiment.derive({"train_accuracy": 0.75, "train_loss": 1.0, "valid_accuracy": 1.0})
    assert scores == {"train_error": 25.0, "valid_error": 0.0}


def test_evaluation_sees_every_image_once(tmp_path):
    experiment = Classification(
        setting(tmp_path), nn.Flatten(), train=noise(40), valid=noise(13, augment=None)
    )
    assert experiment.steps_per_epoch == 5
    assert experiment.evaluate()["loss"][1] == 13


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_variant_and_scale_has_the_same_options(task):
    options = {frozenset(recipe.options) for recipe in task.recipes.values()}
    assert len(options) == 1
    assert all(set(change) <= next(iter(options)) for change in task.variants.values())
    assert set(task.recipes) == {"paper", "cpu", "smoke"}


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_smoke_recipe_builds_and_takes_a_step(task, data_dir):
    torch.manual_seed(0)
    experiment = task.build(Setting(task.recipes["smoke"], 0, data_dir))
    losses = []
    for batch in islice(experiment.batches(0, 0), 1):
        experiment.advance(batch, lambda player, loss: losses.append((player, loss)))
    ((player, loss),) = losses
    loss.backward()
    assert all(param.grad is not None for param in experiment.players[player].parameters())
    assert loss.isfinite()
