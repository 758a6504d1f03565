"""Agent of a fleet: it receives and sends messages, and its state follows from them."""

import os
import time
from collections import Counter
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import msgspec

from swarmbo.agent import Agent
from swarmbo.boundary.values import linked
from swarmbo.coordination.schema import refusals_text
from swarmbo.deciding.own_rows import UNREQUESTED
from swarmbo.deciding.setup import settings_again
from swarmbo.errors import ConfigError, ShapeError, TransportError
from swarmbo.fleet import measuring, messages
from swarmbo.fleet.link import Link
from swarmbo.fleet.mailbox import FAREWELL_S, Journal, Mailbox
from swarmbo.fleet.messages import MAX_MESSAGE_BYTES, Message, agent_accepts, decode, encode
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.fleet.table_agent import TableAgent
from swarmbo.problem import Problem
from swarmbo.transport import Envelope

_STOP_CHECK_S = 0.5  # between checks for a stop
_ARRIVED_S = 1e-3  # wait for messages that have arrived already
_TICK = b"tick"  # journal entry of a tick, with the member as sender; no message is so short
_PATIENCE = 3.0  # times the plan's patience that a member waits if the hub continues without failed agents
_MOST_SNAPSHOT_BYTES = MAX_MESSAGE_BYTES // 2  # the message to a returning agent holds more than the snapshot


class Member:
    """One agent of a fleet. Its state follows from its last saved state and the messages received since. A process that
    was killed and restarted processes these messages again, and sends its own again. ``measure`` is the agent's own
    instrument. ``next_plan`` is the plan of another hub's run, once that hub has invited it. ``refused`` counts
    outcomes of unknown queries, and damaged agreement messages.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        link: Link,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        measure: "measuring.Instrument | None" = None,
    ) -> None:
        measuring.require_consistent(measure, name, plan.measures)
        self.name, self.plan, self._measure = name, plan, measure
        self._tolerates_failures = plan.tolerates_failures
        self._patience_s = plan.patience_s * (_PATIENCE if self._tolerates_failures else 1.0)
        self._clock, now = clock, clock()
        self._stepped_at = self._heard_at = self._contact_at = self._next_tick = now
        self._journal = Journal(folder)
        self._mailbox = Mailbox(link, self._journal.append, clock, self._accepts)
        self._n_reported = 0  # refused messages that were reported to the hub
        self._inbox: list[Envelope] = []  # messages of an agreement since its last tick
        self._measurement: messages.Measure | None = None  # order that is not carried out yet
        self._sequence, self._query, self._has_sent_decision = 0, "", True  # of the last order
        self.has_ended, self.refused = False, 0
        self.next_plan: Plan | None = None
        state = self._journal.state()
        self._agent = _agent_of(name, plan, state)
        if state is not None:
            self._sequence = int(state["json"]["orders"])
            for recipient, content in state["json"]["outstanding"]:
                self._mailbox.send_encoded(recipient, bytes.fromhex(content))
        has_messages = self._replay()
        if self._tolerates_failures and not self.has_ended:
            self._mailbox.send(HUB, messages.Heartbeat(os.urandom(8), state is None and not has_messages))

    def _replay(self) -> bool:
        """Process the messages in the journal again; True if there are any."""
        entries = list(self._journal.messages())
        for sender, content in entries:
            # clock ticks are in the journal: a restarted member repeats them at the same places between messages
            if (sender, content) == (self.name, _TICK):
                self._tick()
                continue
            if sender == self.name:  # its own measurement is not repeated
                self._measurement = None
                self._mailbox.send_encoded(HUB, content)
                continue
            self._mailbox.mark_processed(sender, content)
            message = decode(content)
            if self._accepts(sender, message):
                self.process(sender, message)
        return bool(entries)

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Process messages until the hub ends the run, another hub takes over (``next_plan``), or ``stop`` is True. A
        TransportError if the agent is deciding and no message arrives for longer than its patience.
        """
        while not (self.has_ended or self.next_plan or stop()):
            self.step(_STOP_CHECK_S)
        if self.next_plan is None:  # otherwise the old hub is gone
            self._mailbox.await_receipts(FAREWELL_S, stop)
        self.close()

    def step(self, seconds: float) -> None:
        """Process the next message, if one arrives in time, and send unacknowledged messages again."""
        before, now = self._stepped_at, self._clock()
        self._stepped_at = now
        if now - before > self.plan.patience_s:  # its own pause is not the others' silence
            self._heard_at = now
        self._report(now)
        if self._measurement is not None:
            self._measure_and_send(self._measurement)
        elif self._agent.keeps_time:
            self._keep_time(seconds)
        elif (received := self._mailbox.receive(seconds)) is not None:
            is_ping = isinstance(received[1], messages.Ping)
            if self._tolerates_failures or not is_ping:  # in lockstep, a ping brings no decision nearer
                self.process(*received)
                self._heard_at = self._clock()  # its own computation is not the others' silence
        elif not self._agent.is_finished and self._clock() - self._heard_at > self._patience_s:
            got = f"{self.name!r} is deciding and received nothing for {self._patience_s:g} s"
            raise TransportError(f"{got}; wanted a message: is another member gone?{refusals_text(self.inadmissible)}")

    def _report(self, now: float) -> None:
        waits = self._tolerates_failures or not self._agent.is_finished
        if waits and now - self._contact_at > self.plan.patience_s / 2.0:  # else the hub could count it as failed
            self._contact_at = self._clock()
            if all(recipient != HUB for recipient, _ in self._mailbox.unacknowledged):  # it is a sign of life, too
                self._mailbox.send(HUB, messages.Heartbeat(os.urandom(8)))
        if (n_refused := self.inadmissible.total()) > self._n_reported:
            self._n_reported = n_refused
            self._mailbox.send(HUB, messages.RefusalCounts(dict(self.inadmissible)))

    def _keep_time(self, seconds: float) -> None:
        """Process a message that arrives before the next tick of an agreement by a deadline; else tick."""
        left = self._next_tick - self._clock()
        if left > 0.0:
            if (received := self._mailbox.receive(min(seconds, left))) is not None:
                self.process(*received)
            return
        end = self._clock() + self.plan.tick_s  # the clock continues whatever arrives
        while self._clock() < end and (received := self._mailbox.receive(_ARRIVED_S)) is not None:
            self.process(*received)  # it came during computation; a slow agent would receive nothing otherwise
        self._next_tick += self.plan.tick_s
        self._heard_at = self._clock()  # it waits for no agent
        # before it acts on the tick: its messages then follow from the journal alone
        self._journal.append(self.name, _TICK)
        self._tick()

    def close(self) -> None:
        """Close its journal."""
        self._journal.close()

    @property
    def inadmissible(self) -> Counter[str]:
        """Number of refused messages with inadmissible content, by sender."""
        return self._mailbox.inadmissible + self._agent.refused

    def _accepts(self, sender: str, message: Message) -> bool:
        """Check a message before it is saved; a snapshot is tried on a copy."""
        if not agent_accepts(sender, message, self.name, self._agent.problem):
            return False
        try:
            if isinstance(message, messages.Readmission) and message.state:
                copy(self._agent).restore(message.state, message.own_outcomes, message.last_valid, message.last_joined)
            if isinstance(message, messages.Invitation):
                message.plan.checked()
        except ConfigError:
            return False
        return not isinstance(message, messages.Measure) or self._measure is not None

    def process(self, sender: str, message: Message) -> None:
        """Process an accepted message; a late message changes nothing."""
        if isinstance(message, messages.AgreementMessage):
            self._inbox.append(Envelope(sender, self.name, message.payload))
            if not self._agent.keeps_time:
                self._tick()
            return
        self._contact_at = self._clock()
        match message:
            case messages.Decide() | messages.RecordOutcome() | messages.Measure() | messages.SendSnapshot():
                begins_anew = isinstance(message, messages.Decide) and message.participants is not None
                ends_decision = begins_anew or isinstance(message, messages.SendSnapshot)
                if message.sequence == self._sequence + 1 and (self._agent.is_finished or ends_decision):
                    self._carry_out(message)
            case messages.Readmission():
                if message.sequence > self._sequence and self._tolerates_failures:
                    self._rejoin(message)
            case messages.Invitation():
                self._accept_invitation(message.plan)
            case messages.End():
                self.has_ended = True
            case _:  # a ping, for its receipt
                pass

    def _accept_invitation(self, plan: Plan) -> None:
        """Leave this run for the run of a hub that replaces the old hub; ignore other invitations."""
        is_own = all(plan.endpoints.get(member) == self.plan.endpoints[member] for member in (HUB, self.name))
        measures = self._measure is not None
        if is_own and plan.run != self.plan.run and measures is (self.name in plan.measures):
            self.next_plan = msgspec.structs.replace(plan, keys=self.plan.keys)

    def _carry_out(self, order: messages.Order) -> None:
        if isinstance(order, messages.RecordOutcome) and order.query not in (None, *self._agent.log.open):
            self.refused += 1
            return
        self._sequence += 1
        match order:
            case messages.Decide():
                self._begin(order)
            case messages.Measure():
                self._measurement = order
            case messages.SendSnapshot():
                self._has_sent_decision = True
                self._agent.give_up(order.last_valid)  # a participant failed during the decision
                snapshot = self._agent.snapshot()
                snapshot = snapshot if len(snapshot) <= _MOST_SNAPSHOT_BYTES else b""
                self._mailbox.send(HUB, messages.Snapshot(order.sequence, snapshot))
            case messages.RecordOutcome():
                if order.row.has_news or not self._agent.problem.is_field:
                    self._agent.learn_row(order.query or UNREQUESTED, order.row)
                self._save_state()

    def _save_state(self) -> None:
        state = self._agent.state_dict()
        state["json"] |= {"orders": self._sequence, "sites": None}  # sites are in the plan
        self._journal.save_state(state, self._mailbox.unacknowledged)

    def _rejoin(self, readmission: messages.Readmission) -> None:
        """Continue from a snapshot; earlier orders and messages are void."""
        self._sequence, self._measurement, self._has_sent_decision = readmission.sequence, None, True
        for member in self.plan.endpoints:
            self._mailbox.cancel(member)
        last_valid, last_joined = readmission.last_valid, readmission.last_joined
        if readmission.state:
            self._agent.restore(readmission.state, readmission.own_outcomes, last_valid, last_joined)
        else:
            self._agent.give_up(last_valid)
        self._agent.replace_rows(readmission.unreported)
        self._save_state()

    def _begin(self, order: messages.Decide) -> None:
        if (participants := order.participants) is not None:
            # a member that has decided already takes that decision back before it decides with fewer
            self._agent.give_up(order.last_valid)
            self._agent.participants = participants
            for absent in participants.absent(self._agent.problem.agents):
                self._mailbox.cancel(absent)
        self._has_sent_decision, self._agent.links = False, linked(self._agent.problem.agents, order.links)
        offer = {} if order.offer is None else msgspec.structs.asdict(order.offer)
        self._query = self._agent.ask(**offer)
        self._tick()

    def _tick(self) -> None:
        """Pass the arrived messages to the agent; send its messages, and its decision once it is made."""
        inbox, self._inbox, kept_time = self._inbox, [], self._agent.keeps_time
        try:
            outbox = self._agent.tick(self._clock(), inbox)
        except TransportError:  # a message with a wrong checksum; nothing of it was processed
            self.refused += 1
            return
        if self._agent.keeps_time and not kept_time:
            self._next_tick = self._clock()
        for envelope in outbox:
            self._mailbox.send(envelope.recipient, messages.AgreementMessage(envelope.payload))
        if self._agent.is_finished and not self._has_sent_decision:
            self._has_sent_decision = True
            self._mailbox.send(HUB, self._decision())

    def _decision(self) -> messages.Decision:
        values, report = self._agent.coded_decision(), self._agent.report
        assert values is not None
        assert report is not None
        decided = self._sequence, self._query, values, report, self._agent.sent
        counts = self._mailbox.repeated, self.refused + self._mailbox.refused
        outcomes = self._agent.outcomes if isinstance(self._agent, TableAgent) else b""
        return messages.Decision(*decided, *counts, self._absent_values(), outcomes)

    def _absent_values(self) -> dict[str, float]:
        """Values of absent agents' variables of a function; empty unless this agent is the first present one."""
        agent, participants, problem = self._agent, self._agent.participants, self._agent.problem
        if participants is None or problem.is_field or self.plan.tables is not None:
            return {}
        if self.name != participants.members[0]:
            return {}
        point, owners = problem.coded(agent.log.query(self._query).point), problem.variable_owners
        return {variable: point[variable] for variable, owner in owners.items() if owner not in participants.members}

    def _measure_and_send(self, order: messages.Measure) -> None:
        """Measure with its own instrument; save the results before sending them, so that no measurement is repeated."""
        assert self._measure is not None
        problem = self._agent.problem
        try:
            found = [measuring.measured(self._measure, problem, self.name, list(place)) for place in order.places]
            message = messages.Measurements(order.sequence, tuple(found))
        except ShapeError as error:
            self._mailbox.send(HUB, messages.Measurements(order.sequence, (), str(error)))
            self._mailbox.await_receipts(FAREWELL_S)
            raise
        self._measurement = None
        self._journal.append(self.name, encode(message))
        self._mailbox.send(HUB, message)


def _agent_of(name: str, plan: Plan, state: dict[str, Any] | None) -> Agent | TableAgent:
    """Agent of a plan, in its last saved state if there is one."""
    if plan.tables is not None:
        return TableAgent(name, plan)
    if state is not None:
        return Agent.from_state_dict({**state, "json": {**state["json"], "sites": plan.sites}})
    problem = Problem.from_plain(plan.problem)
    # the hub's network serves as base
    known = {"level": plan.level, "sites": plan.sites, "has_base": problem.is_field}
    return Agent(name, problem, **known, **settings_again(plan.settings, {}))
