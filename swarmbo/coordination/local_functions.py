"""Local functions, one per factor, whose sum agents agree on where domains are continuous."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from swarmbo.graph import FactorGraph, FactorStack, stacks_of

Received = Sequence[Float[np.ndarray, "g m"]]
Passes = Sequence[tuple[Int[np.ndarray, " e"], Int[np.ndarray, " e"]]]  # who adds, and what: nobody twice in one


@runtime_checkable
class LocalFunctions(Protocol):
    """Functions of factors on a box, to be maximised in sum. All coordinates are those of the unit cube.

    Every method takes a stack of factors of equal size and m points for each: arrays (g, m, a). What it returns for one
    factor must not depend, to the bit, on which other factors are in the stack.

    A function may need a few numbers of its neighbours (factors that share a variable): in each of ``n_exchanges``
    phases every factor publishes one number per point, and receives the sum over its neighbours. Phase p may use what
    phases before p brought. While a factor moves its point, what it received stays fixed.

    Attributes:
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box, within the unit cube, in the order of ``graph.variables``.
        high: Upper corner (n,).
        starts: Points (k, n) in the box worth starting from, best first; k may be 0.
        n_exchanges: Number of phases; 0 where functions need nothing of each other.
    """

    @property
    def graph(self) -> FactorGraph:
        """Scopes and owners."""
        ...

    @property
    def low(self) -> Float[np.ndarray, " n"]:
        """Lower corner of the box."""
        ...

    @property
    def high(self) -> Float[np.ndarray, " n"]:
        """Upper corner of the box."""
        ...

    @property
    def starts(self) -> Float[np.ndarray, "k n"]:
        """Points worth starting from."""
        ...

    @property
    def n_exchanges(self) -> int:
        """Phases in which neighbours tell each other numbers."""
        ...

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Number of each factor for its neighbours in phase ``len(received)``."""
        ...

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's term of the sum, given all that its neighbours published there."""
        ...

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """The function that each factor climbs while what it received stays fixed, and its gradient.

        Up to a constant in U this is the term of the sum, or a model of what the whole sum gains by moving this
        factor's point, where it enters the neighbours' terms too.
        """
        ...

    def of(self, factors: Iterable[str]) -> "LocalFunctions":
        """The same functions of some factors only: all that their owner may look at."""
        ...


@runtime_checkable
class RoughFunctions(Protocol):
    """Local functions that are quicker where some digits will do: in tables that say where to look."""

    def rough_value(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """``value`` to some digits."""
        ...


def by_factor(
    stacks: Sequence[FactorStack], rows: Sequence[Float[np.ndarray, "_g m"]]
) -> dict[str, Float[np.ndarray, " m"]]:
    """Rows of stacks, one for each factor, by the factors' names."""
    return {
        factor: numbers
        for stack, known in zip(stacks, rows, strict=True)
        for factor, numbers in zip(stack.factors, known, strict=True)
    }


def neighbour_sums(
    neighbours: Mapping[str, Sequence[str]],
    stacks: Sequence[FactorStack],
    told: Mapping[str, Float[np.ndarray, " m"]],
) -> list[Float[np.ndarray, "_g m"]]:
    """For every factor of the stacks the sum of what its neighbours told, added in their order.

    ``Neighbourhoods`` comes to the same bits where somebody has the numbers of all factors.

    Args:
        neighbours: Of each factor.
        stacks: Some factors of a graph.
        told: What these factors and their neighbours told, by factor.
    """

    def heard(factor: str) -> Float[np.ndarray, " m"]:
        summed = np.zeros_like(told[factor])
        for neighbour in neighbours[factor]:
            summed += told[neighbour]
        return summed

    return [np.array([heard(factor) for factor in stack.factors]) for stack in stacks]


def in_turn(pairs: Iterable[tuple[int, int]]) -> Passes:
    """Pairs of who adds and what it adds, as passes in which nobody adds twice; what each adds keeps its order.

    Args:
        pairs: Places of both.
    """
    passes, seen = list[list[tuple[int, int]]](), dict[int, int]()
    for adder, added in pairs:
        turn = seen[adder] = seen.get(adder, -1) + 1
        if turn == len(passes):
            passes.append([])
        passes[turn].append((adder, added))
    return [(one[:, 0], one[:, 1]) for one in map(np.array, passes)]


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Neighbours of all factors, for sums over them at once.

    Every sum begins at 0 and is added up neighbour after neighbour, in their order, as an agent does that has the
    numbers of its own neighbours only; so both come to the same bits.

    Args:
        sizes: Number of factors in each stack.
        passes: Each factor with each of its neighbours in turn, as places in the stacks.
    """

    sizes: tuple[int, ...]
    passes: Passes

    @classmethod
    def of(cls, neighbours: Mapping[str, Sequence[str]], stacks: Sequence[FactorStack]) -> "Neighbourhoods":
        """Of all factors of a graph, or of a connected part of it.

        Args:
            neighbours: Of each factor.
            stacks: The factors.
        """
        row = {factor: i for i, factor in enumerate(factor for stack in stacks for factor in stack.factors)}
        pairs = ((place, row[other]) for factor, place in row.items() for other in neighbours[factor])
        return cls(tuple(len(stack.factors) for stack in stacks), in_turn(pairs))

    def sums(self, told: Sequence[Float[np.ndarray, "_g m"]]) -> list[Float[np.ndarray, "_g m"]]:
        """For every factor the sum of what its neighbours told.

        Args:
            told: For each stack what its factors told.
        """
        rows = np.concatenate(told)
        out = np.zeros(rows.shape)
        for factors, others in self.passes:
            out[factors] += rows[others]
        return np.split(out, np.cumsum(self.sizes)[:-1])


def exchange(functions: LocalFunctions, stacks: Sequence[FactorStack], points: Sequence[np.ndarray]) -> list[Received]:
    """Let all factors publish and receive, phase by phase, where somebody has them all.

    Args:
        functions: Of all factors.
        stacks: All factors of the graph.
        points: For each stack the factors' own points (g, m, a).

    Returns:
        For each stack what its factors received: one (g, m) array per phase.
    """
    received: list[list[np.ndarray]] = [[] for _ in stacks]
    if functions.n_exchanges:
        graph = functions.graph
        around = Neighbourhoods.of({factor: graph.neighbours(factor) for factor in graph.factors}, stacks)
        for _ in range(functions.n_exchanges):
            told = [functions.published(stack, U, got) for stack, U, got in zip(stacks, points, received, strict=True)]
            for got, sums in zip(received, around.sums(told), strict=True):
                got.append(sums)
    return [tuple(phases) for phases in received]


def total_value(functions: LocalFunctions, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
    """The sum of all factors at joint points (m, n) of the unit cube."""
    stacks = stacks_of(functions.graph)
    points = [stack.take(U) for stack in stacks]
    received = exchange(functions, stacks, points)
    values = [functions.value(stack, X, got) for stack, X, got in zip(stacks, points, received, strict=True)]
    return np.concatenate(values).sum(axis=0)
