"""Figure 3, right: a 100-layer MLP, without batch norm or skip connections."""

from nero_lab.engine.schedules import Decay
from nero_lab.engine.task import Metric, Recipe, Task
from nero_lab.experiments.perceptrons import build

_OPTIONS = {
    **{"num_layers": 100, "width": 784, "init": "he", "biases": True},
    **{"sigma": None, "num_images": None},
}

MNIST_DEEP = Task(
    name="mnist-deep",
    title="100-layer MLP on MNIST",
    figure="Figure 3, right",
    data="mnist",
    metric=Metric("train_accuracy", "training accuracy", higher_is_better=True),
    recipes={
        "paper": Recipe(
            epochs=50,
            batch_size=250,
            schedule=Decay(0.9),
            options=_OPTIONS,
            takes="about 3.3 hours on one core; half an hour on a Tesla P100, according to the paper",
        ),
        "cpu": Recipe(
            epochs=12,
            batch_size=250,
            schedule=Decay(0.9),
            options={**_OPTIONS, "width": 128},
            takes="4 minutes on one core; an hour at full width",
        ),
        "mini": Recipe(
            epochs=4,
            batch_size=250,
            schedule=Decay(0.9),
            options={**_OPTIONS, "num_layers": 50, "width": 64},
            num_step_records=12,
            takes="20 to 60 seconds on one core",
            shrunk="50 layers of width 64 instead of 100 of width 784, and 4 epochs instead of 50",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=250,
            schedule=Decay(0.9),
            options={**_OPTIONS, "num_layers": 20, "width": 64, "num_images": 2500},
            takes="seconds",
        ),
    },
    build=build,
    lrs={"nero": 0.001, "sgd": 0.1, "adam": 0.001, "lamb": 0.01},
    grids=dict.fromkeys(("nero", "sgd", "adam", "lamb"), (1e-4, 1e-3, 1e-2, 1e-1)),
    variants={
        "torch-init": {"init": "torch"},
        "full-width": {"width": 784},
        "full-width-torch-init": {"width": 784, "init": "torch"},
    },
    paper_parameters=60_936_410,
    differences=(
        "Every optimizer starts from weights drawn from N(0, 1/fan_in) and zero biases, which is He "
        "initialization for a scaled ReLU. The authors' code uses torch's smaller nn.Linear default (our "
        "variant torch-init), and beta1 = 0.9 for Adam and LAMB instead of our 0. The published "
        "learning rates are for their setting, not for ours.",
        "The learning rate falls by a tenth after every epoch, as in the paper. After the paper's 50 "
        "epochs, it is 0.006 of its initial value; after the 12 of the cpu scale, 0.31.",
        "At cpu scale, layers have width 128, or 784 in the full-width variants.",
    ),
)
