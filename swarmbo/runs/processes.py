"""Processes that a run or a sweep starts: none outlives the one that started it."""

import os
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait


def leave_with_parent() -> None:
    """End this process as soon as the one that started it has ended, however it did, even by ``kill -9``.

    A thread waits for the parent's end by what the system offers: the end of a pipe, or a handle of the process.
    A run that is ended so is resumed like any other.
    """
    parent = parent_process()
    if parent is not None:
        threading.Thread(target=_wait_and_leave, args=(parent.sentinel,), daemon=True).start()


def _wait_and_leave(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
