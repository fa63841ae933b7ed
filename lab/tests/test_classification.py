"""What all image classifiers share: their batches, of images in memory or in files, and the experiment."""

import shutil
from dataclasses import replace
from itertools import islice

import pytest
import torch
from image_examples import noise, setting
from torch import nn

from nero_lab.data.image_folder import ImageFolder
from nero_lab.engine.task import Setting
from nero_lab.experiments.classification import Classification, StoredImages
from nero_lab.tasks.cifar_resnet18 import CIFAR_RESNET18
from nero_lab.tasks.cifar_vgg11 import CIFAR_VGG11
from nero_lab.tasks.cifar_vit import CIFAR_VIT
from nero_lab.tasks.imagenet import IMAGENET, make_up_images
from nero_lab.tasks.mnist_deep import MNIST_DEEP
from nero_lab.tasks.mnist_reparam import MNIST_REPARAM

TASKS = [MNIST_REPARAM, MNIST_DEEP, CIFAR_VGG11, CIFAR_RESNET18, CIFAR_VIT, IMAGENET]


@pytest.fixture(scope="module")
def folder():
    """A folder of made-up images: four classes, eight images each for training."""
    root = make_up_images(0, num_images=8)
    yield root
    shutil.rmtree(root)


@pytest.fixture(params=["stored", "folder"])
def examples(request, folder):
    return noise(32) if request.param == "stored" else ImageFolder(folder / "train", size=16)


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
