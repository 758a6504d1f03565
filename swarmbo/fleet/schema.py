"""Schema of letters, by sender, recipient and problem: inadmissible ones are refused before they are saved. Messages of
agreements are checked again where they are awaited (``coordination.schema``, ``agent.schema``).
"""

import math
from collections.abc import Collection, Iterable, Mapping

from msgspec import UNSET

from swarmbo.agent.schema import is_place, is_stop
from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.coordination.messages import Codec
from swarmbo.deciding.own_rows import OwnRow, Stop
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet import letters
from swarmbo.fleet.letters import Letter
from swarmbo.fleet.plan import HUB
from swarmbo.problem import Problem

_MOST = 2**53  # counts
_NAME = 64  # bytes that distinguish letters


def fits_agent(letter: Letter, sender: str, name: str, problem: Problem) -> bool:
    """True if an agent may receive the letter from this sender."""
    if sender != HUB:
        return isinstance(letter, letters.Said) and sender in problem.agents and _is_message(letter.payload)
    match letter:
        case letters.Begin():
            return 0 < letter.turn < _MOST and _can_begin(letter, name, problem)
        case letters.Told():
            has_total = letter.row.total is not UNSET
            is_asked = letter.query is not None and (problem.outcomes == "total" or not has_total)
            return (problem.is_field or is_asked) and is_row(letter.row, name, problem)
        case letters.Measure():
            n = len(problem.graph.variables_owned_by(name))
            return all(is_place(at, problem) if problem.is_field else len(at) == n for at in letter.places)
        case letters.Back():
            rows = [*letter.told.told.values(), *letter.told.attached, *letter.came.values()]
            is_known = letter.since >= 0 and all(query[1:].isdecimal() for query in letter.came)
            return 0 < letter.turn < _MOST and is_known and all(is_row(row, name, problem) for row in rows)
        case _:
            return isinstance(letter, letters.SendSnapshot | letters.Ping | letters.End)


def fits_hub(letter: Letter, sender: str, problem: Problem) -> bool:
    """True if the hub may receive the letter from this sender."""
    if sender not in problem.agents:
        return False
    graph = problem.graph
    match letter:
        case letters.Word():
            counts = [letter.repeated, letter.refused, letter.report.rounds]
            counts += [n for took in letter.sent.values() for n in (took.messages, took.bytes, took.transmissions)]
            is_own = _are_values(letter.values, graph.variables_owned_by(sender), problem)
            is_known = is_own and _are_values(letter.others, graph.variables, problem)
            return is_known and all(0 <= count < _MOST for count in counts)
        case letters.Measured():
            return all(_is_answer(answer, sender, problem) for answer in letter.answers)
        case letters.Odd():
            is_of_members = set(letter.refused) <= {*problem.agents, HUB}
            return is_of_members and all(0 <= n < _MOST for n in letter.refused.values())
        case letters.Here():
            return len(letter.start) <= _NAME
        case _:
            return isinstance(letter, letters.Snapshot)


def is_row(row: OwnRow, name: str, problem: Problem) -> bool:
    """True if an agent can have these data about an evaluation."""
    own, variables = problem.graph.factors_owned_by(name), problem.graph.variables_owned_by(name)
    total = row.total if isinstance(row.total, float) else None
    is_own = set(own).issuperset([*row.factors, *row.noise]) and 0 <= row.order < _MOST
    stds = [*row.noise.values(), *([] if row.total_noise is None else [row.total_noise])]
    is_known = _are_outcomes([*row.factors.values(), total]) and _are_stds(stds)
    stops: tuple[Stop, ...] = row.on_the_way
    is_there = _are_values(row.place, variables, problem)
    if problem.is_field and row.factors:
        is_there = is_there and is_place([row.place.get(variable, math.nan) for variable in variables], problem)
    return is_own and is_known and is_there and all(problem.is_field and is_stop(stop, problem) for stop in stops)


def _is_message(payload: bytes) -> bool:
    try:
        Codec.read(payload)
    except TransportError:
        return False
    return True


def _can_begin(letter: letters.Begin, name: str, problem: Problem) -> bool:
    agents, participants = set(problem.agents), letter.participants
    if letter.links is not None and not all(a in agents and b in agents for a, b in letter.links):
        return False
    if participants is not None:
        try:
            participants.checked(name, problem)
        except ConfigError:
            return False
        said = [
            (agent, row) for agent, rows in participants.said.items() for row in (*rows.told.values(), *rows.attached)
        ]
        if not all(is_row(row, agent, problem) for agent, row in said):
            return False
    if (offer := letter.offer) is None:
        return True
    places = [*(offer.candidates or ()), *([] if offer.position is None else [offer.position])]
    return problem.is_field and offer.price >= 0.0 and all(is_place(place, problem) for place in places)


def _is_answer(answer: letters.Answer, name: str, problem: Problem) -> bool:
    own = set(problem.graph.factors_owned_by(name))
    is_own = set(answer.outcomes) == own and own.issuperset(answer.noise)
    is_known = _are_outcomes(answer.outcomes.values()) and _are_stds(answer.noise.values())
    return is_own and is_known and (answer.location is None or is_place(answer.location, problem))


def _are_outcomes(outcomes: Iterable[float | None]) -> bool:
    return all(y is None or abs(y) <= LARGEST_OUTCOME for y in outcomes)


def _are_stds(stds: Iterable[float]) -> bool:
    return all(0.0 <= std <= LARGEST_OUTCOME for std in stds)


def _are_values(values: Mapping[str, float], variables: Collection[str], problem: Problem) -> bool:
    """True if codes are of some variables, and in or near their bounds."""
    if not set(variables).issuperset(values):
        return False
    if problem.is_field:
        return all(abs(x) < LARGEST_OUTCOME for x in values.values())
    if problem.is_mixed:
        return all(problem.variables[x].has(code) for x, code in values.items())
    low, high = (problem.coded(end) for end in (problem.domain.low, problem.domain.high))
    return all(2 * low[x] - high[x] <= y <= 2 * high[x] - low[x] for x, y in values.items())
