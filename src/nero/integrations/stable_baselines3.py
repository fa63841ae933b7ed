"""Nero in Stable-Baselines3, whose policies build their optimizer from a class and its options."""

from collections.abc import Mapping
from typing import Any

from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.sac.policies import SACPolicy

from nero.layout import annotate
from nero.optim import Nero


def nero_agent(
    learning_rate: Any = 0.01, *, policy_kwargs: Mapping[str, Any] | None = None, **options: Any
) -> dict[str, Any]:
    """Return the keyword arguments that make an agent train its policy with Nero.

    The agent sets the learning rate in all param groups before every update; its own default, mostly 3e-4,
    is meant for Adam. Saved agents store these arguments, and are loaded with them.

    Args:
        learning_rate: an angle in radians, or a schedule in the agent's format.
        policy_kwargs: other arguments of the policy, such as ``net_arch``.
        options: the options of [`Nero`][nero.Nero].

    Example:
        >>> from stable_baselines3 import PPO
        >>> from nero.integrations.stable_baselines3 import nero_agent
        >>> agent = PPO("MlpPolicy", "CartPole-v1", device="cpu", **nero_agent(0.02, beta=0.99))
        >>> sorted({group["lr"] for group in agent.policy.optimizer.param_groups})
        [0.02]
    """
    policy = {**(policy_kwargs or {}), "optimizer_class": Nero, "optimizer_kwargs": options}
    return {"learning_rate": learning_rate, "policy_kwargs": policy}


class NeroSACPolicy(SACPolicy):
    """SAC's policy, with annotated critics.

    SAC passes its critics' parameters as a list. From its shape alone, the last layer's single neuron would
    look like a vector without fan-in. Other policies can override ``make_critic`` in the same way.

    Example:
        >>> from stable_baselines3 import SAC
        >>> from nero.integrations.stable_baselines3 import NeroSACPolicy, nero_agent
        >>> agent = SAC(NeroSACPolicy, "Pendulum-v1", device="cpu", **nero_agent())
        >>> [group["role"] for group in agent.critic.optimizer.param_groups]
        ['neuron', 'bias']
    """

    def make_critic(self, *args: Any, **kwargs: Any) -> ContinuousCritic:
        """Make critics as SAC does, and annotate them."""
        critic = super().make_critic(*args, **kwargs)
        annotate(critic)
        return critic
