"""Exchange of results between agents with separate beliefs in a decision; nothing is sent if all share a belief."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.chain import matched, relevant_places
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import PlaceBelief, Views, quick_at, view_of
from swarmbo.steps import Out, Steps, run_steps

Chooser = Callable[[str, PlaceBelief, Float[np.ndarray, "k d"]], int | None]  # agent, belief, places; None: abstains
ValueOf = Callable[[str, Mapping[str, Any]], Any]  # value of an agent, given the values sent before
FitsValue = Callable[[str, Any], bool]  # True if an agent's value is admissible
_NO_PLACE = -1  # instead of a row: no location is free; None: the agent abstains


def is_row(row: Any, n_rows: int) -> bool:
    """True if a value is a row number below ``n_rows``."""
    return type(row) is int and 0 <= row < n_rows


def are_rows(rows: Any, n_rows: int) -> bool:
    """True if a value is a nonempty list of different row numbers."""
    return type(rows) is list and 0 < len(rows) == len(set(map(str, rows))) and all(is_row(row, n_rows) for row in rows)


def are_numbers(numbers: Any, count: int) -> bool:
    """True if a value is a list of ``count`` numbers, none of them NaN or +inf."""
    if type(numbers) is not list or len(numbers) != count:
        return False
    return all(type(number) in (float, int) and number < math.inf for number in numbers)


class EachSends(NamedTuple):
    """Request that some agents each send a value to all; answered by the values, in the order of the senders."""

    purpose: str  # purpose of the messages
    senders: tuple[str, ...]  # sending agents
    # computes a value from an agent's own belief, common knowledge and, if sequential, the values sent before (else an
    # empty table); values are numbers, text, None, and lists of these
    value_of: ValueOf
    fits: FitsValue  # check of a received value
    in_turn: bool = False  # True: one agent after another


def each(
    situation: Situation, purpose: str, senders: Sequence[str], value: ValueOf, fits: FitsValue, in_turn: bool = False
) -> Steps[Any]:
    """Values of some agents, by agent; computed here if all share a belief. ``in_turn``: one agent after another."""
    request = EachSends(purpose, tuple(senders), value, fits, in_turn)
    return (yield request) if isinstance(situation.belief, Views) else answer_of(request)


def answer_of(request: EachSends) -> dict[str, Any]:
    """Values of all senders, computed in a process that has all their beliefs."""
    values: dict[str, Any] = {}
    for agent in request.senders:
        values[agent] = request.value_of(agent, values if request.in_turn else {})
    return values


def at_once(steps: Steps[Out]) -> Out:
    """Run steps in a process that has all beliefs, without counting messages."""
    return run_steps(steps, answer_of)


def likely_steps(situation: Situation) -> Steps[Situation]:
    """Situation without locations where measurements probably fail, judged by each agent's separate belief."""
    if not (situation.required or isinstance(situation.belief, Views)):
        return situation

    def fits(agent: str, kept: Any) -> bool:
        return kept is None or are_rows(kept, len(situation.candidates[agent]))

    kept = yield from each(
        situation, "likely places", situation.movers, lambda agent, _: situation.likely_rows(agent), fits
    )
    fewer = {agent: situation.candidates[agent][rows] for agent, rows in kept.items() if rows is not None}
    likely, bound = {**situation.candidates, **fewer}, [a for a in situation.movers if a not in situation.prices]
    few = {agent: likely[agent] for agent in bound if len(likely[agent]) < len(bound)}  # with more, it always finds one
    if fewer and len(matched(few)) < len(few):  # an unlikely place is better than none
        likely |= {agent: situation.candidates[agent] for agent in few}
    return replace(situation, candidates=likely)


def fast_belief(situation: Situation, belief: PlaceBelief) -> PlaceBelief:
    """The same belief, with fast predictions at the agents' candidates."""
    own = {agent: situation.candidates[agent] for agent in situation.movers}
    places = own if isinstance(belief, Views) else {"all": situation.numbered[0]}
    return quick_at(belief, places) if own else belief


def greedy_picks(
    situation: Situation, choose: Chooser, fast: PlaceBelief | None = None
) -> Steps[tuple[dict[str, Float[np.ndarray, " d"]], list[str]]]:
    """Sequential greedy choices: agent by agent, the best location that is not taken, given the earlier choices.

    Earlier choices count as measured (Desautels et al. 2014) if they are ``relevant_places``. The returned list has
    the agents without a free place that do not abstain. ``fast`` is the result of ``fast_belief``; None: compute it.
    """
    candidates, belief = situation.candidates, fast_belief(situation, situation.belief) if fast is None else fast
    everywhere, numbers = situation.numbered
    every = np.concatenate([np.zeros(0, dtype=int), *numbers.values()])  # an agent's begin at its ``first``
    first = dict(zip(numbers, np.cumsum([0, *map(len, numbers.values())]).tolist(), strict=False))

    def pick(agent: str, before: Mapping[str, Any]) -> int | None:
        places, view = candidates[agent], view_of(belief, agent)
        used = every[[first[other] + row for other, row in before.items() if row not in (None, _NO_PLACE)]]
        is_free = np.ones(len(everywhere), dtype=bool)
        is_free[used] = False
        left = np.flatnonzero(is_free[numbers[agent]])
        if not len(left):
            return None if agent in situation.prices and choose(agent, view, places) is None else _NO_PLACE
        if len(used):
            view = view.condition_on_pending(relevant_places(view, places, everywhere[used], situation.domain))
        chosen = choose(agent, view, places[left])
        return None if chosen is None else int(left[chosen])

    def fits(agent: str, row: Any) -> bool:
        return row in (None, _NO_PLACE) or is_row(row, len(candidates[agent]))

    rows = yield from each(situation, "choices in turn", situation.movers, pick, fits, in_turn=True)
    picks = {agent: candidates[agent][row] for agent, row in rows.items() if row not in (None, _NO_PLACE)}
    return picks, [agent for agent, row in rows.items() if row == _NO_PLACE]
