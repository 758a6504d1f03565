"""Agents of one decision: each owns some factors and variables, and learns the rest by messages."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace
from numpy.typing import ArrayLike

from swarmbo.coordination.agreement import Agreement, Solution, agreement_at, agreement_of, judged, solution_of
from swarmbo.coordination.by_messages import Waiting
from swarmbo.coordination.deadline import require_number
from swarmbo.coordination.deadline_box import maximise_by_deadline
from swarmbo.coordination.deadline_tables import agree_by_deadline
from swarmbo.coordination.messages import Bundle, Codec, Key, Label, Message, UnfitError
from swarmbo.coordination.plan import BoxMethod, Plan, TableMethod, has_deadline
from swarmbo.coordination.schema import Wanted, said_of
from swarmbo.coordination.tables import checked_tables, sizes_of
from swarmbo.errors import TransportError
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.records import LinkReport, SolveReport, Traffic
from swarmbo.transport import Envelope, FaultyTransport, Reliable, Transport

if TYPE_CHECKING:
    import networkx as nx

Result = TypeVar("Result")
Own = TypeVar("Own")


class Participant(Generic[Result]):
    """One agent of one decision, as programs that wait for messages. These may arrive in any order, late and
    repeatedly; each has a label and is used once. Inadmissible ones are dropped and counted in ``refused``.
    """

    def __init__(
        self, name: str, decision: int = 0, *, patience: float = math.inf, refused: Counter[str] | None = None
    ) -> None:
        require_number(decision)
        self.name, self.decision, self.patience = name, decision, patience
        self.outcomes: list[Result] = []
        self.refused = Counter[str]() if refused is None else refused
        self.since: float | None = None
        self._mailbox: dict[tuple[str, Key, int], list[Message]] = {}  # by sender, key and turn; normally one
        self._taken = Counter[Key]()
        self._said = Counter[tuple[str, Key]]()  # by recipient and key
        self._outbox: list[Envelope] = []
        self._waiting: list[tuple[Waiting[Result], Mapping[Key, Wanted]]] = []

    @classmethod
    def of(cls, name: str, plan: Plan[Own, Result], own: Own, decision: int = 0) -> "Participant[Result]":
        """Make a participant of one agreement; the plan has no table and no function."""
        made = cls(name, decision)
        made.begin(plan.programs(name, own, made.post))
        return made

    @property
    def is_finished(self) -> bool:
        """True once every own variable is decided, and all expected messages have arrived."""
        return not self._waiting

    def begin(self, programs: Iterable[Waiting[Result]]) -> None:
        """Start programs, in parallel with those that wait already."""
        for program in programs:
            self._advance(program, None)

    def tick(self, now: float, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrivals, compute all that is possible, and return messages to others. Nothing of an inbox with a
        changed or too early message is taken; it is an error, as is a silence longer than the patience.
        """
        # read all before any is filed, so that an inbox with a broken message changes nothing
        for sender, (label, message) in [
            (envelope.sender, read) for envelope in inbox if (read := self._read(envelope)) is not None
        ]:
            if self._file(sender, label, message):
                self.since = now
        # a program may post to another program of this agent, so repeat until none continues
        progressed = True
        while progressed:
            progressed = False
            waiting, self._waiting = self._waiting, []
            for program, wanted in waiting:
                received = self._received(wanted)
                if received is None:
                    self._waiting.append((program, wanted))
                else:
                    progressed = True
                    self._advance(program, received)
        self.since = now if self.since is None or not self._waiting else self.since
        if now - self.since > self.patience:
            missing = self.missing
            awaited = f"{len(missing)} messages of decision {self.decision}, such as {missing[0]}"
            got = f"{self.name!r} waits for {awaited}, and received nothing for {now - self.since:g}"
            raise TransportError(f"{got}; wanted one within {self.patience:g}: was one lost?{said_of(self.refused)}")
        outbox, self._outbox = self._outbox, []
        return outbox

    def post(self, recipient: str, message: Message) -> None:
        """Send a message to an agent, itself included."""
        label = Label(self.decision, self._said[recipient, message.key])
        self._said[recipient, message.key] += 1
        if recipient == self.name:
            self._file(self.name, label, message)
        else:
            self._outbox.append(Envelope(self.name, recipient, Codec.encode(message, label)))

    @property
    def missing(self) -> list[Key]:
        """Keys of expected messages that have not arrived."""
        return [key for _, wanted in self._waiting for key, one in wanted.items() if not self._letters(key, one)]

    def _letters(self, key: Key, wanted: Wanted) -> list[Message]:
        return self._mailbox.get((wanted.sender, key, self._taken[key]), [])

    def _received(self, wanted: Mapping[Key, Wanted]) -> dict[Key, Message] | None:
        """Expected messages, or None if some are missing; messages that do not fit are dropped."""
        if not all(self._letters(key, one) for key, one in wanted.items()):
            return None
        found: dict[Key, Message] = {}
        for key, one in wanted.items():
            letters = self._letters(key, one)
            while letters and not one.fits(letters[0]):
                self.refused[one.sender] += 1
                del letters[0]
            if letters:
                found[key] = letters[0]
        if len(found) < len(wanted):
            return None
        for key, one in wanted.items():
            del self._mailbox[one.sender, key, self._taken[key]]
        self._taken.update(wanted.keys())
        return found

    def _advance(self, program: Waiting[Result], received: dict[Key, Message] | None) -> None:
        try:
            wanted = next(program) if received is None else program.send(received)
        except StopIteration as finished:
            self.outcomes.append(finished.value)
        else:
            self._waiting.append((program, wanted))

    def _read(self, envelope: Envelope) -> tuple[Label, Message] | None:
        try:
            label, message = read(envelope)
        except UnfitError:
            self.refused[envelope.sender] += 1
            return None
        if label.decision > self.decision:
            got = f"got a message of decision {label.decision} while deciding {self.decision}"
            raise TransportError(f"from {envelope.sender!r} to {self.name!r}: {got}; hold it back until then")
        return label, message

    def _file(self, sender: str, label: Label, message: Message) -> bool:
        """Put a message into the mailbox; True if it is news."""
        # by sender: no agent's message can replace another's, whatever key it claims
        place, is_late = (sender, message.key, label.turn), label.turn < self._taken[message.key]
        there = self._mailbox.get(place, [])
        if is_late or label.decision < self.decision or (there and Codec.encode(message) in map(Codec.encode, there)):
            return False
        self._mailbox[place] = [*there, message]  # if several differ, the first that fits holds
        return True


def read(envelope: Envelope) -> tuple[Label, Message]:
    """Decode an envelope; errors of ``Codec.read`` name sender and recipient."""
    try:
        return Codec.read(envelope.payload)
    except TransportError as error:
        raise type(error)(f"from {envelope.sender!r} to {envelope.recipient!r}: {error}") from error


def may_be_lost(envelope: Envelope) -> bool:
    """True if no agent waits for a message: it belongs to an agreement by a deadline. All others have to arrive.

    Raises:
        TransportError: As for ``read``.
    """
    return isinstance(read(envelope)[1], Bundle)


def solve_with_agents(
    settings: TableMethod,
    graph: "FactorGraph | nx.Graph[Any]",
    tables: "Mapping[Any, ArrayLike] | None",
    transport: Transport,
    decision: int = 0,
    seed: int = 0,
) -> Solution:
    """Let one agent per owner agree by real messages, in synchronous steps.

    Decisions, value, bound and traffic are bit-identical to ``settings.solve(graph, tables, links, seed)``. Over a
    transport with faults messages are acknowledged and repeated, so decisions stay the same and traffic grows. If an
    agent fails for good, the report's status is ``blocked``: agents that do not need it have decided, others have not.
    With ``mode = "asynchronous"``, all act at the deadline. ``decision`` is larger than earlier ones over the
    transport.
    """
    graph, tables = FactorGraph.with_tables(graph, tables)
    if has_deadline(settings):
        return agree_by_deadline(settings, graph, tables, transport, decision, seed=seed)
    checked = checked_tables(graph, tables)
    plan = settings.plan(graph, sizes_of(graph, checked), transport.routes, seed)
    owns = {name: {f: checked[f] for f in graph.factors_owned_by(name)} for name in graph.agents}
    ended = run_to_the_end(plan, owns, transport, decision)
    if ended.without:
        found = {x: index for outcome in ended.outcomes for x, index in outcome.assignment.items()}
        rounds = max((outcome.rounds for outcome in ended.outcomes), default=0)
        report = SolveReport("blocked", rounds, traffic=ended.traffic, links=ended.links)
        return judged(graph, checked, {x: found[x] for x in graph.variables if x in found}, report)
    solution = solution_of(graph, checked, ended.outcomes, ended.traffic)
    return replace(solution, report=replace(solution.report, links=ended.links))


def maximise_with_agents(
    settings: BoxMethod, functions: BoxFunctions, transport: Transport, seed: int = 0, decision: int = 0
) -> Agreement:
    """Let one agent per owner agree on a joint point by real messages, bit-identical to ``settings.maximise``. Faults
    and deadlines as in ``solve_with_agents``; variables of blocked agents stay at the best start, or mid-box.
    """
    graph = functions.graph
    if has_deadline(settings):
        return maximise_by_deadline(settings, functions, transport, seed, decision)
    plan = settings.plan(functions, transport.routes, seed)
    owns = {name: functions.of(graph.factors_owned_by(name)) for name in graph.agents}
    ended = run_to_the_end(plan, owns, transport, decision)
    if ended.without:
        standing = functions.starts[0] if len(functions.starts) else (functions.low + functions.high) / 2
        at = dict(zip(graph.variables, standing.tolist(), strict=True))
        at |= {x: value for outcome in ended.outcomes for x, value in outcome.x.items()}
        rounds = max((outcome.rounds for outcome in ended.outcomes), default=0)
        return agreement_at(functions, np.array([*at.values()]), rounds, ended.traffic, ended.links, "blocked")
    return agreement_of(graph, ended.outcomes, ended.traffic, ended.links)


class Ended(NamedTuple, Generic[Result]):
    """Outcomes of agents, agents without an outcome, and reports of traffic and of faulty links."""

    outcomes: list[Result]
    without: tuple[str, ...]
    traffic: Traffic
    links: LinkReport | UnsetType = UNSET


def run_to_the_end(
    plan: Plan[Own, Result], owns: Mapping[str, Own], transport: Transport, decision: int
) -> Ended[Result]:
    """Let agents, each with its own data, agree by a plan; over a transport with faults, messages are repeated."""
    agents = {name: Participant.of(name, plan, own, decision) for name, own in owns.items()}
    if isinstance(transport, FaultyTransport):
        carrier = Reliable(transport)
        agents = {name: agent for name, agent in agents.items() if not carrier.is_gone(name)}
        traffic = step(agents, carrier)
        without = tuple(name for name in owns if name not in agents or not agents[name].is_finished)
        links = carrier.report(without)
    else:
        traffic, without, links = run(agents, transport), (), UNSET
    return Ended([outcome for agent in agents.values() for outcome in agent.outcomes], without, traffic, links)


@runtime_checkable
class Ticking(Protocol):
    """An agent that ``run`` steps: a ``Participant``, a ``swarmbo.agent.Agent``, or one of your own.

    An agent with a true attribute ``keeps_time`` is ticked at every step, once no agent waits for a message under way.
    Its ``agreement`` is then the number of the present agreement, two for each decision.
    """

    @property
    def is_finished(self) -> bool:
        """True once it waits for no message."""
        ...

    def tick(self, now: float, inbox: Sequence[Envelope], /) -> list[Envelope]:
        """Process arrivals, and return messages to send; the first inbox is empty. Steps are the clock."""
        ...


def run(agents: Mapping[str, Ticking], transport: Transport, by_deadline: Transport | None = None) -> Traffic:
    """Step agents until no message is under way.

    Args:
        agents: Agents by name; those of your own must fit :class:`Ticking`.
        transport: Opened for at least these agents.
        by_deadline: Transport of messages sent while agents keep time, which may be lost; None: the same transport. Its
            steps are the ticks of their clock, which begins for all at once. A transport with faults, opened for the
            round of their first decision, is renewed for each agreement, as a team opens it.

    Returns:
        Traffic of these messages.

    Raises:
        TransportError: If an agent waits for a message that is not under way.
    """
    traffic = step(agents, transport, by_deadline)
    if unfinished := [name for name, agent in agents.items() if not agent.is_finished]:
        refused = Counter[str]()
        for agent in agents.values():
            refused.update(getattr(agent, "refused", {}))
        why = said_of(refused)
        raise TransportError(f"agent {unfinished[0]!r} still waits for messages, but none is in transit{why}")
    return traffic


def step(agents: Mapping[str, Ticking], transport: Transport, by_deadline: Transport | None = None) -> Traffic:
    """Step agents as ``run`` does, but return also if some agents still wait."""
    carriers = [transport] if by_deadline is None else [transport, by_deadline]
    before, now, is_clock_on = _sent(carriers), 0, False
    first: tuple[int, int] | None = None  # the first decision by a deadline, and its round
    held = dict[str, list[Envelope]]()  # inboxes of agents that keep time until their clock begins: each tick counts
    inboxes: Mapping[str, list[Envelope]] = {name: [] for name in agents}
    while inboxes:
        for name, inbox in inboxes.items():
            kept = _keeps_time(agents[name])
            for envelope in agents[name].tick(float(now), inbox):
                carriers[-1 if kept and _keeps_time(agents[name]) else 0].send(envelope)
        arrived, now = transport.deliver(), now + 1
        for name, inbox in arrived.items():
            held.setdefault(name, []).extend(inbox)
        timed = {name for name, agent in agents.items() if _keeps_time(agent)}
        bundles = by_deadline.deliver() if timed and is_clock_on and by_deadline is not None else {}
        was_on, is_clock_on = is_clock_on, bool(timed) and (is_clock_on or timed.issuperset(arrived))
        if isinstance(by_deadline, FaultyTransport) and is_clock_on and not was_on:
            decision = max(getattr(agents[name], "agreement", 0) for name in timed) // 2
            if first is None:
                first = decision, by_deadline.round
            else:
                by_deadline.renew(first[1] + decision - first[0])
        due = held.keys() | bundles.keys() | timed if is_clock_on else held.keys() - timed
        inboxes = {name: [*held.pop(name, ()), *bundles.get(name, ())] for name in agents if name in due}
    return _sent(carriers) - before


def _sent(carriers: Iterable[Transport]) -> Traffic:
    return sum((carrier.traffic for carrier in carriers), Traffic())


def _keeps_time(agent: Ticking) -> bool:
    return bool(getattr(agent, "keeps_time", False))
