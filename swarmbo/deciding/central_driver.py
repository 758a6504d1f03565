"""Driver of a team's decisions, which has the data of all agents."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import networkx as nx
import numpy as np

from swarmbo.acquisition.by_view import EachSends
from swarmbo.belief.fusion.fused import FusionExchange
from swarmbo.belief.fusion.fused_view import AnyUnfinished, StepMessages, exchange_steps, send_and_deliver
from swarmbo.coordination import deadline_tables, participant, tables as conflicts
from swarmbo.coordination.agreement import Agreement, Solution, decided_factors
from swarmbo.coordination.central import Central
from swarmbo.coordination.messages import Codec, Note
from swarmbo.coordination.part import Part
from swarmbo.coordination.plan import BoxMethod, TableMethod, has_deadline
from swarmbo.coordination.requests import InTurn, ToAll, single_request
from swarmbo.deciding import joint, places
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport, Traffic
from swarmbo.registry import checked_result, loggable_result, parameters_of
from swarmbo.steps import Out, Steps, run_steps
from swarmbo.transport import Carrying, FaultyTransport, Routes, Transport

SHARING = ("reports", "news", "sharing")  # purposes of reports; other messages belong to the agreement


def exchange_of(request: EachSends, own: tuple[str, ...]) -> Steps[dict[str, bytes]]:
    """Steps by which the agents ``own`` serve a request: they send their data, and receive those of all senders."""
    fits = admissible_data(request)

    def data_of(agent: str, before: Mapping[str, bytes]) -> bytes:
        return msgspec.msgpack.encode(request.value_of(agent, decoded(request, before)))

    if request.in_turn:
        return single_request(InTurn(request.senders, data_of, fits))
    data = {agent: data_of(agent, {}) if agent in request.senders else b"" for agent in own}
    return single_request(ToAll(data, fits))


def admissible_data(request: EachSends) -> Callable[[str, bytes], bool]:
    """Check of received data: they are admissible for senders, and empty for other agents."""

    def is_admissible(agent: str, data: bytes) -> bool:
        if agent not in request.senders:
            return not data
        try:
            return request.fits(agent, msgspec.msgpack.decode(data))
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
            return False

    return is_admissible


def decoded(request: EachSends, said: Mapping[str, bytes]) -> dict[str, Any]:
    """Decoded data of the senders, in their order."""
    return {agent: msgspec.msgpack.decode(said[agent]) for agent in request.senders if agent in said}


def all_of(graph: FactorGraph, routes: Routes, present: tuple[str, ...] | None = None) -> Part:
    """A part of the graph with all agents, connected or not; its number differs from those of an agreement's parts."""
    return Part(graph, len(graph.components) + 1, routes, present=present)


class CountedExchanges:
    """Exchanges of agents in one process, with their traffic in ``sent``, by purpose."""

    def __init__(self, graph: FactorGraph, routes: Routes, present: tuple[str, ...] | None = None) -> None:
        self.graph, self.routes, self.present, self.sent = graph, routes, present, dict[str, Traffic]()
        self._all_agents = Central(all_of(graph, routes, present))

    def count(self, purpose: str, took: Traffic) -> None:
        """Count traffic."""
        if took != Traffic():
            self.sent[purpose] = self.sent.get(purpose, Traffic()) + took

    def run(self, purpose: str, steps: Steps[Out]) -> Out:
        """Run an exchange of data among all agents, and count it."""
        # one counter serves all purposes, so the traffic of this exchange is a difference
        before = self._all_agents.traffic
        found = self._all_agents.run(steps)
        self.count(purpose, self._all_agents.traffic - before)
        return found

    def answer(self, request: EachSends) -> dict[str, Any]:
        """Answer to a request: by sender, the data that it computes from its own belief."""
        return decoded(request, self.run(request.purpose, exchange_of(request, self._all_agents.part.agents)))

    def count_sum(self, purpose: str, *shape: int) -> None:
        """Count the messages by which all agents add up arrays of this shape."""
        self.count(purpose, self._all_agents.over_tree(np.empty(shape)))

    def fuse(self, due: Sequence[FusionExchange]) -> None:
        """Run exchanges of beliefs: in each step notes to neighbours, and a check whether a further step is needed."""
        for one in due:
            run_steps(exchange_steps(one.agents, one.steps), partial(self._answer_fusion, one))

    def _answer_fusion(self, talking: FusionExchange, request: AnyUnfinished | StepMessages) -> Any:
        if isinstance(request, AnyUnfinished):
            self.count_sum("sharing", 1, 1)
            return request.own
        inboxes = send_and_deliver(request.envelopes, talking.medium)
        arrived = {(one.sender, name): one.payload for name, inbox in inboxes.items() for one in inbox}
        for name, agent in talking.agents.items():
            for other in agent.neighbours:
                note = Note(name, arrived.get((name, other), b""))
                self.count("sharing", Traffic(1, Codec.size(note), self.routes.hops(name, other)))
        return inboxes


def split_traffic(sent: Mapping[str, Traffic]) -> tuple[Traffic, Traffic]:
    """Traffic of the agreement, and of reports of news and reachable locations."""
    shared = sum((took for purpose, took in sent.items() if purpose in SHARING), Traffic())
    return sum((took for purpose, took in sent.items() if purpose not in SHARING), Traffic()), shared


@dataclass(frozen=True)
class CentralDriver:
    """Driver that answers the requests of a decision with the knowledge of all agents, and counts the messages that
    agents would send in ``exchanges``. If ``shares_outcomes``, all agents know all outcomes.
    """

    coordination: Any
    transport: Carrying
    round: int
    exchanges: CountedExchanges
    seed: int = 0
    shares_outcomes: bool = False

    def run(self, steps: Steps[Out]) -> Out:
        """Run the steps, answering their requests."""
        return run_steps(steps, self._answer)

    def _ranked(self, request: joint.Rank) -> joint.Ranking | None:
        """Ranking of the evaluated points. Sums are in the agents' order, because ties depend on the last digits."""
        summed = list[tuple[FactorGraph, np.ndarray]]()
        for number, graph in request.parts():
            part = Part(graph, number, self.exchanges.routes, present=self.exchanges.present)
            if part.agents:  # else no agent needs its ranking
                central = Central(part)
                summed.append((graph, central.run(request.summed(graph.factors))))
                self.exchanges.count("ranking", central.traffic)
        return request.ranking(summed) if summed else None

    def _answer(self, request: joint.Request | places.Request) -> Any:
        match request:
            case joint.Rank():
                return None if self.shares_outcomes else self._ranked(request)
            case joint.Gather():
                if self.shares_outcomes:
                    return request.numbers
                self.exchanges.count_sum(request.purpose, 1, len(request.numbers))
                return request.among(self.exchanges.present or request.graph.agents)
            case joint.Whole():
                self.exchanges.count_sum(request.purpose, *np.atleast_2d(request.points).shape)
                return request.points
            case joint.Agree():
                agreed = self._agreed(request)
                self.exchanges.count("agreement", agreed.report.traffic)
                self.exchanges.count_sum("point", 1, len(agreed.point))
                return agreed
            case joint.Expect():
                graph, model = self.exchanges.graph, request.model
                if self.shares_outcomes or model.belief.is_coupled:
                    return model.posterior(request.points)
                return self.exchanges.run("expected", request.summed(graph, graph.factors))
            case places.Choose():
                chosen = self._chosen(request)
                self.exchanges.count("agreement", chosen.report.traffic)
                return chosen
            case places.Visit():
                planned, links = request
                opened = self._opened(planned.pilots, links) if self.transport.as_agents else None
                visits = planned.central_driver() if opened is None else planned.with_agents(opened, self.round)
                self.exchanges.count("agreement", visits.report.traffic)
                ends = {agent: place.tolist() for agent, place in visits.points.items()}
                words = {agent: msgspec.msgpack.encode(ends.get(agent)) for agent in self.exchanges.graph.agents}
                self.exchanges.run("choices", single_request(ToAll(words)))
                return visits
            case EachSends():
                return self.exchanges.answer(request)

    def _agreed(self, request: joint.Agree) -> Agreement:
        functions, links, seed = request.functions, request.links, request.seed
        # agents number agreements alike, and a late message of the first agreement must not match the second
        decision = 2 * self.round + int(request.again)  # up to two in a round
        if not (self.transport.as_agents or has_deadline(self.coordination)):
            agreement = self.coordination.maximise(functions, links, seed)
            agreement = checked_result(Agreement, agreement, self.coordination, "maximise")
            report = loggable_result(SolveReport, agreement.report, self.coordination, "maximise")
            return replace(agreement, report=report)
        if not isinstance(self.coordination, BoxMethod):
            raise self._knows_no_agents()
        opened, shares = self._opened(functions.graph.agents, links, again=request.again), self.shares_outcomes
        return participant.maximise_with_agents(self.coordination, functions, opened, seed, decision, shares=shares)

    def _chosen(self, request: places.Choose) -> Solution:
        problem, links, seed = request
        if has_deadline(self.coordination):
            return self._chosen_by_deadline(self.coordination, request)
        if not self.transport.as_agents:
            # a user's own method need not take a seed
            drawing = {"seed": seed} if "seed" in (parameters_of(self.coordination.solve) or ()) else {}
            solution = self.coordination.solve(problem.graph, problem.tables, links, **drawing)
            solution = places.checked_solution(solution, problem.shortlists, self.coordination)
        else:
            if not isinstance(self.coordination, TableMethod):
                raise self._knows_no_agents()
            opened = self._opened(problem.graph.agents, links), self.round, seed
            solution = participant.solve_with_agents(self.coordination, problem.graph, problem.tables, *opened)
        # all agents then exchange their choices and values
        self.exchanges.count_sum("choices", 1, len(self.exchanges.graph.agents))
        self.exchanges.count_sum("choices", 1, len(problem.graph.factors))
        return solution

    def _chosen_by_deadline(self, timed: Any, request: places.Choose) -> Solution:
        """Choice by a deadline; a factor that lacks an agent's choice has no value."""
        problem, links, seed = request
        graph, tables, default = problem.graph, problem.tables, places.abstentions(problem)
        opened = self._opened(graph.agents, links), self.round
        found = deadline_tables.agree_by_deadline(
            timed, graph, tables, *opened, default=default, seed=seed, guesses=False
        )
        own = {agent: conflicts.Conflicts.packed(graph, tables, agent) for agent in self.exchanges.graph.agents}
        self.exchanges.run("claims", single_request(ToAll(own)))
        self.exchanges.count_sum("choices", 1, len(self.exchanges.graph.agents))
        if decided := decided_factors(graph, found.assignment):
            self.exchanges.count_sum("choices", 1, len(decided))
        return found

    def _opened(self, agents: Iterable[str], links: "nx.Graph[str] | None", *, again: bool = False) -> Transport:
        opened = self.transport.open(agents, links, seed=self.seed, round=self.round)
        if again and isinstance(opened, FaultyTransport):
            opened.renew(self.round, again=True)
        return opened

    def _knows_no_agents(self) -> ConfigError:
        got = f"got true, but {type(self.coordination).__name__} decides centrally"
        return ConfigError(got, at="$.transport.as_agents")
