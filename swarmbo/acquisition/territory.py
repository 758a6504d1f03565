"""Who may bargain for a place that several robots can reach."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

Place = tuple[float, ...]


def divide(
    chains: Sequence[Sequence[str]],
    order: int,
    candidates: Mapping[str, Float[np.ndarray, "_ d"]],
    positions: Mapping[str, Float[np.ndarray, " d"]],
) -> dict[str, Float[np.ndarray, "_ d"]]:
    """Give each contested place to one of the robots that could not settle the matter by a factor of theirs.

    Robots at most ``order`` apart in one chain share a factor, which forbids them one place; they keep what they have.
    Between others a contested place goes to the nearest robot. A robot that this would leave with nothing gets one
    place back from robots that have more than one.

    Args:
        chains: The chains of robots.
        order: Markov order B.
        candidates: For each robot the places (k, d) it can reach.
        positions: Where robots are (d,).

    Returns:
        For each robot the places it keeps, in their old order.
    """
    rank = {agent: (number, n) for number, chain in enumerate(chains) for n, agent in enumerate(chain)}
    places = {agent: dict.fromkeys(map(tuple, candidates[agent].tolist())) for agent in rank}
    reachers: dict[Place, list[str]] = {}
    for agent in rank:
        for place in places[agent]:
            reachers.setdefault(place, []).append(agent)

    def shares_factor(a: str, b: str) -> bool:
        return rank[a][0] == rank[b][0] and abs(rank[a][1] - rank[b][1]) <= order

    def distance(agent: str, place: Place) -> float:
        return float(np.linalg.norm(positions[agent] - np.array(place))) if agent in positions else np.inf

    for place, agents in reachers.items():
        kept: list[str] = []
        for agent in sorted(agents, key=lambda agent: (distance(agent, place), rank[agent])):
            if all(shares_factor(agent, other) for other in kept):
                kept.append(agent)
            else:
                del places[agent][place]
    for agent in rank:
        if not places[agent]:
            for place in sorted(map(tuple, candidates[agent].tolist()), key=lambda place: distance(agent, place)):
                rivals = [b for b in reachers[place] if place in places[b] and not shares_factor(agent, b)]
                if all(len(places[rival]) > 1 for rival in rivals):
                    for rival in rivals:
                        del places[rival][place]
                    places[agent][place] = None
                    break
    n_dims = {agent: candidates[agent].shape[1] for agent in rank}
    return {agent: np.array(list(places[agent])).reshape(-1, n_dims[agent]) for agent in rank}
