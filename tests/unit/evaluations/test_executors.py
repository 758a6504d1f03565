"""Pool and adapters: each end of a task is reported once, and affects no other task."""

import concurrent.futures
import dataclasses
import multiprocessing
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from swarmbo.errors import ConfigError, MissingPackageError, RunFolderError
from swarmbo.evaluations import Ended, FuturesExecutor, Pool, RayExecutor, Workers, make_executor
from swarmbo.evaluations.executor import results_of_run, store_result, stored_result
from swarmbo.settings import convert

sys.path.append(str(Path(__file__).parent))  # workers import it, too

from tasks import Broken, Dies, Doing

LONG = 120.0


def ends_of(executor, count):
    """The next ``count`` ends, by task."""
    ends, deadline = [], time.monotonic() + LONG
    while len(ends) < count:
        assert time.monotonic() < deadline, ends
        ends += executor.poll(0.5)
    assert len(ends) == len({end.task for end in ends}) == count
    return {end.task: end for end in ends}


@pytest.fixture
def pool_of(tmp_path):
    """Pools that are closed at the end, with folders for marks and results."""
    made = []

    def make(count=2, timeout_s=None, work=None, results=True):
        (tmp_path / "results").mkdir(exist_ok=True)
        (tmp_path / "marks").mkdir(exist_ok=True)
        folder = tmp_path / "results" if results else None
        made.append(Pool(work or Doing(tmp_path / "marks"), count, folder, timeout_s))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def test_crashes_hangs_and_exceptions_affect_their_own_tasks_only(pool_of, tmp_path):
    pool = pool_of(timeout_s=3.0)
    points = {"fine": [("sleep", 0.1)], "killed": [("kill", 9)], "hung": [("hang", 9)]}
    points |= {"raised": [("raise", 3)], "left": [("leave", 3)], "after": []}
    for task, point in points.items():
        pool.submit(task, point)
    ends = ends_of(pool, 6)
    wanted = {"fine": "done", "killed": "lost", "hung": "hung", "raised": "error", "left": "error", "after": "done"}
    assert {task: end.status for task, end in ends.items()} == wanted
    assert ends["fine"].value["task"] == "fine"
    assert ends["fine"].seconds >= 0.1
    assert "ended, with status -9" in ends["killed"].value
    assert ends["hung"].value == "no answer within 3 s"
    assert "nothing at 3" in ends["raised"].value
    assert pool.poll(0.1) == []
    own = results_of_run(tmp_path / "results")
    stored = {path.stem for path in own.iterdir()}
    assert stored == {"fine", "raised", "left", "after"}
    assert stored_result(own, "fine") == ends["fine"]
    assert stored_result(own, "hung") is None
    pool.submit("killed", [("kill", 1)])  # it is tried again, as the folder of marks shows
    assert ends_of(pool, 1)["killed"].status == "done"


def test_a_result_that_cannot_be_written_is_reported_all_the_same(pool_of, tmp_path):
    pool = pool_of(count=1)
    shutil.rmtree(tmp_path / "results")  # as a full disk would refuse it
    pool.submit("unwritten", [])
    assert ends_of(pool, 1)["unwritten"].status == "done"


def test_a_result_on_the_disk_counts_although_its_worker_ended_before_it_reported(pool_of, tmp_path):
    pool = pool_of(count=1)
    store_result(results_of_run(tmp_path / "results"), stored := Ended("killed", "done", 5.0, 0.1))
    pool.submit("killed", [("kill", 9)])
    assert ends_of(pool, 1)["killed"] == stored


def test_a_result_of_a_deleted_run_does_not_count_for_the_next_one_there(pool_of, tmp_path):
    pool_of(count=1)
    shutil.rmtree(tmp_path / "results")
    next_pool = pool_of(count=1)
    (tmp_path / "results" / "killed.json").write_text("{}")  # as a worker of an earlier version would write it late
    next_pool.submit("killed", [("kill", 9)])
    assert ends_of(next_pool, 1)["killed"].status == "lost"


def test_a_program_that_does_not_close_its_pool_ends(tmp_path):
    text = "from swarmbo.evaluations import Pool\nfrom tasks import Doing\nif __name__ == '__main__':\n"
    text += (
        "    pool = Pool(Doing(), 2)\n    pool.submit('a', [])\n    assert pool.poll(60.0)\n    raise SystemExit(3)\n"
    )
    (tmp_path / "program.py").write_text(text)
    search = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, tmp_path / "program.py"], env=search, timeout=LONG).returncode == 3


@pytest.mark.parametrize(
    ("results", "words"),
    [(True, "got a result with <function .*; wanted numbers, texts"), (False, "Can't (pickle|get) local")],
)
def test_a_result_that_is_not_plain_data_is_an_error_and_not_a_lost_worker(pool_of, results, words):
    pool = pool_of(count=1, results=results)
    pool.submit("strange", [("return", 1)])
    pool.submit("after", [])
    ends = ends_of(pool, 2)
    assert (ends["strange"].status, ends["after"].status) == ("error", "done")
    assert re.search(words, ends["strange"].value)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 3])
def test_no_task_is_lost_if_all_workers_are_killed_between_tasks(pool_of, count):
    pool = pool_of(count)
    for number in range(count):
        pool.submit(f"first {number}", [("sleep", 1.0)])  # long enough that each worker gets one
    assert {end.status for end in ends_of(pool, count).values()} == {"done"}
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
    pool.submit("second", [])
    assert ends_of(pool, 1)["second"].status == "done"


@pytest.mark.thorough
@pytest.mark.parametrize(("work", "match"), [(Broken(), "no licence"), (Dies(), "do not start: its process ended")])
def test_work_that_cannot_start_ends_the_run_and_not_each_task(pool_of, work, match):
    pool = pool_of(work=work)
    pool.submit("never", [])
    with pytest.raises(ConfigError, match=match):
        pool.poll(LONG)


def test_a_changed_result_is_refused(tmp_path):
    store_result(tmp_path, Ended("q1", "done", {"a": 1.5}, 0.2))
    assert stored_result(tmp_path, "q1") == Ended("q1", "done", {"a": 1.5}, 0.2)
    path = tmp_path / "q1.json"
    path.write_bytes(path.read_bytes().replace(b"1.5", b"2.5"))
    with pytest.raises(RunFolderError, match="changed or damaged"):
        stored_result(tmp_path, "q1")


def test_any_executor_of_the_standard_library_is_adapted(tmp_path):
    executor = FuturesExecutor(concurrent.futures.ThreadPoolExecutor(2), Doing(tmp_path), timeout_s=1.0)
    for task, point in {"a": [], "b": [("raise", 1)], "c": [("sleep", 9.0)]}.items():
        executor.submit(task, point)
    ends = ends_of(executor, 3)
    assert {task: end.status for task, end in ends.items()} == {"a": "done", "b": "error", "c": "hung"}
    executor.close()


class Remembering(concurrent.futures.ThreadPoolExecutor):
    """Threads that have one future for equal calls, as Dask has."""

    def submit(self, do, /, *arguments):
        self.known = getattr(self, "known", {})
        return self.known.setdefault(pickle.dumps(arguments), super().submit(do, *arguments))


def test_a_hung_task_of_an_adapted_executor_does_not_block_others_and_is_done_again(tmp_path):
    with Remembering(1) as threads:  # its end waits for its threads
        executor = FuturesExecutor(threads, Doing(tmp_path), timeout_s=1.6)
        executor.submit("hung", [("hang", 1)])
        executor.submit("queued", [("sleep", 0.9)])
        executor.submit("last", [("sleep", 0.9)])
        assert [end.status for end in ends_of(executor, 3).values()] == ["hung", "done", "done"]
        executor.submit("hung", [("hang", 1)])
        assert ends_of(executor, 1)["hung"].status == "done"
        executor.close()


def test_each_adapter_of_the_same_executor_has_its_own_time_limit():
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        for limit, status in ((None, "done"), (0.3, "hung"), (None, "done")):
            executor = FuturesExecutor(threads, Doing(), timeout_s=limit)
            executor.submit("a", [("sleep", 1.0)])
            assert ends_of(executor, 1)["a"].status == status


@pytest.mark.parametrize(("computing_s", "status"), [(0.0, "done"), (100.0, "hung")], ids=["paused", "deciding"])
def test_a_pause_of_all_processes_does_not_count_as_time_of_a_task_but_a_decision_does(
    pool_of, monkeypatch, computing_s, status
):
    skipped_s, real, used_s = [0.0], time.monotonic, time.process_time
    clock = SimpleNamespace(monotonic=lambda: real() + skipped_s[0], perf_counter=time.perf_counter)
    clock.process_time = lambda: used_s() + computing_s * (skipped_s[0] > 0.0)
    monkeypatch.setattr("swarmbo.evaluations.executor.time", clock)
    pool = pool_of(count=1, timeout_s=30.0)
    pool.submit("paused", [("sleep", 2.0)])
    deadline = real() + LONG
    while not list(pool._work.marks.glob("paused.*")):
        assert real() < deadline
        time.sleep(0.05)
    skipped_s[0] = 100.0  # as after Ctrl-Z and fg, or a decision that lets no other thread run
    pool.submit("next", [])
    assert {task: end.status for task, end in ends_of(pool, 2).items()} == {"paused": status, "next": "done"}


@pytest.mark.parametrize("timeout_s", [None, 60.0])
def test_work_that_no_adapted_worker_can_make_ends_the_run_and_not_each_task(timeout_s):
    executor = FuturesExecutor(concurrent.futures.ThreadPoolExecutor(1), Broken(), timeout_s=timeout_s)
    executor.submit("never", [])
    with pytest.raises(ConfigError, match="cannot make its evaluation: RuntimeError: no licence"):
        executor.poll(LONG)
    executor.close()


@pytest.mark.parametrize("work", [Broken(), lambda: None], ids=["broken", "not pickled"])
def test_a_worker_that_cannot_start_refuses_all_tasks_like_the_first(work):
    executor = FuturesExecutor(concurrent.futures.ThreadPoolExecutor(1), work, timeout_s=60.0)
    for task in ("first", "second"):
        executor.submit(task, [])
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"no licence|got work .*lambda.*; wanted work that can be pickled"):
            executor.poll(LONG)
    executor.close()


def test_evaluations_in_threads_do_not_limit_the_linear_algebra_of_their_caller(monkeypatch):
    """Otherwise concurrent decisions of the caller would have one thread or more, by chance."""
    monkeypatch.setattr("swarmbo.evaluations.engines.one_blas_thread", None)
    executor = FuturesExecutor(concurrent.futures.ThreadPoolExecutor(1), Doing())
    executor.submit("a", [])
    assert ends_of(executor, 1)["a"].status == "done"
    executor.close()


class Ready(concurrent.futures.Executor):
    """Executor whose tasks end at once: the first one succeeds, others are in workers that cannot start."""

    def submit(self, do, /, *arguments):
        future = concurrent.futures.Future()
        future.set_result(ConfigError("no licence") if hasattr(self, "begun") else Ended(arguments[-2], "done"))
        self.begun = True
        return future


def test_no_end_is_lost_because_of_a_worker_that_cannot_start():
    executor, ends, errors = FuturesExecutor(Ready(), Doing()), [], 0
    for task in "abc":
        executor.submit(task, [])
    for _ in range(3):
        try:
            ends += executor.poll(1.0)
        except ConfigError:
            errors += 1
    assert [end.task for end in ends] == ["a"]
    assert errors == 2


@dataclasses.dataclass
class Scan:
    """Result of a user's own class."""

    heights: object


def test_a_result_is_kept_whatever_containers_have_its_numbers(tmp_path):
    value = [Scan(np.arange(3.0)), {np.float64(2.5)}, np.array([np.float32(1.5), [np.int64(4)]], dtype=object)]
    store_result(tmp_path, Ended("q", "done", value))
    assert stored_result(tmp_path, "q").value == [{"heights": [0.0, 1.0, 2.0]}, [2.5], [1.5, [4]]]
    with pytest.raises(TypeError, match="got a result with 1j; wanted numbers"):
        store_result(tmp_path, Ended("q", "done", 1j))


def test_tasks_of_a_killed_process_of_an_adapted_pool_are_lost_and_later_ones_are_refused(tmp_path):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as futures:
        executor = FuturesExecutor(futures, Doing(tmp_path))
        executor.submit("a", [("kill", 9)])
        assert ends_of(executor, 1)["a"].status == "lost"
        with pytest.raises(concurrent.futures.BrokenExecutor):
            executor.submit("b", [])


def test_engines_are_made_by_name(tmp_path):
    work = Doing()
    threads = make_executor(Workers(2, engine="concurrent.futures:ThreadPoolExecutor"), work, None, None)
    assert isinstance(threads, FuturesExecutor)
    threads.submit("a", [])
    assert ends_of(threads, 1)["a"].status == "done"
    threads.close()
    (tmp_path / "own_engine.py").write_text(
        "class Half:\n    def __init__(self, work, count, timeout_s):\n        pass\n"
        "def fails(work, count, timeout_s):\n    raise OSError('no queue')\n"
    )
    for name, match in (("own_engine:Half", "without submit, poll"), ("own_engine:fails", "no queue")):
        with pytest.raises(ConfigError, match=match):
            make_executor(Workers(2, engine=name), work, None, None, [str(tmp_path)])
    with pytest.raises(ConfigError, match="wanted pool, ray"):
        convert({"engine": "slurm"}, Workers)
    with pytest.raises(ConfigError, match="none unless the engine is ray"):
        convert({"address": "auto"}, Workers)


def test_ray_that_is_not_installed_is_named_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install \"swarmbo\[ray\]\""):
        RayExecutor(Doing(), 2)


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="waits for more than 63 ends")
def test_more_processes_than_windows_can_wait_for_are_refused_there(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match="got 32 processes; wanted at most 31 on Windows"):
        Pool(Doing(tmp_path), 32)


def test_a_pool_that_does_not_start_in_time_says_how_long_it_waited(pool_of, monkeypatch):
    monkeypatch.setattr("swarmbo.evaluations.executor._START_S", 0.0)
    with pytest.raises(ConfigError, match="do not start: no answer within 0 s"):
        pool_of(count=1).poll(LONG)
