"""Answers of one agent to the requests of a decision: from its own data, and by messages."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Decision
from swarmbo.acquisition.by_view import EachSays
from swarmbo.agent import schema
from swarmbo.agent.schema import Participants
from swarmbo.coordination import agreement, deadline_box, deadline_tables, schema as fitting
from swarmbo.coordination.agreement import Agreement, BoxOutcome, Solution, TableOutcome, solution_with
from swarmbo.coordination.by_messages import ByMessages, Post, Waiting
from swarmbo.coordination.deadline import Correspondent
from swarmbo.coordination.part import Part
from swarmbo.coordination.plan import has_deadline
from swarmbo.coordination.requests import AllReduce, Steps, ToAll, asked
from swarmbo.coordination.tables import Conflicts
from swarmbo.deciding import joint, places
from swarmbo.deciding.central_driver import all_of, received, said_by
from swarmbo.deciding.own_rows import shares_outcomes
from swarmbo.deciding.setup import Setup
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport, Traffic
from swarmbo.transport import Envelope, Routes


class Timed(NamedTuple):
    """A stage of ``deadline`` ticks without waiting, answered by own values; ``again``: the second agreement."""

    deadline: int
    routes: Routes
    agent: Callable[[int], Correspondent]
    again: bool


class Known(NamedTuple):
    """The agent's measurement location (None: nowhere), known before the rest of the decision has arrived."""

    place: Float[np.ndarray, " d"] | None


class Clocked:
    """A timed stage in progress; ``word`` has the values of the agent's own variables after the deadline."""

    def __init__(self, stage: Timed, decision: int, refused: Counter[str]) -> None:
        self.number, self.sent = 2 * decision + int(stage.again), Traffic()
        self.word: dict[str, Any] | None = None
        self._stage, self._agent, self._now = stage, stage.agent(self.number), 0
        self._agent.refused = refused

    def tick(self, inbox: Sequence[Envelope]) -> list[Envelope]:
        """Tick the clock: process arrivals, and return messages to send."""
        routes, name, out = self._stage.routes, self._agent.name, list[Envelope]()
        reached = routes.hops_from(name)
        for envelope in self._agent.tick(self._now, inbox):
            if envelope.recipient in reached:
                self.sent += Traffic(1, len(envelope.payload), reached[envelope.recipient])
                out.append(envelope)
        if self._now >= self._stage.deadline:
            self.word = self._agent.word()
        self._now += 1
        return out


Out = TypeVar("Out")
Numbers = Float[np.ndarray, "k m"]
_NEAR = 1.0  # distance outside the cube that a point may have, in sides


class Stage(NamedTuple):
    """Parallel programs of one purpose; answered by their outcomes."""

    purpose: str
    programs: Callable[[Post], Iterable[Waiting[Any]]]


Staged = Generator[Stage | Timed | Known, Any, Out]


@dataclass(frozen=True, eq=False)
class Answering:
    """Base of an agent's stages: messages to all others, sums over all, and answers to the requests of a decision."""

    name: str
    setup: Setup
    routes: Routes
    links: "nx.Graph[str] | None"
    participants: Participants | None = None
    sites: Float[np.ndarray, "k d"] | None = None
    refused: Counter[str] = field(default_factory=Counter[str])

    @property
    def _knows_all(self) -> bool:
        return shares_outcomes(self.setup.problem)

    @property
    def _members(self) -> tuple[str, ...]:
        return self.setup.problem.agents if self.participants is None else self.participants.members

    def _exchanged(self, purpose: str, steps: Steps[Out]) -> Staged[Out]:
        everybody = all_of(self.setup.problem.graph, self.routes, self._members)
        (said,) = yield Stage(purpose, lambda post: [ByMessages(everybody, self.name, post).program(steps)])
        return said

    def _sum(self, purpose: str, numbers: Numbers, fits: fitting.Fits) -> Staged[Numbers]:
        """Sum over all agents, up a tree of them and down again."""
        return (yield from self._exchanged(purpose, asked(AllReduce(numbers[None], fits))))

    def _composed(
        self, purpose: str, points: Float[np.ndarray, "*k n"], owners: Sequence[str] = (), who: Sequence[str] = ()
    ) -> Staged[Float[np.ndarray, "*k n"]]:
        """Joint points of present owners' variables; the first present agent of ``who`` has those of absent ones."""
        members, owners = self._members, owners or self.setup.problem.graph.variable_owners
        first = next((agent for agent in members if agent in who), members[0])
        says = [owner if owner in members else first for owner in owners]
        # zeros of all others: the sum is exact, and has the bits of its author
        told = np.where(np.array(says) == self.name, np.atleast_2d(points), 0.0)
        found = yield from self._sum(purpose, told, fitting.each_own(says, -_NEAR, 1.0 + _NEAR))
        return found.reshape(points.shape)

    def answer(self, request: joint.Request | places.Request) -> Staged[Any]:
        """Steps by which this agent answers a request."""
        match request:
            case joint.Rank():
                return (yield from self._ranked(request))
            case joint.Gather():
                return (yield from self._gathered(request))
            case joint.Whole():
                graph = request.graph  # a variable's value is that of its first factor's owner
                owners = [graph.owner(graph.factors_of(variable)[0]) for variable in graph.variables]
                return (yield from self._composed(request.purpose, request.points, owners))
            case joint.Expect():
                if self._knows_all:
                    return request.model.posterior(request.points)
                graph = self.setup.problem.graph
                if not set(graph.factor_owners) <= set(self._members):  # without an owner nobody knows the sum
                    return np.zeros(len(request.points)), np.full(len(request.points), np.inf)
                summed = request.summed(graph, graph.factors_owned_by(self.name))
                return (yield from self._exchanged("expected", summed))
            case joint.Agree():
                return (yield from self._agreed(request))
            case places.Choose():
                return (yield from self._chosen(request))
            case EachSays():
                said = yield from self._exchanged(request.purpose, said_by(request, (self.name,)))
                return received(request, said)
            case places.Visit():
                return (yield from self._visited(request))

    def _ranked(self, request: joint.Rank) -> Staged[joint.Ranking | None]:
        """Best of the evaluated points, by sums over the parts of which it owns something."""
        mine = [(i, part) for i, part in request.parts() if self.name in part.agents]
        # with totals every agent has all outcomes, and ranks by itself as a team does
        if self._knows_all or not mine:
            return None

        def summed(i: int, part: FactorGraph, post: Post) -> Waiting[Any]:
            everybody, own = Part(part, i, self.routes, present=self._members), part.factors_owned_by(self.name)
            return i, part, (yield from ByMessages(everybody, self.name, post).program(request.summed(own)))

        found = yield Stage("ranking", lambda post: [summed(i, part, post) for i, part in mine])
        return request.ranking([(part, sums) for _, part, sums in sorted(found)])

    def _gathered(self, request: joint.Gather) -> Staged[Mapping[str, float]]:
        graph, numbers = request.graph, request.numbers
        if self._knows_all:
            return numbers
        own = np.array([numbers[factor] if graph.owner(factor) == self.name else 0.0 for factor in graph.factors])
        sums = (yield from self._sum(request.purpose, own[None], fitting.each_own(graph.factor_owners, 0.0)))[0]
        said = dict(zip(graph.factors, sums.tolist(), strict=True))
        return request._replace(numbers=said).among(self._members)

    def _agreed(self, request: joint.Agree) -> Staged[Agreement]:
        """Agree with others, then exchange all agents' own variables."""
        functions, graph, timed = request.functions, request.functions.graph, self.setup.coordination
        if has_deadline(timed):
            return (yield from self._agreed_in_time(timed, request))
        plan = self.setup.coordination.plan(functions, Routes(graph.agents, request.links), request.seed)
        own = functions.of(graph.factors_owned_by(self.name))
        outcomes: list[BoxOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        u = {variable: value for outcome in outcomes for variable, value in outcome.x.items()}
        point = np.array([u.get(variable, 0.0) for variable in self.setup.problem.graph.variables])
        status = "converged" if all(outcome.has_converged for outcome in outcomes) else "max_rounds"
        report = SolveReport(status, max((outcome.rounds for outcome in outcomes), default=0))
        return Agreement((yield from self._composed("point", point)), 0.0, report)

    def _agreed_in_time(self, timed: Any, request: joint.Agree) -> Staged[Agreement]:
        functions, graph, variables = request.functions, request.functions.graph, self.setup.problem.graph.variables
        word: Mapping[str, float] = {}
        if self.name in graph.agents:
            terms = deadline_box.BoxTerms.of(timed, functions, request.seed, shares=request.shares)
            standing = np.clip(terms.standing, functions.low, functions.high).tolist()
            stand = dict(zip(graph.variables, standing, strict=True))
            routes = Routes([agent for agent in graph.agents if agent in self._members], request.links)
            made = partial(deadline_box.DeadlineAgentInBox, self.name, terms)
            word = stand | (yield Timed(timed.deadline, routes, made, again=request.again))
        point = np.array([word.get(variable, 0.0) for variable in variables])
        point = yield from self._composed("point", point, who=graph.agents)
        return Agreement(point, 0.0, SolveReport("deadline", timed.deadline))

    def _chosen(self, request: places.Choose) -> Staged[Solution]:
        """Agree with others by the agent's own tables only; then exchange the choices and their values."""
        problem, graph = request.problem, request.problem.graph
        if has_deadline(self.setup.coordination):
            return (yield from self._chosen_in_time(self.setup.coordination, request))
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        plan = self.setup.coordination.plan(graph, sizes, Routes(graph.agents, request.links), request.seed)
        own = {factor: problem.tables[factor] for factor in graph.factors_owned_by(self.name)}
        outcomes: list[TableOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        mine = {variable: index for outcome in outcomes for variable, index in outcome.assignment.items()}
        assignment = yield from self._indices(mine.get(self.name, 0), sizes, 0)
        values = yield from self._values(graph, own, assignment, graph.factors)
        return solution_with(graph, assignment, values, outcomes, Traffic())

    def _indices(self, mine: int, sizes: Mapping[str, int], least: int) -> Staged[dict[str, int]]:
        """Choices of those agents that have one, each by its index."""
        agents = self.setup.problem.agents
        told = np.array([[float(mine) if agent == self.name else 0.0 for agent in agents]])
        indices = yield from self._sum("choices", told, schema.indices(agents, sizes, least))
        return {agent: int(i) for agent, i in zip(agents, indices[0], strict=True) if agent in sizes and i >= 0.0}

    def _values(
        self, graph: FactorGraph, own: Mapping[str, np.ndarray], chosen: Mapping[str, int], factors: Sequence[str]
    ) -> Staged[Float[np.ndarray, " f"]]:
        """Values of factors at a choice, each from its owner."""
        utility = [float(own[f][tuple(chosen[x] for x in graph.scope(f))]) if f in own else 0.0 for f in factors]
        whose = fitting.each_own([graph.owner(factor) for factor in factors])
        return (yield from self._sum("choices", np.array([utility]), whose))[0]

    def _chosen_in_time(self, timed: Any, request: places.Choose) -> Staged[Solution]:
        """Agree by a deadline: forbidden pairs go before, choices after; its own location is known in time."""
        problem, graph = request.problem, request.problem.graph
        own = {factor: problem.tables[factor] for factor in graph.factors_owned_by(self.name)}
        packed = Conflicts.packed(graph, problem.tables, self.name)
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        said = yield from self._exchanged("claims", asked(ToAll({self.name: packed}, schema.forbidding(graph, sizes))))
        conflicts = Conflicts.unpacked(graph, said)
        index = None
        if self.name in graph.agents:
            terms = deadline_tables.Terms(timed, sizes, conflicts, places.abstentions(problem), request.seed)
            links = Routes(graph.agents, request.links)
            made = partial(deadline_tables.DeadlineAgent, self.name, terms, own)
            index = (yield Timed(timed.deadline, links, made, again=False))[self.name]
            place = None if index is None else problem.shortlists[self.name][index]
            # the robot may start while the choices of others are still under way
            yield Known(None if place is None or np.isnan(place).any() else place)
        chosen = yield from self._indices(-1 if index is None else index, sizes, -1)
        whole = agreement.whole_factors(graph, chosen)
        values = (yield from self._values(graph, own, chosen, whole)).tolist() if whole else ()
        return agreement.settled(graph, chosen, values, SolveReport("deadline", timed.deadline))

    def _visited(self, request: places.Visit) -> Staged[Decision]:
        """Auction for the agent's own route by messages; then all exchange their destinations."""
        plan, pilots = request.planned.plan, request.planned.pilots
        own = {self.name: pilots[self.name]} if self.name in pilots else {}
        legs = yield Stage("agreement", lambda post: plan.programs(self.name, own, post) if own else [])
        place = next((leg.points[self.name].tolist() for leg in legs if self.name in leg.points), None)
        word = {self.name: msgspec.msgpack.encode(place)}
        words = yield from self._exchanged("choices", asked(ToAll(word, schema.places(self.setup.problem))))
        ends = {name: msgspec.msgpack.decode(word) for name, word in words.items()}
        points = {name: np.array(place) for name, place in ends.items() if place is not None}
        return Decision(points, SolveReport("sequential", rounds=max((leg.rounds for leg in legs), default=0)))
