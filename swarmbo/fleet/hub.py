"""The hub of a fleet: it tells agents when to decide and what came of it, and hears what they decided."""

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Sequence

import msgspec

from swarmbo.coordination.schema import said_of
from swarmbo.deciding.own_rows import Stop
from swarmbo.deciding.reports import Offer
from swarmbo.errors import TransportError
from swarmbo.fleet.letters import Answer, Back, Begin, Came, End, Lend, Letter, Measure, Measured, Odd, Saw, Word
from swarmbo.fleet.mail import GOODBYE, Carrier, Mail
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.fleet.schema import fits_hub
from swarmbo.problem import Problem
from swarmbo.problem.data import News, Reading

LOOK = 0.2  # seconds between looks at whether agents live
JOINING = 600.0  # seconds for which one is waited for that was never heard: somebody may have to go there and start it
Links = tuple[tuple[str, str], ...]


class Hub:
    """Tells agents when to decide and what came of it, and hears their words. It decides nothing itself.

    Args:
        plan: Of the fleet.
        carrier: What moves its letters.
        attend: Called again and again while it waits; raises if there is nothing to wait for any more.
        clock: In seconds; does not go back.

    Attributes:
        repeated: Letters that were written again, by anybody, as far as it was told.
        refused: What was refused, by anybody, as far as it was told.
        odd: By agent, whose letters it has refused as they held what they may not, and how many, as far as it said.
    """

    def __init__(
        self,
        plan: Plan,
        carrier: Carrier,
        attend: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan, self.mail = plan, Mail(carrier, clock=clock, fits=self._fits)
        self._attend, self._clock = attend, clock
        self.problem = Problem.from_plain(plan.problem)
        self._turns, self._round = Counter[str](), 0  # orders written to each
        self.repeated = self.refused = 0
        self._counted: dict[str, tuple[int, int]] = {}
        self.odd: dict[str, Counter[str]] = {}

    @property
    def absent(self) -> tuple[str, ...]:
        """Who is gone; of agents that wait for one another nobody may be."""
        return ()

    def words(
        self, links: Callable[[Collection[str]], "Links | None"], offers: "Mapping[str, Offer] | None" = None
    ) -> list[Word]:
        """What all agents decide, asked of them now.

        Args:
            links: Given who is absent, who hears whom; None: everyone hears everyone.
            offers: In a field, where each agent can go: it is told its own.

        Raises:
            TransportError: If one of them says nothing for longer than the plan's patience while nobody else does, or
                they do not decide on the same query.
        """
        agents, words = self.problem.agents, dict[str, Word]()
        self._round += 1
        edges = links(())
        self._order({agent: Begin(0, edges, None if offers is None else offers[agent]) for agent in agents})

        def hear(sender: str, letter: Letter) -> None:
            if isinstance(letter, Word) and letter.turn == self._turns[sender] and self._is_own(sender, letter):
                words[sender] = letter
                self._count(sender, letter.repeated, letter.refused)

        self._wait(lambda: len(words) == len(agents), "words", agents, words, hear)
        return self._alike([words[agent] for agent in agents])

    def _fits(self, sender: str, letter: Letter) -> bool:
        return fits_hub(letter, sender, self.problem)

    @property
    def odd_of(self) -> Counter[str]:
        """How many letters of each member were refused as they held what they may not, by all together."""
        return sum(self.odd.values(), Counter(self.mail.odd))

    def _alike(self, words: list[Word]) -> list[Word]:
        if len(queries := {word.query for word in words}) > 1:
            raise TransportError(f"round {self._round}: agents decided on {sorted(queries)}")
        return words

    def _count(self, member: str, repeated: int, refused: int) -> None:
        """Note what a member has counted since it was started."""
        before = self._counted.get(member, (0, 0))
        if repeated < before[0] or refused < before[1]:  # it was started again
            before = 0, 0
        self._counted[member] = repeated, refused
        self.repeated += repeated - before[0]
        self.refused += refused - before[1]

    def _note_odd(self, sender: str, letter: Odd) -> None:
        """Note what an agent has refused; one that was started again has forgotten what it had counted."""
        self.odd[sender] = self.odd.get(sender, Counter[str]()) | Counter(letter.refused)

    def count_own(self) -> None:
        """Note what the hub itself has counted."""
        self._count(HUB, self.mail.repeated, self.mail.refused)

    def measure(self, places: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, tuple[Answer, ...]]:
        """What agents measure by themselves.

        Args:
            places: By agent, one after the other: values of its own variables.

        Raises:
            TransportError: If one says nothing for longer than the plan's patience while nobody else does, or what it
                measured can be no outcome.
        """
        found: dict[str, tuple[Answer, ...]] = {}
        self._order({agent: Measure(0, tuple(map(tuple, there))) for agent, there in places.items()})

        def hear(sender: str, letter: Letter) -> None:
            if isinstance(letter, Measured) and sender in places and letter.turn == self._turns[sender]:
                found[sender] = self._answers(sender, letter, len(places[sender]))

        self._wait(lambda: len(found) == len(places), "measurements", list(places), found, hear)
        return {agent: found[agent] for agent in places}

    def _answers(self, agent: str, letter: Measured, count: int) -> tuple[Answer, ...]:
        if letter.refused:
            raise TransportError(f"agent {agent!r}: {letter.refused}")
        own = set(self.problem.graph.factors_owned_by(agent))
        if len(letter.answers) != count or any(set(answer.outcomes) != own for answer in letter.answers):
            raise TransportError(f"agent {agent!r}: got other measurements; wanted {count} of {sorted(own)}")
        return letter.answers

    def _order(self, letters: "Mapping[str, Begin | Came | Saw | Measure | Lend]") -> None:
        """Write orders, once agents have all that was written before: they may not overtake one another."""
        agents = self.problem.agents
        self._wait(lambda: not self.mail.outstanding, "receipts of what was written", agents, seen=agents)
        self._write(letters)

    def _write(self, letters: "Mapping[str, Begin | Came | Saw | Measure | Lend | Back]") -> None:
        for agent, letter in letters.items():
            self._turns[agent] += 1
            self.mail.write(agent, msgspec.structs.replace(letter, turn=self._turns[agent]))

    def _wait(
        self,
        is_done: Callable[[], bool],
        what: str,
        agents: Sequence[str],
        seen: Container[str] = (),
        hear: Callable[[str, Letter], None] = lambda sender, letter: None,
    ) -> None:
        """Read until something is so; a member that wrote something is not silent, and a first word may take longer."""
        heard = self._clock()
        while not is_done():
            self._attend()
            if (got := self.mail.read(LOOK, is_done)) is not None:
                heard = self._clock()
                if isinstance(got[1], Odd):
                    self._note_odd(got[0], got[1])
                else:
                    hear(*got)
            elif not is_done() and (quiet := self._clock() - heard) > self.plan.patience_s:
                unread = {recipient for recipient, _ in self.mail.outstanding}
                silent = [agent for agent in agents if agent in unread or agent not in seen]
                if quiet > JOINING or all(self.mail.parcels[agent] for agent in silent):
                    raise TransportError(
                        f"round {self._round}: heard nothing from {silent} for {quiet:.0f} s; wanted {what}: do they "
                        f"run, by the fleet.json of this run, and can they be reached?{said_of(self.odd_of)}"
                    )

    def _is_own(self, sender: str, word: Word) -> bool:
        own = set(self.problem.graph.variables_owned_by(sender))
        return set(word.values) == own or (self.problem.is_field and not word.values)

    def tell(self, query: str | None, news: News, *, is_all: bool) -> None:
        """Every agent what came of a decision, as far as it is its own.

        Args:
            query: Its id; None: of what nobody asked for.
            news: What came.
            is_all: Whether nothing more will come of it.
        """
        self._order(self._told(query, news, is_all, self.problem.agents[0]))

    def _told(self, query: str | None, news: News, is_all: bool, teller: str) -> "Mapping[str, Came | Saw]":
        """What is said to agents of what came; ``teller`` is told the total."""
        if self.problem.is_field:
            return {agent: self._saw(agent, query, news, is_all) for agent in self.problem.agents}
        return {} if query is None else self._came(query, news, teller)

    def _saw(self, agent: str, query: str | None, news: News, is_all: bool) -> Saw:
        """What an agent in a field measured."""
        reading = None
        if agent in news.factors:
            place = self.problem.places(news.point, [agent])[agent]
            reading = Stop.of(Reading(agent, place, news.factors[agent], news.noise.get(agent, math.nan)))
        on_the_way = tuple(map(Stop.of, news.along(agent)))
        return Saw(0, query, reading, on_the_way, is_all)

    def _came(self, query: str, news: News, teller: str) -> dict[str, Came]:
        """What came of a joint point of a function, to each agent its own."""
        problem, graph, letters = self.problem, self.problem.graph, dict[str, Came]()
        stood = problem.named(news.point)
        for agent in problem.agents:
            own = [factor for factor in graph.factors_owned_by(agent) if factor in news.factors]
            has_total = problem.outcomes == "total" and agent == teller
            noise = {factor: news.noise[factor] for factor in own if factor in news.noise}
            if has_total and math.isfinite(news.total_noise):
                noise["total"] = news.total_noise
            letters[agent] = Came(
                0,
                query,
                {variable: stood[variable] for variable in graph.variables_owned_by(agent)},
                {factor: _known(news.factors[factor]) for factor in own},
                _known(news.total) if has_total else None,
                has_total,
                noise,
            )
        return letters

    def end(self) -> None:
        """Tell all that the run has ended, and wait a little until they know."""
        for agent in self.problem.agents:
            self.mail.write(agent, End())
        self.mail.settle(GOODBYE)


def _known(number: float | None) -> float | None:
    return None if number is None or not math.isfinite(number) else float(number)
