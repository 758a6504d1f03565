"""Answers of one agent to the requests of a decision: from its own data, and by messages."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Decision
from swarmbo.acquisition.by_view import EachSends
from swarmbo.agent import schema
from swarmbo.agent.schema import Participants
from swarmbo.coordination import agreement, deadline_box, deadline_tables, schema as fitting
from swarmbo.coordination.agreement import Agreement, BoxOutcome, Solution, TableOutcome, solution_with
from swarmbo.coordination.by_messages import ByMessages, Post, Program
from swarmbo.coordination.deadline import DeadlineAgent
from swarmbo.coordination.part import Part
from swarmbo.coordination.plan import has_deadline
from swarmbo.coordination.requests import AllReduce, ToAll, single_request
from swarmbo.coordination.tables import Conflicts
from swarmbo.deciding import joint, places
from swarmbo.deciding.central_driver import all_of, decoded, exchange_of
from swarmbo.deciding.setup import Setup
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport, Traffic
from swarmbo.steps import Out, Steps
from swarmbo.transport import Envelope, Routes


class DeadlineStage(NamedTuple):
    """Stage of an agreement by a deadline, in ticks; answered by the values of the agent's own variables."""

    deadline: int
    routes: Routes
    make_agent: Callable[[int], DeadlineAgent]
    is_second: bool


class EarlyLocation(NamedTuple):
    """The agent's measurement location (None: nowhere), decided before the choices of others have arrived."""

    place: Float[np.ndarray, " d"] | None


class DeadlineProgress:
    """Deadline stage in progress; ``decided_values`` of the agent's own variables are None before the deadline."""

    def __init__(self, stage: DeadlineStage, decision: int, refused: Counter[str]) -> None:
        self.number, self.sent = 2 * decision + int(stage.is_second), Traffic()
        self.decided_values: dict[str, Any] | None = None
        self._stage, self._agent, self._now = stage, stage.make_agent(self.number), 0
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
            self.decided_values = self._agent.decided_values()
        self._now += 1
        return out


Numbers = Float[np.ndarray, "k m"]
Points = Float[np.ndarray, "*k n"]
_NEAR = 1.0  # largest distance of a point outside the cube, in box widths


class Stage(NamedTuple):
    """Request to run programs of one purpose in parallel; answered by their outcomes."""

    purpose: str
    programs: Callable[[Post], Iterable[Program[Any]]]


@dataclass(frozen=True, eq=False)
class AgentDriver:
    """Driver of one agent: messages to all others, sums over all, and answers to the requests of a decision."""

    name: str
    setup: Setup
    routes: Routes
    links: "nx.Graph[str] | None"
    participants: Participants | None = None
    sites: Float[np.ndarray, "k d"] | None = None
    refused: Counter[str] = field(default_factory=Counter[str])

    @property
    def _members(self) -> tuple[str, ...]:
        return self.setup.problem.agents if self.participants is None else self.participants.members

    def _send_to_all(self, purpose: str, data: bytes, fits: fitting.FitsData) -> Steps[dict[str, bytes]]:
        """Send data to all agents; return the data of all."""
        return (yield from self._exchange(purpose, single_request(ToAll({self.name: data}, fits))))

    def _exchange(self, purpose: str, steps: Steps[Out]) -> Steps[Out]:
        all_agents = all_of(self.setup.problem.graph, self.routes, self._members)
        (outcome,) = yield Stage(purpose, lambda post: [ByMessages(all_agents, self.name, post).program(steps)])
        return outcome

    def _sum(self, purpose: str, numbers: Numbers, fits: fitting.Fits) -> Steps[Numbers]:
        return (yield from self._exchange(purpose, single_request(AllReduce(numbers[None], fits))))

    def _compose_points(
        self, purpose: str, points: Points, owners: Sequence[str] = (), substitutes: Sequence[str] = ()
    ) -> Steps[Points]:
        """Joint points from owners' values; the first present agent of ``substitutes`` gives absent owners' values."""
        members, owners = self._members, owners or self.setup.problem.graph.variable_owners
        first = next((agent for agent in members if agent in substitutes), members[0])
        authors = [owner if owner in members else first for owner in owners]
        # all others add zeros: the sum is exact, and has the bits of its author
        own_points = np.where(np.array(authors) == self.name, np.atleast_2d(points), 0.0)
        sums = yield from self._sum(purpose, own_points, fitting.by_author(authors, -_NEAR, 1.0 + _NEAR))
        return sums.reshape(points.shape)

    def answer(self, request: joint.Request | places.Request) -> Steps[Any]:
        """Steps by which this agent answers a request."""
        match request:
            case joint.Rank():
                return (yield from self._rank(request))
            case joint.Gather():
                return (yield from self._gather(request))
            case joint.Whole():
                graph = request.graph  # a variable's value is that of its first factor's owner
                owners = [graph.owner(graph.factors_of(variable)[0]) for variable in graph.variables]
                return (yield from self._compose_points(request.purpose, request.points, owners))
            case joint.Expect():
                if self.setup.problem.shares_outcomes:
                    return request.model.posterior(request.points)
                graph = self.setup.problem.graph
                if not set(graph.factor_owners) <= set(self._members):  # without an owner, no agent knows the sum
                    return np.zeros(len(request.points)), np.full(len(request.points), np.inf)
                summed = request.summed(graph, graph.factors_owned_by(self.name))
                return (yield from self._exchange("expected", summed))
            case joint.Agree():
                return (yield from self._agree(request))
            case places.Choose():
                return (yield from self._choose(request))
            case EachSends():
                data = yield from self._exchange(request.purpose, exchange_of(request, (self.name,)))
                return decoded(request, data)
            case places.Visit():
                return (yield from self._visit(request))

    def _rank(self, request: joint.Rank) -> Steps[joint.Ranking | None]:
        """Best evaluated points, by the sums of the parts in which this agent owns a factor or variable."""
        own_parts = [(i, part) for i, part in request.parts() if self.name in part.agents]
        # with totals, every agent has all outcomes, and ranks the points as a team does
        if self.setup.problem.shares_outcomes or not own_parts:
            return None

        def summed(i: int, part: FactorGraph, post: Post) -> Program[Any]:
            members, own = Part(part, i, self.routes, present=self._members), part.factors_owned_by(self.name)
            return i, part, (yield from ByMessages(members, self.name, post).program(request.summed(own)))

        found = yield Stage("ranking", lambda post: [summed(i, part, post) for i, part in own_parts])
        return request.ranking([(part, sums) for _, part, sums in sorted(found)])

    def _gather(self, request: joint.Gather) -> Steps[Mapping[str, float]]:
        graph, numbers = request.graph, request.numbers
        if self.setup.problem.shares_outcomes:
            return numbers
        own = np.array([numbers[factor] if graph.owner(factor) == self.name else 0.0 for factor in graph.factors])
        sums = (yield from self._sum(request.purpose, own[None], fitting.by_author(graph.factor_owners, 0.0)))[0]
        numbers_by_factor = dict(zip(graph.factors, sums.tolist(), strict=True))
        return request._replace(numbers=numbers_by_factor).among(self._members)

    def _agree(self, request: joint.Agree) -> Steps[Agreement]:
        functions, graph, method = request.functions, request.functions.graph, self.setup.coordination
        if has_deadline(method):
            return (yield from self._agree_by_deadline(method, request))
        plan = self.setup.coordination.plan(functions, Routes(graph.agents, request.links), request.seed)
        own = functions.of(graph.factors_owned_by(self.name))
        outcomes: list[BoxOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        own_values = {variable: value for outcome in outcomes for variable, value in outcome.x.items()}
        point = np.array([own_values.get(variable, 0.0) for variable in self.setup.problem.graph.variables])
        status = "converged" if all(outcome.has_converged for outcome in outcomes) else "max_rounds"
        report = SolveReport(status, max((outcome.rounds for outcome in outcomes), default=0))
        return Agreement((yield from self._compose_points("point", point)), 0.0, report)

    def _agree_by_deadline(self, method: Any, request: joint.Agree) -> Steps[Agreement]:
        functions, graph, variables = request.functions, request.functions.graph, self.setup.problem.graph.variables
        own_values: Mapping[str, float] = {}
        if self.name in graph.agents:
            terms = deadline_box.BoxTerms.of(method, functions, request.seed, shares=self.setup.problem.shares_outcomes)
            initial = np.clip(terms.initial_point, functions.low, functions.high).tolist()
            initial_values = dict(zip(graph.variables, initial, strict=True))
            routes = Routes([agent for agent in graph.agents if agent in self._members], request.links)
            make_agent = partial(deadline_box.DeadlineBoxAgent, self.name, terms)
            decided = yield DeadlineStage(method.deadline, routes, make_agent, is_second=request.again)
            own_values = initial_values | decided
        point = np.array([own_values.get(variable, 0.0) for variable in variables])
        point = yield from self._compose_points("point", point, substitutes=graph.agents)
        return Agreement(point, 0.0, SolveReport("deadline", method.deadline))

    def _choose(self, request: places.Choose) -> Steps[Solution]:
        """Agree with others, using only the agent's own tables; then exchange the choices and their values."""
        problem, graph = request.problem, request.problem.graph
        if has_deadline(self.setup.coordination):
            return (yield from self._choose_by_deadline(self.setup.coordination, request))
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        plan = self.setup.coordination.plan(graph, sizes, Routes(graph.agents, request.links), request.seed)
        own = {factor: problem.tables[factor] for factor in graph.factors_owned_by(self.name)}
        outcomes: list[TableOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        own_choices = {variable: index for outcome in outcomes for variable, index in outcome.assignment.items()}
        assignment = yield from self._exchange_indices(own_choices.get(self.name, 0), sizes, 0)
        values = yield from self._exchange_values(graph, own, assignment, graph.factors)
        return solution_with(graph, assignment, values, outcomes, Traffic())

    def _exchange_indices(self, own_index: int, sizes: Mapping[str, int], least: int) -> Steps[dict[str, int]]:
        agents = self.setup.problem.agents
        own_indices = np.array([[float(own_index) if agent == self.name else 0.0 for agent in agents]])
        indices = yield from self._sum("choices", own_indices, schema.indices(agents, sizes, least))
        return {agent: int(i) for agent, i in zip(agents, indices[0], strict=True) if agent in sizes and i >= 0.0}

    def _exchange_values(
        self, graph: FactorGraph, own: Mapping[str, np.ndarray], chosen: Mapping[str, int], factors: Sequence[str]
    ) -> Steps[Float[np.ndarray, " f"]]:
        utility = [float(own[f][tuple(chosen[x] for x in graph.scope(f))]) if f in own else 0.0 for f in factors]
        fits = fitting.by_author([graph.owner(factor) for factor in factors])
        return (yield from self._sum("choices", np.array([utility]), fits))[0]

    def _choose_by_deadline(self, method: Any, request: places.Choose) -> Steps[Solution]:
        """Exchange forbidden pairs, choose the own location by a deadline, then exchange all choices."""
        problem, graph = request.problem, request.problem.graph
        own_tables = {factor: problem.tables[factor] for factor in graph.factors_owned_by(self.name)}
        packed = Conflicts.packed(graph, problem.tables, self.name)
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        packed_by_agent = yield from self._send_to_all("claims", packed, schema.forbidden_pairs(graph, sizes))
        conflicts = Conflicts.unpacked(graph, packed_by_agent)
        index = None
        if self.name in graph.agents:
            terms = deadline_tables.Terms(method, sizes, conflicts, places.abstentions(problem), request.seed)
            links = Routes(graph.agents, request.links)
            make_agent = partial(deadline_tables.DeadlineTableAgent, self.name, terms, own_tables)
            index = (yield DeadlineStage(method.deadline, links, make_agent, is_second=False))[self.name]
            place = None if index is None else problem.shortlists[self.name][index]
            # the agent may move while the choices of others are still being sent
            yield EarlyLocation(None if place is None or np.isnan(place).any() else place)
        chosen = yield from self._exchange_indices(-1 if index is None else index, sizes, -1)
        whole = agreement.decided_factors(graph, chosen)
        values = (yield from self._exchange_values(graph, own_tables, chosen, whole)).tolist() if whole else ()
        return agreement.partial_solution_with(graph, chosen, values, SolveReport("deadline", method.deadline))

    def _visit(self, request: places.Visit) -> Steps[Decision]:
        """Plan the agent's own route in an auction by messages; then all agents exchange their destinations."""
        plan, pilots = request.planned.plan, request.planned.pilots
        own = {self.name: pilots[self.name]} if self.name in pilots else {}
        legs = yield Stage("agreement", lambda post: plan.programs(self.name, own, post) if own else [])
        place = next((leg.points[self.name].tolist() for leg in legs if self.name in leg.points), None)
        fits = schema.destinations(self.setup.problem)
        packed = yield from self._send_to_all("choices", msgspec.msgpack.encode(place), fits)
        destinations = {name: msgspec.msgpack.decode(data) for name, data in packed.items()}
        points = {name: np.array(place) for name, place in destinations.items() if place is not None}
        return Decision(points, SolveReport("sequential", rounds=max((leg.rounds for leg in legs), default=0)))
