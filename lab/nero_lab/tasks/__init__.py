"""Every task, by name, in the order of the paper's figures; then those that are not in it."""

import dataclasses
import re

from nero_lab.engine.errors import ConfigError
from nero_lab.engine.references import is_reference, resolve
from nero_lab.engine.task import NOT_IN_PAPER, Task
from nero_lab.tasks.cgan import CGAN
from nero_lab.tasks.cifar_resnet18 import CIFAR_RESNET18
from nero_lab.tasks.cifar_vgg11 import CIFAR_VGG11
from nero_lab.tasks.cifar_vit import CIFAR_VIT
from nero_lab.tasks.fineweb_gpt2 import FINEWEB_GPT2
from nero_lab.tasks.imagenet import IMAGENET
from nero_lab.tasks.minilm_captions import MINILM_CAPTIONS
from nero_lab.tasks.mnist_deep import MNIST_DEEP
from nero_lab.tasks.mnist_reparam import MNIST_REPARAM
from nero_lab.tasks.multi30k import MULTI30K
from nero_lab.tasks.pong import PONG
from nero_lab.tasks.shakespeare import SHAKESPEARE
from nero_lab.tasks.shakespeare_moe import SHAKESPEARE_MOE
from nero_lab.tasks.shakespeare_transfer import SHAKESPEARE_TRANSFER
from nero_lab.tasks.wikitext2 import WIKITEXT2
from nero_lab.tasks.zipf_words import ZIPF_WORDS

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
        SHAKESPEARE_MOE,
        SHAKESPEARE_TRANSFER,
        CIFAR_VIT,
        ZIPF_WORDS,
        FINEWEB_GPT2,
        MINILM_CAPTIONS,
    )
}


def find_task(name: str) -> Task:
    """Return a task of ``TASKS``, or one of a user's own module from ``package.module:TASK``.

    A user's task is named by its reference, so that it cannot be confused with a built-in one.

    Example:
        >>> find_task("nero_lab.tasks.pong:PONG").name
        'nero_lab.tasks.pong:PONG'

    Raises:
        ConfigError: if there is none of that name.
    """
    if not is_reference(name):
        if name not in TASKS:
            raise ConfigError(
                f"unknown task {name!r}; choose from: {', '.join(TASKS)}, and package.module:TASK for "
                "one of your own"
            )
        return TASKS[name]
    task = resolve(name, what="TASK")
    if not isinstance(task, Task):
        raise ConfigError(
            f"{name} is of type {type(task).__name__}, not a nero_lab.engine.task.Task"
        )
    if not task.recipes:
        raise ConfigError(f"{name} has no recipes; it needs one, for example for the scale 'cpu'")
    return dataclasses.replace(task, name=name)


def folder_of(name: str) -> str:
    """Return the folder for the runs of a task, with which their names begin: the task's own name.

    A user's own task whose name is also one of the lab's, or is unfit for a folder, goes by its reference
    instead, so that it cannot be taken for another.

    Example:
        >>> folder_of("pong"), folder_of("nero_lab.tasks.pong:PONG")
        ('pong', 'nero_lab.tasks.pong.PONG')
    """
    if not is_reference(name):
        return name
    own = resolve(name, what="TASK").name
    is_fit = re.fullmatch(r"\w[\w.-]*", own) and own not in TASKS
    return own if is_fit else name.replace(":", ".")


def without_paper(task: Task) -> Task:
    """Return a copy of a task without the paper's claims and numbers.

    These are looked up by name, so the copy has none.
    """
    return dataclasses.replace(
        task, name="", figure=NOT_IN_PAPER, paper_parameters=None, differences=()
    )
