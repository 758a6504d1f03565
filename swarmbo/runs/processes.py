"""Processes that a run or a sweep starts: none outlives the one that started it."""

import os
import signal
import threading
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import parent_process
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess


def leave_with_parent() -> None:
    """End this process as soon as the one that started it has ended, however it did, even by ``kill -9``.

    A thread waits for the parent's end by what the system offers: the end of a pipe, or a handle of the process.
    A run that is ended so is resumed like any other.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_leave, args=(parent.sentinel,), daemon=True).start()


@contextmanager
def without_interrupts() -> Generator[None]:
    """A block in which an interrupt waits until its end; processes that are started in it hear of none, ever.

    An interrupt at the terminal is for all processes at once, also for those that are still loading modules, where
    nothing can catch it. On Windows, which has no such block, they ignore it once they have begun.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_workers(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool at once; what they ran is resumed like any other run."""
    # Public only from Python 3.14 on, as kill_workers().
    workers: dict[int, BaseProcess] = getattr(pool, "_processes", None) or {}
    for worker in list(workers.values()):
        worker.kill()


def _wait_and_leave(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
