"""Penalties that keep joint points to likely successes, and out of no-go regions.

Without a failure or a region, they are not used. The learned classifier of failures (``swarmbo.belief.model.success``)
is a sum of terms. Each factor keeps its own terms above a least value, and a point that is still too likely to fail
moves back towards a successful one. A factor with all variables of a region avoids it and a margin; if there is none,
the region becomes a factor. Points that are still inside are moved out in the last step of a decision.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.box_functions import ComposedFunctions
from swarmbo.belief.model.success import Requirement, Term
from swarmbo.boundary.rng import stream
from swarmbo.boundary.values import unused_prefix
from swarmbo.graph import BoxFunctions, FactorGraph, FactorStack, stacks_of
from swarmbo.graph.box_functions import Climbing, Points, Received, Values
from swarmbo.problem.no_go import Limit

_STEEP = 4.0  # penalty of a missing logit, in spreads of the objective
_SOFT = 0.2  # logits over which the penalty bends from zero to a slope
_SLACK = 0.1  # tolerated missing logits: what the bend may leave
_SAMPLED = 64  # random points for the spread of a factor's function
_TRIED = 64  # points on the line back

Point = Float[np.ndarray, " n"]
OwnPoints = Float[np.ndarray, "m b"]
Violation = tuple[Float[np.ndarray, " m"], OwnPoints]  # violation and its gradient at m points
ViolationOf = Callable[[OwnPoints], Violation]


@dataclass(frozen=True, eq=False)
class Penalty:
    """Penalty of one factor at points that violate a requirement or a limit."""

    violation: ViolationOf  # violation at points of some variables, at most 0 if there is none, and its gradient
    inside: tuple[int, ...]  # positions of these variables in the factor's scope
    bend: float  # violation over which the penalty bends from zero to a slope
    weight: float  # penalty for a violation of 1, in the unit of the objective

    def at(self, U: Float[np.ndarray, "m a"]) -> Violation:
        """Value of the penalty at points (m, a) of the factor's scope, and its gradient; 0 without a violation."""
        own = list(self.inside)
        violation, slope = self.violation(U[:, own])
        violation = np.maximum(violation, 0.0)
        # quadratic, then linear: a continuous slope for climbs, and a bounded one far inside
        bent = np.where(violation < self.bend, violation**2 / (2.0 * self.bend), violation - 0.5 * self.bend)
        gradient = np.zeros(U.shape)
        gradient[:, own] = (self.weight * np.minimum(violation / self.bend, 1.0))[:, None] * slope
        return self.weight * bent, gradient


@dataclass(frozen=True, eq=False, kw_only=True)
class PenalisedFunctions(ComposedFunctions):
    """Local functions minus the penalties of each factor, which are 0 without a violation."""

    penalties: Mapping[str, Sequence[Penalty]]

    def value(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Each factor's function minus its penalties."""
        value = super().value(stack, U, received)
        for row, loss, _ in self._losses(stack, U):
            value[row] -= loss
        return value

    def value_and_gradient(self, stack: FactorStack, U: Points, received: Received) -> Climbing:
        """Objective of a factor minus its penalties, and its gradient."""
        value, gradient = super().value_and_gradient(stack, U, received)
        for row, loss, slope in self._losses(stack, U):
            value[row] -= loss
            gradient[row] -= slope
        return value, gradient

    def of(self, factors: Iterable[str]) -> Self:
        """Functions of some factors only, with their penalties."""
        own = super().of(factors)
        return replace(own, penalties={f: some for f, some in self.penalties.items() if f in (own.owned or ())})

    def _losses(self, stack: FactorStack, U: Points) -> Iterator[tuple[int, *Violation]]:
        for row, factor in enumerate(stack.factors):
            for penalty in self.penalties.get(factor, ()):
                yield row, *penalty.at(U[row])


def with_requirements(
    functions: BoxFunctions,
    needed: Sequence[Requirement],
    origin: Point,
    spread: Mapping[str, float],
    *,
    tight: bool = False,
) -> PenalisedFunctions:
    """Local functions with penalties for violated requirements, as far as each factor can judge these alone.

    Args:
        functions: The objective.
        needed: Requirements on the joint point.
        origin: A joint point of the unit cube that meets them. Each factor may use up this point's margin.
        spread: Spread of each factor's function: see ``spreads``.
        tight: Factors may use up equal shares of the margin only: then together they meet each requirement, except for
            terms of variables that no scope contains.
    """
    graph, penalties = functions.graph, dict[str, list[Penalty]]()
    scopes, weights = dict(zip(graph.factors, graph.columns, strict=True)), _part_spreads(graph, spread)
    for requirement in needed:
        shared = _terms_by_factor(requirement, scopes)
        # if not tight, each factor may use the whole margin, as if the other factors stayed at the origin
        spare = max(float(requirement.margin(origin[None])[0]), 0.0) / (len(shared) if tight else 1)
        index_of = {int(column): i for i, column in enumerate(requirement.columns)}
        for factor, terms in shared.items():
            axes = tuple(i for i, column in enumerate(scopes[factor]) if column in index_of)
            columns = np.array([index_of[scopes[factor][i]] for i in axes])
            own = origin[[scopes[factor][i] for i in axes]]
            floor = float(requirement.model.part(terms, own[None], columns)[0][0]) - spare
            violation = partial(_logits_below, floor, requirement, terms, columns)
            penalties.setdefault(factor, []).append(Penalty(violation, axes, _SOFT, _STEEP * weights[factor]))
    return PenalisedFunctions.made_of(functions, penalties=penalties)


def with_limits(functions: BoxFunctions, limits: Sequence[Limit], spread: Mapping[str, float]) -> BoxFunctions:
    """Local functions with penalties that avoid regions and keep constraints.

    The first factor with all variables of a limit has its penalty. Without such a factor, the limit becomes a factor,
    which the first variable's owner owns.
    """
    graph, penalties = functions.graph, dict[str, list[Penalty]]()
    weights = _part_spreads(graph, spread)
    steepest, joined = max(weights.values(), default=1.0), dict[str, tuple[str, ...]]()
    prefix = unused_prefix("limit ", (*graph.factors, *graph.variables))
    for number, limit in enumerate(limits):
        columns = limit.columns.tolist()
        homes = ((f, own) for f, own in zip(graph.factors, graph.columns, strict=True) if set(columns) <= set(own))
        factor, scope = next(homes, (None, columns))
        if factor is None:
            factor = f"{prefix}{number}"
            joined[factor] = tuple(graph.variables[column] for column in columns)
        inside = tuple(scope.index(column) for column in columns)
        weight = limit.steepness * weights.get(factor, steepest)
        penalties.setdefault(factor, []).append(Penalty(partial(_depth_within, limit), inside, limit.bend, weight))
    if joined:
        owners = (graph.variable_owner(scope[0]) for scope in joined.values())
        graph = FactorGraph(
            (*graph.factors, *joined), (*graph.scopes, *joined.values()), (*graph.factor_owners, *owners),
            graph.variables, graph.variable_owners,
        )  # fmt: skip
    return PenalisedFunctions.made_of(functions, graph=graph, penalties=penalties) if penalties else functions


def parts_together(
    graph: FactorGraph, needed: Sequence[Requirement]
) -> list[tuple[Int[np.ndarray, " a"], tuple[Requirement, ...], tuple[str, ...]]]:
    """Variables judged together, with requirements and owners: connected parts, or all if whole evaluations failed."""
    n = len(graph.variables)
    if any(len(requirement.columns) == n for requirement in needed):
        return [(np.arange(n), tuple(needed), graph.agents)]
    out: list[tuple[Int[np.ndarray, " a"], tuple[Requirement, ...], tuple[str, ...]]] = []
    for part in graph.components:
        columns = np.array([graph.column_of[variable] for variable in part.variables])
        if own := tuple(requirement for requirement in needed if set(requirement.columns) <= set(columns)):
            out.append((columns, own, part.agents))
    return out


def is_met(needed: Sequence[Requirement], point: Point, origin: Point) -> bool:
    """True if a joint point is as likely to succeed as required, or at least as the origin."""
    return bool(_missing_logits(needed, point[None], origin)[0] <= _SLACK)


def moved_back(needed: Sequence[Requirement], point: Point, origin: Point) -> Point:
    """First point on the line from a joint point back to the origin that meets the requirements.

    Choices without an order are those of the point on the first half of the line, those of the origin on the second.
    """
    shares = np.linspace(1.0, 0.0, _TRIED + 1)[:, None]
    line = origin + shares * (point - origin)
    for one in needed:
        chosen = one.columns[one.model.counts > 1]
        line[:, chosen] = np.where(shares > 0.5, point[chosen], origin[chosen])
    # the origin itself, without rounding: it meets the requirements by definition
    line[-1] = origin
    return line[int(np.argmax(_missing_logits(needed, line, origin) <= 0.0))]


def spreads(functions: BoxFunctions, seed: int) -> dict[str, float]:
    """Largest excess of each factor's function over its median in the box, at the starts and random points."""
    low, high = functions.low, functions.high
    drawn = low + stream(seed, "success", "spread").random((_SAMPLED, len(low))) * (high - low)
    points, out = np.concatenate([functions.starts, drawn]), dict[str, float]()
    for stack in stacks_of(functions.graph):
        X = stack.take(points)
        values = functions.value(stack, X, functions.unheard(X))
        finite = np.where(np.isfinite(values), values, np.nan)
        for factor, own in zip(stack.factors, finite, strict=True):
            out[factor] = float(np.nanmax(own) - np.nanmedian(own)) if np.isfinite(own).any() else 0.0
    return out


def _part_spreads(graph: FactorGraph, spread: Mapping[str, float]) -> dict[str, float]:
    """Total possible gain of each factor's connected part, to which the factor's penalties are relative."""
    out = dict[str, float]()
    for part in graph.components:
        total = sum(spread[factor] for factor in part.factors)
        out |= dict.fromkeys(part.factors, total or 1.0)  # without any gain the value has no effect
    return out


def _logits_below(
    floor: float, needed: Requirement, terms: tuple[Term, ...], columns: Int[np.ndarray, " b"], U: OwnPoints
) -> Violation:
    """Logits by which a factor's terms of one requirement fall below a floor; ``columns`` are those of its model."""
    value, slope = needed.model.part(terms, U, columns)
    return floor - value, -slope


def _depth_within(limit: Limit, U: OwnPoints) -> Violation:
    """Depth of points inside a region or its margin, in box widths."""
    depth, slope = limit.region.depth(U, limit.bounds)
    return depth + limit.margin, slope


def _missing_logits(
    needed: Sequence[Requirement], U: Float[np.ndarray, "m n"], origin: Point
) -> Float[np.ndarray, " m"]:
    """Logits by which points miss a requirement; 0 at the origin."""
    return np.max([min(r.margin(origin[None])[0], 0.0) - r.margin(U) for r in needed], axis=0)


def _terms_by_factor(requirement: Requirement, scopes: Mapping[str, Sequence[int]]) -> dict[str, tuple[Term, ...]]:
    """Terms of a requirement that lie within a factor's scope, each assigned to the first such factor."""
    out: dict[str, list[Term]] = {}
    for term in requirement.model.terms:
        own = {int(requirement.columns[column]) for column in term.columns}
        factor = next((factor for factor, scope in scopes.items() if own <= set(scope)), None)
        if factor is not None:
            out.setdefault(factor, []).append(term)
    return {factor: tuple(terms) for factor, terms in out.items()}
