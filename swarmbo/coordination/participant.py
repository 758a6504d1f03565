"""Agents of one decision: each owns some factors and variables, and hears of the rest by messages."""

import dataclasses
import math
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

from msgspec.structs import replace
from numpy.typing import ArrayLike

from swarmbo.coordination.agreement import (
    Agreement,
    BoxOutcome,
    Solution,
    TableOutcome,
    agreement_of,
    solution_of,
    unfinished_solution,
)
from swarmbo.coordination.deadline import has_deadline
from swarmbo.coordination.deadline_box import TimedClimbs, maximise_by_deadline
from swarmbo.coordination.deadline_tables import TimedTables, agree_by_deadline
from swarmbo.coordination.drivers.by_messages import Post
from swarmbo.coordination.local_functions import LocalFunctions, total_value
from swarmbo.coordination.messages import Bundle, Codec, Key, Label, Message, UnfitError
from swarmbo.coordination.schema import Wanted, said_of
from swarmbo.coordination.stepping import run, step
from swarmbo.coordination.tables import Table, checked_tables, sizes_of
from swarmbo.errors import ConfigError, TransportError
from swarmbo.graph import FactorGraph
from swarmbo.records import LinkReport, SolveReport, Traffic
from swarmbo.transport import Envelope, FaultyTransport, Reliable, Routes, Transport

if TYPE_CHECKING:
    import networkx as nx

Result = TypeVar("Result")
Own = TypeVar("Own", contravariant=True)
Made = TypeVar("Made", covariant=True)
Steps = Generator[Mapping[Key, Wanted], dict[Key, Message], Result]  # a program: waits for messages, is sent them


@runtime_checkable
class CommonPlan(Protocol[Own, Made]):
    """A plan that every agent knows beforehand, with the programs of each."""

    def programs(self, agent: str, own: Own, post: Post, /) -> Iterable[Generator[Any, Any, Made]]:
        """An agent's programs, given its name, what it alone has, and how it posts messages."""
        ...


class Participant(Generic[Result]):
    """One agent's part in one decision: programs that wait for messages.

    Everything it uses is what it alone has, the plan that all agents share, or has arrived in its inbox. Messages may
    arrive in any order, late and more than once: each is labelled with the decision and its turn, and used once. One
    that holds what it may not, by ``coordination.schema``, is dropped as if it had never come.

    Args:
        name: Of the agent.
        decision: Number of the decision, 0 to 2^32 - 1, larger than those of earlier ones among the same agents.
        patience: For how long, on the clock of ``tick``, it waits while nothing that it waits for arrives.
        refused: Where to count what it refuses.

    Attributes:
        outcomes: What came out of programs that have ended.
        ignored: How many messages it had already, or were of an earlier decision.
        refused: How many it has dropped that held what they may not, by sender.
        since: When it last heard something new; None before the first tick.

    Raises:
        ConfigError: If the number of the decision is none that fits a label.
    """

    def __init__(
        self, name: str, decision: int = 0, *, patience: float = math.inf, refused: Counter[str] | None = None
    ) -> None:
        if not 0 <= decision < 2**32:
            raise ConfigError(f"got decision {decision}; wanted 0 to {2**32 - 1}: number decisions from 0 upwards")
        self.name, self.decision, self.patience = name, decision, patience
        self.outcomes: list[Result] = []
        self.ignored, self.refused = 0, Counter[str]() if refused is None else refused
        self.since: float | None = None
        self._mailbox: dict[tuple[str, Key, int], list[Message]] = {}  # by sender, key and turn; one, if all is well
        self._taken = Counter[Key]()
        self._said = Counter[tuple[str, Key]]()  # by recipient and key
        self._outbox: list[Envelope] = []
        self._waiting: list[tuple[Steps[Result], Mapping[Key, Wanted]]] = []

    @classmethod
    def of(cls, name: str, plan: CommonPlan[Own, Result], own: Own, decision: int = 0) -> "Participant[Result]":
        """Somebody who takes part in an agreement and in nothing else.

        Args:
            name: As in the graph.
            plan: Scopes, owners and who relays to whom; no table and no function.
            own: Tables or functions of the factors that it owns.
            decision: As of the class.
        """
        made = cls(name, decision)
        made.begin(plan.programs(name, own, made.post))
        return made

    @property
    def is_finished(self) -> bool:
        """True once every variable that it owns is decided, and it has heard all that it was to hear."""
        return not self._waiting

    def begin(self, programs: Iterable[Steps[Result]]) -> None:
        """Take up programs, side by side with those that wait already."""
        for program in programs:
            self._advance(program, None)

    def tick(self, now: float, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Take what has arrived, in any order, compute what can be computed, and say it.

        Args:
            now: The time, on any clock that does not go back.
            inbox: Messages delivered to this agent since the last tick.

        Returns:
            Messages to other agents.

        Raises:
            TransportError: If a message was changed on the way, or is of a decision that is still to come; then none of
                the inbox was taken. If nothing that it waits for has arrived for longer than its patience.
        """
        # read all before any is filed: an inbox with a message that cannot be read is taken whole or not at all
        for sender, (label, message) in [
            (envelope.sender, read) for envelope in inbox if (read := self._read(envelope)) is not None
        ]:
            if self._file(sender, label, message):
                self.since = now
        # a program that goes on may say something to another one of this agent, so go round until nothing moves
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
            raise TransportError(
                f"{self.name!r} waits for {len(missing)} messages of decision {self.decision}, such as {missing[0]}, "
                f"and received nothing for {now - self.since:g}; wanted news within {self.patience:g}: was one lost?"
                f"{said_of(self.refused)}"
            )
        outbox, self._outbox = self._outbox, []
        return outbox

    def post(self, recipient: str, message: Message) -> None:
        """Say something to an agent, itself included."""
        label = Label(self.decision, self._said[recipient, message.key])
        self._said[recipient, message.key] += 1
        if recipient == self.name:
            self._file(self.name, label, message)
        else:
            self._outbox.append(Envelope(self.name, recipient, Codec.encode(message, label)))

    @property
    def missing(self) -> list[Key]:
        """Keys that it waits for and that have not come."""
        return [key for _, wanted in self._waiting for key, one in wanted.items() if not self._letters(key, one)]

    def _letters(self, key: Key, wanted: Wanted) -> list[Message]:
        return self._mailbox.get((wanted.sender, key, self._taken[key]), [])

    def _received(self, wanted: Mapping[Key, Wanted]) -> dict[Key, Message] | None:
        """The messages that are waited for, if all have come; what does not fit is dropped."""
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

    def _advance(self, program: Steps[Result], received: dict[Key, Message] | None) -> None:
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
            raise TransportError(
                f"from {envelope.sender!r} to {self.name!r}: got a message of decision {label.decision} while deciding "
                f"{self.decision}; hold it back until then"
            )
        return label, message

    def _file(self, sender: str, label: Label, message: Message) -> bool:
        """Put a message into the mailbox; True if it is news."""
        # by sender: nobody's message can take the place of another one's, whatever key it claims
        place, is_late = (sender, message.key, label.turn), label.turn < self._taken[message.key]
        there = self._mailbox.get(place, [])
        if is_late or label.decision < self.decision or (there and Codec.encode(message) in map(Codec.encode, there)):
            self.ignored += 1
            return False
        self._mailbox[place] = [*there, message]  # of several that differ the first that fits holds
        return True


def read(envelope: Envelope) -> tuple[Label, Message]:
    """Read what is in an envelope.

    Raises:
        TransportError: If it was changed on the way; it names who sent it to whom.
        UnfitError: If it is no message; it names them, too.
    """
    try:
        return Codec.read(envelope.payload)
    except TransportError as error:
        raise type(error)(f"from {envelope.sender!r} to {envelope.recipient!r}: {error}") from error


def may_be_lost(envelope: Envelope) -> bool:
    """True if nobody waits for a message: it is of an agreement by a deadline. All others have to arrive.

    Raises:
        TransportError: As ``read``.

    Example:
        >>> may_be_lost(Envelope("a", "b", Codec.encode(Bundle(0, -1, 0, (), ()), Label(0))))
        True
    """
    return isinstance(read(envelope)[1], Bundle)


@runtime_checkable
class Coordination(Protocol):
    """Settings of a method that chooses from tables and runs on agents: ``MaxSum(…)`` and ``Exact(…)`` are two."""

    def plan(
        self, graph: FactorGraph, sizes: Mapping[str, int], routes: Routes, seed: int
    ) -> CommonPlan[Mapping[str, Table], TableOutcome]:
        """The plan, from scopes, owners, numbers of values and who relays to whom. No table."""
        ...


@runtime_checkable
class ContinuousCoordination(Protocol):
    """Settings of a method on continuous domains that runs on agents: ``ADMM(…)`` is one."""

    def plan(self, functions: LocalFunctions, routes: Routes, seed: int) -> CommonPlan[LocalFunctions, BoxOutcome]:
        """The plan; it asks the functions for no value."""
        ...


def solve_with_agents(
    settings: Coordination,
    graph: "FactorGraph | nx.Graph[Any]",
    tables: "Mapping[Any, ArrayLike] | None",
    transport: Transport,
    decision: int = 0,
    seed: int = 0,
) -> Solution:
    """Let one agent per owner agree by real messages, step by synchronous step.

    Decisions, value, bound and traffic are those of ``settings.solve(graph, tables, links, seed)``, to the bit. Over a
    transport with faults messages are acknowledged and repeated, so decisions stay the same and traffic grows. Where
    somebody is gone for good, the report's status is ``blocked``: who does not need it has decided, others have not.
    With ``mode = "asynchronous"`` nobody waits, and all act at the deadline.

    Args:
        settings: ``MaxSum(…)`` or ``Exact(…)``.
        graph: Scopes and owners; or a graph of networkx, see ``FactorGraph.with_tables``.
        tables: One array per factor, axes in scope order; each is given to the factor's owner only.
        transport: Opened for at least the graph's agents.
        decision: Its number, 0 to 2^32 - 1, larger than those of earlier ones over the transport: what is late of those
            is ignored.
        seed: Of what agents draw.

    Returns:
        The joint choice; its report counts what crossed the links for it.

    Raises:
        ShapeError: If the tables do not fit the graph.
        BudgetError: If an exact method would exceed its budget.
        TransportError: If agents that must talk are not connected, or messages do not arrive, or not as they were sent.

    Example:
        >>> import numpy as np
        >>> from swarmbo.coordination import MaxSum
        >>> from swarmbo.transport import InProcess
        >>> graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> agree = np.array([[2.0, 0.0], [0.0, 2.0]])
        >>> transport = InProcess().open(graph.agents)
        >>> solution = solve_with_agents(MaxSum(), graph, {"f": agree, "g": -agree}, transport)
        >>> solution.assignment, solution.value, solution.report.messages
        ({'x': 0, 'y': 0, 'z': 1}, 2.0, 8)
    """
    graph, tables = FactorGraph.with_tables(graph, tables)
    if isinstance(settings, TimedTables) and has_deadline(settings):
        return agree_by_deadline(settings, graph, tables, transport, decision, seed=seed).solution
    checked = checked_tables(graph, tables)
    plan = settings.plan(graph, sizes_of(graph, checked), transport.routes, seed)
    agents = {
        name: Participant.of(name, plan, {f: checked[f] for f in graph.factors_owned_by(name)}, decision)
        for name in graph.agents
    }
    ended = run_to_the_end(agents, transport)
    if ended.without and ended.links is not None:
        return unfinished_solution(graph, ended.outcomes, ended.traffic, ended.links)
    solution = solution_of(graph, checked, ended.outcomes, ended.traffic)
    return solution if ended.links is None else replace(solution, report=replace(solution.report, links=ended.links))


def maximise_with_agents(
    settings: ContinuousCoordination,
    functions: LocalFunctions,
    transport: Transport,
    seed: int = 0,
    decision: int = 0,
) -> Agreement:
    """Let one agent per owner agree on a joint point by real messages, step by synchronous step.

    Decisions, value and traffic are those of ``settings.maximise(functions, links, seed)``, to the bit. Over a
    transport with faults messages are acknowledged and repeated, as in ``solve_with_agents``. Where somebody is gone
    for good, the report's status is ``blocked``, and all variables stay where they stand: at the best start, or in the
    middle of the box. With ``mode = "asynchronous"`` nobody waits, and all act at the deadline.

    Args:
        settings: Of a method on continuous domains.
        functions: Each agent is given those of its own factors only.
        transport: Opened for at least the graph's agents.
        seed: Of what agents draw.
        decision: Its number, 0 to 2^32 - 1, larger than those of earlier ones over the transport: what is late of those
            is ignored.

    Raises:
        BudgetError: If a method that tabulates would exceed its budget.
        TransportError: If agents that must talk are not connected, or messages do not arrive, or not as they were sent.
    """
    graph = functions.graph
    if isinstance(settings, TimedClimbs) and has_deadline(settings):
        return maximise_by_deadline(settings, functions, transport, seed, decision)
    plan = settings.plan(functions, transport.routes, seed)
    agents = {
        name: Participant.of(name, plan, functions.of(graph.factors_owned_by(name)), decision) for name in graph.agents
    }
    ended = run_to_the_end(agents, transport)
    if ended.without and ended.links is not None:
        standing = functions.starts[0] if len(functions.starts) else (functions.low + functions.high) / 2
        value = float(total_value(functions, standing[None])[0])
        return Agreement(standing, value, SolveReport("blocked", 0, value, traffic=ended.traffic, links=ended.links))
    agreement = agreement_of(graph, ended.outcomes, ended.traffic)
    if ended.links is not None:
        agreement = dataclasses.replace(agreement, report=replace(agreement.report, links=ended.links))
    return agreement


class Ended(NamedTuple, Generic[Result]):
    """Outcomes of agents, who has none, what crossed the links, and how those with faults fared."""

    outcomes: list[Result]
    without: tuple[str, ...]
    traffic: Traffic
    links: LinkReport | None


def run_to_the_end(agents: Mapping[str, Participant[Result]], transport: Transport) -> Ended[Result]:
    """Step agents until nothing is under way; over a transport with faults by acknowledgement and repetition.

    Raises:
        TransportError: If an agent waits for a message that is not under way, over a transport without faults.
    """
    if isinstance(transport, FaultyTransport):
        carrier = Reliable(transport)
        traffic = step(agents, carrier)
        without = tuple(name for name, agent in agents.items() if not agent.is_finished)
        links = carrier.report(without)
    else:
        traffic, without, links = run(agents, transport), (), None
    return Ended([outcome for agent in agents.values() for outcome in agent.outcomes], without, traffic, links)
