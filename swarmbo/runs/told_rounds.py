"""Runs with workers: the ledger is the state, and a round is an evaluation, in the order of tells."""

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import msgspec

from swarmbo.errors import RunFolderError
from swarmbo.evaluations import Driver, Ended, Event, Ledger, Workers, WorkerStatistics, make_executor
from swarmbo.records import Query, RoundRecord
from swarmbo.runs.attended import CopiedWorld, entry_point_of
from swarmbo.runs.recording import Decided, record_reset, record_round
from swarmbo.runs.report import Summary, WorkersReport
from swarmbo.runs.rounds import Begun, Drive, begin, end, links_of
from swarmbo.runs.stored_files import RESULTS, Timing
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld, Infos


def drive_workers(given: Drive, workers: Workers, trust: bool) -> Summary:
    """Run from the state of the folder to the end, with workers."""
    scenario, results = given.scenario, given.folder.path / RESULTS
    work = CopiedWorld(scenario, entry_point_of(scenario, "$.workers"), trust)
    results.mkdir(exist_ok=True)
    # first: workers start meanwhile, and an engine that fails leaves no run that has begun
    executor = make_executor(workers, work, results, scenario.step_timeout_s, scenario.modules or ())
    try:
        begun = begin(given)
        rounds = ToldRounds(given, begun)
        ledger = rounds.ledger()
        for event in ledger.events:
            given.calls.watch(event)
        ledger.watchers.append(given.calls.watch)
        is_synchronous, stops = workers.mode == "synchronous", scenario.when_step_fails == "stop"
        Driver(ledger, executor, workers.count, scenario.rounds, rounds.tell, is_synchronous, results, stops).run()
    finally:
        executor.close()
    shutil.rmtree(results)  # also what a worker of a killed driver wrote again
    standing = WorkerStatistics(workers.count)
    for event in ledger.events:
        standing.add(event)
    busy = standing.busy(standing.last) or 0.0
    report = WorkersReport(workers.count, workers.mode, standing.wall_s, busy, standing.lost)
    return end(given, begun, begun.truth, report)


class ToldRounds:
    """Rounds of a run with a ledger; ``last`` is the record of the last one.

    Without a world, as where agents of a served field may be anywhere in its box, ``record`` logs all rounds.
    """

    def __init__(self, given: Drive, begun: Begun) -> None:
        self._given, self._truth, self._decided = given, begun.truth, dict[str, float]()
        self._world = given.team.world if isinstance(given.team.world, FunctionWorld) else None
        self._links = [] if self._world is None else links_of(given.env)
        infos = {} if self._world is None else begun.infos
        if self._world is not None:
            given.team.begin(infos)
        logged = given.folder.records()
        self._logged = [record.query for record in logged[1:]]
        if logged:
            self.last = logged[-1]
            given.calls.on_round(self.last, True)
        else:
            self._append(record_reset(given.team, infos, begun.truth), Timing(0, 0.0, begun.seconds, 0.0, 0.0))

    def ledger(self, replayed: Callable[[Ledger, Event], None] | None = None) -> Ledger:
        """Ledger of the run; rounds of replayed tells that are not logged are logged now, by default as told here."""
        folder, known = self._given.folder.path, self.last.round
        if not Ledger.is_in(folder):
            self.require([])
            self._ledger = Ledger.create(folder, self._given.team, self._choose)
            return self._ledger

        def own(ledger: Ledger, event: Event) -> None:
            if event.kind == "tell" and not self.has(_told(ledger)):
                seconds = float(event.note.get("seconds", 0.0))
                self.record(ledger, event, Timing(self.last.round + 1, 0.0, seconds, 0.0, 0.0))

        self._ledger = Ledger.open(folder, lambda: self._given.team, self._choose, replayed or own, known)
        if replayed is None:
            self.require(_told(self._ledger))
        return self._ledger

    def has(self, told: Sequence[str]) -> bool:
        """True if the round of the last of all told queries so far is logged; a RunFolderError if it is another's."""
        if (number := len(told)) <= len(self._logged) and self._logged[number - 1] != told[-1]:
            raise self._differs(number, f"that of {told[-1]}")
        return number <= self.last.round

    def require(self, told: Sequence[str]) -> None:
        """Refuse logged rounds that are not those of these queries, which are all that have their outcomes."""
        for number, (logged, query) in enumerate(zip(self._logged, told, strict=False), start=1):
            if logged != query:
                raise self._differs(number, f"that of {query}")
        if self.last.round > len(told):
            raise self._differs(len(told) + 1, "no further outcome")

    def tell(self, query_id: str, ended: Ended) -> None:
        """Tell the outcome of a query, and log its round."""
        is_done, began = ended.status == "done", time.perf_counter()
        infos: dict[str, Any] = ended.value if is_done else {}
        note = {"seconds": ended.seconds, "infos": infos} if is_done else {"failure": str(ended.value)}
        self._ledger.tell(query_id, **self._told(query_id, infos), note=note)
        learned = time.perf_counter()
        decided = self._decided.pop(query_id, 0.0)
        timing = Timing(self.last.round + 1, decided, ended.seconds, learned - began, 0.0)
        self.record(self._ledger, self._ledger.events[-1], timing)

    def _choose(self, team: Team) -> Query:
        began = time.perf_counter()
        query = team.ask(links=None if self._world is None else self._world.links())
        self._decided[query.id] = time.perf_counter() - began
        return query

    def _told(self, query_id: str, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of a tell; an evaluation at a point outside the problem has failed."""
        problem, world = self._given.team.problem, self._world
        assert world is not None
        point = world.point(infos, self._ledger.query(query_id).point)
        outcome, noise = world.outcome(infos), world.noise_std(infos)
        if point is not None and not problem.has_point(point):
            return {"failed": True}
        told: dict[str, Any] = {"failed": True, "outcome": outcome}
        if point is not None:
            told["point"] = {variable: point[variable] for variable in problem.graph.variables}
        if isinstance(outcome, dict):
            by_factor = noise if isinstance(noise, dict) else {}
            told["noise_std"] = {factor: std for factor, std in by_factor.items() if factor in outcome} or None
        elif isinstance(noise, float) and not math.isnan(noise):
            told["noise_std"] = noise
        return told

    def record(self, ledger: Ledger, event: Event, timing: Timing, infos: Mapping[str, Any] | None = None) -> None:
        """Log the round of a query that was just told, with what the world's agents report, by default as noted."""
        began, team = time.perf_counter(), ledger.team
        if team.problem.is_field:  # a record fits the belief, and a replay of the ledger does not record again
            team = copy(team)
        query, asked = ledger.query(event.query), ledger.asked(event.query)
        reports: Infos = event.note.get("infos", {}) if infos is None else infos
        actions = query.points if self._world is None else self._world.actions(query.point, team.agents)
        decided = Decided(query, asked.report, asked.sharing)
        record = record_round(self.last, team, actions, reports, self._links, self._truth, decided)
        record = msgspec.structs.replace(record, failure=event.note.get("failure"))
        self._append(record, msgspec.structs.replace(timing, record=time.perf_counter() - began))

    def _append(self, record: RoundRecord, timing: Timing) -> None:
        self._given.folder.append(msgspec.json.encode(record), timing)
        self.last = record
        self._given.calls.on_round(record, False)

    def _differs(self, number: int, wanted: str) -> RunFolderError:
        path, way_on = self._given.folder.path, self._given.folder.way_on
        got = f"{path}: rounds.jsonl has query {self._logged[number - 1]} as round {number}, and the ledger {wanted}"
        return RunFolderError(f"{got}; delete the lines of rounds.jsonl from round {number} on, and {way_on}")


def _told(ledger: Ledger) -> list[str]:
    return [event.query for event in ledger.events if event.kind == "tell"]
