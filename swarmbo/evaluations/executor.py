"""Executors: they carry out tasks elsewhere, and report how each ended; here in a pool of processes.

The protocol has three methods, so that an engine of one's own is a small class. A worker of the pool has one task at a
time, so one that crashes, hangs or is killed costs its own task only.
"""

import math
import pickle
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from swarmbo.boundary.files import naming, read_regular, read_seal, replacing, seal
from swarmbo.boundary.processes import begin_process, one_blas_thread, without_interrupts
from swarmbo.boundary.values import error_text, plain, short
from swarmbo.errors import ConfigError, RunFolderError, SwarmboError

Evaluate = Callable[[str, Any], Any]  # carries out one task: its name and its point give a result, plain data
Work = Callable[[], Evaluate]  # makes an ``Evaluate``, once in each worker; it can be pickled


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


def made_by(work: Work) -> Evaluate:
    """Make the evaluation of a worker, or raise a SwarmboError, with which every task would fail."""
    try:
        return work()
    except SwarmboError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"a worker cannot make its evaluation: {error_text(error)}", at="$.workers") from error


def keep(folder: Path, end: Ended) -> None:
    """Write a result, completely or not at all."""
    text = msgspec.json.encode(plain(end._asdict()), enc_hook=_told)
    with replacing(folder / f"{end.task}.json") as file:
        file.write(seal(text))


def _told(value: object) -> Any:
    """Plain data of NumPy's values inside others' types, which msgspec cannot write."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value)
    raise TypeError(f"got a result with {short(value)}; wanted numbers, texts, lists and tables")


def kept(folder: Path, task: str) -> Ended | None:
    """Result of a task on the disk; None without one."""
    path = folder / f"{task}.json"
    text = None
    with naming(path, "cannot be read"), suppress(FileNotFoundError):
        text = read_regular(path)
    if text is None:
        return None
    sealed = read_seal(text)
    if sealed is None or not sealed.fits:
        raise RunFolderError(f"{path}: was changed or damaged; delete it, and its task is done again")
    return Ended(**msgspec.json.decode(sealed.text))


_START_S = 300.0  # to import everything and make the work, on a slow disk
# raised by a result that is no plain data; another attempt would give such a result again
_NOT_PLAIN = (AttributeError, TypeError, ValueError, OverflowError, RecursionError, pickle.PicklingError)
_MOST_DEATHS = 3  # of workers in a row before any is ready


@dataclass(eq=False)
class _Worker:
    """A process, its pipe, its task, and the time until which it must answer."""

    process: BaseProcess
    pipe: Connection
    deadline: float
    is_ready: bool = False
    task: str | None = None
    began: float = 0.0


class Pool:
    """Executor with processes on this machine.

    A thread serves the workers, so that a free worker gets a queued task while the caller computes. If the caller is
    killed, workers finish their tasks, write the results and end.

    Args:
        work: Function that makes the evaluation in each worker.
        count: Number of workers.
        results: Existing folder, to which each result is written, if possible, before it is reported. None: nothing is
            written.
        timeout_s: Time limit of a task, s; a process that takes longer is killed. None: no limit.
    """

    def __init__(self, work: Work, count: int, results: Path | None = None, timeout_s: float | None = None) -> None:
        if sys.platform == "win32" and sys.version_info < (3, 13) and 2 * count + 1 > 63:  # ends to wait for
            wanted = "at most 31 on Windows, or Python 3.13, or another engine"
            raise ConfigError(f"got {count} processes; wanted {wanted}", at="$.workers.count")
        self._work, self._results = work, results
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        self._context = get_context("spawn")
        self._workers, self._queue = list[_Worker](), deque[tuple[str, Any]]()
        self._ends: queue.SimpleQueue[Ended | Exception] = queue.SimpleQueue()
        self._orders: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._deaths = 0
        self._heard, self._bell = self._context.Pipe(duplex=False)
        self._thread = threading.Thread(target=self._tend, args=(count,), daemon=True)
        self._thread.start()

    def submit(self, task: str, point: Any) -> None:
        """Begin a task, or queue it if all workers are busy."""
        self._order((task, point))

    def poll(self, timeout: float) -> list[Ended]:
        """Wait for ends of tasks, at most ``timeout`` seconds.

        Raises:
            SwarmboError: If workers can't start.
        """
        ends = list[Ended]()
        with suppress(queue.Empty):
            end = self._ends.get(timeout=timeout)
            while not isinstance(end, Exception):
                ends.append(end)
                end = self._ends.get_nowait()
            if not ends:
                raise end
            self._ends.put(end)
        return ends

    def close(self) -> None:
        """Kill all workers."""
        if self._thread.is_alive():
            self._order(None)
            self._thread.join()

    def _order(self, task: tuple[str, Any] | None) -> None:
        self._orders.put(task)
        self._bell.send_bytes(b".")

    def _tend(self, count: int) -> None:
        """Tend the workers until ``close``; all their state is this thread's."""
        try:
            for _ in range(count):
                self._start()
            while self._obeyed():
                for worker in self._workers.copy():
                    self._hear(worker)
                for worker in [worker for worker in self._workers if time.monotonic() > worker.deadline]:
                    limit = self._timeout_s if worker.is_ready else _START_S
                    self._end(worker, "hung", f"no answer within {limit:g} s")
                for worker in self._workers:
                    self._hand_on(worker)
                nearest = min((worker.deadline for worker in self._workers), default=math.inf)
                patience = None if nearest == math.inf else max(0.0, nearest - time.monotonic()) + 0.01
                ways = [way for worker in self._workers for way in (worker.pipe, worker.process.sentinel)]
                wait([self._heard, *ways], patience)
        except Exception as error:  # noqa: BLE001  raised again by ``poll``
            self._ends.put(error)
        finally:
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.process.join()

    def _obeyed(self) -> bool:
        """Queue all new tasks; False at the end."""
        while self._heard.poll():
            self._heard.recv_bytes()
            if (task := self._orders.get()) is None:
                return False
            self._queue.append(task)
        return True

    def _start(self) -> None:
        here, there = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(there, self._work, self._results, self._timeout_s))
        try:
            with without_interrupts():
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            wanted = "wanted work that can be pickled, such as a function of a module"
            raise ConfigError(f"got work {short(self._work)}: {error_text(error)}; {wanted}", at="$.workers") from error
        there.close()
        grace = 0.0 if self._timeout_s == math.inf else self._timeout_s
        self._workers.append(_Worker(process, here, time.monotonic() + _START_S + grace))

    def _hand_on(self, worker: _Worker) -> None:
        is_free = worker.is_ready and worker.task is None and worker.process.is_alive()
        if not (is_free and self._queue):
            return
        task, point = self._queue.popleft()
        try:
            worker.pipe.send((task, point))
        except OSError:  # it has ended while idle, which its sentinel tells next
            self._queue.appendleft((task, point))
            return
        worker.task, worker.began = task, time.monotonic()
        worker.deadline = worker.began + self._timeout_s

    def _hear(self, worker: _Worker) -> None:
        """Take a worker's message, or notice its end."""
        was_alive, said = worker.process.is_alive(), None
        with suppress(EOFError, OSError):
            said = worker.pipe.recv() if worker.pipe.poll() else None
        if isinstance(said, Exception):
            raise said
        if said is not None:
            self._deaths, worker.is_ready, worker.deadline = 0, True, math.inf
            if isinstance(said, Ended):
                self._ends.put(said)
                worker.task = None
        elif not was_alive:
            self._end(worker, "lost", f"its process ended, with status {worker.process.exitcode}")

    def _end(self, worker: _Worker, status: Any, why: str) -> None:
        """End a worker and start another; its task is reported, as done if its result is on the disk."""
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        self._deaths += not worker.is_ready
        if self._deaths == _MOST_DEATHS or (status == "hung" and not worker.is_ready):
            raise ConfigError(f"its processes do not start: {why}", at="$.workers")
        if worker.task is not None:
            found = None if self._results is None else kept(self._results, worker.task)
            lost = Ended(worker.task, status, why, time.monotonic() - worker.began)
            self._ends.put(lost if found is None else found)
        self._start()


def _serve(pipe: Connection, work: Work, results: Path | None, grace_s: float) -> None:
    """Work of a process: tasks from the pipe, until it is closed."""
    begin_process(grace_s if results is not None else 0.0)
    with one_blas_thread():
        try:
            evaluate = made_by(work)
        except SwarmboError as error:  # raised again in the calling process
            pipe.send(error)
            return
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # otherwise the driver has gone
            pipe.send("ready")
            while True:
                end = evaluated(evaluate, *pipe.recv())
                try:
                    with suppress(OSError):  # of a full disk, or of a folder that went with its run
                        if results is not None:
                            keep(results, end)
                    pipe.send(end)
                except _NOT_PLAIN as error:
                    pipe.send(end._replace(status="error", value=error_text(error)))
