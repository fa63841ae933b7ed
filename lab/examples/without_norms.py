"""Residual networks without normalization layers, to compare norms of their hidden layers.

In the folder of this file, for GPT, VIT and RESNET, and for each preset with and without -initial:

    nero-lab run without_norms:GPT --scale mini --optimizer nero-rows-initial --lr 0.03

records/without-norms.json has the scores.
"""

from dataclasses import replace

from torch import nn

from nero_lab.engine.task import Experiment, Setting, Task
from nero_lab.tasks.cifar_resnet18 import CIFAR_RESNET18
from nero_lab.tasks.cifar_vit import CIFAR_VIT
from nero_lab.tasks.shakespeare import SHAKESPEARE


def _without_norms(task: Task) -> Task:
    def build(setting: Setting) -> Experiment:
        experiment = task.build(setting)
        for model in experiment.players.values():
            for name, module in list(model.named_modules()):
                if isinstance(module, nn.LayerNorm | nn.BatchNorm2d):
                    parent, _, own_name = name.rpartition(".")
                    setattr(model.get_submodule(parent), own_name, nn.Identity())
        return experiment

    title = f"{task.title}, without normalization"
    return replace(task, name=f"{task.name}-without-norms", title=title, build=build)


GPT = _without_norms(SHAKESPEARE)
VIT = _without_norms(CIFAR_VIT)
RESNET = _without_norms(CIFAR_RESNET18)
