"""Variance reduction for a map, for a level, or for a peak."""

from typing import Annotated

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr

from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.planning_places import planning_places
from swarmbo.acquisition.situation import Situation
from swarmbo.acquisition.target_utility import TargetUtility
from swarmbo.errors import ConfigError
from swarmbo.records import Goal
from swarmbo.registry import FIELD, kind
from swarmbo.settings import require, within

_LEAST_NOISE = 1e-6  # of the prior variance: keeps known places uninformative in spite of rounding
_LEAST_STD = 1e-9  # of the prior standard deviation, for known places


@kind("acquisition", FIELD)
class TargetedVariance(ChainAcquisition, frozen=True, tag_field="kind", tag="targeted-variance"):
    """Weighted variance reduction over locations spread over the map: W(A) = sum_s w_s [var(s) - var(s | A)].

    The weight of a location s with mean mu(s) and standard deviation sigma(s) is

    * ``map``: 1 everywhere;
    * ``level``: the probability Phi(-|mu(s) - level| / sigma(s)) that the map is on the wrong side of the level there;
    * ``peak``: the probability Phi((mu(s) - best) / sigma(s)) that it exceeds the best mean of a measured location.

    The floor is added to the last two, so that agents still explore locations that look decided, as all do near a
    common start. Values are scaled so that an unknown location among such locations of weight 1 has the prior standard
    deviation as utility; prices compare with that.

    Agents on a chain consider the next B, as in ``ChainAcquisition``, whose other settings apply too;
    ``noise_ratio_floor`` has no effect here.

    Args:
        task: Task; by default ``level`` if a level is stated, here or by the world, else ``map``.
        level: In the unit of the field, for the task ``level``; None takes that of the world.
        floor: Added to the weights of level and peak, 0 to 1.
        places: Approximate number of locations of the map that count, 1 to 4096.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> acquisition = sb.TargetedVariance(level=0.7)
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], acquisition=acquisition)
        >>> team.attach(line[::5], line[::5, 0])  # the field is x, so the question is open near 0.7 only
        >>> all(abs(x[0] - 0.7) < 0.11 for x in team.ask({"a": line, "b": line}).points.values())
        True
    """

    task: Goal | None = None
    level: float | None = None
    floor: Annotated[float, within(0, 1)] = 1e-3
    places: Annotated[int, within(1, 4096)] = 230

    def __post_init__(self) -> None:
        super().__post_init__()
        require(
            self, "level", lambda level: level is None or self.task in (None, "level"), "no level, or the task 'level'"
        )

    def aim(self, level: float | None) -> Goal:
        """The task; by default the level, if one is stated."""
        return self.task or ("map" if level is None and self.level is None else "level")

    def check_world(self, level: float | None) -> None:
        """Refuse a world without a level if the task needs one and the settings have none.

        Raises:
            ConfigError: If neither states one.
        """
        if self.task == "level" and level is None and self.level is None:
            raise ConfigError(
                "got none, and the world states none; wanted the level that is watched: set it here, or have a world "
                "with the task 'level'",
                at="$.acquisition.level",
            )

    def utility(self, situation: Situation, n_agents: int | None = None) -> TargetUtility:
        """Information of measurements about the locations that count."""
        belief, targets = situation.belief, planning_places(situation.domain, situation.sites, self.places)
        cache, prior = belief.posterior_cache(targets), max(belief.prior_variance, np.finfo(float).tiny)
        every = np.arange(len(targets))
        weights = self.weights(situation, cache.mean, np.sqrt(np.maximum(cache.var, _LEAST_STD**2 * prior)))
        # the largest number of places that one measurement informs about, 1 for each fully correlated one
        known = cache.var + _LEAST_NOISE * prior
        told_of = (cache.cov(every, every) ** 2 / known / known[:, None]).sum(axis=0).max()
        noise_variance = max(belief.noise_variance, _LEAST_NOISE * prior)
        return TargetUtility(targets, weights / (np.sqrt(prior) * max(told_of, 1.0)), noise_variance)

    def weights(
        self, situation: Situation, mean: Float[np.ndarray, " t"], std: Float[np.ndarray, " t"]
    ) -> Float[np.ndarray, " t"]:
        """Weights of locations with mean and standard deviation (> 0) of the field."""
        self.check_world(situation.level)
        level = situation.level if self.level is None else self.level
        aim = self.aim(situation.level)
        if aim == "peak":
            return ndtr((mean - situation.best_measured()) / std) + self.floor
        if aim == "map":
            return np.ones(len(mean))
        assert level is not None
        return ndtr(-np.abs(mean - level) / std) + self.floor
