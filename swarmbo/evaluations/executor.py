"""Executors: they carry out tasks elsewhere, and report how each ended.

The protocol has four methods, so that an engine of one's own is a small class. ``FuturesExecutor`` makes one of any
``concurrent.futures.Executor``: of the standard library, Dask, MPI or Slurm.
"""

import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor as Futures, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
from threadpoolctl import threadpool_limits

from swarmbo.boundary.files import naming, read_regular, read_seal, replacing, seal
from swarmbo.boundary.values import error_text, plain
from swarmbo.errors import RunFolderError

Evaluate = Callable[[str, Any], Any]  # carries out one task: its name and its point give a result, plain data
Work = Callable[[], Evaluate]  # makes an ``Evaluate``, once in each worker; it can be pickled
_made = threading.local()  # of each thread, as worlds are not made for several


class Ended(NamedTuple):
    """End of a task.

    Args:
        task: Name of the task.
        status: ``done``; ``error``: the task raised an exception, and would again; ``lost``: its worker crashed or was
            killed; ``hung``: it exceeded the time limit.
        value: Result of a task that is done, else the reason as text.
        seconds: Time that a worker spent on the task, s.
    """

    task: str
    status: Literal["done", "error", "lost", "hung"]
    value: Any = None
    seconds: float = 0.0


class Executor(Protocol):
    """Engine that runs several tasks at a time, outside this thread.

    Your own engine, ``module:Class``, is called with ``work`` (``Work``), ``count`` (number of workers) and
    ``timeout_s`` (time limit of a task in seconds, or None).
    """

    def submit(self, task: str, point: Any) -> None:
        """Begin a task, or queue it if all workers are busy. Task and point are plain data."""
        ...

    def poll(self, timeout: float) -> list[Ended]:
        """Wait for ends of tasks, at most ``timeout`` seconds; each is reported once."""
        ...

    def cancel(self, task: str) -> None:
        """Drop a task, which is then not reported."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


def evaluated(evaluate: Evaluate, task: str, point: Any) -> Ended:
    """Carry out a task; its own exceptions are its outcome."""
    began = time.perf_counter()
    try:
        value, status = evaluate(task, point), "done"
    except (Exception, SystemExit) as error:  # noqa: BLE001  a failure of the world, reported with its reason
        value, status = error_text(error), "error"
    return Ended(task, status, value, time.perf_counter() - began)


def hung_text(timeout_s: float) -> str:
    """Reason of a task that hung."""
    return f"no answer within {timeout_s:g} s"


def evaluated_by(work: bytes | Work, task: str, point: Any) -> Ended:
    """Carry out a task by work, pickled between processes, which each thread makes once; runs in workers."""
    if getattr(_made, "work", None) != work:
        _made.work, _made.evaluate = None, None
        _made.evaluate = pickle.loads(work)() if isinstance(work, bytes) else work()
        _made.work = work
    with threadpool_limits(1, user_api="blas"):
        return evaluated(_made.evaluate, task, point)


class Starts:
    """Times when tasks began, as far as a queue of ``count`` workers tells: the oldest ones run.

    ``grace_s`` is added to the limit, for workers that first have to start.
    """

    def __init__(self, count: int, timeout_s: float | None, grace_s: float = 0.0) -> None:
        self._count, self._timeout_s, self._grace_s = count, timeout_s, grace_s
        self._waiting, self._running = list[str](), dict[str, float]()

    def add(self, task: str) -> None:
        """Note a new task."""
        self._waiting.append(task)
        self._begin()

    def remove(self, task: str) -> None:
        """Note the end of a task."""
        self._running.pop(task, None)
        self._waiting = [other for other in self._waiting if other != task]
        self._begin()

    def late(self) -> list[Ended]:
        """Ends of tasks that run longer than the limit."""
        limit, now = self._timeout_s, time.monotonic()
        if limit is None:
            return []
        most = limit + self._grace_s
        late = [(task, now - began) for task, began in self._running.items() if now - began > most]
        return [Ended(task, "hung", hung_text(limit), took) for task, took in late]

    def patience(self, timeout: float) -> float:
        """Time to wait for ends of tasks, up to a timeout: until the next task is late."""
        if self._timeout_s is None or not self._running:
            return timeout
        until = min(self._running.values()) + self._timeout_s + self._grace_s
        return min(timeout, max(0.0, until - time.monotonic()) + 0.01)

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._count:
            self._running[self._waiting.pop(0)] = time.monotonic()


class FuturesExecutor:
    """Executor that uses a ``concurrent.futures.Executor``.

    It can't end a task that hangs: a task beyond the time limit is reported as ``hung``, and its worker may stay busy.

    Args:
        futures: The executor, which ``close`` shuts down.
        work: Function that makes the evaluation in each worker.
        count: Number of workers of the executor.
        timeout_s: Limit of a task, s; None for no limit.

    Example:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> from functools import partial
        >>> from operator import mul
        >>> executor = FuturesExecutor(ThreadPoolExecutor(2), partial(partial, mul), 2)
        >>> for task in ("a", "b"):
        ...     executor.submit(task, 3)
        >>> ends = [*executor.poll(60.0), *executor.poll(0.1)]
        >>> executor.close()
        >>> sorted((end.task, end.status, end.value) for end in ends)
        [('a', 'done', 'aaa'), ('b', 'done', 'bbb')]
    """

    def __init__(self, futures: Futures, work: Work, count: int, timeout_s: float | None = None) -> None:
        self._futures, self._starts = futures, Starts(count, timeout_s)
        self._work = work if isinstance(futures, ThreadPoolExecutor) else pickle.dumps(work)
        self._tasks = dict[Future[Ended], str]()

    def submit(self, task: str, point: Any) -> None:
        """Hand a task to the executor."""
        self._tasks[self._futures.submit(evaluated_by, self._work, task, point)] = task
        self._starts.add(task)

    def poll(self, timeout: float) -> list[Ended]:
        """Wait for ends of tasks, at most ``timeout`` seconds."""
        done = wait(self._tasks, self._starts.patience(timeout), return_when=FIRST_COMPLETED).done
        ended = {self._tasks[future]: self._end_of(future) for future in done}
        ends = list(({end.task: end for end in self._starts.late()} | ended).values())
        for end in ends:
            self.cancel(end.task)
        return ends

    def _end_of(self, future: Future[Ended]) -> Ended:
        try:
            return future.result()
        except (Exception, CancelledError) as error:  # noqa: BLE001  of the machinery: exceptions of tasks are results
            return Ended(self._tasks[future], "lost", error_text(error))

    def cancel(self, task: str) -> None:
        """Drop a task, which may still run to its end."""
        for future in [future for future, name in self._tasks.items() if name == task]:
            future.cancel()
            del self._tasks[future]
        self._starts.remove(task)

    def close(self) -> None:
        """Shut the executor down, without waiting for running tasks."""
        for future in self._tasks:
            future.cancel()
        self._futures.shutdown(wait=False)


def keep(folder: Path, end: Ended) -> None:
    """Write a result, completely or not at all."""
    text = msgspec.json.encode(plain(end._asdict()))
    with replacing(folder / f"{end.task}.json") as file:
        file.write(seal(text))


def kept(folder: Path, task: str) -> Ended | None:
    """Result of a task on the disk; None without one."""
    path = folder / f"{task}.json"
    with naming(path, "cannot be read"):
        if not path.exists():
            return None
        sealed = read_seal(read_regular(path))
    if sealed is None or not sealed.fits:
        raise RunFolderError(f"{path}: was changed or damaged; delete it, and its task is done again")
    return Ended(**msgspec.json.decode(sealed.text))
