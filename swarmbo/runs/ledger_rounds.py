"""Runs with workers: the ledger is the state of the run, and each told evaluation is a round, in the order of tells."""

import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import msgspec

from swarmbo.boundary.values import short
from swarmbo.errors import EvaluationError, RunFolderError
from swarmbo.evaluations import Driver, Ended, Event, Ledger, Workers, WorkerStatistics, make_executor
from swarmbo.records import Query, RoundRecord
from swarmbo.runs.child_processes import CopiedWorld, entry_point_of
from swarmbo.runs.recording import record_reset, record_round
from swarmbo.runs.report import Summary, WorkersReport
from swarmbo.runs.rounds import RunParts, RunStart, finish_run, links_of, start_run
from swarmbo.runs.stored_files import RESULTS, Timing
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld, Infos


def run_with_workers(parts: RunParts, workers: Workers, trust: bool) -> Summary:
    """Run from the state of the folder to the end, with workers."""
    scenario, results = parts.scenario, parts.folder.path / RESULTS
    work = CopiedWorld(scenario, entry_point_of(scenario, "$.workers"), trust)
    results.mkdir(exist_ok=True)
    # made first: workers start up meanwhile, and if the engine fails, no run has begun
    executor = make_executor(workers, work, results, scenario.step_timeout_s, scenario.modules or ())
    try:
        start = start_run(parts)
        rounds = LedgerRounds(parts, start)
        ledger = rounds.open_ledger()
        for event in ledger.events:
            parts.hooks.on_event(event)
        ledger.watchers.append(parts.hooks.on_event)
        is_synchronous, stops = workers.mode == "synchronous", scenario.when_step_fails == "stop"
        Driver(ledger, executor, workers.count, scenario.rounds, rounds.tell, is_synchronous, results, stops).run()
    finally:
        executor.close()
    shutil.rmtree(results)  # with files that workers of a killed driver wrote late
    standing = WorkerStatistics(workers.count)
    for event in ledger.events:
        standing.add(event)
    busy = standing.busy(standing.last) or 0.0
    report = WorkersReport(workers.count, workers.mode, standing.wall_s, busy, standing.lost)
    return finish_run(parts, start, start.truth, report)


class LedgerRounds:
    """Rounds of a run with a ledger.

    A served field has no world, because its agents may be anywhere in its box; use ``record`` then, not ``tell``.
    """

    def __init__(self, parts: RunParts, start: RunStart) -> None:
        self._parts, self._truth = parts, start.truth
        self._decision_seconds = dict[str, float]()  # by query
        self._world = parts.team.world if isinstance(parts.team.world, FunctionWorld) else None
        self._links = [] if self._world is None else links_of(parts.env)
        infos = {} if self._world is None else start.infos
        if self._world is not None:
            parts.team.begin(infos)
        logged = parts.folder.records()
        self._logged_queries = [record.query for record in logged[1:]]
        if logged:
            self.last_record = logged[-1]
            parts.hooks.on_round(self.last_record, True)
        else:
            self._append(record_reset(parts.team, infos, start.truth), Timing(0, 0.0, start.seconds, 0.0, 0.0))

    def open_ledger(self, on_replay: Callable[[Ledger, Event], None] | None = None) -> Ledger:
        """Create or replay the run's ledger; ``on_replay`` gets each event, by default to log rounds not yet logged."""
        folder, team, logged_rounds = self._parts.folder.path, self._parts.team, self.last_record.round
        if not Ledger.is_in(folder):
            self.require_queries([])
            self._ledger = Ledger.create(folder, team, self._choose)
            return self._ledger

        def log_tell(ledger: Ledger, event: Event) -> None:
            if event.kind == "tell" and not self.is_logged(_told_queries(ledger)):
                seconds = float(event.note.get("seconds", 0.0))
                self.record(ledger, event, Timing(self.last_record.round + 1, 0.0, seconds, 0.0, 0.0))

        self._ledger = Ledger.open(folder, lambda: team, self._choose, on_replay or log_tell, logged_rounds)
        if on_replay is None:
            self.require_queries(_told_queries(self._ledger))
        return self._ledger

    def is_logged(self, queries: Sequence[str]) -> bool:
        """True if the round of the last of the told ``queries`` is logged; a RunFolderError if another query is."""
        number = len(queries)
        if number <= len(self._logged_queries) and self._logged_queries[number - 1] != queries[-1]:
            raise self._mismatch(number, f"that of {queries[-1]}")
        return number <= self.last_record.round

    def require_queries(self, queries: Sequence[str]) -> None:
        """Refuse logged rounds that differ from ``queries``, which are all queries with a told outcome, in order."""
        for number, (logged, query) in enumerate(zip(self._logged_queries, queries, strict=False), start=1):
            if logged != query:
                raise self._mismatch(number, f"that of {query}")
        if self.last_record.round > len(queries):
            raise self._mismatch(len(queries) + 1, "no further outcome")

    def tell(self, query_id: str, ended: Ended) -> None:
        """Tell the outcome of a query, and log its round."""
        if ended.status == "done" and not isinstance(ended.value, Mapping):
            ended = ended._replace(status="error", value=f"got result {short(ended.value)}; wanted infos by agent")
            if self._parts.scenario.when_step_fails == "stop":
                raise EvaluationError(f"query {query_id}: {ended.value}")
        is_done, started = ended.status == "done", time.perf_counter()
        infos: Any = ended.value if is_done else {}
        note: dict[str, Any] = {"infos": infos} if is_done else {"failure": str(ended.value)}
        note |= {} if ended.status in ("lost", "hung") else {"seconds": ended.seconds}  # losses are logged with theirs
        self._ledger.tell(query_id, **self._tell_arguments(query_id, infos), note=note)
        learning_s = time.perf_counter() - started
        deciding_s = self._decision_seconds.pop(query_id, 0.0)
        timing = Timing(self.last_record.round + 1, deciding_s, ended.seconds, learning_s, 0.0)
        self.record(self._ledger, self._ledger.events[-1], timing)

    def _choose(self, team: Team) -> Query:
        started = time.perf_counter()
        query = team.ask(links=None if self._world is None else self._world.links())
        self._decision_seconds[query.id] = time.perf_counter() - started
        return query

    def _tell_arguments(self, query_id: str, infos: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments of a tell; an evaluation at a point outside the problem counts as failed."""
        problem, world = self._parts.team.problem, self._world
        assert world is not None
        point = world.point(infos, self._ledger.query(query_id).point)
        outcome, noise = world.outcome(infos), world.noise_std(infos)
        if point is not None and not problem.has_point(point):
            return {"failed": True}
        arguments: dict[str, Any] = {"failed": True, "outcome": outcome}
        if point is not None:
            arguments["point"] = {variable: point[variable] for variable in problem.graph.variables}
        if isinstance(outcome, dict):
            by_factor = noise if isinstance(noise, dict) else {}
            arguments["noise_std"] = {factor: std for factor, std in by_factor.items() if factor in outcome} or None
        elif isinstance(noise, float) and not math.isnan(noise):
            arguments["noise_std"] = noise
        return arguments

    def record(self, ledger: Ledger, event: Event, timing: Timing, infos: Mapping[str, Any] | None = None) -> None:
        """Log the round of a query that was just told; agents' ``infos`` are by default those in the event's note."""
        started, is_field = time.perf_counter(), ledger.team.problem.is_field
        team = copy(ledger.team) if is_field else ledger.team  # recording fits the belief, a replay does not record
        query, asked = ledger.query(event.query), ledger.asked(event.query)
        reports: Infos = event.note.get("infos", {}) if infos is None else infos
        actions = query.points if self._world is None else self._world.actions(query.point, team.agents)
        record = record_round(self.last_record, team, actions, reports, self._links, self._truth, (query, asked))
        record = msgspec.structs.replace(record, failure=event.note.get("failure"))
        self._append(record, msgspec.structs.replace(timing, record=time.perf_counter() - started))

    def _append(self, record: RoundRecord, timing: Timing) -> None:
        self._parts.folder.append(msgspec.json.encode(record), timing)
        self.last_record = record
        self._parts.hooks.on_round(record, False)

    def _mismatch(self, number: int, wanted: str) -> RunFolderError:
        path, hint = self._parts.folder.path, self._parts.folder.resume_hint
        logged = self._logged_queries[number - 1]
        got = f"{path}: rounds.jsonl has query {logged} as round {number}, and the ledger {wanted}"
        return RunFolderError(f"{got}; delete round {number} and all later lines of rounds.jsonl, and {hint}")


def _told_queries(ledger: Ledger) -> list[str]:
    return [event.query for event in ledger.events if event.kind == "tell"]
