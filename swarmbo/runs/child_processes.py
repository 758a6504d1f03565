"""Runs in a child process, which is killed when a step of the world takes too long; copies of a world for workers.

A thread cannot be killed; a process can, without loss of logged rounds. The next process resumes the run from its last
checkpoint and records the round in which the world hung or ended its process as failed. No child outlives its parent.
"""

import pickle
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import pettingzoo

from swarmbo.boundary import processes
from swarmbo.boundary.values import storable
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.evaluations import executor
from swarmbo.runs.report import Summary
from swarmbo.runs.rounds import Hooks, OnRound, reset
from swarmbo.runs.scenario import Scenario, make_environment
from swarmbo.runs.world import load_plug_ins
from swarmbo.worlds import FunctionWorld, Step

Task = Callable[[Hooks], Summary]  # picklable; runs from the state of a folder to the end
_AT = "$.environment"
# the keys of an agent's info that records and teams read
_INFO_KEYS = ("location", "measurement", "factors", "noise_std", "sampled", "cost", "distance", "source", "failure")


class _StepFailure(NamedTuple):
    """A step that hung or ended its process: its round (0 for the reset), and the reason."""

    round: int
    reason: str


def run_with_step_limit(scenario: Scenario, start: Task, resume: Task, hooks: Hooks) -> Summary:
    """Run to the end. With a time limit, ``start`` runs in a child process, and ``resume`` after each failed step."""
    # workers limit evaluations themselves
    if scenario.step_timeout_s is None or scenario.workers is not None:
        return start(hooks)
    reasons, task = dict[int, str](), start
    while True:
        result = _run_in_child(scenario, scenario.step_timeout_s, task, reasons, hooks.on_round)
        if not isinstance(result, _StepFailure):
            return result
        if result.round == 0:
            raise ConfigError(f"its reset failed: {result.reason}; wanted observations and infos", at=_AT)
        if result.round in reasons:  # repeated although it failed before, because the log has measurements of it
            wanted = "wanted a longer $.step_timeout_s, or the same outcomes as before"
            got = f"round {result.round} is logged and cannot be repeated: {result.reason}; {wanted}"
            raise RunFolderError(f"{got}. Start the run again in another folder")
        reasons[result.round] = result.reason
        task = resume


def _run_in_child(
    scenario: Scenario, timeout_s: float, task: Task, reasons: Mapping[int, str], on_round: OnRound
) -> Summary | _StepFailure:
    """Run a task in a child process until it ends or a step fails; ``reasons`` of earlier failures are by round."""
    step, deadline, checked_at = None, 0.0, 0.0
    with child_process(scenario, "$.step_timeout_s", _run_task, task, reasons) as (receiving, process):
        while True:
            while step is not None and not receiving.poll(min(max(0.0, deadline - checked_at), executor.CHECK_S)):
                now = time.monotonic()
                deadline, checked_at = deadline + max(0.0, now - checked_at - executor.LONGEST_CHECK_S), now
                if now > deadline:
                    return _StepFailure(step, f"no answer within {timeout_s:g} s")
            try:
                kind, content = receiving.recv()
            except EOFError:
                process.join()
                if step is not None:
                    return _StepFailure(step, f"the world ended its process, with status {process.exitcode}")
                got = f"the process of this run was ended from outside, with status {process.exitcode}"
                raise RunFolderError(f"{got}, perhaps for lack of memory; `swarmbo resume` continues it") from None
            if kind == "step":
                step, checked_at = content, time.monotonic()
                deadline = checked_at + timeout_s
            elif kind == "round":
                on_round(*content)
            elif kind == "error":
                raise content
            else:
                return content


def _run_task(sending: Connection, task: Task, reasons: Mapping[int, str]) -> None:
    """Run a task; send its rounds and steps as they occur, then its summary or its exception."""
    hooks = Hooks(
        on_round=lambda *logged: sending.send(("round", logged)),
        on_step=lambda step: sending.send(("step", step)),
        known_failures=reasons,
    )
    try:
        sending.send(("end", task(hooks)))
    except BaseException as error:  # noqa: BLE001  raised again in the calling process
        sending.send(("error", processes.picklable(error)))


@contextmanager
def child_process(
    scenario: Scenario, at: str, function: Callable[..., None], *arguments: Any
) -> Generator[tuple[Connection, BaseProcess]]:
    """Yield the receiving end of a pipe, and a child process that can make a scenario's world; kill it after the block.

    ``function`` gets the sending end and picklable arguments. ``at`` names the setting that needs the process.
    """
    identifier, entry_point = scenario.environment["id"], entry_point_of(scenario, at)
    context = get_context("spawn")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_child_main, args=(sending, identifier, entry_point, function, arguments))
    with processes.without_interrupts():
        process.start()
    sending.close()  # otherwise the pipe would stay open when the child ends
    try:
        yield receiving, process
    finally:
        process.kill()
        process.join()
        receiving.close()


def entry_point_of(scenario: Scenario, at: str) -> Any:
    """Entry point that makes the scenario's world, from this process's registry; None if it is not registered."""
    load_plug_ins()
    identifier = scenario.environment["id"]
    entry_point = getattr(pettingzoo.parallel_registry.get(identifier), "entry_point", None)
    try:
        pickle.dumps(entry_point)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        got = f"{identifier} cannot be made in a separate process ({error})"
        raise ConfigError(f"{got}; wanted an environment of a plug-in, or a class that can be imported", at) from error
    return entry_point


def _child_main(
    sending: Connection, identifier: str, entry_point: Any, function: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    processes.begin_process()
    register_world(identifier, entry_point)
    with processes.one_blas_thread():
        function(sending, *arguments)


def register_world(identifier: str, entry_point: Any) -> None:
    """Register a world of another process in this one, by its id and the result of ``entry_point_of``."""
    load_plug_ins()
    if entry_point is not None and identifier not in pettingzoo.parallel_registry:
        pettingzoo.register("parallel", identifier, entry_point)


@dataclass(frozen=True)
class CopiedWorld:
    """Work of a worker: evaluations in its own copy of the world, which ``entry_point`` makes."""

    scenario: Scenario
    entry_point: Any
    trust: bool

    def __call__(self) -> executor.Evaluate:
        """Make the function that evaluates points in the copy; after a step that raised, it uses a new copy."""
        register_world(self.scenario.environment["id"], self.entry_point)
        copy: tuple[Any, FunctionWorld] | None = self._make()

        def evaluate(task: str, point: Mapping[str, float]) -> Any:
            nonlocal copy
            env, world = copy or self._make()
            copy = None  # until the step has succeeded
            env.unwrapped.at_query(int(task.removeprefix("q")))
            infos = Step.of(env.step(world.actions(point, env.possible_agents))).infos
            copy = env, world
            return plain_infos(infos)

        return evaluate

    def _make(self) -> tuple[Any, FunctionWorld]:
        env = make_environment(self.scenario, self.trust)
        reset(env, self.scenario.seed)
        require_copyable(env)
        return env, FunctionWorld(env)


def require_copyable(env: Any) -> None:
    """Refuse a world, already reset, whose copies could return different outcomes for a point."""
    world, name = env.unwrapped, type(env.unwrapped).__name__
    if not hasattr(world, "factor_graph"):
        wanted = "wanted no workers, or a world whose agents set the variables of one function"
        raise ConfigError(f"got workers, but agents of {name} measure from where they are; {wanted}", at=_AT)
    if not hasattr(world, "at_query"):
        got = f"got workers, but {name} does not state that an outcome depends on the joint point alone"
        raise ConfigError(f"{got}; wanted no workers, or a method at_query(number) of the world", at=_AT)
    world.at_query(1)


def plain_infos(infos: Mapping[str, Any]) -> dict[str, Any]:
    """Infos of a step as plain data, restricted to the keys that records and teams read."""
    tables = {agent: info for agent, info in infos.items() if isinstance(info, Mapping)}
    return {agent: {key: storable(info[key]) for key in _INFO_KEYS if key in info} for agent, info in tables.items()}
