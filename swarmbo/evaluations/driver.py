"""Driver: it keeps workers busy with a team's queries, and tells the outcomes."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from swarmbo.boundary.values import whole_number
from swarmbo.errors import ConfigError, EvaluationError
from swarmbo.evaluations.executor import Ended, Executor, results_of_run, stored_result
from swarmbo.evaluations.ledger import Event, Ledger
from swarmbo.records import Query

MOST_RETRIES = 3
_POLL_S = 1.0  # time limit of each wait, whatever the executor does


@dataclass
class Driver:
    """Loop that asks a ledger for queries, sends them to workers, and tells their outcomes, up to a number of queries.

    In asynchronous mode, each outcome is told at once, and a decision uses all that are known then. Some queries are
    asked ahead, so that workers do not wait for decisions. In synchronous mode, a batch has as many queries as workers.
    Its outcomes are told in the order of asks once all are known, so that decisions do not depend on durations.

    A query whose worker was lost or hung is sent again, up to three times; then it is told as failed. If the evaluation
    raises an exception, the query is told as failed at once.

    Args:
        ledger: The ledger; its pending queries are sent first.
        executor: Executor that evaluates queries; a task is a query's id and point. The driver does not close it.
        workers: Number of workers.
        total: Number of queries to be told.
        tell: Tells the ledger a query's outcome, given the end of its task; only a task that is ``done`` has a result.
        is_synchronous: True for batches.
        results: Folder of a ``Pool``'s results, for this ledger only; those of pending queries are told first.
        stops: True to raise an exception of the world.
        ahead: Number of queries asked ahead of a free worker, in asynchronous mode; by default one, and one more for
            each eight workers. Such a decision lacks the outcomes that are still out; 0 waits for a free worker.
    """

    ledger: Ledger
    executor: Executor
    workers: int
    total: int
    tell: Callable[[str, Ended], None]
    is_synchronous: bool = False
    results: Path | None = None
    stops: bool = False
    ahead: int | None = None

    def __post_init__(self) -> None:
        whole_number(self.workers, 1, "workers")
        whole_number(self.total, 0, "total")
        ahead = 1 + self.workers // 8 if self.ahead is None else whole_number(self.ahead, 0, "ahead")
        self._most_pending = self.workers + ahead
        self._results = None if self.results is None else results_of_run(self.results)
        self._running, self._ended = set[str](), dict[str, Ended]()

    def run(self) -> None:
        """Run until ``total`` queries are told; a ConfigError if ``tell`` leaves out some outcomes."""
        ledger = self.ledger
        for query_id, query in ledger.pending.items():
            end = None if self._results is None else stored_result(self._results, query_id)
            if end is not None and not (self.stops and end.status == "error"):
                self._ended[query_id] = end
                continue
            if self._results is not None:  # an error stopped the run: it is not the result of the next attempt
                (self._results / f"{query_id}.json").unlink(missing_ok=True)
            self._send(query)
        if not self.is_synchronous:
            self._tell_all()
        ask_and_wait = self._batch if self.is_synchronous else self._fill
        while ledger.n_told < self.total:
            ask_and_wait()
            self._tell_all()

    def _batch(self) -> None:
        """Ask the rest of a batch, and wait for all of its outcomes; they are told in the order of asks."""
        ledger = self.ledger
        # batches follow from counts, so that a run that is resumed within a batch continues it
        for _ in range(ledger.n_asked, min(self.total, (ledger.n_told // self.workers + 1) * self.workers)):
            self._send(ledger.ask())
        while self._running:
            self._collect(self.executor.poll(_POLL_S))
        self._ended = {query_id: self._ended[query_id] for query_id in ledger.pending}

    def _fill(self) -> None:
        """Ask and send until enough queries are pending, then wait for an end; return if one ends before."""
        ledger = self.ledger
        while ledger.n_asked < self.total and len(ledger.team.pending) < self._most_pending:
            self._send(ledger.ask())
            self._collect(self.executor.poll(0.0))
            if self._ended:
                return
        self._collect(self.executor.poll(_POLL_S))

    def _send(self, query: Query) -> None:
        self._running.add(query.id)
        self.executor.submit(query.id, query.point)

    def _collect(self, ends: list[Ended]) -> None:
        for end in ends:
            if end.task not in self._running:  # ended already: another worker had it, too
                continue
            self._running.remove(end.task)
            if end.status in ("lost", "hung"):
                if self.ledger.lost(end.task, f"{end.status}: {end.value}", {"seconds": end.seconds}) <= MOST_RETRIES:
                    self._send(self.ledger.query(end.task))
                    continue
            elif end.status == "error" and self.stops:
                raise EvaluationError(f"query {end.task}: {end.value}")
            self._ended[end.task] = end

    def _tell_all(self) -> None:
        while self._ended:
            query_id = next(iter(self._ended))
            self.tell(query_id, self._ended.pop(query_id))
            if query_id in self.ledger.team.pending:  # the run would wait forever
                raise ConfigError(f"query {query_id} still waits; wanted all outcomes, or failed=True", at="$.tell")
            if self._results is not None:
                (self._results / f"{query_id}.json").unlink(missing_ok=True)


class WorkerStatistics:
    """Statistics of a run's workers so far, from the events of its ledger: running, failed and lost evaluations.

    ``wall_s`` is the time without pauses between processes, up to the ``last`` event. Notes of ends have ``seconds``.
    """

    def __init__(self, workers: int) -> None:
        self._workers, self.failed, self.lost = workers, 0, 0
        self._asked, self._longest = dict[str, float](), 0.0
        self.wall_s, self.last, self._measured = 0.0, math.nan, 0.0

    def add(self, event: Event) -> None:
        """Add an event; events come in order."""
        self.wall_s += 0.0 if event.kind == "begin" else max(0.0, event.at - self.last)
        self.last = event.at
        self.lost += event.kind == "lost"
        seconds = event.note.get("seconds", 0.0)
        self._measured, self._longest = self._measured + seconds, max(self._longest, seconds)
        if event.kind in ("ask", "lost"):
            self._asked[event.query] = event.at
        elif event.kind == "begin":  # of a new process, which sends all again
            self._asked = dict.fromkeys(self._asked, event.at)
        else:
            self._asked.pop(event.query, None)
            self.failed += "failure" in event.note or event.outcome is None

    @property
    def running(self) -> int:
        """Number of evaluations at workers; other asked evaluations are queued."""
        return min(self._workers, len(self._asked))

    def busy(self, now: float) -> float | None:
        """Share of the workers' time in evaluations, 0 to 1; None before the first outcome.

        A running evaluation counts from when it was asked, but no longer than the longest evaluation so far.
        """
        wall = self.wall_s + max(0.0, now - self.last)
        if not self._longest or not wall:
            return None
        running = sorted(self._asked.values())[: self._workers]
        partly = sum(min(max(0.0, now - asked), self._longest) for asked in running)
        return min(1.0, (self._measured + partly) / (self._workers * wall))
