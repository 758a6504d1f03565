"""Test problems for coordination methods: small graphs, and sums of smooth functions with one maximum."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.coordination.local_functions import Received
from swarmbo.graph import FactorGraph, FactorStack
from swarmbo.testing.claims import claim, refuse

_SCOPES: dict[str, dict[str, list[str]]] = {
    "chain": {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "w"]},
    "loop": {"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]},
    "two parts": {"f": ["x", "y"], "g": ["z"], "h": ["w", "z"]},
}


def graphs() -> Iterator[tuple[str, FactorGraph, "nx.Graph[str]"]]:
    """Graphs, and links that connect all agents, not all directly."""
    for name, scopes in _SCOPES.items():
        graph = FactorGraph.from_scopes(scopes)
        yield name, graph, nx.path_graph(list(graph.agents))


@dataclass(frozen=True, eq=False)
class Bowls:
    """Concave quadratics, one per factor, with a preferred location and near-equal variables.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.graph import stacks_of
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
        >>> bowls = Bowls(graph, np.zeros(2), np.ones(2), np.empty((0, 2)))
        >>> bowls.value(stacks_of(graph)[0], np.array([[[0.3, 0.3], [0.3, 0.5]]]), ()).round(12).tolist()
        [[-0.0, -0.06]]
    """

    graph: FactorGraph
    low: Float[np.ndarray, " n"]
    high: Float[np.ndarray, " n"]
    starts: Float[np.ndarray, "k n"]
    allowed: frozenset[str] | None = None

    @property
    def levels(self) -> Mapping[str, Float[np.ndarray, " k"]]:
        """None: all variables are real numbers."""
        return {}

    @property
    def n_exchanges(self) -> int:
        """Zero: factors need no exchange."""
        return 0

    def published(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Refuse exchanges, as there are none."""
        refuse("numbers asked for in an exchange", f"those of {stack.factors}", "none, as n_exchanges is 0")

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Minus the squared distance to the factor's location, and the spread of its variables."""
        return self.value_and_gradient(stack, U, received)[0]

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """The same with its gradient."""
        if self.allowed is not None:
            wanted = f"only its own, {sorted(self.allowed)}"
            claim(self.allowed.issuperset(stack.factors), "factors that an agent asked for", stack.factors, wanted)
        place = np.array([0.3 + 0.1 * (self.graph.factors.index(name) % 5) for name in stack.factors])
        away = U - place[:, None, None]
        spread = U - U.mean(axis=-1, keepdims=True)
        return -(away**2 + spread**2).sum(axis=-1), -2.0 * (away + spread)

    def of(self, factors: Iterable[str]) -> "Bowls":
        """Functions of some factors only."""
        return replace(self, allowed=frozenset(factors))
