"""PPO on Pong: resumes to the bit in the middle of a game, and obeys the training loop."""

import io
import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nero import Nero
from nero_lab.engine.task import Experiment, Setting, Sums
from nero_lab.tasks.pong import PONG

pytest.importorskip("stable_baselines3", reason="PPO needs stable-baselines3")

from nero_lab.experiments.emulator import Games
from nero_lab.experiments.ppo import AtariPPO

SMOKE = PONG.recipes["smoke"]
QUICK = replace(SMOKE, options={**SMOKE.options, "num_games": 1, "num_passes": 2})


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def build(precision: Any = "float32", **change: Any) -> AtariPPO:
    recipe = replace(QUICK, precision=precision)
    torch.manual_seed(0)
    experiment = PONG.build(Setting(recipe, seed=0, data_dir=Path(), **change))
    assert isinstance(experiment, AtariPPO)
    return experiment


@pytest.fixture(scope="module")
def experiment() -> AtariPPO:
    """Whatever was played before."""
    return build()


def attach(experiment: Experiment) -> torch.optim.Optimizer:
    optimizer = Nero(experiment.players["policy"].parameters(), lr=0.01)
    experiment.attach({"policy": [optimizer]})
    return optimizer


def play(experiment: Experiment, *rounds: int) -> list[Sums]:
    return [experiment.advance(index, lambda player, loss: None) for index in rounds]


def weights(experiment: Experiment) -> torch.Tensor:
    policy = experiment.players["policy"]
    return torch.cat([weight.detach().flatten() for weight in policy.parameters()])


def through_file(state: Any) -> Any:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_resumed_run_is_the_same_to_the_bit() -> None:
    whole = build("bfloat16")
    attach(whole)
    play(whole, 0, 1, 0, 1)

    first = build("bfloat16")
    optimizer = attach(first)
    play(first, 0)
    saved = through_file(
        {
            "player": first.players["policy"].state_dict(),
            "optimizer": optimizer.state_dict(),
            "experiment": first.state_dict(),
            "torch": torch.get_rng_state(),
        }
    )
    numpy_state = np.random.get_state()

    second = build("bfloat16")
    optimizer = attach(second)
    second.players["policy"].load_state_dict(saved["player"])
    optimizer.load_state_dict(saved["optimizer"])
    second.load_state_dict(saved["experiment"])
    torch.set_rng_state(saved["torch"])
    np.random.set_state(numpy_state)
    play(second, 1, 0, 1)

    assert torch.equal(weights(whole), weights(second))


def test_restored_game_goes_on_through_its_end() -> None:
    def step(games: Games, actions: Any) -> list[tuple[Any, ...]]:
        seen = [games.step(action) for action in actions]
        return [(np.array(frames), *rewards, *ends) for frames, rewards, ends, _ in seen]

    actions = np.random.default_rng(0).integers(6, size=(900, 1))
    games = Games("PongNoFrameskip-v4", 1, seed=0)
    games.reset()
    step(games, actions[:800])
    saved = through_file(games.save())
    other = Games("PongNoFrameskip-v4", 1, seed=1)
    other.reset()
    other.restore(saved)

    expected, actual = step(games, actions[800:]), step(other, actions[800:])
    assert sum(end for _, _, end in expected) == 1
    for (frames, *rest), (other_frames, *other_rest) in zip(expected, actual, strict=True):
        assert np.array_equal(frames, other_frames)
        assert rest == other_rest
    assert games.scores() == other.scores()


def test_learning_rate_is_the_loops(experiment: AtariPPO) -> None:
    optimizer = attach(experiment)
    before = weights(experiment)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    play(experiment, 0)
    assert {group["lr"] for group in optimizer.param_groups} == {0.0}
    assert torch.equal(before, weights(experiment))
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    play(experiment, 1)
    assert not torch.equal(before, weights(experiment))


def test_autocast_of_the_loop_changes_nothing() -> None:
    """Were cast weights cached, every update of a round would see those of the first."""
    results = []
    for context in (nullcontext(), torch.autocast("cpu", torch.bfloat16)):
        experiment = build("bfloat16")
        attach(experiment)
        with context:
            play(experiment, 0, 1)
        results.append(weights(experiment))
    assert torch.equal(*results)


def test_every_epoch_reports_a_reward(experiment: AtariPPO) -> None:
    attach(experiment)
    first, last = play(experiment, 0, 1)
    assert "reward" not in first  # no episode is so short
    assert last["reward"] == experiment.evaluate()["reward"]
    assert last["reward"][1] == QUICK.options["num_games"]  # games under way
    assert all(math.isfinite(total) for total, _ in last.values())

    experiment.load_state_dict({**experiment.state_dict(), "recent": [-21.0, -20.0]})
    (last,) = play(experiment, 1)
    assert last["reward"] == (-41.0, 2)


def test_one_optimizer_in_one_process(experiment: AtariPPO) -> None:
    policy = experiment.players["policy"]
    two = [torch.optim.SGD(policy.parameters()), torch.optim.Adam(policy.parameters())]
    with pytest.raises(ValueError, match="exactly one optimizer, but was given SGD and Adam"):
        experiment.attach({"policy": two})
    with pytest.raises(ValueError, match="there are 2: start it without torchrun"):
        build(world_size=2)


def test_weights_that_are_not_finite_end_play() -> None:
    experiment = build()
    next(experiment.players["policy"].parameters()).data.fill_(math.nan)
    first, last = play(experiment, 0, 1)
    assert math.isnan(first["loss"][0])
    assert last["reward"][1] > 0


@pytest.mark.parametrize("factor", [math.nan, 1e30], ids=["NaN", "overflow"])
def test_weights_that_break_within_a_round_end_it(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = build()
    optimizer = attach(experiment)
    with monkeypatch.context() as patch:

        def step(self: Any, closure: Any = None) -> None:
            for weight in experiment.players["policy"].parameters():
                weight.data.mul_(factor)

        patch.setattr(type(optimizer), "step", step)
        (seen,) = play(experiment, 0)
    assert math.isnan(seen["loss"][0])
    if math.isfinite(factor):
        assert weights(experiment).isfinite().all()


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = build()
    attach(experiment)

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ValueError("another reason")

    monkeypatch.setattr("torch.distributions.Categorical.__init__", refuse)
    with pytest.raises(ValueError, match="another reason"):
        play(experiment, 0)


@pytest.mark.parametrize(("scale", "millions"), [("paper", 5.0), ("cpu", 0.5)])
def test_scales_play_the_steps_they_say(scale: str, millions: float) -> None:
    recipe = PONG.recipes[scale]
    round_size = recipe.options["num_games"] * recipe.options["num_steps"]
    num_steps = recipe.epochs * recipe.options["rounds_per_epoch"] * round_size
    assert num_steps == pytest.approx(millions * 1e6, rel=0.03)
    assert round_size == 4 * recipe.batch_size
