"""Rules of the WLAN: its state, changes of users, and measurements of access points in a round."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo_envs.saved_state import WorldEpisode
from swarmbo_envs.shared import Ends, Values
from swarmbo_envs.wlan_power.network import Link, Network, Utility
from swarmbo_envs.wlan_power.settings import WlanPowerSettings
from swarmbo_envs.wlan_power.topology import Topology, noise_dbm, topology_of

if TYPE_CHECKING:
    from swarmbo_envs.wlan_power.ns3 import Failure, Ns3Radio

_CAP_MBPS, _CAP_MHZ = 65.0, 20.0  # MCS 7 of 802.11n with one stream
_GAP_DB = 10.0  # about the SNR that 802.11n's rates need beyond Shannon's bound


@dataclass
class Episode(WorldEpisode):
    """State of an episode: powers (dBm), and locations of users (m).

    ``choices`` are positions of channels, then of widths, in their lists. ``last`` are last good measurements of
    agents, NaN while there is none; ``totals`` noise-free utilities of the network, NaN if a simulation failed.
    """

    powers: Values
    choices: Values
    last: Values
    totals: list[float]
    users: Float[np.ndarray, "m 2"]
    present: Bool[np.ndarray, " m"]

    @property
    def point(self) -> Float[np.ndarray, " d"]:
        """Joint setting: powers, then choices."""
        return np.concatenate([self.powers, self.choices])


@dataclass(frozen=True, eq=False)
class World:
    """Immutable rules of the WLAN; all changing state is in the episode that methods receive.

    ``hears`` is a mask of access points (row) in range of others (column) at largest power.
    """

    settings: WlanPowerSettings
    topology: Topology
    hears: Bool[np.ndarray, "k k"]
    radio: "Ns3Radio | None"

    @classmethod
    def of(cls, settings: WlanPowerSettings) -> "World":
        """Build the world of settings."""
        topology = topology_of(settings)
        m = len(topology.users)
        for place, (_, user) in enumerate(settings.departures):
            if user >= m:
                raise ConfigError(f"got user {user}; wanted one from 0 to {m - 1}", at=f"$.departures[{place}]")
        hears = topology.hears(settings.power_dbm[1], settings.audible_dbm)
        if settings.radio != "ns3":
            return cls(settings, topology, hears, None)
        from swarmbo_envs.wlan_power.ns3 import Ns3Radio  # loaded for ns-3 only

        return cls(settings, topology, hears, Ns3Radio(settings.objective, settings.simulation))

    @property
    def agents(self) -> list[str]:
        """Names of the access points."""
        return [f"ap_{i}" for i in range(len(self.hears))]

    @property
    def choices(self) -> dict[str, tuple[Any, ...]]:
        """Values of each choice that an access point makes besides its power, by name."""
        spectrum = self.settings.spectrum
        return {} if spectrum is None else spectrum.choices

    @property
    def source(self) -> dict[str, Any]:
        """Source and kind of outcomes, plain data."""
        named: dict[str, Any] = {"objective": self.settings.objective, "radio": self.settings.radio}
        if self.settings.utility != "sum":
            named["utility"] = self.settings.utility
        if self.settings.rate_mbps is not None:
            named["rate_mbps"] = self.settings.rate_mbps
        return named if self.radio is None else named | self.radio.source

    def begin(self, seed: int, number: int) -> Episode:
        """Begin with all powers in the middle of their range, first choices, all users present, nothing measured."""
        k, users = len(self.hears), self.topology.users
        middle = np.full(k, sum(self.settings.power_dbm) / 2.0)
        present = np.ones(len(users), dtype=bool)
        choices = np.zeros(k * len(self.choices))
        return Episode(seed, number, 0, True, middle, choices, np.full(k, np.nan), [], users.copy(), present)

    def move_users(self, episode: Episode) -> None:
        """Move users between two rounds: they walk, leave, return. Changes the episode.

        Steps are normal along each axis and reflected at the edge of the area. A user with a stated departure leaves in
        that round, for good unless it returns by chance.
        """
        settings, names = self.settings, {"episode": episode.number, "round": episode.round}
        if settings.mobility_m:
            steps = stream(episode.seed, "environment", "mobility", **names).standard_normal(episode.users.shape)
            # reflection: the phase of a wave that goes to and fro between the edges
            low, sides = self.topology.low, np.maximum(self.topology.high - self.topology.low, np.finfo(float).tiny)
            phase = np.mod(episode.users + settings.mobility_m * steps - low, 2.0 * sides)
            episode.users = np.clip(low + np.minimum(phase, 2.0 * sides - phase), low, self.topology.high)
        if settings.leave_rate or settings.return_rate:
            draws = stream(episode.seed, "environment", "churn", **names).random(len(episode.present))
            episode.present = np.where(episode.present, draws >= settings.leave_rate, draws < settings.return_rate)
        for round_number, user in settings.departures:
            if round_number == episode.round:
                episode.present[user] = False

    def network(self, users: Ends, present: Bool[np.ndarray, " m"]) -> Network:
        """Noise-free network with users at locations, m, of which some are present."""
        s, topology = self.settings, self.topology
        loss = topology.loss_db(users)
        serving = loss.argmin(axis=0) if topology.serving is None else topology.serving
        disturbs = self.hears if s.interference == "audible" else ~np.eye(len(self.hears), dtype=bool)
        noise_mw = 10.0 ** (noise_dbm(s.bandwidth_mhz, s.noise_figure_db) / 10.0)
        radio: dict[str, Any] = {"spectrum": s.spectrum, "link": self.link}
        return Network(loss, serving, present.copy(), disturbs, noise_mw, s.bandwidth_mhz, **radio)

    @property
    def utility(self) -> Utility:
        """Utility of the users' rates."""
        return Utility(self.settings.utility, self.settings.rate_mbps or 0.0)

    @property
    def link(self) -> Link:
        """Rate of a link as a function of its SINR, and its share of the airtime."""
        s, shared = self.settings, self.settings.airtime == "shared"
        gap_db = (_GAP_DB if shared else 0.0) if s.snr_gap_db is None else s.snr_gap_db
        usual = _CAP_MBPS * s.bandwidth_mhz / _CAP_MHZ if shared else np.inf
        return Link(10.0 ** (gap_db / 10.0), usual if s.rate_cap_mbps is None else s.rate_cap_mbps, shared)

    def rates(self, network: Network, users: Ends, point: Values) -> "Float[np.ndarray, 'runs m'] | Failure":
        """Noise-free rates of users, Mbit/s, in each run of the radio; or the reason of a failure."""
        if self.radio is None:
            return network.user_capacities(point[None])
        return self.radio.user_rates(network, self.topology, users, point)

    def outcomes(self, network: Network, users: Ends, point: Values) -> "tuple[Values, float, Failure | None]":
        """Noise-free utility of each access point and of the network, or NaN with the reason of a failure."""
        utility = self.utility
        if self.radio is None:
            values = utility.factor_values(network, point[None])
        else:
            rates = self.rates(network, users, point)
            if not isinstance(rates, np.ndarray):
                return np.full(network.n_points, np.nan), np.nan, rates
            values = utility.per_cell(network, rates)
        mean = values.mean(axis=0) if len(values) > 1 else values[0]
        return mean, float(mean.sum() if utility.is_sum else utility.total(network, values).mean()), None

    def random_draws(self, seed: int, number: int, round_number: int) -> tuple[Values, Values]:
        """Uniform draws that decide on failures, and noise, of each access point and of the total (k + 1,)."""
        # one number more than access points, for the total: so draws do not depend on the kind of outcomes
        names, n = {"episode": number, "round": round_number}, len(self.hears) + 1
        failure_draws = stream(seed, "environment", "failure", **names).random(n)
        return failure_draws, self.settings.noise_std * stream(seed, "environment", "noise", **names).standard_normal(n)

    def measure(self, episode: Episode, network: Network) -> dict[str, dict[str, Any]]:
        """Measure at the episode's powers, updating its totals and last good measurements; return the infos."""
        s, k = self.settings, len(self.hears)
        values, true_total, failure = self.outcomes(network, episode.users, episode.point)
        episode.totals.append(true_total)
        failure_draws, noise = self.random_draws(episode.seed, episode.number, episode.round)
        noisy = values + np.where(network.n_users > 0, noise[:k] / np.sqrt(k), 0.0)
        noisy[failure_draws[:k] < s.failure_rate] = np.nan
        total = float(true_total + noise[k]) if failure_draws[k] >= s.failure_rate else np.nan
        outcomes = np.full(k, total) if s.outcomes == "total" else noisy
        episode.last = np.where(np.isnan(outcomes), episode.last, outcomes)
        source = self.source if failure is None else self.source | {"failure": failure.reason}
        own_settings, infos = episode.point.reshape(-1, k).T, dict[str, dict[str, Any]]()
        for i, agent in enumerate(self.agents):
            outcome, location = float(outcomes[i]), own_settings[i].copy()
            failed = bool(np.isnan(outcome))
            info: dict[str, Any] = {} if failed else {"measurement": outcome}
            info |= {"location": location, "cost": 0.0, "users": int(network.n_users[i]), "source": source}
            if self.choices:
                positions = dict(zip(self.choices, own_settings[i, 1:].astype(int).tolist(), strict=True))
                info["location"] = {"power": location[:1], **positions}
                info |= {name: self.choices[name][position] for name, position in positions.items()}
            if s.outcomes == "per-factor":
                info["factors"] = {} if failed else {f"capacity_{i}": outcome}
            if failed:
                info["failure"] = str(failure or "lost")
            infos[agent] = info
        return infos
