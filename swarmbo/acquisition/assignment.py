"""Assignment of places that several robots can reach."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from swarmbo.spaces import unique_places


def divide(
    chains: Sequence[Sequence[str]],
    order: int,
    candidates: Mapping[str, Float[np.ndarray, "_ d"]],
    positions: Mapping[str, Float[np.ndarray, " d"]],
    claims: Mapping[str, Float[np.ndarray, " d"]] | None = None,
) -> dict[str, Float[np.ndarray, "_ d"]]:
    """Give each contested place to one of the robots that could not settle it by a common factor.

    Robots at most ``order`` apart in one chain share a factor, which forbids them one place; they keep their places.
    Between others a contested place goes to the robot that claims it, else to the nearest; places at equal (or unknown)
    distances are dealt out in turn. A robot left without a place gets an unclaimed one from robots that have more than
    one. ``claims`` are places that robots keep in any case, one each and all different.
    """
    agents = [agent for chain in chains for agent in chain]
    if not agents:
        return {}
    n, counts = len(agents), [len(candidates[agent]) for agent in agents]
    places, number = unique_places(np.concatenate([candidates[a] for a in agents]))
    numbers = np.split(number, np.cumsum(counts)[:-1])
    shares = shares_factor(chains, order)
    # robots that reach a place, place by place: in a large team only a few do
    pairs = np.sort(number * n + np.repeat(np.arange(n), counts))
    at, robots = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], n)
    claimed = np.full(n, -1)
    for a, agent in enumerate(agents):
        if claims and agent in claims:
            claimed[a] = max(numbers[a][(candidates[agent] == claims[agent]).all(axis=1)], default=-1)
    unknown = np.full(places.shape[1], np.inf)
    stand = np.array([positions.get(agent, unknown) for agent in agents])
    distance = np.linalg.norm(places[at] - stand[robots], axis=1)
    distance[at == claimed[robots]] = -np.inf
    turns = (robots - at) % n  # deal out where distances tie
    nearest = _first_of_each(at, distance, turns)
    may_win = shares[robots[nearest[at]], robots]  # the nearest, and those that share a factor with it
    at, robots, distance, turns = at[may_win], robots[may_win], distance[may_win], turns[may_win]
    robots = robots[np.lexsort((turns, distance, at))]  # for every place its nearest robot, then the next …
    in_turn = np.full((len(places), np.bincount(at).max(initial=0)), -1)
    in_turn[at, np.arange(len(at)) - np.searchsorted(at, at)] = robots
    winners = np.full((len(places), order + 1), -1)  # each at most order apart from all others in one chain
    for next_one in in_turn.T:
        rows = np.flatnonzero(next_one >= 0)
        before, robot = winners[rows], next_one[rows]
        wins = ((before < 0) | shares[before, robot[:, None]]).all(axis=1)
        winners[rows[wins], (before[wins] >= 0).sum(axis=1)] = robot[wins]
    kept = np.zeros((n, len(places)), dtype=bool)
    place, turn = np.nonzero(winners >= 0)
    kept[winners[place, turn], place] = True
    for a in np.flatnonzero(~kept.any(axis=1)):
        wanted = np.setdiff1d(numbers[a], claimed)
        if len(wanted):
            _get_one_back(int(a), kept, shares, wanted, np.linalg.norm(places[wanted] - stand[a], axis=1))
    return {agent: candidates[agent][kept[a, numbers[a]]] for a, agent in enumerate(agents)}


def _first_of_each(
    at: Int[np.ndarray, " r"], distance: Float[np.ndarray, " r"], turns: Int[np.ndarray, " r"]
) -> Int[np.ndarray, " p"]:
    """Row of least distance of each place, and of several the one whose turn is first.

    ``at`` numbers the places 0, 1, …, rising; each has a row. ``turns`` differ for rows of one place.
    """
    starts = np.flatnonzero(np.diff(at, prepend=-1))
    tied = distance == np.minimum.reduceat(distance, starts)[at]
    rows = np.flatnonzero(tied)
    rows = rows[np.lexsort((turns[rows], at[rows]))]
    return rows[np.flatnonzero(np.diff(at[rows], prepend=-1))]


def shares_factor(chains: Sequence[Sequence[str]], order: int) -> Bool[np.ndarray, "n n"]:
    """Mask of pairs of robots, chain after chain, that are at most ``order`` apart in one of them."""
    chain = np.concatenate([np.full(len(agents), number) for number, agents in enumerate(chains)])
    place = np.concatenate([np.arange(len(agents)) for agents in chains])
    return (chain[:, None] == chain) & (np.abs(place[:, None] - place) <= order)


def _get_one_back(
    a: int,
    kept: Bool[np.ndarray, "n p"],
    shares: Bool[np.ndarray, "n n"],
    wanted: Int[np.ndarray, " w"],
    distance: Float[np.ndarray, " w"],
) -> None:
    """Give robot a the nearest wanted place that all rivals can spare, if any (changes ``kept``)."""
    for place in wanted[np.argsort(distance, kind="stable")]:
        candidate_models = np.flatnonzero(kept[:, place] & ~shares[a])
        if (kept[candidate_models].sum(axis=1) > 1).all():
            kept[candidate_models, place] = False
            kept[a, place] = True
            return


def assign(
    agents: Sequence[str],
    places: Mapping[str, Float[np.ndarray, "_ d"]],
    enough: int,
    claims: Mapping[str, Float[np.ndarray, " d"]] | None = None,
) -> tuple[list[str], list[str]]:
    """Divide robots into participants, of which no two ever need the same place, and the others, in given order.

    Robots with ``enough`` places can always avoid the others; those with fewer are matched to distinct places, as many
    of them as possible. Robots with a claim always take part: only they may be matched to claims.
    """
    claims = claims or {}
    taken = {tuple(place.tolist()) for place in claims.values()}
    few = [agent for agent in agents if len(places[agent]) < enough]
    wanted = {a: [p for p in map(tuple, places[a].tolist()) if a in claims or p not in taken] for a in few}
    assigned = set(agents) - set(few)
    known = {place: n for n, place in enumerate({place: None for own in wanted.values() for place in own})}
    if known:
        wants = np.zeros((len(few), len(known)), dtype=np.int8)
        for n, agent in enumerate(few):
            wants[n, [known[place] for place in wanted[agent]]] = 1
        matched = maximum_bipartite_matching(csr_array(wants), perm_type="column")
        assigned |= {agent for agent, place in zip(few, matched, strict=True) if place >= 0}
    return [a for a in agents if a in assigned], [a for a in agents if a not in assigned]
