"""Messages of one agent in a stage: what it sends to others and receives from them."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.agent.participants import Participants
from swarmbo.agent.timed import Known, Timed
from swarmbo.coordination import schema as fitting
from swarmbo.coordination.drivers.by_messages import ByMessages, Post
from swarmbo.coordination.messages import Key, Message
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import AllReduce, Steps, asked
from swarmbo.deciding.setup import Setup
from swarmbo.deciding.words import all_of
from swarmbo.transport import Routes

Out = TypeVar("Out")
_NEAR = 1.0  # distance outside the cube that a point may have, in sides
Program = Generator[Mapping[Key, fitting.Wanted], dict[Key, Message], Out]


class Stage(NamedTuple):
    """Parallel programs of one purpose; answered by their outcomes."""

    purpose: str
    programs: Callable[[Post], Iterable[Program[Any]]]


Staged = Generator[Stage | Timed | Known, Any, Out]


@dataclass(frozen=True, eq=False)
class Saying:
    """Base of an agent's stages: messages to all others, and sums over all."""

    name: str
    setup: Setup
    routes: Routes
    links: "nx.Graph[str] | None"
    participants: Participants | None = None
    sites: Float[np.ndarray, "k d"] | None = None
    refused: Counter[str] = field(default_factory=Counter[str])

    @property
    def _members(self) -> tuple[str, ...]:
        return self.setup.problem.agents if self.participants is None else self.participants.members

    @property
    def _everybody(self) -> Part:
        """One part of all participants."""
        return all_of(self.setup.problem.graph, self.routes, self._members)

    def _said(self, purpose: str, steps: Steps[dict[str, bytes]]) -> Staged[dict[str, bytes]]:
        """Exchange data with every agent."""
        (said,) = yield Stage(purpose, lambda post: [ByMessages(self._everybody, self.name, post).program(steps)])
        return said

    def _sum(
        self, purpose: str, numbers: Float[np.ndarray, "k m"], fits: fitting.Fits
    ) -> Staged[Float[np.ndarray, "k m"]]:
        """Sum over all agents, up a tree of them and down again."""
        (sums,) = yield Stage(purpose, lambda post: [self._reduced(self._everybody, numbers[None], post, fits)])
        return sums

    def _reduced(
        self, part: Part, terms: Float[np.ndarray, "f k m"], post: Post, fits: fitting.Fits
    ) -> Program[Float[np.ndarray, "k m"]]:
        return ByMessages(part, self.name, post).program(asked(AllReduce(terms, fits)))

    def _composed(
        self, purpose: str, point: Float[np.ndarray, " n"], owners: Sequence[str] = (), who: Sequence[str] = ()
    ) -> Staged[Float[np.ndarray, " n"]]:
        """Joint point of the unit cube, to which each agent contributes the variables that it owns here.

        The first participant, or the first of ``who``, contributes those of absent agents.
        """
        members, owners = self._members, owners or self.setup.problem.graph.variable_owners
        first = next((agent for agent in members if agent in who), members[0])
        says = [owner if owner in members else first for owner in owners]
        told = np.where(np.array(says) == self.name, point, 0.0)[None]
        return (yield from self._sum(purpose, told, fitting.each_own(says, -_NEAR, 1.0 + _NEAR)))[0]
