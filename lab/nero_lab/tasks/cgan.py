"""Figure 5: a class-conditional GAN on CIFAR-10, with the same learning rate for both players."""

from typing import Any

from nero_lab.data import cifar10, files
from nero_lab.engine.schedules import Steps
from nero_lab.engine.task import PAPER_GRIDS, Experiment, Metric, Recipe, Setting, Task
from nero_lab.experiments.conditional_gan import CACHE, ConditionalGAN
from nero_lab.experiments.fid import INCEPTION_WEIGHTS


def build(setting: Setting) -> Experiment:
    """Return the GAN and CIFAR-10 as the options of the recipe say."""
    folder = files.folder("cifar10", setting.data_dir)
    num_images = setting.option("num_images")
    train, valid = (
        (pixels[:num_images].permute(0, 3, 1, 2), classes[:num_images])
        for pixels, classes in (cifar10.load(folder, split) for split in ("train", "valid"))
    )
    return ConditionalGAN(setting, train, valid)


_SCHEDULE = Steps(at=(100 / 120,), factor=0.1)
_OPTIONS: dict[str, Any] = {
    "generator_width": 256,
    "discriminator_width": 128,
    "num_images": None,
    "num_samples": 50_000,
    "classifier_width": 32,
    "classifier_epochs": 5,
}

CGAN = Task(
    name="cgan",
    title="class-conditional GAN (BigGAN-like) on CIFAR-10",
    figure="Figure 5",
    data="cifar10",
    metric=Metric("valid_cifar_frechet", "Fréchet distance (CIFAR classifier)"),
    recipes={
        "paper": Recipe(
            epochs=120,
            batch_size=256,
            schedule=_SCHEDULE,
            options=_OPTIONS,
            takes="about 3 hours on an RTX 2080Ti, according to the paper",
        ),
        "cpu": Recipe(
            epochs=4,
            batch_size=64,
            schedule=_SCHEDULE,
            precision="bfloat16",
            options={
                **_OPTIONS,
                "generator_width": 64,
                "discriminator_width": 32,
                "num_samples": 10_000,
            },
            takes="20 to 25 minutes on one core with AMX, plus 5 for the classifier in the first run",
        ),
        "mini": Recipe(
            epochs=4,
            batch_size=64,
            schedule=_SCHEDULE,
            options={
                "generator_width": 16,
                "discriminator_width": 16,
                "num_images": 3_200,
                "num_samples": 1_000,
                "classifier_width": 8,
                "classifier_epochs": 8,
            },
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            shrunk="1/16 and 1/8 of the channels, 3,200 images, and 4 epochs instead of 120",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=32,
            schedule=_SCHEDULE,
            precision="bfloat16",
            options={
                "generator_width": 8,
                "discriminator_width": 8,
                "num_images": 320,
                "num_samples": 250,
                "classifier_width": 4,
                "classifier_epochs": 20,
            },
            takes="seconds",
        ),
    },
    build=build,
    lrs={"nero": 0.01, "sgd": 0.01, "adam": 0.0001, "lamb": 0.01},
    grids=PAPER_GRIDS,
    differences=(
        "The score is a Fréchet distance between features of a small CIFAR-10 classifier that we "
        "train. It is on a different scale from the paper's FID, which is recorded as valid_fid if "
        f"torch-fidelity is installed and {INCEPTION_WEIGHTS} is in data/{CACHE}.",
        "The paper gives neither the widths, the batch size, nor the number of discriminator steps per "
        "generator step. Ours are 256 and 128 channels, 256 as in the authors' code, and one.",
        "The shortened recipe has a quarter of the channels, batches of 64, and 4 epochs.",
        "Only the discriminator has spectral norm, and samples come from the generator's current "
        "weights. BigGAN has spectral norm in both networks and averages the generator's weights.",
        "Adam has beta1 = 0 for both players, as the paper says. The authors' code uses 0.9 for the "
        "discriminator.",
    ),
)
