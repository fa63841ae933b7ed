"""Figure 6 (bottom): a batch-normalized ResNet-18 on CIFAR-10."""

from nero_lab.engine.task import PAPER_GRIDS, Experiment, Metric, Recipe, Setting, Task
from nero_lab.experiments.cifar_classifiers import SCHEDULE, classify_cifar10
from nero_lab.models.resnet import resnet18


def build(setting: Setting) -> Experiment:
    """Return the network and CIFAR-10 as the options of the recipe say."""
    return classify_cifar10(setting, resnet18(width=setting.option("width")))


CIFAR_RESNET18 = Task(
    name="cifar-resnet18",
    title="ResNet-18 on CIFAR-10",
    figure="Figure 6, bottom",
    data="cifar10",
    metric=Metric("valid_error", "top-1 validation error (%)"),
    recipes={
        "paper": Recipe(
            epochs=200,
            batch_size=128,
            schedule=SCHEDULE,
            options={"width": 64, "rotation": 15.0, "num_images": None},
            takes="about 2 hours on an RTX 2080Ti, according to the paper",
        ),
        "cpu": Recipe(
            epochs=10,
            batch_size=128,
            schedule=SCHEDULE,
            precision="bfloat16",
            options={"width": 8, "rotation": 0.0, "num_images": None},
            takes="about 8 minutes on one core with AMX",
        ),
        "mini": Recipe(
            epochs=4,
            batch_size=32,
            schedule=SCHEDULE,
            options={"width": 8, "rotation": 0.0, "num_images": 2_560},
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            shrunk="1/8 of the channels, 2,560 images, 320 steps",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=32,
            schedule=SCHEDULE,
            options={"width": 4, "rotation": 0.0, "num_images": 320},
            takes="seconds",
        ),
    },
    build=build,
    lrs={"nero": 0.01, "sgd": 0.1, "adam": 0.01, "lamb": 0.1},
    grids=PAPER_GRIDS,
    paper_parameters=11_173_962,
    differences=(
        "The paper gives neither batch size nor augmentation. We use 128 and, at paper scale, the "
        "authors' augmentation: crops with a padding of 4, flips, and rotations by up to 15 degrees.",
        "The paper does not describe the stem. Ours is the usual one for CIFAR, a 3x3 convolution "
        "without pooling.",
        "The shortened recipe has an eighth of the channels and no rotation.",
    ),
)
