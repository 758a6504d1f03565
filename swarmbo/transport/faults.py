"""A transport with faults: it loses, delays, repeats and reorders messages; links are cut, agents fail and join."""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from swarmbo.boundary.rng import stream
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Count, Settings, Share, Whole, require
from swarmbo.transport.routes import Envelope, InProcessTransport, Routes

if TYPE_CHECKING:
    import networkx as nx


class Cut(Settings, frozen=True):
    """Links that carry nothing for a while.

    Args:
        parts: Groups of names of agents. No message passes from one group to another; agents in no group form one more.
        rounds: First and last round of the cut; None: all rounds.
        steps: First and last step of the cut in each agreement, counted from 0; None: all steps.

    Example:
        >>> [Cut(parts=(("a",),), rounds=(3, 5)).holds(round, step=0) for round in (2, 3, 5, 6)]
        [False, True, True, False]
    """

    parts: tuple[tuple[str, ...], ...]
    rounds: tuple[Whole, Whole] | None = None
    steps: tuple[Whole, Whole] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self, "parts", lambda parts: any(parts), "at least one part with an agent in it")
        require(self, "parts", lambda p: len(set().union(*p)) == sum(len(set(own)) for own in p), "no agent in two")
        for field in ("rounds", "steps"):
            require(self, field, lambda span: span is None or span[0] <= span[1], "the first and the last, in order")

    def holds(self, round: int, step: int) -> bool:
        """True if the cut is in effect at a step of a round."""
        spans = ((self.rounds, round), (self.steps, step))
        return all(span is None or span[0] <= number <= span[1] for span, number in spans)

    def separates(self, link: tuple[str, str]) -> bool:
        """True if the ends of a link are in different parts."""
        side = {agent: number for number, part in enumerate(self.parts, start=1) for agent in part}
        return side.get(link[0], 0) != side.get(link[1], 0)


class Event(Settings, frozen=True):
    """Time at which an agent fails or joins.

    Args:
        agent: Name of the agent.
        round: Round, >= 0.
        step: Step of that round's agreement, >= 0; 0 is before the agreement begins.
    """

    agent: str
    round: Whole
    step: Whole = 0


@kind("transport", FIELD, FUNCTION)
class Faults(Settings, frozen=True, tag_field="kind", tag="faulty"):
    """A transport inside one process with faults: loss, delay, cuts and others. Senders are not informed of losses.

    Agents are separate objects that exchange encoded messages. In lockstep, messages are acknowledged and repeated. So
    decisions are the same as without faults, but later and with more traffic. If an agent fails for good, or a message
    or its answer is lost 200,000 times, a decision in lockstep ends with the status ``blocked``. Methods with a
    deadline use the messages that arrive in time.

    Args:
        loss: Share of messages that a link loses, from 0 to below 1, independently in each direction. A relayed message
            must survive every link on its path.
        delay: Largest number of steps, >= 0, that a link adds to the one step of a message. It is drawn for each
            message and link, so messages may overtake one another.
        duplicate: Share of messages that are sent twice, from 0 to below 1. Each copy has its own faults.
        reorder: Share of inboxes that are delivered in random order, from 0 to below 1.
        bandwidth: Bytes, >= 1, that a link carries in a step in each direction; other messages wait. None: no limit.
        cuts: Times at which some links carry nothing.
        deaths: Times at which agents fail. A failed agent sends, receives and relays nothing, its measurements are not
            reported, and later decisions leave it out. Messages are relayed around it if links allow.
        joins: Times at which failed agents return. An agent without an earlier failure first joins then.
        seed: Seed of random draws, >= 0. Streams differ by team seed, episode, round, agreement, and link direction.

    Example:
        >>> transport = Faults(loss=0.5).open(["a", "b"])
        >>> for n in range(100):
        ...     transport.send(Envelope("a", "b", b"hello"))
        >>> len(transport.deliver()["b"]), transport.traffic.messages, transport.edges["a", "b"].lost
        (55, 100, 45)
    """

    as_agents: ClassVar[bool] = True

    loss: Share = 0.0
    delay: Whole = 0
    duplicate: Share = 0.0
    reorder: Share = 0.0
    bandwidth: Count | None = None
    cuts: tuple[Cut, ...] = ()
    deaths: tuple[Event, ...] = ()
    joins: tuple[Event, ...] = ()
    seed: Whole = 0

    @property
    def named(self) -> frozenset[str]:
        """Names of agents with scheduled faults."""
        in_parts = (agent for cut in self.cuts for part in cut.parts for agent in part)
        return frozenset([*in_parts, *(event.agent for event in (*self.deaths, *self.joins))])

    def is_present(self, agent: str, round: int, step: float = 0) -> bool:
        """True if an agent is present at a step of a round's agreement; step infinity is after the agreement."""
        events = [(e.round, e.step, True) for e in self.joins if e.agent == agent]
        events += [(e.round, e.step, False) for e in self.deaths if e.agent == agent]
        events.sort()
        states = [joins for *when, joins in events if tuple(when) <= (round, step)]
        return states[-1] if states else not (events and events[0][2])

    def present(self, agents: Sequence[str], round: int, step: float = 0) -> tuple[str, ...]:
        """Agents that are present at a step of a round's agreement."""
        return tuple(agent for agent in agents if self.is_present(agent, round, step))

    def after(self, round: int, agents: Iterable[str]) -> "Faults":
        """Faults between the agreements of a round and the next: cuts by steps are over, and failed agents stay absent.

        Example:
            >>> Faults(deaths=(Event("a", round=3, step=7),)).after(3, ["a", "b"]).deaths
            (Event(agent='a', round=0, step=0),)
        """
        cuts = tuple(Cut(parts=cut.parts) for cut in self.cuts if cut.steps is None and cut.holds(round, 0))
        gone = tuple(Event(agent, 0) for agent in agents if not self.is_present(agent, round, math.inf))
        return msgspec.structs.replace(self, cuts=cuts, deaths=gone, joins=())

    def open(
        self, agents: Iterable[str], links: "nx.Graph[Any] | None" = None, *, seed: int | None = None, round: int = 0
    ) -> "FaultyTransport":
        """Connect agents, as ``InProcess.open``, in a round of the schedule.

        ``seed`` is the team's seed, so that draws differ between teams and rounds. None: the seed of the settings.
        """
        return FaultyTransport(Routes(agents, links), self, round, seed)


class FaultyTransport(InProcessTransport):
    """Transport of :meth:`Faults.open`. A lost message counts as traffic; ``now`` is the number of ended steps."""

    def __init__(self, routes: Routes, faults: Faults, round: int, team_seed: int | None) -> None:
        super().__init__(routes)
        self.faults, self._team_seed = faults, team_seed
        self._n_sent = 0
        self._detours: dict[frozenset[str], Routes] = {}  # by failed agents
        self._may_fail = frozenset(event.agent for event in (*faults.deaths, *faults.joins))
        self.renew(round)

    def renew(self, round: int, *, again: bool = False) -> None:
        """Begin another agreement, the second of its round if ``again``: messages still under way are too late."""
        self.round, self.now, self._seed = round, 0, self.faults.seed
        if self._team_seed is not None:
            names = {"team": self._team_seed, "round": round} | ({"again": 1} if again else {})
            self._seed = int(stream(self._seed, "faults", **names).integers(2**63))
        self._streams: dict[tuple[str, str, str], np.random.Generator] = {}
        # for each link: bytes carried in each step, and for each full step a later step that may have room
        self._carried: dict[tuple[str, str], tuple[Counter[int], dict[int, int]]] = {}
        self._due: list[tuple[int, int, int, int, Envelope]] = []  # arrival, sender's index, number, step of sending

    def is_gone(self, agent: str, steps: int = 0) -> bool:
        """True if an agent has failed, or has not joined yet, and does not return within ``steps`` steps."""
        if agent not in self._may_fail or self.faults.is_present(agent, self.round, self.now):
            return False
        steps_until_return = [e.step - self.now for e in self.faults.joins if (e.agent, e.round) == (agent, self.round)]
        return not any(0 < step <= steps for step in steps_until_return)

    def send(self, envelope: Envelope) -> None:
        """Accept a message. It may be lost; otherwise :meth:`deliver` returns it at a later step."""
        path = self._path(envelope)
        if self.is_gone(envelope.sender):
            return
        self._count(envelope, len(path) - 1)
        links, faults = list(pairwise(path)), self.faults
        is_twice = links and faults.duplicate > 0 and self._draw("duplicate", links[0]) < faults.duplicate
        copies = [self._arrival(links, len(envelope.payload)) for _ in range(2 if is_twice else 1)]
        arrivals = [when for when in copies if when is not None]
        for when in arrivals:
            self._n_sent += 1
            heapq.heappush(self._due, (when, self._index[envelope.sender], self._n_sent, self.now, envelope))
        if not arrivals:
            self._edges[envelope.sender, envelope.recipient]["lost"] += 1

    def deliver(self) -> dict[str, list[Envelope]]:
        """End the step, and return its arrivals by recipient, ordered by sender and then by order of sending."""
        self.now += 1
        inboxes: dict[str, list[Envelope]] = {}
        while self._due and self._due[0][0] <= self.now:
            *_, sent_at, envelope = heapq.heappop(self._due)
            if self.is_gone(envelope.recipient):
                self._edges[envelope.sender, envelope.recipient]["lost"] += 1
                continue
            self._note_arrival(envelope, self.now - sent_at)
            inboxes.setdefault(envelope.recipient, []).append(envelope)
        if self.faults.reorder > 0:
            for agent, inbox in inboxes.items():
                if self._draw("reorder", (agent, agent)) < self.faults.reorder:
                    order = self._stream("order", (agent, agent)).permutation(len(inbox))
                    inboxes[agent] = [inbox[i] for i in order]
        return {agent: inboxes[agent] for agent in self.routes.agents if agent in inboxes}

    @property
    def is_quiet(self) -> bool:
        """True while nothing is under way."""
        return not self._due

    def is_between(self, agent: str, other: str) -> bool:
        """True if a message from one of two agents to the other is under way."""
        return any({agent, other} == {envelope.sender, envelope.recipient} for *_, envelope in self._due)

    def _path(self, envelope: Envelope) -> tuple[str, ...]:
        """Shortest path around failed relays; through them if there is no other path."""
        ends, path = (envelope.sender, envelope.recipient), self.routes.path(envelope.sender, envelope.recipient)
        if not any(self.is_gone(relay) for relay in path[1:-1]):
            return path
        gone = frozenset(agent for agent in self._may_fail if self.is_gone(agent))
        if gone not in self._detours:
            self._detours[gone] = self.routes.around(gone)
        around = self._detours[gone]
        is_joined = not gone.intersection(ends) and ends[1] in around.hops_from(ends[0])
        return around.path(*ends) if is_joined else path

    def _arrival(self, links: Sequence[tuple[str, str]], n_bytes: int) -> int | None:
        """Step at the end of which a message leaves a chain of links; None if it is lost."""
        step = self.now
        for link in links:
            step = self._step_carried(link, n_bytes, step)
            if not self._survives(link, step):
                return None
            if self.faults.delay:
                step += int(self._stream("delay", link).integers(self.faults.delay + 1))
        return step + 1

    def _step_carried(self, link: tuple[str, str], n_bytes: int, step: int) -> int:
        """Step in which a link carries the last bytes of a message that reaches the link in ``step``."""
        if self.faults.bandwidth is None:
            return step
        carried, full_until = self._carried.setdefault(link, (Counter(), {}))
        step = _first_with_room(full_until, step)
        while (room := self.faults.bandwidth - carried[step]) < n_bytes:
            full_until[step], n_bytes = step + 1, n_bytes - room
            step = _first_with_room(full_until, step + 1)
        carried[step] += n_bytes
        return step

    def _survives(self, link: tuple[str, str], step: int) -> bool:
        """True if a link does not lose a message in a step."""
        survives = not self.faults.loss or self._draw("loss", link) >= self.faults.loss
        if not self._may_fail.isdisjoint(link) and len(self.faults.present(link, self.round, step)) < len(link):
            return False
        return survives and not any(c.holds(self.round, step) and c.separates(link) for c in self.faults.cuts)

    def _draw(self, purpose: str, link: tuple[str, str]) -> float:
        return float(self._stream(purpose, link).random())

    def _stream(self, purpose: str, link: tuple[str, str]) -> np.random.Generator:
        key = (purpose, *link)
        if key not in self._streams:
            self._streams[key] = stream(self._seed, purpose, sender=link[0], recipient=link[1])
        return self._streams[key]


def _first_with_room(full_until: dict[int, int], step: int) -> int:
    """First step >= ``step`` that is not known to be full; long queues are skipped (path compression)."""
    passed = list[int]()
    while step in full_until:
        passed.append(step)
        step = full_until[step]
    full_until.update(dict.fromkeys(passed, step))
    return step
