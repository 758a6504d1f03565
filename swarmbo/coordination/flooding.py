"""All messages of a graph at once: factors of equal shape in one array, and variables of equal degree and size."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.tables import Table, sizes_of, spread
from swarmbo.coordination.updates import Edge, Flat, Kernels, Vector
from swarmbo.graph import FactorGraph


@dataclass(frozen=True)
class FactorGroup:
    """Factors of one shape.

    Args:
        places: Their places among the factors.
        tables: Their tables (n, d_1, …, d_a).
        spreads: Largest less smallest finite entry of each, the unit of a message's change.
        starts: For each axis where its n messages begin among all messages; they lie end to end.
        scopes: For each axis the places of the n variables.
    """

    places: Int[np.ndarray, " n"]
    tables: Table
    spreads: Float[np.ndarray, " n"]
    starts: Int[np.ndarray, " a"]
    scopes: Int[np.ndarray, "a n"]


@dataclass(frozen=True)
class VariableGroup:
    """Variables of one degree and size.

    Args:
        places: Their places in the graph's order.
        starts: Where each of their messages begins among all messages (n, degree), in the graph's order of factors.
        size: Number of values.
    """

    places: Int[np.ndarray, " n"]
    starts: Int[np.ndarray, "n degree"]
    size: int


class Flooding:
    """Factors and variables of a graph, laid out for synchronous rounds in which every message is renewed.

    Messages of one direction are one array: those of the edges of all factors here, then those of other edges of the
    variables here.

    Args:
        graph: Scopes.
        tables: Checked tables, of the factors that are here; those of other graphs are left alone.
        kernels: By which messages are renewed.
        variables: Those that are here; by default all.
        sizes: Number of values by variable; by default as tables of all factors have it.
    """

    def __init__(
        self,
        graph: FactorGraph,
        tables: Mapping[str, Table],
        kernels: Kernels,
        variables: Sequence[str] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self.graph = graph
        self.factors = tuple(factor for factor in graph.factors if factor in tables)
        self.variables = graph.variables if variables is None else tuple(variables)
        self.sizes = sizes_of(graph, tables) if sizes is None else sizes
        self.place = {variable: i for i, variable in enumerate(graph.variables)}
        self._kernels = kernels
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for i, factor in enumerate(self.factors):
            by_shape.setdefault(tables[factor].shape, []).append(i)
        self.factor_groups: list[FactorGroup] = []
        self._start: dict[Edge, int] = {}
        end = 0
        for shape, places in by_shape.items():
            names = [self.factors[i] for i in places]
            starts = np.empty(len(shape), dtype=np.int64)
            for axis, size in enumerate(shape):
                starts[axis] = end
                for factor in names:
                    self._start[factor, graph.scope(factor)[axis]] = end
                    end += size
            stacked = tables[names[0]][None] if len(names) == 1 else np.stack([tables[factor] for factor in names])
            scopes = np.array([[self.place[x] for x in graph.scope(factor)] for factor in names]).T
            spreads = np.array([spread(tables[factor]) for factor in names])
            self.factor_groups.append(FactorGroup(np.array(places), stacked, spreads, starts, scopes))
        by_kind: dict[tuple[int, int], list[str]] = {}
        for x in self.variables:
            for f in graph.factors_of(x):
                if (f, x) not in self._start:  # a factor that is elsewhere
                    self._start[f, x] = end
                    end += self.sizes[x]
            by_kind.setdefault((len(graph.factors_of(x)), self.sizes[x]), []).append(x)
        self.n_entries = end
        self.variable_groups = [
            VariableGroup(
                np.array([self.place[x] for x in names]),
                np.array([[self._start[f, x] for f in graph.factors_of(x)] for x in names]),
                size,
            )
            for (_, size), names in by_kind.items()
        ]

    def from_variables(self, from_factors: Flat) -> tuple[Flat, Int[np.ndarray, " n_variables"]]:
        """The variables' messages, given the factors'; and what each variable here would choose by itself.

        That is the best value of its own belief, of equal ones the lowest index; 0 for variables elsewhere.
        """
        messages, chosen = np.empty(self.n_entries), np.zeros(len(self.graph.variables), dtype=np.int64)
        for group in self.variable_groups:
            chosen[group.places] = self._kernels.variables(group.starts, group.size, from_factors, messages)
        return messages, chosen

    def from_factors(self, previous: Flat, from_variables: Flat, damping: float) -> tuple[Flat, float]:
        """The factors' normalised and damped messages, and the largest change in units of the tables' spreads."""
        messages = np.empty(self.n_entries)
        largest = 0.0
        for group in self.factor_groups:
            arrays = group.starts, from_variables, previous, group.spreads, damping, messages
            largest = max(largest, self._kernels.factors(group.tables, *arrays))
        return messages, largest

    def values(self, chosen: Int[np.ndarray, " n_variables"]) -> Float[np.ndarray, " n_factors"]:
        """Entries of the factors here at a joint choice, in the graph's order of factors."""
        values = np.empty(len(self.factors))
        for group in self.factor_groups:
            index = (np.arange(len(group.places)), *(chosen[scope] for scope in group.scopes))
            values[group.places] = group.tables[index]
        return values

    def message(self, messages: Flat, factor: str, variable: str) -> Vector:
        """One of the messages, as a view that can be written to."""
        start = self._start[factor, variable]
        return messages[start : start + self.sizes[variable]]

    def by_edge(self, messages: Flat) -> dict[Edge, Vector]:
        """The messages by factor and variable."""
        return {(factor, variable): self.message(messages, factor, variable) for factor, variable in self._start}
