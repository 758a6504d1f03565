"""Maps and level sets: the utility of a place is its information, or that about its side of a level."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.local_utility import LocalUtility
from swarmbo.acquisition.situation import Situation
from swarmbo.errors import ConfigError
from swarmbo.records import Goal
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Positive


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

    goal: ClassVar[Goal | None] = "map"

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


@kind("acquisition", FIELD)
class Straddle(ChainAcquisition, frozen=True, tag_field="kind", tag="straddle"):
    """The straddle score, 1.96 std - |mean - level|, split over the chain (Bryan et al. 2005, section 4).

    In a batch the standard deviation is that of the information term: w_n = width s_f sqrt(log Psi_n|nB / log(1 +
    1/s^2)) - |mean(x_n) - level|, see ``Information``. It is positive if the level lies within the interval; with
    prices, a measurement is worthwhile if w_n exceeds the price. The other settings are those of ``ChainAcquisition``.

    Args:
        level: In the unit of the field; None takes that of the world.
        width: Half width of the interval, in standard deviations, > 0.

    Example:
        >>> import swarmbo as sb
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], acquisition=sb.Straddle(level=0.7))
        >>> team.attach(line, line[:, 0])  # the field is x, so the question is open near 0.7 only
        >>> all(abs(x[0] - 0.7) < 0.11 for x in team.ask({"a": line, "b": line}).points.values())
        True
    """

    level: float | None = None
    width: Positive = 1.96

    goal: ClassVar[Goal | None] = "level"

    def check_world(self, level: float | None) -> None:
        """Refuse a world without a level if the settings have none either.

        Raises:
            ConfigError: If neither states one.
        """
        if level is None and self.level is None:
            raise ConfigError(
                "got none, and the environment states none; wanted a level, here or by an environment with the "
                "task 'level'",
                at="$.acquisition.level",
            )

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Uncertainty about the field's side of the level."""
        self.check_world(situation.level)
        level = situation.level if self.level is None else self.level
        assert level is not None
        noise_variance, bonus = information_scale(situation, self.noise_ratio_floor)
        own_noise = situation.belief.noise_variance
        return LocalUtility(
            self.width, self.width * bonus, noise_variance, NearLevel(level), neighbours_noise=own_noise
        )


@dataclass(frozen=True)
class NearLevel:
    """Negative distance to a level."""

    level: float

    def __call__(self, mean: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
        """Value for means, in their unit."""
        return -np.abs(mean - self.level)
