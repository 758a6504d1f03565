"""Local functions on continuous domains, one per factor, whose sum agents maximise: base class, and sums."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Float, Int

from swarmbo.errors import OwnershipError
from swarmbo.graph.factor_graph import FactorGraph
from swarmbo.graph.groups import FactorStack, rows_of, stacks_of

Joint = Float[np.ndarray, "k n"]  # points of all variables
Points = Float[np.ndarray, "g m a"]  # m points for each factor of a stack
Values = Float[np.ndarray, "g m"]
Received = Sequence[Values]  # in each phase of exchange
Climbing = tuple[Values, Points]  # values and gradients
Rows = Sequence[Float[np.ndarray, "_g m"]]  # for each stack, a number for each of its factors and points
# index pairs (adder, added) in each pass; in one pass, no adder occurs twice
Passes = Sequence[tuple[Int[np.ndarray, " e"], Int[np.ndarray, " e"]]]


@dataclass(frozen=True, eq=False)
class BoxFunctions(ABC):
    """Functions of factors on a box, whose sum is maximised; coordinates are those of the unit cube.

    Methods take a stack of factors of equal size and m points for each: arrays (g, m, a). A factor's results are
    bit-identical, whatever other factors are in the stack.

    A function may need a few numbers from its neighbours (factors that share a variable). In each of ``n_exchanges``
    phases every factor publishes one number per point, and receives the sum over its neighbours. Phase p may use the
    results of phases before p. While a factor moves its point, received sums stay fixed.

    Args:
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box, in the order of ``graph.variables``.
        high: Upper corner (n,).
        starts: Good starting points (k, n), best first; k may be 0. With outcomes per factor, graph, levels and k must
            be the same for all agents, whatever outcomes an agent knows.
        owned: Factors that may be evaluated; None: all.
        levels: For each variable with a grid, its ordered values in the unit cube; functions are constant around each.
        lattice_points: Least number of points along each variable for coordination methods with a lattice.
    """

    graph: FactorGraph
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Joint
    _: KW_ONLY  # a subclass's fields need no defaults
    owned: frozenset[str] | None = None
    levels: Mapping[str, Float[np.ndarray, " k"]] = field(default_factory=dict[str, np.ndarray])
    lattice_points: int = 0

    @cached_property
    def sides(self) -> Float[np.ndarray, " n"]:
        """Lengths of the box's sides; 1 for a side of length 0."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    @property
    def n_exchanges(self) -> int:
        """Number of phases in which neighbours exchange numbers; 0 if functions need nothing from each other."""
        return 0

    def published(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Numbers that each factor sends its neighbours in phase ``len(received)``; none by default."""
        raise NotImplementedError(f"{type(self).__name__} has no phases of exchange")

    @abstractmethod
    def value(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Term of each factor in the sum, given the sums that it received."""

    @abstractmethod
    def value_and_gradient(self, stack: FactorStack, U: Points, received: Received) -> Climbing:
        """Function that each factor climbs while received sums stay fixed, and its gradient. It is the factor's term of
        the sum, up to a constant in U; if neighbours' terms depend on U too, a model of the whole sum's gain.
        """

    def unheard(self, U: Points) -> tuple[Values, ...]:
        """Sums that factors without neighbours receive at points: zeros for each phase of exchange."""
        return (np.zeros(U.shape[:2]),) * self.n_exchanges

    def starting_from(self, best: Joint, columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]) -> Self:
        """The same functions with starts from received points, best first, in ``columns``: for an agent that knows
        outcomes of some factors only. ``beaten`` is ``swarmbo.belief.model.incumbents.to_beat`` with all outcomes
        known.
        """
        starts = self.starts.copy()
        starts[:, columns] = np.clip(best, self.low, self.high)[:, columns]
        return replace(self, starts=starts)

    def of(self, factors: Iterable[str]) -> Self:
        """The same functions for an owner of some factors."""
        return replace(self, owned=frozenset(factors))

    def check_owned(self, stack: FactorStack) -> None:
        """Refuse factors of other owners."""
        if self.owned is not None and (foreign := [factor for factor in stack.factors if factor not in self.owned]):
            wanted = f"one of {sorted(self.owned)}, which are the owner's"
            raise OwnershipError(f"asked for factor {foreign[0]!r}; wanted {wanted}")


def by_factor(stacks: Sequence[FactorStack], rows: Rows) -> dict[str, Float[np.ndarray, " m"]]:
    """Rows of stacks, one per factor, by the factors' names."""
    pairs = zip(stacks, rows, strict=True)
    return {factor: numbers for stack, known in pairs for factor, numbers in zip(stack.factors, known, strict=True)}


def in_turn(pairs: Iterable[tuple[int, int]]) -> Passes:
    """Arrange pairs (adder, added) in passes in which no adder occurs twice; each adder's order is kept."""
    passes, seen = list[list[tuple[int, int]]](), dict[int, int]()
    for adder, added in pairs:
        turn = seen[adder] = seen.get(adder, -1) + 1
        if turn == len(passes):
            passes.append([])
        passes[turn].append((adder, added))
    return [(one[:, 0], one[:, 1]) for one in map(np.array, passes)]


def neighbours_in_turn(neighbours: Mapping[str, Sequence[str]], stacks: Sequence[FactorStack]) -> Passes:
    """Pairs of a factor and a neighbour, as rows of the stacks; pass k has each factor's k-th neighbour."""
    row = rows_of(stacks)
    return in_turn((place, row[other]) for factor, place in row.items() for other in neighbours[factor])


def neighbour_sums(passes: Passes, published: Rows) -> list[Float[np.ndarray, "_g m"]]:
    """Sum of the neighbours' numbers for every factor, added to 0 in the order in which an agent adds them."""
    rows = np.concatenate(published)
    out = np.zeros(rows.shape)
    for factors, others in passes:
        out[factors] += rows[others]
    return np.split(out, np.cumsum([len(own) for own in published])[:-1])


def exchange(functions: BoxFunctions, stacks: Sequence[FactorStack], points: Sequence[np.ndarray]) -> list[Received]:
    """Let all factors publish and receive in one process; the result has a (g, m) array per stack and phase."""
    received: list[list[np.ndarray]] = [[] for _ in stacks]
    if functions.n_exchanges:
        graph = functions.graph
        passes = neighbours_in_turn({factor: graph.neighbours(factor) for factor in graph.factors}, stacks)
        for _ in range(functions.n_exchanges):
            sent = [functions.published(stack, U, got) for stack, U, got in zip(stacks, points, received, strict=True)]
            for got, sums in zip(received, neighbour_sums(passes, sent), strict=True):
                got.append(sums)
    return [tuple(phases) for phases in received]


def values_at(functions: BoxFunctions, U: Float[np.ndarray, "m n"]) -> tuple[Sequence[FactorStack], Rows]:
    """Stacks of all factors, and their values at joint points (m, n) of the unit cube."""
    stacks = stacks_of(functions.graph)
    points = [stack.take(U) for stack in stacks]
    received = exchange(functions, stacks, points)
    return stacks, [functions.value(*row) for row in zip(stacks, points, received, strict=True)]


def total_value(functions: BoxFunctions, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
    """Sum of all factors at joint points (m, n) of the unit cube."""
    return np.concatenate(values_at(functions, U)[1]).sum(axis=0)
