"""Figure 3, right: a perceptron of 100 layers, without batch norm or skip connections."""

from nero_lab.schedules import Decay
from nero_lab.task import Metric, Recipe, Task
from nero_lab.tasks.mnist_reparam import build

_OPTIONS = {"num_layers": 100, "width": 784, "init": "he", "sigma": None, "num_images": None}

MNIST_DEEP = Task(
    name="mnist-deep",
    title="100-layer perceptron on MNIST",
    figure="Figure 3, right",
    data="mnist",
    metric=Metric("train_accuracy", "training accuracy", higher_is_better=True),
    recipes={
        "paper": Recipe(epochs=50, batch_size=250, schedule=Decay(0.9), options=_OPTIONS),
        "cpu": Recipe(
            epochs=12,
            batch_size=250,
            schedule=Decay(0.9),
            precision="bfloat16",
            options=_OPTIONS,
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=250,
            schedule=Decay(0.9),
            options={**_OPTIONS, "num_layers": 20, "width": 64, "num_images": 2500},
        ),
    },
    build=build,
    lrs={"nero": 0.001, "sgd": 0.1, "adam": 0.001, "lamb": 0.01},
    variants={"torch-init": {"init": "torch"}},
    differences=(
        "Every optimiser starts from weights drawn from N(0, 1/fan_in) and biases of zero, which is "
        "He initialisation for a scaled ReLU. The paper does not say what its rivals start from; its "
        "curves of SGD, which change nothing but the most frequent class, look like the smaller "
        "default of torch's nn.Linear, which is the variant torch-init.",
    ),
)
