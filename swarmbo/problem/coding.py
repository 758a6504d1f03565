"""Numeric coding of a problem with types: the space in which its models live.

A kernel needs distances. A choice among k > 2 values without an order has k coordinates in the model, one of them
1/sqrt(2) and the others 0, so that any two values are at distance 1: a stationary kernel of such coordinates is
exchangeable over the values. All other variables have one coordinate, that of their cell's centre in the unit cube. So
every belief and every acquisition serves all types, and values are rounded once, before the kernel.

Source: Garrido-Merchán & Hernández-Lobato 2020, section 3 (rounding before the kernel makes it constant in a cell).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.boundary.values import unused_prefix
from swarmbo.graph import FactorGraph, FactorStack
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import Categorical, MixedDomain

Places = Int[np.ndarray, "*g A"]
Corner = Float[np.ndarray, " n"]
_ON = 0.5**0.5  # coordinate of the chosen value


@dataclass(frozen=True, eq=False)
class Coding:
    """Coordinates of the models of a problem with types, from its graph and the domain of its n variables."""

    graph: FactorGraph
    domain: MixedDomain

    @cached_property
    def inner(self) -> FactorGraph:
        """Scopes and owners over the models' coordinates."""
        graph, named = self.graph, self._named
        pairs = zip(graph.variables, graph.variable_owners, strict=True)
        owners = {name: owner for x, owner in pairs for name in named[x]}
        scopes = tuple(tuple(name for x in scope for name in named[x]) for scope in graph.scopes)
        joined = tuple(tuple(name for x in scope for name in named[x]) for scope in graph.joined)
        return FactorGraph(graph.factors, scopes, graph.factor_owners, tuple(owners), tuple(owners.values()), joined)

    @cached_property
    def box(self) -> Domain:
        """Box of the models' coordinates."""
        return Domain(np.zeros(len(self._options)), np.ones(len(self._options)))

    @cached_property
    def _named(self) -> dict[str, list[str]]:
        out, taken = dict[str, list[str]](), [*self.graph.variables, *self.graph.factors]
        for name, variable in zip(self.graph.variables, self.domain.variables, strict=True):
            values = variable.values if isinstance(variable, Categorical) and not variable.ordered else ()
            prefix = unused_prefix(f"{name}=", taken) if len(values) > 2 else ""
            out[name] = [f"{prefix}{value!r}" for value in values] if prefix else [name]
            taken += out[name] if prefix else []
        return out

    @cached_property
    def counts(self) -> list[int]:
        """Number of coordinates of each variable: of a choice without an order, that of its values; else 1."""
        return [len(names) for names in self._named.values()]

    @cached_property
    def _sources(self) -> Int[np.ndarray, " N"]:
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def _options(self) -> Int[np.ndarray, " N"]:
        """Position, among a choice's values, of the value that each coordinate stands for; -1 for numbers."""
        return np.concatenate([np.arange(count) if count > 1 else np.array([-1]) for count in self.counts])

    def inside(self, U: Float[np.ndarray, "*t n"]) -> Float[np.ndarray, "*t N"]:
        """Coordinates of joint points of the unit cube; NaN for variables that are NaN."""
        return self._coded(U, np.arange(U.shape[-1]), self._sources, self._options)

    def outside(self, Z: Float[np.ndarray, "*t N"]) -> Float[np.ndarray, "*t n"]:
        """Joint points of the unit cube at coordinates; a choice takes the value with the largest coordinate."""
        out = np.empty((*Z.shape[:-1], len(self.counts)))
        for column, (first, count) in enumerate(zip(self._firsts, self.counts, strict=True)):
            own = Z[..., first : first + count]
            out[..., column] = own[..., 0] if count == 1 else (own.argmax(axis=-1) + 0.5) / count
        return self.domain.snapped(np.clip(out, 0.0, 1.0))

    @cached_property
    def _firsts(self) -> list[int]:
        return (np.cumsum(self.counts) - self.counts).tolist()

    @cached_property
    def choices(self) -> frozenset[str]:
        """Coordinates that stand for single values of a choice."""
        return frozenset(self.inner.variables[column] for column in np.flatnonzero(self._options >= 0))

    def without_choices(self, Z: Float[np.ndarray, "*t N"]) -> Float[np.ndarray, "*t N"]:
        """Coordinates with those of choices, ordered ones too, set to 0: boxes have the whole axis of a choice."""
        return np.where(self.is_choice[self._sources], 0.0, Z)

    @cached_property
    def is_choice(self) -> Bool[np.ndarray, " n"]:
        """Mask of categorical variables, ordered ones too."""
        return np.array([isinstance(variable, Categorical) for variable in self.domain.variables])

    def box_outside(self, low: Float[np.ndarray, " N"], high: Float[np.ndarray, " N"]) -> tuple[Corner, Corner]:
        """Box of variables, from a box of coordinates; choices have their whole axis."""
        return np.where(self.is_choice, 0.0, low[self._firsts]), np.where(self.is_choice, 1.0, high[self._firsts])

    def over(self, inner: FactorGraph) -> FactorGraph:
        """Graph over the problem's variables that a graph over coordinates, such as a learned one, reads."""
        names, graph = self.graph.variables, self.graph
        scopes = tuple(
            tuple(dict.fromkeys(names[self._sources[self.inner.column_of[name]]] for name in scope))
            for scope in inner.scopes
        )
        return FactorGraph(inner.factors, scopes, inner.factor_owners, names, graph.variable_owners)

    def read(self, stack: FactorStack, inner: FactorStack, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m A"]:
        """Coordinates that factors read at points of their scopes, for stacks of the same factors."""
        at, options = self._places(stack, inner)
        return self._coded(U, stack.columns[:, None, :], at[:, None, :], options[:, None, :])

    def slopes(
        self, stack: FactorStack, inner: FactorStack, D: Float[np.ndarray, "g m A"]
    ) -> Float[np.ndarray, "g m a"]:
        """Derivatives in the variables of scopes; 0 for variables whose values are tried one by one."""
        at, options = self._places(stack, inner)
        out = np.zeros((*D.shape[:2], stack.size))
        sources = stack.columns[np.arange(len(at))[:, None], at]
        rows, columns = np.nonzero((options < 0) & ~np.isin(sources, list(self.domain.levels)))
        out[rows, :, at[rows, columns]] = D[rows, :, columns]
        return out

    def _places(self, stack: FactorStack, inner: FactorStack) -> tuple[Int[np.ndarray, "g A"], Int[np.ndarray, "g A"]]:
        """For each coordinate of factors: its variable's position in the scope, and its option of a choice."""
        at = [
            [own.index(source) for source in self._sources[columns].tolist()]
            for own, columns in zip(stack.columns.tolist(), inner.columns, strict=True)
        ]
        return np.array(at), self._options[inner.columns]

    def _coded(
        self, U: Float[np.ndarray, "*m a"], columns: Int[np.ndarray, "*g a"], at: Places, options: Places
    ) -> Float[np.ndarray, "*m A"]:
        cells = self.domain.cells(U, columns)
        places = self.domain.centres(U, cells, columns)
        if at.ndim > 1 and (at == at[:1]).all() and (options == options[:1]).all():  # the same for all factors
            at, options = at[0, 0], options[0, 0]
        if at.ndim == 1:
            places, chosen = places[..., at], cells[..., at]
        else:
            at = np.broadcast_to(at, (*U.shape[:-1], at.shape[-1]))
            places, chosen = np.take_along_axis(places, at, axis=-1), np.take_along_axis(cells, at, axis=-1)
        flags = np.where(chosen == options, _ON, np.where(np.isnan(chosen), np.nan, 0.0))
        return np.where(options < 0, places, flags)


def coding_of(graph: FactorGraph, domain: Domain) -> Coding | None:
    """Coding of a problem; None if all its variables are real numbers on linear axes, which need none."""
    return Coding(graph, domain) if isinstance(domain, MixedDomain) else None
