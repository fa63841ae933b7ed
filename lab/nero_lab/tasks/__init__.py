"""Every task, by name."""

from nero_lab.task import Task
from nero_lab.tasks.mnist_deep import MNIST_DEEP
from nero_lab.tasks.mnist_reparam import MNIST_REPARAM
from nero_lab.tasks.shakespeare import SHAKESPEARE

TASKS: dict[str, Task] = {task.name: task for task in (MNIST_REPARAM, MNIST_DEEP, SHAKESPEARE)}
