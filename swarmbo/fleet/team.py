"""The team as the hub sees it: agents elsewhere decide, the world is here, and so is the log."""

import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import msgspec
import networkx as nx
import numpy as np

from swarmbo.data import News
from swarmbo.deciding.choice import Choice
from swarmbo.deciding.function import FunctionLearner
from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.letters import Begin, Came, End, Letter, Word
from swarmbo.fleet.mail import GOODBYE, Carrier, Mail
from swarmbo.fleet.plan import Plan
from swarmbo.problem import Problem
from swarmbo.records import SolveReport, Traffic
from swarmbo.team import Team
from swarmbo.worlds import Offers

_LOOK = 0.2  # seconds between looks at whether agents live


class Hub:
    """Tells agents when to decide and what came of it, and hears their words. It decides nothing itself.

    Args:
        plan: Of the fleet.
        carrier: What moves its letters.
        attend: Called again and again while it waits; raises if there is nothing to wait for any more.
        clock: In seconds; does not go back.
    """

    def __init__(
        self,
        plan: Plan,
        carrier: Carrier,
        attend: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plan, self.mail = plan, Mail(carrier, clock=clock)
        self._attend, self._clock = attend, clock
        self._problem = Problem.from_plain(plan.problem)
        self._round = 0

    def words(self, links: "tuple[tuple[str, str], ...] | None") -> list[Word]:
        """What all agents decide, asked of them now.

        Args:
            links: Who hears whom; None: everyone hears everyone.

        Raises:
            TransportError: If one of them says nothing for longer than the plan's patience while nobody else does, or
                they do not decide on the same query.
        """
        agents = self._problem.agents
        self._wait(lambda: not self.mail.outstanding, "receipts of what came", agents)  # it may not be overtaken
        self._round += 1
        for agent in agents:
            self.mail.write(agent, Begin(self._round, links))
        words: dict[str, Word] = {}

        def hear(sender: str, letter: Letter) -> None:
            if isinstance(letter, Word) and letter.round == self._round and self._is_own(sender, letter):
                words[sender] = letter

        self._wait(lambda: len(words) == len(agents), "words", agents, words, hear)
        if len({word.query for word in words.values()}) > 1:
            raise TransportError(f"round {self._round}: agents decided on {sorted({w.query for w in words.values()})}")
        return [words[agent] for agent in agents]

    def _wait(
        self,
        is_done: Callable[[], bool],
        what: str,
        agents: Sequence[str],
        seen: Container[str] = (),
        hear: Callable[[str, Letter], None] = lambda sender, letter: None,
    ) -> None:
        """Read until something is so; a member that wrote something is not silent."""
        heard = self._clock()
        while not is_done():
            self._attend()
            if (got := self.mail.read(_LOOK)) is not None:
                heard = self._clock()
                hear(*got)
            elif self._clock() - heard > self.plan.patience_s:
                unread = {recipient for recipient, _ in self.mail.outstanding}
                silent = [agent for agent in agents if agent in unread or agent not in seen]
                raise TransportError(
                    f"round {self._round}: heard nothing from {silent} for {self.plan.patience_s:g} s; wanted "
                    f"{what}: do they run, and can they be reached?"
                )

    def _is_own(self, sender: str, word: Word) -> bool:
        return set(word.values) == set(self._problem.graph.variables_owned_by(sender))

    def tell(self, news: News) -> None:
        """Every agent what came of the decision, as far as it is its own."""
        problem, graph = self._problem, self._problem.graph
        stood = problem.named(news.point)
        for agent in problem.agents:
            own = [factor for factor in graph.factors_owned_by(agent) if factor in news.factors]
            has_total = problem.outcomes == "total" and agent == problem.agents[0]
            noise = {factor: news.noise[factor] for factor in own if factor in news.noise}
            if has_total and np.isfinite(news.total_noise):
                noise["total"] = news.total_noise
            came = Came(
                self._round,
                {variable: stood[variable] for variable in graph.variables_owned_by(agent)},
                {factor: _known(news.factors[factor]) for factor in own},
                _known(news.total) if has_total else None,
                has_total,
                noise,
            )
            self.mail.write(agent, came)

    def end(self) -> None:
        """Tell all that the run has ended, and wait a little until they know."""
        for agent in self._problem.agents:
            self.mail.write(agent, End())
        self.mail.settle(GOODBYE)


class FleetTeam(Team):
    """A team whose agents are members of a fleet: it asks for what they decided.

    What it believes is for the log alone: recommendations, what was expected, hyper-parameters.
    """

    hub: Hub | None = None
    _shared = Traffic()

    def _decided(self, offers: Offers) -> tuple[Any, Choice]:
        learner, hub = self._learner, self.hub
        if hub is None or not isinstance(learner, FunctionLearner):
            raise ConfigError("got a team of a field, or without a hub; wanted a function, whose agents are a fleet's")
        edges = None
        if offers.links is not None:
            edges = tuple((str(a), str(b)) for a, b in offers.links.edges)
            if not nx.is_connected(offers.links):
                parts = [sorted(part) for part in nx.connected_components(offers.links)]
                raise TransportError(f"got links that join {parts}; wanted all agents of a fleet joined by some path")
        words = hub.words(edges)
        self._shared = _sent(words, is_agreement=False)
        values: Mapping[str, float] = {variable: value for word in words for variable, value in word.values.items()}
        return learner.decided_elsewhere(self._log, self.problem.placed(values), _report(words))

    def _take(self, query_id: str | None, news: News, *, is_all: bool = False) -> None:
        super()._take(query_id, news, is_all=is_all)
        if self.hub is not None and query_id is not None:
            self.hub.tell(news)
            self.last_sharing = self._shared


def _report(words: list[Word]) -> SolveReport:
    """Of the whole agreement: the worst status, the longest way, and what all said."""
    worst = next((word.report for word in words if word.report.status == "max_rounds"), words[0].report)
    rounds = max(word.report.rounds for word in words)
    return msgspec.structs.replace(worst, rounds=rounds, traffic=_sent(words, is_agreement=True))


def _sent(words: list[Word], *, is_agreement: bool) -> Traffic:
    """What the agreement took, or all else: what came, what was best, the joint point."""
    own = [took for word in words for what, took in word.sent.items() if (what == "agreement") is is_agreement]
    return sum(own, Traffic())


def _known(number: float | None) -> float | None:
    return None if number is None or not np.isfinite(number) else float(number)
