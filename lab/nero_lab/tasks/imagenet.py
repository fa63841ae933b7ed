"""Figure 10: a ResNet-50 on ImageNet."""

import shutil
import tempfile
import weakref
from pathlib import Path

import torch
from PIL import Image

from nero_lab.data.image_folder import ImageFolder
from nero_lab.engine.batching import generator
from nero_lab.engine.schedules import Cosine
from nero_lab.engine.task import Experiment, Metric, Recipe, Setting, Task
from nero_lab.experiments.classification import Classification
from nero_lab.models.resnet import resnet50


def build(setting: Setting) -> Experiment:
    """Return the network and the folder of images as the options of the recipe say."""
    made_up = setting.option("made_up")
    root = make_up_images(setting.seed) if made_up else setting.data_dir / "imagenet"
    train, valid = (
        ImageFolder(
            root / split,
            size=setting.option("size"),
            num_classes=setting.option("num_classes"),
            num_workers=setting.option("num_workers"),
        )
        for split in ("train", "val")
    )
    model = resnet50(width=setting.option("width"), num_classes=len(train.classes))
    experiment = Classification(setting, model, train=train, valid=valid)
    if made_up:
        weakref.finalize(experiment, shutil.rmtree, root, ignore_errors=True)
    return experiment


def make_up_images(seed: int, *, num_classes: int = 4, num_images: int = 32) -> Path:
    """Write a folder of coloured noise, laid out like ImageNet, and return its temporary place.

    Each class has its own colour, so that there is something to learn.

    Args:
        seed: of the noise and of the colours.
        num_classes: class folders of each split.
        num_images: images of each class for training; there are half as many for validation.
    """
    root, source = Path(tempfile.mkdtemp(prefix="nero-lab-")), generator(seed)
    for label in range(num_classes):
        colour = torch.randint(160, (3,), generator=source)
        for split, count in (("train", num_images), ("val", num_images // 2)):
            folder = root / split / f"class-{label}"
            folder.mkdir(parents=True)
            for number in range(count):
                noise = torch.randint(96, (40, 48, 3), generator=source)
                pixels = (colour + noise).to(torch.uint8).numpy()
                Image.fromarray(pixels).save(folder / f"{number:03}.png")
    return root


_OPTIONS = {"width": 64, "size": 224, "num_classes": 1000, "num_workers": 8, "made_up": False}

IMAGENET = Task(
    name="imagenet",
    title="ResNet-50 on ImageNet",
    figure="Figure 10",
    data="imagenet",
    metric=Metric("valid_error", "top-1 validation error (%)"),
    recipes={
        "paper": Recipe(
            epochs=90,
            batch_size=400,
            schedule=Cosine(warmup=1 / 90),
            options=_OPTIONS,
            takes="about 45 hours on four RTX 2080Ti, according to the paper; not run here",
        ),
        "cpu": Recipe(
            epochs=18,
            batch_size=128,
            schedule=Cosine(warmup=1 / 18),
            precision="bfloat16",
            options={**_OPTIONS, "width": 16, "size": 64, "num_classes": 100, "num_workers": 2},
            takes="not run; the first 100 classes of the full data set, in 64-pixel crops",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=16,
            schedule=Cosine(warmup=1 / 2),
            options={
                "width": 8,
                "size": 32,
                "num_classes": None,
                "num_workers": 0,
                "made_up": True,
            },
            takes="seconds",
        ),
    },
    build=build,
    lrs={"nero": 0.01, "sgd-momentum": 0.1},
    differences=(
        "Download ImageNet yourself and store it as "
        "<data-dir>/imagenet/{train,val}/<class>/*.JPEG.",
        "The paper's tuned Nero has a learning rate of 0.02, a bias_scale of 1.0 and a quadratic "
        "penalty that pulls the gains of batch norm towards one. The default learning rate here is "
        "that of the paper's out-of-the-box curve.",
        "The paper's SGD has momentum 0.9, and is shown with and without a weight decay of 0.0001.",
        "The authors' ImageNet script calls a learning rate of 0.1 out of the box; the paper says 0.01.",
    ),
)
