"""Tables of a factor graph, checked once at the boundary, and the pairs of values that they forbid.

A protocol keeps joint choices allowed whatever messages are lost. Neighbours decide in an order that all know. The
first may take any value. A later one takes a value that conflicts with some value of an earlier one only after it
received the earlier one's decision, which is final. So arrival times, repetitions and losses do not matter.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from swarmbo.boundary.values import short, unmasked
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph

EXACT = 2**53  # whole numbers below it are exact as floats
LARGEST = 1e200  # entries beyond it could overflow in a sum, and inf - inf is not a number
MOST_AXES = 64  # of an array of NumPy

Table = Float[np.ndarray, "..."]
Tables = Mapping[str, Table]  # by factor
Sizes = Mapping[str, int]  # number of values by variable
Edge = tuple[str, str]  # (factor, variable), for messages in either direction
Vector = Float[np.ndarray, " n_values"]
ByEdge = Mapping[Edge, Vector]  # messages of one direction
Flat = Float[np.ndarray, " entries"]  # every message of one direction, end to end
Places = Int[np.ndarray, " n"]


class Layout(NamedTuple):
    """Factors' tables end to end and the first entry of each; by edge the size and the first entry of a message."""

    tables: Flat
    begins: Places
    sizes: Places
    starts: Places


def checked_tables(graph: FactorGraph, tables: Mapping[str, ArrayLike]) -> dict[str, Table]:
    """Tables as float64 arrays in C order, by factor; copied only if necessary. Entries are maximised; -inf
    forbids. A ShapeError names a missing table, an unfit axis, or an entry that is NaN, +inf or beyond 1e200,
    or a whole number that a float would round.
    """
    if missing := [factor for factor in graph.factors if factor not in tables]:
        raise ShapeError(f"factor {missing[0]!r} has no table; give one array with axes {graph.scope(missing[0])}")
    known_factors = set(graph.factors)
    if unknown := [factor for factor in tables if factor not in known_factors]:
        raise ShapeError(f"got a table for {unknown[0]!r}, which is not a factor of the graph; leave it out")
    checked: dict[str, Table] = {}
    size_of: dict[str, tuple[int, str]] = {}
    for factor in graph.factors:
        try:
            array = unmasked(tables[factor])
            if array.dtype.kind not in "biufO":
                raise TypeError
            table = np.ascontiguousarray(array, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise ShapeError(f"table of {factor!r}: got {short(tables[factor])}; wanted an array of numbers") from None
        scope = graph.scope(factor)
        if array.ndim != len(scope):
            wanted = f"{len(scope)}, one for each of {', '.join(scope)}"
            raise ShapeError(f"table of {factor!r}: got {array.ndim} axes; wanted {wanted}")
        large = array[(abs(table) >= EXACT) & np.isfinite(table)].tolist() if array.dtype.kind in "iuO" else []
        if rounded := [number for number in large if number % 1 == 0 and number != float(number)]:
            wanted = "whole numbers that float64 does not round, such as all below 2^53"
            raise ShapeError(f"table of {factor!r}: got {rounded[0]}; wanted {wanted}")
        for variable, size in zip(scope, table.shape, strict=True):
            if size == 0:
                raise ShapeError(f"table of {factor!r}: variable {variable!r} has no value to choose from; wanted >= 1")
            known, by = size_of.setdefault(variable, (size, factor))
            if known != size:
                got = f"{known} values in the table of {by!r} but {size} in that of {factor!r}"
                fix = "Give all tables of a variable the same values in the same order"
                raise ShapeError(f"variable {variable!r} has {got}. {fix}")
        high = float(table.max())  # NaN if any entry is
        if not high <= LARGEST:
            at = tuple(map(int, np.unravel_index(int(np.argmax(~(table <= LARGEST))), table.shape)))
            wanted = f"numbers up to {LARGEST:g}, or -inf for a forbidden combination"
            raise ShapeError(f"table of {factor!r}: got {table[at]} at {at}; wanted {wanted}")
        if np.count_nonzero(table < -LARGEST) > np.count_nonzero(table == -np.inf):
            raise ShapeError(f"table of {factor!r}: got an entry below {-LARGEST:g}; use -inf to forbid a combination")
        checked[factor] = table
    return checked


def sizes_of(graph: FactorGraph, tables: Tables) -> dict[str, int]:
    """Number of values of each variable, in the graph's order of variables."""
    sizes = {x: size for f in graph.factors for x, size in zip(graph.scope(f), tables[f].shape, strict=True)}
    return {x: sizes[x] for x in graph.variables}


def factor_values(graph: FactorGraph, tables: Tables, assignment: Mapping[str, int]) -> Float[np.ndarray, " n_factors"]:
    """Entry of each factor at an assignment, in the graph's order of factors."""
    return np.array([tables[f][tuple(assignment[x] for x in graph.scope(f))] for f in graph.factors])


def total(values: Float[np.ndarray, " n_factors"]) -> float:
    """Sum from the first to the last value, so that every agent's sum is bit-identical."""
    return float(np.add.accumulate(values)[-1])


Rank = tuple[int, float]


def rank(values: Float[np.ndarray, " n_factors"]) -> Rank:
    """Rank of a joint choice, larger being better: by the fewest forbidding factors, then by the sum of the others."""
    forbidden = values == -np.inf
    return -int(forbidden.sum()), total(np.where(forbidden, 0.0, values))


def violated(values: Mapping[str, float]) -> tuple[str, ...]:
    """Factors that forbid a joint choice, given the value of each."""
    return tuple(factor for factor, value in values.items() if value == -np.inf)


def spreads(tables: Table) -> Float[np.ndarray, " n"]:
    """Largest less smallest finite entry of tables of one shape (n, …); 0 where nothing is finite."""
    axes = tuple(range(1, tables.ndim))
    high, low = tables.max(axis=axes), tables.min(axis=axes)
    forbids = low == -np.inf
    low[forbids] = tables[forbids].min(axis=axes, where=tables[forbids] > -np.inf, initial=np.inf)
    return np.maximum(high - low, 0.0)


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
    def of(cls, graph: FactorGraph, tables: Tables) -> "Conflicts":
        """Pairs that tables forbid for all values of other variables; combinations of three or more are left out."""
        return cls._joined(graph, (pair for f in graph.factors for pair in forbidden_by(graph.scope(f), tables[f])))

    @staticmethod
    def packed(graph: FactorGraph, tables: Tables, agent: str) -> bytes:
        """Forbidden pairs of an agent's own factors, packed for sending."""
        own = {f: forbidden_by(graph.scope(f), tables[f]) for f in graph.factors if graph.owner(f) == agent}
        data = {f: [(x, y, p.shape, np.packbits(p).tobytes()) for x, y, p in forbidden] for f, forbidden in own.items()}
        return msgspec.msgpack.encode(data)

    @classmethod
    def unpacked(cls, graph: FactorGraph, encoded: Mapping[str, bytes]) -> "Conflicts":
        """Forbidden pairs of all factors, from the packed bytes of each agent."""
        own = {agent: msgspec.msgpack.decode(data, type=dict[str, list[Packed]]) for agent, data in encoded.items()}
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
        index_of = self.graph.column_of
        around = {x: {y for f in self.graph.factors_of(x) for y in self.graph.scope(f)} - {x} for x in index_of}
        return {x: tuple(sorted(others, key=index_of.__getitem__)) for x, others in around.items()}

    @cached_property
    def colour(self) -> dict[str, int]:
        """Colour of each variable, different from its neighbours' colours: the turn in which its owner decides it."""
        return coloured(self.neighbours)

    @cached_property
    def n_colours(self) -> int:
        """Number of colours."""
        return 1 + max(self.colour.values())

    def is_before(self, x: str, y: str) -> bool:
        """True if a variable's owner decides before a neighbour's."""
        return self.colour[x] < self.colour[y]

    def allowed(self, x: str, size: int, decisions: Mapping[str, int | None]) -> Bool[np.ndarray, " a"]:
        """Mask of the values that a variable may take, given the received decisions of neighbours (None: no value)."""
        out = np.ones(size, dtype=bool)
        for y in self.neighbours[x]:
            if (pairs := self.forbidden.get((x, y))) is None:
                continue
            if y not in decisions:
                # undecided: an earlier variable is free, a later one avoids whatever the other might take
                out &= ~pairs.any(axis=1) | self.is_before(x, y)
            elif (decided := decisions[y]) is not None:
                out &= ~pairs[:, decided]
        return out

    def clashes(self, decisions: Mapping[str, int | None]) -> int:
        """Number of pairs of variables with conflicting values."""
        chosen = {x: i for x, i in decisions.items() if i is not None}
        decided = ((x, y) for x, y in self.forbidden if x in chosen and y in chosen)
        return sum(bool(self.forbidden[x, y][chosen[x], chosen[y]]) for x, y in decided) // 2


def _unpacked(shape: tuple[int, int], bits: bytes) -> Bool[np.ndarray, "_a _b"]:
    n_values = shape[0] * shape[1]
    return np.unpackbits(np.frombuffer(bits, np.uint8), count=n_values).astype(bool).reshape(shape)


def coloured(neighbours: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Greedy colouring: in the given order, each name gets the least colour that no neighbour has."""
    colours: dict[str, int] = {}
    for name, others in neighbours.items():
        taken = {colours[other] for other in others if other in colours}
        colours[name] = next(c for c in range(len(taken) + 1) if c not in taken)
    return colours
