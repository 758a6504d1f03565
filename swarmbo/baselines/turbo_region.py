"""The trust region of TuRBO-1, replayed from outcomes.

Source: Eriksson, Pearce, Gardner, Turner & Poloczek 2019 (Scalable global optimization via local Bayesian
optimization), section 2 and supplement; the threshold of an improvement, which is not in print, is that of their
program.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.settings import Count, Positive, Settings, require

_GAIN = 1e-3  # an improvement is larger than this share of the best outcome's size


class TurboRegion(Settings, frozen=True):
    """How the region reacts; lengths are shares of the sides of the domain.

    Args:
        initial: Length at first, > 0.
        smallest: The region starts over elsewhere when it is shorter, > 0.
        largest: It grows no longer than that.
        successes: It doubles after this many improvements in a row, >= 1.
        failures: It is halved after this many evaluations in a row without one, >= 1; None: the larger of 4 and the
            number of variables, which is the paper's for one evaluation at a time.
        fresh: Points of the new design when it starts over, >= 1.
    """

    initial: float = 0.8
    smallest: Positive = 2.0**-7
    largest: float = 1.6
    successes: Count = 3
    failures: Count | None = None
    fresh: Count = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "initial", lambda v: v >= self.smallest, "a number >= `smallest`")
        require(self, "largest", lambda v: v >= self.initial, "a number >= `initial`")

    def replay(
        self,
        outcomes: Float[np.ndarray, " t"],
        initial: int,
        n_dims: int,
        *,
        chosen: Bool[np.ndarray, " t"] | None = None,
        steps: Bool[np.ndarray, " t"] | None = None,
    ) -> "RegionState":
        """Where the region stands.

        Args:
            outcomes: In the order they were told; NaN (failed) counts as no improvement.
            initial: How many of the first that were chosen belong to the initial design.
            n_dims: Number of variables.
            chosen: Which are of points that the method chose; None: all. Others are known, and do not count.
            steps: Which of those may count for or against it, since they came back; None: all.
        """
        own = np.ones(len(outcomes), dtype=bool) if chosen is None else chosen
        counted = own if steps is None else steps
        tolerance = self.failures or max(4, n_dims)
        first, restarts, design, length, wins, losses, best = 0, 0, initial, self.initial, 0, 0, -math.inf
        n_chosen = 0  # since the search last started over
        for t, outcome in enumerate(outcomes):
            known = bool(np.isfinite(outcome))
            n_chosen += int(own[t])
            if counted[t] and n_chosen > design:
                improved = known and (math.isinf(best) or outcome > best + _GAIN * abs(best))
                wins, losses = (wins + 1, 0) if improved else (0, losses + 1)
                if wins == self.successes:
                    length, wins = min(2.0 * length, self.largest), 0
                elif losses == tolerance:
                    length, losses = length / 2.0, 0
            best = max(best, float(outcome)) if known else best
            if length < self.smallest:
                first, restarts, design = t + 1, restarts + 1, self.fresh
                length, wins, losses, best, n_chosen = self.initial, 0, 0, -math.inf, 0
        return RegionState(first, restarts, length, max(design - n_chosen, 0))


@dataclass(frozen=True)
class RegionState:
    """Where a region stands.

    Args:
        first: Evaluations before this one are set aside.
        restarts: How often it started over.
        length: Its base length.
        n_fresh: How many points of its initial design are still to come.
    """

    first: int
    restarts: int
    length: float
    n_fresh: int


def region_around(
    centre: Float[np.ndarray, " n"], length: float, lengthscales: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Corners of the region: its sides are proportional to the lengthscales and have ``length`` as geometric mean.

    Args:
        centre: In the unit cube.
        length: The base length.
        lengthscales: Of the model, > 0.

    Returns:
        Lower and upper corner, cut off at the faces of the unit cube.
    """
    sides = length * np.exp(np.log(lengthscales) - np.log(lengthscales).mean())
    return np.clip(centre - sides / 2.0, 0.0, 1.0), np.clip(centre + sides / 2.0, 0.0, 1.0)


def perturbed(
    rng: np.random.Generator,
    centre: Float[np.ndarray, " n"],
    points: Float[np.ndarray, "m n"],
    probability: float,
) -> Float[np.ndarray, "m n"]:
    """Candidates: the centre with each coordinate replaced, with a probability, by that of a point; at least one is.

    Args:
        rng: Says which coordinates.
        centre: Of the region.
        points: In the region.
        probability: In (0, 1].
    """
    m, n = points.shape
    replaced = rng.random((m, n)) <= probability
    untouched = np.flatnonzero(~replaced.any(axis=1))
    replaced[untouched, rng.integers(n, size=len(untouched))] = True
    return np.where(replaced, points, centre)
