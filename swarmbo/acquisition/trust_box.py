"""A box around the incumbent that grows with success and shrinks with failure, replayed from the history.

Source: Eriksson et al. 2019 (TuRBO), section 3, with smaller counts and a fixed failure tolerance; here the box is the
same fraction of every side. Nothing of it is stored: every agent that knows the outcomes works out the same box.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.settings import Settings, require


class TrustBox(Settings, frozen=True):
    """How a box reacts.

    Args:
        initial: Side at first, as a share of the domain's, in (0, 1].
        successes: After this many improvements in a row, >= 1, the side doubles.
        failures: After this many evaluations in a row without one, >= 1, it halves.
        smallest: Side below which it does not shrink, in (0, 1].
        restart_after: Start over after this many evaluations, >= 1, that together gain less than ``restart_gain``;
            0 never does.
        restart_gain: As a share of the spread (best less median) of the first outcomes.
        fresh: Random points after a restart, >= 1.
    """

    initial: float = 0.4
    successes: int = 3
    failures: int = 3
    smallest: float = 2.0**-7
    restart_after: int = 0
    restart_gain: float = 1e-3
    fresh: int = 6

    def __post_init__(self) -> None:
        for field in ("initial", "smallest"):
            require(self, field, lambda v: 0.0 < v <= 1.0, "a number in (0, 1]")
        for field in ("successes", "failures", "fresh"):
            require(self, field, lambda v: v >= 1, "an integer >= 1")
        require(self, "restart_after", lambda v: v >= 0, "an integer >= 0")
        require(self, "restart_gain", lambda v: v >= 0.0, "a number >= 0")

    def replay(self, outcomes: Float[np.ndarray, " t"], n_initial: int) -> "BoxState":
        """Where the box stands after outcomes in the order they were told.

        Args:
            outcomes: One per evaluation; NaN (failed) counts as no improvement.
            n_initial: How many of the first ones belong to the initial design.
        """
        t = len(outcomes)
        first, side, wins, losses, since, top_then = 0, self.initial, 0, 0, 0, -np.inf
        start = min(n_initial, t)
        best = _largest(outcomes[:start])
        spread = _spread(outcomes[:start])
        top_then = best
        n_fresh = 0
        for i in range(start, t):
            y = outcomes[i]
            if n_fresh > 0:
                n_fresh -= 1
                best = max(best, y) if np.isfinite(y) else best
                if n_fresh == 0:
                    side, wins, losses, since, top_then = self.initial, 0, 0, 0, best
                continue
            improved = bool(np.isfinite(y) and y > best + 1e-3 * abs(best) * (1e-3 if spread == 0.0 else 0.0))
            best = max(best, y) if np.isfinite(y) else best
            wins, losses = (wins + 1, 0) if improved else (0, losses + 1)
            if wins == self.successes:
                side, wins = min(2.0 * side, 1.0), 0
            elif losses == self.failures:
                side, losses = max(0.5 * side, self.smallest), 0
            since += 1
            if self.restart_after and since >= self.restart_after:
                if best - top_then < self.restart_gain * spread:
                    first, n_fresh, best = i + 1, self.fresh, -np.inf
                since, top_then = 0, best
        return BoxState(first=first, side=side, n_fresh=n_fresh)


@dataclass(frozen=True)
class BoxState:
    """Where a box stands.

    Args:
        first: Evaluations before this one are set aside (a restart).
        side: Of the box, as a share of the domain's.
        n_fresh: How many random points are still to come after a restart.
    """

    first: int
    side: float
    n_fresh: int


def box_around(centre: Float[np.ndarray, " n"], side: float) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Corners of the box of a given side around a point of the unit cube, cut off at its faces."""
    return np.clip(centre - side / 2.0, 0.0, 1.0), np.clip(centre + side / 2.0, 0.0, 1.0)


def _largest(values: Float[np.ndarray, " t"]) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else -np.inf


def _spread(values: Float[np.ndarray, " t"]) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.max() - np.median(seen)) if len(seen) else 0.0
