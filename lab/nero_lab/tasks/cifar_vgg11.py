"""Figures 1, 2 and 6 (top): a vanilla VGG-11 on CIFAR-10."""

from torch import nn

from nero_lab.classification import Classification, StoredImages
from nero_lab.data import cifar10, files
from nero_lab.models.vgg import VGG11
from nero_lab.schedules import Steps
from nero_lab.task import Experiment, Metric, Recipe, Setting, Task

SCHEDULE = Steps(at=(0.5, 0.75, 0.9), factor=0.2, warmup=0.025)
"""The paper's: 200 epochs, of which 5 warm-up, and a fifth of the rate from 100, 150 and 180 on."""


def build(setting: Setting) -> Experiment:
    """Return the network and CIFAR-10 as the options of the recipe say."""
    return classify_cifar10(
        setting, VGG11(width=setting.option("width"), init=setting.option("init"))
    )


def classify_cifar10(setting: Setting, model: nn.Module) -> Experiment:
    """Return the experiment of training a network on augmented CIFAR-10."""
    folder = files.folder("cifar10", setting.data_dir)
    train, valid = (
        StoredImages(
            *cifar10.load(folder, split),
            cifar10.MEAN,
            cifar10.STD,
            augment=cifar10.crop_and_flip,
            num_draws=cifar10.NUM_DRAWS,
        ).first(setting.option("num_images"))
        for split in ("train", "valid")
    )
    return Classification(setting, model, train=train, valid=valid)


CIFAR_VGG11 = Task(
    name="cifar-vgg11",
    title="VGG-11 without batch norm on CIFAR-10",
    figure="Figures 1, 2 and 6 (top)",
    data="cifar10",
    metric=Metric("valid_error", "top-1 validation error (%)"),
    recipes={
        "paper": Recipe(
            epochs=200,
            batch_size=128,
            schedule=SCHEDULE,
            options={"width": 1.0, "init": "he", "num_images": None},
        ),
        "cpu": Recipe(
            epochs=12,
            batch_size=128,
            schedule=SCHEDULE,
            precision="bfloat16",
            options={"width": 0.25, "init": "he", "num_images": None},
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=128,
            schedule=SCHEDULE,
            options={"width": 0.125, "init": "he", "num_images": 1280},
        ),
    },
    build=build,
    lrs={
        "nero": 0.01,
        "sgd": 0.1,
        "adam": 0.001,
        "lamb": 0.01,
        "nero-none": 0.02,
        "nero-mean": 0.01,
        "nero-norm": 0.02,
        "madam": 0.02,
        "madam-balanced": 0.06,
        "lamb-balanced": 0.06,
    },
    variants={"torch-init": {"init": "torch"}},
    differences=(
        "The rates of nero and lamb are those of the main table (Figure 6); the ablation (Figures 1 "
        "and 2), tuned over a finer grid, used 0.02 for both.",
        "The paper gives neither batch size nor augmentation: we take 128, a random crop with a "
        "padding of 4 and a random flip.",
        "The paper does not give the head of its VGG-11: ours is one linear layer on 512 features.",
        "The paper does not say how weights start: ours by He initialisation. From the default of "
        "torch's layers (the variant torch-init) SGD stays at chance for the first epochs, which a "
        "short budget would count against it.",
    ),
)
