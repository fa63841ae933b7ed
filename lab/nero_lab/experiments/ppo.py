"""Proximal policy optimization on an Atari game, by Stable-Baselines3.

Stable-Baselines3 plays, computes the loss and calls ``optimizer.step()``. Two things are ours: the
optimizer and its learning rate come from the training loop, and the games go into the checkpoint, so
that a run can resume bit-exactly in the middle of a game.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import Distribution
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticCnnPolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn

from nero_lab.engine.errors import ConfigError
from nero_lab.engine.task import Experiment, Setting, Sums, Take
from nero_lab.experiments.emulator import Games
from nero_lab.models.atari import Features

_LOGGED = {
    "policy_loss": "train/policy_gradient_loss",
    "value_loss": "train/value_loss",
    "approx_kl": "train/approx_kl",
    "clip_fraction": "train/clip_fraction",
    "explained_variance": "train/explained_variance",
}


class AtariPPO(Experiment):
    """PPO as an experiment: one step of the training loop is one round of playing and learning.

    Options: ``game``; ``num_games`` played side by side; ``num_steps`` of each game in a round;
    ``num_passes`` over what was played in a round; ``rounds_per_epoch``. The recipe's ``batch_size``
    is that of an update, and its ``clip_norm`` applies to every update.
    """

    def __init__(self, setting: Setting) -> None:
        if setting.world_size > 1:
            raise ConfigError(
                f"PPO runs in one process, but there are {setting.world_size}: start it without torchrun"
            )
        recipe = setting.recipe
        self.steps_per_epoch = setting.option("rounds_per_epoch")
        self._device = setting.device
        self._games = Games(setting.option("game"), setting.option("num_games"), seed=setting.seed)
        self._ppo = _PPO(
            _Policy,
            self._games,
            n_steps=setting.option("num_steps"),
            batch_size=recipe.batch_size,
            n_epochs=setting.option("num_passes"),
            clip_range=0.1,
            gamma=0.99,
            gae_lambda=0.95,
            vf_coef=0.5,
            ent_coef=0.01,
            max_grad_norm=math.inf if setting.clip_norm is None else setting.clip_norm,
            policy_kwargs={
                "features_extractor_class": Features,
                "features_extractor_kwargs": {"is_bfloat16": recipe.precision == "bfloat16"},
                "normalize_images": False,  # ``Features`` does
                "net_arch": [],
                "ortho_init": True,
            },
            device=setting.device,
            seed=setting.seed,
        )
        self._ppo.set_logger(Logger(folder=None, output_formats=[]))
        self._listener = _EpisodeListener()
        self._ppo._setup_learn(total_timesteps=0, callback=self._listener)  # resets the games
        self._recent: deque[float] = deque(maxlen=100)  # rewards of the last finished episodes
        self._num_ended = 0  # in this epoch
        policy: nn.Module = self._ppo.policy
        policy.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.players = {"policy": policy}

    def batches(self, epoch: int, start: int) -> Iterator[int]:
        """Yield the index of each round: its data are yet to be played."""
        yield from range(start, self.steps_per_epoch)

    def attach(self, optimizers: Mapping[str, list[torch.optim.Optimizer]]) -> None:
        """Let Stable-Baselines3 step the optimizer of the training loop."""
        if len(optimizers["policy"]) != 1:
            names = " and ".join(type(each).__name__ for each in optimizers["policy"])
            raise ConfigError(f"PPO steps exactly one optimizer, but was given {names or 'none'}")
        (self._ppo.policy.optimizer,) = optimizers["policy"]

    def advance(self, batch: int, take: Take) -> Sums:
        """Play a round and learn from it; ``take`` is not used.

        The reward is that of the episodes that ended in this round. If none ended during a whole
        epoch, its last round repeats the average of the latest episodes. A round ends when the policy
        no longer gives probabilities, at its beginning or in its middle; the loss is then NaN.
        """
        if batch == 0:
            self._num_ended = 0
        assert self._ppo.env is not None
        try:
            with torch.autocast(self._device.type, enabled=False):  # ``Features`` has its own
                self._ppo.collect_rollouts(
                    self._ppo.env, self._listener, self._ppo.rollout_buffer, self._ppo.n_steps
                )
                self._ppo.train()
            losses = self._losses()
        except _NoPolicyError:
            losses = {"loss": (math.nan, 1)}
        return {**losses, **self._reward(batch, self._listener.take_rewards())}

    def score(self) -> Sums:
        """Return the mean reward of the last 100 training episodes, as reports of PPO do.

        Before any episode has ended, that is the score of the games under way.
        """
        rewards = list(self._recent) or self._games.scores()
        return {"reward": (sum(rewards), len(rewards))}

    def state_dict(self) -> dict[str, Any]:
        """Return the games, in the middle of play, and the rewards so far."""
        return {
            "games": self._games.save(),
            "episode_starts": torch.tensor(self._ppo._last_episode_starts),
            "recent": list(self._recent),
            "num_ended": self._num_ended,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what ``state_dict`` gave."""
        frames = self._games.restore(state["games"])
        # Channels first, as the policy sees them.
        self._ppo._last_obs = frames.transpose(0, 3, 1, 2)
        self._ppo._last_episode_starts = state["episode_starts"].cpu().numpy()
        self._recent = deque(state["recent"], maxlen=100)
        self._num_ended = state["num_ended"]

    def _losses(self) -> Sums:
        logged = self._ppo.logger.name_to_value
        values = {name: float(logged[key]) for name, key in _LOGGED.items()}
        values["entropy"] = -float(logged["train/entropy_loss"])
        values["loss"] = (
            values["policy_loss"]
            + self._ppo.vf_coef * values["value_loss"]
            - self._ppo.ent_coef * values["entropy"]
        )
        if math.isnan(values["explained_variance"]):  # the returns did not vary
            del values["explained_variance"]
        return {name: (value, 1) for name, value in values.items()}

    def _reward(self, batch: int, rewards: list[float]) -> Sums:
        self._recent.extend(rewards)
        self._num_ended += len(rewards)
        if batch == self.steps_per_epoch - 1 and not self._num_ended:
            return self.score()
        return {"reward": (sum(rewards), len(rewards))} if rewards else {}


class _NoPolicyError(ArithmeticError):
    """The network gives no probabilities: its weights are not finite, or so large that logits overflow."""


class _Policy(ActorCriticCnnPolicy):
    """A policy that hands frames on as bytes; ``Features`` scales them in less time."""

    def extract_features(
        self, obs: Any, features_extractor: BaseFeaturesExtractor | None = None
    ) -> Tensor:
        features: Tensor = self.features_extractor(obs)
        return features

    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        # Whether torch itself refuses probabilities that are NaN is a global setting.
        with torch.no_grad():
            if not self.action_net(latent_pi).isfinite().all():
                raise _NoPolicyError
        return super()._get_action_dist_from_latent(latent_pi)


class _PPO(PPO):
    """PPO that leaves the learning rate to the training loop."""

    def _update_learning_rate(self, optimizers: Any) -> None:
        pass


class _EpisodeListener(BaseCallback):
    """Collect the reward of every episode that ends."""

    def __init__(self) -> None:
        super().__init__()
        self._rewards: list[float] = []

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self._rewards.extend(info["episode"]["r"] for info in infos if "episode" in info)
        return True

    def take_rewards(self) -> list[float]:
        """Return the rewards since the last call."""
        rewards, self._rewards = self._rewards, []
        return rewards
