"""Base of an agent: its decisions are stages of messages; each tick continues them until a message is missing."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import msgspec
import networkx as nx
from msgspec import UnsetType
from numpy.typing import ArrayLike

from swarmbo.acquisition import Travel
from swarmbo.agent.answers import DeadlineProgress, DeadlineStage, EarlyLocation, Stage
from swarmbo.agent.schema import Participants, require_agent_settings
from swarmbo.agent.stages import Stages
from swarmbo.baselines.peers import require_packages
from swarmbo.boundary.values import check_links, exact, short
from swarmbo.coordination.messages import Bundle, Codec, Label, Message, UnfitError
from swarmbo.coordination.participant import Participant, read
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer, offers_of
from swarmbo.deciding.own_rows import OwnRows
from swarmbo.deciding.setup import Setup
from swarmbo.deciding.told import AgentInputs, checked_sites
from swarmbo.errors import ConfigError, TransportError
from swarmbo.problem import Problem
from swarmbo.records import LinkReport, Recommendation, SolveReport, Traffic
from swarmbo.steps import Steps, answer_requests
from swarmbo.transport import Envelope, Routes
from swarmbo.worlds import Offers

CLOCK_TICK = ("", b"")  # no agent has this name
_MOST_AHEAD = 1000  # decisions; no agent is so far ahead of another, as they wait for one another
_STATE_KEYS = {"own_rows": "said", "previous_number": "turn", "arrivals": "heard", "known_offers": "known"}


class DecisionInputs(msgspec.Struct, frozen=True, rename=_STATE_KEYS):
    """Inputs of decisions in progress, with all arrivals since, and ``CLOCK_TICK`` at each tick by a deadline.

    A ``count`` of 0 stands for a recommendation. ``previous_number`` is the number of the decision before. If
    ``is_under_way``, the first messages were already sent, and are not sent again.
    """

    count: int
    own_rows: OwnRows
    offer: Offer
    previous_number: int
    arrivals: tuple[tuple[str, bytes], ...] = ()
    is_under_way: bool = False
    participants: Participants | None = None
    known_offers: dict[str, PackedOffer] = {}

    @property
    def last_number(self) -> int:
        """Number of its last decision."""
        return self.previous_number + max(self.count, 1) if self.participants is None else self.participants.number

    def by_tick(self, agent: str) -> list[list[Envelope]]:
        """Lists of arrivals: before the first tick of an agreement by a deadline, then after each of these ticks."""
        out: list[list[Envelope]] = [[]]
        for sender, payload in self.arrivals:
            if (sender, payload) == CLOCK_TICK:
                out.append([])
            else:
                out[-1].append(Envelope(sender, agent, payload))
        return out


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Inputs of decisions; the log, the learner and the last offers before them; and the ``earlier`` checkpoint."""

    inputs: DecisionInputs
    log: Logbook
    learner: FieldLearner | FunctionLearner
    offers: dict[str, PackedOffer]
    earlier: "Checkpoint | None" = None


class EarlyMessage(NamedTuple):
    """A message that is not due yet, and the number of its decision, or of its agreement if that is by a deadline."""

    number: int
    by_deadline: bool
    envelope: Envelope


class DecidingAgent:
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
        if not isinstance(has_base, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"got {short(has_base)}; wanted True or False", at="has_base")
        problem = problem.watching(level)
        setup = Setup.of(problem, **settings)
        if name not in problem.agents:
            raise ConfigError(f"got agent {name!r}; wanted one of {list(problem.agents)}", at="$.name")
        require_agent_settings(setup)
        require_packages(setup.coordination)
        check_links(links, problem.agents)
        self.name, self.problem, self.links, self.patience = exact(name), problem, links, patience
        self.level, self.sites = problem.level, None if sites is None else checked_sites(sites, problem)
        self.has_base, self.travel = has_base, travel
        self.factors = problem.graph.factors_owned_by(self.name)
        self.variables = problem.graph.variables_owned_by(self.name)
        self._setup, self._inputs = setup, AgentInputs(self.name, problem, self.factors, self.variables)
        self._others = frozenset(problem.agents) - {self.name}
        self._log, self._own_rows = Logbook.empty(problem), OwnRows()
        self._learner = FieldLearner.empty(setup, self.name) if problem.is_field else FunctionLearner(setup)
        self._last_offers: dict[str, PackedOffer] = {}  # by agent, in the report before the last decision
        self._decisions: dict[str, dict[str, float] | None] = {}  # codes by query; None: not decided
        self._recommended: Recommendation | None = None
        self.report: SolveReport | None = None
        self.sent: dict[str, Traffic] = {}
        # the decision in progress
        self.participants: Participants | None = None
        self._in_progress: Checkpoint | None = None
        self._checkpoint: Checkpoint | None = None  # state before the last decision, also once it is made
        self._steps: Steps[None] | None = None
        self._deadline_progress: DeadlineProgress | None = None
        self._next_agreement = 0  # agreements by a deadline with smaller numbers are over
        # messages
        self._participant = Participant[Any](self.name)
        self._routes = Routes(problem.agents, links, has_base=has_base)
        self._early_messages: list[EarlyMessage] = []
        self._seen_messages = set[tuple[str, bytes]]()  # senders and payloads of this decision and of early messages
        self.refused = Counter[str]()
        self._reported_refusals = Counter[str]()  # refused messages that a report has named

    @property
    def patience(self) -> float:
        """Longest time without an arrival while it waits for messages, on the clock of ``tick``."""
        return self._patience

    @patience.setter
    def patience(self, given: float) -> None:
        if not (isinstance(given, Real) and given >= 0.0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"got {short(given)}; wanted a number >= 0", at="patience")
        self._patience = given

    @property
    def is_finished(self) -> bool:
        """True if every request is decided, so that it waits for no message."""
        return self._steps is None

    @property
    def keeps_time(self) -> bool:
        """True during an agreement by a deadline: then call ``tick`` at each tick of your clock, also without arrivals.

        Messages for which ``swarmbo.agent.may_be_lost`` is True may be lost or late. All other messages have to arrive,
        also those that an agent sends at the deadline.
        """
        return self._deadline_progress is not None

    @property
    def agreement(self) -> int:
        """Number of the agreement for which the agent keeps time (a decision has two); -1: none."""
        return -1 if self._deadline_progress is None else self._deadline_progress.number

    @property
    def log(self) -> Logbook:
        """Log of the agent's knowledge; for other agents' outcomes per factor, it only states that they are known."""
        return self._log

    def tick(self, now: float, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Process arrived messages, in any order, repetitions included, and continue until others are needed.

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
        stored = self._store_arrivals(inbox)
        if self._in_progress is not None:
            new = [CLOCK_TICK] if self.keeps_time else []
            new += [(message.envelope.sender, message.envelope.payload) for message in stored]
            inputs = self._in_progress.inputs
            inputs = msgspec.structs.replace(inputs, arrivals=(*inputs.arrivals, *new), is_under_way=True)
            self._in_progress = replace(self._in_progress, inputs=inputs)
        outbox: list[Envelope] = []
        if self._deadline_progress is not None:
            outbox += self._tick_deadline(self._deadline_progress)
        while self._steps is not None and self._deadline_progress is None:
            due = self._take_due(self._participant.decision)
            outbox += self._participant.tick(now, [message.envelope for message in due])
            if not self._participant.is_finished:
                break
            outcomes, self._participant.outcomes = self._participant.outcomes, []
            self._advance(outcomes)
        return outbox

    def _store_arrivals(self, inbox: Sequence[Envelope]) -> list[EarlyMessage]:
        """Store and return arrivals, without late, repeated and, while it keeps time, changed messages."""
        last, is_deciding = self._participant.decision, self._steps is not None
        messages, stored = list[tuple[Envelope, Label, Message]](), list[EarlyMessage]()
        for envelope in inbox:  # all are read before any is noted as seen
            try:
                messages.append((envelope, *read(envelope)))
            except TransportError as error:
                if isinstance(error, UnfitError):
                    self.refused[envelope.sender] += 1
                elif not self.keeps_time:
                    raise
        for envelope, label, message in messages:
            # bundles are numbered by agreement; a decision may have two agreements
            is_bundle = isinstance(message, Bundle)
            number = label.decision // 2 if is_bundle else label.decision
            if envelope.sender not in self._others or number > last + _MOST_AHEAD:
                self.refused[envelope.sender] += 1
                continue
            is_due = is_deciding or label.decision > last
            if is_bundle:
                is_due = label.decision >= max(self._next_agreement, 2 * last + 2 * (not is_deciding))
            # during an agreement by a deadline, a repeated message shows that its sender is there
            shows_life = is_bundle and self.keeps_time
            if is_due and (shows_life or (envelope.sender, envelope.payload) not in self._seen_messages):
                self._seen_messages.add((envelope.sender, envelope.payload))
                stored.append(EarlyMessage(label.decision, is_bundle, envelope))
        self._early_messages += stored
        return stored

    def _tick_deadline(self, progress: DeadlineProgress) -> list[Envelope]:
        """Tick an agreement by a deadline; when the time is up, the decision continues."""
        due = self._take_due(progress.number, by_deadline=True)
        outbox = progress.tick([message.envelope for message in due if message.number == progress.number])
        if progress.decided_values is not None:
            self.sent["agreement"] = self.sent.get("agreement", Traffic()) + progress.sent
            self._deadline_progress, self._next_agreement = None, progress.number + 1
            self._participant.waiting_since = None  # it has waited for nothing
            self._advance(progress.decided_values)
        return outbox

    def _begin(self, count: int, offer: Offer) -> None:
        self._routes = Routes(self.problem.agents, self.links, has_base=self.has_base)
        arrivals = tuple((early.envelope.sender, early.envelope.payload) for early in self._early_messages)
        # participants are named for decisions; a recommendation is by all agents
        participants = self.participants if count else None
        known = self._last_offers if participants is None else {}  # absent or new agents have not received it
        number = self._participant.decision
        inputs = DecisionInputs(count, self._own_rows, offer, number, arrivals, False, participants, known)
        earlier = None if self._checkpoint is None else replace(self._checkpoint, earlier=None)
        self._seen_messages = set(arrivals)
        self._in_progress = self._checkpoint = Checkpoint(inputs, self._log, self._learner, self._last_offers, earlier)
        self._own_rows, self.sent, self.report = OwnRows(), {}, None
        self._steps = self._decision_steps(inputs)
        self._start_participant(number + 1 if participants is None else participants.number)
        self._advance(None)

    def _start_participant(self, number: int) -> None:
        """Begin to exchange messages of a decision; all agents number decisions alike."""
        self._participant = Participant[Any](self.name, number, patience=self.patience, refused=self.refused)

    def _take_due(self, last: int, *, by_deadline: bool = False) -> list[EarlyMessage]:
        """Remove and return early messages of decisions, or agreements by a deadline, with numbers up to ``last``."""

        def is_due(message: EarlyMessage) -> bool:
            return message.number <= last and message.by_deadline == by_deadline

        due = [message for message in self._early_messages if is_due(message)]
        self._early_messages = [message for message in self._early_messages if not is_due(message)]
        return due

    @property
    def _unlogged_rows(self) -> OwnRows:
        """Own data that are not in the log before a decision: not reported yet, or in the report being sent."""
        return self._own_rows if self._in_progress is None else self._in_progress.inputs.own_rows.then(self._own_rows)

    def _roll_back(self, checkpoint: Checkpoint, number: int) -> None:
        """Restore the state before the decisions, but keep data told since; decision ``number`` is over."""
        self._log, self._learner, self._last_offers = checkpoint.log, checkpoint.learner, checkpoint.offers
        self._own_rows = checkpoint.inputs.own_rows.then(self._own_rows)
        self._stop(number)

    def _stop(self, number: int) -> None:
        """Stop waiting for messages; decision ``number`` is over."""
        self._steps = self._in_progress = self._checkpoint = self._deadline_progress = None
        self._participant = Participant[Any](self.name, number)
        self._next_agreement = max(self._next_agreement, 2 * number + 2)
        self._seen_messages = {(early.envelope.sender, early.envelope.payload) for early in self._early_messages}

    def _advance(self, outcomes: list[Any] | dict[str, Any] | None) -> None:
        assert self._steps is not None
        try:
            stage = next(self._steps) if outcomes is None else self._steps.send(outcomes)
            if isinstance(stage, EarlyLocation):
                query_id = next(name for name, values in self._decisions.items() if values is None)
                place = () if stage.place is None else stage.place.tolist()
                self._decisions[query_id] = dict(zip(self.variables, place, strict=False))
                stage = next(self._steps)
            if isinstance(stage, DeadlineStage):
                self._deadline_progress = DeadlineProgress(stage, self._participant.decision, self.refused)
            elif isinstance(stage, Stage):
                self._participant.begin(stage.programs(partial(self._post, stage.purpose)))
        except StopIteration:
            self._steps = self._in_progress = None
        except Exception:  # nothing is decided, and no data are lost
            checkpoint = self._in_progress
            assert checkpoint is not None
            inputs = checkpoint.inputs
            # once others may have received its messages, its number is used
            self._roll_back(checkpoint, inputs.last_number if inputs.is_under_way else inputs.previous_number)
            self._checkpoint = None if inputs.is_under_way else checkpoint.earlier
            if inputs.count:
                self._decisions = {}
            raise

    def _post(self, purpose: str, recipient: str, message: Message) -> None:
        if recipient != self.name:
            traffic = Traffic(1, Codec.size(message), self._routes.hops(self.name, recipient))
            self.sent[purpose] = self.sent.get(purpose, Traffic()) + traffic
        self._participant.post(recipient, message)

    def _decision_steps(self, inputs: DecisionInputs) -> Steps[None]:
        """Exchange data, then decide each query, or find the recommendation."""
        participants = inputs.participants
        stages = Stages(self.name, self._setup, self._routes, self.links, participants, self.sites, self.refused)
        offer_by_agent = yield from self._exchange_data(stages, inputs)
        if not inputs.count:
            steps = self._learner.recommend(self._log, self.sites)
            self._learner, self._recommended = yield from answer_requests(steps, stages.answer)
        for i in range(inputs.count):
            if i:
                self._start_participant(self._participant.decision + 1)
            offers = Offers(links=self.links, level=self.level, sites=self.sites, travel=self.travel)
            if self.problem.is_field:
                offers = offers_of(offers, offer_by_agent, self.problem, self._setup.seed, self._log.round)
            self._learner, choice = yield from answer_requests(self._learner.steps(self._log, offers), stages.answer)
            self._log, query_id = self._log.with_query(choice.point, chosen=choice.chosen)
            point = self.problem.coded(choice.point)
            own_values = {variable: point[variable] for variable in self.variables if variable in point}
            self._decisions = {**self._decisions, query_id: own_values}
            report, refused = choice.report, self.refused - self._reported_refusals
            links = report.links
            if refused:
                before = LinkReport(ticks=report.rounds) if isinstance(links, UnsetType) else links
                links = msgspec.structs.replace(before, refused=dict(refused))
                self._reported_refusals = self.refused.copy()
            traffic = sum(self.sent.values(), Traffic())
            self.report = msgspec.structs.replace(report, traffic=traffic, links=links)

    def _exchange_data(self, stages: Stages, inputs: DecisionInputs) -> Steps[dict[str, PackedOffer]]:
        """Merge all agents' new data into the log; return the agents' offers (in a field only)."""
        if not isinstance(self._learner, FieldLearner):
            self._log = yield from stages.exchange_outcomes(self._log, inputs.own_rows)
            return {}
        learner = self._learner.copied()  # the present state is kept until all is decided
        self._log, self._learner, packed = yield from stages.exchange_reports(
            self._log, learner, inputs.own_rows, inputs.offer, inputs.known_offers
        )
        if inputs.count:
            self._last_offers = packed if inputs.participants is None else {}
        return packed
