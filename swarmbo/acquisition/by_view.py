"""What a decision takes of several agents' own beliefs: each works out its share of it, and says it to the others.

Where all share a belief whoever decides works it all out, and nothing is said. Where each agent has one of its own, a
step yields a request: a team, which has them all, answers it at once and counts what would have been said; an agent
answers it by messages.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import networkx as nx

from swarmbo.acquisition.situation import Situation
from swarmbo.belief import Views

Out = TypeVar("Out")


class Participants(NamedTuple):
    """Who hears what is said.

    Args:
        agents: All of them.
        links: Who hears whom; None: everyone hears everyone.
    """

    agents: tuple[str, ...]
    links: "nx.Graph[str] | None"


FitsValue = Callable[[str, Any], bool]  # an agent, and what it said


def anything(agent: str, said: Any) -> bool:
    """What an agent says of which nothing is known; others that take it for what it is not end with an error."""
    return True


def is_row(row: Any, n_rows: int) -> bool:
    """Whether something is the number of one of so many rows."""
    return type(row) is int and 0 <= row < n_rows


def are_rows(rows: Any, n_rows: int) -> bool:
    """Whether something is a list of different rows, and not empty."""
    return type(rows) is list and 0 < len(rows) == len(set(map(str, rows))) and all(is_row(row, n_rows) for row in rows)


def are_numbers(numbers: Any, count: int) -> bool:
    """Whether something is a list of so many numbers, none of them NaN or +inf."""
    if type(numbers) is not list or len(numbers) != count:
        return False
    return all(type(number) in (float, int) and number < math.inf for number in numbers)


class EachSays(NamedTuple):
    """Some agents each say something of their own to all; answered by ``Heard``.

    Args:
        purpose: What it is for.
        speakers: Who says something.
        of: What an agent says: of its own belief, and of what all know. Numbers, text, None, and lists of them.
        company: Who hears it.
        fits: Whether something can be what an agent says.
    """

    purpose: str
    speakers: tuple[str, ...]
    of: Callable[[str], Any]
    participants: Participants
    fits: FitsValue = anything


class InTurn(NamedTuple):
    """The same one after the other: what an agent says depends on what those before it have said.

    Args:
        purpose: What it is for.
        speakers: Who says something, in order.
        of: What an agent says, given what those before it did.
        company: Who hears it.
        fits: Whether something can be what an agent says.
    """

    purpose: str
    speakers: tuple[str, ...]
    of: Callable[[str, Mapping[str, Any]], Any]
    participants: Participants
    fits: FitsValue = anything


class Heard(NamedTuple):
    """What was said, in the order of the speakers."""

    words: dict[str, Any]


ViewSteps = Generator[EachSays | InTurn, Heard, Out]


def each(
    situation: Situation,
    purpose: str,
    speakers: Sequence[str],
    of: Callable[[str], Any],
    fits: FitsValue = anything,
) -> ViewSteps[Any]:
    """What some agents say, by agent; worked out here where all share a belief."""
    if not isinstance(situation.belief, Views):
        return {agent: of(agent) for agent in speakers}
    return (yield EachSays(purpose, tuple(speakers), of, Participants(situation.agents, situation.links), fits)).words


def in_turn(
    situation: Situation,
    purpose: str,
    speakers: Sequence[str],
    of: Callable[[str, Mapping[str, Any]], Any],
    fits: FitsValue = anything,
) -> ViewSteps[Any]:
    """What some agents say one after the other, by agent; worked out here where all share a belief."""
    request = InTurn(purpose, tuple(speakers), of, Participants(situation.agents, situation.links), fits)
    if not isinstance(situation.belief, Views):
        return answer_of(request)
    return (yield request).words


def answer_of(request: EachSays | InTurn) -> dict[str, Any]:
    """What is said, by whoever knows what all speakers believe."""
    words: dict[str, Any] = {}
    for agent in request.speakers:
        words[agent] = request.of(agent) if isinstance(request, EachSays) else request.of(agent, words)
    return words


def at_once(steps: ViewSteps[Out]) -> Out:
    """Go through steps where all beliefs are at hand, and nobody counts what would be said."""
    heard: Any = None
    while True:
        try:
            request = steps.send(heard)
        except StopIteration as finished:
            return finished.value
        heard = Heard(answer_of(request))


def likely_steps(situation: Situation) -> ViewSteps[Situation]:
    """``situation.likely()``, of which each agent with a belief of its own knows its own places."""
    if not isinstance(situation.belief, Views):
        return situation.likely()

    def fits(agent: str, rows: Any) -> bool:
        return rows is None or are_rows(rows, len(situation.candidates[agent]))

    kept = yield from each(situation, "likely places", situation.movers, situation.likely_rows, fits)
    return situation.keeping({agent: rows for agent, rows in kept.items() if rows is not None})
