"""Every task, by name, in the order of the paper's figures."""

from nero_lab.engine.task import Task
from nero_lab.tasks.cgan import CGAN
from nero_lab.tasks.cifar_resnet18 import CIFAR_RESNET18
from nero_lab.tasks.cifar_vgg11 import CIFAR_VGG11
from nero_lab.tasks.imagenet import IMAGENET
from nero_lab.tasks.mnist_deep import MNIST_DEEP
from nero_lab.tasks.mnist_reparam import MNIST_REPARAM
from nero_lab.tasks.multi30k import MULTI30K
from nero_lab.tasks.pong import PONG
from nero_lab.tasks.shakespeare import SHAKESPEARE
from nero_lab.tasks.wikitext2 import WIKITEXT2

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        CIFAR_VGG11,
        MNIST_REPARAM,
        MNIST_DEEP,
        CGAN,
        CIFAR_RESNET18,
        WIKITEXT2,
        MULTI30K,
        PONG,
        IMAGENET,
        SHAKESPEARE,
    )
}
