"""Pairs of values that forbid each other, and a protocol that keeps joint choices allowed whatever messages are lost.

Neighbours decide in an order that all know. The first may take any value. A later one takes a value that conflicts with
some value of an earlier one only after it received the earlier one's decision, which is final. So arrival times,
repetitions and losses do not matter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from jaxtyping import Bool

from swarmbo.coordination.tables import Table
from swarmbo.graph import FactorGraph

Pairs = tuple[str, str, Bool[np.ndarray, "_a _b"]]  # two variables, and a mask of forbidden pairs of values
Packed = tuple[str, str, tuple[int, int], bytes]  # two variables, the shape of the mask, its bits


def forbidden_by(scope: Sequence[str], table: Table) -> Iterator[Pairs]:
    """Pairs of values that a factor forbids, for each two of its variables."""
    allowed = table > -np.inf
    if allowed.all():
        return
    for i, x in enumerate(scope):
        for j, y in enumerate(scope[i + 1 :], start=i + 1):
            others = tuple(axis for axis in range(len(scope)) if axis not in (i, j))
            pairs = np.logical_not(allowed.any(axis=others))
            if pairs.any():
                yield x, y, pairs


@dataclass(frozen=True, eq=False)
class Conflicts:
    """Pairs of values that forbid each other, as masks (a, b) for each two variables in both orders."""

    graph: FactorGraph
    forbidden: Mapping[tuple[str, str], Bool[np.ndarray, "_a _b"]]

    @classmethod
    def of(cls, graph: FactorGraph, tables: Mapping[str, Table]) -> "Conflicts":
        """Pairs that tables forbid for all values of other variables; combinations of three or more are left out."""
        return cls._joined(graph, (pair for f in graph.factors for pair in forbidden_by(graph.scope(f), tables[f])))

    @staticmethod
    def packed(graph: FactorGraph, tables: Mapping[str, Table], agent: str) -> bytes:
        """Forbidden pairs of an agent's own factors, packed for sending."""
        own = {f: forbidden_by(graph.scope(f), tables[f]) for f in graph.factors if graph.owner(f) == agent}
        said = {f: [(x, y, p.shape, np.packbits(p).tobytes()) for x, y, p in forbidden] for f, forbidden in own.items()}
        return msgspec.msgpack.encode(said)

    @classmethod
    def unpacked(cls, graph: FactorGraph, said: Mapping[str, bytes]) -> "Conflicts":
        """Forbidden pairs of all factors, from the packed bytes of each agent."""
        own = {agent: msgspec.msgpack.decode(word, type=dict[str, list[Packed]]) for agent, word in said.items()}
        packed = (entry for f in graph.factors for entry in own[graph.owner(f)][f])
        return cls._joined(graph, ((x, y, _unpacked(shape, bits)) for x, y, shape, bits in packed))

    @classmethod
    def _joined(cls, graph: FactorGraph, pairs: Iterable[Pairs]) -> "Conflicts":
        forbidden: dict[tuple[str, str], np.ndarray] = {}
        for x, y, not_allowed in pairs:
            forbidden[x, y] = np.logical_or(forbidden.get((x, y), False), not_allowed)
            forbidden[y, x] = forbidden[x, y].T
        return cls(graph, forbidden)

    @cached_property
    def neighbours(self) -> dict[str, tuple[str, ...]]:
        """Variables that share a factor with each variable, in the graph's order."""
        place = {x: i for i, x in enumerate(self.graph.variables)}
        around = {x: {y for f in self.graph.factors_of(x) for y in self.graph.scope(f)} - {x} for x in place}
        return {x: tuple(sorted(others, key=lambda y: place[y])) for x, others in around.items()}

    @cached_property
    def colour(self) -> dict[str, int]:
        """Turn of each variable's owner to decide: never that of a neighbour, whose decision it can use."""
        colours: dict[str, int] = {}
        for x in self.graph.variables:
            taken = {colours[y] for y in self.neighbours[x] if y in colours}
            colours[x] = next(c for c in range(len(taken) + 1) if c not in taken)
        return colours

    @cached_property
    def n_colours(self) -> int:
        """Number of colours."""
        return 1 + max(self.colour.values())

    def is_before(self, x: str, y: str) -> bool:
        """True if a variable's owner decides before a neighbour's."""
        return self.colour[x] < self.colour[y]

    def allowed(self, x: str, size: int, words: Mapping[str, int | None]) -> Bool[np.ndarray, " a"]:
        """Mask of the values that a variable may take, given the received decisions of neighbours (None: no value)."""
        out = np.ones(size, dtype=bool)
        for y in self.neighbours[x]:
            if (pairs := self.forbidden.get((x, y))) is None:
                continue
            if y not in words:
                # undecided: an earlier variable is free, a later one avoids whatever the other might take
                out &= ~pairs.any(axis=1) | self.is_before(x, y)
            elif (word := words[y]) is not None:
                out &= ~pairs[:, word]
        return out

    def clashes(self, words: Mapping[str, int | None]) -> int:
        """Number of pairs of variables with conflicting values."""
        found = 0
        for (x, y), pairs in self.forbidden.items():
            i, j = words.get(x), words.get(y)
            found += i is not None and j is not None and bool(pairs[i, j])
        return found // 2


def _unpacked(shape: tuple[int, int], bits: bytes) -> Bool[np.ndarray, "_a _b"]:
    n_values = shape[0] * shape[1]
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=n_values).astype(bool).reshape(shape)
