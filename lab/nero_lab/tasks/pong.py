"""Pong with proximal policy optimization: Figure 9 of the paper."""

from nero_lab.engine.schedules import Linear
from nero_lab.engine.task import PAPER_GRIDS, Experiment, Metric, Recipe, Setting, Task


def _build(setting: Setting) -> Experiment:
    from nero_lab.experiments.ppo import AtariPPO  # slow to import, and needs packages of its own

    return AtariPPO(setting)


_OPTIONS = {
    "game": "PongNoFrameskip-v4",
    "num_games": 8,
    "num_steps": 128,
    "num_passes": 4,
    "rounds_per_epoch": 10,
}

PONG = Task(
    name="pong",
    title="Atari Pong with PPO and a convolutional network",
    figure="Figure 9",
    data="",
    metric=Metric(
        "valid_reward",
        "reward (mean of the last 100 episodes)",
        higher_is_better=True,
        training_label="reward (mean of the epoch's episodes)",
    ),
    recipes={
        "paper": Recipe(
            epochs=488,  # of 10 rounds of 8 x 128 steps: 5.0 million steps
            batch_size=256,
            schedule=Linear(),
            clip_norm=0.5,
            options=_OPTIONS,
            takes="about 5 hours on one core, extrapolated from one round",
        ),
        "cpu": Recipe(
            epochs=50,  # 512,000 steps
            batch_size=256,
            schedule=Linear(),
            clip_norm=0.5,
            precision="bfloat16",
            options=_OPTIONS,
            takes="17 to 23 minutes on one core with AMX",
        ),
        "mini": Recipe(
            epochs=20,  # 204,800 steps
            batch_size=256,
            schedule=Linear(),
            clip_norm=0.5,
            options=_OPTIONS,
            num_step_records=12,
            takes="about 10 minutes on one core",
            shrunk="1/25 of the steps",
        ),
        "smoke": Recipe(
            epochs=2,
            batch_size=16,
            schedule=Linear(),
            clip_norm=0.5,
            options=_OPTIONS | {"num_games": 2, "num_steps": 32, "rounds_per_epoch": 2},
            takes="seconds",
        ),
    },
    build=_build,
    lrs={"nero": 0.01, "sgd": 0.1, "adam": 0.0001, "lamb": 0.001},
    grids=PAPER_GRIDS,
    differences=(
        "PPO is that of Stable-Baselines3, with the settings of the repository that the paper followed.",
        "That repository clips the value change and normalizes advantages over a round. "
        "Stable-Baselines3 does not clip values, and normalizes over a mini-batch.",
        "The reward is the mean over the last 100 training episodes, as is usual for PPO. The paper "
        "does not say how many episodes it averaged over.",
        "The 5 million steps are the agent's, four frames each, as that repository counts them.",
        "The cpu scale has a tenth of the steps.",
    ),
)
