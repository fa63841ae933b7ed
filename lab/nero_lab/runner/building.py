"""The experiment and the optimizers of a run, or why there can be none."""

import random

import numpy as np
import torch
from torch.optim import Optimizer

from nero_lab.engine.errors import ConfigError, DataError, in_one_line
from nero_lab.engine.task import Experiment, Setting
from nero_lab.runner.config import MAX_SEED, RunConfig


def build(config: RunConfig, setting: Setting) -> tuple[Experiment, dict[str, list[Optimizer]]]:
    """Return the experiment of a run and the optimizers of each player; nothing is written.

    Raises:
        ConfigError: if the options of the run leave nothing to train, or cannot be built.
        DataError: if the data set is missing or damaged.
    """
    _seed(config.seed)
    experiment = _build_experiment(config, setting)
    assert config.lr is not None
    make = config.entry.build
    for player in experiment.players.values():
        player.to(setting.device)
    optimizers = {name: make(player, config.lr) for name, player in experiment.players.items()}
    experiment.attach(optimizers)
    if setting.world_size > 1:  # the same weights everywhere, other dropout masks
        _seed(config.seed * setting.world_size + setting.rank)
    return experiment, optimizers


def check_divides(batch_size: int, world_size: int) -> None:
    """Raise if ranks would get unequal numbers of examples, since their gradients are averaged equally."""
    if batch_size % world_size:
        raise ConfigError(
            f"a batch of {batch_size} examples cannot be split equally across {world_size} ranks; use a "
            f"number of ranks that divides {batch_size}"
        )


def _build_experiment(config: RunConfig, setting: Setting) -> Experiment:
    set_by_user = ", ".join(f"{name}={value!r}" for name, value in sorted(config.options.items()))
    options = f" with {set_by_user}" if set_by_user else ""
    try:
        experiment = config.task_spec.build(setting)
    except (ConfigError, DataError):
        raise
    except Exception as error:
        if not options:
            raise
        raise ConfigError(
            f"{config.task} cannot be built{options}: {in_one_line(error)}"
        ) from error
    if experiment.steps_per_epoch < 1:
        raise ConfigError(
            f"an epoch of {config.task}{options} has no steps: there are fewer examples than the batch "
            f"size of {config.recipe.batch_size}, or none"
        )
    for player in experiment.players.values():
        for name, param in player.named_parameters():
            if not param.numel():
                shape = tuple(param.shape)
                raise ConfigError(f"{name} of {config.task}{options} has no elements: {shape}")
    return experiment


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % (MAX_SEED + 1))  # that of a rank may be larger
    random.seed(seed)
