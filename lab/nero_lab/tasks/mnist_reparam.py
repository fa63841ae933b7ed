"""Figure 3, left: Adam on a reparameterised perceptron feels the scale of the raw weights."""

from nero_lab.classification import Classification, StoredImages
from nero_lab.data import files, mnist
from nero_lab.models.mlp import MLP
from nero_lab.task import Experiment, Metric, Recipe, Setting, Task


def build(setting: Setting) -> Experiment:
    """Return the perceptron and MNIST as the options of the recipe say."""
    folder = files.folder("mnist", setting.data_dir)
    train, valid = (
        StoredImages(*mnist.load(folder, split), mnist.MEAN, mnist.STD).first(
            setting.option("num_images")
        )
        for split in ("train", "valid")
    )
    model = MLP(
        num_layers=setting.option("num_layers"),
        width=setting.option("width"),
        init=setting.option("init"),
        sigma=setting.option("sigma"),
    )
    return Classification(setting, model, train=train, valid=valid)


_OPTIONS = {"num_layers": 5, "width": 784, "init": "he", "sigma": None, "num_images": None}

MNIST_REPARAM = Task(
    name="mnist-reparam",
    title="5-layer perceptron with reparameterised weights on MNIST",
    figure="Figure 3, left",
    data="mnist",
    metric=Metric("train_accuracy", "training accuracy", higher_is_better=True),
    recipes={
        "paper": Recipe(epochs=5, batch_size=250, options=_OPTIONS),
        "cpu": Recipe(epochs=5, batch_size=250, options=_OPTIONS),
        "smoke": Recipe(
            epochs=2, batch_size=250, options={**_OPTIONS, "width": 64, "num_images": 2500}
        ),
    },
    build=build,
    lrs={"adam": 0.01, "nero": 0.01},
    variants={"sigma-1": {"sigma": 1.0}, "sigma-100": {"sigma": 100.0}},
    differences=(
        "Without a variant the weights are plain ones, as Nero wants them; the paper shows no Nero "
        "curve here, and the rate given for it is Nero's default.",
        "Biases start at zero; the paper does not say.",
    ),
)
