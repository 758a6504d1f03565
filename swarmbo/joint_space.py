"""The space of joint points: which variables there are, within which bounds, and who owns what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float

from swarmbo.checks import real_array, short, table
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.spaces import Domain

_SLACK = 1e-6  # sides of the box: rounding errors this far outside are cut off


@dataclass(frozen=True, eq=False)
class JointSpace:
    """A factor graph and the box of its variables.

    Args:
        graph: Scopes and owners; one factor over all variables where the structure is not known.
        domain: Bounds, in the order of ``graph.variables``.
        structure: Whether the graph tells the factors.

    Example:
        >>> space = JointSpace.of(None, {"x": (0.0, 2.0), "y": (-1.0, 1.0)})
        >>> space.structure, space.graph.scopes, space.named(np.array([0.5, 0.0]))
        ('unknown', (('x', 'y'),), {'x': 0.5, 'y': 0.0})
    """

    graph: FactorGraph
    domain: Domain
    structure: Literal["known", "unknown"]

    @classmethod
    def of(
        cls,
        graph: FactorGraph | None,
        bounds: Mapping[str, Sequence[float]],
        variable_owners: Mapping[str, str] | None = None,
    ) -> "JointSpace":
        """The space of a graph.

        Args:
            graph: Scopes and owners; None where the structure is not known.
            bounds: (low, high) of every variable, physical.
            variable_owners: Without a graph, the agent that sets each variable; by default one agent for each.

        Raises:
            ConfigError: If bounds do not fit the graph, or are not finite with low < high.
        """
        table(bounds, "{variable: (low, high)}", "$.bounds")
        if variable_owners is not None:
            table(variable_owners, "{variable: agent}", "$.variable_owners")
        if not isinstance(cast(object, graph), FactorGraph | None):
            raise ConfigError(f"got {short(graph)}; wanted a FactorGraph, or None", at="$.graph")
        known = _one_factor(bounds, variable_owners) if graph is None else graph
        if set(bounds) != set(known.variables):
            raise ConfigError(f"got bounds of {list(bounds)}; wanted those of {list(known.variables)}", at="$.bounds")
        pairs = [bounds[variable] for variable in known.variables]
        for variable, pair in zip(known.variables, pairs, strict=True):
            numbers = real_array(pair)
            if numbers is None or numbers.shape != (2,) or isinstance(pair, str):
                raise ConfigError(f"got {short(pair)}; wanted (low, high), two numbers", at=f"$.bounds.{variable}")
        domain = Domain(*np.array(pairs, dtype=float).T)
        return cls(known, domain, "unknown" if graph is None else "known")

    @property
    def bounds(self) -> dict[str, tuple[float, float]]:
        """(low, high) of every variable."""
        pairs = zip(self.domain.low.tolist(), self.domain.high.tolist(), strict=True)
        return dict(zip(self.graph.variables, pairs, strict=True))

    @property
    def variable_owners(self) -> dict[str, str]:
        """The agent that sets each variable."""
        return dict(zip(self.graph.variables, self.graph.variable_owners, strict=True))

    def placed(self, point: Mapping[str, float], at: str = "$.point") -> Float[np.ndarray, " n"]:
        """A table of its variables as a joint point in bounds; rounding errors are cut off.

        Raises:
            ConfigError: If it is no table of all variables, or a value is no number in bounds.
        """
        table(point, "{variable: value}", at)
        if missing := [variable for variable in self.graph.variables if variable not in point]:
            raise ConfigError(f"got no {missing[0]!r}; wanted a value for each of {list(self.graph.variables)}", at=at)
        values = [point[variable] for variable in self.graph.variables]
        place = real_array(values)
        if place is None or place.shape != (len(values),):
            raise ConfigError(f"got {short(values)}; wanted a number for each variable", at=at)
        if not self.has(place):
            raise ConfigError(f"got {self.named(place)}; wanted values in bounds", at=at)
        return np.clip(place, self.domain.low, self.domain.high)

    def has(self, place: Float[np.ndarray, " n"]) -> bool:
        """Whether a joint point is in bounds, but for rounding errors."""
        return bool((np.abs(self.domain.to_unit(place) - 0.5) <= 0.5 + _SLACK).all())  # not if it is NaN

    def has_point(self, point: Mapping[str, float]) -> bool:
        """The same of a table that has all variables."""
        return self.has(np.array([point[variable] for variable in self.graph.variables]))

    def named(self, point: Float[np.ndarray, " n"]) -> dict[str, float]:
        """A joint point as a table of its variables."""
        return dict(zip(self.graph.variables, point.tolist(), strict=True))

    def points(self, X: Float[np.ndarray, "t n"]) -> Float[np.ndarray, "t n"]:
        """Joint points in bounds; rounding errors are cut off.

        Raises:
            ConfigError: If one is not; it names the row.
        """
        for row, place in enumerate(X):
            if not self.has(place):
                raise ConfigError(f"got {self.named(place)}; wanted values in bounds", at=f"$.points[{row}]")
        return np.clip(X, self.domain.low, self.domain.high)

    def in_box(self, U: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """A point of the unit cube in physical units, in bounds whatever was rounded."""
        return np.clip(self.domain.from_unit(np.clip(U, 0.0, 1.0)), self.domain.low, self.domain.high)

    def to_plain(self) -> dict[str, Any]:
        """The space as plain data; ``from_plain`` reads it."""
        graph = self.graph
        return {
            "structure": self.structure,
            "factors": list(graph.factors),
            "scopes": [list(scope) for scope in graph.scopes],
            "factor_owners": list(graph.factor_owners),
            "variables": list(graph.variables),
            "variable_owners": list(graph.variable_owners),
            "low": self.domain.low.tolist(),
            "high": self.domain.high.tolist(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "JointSpace":
        """The space that ``to_plain`` wrote down."""
        scopes = tuple(tuple(scope) for scope in plain["scopes"])
        names = {key: tuple(plain[key]) for key in ("factors", "factor_owners", "variables", "variable_owners")}
        domain = Domain(np.array(plain["low"]), np.array(plain["high"]))
        return cls(FactorGraph(scopes=scopes, **names), domain, plain["structure"])


def _one_factor(bounds: Mapping[str, Any], variable_owners: Mapping[str, str] | None) -> FactorGraph:
    if not bounds:
        raise ConfigError("got no variables; wanted bounds of at least one", at="$.bounds")
    owners = variable_owners or {variable: f"agent_{index}" for index, variable in enumerate(bounds)}
    factor = "whole"
    while factor in bounds:
        factor = f"_{factor}"
    first = {factor: next(iter(owners.values()))}
    return FactorGraph.from_scopes({factor: list(bounds)}, owners=first, variable_owners=owners)
