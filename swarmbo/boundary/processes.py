"""Child processes, which ignore keyboard interrupts and end with their parent; warnings in one line.

Also a limit of BLAS to one thread, so that decisions are bit-identical on any number of cores.
"""

import math
import os
import pickle
import signal
import sys
import threading
import time
import traceback
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

    warnings.simplefilter("always", AimWarning)  # even if warnings are errors: an AimWarning stops no run
    warnings.showwarning = show


def begin_process(grace_s: float = 0.0) -> None:
    """Set up a child: warn in one line, ignore interrupts, end ``grace_s`` s after the parent, even if it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    if parent is not None and grace_s < math.inf:
        threading.Thread(target=_wait_and_leave, args=(parent.sentinel, grace_s), daemon=True).start()
    warn_in_one_line()


@contextmanager
def without_interrupts() -> Generator[None]:
    """Block that delays an interrupt until its end; processes started in it never receive an interrupt.

    They could not handle it while they load modules. On Windows, they ignore it after ``begin_process``.
    """
    original, interrupts, old_mask = signal.getsignal(signal.SIGINT), list[Any](), None
    # the system may deliver it to a thread that does not block it; Python then handles it in the main thread
    handler = original if callable(original) and threading.current_thread() is threading.main_thread() else None
    if handler is not None:
        signal.signal(signal.SIGINT, lambda *interrupt: interrupts.append(interrupt))
    try:
        if hasattr(signal, "pthread_sigmask"):
            # In Python 3.11, its start unblocks SIGINT, so it must not start with the first process.
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
    """Block in which BLAS has one thread, since the last digits of decisions depend on the number of threads."""
    return _controller(len(sys.modules)).limit(limits=1, user_api="blas")


@lru_cache(maxsize=1)
def _controller(modules: int) -> ThreadpoolController:
    """Handles of loaded libraries; a search takes milliseconds, so it is repeated only after more ``modules`` load."""
    return ThreadpoolController()


def picklable(error: BaseException) -> BaseException:
    """The exception that is being handled, or another if it cannot cross a pipe; a note has its traceback."""
    note = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  foreign exceptions may fail in any way
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(note)
    return error


def _wait_and_leave(sentinel: int, grace_s: float) -> None:
    wait([sentinel])
    time.sleep(grace_s)
    os._exit(1)
