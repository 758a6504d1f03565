"""Child processes, which receive no interrupt of the terminal and do not outlive their parent; warnings in one line.

Also the limit of BLAS to one thread, for decisions that are equal to the bit on any number of cores.
"""

import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from multiprocessing import parent_process, resource_tracker
from multiprocessing.connection import wait
from typing import Any

from threadpoolctl import ThreadpoolController

from swarmbo.errors import AimWarning, SwarmboWarning


def warn_in_one_line() -> None:
    """Show each ``SwarmboWarning`` as one line on standard error, until an enclosing ``catch_warnings()`` ends."""
    original, shown = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, SwarmboWarning):
            original(message, category, *place, **more)
        elif (line := " ".join(str(message).split())) not in shown:
            shown.add(line)
            sys.stderr.write(f"swarmbo: {line}\n")

    warnings.simplefilter("always", AimWarning)  # even if warnings are errors: a misfit stops no run
    warnings.showwarning = show


def begin_process(grace_s: float = 0.0) -> None:
    """Warn in one line, leave interrupts to the parent, and end ``grace_s`` after it ended in any way (``kill -9``)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None and grace_s < math.inf:
        threading.Thread(target=_wait_and_leave, args=(parent.sentinel, grace_s), daemon=True).start()
    warn_in_one_line()


@contextmanager
def without_interrupts() -> Generator[None]:
    """Block in which an interrupt waits until its end; processes started in it never receive one.

    They could not catch it while loading modules. On Windows, they ignore it once they have begun.
    """
    original, interrupts, old_mask = signal.getsignal(signal.SIGINT), list[Any](), None
    # the system may give it to another thread, which does not block it; Python handles it in the main thread
    handler = original if callable(original) and threading.current_thread() is threading.main_thread() else None
    if handler is not None:
        signal.signal(signal.SIGINT, lambda *interrupt: interrupts.append(interrupt))
    try:
        if hasattr(signal, "pthread_sigmask"):
            # Started with the first process, it would end the block in Python 3.11.
            resource_tracker.ensure_running()
            old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        yield
    finally:
        if old_mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        if handler is not None:
            signal.signal(signal.SIGINT, handler)
            for interrupt in interrupts[:1]:
                handler(*interrupt)


def one_blas_thread() -> AbstractContextManager[object]:
    """Block in which BLAS has one thread: with more, the last digits of decisions would depend on their number."""
    return _controller(len(sys.modules)).limit(limits=1, user_api="blas")


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """Handles of the libraries that are loaded; to look for them takes milliseconds, so only once more are loaded."""
    return ThreadpoolController()


def _wait_and_leave(sentinel: int, grace_s: float) -> None:
    wait([sentinel])
    time.sleep(grace_s)
    os._exit(1)
