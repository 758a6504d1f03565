"""Sequential greedy choice: GP-BUCB's batch, with which an agreement is compared."""

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
    """The belief, fast at the agents' candidates."""
    places = {agent: situation.candidates[agent] for agent in situation.movers}
    return quick_at(belief, places) if places else belief


def choose_in_turn(situation: Situation, choose: Chooser) -> dict[str, Float[np.ndarray, " d"]]:
    """Best place of each agent, with the earlier choices as measured (Desautels et al. 2014).

    Agents choose in the order of the situation, by their own beliefs; no place is chosen twice. An agent considers the
    64 earlier choices nearest to the middle of its reachable places, and of many measurements the relevant ones.
    Abstaining agents and those without a free place are missing.
    """
    return at_once(turns(situation, choose))


def turns(
    situation: Situation, choose: Chooser, looked: PlaceBelief | None = None
) -> ViewSteps[dict[str, Float[np.ndarray, " d"]]]:
    """Steps of ``choose_in_turn``, in which agents with separate beliefs send their choices.

    ``looked`` replaces the beliefs, by ``looked_at``; None: those of the situation.
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
