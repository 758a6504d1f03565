"""Runs with workers: their folders, noise per query, resuming after kills, refused settings."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from swarmbo.compare import compare
from swarmbo.compare.output import comparison_tables
from swarmbo.errors import ConfigError, EvaluationError, RunFolderError
from swarmbo.evaluations import Ended
from swarmbo.evaluations.executor import store_result
from swarmbo.evaluations.ledger import LEDGER, Event
from swarmbo.runs import RunFolder, check, load, resume, run
from swarmbo.runs.child_processes import CopiedWorld, entry_point_of, plain_infos, require_copyable
from swarmbo.runs.scenario import make_environment
from swarmbo.runs.trial import _extrapolate, estimate

THREADS = ["workers.engine=concurrent.futures:ThreadPoolExecutor"]
SMALL = ["environment.parameters={n_variables=8}", "environment.noise_std=0.5", "rounds=10", "initial=6"]


def small(*more):
    return load("powell", [*SMALL, *more], trust=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A run without workers."""
    run(small(), folder := tmp_path_factory.mktemp("runs") / "alone")
    return folder


@pytest.fixture(scope="module")
def in_batches(tmp_path_factory):
    """The log of a run with three workers that measure in batches."""
    folder = tmp_path_factory.mktemp("runs") / "in_batches"
    run(small(*THREADS, "workers.count=3", "workers.mode=synchronous"), folder, trust=True)
    return (folder / "rounds.jsonl").read_bytes()


def events_of(folder):
    """Events in the complete lines of a run's ledger."""
    text = (folder / LEDGER).read_bytes()
    return [msgspec.json.decode(line, type=Event) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def points_and_outcomes(events):
    """Points of all queries, and the outcomes and points of finished ones."""
    points = {event.query: event.point for event in events if event.kind == "ask"}
    return points, {event.query: (event.outcome, points[event.query]) for event in events if event.kind == "tell"}


def test_noise_depends_on_the_query_and_not_on_the_copy_that_measures_it():
    for name, more in (("powell", SMALL), ("wlan", ["environment.noise_std=5.0", "environment.failure_rate=0.2"])):
        scenario = load(name, more)
        work = CopiedWorld(scenario, entry_point_of(scenario, "$.workers"), False)
        env = make_environment(scenario)
        env.reset(seed=scenario.seed)
        rng, first, second, seen = np.random.default_rng(0), work(), work(), set()
        bounds, owners = (env.unwrapped.factor_graph()[name] for name in ("bounds", "variable_owners"))
        for number in range(1, 7):
            point = {variable: rng.uniform(*ends) for variable, ends in bounds.items()}
            actions = {a: np.array([point[v] for v, owner in owners.items() if owner == a]) for a in env.agents}
            in_turn = plain_infos(env.step(actions)[4])  # the run's own environment, round by round
            assert first(f"q{number:05d}", point) == in_turn
            seen.add(json.dumps(first("q00003", point)))
            if number % 2:
                assert second(f"q{number:05d}", point) == in_turn
        assert len(seen) == 6


def test_environments_whose_outcomes_depend_on_more_than_the_point_are_refused(tmp_path):
    for name, more, match in (
        ("wlan-mobility", [], "users that walk, leave or return"),
        ("wlan", ["environment.departures=[[3, 5]]"], "users that walk, leave or return"),
        ("robots", [], "measure from where they are"),
        ("field", [], "measure from where they are"),
    ):
        with pytest.raises(ConfigError, match=match):
            check(load(name, [*more, "workers.count=2"]))

    with pytest.raises(ConfigError, match="measure from where they are"):
        run(load("robots", ["workers.count=2"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()

    silent = SimpleNamespace(factor_graph=dict)
    silent.unwrapped = silent
    with pytest.raises(ConfigError, match="Namespace does not state that an outcome depends on the joint point alone"):
        require_copyable(silent)


def test_check_refuses_the_same_as_run_and_a_failing_engine_leaves_no_folder(tmp_path, monkeypatch):
    for tried in (check, estimate):
        with pytest.raises(ConfigError, match="measure from where they are"):
            tried(load("robots", ["workers.count=4"]))
    missing = small("workers.engine=nowhere:engine")
    for refuse in (lambda: check(missing, trust=True), lambda: run(missing, tmp_path / "run", trust=True)):
        with pytest.raises(ConfigError, match="there is no module 'nowhere'"):
            refuse()
    assert not (tmp_path / "run").exists()
    (tmp_path / "queue_of_own.py").write_text("def engine(work, count): pass")
    monkeypatch.syspath_prepend(tmp_path)
    failing = small("workers.engine=queue_of_own:engine")
    with pytest.raises(ConfigError, match=r"engine\(work, count, timeout_s\) failed: TypeError"):
        run(failing, tmp_path / "run", trust=True)
    monkeypatch.setattr("queue_of_own.engine", lambda work, count, timeout_s: ThreadPoolExecutor(count))
    assert run(failing, tmp_path / "run", trust=True).rounds == 10


def test_a_result_of_an_engine_that_is_no_table_counts_as_a_failed_evaluation(tmp_path, monkeypatch):
    text = "from swarmbo.evaluations import Ended\nclass Texts:\n    def __init__(self, **settings): self.tasks = []\n"
    text += "    def submit(self, task, point): self.tasks.append(task)\n    def close(self): pass\n"
    text += "    def poll(self, timeout): return [Ended(self.tasks.pop(), 'done', 'none')] if self.tasks else []\n"
    (tmp_path / "engine_of_texts.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    summary = run(small("workers.engine=engine_of_texts:Texts", "rounds=3"), tmp_path / "run", trust=True)
    assert (summary.rounds, summary.measurements) == (3, 0)
    assert RunFolder(tmp_path / "run").records()[1].failure == "got result 'none'; wanted infos by agent"
    stopping = small("workers.engine=engine_of_texts:Texts", "rounds=3", "when_step_fails=stop")
    with pytest.raises(EvaluationError, match="query q00001: got result 'none'; wanted infos by agent"):
        run(stopping, tmp_path / "stops", trust=True)
    assert len(RunFolder(tmp_path / "stops").records()) == 1


def test_own_engines_need_trust_and_invalid_worker_settings_are_named():
    with pytest.raises(ConfigError, match=r"^\$\.workers\.engine: .*--trust"):
        load("powell", THREADS)
    for text, match in (
        ("workers.count=0", "integer from 1"),
        ("workers.mode=slow", "synchronous"),
        ("workers.cores=2", "cores"),
    ):
        with pytest.raises(ConfigError, match=rf"^\$\.workers.*{match}"):
            load("powell", [text])


@pytest.mark.parametrize("mode", ["asynchronous", "synchronous"])
def test_a_run_with_workers_writes_an_ordinary_run_folder(tmp_path, mode):
    seen, wanted = [], small(*THREADS, "workers.count=3", f"workers.mode={mode}")

    def on_round(record, was_logged):
        seen.append((record.round, was_logged))

    summary = run(wanted, tmp_path / "run", trust=True, on_round=on_round)
    folder = RunFolder.open(tmp_path / "run")
    records, events = folder.records(), events_of(tmp_path / "run")
    tells = [event for event in events if event.kind == "tell"]
    assert seen == [(number, False) for number in range(11)]
    assert [record.round for record in records] == list(range(11))
    assert [record.query for record in records[1:]] == [event.query for event in tells]
    assert sorted(event.query for event in tells) == [f"q{number:05d}" for number in range(1, 11)]
    sums = [sum(event.outcome.values()) for event in tells]
    assert [record.joint.measurement for record in records[1:]] == pytest.approx(sums)
    assert [record.joint.mean is None for record in records[1:]].count(True) == 6
    assert summary.rounds == summary.measurements == 10
    assert summary.workers.count == 3
    assert summary.workers.mode == mode
    assert 0.0 < summary.workers.busy <= 1.0
    assert summary.seconds == summary.workers.wall_s > 0.0
    assert not (tmp_path / "run" / "results").exists()
    assert resume(tmp_path / "run", trust=True) == summary
    folder.clear()
    assert list((tmp_path / "run").iterdir()) in ([], [tmp_path / "run" / ".lock"])


def test_one_synchronous_worker_gives_the_records_of_a_run_without_workers(alone, tmp_path):
    run(small(*THREADS, "workers.count=1", "workers.mode=synchronous"), tmp_path / "one", trust=True)
    assert RunFolder.open(alone).records() == RunFolder.open(tmp_path / "one").records()


@pytest.mark.parametrize(
    ("mode", "lines"),
    [
        ("asynchronous", 0),
        ("synchronous", 8),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("asynchronous", 7), ("synchronous", 1))),
    ],
)
def test_a_run_whose_log_lost_its_last_rounds_logs_them_again(tmp_path, interrupted, in_batches, mode, lines):
    """As after a kill between a tell and its round, or after a power failure."""
    scenario, out = small(*THREADS, "workers.count=3", f"workers.mode={mode}"), tmp_path / "run"
    interrupted(scenario, out, 8, trust=True)
    (_, outcomes), rounds = (
        points_and_outcomes(events_of(out)),
        (out / "rounds.jsonl").read_bytes().splitlines(keepends=True),
    )
    (out / "rounds.jsonl").write_bytes(b"".join(rounds[:lines]) + b'{"round":')
    resume(out, trust=True)
    again = (out / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    assert again[: len(rounds)] == rounds
    assert len(again) == 11
    assert outcomes.items() <= points_and_outcomes(events_of(out))[1].items()
    if mode == "synchronous":
        assert b"".join(again) == in_batches


def test_a_ledger_with_fewer_events_than_logged_rounds_is_refused(tmp_path, interrupted):
    out = tmp_path / "run"
    interrupted(small(*THREADS, "workers.count=2"), out, 7, trust=True)
    lines = (out / LEDGER).read_bytes().splitlines(keepends=True)
    (out / LEDGER).write_bytes(b"".join(lines[:-6]))
    with pytest.raises(RunFolderError, match=r"and all later lines of rounds\.jsonl"):
        resume(out, trust=True)


def test_a_late_result_of_a_replaced_run_is_not_told_in_the_next_one(tmp_path, interrupted):
    """As if a worker outlived its killed run, and a run with other settings replaced that one."""
    out, batches = tmp_path / "run", (*THREADS, "workers.count=2", "workers.mode=synchronous", "rounds=6")
    interrupted(small(*batches), out, 1, trust=True)
    (own,) = (out / "results").iterdir()
    interrupted(small(*batches, "environment.noise_std=0.1"), out, 1, trust=True, force=True)
    points, told = points_and_outcomes(events_of(out))
    pending = points.keys() - told.keys()
    assert pending
    for query in pending:
        late = Ended(query, "error", "of the world before", 1.0)
        with pytest.raises(FileNotFoundError):
            store_result(own, late)
        store_result(out / "results", late)  # as an earlier version did
    assert resume(out, trust=True).rounds == 6
    assert not any(record.failure for record in RunFolder.open(out).records())


def kill_sometime(command, out, rng, victims):
    """Start a run, and kill the driver, the workers, or both after some rounds. True if the run still completed."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rounds, wanted = out / "rounds.jsonl", int(rng.integers(1, 5))
    before = rounds.read_bytes().count(b"\n") if rounds.exists() else 0
    while process.poll() is None and (not rounds.exists() or rounds.read_bytes().count(b"\n") < before + wanted):
        time.sleep(0.01)
    time.sleep(float(rng.uniform(0.0, 0.3)))
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = [
        int(text) for path in Path(f"/proc/{process.pid}/task").glob("*/children") for text in path.read_text().split()
    ]
    assert children.exists() or process.poll() is not None
    for worker in workers if victims != "driver" else ():
        try:
            os.kill(worker, signal.SIGKILL)
        except ProcessLookupError:
            continue
    if victims == "workers":
        return process.wait() == 0
    process.kill()
    process.wait()
    return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
def test_a_run_killed_twenty_times_has_one_outcome_per_query(tmp_path):
    file, out, rng = tmp_path / "slow.toml", tmp_path / "run", np.random.default_rng(1)
    (tmp_path / "slow_world.py").write_text(
        "import time\nfrom swarmbo_envs import function_v0\n"
        "class Slow(function_v0.parallel_env):\n"
        "    def step(self, actions):\n        time.sleep(0.15)\n        return super().step(actions)\n"
    )
    file.write_text(
        'name = "slow"\nrounds = 60\ninitial = 50\n[environment]\nid = "slow_world:Slow"\nfunction = "camel"\n'
        "noise_std = 0.1\n[workers]\ncount = 2\n"
    )
    begin = [sys.executable, "-m", "swarmbo", "run", str(file), "--out", str(out), "--trust", "--no-figures", "-q"]
    again = [sys.executable, "-m", "swarmbo", "resume", str(out), "--trust", "--no-figures", "-q"]
    asked, finished = {}, {}
    for number in range(20):
        victims = ("driver", "both", "workers")[number % 3]
        if kill_sometime(again if (out / "scenario.toml").exists() else begin, out, rng, victims):
            break
        before, (asked, finished) = (asked, finished), points_and_outcomes(events_of(out))
        assert before[0].items() <= asked.items()
        assert before[1].items() <= finished.items()
    subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
    events = events_of(out)
    tells = [event.query for event in events if event.kind == "tell"]
    assert sorted(tells) == [f"q{number:05d}" for number in range(1, 61)]
    points, ends = points_and_outcomes(events)
    assert points.items() >= asked.items()
    assert ends.items() >= finished.items()
    records = RunFolder.open(out).records()
    assert [record.query for record in records[1:]] == tells
    assert not any(record.failure for record in records)
    # no outcome depends on the worker: each equals the environment's at that point and query
    scenario = load(file, trust=True)
    work = CopiedWorld(scenario, entry_point_of(scenario, "$.workers"), True)()
    for query, (outcome, point) in ends.items():
        assert work(query, point)["agent_0"]["measurement"] == outcome


def test_compare_shows_times_of_runs_with_and_without_workers(alone, tmp_path):
    run(small(*THREADS, "workers.count=2"), tmp_path / "two", trust=True)
    comparison = compare([alone, tmp_path])
    table = comparison_tables(comparison)[-1]
    assert table.title == "time"
    _, methods, seconds, rates, busy = (list(column.cells) for column in table.columns)
    assert methods == ["one by one", "2 workers, asynchronous"]
    assert (busy[0], busy[1][-1]) == ("", "%")
    for number, path in enumerate((alone, tmp_path / "two")):
        took = json.loads((path / "summary.json").read_text())["seconds"]
        assert (seconds[number], rates[number]) == (f"{took:.4g} s", f"{10 / took:.3g}")
    assert comparison_tables(compare([alone]))[-1].title != "time"


def test_an_estimate_includes_the_start_of_workers_and_their_busy_share(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)

    def measured(step, decision, start=0.0, **more):
        times, known = {100: decision}, {"acquisition": "", "methods": "", "memory": None, "is_field": False}
        return {"end": 100, "times": times, "step_s": step, "start_s": start, "waits": True, **known, **more}

    scenario = load("powell", ["rounds=100", "workers.count=8"])
    slow = _extrapolate(scenario, measured(8.0, 0.2))
    assert (slow.seconds, slow.busy, slow.per_second) == (pytest.approx(100.0), pytest.approx(1.0), pytest.approx(1.0))
    assert slow.text() == "about 2 min, 1 evaluations a second, workers busy 100%"
    quick = _extrapolate(scenario, measured(0.8, 0.2))
    assert (quick.seconds, quick.busy) == (pytest.approx(20.0), pytest.approx(0.5))
    started = _extrapolate(scenario, measured(0.8, 0.2, 3.0, memory=2e8, worker_memory=1e8))
    assert (started.seconds, started.memory, started.per_second) == (26.0, 1e9, pytest.approx(100 / 26.0))
    assert _extrapolate(scenario, measured(0.8, 0.1, waits=False)).seconds == pytest.approx(20.0)  # on four cores
    batches = load("powell", ["rounds=100", "workers.count=8", "workers.mode=synchronous"])
    assert _extrapolate(batches, measured(0.8, 0.1)).busy == pytest.approx(0.5)
    assert _extrapolate(load("powell", ["rounds=100"]), measured(0.8, 0.4)).busy is None
