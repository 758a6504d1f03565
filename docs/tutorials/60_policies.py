"""
Train policies in the environments
==================================

swarmbo's environments are ordinary PettingZoo environments, so any library trains policies in them. This page uses a
network of twelve access points. It trains powers by a cross-entropy search of a few lines, and compares them with
random powers and with a team. It also shows why the choice of reward matters.
"""

# %%
# The environment
# ---------------
# Importing ``swarmbo_envs`` registers the environments. Each access point is an agent, and its action is a transmit
# power in dBm. It observes its power, its last measurement, and the powers of the access points in its range.

import matplotlib.pyplot as plt
import numpy as np
import pettingzoo
from pettingzoo.test import parallel_api_test

import swarmbo as sb
import swarmbo_envs
from swarmbo.plotting import applied

STEPS = 3  # in an episode


def environment(reward: str, steps: int = STEPS):
    """Twelve access points; rewards are each agent's own measurement, or an equal share of their sum."""
    return pettingzoo.make("parallel", "swarmbo/wlan_power-v0", reward=reward, noise_std=2.0, max_cycles=steps)


env = environment("own")
parallel_api_test(env, num_cycles=20)
env.reset(seed=0)
low, high = env.action_space("ap_0").low[0], env.action_space("ap_0").high[0]
print(f"{len(env.agents)} agents, powers from {low:.0f} to {high:.0f} dBm")
print(f"observation of ap_0: {env.observation_space('ap_0').shape[0]} numbers")

# %%
# Many training libraries want actions and observations in one range, and of one length for all agents. The bounds of
# ``action_space`` and ``observation_space`` are finite, so scaling needs no statistics; SuperSuit's
# ``pad_observations_v0`` makes the lengths equal.
#
# An episode
# ----------
# The network does not change, so a policy here is one power for each agent. The return of an agent is the sum of its
# rewards. The measurements have noise; the score of a policy, which only the figures use, has none.


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
    """The capacity of the whole network in Mbit/s, without noise."""
    return float(env.unwrapped.outcomes(powers).sum())


# %%
# Cross-entropy search
# --------------------
# Each agent draws powers from a normal distribution, and moves it towards those of the best fifth of 40 episodes, by
# its own return. With ``reward="own"`` that return is what its own users got; with ``reward="team"`` it is an equal
# share of the sum, the same for all.


def search(reward: str, seed: int, iterations: int = 12, size: int = 40) -> tuple[np.ndarray, list[float]]:
    """The powers in the end, and the score of the mean policy after each iteration."""
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


found = {reward: [search(reward, seed) for seed in range(3)] for reward in ("own", "team")}
best = env.unwrapped.best_known()[1]
for reward, runs in found.items():
    shares = ", ".join(f"{100 * scores[-1] / best:.0f}" for _, scores in runs)
    print(f"reward={reward!r}: {shares} % of the reference optimum (seeds 0, 1, 2)")

# %%
# Agents that are paid for their own users turn up their power, since that helps their own users whatever it costs the
# others. Shared rewards end better: they pay for what counts.
#
# A team
# ------
# A team uses the same environment in the same loop. It learns a model for each access point, and the access points
# choose their powers together by messages. Here it has 60 measurements; a search has 12 x 40 episodes of 3.


def run_team(seed: int, steps: int = 60) -> list[float]:
    """The score of the best powers so far by what the team measured, after each step."""
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


teams = [run_team(seed) for seed in range(3)]
draws = np.random.default_rng(0).uniform(low, high, (480, 12))
luck = np.maximum.accumulate([score(powers) for powers in draws])
shares = ", ".join(f"{100 * scores[-1] / best:.0f}" for scores in teams)
print(f"team, 60 measurements: {shares} % of the reference optimum")
at_maximum = 100 * score(np.full(12, high)) / best
print(f"best of 480 random settings: {100 * luck[-1] / best:.0f} %, all at maximum {at_maximum:.0f} %")

with applied():
    figure, panel = plt.subplots(figsize=(6.4, 4), layout="constrained")
for (reward, runs), style in zip(found.items(), ("s--", "o-"), strict=True):
    at = 40 * STEPS * np.arange(1, 13)
    panel.plot(at, 100 * np.mean([scores for _, scores in runs], axis=0) / best, style, label=f"search, {reward}")
panel.plot(np.arange(1, 61), 100 * np.mean(teams, axis=0) / best, label="team")
panel.plot(STEPS * np.arange(1, 481), 100 * luck / best, ":", color="grey", label="random, best so far")
panel.axhline(at_maximum, color="black", linestyle="--", linewidth=1, label="all at maximum")
panel.set(title="Mean of 3 seeds", xlabel="environment steps", ylabel="% of the reference optimum", xscale="log")
panel.legend(fontsize="small")
plt.show()

# %%
# The powers at the end of the first search of each kind:

with applied():
    figure, panel = plt.subplots(figsize=(6.4, 3), layout="constrained")
for shift, (reward, runs) in zip((-0.2, 0.2), found.items(), strict=True):
    panel.bar(np.arange(12) + shift, runs[0][0], width=0.4, label=reward)
panel.set(title="Powers after training", xlabel="access point", ylabel="power (dBm)", xticks=range(12))
panel.legend()
plt.show()

# %%
# The team uses what a search without a model does not: a model of each access point, and the graph of those in range of
# each other. A policy that reads its observations can do what a team cannot: act at once in a situation that it has met
# in training.
