"""Capacity of a WLAN in closed form with its gradient, utilities of the users' rates, and joint settings."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo_envs.shared import Values, digest
from swarmbo_envs.wlan_power.settings import Spectrum, shares

_NEPERS_PER_DB = np.log(10.0) / 10.0
UtilityName = Literal["sum", "proportional-fair", "minimum-rate", "cell-minimum", "users-above"]
FLOOR_MBPS = 1e-3  # least rate in sums of logarithms
_LARGEST = 1000.0  # bit/s per Hz: the SINR for a larger rate would overflow
_LABELS = {"sum": "", "proportional-fair": "sum of logarithms", "minimum-rate": "least rate"}
_LABELS |= {"cell-minimum": "sum of least rates", "users-above": "users above"}


class Link(NamedTuple):
    """Rate of a link as a function of its SINR, and its share of the airtime.

    Args:
        gap: Γ: factor by which a real code needs more SINR than Shannon's bound, >= 1.
        cap_mbps: Largest rate R in ``bandwidth_mhz``, in Mbit/s; it is proportional to the width.
        shared: True if the users of an access point take turns of equal time.
    """

    gap: float = 1.0
    cap_mbps: float = np.inf
    shared: bool = False


PLAIN = Link()


@dataclass(frozen=True, eq=False)
class Network:
    """Access points with transmit powers, and users that each receive from one of them.

    C_u = W log2(1 + SINR_u) in Mbit/s, for W in MHz, with

        SINR_u = P_a g_au / (N + Σ_{j ≠ a, j disturbs a} P_j g_ju),   for the access point a of user u,

    powers P and noise N in mW and gains g = 10^(-loss/10). The outcome of an access point is the sum over its users.
    If access points choose among channels, W and N are those of a's width, and P_j is the power that falls into a's
    channel; see ``settings.shares``. A ``link`` other than the default has C_u = min(W log2(1 + SINR_u / Γ), R) / n_u
    with a gap Γ and a largest rate R, and n_u = 1, or the number of users of a if these share its airtime equally.

    Source: Shannon 1948; the objective of Bardou et al. 2024 (DuMBO), appendix I, in which all users of a cell have the
    whole channel at the same time. Cioffi 1995, SNR gap, for Γ.

    Args:
        disturbs: True if access point j (column) disturbs the users of i (row), or the share of its power that does.
        noise_mw: Noise at each receiver, in ``bandwidth_mhz``.
        widths: Width of the channel of each access point, in units of ``bandwidth_mhz``; None: all 1.
        spectrum: Channels to choose among; joint settings then have choices after the powers. None: no choice.
    """

    loss_db: Float[np.ndarray, "k m"]
    serving: Int[np.ndarray, " m"]
    present: Bool[np.ndarray, " m"]
    disturbs: Bool[np.ndarray, "k k"] | Float[np.ndarray, "k k"]
    noise_mw: float
    bandwidth_mhz: float
    widths: Float[np.ndarray, " k"] | None = None
    spectrum: Spectrum | None = None
    link: Link = PLAIN

    @property
    def n_points(self) -> int:
        """Number of access points k."""
        return len(self.loss_db)

    @cached_property
    def gains(self) -> tuple[Float[np.ndarray, "m k"], Float[np.ndarray, "m k"]]:
        """Gains of wanted signal and interference at each user, as shares of power; 0 for links without effect."""
        gains = 10.0 ** (-self.loss_db.T / 10.0) * self.present[:, None]
        own = np.arange(self.n_points) == self.serving[:, None]
        return gains * own, gains * self.disturbs[self.serving] * ~own

    def on(self, plan: Values) -> "Network":
        """The network whose access points have chosen channels and widths, by their positions (d - k,)."""
        if self.spectrum is None:
            return self
        chosen = self.spectrum.chosen(plan)
        widths = np.array([width for _, width in chosen]) / self.bandwidth_mhz
        return replace(self, disturbs=self.disturbs * shares(chosen), widths=widths, spectrum=None)

    @cached_property
    def _width(self) -> Float[np.ndarray, " m"] | float:
        return 1.0 if self.widths is None else self.widths[self.serving]

    @cached_property
    def members(self) -> Float[np.ndarray, "m k"]:
        """1 for the access point of each user, else 0."""
        return (np.arange(self.n_points) == self.serving[:, None]).astype(float)

    @cached_property
    def n_users(self) -> Int[np.ndarray, " k"]:
        """Present users of each access point."""
        return np.bincount(self.serving[self.present], minlength=self.n_points)

    @cached_property
    def turn(self) -> Float[np.ndarray, " m"] | float:
        """Share of its access point's airtime that each user has."""
        return 1.0 / np.maximum(self.n_users[self.serving], 1) if self.link.shared else 1.0

    @cached_property
    def largest_rates(self) -> Float[np.ndarray, " m"] | float:
        """Largest rate of each user, Mbit/s."""
        return self.link.cap_mbps * self._width * self.turn

    @property
    def user_noise_mw(self) -> Float[np.ndarray, " m"]:
        """Noise at each user, mW."""
        return np.broadcast_to(self.noise_mw * self._width, self.serving.shape)

    def rates(self, sinr: Float[np.ndarray, "*n m"]) -> Float[np.ndarray, "*n m"]:
        """Capacity of every user at ratios of signal to interference and noise, Mbit/s."""
        # log1p: far users have an SINR below the rounding of 1 + SINR
        rates = np.log1p(sinr / self.link.gap)
        rates *= self._width
        rates *= self.bandwidth_mhz / np.log(2.0)
        rates *= self.turn
        return np.minimum(rates, self.largest_rates, out=rates)

    def needed_sinr(self, rate_mbps: float) -> Float[np.ndarray, " m"]:
        """SINR at which each user has a rate in Mbit/s; infinite if the user cannot have it."""
        rate = rate_mbps / (self.turn * self._width)
        nepers = np.log(2.0) / self.bandwidth_mhz * np.minimum(rate, _LARGEST * self.bandwidth_mhz)
        needed = self.link.gap * np.expm1(nepers)
        return np.broadcast_to(np.where(rate <= self.link.cap_mbps * (1.0 + 1e-12), needed, np.inf), self.serving.shape)

    @cached_property
    def mean_losses_db(self) -> Float[np.ndarray, "k k"]:
        """Mean loss from each access point (row) to the present users of each (column), at most 300 dB; 300 if none."""
        losses = self.loss_db @ (self.members * self.present[:, None]) / np.maximum(self.n_users, 1)
        return np.where(self.n_users > 0, np.clip(losses, 0.0, 300.0), 300.0)

    def sinr(self, X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n m"]:
        """Ratio of signal to interference and noise at every user for joint powers in dBm; 0 for an absent user."""
        power, (wanted, unwanted) = milliwatts(X), self.gains
        return power @ wanted.T / (self.noise_mw * self._width + power @ unwanted.T)

    def user_capacities(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n m"]:
        """Capacity of every user at joint settings, Mbit/s; 0 for an absent user."""
        if self.spectrum is None:
            return self.rates(self.sinr(X))
        capacities = np.empty((len(X), len(self.present)))
        plans, plan_of_row = np.unique(X[:, self.n_points :], axis=0, return_inverse=True)
        for number, plan in enumerate(plans):
            rows = plan_of_row.ravel() == number
            capacities[rows] = self.on(plan).user_capacities(X[rows, : self.n_points])
        return capacities

    def factor_values(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Capacity of every access point, Mbit/s."""
        return self.user_capacities(X) @ self.members

    def value(self, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Capacity of the network, Mbit/s."""
        return self.user_capacities(X).sum(axis=1)

    def uncapped_rates(self, x: Values) -> tuple[Float[np.ndarray, " m"], Callable[[Values], Values]]:
        """Rates of users without the cap, Mbit/s, and the gradient, per dB, of their sum with weights (m,).

        ∂C_u/∂P_j = (W / n_u ln 2) (g_j / received_u - h_j / disturbance_u) with disturbance = Γ (noise + interference),
        received = disturbance + wanted signal, and the derivatives g_j of received and h_j of disturbance in P_j. The
        powers x are in dBm, so dP_j/dx_j = P_j ln(10) / 10.
        """
        power, (wanted, unwanted), gap = milliwatts(x), self.gains, self.link.gap
        signal, disturbance = wanted @ power, gap * (self.noise_mw * self._width + unwanted @ power)
        unit = self.bandwidth_mhz / np.log(2.0) * self._width * self.turn

        def gradient(weights: Values) -> Values:
            own = unit * weights / (disturbance + signal)
            return _NEPERS_PER_DB * power * (wanted.T @ own - gap * (unwanted.T @ (own * signal / disturbance)))

        return unit * np.log1p(signal / disturbance), gradient

    @cached_property
    def digest(self) -> str:
        """Hash of the network's content."""
        widths = [] if self.widths is None else self.widths
        numbers = np.array([self.noise_mw, self.bandwidth_mhz, *self.link, *widths])
        shape, spectrum = np.array(self.loss_db.shape), repr(self.spectrum).encode()
        return digest(self.loss_db, self.serving, self.present, self.disturbs, numbers, shape, spectrum)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def milliwatts(dbm: np.ndarray) -> np.ndarray:
    """Powers in mW from dBm."""
    return np.exp(_NEPERS_PER_DB * np.asarray(dbm, dtype=float))


@dataclass(frozen=True)
class Utility:
    """Function of the rates of all present users; all but ``minimum-rate`` are sums over access points.

    | name | of an access point | of the network |
    |---|---|---|
    | ``sum`` | sum of its users' rates | sum |
    | ``proportional-fair`` | sum of ln(rate in Mbit/s), of at least 0.001 Mbit/s each | sum |
    | ``minimum-rate`` | least of its users' rates | the least |
    | ``cell-minimum`` | least of its users' rates | sum |
    | ``users-above`` | number of its users with ``rate_mbps`` or more | sum |

    An access point without users has 0, and is left out of ``minimum-rate``.

    Source: Kelly, Maulloo & Tan 1998, Rate control for communication networks, section 2, for proportional fairness.
    """

    name: UtilityName = "sum"
    rate_mbps: float = 0.0

    @property
    def is_sum(self) -> bool:
        """True if the network's utility is the sum over access points."""
        return self.name != "minimum-rate"

    @property
    def unit(self) -> str:
        """Unit of the utility."""
        return {"proportional-fair": "ln(Mbit/s)", "users-above": "users"}.get(self.name, "Mbit/s")

    @property
    def label(self) -> str:
        """Label in a few words; empty for the sum."""
        return f"{_LABELS[self.name]} {self.rate_mbps:g} Mbit/s" if self.name == "users-above" else _LABELS[self.name]

    def per_cell(self, network: Network, rates: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n k"]:
        """Utility of each access point for rates of all users, Mbit/s."""
        values = np.zeros((len(rates), network.n_points))
        if self.name in ("minimum-rate", "cell-minimum"):
            for i in np.flatnonzero(network.n_users):
                values[:, i] = rates[:, network.present & (network.serving == i)].min(axis=1)
            return values
        of_users = self.of_users(rates)
        for user in np.flatnonzero(network.present):
            values[:, network.serving[user]] += of_users[:, user]
        return values

    def total(self, network: Network, outcomes: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        """Utility of the network from those of its access points."""
        if self.is_sum:
            return outcomes.sum(axis=1)
        served = outcomes[:, network.n_users > 0]
        return served.min(axis=1) if served.shape[1] else np.zeros(len(outcomes))

    def factor_values(self, network: Network, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n k"]:
        """Utility of each access point at joint settings by the closed form."""
        return network.factor_values(X) if self.name == "sum" else self.per_cell(network, network.user_capacities(X))

    def value(self, network: Network, X: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        """Utility of the network at joint settings by the closed form."""
        return network.value(X) if self.name == "sum" else self.total(network, self.factor_values(network, X))

    def of_users(self, rates: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        """Utility of each user's rate, for utilities that are sums over users."""
        if self.name == "proportional-fair":
            return np.log(np.maximum(rates, FLOOR_MBPS))
        return rates if self.name == "sum" else (rates >= self.rate_mbps).astype(float)


def levels(network: Network, low: float, high: float, n: int) -> list[np.ndarray]:
    """Values of each entry of a setting: ``n`` powers, evenly from ``low`` to ``high``, or positions of a choice."""
    choices = {} if network.spectrum is None else network.spectrum.choices
    sizes = [np.arange(float(len(values))) for values in choices.values()]
    return [axis for axis in [np.linspace(low, high, n), *sizes] for _ in range(network.n_points)]


def settings_at(network: Network, U: Float[np.ndarray, "n d"], low: float, high: float) -> Float[np.ndarray, "n d"]:
    """Joint settings at shares in [0, 1) of the range of each power, and of the list of each choice."""
    k, sizes = network.n_points, [len(axis) for axis in levels(network, low, high, 2)]
    return np.hstack([low + U[:, :k] * (high - low), np.floor(U[:, k:] * sizes[k:])])


def greedy_colouring(network: Network, high: float) -> Values:
    """Joint setting by greedy colouring: all at largest power and the first width, on channels that avoid others.

    Access points that disturb and are disturbed most choose first. Each chooses the channel with the least sum of gains
    to and from the users of those before it.

    Source: Mishra, Banerjee & Arbaugh 2005, Weighted coloring based channel assignment for WLANs.
    """
    k, spectrum, unwanted = network.n_points, network.spectrum, network.gains[1]
    point = np.concatenate([np.full(k, high), np.zeros(len(levels(network, high, high, 1)) - k)])
    if spectrum is None:
        return point
    received = np.array([unwanted[network.serving == i].sum(axis=0) for i in range(k)])
    weights = received + received.T
    shared = shares([(channel, spectrum.widths_mhz[0]) for channel in spectrum.channels])
    disturbance = np.zeros((k, len(shared)))  # gains to and from others in each channel of each access point
    for i in np.argsort(-weights.sum(axis=1), kind="stable"):
        point[k + i] = chosen = int(disturbance[i].argmin())
        disturbance += weights[i][:, None] * shared[:, chosen]
    return point
