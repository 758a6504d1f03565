"""Local functions, one per factor, whose sum agents maximise on continuous domains."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from swarmbo.graph import FactorGraph, FactorStack, stacks_of

Received = Sequence[Float[np.ndarray, "g m"]]
# (adder, added) in each pass; no adder occurs twice in one pass
Passes = Sequence[tuple[Int[np.ndarray, " e"], Int[np.ndarray, " e"]]]


@runtime_checkable
class LocalFunctions(Protocol):
    """Functions of factors on a box, to be maximised in sum. All coordinates are those of the unit cube.

    Every method takes a stack of factors of equal size and m points for each: arrays (g, m, a). The result for one
    factor must be bit-identical whatever other factors are in the stack.

    A function may need a few numbers from its neighbours (factors that share a variable). In each of ``n_exchanges``
    phases every factor publishes one number per point, and receives the sum over its neighbours. Phase p may use the
    results of phases before p. While a factor moves its point, received sums stay fixed.

    Attributes:
        graph: Scopes and owners; n variables.
        low: Lower corner (n,) of the box, within the unit cube, in the order of ``graph.variables``.
        high: Upper corner (n,).
        starts: Points (k, n) in the box to start from, best first; k may be 0.
        n_exchanges: Number of phases; 0 if functions need nothing from each other.
        levels: Optional: for variables with a grid the places of their values. Functions are constant around each.
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
        """Points to start from."""
        ...

    @property
    def n_exchanges(self) -> int:
        """Number of phases in which neighbours exchange numbers."""
        ...

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Number of each factor for its neighbours in phase ``len(received)``."""
        ...

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's term of the sum, given the sums that it received."""
        ...

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Function that each factor climbs while received sums stay fixed, and its gradient.

        Up to a constant in U this is the term of the sum. If the factor's point also enters the neighbours' terms, it
        is a model of the whole sum's gain by moving that point.
        """
        ...

    def of(self, factors: Iterable[str]) -> "LocalFunctions":
        """Same functions of some factors only: all that their owner may evaluate."""
        ...


def silence(functions: LocalFunctions, X: Float[np.ndarray, "g m a"]) -> tuple[Float[np.ndarray, "g m"], ...]:
    """Zeros, which factors without neighbours receive."""
    return tuple(np.zeros(X.shape[:2]) for _ in range(functions.n_exchanges))


def levels_of(functions: LocalFunctions) -> Mapping[str, Float[np.ndarray, " k"]]:
    """Places of the values of variables with a grid; none if functions do not state them."""
    return getattr(functions, "levels", {})


def by_factor(
    stacks: Sequence[FactorStack], rows: Sequence[Float[np.ndarray, "_g m"]]
) -> dict[str, Float[np.ndarray, " m"]]:
    """Rows of stacks, one per factor, by the factors' names."""
    return {
        factor: numbers
        for stack, known in zip(stacks, rows, strict=True)
        for factor, numbers in zip(stack.factors, known, strict=True)
    }


def neighbour_sums(
    neighbours: Mapping[str, Sequence[str]], stacks: Sequence[FactorStack], told: Mapping[str, Float[np.ndarray, " m"]]
) -> list[Float[np.ndarray, "_g m"]]:
    """Sum of the neighbours' numbers for every factor of the stacks, bit-identical to ``Neighbourhoods.sums``."""

    def heard(factor: str) -> Float[np.ndarray, " m"]:
        summed = np.zeros_like(told[factor])
        for neighbour in neighbours[factor]:
            summed += told[neighbour]
        return summed

    return [np.array([heard(factor) for factor in stack.factors]) for stack in stacks]


def in_turn(pairs: Iterable[tuple[int, int]]) -> Passes:
    """Arrange pairs (adder, added) in passes in which no adder occurs twice; each adder's order is kept."""
    passes, seen = list[list[tuple[int, int]]](), dict[int, int]()
    for adder, added in pairs:
        turn = seen[adder] = seen.get(adder, -1) + 1
        if turn == len(passes):
            passes.append([])
        passes[turn].append((adder, added))
    return [(one[:, 0], one[:, 1]) for one in map(np.array, passes)]


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Neighbours of all factors, for vectorised sums: each begins at 0 and adds neighbour after neighbour, as an agent
    does that has its own neighbours' numbers only. So both are bit-identical.
    """

    sizes: tuple[int, ...]
    passes: Passes

    @classmethod
    def of(cls, neighbours: Mapping[str, Sequence[str]], stacks: Sequence[FactorStack]) -> "Neighbourhoods":
        """Neighbourhoods of all factors of a graph, or of a connected part of it."""
        row = {factor: i for i, factor in enumerate(factor for stack in stacks for factor in stack.factors)}
        pairs = ((place, row[other]) for factor, place in row.items() for other in neighbours[factor])
        return cls(tuple(len(stack.factors) for stack in stacks), in_turn(pairs))

    def sums(self, told: Sequence[Float[np.ndarray, "_g m"]]) -> list[Float[np.ndarray, "_g m"]]:
        """Sum of the neighbours' numbers for every factor."""
        rows = np.concatenate(told)
        out = np.zeros(rows.shape)
        for factors, others in self.passes:
            out[factors] += rows[others]
        return np.split(out, np.cumsum(self.sizes)[:-1])


def exchange(functions: LocalFunctions, stacks: Sequence[FactorStack], points: Sequence[np.ndarray]) -> list[Received]:
    """Let all factors publish and receive in one process; the result has a (g, m) array per stack and phase."""
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
    """Sum of all factors at joint points (m, n) of the unit cube."""
    stacks = stacks_of(functions.graph)
    points = [stack.take(U) for stack in stacks]
    received = exchange(functions, stacks, points)
    values = [functions.value(stack, X, got) for stack, X, got in zip(stacks, points, received, strict=True)]
    return np.concatenate(values).sum(axis=0)
