"""Messages of max-sum: their formulas, and all messages of a graph in arrays, group by group of equal shapes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.coordination.tables import ByEdge, Edge, Flat, Layout, Places, Sizes, Table, Tables, Vector, spreads
from swarmbo.graph import FactorGraph
from swarmbo.graph.factor_graph import grouped


@dataclass(frozen=True)
class FactorGroup:
    """Factors of one shape, by index. Changes are relative to ``spreads``: the range of a factor's finite entries, or,
    if these are equal (``forbids``), the largest received message. Messages of an axis begin at ``starts``.
    """

    places: Int[np.ndarray, " n"]
    tables: Table
    spreads: Float[np.ndarray, " n"]
    forbids: Bool[np.ndarray, " n"]
    starts: Int[np.ndarray, " a"]
    scopes: Int[np.ndarray, "a n"]


@dataclass(frozen=True)
class VariableGroup:
    """Variables of one degree and size; ``starts`` (n, degree) has the index at which each message begins."""

    places: Int[np.ndarray, " n"]
    starts: Int[np.ndarray, "n degree"]
    size: int


class Flooding:
    """Arrays for synchronous rounds, one per direction, with messages on own factors' and own variables' edges."""

    def __init__(self, graph: FactorGraph, tables: Tables, variables: Sequence[str], sizes: Sizes) -> None:
        self.graph, self.column_of, edges = graph, graph.column_of, graph.edges
        self.factors = tuple(factor for factor in graph.factors if factor in tables)
        self.variables, self.sizes = tuple(variables), sizes
        rows = np.array([graph.place_of[factor] for factor in self.factors], dtype=np.int64)
        indices_of = grouped((tables[factor].shape, i) for i, factor in enumerate(self.factors))
        by_shape = {shape: np.array(indices) for shape, indices in indices_of.items()}
        of_factors = [edges.first[rows[places]] + np.arange(len(shape))[:, None] for shape, places in by_shape.items()]
        lengths = [np.repeat(shape, len(places)) for shape, places in by_shape.items()]
        columns = np.array([self.column_of[x] for x in self.variables], dtype=np.int64)
        sizes_here = np.array([self.sizes[x] for x in self.variables], dtype=np.int64)
        of_variables, degrees = edges.of_variables(columns), edges.first_of[columns + 1] - edges.first_of[columns]
        is_elsewhere = ~np.isin(edges.factors[of_variables], rows)
        # edges of own factors, group by group and axis by axis, then of other agents' factors, which have no table here
        self._here = np.concatenate([*map(np.ravel, of_factors), of_variables[is_elsewhere]])
        self._lengths = np.concatenate([*lengths, np.repeat(sizes_here, degrees)[is_elsewhere]])
        ends = np.cumsum(self._lengths)
        self._starts, self.n_entries = ends - self._lengths, int(ends[-1]) if len(ends) else 0
        self.tables = np.empty(sum(tables[factor].size for factor in self.factors))
        self.table_starts = np.empty(len(self.factors), dtype=np.int64)
        self.factor_groups = self._stacked(by_shape, tables)
        by_number = np.argsort(self._here)
        edge_starts = self._starts[by_number[np.searchsorted(self._here, of_variables, sorter=by_number)]]
        first_edges = np.cumsum(degrees) - degrees
        self.variable_groups: list[VariableGroup] = []
        order = np.lexsort((sizes_here, degrees))
        ordered = np.stack([degrees[order], sizes_here[order]])
        borders = np.flatnonzero((ordered[:, 1:] != ordered[:, :-1]).any(axis=0)) + 1
        for members in np.split(order, borders) if len(order) else []:
            degree, size = int(degrees[members[0]]), int(sizes_here[members[0]])
            of_group = edge_starts[first_edges[members][:, None] + np.arange(degree)]
            self.variable_groups.append(VariableGroup(columns[members], of_group, size))

    def _stacked(self, by_shape: Mapping[tuple[int, ...], Places], tables: Tables) -> list[FactorGroup]:
        """Groups of own factors of one shape; their tables are copied end to end."""
        groups, n_messages, n_entries = list[FactorGroup](), 0, 0
        for shape, places in by_shape.items():
            size = prod(shape)
            stacked = self.tables[n_entries : n_entries + len(places) * size].reshape(-1, *shape)
            np.stack([tables[self.factors[i]] for i in places], out=stacked)
            self.table_starts[places] = n_entries + size * np.arange(len(places))
            messages = n_messages + np.arange(len(shape) * len(places)).reshape(-1, len(places))
            starts, scopes = self._starts[messages[:, 0]], self.graph.edges.variables[self._here[messages]]
            spread = spreads(stacked)
            groups.append(FactorGroup(places, stacked, spread, spread == 0.0, starts, scopes))
            n_messages, n_entries = n_messages + messages.size, n_entries + stacked.size
        return groups

    def from_variables(self, from_factors: Flat) -> tuple[Flat, Int[np.ndarray, " n_variables"]]:
        """Variables' messages, given the factors', and each own variable's best value (the first of equal values)."""
        from swarmbo.coordination.compiled_messages import renew_variables  # late: numba is slow to load

        messages, chosen = np.empty(self.n_entries), np.zeros(len(self.graph.variables), dtype=np.int64)
        for group in self.variable_groups:
            chosen[group.places] = renew_variables(group.starts, group.size, from_factors, messages)
        return messages, chosen

    def from_factors(self, previous: Flat, from_variables: Flat, damping: float) -> tuple[Flat, float]:
        """Factors' normalised and damped messages, and the largest change in units of the tables' spreads."""
        from swarmbo.coordination.compiled_messages import renew_factors  # late: numba is slow to load

        messages, largest = np.empty(self.n_entries), 0.0
        for group in self.factor_groups:
            n, shape = len(group.places), group.tables.shape[1:]
            for start, size in zip(group.starts, shape, strict=True) if group.forbids.any() else ():
                received = spreads(from_variables[start : start + n * size].reshape(n, size))
                np.maximum(group.spreads, received, out=group.spreads, where=group.forbids)
            arrays = group.starts, from_variables, previous, group.spreads, damping, messages
            # in units of the factor's spread, or the tolerance would depend on the unit of the tables
            largest = max(largest, renew_factors(group.tables, *arrays))
        return messages, largest

    @property
    def layout(self) -> Layout:
        """Offsets of all tables and messages in the arrays."""
        return Layout(self.tables, self.table_starts, self.edge_sizes, self._by_edge(self._starts))

    def values(self, chosen: Int[np.ndarray, " n_variables"]) -> Float[np.ndarray, " n_factors"]:
        """Entries of the own factors at a joint choice, in the graph's order of factors."""
        values = np.empty(len(self.factors))
        for group in self.factor_groups:
            index = (np.arange(len(group.places)), *(chosen[scope] for scope in group.scopes))
            values[group.places] = group.tables[index]
        return values

    def by_variable(self, chosen: Int[np.ndarray, " n_variables"]) -> dict[str, int]:
        """Joint choice by the variables' names."""
        return dict(zip(self.graph.variables, chosen.tolist(), strict=True))

    def by_place(self, chosen: Mapping[str, int]) -> Int[np.ndarray, " n_variables"]:
        """Joint choice in the graph's order of variables; 0 for unknown variables."""
        return np.array([chosen.get(x, 0) for x in self.graph.variables], dtype=np.int64)

    def message(self, messages: Flat, factor: str, variable: str) -> Vector:
        """One message, as an array view that can be written to."""
        start = self._start[factor, variable]
        return messages[start : start + self.sizes[variable]]

    def by_edge(self, messages: Flat) -> dict[Edge, Vector]:
        """Messages by factor and variable."""
        return {(factor, variable): self.message(messages, factor, variable) for factor, variable in self._start}

    @cached_property
    def _start(self) -> dict[Edge, int]:
        graph, edges = self.graph, self.graph.edges
        factors, variables = edges.factors[self._here].tolist(), edges.variables[self._here].tolist()
        begins = zip(factors, variables, self._starts.tolist(), strict=True)
        return {(graph.factors[f], graph.variables[x]): start for f, x, start in begins}

    @property
    def edge_sizes(self) -> Int[np.ndarray, " e"]:
        """Length of each message, by edge of the graph; for a layout of all factors."""
        return self._by_edge(self._lengths)

    def _by_edge(self, numbers: Int[np.ndarray, " n"]) -> Int[np.ndarray, " e"]:
        out = np.empty(len(self._here), dtype=np.int64)
        out[self._here] = numbers
        return out


def damped(
    previous: Float[np.ndarray, "*n d"], new: Float[np.ndarray, "*n d"], damping: float
) -> Float[np.ndarray, "*n d"]:
    """Mean of previous messages, with weight ``damping``, and new; if ``damping`` > 0, -inf in either stays."""
    # 0 * previous would be NaN for a forbidden value
    return new if damping == 0.0 else damping * previous + (1.0 - damping) * new


def largest_changes(previous: Float[np.ndarray, "*n d"], new: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n"]:
    """Largest absolute change of each message; infinite if a value becomes forbidden or allowed."""
    changes = np.zeros_like(new)
    np.subtract(new, previous, out=changes, where=new != previous)
    return np.abs(changes).max(axis=-1)


def messages_of_factor(graph: FactorGraph, factor: str, table: Table, from_variables: ByEdge) -> dict[str, Vector]:
    """One factor's messages by variable, normalised; a missing message of a variable counts as zero."""
    from swarmbo.coordination.compiled_messages import renew_factors  # late: numba is slow to load

    scope, starts = graph.scope(factor), np.cumsum([0, *table.shape])[:-1]
    silent = map(np.zeros, table.shape)
    incoming = np.concatenate([from_variables.get((factor, x), zeros) for x, zeros in zip(scope, silent, strict=True)])
    outgoing = np.empty_like(incoming)
    renew_factors(table[None], starts, incoming, incoming, np.ones(1), 0.0, outgoing)
    return dict(zip(scope, np.split(outgoing, starts[1:]), strict=True))


def messages_of_variable(graph: FactorGraph, variable: str, size: int, from_factors: ByEdge) -> dict[str, Vector]:
    """One variable's messages by factor: sums of the other factors' messages; missing messages count as zero."""
    from swarmbo.coordination.compiled_messages import renew_variables  # late: numba is slow to load

    factors, silent = graph.factors_of(variable), np.zeros(size)
    incoming = np.concatenate([from_factors.get((factor, variable), silent) for factor in factors])
    outgoing = np.empty_like(incoming)
    renew_variables(size * np.arange(len(factors))[None], size, incoming, outgoing)
    return dict(zip(factors, np.split(outgoing, len(factors)), strict=True))
