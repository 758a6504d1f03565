"""Agents that choose one after the other: GP-BUCB's batch, which an agreement has to be worth more than."""

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.acquisition import Chooser
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import view_of


def choose_in_turn(situation: Situation, choose: Chooser) -> dict[str, Float[np.ndarray, " d"]]:
    """Each agent's best place by itself, the choices before it taken as measured (Desautels et al. 2014).

    Agents choose in the order of the situation, by what they believe themselves; no place is chosen twice.

    Args:
        situation: What is known.
        choose: What an agent would do by itself.

    Returns:
        The place (d,) of each agent that takes one: not of those who decline, nor of those whose places are all taken.
    """
    belief = situation.belief
    points: dict[str, np.ndarray] = {}
    for agent in situation.movers:
        places = situation.candidates[agent]
        if points:
            taken = np.array(list(points.values()))
            places = places[~(places[:, None, :] == taken[None]).all(axis=-1).any(axis=-1)]
        if len(places):
            chosen = choose(agent, view_of(belief, agent), places)
            if chosen is not None:
                points[agent] = places[chosen]
                belief = belief.condition_on_pending(points[agent][None])
    return points
