"""The classifiers of CIFAR-10: what those with and without batch norm have in common."""

from functools import partial

from torch import nn

from nero_lab.data import cifar10, files
from nero_lab.engine.schedules import Steps
from nero_lab.engine.task import Setting
from nero_lab.experiments.classification import Classification, StoredImages

SCHEDULE = Steps(at=(0.5, 0.75, 0.9), factor=0.2, warmup=0.025)
"""The paper's: 200 epochs, of which 5 warm-up, and a fifth of the rate from 100, 150 and 180 on."""


def classify_cifar10(setting: Setting, model: nn.Module) -> Classification:
    """Return the experiment of training a network on augmented CIFAR-10."""
    folder, rotation = files.folder("cifar10", setting.data_dir), setting.option("rotation")
    train, valid = (
        StoredImages(
            *cifar10.load(folder, split),
            cifar10.MEAN,
            cifar10.STD,
            augment=partial(cifar10.augmented, rotation=rotation),
            num_draws=cifar10.num_draws(rotation),
        ).first(setting.option("num_images"))
        for split in ("train", "valid")
    )
    return Classification(setting, model, train=train, valid=valid)
