"""Outcomes of queries, put together from tells, and the log of a function's rounds."""

from collections.abc import Mapping
from math import fsum
from typing import Any, NamedTuple

from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.deciding.tables import place_names
from swarmbo.evaluations import Event, Ledger
from swarmbo.problem import Problem
from swarmbo.records import Query
from swarmbo.runs.rounds import Begun, Drive, end
from swarmbo.runs.stored_files import Timing
from swarmbo.runs.told_rounds import ToldRounds
from swarmbo.worlds import FunctionWorld


class Outcome(NamedTuple):
    """Outcome of a query, in a field that of one agent: value (None: failed), actual point, told values by factor."""

    value: float | None
    point: dict[str, Any]
    factors: Mapping[str, float | None]


class Outcomes:
    """Tells put together: of a function an outcome is complete with its last factor, in a field each agent has one."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._parts = problem, dict[str, dict[str, float | None]]()

    def add(self, query: Query, event: Event) -> list[Outcome]:
        """Take a tell; return the outcomes that are complete now."""
        known, problem = self._parts.setdefault(query.id, {}), self._problem
        given = event.outcome if isinstance(event.outcome, dict) else {}
        new = {channel: _kept(value) for channel, value in given.items() if channel not in known}
        channels = list(query.points) if problem.is_field else problem.channels
        if event.failed:
            new |= {channel: None for channel in channels if channel not in known and channel not in new}
        known |= new
        if problem.is_field:
            told = event.locations or {}
            places = {agent: told.get(agent) or query.points[agent].tolist() for agent in new}
            names = place_names(problem.box.n_dims)
            return [Outcome(y, dict(zip(names, places[agent], strict=True)), {}) for agent, y in new.items()]
        point = event.point or query.point
        if not isinstance(event.outcome, dict):
            return [Outcome(_kept(event.outcome), point, known)]
        if not set(channels) <= set(known):
            return []
        parts = [value for value in known.values() if value is not None]
        return [Outcome(fsum(parts) if len(parts) == len(known) else None, point, known)]


def _kept(value: float | None) -> float | None:
    """Outcome as the team keeps it: None for a failed one."""
    return None if value is None or abs(value) >= LARGEST_OUTCOME else value


class Log:
    """Rounds of a served function in its folder, one for each query with complete outcomes, as those of a run."""

    def __init__(self, given: Drive, begun: Begun) -> None:
        assert isinstance(given.team.world, FunctionWorld)
        self._given, self._begun, self._world = given, begun, given.team.world
        self._rounds, self._told = ToldRounds(given, begun), Outcomes(given.team.problem)
        self._seen = self._complete = 0

    def ledger(self) -> Ledger:
        """Ledger of the folder; rounds that are missing are logged."""
        ledger = self._rounds.ledger(lambda ledger, event: self._catch_up(ledger))
        ledger.watchers.append(lambda event: self._catch_up(ledger))
        return ledger

    def end(self) -> None:
        """Write the summary, if all queries are told."""
        if self._rounds.last.round == self._given.scenario.rounds:
            end(self._given, self._begun, self._begun.truth)

    def _catch_up(self, ledger: Ledger) -> None:
        for event in ledger.events[self._seen :]:
            self._seen += 1
            for known in self._told.add(ledger.query(event.query), event) if event.kind == "tell" else ():
                self._complete += 1
                if self._complete > self._rounds.last.round:
                    took = max(0.0, event.at - ledger.asked(event.query).at)
                    timing = Timing(self._complete, 0.0, took, 0.0, 0.0)
                    self._rounds.record(ledger, event.query, self._infos(known, event), timing)

    def _infos(self, known: Outcome, event: Event) -> dict[str, dict[str, object]]:
        """Reports of the world's agents."""
        world, graph = self._world, self._given.team.graph
        point = dict(zip(world.variables, world.place(known.point), strict=True))
        infos: dict[str, dict[str, object]] = {}
        for agent in world.agents:
            own = [point[variable] for variable in world.variables if world.variable_owners[variable] == agent]
            info: dict[str, object] = {"location": own, "noise_std": event.noise_std}
            if world.outcomes == "total":
                info["measurement"] = known.value
            else:
                info["factors"] = {f: known.factors.get(f) for f in graph.factors if graph.owner(f) == agent}
            infos[agent] = info
        return infos
