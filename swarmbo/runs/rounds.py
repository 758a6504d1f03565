"""The loop: reset, then act, step and observe; every round is logged before the next one begins.

A round whose step raises or hangs is recorded with all measurements failed, and the world's state is restored.
"""

import copy
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from swarmbo import metrics
from swarmbo.boundary.values import error_text, short
from swarmbo.deciding.team_state import acquisition_in_words, warn_of_aim
from swarmbo.errors import ConfigError, RunFolderError, TransportError
from swarmbo.evaluations.ledger import Event
from swarmbo.records import GroundTruth, Labels, RoundRecord
from swarmbo.runs import states
from swarmbo.runs.folder import RunFolder, versions
from swarmbo.runs.recording import find_references, record_reset, record_round, summarise
from swarmbo.runs.report import MOST_COORDINATES, Summary, WorkersReport
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.states import State
from swarmbo.runs.stored_files import ELSEWHERE, Timing
from swarmbo.runs.world import Environment
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld, FunctionWorld, Step

OnRound = Callable[[RoundRecord, bool], None]  # the round, and True if it was logged before
OnEvent = Callable[[Event], None]  # each event of a run with workers
OnStep = Callable[[int | None], None]  # the round whose step begins, 0 for the reset; None when it has ended


def ignore(*_: object) -> None:
    """Default of hooks: do nothing."""


@dataclass(frozen=True)
class Hooks:
    """Functions that a run calls. Steps of rounds in ``known_failures``, with their reasons, are not tried again."""

    on_round: OnRound = ignore
    on_event: OnEvent = ignore
    on_step: OnStep = ignore
    known_failures: Mapping[int, str] = field(default_factory=dict[int, str])


@dataclass(frozen=True)
class RunParts:
    """Parts of a run: its settings and folder, the world and the team, and functions to be called."""

    scenario: Scenario
    folder: RunFolder
    env: Environment
    team: Team
    hooks: Hooks = Hooks()


def run_rounds(parts: RunParts) -> Summary:
    """Run from the state of the folder to the end."""
    start = start_run(parts)
    loop = _RoundLoop(parts, start)
    while loop.last_record.round < parts.scenario.rounds and parts.env.agents:
        loop.run_round()
    return finish_run(parts, start, None if start.truth is None else start.truth.delayed(loop.n_failed))


@dataclass(frozen=True)
class RunStart:
    """World of a run after its reset, which took ``seconds``."""

    observations: Mapping[str, Any]
    infos: Mapping[str, Any]
    truth: GroundTruth | None
    labels: Labels
    seconds: float


def start_run(parts: RunParts) -> RunStart:
    """Tidy the folder, reset the world, and write its record."""
    scenario, folder, env, team = parts.scenario, parts.folder, parts.env, parts.team
    folder.remove_partial_files()
    reset_at = time.perf_counter()
    parts.hooks.on_step(0)
    observations, infos = reset(env, scenario.seed)
    parts.hooks.on_step(None)
    seconds = time.perf_counter() - reset_at
    # read after the reset: a world may draw its field there
    truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    aim = {} if team.problem.aim == "peak" else {"goal": team.problem.aim, "level": team.problem.level}  # if stated
    names = team.world.variables if isinstance(team.world, FunctionWorld) else ()
    truth = truth and truth.changed(lambda then: replace(metrics.within_rules(then, team.problem, names), **aim))
    labels = Labels.of(env, truth)
    if truth is not None and isinstance(team.world, FieldWorld) and team.world.task is None:
        warn_of_aim(team.setup, truth.goal)
    states.write_world(folder, scenario, team, infos, truth, labels)
    return RunStart(observations, infos, truth, labels, seconds)


def finish_run(
    parts: RunParts, start: RunStart, truth: GroundTruth | None, workers: WorkersReport | UnsetType = UNSET
) -> Summary:
    """Write and return the summary of a run; ``truth`` is the ground truth in its last round."""
    scenario, folder, team = parts.scenario, parts.folder, parts.team
    records = folder.records()
    values, worst_off = find_references(scenario, parts.env, team, start.truth, records[-1].best)
    scopes = states.scopes_in_use(records[-1], states.read_world(folder))
    chosen = acquisition_in_words(team.setup) if team.setup.chooses else UNSET
    seconds = workers.wall_s if workers else sum(timing.total for timing in folder.timings())
    summary = msgspec.structs.replace(
        summarise(scenario, records, start.labels, truth, seconds),
        **{"references": values, "worst_off": worst_off, "scopes": scopes, "acquisition": chosen, "workers": workers},
        sides=(team.problem.box.high - team.problem.box.low)[:MOST_COORDINATES].tolist(),
    )
    folder.write_json("summary.json", summary)
    return summary


def reset(env: Environment, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Reset a world; a world that would end the process is refused."""
    try:
        returned = env.reset(seed=seed)
    except SystemExit as error:
        got = f"its reset ended with {error_text(error)}"
        raise ConfigError(f"{got}; wanted observations and infos", "$.environment") from error
    if not isinstance(returned, tuple | list) or len(returned) != 2:
        raise ConfigError(f"reset() returned {short(returned)}; wanted observations and infos", "$.environment")
    return returned[0], returned[1]


class _RoundLoop:
    """Rounds of a run, from the last checkpoint that the log covers, or from the reset.

    ``n_failed`` counts failed rounds, which did not advance the world.
    """

    def __init__(self, parts: RunParts, start: RunStart) -> None:
        self._parts, self._truth = parts, start.truth
        self._past_actions: list[Mapping[str, np.ndarray]] = []  # for a world without get_state()
        log, checkpoint = parts.folder.log(), states.read_checkpoint(parts.folder)
        is_ahead = checkpoint is not None and checkpoint.round == len(log.lines) and bool(checkpoint.line)
        if checkpoint is not None and is_ahead:  # its process ended before the line was logged
            parts.folder.append(checkpoint.line.encode())  # how long it took is lost
            log = parts.folder.log()
        self._logged_lines = log.lines
        # the log takes precedence: a step may have ended and been logged just before its process was killed
        known = parts.hooks.known_failures
        self._failures = {number: reason for number, reason in known.items() if number >= len(log.lines)}
        self._failures |= {record.round: record.failure for record in log.records if record.failure}
        # a policy may have a memory, which checkpoints lack, so it acts again from the first round
        if checkpoint is not None and parts.scenario.policy is None and checkpoint.round < len(log.lines):
            self._restore(checkpoint, log.records[checkpoint.round])
            if is_ahead:  # the hook has not received it yet
                parts.hooks.on_round(self.last_record, False)
        else:
            self._begin(start)

    def _restore(self, checkpoint: states.Checkpoint, record: RoundRecord) -> None:
        env = self._parts.env
        env.unwrapped.set_state(checkpoint.world)
        self._parts.team.load_state_dict(checkpoint.team)
        self.last_record = record
        self.n_failed = sum(number <= checkpoint.round for number in self._failures)
        self._observations, self._infos = dict[str, Any].fromkeys(env.agents), dict[str, Any]()
        self._world_state = _world_state_of(env)

    def _begin(self, start: RunStart) -> None:
        """Learn and log the measurements at reset."""
        parts = self._parts
        self._world_state = _world_state_of(parts.env)
        self._observations, self._infos, self.n_failed = start.observations, start.infos, 0
        started = time.perf_counter()
        parts.team.begin(start.infos)
        parts.team.refit()
        learned = time.perf_counter()
        self.last_record = record_reset(parts.team, start.infos, self._truth)
        timing = Timing(0, 0.0, start.seconds, learned - started, time.perf_counter() - learned)
        # agents that measured elsewhere are not asked again for what they measured in the reset
        log = self._log_with_checkpoint if (parts.folder.path / ELSEWHERE).exists() else self._log
        parts.hooks.on_round(self.last_record, log(timing))

    def run_round(self) -> None:
        env, team = self._parts.env, self._parts.team
        links, started = links_of(env), time.perf_counter()
        actions = team.act(self._observations, self._infos)
        decided = time.perf_counter()
        step, failure = self._step(actions)
        measured = time.perf_counter()
        team.observe(*step)
        team.refit()
        learned = time.perf_counter()
        self.n_failed += failure is not None
        truth = None if self._truth is None else self._truth.delayed(self.n_failed)
        record = record_round(self.last_record, team, actions, step.infos, links, truth)
        self.last_record = record = msgspec.structs.replace(record, failure=failure)
        times = (decided - started, measured - decided, learned - measured, time.perf_counter() - learned)
        self._world_state = _world_state_of(env)
        self._parts.hooks.on_round(record, self._log_with_checkpoint(Timing(record.round, *times)))
        previous = self._observations
        self._observations = {agent: step.observations.get(agent, previous.get(agent)) for agent in env.agents}
        self._infos = step.infos

    def _step(self, actions: Mapping[str, np.ndarray]) -> tuple[Step, str | None]:
        """Result of the world's step; after a failure, an empty result and the reason."""
        parts, number, nothing = self._parts, self.last_record.round + 1, Step({}, {}, {}, {}, {})
        if (failure := self._failures.get(number)) is not None:
            return nothing, failure
        parts.hooks.on_step(number)
        try:
            step = Step.of(parts.env.step(actions))
        except TransportError:  # an agent of a fleet is disconnected; the world did not fail
            raise
        except (Exception, SystemExit) as error:
            if parts.scenario.when_step_fails == "stop":
                raise
            if self._world_state is not None:
                parts.env.unwrapped.set_state(self._world_state)
            else:
                reset(parts.env, parts.scenario.seed)
                for past in self._past_actions:
                    parts.env.step(past)
            return nothing, error_text(error)
        finally:
            parts.hooks.on_step(None)
        if self._world_state is None:
            self._past_actions.append(actions)
        return step, None

    def _log_with_checkpoint(self, timing: Timing) -> bool:
        """Log the last round, and write a checkpoint if it is new; True if it was logged before.

        The checkpoint is written first and contains the line, so that no logged round needs a replay. If it cannot be
        written, the line is logged all the same.
        """
        record, world_state = self.last_record, self._world_state
        if record.round < len(self._logged_lines) or world_state is None:
            return self._log(timing)
        line = msgspec.json.encode(record).decode()
        checkpoint = states.Checkpoint(record.round, self._parts.team.state_dict(), world_state, line)
        try:
            states.write_checkpoint(self._parts.folder, checkpoint)
        except OSError:
            self._log(timing)
            raise
        return self._log(timing)

    def _log(self, timing: Timing) -> bool:
        """Log the last round, or compare it with the existing line; True if there was one."""
        line, number, folder = msgspec.json.encode(self.last_record), self.last_record.round, self._parts.folder
        if number >= len(self._logged_lines):
            folder.append(line, timing)
            return False
        if line != self._logged_lines[number]:
            then, now = folder.versions(), versions()
            changed = [f"{name} {then.get(name)} -> {new}" for name, new in now.items() if then.get(name) != new]
            why = "same versions, so the machine or the world changed"
            if changed:
                why = f"versions changed: {', '.join(changed)}"
            elif not hasattr(self._parts.env.unwrapped, "get_state"):
                why = "a world without get_state() is played again from the start, and must measure the same"
            got = f"{folder.path}: round {number} differs from the logged line ({why})"
            raise RunFolderError(f"{got}; start it again in another folder")
        return True


def _world_state_of(env: Environment) -> State | None:
    """Complete state of a world; None if it has no ``get_state()``."""
    world = env.unwrapped
    if not hasattr(world, "get_state"):
        return None
    state = copy.deepcopy(world.get_state())
    if not isinstance(state, dict) or set(state) != {"json", "arrays"} or not hasattr(world, "set_state"):
        wanted = "wanted {'json': plain data, 'arrays': {name: array}}, and a method set_state(state) that takes it"
        raise ConfigError(f"get_state() returned {short(state)}; {wanted}", at="$.environment")
    return state


def links_of(env: Environment) -> list[tuple[str, str]]:
    """Connected pairs of agents, in the environment's order of agents."""
    if not hasattr(env.unwrapped, "interaction_graph"):
        return []
    agents, edges = env.possible_agents, env.unwrapped.interaction_graph().edges()
    rank = {agent: index for index, agent in enumerate(agents)}
    pairs = [(rank[a], rank[b]) for a, b in edges if a in rank and b in rank]
    return [(agents[first], agents[second]) for first, second in sorted({(min(pair), max(pair)) for pair in pairs})]
