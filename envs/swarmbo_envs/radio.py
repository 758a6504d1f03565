"""Radio links between agents."""

from collections.abc import Sequence

import networkx as nx
import numpy as np
from jaxtyping import Float


def links_in_range(
    agents: list[str], positions: Float[np.ndarray, "n 2"], range_m: float | Sequence[float]
) -> "nx.Graph[str]":
    """Graph of agents within radio range of each other; edges carry their ``distance`` in metres.

    With one range per agent, the distance must be within both ranges.
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
    """``links_in_range``, computed again only after a motion."""

    def __init__(self, agents: list[str]) -> None:
        self._agents = agents
        self._links: nx.Graph[str] = nx.Graph()
        self._of: tuple[np.ndarray, np.ndarray] | None = None

    def at(self, positions: Float[np.ndarray, "n 2"], range_m: float | Sequence[float]) -> "nx.Graph[str]":
        """The frozen graph; the same object until an agent moves."""
        asked = np.array(positions), np.array(range_m)
        if self._of is None or not all(map(np.array_equal, asked, self._of)):
            self._links, self._of = nx.freeze(links_in_range(self._agents, positions, range_m)), asked
        return self._links
