"""Order of the agents along the chain, and assignment of locations that several of them can reach.

With Markov order B an agent considers only its next B neighbours of the chain, so those should be the nearest in space,
whose measurements are most informative about its own.

Near measurements screen off those behind them: of 255 others the nearest 64 suffice.
"""

import itertools
from collections.abc import Collection, Mapping, Sequence

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching, min_weight_full_bipartite_matching

from swarmbo.belief import PlaceBelief
from swarmbo.belief.at_places import KnownPlaces
from swarmbo.spaces import Domain, unique_places
from swarmbo.transport import Routes

Candidates = Mapping[str, Float[np.ndarray, "_ d"]]  # places of each agent
Spots = Mapping[str, Float[np.ndarray, " d"]]  # a place of each agent
Indices = Int[np.ndarray, " r"]
Distances = Float[np.ndarray, " r"]
Mask = Bool[np.ndarray, "n _"]
Numbered = tuple[Float[np.ndarray, "u d"], dict[str, Int[np.ndarray, " _"]]]  # different places, and agents' numbers

IN_SIGHT = 64
_FEW = 16  # measurements up to which all count
# correlation below which a measurement is ignored: it would take a millionth of the variance
_FAINT = 1e-3
_EXHAUSTIVE = 7  # 7! / 2 paths are compared in a millisecond


def chains(agents: Sequence[str], positions: Spots, links: "nx.Graph[str] | None") -> list[tuple[str, ...]]:
    """One chain for each group of connected agents; agents without a position come last in their chain.

    ``links`` None means that all are connected. Chains are in the order of their first agent.
    """
    return [_ordered(group, positions) for group in in_contact(agents, links)]


def in_contact(agents: Sequence[str], links: "nx.Graph[str] | None") -> list[tuple[str, ...]]:
    """Groups of agents connected by links, in the order of ``agents``; ``links`` None connects all."""
    routes, groups, taken = Routes(agents, links), list[tuple[str, ...]](), set[str]()
    for agent in agents:
        if agent not in taken:
            groups.append(tuple(routes.hops_from(agent)))
            taken.update(groups[-1])
    return groups


def _ordered(group: Sequence[str], positions: Spots) -> tuple[str, ...]:
    placed = [agent for agent in group if agent in positions]
    if len(placed) > 2:
        P = np.array([positions[agent] for agent in placed])
        placed = [placed[i] for i in shortest_path_order(P)]
    return tuple(placed + [agent for agent in group if agent not in positions])


def shortest_path_order(P: Float[np.ndarray, "n d"]) -> list[int]:
    """Indices of points along a short open path: the shortest for up to 7, else by 2-opt; lower-index end first."""
    n = len(P)
    if n < 2:
        return list(range(n))
    distance = np.linalg.norm(P[:, None] - P[None], axis=-1)
    if n <= _EXHAUSTIVE:
        paths = np.array([path for path in itertools.permutations(range(n)) if path[0] < path[-1]])
        return paths[distance[paths[:, :-1], paths[:, 1:]].sum(axis=1).argmin()].tolist()
    path, improved, reach = _nearest_neighbour(distance), True, float(distance.max())
    while improved:  # each exchange shortens the path, so this ends
        improved = False
        for i in range(n - 1):
            j = i
            while (j := _exchange(distance, path, i, j + 1, reach)) < n:
                path[i : j + 1] = path[i : j + 1][::-1]
                improved = True
    return path.tolist() if path[0] < path[-1] else path[::-1].tolist()


def _exchange(distance: Float[np.ndarray, "n n"], path: Int[np.ndarray, " n"], i: int, start: int, reach: float) -> int:
    """First j >= start for which reversing i to j shortens the path, else n; ``reach`` is the largest distance."""
    ends, after = path[start:], path[start + 1 :]
    cut, join = np.zeros((2, len(ends)))
    if i:
        cut += distance[path[i - 1], path[i]]
        join += distance[path[i - 1], ends]
    cut[:-1] += distance[ends[:-1], after]
    join[:-1] += distance[path[i], after]
    better = join < cut - 1e-12 * (cut + reach)
    return start + int(better.argmax()) if better.any() else len(path)


def _nearest_neighbour(distance: Float[np.ndarray, "n n"]) -> Int[np.ndarray, " n"]:
    is_left, path = np.ones(len(distance), dtype=bool), np.empty(len(distance), dtype=int)
    path[0] = distance.sum(axis=1).argmax()  # the point farthest from all others is an end
    is_left[path[0]] = False
    for k in range(1, len(path)):
        path[k] = np.where(is_left, distance[path[k - 1]], np.inf).argmin()
        is_left[path[k]] = False
    return path


def relevant_places(
    belief: PlaceBelief, places: Float[np.ndarray, "k d"], others: Float[np.ndarray, "p d"], domain: Domain
) -> Float[np.ndarray, "s d"]:
    """Others' measured locations that are near an agent's places and, if many, correlated with these."""
    measured = others[nearest(places, others, domain)]
    if len(measured) <= _FEW or not isinstance(belief, KnownPlaces):
        return measured
    return measured[belief.prior_correlation(measured, places) >= _FAINT]


def nearest(places: Float[np.ndarray, "k d"], others: Float[np.ndarray, "p d"], domain: Domain) -> Indices:
    """Indices of the 64 others nearest to places' mean in the unit cube, in their order; all if there are fewer."""
    if len(others) <= IN_SIGHT:
        return np.arange(len(others))
    far = ((domain.to_unit(others) - domain.to_unit(places).mean(axis=0)) ** 2).sum(axis=1)
    far[np.isnan(far)] = np.inf
    near = np.flatnonzero(far <= np.partition(far, IN_SIGHT - 1)[IN_SIGHT - 1])  # more than 64 only at equal distances
    return np.sort(near[np.argsort(far[near], kind="stable")[:IN_SIGHT]])


def numbered(candidates: Candidates, agents: Sequence[str]) -> Numbered:
    """Distinct candidates (u, d) of some agents, in the order of coordinates, and each agent's indices of them."""
    if not agents:
        return np.zeros((0, 1)), {}
    places, numbers = unique_places(np.concatenate([candidates[agent] for agent in agents]))
    ends = np.cumsum([len(candidates[agent]) for agent in agents])[:-1]
    return places, dict(zip(agents, np.split(numbers, ends), strict=True))


def divide(
    chains: Sequence[Sequence[str]],
    order: int,
    candidates: Candidates,
    positions: Spots,
    claims: Spots | None = None,
    known: Numbered | None = None,
) -> dict[str, Float[np.ndarray, "_ d"]]:
    """Assign each location that several agents without a common factor could choose to one of them.

    Agents at most ``order`` apart in one chain share a factor, which forbids them the same location; both keep it.
    Otherwise a location goes to the agent that claims it, else to the nearest; ties, and unknown distances, are broken
    round-robin. An agent left without a location gets an unclaimed one from agents with two or more. ``claims`` has
    one location per agent, all different, which it keeps in any case; ``known`` is the result of ``numbered`` for
    these agents.

    An example of order 1: agents a, b, c at 0, 2, 4 of a line reach locations 0 to 2, 1 to 3, 2 to 4. Only a and c,
    which share no factor, contest a location: 2, as far from both. The tie goes to c: a keeps 0, 1, and c keeps 2 to 4.
    """
    agents = [agent for chain in chains for agent in chain]
    if not agents:
        return {}
    places, by_agent = known or numbered(candidates, agents)
    numbers, shares = [by_agent[agent] for agent in agents], shares_factor(chains, order)
    claimed = np.full(len(agents), -1)  # index of the location that each agent claims
    for robot, agent in enumerate(agents):
        if claims and agent in claims:
            claimed[robot] = max(numbers[robot][(candidates[agent] == claims[agent]).all(axis=1)], default=-1)
    unknown = np.full(places.shape[1], np.inf)
    stand = np.array([positions.get(agent, unknown) for agent in agents])
    # pairs of a location and an agent that reaches it, sorted: in a large team, few agents reach a location
    codes = np.sort(np.concatenate([own * len(agents) + robot for robot, own in enumerate(numbers)]))
    place, robot = np.divmod(codes[np.diff(codes, prepend=-1) > 0], len(agents))  # np.unique takes 40 times as long
    distance = np.linalg.norm(places[place] - stand[robot], axis=1)
    distance[place == claimed[robot]] = -np.inf
    is_kept = _winners(place, robot, distance, shares, order)
    for robot in np.flatnonzero(~is_kept.any(axis=1)):
        wanted = np.setdiff1d(numbers[robot], claimed)
        if len(wanted):
            _get_one_back(int(robot), is_kept, shares, wanted, np.linalg.norm(places[wanted] - stand[robot], axis=1))
    return {agent: candidates[agent][is_kept[robot, numbers[robot]]] for robot, agent in enumerate(agents)}


def _winners(place: Indices, robot: Indices, distance: Distances, shares: Mask, order: int) -> Bool[np.ndarray, "n p"]:
    """Mask of the locations that each agent keeps, from pairs of a location and an agent that reaches it, sorted.

    A location's nearest agent keeps it; so does each next agent that shares a factor with all agents that keep it.
    """
    turns = (robot - place) % len(shares)  # deal out where distances tie
    nearest = robot[_nearest(place, distance, turns)]
    may_win = shares[nearest[place], robot]  # the nearest, and those that share a factor with it
    place, robot, distance, turns = place[may_win], robot[may_win], distance[may_win], turns[may_win]
    robot = robot[np.lexsort((turns, distance, place))]  # for each location its nearest agent, then the next …
    rank = np.arange(len(place)) - np.searchsorted(place, place)
    by_rank = np.full((len(nearest), rank.max(initial=-1) + 1), -1)  # row: location; -1: no agent of this rank
    by_rank[place, rank] = robot
    winners = np.full((len(nearest), order + 1), -1)  # those of a location are at most order apart
    for candidate in by_rank.T:
        rows = np.flatnonzero(candidate >= 0)
        before, next_robot = winners[rows], candidate[rows]
        wins = ((before < 0) | shares[before, next_robot[:, None]]).all(axis=1)
        winners[rows[wins], (before[wins] >= 0).sum(axis=1)] = next_robot[wins]
    kept = np.zeros((len(shares), len(nearest)), dtype=bool)
    at, which = np.nonzero(winners >= 0)
    kept[winners[at, which], at] = True
    return kept


def _nearest(place: Indices, distance: Distances, turns: Indices) -> Int[np.ndarray, " p"]:
    """Row of the nearest agent of each location; of agents at equal distances, the first by ``turns``."""
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    rows = np.flatnonzero(distance == np.minimum.reduceat(distance, starts)[place])
    rows = rows[np.lexsort((turns[rows], place[rows]))]
    return rows[np.flatnonzero(np.diff(place[rows], prepend=-1))]


def shares_factor(chains: Sequence[Sequence[str]], order: int) -> Bool[np.ndarray, "n n"]:
    """Mask of pairs of agents, chain after chain, that are at most ``order`` apart in one of the chains."""
    chain = np.concatenate([np.full(len(agents), number) for number, agents in enumerate(chains)])
    place = np.concatenate([np.arange(len(agents)) for agents in chains])
    return (chain[:, None] == chain) & (np.abs(place[:, None] - place) <= order)


def _get_one_back(a: int, kept: Mask, shares: Mask, wanted: Indices, distance: Distances) -> None:
    """Give agent ``a`` the nearest wanted location of agents that keep others too, if any (changes ``kept``)."""
    for place in wanted[np.argsort(distance, kind="stable")]:
        rivals = np.flatnonzero(kept[:, place] & ~shares[a])
        if (kept[rivals].sum(axis=1) > 1).all():
            kept[rivals, place] = False
            kept[a, place] = True
            return


def assign(
    agents: Sequence[str], places: Candidates, enough: int, claims: Spots | None = None
) -> tuple[list[str], list[str]]:
    """Divide agents into participants, of which no two ever need the same location, and the others, in given order.

    Agents with ``enough`` locations can always avoid the others; as many agents with fewer locations as possible are
    matched to distinct locations. Agents with a claim always take part: only they may be matched to claims.
    """
    claims = claims or {}
    taken = {tuple(place.tolist()) for place in claims.values()}
    scarce = [agent for agent in agents if len(places[agent]) < enough]
    is_free = {a: [a in claims or tuple(place) not in taken for place in places[a].tolist()] for a in scarce}
    assigned = (set(agents) - set(scarce)) | matched({a: places[a][is_free[a]] for a in scarce}).keys()
    return [a for a in agents if a in assigned], [a for a in agents if a not in assigned]


def matched(wanted: Candidates, preferred: Collection[str] = ()) -> Spots:
    """Distinct locations for as many agents as possible, and of these for as many ``preferred`` agents as possible, out
    of the locations that each wants.
    """
    counts = [len(places) for places in wanted.values()]
    if not any(counts):
        return {}
    places, numbers = numbered(wanted, tuple(wanted))
    robots, columns = np.repeat(np.arange(len(counts)), counts), np.concatenate([*numbers.values()])
    # both are deterministic for one order of agents and locations
    if not preferred:
        graph = csr_array((np.ones(len(robots), dtype=np.int8), (robots, columns)), (len(counts), len(places)))
        matching = maximum_bipartite_matching(graph, perm_type="column")
    else:  # each agent has one more column, which stands for no location and costs more
        costs = np.ones(len(robots)), [2.0 + (agent in preferred) * len(counts) for agent in wanted]
        rows = np.concatenate([robots, np.arange(len(counts))])
        columns = np.concatenate([columns, len(places) + np.arange(len(counts))])
        matching = min_weight_full_bipartite_matching(csr_array((np.concatenate(costs), (rows, columns))))[1]
    pairs = zip(wanted, matching, strict=True)
    return {agent: places[index] for agent, index in pairs if 0 <= index < len(places)}
