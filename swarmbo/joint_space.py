"""The space of joint points: which variables there are, within which bounds, and who owns what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

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
        known = _one_factor(bounds, variable_owners) if graph is None else graph
        if set(bounds) != set(known.variables):
            raise ConfigError(f"got bounds of {list(bounds)}; wanted those of {list(known.variables)}", at="$.bounds")
        pairs = [bounds[variable] for variable in known.variables]
        if wrong := [variable for variable, pair in zip(known.variables, pairs, strict=True) if len(pair) != 2]:
            raise ConfigError(f"got {bounds[wrong[0]]!r}; wanted (low, high)", at=f"$.bounds.{wrong[0]}")
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

    def named(self, point: Float[np.ndarray, " n"]) -> dict[str, float]:
        """A joint point as a table of its variables."""
        return dict(zip(self.graph.variables, point.tolist(), strict=True))

    def points(self, X: Float[np.ndarray, "t n"]) -> Float[np.ndarray, "t n"]:
        """Joint points in bounds; rounding errors are cut off.

        Raises:
            ConfigError: If one is not; it names the row.
        """
        for row, u in enumerate(self.domain.to_unit(X)):
            if not (np.abs(u - 0.5) <= 0.5 + _SLACK).all():  # nor if it is NaN
                raise ConfigError(f"got {self.named(X[row])}; wanted values in bounds", at=f"$.points[{row}]")
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
