"""The driver: each query is told once, whatever workers do; retries, batches, and how busy workers are."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.evaluations import Driver, Ended, Ledger
from swarmbo.evaluations.driver import EvaluationError
from swarmbo.evaluations.executor import keep

STUDIES = Path(__file__).parents[3] / "studies"


def team(**more):
    return sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, coordination="sobol", **more)


class Scripted:
    """Executor that ends outstanding tasks in random order, by statuses that ``ends`` gives for (task, tries)."""

    def __init__(self, seed, ends=lambda task, tries: "done"):
        self.rng, self.ends, self.out, self.tries, self.most = np.random.default_rng(seed), ends, [], {}, 0

    def submit(self, task, point):
        assert task not in self.out
        self.out.append(task)
        self.tries[task] = self.tries.get(task, 0) + 1
        self.most = max(self.most, len(self.out))

    def poll(self, timeout):
        count = self.rng.integers(timeout > 0.0, 3) if self.out else 0
        picked = self.rng.permutation(self.out)[:count]
        self.out = [task for task in self.out if task not in picked]
        found = [Ended(str(task), self.ends(str(task), self.tries[task]), float(len(task)), 1.0) for task in picked]
        return [*found, Ended("q99999", "done", 1.0)]  # of an earlier driver


def drive(tmp_path, executor, workers=4, total=40, **more):
    ledger = Ledger.create(tmp_path, team())

    def tell(query_id, end):
        done = end.status == "done"
        ledger.tell(query_id, end.value if done else None, note={} if done else {"failure": end.value})

    Driver(ledger, executor, workers, total, tell, **more).run()
    return ledger


@pytest.mark.parametrize("is_synchronous", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_each_query_is_told_once_and_lost_ones_are_tried_four_times(tmp_path, seed, is_synchronous):
    def ends(task, tries):
        number = int(task[1:])
        if number % 7 == 0:
            return "lost" if number % 2 else "hung"
        if number % 5 == 0:
            return "lost" if tries <= 3 else "done"
        return "error" if number % 11 == 0 else "done"

    executor = Scripted(seed, ends)
    ledger = drive(tmp_path, executor, is_synchronous=is_synchronous)
    told = {event.query: event for event in ledger.events if event.kind == "tell"}
    tells = [event.query for event in ledger.events if event.kind == "tell"]
    assert sorted(tells) == [f"q{number:05d}" for number in range(1, 41)]
    assert executor.most <= (4 if is_synchronous else 5)
    for query_id, event in told.items():
        number = int(query_id[1:])
        tries = 4 if number % 7 == 0 or number % 5 == 0 else 1
        assert executor.tries[query_id] == tries
        assert ledger.losses(query_id) == (4 if number % 7 == 0 else 3 if number % 5 == 0 else 0)
        assert (event.outcome is None) == (number % 7 == 0 or (number % 11 == 0 and number % 5 != 0))
    if is_synchronous:
        assert tells == sorted(tells)
        kinds = [event.kind for event in ledger.events if event.kind in ("ask", "tell")]
        assert kinds == (["ask"] * 4 + ["tell"] * 4) * 10


def test_without_queries_asked_ahead_no_outcome_is_missing_when_the_next_one_is_asked(tmp_path):
    ledger = drive(tmp_path, Scripted(0), workers=1, total=8, ahead=0)
    assert [event.kind for event in ledger.events if event.kind != "begin"] == ["ask", "tell"] * 8


def test_a_world_that_raises_may_end_the_run(tmp_path):
    with pytest.raises(EvaluationError, match="query q00003: 6"):
        drive(tmp_path, Scripted(0, lambda task, _: "error" if task == "q00003" else "done"), stops=True)


def test_results_on_the_disk_are_told_first_and_not_measured_again(tmp_path):
    (tmp_path / "results").mkdir()
    ledger = Ledger.create(tmp_path, team())
    for _ in range(5):
        ledger.ask()
    keep(tmp_path / "results", Ended("q00004", "done", 4.0, 2.0))
    keep(tmp_path / "results", Ended("q00002", "done", 2.0, 2.0))
    ledger, executor = Ledger.open(tmp_path, team), Scripted(1)
    results = tmp_path / "results"
    Driver(ledger, executor, 4, 10, lambda query_id, end: ledger.tell(query_id, end.value), results=results).run()
    tells = [(event.query, event.outcome) for event in ledger.events if event.kind == "tell"]
    assert tells[:2] == [("q00002", 2.0), ("q00004", 4.0)]
    assert sorted(executor.tries) == [f"q{number:05d}" for number in (1, 3, 5, 6, 7, 8, 9, 10)]
    assert not list((tmp_path / "results").iterdir())


@pytest.mark.thorough
def test_workers_are_busy_where_a_task_lasts_ten_decisions(tmp_path):
    """On a simulated clock, log-normal durations; without the first tasks and the last."""
    sys.path.insert(0, str(STUDIES))
    try:
        workers = importlib.import_module("workers")
        clock = workers.Clocked(8, 0)

        def choose(team):
            clock.spend(0.1)
            return team.ask()

        ledger, ends = Ledger.create(tmp_path, team(), choose), []  # times, and work begun until then

        def tell(query_id, end):
            ends.append((clock.now, clock.busy))
            ledger.tell(query_id, 1.0)

        Driver(ledger, clock, 8, 240, tell).run()
        (began, before), (ended, after) = ends[20], ends[220]
        assert (after - before) / (8 * (ended - began)) >= 0.95
    finally:
        sys.path.remove(str(STUDIES))
        for name in ("workers", "benchmark", "benchmark_problems", "benchmark_tables", "study"):
            sys.modules.pop(name, None)
