"""Executors: they carry out tasks elsewhere, and report how each ended.

The protocol has three methods, so that an engine of one's own is a small class.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np

from swarmbo.boundary.files import naming, read_regular, read_seal, replacing, seal
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
