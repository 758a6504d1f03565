"""Agents that choose one after the other: GP-BUCB's batch, which an agreement has to be worth more than."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.acquisition import Chooser
from swarmbo.acquisition.by_view import ViewSteps, at_once, in_turn, is_row
from swarmbo.acquisition.chain import told_by
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import PlaceBelief, quick_at, view_of
from swarmbo.spaces import are_among


def looked_at(situation: Situation, belief: PlaceBelief) -> PlaceBelief:
    """What agents go by, quick where they can measure.

    Args:
        situation: What is known.
        belief: Its own, or what takes its place.
    """
    places = {agent: situation.candidates[agent] for agent in situation.movers}
    return quick_at(belief, places) if places else belief


def choose_in_turn(situation: Situation, choose: Chooser) -> dict[str, Float[np.ndarray, " d"]]:
    """Each agent's best place by itself, the choices before it taken as measured (Desautels et al. 2014).

    Agents choose in the order of the situation, by what they believe themselves; no place is chosen twice. Of
    the choices before it an agent takes the 64 into
    account that are nearest to the middle of what it can reach, and of many measurements those that tell it anything.

    Args:
        situation: What is known.
        choose: What an agent would do by itself.

    Returns:
        The place (d,) of each agent that takes one: not of those who decline, nor of those whose places are all taken.
    """
    return at_once(turns(situation, choose))


def turns(
    situation: Situation, choose: Chooser, looked: PlaceBelief | None = None
) -> ViewSteps[dict[str, Float[np.ndarray, " d"]]]:
    """The same in steps: agents with beliefs of their own hand on which of their places they choose.

    Args:
        situation: What is known.
        choose: What an agent would do by itself.
        looked: What it is given for what it believes, by ``looked_at``; None: what the situation says.
    """
    belief, candidates = looked_at(situation, situation.belief) if looked is None else looked, situation.candidates

    def pick(agent: str, before: Mapping[str, Any]) -> int | None:
        places, own = candidates[agent], view_of(belief, agent)
        left = np.arange(len(places))
        before = {other: row for other, row in before.items() if row is not None}
        if before:
            others = np.array([candidates[other][row] for other, row in before.items()])
            left = left[~are_among(places, others)]
            own = own.condition_on_pending(told_by(own, places, others, situation.domain))
        chosen = choose(agent, own, places[left]) if len(left) else None
        return None if chosen is None else int(left[chosen])

    def fits(agent: str, row: Any) -> bool:
        return row is None or is_row(row, len(candidates[agent]))

    said = yield from in_turn(situation, "choices in turn", situation.movers, pick, fits)
    return {agent: candidates[agent][row] for agent, row in said.items() if row is not None}
