"""Limits on measured quantities (black-box constraints): one model each, and the region of probable violations."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, TimeAxis
from swarmbo.belief.gp.observations import standardisation
from swarmbo.belief.model import transforms
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.success import excess_of
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.problem.coding import Coding
from swarmbo.problem.data import Dataset
from swarmbo.problem.no_go import Limit, Shape
from swarmbo.spaces import Domain

_ASSURED, _RISE = 0.25, 0.5  # required distance within the limit, and its rise per excess violation, in std
_OPTIMISM = 3.0  # standard deviations to subtract for an optimistic bound
_MARGIN, _STEEPNESS = 4e-3, 400.0  # width and steepness of the penalty on a violation in ``ProbablyViolated.unit``
_UNKNOWN = 1e-300  # violation recorded for an unknown quantity
_FEWEST = 3  # fewest measurements for a model; and the rank of the measurement whose distance is the unit
_SMALLEST_UNIT = 1e-2  # smallest unit, in prior standard deviations of the quantity: searches stop at steeper ridges

Range = tuple[float | None, float | None]


@dataclass(frozen=True, eq=False)
class ProbablyViolated:
    """Region of joint points where a measured quantity is probably outside its range from ``low`` to ``high``.
    ``assured``: required standard deviations within the range. ``coding``: conversion to the belief's coordinates.
    """

    belief: AdditiveGP
    low: float | None
    high: float | None
    assured: float = _ASSURED
    coding: Coding | None = None

    @cached_property
    def unit(self) -> float:
        """Distance of the third nearest measurement from the limit. A fixed unit would exclude good points near it."""
        ends, h = [end for end in (self.low, self.high) if end is not None], self.belief.hyperparameters
        prior = float(h.scales[0] * np.sqrt(h.outputscales[0]))
        far = np.abs(self.belief.totals[:, None] - ends).min(axis=1, initial=np.inf)
        return float(np.clip(np.partition(far, _FEWEST - 1)[_FEWEST - 1], _SMALLEST_UNIT * prior, prior))

    def depth(self, U: Float[np.ndarray, "m n"], box: Domain) -> Shape:
        """Violation (m,) in ``unit``, and its gradient (m, n)."""
        (inner,) = stacks_of(self.belief.graph)
        Z = U if self.coding is None else self.coding.inside(U)
        found = self.belief.local(inner, Z[None], gradient=True)
        assert found.dmean is not None
        assert found.dvar is not None
        (mean,), (std,) = found.mean, np.sqrt(found.var + 1e-12 * self.belief.prior_variance)
        by_std = found.dvar[0] / (2.0 * std[:, None])
        sides = [(1.0, self.high)] * (self.high is not None) + [(-1.0, self.low)] * (self.low is not None)
        lacks = np.array([sign * (mean - end) + self.assured * std for sign, end in sides if end is not None])
        slopes = np.array([sign * found.dmean[0] + self.assured * by_std for sign, _ in sides])
        worst, rows = lacks.argmax(axis=0), np.arange(len(U))
        slope = slopes[worst, rows]
        if self.coding is not None:
            (stack,) = stacks_of(self.coding.over(self.belief.graph))
            (slope,) = self.coding.slopes(stack, inner, slope[None])
        return lacks[worst, rows] / self.unit, slope / self.unit


def optimistic_stds(situation: JointSituation) -> float | None:
    """Standard deviations to subtract from predicted violations for an optimistic bound; None for a cautious bound.

    The number is 3. It is 0 for every second query, and less often while other queries are pending, as these do not
    change the mean. It is None without a known violation, and once an evaluation keeps all limits. A cautious bound
    before that would hold the search near the measured points.
    """
    history, n_batched = situation.history, situation.n_batched
    if history.measured is None:
        return None
    violations = _violations(history, situation.ranges)
    if not (violations > _UNKNOWN).any() or (violations[np.isfinite(history.sums)] == 0.0).any():
        return None
    period = 2 + len(situation.pending) - n_batched
    return _OPTIMISM if n_batched or len(np.unique(situation.basis())) % period else 0.0


def probably_violated(situation: JointSituation, time: TimeAxis | None) -> tuple[Limit, ...]:
    """For each limited quantity with three or more measurements that differ, the region of probable violation.

    The result is a pure function of the situation. With a time axis, old measurements lose weight.
    """
    measured, ranges, inside, out = situation.history.measured, situation.ranges, situation.inside, list[Limit]()
    if measured is None:
        return ()
    owner, names, beyond = situation.graph.agents[0], inside.graph.variables, _distances_outside(measured, ranges)
    graph = FactorGraph(inside.graph.factors[:1], (names,), (owner,), names, inside.graph.variable_owners)
    optimism = optimistic_stds(situation)
    for column, (name, (low, high)) in enumerate(ranges.items()):
        known = np.isfinite(measured[:, column])
        if int(known.sum()) < _FEWEST or not standardisation(measured[known, column])[2]:
            continue  # equal measurements do not determine a unit for the model
        rounds = np.zeros(len(known)) if inside.history.rounds is None else inside.history.rounds
        data = (column_values[known] for column_values in (inside.history.X, measured[:, column], rounds))
        arrays = tuple(array.tobytes() for array in (inside.domain.low, inside.domain.high, *data))
        fitted = _fitted(graph, arrays, time, situation.seed, name, len(situation.history)).at(situation.round)
        # the model may be overconfident: recent violations make the next queries more careful
        excess = excess_of(beyond[situation.chosen & known, column] == 0.0)
        assured = _ASSURED + _RISE * excess
        if optimism is not None:
            fitted, assured = fitted.condition_on_pending(inside.out.points, inside.out.rounds), -optimism
        region = ProbablyViolated(fitted, low, high, assured, situation.coding)
        columns = np.arange(situation.domain.n_dims)
        width = _MARGIN * (1.0 + excess)
        out.append(Limit(region, columns, situation.domain, margin=width, bend=width, steepness=_STEEPNESS))
    return tuple(out)


@lru_cache(maxsize=16)  # all queries of a batch need the same fit
def _fitted(
    graph: FactorGraph, arrays: tuple[bytes, ...], time: TimeAxis | None, seed: int, name: str, n: int
) -> AdditiveGP:
    low, high, X, y, rounds = map(np.frombuffer, arrays)
    settings = AdditiveGPSettings(noise_floor=transforms.NOISE_FLOOR, noise_log_std=transforms.NOISE_LOG_STD, time=time)
    belief = AdditiveGP.create(settings, graph, Domain(low, high), "total")
    belief = belief.update(X.reshape(len(y), -1), y, rounds=rounds)
    return belief.fit(stream(seed, "limit", name=name, evaluations=n))


def _distances_outside(measured: Float[np.ndarray, "t c"], ranges: Mapping[str, Range]) -> Float[np.ndarray, "t c"]:
    """Distances of measured quantities from their ranges; 0 within the range, and for unknown quantities."""
    low, high = np.array([*ranges.values()], dtype=float).T  # NaN for an open end
    return np.fmax(np.fmax(low - measured, measured - high), 0.0)


def _violations(history: Dataset, ranges: Mapping[str, Range]) -> Float[np.ndarray, " t"]:
    """Largest violation of each evaluation relative to the spread of measurements; an unknown one is ``_UNKNOWN``."""
    measured = history.measured
    assert measured is not None
    spread = np.fmax.reduce(measured, initial=np.nan) - np.fmin.reduce(measured, initial=np.nan)
    over = _distances_outside(measured, ranges) / np.where(spread > 0.0, spread, 1.0)
    return np.where(np.isfinite(measured), over, _UNKNOWN).max(axis=1)


def least_violating(history: Dataset, ranges: Mapping[str, Range]) -> Bool[np.ndarray, " t"]:
    """Mask of successful evaluations that keep all limits or, if there are none, break them least."""
    is_told, over = np.isfinite(history.sums), _violations(history, ranges)
    return is_told & (over == over[is_told].min(initial=np.inf))


def probably_feasible(situation: JointSituation, time: TimeAxis | None) -> Bool[np.ndarray, " t"]:
    """Mask of evaluations from which the best may be recommended: those of ``least_violating``.

    With a time axis, limits change: then these are any successful evaluations that probably keep all limits at present.
    """
    history, kept = situation.history, least_violating(situation.history, situation.ranges)
    limits, U = () if time is None else probably_violated(situation, time), situation.domain.to_unit(history.X)
    now = np.isfinite(history.sums) & np.all([limit.allows(U) for limit in limits], axis=0)
    return now if limits and now.any() and optimistic_stds(situation) is None else kept


def barring_better_infeasible(history: Dataset, ranges: Mapping[str, Range], *, moves: bool = False) -> Dataset:
    """History that bars infeasible evaluations with outcomes at least as high as the best feasible one.

    Evaluations of ``least_violating`` count as feasible. A search around a better, infeasible point might never leave
    the region of violations. Without a sum, evaluations are barred if a measured quantity breaks its limit further.
    Each of their outcomes is reduced to the largest feasible one of its kind, as far higher ones would hide the
    differences of the others; not if limits move (``moves``), as they may become feasible. Evaluations before the
    first that keeps all limits count neither for nor against a method, like an initial design.
    """
    kept, sums, chosen = least_violating(history, ranges), history.sums, history.chosen
    over = _violations(history, ranges)
    least = max(over[kept].min(initial=np.inf), _UNKNOWN)
    barred = ~kept & np.where(np.isfinite(sums), sums >= sums[kept].max(initial=-np.inf), over > least)
    if chosen is not None:
        chosen = chosen & np.logical_or.accumulate((over == 0.0) | (kept & (over <= _UNKNOWN)))
    if moves or not barred.any():
        return replace(history, barred=barred if barred.any() else None, chosen=chosen)
    columns = np.column_stack([history.totals, history.factors])
    best = np.where(kept[:, None] & np.isfinite(columns), columns, -np.inf).max(axis=0)
    is_too_high = barred[:, None] & (columns > best) & (best > -np.inf)
    columns = np.where(is_too_high, best, columns)
    return replace(history, totals=columns[:, 0], factors=columns[:, 1:], barred=barred, chosen=chosen)
