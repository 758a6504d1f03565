"""Agents of one decision: each owns some factors and variables, and learns the rest by messages."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from swarmbo.coordination import agreement
from swarmbo.coordination.agreement import Agreement, Solution
from swarmbo.coordination.by_messages import Program
from swarmbo.coordination.deadline import require_number
from swarmbo.coordination.deadline_box import maximise_by_deadline
from swarmbo.coordination.deadline_tables import agree_by_deadline
from swarmbo.coordination.messages import Bundle, Codec, Key, Label, Message, UnfitError
from swarmbo.coordination.plan import BoxMethod, Plan, TableMethod, has_deadline
from swarmbo.coordination.schema import Wanted, refusals_text
from swarmbo.coordination.tables import checked_tables, sizes_of
from swarmbo.errors import TransportError
from swarmbo.graph import AnyGraph, AnyTables, BoxFunctions, FactorGraph
from swarmbo.records import LinkReport, SolveReport, Traffic
from swarmbo.transport import Envelope, FaultyTransport, Reliable, Transport

Result = TypeVar("Result")
Own = TypeVar("Own")


class Participant(Generic[Result]):
    """One agent of one decision, as programs that wait for messages. Messages may arrive in any order, late and
    repeatedly; each has a label and is used once. Inadmissible messages are dropped and counted in ``refused``.
    """

    def __init__(
        self, name: str, decision: int = 0, *, patience: float = math.inf, refused: Counter[str] | None = None
    ) -> None:
        require_number(decision)
        self.name, self.decision, self.patience = name, decision, patience
        self.outcomes: list[Result] = []
        self.refused = Counter[str]() if refused is None else refused
        self.waiting_since: float | None = None
        self._mailbox = dict[tuple[str, Key, int], list[Message]]()  # by sender, key and sequence number; normally one
        self._n_received = Counter[Key]()
        self._n_sent = Counter[tuple[str, Key]]()  # by recipient and key
        self._outbox: list[Envelope] = []
        self._waiting: list[tuple[Program[Result], Mapping[Key, Wanted]]] = []

    @classmethod
    def of(cls, name: str, plan: Plan[Own, Result], own: Own, decision: int = 0) -> "Participant[Result]":
        """Make a participant of one agreement; the plan has no table and no function."""
        participant = cls(name, decision)
        participant.begin(plan.programs(name, own, participant.post))
        return participant

    @property
    def is_finished(self) -> bool:
        """True once every own variable is decided, and all expected messages have arrived."""
        return not self._waiting

    def begin(self, programs: Iterable[Program[Result]]) -> None:
        """Start programs, in parallel with those that wait already."""
        for program in programs:
            self._advance(program, None)

    def tick(self, now: float, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrivals, compute all that is possible, and return messages to others. TransportError if a message is
        changed or of a later decision (then none of the inbox is stored), or if none arrives within the patience.
        """
        # read all before any is stored, so that an inbox with a broken message changes nothing
        for sender, content in [(envelope.sender, self._read(envelope)) for envelope in inbox]:
            if content is not None and self._store(sender, *content):
                self.waiting_since = now
        self._continue()
        if self.waiting_since is None or not self._waiting:
            self.waiting_since = now
        if now - self.waiting_since > self.patience:
            missing, refused = self.missing, refusals_text(self.refused)
            awaited = f"{len(missing)} messages of decision {self.decision}, such as {missing[0]}"
            got = f"{self.name!r} waits for {awaited}, and received nothing for {now - self.waiting_since:g}"
            raise TransportError(f"{got}; wanted one within {self.patience:g}: was one lost?{refused}")
        outbox, self._outbox = self._outbox, []
        return outbox

    def post(self, recipient: str, message: Message) -> None:
        """Send a message to an agent, itself included."""
        label = Label(self.decision, self._n_sent[recipient, message.key])
        self._n_sent[recipient, message.key] += 1
        if recipient == self.name:
            self._store(self.name, label, message)
        else:
            self._outbox.append(Envelope(self.name, recipient, Codec.encode(message, label)))

    @property
    def missing(self) -> list[Key]:
        """Keys of expected messages that have not arrived."""
        return [key for _, wanted in self._waiting for key, one in wanted.items() if not self._arrived(key, one)]

    def _arrived(self, key: Key, wanted: Wanted) -> list[Message]:
        return self._mailbox.get((wanted.sender, key, self._n_received[key]), [])

    def _take_received(self, wanted: Mapping[Key, Wanted]) -> dict[Key, Message] | None:
        """Expected messages, or None if some are missing; messages that do not fit are dropped."""
        if not all(self._arrived(key, one) for key, one in wanted.items()):
            return None
        received: dict[Key, Message] = {}
        for key, one in wanted.items():
            arrived = self._arrived(key, one)
            while arrived and not one.fits(arrived[0]):
                self.refused[one.sender] += 1
                del arrived[0]
            if arrived:
                received[key] = arrived[0]
        if len(received) < len(wanted):
            return None
        for key, one in wanted.items():
            del self._mailbox[one.sender, key, self._n_received[key]]
        self._n_received.update(wanted.keys())
        return received

    def _continue(self) -> None:
        """Continue programs whose messages have arrived, until none can, as programs may post to one another."""
        progressed = True
        while progressed:
            progressed = False
            waiting, self._waiting = self._waiting, []
            for program, wanted in waiting:
                received = self._take_received(wanted)
                if received is None:
                    self._waiting.append((program, wanted))
                else:
                    progressed = True
                    self._advance(program, received)

    def _advance(self, program: Program[Result], received: dict[Key, Message] | None) -> None:
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

    def _store(self, sender: str, label: Label, message: Message) -> bool:
        """Put a message into the mailbox; False if it is late or repeated."""
        # by sender: no agent's message can replace another's, whatever key it claims
        mail_key = sender, message.key, label.sequence
        stored, is_late = self._mailbox.get(mail_key, []), label.sequence < self._n_received[message.key]
        if is_late or label.decision < self.decision or (stored and Codec.encode(message) in map(Codec.encode, stored)):
            return False
        self._mailbox[mail_key] = [*stored, message]  # if several differ, the first that fits is used
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
    settings: TableMethod, graph: AnyGraph, tables: AnyTables, transport: Transport, decision: int = 0, seed: int = 0
) -> Solution:
    """Let one agent per owner agree by real messages, in synchronous steps.

    Decisions, value, bound and traffic are bit-identical to ``settings.solve(graph, tables, links, seed)``. Over a
    transport with faults messages are acknowledged and repeated, so decisions stay the same and traffic grows. If an
    agent fails for good, the report's status is ``blocked``: agents that do not need it have decided, others have not.
    With ``mode = "asynchronous"``, all act at the deadline. ``decision`` must exceed earlier ones over the transport.
    """
    graph, tables = FactorGraph.with_tables(graph, tables)
    if has_deadline(settings):
        return agree_by_deadline(settings, graph, tables, transport, decision, seed=seed)
    checked = checked_tables(graph, tables)
    plan = settings.plan(graph, sizes_of(graph, checked), transport.routes, seed)
    owns = {name: {f: checked[f] for f in graph.factors_owned_by(name)} for name in graph.agents}
    ended = run_plan(plan, owns, transport, decision)
    if ended.without:
        found = {x: index for outcome in ended.outcomes for x, index in outcome.assignment.items()}
        rounds = max((outcome.rounds for outcome in ended.outcomes), default=0)
        report = SolveReport("blocked", rounds, traffic=ended.traffic, links=ended.links)
        return agreement.partial_solution(graph, checked, {x: found[x] for x in graph.variables if x in found}, report)
    solution = agreement.solution_of(graph, checked, ended.outcomes, ended.traffic)
    return replace(solution, report=replace(solution.report, links=ended.links))


def maximise_with_agents(
    settings: BoxMethod,
    functions: BoxFunctions,
    transport: Transport,
    seed: int = 0,
    decision: int = 0,
    *,
    shares: bool = False,
) -> Agreement:
    """Let one agent per owner agree on a joint point by real messages, bit-identical to ``settings.maximise``. Faults
    and deadlines as in ``solve_with_agents``; variables of blocked agents stay at the best start, or mid-box. With a
    deadline, agents can evaluate silent agents' factors if ``shares``, as when all know the total outcomes.
    """
    graph = functions.graph
    if has_deadline(settings):
        return maximise_by_deadline(settings, functions, transport, seed, decision, shares=shares)
    owns = {name: functions.of(graph.factors_owned_by(name)) for name in graph.agents}
    ended = run_plan(settings.plan(functions, transport.routes, seed), owns, transport, decision)
    if ended.without:
        standing = functions.starts[0] if len(functions.starts) else (functions.low + functions.high) / 2
        at = dict(zip(graph.variables, standing.tolist(), strict=True))
        at |= {x: value for outcome in ended.outcomes for x, value in outcome.x.items()}
        rounds = max((outcome.rounds for outcome in ended.outcomes), default=0)
        point = np.array([*at.values()])
        return agreement.agreement_at(functions, point, rounds, ended.traffic, ended.links, "blocked")
    return agreement.agreement_of(graph, ended.outcomes, ended.traffic, ended.links)


class AgentOutcomes(NamedTuple, Generic[Result]):
    """Outcomes of agents, agents without an outcome, and reports of traffic and of faulty links."""

    outcomes: list[Result]
    without: tuple[str, ...]
    traffic: Traffic
    links: LinkReport | UnsetType = UNSET


def run_plan(
    plan: Plan[Own, Result], owns: Mapping[str, Own], transport: Transport, decision: int
) -> AgentOutcomes[Result]:
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
    return AgentOutcomes([outcome for agent in agents.values() for outcome in agent.outcomes], without, traffic, links)


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
        """Process arrivals, and return messages to send; the first inbox is empty. ``now`` counts steps."""
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
        refused = (getattr(agent, "refused", None) or Counter[str]() for agent in agents.values())
        why = refusals_text(sum(refused, Counter[str]()))
        raise TransportError(f"agent {unfinished[0]!r} still waits for messages, but none is in transit{why}")
    return traffic


def step(agents: Mapping[str, Ticking], transport: Transport, by_deadline: Transport | None = None) -> Traffic:
    """Step agents as ``run`` does, but return also if some agents still wait."""
    carriers = [transport] if by_deadline is None else [transport, by_deadline]
    before, now, clock = _traffic_of(carriers), 0, _CommonClock(agents, by_deadline)
    inboxes: Mapping[str, list[Envelope]] = {name: [] for name in agents}
    while inboxes:
        for name, inbox in inboxes.items():
            kept_time = _keeps_time(agents[name])
            for envelope in agents[name].tick(float(now), inbox):
                carriers[-1 if kept_time and _keeps_time(agents[name]) else 0].send(envelope)
        inboxes, now = clock.inboxes_after(transport.deliver()), now + 1
    return _traffic_of(carriers) - before


class _CommonClock:
    """Clock of agents that keep time; it starts for all at once, as soon as no message arrives for other agents."""

    def __init__(self, agents: Mapping[str, Ticking], by_deadline: Transport | None) -> None:
        self._agents, self._by_deadline, self._is_on = agents, by_deadline, False
        # messages held back for agents that keep time until their clock starts, as each call of `tick` counts
        self._held_back = dict[str, list[Envelope]]()
        self._first_decision: tuple[int, int] | None = None  # the first decision by a deadline, and its round

    def inboxes_after(self, arrived: Mapping[str, list[Envelope]]) -> dict[str, list[Envelope]]:
        """Inboxes of the agents to tick next, given a step's arrivals over the first transport; empty at the end."""
        for name, inbox in arrived.items():
            self._held_back.setdefault(name, []).extend(inbox)
        timed = {name for name, agent in self._agents.items() if _keeps_time(agent)}
        bundles = self._by_deadline.deliver() if timed and self._is_on and self._by_deadline is not None else {}
        was_on, self._is_on = self._is_on, bool(timed) and (self._is_on or timed.issuperset(arrived))
        if self._is_on and not was_on and isinstance(self._by_deadline, FaultyTransport):
            # a transport with faults is set to the round of the agreement that begins
            decision, is_second = divmod(max(getattr(self._agents[name], "agreement", 0) for name in timed), 2)
            if self._first_decision is None:
                self._first_decision = decision, self._by_deadline.round
            else:
                round = self._first_decision[1] + decision - self._first_decision[0]
                self._by_deadline.renew(round, again=bool(is_second))
        due = self._held_back.keys() | bundles.keys() | timed if self._is_on else self._held_back.keys() - timed
        return {name: [*self._held_back.pop(name, ()), *bundles.get(name, ())] for name in self._agents if name in due}


def _traffic_of(carriers: Iterable[Transport]) -> Traffic:
    return sum((carrier.traffic for carrier in carriers), Traffic())


def _keeps_time(agent: Ticking) -> bool:
    return bool(getattr(agent, "keeps_time", False))
