"""
Train policies in the environments
==================================

swarmbo's environments are ordinary PettingZoo environments. Any library can train policies in them. This tutorial uses
a network of twelve access points. It trains transmit powers by a short cross-entropy search. It compares the trained
powers with random powers and with a team. It also shows that the result depends on the reward.
"""

# %%
# The environment
# ---------------
# Importing ``swarmbo_envs`` registers the environments. Each access point is an agent. Its action is a transmit power
# in dBm. It observes its power, its last measurement, and the powers of the access points in its range.

import matplotlib.pyplot as plt
import numpy as np
import pettingzoo
from pettingzoo.test import parallel_api_test

import swarmbo as sb
import swarmbo_envs
from swarmbo.plotting import applied

STEPS = 3  # in an episode


def environment(reward: str, steps: int = STEPS):
    """Twelve access points; a reward is the agent's own measurement, or an equal share of the sum of all."""
    return pettingzoo.make("parallel", "swarmbo/wlan_power-v0", reward=reward, noise_std=2.0, max_cycles=steps)


env = environment("own")
parallel_api_test(env, num_cycles=20)
env.reset(seed=0)
low, high = env.action_space("ap_0").low[0], env.action_space("ap_0").high[0]
print(f"{len(env.agents)} agents, powers from {low:.0f} to {high:.0f} dBm")
print(f"observation of ap_0: {env.observation_space('ap_0').shape[0]} numbers")

# %%
# Many training libraries need spaces of equal range and length for all agents. The bounds of ``action_space`` and
# ``observation_space`` are finite, so you can scale them without statistics. SuperSuit's ``pad_observations_v0`` makes
# the lengths equal.
#
# An episode
# ----------
# The network does not change, so a policy is one power for each agent. The return of an agent is the sum of its
# rewards. Measurements have noise. The score of a policy has no noise. It is used only to compare policies.


def episode(env, powers: np.ndarray, seed: int) -> dict[str, float]:
    """The return of each agent."""
    env.reset(seed=seed)
    returns = dict.fromkeys(env.agents, 0.0)
    while env.agents:
        actions = {agent: powers[i : i + 1] for i, agent in enumerate(env.possible_agents)}
        _, rewards, *_ = env.step(actions)
        for agent, reward in rewards.items():
            returns[agent] += reward
    return returns


def score(powers: np.ndarray) -> float:
    """The sum of all outcomes in Mbit/s, without noise."""
    return float(env.unwrapped.outcomes(powers).sum())


# %%
# Cross-entropy search
# --------------------
# Each agent draws powers from a normal distribution. After 40 episodes, it fits the distribution to its powers in the
# best fifth of the episodes. Each agent ranks the episodes by its return. With ``reward="own"``, the return is the sum
# of the agent's measurements. With ``reward="team"``, the return is an equal share of the sum of all measurements.


def search(reward: str, seed: int, iterations: int = 12, size: int = 40) -> tuple[np.ndarray, list[float]]:
    """Search; return the final powers, and the score of the mean policy after each iteration."""
    env, rng = environment(reward), np.random.default_rng(seed)
    mean, std, scores = np.full(12, (low + high) / 2), np.full(12, (high - low) / 3), []
    for iteration in range(iterations):
        tried = np.clip(rng.normal(mean, std, (size, 12)), low, high)
        returns = [episode(env, powers, seed=iteration * size + i) for i, powers in enumerate(tried)]
        for i, agent in enumerate(env.possible_agents):
            elite = np.argsort([-each[agent] for each in returns])[: size // 5]
            mean[i], std[i] = tried[elite, i].mean(), tried[elite, i].std() + 0.5
        scores.append(score(mean))
    return mean, scores


found = {reward: [search(reward, seed) for seed in range(2)] for reward in ("own", "team")}
best = env.unwrapped.best_known()[1]
for reward, runs in found.items():
    shares = ", ".join(f"{100 * scores[-1] / best:.0f}" for _, scores in runs)
    print(f"reward={reward!r}: {shares} % of the reference optimum (seeds 0, 1)")

# %%
# With ``reward="own"``, agents increase their power. More power helps their own users. The losses of other users are
# not in this reward. Searches with ``reward="team"`` end with better powers, because this reward is a share of the
# network's result.
#
# A team
# ------
# A team uses the same environment in the same loop. It learns a model of each access point. The access points choose
# their powers together by messages. The team takes 40 measurements. Each search takes 12 x 40 episodes of 3 steps.


def run_team(seed: int, steps: int = 40) -> list[float]:
    """Score after each step, of the powers with the best measurement so far."""
    env = environment("team", steps)
    team = sb.Team.for_env(env, seed=seed)
    observations, infos = env.reset(seed=seed)
    scores, top = [], -np.inf
    while env.agents:
        actions = team.act(observations, infos)
        step = env.step(actions)
        team.observe(*step)
        observations, infos = step[0], step[-1]
        measured = sum(info.get("measurement", 0.0) for info in infos.values())
        powers = np.concatenate([actions[agent] for agent in env.possible_agents])
        scores.append(score(powers) if measured > top else scores[-1])
        top = max(top, measured)
    return scores


teams = [run_team(seed) for seed in range(2)]
draws = np.random.default_rng(0).uniform(low, high, (480, 12))
luck = np.maximum.accumulate([score(powers) for powers in draws])
shares = ", ".join(f"{100 * scores[-1] / best:.0f}" for scores in teams)
print(f"team, 40 measurements: {shares} % of the reference optimum")
at_maximum = 100 * score(np.full(12, high)) / best
print(f"best of 480 random settings: {100 * luck[-1] / best:.0f} %, all at maximum {at_maximum:.0f} %")

with applied():
    figure, panel = plt.subplots(figsize=(6.4, 4), layout="constrained")
for (reward, runs), style in zip(found.items(), ("s--", "o-"), strict=True):
    at = 40 * STEPS * np.arange(1, 13)
    panel.plot(at, 100 * np.mean([scores for _, scores in runs], axis=0) / best, style, label=f"search, {reward}")
panel.plot(np.arange(1, 41), 100 * np.mean(teams, axis=0) / best, label="team")
panel.plot(STEPS * np.arange(1, 481), 100 * luck / best, ":", color="grey", label="random, best so far")
panel.axhline(at_maximum, color="black", linestyle="--", linewidth=1, label="all at maximum")
panel.set(title="Mean of 2 seeds", xlabel="environment steps", ylabel="% of the reference optimum", xscale="log")
panel.legend(fontsize="small")
plt.show()

# %%
# The figure shows the powers at the end of the first search with each reward:

with applied():
    figure, panel = plt.subplots(figsize=(6.4, 3), layout="constrained")
for shift, (reward, runs) in zip((-0.2, 0.2), found.items(), strict=True):
    panel.bar(np.arange(12) + shift, runs[0][0], width=0.4, label=reward)
panel.set(title="Powers after training", xlabel="access point", ylabel="power (dBm)", xticks=range(12))
panel.legend()
plt.show()

# %%
# The team is more efficient than a search without a model. It has a model of each access point, and it knows which
# access points are in range of each other. A trained policy has another advantage: it reads observations. It can act at
# once in a situation that it has met in training. A team cannot.
