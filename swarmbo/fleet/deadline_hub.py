"""The hub of a fleet by a deadline: it goes on without agents that are gone, and takes back those that return."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence

from swarmbo.agent.company import Company, public
from swarmbo.deciding.own_rows import OwnRow, OwnRows, shares_outcomes
from swarmbo.deciding.reports import Offer
from swarmbo.errors import TransportError
from swarmbo.fleet.absence import Absence
from swarmbo.fleet.hub import JOINING, LOOK, Hub, Links
from swarmbo.fleet.letters import (
    Answer,
    Back,
    Begin,
    Came,
    Here,
    Lend,
    Lent,
    Letter,
    Measure,
    Measured,
    Odd,
    Ping,
    Saw,
    Word,
    opened,
)
from swarmbo.fleet.mail import Carrier
from swarmbo.fleet.plan import Plan
from swarmbo.problem.data import News

_PAUSE = 5.0 * LOOK  # seconds that one look counts for at most: a pause of the hub's own is nobody's silence
_STALLS = 2  # times that all live and come to nothing, after which the run ends
_ANSWER = 3.0  # times the patience, in which who lives says what it knows: that takes no computing
Hear = Callable[[str, Letter], None]


def _deaf(sender: str, letter: Letter) -> None:
    """Nothing is waited for but receipts."""


class DeadlineHub(Hub):
    """A hub that says in each round who takes part.

    Where somebody goes in the middle of a decision, those who are left are told to take it back and to decide without
    it; so nobody waits for one that is gone, whatever it had to say. What it was told before is said in its place.
    Whoever comes back is in from the next decision on. One that took part in the last one knows all; to others one who
    is there lends what everybody knows, and the hub tells it what came of its own factors.

    One that lives, as its receipts say, and does not do what it is told is gone, too. Where nobody says what was
    decided, as all wait for one, all are asked for what they know: who does not say that is the one.

    Args:
        plan: As of a ``Hub``, and so are the next three.
        carrier: What moves its letters.
        attend: Called again and again while it waits.
        clock: In seconds.
        here: Agents whose processes are on this machine.
        ended: Of those, who has ended for good, and why; it may grow.
    """

    def __init__(
        self,
        plan: Plan,
        carrier: Carrier,
        attend: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        here: Collection[str] = (),
        ended: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(plan, carrier, attend, clock)
        agents = self.problem.agents
        self.absence = Absence(plan, agents, self.mail, here, ended)
        self._number, self._last = 0, 0  # of decisions: the last that was begun, the last that holds
        self._knowing = agents  # who took part in that one
        self._untold = dict.fromkeys(agents, OwnRows())  # what agents were told since
        self._stalls = 0  # times that all of them lived, and came to nothing in this round
        self._over: tuple[str, ...] = ()  # queries of which nothing more comes, that ended since
        self._came_of: dict[str, dict[str, OwnRow]] = {agent: {} for agent in agents}

    @property
    def absent(self) -> tuple[str, ...]:
        """Who is gone."""
        return tuple(agent for agent in self.problem.agents if agent in self.absence.away)

    def words(
        self, links: Callable[[Collection[str]], "Links | None"], offers: "Mapping[str, Offer] | None" = None
    ) -> list[Word]:
        """What those who are there decide, asked of them now, and again without who goes meanwhile.

        Raises:
            TransportError: If nobody is there who knows what was decided, and none comes back; if those who are there
                come to nothing; or as of a ``Hub``.
        """
        self._round += 1
        while (got := self.mail.read(0.0)) is not None:  # who came back meanwhile
            self._hear(*got, _deaf)
        words, self._stalls = None, 0
        while words is None:
            self._readmit()
            words = self._attempt(links, offers)
        self._last = self._number
        for agent, rows in self._untold.items():
            self._came_of[agent] |= rows.told
        self._untold, self._over = dict.fromkeys(self.problem.agents, OwnRows()), ()
        return self._alike(words)

    def _attempt(
        self, links: Callable[[Collection[str]], "Links | None"], offers: "Mapping[str, Offer] | None"
    ) -> list[Word] | None:
        """Their words; None if one of them has gone."""
        problem, words = self.problem, dict[str, Word]()
        self._settle()
        members = self.absence.present
        if not members:
            return None
        self._number += 1
        said = {agent: public(rows, problem) for agent, rows in self._untold.items() if agent not in members}
        company = Company(self._number, members, said, self._over)
        edges = links(self.absent)
        offered = dict.fromkeys(members) if offers is None else {agent: offers[agent] for agent in members}
        self._write({agent: Begin(0, edges, offered[agent], company, self._last) for agent in members})

        def hear(sender: str, letter: Letter) -> None:
            if not (isinstance(letter, Word) and sender in members and letter.turn == self._turns[sender]):
                return
            if self._is_own(sender, letter) and self._is_of_others(sender, letter, members):
                words[sender] = letter
                self._count(sender, letter.repeated, letter.refused)

        before, accused = {agent: odd.copy() for agent, odd in self.odd.items()}, dict[str, float]()

        def is_stuck() -> bool:
            """Whether what one has said has been refused, and for the patience nobody could go on without it."""
            for agent in members:
                if any((odd - before.get(other, Counter()))[agent] for other, odd in self.odd.items()):
                    accused.setdefault(agent, self._clock())
            return bool(accused) and self._clock() - min(accused.values()) > self.plan.patience_s

        def is_done() -> bool:
            return len(words) == len(members) or self.absence.present != members or is_stuck()

        if not self._heard_until(is_done, hear):
            self._stalls += len(self._lent(members)) == len(members)
            if self._stalls == _STALLS:
                missing = [agent for agent in members if agent not in words]
                raise TransportError(
                    f"round {self._round}: {missing} live, and said nothing; wanted words: can they reach one another?"
                )
            return None
        if len(words) < len(members):
            if self.absence.present == members:
                for agent in accused:
                    self.absence.leave(agent, "others have refused what it said", is_hung=True)
            return None
        self._knowing = members
        return [words[agent] for agent in members]

    def _is_of_others(self, sender: str, word: Word, members: Sequence[str]) -> bool:
        """Whether the first who is there says of all variables of absent agents where they stand, and nobody else."""
        graph = self.problem.graph
        absent = [x for x, owner in zip(graph.variables, graph.variable_owners, strict=True) if owner not in members]
        says = sender == members[0] and not self.problem.is_field
        return set(word.others) == set(absent if says else ())

    def _readmit(self) -> None:
        """Take in who is back; if nobody is there, wait for one who knows what was decided."""
        while self.absence.returning or not self.absence.present:
            present, back = self.absence.present, self.absence.returning
            if knowing := [agent for agent in back if self._knows(agent)]:
                for agent in knowing:
                    self._welcome(agent)
            elif not present:
                self._wait_for_anybody()
            elif (state := self._lent(present[:1]).get(present[0])) is not None:
                for agent in back:
                    if state:
                        self._welcome(agent, state)
                    else:
                        self.absence.refuse(agent, "what it missed is too long for a letter")

    def _knows(self, agent: str) -> bool:
        return agent in self._knowing and agent not in self.absence.forgetful

    def _welcome(self, agent: str, state: bytes = b"") -> None:
        """Tell one who is back what it missed: it is in again."""
        told = self._untold[agent]
        alike = self.problem.is_field or shares_outcomes(self.problem)
        self._write({agent: Back(0, self._last, told, state, self._came_of[agent] if state and not alike else {})})
        self.absence.admit(agent)

    def _lent(self, lenders: Sequence[str]) -> dict[str, bytes]:
        """What everybody knows, as some have it; those of them who do not say it are gone."""
        found: dict[str, bytes] = {}
        self._order({lender: Lend(0, self._last) for lender in lenders})

        def hear(sender: str, letter: Letter) -> None:
            if isinstance(letter, Lent) and sender in lenders and letter.turn == self._turns[sender]:
                found[sender] = letter.state

        self._answered(lenders, found, "what it knows", hear, _ANSWER * self.plan.patience_s)
        return {lender: state for lender, state in found.items() if lender in self.absence.present}

    def _answered(
        self, asked: Sequence[str], found: Container[str], what: str, hear: Hear, longest: float | None = None
    ) -> None:
        """Wait until all who were asked have answered or are gone; who lives and does not answer is gone, too."""

        def missing() -> list[str]:
            return [agent for agent in asked if agent not in found and agent in self.absence.present]

        if not self._heard_until(lambda: not missing(), hear, longest):
            for agent in missing():
                self.absence.leave(agent, f"it lives, and has not said {what}", is_hung=True)

    def _wait_for_anybody(self) -> None:
        why = "; ".join(f"{agent}: {reason}" for agent, reason in self.absence.away.items())
        if not self._heard_until(lambda: any(map(self._knows, self.absence.returning)), longest=JOINING):
            raise TransportError(f"round {self._round}: nobody is left who knows what was decided ({why})")

    def measure(self, places: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, tuple[Answer, ...]]:
        """What agents measure by themselves; of who is gone all of it failed.

        Raises:
            TransportError: If what one measured can be no outcome.
        """
        found: dict[str, tuple[Answer, ...]] = {}
        self._order({agent: Measure(0, tuple(map(tuple, there))) for agent, there in places.items()})
        asked = [agent for agent in places if agent in self.absence.present]

        def hear(sender: str, letter: Letter) -> None:
            if isinstance(letter, Measured) and sender in asked and letter.turn == self._turns[sender]:
                found[sender] = self._answers(sender, letter, len(places[sender]))

        self._answered(asked, found, "what it measured", hear)
        failed = {agent: self._failed(agent, len(there)) for agent, there in places.items() if agent not in found}
        return {agent: found[agent] if agent in found else failed[agent] for agent in places}

    def _failed(self, agent: str, count: int) -> tuple[Answer, ...]:
        own = self.problem.graph.factors_owned_by(agent)
        return (Answer(dict.fromkeys(own), failure=f"it is gone: {self.absence.away[agent]}"),) * count

    def tell(self, query: str | None, news: News, *, is_all: bool) -> None:
        """Every agent what came of a decision; what was for who is gone is kept for it."""
        letters = self._told(query, news, is_all, self._knowing[0])
        for agent, letter in letters.items():
            name, row = self._row(agent, letter)
            self._untold[agent] = self._untold[agent].with_told(name, row)
        if is_all and query is not None:
            self._over = (*self._over, query)
        self._order(letters)

    def _row(self, agent: str, letter: Came | Saw) -> tuple[str, OwnRow]:
        """What an agent notes when it is told so, and of which query."""
        order = self._untold[agent].count
        if isinstance(letter, Saw):
            return letter.noted(agent, self.problem.graph.variables_owned_by(agent), order)
        return letter.noted(order)

    def _settle(self) -> None:
        """Wait until those who are there have all that was written to them; who is heard and gets nothing is gone."""
        if not self._heard_until(lambda: not self.mail.outstanding):
            for agent in dict.fromkeys(recipient for recipient, _ in self.mail.outstanding):
                self.absence.leave(agent, "it is heard, and gets nothing", is_hung=True)

    def _order(self, letters: "Mapping[str, Begin | Came | Saw | Measure | Lend]") -> None:
        """As of a ``Hub``, to those who are there."""
        self._settle()
        self._write({agent: letter for agent, letter in letters.items() if agent in self.absence.present})

    def _heard_until(self, is_done: Callable[[], bool], hear: Hear = _deaf, longest: float | None = None) -> bool:
        """Read until something is so, and note who goes; False if that takes too long."""
        self.absence.begin()
        looked, listened = self._clock(), 0.0
        longest = JOINING + 10.0 * self.plan.patience_s if longest is None else longest
        while not is_done():
            if listened > longest:
                return False
            self._attend()
            got = self.mail.read(LOOK, is_done)
            now = self._clock()
            passed, looked = min(now - looked, _PAUSE), now
            if got is not None:
                self._hear(*got, hear)
            self.absence.look(0.0 if got is not None else passed)
            listened += passed
        return True

    def _hear(self, sender: str, letter: Letter, hear: Hear) -> None:
        if isinstance(letter, Odd):
            self._note_odd(sender, letter)
        elif isinstance(letter, Here):
            unread = [opened(content) for to, content in self.mail.outstanding if to == sender]
            orders = sum(not isinstance(letter, Ping) for letter in unread)
            self.absence.hear(sender, letter, has_orders=self._turns[sender] > orders)
        else:
            hear(sender, letter)
