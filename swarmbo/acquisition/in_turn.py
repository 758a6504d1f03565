"""Agents that choose one after the other: GP-BUCB's batch, which an agreement has to be worth more than."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.acquisition import Chooser
from swarmbo.acquisition.by_view import ViewSteps, at_once, in_turn
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import PlaceBelief, view_of


def choose_in_turn(situation: Situation, choose: Chooser) -> dict[str, Float[np.ndarray, " d"]]:
    """Each agent's best place by itself, the choices before it taken as measured (Desautels et al. 2014).

    Agents choose in the order of the situation, by what they believe themselves; no place is chosen twice. What they
    measure on the way to their choices is taken as measured, too.

    Args:
        situation: What is known.
        choose: What an agent would do by itself.

    Returns:
        The place (d,) of each agent that takes one: not of those who decline, nor of those whose places are all taken.
    """
    return at_once(turns(situation, choose))


def turns(
    situation: Situation, choose: Chooser, valued_by: PlaceBelief | None = None
) -> ViewSteps[dict[str, Float[np.ndarray, " d"]]]:
    """The same in steps: agents with beliefs of their own hand on which of their places they choose.

    Args:
        situation: What is known.
        choose: What an agent would do by itself.
        valued_by: What it is given for what it believes; None: what the situation says.
    """
    belief = situation.belief if valued_by is None else valued_by
    points: dict[str, np.ndarray] = {}

    def note(said: Mapping[str, Any]) -> None:
        nonlocal belief
        for agent, row in said.items():
            if row is not None and agent not in points:
                points[agent] = situation.candidates[agent][row]
                belief = belief.condition_on_pending(situation.leg(agent, points[agent]))

    def pick(agent: str, before: Mapping[str, Any]) -> int | None:
        note(before)
        places = situation.candidates[agent]
        left = np.arange(len(places))
        if points:
            taken = np.array(list(points.values()))
            left = left[~(places[:, None, :] == taken[None]).all(axis=-1).any(axis=-1)]
        chosen = choose(agent, view_of(belief, agent), places[left]) if len(left) else None
        return None if chosen is None else int(left[chosen])

    said = yield from in_turn(situation, "choices in turn", situation.movers, pick)
    return {agent: situation.candidates[agent][row] for agent, row in said.items() if row is not None}
