"""A trust region around the incumbent that grows with success and shrinks with failure, replayed from the history.

Source: Eriksson et al. 2019 (TuRBO), section 3, with smaller counts and a fixed failure tolerance; here the region is
the same fraction of every side. It has no stored state: every agent with the outcomes computes the same region.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.settings import Count, Fraction, NonNegative, Settings, Whole, require

Outcomes = Float[np.ndarray, " t"]
Steps = Bool[np.ndarray, " t"]
Basis = Int[np.ndarray, " t"]
Point = Float[np.ndarray, " n"]
_MOST_IDLE = 3  # most idle evaluations of a batch, which tries about as much as three single decisions
_EDGE = 1e-6  # sides of the domain: tolerance beyond the region's faces


class BoxState(NamedTuple):
    """State of a trust region after a history."""

    side: float  # as a share of the domain's
    idle: int  # number of latest evaluations in a row without a notable gain, at most three of a batch
    spread: float  # best minus median of the outcomes that are not steps; if these are all equal, of all outcomes


class TrustRegion(Settings, frozen=True):
    """Initial side of a trust region, and the rules by which it changes.

    Args:
        initial: First side, as a share of the domain's side, from ``smallest`` to 1.
        successes: Number of improvements in a row, >= 1, after which the side doubles.
        failures: Number of evaluations in a row without an improvement, >= 1, after which the side halves.
        smallest: Smallest side, as a share of the domain's side, in (0, 1].

    Evaluations that were all decided before any of their outcomes was known are a batch. A batch counts once: it
    improves if any of its outcomes is better than all earlier ones.

    Example:
        >>> box = TrustRegion(initial=0.4, successes=2, failures=2)
        >>> [box.state(np.array(y), n_initial=1).side for y in ([1.0, 2.0, 3.0], [1.0, 0.0, 0.5])]
        [0.8, 0.2]
    """

    initial: Fraction = 0.4
    successes: Count = 3
    failures: Count = 3
    smallest: Fraction = 2.0**-7

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "initial", lambda side: side >= self.smallest, f"a number >= `smallest`, {self.smallest:g}")

    def state(
        self,
        outcomes: Outcomes,
        n_initial: int = 0,
        steps: Steps | None = None,
        places: Float[np.ndarray, "t n"] | None = None,
        gain: float = 0.0,
        basis: Basis | None = None,
    ) -> BoxState:
        """State of the region after outcomes in the order of their arrival.

        Args:
            outcomes: Outcome of each evaluation (t,); NaN, a failure, has no effect.
            n_initial: Number of first steps that belong to an initial design.
            steps: Mask of outcomes that are steps of the search; None: all. Others, such as attached evaluations, are
                known, but count neither as improvements nor as failures.
            places: Points (t, n) in the unit cube. A point outside the region of its time is not a step, but moves the
                region if it is better. None: all were inside.
            gain: Smallest gain that counts, as a share >= 0 of the spread. Smaller gains add up, also outside the
                region.
            basis: Number of outcomes known when each evaluation was requested; None: all earlier ones.
        """
        counted = _after(n_initial, outcomes, steps)
        spread = _spread(outcomes[~counted]) or _spread(outcomes)
        # best outcome before each one and, at last, of all (-inf: none), and its index (-1: none)
        bests = np.fmax.accumulate(np.concatenate([[-np.inf], outcomes]))
        records = np.where(outcomes > bests[:-1], np.arange(len(outcomes)), -1)
        leaders = np.maximum.accumulate(np.concatenate([[-1], records]))
        is_step = counted & ~np.isnan(outcomes) & (bests[1:] > -np.inf)
        side, successes, failures = self.initial, 0, 0
        idle, notable = 0, -np.inf
        others = [[index] for index in np.flatnonzero(~counted).tolist()]
        for turn in sorted(_batches(counted, basis) + others, key=lambda turn: turn[-1]):
            # a batch is judged at its last member, as all were chosen in one region around the best point before
            centre, best_before, best = leaders[turn[0]], bests[turn[0]], bests[turn[-1] + 1]
            tried = [i for i in turn if is_step[i]]
            if places is not None:
                reach = side / 2.0 + _EDGE
                tried = [i for i in tried if centre >= 0 and np.abs(places[i] - places[centre]).max() <= reach]
            if tried:
                is_success = any(outcomes[i] > best_before for i in tried)
                successes, failures = (successes + 1, 0) if is_success else (0, failures + 1)
            # counts restart at each change of the side, as in TuRBO
            if successes == self.successes:
                side, successes = min(2.0 * side, 1.0), 0
            elif failures == self.failures:
                side, failures = max(0.5 * side, self.smallest), 0
            if best > notable + gain * spread:
                idle, notable = 0, best
            else:
                idle += min(len(tried), _MOST_IDLE)
        return BoxState(side, idle, spread)


class Restarts(Settings, frozen=True):
    """Rule for restarts of a search, and the number of points in unexplored space after a restart.

    Args:
        after: Number of evaluations without a gain after which a search restarts, >= 0; 0: it never restarts.
        gain: Largest gain that counts as none, as a share >= 0 of the spread (best minus median) of its outcomes.
        fresh: Number of points in unexplored space after a restart, >= 1.

    Example:
        >>> restarts, design = Restarts(after=3), [0.0, 1.0, 2.0]
        >>> stuck, gaining = np.array([*design, 1.5, 0.5, 2.0]), np.array([*design, 1.5, 0.5, 2.5])
        >>> [restarts.is_due(y, since=0, start=3, patience=1) for y in (stuck, gaining)]
        [True, False]
    """

    after: Whole = 12
    gain: NonNegative = 1e-3
    fresh: Count = 6

    def is_due(
        self,
        outcomes: Outcomes,
        *,
        since: int,
        start: int,
        patience: int,
        steps: Steps | None = None,
        basis: Basis | None = None,
    ) -> bool:
        """True if the last complete period of ``patience`` × ``after`` evaluations (or batches) had no gain.

        Args:
            outcomes: Outcome of each evaluation (t,); NaN, a failure, does not count.
            since: Index of the first evaluation of this search; earlier ones do not count.
            start: Index of the evaluation at which the first period begins.
            patience: Factor on the waiting time, >= 1.
        """
        counts = _after(0, outcomes, steps)
        batches = _batches(counts & ~np.isnan(outcomes) & (np.arange(len(outcomes)) >= start), basis)
        length = patience * self.after
        n_periods = len(batches) // length if length else 0
        if n_periods < 1:
            return False
        turn = np.concatenate(batches[(n_periods - 1) * length : n_periods * length])
        before = np.setdiff1d(np.arange(since, turn[-1]), turn)
        seen = outcomes[since : turn[-1] + 1]
        best, then = (float(np.fmax.reduce(values, initial=-np.inf)) for values in (outcomes[before], seen))
        return then == best or then - best <= self.gain * _spread(seen)


def box_around(centre: Point, side: float | Point) -> tuple[Point, Point]:
    """Corners of the box of a given side, or sides (n,), around a point of the unit cube, cut off at its faces."""
    return np.clip(centre - side / 2.0, 0.0, 1.0), np.clip(centre + side / 2.0, 0.0, 1.0)


def _after(n_initial: int, outcomes: Outcomes, steps: Steps | None) -> Steps:
    all_steps = np.ones(len(outcomes), dtype=bool) if steps is None else steps
    return all_steps & (np.cumsum(all_steps) > n_initial)


def _batches(counted: Steps, basis: Basis | None) -> list[list[int]]:
    """Runs of steps that were all requested before the outcome of their first was known."""
    batches = list[list[int]]()
    for index in np.flatnonzero(counted).tolist():
        if batches and (index if basis is None else basis[index]) <= batches[-1][0]:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _spread(values: Outcomes) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.max() - np.median(seen)) if len(seen) else 0.0
