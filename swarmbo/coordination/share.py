"""What one agent sees of a connected part of a graph, and what it asks of the others while agreeing.

A method on continuous domains is written once, as a generator that works on a :class:`Share` and yields requests. An
agent answers them by messages to and from the others (``swarmbo.coordination.member``); in one process the share is the
whole part, and requests are answered at once (``swarmbo.coordination.whole_part``). Both add in the same fixed order,
so both take the same decisions to the bit.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.coordination.local_functions import LocalFunctions
from swarmbo.coordination.messages import Copy, Slope
from swarmbo.coordination.tables import Table
from swarmbo.graph import FactorGraph, FactorStack, stacks_of

Copies = Sequence[Float[np.ndarray, "_g m _a"]]


class Exchange(NamedTuple):
    """Neighbours tell each other numbers at the factors' own points; answered by what each stack received."""

    points: Copies


class Gather(NamedTuple):
    """Factors tell the owners of shared variables their own entries; answered by the sums by variable (m, n)."""

    kind: type[Copy] | type[Slope]
    copies: Copies
    n_points: int


class Total(NamedTuple):
    """Terms (factors, k, m) of the own factors, in the order of the part; answered by the sums (k, m) over the part."""

    terms: Float[np.ndarray, "_f k m"]


class Choose(NamedTuple):
    """Max-sum on tables of the own factors; answered by a place for each variable of the own factors."""

    tables: Mapping[str, Table]


class Tell(NamedTuple):
    """Factors tell variables' owners their values; answered by the values of the own variables."""

    point: Float[np.ndarray, " n"]


Request = Exchange | Gather | Total | Choose | Tell


class PartOutcome(NamedTuple):
    """What an agent comes out of a part with.

    Args:
        part: Its index.
        x: Values of the variables that it owns.
        values: Of the factors that it owns, at the joint point.
        rounds: Taken.
        has_converged: Whether both residuals fell below the tolerance.
        primal: The residual at the end; None for a part of one factor.
        dual: Likewise.
        gain: By how much polishing raised the sum; None where nothing was polished.
    """

    part: int
    x: dict[str, float]
    values: dict[str, float]
    rounds: int = 0
    has_converged: bool = True
    primal: float | None = None
    dual: float | None = None
    gain: float | None = None


Steps = Generator[Request, Any, PartOutcome]


@dataclass(frozen=True, eq=False)
class Share:
    """Some factors of a connected part: those that one agent owns, or all.

    Joint points are arrays (m, n) over the variables of the whole graph; only columns of the own factors' variables are
    meant to be right.

    Args:
        part: The part's graph.
        functions: Of at least the own factors.
        factors: The own factors, in the order of the part.
    """

    part: FactorGraph
    functions: LocalFunctions
    factors: tuple[str, ...]

    @cached_property
    def stacks(self) -> tuple[FactorStack, ...]:
        """The own factors."""
        return stacks_of(self.functions.graph, self.factors) if self.factors else ()

    @cached_property
    def sides(self) -> Float[np.ndarray, " n"]:
        """Of the box; 1 where it has no length."""
        low, high = self.functions.low, self.functions.high
        return np.where(high > low, high - low, 1.0)

    @cached_property
    def degree(self) -> Float[np.ndarray, " n"]:
        """Number of the part's factors of each variable; 1 for variables of other parts."""
        part = self.part
        known = set(part.variables)
        return np.array([float(len(part.factors_of(v))) if v in known else 1.0 for v in self.functions.graph.variables])

    @cached_property
    def is_home(self) -> tuple[Bool[np.ndarray, "_g 1 _a"], ...]:
        """For each stack, whether a factor is the first of its variable: that one counts it in sums over variables."""
        part = self.part
        return tuple(
            np.array([[part.factors_of(x)[0] == f for x in part.scope(f)] for f in stack.factors])[:, None, :]
            for stack in self.stacks
        )

    @cached_property
    def _order(self) -> list[int]:
        names = [factor for stack in self.stacks for factor in stack.factors]
        return [names.index(factor) for factor in self.factors]

    def take(self, Z: Float[np.ndarray, "m n"]) -> list[Float[np.ndarray, "_g m _a"]]:
        """What the own factors see of joint points."""
        return [stack.take(Z) for stack in self.stacks]

    def box(self, stack: FactorStack) -> tuple[Float[np.ndarray, "g 1 a"], Float[np.ndarray, "g 1 a"]]:
        """Lower and upper corners, as a stack sees them."""
        return self.functions.low[stack.columns][:, None, :], self.functions.high[stack.columns][:, None, :]

    def terms(self, n_points: int, *rows: Sequence[Float[np.ndarray, "_g m"]]) -> Total:
        """Ask for sums over the part: each row holds, for each stack, one number per factor and point."""
        if not self.factors:
            return Total(np.zeros((0, len(rows), n_points)))
        return Total(np.stack([np.concatenate(row)[self._order] for row in rows], axis=1))

    def by_variable(self, entries: Float[np.ndarray, "m n"]) -> list[Float[np.ndarray, "_g m"]]:
        """Sums over variables, split among factors so that every variable is counted once."""
        return [
            (stack.take(entries) * home).sum(axis=-1) for stack, home in zip(self.stacks, self.is_home, strict=True)
        ]

    def values(self, points: Copies, received: Sequence[Any]) -> list[Float[np.ndarray, "_g m"]]:
        """Of the own factors."""
        rows = zip(self.stacks, points, received, strict=True)
        return [self.functions.value(*row) for row in rows]


def worth(share: Share, Z: Float[np.ndarray, "m n"]) -> Generator[Request, Any, Float[np.ndarray, " m"]]:
    """The sum of the part's factors at joint points."""
    points = share.take(Z)
    received = yield Exchange(points)
    totals = yield share.terms(len(Z), share.values(points, received))
    return totals[0]


def finish(share: Share, point: Float[np.ndarray, " n"], outcome: PartOutcome) -> Steps:
    """Tell the owners of variables what was agreed, and note the own factors' values there."""
    points = share.take(point[None])
    received = yield Exchange(points)
    values = {
        factor: float(value[0])
        for stack, found in zip(share.stacks, share.values(points, received), strict=True)
        for factor, value in zip(stack.factors, found, strict=True)
    }
    x = yield Tell(point)
    return outcome._replace(x=x, values=values)
