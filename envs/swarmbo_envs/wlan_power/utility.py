"""What a WLAN is tuned for: how the rates of its users are put together to one number."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from swarmbo_envs.wlan_power.network import Network

UtilityName = Literal["sum", "proportional-fair", "minimum-rate", "cell-minimum", "users-above"]

FLOOR_MBPS = 1e-3  # a user with less counts as this much where logarithms are summed
_LABELS: dict[UtilityName, str] = {
    "sum": "",
    "proportional-fair": "sum of logarithms",
    "minimum-rate": "least rate",
    "cell-minimum": "sum of least rates",
    "users-above": "users above",
}


@dataclass(frozen=True)
class Utility:
    """A number for the rates of all users that are there; all but ``minimum-rate`` are sums over access points.

    | name | of an access point | of the network |
    |---|---|---|
    | ``sum`` | sum of its users' rates | sum |
    | ``proportional-fair`` | sum of ln(rate in Mbit/s), of at least 0.001 Mbit/s each | sum |
    | ``minimum-rate`` | least of its users' rates | the least |
    | ``cell-minimum`` | least of its users' rates | sum |
    | ``users-above`` | how many of its users have ``rate_mbps`` or more | sum |

    An access point without users has 0, and does not count for the least of all.

    Source: Kelly, Maulloo & Tan 1998, Rate control for communication networks, section 2, for proportional fairness.

    Args:
        name: Which.
        rate_mbps: The rate to have, with ``users-above``, > 0.
    """

    name: UtilityName = "sum"
    rate_mbps: float = 0.0

    @property
    def is_sum(self) -> bool:
        """Whether the network's is the sum of what access points have."""
        return self.name != "minimum-rate"

    @property
    def unit(self) -> str:
        """Of its numbers."""
        return {"proportional-fair": "ln(Mbit/s)", "users-above": "users"}.get(self.name, "Mbit/s")

    @property
    def label(self) -> str:
        """What it is in a few words; nothing of the sum."""
        return f"{_LABELS[self.name]} {self.rate_mbps:g} Mbit/s" if self.name == "users-above" else _LABELS[self.name]

    def of_points(self, network: Network, rates: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n k"]:
        """What each access point has, for rates of all users.

        Args:
            network: Who serves whom, and who is there.
            rates: Mbit/s.
        """
        found = np.zeros((len(rates), network.n_points))
        if self.name in ("minimum-rate", "cell-minimum"):
            for i in np.flatnonzero(network.n_users):
                found[:, i] = rates[:, network.present & (network.serving == i)].min(axis=1)
            return found
        worth = self._worth(rates)
        for user in np.flatnonzero(network.present):
            found[:, network.serving[user]] += worth[:, user]
        return found

    def total(self, network: Network, outcomes: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        """What the network has, for what its access points have."""
        if self.is_sum:
            return outcomes.sum(axis=1)
        served = outcomes[:, network.n_users > 0]
        return served.min(axis=1) if served.shape[1] else np.zeros(len(outcomes))

    def factor_values(self, network: Network, X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "n k"]:
        """What each access point has at joint powers, dBm, by the closed form."""
        return network.factor_values(X) if self.name == "sum" else self.of_points(network, network.user_capacities(X))

    def value(self, network: Network, X: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
        """What the network has at joint powers, dBm, by the closed form."""
        return network.value(X) if self.name == "sum" else self.total(network, self.factor_values(network, X))

    def _worth(self, rates: Float[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
        if self.name == "proportional-fair":
            return np.log(np.maximum(rates, FLOOR_MBPS))
        return rates if self.name == "sum" else (rates >= self.rate_mbps).astype(float)
