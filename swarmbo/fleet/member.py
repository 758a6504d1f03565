"""Agent of a fleet: it receives and sends letters, and everything else follows from these."""

import os
import time
from collections import Counter
from collections.abc import Callable
from copy import copy
from pathlib import Path

import msgspec

from swarmbo.agent import Agent
from swarmbo.boundary.values import linked
from swarmbo.coordination.schema import refusals_text
from swarmbo.deciding.own_rows import UNREQUESTED
from swarmbo.deciding.setup import settings_again
from swarmbo.errors import ConfigError, ShapeError, TransportError
from swarmbo.fleet import letters, measuring
from swarmbo.fleet.letters import LONGEST, Letter, fits_agent, opened, sealed
from swarmbo.fleet.link import Link
from swarmbo.fleet.mail import GOODBYE, Journal, Mail
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.fleet.table_agent import TableAgent
from swarmbo.problem import Problem
from swarmbo.transport import Envelope

_MAY_STOP = 0.5  # seconds between checks for a stop
_GLANCE = 1e-3  # seconds for arrivals that were not processed yet
_TICK = b"tick"  # in the journal, from itself: no letter is so short
_LONGER = 3.0  # times the patience that a member waits if the hub continues without failed agents
_MOST_LENT = LONGEST // 2  # bytes: the letter to a returning agent has more in it


class Member:
    """One agent of a fleet. Its state and messages follow from its last saved state and the letters since: a killed
    process continues by reading them again, and repeats known messages. ``measure`` is its own instrument.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        carrier: Link,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        measure: "measuring.Instrument | None" = None,
    ) -> None:
        measuring.require_fits(measure, name, plan.measures)
        self.name, self.plan, self._measure = name, plan, measure
        self._due: letters.Measure | None = None  # order that is not carried out yet
        self._clock, self._heard, self._journal = clock, clock(), Journal(folder)
        self._greeted, self._goes_on, is_new = clock(), plan.goes_on, True
        self._stepped, self._patience = clock(), plan.patience_s * (_LONGER if self._goes_on else 1.0)
        self._mail = Mail(carrier, self._journal.keep, clock, self._fits)
        self._complained = 0  # refused letters that are reported to the hub
        self._arrived: list[Envelope] = []  # since the last tick of an agreement by a deadline
        self._next_tick = clock()
        self._turn, self._query, self.has_ended = 0, "", False
        self._has_spoken = True
        self.refused = 0  # letters without a right to be sent
        state = self._journal.state()
        if plan.tables is not None:
            self._agent = TableAgent(name, plan)
        elif state is None:
            problem = Problem.from_plain(plan.problem)
            # the hub's network serves as base
            known = {"level": plan.level, "sites": plan.sites, "has_base": problem.is_field}
            self._agent = Agent(name, problem, **known, **settings_again(plan.settings, {}))
        else:
            self._agent = Agent.from_state_dict({**state, "json": {**state["json"], "sites": plan.sites}})
        if state is not None:
            self._turn = int(state["json"]["orders"])
            for recipient, content in state["json"]["outstanding"]:
                self._mail.post(recipient, bytes.fromhex(content))
        self.invited: Plan | None = None
        for sender, content in self._journal.letters():
            is_new = False
            # clock ticks are in the journal: a restarted member repeats them at the same places between letters
            if (sender, content) == (name, _TICK):
                self._tick()
                continue
            if sender == name:  # its own measurement is not repeated
                self._due = None
                self._mail.post(HUB, content)
                continue
            self._mail.remember(sender, content)
            letter = opened(content)
            if self._fits(sender, letter):
                self.take(sender, letter)
        if self._goes_on and not self.has_ended:
            self._mail.write(HUB, letters.Here(os.urandom(8), is_new and state is None))

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Process letters until the hub ends the run, another takes over (``invited``), or ``stop`` is True. A
        TransportError if it decides and nothing arrives for longer than its patience.
        """
        while not (self.has_ended or self.invited or stop()):
            self.step(_MAY_STOP)
        if self.invited is None:  # otherwise the old hub is gone
            self._mail.settle(GOODBYE, stop)
        self.close()

    def step(self, seconds: float) -> None:
        """Process the next letter, if one arrives in time, and repeat unacknowledged ones."""
        before, now = self._stepped, self._clock()
        self._stepped = now
        if now - before > self.plan.patience_s:  # its own pause is no other's silence
            self._heard = now
        waits = self._goes_on or not self._agent.is_finished
        if waits and now - self._greeted > self.plan.patience_s / 2.0:  # the hub may count it as failed
            self._greet()
        if (count := self.odd.total()) > self._complained:
            self._complained = count
            self._mail.write(HUB, letters.Odd(dict(self.odd)))
        if self._due is not None:
            self._answer(self._due)
        elif self._agent.keeps_time:
            self._keep_time(seconds)
        elif (got := self._mail.read(seconds)) is not None:
            if self._goes_on or not isinstance(got[1], letters.Ping):  # in lockstep, a ping brings no decision nearer
                self.take(*got)
                self._heard = self._clock()  # what it computes itself is no other's silence
        elif not self._agent.is_finished and self._clock() - self._heard > self._patience:
            got = f"{self.name!r} is deciding and received nothing for {self._patience:g} s"
            raise TransportError(f"{got}; wanted news: is another member gone?{refusals_text(self.odd)}")

    def _greet(self) -> None:
        self._greeted = self._clock()
        if all(recipient != HUB for recipient, _ in self._mail.outstanding):  # otherwise that letter shows it
            self._mail.write(HUB, letters.Here(os.urandom(8)))

    def _keep_time(self, seconds: float) -> None:
        """Process a letter that arrives before the next tick of an agreement by a deadline; else tick."""
        left = self._next_tick - self._clock()
        if left > 0.0:
            if (got := self._mail.read(min(seconds, left))) is not None:
                self.take(*got)
            return
        until = self._clock() + self.plan.tick_s  # the clock continues whatever arrives
        while self._clock() < until and (got := self._mail.read(_GLANCE)) is not None:
            self.take(*got)  # arrivals during computation, or a slow agent would never receive anything
        self._next_tick += self.plan.tick_s
        self._heard = self._clock()  # it waits for no agent
        # before it acts on the tick: what it says then follows from the journal alone
        self._journal.keep(self.name, _TICK)
        self._tick()

    def close(self) -> None:
        """Close its journal."""
        self._journal.close()

    @property
    def odd(self) -> Counter[str]:
        """Number of refused letters and messages with inadmissible content, by sender."""
        return self._mail.odd + self._agent.refused

    def _fits(self, sender: str, letter: Letter) -> bool:
        """Check a letter before it is saved; a snapshot is tried on a copy."""
        if not fits_agent(sender, letter, self.name, self._agent.problem):
            return False
        try:
            if isinstance(letter, letters.Back) and letter.state:
                copy(self._agent).restore(letter.state, letter.came, letter.last, letter.since)
            if isinstance(letter, letters.Join):
                letter.plan.checked()
        except ConfigError:
            return False
        return not isinstance(letter, letters.Measure) or self._measure is not None

    def take(self, sender: str, letter: Letter) -> None:
        """Carry out a letter that fits; a late one changes nothing."""
        if isinstance(letter, letters.Said):
            self._arrived.append(Envelope(sender, self.name, letter.payload))
            if not self._agent.keeps_time:
                self._tick()
            return
        self._greeted = self._clock()
        match letter:
            case letters.Begin() | letters.Told() | letters.Measure() | letters.SendSnapshot():
                leaves_out = isinstance(letter, letters.Begin) and letter.participants is not None
                is_again = leaves_out or isinstance(letter, letters.SendSnapshot)
                if letter.turn == self._turn + 1 and (self._agent.is_finished or is_again):
                    self._carry_out(letter)
            case letters.Back():
                if letter.turn > self._turn and self._goes_on:
                    self._come_back(letter)
            case letters.Join():
                self._join(letter.plan)
            case letters.End():
                self.has_ended = True
            case _:  # a ping, for its receipt
                pass

    def _join(self, plan: Plan) -> None:
        """Leave this run for that of a hub that replaced its own; other invitations are ignored."""
        is_own = all(plan.endpoints.get(member) == self.plan.endpoints[member] for member in (HUB, self.name))
        measures = self._measure is not None
        if is_own and plan.run != self.plan.run and measures is (self.name in plan.measures):
            self.invited = msgspec.structs.replace(plan, keys=self.plan.keys)

    def _carry_out(self, order: letters.Order) -> None:
        if isinstance(order, letters.Told) and order.query is not None and order.query not in self._agent.log.open:
            self.refused += 1
            return
        self._turn += 1
        match order:
            case letters.Begin():
                self._begin(order)
            case letters.Measure():
                self._due = order
            case letters.SendSnapshot():
                self._has_spoken = True
                self._agent.give_up(order.last)  # a participant failed during it
                snapshot = self._agent.snapshot()
                self._mail.write(HUB, letters.Snapshot(order.turn, snapshot if len(snapshot) <= _MOST_LENT else b""))
            case letters.Told():
                if order.row.has_news or not self._agent.problem.is_field:
                    self._agent.learn_row(order.query or UNREQUESTED, order.row)
                self._turn_page()

    def _turn_page(self) -> None:
        state = self._agent.state_dict()
        state["json"] |= {"orders": self._turn, "sites": None}  # sites are in the plan
        self._journal.turn(state, self._mail.outstanding)

    def _come_back(self, letter: letters.Back) -> None:
        """Take over a snapshot; earlier orders and letters no longer matter."""
        self._turn, self._due, self._has_spoken = letter.turn, None, True
        for member in self.plan.endpoints:
            self._mail.forget(member)
        if letter.state:
            self._agent.restore(letter.state, letter.came, letter.last, letter.since)
        else:
            self._agent.give_up(letter.last)
        self._agent.replace_rows(letter.told)
        self._turn_page()

    def _begin(self, letter: letters.Begin) -> None:
        if (participants := letter.participants) is not None:
            # members that decided without the others take that decision back before they decide with fewer
            self._agent.give_up(letter.last)
            self._agent.participants = participants
            for absent in participants.absent(self._agent.problem.agents):
                self._mail.forget(absent)
        self._has_spoken, self._agent.links = False, linked(self._agent.problem.agents, letter.links)
        offered = {} if letter.offer is None else msgspec.structs.asdict(letter.offer)
        self._query = self._agent.ask(**offered)
        self._tick()

    def _tick(self) -> None:
        inbox, self._arrived, kept_time = self._arrived, [], self._agent.keeps_time
        try:
            said = self._agent.tick(self._clock(), inbox)
        except TransportError:  # a message with a wrong checksum; nothing of it was processed
            self.refused += 1
            return
        if self._agent.keeps_time and not kept_time:
            self._next_tick = self._clock()
        for envelope in said:
            self._mail.write(envelope.recipient, letters.Said(envelope.payload))
        if self._agent.is_finished and not self._has_spoken:
            self._has_spoken = True
            word, report = self._agent.coded_decision(), self._agent.report
            assert word is not None
            assert report is not None
            counts = self._mail.repeated, self.refused + self._mail.refused
            outcomes = self._agent.outcomes if isinstance(self._agent, TableAgent) else b""
            told = (word, report, self._agent.sent, *counts, self._others(), outcomes)
            self._mail.write(HUB, letters.Word(self._turn, self._query, *told))

    def _others(self) -> dict[str, float]:
        """Values of absent agents' variables of a function, if it is the first present agent."""
        agent, participants, problem = self._agent, self._agent.participants, self._agent.problem
        if participants is None or problem.is_field or self.plan.tables is not None:
            return {}
        if self.name != participants.members[0]:
            return {}
        point, graph = problem.coded(agent.log.query(self._query).point), problem.graph
        owners = zip(graph.variables, graph.variable_owners, strict=True)
        return {variable: point[variable] for variable, owner in owners if owner not in participants.members}

    def _answer(self, order: letters.Measure) -> None:
        """Measure with its own instrument, and save the result before sending it, so that it is not repeated."""
        assert self._measure is not None
        problem = self._agent.problem
        try:
            found = [measuring.answered(self._measure, problem, self.name, list(place)) for place in order.places]
            letter = letters.Measured(order.turn, tuple(found))
        except ShapeError as error:
            self._mail.write(HUB, letters.Measured(order.turn, (), str(error)))
            self._mail.settle(GOODBYE)
            raise
        self._due = None
        self._journal.keep(self.name, sealed(letter))
        self._mail.write(HUB, letter)
