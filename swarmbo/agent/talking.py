"""An agent's ticks: decisions are stages of messages, which continue as far as arrivals allow."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import msgspec
import networkx as nx
from msgspec import UnsetType
from numpy.typing import ArrayLike

from swarmbo.acquisition import Travel
from swarmbo.agent.answers import Clocked, Known, Stage, Staged, Timed
from swarmbo.agent.schema import Participants, require_own
from swarmbo.agent.stages import Stages
from swarmbo.baselines.peers import require_packages
from swarmbo.boundary.values import check_links, exact, short
from swarmbo.coordination.by_messages import Post
from swarmbo.coordination.messages import Bundle, Codec, Label, Message, UnfitError
from swarmbo.coordination.participant import Participant, read
from swarmbo.coordination.requests import answered
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer, offers_of
from swarmbo.deciding.own_rows import OwnRows
from swarmbo.deciding.setup import Setup
from swarmbo.deciding.told import Owned, checked_sites
from swarmbo.errors import ConfigError, TransportError
from swarmbo.problem import Problem
from swarmbo.records import LinkReport, Recommendation, SolveReport, Traffic
from swarmbo.transport import Envelope, Routes
from swarmbo.worlds import Offers

TICK = ("", b"")  # no agent has this name


class Deciding(msgspec.Struct, frozen=True):
    """Decisions in progress: inputs, and ``heard``: all arrivals since, with ``TICK`` at each tick by a deadline. Once
    ``is_under_way``, messages were sent, and are not sent again. A ``count`` of 0 is a recommendation.
    """

    count: int
    said: OwnRows
    offer: Offer
    turn: int
    heard: tuple[tuple[str, bytes], ...] = ()
    is_under_way: bool = False
    participants: Participants | None = None
    known: dict[str, PackedOffer] = {}

    @property
    def last(self) -> int:
        """Number of its last decision."""
        return self.turn + max(self.count, 1) if self.participants is None else self.participants.number

    def by_tick(self, agent: str) -> list[list[Envelope]]:
        """Arrivals before the first tick of an agreement by a deadline, and from each such tick on."""
        out: list[list[Envelope]] = [[]]
        for sender, payload in self.heard:
            if (sender, payload) == TICK:
                out.append([])
            else:
                out[-1].append(Envelope(sender, agent, payload))
        return out


@dataclass(frozen=True, eq=False)
class Begun:
    """Decisions in progress, the log, learner and offers before them, and the state before the ``earlier`` ones."""

    deciding: Deciding
    log: Logbook
    learner: FieldLearner | FunctionLearner
    offered: dict[str, PackedOffer]
    earlier: "Begun | None" = None


_AHEAD = 1000  # decisions; no agent is so far ahead of another, as they wait for one another


class Talking:
    """Base of agents: their data, and their decisions in progress; see ``Agent`` for its arguments."""

    def __init__(
        self,
        name: str,
        problem: Problem,
        *,
        links: "nx.Graph[str] | None" = None,
        patience: float = math.inf,
        level: float | None = None,
        sites: ArrayLike | None = None,
        has_base: bool = False,
        travel: Travel | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(problem, Problem):  # pyright: ignore[reportUnnecessaryIsInstance]
            wanted = "wanted a Problem, such as Problem.of(graph, bounds)"
            raise ConfigError(f"got a {type(problem).__name__}; {wanted}", at="problem")
        if not (isinstance(patience, Real) and patience >= 0.0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"got {short(patience)}; wanted a number >= 0", at="patience")
        problem = problem.watching(level)
        setup = Setup.of(problem, **settings)
        if name not in problem.agents:
            raise ConfigError(f"got agent {name!r}; wanted one of {list(problem.agents)}", at="$.name")
        require_own(setup)
        require_packages(setup.coordination)
        check_links(links, problem.agents)
        name = exact(name)
        self.name, self.problem, self.links, self.patience = name, problem, links, patience
        self._others = frozenset(problem.agents) - {name}
        self.level, self.sites = problem.level, None if sites is None else checked_sites(sites, problem)
        self.has_base = has_base
        self.travel = travel
        self.participants: Participants | None = None
        self.factors = problem.graph.factors_owned_by(name)
        self.variables = problem.graph.variables_owned_by(name)
        self._setup, self._owned = setup, Owned(name, problem, self.factors, self.variables)
        self.sent: dict[str, Traffic] = {}
        self.report: SolveReport | None = None
        self._log, self._own = Logbook.empty(problem), OwnRows()
        self._learner = FieldLearner.empty(setup, name) if problem.is_field else FunctionLearner(setup)
        self.refused = Counter[str]()
        self._reported = Counter[str]()  # refused messages that a report has named
        self._offered: dict[str, PackedOffer] = {}  # by agent, in the report before the last decision
        self._words: dict[str, dict[str, float] | None] = {}  # codes
        self._recommended: Recommendation | None = None
        # messages that are not due yet: number of the decision or agreement, True if by a deadline, and envelope
        self._early: list[tuple[int, bool, Envelope]] = []
        self._seen = set[tuple[str, bytes]]()  # senders and payloads of this decision and of early messages
        self._clocked: Clocked | None = None
        self._n_agreed = 0  # agreements by a deadline with smaller numbers are over
        self._begun: Begun | None = None
        self._before: Begun | None = None  # state before the last decision, also once it is made
        self._steps: Staged[None] | None = None
        self._participant = Participant[Any](name)
        self._routes = Routes(problem.agents, links, has_base=has_base)

    @property
    def is_finished(self) -> bool:
        """True if it waits for nothing: every request is decided."""
        return self._steps is None

    @property
    def keeps_time(self) -> bool:
        """True during an agreement by a deadline: then call ``tick`` at each tick of your clock, also without arrivals.

        Messages for which ``swarmbo.agent.may_be_lost`` is True may be lost or late. All other messages have to arrive,
        also those that an agent sends at the deadline.
        """
        return self._clocked is not None

    @property
    def agreement(self) -> int:
        """Number of the agreement for which the agent keeps time (a decision has two); -1: none."""
        return -1 if self._clocked is None else self._clocked.number

    @property
    def log(self) -> Logbook:
        """Log of the agent's knowledge; for other agents' outcomes per factor, it only states that they are known."""
        return self._log

    def tick(self, now: float, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrived messages, in any order and also repeated ones, and continue until others are needed.

        Messages of a decision that was not requested yet are kept.

        Args:
            now: Time of a monotonic clock, in its own unit.
            inbox: Messages that arrived since the last tick.

        Returns:
            Messages to other agents.

        Raises:
            TransportError: If a message was changed in transit; then no message of the inbox was processed. Also if no
                message that it waits for has arrived for longer than its patience. Unchanged messages with inadmissible
                content are dropped as if lost, and counted in ``refused``.
        """
        fresh = self._put_aside(inbox)
        if self._begun is not None:
            new = [*([TICK] if self.keeps_time else []), *((letter.sender, letter.payload) for letter in fresh)]
            deciding = self._begun.deciding
            deciding = msgspec.structs.replace(deciding, heard=(*deciding.heard, *new), is_under_way=True)
            self._begun = replace(self._begun, deciding=deciding)
        said: list[Envelope] = []
        if self._clocked is not None:
            said += self._clocked_tick(self._clocked)
        while self._steps is not None and self._clocked is None:
            due = self._due(self._participant.decision)
            said += self._participant.tick(now, [envelope for *_, envelope in due])
            if not self._participant.is_finished:
                break
            outcomes, self._participant.outcomes = self._participant.outcomes, []
            self._advance(outcomes)
        return said

    def _put_aside(self, inbox: Sequence[Envelope]) -> list[Envelope]:
        """Sort arrivals, drop late and repeated ones; by a deadline changed ones, too: nothing stops the clock."""
        last, is_deciding = self._participant.decision, self._steps is not None
        arrived, kept = list[tuple[Envelope, Label, Message]](), list[tuple[int, bool, Envelope]]()
        for envelope in inbox:  # all are read before any is noted as seen
            try:
                arrived.append((envelope, *read(envelope)))
            except TransportError as error:
                if isinstance(error, UnfitError):
                    self.refused[envelope.sender] += 1
                elif not self.keeps_time:
                    raise
        for envelope, label, message in arrived:
            # bundles are numbered by agreement, of which a decision may have two
            is_bundle = isinstance(message, Bundle)
            number = label.decision // 2 if is_bundle else label.decision
            if envelope.sender not in self._others or number > last + _AHEAD:
                self.refused[envelope.sender] += 1
                continue
            is_due = is_deciding or label.decision > last
            if is_bundle:
                is_due = label.decision >= max(self._n_agreed, 2 * last + 2 * (not is_deciding))
            # during an agreement by a deadline, a repeated message shows that its sender is there
            shows_life = is_bundle and self.keeps_time
            if is_due and (shows_life or (envelope.sender, envelope.payload) not in self._seen):
                self._seen.add((envelope.sender, envelope.payload))
                kept.append((label.decision, is_bundle, envelope))
        self._early += kept
        return [envelope for *_, envelope in kept]

    def _clocked_tick(self, clocked: Clocked) -> list[Envelope]:
        """Tick an agreement by a deadline; when the time is up, the decision continues."""
        due = self._due(clocked.number, by_deadline=True)
        said = clocked.tick([envelope for number, _, envelope in due if number == clocked.number])
        if clocked.word is not None:
            self.sent["agreement"] = self.sent.get("agreement", Traffic()) + clocked.sent
            self._clocked, self._n_agreed = None, clocked.number + 1
            self._participant.since = None  # it has waited for nothing
            self._advance(clocked.word)
        return said

    def _begin(self, count: int, offer: Offer) -> None:
        self._routes = Routes(self.problem.agents, self.links, has_base=self.has_base)
        heard = tuple((envelope.sender, envelope.payload) for *_, envelope in self._early)
        # participants are named for decisions; a recommendation is by all agents
        participants = self.participants if count else None
        known = self._offered if participants is None else {}  # absent or new agents have not received it
        turn = self._participant.decision
        deciding = Deciding(count, self._own, offer, turn, heard, participants=participants, known=known)
        earlier = None if self._before is None else replace(self._before, earlier=None)
        self._seen = set(heard)
        self._begun = self._before = Begun(deciding, self._log, self._learner, self._offered, earlier)
        self._own, self.sent, self.report = OwnRows(), {}, None
        self._steps = self._decided(deciding)
        self._take_part(turn + 1 if participants is None else participants.number)
        self._advance(None)

    def _take_part(self, number: int) -> None:
        """Begin to exchange messages of a decision; all agents number decisions alike."""
        self._participant = Participant[Any](self.name, number, patience=self.patience, refused=self.refused)

    def _due(self, last: int, *, by_deadline: bool = False) -> list[tuple[int, bool, Envelope]]:
        """Take early messages of decisions, or of agreements by a deadline, with numbers up to the last."""
        due = [one for one in self._early if one[0] <= last and one[1] == by_deadline]
        self._early = [one for one in self._early if one[0] > last or one[1] != by_deadline]
        return due

    @property
    def _unlogged(self) -> OwnRows:
        """Own data that are not in the log before a decision: unreported, or in the report under way."""
        return self._own if self._begun is None else self._begun.deciding.said.then(self._own)

    def _take_back(self, begun: Begun, number: int) -> None:
        """Restore what was before decisions, with what was told since; decision ``number`` is over."""
        self._log, self._learner, self._offered = begun.log, begun.learner, begun.offered
        self._own = begun.deciding.said.then(self._own)
        self._stop(number)

    def _stop(self, number: int) -> None:
        """Wait for nothing; decision ``number`` is over."""
        self._steps = self._begun = self._before = self._clocked = None
        self._participant = Participant[Any](self.name, number)
        self._n_agreed = max(self._n_agreed, 2 * number + 2)
        self._seen = {(envelope.sender, envelope.payload) for *_, envelope in self._early}

    def _advance(self, outcomes: list[Any] | dict[str, Any] | None) -> None:
        assert self._steps is not None
        try:
            stage = next(self._steps) if outcomes is None else self._steps.send(outcomes)
            if isinstance(stage, Known):
                query_id = next(name for name, word in self._words.items() if word is None)
                place = () if stage.place is None else stage.place.tolist()
                self._words[query_id] = dict(zip(self.variables, place, strict=False))
                stage = next(self._steps)
            if isinstance(stage, Timed):
                self._clocked = Clocked(stage, self._participant.decision, self.refused)
            elif isinstance(stage, Stage):
                self._participant.begin(stage.programs(self._counted(stage.purpose)))
        except StopIteration:
            self._steps = self._begun = None
        except Exception:  # nothing is decided, and no data are lost
            begun = self._begun
            assert begun is not None
            # once others may have heard of it, its number is used
            number, earlier = begun.deciding.turn, begun.earlier
            if begun.deciding.is_under_way:
                number, earlier = begun.deciding.last, None
            self._take_back(begun, number)
            self._words, self._before = {} if begun.deciding.count else self._words, earlier
            raise

    def _counted(self, purpose: str) -> Post:
        """Post function that also counts the traffic."""

        def post(recipient: str, message: Message) -> None:
            if recipient != self.name:
                took = Traffic(1, Codec.size(message), self._routes.hops(self.name, recipient))
                self.sent[purpose] = self.sent.get(purpose, Traffic()) + took
            self._participant.post(recipient, message)

        return post

    def _decided(self, deciding: Deciding) -> Staged[None]:
        problem, given, company = self.problem, None, deciding.participants
        stages = Stages(self.name, self._setup, self._routes, self.links, company, self.sites, self.refused)
        if isinstance(self._learner, FieldLearner):
            learner = self._learner.copied()  # the present state is kept until all is decided
            told = yield from stages.reports(self._log, learner, deciding.said, deciding.offer, deciding.known)
            self._log, self._learner, offered = told
            given = {name: offer.unpacked(problem.box.n_dims, self.sites) for name, offer in offered.items()}
            if deciding.count:
                self._offered = offered if company is None else {}
        else:
            self._log = yield from stages.news(self._log, deciding.said)
        if not deciding.count:
            steps = self._learner.recommend(self._log, self.sites)
            self._learner, self._recommended = yield from answered(steps, stages.answer)
        for i in range(deciding.count):
            if i:
                self._take_part(self._participant.decision + 1)
            offers = Offers(links=self.links, level=self.level, sites=self.sites, travel=self.travel)
            if given is not None:
                offers = offers_of(offers, given, problem, self._setup.seed, self._log.round)
            self._learner, choice = yield from answered(self._learner.steps(self._log, offers), stages.answer)
            self._log, query_id = self._log.with_query(choice.point, chosen=choice.chosen)
            point = problem.coded(choice.point)
            word = {variable: point[variable] for variable in self.variables if variable in point}
            self._words = {**self._words, query_id: word}
            took = sum(self.sent.values(), Traffic())
            links, refused = choice.report.links, self.refused - self._reported
            if refused:
                before = LinkReport(ticks=choice.report.rounds) if isinstance(links, UnsetType) else links
                links, self._reported = msgspec.structs.replace(before, refused=dict(refused)), self.refused.copy()
            self.report = msgspec.structs.replace(choice.report, value=None, gap=None, traffic=took, links=links)
