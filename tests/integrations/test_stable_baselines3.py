"""Real agents: the policy's neurons, the agent's rate, and what is saved."""

import warnings

import pytest
import stable_baselines3 as sb3
import torch

import nero
from nero.integrations.stable_baselines3 import NeroSACPolicy, nero_agent
from tests.integrations.tiny import assert_same_bits, described, neurons

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:.*:UserWarning:gymnasium"
)


def ppo(**how):
    return sb3.PPO(
        "MlpPolicy",
        "CartPole-v1",
        n_steps=32,
        batch_size=32,
        n_epochs=2,
        device="cpu",
        seed=0,
        **how,
    )


def test_the_policy_has_its_neurons_and_the_rate():
    with warnings.catch_warnings():
        warnings.simplefilter("error", nero.LayoutWarning)
        agent = ppo(**nero_agent(0.02, beta=0.99, policy_kwargs={"net_arch": [8]}))
        agent.learn(64)
    optimizer = agent.policy.optimizer
    assert type(optimizer) is nero.Nero
    assert neurons(optimizer, agent.policy) == described(agent.policy)
    assert {(group["lr"], group["beta"]) for group in optimizer.param_groups} == {(0.02, 0.99)}
    assert agent.policy.action_net.in_features == 8


def test_the_agents_own_schedule_is_followed():
    agent = ppo(**nero_agent(lambda remaining: 0.02 * remaining))
    assert agent.policy.optimizer.param_groups[0]["lr"] == 0.02
    agent.learn(64)
    assert agent.policy.optimizer.param_groups[0]["lr"] < 0.02


def test_a_saved_agent_continues_to_the_bit(tmp_path):
    agent = ppo(**nero_agent(0.02))
    agent.learn(32)
    agent.save(tmp_path / "agent")
    other = sb3.PPO.load(tmp_path / "agent", device="cpu")
    assert type(other.policy.optimizer) is nero.Nero
    for each in (agent, other):
        train_once(each)
    assert_same_bits(other.policy, agent.policy, other.policy.optimizer, agent.policy.optimizer)


def train_once(agent):
    """Update the policy on a batch that is the same for both; a loaded agent has no rollout."""
    torch.manual_seed(2)
    observations, actions = torch.randn(16, 4), torch.randint(2, (16,))
    values, log_prob, entropy = agent.policy.evaluate_actions(observations, actions)
    agent.policy.optimizer.zero_grad()
    (values.square().mean() - log_prob.mean() - entropy.mean()).backward()
    agent.policy.optimizer.step()


def sac(policy):
    return sb3.SAC(
        policy, "Pendulum-v1", device="cpu", seed=0, learning_starts=4, batch_size=4,
        **nero_agent(policy_kwargs={"net_arch": [8]}),
    )  # fmt: skip


def test_critics_of_sac_have_their_neurons():
    with warnings.catch_warnings():
        warnings.simplefilter("error", nero.LayoutWarning)
        agent = sac(NeroSACPolicy)
        agent.learn(8)
    assert neurons(agent.actor.optimizer, agent.actor) == described(agent.actor)
    assert neurons(agent.critic.optimizer, agent.critic) == described(agent.critic)


def test_critics_that_are_not_annotated_draw_a_warning():
    with pytest.warns(nero.LayoutWarning, match="nero.annotate") as caught:
        sac("MlpPolicy")
    assert len([each for each in caught if each.category is nero.LayoutWarning]) == 1
