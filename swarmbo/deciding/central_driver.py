"""Driver of a team's decisions, which has the knowledge of all agents."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import networkx as nx

from swarmbo.acquisition import Decision
from swarmbo.acquisition.by_view import EachSays, Heard, InTurn, answer_of
from swarmbo.belief.model.incumbents import evaluated
from swarmbo.coordination import Solution
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.conflicts import Conflicts
from swarmbo.coordination.deadline import has_deadline
from swarmbo.coordination.deadline_box import TimedClimbs, maximise_by_deadline
from swarmbo.coordination.deadline_tables import TimedTables, agree_by_deadline, whole_factors
from swarmbo.coordination.participant import (
    ContinuousCoordination,
    Coordination,
    maximise_with_agents,
    solve_with_agents,
)
from swarmbo.coordination.requests import ToAll, asked
from swarmbo.deciding.joint import Agree, Expect, Gather, Rank, Request, Whole, ranked_parts
from swarmbo.deciding.places import Choose, Visit, checked_solution, declining
from swarmbo.deciding.setup import Carrying
from swarmbo.deciding.words import Words
from swarmbo.errors import ConfigError
from swarmbo.records import Traffic
from swarmbo.registry.plugins import checked_as, takes_named
from swarmbo.transport import Transport

Out = TypeVar("Out")


@dataclass(frozen=True)
class CentralDriver:
    """Driver that answers the requests of a decision with the knowledge of all agents.

    Reports that agents would send are counted in ``words``. If ``knows_all``, all agents know all outcomes.
    """

    coordination: Any
    transport: Carrying
    round: int
    seed: int = 0
    words: Words | None = None
    knows_all: bool = False

    def run(self, steps: Generator[Any, Any, Out]) -> Out:
        """Run the steps, answering their requests."""
        answer: Any = None
        while True:
            try:
                request: Request | Choose | Visit | EachSays | InTurn = steps.send(answer)
            except StopIteration as finished:
                return finished.value
            match request:
                case Rank():
                    answer = None
                    self._count_ranks(request)
                case Gather():
                    answer = request.numbers
                    self._count("spread", 0 if self.knows_all else 1, len(request.graph.factors))
                case Whole():
                    answer = request.point
                    self._count("best", 1, len(request.point))
                case Agree():
                    answer = self._agreed(request)
                    self._note(answer.report.traffic)
                    self._count("point", 1, len(answer.point))
                case Expect():
                    answer = tuple(float(array[0]) for array in request.model.posterior(request.point[None]))
                case Choose():
                    answer = self._chosen(request)
                    self._note(answer.report.traffic)
                case Visit():
                    answer = self._visited(request)
                    self._note(answer.report.traffic)
                    self._say_places(answer)
                case EachSays() | InTurn():
                    answer = Heard(answer_of(request)) if self.words is None else self.words.answered(request)

    def _note(self, took: Traffic) -> None:
        if self.words is not None:
            self.words.note("agreement", took)

    def _count(self, purpose: str, *shape: int) -> None:
        """Count a sum over all agents of numbers of a shape, unless it is empty."""
        if self.words is not None and shape[0]:
            self.words.summed(purpose, *shape)

    def _count_ranks(self, request: Rank) -> None:
        n_points = len(evaluated(request.belief))
        if self.words is not None and n_points and not self.knows_all:
            self.words.ranked(ranked_parts(request.belief.graph, self.coordination), n_points)

    def _say_places(self, decision: Decision) -> None:
        if self.words is not None:
            places = {agent: place.tolist() for agent, place in decision.points.items()}
            words = {agent: msgspec.msgpack.encode(places.get(agent)) for agent in self.words.graph.agents}
            self.words.said("choices", asked(ToAll(words)))

    def _agreed(self, request: Agree) -> Agreement:
        functions, links, seed = request.functions, request.links, request.seed
        decision = 2 * self.round + int(request.again)  # up to two in a round
        timed: object = self.coordination
        if isinstance(timed, TimedClimbs) and has_deadline(timed):
            opened = self._opened(functions.graph.agents, links)
            return maximise_by_deadline(self.coordination, functions, opened, seed, decision, shares=request.shares)
        if not self.transport.as_agents:
            agreement = self.coordination.maximise(functions, links, seed)
            return checked_as(Agreement, agreement, self.coordination, "maximise")
        if not isinstance(self.coordination, ContinuousCoordination):
            raise self._knows_no_agents()
        opened = self._opened(functions.graph.agents, links)
        return maximise_with_agents(self.coordination, functions, opened, seed, decision)

    def _chosen(self, request: Choose) -> Solution:
        problem, links, seed = request
        timed: object = self.coordination
        if isinstance(timed, TimedTables) and has_deadline(timed):
            return self._chosen_by_deadline(timed, request)
        if not self.transport.as_agents:
            drawing = (
                {"seed": seed} if takes_named(self.coordination.solve, "seed") else {}
            )  # a user's own method need not draw
            solution = self.coordination.solve(problem.graph, problem.tables, links, **drawing)
            solution = checked_solution(solution, problem.shortlists, self.coordination)
        else:
            if not isinstance(self.coordination, Coordination):
                raise self._knows_no_agents()
            opened = self._opened(problem.graph.agents, links)
            solution = solve_with_agents(self.coordination, problem.graph, problem.tables, opened, self.round, seed)
        if self.words is not None:  # then all agents exchange their choices and values
            self.words.summed("choices", 1, len(self.words.graph.agents))
            self.words.summed("choices", 1, len(problem.graph.factors))
        return solution

    def _chosen_by_deadline(self, timed: TimedTables, request: Choose) -> Solution:
        """Choice by a deadline; silent agents have no value."""
        problem, opened = request.problem, self._opened(request.problem.graph.agents, request.links)
        graph, tables, default = problem.graph, problem.tables, declining(problem)
        found = agree_by_deadline(timed, graph, tables, opened, self.round, default=default, seed=request.seed).said
        if self.words is not None:
            own = {agent: Conflicts.packed(graph, tables, agent) for agent in self.words.graph.agents}
            self.words.said("claims", asked(ToAll(own)))
            self.words.summed("choices", 1, len(self.words.graph.agents))
            if whole := whole_factors(graph, found.assignment):
                self.words.summed("choices", 1, len(whole))
        return found

    def _opened(self, agents: Iterable[str], links: "nx.Graph[str] | None") -> Transport:
        return self.transport.open(agents, links, seed=self.seed, round=self.round)

    def _visited(self, request: Visit) -> Decision:
        planned, links = request
        if not self.transport.as_agents:
            return planned.central_driver()
        return planned.with_agents(self._opened(planned.pilots, links), self.round)

    def _knows_no_agents(self) -> ConfigError:
        got = f"got true, but {type(self.coordination).__name__} knows no agents"
        return ConfigError(got, at="$.transport.as_agents")
