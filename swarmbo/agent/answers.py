"""Answers of one agent to the requests of a decision: from its own data, and by messages."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Decision
from swarmbo.acquisition.by_view import EachSays, Heard, InTurn
from swarmbo.agent import schema
from swarmbo.agent.saying import Program, Saying, Stage, Staged
from swarmbo.agent.timed import Known, Timed
from swarmbo.belief.model import incumbents
from swarmbo.coordination import schema as fitting
from swarmbo.coordination.agreement import Agreement, BoxOutcome, Solution, TableOutcome, solution_with
from swarmbo.coordination.conflicts import Conflicts
from swarmbo.coordination.deadline import has_deadline
from swarmbo.coordination.deadline_box import BoxTerms, DeadlineAgentInBox, TimedClimbs
from swarmbo.coordination.deadline_tables import DeadlineAgent, Terms, TimedTables, settled, whole_factors
from swarmbo.coordination.drivers.by_messages import Post
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import ToAll, asked
from swarmbo.deciding.joint import Agree, Expect, Gather, Rank, Ranking, Request, Whole, ranked_parts
from swarmbo.deciding.own_rows import shares_outcomes
from swarmbo.deciding.places import Choose, Visit, declining
from swarmbo.deciding.words import heard as heard_of, said_by
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport, Traffic
from swarmbo.routing.pilot import Legs
from swarmbo.transport import Routes


class Answering(Saying):
    """Base of an agent's stages: answers to the requests of a decision."""

    def _answer(self, request: Request | Choose | Visit | EachSays | InTurn) -> Staged[Any]:
        match request:
            case Rank():
                return (yield from self._ranked(request))
            case Gather():
                return (yield from self._gathered(request))
            case Whole():
                return (yield from self._best(request))
            case Expect():
                return (yield from self._expected(request))
            case Agree():
                return (yield from self._agreed(request))
            case Choose():
                return (yield from self._chosen(request))
            case EachSays() | InTurn():
                said = yield from self._said(request.purpose, said_by(request, (self.name,)))
                return Heard(heard_of(request, said))
            case Visit():
                return (yield from self._visited(request))

    @property
    def _knows_all(self) -> bool:
        return shares_outcomes(self.setup.problem)

    def _ranked(self, request: Rank) -> Staged[Ranking | None]:
        """Best of the evaluated points, by sums over the parts of which it owns something."""
        belief, means = request
        U, shared = incumbents.evaluated(belief), ranked_parts(belief.graph, self.setup.coordination)
        mine = [(i, part) for i, part in shared if self.name in part.agents]
        if self._knows_all or not mine or not len(U):
            return None

        def ranked(i: int, part: FactorGraph, post: Post) -> Program[Any]:
            own = part.factors_owned_by(self.name)
            terms = np.zeros((0, len(U) + len(belief.pending)))
            if own:
                terms = np.hstack(
                    [incumbents.means_of(belief, own, means), incumbents.means_of(belief, own, pending=True)]
                )
            everybody = Part(part, i, self.routes, present=self._members)
            sums = yield from self._reduced(everybody, terms[:, None, :], post, fitting.is_finite)
            told, ahead = sums[0, : len(U)], sums[0, len(U) :]
            return i, incumbents.as_seen(belief, part, told), incumbents.pending_means(belief, part, ahead)

        found = sorted((yield Stage("ranking", lambda post: [ranked(i, part, post) for i, part in mine])))
        seen = [utility for _, utility, _ in found]
        points = incumbents.composed(seen, U, incumbents.N_STARTS)
        beaten = points[0].copy()
        for _, (columns, told), ahead in found if len(belief.pending) else ():
            beaten[columns] = incumbents.surpassed(belief, columns, beaten, float(told.max()), ahead)
        return Ranking(points, np.concatenate([columns for columns, _ in seen]), beaten)

    def _gathered(self, request: Gather) -> Staged[Mapping[str, float]]:
        graph, numbers = request
        if self._knows_all:
            return numbers
        own = np.array([numbers[factor] if graph.owner(factor) == self.name else 0.0 for factor in graph.factors])
        sums = (yield from self._sum("spread", own[None], fitting.each_own(graph.factor_owners, 0.0)))[0]
        if self._members != self.setup.problem.agents:
            # the number of an absent owner's factor is unknown: use that of others
            known = np.array([graph.owner(factor) in self._members for factor in graph.factors])
            sums = np.where(known, sums, sums[known].mean() if known.any() else 1.0)
        return dict(zip(graph.factors, sums.tolist(), strict=True))

    def _best(self, request: Whole) -> Staged[Float[np.ndarray, " n"]]:
        """Joint point composed of values from the owner of each variable's first factor."""
        graph = self.setup.problem.graph
        owners = [graph.owner(graph.factors_of(variable)[0]) for variable in graph.variables]
        return (yield from self._composed("best", request.point, owners))

    def _expected(self, request: Expect) -> Staged[tuple[float, float]]:
        """Expected sum and its standard deviation, from the owners of factors."""
        (model, point), graph = request, self.setup.problem.graph
        if self._knows_all:
            mean, std = model.posterior(point[None])
            return float(mean[0]), float(std[0])
        numbers = np.zeros((2, len(graph.factors)))
        for place, factor in enumerate(graph.factors):
            if graph.owner(factor) == self.name:  # a single factor, which may be modelled in parts, is the sum
                is_sum = len(graph.factors) == 1
                found = model.posterior(point[None]) if is_sum else model.factor_posterior(factor, point[None])
                numbers[:, place] = [float(array[0]) for array in found]
        means, stds = yield from self._sum(
            "expected", numbers, fitting.each_own(graph.factor_owners, fitting.LOWEST, fitting.HIGHEST)
        )
        return float(means.sum()), float(np.sqrt((stds**2).sum()))

    def _agreed(self, request: Agree) -> Staged[Agreement]:
        """Agree with others, then exchange all agents' own variables."""
        functions, graph, timed = request.functions, request.functions.graph, self.setup.coordination
        if isinstance(timed, TimedClimbs) and has_deadline(timed):
            return (yield from self._agreed_in_time(timed, request))
        plan = self.setup.coordination.plan(functions, Routes(graph.agents, request.links), request.seed)
        own = functions.of(graph.factors_owned_by(self.name))
        outcomes: list[BoxOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        u = {variable: value for outcome in outcomes for variable, value in outcome.x.items()}
        point = np.array([u.get(variable, 0.0) for variable in self.setup.problem.graph.variables])
        report = SolveReport(
            status="converged" if all(outcome.has_converged for outcome in outcomes) else "max_rounds",
            rounds=max((outcome.rounds for outcome in outcomes), default=0),
        )
        return Agreement((yield from self._composed("point", point)), 0.0, report)

    def _agreed_in_time(self, timed: TimedClimbs, request: Agree) -> Staged[Agreement]:
        """Agree by a deadline."""
        functions, graph, variables = request.functions, request.functions.graph, self.setup.problem.graph.variables
        word: Mapping[str, float] = {}
        if self.name in graph.agents:
            terms = BoxTerms.of(timed, functions, request.seed, shares=request.shares)
            stand = dict(zip(graph.variables, np.clip(terms.standing, terms.low, terms.high).tolist(), strict=True))
            own = yield Timed(
                timed.deadline,
                Routes([agent for agent in graph.agents if agent in self._members], request.links),
                lambda decision: DeadlineAgentInBox(self.name, terms, functions, decision),
                again=request.again,
            )
            word = stand | own
        point = np.array([word.get(variable, 0.0) for variable in variables])
        point = yield from self._composed("point", point, who=graph.agents)
        return Agreement(point, 0.0, SolveReport("deadline", timed.deadline))

    def _chosen(self, request: Choose) -> Staged[Solution]:
        """Agree with others by the agent's own tables only; then exchange the choices and their values."""
        problem, graph, agents = request.problem, request.problem.graph, self.setup.problem.agents
        timed: object = self.setup.coordination
        if isinstance(timed, TimedTables) and has_deadline(timed):
            return (yield from self._chosen_in_time(timed, request))
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        plan = self.setup.coordination.plan(graph, sizes, Routes(graph.agents, request.links), request.seed)
        own = {factor: problem.tables[factor] for factor in graph.factors if graph.owner(factor) == self.name}
        outcomes: list[TableOutcome] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post))
        mine = {variable: index for outcome in outcomes for variable, index in outcome.assignment.items()}
        told = np.array([[float(mine.get(agent, 0)) for agent in agents]])
        indices = yield from self._sum("choices", told, schema.indices(agents, sizes, 0))
        assignment = {agent: int(index) for agent, index in zip(agents, indices[0], strict=True) if agent in sizes}
        utility = np.zeros(len(graph.factors))
        for place, factor in enumerate(graph.factors):
            if factor in own:
                utility[place] = own[factor][tuple(assignment[x] for x in graph.scope(factor))]
        values = yield from self._sum("choices", utility[None], fitting.each_own(graph.factor_owners))
        return solution_with(graph, assignment, values[0], outcomes, Traffic())

    def _chosen_in_time(self, timed: TimedTables, request: Choose) -> Staged[Solution]:
        """Agree by a deadline: before it exchange forbidden pairs, after it the choices; its own location is known in
        time.
        """
        problem, graph, agents = request.problem, request.problem.graph, self.setup.problem.agents
        own = {f: problem.tables[f] for f in graph.factors if graph.owner(f) == self.name}
        packed = Conflicts.packed(graph, problem.tables, self.name)
        sizes = {agent: len(problem.shortlists[agent]) for agent in graph.variables}
        said = yield from self._said("claims", asked(ToAll({self.name: packed}, schema.forbidding(graph, sizes))))
        conflicts = Conflicts.unpacked(graph, said)
        index = None
        if self.name in graph.agents:
            terms = Terms(timed, sizes, conflicts, declining(problem), request.seed)
            links = Routes(graph.agents, request.links)
            word = yield Timed(
                timed.deadline, links, lambda decision: DeadlineAgent(self.name, terms, own, decision), again=False
            )
            index = word[self.name]
            place = None if index is None else problem.shortlists[self.name][index]
            yield Known(None if place is None or np.isnan(place).any() else place)
        mine = -1.0 if index is None else float(index)
        told = np.array([[mine if agent == self.name else 0.0 for agent in agents]])
        indices = yield from self._sum("choices", told, schema.indices(agents, sizes, -1))
        all_said = {agent: int(index) for agent, index in zip(agents, indices[0], strict=True)}
        chosen = {agent: all_said[agent] for agent in graph.variables if all_said[agent] >= 0}
        whole = whole_factors(graph, chosen)
        utility = [own[f][tuple(chosen[x] for x in graph.scope(f))] if f in own else 0.0 for f in whole]
        whose = fitting.each_own([graph.owner(f) for f in whole])
        values = (yield from self._sum("choices", np.array([utility]), whose))[0] if whole else ()
        return settled(graph, chosen, values, SolveReport("deadline", timed.deadline))

    def _visited(self, request: Visit) -> Staged[Decision]:
        """Auction for the agent's own route by messages; then all exchange their destinations."""
        plan, pilots = request.planned.plan, request.planned.pilots
        own = {self.name: pilots[self.name]} if self.name in pilots else {}
        legs: list[Legs] = yield Stage("agreement", lambda post: plan.programs(self.name, own, post) if own else [])
        place = next((leg.points[self.name].tolist() for leg in legs if self.name in leg.points), None)
        word = {self.name: msgspec.msgpack.encode(place)}
        words = yield from self._said("choices", asked(ToAll(word, schema.places(self.setup.problem))))
        places = {name: msgspec.msgpack.decode(word) for name, word in words.items()}
        points = {name: np.array(place) for name, place in places.items() if place is not None}
        return Decision(points, SolveReport("sequential", rounds=max((leg.rounds for leg in legs), default=0)))
