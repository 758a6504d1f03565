"""Data that agents send to all others before and in a decision: packed, along a tree of agents.

Agents post them (``swarmbo.agent``); for a team the same messages are counted here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from swarmbo.acquisition.by_view import EachSays, Heard, InTurn
from swarmbo.belief.fusion.fused import Talk
from swarmbo.belief.fusion.fused_view import Unfinished, carried, talk
from swarmbo.coordination.drivers.central import Central
from swarmbo.coordination.messages import Codec, Note
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import HandOn, Steps, ToAll, asked
from swarmbo.coordination.schema import FitsWord
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.transport import Routes

Out = TypeVar("Out")
SHARING = ("reports", "news", "sharing")  # purposes of reports; all others belong to the agreement


def said_by(request: EachSays | InTurn, own: tuple[str, ...]) -> Steps[dict[str, bytes]]:
    """Steps of some agents for a request: they send their own data, and receive all."""
    fits = fitting(request)
    if isinstance(request, InTurn):

        def say(agent: str, before: Mapping[str, bytes]) -> bytes:
            return msgspec.msgpack.encode(request.of(agent, heard(request, before)))

        return asked(HandOn(request.speakers, say, fits))
    words = {agent: msgspec.msgpack.encode(request.of(agent)) if agent in request.speakers else b"" for agent in own}
    return asked(ToAll(words, fits))


def fitting(request: EachSays | InTurn) -> FitsWord:
    """Test of agents' data: speakers send admissible data, others send nothing."""

    def is_word(agent: str, word: bytes) -> bool:
        if agent not in request.speakers:
            return not word
        try:
            return request.fits(agent, msgspec.msgpack.decode(word))
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
            return False

    return is_word


def heard(request: EachSays | InTurn, said: Mapping[str, bytes]) -> dict[str, Any]:
    """Decoded data of the speakers, in their order."""
    return {agent: msgspec.msgpack.decode(said[agent]) for agent in request.speakers if agent in said}


def all_of(graph: FactorGraph, routes: Routes, present: tuple[str, ...] | None = None) -> Part:
    """One part of all agents, whatever they share; its number differs from those of an agreement's parts."""
    return Part(graph, len(graph.components) + 1, routes, present=present)


class Words:
    """Exchanges of agents in one process, with their traffic in ``sent``, by purpose."""

    def __init__(self, graph: FactorGraph, routes: Routes, present: tuple[str, ...] | None = None) -> None:
        self.graph, self.routes, self.present, self.sent = graph, routes, present, dict[str, Traffic]()
        self._everybody = Central(all_of(graph, routes, present))

    def note(self, purpose: str, took: Traffic) -> None:
        """Count traffic."""
        if took != Traffic():
            self.sent[purpose] = self.sent.get(purpose, Traffic()) + took

    def said(self, purpose: str, steps: Steps[Out]) -> Out:
        """Run an exchange of data among all agents, and count it."""
        before = self._everybody.traffic
        found = self._everybody.run(steps)
        self.note(purpose, _less(self._everybody.traffic, before))
        return found

    def answered(self, request: EachSays | InTurn) -> Heard:
        """Data of some agents about their own beliefs."""
        everybody = self._everybody.part.agents
        return Heard(heard(request, self.said(request.purpose, said_by(request, everybody))))

    def summed(self, purpose: str, *shape: int) -> None:
        """Count a sum over all agents of numbers of a shape."""
        self.note(purpose, self._everybody.over_tree(np.empty(shape)))

    def ranked(self, parts: Sequence[tuple[int, FactorGraph]], n_points: int) -> None:
        """Count sums of the values of points by agents of some parts."""
        for number, graph in parts:
            part = Part(graph, number, self.routes, present=self.present)
            self.note("ranking", Central(part).over_tree(np.empty((1, n_points))))

    def talked(self, due: Sequence[Talk]) -> None:
        """Run exchanges of beliefs: a note to each neighbour in each step, and a test for further steps."""
        for agents, medium, steps in due:
            talking, answer = talk(agents, steps), None
            while True:
                try:
                    request = talking.send(answer)
                except StopIteration:
                    break
                if isinstance(request, Unfinished):
                    self.summed("sharing", 1, 1)
                    answer = request.own
                    continue
                answer = carried(request.letters, medium)
                arrived = {(one.sender, name): one.payload for name, inbox in answer.items() for one in inbox}
                for name, agent in agents.items():
                    for other in agent.neighbours:
                        note = Note(name, arrived.get((name, other), b""))
                        self.note("sharing", Traffic(1, Codec.size(note), self.routes.hops(name, other)))


def parted(sent: Mapping[str, Traffic]) -> tuple[Traffic, Traffic]:
    """Traffic of the agreement, and of reports of news and reachable locations."""
    shared = sum((took for purpose, took in sent.items() if purpose in SHARING), Traffic())
    return sum((took for purpose, took in sent.items() if purpose not in SHARING), Traffic()), shared


def _less(after: Traffic, before: Traffic) -> Traffic:
    return Traffic(
        after.messages - before.messages, after.bytes - before.bytes, after.transmissions - before.transmissions
    )
