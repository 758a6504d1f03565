"""All messages of a graph at once: factors of equal shape in one array, and variables of equal degree and size."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.coordination.tables import Table, spread
from swarmbo.coordination.updates import (
    Edge,
    OnePass,
    Vector,
    beliefs,
    damped,
    factor_messages,
    largest_changes,
    normalised,
    variable_messages,
)
from swarmbo.graph import FactorGraph

Flat = Float[np.ndarray, " entries"]  # every message of one direction, end to end


@dataclass(frozen=True)
class FactorGroup:
    """Factors of one shape.

    Args:
        places: Their places in the graph's order.
        tables: Their tables (n, d_1, …, d_a).
        spreads: Largest less smallest finite entry of each, the unit of a message's change.
        spans: For each axis where its n messages lie among all messages.
        scopes: For each axis the places of the n variables.
    """

    places: Int[np.ndarray, " n"]
    tables: Table
    spreads: Float[np.ndarray, " n"]
    spans: tuple[slice, ...]
    scopes: tuple[Int[np.ndarray, " n"], ...]


@dataclass(frozen=True)
class VariableGroup:
    """Variables of one degree and size.

    Args:
        places: Their places in the graph's order.
        entries: Where the entries of their messages lie among all messages (n, degree, size).
    """

    places: Int[np.ndarray, " n"]
    entries: Int[np.ndarray, "n degree size"]


class Flooding:
    """A graph laid out for synchronous rounds in which every message is renewed.

    Args:
        graph: Scopes.
        tables: Checked tables.
        one_pass: The form of the factor update.
    """

    def __init__(self, graph: FactorGraph, tables: Mapping[str, Table], one_pass: OnePass) -> None:
        self.graph = graph
        self._one_pass = one_pass
        place_of = {variable: i for i, variable in enumerate(graph.variables)}
        by_shape: dict[tuple[int, ...], list[int]] = {}
        for i, factor in enumerate(graph.factors):
            by_shape.setdefault(tables[factor].shape, []).append(i)
        self.factor_groups: list[FactorGroup] = []
        self._start: dict[Edge, int] = {}
        end = 0
        for shape, places in by_shape.items():
            names = [graph.factors[i] for i in places]
            spans: list[slice] = []
            for axis, size in enumerate(shape):
                spans.append(slice(end, end + len(names) * size))
                for factor in names:
                    self._start[factor, graph.scope(factor)[axis]] = end
                    end += size
            stacked = tables[names[0]][None] if len(names) == 1 else np.stack([tables[factor] for factor in names])
            scopes = tuple(
                np.array([place_of[graph.scope(factor)[axis]] for factor in names]) for axis in range(len(shape))
            )
            spreads = np.array([spread(tables[factor]) for factor in names])
            self.factor_groups.append(FactorGroup(np.array(places), stacked, spreads, tuple(spans), scopes))
        self.n_entries = end
        self._sizes = {x: n for f in graph.factors for x, n in zip(graph.scope(f), tables[f].shape, strict=True)}
        by_kind: dict[tuple[int, int], list[int]] = {}
        for i, variable in enumerate(graph.variables):
            by_kind.setdefault((len(graph.factors_of(variable)), self._sizes[variable]), []).append(i)
        self.variable_groups = [
            VariableGroup(
                np.array(places),
                np.array(
                    [[self._start[f, x] for f in graph.factors_of(x)] for x in map(graph.variables.__getitem__, places)]
                )[:, :, None]
                + np.arange(size),
            )
            for (_, size), places in by_kind.items()
        ]

    def from_variables(self, from_factors: Flat) -> Flat:
        """The variables' messages, given the factors'."""
        messages = np.empty(self.n_entries)
        for group in self.variable_groups:
            messages[group.entries] = variable_messages(from_factors[group.entries])
        return messages

    def from_factors(self, previous: Flat, from_variables: Flat, damping: float) -> tuple[Flat, float]:
        """The factors' normalised and damped messages, and the largest change in units of the tables' spreads."""
        messages = np.empty(self.n_entries)
        largest = 0.0
        for group in self.factor_groups:
            n = len(group.places)
            incoming = [from_variables[span].reshape(n, -1) for span in group.spans]
            renewed = factor_messages(group.tables, incoming, self._one_pass)
            for span, outgoing in zip(group.spans, renewed, strict=True):
                before = previous[span].reshape(n, -1)
                new = damped(before, normalised(outgoing), damping)
                largest = max(largest, float((largest_changes(before, new) / group.spreads).max()))
                messages[span] = new.ravel()
        return messages, largest

    def choices(self, from_factors: Flat) -> Int[np.ndarray, " n_variables"]:
        """For each variable the best value of its own belief; of equal ones the lowest index."""
        chosen = np.empty(len(self.graph.variables), dtype=np.int64)
        for group in self.variable_groups:
            chosen[group.places] = beliefs(from_factors[group.entries]).argmax(axis=1)
        return chosen

    def values(self, chosen: Int[np.ndarray, " n_variables"]) -> Float[np.ndarray, " n_factors"]:
        """Each factor's entry at a joint choice, in the graph's order of factors."""
        values = np.empty(len(self.graph.factors))
        for group in self.factor_groups:
            index = (np.arange(len(group.places)), *(chosen[scope] for scope in group.scopes))
            values[group.places] = group.tables[index]
        return values

    def by_edge(self, messages: Flat) -> dict[Edge, Vector]:
        """The messages by factor and variable."""
        return {
            (factor, variable): messages[start : start + self._sizes[variable]]
            for (factor, variable), start in self._start.items()
        }
