"""An agent: its own data, its own fit, its own decision; of all others it uses what has arrived by message."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self, overload

import msgspec
import networkx as nx
from numpy.typing import ArrayLike

from swarmbo.agent.rows import OwnRows
from swarmbo.agent.stages import Staged, Stages, require_own
from swarmbo.agent.told import Owned
from swarmbo.boundary.values import check_links, query_name, whole_number
from swarmbo.coordination.drivers.by_messages import Post
from swarmbo.coordination.messages import Codec, Message
from swarmbo.coordination.participant import Participant, read
from swarmbo.deciding.function import FunctionLearner
from swarmbo.deciding.setup import Setup, settings_again
from swarmbo.deciding.told import Noise
from swarmbo.errors import ConfigError, StateVersionError, UnknownQueryError
from swarmbo.logbook import Logbook
from swarmbo.problem import Problem
from swarmbo.records import SolveReport, Traffic
from swarmbo.transport import Envelope, Routes

STATE_VERSION = 2  # 2: rounds by that name


class Deciding(msgspec.Struct, frozen=True):
    """Decisions that are being made: where they began, and what has arrived since. All else follows from that.

    Args:
        count: How many, one after the other.
        said: What the agent was told before.
        heard: Who sent what, in the order of arrival.
        is_under_way: Whether anything was said yet: then it is not said again.
    """

    count: int
    said: OwnRows
    heard: tuple[tuple[str, bytes], ...] = ()
    is_under_way: bool = False


class Agent:
    """One agent of a function: it owns some factors and variables.

    What it uses is what it alone was told, what everybody knows beforehand (the problem, the settings, the seed, the
    links), and what has arrived by message. All agents of a problem decide in step, and come to the decisions of a
    ``Team`` with the same settings, to the bit.

    With outcomes by factor it is told those of its own factors and tells them to nobody; it fits its factors by itself.
    With totals the first agent is told each total. Before a decision agents tell one another what came, and where
    variables stood; totals are told then, outcomes by factor are not.

    ``tick`` it with what arrives until ``is_finished``; ``run`` does so for agents that share a process, and ``serve``
    puts one into a process of its own.

    Args:
        name: As in the problem.
        problem: What all work on.
        links: Who hears whom; None means everyone. It may be set anew before a decision, alike for all agents.
        patience: For how long, on the clock of ``tick``, it waits for messages while none arrives.
        **settings: ``belief``, ``acquisition``, ``coordination``, ``seed``, ``rounds`` and ``initial``, as of a
            ``Team``, the same for all agents.

    Attributes:
        sent: What its messages of the present decision took, or of the last: by purpose.
        report: How the last agreement ended.

    Raises:
        ConfigError: If a setting is refused, needs more than one agent knows, or the agent owns nothing.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.agent import Agent, run
        >>> from swarmbo.transport import InProcess
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> problem = sb.Problem.of(graph, dict.fromkeys("xyz", (0.0, 1.0)), outcomes="per-factor")
        >>> agents = {name: Agent(name, problem, seed=1, initial=2) for name in problem.agents}
        >>> transport = InProcess().open(problem.agents)
        >>> for _ in range(4):
        ...     query_id = [agent.ask() for agent in agents.values()][0]
        ...     traffic = run(agents, transport)
        ...     point = {x: value for agent in agents.values() for x, value in agent.word().items()}
        ...     outcomes = {"f": -((point["x"] - point["y"]) ** 2), "g": -((point["y"] - point["z"]) ** 2)}
        ...     for name, agent in agents.items():
        ...         agent.tell(query_id, {f: outcomes[f] for f in graph.factors_owned_by(name)})
        >>> query_id, sorted(point), traffic == transport.traffic
        ('q00004', ['x', 'y', 'z'], False)
    """

    def __init__(
        self,
        name: str,
        problem: Problem,
        *,
        links: "nx.Graph[str] | None" = None,
        patience: float = math.inf,
        **settings: Any,
    ) -> None:
        if problem.is_field:
            raise ConfigError(
                "got a field; wanted a function: in a field agents have beliefs of their own with 'fused'"
            )
        self._setup = setup = Setup.of(problem, **settings)
        if name not in problem.agents:
            raise ConfigError(f"got agent {name!r}; wanted one of {list(problem.agents)}", at="$.name")
        require_own(setup)
        check_links(links)
        self.name, self.problem, self.links, self.patience = name, problem, links, patience
        self._owned = Owned(name, problem)
        self.factors, self.variables = self._owned.factors, self._owned.variables
        self.sent: dict[str, Traffic] = {}
        self.report: SolveReport | None = None
        self._log, self._learner, self._own = Logbook.empty(problem), FunctionLearner(setup), OwnRows()
        self._words: dict[str, dict[str, float] | None] = {}
        self._early: list[Envelope] = []
        self._begun: tuple[Deciding, Logbook, FunctionLearner] | None = None
        self._steps: Staged[None] | None = None
        self._participant = Participant[Any](name)
        self._routes = Routes(problem.agents, links)

    @property
    def is_finished(self) -> bool:
        """Whether it waits for nothing: all that was asked is decided."""
        return self._steps is None

    @property
    def log(self) -> Logbook:
        """What it knows; of outcomes by factor that others were told it only knows that they came."""
        return self._log

    @overload
    def ask(self, count: None = None) -> str: ...

    @overload
    def ask(self, count: int) -> list[str]: ...

    def ask(self, count: int | None = None) -> str | list[str]:
        """Begin to decide what to evaluate next, or a batch of points one after the other.

        Args:
            count: How many, >= 1; None for one that is not in a list.

        Returns:
            The query's id.

        Raises:
            ConfigError: If it is deciding, or the count is not at least 1.
        """
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted it finished before it is asked again")
        number = 1 if count is None else whole_number(count, 1, "$.count")
        check_links(self.links)
        self._routes = Routes(self.problem.agents, self.links)
        heard = tuple((envelope.sender, envelope.payload) for envelope in self._early)
        self._begun = Deciding(number, self._own, heard), self._log, self._learner
        self._own, self.sent, self.report = self._own.said(self._log), {}, None
        names = self._log.next_ids(number)
        self._words = dict.fromkeys(names)
        self._steps = self._decided(number)
        self._participant = self._new_participant()
        self._advance(None)
        return names[0] if count is None else names

    def tick(self, now: float, inbox: Sequence[Envelope] = ()) -> list[Envelope]:
        """Take what has arrived, in any order and however often, and go on as far as that allows.

        Messages of a decision that was not asked for yet are kept until it is.

        Args:
            now: The time, on any clock that does not go back.
            inbox: Messages that arrived since the last tick.

        Returns:
            Messages to other agents.

        Raises:
            TransportError: If a message was changed on the way; then none of the inbox was taken. If nothing that it
                waits for has arrived for longer than its patience.
        """
        labelled = [(read(envelope)[0].decision, envelope) for envelope in inbox]
        last = self._log.asked if self._steps is None else self._participant.decision
        fresh = [envelope for decision, envelope in labelled if decision > last or self._steps is not None]
        if self._begun is not None:
            begun, log, learner = self._begun
            heard = (*begun.heard, *((envelope.sender, envelope.payload) for envelope in fresh))
            self._begun = msgspec.structs.replace(begun, heard=heard, is_under_way=True), log, learner
        self._early += fresh
        said: list[Envelope] = []
        while self._steps is not None:
            said += self._participant.tick(now, self._due())
            if not self._participant.is_finished:
                break
            outcomes, self._participant.outcomes = self._participant.outcomes, []
            self._advance(outcomes)
        return said

    def word(self, query: object = None) -> dict[str, float] | None:
        """The values of its own variables, as decided; None while that is not decided.

        Args:
            query: Of what was asked last, its id; by default the last of them.

        Raises:
            UnknownQueryError: If it was not asked last.
        """
        name = query_name(query) if query is not None else next(reversed(self._words), "")
        if name not in self._words:
            raise UnknownQueryError(f"query {name!r} is not of what was asked last: {list(self._words)}")
        return self._words[name]

    def tell(
        self,
        query: object,
        outcome: float | Mapping[str, float | None] | None = None,
        *,
        failed: bool = False,
        point: Mapping[str, float] | None = None,
        noise_std: Noise = None,
    ) -> None:
        """Learn what came of a query, of its own factors, all at once or some now and others later.

        Args:
            query: Its id.
            outcome: A table of its own factors' outcomes, or a number if it owns one; with totals the first agent is
                told the total. None, NaN, infinite or beyond 1e60 means failed.
            failed: Whether what is not told failed.
            point: Where its own variables really stood, if not as decided.
            noise_std: Standard deviation of the noise of what is told, >= 0: a number, or a table of factors; None
                where it is not known.

        Raises:
            UnknownQueryError: If no such query is pending, or it does not wait for a factor.
            ConfigError: If a factor or a variable is not its own, a total is told to another than the first agent, or a
                value is not in bounds.
            ShapeError: If an outcome is no number.
        """
        query_id = query_name(query)
        own = self._own
        row = self._owned.told(
            self._log, query_id, own.told.get(query_id), outcome, point, noise_std, failed=failed, order=own.count
        )
        self._own = own.with_told(query_id, row)

    def attach(
        self,
        points: ArrayLike,
        outcomes: ArrayLike,
        *,
        rounds: ArrayLike | float | None = None,
        noise_std: ArrayLike | float | None = None,
    ) -> None:
        """Learn evaluations that were never asked for. All agents are told of the same ones, each what it knows.

        Args:
            points: Joint points (t, n), physical; of an agent's own variables only they are looked at.
            outcomes: Of its own factors (t, k), in the order of ``factors``; or totals (t,), of which the first agent's
                count. Entries that are not finite, or beyond 1e60, count as failed.
            rounds: The round of each (t,), or one for all; by default the present one.
            noise_std: Standard deviation of the noise: one for all, one for each point (t,), or of the shape of
                outcomes; NaN where it is not known.

        Raises:
            ShapeError: If shapes do not fit.
            ConfigError: If a point is not in bounds, or the agent is deciding.
        """
        if self._steps is not None:
            raise ConfigError(f"{self.name!r} is deciding; wanted it finished before evaluations are attached")
        self._own = self._own.with_attached(
            self._owned.attached(points, outcomes, rounds, noise_std, present=self._log.round, order=self._own.count)
        )

    def state_dict(self) -> dict[str, Any]:
        """All of the agent, as ``{"json": plain data, "arrays": {name: array}}``; also while it is deciding."""
        log, learner = self._log, self._learner
        begun = None
        if self._begun is not None:
            begun, log, learner = self._begun
        plain_log, arrays = log.to_state()
        learned, more = learner.to_state()
        links = self.links
        plain = {
            "version": STATE_VERSION,
            "name": self.name,
            "links": None if links is None else {"agents": list(links.nodes), "edges": [list(e) for e in links.edges]},
            "patience": None if math.isinf(self.patience) else self.patience,
            "problem": self.problem.to_plain(),
            "settings": self._setup.to_plain(),
            "log": plain_log,
            "own": msgspec.to_builtins(self._own),
            "words": self._words,
            "early": [[letter.sender, msgspec.to_builtins(letter.payload)] for letter in self._early],
            "begun": msgspec.to_builtins(begun),
            **learned,
        }
        return {"json": plain, "arrays": arrays | more}

    @classmethod
    def from_state_dict(
        cls,
        state: Mapping[str, Any],
        *,
        belief: object = None,
        acquisition: object = None,
        coordination: object = None,
    ) -> Self:
        """The agent whose ``state_dict`` this is, going on to the bit; what it had said is not said again.

        Args:
            state: The saved state.
            belief: The agent's, if it is of your own making: a state has its name only, and loads no code.
            acquisition: As ``belief``.
            coordination: As ``belief``.

        Raises:
            StateVersionError: If another version of swarmbo wrote it.
            ConfigError: If a part is of your own making, and was not given again.
        """
        plain = state["json"]
        if plain.get("version") != STATE_VERSION:
            raise StateVersionError(f"got agent state version {plain.get('version')}; wanted {STATE_VERSION}")
        own = {"belief": belief, "acquisition": acquisition, "coordination": coordination}
        links = None
        if plain["links"] is not None:
            links = nx.Graph()
            links.add_nodes_from(plain["links"]["agents"])
            links.add_edges_from(plain["links"]["edges"])
        made = cls(
            plain["name"],
            Problem.from_plain(plain["problem"]),
            links=links,
            patience=math.inf if plain["patience"] is None else plain["patience"],
            **settings_again(plain["settings"], own),
        )
        made._log = made._log.from_state(plain["log"], state["arrays"])
        made._learner = made._learner.from_state(plain, state["arrays"])
        later, begun = msgspec.convert(plain["own"], OwnRows), msgspec.convert(plain["begun"], Deciding | None)
        if begun is not None:
            made._own, made._early = begun.said, made._letters(begun.heard)
            made.ask(begun.count)
            if begun.is_under_way:
                made.tick(0.0)
                made._participant.since = None  # the clock is another
        else:
            made._early = made._letters(msgspec.convert(plain["early"], tuple[tuple[str, bytes], ...]))
            made._words = dict(plain["words"])
        made._own = later
        return made

    def _letters(self, heard: tuple[tuple[str, bytes], ...]) -> list[Envelope]:
        return [Envelope(sender, self.name, payload) for sender, payload in heard]

    def _new_participant(self) -> Participant[Any]:
        return Participant[Any](self.name, self._log.asked + 1, patience=self.patience)

    def _due(self) -> list[Envelope]:
        """Early messages whose decision has begun."""
        now = self._participant.decision
        due = [envelope for envelope in self._early if read(envelope)[0].decision <= now]
        self._early = [envelope for envelope in self._early if read(envelope)[0].decision > now]
        return due

    def _advance(self, outcomes: list[Any] | None) -> None:
        assert self._steps is not None
        try:
            stage = next(self._steps) if outcomes is None else self._steps.send(outcomes)
        except StopIteration:
            self._steps = self._begun = None
        except Exception:  # nothing is decided, and nothing that it was told is lost
            assert self._begun is not None
            begun, self._log, self._learner = self._begun
            self._own, self._words, self._steps, self._begun = begun.said.then(self._own), {}, None, None
            raise
        else:
            self._participant.begin(stage.programs(self._counted(stage.purpose)))

    def _counted(self, purpose: str) -> Post:
        """Posts messages, and notes what they take."""

        def post(recipient: str, message: Message) -> None:
            if recipient != self.name:
                took = Traffic(1, Codec.size(message), self._routes.hops(self.name, recipient))
                self.sent[purpose] = self.sent.get(purpose, Traffic()) + took
            self._participant.post(recipient, message)

        return post

    def _decided(self, count: int) -> Staged[None]:
        """What it does in so many decisions."""
        assert self._begun is not None
        stages = Stages(self.name, self._setup, self._routes, self.links)
        self._log = yield from stages.news(self._log, self._begun[0].said)
        for i in range(count):
            if i:
                self._participant = self._new_participant()
            self._learner, choice = yield from stages.decided(self._log, self._learner)
            self._log, query_id = self._log.with_query(choice.point, chosen=choice.chosen)
            point = self.problem.named(choice.point)
            self._words = {**self._words, query_id: {variable: point[variable] for variable in self.variables}}
            took = sum(self.sent.values(), Traffic())
            self.report = msgspec.structs.replace(choice.report, value=None, gap=None, traffic=took)
