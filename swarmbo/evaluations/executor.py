"""Executors: they carry out tasks elsewhere, and report how each ended; here in a pool of processes.

The protocol has three methods, so that your own engine is a small class. A worker of the pool has one task at a time,
so one that crashes, hangs or is killed costs its own task only.
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
from multiprocessing.util import Finalize
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from swarmbo.boundary.files import naming, read_regular, read_seal, replacing, seal
from swarmbo.boundary.processes import begin_process, one_blas_thread, without_interrupts
from swarmbo.boundary.values import error_text, plain, short
from swarmbo.errors import ConfigError, RunFolderError, SwarmboError

Evaluate = Callable[[str, Any], Any]  # result of a task, plain data, from its name and its point
Work = Callable[[], Evaluate]  # makes an ``Evaluate``, once in each worker; it can be pickled
RUN_RESULTS = f"run-{'[0-9a-f]' * 16}"  # folder with the results of one run


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


def evaluate_task(evaluate: Evaluate, task: str, point: Any) -> Ended:
    """Carry out a task; its own exceptions are its outcome."""
    began = time.perf_counter()
    try:
        value, status = evaluate(task, point), "done"
    except (Exception, SystemExit) as error:  # noqa: BLE001  a failure of the world, reported with its reason
        value, status = error_text(error), "error"
    return Ended(task, status, value, time.perf_counter() - began)


def make_evaluate(work: Work) -> Evaluate:
    """Make a worker's function for tasks; a SwarmboError if that fails, as every task would."""
    try:
        return work()
    except SwarmboError:
        raise
    except (Exception, SystemExit) as error:
        raise ConfigError(f"a worker cannot make its evaluation: {error_text(error)}", at="$.workers") from error


def results_of_run(results: Path) -> Path:
    """Folder of a run in ``results``, made if missing. A worker that outlives a deleted run cannot write there."""
    own = min(results.glob(RUN_RESULTS), default=results / f"run-{token_hex(8)}")
    own.mkdir(parents=True, exist_ok=True)
    return own


def store_result(folder: Path, end: Ended) -> None:
    """Write a result, completely or not at all."""
    text = msgspec.json.encode(plain(end._asdict()), enc_hook=_plain_array)
    with replacing(folder / f"{end.task}.json") as file:
        file.write(seal(text))


def _plain_array(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return plain(value)
    raise TypeError(f"got a result with {short(value)}; wanted numbers, texts, lists and tables")


def stored_result(folder: Path, task: str) -> Ended | None:
    """Result of a task on the disk; None if there is none."""
    path = folder / f"{task}.json"
    with naming(path, "cannot be read"), suppress(FileNotFoundError):
        sealed = read_seal(read_regular(path))
        if sealed is None or not sealed.fits:
            raise RunFolderError(f"{path}: was changed or damaged; delete it, and its task is done again")
        return Ended(**msgspec.json.decode(sealed.text))
    return None


CHECK_S, LONGEST_CHECK_S = 0.25, 0.5  # between checks of time limits; longer is a pause, as by Ctrl-Z, of all processes
_START_S = 300.0  # time limit to import everything and make the work, on a slow disk
# raised for a result that is not plain data; another attempt would give such a result again
_NOT_PLAIN = (AttributeError, TypeError, ValueError, OverflowError, RecursionError, pickle.PicklingError)
_MOST_FAILED_STARTS = 3  # of workers in a row before any is ready


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
    killed, workers finish their tasks, write the results and end. A program that ends closes its pools.

    Args:
        work: Function that makes the evaluation in each worker.
        count: Number of workers.
        results: Existing folder, in which each result is written, if possible, before it is reported; None: nowhere.
        timeout_s: Time limit of a task, s; a process that takes longer is killed. None: no limit.
    """

    def __init__(self, work: Work, count: int, results: Path | None = None, timeout_s: float | None = None) -> None:
        if sys.platform == "win32" and sys.version_info < (3, 13) and 2 * count + 1 > 63:  # handles to wait for
            wanted = "at most 31 on Windows, or Python 3.13, or another engine"
            raise ConfigError(f"got {count} processes; wanted {wanted}", at="$.workers.count")
        self._work, self._results = work, None if results is None else results_of_run(results)
        self._timeout_s = math.inf if timeout_s is None else timeout_s
        self._context = get_context("spawn")
        self._workers, self._queue = list[_Worker](), deque[tuple[str, Any]]()
        self._ends: queue.SimpleQueue[Ended | Exception] = queue.SimpleQueue()
        self._submitted: queue.SimpleQueue[tuple[str, Any] | None] = queue.SimpleQueue()
        self._n_failed_starts = 0
        self._wakeups, self._waker = self._context.Pipe(duplex=False)  # a byte for each submitted task
        self._thread = threading.Thread(target=self._supervise, args=(count,), daemon=True)
        self._thread.start()
        self._end = Finalize(None, self.close, exitpriority=10)  # before multiprocessing waits for processes

    def submit(self, task: str, point: Any) -> None:
        """Begin a task, or queue it if all workers are busy."""
        self._submit((task, point))

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
        self._end.cancel()
        if self._thread.is_alive():
            self._submit(None)
            self._thread.join()

    def _submit(self, task: tuple[str, Any] | None) -> None:
        self._submitted.put(task)
        self._waker.send_bytes(b".")

    def _supervise(self, count: int) -> None:
        """Serve the workers until ``close``; only this thread uses their state."""
        try:
            for _ in range(count):
                self._start()
            idle_at = time.monotonic() - time.process_time()
            while self._queue_submitted():
                now, last = time.monotonic(), idle_at
                idle_at = now - time.process_time()  # a decision that keeps this thread waiting is no pause
                paused_s = max(0.0, idle_at - last - LONGEST_CHECK_S)
                for worker in self._workers.copy():
                    worker.deadline += paused_s
                    self._receive(worker)
                    if worker in self._workers and now > worker.deadline:
                        limit = self._timeout_s if worker.is_ready else _START_S
                        self._replace(worker, "hung", f"no answer within {limit:g} s")
                for worker in self._workers:
                    self._assign(worker)
                deadline = min((worker.deadline for worker in self._workers), default=math.inf)
                timeout = None if deadline == math.inf else min(max(0.0, deadline - now) + 0.01, CHECK_S)
                handles = [handle for worker in self._workers for handle in (worker.pipe, worker.process.sentinel)]
                wait([self._wakeups, *handles], timeout)
        except Exception as error:  # noqa: BLE001  raised again by ``poll``
            self._ends.put(error)
        finally:
            for worker in self._workers:
                worker.process.kill()
            for worker in self._workers:
                worker.process.join()

    def _queue_submitted(self) -> bool:
        """Queue all new tasks; False at the end."""
        while self._wakeups.poll():
            self._wakeups.recv_bytes()
            if (task := self._submitted.get()) is None:
                return False
            self._queue.append(task)
        return True

    def _start(self) -> None:
        pipe, worker_pipe = self._context.Pipe()
        args = worker_pipe, self._work, self._results, self._timeout_s
        process = self._context.Process(target=_run_worker, args=args)
        try:
            with without_interrupts():
                process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            wanted = "wanted work that can be pickled, such as a function of a module"
            raise ConfigError(f"got work {short(self._work)}: {error_text(error)}; {wanted}", at="$.workers") from error
        worker_pipe.close()
        grace_s = 0.0 if self._timeout_s == math.inf else self._timeout_s
        self._workers.append(_Worker(process, pipe, time.monotonic() + _START_S + grace_s))

    def _assign(self, worker: _Worker) -> None:
        if not (self._queue and worker.is_ready and worker.task is None and worker.process.is_alive()):
            return
        task, point = self._queue.popleft()
        try:
            worker.pipe.send((task, point))
        except OSError:  # the worker ended while idle; its sentinel is ready
            self._queue.appendleft((task, point))
            return
        worker.task, worker.began = task, time.monotonic()
        worker.deadline = worker.began + self._timeout_s

    def _receive(self, worker: _Worker) -> None:
        """Receive a worker's message, or notice its end."""
        was_alive, message = worker.process.is_alive(), None
        with suppress(EOFError, OSError):
            message = worker.pipe.recv() if worker.pipe.poll() else None
        if isinstance(message, Exception):
            raise message
        if message is not None:
            self._n_failed_starts, worker.is_ready, worker.deadline = 0, True, math.inf
            if isinstance(message, Ended):
                self._ends.put(message)
                worker.task = None
        elif not was_alive:
            self._replace(worker, "lost", f"its process ended, with status {worker.process.exitcode}")

    def _replace(self, worker: _Worker, status: Any, why: str) -> None:
        """End a worker and start another; its task is reported, as done if its result is on the disk."""
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
        self._workers.remove(worker)
        self._n_failed_starts += not worker.is_ready
        if self._n_failed_starts == _MOST_FAILED_STARTS or (status == "hung" and not worker.is_ready):
            raise ConfigError(f"worker processes do not start: {why}", at="$.workers")
        if worker.task is not None:
            stored = None if self._results is None else stored_result(self._results, worker.task)
            lost = Ended(worker.task, status, why, time.monotonic() - worker.began)
            self._ends.put(lost if stored is None else stored)
        self._start()


def _run_worker(pipe: Connection, work: Work, results: Path | None, grace_s: float) -> None:
    """Work of a process: tasks from the pipe, until it is closed."""
    begin_process(grace_s if results is not None else 0.0)
    with one_blas_thread():
        try:
            evaluate = make_evaluate(work)
        except SwarmboError as error:  # raised again in the calling process
            pipe.send(error)
            return
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # raised once the driver has ended
            pipe.send("ready")
            while True:
                end = evaluate_task(evaluate, *pipe.recv())
                try:
                    with suppress(OSError):  # if the disk is full, or the folder was deleted with its run
                        if results is not None:
                            store_result(results, end)
                    pipe.send(end)
                except _NOT_PLAIN as error:
                    pipe.send(end._replace(status="error", value=error_text(error)))
