"""A small classifier of CIFAR-10, whose features measure the samples of a GAN."""

import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nero_lab.engine.batching import in_order, num_batches, shuffled
from nero_lab.engine.schedules import Triangle


class Classifier(nn.Module):
    """A small convolutional network; called, it gives the features under its output layer.

    Args:
        width: channels of the first layer; the features are four times as many.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_features = 4 * width
        sizes = [(3, 1, 1), (1, 2, 2), (2, 2, 1), (2, 4, 2), (4, 4, 1), (4, 4, 2)]
        layers: list[nn.Module] = []
        for num_in, num_out, stride in sizes:
            fan_in = num_in if not layers else num_in * width
            conv = nn.Conv2d(fan_in, num_out * width, 3, stride, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(num_out * width), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.output = nn.Linear(self.num_features, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features (images, num_features) of the bytes (images, 3, 32, 32)."""
        signal = images.to(memory_format=torch.channels_last).float() / 127.5 - 1
        features: Tensor = self.layers(signal).float().mean((2, 3))
        return features


@dataclass(frozen=True)
class TrainedClassifier:
    """A trained classifier and its validation accuracy."""

    classifier: Classifier
    accuracy: float


Images = tuple[Tensor, Tensor]
"""The bytes (images, 3, 32, 32) and the classes."""


def load_or_train(
    train: Images, valid: Images, *, width: int, epochs: int, cache_dir: Path
) -> TrainedClassifier:
    """Return the classifier of a recipe, trained at its first use and read from a file afterwards.

    The file's name holds the recipe. Whether it was there makes no difference to the random numbers
    of a run.
    """
    device = train[0].device
    classifier = _untrained(width).to(device)
    name = f"cifar-classifier-width{width}-epochs{epochs}-images{len(train[0])}.pt"
    path = cache_dir / name
    if not path.exists():
        _train_(classifier, train, epochs)
        found = {"weights": classifier.state_dict(), "accuracy": _accuracy(classifier, valid)}
        _write_first(found, path)
    found = torch.load(path, map_location=device, weights_only=True)
    classifier.load_state_dict(found["weights"])
    return TrainedClassifier(classifier, found["accuracy"])


def _untrained(width: int) -> Classifier:
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(0)
        classifier = Classifier(width).eval()
    classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return classifier


def _train_(classifier: Classifier, train: Images, epochs: int, batch_size: int = 128) -> None:
    images, classes = train
    classifier.train()
    optimizer = torch.optim.SGD(
        classifier.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    steps = num_batches(len(images), batch_size)
    for epoch in range(epochs):
        for index, items in shuffled(len(images), batch_size, seed=0, epoch=epoch):
            for group in optimizer.param_groups:
                group["lr"] = 0.1 * Triangle()(epoch + (index + 1) / (steps + 1), epochs)
            with torch.autocast(images.device.type, torch.bfloat16):
                logits = classifier.output(classifier(images[items]))
            loss = F.cross_entropy(logits.float(), classes[items])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    classifier.eval()


@torch.no_grad()
def _accuracy(classifier: Classifier, valid: Images) -> float:
    images, classes = valid
    right = 0
    for items in in_order(len(images), 250):
        found = classifier.output(classifier(images[items])).argmax(1)
        right += int((found == classes[items]).sum())
    return right / len(images)


def _write_first(content: dict[str, object], path: Path) -> None:
    """Write a file unless another process was faster: then all use that one's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        partial = Path(folder) / path.name
        torch.save(content, partial)
        with contextlib.suppress(FileExistsError):
            os.link(partial, path)
