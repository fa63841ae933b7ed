"""A small vision transformer on CIFAR-10: attention and LayerNorm where the paper has convolutions."""

from nero_lab.engine.schedules import Cosine
from nero_lab.engine.task import Experiment, Metric, Recipe, Setting, Task
from nero_lab.experiments.cifar_classifiers import classify_cifar10
from nero_lab.models.vit import ViT


def build(setting: Setting) -> Experiment:
    """Return the network and CIFAR-10 as the options of the recipe say."""
    options = {name: setting.option(name) for name in ("patch", "num_layers", "width", "num_heads")}
    return classify_cifar10(setting, ViT(**options))


CIFAR_VIT = Task(
    name="cifar-vit",
    title="a small vision transformer on CIFAR-10",
    data="cifar10",
    metric=Metric("valid_error", "top-1 validation error (%)"),
    recipes={
        "paper": Recipe(
            epochs=200,
            batch_size=128,
            schedule=Cosine(warmup=1 / 40),
            precision="bfloat16",
            options={
                "patch": 4,
                "num_layers": 6,
                "width": 192,
                "num_heads": 3,
                "rotation": 15.0,
                "num_images": None,
            },
            takes="not run",
        ),
        "cpu": Recipe(
            epochs=4,
            batch_size=64,
            schedule=Cosine(warmup=1 / 8),
            options={
                "patch": 4,
                "num_layers": 4,
                "width": 128,
                "num_heads": 4,
                "rotation": 0.0,
                "num_images": 8_000,
            },
            takes="5 to 12 minutes on one core",
        ),
        "mini": Recipe(
            epochs=4,
            batch_size=64,
            schedule=Cosine(warmup=1 / 8),
            options={
                "patch": 8,
                "num_layers": 3,
                "width": 96,
                "num_heads": 3,
                "rotation": 0.0,
                "num_images": 4_096,
            },
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            shrunk="8x8 patches, 3 layers of width 96, 4,096 images, 256 steps",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=32,
            schedule=Cosine(warmup=1 / 8),
            options={
                "patch": 8,
                "num_layers": 2,
                "width": 32,
                "num_heads": 2,
                "rotation": 0.0,
                "num_images": 320,
            },
            takes="seconds",
        ),
    },
    build=build,
    differences=(
        "This experiment is not in the paper. The batch size, crops, flips and rotations are those of the "
        "paper's ResNet-18.",
        "At paper scale, the network has DeiT-Tiny's width and half its layers. There is no class token: "
        "the final features are averaged over patches.",
        "The shortened recipe has a narrower network with four layers, no rotation, and the first 8,000 "
        "images of each split. That is little data for a ViT, so expect a large error.",
    ),
)
