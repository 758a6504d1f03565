"""What agents with beliefs of their own say in a decision, as it crosses the links: packed, to all."""

from collections.abc import Mapping
from typing import Any

import msgspec

from swarmbo.acquisition.by_view import Company, EachSays, Heard, InTurn
from swarmbo.coordination.drivers.central import Central
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import HandOn, Steps, ToAll, asked
from swarmbo.coordination.schema import FitsWord
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes


def said_by(request: EachSays | InTurn, own: tuple[str, ...]) -> Steps[dict[str, bytes]]:
    """What some agents do for a request: they say their own, and hear all of it.

    Args:
        request: Of a step.
        own: Who they are.
    """
    fits = fitting(request)
    if isinstance(request, InTurn):

        def say(agent: str, before: Mapping[str, bytes]) -> bytes:
            return msgspec.msgpack.encode(request.of(agent, heard(request, before)))

        return asked(HandOn(request.speakers, say, fits))
    words = {agent: msgspec.msgpack.encode(request.of(agent)) if agent in request.speakers else b"" for agent in own}
    return asked(ToAll(words, fits))


def fitting(request: EachSays | InTurn) -> FitsWord:
    """Which words can be those of agents: speakers say what fits, others say nothing."""

    def is_word(agent: str, word: bytes) -> bool:
        if agent not in request.speakers:
            return not word
        try:
            return request.fits(agent, msgspec.msgpack.decode(word))
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
            return False

    return is_word


def heard(request: EachSays | InTurn, said: Mapping[str, bytes]) -> dict[str, Any]:
    """What that was, by those who said something, in their order."""
    return {agent: msgspec.msgpack.decode(said[agent]) for agent in request.speakers if agent in said}


def in_one_place(request: EachSays | InTurn, everybody: Part) -> Heard:
    """The same where all are at hand, with what it would have taken.

    Args:
        request: Of a step.
        everybody: All who hear it.
    """
    central = Central(everybody)
    said = central.run(said_by(request, everybody.graph.agents))
    return Heard(heard(request, said), central.traffic)


def part_of(company: Company) -> Part:
    """All who hear what is said; a base station hands it on where no path of links does."""
    agents, links = company
    own = {agent: agent for agent in agents}
    scopes = {f"said by {agent}": [agent] for agent in agents}
    owners = {f"said by {agent}": agent for agent in agents}
    graph = FactorGraph.from_scopes(scopes, owners=owners, variable_owners=own)
    return Part(graph, 0, Routes(agents, links, has_base=True))
