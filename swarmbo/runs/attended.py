"""A run in a process of its own, which is ended when a step of its world takes too long.

A thread cannot be ended, and a step may hang in compiled code that lets nothing else run; a process can be ended in
either case, on every system. What was logged is safe, so the next process goes on from the last checkpoint, as a
resumed run does, and records the round in which the world hung as failed. A world that takes its process down with it
is survived in the same way.
"""

import pickle
import signal
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, Protocol

import pettingzoo

from swarmbo.boundary.data_warnings import tell_in_one_line
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.records import RoundRecord
from swarmbo.runs.processes import leave_with_parent, without_interrupts
from swarmbo.runs.rounds import Heartbeat, OnRound
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.summary import Summary
from swarmbo.runs.world import load_plug_ins


class Task(Protocol):
    """What a process does to a run; it can be pickled."""

    def __call__(self, *, on_round: OnRound, failures: Mapping[int, str], heartbeat: Heartbeat) -> Summary:
        """Run to the end, telling of every round and step; ``failures`` are the rounds that are not tried again."""
        ...


class _Failed(NamedTuple):
    """A step that did not end: of which round, 0 for the reset, and what became of it."""

    round: int
    why: str


class NamedWorld(NamedTuple):
    """How the other process finds the world that the scenario names."""

    identifier: str
    entry_point: Any


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
    world = find_world(scenario, at="$.step_timeout_s")
    while True:
        ended = _attend(scenario, world, partial(task, failures=failures), on_round)
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


def _attend(
    scenario: Scenario, world: NamedWorld, task: Callable[..., Summary], on_round: OnRound
) -> Summary | _Failed:
    assert scenario.step_timeout_s is not None, "a run without a time limit needs nobody to attend"
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(sending, world, task))
    with without_interrupts():
        process.start()
    sending.close()  # or the end of the other process would not be the end of the pipe
    step, deadline = None, None
    try:
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
    finally:
        process.kill()
        process.join()
        receiving.close()


def find_world(scenario: Scenario, at: str) -> NamedWorld:
    """What the registry of this process knows of the world; worlds of plug-ins are registered in every process.

    Raises:
        ConfigError: If another process could not make it; ``at`` is what needs one.
    """
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
    return NamedWorld(identifier, entry_point)


def register_world(world: NamedWorld) -> None:
    """Make a world known in this process too."""
    load_plug_ins()
    if world.entry_point is not None and world.identifier not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", world.identifier, world.entry_point)


def _work(sending: Connection, world: NamedWorld, task: Callable[..., Summary]) -> None:
    """What the other process does: tell of every round, of every step, and of the end."""
    leave_with_parent()
    tell_in_one_line()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that attends
    register_world(world)

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
