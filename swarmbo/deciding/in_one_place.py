"""Who answers the steps of a decision where all is known: a team."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import networkx as nx

from swarmbo.acquisition import Decision
from swarmbo.acquisition.by_view import Company, EachSays, InTurn
from swarmbo.coordination import Solution
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.by_deadline import (
    TimedClimbs,
    TimedTables,
    agree_by_deadline,
    has_deadline,
    maximise_by_deadline,
)
from swarmbo.coordination.part import Part
from swarmbo.coordination.participant import (
    ContinuousCoordination,
    Coordination,
    maximise_with_agents,
    solve_with_agents,
)
from swarmbo.deciding.joint import Agree, Expect, Gather, Rank, Request, Whole
from swarmbo.deciding.places import Choose, Visit, checked_solution, declining
from swarmbo.deciding.setup import Carrying
from swarmbo.deciding.words import in_one_place, part_of
from swarmbo.errors import ConfigError
from swarmbo.registry.own_code import checked_as, takes_named
from swarmbo.transport import Transport

Out = TypeVar("Out")


@dataclass(frozen=True)
class InOnePlace:
    """Who answers where all is known.

    Args:
        coordination: How agents agree.
        transport: What carries their messages.
        round: The coming one.
        seed: The team's, for what transports with faults draw.
    """

    coordination: Any
    transport: Carrying
    round: int
    seed: int = 0

    def run(self, steps: Generator[Any, Any, Out]) -> Out:
        """Go through the steps.

        Raises:
            ConfigError: If agents are to run as such, and the method knows none.
        """
        answer: Any = None
        known: tuple[Company, Part] | None = None  # a decision has one company, and what is worked out of it is kept
        while True:
            try:
                request: Request | Choose | Visit | EachSays | InTurn = steps.send(answer)
            except StopIteration as finished:
                return finished.value
            match request:
                case Rank():
                    answer = None
                case Gather():
                    answer = request.numbers
                case Whole():
                    answer = request.point
                case Agree():
                    answer = self._agreed(request)
                case Expect():
                    answer = tuple(float(array[0]) for array in request.model.posterior(request.point[None]))
                case Choose():
                    answer = self._chosen(request)
                case Visit():
                    answer = self._visited(request)
                case EachSays() | InTurn():
                    if known is None or known[0] != request.company:
                        known = request.company, part_of(request.company)
                    answer = in_one_place(request, known[1])

    def _agreed(self, request: Agree) -> Agreement:
        functions, links, seed = request.functions, request.links, request.seed
        decision = 2 * self.round + int(request.again)  # there may be two in a round
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
            )  # a user's own need not draw
            solution = self.coordination.solve(problem.graph, problem.tables, links, **drawing)
            return checked_solution(solution, problem.shortlists, self.coordination)
        if not isinstance(self.coordination, Coordination):
            raise self._knows_no_agents()
        opened = self._opened(problem.graph.agents, links)
        return solve_with_agents(self.coordination, problem.graph, problem.tables, opened, self.round, seed)

    def _chosen_by_deadline(self, timed: TimedTables, request: Choose) -> Solution:
        """What agents say; those that say nothing have no value."""
        problem, opened = request.problem, self._opened(request.problem.graph.agents, request.links)
        graph, tables, default = problem.graph, problem.tables, declining(problem)
        return agree_by_deadline(timed, graph, tables, opened, self.round, default=default, seed=request.seed).said

    def _opened(self, agents: Iterable[str], links: "nx.Graph[str] | None") -> Transport:
        return self.transport.open(agents, links, seed=self.seed, round=self.round)

    def _visited(self, request: Visit) -> Decision:
        planned, links = request
        if not self.transport.as_agents:
            return planned.in_one_place()
        return planned.with_agents(self._opened(planned.pilots, links), self.round)

    def _knows_no_agents(self) -> ConfigError:
        got = f"got true, but {type(self.coordination).__name__} knows no agents"
        return ConfigError(got, at="$.transport.as_agents")
