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
from swarmbo.fleet import letters
from swarmbo.fleet.link import Link
from swarmbo.fleet.mail import GOODBYE, JOINING, Absence, Mail
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.problem import Problem
from swarmbo.problem.data import News

LOOK = 0.2  # seconds between checks for live agents
_PAUSE = 5.0 * LOOK  # most seconds that one check counts for: the hub's own pauses are no agent's silence
_ASKING = 1.0  # seconds between invitations to agents of an earlier run
_STALLS = 2  # attempts of live agents without a decision, after which the run ends
_ANSWER = 3.0  # times the patience, for a snapshot: it takes no computation
Links = tuple[tuple[str, str], ...]
Hear = Callable[[str, letters.Letter], None]
_Asked = TypeVar("_Asked", letters.Snapshot, letters.Measured)


class Hub:
    """Coordinator process: it orders decisions, reports outcomes, and collects decisions. It decides nothing.

    By a deadline it names the participants of each round; if one fails meanwhile, the others take the decision back and
    decide without it. ``attend`` is called while waiting, and raises if that is in vain. Agents ``here`` have processes
    on this machine. ``odd`` counts letters refused for inadmissible content, by who refused and by sender.
    """

    def __init__(
        self,
        plan: Plan,
        carrier: Link,
        attend: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        here: Collection[str] = (),
        ended: Mapping[str, str] | None = None,
    ) -> None:
        self.plan, self._setup = plan, plan.setup
        self.problem = self._setup.problem
        self.mail = Mail(carrier, clock=clock, fits=partial(letters.fits_hub, problem=self.problem))
        self._carrier, self._attend, self._clock = carrier, attend, clock
        agents = self.problem.agents
        self._goes_on = plan.goes_on  # stored: a plan builds its whole setup anew at each access
        self.absence = Absence(plan, agents, self.mail, here, {} if ended is None else ended)
        self._invitations, self._invited = dict[str, bytes](), -math.inf  # by agent; when they were last sent
        for agent in sorted({*agents} - {*here}):
            with suppress(TransportError):  # too long for a letter: such a plan is read from disk only
                self._invitations[agent] = letters.sealed(letters.Join(plan.of(agent)))
        self._turns, self._round = Counter[str](), 0  # orders sent to each
        self.repeated = self.refused = 0
        self._counted: dict[str, tuple[int, int]] = {}
        self.odd: dict[str, Counter[str]] = {}
        self._number, self._last = 0, 0  # decisions: the last begun, the last valid
        self._knowing = agents  # participants of the last valid decision
        self._took_part = dict.fromkeys(agents, 0)  # number of each agent's last valid decision
        self._untold = dict.fromkeys(agents, OwnRows())  # agents' outcomes since then
        self._came_of: dict[str, dict[str, OwnRow]] = {agent: {} for agent in agents}
        self._over: tuple[str, ...] = ()  # queries that ended since then
        self._stalls = 0  # attempts of live agents without a decision in this round

    @property
    def absent(self) -> tuple[str, ...]:
        """Failed agents; empty if agents wait for one another."""
        return tuple(agent for agent in self.problem.agents if agent in self.absence.away)

    @property
    def odd_of(self) -> Counter[str]:
        """Number of each member's letters that any member refused for inadmissible content."""
        return sum(self.odd.values(), Counter(self.mail.odd))

    def words(
        self, links: Callable[[Collection[str]], Links | None], offers: Mapping[str, Offer] | None = None
    ) -> list[letters.Word]:
        """Have agents decide, given links for absent agents; by a deadline repeated without those that fail. A
        TransportError if all are needed and one is silent, if none decides, or if they differ in the query.
        """
        self._round += 1
        while (got := self.mail.read(0.0)) is not None:  # agents that returned meanwhile
            self._hear(*got)
        words, self._stalls = None, 0
        while words is None:
            self._readmit()
            words = self._attempt(links, offers)
        if len(queries := {word.query for word in words}) > 1:
            raise TransportError(f"round {self._round}: agents decided on {sorted(queries)}")
        self._last = self._number
        self._took_part |= dict.fromkeys(self._knowing, self._last)
        for agent, rows in self._untold.items():
            self._note_came(agent, rows)
        self._untold, self._over = dict.fromkeys(self.problem.agents, OwnRows()), ()
        return words

    def _attempt(
        self, links: Callable[[Collection[str]], Links | None], offers: Mapping[str, Offer] | None
    ) -> list[letters.Word] | None:
        words = dict[str, letters.Word]()
        # an order must not overtake outcomes that are still unacknowledged
        self._settle()
        members = self.absence.present
        if not members:
            return None
        self._number += 1
        participants = None
        if self._goes_on:
            absent = [agent for agent in self._untold if agent not in members]
            said = {agent: masked_rows(self._untold[agent], self._setup) for agent in absent}
            participants = Participants(self._number, members, said, self._over)
        edges = links(self.absent)
        offered = dict.fromkeys(members) if offers is None else {agent: offers[agent] for agent in members}
        self._write({agent: letters.Begin(0, edges, offered[agent], participants, self._last) for agent in members})

        def hear(sender: str, letter: letters.Letter) -> None:
            if isinstance(letter, letters.Word) and self._is_due(sender, letter, members):
                words[sender] = letter
                self._count(sender, letter.repeated, letter.refused)

        # members that refuse a sender's letters wait for it for ever; after the patience it is left out
        before, accused = {agent: odd.copy() for agent, odd in self.odd.items()}, dict[str, float]()

        def is_stuck() -> bool:
            """Tell whether others refuse an agent's letters, and none continued without them for the patience."""
            for agent in members if self._goes_on else ():
                if any((odd - before.get(other, Counter()))[agent] for other, odd in self.odd.items()):
                    accused.setdefault(agent, self._clock())
            return bool(accused) and self._clock() - min(accused.values()) > self.plan.patience_s

        def missing() -> list[str]:
            return [agent for agent in members if agent not in words]

        def is_done() -> bool:
            return not missing() or self.absence.present != members or is_stuck()

        if not self._heard_until(is_done, "a decision", hear, missing):
            # the agent that hangs sends no snapshot, and is left out; if all send one, the attempt was in vain
            self._stalls += len(self._snapshots(members)) == len(members)
            if self._stalls == _STALLS:
                got = f"{missing()} run, and sent no decision"
                raise TransportError(f"round {self._round}: {got}; can they reach one another?")
            return None
        if missing():
            if self.absence.present == members:
                self._leave(accused, "others have refused what it said")
            return None
        self._knowing = members
        return [words[agent] for agent in members]

    def _is_due(self, sender: str, word: letters.Word, members: Sequence[str]) -> bool:
        """True if it answers this order with own values; exactly the first present agent has those of absent agents."""
        graph = self.problem.graph
        is_own = set(word.values) == {*graph.variables_owned_by(sender)} or (self.problem.is_field and not word.values)
        absent = [x for x, owner in zip(graph.variables, graph.variable_owners, strict=True) if owner not in members]
        says = sender == members[0] and not self.problem.is_field and self.plan.tables is None
        is_asked = sender in members and word.turn == self._turns[sender]
        return is_asked and is_own and set(word.others) == set(absent if says else ())

    def _readmit(self) -> None:
        """Readmit returning agents; without present agents, wait for one with the last decision."""
        while self.absence.returning or not self.absence.present:
            present, back = self.absence.present, self.absence.returning
            if knowing := [agent for agent in back if self._knows(agent)]:
                for agent in knowing:
                    self._welcome(agent)
            elif not present:
                why = "; ".join(f"{agent}: {reason}" for agent, reason in self.absence.away.items())
                is_back = lambda: any(map(self._knows, self.absence.returning))  # noqa: E731
                if not self._heard_until(is_back, "anybody", longest=JOINING):
                    raise TransportError(f"round {self._round}: no remaining agent knows the decision ({why})")
            elif (state := self._snapshots(present[:1]).get(present[0])) is not None:
                for agent in back:
                    self._welcome_with(agent, state)

    def _knows(self, agent: str) -> bool:
        return agent in self._knowing and agent not in self.absence.forgetful

    def _welcome_with(self, agent: str, state: bytes) -> None:
        """Readmit an agent with a snapshot, if it can continue from that."""
        has_own_belief = self.problem.is_field and not reports_outcomes(self._setup)
        if not state:
            self.absence.leave(agent, "what it missed is too long for a letter")
        elif has_own_belief and agent in self.absence.forgetful and self._took_part[agent]:
            self.absence.leave(agent, "what it had written down is lost, and so is its own belief")
        else:
            self._welcome(agent, state)

    def _welcome(self, agent: str, state: bytes = b"") -> None:
        came = self._came_of[agent] if state and not reports_outcomes(self._setup) else {}
        self._write({agent: letters.Back(0, self._last, self._untold[agent], state, came, self._took_part[agent])})
        self.absence.admit(agent)

    def _note_came(self, agent: str, rows: OwnRows) -> None:
        """Keep an agent's outcomes by query; in a field with unrequested measurements after these."""
        came = self._came_of[agent]
        for name, row in rows.by_query.items():
            if name != UNREQUESTED:  # a part may have come before a decision, and the rest after it
                told = OwnRows({name: came[name]} if name in came else {})
                came[name] = told.with_row(name, row).by_query[name]
                continue
            ((_, stops),) = measurements_by_round({"q00000": row}, self.problem.graph.variables_owned_by(agent))
            last = next(reversed(came), "q00000")
            before = came.get(last, OwnRow(0))
            came[last] = msgspec.structs.replace(before, on_the_way=(*before.on_the_way, *stops))

    def _snapshots(self, sources: Sequence[str]) -> dict[str, bytes]:
        """Request snapshots from some agents; those without an answer count as failed."""
        orders = {source: letters.SendSnapshot(0, self._last) for source in sources}
        found = self._asked(orders, letters.Snapshot, "what it knows", _ANSWER * self.plan.patience_s)
        return {source: letter.state for source, letter in found.items() if source in self.absence.present}

    def measure(self, places: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, tuple[letters.Answer, ...]]:
        """Have agents measure with their own instruments; measurements of failed agents count as failed."""
        orders = {agent: letters.Measure(0, tuple(map(tuple, there))) for agent, there in places.items()}
        found = self._asked(orders, letters.Measured, "what it measured")
        return {agent: self._answers(agent, found.get(agent), len(there)) for agent, there in places.items()}

    def _answers(self, agent: str, letter: letters.Measured | None, count: int) -> tuple[letters.Answer, ...]:
        own = self.problem.graph.factors_owned_by(agent)
        if letter is None:
            return (letters.Answer(dict.fromkeys(own), failure=f"it is gone: {self.absence.away[agent]}"),) * count
        if letter.refused:
            raise TransportError(f"agent {agent!r}: {letter.refused}")
        if len(letter.answers) != count:
            raise TransportError(f"agent {agent!r}: got other measurements; wanted {count} of {sorted(own)}")
        return letter.answers

    def tell(self, query: str | None, news: News, *, is_all: bool) -> None:
        """Report to every agent its own part of the outcomes; for failed agents it is kept."""
        if query is None and not self.problem.is_field:
            return
        rows: dict[str, OwnRow] = {}
        for agent, before in self._untold.items():
            rows[agent] = row_of(self.problem, agent, news, before, self._knowing[0], has_ended=is_all)
            self._untold[agent] = before.with_row(query or UNREQUESTED, rows[agent])
        if is_all and query is not None:
            self._over = (*self._over, query)
        self._order({agent: letters.Told(0, query, row) for agent, row in rows.items()})

    def end(self) -> None:
        """Announce the end of the run, and wait briefly for receipts."""
        for agent in self.problem.agents:
            self.mail.write(agent, letters.End())
        self.mail.settle(GOODBYE)

    def count_own(self) -> None:
        """Add the hub's own counts."""
        self._count(HUB, self.mail.repeated, self.mail.refused)

    def _count(self, member: str, repeated: int, refused: int) -> None:
        before = self._counted.get(member, (0, 0))
        if repeated < before[0] or refused < before[1]:  # it restarted
            before = 0, 0
        self._counted[member] = repeated, refused
        self.repeated += repeated - before[0]
        self.refused += refused - before[1]

    def _settle(self) -> None:
        """Wait for all receipts of present agents; an agent that sends but receives nothing counts as failed."""
        if not self._heard_until(lambda: not self.mail.outstanding, "receipts of what was written"):
            self._leave(dict.fromkeys(to for to, _ in self.mail.outstanding), "it is heard, and gets nothing")

    def _order(self, orders: Mapping[str, letters.Order]) -> None:
        """Send orders to present agents, after all receipts of earlier ones: no order may overtake another."""
        self._settle()
        self._write({agent: order for agent, order in orders.items() if agent in self.absence.present})

    def _write(self, orders: Mapping[str, letters.Order | letters.Back]) -> None:
        for agent, order in orders.items():
            self._turns[agent] += 1
            self.mail.write(agent, msgspec.structs.replace(order, turn=self._turns[agent]))

    def _asked(
        self, orders: Mapping[str, letters.Order], kind: type[_Asked], what: str, longest: float | None = None
    ) -> dict[str, _Asked]:
        """Order present agents to answer, and wait for that; live ones without an answer count as failed, too."""
        found: dict[str, _Asked] = {}
        self._order(orders)
        asked = [agent for agent in orders if agent in self.absence.present]

        def hear(sender: str, letter: letters.Letter) -> None:
            if isinstance(letter, kind) and sender in asked and letter.turn == self._turns[sender]:
                found[sender] = letter

        def missing() -> list[str]:
            return [agent for agent in asked if agent not in found and agent in self.absence.present]

        if not self._heard_until(lambda: not missing(), what, hear, missing, longest=longest):
            self._leave(missing(), f"it lives, and has not said {what}")
        return found

    def _leave(self, agents: Collection[str], why: str) -> None:
        for agent in agents:
            self.absence.leave(agent, why, is_hung=True)

    def _heard_until(
        self,
        is_done: Callable[[], bool],
        what: str,
        hear: Hear | None = None,
        missing: Callable[[], Collection[str]] = tuple,
        longest: float | None = None,
    ) -> bool:
        """Read letters until a condition holds, and note failures; False if that takes too long."""
        self.absence.begin()
        looked, listened = self._clock(), 0.0
        longest = self.absence.longest if longest is None else longest
        while not is_done():
            if listened > longest:
                return False
            self._attend()
            self._invite()
            got = self.mail.read(LOOK, is_done)
            now = self._clock()
            # a hub that was suspended must not take its own pause for the agents' silence
            passed, looked = min(now - looked, _PAUSE), now
            if got is not None:
                self._hear(*got, hear)
            if not is_done():
                self.absence.look(0.0 if got is not None else passed, what, missing(), self.odd_of)
            listened += passed
        return True

    def _invite(self) -> None:
        if self._clock() - self._invited >= _ASKING:
            self._invited = self._clock()
            for agent, invitation in self._invitations.items():
                if not self.mail.parcels[agent]:
                    self._carrier.invite(agent, invitation)

    def _hear(self, sender: str, letter: letters.Letter, hear: Hear | None = None) -> None:
        if isinstance(letter, letters.Odd):  # a restarted agent counts from 0 again
            self.odd[sender] = self.odd.get(sender, Counter[str]()) | Counter(letter.refused)
        elif isinstance(letter, letters.Here):
            unread = [letters.opened(content) for to, content in self.mail.outstanding if to == sender]
            orders = sum(not isinstance(letter, letters.Ping) for letter in unread)
            self.absence.hear(sender, letter, has_orders=self._turns[sender] > orders)
        elif hear is not None:
            hear(sender, letter)


def row_of(problem: Problem, agent: str, news: News, before: OwnRows, teller: str, *, has_ended: bool) -> OwnRow:
    """One agent's own part of the outcomes at a joint point; ``teller`` is the agent that gets totals."""
    if problem.is_field:
        return before.row(problem, agent, news, has_ended=has_ended)
    graph, stood = problem.graph, problem.coded(news.point)
    place = {variable: stood[variable] for variable in graph.variables_owned_by(agent)}
    told = news if agent == teller else replace(news, total=None)
    return OwnRow.of_news(before.next_order, told, graph.factors_owned_by(agent), place)
