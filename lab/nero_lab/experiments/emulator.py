"""Atari games that can be put into a checkpoint in the middle of play."""

from typing import Any

import ale_py
import cv2
import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv, MaxAndSkipEnv
from stable_baselines3.common.env_util import make_atari_env, unwrap_wrapper
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack


class Games(VecFrameStack):
    """Atari games side by side, whose full state can be saved and restored in the middle of play.

    The emulator can clone itself, random numbers included. Around it the wrappers remember things
    too: the score of the episode, the last two frames, the stack of four frames.
    """

    def __init__(self, name: str, num_games: int, *, seed: int) -> None:
        gym.register_envs(ale_py)
        cv2.setNumThreads(1)  # frames are too small to share out
        games = make_atari_env(name, num_games, seed=seed, env_kwargs={"disable_env_checker": True})
        assert isinstance(games, DummyVecEnv)
        self.games = games.envs
        super().__init__(games, n_stack=4)

    def scores(self) -> list[float]:
        """Return the score so far of each game."""
        return [float(sum(_wrapper(game, Monitor).rewards)) for game in self.games]

    def save(self) -> dict[str, Any]:
        """Return the state of all games as tensors and numbers."""
        return {
            "stack": torch.tensor(self.stacked_obs.stacked_obs),
            "games": [_save(game) for game in self.games],
        }

    def restore(self, state: dict[str, Any]) -> NDArray[np.uint8]:
        """Take back what ``save`` gave; return the stacked frames, which the policy sees next."""
        for game, saved in zip(self.games, state["games"], strict=True):
            _restore(game, saved)
        stack: NDArray[np.uint8] = state["stack"].cpu().numpy().copy()
        self.stacked_obs.stacked_obs = stack
        return stack


def _save(game: Any) -> dict[str, Any]:
    emulator = game.unwrapped.clone_state(include_rng=True).serialize()
    return {
        "emulator": torch.frombuffer(bytearray(emulator), dtype=torch.uint8),
        "generator": game.unwrapped.np_random.bit_generator.state,  # draws the no-ops of a reset
        "frames": torch.tensor(_wrapper(game, MaxAndSkipEnv)._obs_buffer),
        "lives": _wrapper(game, EpisodicLifeEnv).lives,
        "is_over": _wrapper(game, EpisodicLifeEnv).was_real_done,
        "rewards": list(_wrapper(game, Monitor).rewards),
    }


def _restore(game: Any, saved: dict[str, Any]) -> None:
    game.unwrapped.restore_state(ale_py.ALEState(saved["emulator"].cpu().numpy().tobytes()))
    game.unwrapped.np_random.bit_generator.state = saved["generator"]
    _wrapper(game, MaxAndSkipEnv)._obs_buffer = saved["frames"].cpu().numpy().copy()
    _wrapper(game, EpisodicLifeEnv).lives = saved["lives"]
    _wrapper(game, EpisodicLifeEnv).was_real_done = saved["is_over"]
    _wrapper(game, Monitor).rewards = list(saved["rewards"])


def _wrapper(game: Any, kind: type[Any]) -> Any:
    wrapper = unwrap_wrapper(game, kind)
    assert wrapper is not None
    return wrapper
