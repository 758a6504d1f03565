"""A run in a process of its own, which is ended when a step of its world takes too long.

A thread cannot be ended, and a step may hang in compiled code that lets nothing else run; a process can be ended in
either case, on every system. What was logged is safe, so the next process goes on from the last checkpoint, as a
resumed run does, and records the round in which the world hung as failed. A world that takes its process down with it
is survived in the same way. No process that a run or a sweep starts outlives the one that started it.
"""

import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple, Protocol

import pettingzoo

from swarmbo.boundary.data_warnings import tell_in_one_line
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.records import RoundRecord
from swarmbo.runs.report import Summary
from swarmbo.runs.rounds import Heartbeat, OnRound
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.world import load_plug_ins


class Task(Protocol):
    """Work of a process on a run; it can be pickled."""

    def __call__(self, *, on_round: OnRound, failures: Mapping[int, str], heartbeat: Heartbeat) -> Summary:
        """Run to the end, telling of every round and step; ``failures`` are the rounds that are not tried again."""
        ...


class _Failed(NamedTuple):
    """A step that did not end: of which round, 0 for the reset, and what became of it."""

    round: int
    why: str


def attend(scenario: Scenario, first: Task, again: Task, on_round: OnRound) -> Summary:
    """Run in processes of their own, one after the other, until the run is complete.

    Args:
        scenario: Which states ``step_timeout_s``.
        first: What the first process does.
        again: What one does that goes on where the last was ended.
        on_round: Called after each round, in this process.

    Raises:
        ConfigError: If the world cannot be reset in time, or not be made in another process.
        RunFolderError: If a process is killed by somebody else.
        Exception: Whatever ends the run in its process.
    """
    failures, task = dict[int, str](), first
    while True:
        ended = _attend(scenario, partial(task, failures=failures), on_round)
        if not isinstance(ended, _Failed):
            return ended
        if ended.round == 0:
            raise ConfigError(f"its reset failed: {ended.why}; wanted observations and infos", at="$.environment")
        if ended.round in failures:  # and yet it was tried: it is in the log, with measurements
            raise RunFolderError(
                f"round {ended.round} is logged and did not come out again: {ended.why}; wanted a longer "
                "$.step_timeout_s, or a world that answers as it did: start the run again in another folder"
            )
        failures[ended.round] = ended.why
        task = again


def _attend(scenario: Scenario, task: Callable[..., Summary], on_round: OnRound) -> Summary | _Failed:
    assert scenario.step_timeout_s is not None, "a run without a time limit needs nobody to attend"
    step, deadline = None, None
    with spawned(scenario, "$.step_timeout_s", _work, task) as (receiving, process):
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if step is not None and not receiving.poll(left):
                return _Failed(step, f"no answer within {scenario.step_timeout_s:g} s")
            try:
                what, content = receiving.recv()
            except EOFError:
                process.join()
                if step is not None:
                    return _Failed(step, f"the world ended its process, with status {process.exitcode}")
                raise RunFolderError(
                    f"the process of this run was ended from outside, with status {process.exitcode}, perhaps for want "
                    "of memory; `swarmbo resume` goes on with it"
                ) from None
            if what == "step":
                step = content
                deadline = None if step is None else time.monotonic() + scenario.step_timeout_s
            elif what == "round":
                on_round(*content)
            elif what == "error":
                raise content
            else:
                return content


def _work(sending: Connection, task: Callable[..., Summary]) -> None:
    """Run a task, and tell of every round, of every step, and of the end."""

    def on_round(record: RoundRecord, was_logged: bool) -> None:
        sending.send(("round", (record, was_logged)))

    def heartbeat(step: int | None) -> None:
        sending.send(("step", step))

    try:
        sending.send(("end", task(on_round=on_round, heartbeat=heartbeat)))
    except BaseException as error:  # noqa: BLE001  it is raised again where the run was asked for
        sending.send(("error", _portable(error)))


def _portable(error: BaseException) -> BaseException:
    """An exception that can be sent, with the traceback that is lost on the way as a note."""
    note = traceback.format_exc()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001  a stranger's exception may refuse in any way
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(note)
    return error


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


@contextmanager
def spawned(
    scenario: Scenario, at: str, work: Callable[..., None], *arguments: Any
) -> Generator[tuple[Connection, BaseProcess]]:
    """A block beside which another process works, in which the world of a scenario is known; it ends with the block.

    Args:
        scenario: That names the world.
        at: What needs another process, for messages.
        work: What it does, with the end of a pipe to send by, and the arguments.
        *arguments: Of that, which can be pickled.

    Returns:
        The end of the pipe to receive by, and the process.

    Raises:
        ConfigError: If another process could not make the world.
    """
    identifier, entry_point = scenario.environment["id"], _entry_point(scenario, at)
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_begin, args=(sending, identifier, entry_point, work, arguments))
    with without_interrupts():
        process.start()
    sending.close()  # or the end of the other process would not be the end of the pipe
    try:
        yield receiving, process
    finally:
        process.kill()
        process.join()
        receiving.close()


def begin_process() -> None:
    """End with the process that started this one, warn in one line, and leave interrupts to that process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave_with_parent()
    tell_in_one_line()


def _entry_point(scenario: Scenario, at: str) -> Any:
    """Maker of the world, by the registry of this process; worlds of plug-ins are registered in every process."""
    load_plug_ins()
    identifier = scenario.environment["id"]
    known = pettingzoo.parallel_registry.get(identifier)
    entry_point = None if known is None else known.entry_point
    try:
        pickle.dumps(entry_point)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{identifier} cannot be made in a process of its own ({error}); wanted a world of a plug-in, or a class "
            "that can be imported",
            at=at,
        ) from error
    return entry_point


def _begin(
    sending: Connection, identifier: str, entry_point: Any, work: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    begin_process()
    load_plug_ins()
    if entry_point is not None and identifier not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", identifier, entry_point)
    work(sending, *arguments)
