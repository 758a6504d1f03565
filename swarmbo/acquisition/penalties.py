"""Penalties that keep joint points to where they will probably succeed, and out of regions that must not be asked.

Without a failure or a region nothing here is used. What probably fails is learned (``swarmbo.belief.model.failures``):
the mode of the classifier is a sum of terms, each factor is held above what its own terms may fall to, and a point that
is still too likely to fail goes back towards one that succeeded. Regions are hard factors: whoever reads all variables
of one keeps out of it and of a margin around it, and of those that no factor reads as a whole a point is moved out in
the last step of a decision.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.belief.model.success import Requirement, Term
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph, FactorStack, stacks_of
from swarmbo.problem.no_go import Limit

_STEEP = 4.0  # spreads of what is maximised, by which a logit too few is penalised
_SOFT = 0.2  # logits over which the penalty bends from zero to a slope
_SLACK = 0.1  # logits too few that are let pass: what the bend may leave
_MARGIN = 0.01  # sides of the box around a region, over which its penalty bends
_STEEP_BORDER = 40.0  # spreads of what is maximised, for a side of the box
_SAMPLED = 64  # random points by which the spread of a factor's function is judged
_TRIED = 64  # points on the way back

Lacks = Callable[[Float[np.ndarray, "m b"]], tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m b"]]]


@dataclass(frozen=True, eq=False)
class Hold:
    """Loss of one factor where it does not keep something.

    Args:
        lack: By how much points of some variables fail to keep it, and the gradient of that; at most 0 where it is
            kept.
        inside: Places in the factor's scope of these variables.
        bend: Lack over which the penalty bends from zero to a slope.
        weight: Of the penalty, in the unit of what is maximised for a lack of 1.
    """

    lack: Lacks
    inside: tuple[int, ...]
    bend: float
    weight: float

    def penalty(self, U: Float[np.ndarray, "m a"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m a"]]:
        """At points (m, a) of the factor's scope, and its gradient: 0 where the hold is kept."""
        own = list(self.inside)
        lack, slope = self.lack(U[:, own])
        lack = np.maximum(lack, 0.0)
        bent = np.where(lack < self.bend, lack**2 / (2.0 * self.bend), lack - 0.5 * self.bend)
        gradient = np.zeros(U.shape)
        gradient[:, own] = (self.weight * np.minimum(lack / self.bend, 1.0))[:, None] * slope
        return self.weight * bent, gradient


@dataclass(frozen=True, eq=False, kw_only=True)
class BoundedFunctions(BoxFunctions):
    """Local functions less penalties, which are 0 where each factor keeps its holds.

    Args:
        inner: What is maximised otherwise.
        holds: By factor, what it must keep.
    """

    inner: BoxFunctions
    holds: Mapping[str, tuple[Hold, ...]]

    @classmethod
    def around(cls, inner: BoxFunctions, holds: Mapping[str, Sequence[Hold]]) -> "BoundedFunctions":
        """Functions with what their factors must keep.

        Args:
            inner: The functions.
            holds: By factor.
        """
        return cls(
            graph=inner.graph,
            low=inner.low,
            high=inner.high,
            starts=inner.starts,
            owned=inner.owned,
            inner=inner,
            holds={factor: tuple(held) for factor, held in holds.items()},
        )

    @property
    def n_exchanges(self) -> int:
        """As many as those of the functions that are bounded."""
        return self.inner.n_exchanges

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """What the functions that are bounded publish."""
        return self.inner.published(stack, U, received)

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's function, less its penalties."""
        value = self.inner.value(stack, U, received).copy()
        for row, factor in enumerate(stack.factors):
            for hold in self.holds.get(factor, ()):
                value[row] -= hold.penalty(U[row])[0]
        return value

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """What a factor climbs, less its penalties, and its gradient."""
        value, gradient = (array.copy() for array in self.inner.value_and_gradient(stack, U, received))
        for row, factor in enumerate(stack.factors):
            for hold in self.holds.get(factor, ()):
                penalty, slope = hold.penalty(U[row])
                value[row] -= penalty
                gradient[row] -= slope
        return value, gradient

    def of(self, factors: Iterable[str]) -> "BoundedFunctions":
        """The same functions of some factors only."""
        own = frozenset(factors)
        holds = {factor: held for factor, held in self.holds.items() if factor in own}
        return replace(self, owned=own, inner=self.inner.of(own), holds=holds)


def bounded(
    functions: BoxFunctions,
    needed: Sequence[Requirement],
    origin: Float[np.ndarray, " n"],
    spread: Mapping[str, float],
    *,
    tight: bool = False,
) -> BoundedFunctions:
    """Local functions that keep to what is required, as far as each factor can see to it by itself.

    Args:
        functions: What is maximised.
        needed: What the joint point must meet.
        origin: A joint point of the unit cube that meets it. What it has to spare, each factor may use up.
        spread: Of each factor's function: see ``spreads``.
        tight: Whether factors may only use up equal shares of it: then they meet it together, whatever each does.
    """
    graph, holds = functions.graph, dict[str, list[Hold]]()
    scopes, weights = _columns(graph), _part_spreads(graph, spread)
    for requirement in needed:
        shared = _by_factor(requirement, scopes)
        spare = max(float(requirement.margin(origin[None])[0]), 0.0) / (len(shared) if tight else 1)
        called = {int(column): i for i, column in enumerate(requirement.columns)}
        for factor, terms in shared.items():
            inside = tuple(i for i, column in enumerate(scopes[factor]) if column in called)
            columns = np.array([called[scopes[factor][i]] for i in inside])
            own = origin[[scopes[factor][i] for i in inside]]
            floor = float(requirement.model.part(terms, own[None], columns)[0][0]) - spare
            lack = _logits_below(floor, requirement, terms, columns)
            holds.setdefault(factor, []).append(Hold(lack, inside, _SOFT, _STEEP * weights[factor]))
    return BoundedFunctions.around(functions, holds)


def kept_out(functions: BoxFunctions, limits: Sequence[Limit], spread: Mapping[str, float]) -> BoxFunctions:
    """Local functions that keep out of regions, as far as one factor can see to it; themselves where there are none.

    Args:
        functions: What is maximised.
        limits: The regions.
        spread: Of each factor's function: see ``spreads``.
    """
    graph, holds = functions.graph, dict[str, list[Hold]]()
    weights = _part_spreads(graph, spread)
    for limit in limits:
        read = set(limit.columns.tolist())
        factor, scope = next(((f, own) for f, own in _columns(graph).items() if read <= set(own)), (None, []))
        if factor is not None:
            inside = tuple(scope.index(column) for column in limit.columns)
            holds.setdefault(factor, []).append(
                Hold(_depth_in(limit), inside, _MARGIN, _STEEP_BORDER * weights[factor])
            )
    return BoundedFunctions.around(functions, holds) if holds else functions


def parts_together(
    graph: FactorGraph, needed: Sequence[Requirement]
) -> list[tuple[Int[np.ndarray, " a"], tuple[Requirement, ...], tuple[str, ...]]]:
    """Variables that are judged together, what they must meet, and whose they are: the connected parts of the graph, or
    all in one where evaluations failed as a whole. Parts of which nothing is required are left out.
    """
    n = len(graph.variables)
    if any(len(requirement.columns) == n for requirement in needed):
        return [(np.arange(n), tuple(needed), graph.agents)]
    out: list[tuple[Int[np.ndarray, " a"], tuple[Requirement, ...], tuple[str, ...]]] = []
    for part in graph.components:
        columns = np.array([graph.column_of[variable] for variable in part.variables])
        if own := tuple(requirement for requirement in needed if set(requirement.columns) <= set(columns)):
            out.append((columns, own, part.agents))
    return out


def is_met(needed: Sequence[Requirement], point: Float[np.ndarray, " n"], origin: Float[np.ndarray, " n"]) -> bool:
    """Tell whether a joint point is as likely to succeed as is asked for, or at least as the origin."""
    return bool(_lacks(needed, point[None], origin)[0] <= _SLACK)


def gone_back(
    needed: Sequence[Requirement], point: Float[np.ndarray, " n"], origin: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " n"]:
    """The point nearest to a joint point, on the way from there to the origin, that meets what is required."""
    shares = np.linspace(1.0, 0.0, _TRIED + 1)[:, None]
    way = origin + shares * (point - origin)
    way[-1] = origin
    return way[int(np.argmax(_lacks(needed, way, origin) <= 0.0))]


def spreads(functions: BoxFunctions, seed: int) -> dict[str, float]:
    """By how much each factor's function exceeds its median over the box.

    Args:
        functions: Of which those who are not neighbours need nothing of one another.
        seed: Of the points that are looked at, beside the starts.
    """
    low, high = functions.low, functions.high
    drawn = low + stream(seed, "success", "spread").random((_SAMPLED, len(low))) * (high - low)
    points, out = np.concatenate([functions.starts, drawn]), dict[str, float]()
    for stack in stacks_of(functions.graph):
        X = stack.take(points)
        values = functions.value(stack, X, tuple(np.zeros(X.shape[:2]) for _ in range(functions.n_exchanges)))
        finite = np.where(np.isfinite(values), values, np.nan)
        for factor, own in zip(stack.factors, finite, strict=True):
            out[factor] = float(np.nanmax(own) - np.nanmedian(own)) if np.isfinite(own).any() else 0.0
    return out


def _columns(graph: FactorGraph) -> dict[str, list[int]]:
    return {f: [graph.column_of[x] for x in scope] for f, scope in zip(graph.factors, graph.scopes, strict=True)}


def _part_spreads(graph: FactorGraph, spread: Mapping[str, float]) -> dict[str, float]:
    """For each factor all that its connected part may gain: other parts gain nothing by what it keeps."""
    out = dict[str, float]()
    for part in graph.components:
        total = sum(spread[factor] for factor in part.factors)
        out |= dict.fromkeys(part.factors, total or 1.0)  # where none has anything to lose, any will do
    return out


def _logits_below(floor: float, needed: Requirement, terms: tuple[Term, ...], columns: Int[np.ndarray, " b"]) -> Lacks:
    """Logits by which a factor's terms of one requirement fall below a floor; columns are what its model calls them."""

    def lack(U: Float[np.ndarray, "m b"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m b"]]:
        value, slope = needed.model.part(terms, U, columns)
        return floor - value, -slope

    return lack


def _depth_in(limit: Limit) -> Lacks:
    """Sides of the box by which points are within a region or its margin."""

    def lack(U: Float[np.ndarray, "m b"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m b"]]:
        depth, slope = limit.region.depth(U, limit.bounds)
        return depth + _MARGIN, slope

    return lack


def _lacks(
    needed: Sequence[Requirement], U: Float[np.ndarray, "m n"], origin: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " m"]:
    """Logits that points have too few; the origin never has."""
    return np.max([min(r.margin(origin[None])[0], 0.0) - r.margin(U) for r in needed], axis=0)


def _by_factor(requirement: Requirement, scopes: Mapping[str, Sequence[int]]) -> dict[str, tuple[Term, ...]]:
    """The terms of a requirement that lie within a scope, each with the first factor that has such a scope."""
    out: dict[str, list[Term]] = {}
    for term in requirement.model.terms:
        own = {int(requirement.columns[column]) for column in term.columns}
        factor = next((factor for factor, scope in scopes.items() if own <= set(scope)), None)
        if factor is not None:
            out.setdefault(factor, []).append(term)
    return {factor: tuple(terms) for factor, terms in out.items()}
