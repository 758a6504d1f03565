"""Power control in a WLAN as a PettingZoo environment."""

import functools
from collections import OrderedDict
from typing import Any

import networkx as nx
import numpy as np
from gymnasium.spaces import Dict, Discrete, MultiDiscrete
from msgspec import structs
from numpy.typing import ArrayLike, NDArray

from swarmbo.boundary import rng
from swarmbo.boundary.values import linked
from swarmbo.errors import ConfigError
from swarmbo.records import GroundTruth
from swarmbo_envs.shared import digest
from swarmbo_envs.simulated_world import LARGEST, Array, Infos, SimulatedWorld, Space, space_of
from swarmbo_envs.wlan_power.network import Network, Utility, settings_at
from swarmbo_envs.wlan_power.references import Reference, best_known, references
from swarmbo_envs.wlan_power.settings import GeneratedSettings, WlanPowerSettings, topology_settings
from swarmbo_envs.wlan_power.world import Episode, World

_N_TRUTH_POINTS = 1024
OUT_OF_RANGE_DB = 300.0
# settings that change the duration of a simulation and not its result
_ONLY_TIME = ("processes", "timeout_s")


class WlanPower(SimulatedWorld[WlanPowerSettings, Episode], arguments=WlanPowerSettings, name="wlan_power_v0"):
    """Power control in a WLAN: access points set transmit powers jointly for the largest utility of their users.

    With ``channels`` they also choose their channels, and with ``widths_mhz`` their channels' widths.

    | | |
    |---|---|
    | Agents | ``ap_0`` ..., fixed |
    | Action | own transmit power: Box(1), dBm, float64; with channels a Dict of ``power`` and ``channel`` (Discrete), \
    and ``width`` (Discrete) if there are several: positions in the lists |
    | Observation | Box, float64: own power, last good measurement (the lower bound while there is none), share of \
    rounds left, powers of the access points in range; ``observes`` adds losses. With channels \
    a Dict: ``power``, ``channel`` and ``width`` (own first, then those in range), ``last`` and ``left`` |
    | State | all powers, all channels and widths (positions), all last good measurements, share of rounds left |
    | Reward | an equal share of the network's utility; see ``reward`` |
    | End | all agents are truncated after ``max_cycles`` rounds |

    ``infos[agent]`` after a step; ``reset`` measures nothing:

    | key | type | meaning |
    |---|---|---|
    | ``measurement`` | float | noisy utility of the agent's own users, or the total; missing if it failed |
    | ``factors`` | dict | with ``outcomes = "per-factor"``: outcome of the agent's own factor, ``capacity_i``; empty \
    if the measurement failed |
    | ``location`` | array, dict | applied action |
    | ``channel``, ``width`` | int, float | applied channel; width, MHz |
    | ``cost`` | float | 0 |
    | ``users`` | int | own users that are present |
    | ``source`` | dict | ``objective``, ``radio``; with ns-3 also its version, ``run``, ``runs`` and the reason of a \
    ``failure``; also the name of a ``utility`` other than ``sum`` |
    | ``failure`` | str | reason of a failed measurement |

    In the factor graph the outcome of access point i depends on its own settings and on those of the access points in
    its range. With ``interference = "audible"``, this is exact; with ``"all"`` it is an approximation.

    Args:
        topology: Table whose key is its kind: ``generated``, ``access_points`` or ``csv``; None for a random one of 12
            access points and 36 users in 300 m x 300 m.
        topology_seed: Seed of a generated topology and of shadowing; not of the noise.
        power_dbm: Least and largest transmit power.
        radio: Source of outcomes: ``closed-form``, or ``ns3``: the simulator, in child processes (extra ``ns3``).
        objective: ``capacity``: Shannon capacity at the SINR of locations and powers. ``throughput``: of a saturated
            802.11n downlink, simulated by ns-3 only; every access point then disturbs every other, whatever
            ``interference`` is. The two rank powers differently.
        utility: Function of the users' rates. ``sum``: their sum. ``proportional-fair``: the sum of their logarithms.
            ``cell-minimum``: the sum of the least rate of each access point. ``users-above``: the number of users with
            at least ``rate_mbps``. ``minimum-rate``: the least rate of all users; it is not a sum over access points
            and needs ``outcomes = "total"``.
        rate_mbps: Rate threshold; required by ``users-above``, and refused otherwise.
        airtime: Time on the air in the closed form. ``shared``: users of an access point take turns of equal time, with
            the largest rate and about the least SNR of 802.11n. ``full``: every user has the whole channel all the
            time, without a largest rate, as in Bardou et al. 2024 (DuMBO).
        rate_cap_mbps: Largest rate of a link in ``bandwidth_mhz``; it is proportional to the width. The default is 65
            Mbit/s in 20 MHz (MCS 7 of 802.11n with one stream), or no limit with full airtime.
        snr_gap_db: SNR that links need beyond Shannon's bound. The default is 10 dB, or 0 dB with full airtime.
        simulation: Settings of ns-3: ``SimulationSettings``.
        bandwidth_mhz: Bandwidth of the channel that all access points share; with ``channels``, of each channel.
        channels: Channels of 20 MHz among which each access point chooses: of 1 to 13 (2.4 GHz), or of 36, 40, ... to
            177 (5 GHz). Only power inside a user's channel disturbs it; ``settings.py`` has the formula. Path
            loss does not depend on the channel. Empty: all share one channel.
        widths_mhz: Widths among which each access point chooses, MHz: 20, 40, and at 5 GHz also 80 and 160. Rates and
            noise grow with the width; the power does not. Empty: ``bandwidth_mhz``.
        noise_figure_db: Noise figure of the receivers.
        shadowing_db: Standard deviation of the shadowing added to the path loss of each link; 0 for none.
        interference: ``audible``: only access points in range of the serving one disturb a user; ``all``: every other
            access point does.
        audible_dbm: Least received power, at largest transmit power, at which an access point is in range of another.
        outcomes: ``per-factor``: every agent receives the outcome of its users; ``total``: all receive the sum.
        observes: ``powers``, or ``losses``. The latter adds the number of own users, and mean losses in dB. These are
            to own users, from each access point in range to own users, and from the own one to the users of each in
            range. All agents' observations then have equal length; missing entries are the least power and 300 dB. In
            drawn worlds, lengths are always equal.
        worlds: ``fixed``: one for all episodes. ``drawn``: each reset draws another topology, with another
            ``topology_seed``; ``reset(options={"world": number})`` picks one.
        noise_std: Standard deviation of the noise of a total, in the unit of the utility. With k access points, each
            has this divided by sqrt(k), so that their sum is as noisy as a total. An access point without users
            measures 0 exactly.
        failure_rate: Probability that a measurement fails: of each agent independently, or of the total.
        mobility_m: Standard deviation of a user's step between two rounds along each axis, m.
        leave_rate: Probability that a present user leaves between two rounds.
        return_rate: Probability that an absent user returns in the next round, at its former location or where it has
            walked to.
        departures: [round, user] of users that leave at the beginning of that round.
        reward: ``task``: an equal share of the network's true utility, in its unit; 0 if a simulation failed. ``team``:
            an equal share of the sum of all measurements. ``own``: the agent's measurement, or with totals an equal
            share of it; 0 if it failed. This reward leads to full power.
        max_cycles: Rounds of an episode, >= 1.
        render_mode: ``rgb_array`` (picture), ``ansi`` (text), ``human`` (text to the terminal after every round), None.

    Raises:
        ConfigError: If an argument is wrong; the message has its path.

    Example:
        >>> from swarmbo_envs import wlan_power_v0
        >>> env = wlan_power_v0.parallel_env(topology={"access_points": [[0, 0], [60, 0]], "users": [[5, 0], [40, 0]]})
        >>> observations, infos = env.reset(seed=0)
        >>> *_, infos = env.step({"ap_0": [1.0], "ap_1": [25.0]})
        >>> {agent: round(info["measurement"], 1) for agent, info in infos.items()}
        {'ap_0': 12.2, 'ap_1': 65.0}
    """

    _action_in_words, _state_format = "[power in dBm]", ("WLAN", 2)

    def __init__(self, **arguments: Any) -> None:
        settings = self._settings_of(arguments)
        world = World.of(settings)
        super().__init__(settings, world.agents)
        self._set_world(world)
        k = len(self.possible_agents)
        self.factors = tuple(f"capacity_{i}" for i in range(k))
        self.slots: int | None = None  # largest number of others in range, in any topology that may be drawn
        if settings.worlds == "drawn":
            table = topology_settings(settings.topology)
            self.slots = table.most_heard if isinstance(table, GeneratedSettings) else k - 1
        elif settings.observes == "losses":
            self.slots = int(self.hears.sum(axis=1).max())
        self.variables = tuple(f"{name}_{i}" for name in ("power", *world.choices) for i in range(k))
        self._low, self._high = low, high = settings.power_dbm
        sizes = np.repeat([len(values) for values in world.choices.values()], k)
        last, ends = np.full(k, LARGEST), (np.r_[[low] * k, 0.0 * sizes], np.r_[[high] * k, sizes - 1.0])
        actions, observations = dict[str, Space](), dict[str, Space]()
        for agent, near in zip(self.possible_agents, self.in_range, strict=True):
            power = space_of(([low], [high]))
            choices = [(name, Discrete(len(values))) for name, values in world.choices.items()]
            actions[agent] = Dict(OrderedDict([("power", power), *choices])) if choices else power
            observations[agent] = self._observed_space(1 + len(near))
        state = np.concatenate([ends[0], -last, [0.0]]), np.concatenate([ends[1], last, [1.0]])
        self._set_spaces(actions, observations, state)

    def _set_world(self, world: World) -> None:
        self.rules, self.topology, self.hears, self.utility = world, world.topology, world.hears, world.utility
        self.in_range = [np.flatnonzero(row) for row in world.hears]
        self._initial = world.network(world.topology.users, np.ones(len(world.topology.users), dtype=bool))

    def _draw(self, number: int) -> None:
        self._set_world(World.of(structs.replace(self.settings, topology_seed=number)))

    def _observed_space(self, n_seen: int) -> Space:
        """Observation space of an access point that sees the settings of ``n_seen`` access points, its own first."""
        n = n_seen if self.slots is None else 1 + self.slots
        low, high = [self._low] * n, [self._high] * n
        if self.settings.observes == "losses":
            losses = 1 + 2 * (len(low) - 1)
            low, high = [*low, 0.0, *[0.0] * losses], [*high, len(self.topology.users), *[OUT_OF_RANGE_DB] * losses]
        if not self.rules.choices:
            return space_of(self._with_last_measurement((low[:1], high[:1]), (low[1:], high[1:])))
        parts: list[tuple[str, Space]] = [("power", space_of((low, high)))]
        parts += [(name, MultiDiscrete([len(of)] * n_seen)) for name, of in self.rules.choices.items()]
        parts += [("last", space_of(([-LARGEST], [LARGEST]))), ("left", space_of(([0.0], [1.0])))]
        return Dict(OrderedDict(parts))

    @property
    def network(self) -> Network:
        """Noise-free network as it is now; before any round, the initial network."""
        if self._episode is None or not self.settings.changes:
            return self._initial
        return self.rules.network(self._episode.users, self._episode.present)

    def factor_graph(self) -> dict[str, Any]:
        """Prior knowledge of the network as plain data: one factor per access point, over the settings in its range.

        It has ``bounds`` (tables for choices) and ``variable_owners`` per variable, ``scopes`` and ``owners`` per
        factor, ``outcomes``, and ``present``: the settings at the beginning of an episode.
        """
        agents, choices = self.possible_agents, self.rules.choices
        parts = ("power", *choices)
        scopes = [[f"{p}_{j}" for p in parts for j in sorted([i, *near])] for i, near in enumerate(self.in_range)]
        if self.settings.worlds == "drawn":
            self._current()  # before the reset there is no topology
        bounds: dict[str, Any] = dict.fromkeys(self.variables[: len(agents)], (self._low, self._high))
        present: dict[str, Any] = dict.fromkeys(bounds, (self._low + self._high) / 2.0)
        for name, values in choices.items():
            kind = {"kind": "categorical", "values": list(values), "ordered": name == "width"}
            own = [f"{name}_{i}" for i in range(len(agents))]
            bounds |= {variable: dict(kind) for variable in own}
            present |= dict.fromkeys(own, values[0])
        return {
            "bounds": bounds,
            "variable_owners": dict(zip(self.variables, agents * len(parts), strict=True)),
            "scopes": dict(zip(self.factors, scopes, strict=True)),
            "owners": dict(zip(self.factors, agents, strict=True)),
            "outcomes": self.settings.outcomes,
            "present": present,
        }

    def interaction_graph(self) -> "nx.Graph[str]":
        """Links between access points in range of each other."""
        names = self.possible_agents
        return linked(names, [(names[i], names[int(j)]) for i, near in enumerate(self.in_range) for j in near if i < j])

    def best_known(self) -> tuple[Array, float]:
        """Best joint setting known for the initial network, and its utility; see ``references.best_known``."""
        powers, value = best_known(self._initial, self._low, self._high, utility=self.utility)
        return np.array(powers), value

    def ground_truth(self) -> GroundTruth | None:
        """Noise-free utility over joint settings, for metrics and figures; its maximum is the best one known.

        None if users walk, leave or return, because the function changes; None for throughput, whose maximum is
        unknown.
        """
        if self.settings.changes or self.settings.objective == "throughput":
            return None
        place, maximum = self.best_known()
        network, value = self._initial, functools.partial(self.utility.value, self._initial)
        unit = rng.sobol(_N_TRUTH_POINTS, len(place), rng.stream(0, "truth points"))
        points = settings_at(network, unit, self._low, self._high)
        labels: Any = self.labels
        return GroundTruth(points, value(points), maximum, place, value=value, maximum_is="reference optimum", **labels)

    @property
    def labels(self) -> dict[str, str]:
        """Name and unit of the measured quantity and unit of settings, for titles; also without a ground truth."""
        name = f"WLAN of {len(self.possible_agents)} access points and {len(self.topology.users)} users"
        what = self.utility.label
        axis_unit = "" if self.rules.choices else "dBm"
        return {"name": f"{name}: {what}" if what else name, "unit": self.utility.unit, "axis_unit": axis_unit}

    def references(self, budget: int, seed: int = 0) -> dict[str, float]:
        """Noise-free results of heuristic baselines that try a budget of joint settings; see ``references.py``.

        Empty if users walk, leave or return. For throughput, the powers are tuned by the closed form and simulated once
        by ns-3; failed simulations are left out.
        """
        found = self._references(budget, seed)
        if self.settings.objective == "capacity":
            return {label: reference.value for label, reference in found.items()}
        users = self.topology.users
        given = {label: self.rules.outcomes(self._initial, users, way.point)[1] for label, way in found.items()}
        return {label: total for label, total in given.items() if np.isfinite(total)}

    def reference_points(self, budget: int, seed: int = 0) -> dict[str, Array]:
        """Joint settings (d,) that the baselines end at."""
        return {label: reference.point for label, reference in self._references(budget, seed).items()}

    def _references(self, budget: int, seed: int) -> dict[str, Reference]:
        """Results of the baselines by label, which states if powers were tuned by the closed form."""
        if self.settings.changes:
            return {}
        results = references(self._initial, self._low, self._high, budget=budget, seed=seed, utility=self.utility)
        elsewhere = ", by the closed form" if self.settings.objective == "throughput" else ""
        return {one.label + (elsewhere if one.evaluations > 1 else ""): one for one in results.values()}

    def worst_off(self, point: ArrayLike) -> dict[str, float]:
        """Least rate of any access point, and of any user, at a joint setting as for ``replay``, without noise.

        Counts the initial users, and access points that have users. With ns-3 this runs a simulation.

        Returns:
            Rate by name with its unit; empty if users change, a simulation failed, or no user is present.
        """
        network = self._initial
        if self.settings.changes or not network.present.any():
            return {}
        rates_of_runs = self.rules.rates(network, self.topology.users, np.asarray(point, dtype=float))
        if not isinstance(rates_of_runs, np.ndarray):
            return {}
        rates = rates_of_runs.mean(axis=0)
        sums = Utility().per_cell(network, rates[None])[0]
        worst = float(sums[network.n_users > 0].min()), float(rates[network.present].min())
        return dict(zip(("worst access point (Mbit/s)", "worst user (Mbit/s)"), worst, strict=True))

    def at_query(self, number: int) -> None:
        """Seed the noise and the failures of the next step by a query's number, >= 1.

        Outcomes then depend on this number and the settings only, so copies of this world can measure in any order.

        Raises:
            ConfigError: If users walk, leave or return, so that outcomes depend on the round, too.
        """
        if self.settings.changes:
            got = "got users that walk, leave or return, so that an outcome depends on its round"
            wanted = "wanted mobility_m, leave_rate and return_rate of 0 and no departures, or no workers"
            raise ConfigError(f"{got}; {wanted}", at="$.environment")
        self._set_query(number)

    def _begin(self, seed: int, number: int) -> Episode:
        return self.rules.begin(seed, number)

    def _play(self, episode: Episode, actions: dict[str, Array]) -> tuple[Infos, dict[str, float]]:
        self._transmit(episode, np.stack(list(actions.values()), axis=1).ravel())
        infos = self.rules.measure(episode, self.network)
        return infos, self._rewards(infos, float(np.nan_to_num(episode.totals[-1])))

    def replay(self, point: ArrayLike, measurement: float | None) -> None:
        """Replay one round of an earlier run for a picture: measures nothing, calls no simulator.

        Args:
            point: All powers, dBm, then all positions of channels and of widths (d,).
            measurement: Recorded total, None if it failed; used with ns-3 only, the closed form is recomputed without
                noise.
        """
        episode = self._current()
        episode.round += 1
        self._transmit(episode, np.array(point, dtype=float))
        total = np.nan if measurement is None else measurement
        if self.rules.radio is None:
            total = self.rules.outcomes(self.network, episode.users, episode.point)[1]
        episode.totals.append(total)

    def _transmit(self, episode: Episode, point: Array) -> None:
        episode.powers, episode.choices = np.split(point, [len(self.possible_agents)])
        if self.settings.changes:
            self.rules.move_users(episode)

    def outcomes(self, point: ArrayLike) -> Array:
        """Noise-free utility (k,) of each access point at a joint setting, with the current users; NaN if it failed."""
        users = self.topology.users if self._episode is None else self._episode.users
        return self.rules.outcomes(self.network, users, np.asarray(point, dtype=float))[0]

    def state(self) -> Array:
        """All settings, all last good measurements (the lower bound while there is none), the share of rounds left."""
        episode = self._current()
        return np.concatenate([episode.point, self._shown(episode.last), [episode.share_left(self.max_cycles)]])

    def _observe(self, episode: Episode) -> dict[str, Any]:
        last, left = self._shown(episode.last), episode.share_left(self.max_cycles)
        powers, chosen = episode.powers, episode.choices.astype(int).reshape(-1, len(last))
        seen: dict[str, Any] = {}
        losses = self.network.mean_losses_db if self.settings.observes == "losses" else None
        for i, (agent, near) in enumerate(zip(self.possible_agents, self.in_range, strict=True)):
            seen[agent] = np.array([powers[i], last[i], left, *self._padded(powers[near], self._low)])
            if losses is not None:
                others = [self._padded(of, OUT_OF_RANGE_DB) for of in (losses[near, i], losses[i, near])]
                seen[agent] = np.concatenate([seen[agent], [self.network.n_users[i], losses[i, i]], *others])
            if len(chosen):
                listed = np.array([i, *near])
                parts = dict(zip(self.rules.choices, chosen[:, listed], strict=True))
                seen[agent] = {"power": powers[listed], **parts, "last": last[[i]], "left": np.array([left])}
        return seen

    def _padded(self, values: Array, filler: float) -> Array:
        """Values of the access points in range, filled up to the number of slots if there is one."""
        return values if self.slots is None else np.r_[values, np.full(self.slots - len(values), filler)]

    def _description(self) -> dict[str, Any]:
        settings, radio = super()._description(), self.rules.radio
        for name in _ONLY_TIME:
            del settings["simulation"][name]
        if self.settings.worlds == "fixed":
            settings["topology"] = self.topology.digest
        elif not isinstance(topology_settings(self.settings.topology), GeneratedSettings):
            stated = self.topology.access_points, self.topology.users, self.topology.serving  # without drawn shadowing
            settings["topology"] = digest(*(part for part in stated if part is not None))
        return settings if radio is None else settings | {"ns3": radio.version}

    def _picture(self) -> NDArray[np.uint8]:
        from swarmbo_envs.wlan_power.rendering import frame  # figures take a second to import

        return frame(self.rules, self.network, self._current(), self.max_cycles)

    def close(self) -> None:
        """End the simulators; a step after that starts new simulators."""
        if self.rules.radio is not None:
            self.rules.radio.close()

    def _text(self) -> str:
        episode = self._current()
        powers = " ".join(f"{power:.1f}" for power in episode.powers)
        now = f"{episode.totals[-1]:.1f} {self.utility.unit}" if episode.totals else "nothing measured"
        spectrum = self.settings.spectrum
        chosen = "" if spectrum is None else ", channels " + " ".join(spectrum.labels(episode.choices))
        return f"WLAN: round {episode.round} of {self.max_cycles}, {now}, powers {powers} dBm{chosen}\n"
