"""Maps: the utility of a place is its information, independent of the value there."""

import math

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.local_utility import LocalUtility
from swarmbo.acquisition.situation import Situation
from swarmbo.records import Goal
from swarmbo.registry import FIELD, kind


@kind("acquisition", FIELD)
class Information(ChainAcquisition, frozen=True, tag_field="kind", tag="information"):
    """The information term of distributed batch GP-UCB alone (Daxberger & Low 2017, eq. (5)).

    w_n = s_f sqrt(log Psi_n|nB / log(1 + 1/s^2)), with s_f^2 the prior variance and s^2 the noise variance over it. It
    is in the unit of the field, and s_f for an unknown location. With prices, a measurement is worthwhile if w_n
    exceeds the price. The settings are those of ``ChainAcquisition``.

    Example:
        >>> import swarmbo as sb
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], acquisition=sb.Information())
        >>> team.attach(line[:11], -10.0 * line[:11, 0])  # high values at 0; nothing known beyond 0.5
        >>> points = team.ask({"a": line, "b": line}).points
        >>> all(x[0] > 0.6 for x in points.values()), bool(points["a"][0] != points["b"][0])
        (True, True)
    """

    def aim(self, level: float | None) -> Goal:
        """The map."""
        return "map"

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Information of locations alone."""
        noise_variance, bonus = information_scale(situation, self.noise_ratio_floor)
        return LocalUtility(1.0, bonus, noise_variance, _nothing, neighbours_noise=situation.belief.noise_variance)


def information_scale(situation: Situation, noise_ratio_floor: float) -> tuple[float, float]:
    """Noise variance for Psi, and the weight of sqrt(log Psi) that gives unknown places the prior std.

    ``noise_ratio_floor`` is the least ratio of noise variance to prior variance.
    """
    prior = situation.belief.prior_variance
    noise_variance = max(situation.belief.noise_variance, noise_ratio_floor * prior)
    return noise_variance, math.sqrt(prior / math.log1p(prior / noise_variance))


def _nothing(mean: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    return np.zeros_like(mean)
