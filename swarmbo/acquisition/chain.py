"""Order of the robots along the chain: neighbours in it are neighbours in space.

With Markov order B a robot considers only its next B neighbours of the chain, so those should be the nearest, whose
measurements are most informative about its own.

The number of others that an agent considers bounds the cost in a large team. Near measurements screen off those behind
them: of 255 others the nearest 64 suffice. Among these, measurements many lengthscales away from all reachable places
have no effect.
"""

import itertools
from collections.abc import Mapping, Sequence

import networkx as nx
import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief import PlaceBelief
from swarmbo.belief.at_places import AtPlaces
from swarmbo.spaces import Domain

IN_SIGHT = 64
_FEW = 16  # measurements up to which all count
# correlation below which a measurement is ignored: it would take a millionth of the variance
_FAINT = 1e-3
_EXHAUSTIVE = 7  # 7! / 2 paths are compared in a millisecond


def chains(
    agents: Sequence[str], positions: Mapping[str, Float[np.ndarray, " d"]], links: "nx.Graph[str] | None"
) -> list[tuple[str, ...]]:
    """One chain for each group of connected agents; agents without a position come last in their chain.

    ``links`` None means that all are connected. Chains are in the order of their first agent.
    """
    return [_ordered(group, positions) for group in in_contact(agents, links)]


def in_contact(agents: Sequence[str], links: "nx.Graph[str] | None") -> list[tuple[str, ...]]:
    """Groups of agents connected by links, in the order of ``agents``; ``links`` None connects all."""
    if links is None:
        return [tuple(agents)] if agents else []
    groups, taken = list[tuple[str, ...]](), set[str]()
    for agent in agents:
        if agent not in taken:
            reached = nx.node_connected_component(links, agent) if agent in links else {agent}
            groups.append(tuple(other for other in agents if other in reached))
            taken.update(reached)
    return groups


def _ordered(group: Sequence[str], positions: Mapping[str, Float[np.ndarray, " d"]]) -> tuple[str, ...]:
    placed = [agent for agent in group if agent in positions]
    if len(placed) > 2:
        P = np.array([positions[agent] for agent in placed])
        placed = [placed[i] for i in shortest_path_order(P)]
    return tuple(placed + [agent for agent in group if agent not in positions])


def shortest_path_order(P: Float[np.ndarray, "n d"]) -> list[int]:
    """Indices of points along a short open path: the shortest for up to 7 points, else nearest neighbour and 2-opt.

    Deterministic; the smaller end comes first.
    """
    n = len(P)
    if n < 2:
        return list(range(n))
    distance = np.linalg.norm(P[:, None] - P[None], axis=-1)
    if n <= _EXHAUSTIVE:
        paths = np.array([path for path in itertools.permutations(range(n)) if path[0] < path[-1]])
        return paths[distance[paths[:, :-1], paths[:, 1:]].sum(axis=1).argmin()].tolist()
    path, improved = _nearest_neighbour(distance), True
    while improved:  # each exchange shortens the path, so this ends
        improved = False
        for i in range(n - 1):
            j = i
            while (j := _exchange(distance, path, i, j + 1)) < n:
                path[i : j + 1] = path[i : j + 1][::-1]
                improved = True
    return path.tolist() if path[0] < path[-1] else path[::-1].tolist()


def _exchange(distance: Float[np.ndarray, "n n"], path: Int[np.ndarray, " n"], i: int, start: int) -> int:
    """First j >= start for which the path is shorter with i to j reversed; n if there is none."""
    ends, after = path[start:], path[start + 1 :]
    cut, join = np.zeros((2, len(ends)))
    if i:
        cut += distance[path[i - 1], path[i]]
        join += distance[path[i - 1], ends]
    cut[:-1] += distance[ends[:-1], after]
    join[:-1] += distance[path[i], after]
    better = join < cut - 1e-12 * (cut + 1.0)
    return start + int(better.argmax()) if better.any() else len(path)


def _nearest_neighbour(distance: Float[np.ndarray, "n n"]) -> Int[np.ndarray, " n"]:
    left, path = np.ones(len(distance), dtype=bool), np.empty(len(distance), dtype=int)
    path[0] = distance.sum(axis=1).argmax()  # the point farthest from all others is an end
    left[path[0]] = False
    for k in range(1, len(path)):
        path[k] = np.where(left, distance[path[k - 1]], np.inf).argmin()
        left[path[k]] = False
    return path


def told_by(
    belief: PlaceBelief, places: Float[np.ndarray, "k d"], others: Float[np.ndarray, "p d"], domain: Domain
) -> Float[np.ndarray, "s d"]:
    """Locations of others' measurements that an agent takes into account."""
    measured = others[nearest(places, others, domain)]
    if len(measured) <= _FEW or not isinstance(belief, AtPlaces):
        return measured
    return measured[belief.prior_correlation(measured, places) >= _FAINT]


def nearest(
    places: Float[np.ndarray, "k d"], others: Float[np.ndarray, "p d"], domain: Domain
) -> Int[np.ndarray, " s"]:
    """Indices of the 64 others nearest to the mean of places, in their order; all if there are fewer.

    Distances are those in the unit cube.
    """
    if len(others) <= IN_SIGHT:
        return np.arange(len(others))
    far = ((domain.to_unit(others) - domain.to_unit(places).mean(axis=0)) ** 2).sum(axis=1)
    return np.sort(np.argsort(far, kind="stable")[:IN_SIGHT])
