"""Links by radio."""

from collections.abc import Sequence

import networkx as nx
import numpy as np
from jaxtyping import Float


def links_in_range(
    agents: list[str], positions: Float[np.ndarray, "n 2"], range_m: float | Sequence[float]
) -> "nx.Graph[str]":
    """The graph of agents that are within radio range of each other.

    Args:
        agents: Names, one per position.
        positions: In metres.
        range_m: Largest distance at which two agents hear each other; or of each agent, and both must reach the other.

    Returns:
        All agents, with an edge per pair in range; the edge's ``distance`` is in metres.
    """
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(agents)
    offset = positions[:, None] - positions[None]
    distances = np.hypot(offset[..., 0], offset[..., 1])
    ranges = np.broadcast_to(np.asarray(range_m, dtype=float), len(agents))
    one, other = np.nonzero(np.triu(distances <= np.minimum.outer(ranges, ranges), k=1))
    lengths = [{"distance": length} for length in distances[one, other].tolist()]
    names = ([agents[i] for i in part.tolist()] for part in (one, other))
    graph.add_edges_from(zip(*names, lengths, strict=True))
    return graph


class RadioLinks:
    """``links_in_range``, worked out anew only once somebody has moved.

    Args:
        agents: Names.
    """

    def __init__(self, agents: list[str]) -> None:
        self._agents = agents
        self._links: nx.Graph[str] = nx.Graph()
        self._of: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, positions: Float[np.ndarray, "n 2"], range_m: float | Sequence[float]) -> "nx.Graph[str]":
        """The graph, frozen: whoever asks gets the same one as long as nobody moves.

        Args:
            positions: As of ``links_in_range``.
            range_m: As of ``links_in_range``.
        """
        asked = np.array(positions), np.array(range_m)
        if self._of is None or not all(map(np.array_equal, asked, self._of)):
            self._links, self._of = nx.freeze(links_in_range(self._agents, positions, range_m)), asked
        return self._links
