"""Many worlds of access points, stepped in one call by arrays: for policies that need many rounds."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.error import ResetNeeded
from jaxtyping import Bool, Float, Int

from swarmbo.boundary.values import real_array, short
from swarmbo.errors import ConfigError, ShapeError
from swarmbo_envs.simulated_world import LARGEST
from swarmbo_envs.wlan_power.network import Network, milliwatts
from swarmbo_envs.wlan_power.wlan_power import WlanPower

Array = Float[np.ndarray, "..."]


class ManyWlans:
    """Copies of ``WlanPower`` for a list of seeds, as arrays: b worlds of k access points.

    Results are those of single worlds that are reset with the same seeds, up to a relative error of 1e-12.

    Args:
        **arguments: Those of ``WlanPower``. Users must stay, the radio is the closed form on one channel, and the
            utility is a sum over users: ``sum``, ``proportional-fair`` or ``users-above``.

    Raises:
        ConfigError: If an argument is wrong, or is not as above.

    Example:
        >>> worlds = ManyWlans(worlds="drawn", observes="losses")
        >>> worlds.reset([0, 1, 2]).shape
        (3, 12, 17)
        >>> observations, rewards, over = worlds.step(np.full((3, 12), 25.0))
        >>> rewards.shape, over
        ((3, 12), False)
    """

    def __init__(self, **arguments: Any) -> None:
        self.world = world = WlanPower(**arguments)
        s = world.settings
        fixed = ("mobility_m", "leave_rate", "return_rate", "departures", "channels")
        names = [name for name in fixed if getattr(s, name)]
        names += ["radio"] if s.radio != "closed-form" else []
        names += ["utility"] if s.utility in ("minimum-rate", "cell-minimum") else []
        for name in names:
            got = f"got {short(getattr(s, name))}"
            raise ConfigError(f"{got}; wanted the default: with it, worlds are stepped one by one", at=f"$.{name}")

    def reset(self, seeds: Sequence[int]) -> Array:
        """Begin an episode for each seed; observations (b, k, d)."""
        if not len(seeds):
            raise ConfigError("got no seed; wanted one for each world", at="$.seeds")
        world, networks, losses = self.world, list[Network](), list[Array]()
        neighbours: list[list[Int[np.ndarray, " s"]]] = []
        for seed in seeds:
            observations, _ = world.reset(seed=seed)
            networks.append(world.network)
            neighbours.append(world.in_range)
            if world.slots is not None:  # losses are constant, since users stay; they follow 3 numbers and the powers
                losses.append(np.array(list(observations.values()))[:, 3 + world.slots :])
        self._seeds = list(seeds)
        self._wanted, self._unwanted = (np.array([n.gains[i] for n in networks]) for i in (0, 1))
        self._noise_mw, self._width = networks[0].noise_mw, networks[0].bandwidth_mhz / np.log(2.0)
        self._link = networks[0].link
        self._turns = np.array([np.broadcast_to(n.turn, n.serving.shape) for n in networks])
        self._members = np.array([n.members.T * n.present for n in networks])
        self._users = np.array([n.n_users for n in networks])
        b, k, slots = len(networks), len(world.possible_agents), world.slots
        if slots is None:
            slots = max(len(near) for of_world in neighbours for near in of_world)
        self._neighbours = np.zeros((b, k, slots), dtype=int)
        self._is_neighbour: Bool[np.ndarray, "b k s"] = np.zeros((b, k, slots), dtype=bool)
        for number, of_world in enumerate(neighbours):
            for i, near in enumerate(of_world):
                self._neighbours[number, i, : len(near)], self._is_neighbour[number, i, : len(near)] = near, True
        self._losses = np.array(losses) if losses else np.empty((b, k, 0))
        self._powers = np.full((b, k), sum(world.settings.power_dbm) / 2.0)
        self._last, self.round = np.full((b, k), np.nan), 0
        return self._observations()

    def step(self, powers: Array) -> tuple[Array, Array, bool]:
        """Play one round at powers (b, k) in dBm.

        Returns:
            Observations (b, k, d), padded as with ``observes``; rewards (b, k); True after the last round.

        Raises:
            ShapeError: If powers have another shape, or are not finite.
        """
        if not hasattr(self, "_powers"):
            raise ResetNeeded("call reset() first")
        given = real_array(powers)
        if given is None or given.shape != self._powers.shape or not np.isfinite(given).all():
            raise ShapeError(f"got {short(powers)}; wanted finite powers of shape {self._powers.shape}")
        s, k = self.world.settings, self._powers.shape[1]
        self.round, self._powers = self.round + 1, np.clip(given, s.power_dbm[0], s.power_dbm[1])
        power = milliwatts(self._powers)[:, :, None]
        sinr = (self._wanted @ power)[:, :, 0] / (self._noise_mw + (self._unwanted @ power)[:, :, 0])
        rates = np.minimum(self._width * np.log1p(sinr / self._link.gap), self._link.cap_mbps) * self._turns
        values = (self._members @ self.world.utility.of_users(rates)[:, :, None])[:, :, 0]
        self.totals = totals = values.sum(axis=1)
        outcomes, measured_totals = values, totals
        if s.noise_std or s.failure_rate:
            draws = [self.world.rules.random_draws(seed, 0, self.round) for seed in self._seeds]
            failure_draws, noise = (np.array(each) for each in zip(*draws, strict=True))
            outcomes = values + np.where(self._users > 0, noise[:, :k] / np.sqrt(k), 0.0)
            outcomes = np.where(failure_draws[:, :k] < s.failure_rate, np.nan, outcomes)
            measured_totals = np.where(failure_draws[:, k] < s.failure_rate, np.nan, totals + noise[:, k])
        share = 1.0
        if s.outcomes == "total":
            outcomes, share = np.repeat(measured_totals[:, None], k, axis=1), 1.0 / k
        self._last = np.where(np.isnan(outcomes), self._last, outcomes)
        rewards = share * np.nan_to_num(outcomes)
        if s.reward != "own":
            shared = totals if s.reward == "task" else rewards.sum(axis=1)
            rewards = np.repeat(shared[:, None] / k, k, axis=1)
        return self._observations(), rewards, self.round >= s.max_cycles

    def _observations(self) -> Array:
        s = self.world.settings
        last = np.clip(np.nan_to_num(self._last, nan=-LARGEST), -LARGEST, LARGEST)
        left = np.full(last.shape, max(0.0, 1.0 - self.round / s.max_cycles))
        worlds = np.arange(len(last))[:, None, None]
        near = np.where(self._is_neighbour, self._powers[worlds, self._neighbours], s.power_dbm[0])
        return np.concatenate([np.stack([self._powers, last, left], axis=2), near, self._losses], axis=2)
