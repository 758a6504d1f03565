"""Agent of a fleet that chooses from known tables: in lockstep with the others, or by a deadline."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import networkx as nx

from swarmbo.agent.schema import Participants
from swarmbo.coordination.agreement import TableOutcome
from swarmbo.coordination.deadline_tables import DeadlineTableAgent, Terms
from swarmbo.coordination.participant import Participant, read
from swarmbo.coordination.plan import has_deadline
from swarmbo.coordination.tables import Conflicts
from swarmbo.deciding.logbook import Logbook
from swarmbo.fleet.plan import Plan
from swarmbo.records import LinkReport, SolveReport, Traffic
from swarmbo.transport import Envelope, Routes

QUERY = "choice"  # id of the only query
_NOTHING = b"nothing"  # as a snapshot: all that an agent knows is in its plan


class TableAgent:
    """Agent without a belief, with the interface that ``Member`` uses: its choice follows from its plan and messages.

    ``outcomes`` are those of its connected parts, in MessagePack, without the choice; empty with a deadline.
    """

    def __init__(self, name: str, plan: Plan) -> None:
        assert plan.tables is not None
        setup = plan.setup
        self.name, self.problem, self._method, self._seed = name, setup.problem, setup.coordination, setup.seed
        self._tables, self._own_tables = plan.tables, plan.tables.tables_of(self.problem.graph, name)
        self.log = Logbook.empty(setup.problem)
        self.participants: Participants | None = None
        self.links: nx.Graph[str] | None = None  # a fleet's own network, in which all agents reach one another
        self.sent: dict[str, Traffic] = {}
        self.report: SolveReport | None = None
        self.outcomes = b""
        self.refused = Counter[str]()
        self._decision: dict[str, float] | None = None
        self._early_messages: list[Envelope] = []  # those that arrive before ``ask``
        self.is_finished = True
        self._participant: Participant[TableOutcome] | DeadlineTableAgent | None = None
        self._n_ticks = 0

    @property
    def keeps_time(self) -> bool:
        """True during an agreement by a deadline."""
        return isinstance(self._participant, DeadlineTableAgent)

    def ask(self, **offered: Any) -> str:
        """Begin to choose, at the next tick."""
        self._decision, self._participant, self._n_ticks, self.is_finished = None, None, 0, False
        self.sent = {"agree": Traffic()}
        return QUERY

    def coded_decision(self) -> dict[str, float] | None:
        """Index of the chosen value of each own variable; None before the choice."""
        return self._decision

    def tick(self, now: float, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrivals, and return messages to others; in lockstep, arrivals of other decisions are refused."""
        inbox = [envelope for envelope in inbox if self._is_due(envelope)]
        if self.is_finished:
            self._early_messages += inbox
            return []
        if self._participant is None:
            self._participant = self._new_participant()
            inbox, self._early_messages = [*self._early_messages, *inbox], []
        outbox = self._participant.tick(self._n_ticks, inbox)  # in lockstep the time has no effect
        self._n_ticks += 1
        present = None if self.participants is None else self.participants.members
        outbox = [envelope for envelope in outbox if present is None or envelope.recipient in present]
        self.sent["agree"] += Traffic(len(outbox), sum(len(envelope.payload) for envelope in outbox), len(outbox))
        agent = self._participant
        if isinstance(agent, DeadlineTableAgent):
            if self._n_ticks > self._method.deadline:
                decided = agent.decided_values()
                self._decision = {x: float(agent.best_guess(x) if i is None else i) for x, i in decided.items()}
                links = LinkReport(self._n_ticks - 1, silent=agent.silent)
                self.report = SolveReport("deadline", self._n_ticks - 1, links=links)
                self._participant, self.is_finished = None, True
        elif agent.is_finished:
            self._decision = {x: float(index) for found in agent.outcomes for x, index in found.assignment.items()}
            self.outcomes = msgspec.msgpack.encode([found._replace(assignment={}) for found in agent.outcomes])
            self.report = SolveReport("converged", max((found.rounds for found in agent.outcomes), default=0))
            self.is_finished = True
        return outbox

    def _is_due(self, envelope: Envelope) -> bool:
        is_due = has_deadline(self._method) or read(envelope)[0].decision == 0
        self.refused.update([] if is_due else [envelope.sender])
        return is_due

    def _new_participant(self) -> "Participant[TableOutcome] | DeadlineTableAgent":
        graph, sizes = self.problem.graph, self._tables.sizes
        if has_deadline(self._method):
            terms = Terms(self._method, sizes, Conflicts.unpacked(graph, self._tables.forbidden), {}, self._seed)
            decision = 0 if self.participants is None else self.participants.number
            agent = DeadlineTableAgent(self.name, terms, self._own_tables, decision)
        else:
            plan = self._method.plan(graph, sizes, Routes(graph.agents), self._seed)
            agent = Participant[TableOutcome].of(self.name, plan, self._own_tables)
        agent.refused = self.refused
        return agent

    def give_up(self, last: int) -> None:
        """Cancel a choice, as another participant failed."""
        self._participant, self.is_finished = None, True

    def snapshot(self) -> bytes:
        """Snapshot for a returning agent, which needs nothing."""
        return _NOTHING

    def restore(self, *_snapshot: Any) -> None:
        """Accept a snapshot, or outcomes: both are empty for tables."""

    learn_row = replace_rows = restore

    def state_dict(self) -> dict[str, Any]:
        """State between choices: none."""
        return {"json": {}, "arrays": {}}
