"""Hub of a fleet: the coordinator process, which orders decisions, collects them and forwards outcomes."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec

from swarmbo.agent.schema import Participants, masked_rows, reports_outcomes
from swarmbo.deciding.offers import Offer
from swarmbo.deciding.own_rows import UNREQUESTED, OwnRow, OwnRows, measurements_by_round
from swarmbo.errors import TransportError
from swarmbo.fleet import messages
from swarmbo.fleet.link import Link
from swarmbo.fleet.mailbox import FAREWELL_S, Mailbox
from swarmbo.fleet.membership import JOIN_TIMEOUT_S, Membership
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.problem import Problem
from swarmbo.problem.data import News

_CHECK_S = 0.2  # between checks whether agents are alive
_LONGEST_CHECK_S = 5.0 * _CHECK_S  # most that one check counts: the hub's own pauses are not an agent's silence
_INVITE_S = 1.0  # between invitations to agents of an earlier run
_MOST_STALLS = 2  # attempts of live agents without a decision, after which the run ends
_SNAPSHOT_PATIENCE = 3.0  # times the plan's patience, for a snapshot, which takes no computation
_START = "q00000"  # in place of a query, for measurements before the first query
LinksWithout = Callable[[Collection[str]], tuple[tuple[str, str], ...] | None]  # links without the given absent agents
Handler = Callable[[str, messages.Message], None]
Results = tuple[messages.MeasurementResult, ...]
_Reply = TypeVar("_Reply", messages.Snapshot, messages.Measurements)


class Hub:
    """Coordinator process: it orders decisions, reports outcomes, and collects decisions. It decides nothing.

    With decisions by a deadline, it names the participants of each round. If one fails meanwhile, the others take the
    decision back and decide without it. ``supervise`` is called while the hub waits, and raises if no answer can come.
    Agents in ``local`` have processes on this machine; ``ended`` has the reason for each that ended for good.
    ``inadmissible`` counts refused messages with inadmissible content, by refusing member and by sender.
    """

    def __init__(
        self,
        plan: Plan,
        link: Link,
        supervise: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        local: Collection[str] = (),
        ended: Mapping[str, str] | None = None,
    ) -> None:
        self.plan, self._setup = plan, plan.setup
        self.problem = self._setup.problem
        self.mailbox = Mailbox(link, clock=clock, accepts=partial(messages.hub_accepts, problem=self.problem))
        self._link, self._supervise, self._clock = link, supervise, clock
        agents = self.problem.agents
        self._tolerates_failures = plan.tolerates_failures  # stored: a plan builds its whole setup at each access
        self.membership = Membership(plan, agents, self.mailbox, local, {} if ended is None else ended)
        self._invitations, self._invited_at = dict[str, bytes](), -math.inf  # by agent
        for agent in sorted({*agents} - {*local}):
            with suppress(TransportError):  # too long for a message: such a plan is read from disk only
                self._invitations[agent] = messages.encode(messages.Invitation(plan.for_agent(agent)))
        self._sequences, self._round = Counter[str](), 0  # number of the last order to each agent
        self.repeated = self.refused = 0
        self._last_counts: dict[str, tuple[int, int]] = {}
        self.inadmissible: dict[str, Counter[str]] = {}
        self._accused_at: dict[str, float] = {}  # time of the first refusal of an agent's messages in this attempt
        self._decision_number, self._last_valid = 0, 0  # of the last decision begun, and of the last valid one
        self._last_participants = agents  # of the last valid decision
        self._last_joined = dict.fromkeys(agents, 0)  # number of each agent's last valid decision
        self._unreported = dict.fromkeys(agents, OwnRows())  # agents' outcomes since the last valid decision
        self._reported: dict[str, dict[str, OwnRow]] = {agent: {} for agent in agents}  # those before it, by query
        self._ended_queries: tuple[str, ...] = ()  # since the last valid decision
        self._n_stalls = 0  # attempts of live agents without a decision in this round

    @property
    def absent(self) -> tuple[str, ...]:
        """Failed agents; always empty if agents wait for one another."""
        return tuple(agent for agent in self.problem.agents if agent in self.membership.absent)

    @property
    def inadmissible_by_sender(self) -> Counter[str]:
        """Number of each member's messages that any member refused for inadmissible content."""
        return sum(self.inadmissible.values(), Counter(self.mailbox.inadmissible))

    def decisions(self, links: LinksWithout, offers: Mapping[str, Offer] | None = None) -> list[messages.Decision]:
        """Let agents decide, given links without absent agents. With a deadline, repeat without those that fail. A
        TransportError if all agents are needed and one is silent, if none decides, or if they differ in the query.
        """
        self._round += 1
        while (received := self.mailbox.receive(0.0)) is not None:  # agents that returned meanwhile
            self._handle(*received)
        decisions, self._n_stalls = None, 0
        while decisions is None:
            self._readmit()
            decisions = self._attempt(links, offers)
        if len(queries := {decision.query for decision in decisions}) > 1:
            raise TransportError(f"round {self._round}: agents decided on {sorted(queries)}")
        self._last_valid = self._decision_number
        self._last_joined |= dict.fromkeys(self._last_participants, self._last_valid)
        for agent, rows in self._unreported.items():
            self._add_reported(agent, rows)
        self._unreported, self._ended_queries = dict.fromkeys(self.problem.agents, OwnRows()), ()
        return decisions

    def _attempt(self, links: LinksWithout, offers: Mapping[str, Offer] | None) -> list[messages.Decision] | None:
        """Decisions of all present agents; None if an agent fails meanwhile, or no decision is reached."""
        # an order must not overtake outcomes that are still unacknowledged
        self._await_receipts()
        members = self.membership.present
        if not members:
            return None
        self._order_decision(members, links, {} if offers is None else offers)
        decisions, self._accused_at = dict[str, messages.Decision](), {}

        def record(sender: str, message: messages.Message) -> None:
            if isinstance(message, messages.Decision) and self._is_due(sender, message, members):
                decisions[sender] = message
                self._add_counts(sender, message.repeated, message.refused)

        def missing() -> list[str]:
            return [agent for agent in members if agent not in decisions]

        def is_done() -> bool:
            return not missing() or self.membership.present != members or self._is_stalled()

        if not self._receive_until(is_done, "a decision", record, missing):
            # an agent that hangs sends no snapshot, and is left out; if all agents send one, this was no remedy
            self._n_stalls += len(self._snapshots(members)) == len(members)
            if self._n_stalls == _MOST_STALLS:
                got = f"{missing()} run, and sent no decision"
                raise TransportError(f"round {self._round}: {got}; can they reach one another?")
            return None
        if missing():
            if self.membership.present == members:
                accused = [agent for agent in members if agent in self._accused_at]
                self._mark_hung(accused, "others refused its messages")
            return None
        self._last_participants = members
        return [decisions[agent] for agent in members]

    def _order_decision(self, members: tuple[str, ...], links: LinksWithout, offers: Mapping[str, Offer]) -> None:
        self._decision_number += 1
        participants = None
        if self._tolerates_failures:
            absent = {agent: rows for agent, rows in self._unreported.items() if agent not in members}
            reports = {agent: masked_rows(rows, self._setup) for agent, rows in absent.items()}
            participants = Participants(self._decision_number, members, reports, self._ended_queries)
        order = messages.Decide(0, links(self.absent), None, participants, self._last_valid)
        self._send_in_sequence({agent: msgspec.structs.replace(order, offer=offers.get(agent)) for agent in members})

    def _is_stalled(self) -> bool:
        """True if members refuse an agent's messages, and have waited for it for longer than the patience."""
        times = [at for agent, at in self._accused_at.items() if agent in self.membership.present]
        return self._tolerates_failures and self._clock() - min(times, default=math.inf) > self.plan.patience_s

    def _is_due(self, sender: str, decision: messages.Decision, members: Sequence[str]) -> bool:
        """True if a decision answers the last order: sender's values and, from the first member, absent agents'."""
        graph, values = self.problem.graph, set(decision.values)
        is_asked = sender in members and decision.sequence == self._sequences[sender]
        is_own = values == {*graph.variables_owned_by(sender)} or (self.problem.is_field and not values)
        absent = set[str]()
        if sender == members[0] and not self.problem.is_field and self.plan.tables is None:
            absent = {variable for variable, owner in self.problem.variable_owners.items() if owner not in members}
        return is_asked and is_own and set(decision.absent_values) == absent

    def _readmit(self) -> None:
        """Readmit returning agents; if no agent is present, wait for one that knows the last decision."""
        while self.membership.returning or not self.membership.present:
            present, returning = self.membership.present, self.membership.returning
            if informed := [agent for agent in returning if self._is_informed(agent)]:
                for agent in informed:
                    self._send_readmission(agent)
            elif not present:
                is_back = lambda: any(map(self._is_informed, self.membership.returning))  # noqa: E731
                if not self._receive_until(is_back, "anybody", longest_s=JOIN_TIMEOUT_S):
                    reasons = "; ".join(f"{agent}: {reason}" for agent, reason in self.membership.absent.items())
                    raise TransportError(f"round {self._round}: no remaining agent knows the decision ({reasons})")
            elif (state := self._snapshots(present[:1]).get(present[0])) is not None:
                for agent in returning:
                    self._readmit_with(agent, state)

    def _is_informed(self, agent: str) -> bool:
        """True if an agent knows all data up to the last valid decision."""
        return agent in self._last_participants and agent not in self.membership.without_journal

    def _readmit_with(self, agent: str, state: bytes) -> None:
        """Readmit an agent with a snapshot, if it can continue from that."""
        has_own_belief = self.problem.is_field and not reports_outcomes(self._setup)
        if not state:
            self.membership.mark_failed(agent, "the snapshot that it needs is too long for a message")
        elif has_own_belief and agent in self.membership.without_journal and self._last_joined[agent]:
            self.membership.mark_failed(agent, "its journal is lost, and so is its own belief")
        else:
            self._send_readmission(agent, state)

    def _send_readmission(self, agent: str, state: bytes = b"") -> None:
        own_outcomes = self._reported[agent] if state and not reports_outcomes(self._setup) else {}
        data = self._unreported[agent], state, own_outcomes
        self._send_in_sequence({agent: messages.Readmission(0, self._last_valid, *data, self._last_joined[agent])})
        self.membership.readmit(agent)

    def _add_reported(self, agent: str, rows: OwnRows) -> None:
        """Keep an agent's outcomes by query; in a field, unrequested measurements join the query before them."""
        reported = self._reported[agent]
        for query, row in rows.by_query.items():
            if query != UNREQUESTED:  # a part of it may have come before a decision, and the rest after it
                known = OwnRows({query: reported[query]} if query in reported else {})
                reported[query] = known.with_row(query, row).by_query[query]
                continue
            ((_, stops),) = measurements_by_round({_START: row}, self.problem.graph.variables_owned_by(agent))
            last = next(reversed(reported), _START)
            before = reported.get(last, OwnRow(0))
            reported[last] = msgspec.structs.replace(before, on_the_way=(*before.on_the_way, *stops))

    def _snapshots(self, agents: Sequence[str]) -> dict[str, bytes]:
        """Request snapshots from some agents; those without an answer count as failed."""
        orders = {agent: messages.SendSnapshot(0, self._last_valid) for agent in agents}
        replies = self._replies(orders, messages.Snapshot, "its snapshot", _SNAPSHOT_PATIENCE * self.plan.patience_s)
        return {agent: reply.state for agent, reply in replies.items() if agent in self.membership.present}

    def measure(self, places: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, Results]:
        """Let agents measure with their own instruments; measurements of failed agents count as failed."""
        orders = {agent: messages.Measure(0, tuple(map(tuple, asked))) for agent, asked in places.items()}
        replies = self._replies(orders, messages.Measurements, "its measurements")
        return {agent: self._results(agent, replies.get(agent), len(asked)) for agent, asked in places.items()}

    def _results(self, agent: str, reply: messages.Measurements | None, count: int) -> Results:
        factors = self.problem.graph.factors_owned_by(agent)
        if reply is None:
            failure = f"it is gone: {self.membership.absent[agent]}"
            return (messages.MeasurementResult(dict.fromkeys(factors), failure=failure),) * count
        if reply.error:
            raise TransportError(f"agent {agent!r}: {reply.error}")
        if len(reply.results) != count:
            raise TransportError(f"agent {agent!r}: got {len(reply.results)} results; wanted {count} of {[*factors]}")
        return reply.results

    def tell(self, query: str | None, news: News, *, is_all: bool) -> None:
        """Report to every agent its own part of the outcomes; for failed agents it is kept."""
        if query is None and not self.problem.is_field:
            return
        orders: dict[str, messages.RecordOutcome] = {}
        for agent, before in self._unreported.items():
            row = row_of(self.problem, agent, news, before, self._last_participants[0], has_ended=is_all)
            self._unreported[agent] = before.with_row(query or UNREQUESTED, row)
            orders[agent] = messages.RecordOutcome(0, query, row)
        if is_all and query is not None:
            self._ended_queries = (*self._ended_queries, query)
        self._order(orders)

    def end(self) -> None:
        """Announce the end of the run, and wait briefly for receipts."""
        for agent in self.problem.agents:
            self.mailbox.send(agent, messages.End())
        self.mailbox.await_receipts(FAREWELL_S)

    def add_own_counts(self) -> None:
        """Add the hub's own counts of repeated and refused messages."""
        self._add_counts(HUB, self.mailbox.repeated, self.mailbox.refused)

    def _add_counts(self, member: str, repeated: int, refused: int) -> None:
        """Add the increase of a member's counts, which start at 0 with its process."""
        before = self._last_counts.get(member, (0, 0))
        if repeated < before[0] or refused < before[1]:  # it restarted
            before = 0, 0
        self._last_counts[member] = repeated, refused
        self.repeated += repeated - before[0]
        self.refused += refused - before[1]

    def _await_receipts(self) -> None:
        """Wait for all receipts of present agents; an agent that sends but receives nothing counts as failed."""
        if not self._receive_until(lambda: not self.mailbox.unacknowledged, "receipts"):
            recipients = dict.fromkeys(recipient for recipient, _ in self.mailbox.unacknowledged)
            self._mark_hung(recipients, "it sends, but receives nothing")

    def _order(self, orders: Mapping[str, messages.Order]) -> None:
        """Send orders to present agents, after all receipts of earlier orders: no order may overtake another."""
        self._await_receipts()
        self._send_in_sequence({agent: order for agent, order in orders.items() if agent in self.membership.present})

    def _send_in_sequence(self, orders: Mapping[str, messages.Order | messages.Readmission]) -> None:
        for agent, order in orders.items():
            self._sequences[agent] += 1
            self.mailbox.send(agent, msgspec.structs.replace(order, sequence=self._sequences[agent]))

    def _replies(
        self, orders: Mapping[str, messages.Order], kind: type[_Reply], what: str, longest_s: float | None = None
    ) -> dict[str, _Reply]:
        """Order present agents to reply, and wait for the replies; live agents without a reply count as failed, too."""
        replies: dict[str, _Reply] = {}
        self._order(orders)
        asked = [agent for agent in orders if agent in self.membership.present]

        def record(sender: str, message: messages.Message) -> None:
            if isinstance(message, kind) and sender in asked and message.sequence == self._sequences[sender]:
                replies[sender] = message

        def missing() -> list[str]:
            return [agent for agent in asked if agent not in replies and agent in self.membership.present]

        if not self._receive_until(lambda: not missing(), what, record, missing, longest_s):
            self._mark_hung(missing(), f"it runs, and did not send {what}")
        return replies

    def _mark_hung(self, agents: Collection[str], reason: str) -> None:
        for agent in agents:
            self.membership.mark_failed(agent, reason, is_hung=True)

    def _receive_until(
        self,
        is_done: Callable[[], bool],
        waited_for: str,
        handler: Handler | None = None,
        missing: Callable[[], Collection[str]] = tuple,
        longest_s: float | None = None,
    ) -> bool:
        """Receive messages until a condition holds, and record failures; False if that takes too long."""
        self.membership.reset_silence()
        checked_at, waited_s = self._clock(), 0.0
        longest_s = self.membership.longest_wait_s if longest_s is None else longest_s
        while not is_done():
            if waited_s > longest_s:
                return False
            self._supervise()
            if self._clock() - self._invited_at >= _INVITE_S:
                self._invited_at = self._clock()
                for agent, invitation in self._invitations.items():
                    if not self.mailbox.arrivals[agent]:
                        self._link.invite(agent, invitation)
            received = self.mailbox.receive(_CHECK_S, is_done)
            now = self._clock()
            # a hub that was suspended must not take its own pause for the agents' silence
            passed_s, checked_at = min(now - checked_at, _LONGEST_CHECK_S), now
            if received is not None:
                self._handle(*received, handler)
            if not is_done():
                silence_s = passed_s if received is None else 0.0
                self.membership.check(silence_s, waited_for, missing(), self.inadmissible_by_sender)
            waited_s += passed_s
        return True

    def _handle(self, sender: str, message: messages.Message, handler: Handler | None = None) -> None:
        if isinstance(message, messages.RefusalCounts):
            before, counts = self.inadmissible.get(sender, Counter[str]()), Counter(message.by_sender)
            self.inadmissible[sender] = before | counts  # a restarted agent counts from 0 again
            for accused in counts - before:
                self._accused_at.setdefault(accused, self._clock())
        elif isinstance(message, messages.Heartbeat):
            unread = [messages.decode(content) for agent, content in self.mailbox.unacknowledged if agent == sender]
            n_unread_orders = sum(not isinstance(order, messages.Ping) for order in unread)
            self.membership.note_heartbeat(sender, message, has_orders=self._sequences[sender] > n_unread_orders)
        elif handler is not None:
            handler(sender, message)


def row_of(problem: Problem, agent: str, news: News, before: OwnRows, teller: str, *, has_ended: bool) -> OwnRow:
    """One agent's own part of the outcomes at a joint point; ``teller`` is the only agent that gets totals."""
    if problem.is_field:
        return before.row(problem, agent, news, has_ended=has_ended)
    graph, codes = problem.graph, problem.coded(news.point)
    place = {variable: codes[variable] for variable in graph.variables_owned_by(agent)}
    agent_news = news if agent == teller else replace(news, total=None)
    return OwnRow.of_news(before.next_order, agent_news, graph.factors_owned_by(agent), place)
