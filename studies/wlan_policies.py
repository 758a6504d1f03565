"""Policies for access points, trained by PPO with shared parameters on drawn WLANs and evaluated in unseen worlds.

    pip install -e ".[rl]"
    python studies/wlan_policies.py train OUT        # two rewards, ten seeds, a quarter of an hour
    python studies/wlan_policies.py evaluate OUT     # 10 unseen worlds

``train`` writes ``task-SEED.npz`` and ``own-SEED.npz``, which scenarios accept as policies, and draws learning curves.
"""

import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

from swarmbo_envs.learning import SavedPolicy, Scale
from swarmbo_envs.wlan_power.many import ManyWlans

WORLD = {"worlds": "drawn", "observes": "losses", "airtime": "full"}
LEVELS, ROUNDS, COPIES, UPDATES = 5, 6, 32, 60
REWARDS = ("task", "own")
UNSEEN = range(10**6, 10**6 + 10)  # training draws seeds below


def scale_of(worlds):
    """Scale of the observations of all access points."""
    spaces = worlds.world.observation_space
    return Scale({agent: spaces(agent) for agent in worlds.world.possible_agents})


def train(out, reward, seed):
    """PPO of stable-baselines3; each access point of each world is a copy of one agent."""
    import torch
    from gymnasium.spaces import Discrete
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecEnv

    torch.set_num_threads(1)
    worlds = ManyWlans(**WORLD, reward=reward, max_cycles=ROUNDS)
    scale, rng, n = scale_of(worlds), np.random.default_rng(seed), COPIES * len(worlds.world.possible_agents)
    levels = np.linspace(*worlds.world.settings.power_dbm, LEVELS)

    class Agents(VecEnv):
        """SB3's vector of environments: all access points of all worlds, in new worlds after each episode."""

        def __init__(self):
            super().__init__(n, scale.space, Discrete(LEVELS))
            self.totals = []

        def reset(self):
            seen = worlds.reset(rng.integers(10**6, size=COPIES).tolist())
            return scale.apply("ap_0", seen).reshape(n, -1)

        def step_async(self, actions):
            self.asked = levels[actions].reshape(COPIES, -1)

        def step_wait(self):
            seen, rewards, over = worlds.step(self.asked)
            self.totals.append(worlds.totals.mean())
            seen = scale.apply("ap_0", seen).reshape(n, -1)
            infos = [{"TimeLimit.truncated": True, "terminal_observation": row} if over else {} for row in seen]
            return self.reset() if over else seen, 0.01 * rewards.ravel(), np.full(n, over), infos

        def close(self):
            pass

        def get_attr(self, name, indices=None):
            return [None] * n

        def set_attr(self, name, value, indices=None):
            raise NotImplementedError

        def env_method(self, name, *arguments, indices=None, **more):
            raise NotImplementedError

        def env_is_wrapped(self, wrapper, indices=None):
            return [False] * n

    agents, began = Agents(), time.perf_counter()
    net = {"net_arch": {"pi": [64, 64], "vf": [64, 64]}}
    size = ROUNDS * n
    model = PPO(
        "MlpPolicy", agents, n_steps=ROUNDS, batch_size=size // 4, n_epochs=6, gamma=0.0, gae_lambda=0.9,
        ent_coef=0.01, learning_rate=1e-3, policy_kwargs=net, seed=seed, device="cpu",
    )  # fmt: skip
    model.learn(UPDATES * size)
    parts = *model.policy.mlp_extractor.policy_net, model.policy.action_net
    layers = [part for part in parts if hasattr(part, "weight")]
    arrays = {f"W{i}": part.weight.detach().numpy().T for i, part in enumerate(layers)}
    arrays |= {f"b{i}": part.bias.detach().numpy() for i, part in enumerate(layers)}
    curve = np.array(agents.totals).reshape(UPDATES, ROUNDS).mean(axis=1)
    np.savez(out / f"{reward}-{seed}.npz", **arrays, levels=LEVELS, curve=curve)
    seconds = time.perf_counter() - began
    sys.stdout.write(f"{reward}, seed {seed}: {UPDATES * size} steps of agents in {seconds:.0f} s\n")


def draw(out):
    """Draw learning curves: mean total of the training worlds, median and range over training seeds."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.0, 3.4), layout="constrained")
    for reward, colour in zip(REWARDS, ("C0", "C1"), strict=True):
        curves = np.array([np.load(file)["curve"] for file in sorted(out.glob(f"{reward}-*.npz"))])
        steps = ROUNDS * COPIES * 12 * (1 + np.arange(curves.shape[1])) / 1000
        axes.plot(steps, np.median(curves, axis=0), color=colour, label=f'reward = "{reward}"')
        axes.fill_between(steps, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="steps of access points (thousands)", ylabel="mean total of training worlds (Mbit/s)")
    axes.legend(frameon=False)
    figure.savefig(out / "wlan-policies.png", dpi=150)


def evaluate(out):
    """Print shares of the reference optimum in unseen worlds: policies, random powers, all powers at maximum."""
    worlds = ManyWlans(**WORLD, max_cycles=ROUNDS)
    agents, best = worlds.world.possible_agents, list[float]()
    for seed in UNSEEN:
        worlds.world.reset(seed=seed)
        best.append(worlds.world.best_known()[1])
    rng = np.random.default_rng(0)
    ways = {"random": lambda seen: rng.uniform(1.0, 25.0, seen.shape[:2])}
    ways["all at maximum"] = lambda seen: np.full(seen.shape[:2], 25.0)
    for file in sorted(out.glob("*-*.npz")):
        policy = SavedPolicy(file)
        policy.begin(worlds.world, 0)

        def act(seen, policy=policy):
            rows = [policy.act(dict(zip(agents, one, strict=True))) for one in seen]
            return np.array([[row[agent][0] for agent in agents] for row in rows])

        ways[file.stem] = act
    rows = {name: figures(shares_of(worlds, act, np.array(best))) for name, act in ways.items()}
    for reward in REWARDS:
        rows[f"median of {reward}"] = np.median(
            [row for name, row in rows.items() if name.startswith(f"{reward}-")], axis=0
        )
    for name, row in rows.items():
        told = "mean of rounds {:.1%}, last {:.1%} (least {:.1%}), best round {:.1%}".format(*row)
        sys.stdout.write(f"{name:16} {told}\n")
    seeds = [name.rpartition("-")[2] for name in rows if name.startswith("task-")]
    for name, other in (("random", "random"), ("its twin of own rewards", "own-{}")):
        ahead = sum(rows[f"task-{seed}"][0] > rows[other.format(seed)][0] for seed in seeds)
        sys.stdout.write(f"task is ahead of {name} on {ahead} of {len(seeds)} training seeds\n")


def figures(shares):
    """Mean over rounds and worlds, mean and least of the last round, mean of the best round."""
    return shares.mean(), shares[-1].mean(), shares[-1].min(), shares.max(axis=0).mean()


def shares_of(worlds, act, best):
    """Shares (rounds, worlds) of the reference optimum that a function ``act`` reaches."""
    seen, over, shares = worlds.reset(list(UNSEEN)), False, list[np.ndarray]()
    while not over:
        seen, _, over = worlds.step(act(seen))
        shares.append(worlds.totals / best)
    return np.array(shares)


if __name__ == "__main__":
    command, folder = sys.argv[1], Path(sys.argv[2])
    folder.mkdir(parents=True, exist_ok=True)
    if command == "train":
        for reward, seed in product(REWARDS, sys.argv[3:] or map(str, range(10))):
            train(folder, reward, int(seed))
        draw(folder)
    else:
        evaluate(folder)
