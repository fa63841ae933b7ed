"""Figure 3, left: Adam on a reparameterized MLP depends on the scale of the raw weights."""

from nero_lab.engine.task import Metric, Recipe, Task
from nero_lab.experiments.perceptrons import build

_OPTIONS = {
    **{"num_layers": 5, "width": 784, "init": "he", "biases": False},
    **{"sigma": None, "num_images": None},
}
_TAKES = "1 to 2 minutes on one core"

MNIST_REPARAM = Task(
    name="mnist-reparam",
    title="5-layer MLP with reparameterized weights on MNIST",
    figure="Figure 3, left",
    data="mnist",
    metric=Metric("train_accuracy", "training accuracy", higher_is_better=True),
    recipes={
        "paper": Recipe(epochs=5, batch_size=250, options=_OPTIONS, takes=_TAKES),
        "cpu": Recipe(epochs=5, batch_size=250, options=_OPTIONS, takes=_TAKES),
        "mini": Recipe(
            epochs=2,
            batch_size=250,
            options={**_OPTIONS, "width": 256},
            num_step_records=30,
            takes="about 5 seconds on one core",
            shrunk="width 256 instead of 784, and 2 epochs instead of 5",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=250,
            options={**_OPTIONS, "width": 64, "num_images": 2500},
            takes="seconds",
        ),
    },
    build=build,
    lrs={"adam": 0.01, "nero": 0.01},
    variants={"sigma-1": {"sigma": 1.0}, "sigma-100": {"sigma": 100.0}},
    differences=(
        "Without a variant, the weights are not reparameterized, as Nero expects. The paper has no "
        "Nero curve here, so its learning rate is Nero's default.",
        "Layers have no biases, as in the authors' code.",
    ),
)
