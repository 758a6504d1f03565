"""The loop: reset, then act, step and observe; every round is logged before the next one begins.

A round whose step raises or hangs is recorded with all measurements failed, and the world is set back.
"""

import copy
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from swarmbo.boundary.values import error_text
from swarmbo.deciding.team_state import acquisition_in_words, warn_of_aim
from swarmbo.errors import ConfigError, RunFolderError, TransportError
from swarmbo.evaluations.ledger import Event
from swarmbo.records import GroundTruth, Labels, RoundRecord
from swarmbo.runs.checkpoint import Checkpoint, State, read_checkpoint, write_checkpoint
from swarmbo.runs.folder import RunFolder, versions
from swarmbo.runs.recording import find_references, record_reset, record_round, summarise
from swarmbo.runs.report import Summary, WorkersReport
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.stored_files import Timing
from swarmbo.runs.world import Environment
from swarmbo.runs.world_record import keep_world, read_world, scopes_in_use
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld

OnRound = Callable[[RoundRecord, bool], None]  # the round, and True if it was logged before
Watch = Callable[[Event], None]  # each event of a run with workers
Heartbeat = Callable[[int | None], None]  # the round whose step begins, 0 for the reset; None when it has ended


def tell_nobody(record: RoundRecord, was_logged: bool) -> None:
    """Ignore a round: the default ``on_round``."""


def watch_nothing(event: Event) -> None:
    """Ignore an event: the default ``watch``."""


def no_beat(step: int | None) -> None:
    """Ignore a heartbeat: the default without supervision."""


@dataclass(frozen=True)
class Drive:
    """Parts of a run; the steps of rounds in ``failures`` are known to hang, and are not tried again."""

    scenario: Scenario
    folder: RunFolder
    env: Environment
    team: Team
    on_round: OnRound
    failures: Mapping[int, str]
    heartbeat: Heartbeat
    watch: Watch = watch_nothing


@dataclass(frozen=True)
class _Run(Drive):
    """Parts of a run that stay the same from round to round; ``failures`` has the logged ones too.

    ``logged`` are lines of an earlier process, ``steps`` actions of successful steps in a world without saved state.
    """

    truth: GroundTruth | None = None
    logged: Sequence[bytes] = ()
    steps: list[Mapping[str, np.ndarray]] = field(default_factory=list[Mapping[str, np.ndarray]])


@dataclass(frozen=True)
class _Standing:
    """State between two rounds; ``behind`` counts failed rounds, which did not advance the world."""

    record: RoundRecord
    observations: Mapping[str, Any]
    infos: Mapping[str, Any]
    state: State | None
    behind: int


@dataclass(frozen=True)
class _Answer:
    """Answer of the world to a step; empty by default, for a failed one."""

    observations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rewards: Mapping[str, float] = field(default_factory=dict[str, float])
    terminations: Mapping[str, bool] = field(default_factory=dict[str, bool])
    truncations: Mapping[str, bool] = field(default_factory=dict[str, bool])
    infos: Mapping[str, Any] = field(default_factory=dict[str, Any])
    failure: str | None = None


def drive(given: Drive) -> Summary:
    """Run from the state of the folder to the end."""
    begun = begin(given)
    logged = given.folder.lines()
    # the log takes precedence: a step may have ended, and been logged, just as its process was ended
    failures = {number: why for number, why in given.failures.items() if number >= len(logged)}
    failures |= {record.round: record.failure for record in given.folder.records() if record.failure is not None}
    common = (given.scenario, given.folder, given.env, given.team, given.on_round)
    run = _Run(*common, failures, given.heartbeat, truth=begun.truth, logged=logged)
    standing = _begin(run, begun)
    while standing.record.round < given.scenario.rounds and given.env.agents:
        standing = _round(run, standing)
    seen = None if begun.truth is None else begun.truth.late(standing.behind)
    return end(given, begun, seen)


@dataclass(frozen=True)
class Begun:
    """World of a run after its reset, which took ``seconds``."""

    observations: Mapping[str, Any]
    infos: Mapping[str, Any]
    truth: GroundTruth | None
    labels: Labels
    seconds: float


def begin(given: Drive) -> Begun:
    """Tidy the folder, reset the world, and keep it there."""
    scenario, folder, env, team = given.scenario, given.folder, given.env, given.team
    folder.sweep_out()
    began = time.perf_counter()
    given.heartbeat(0)
    observations, infos = reset(env, scenario.seed)
    given.heartbeat(None)
    seconds = time.perf_counter() - began
    # read after the reset: a world may draw its field there
    truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    labels = Labels.of(env, truth)
    if truth is not None and isinstance(team.world, FieldWorld) and team.world.task is None:
        warn_of_aim(team.setup, truth.goal)
    keep_world(folder, scenario, team, infos, truth, labels)
    return Begun(observations, infos, truth, labels, seconds)


def end(given: Drive, begun: Begun, truth: GroundTruth | None, workers: WorkersReport | UnsetType = UNSET) -> Summary:
    """Write and return the summary of a run; ``truth`` is that of its last round."""
    scenario, folder, team = given.scenario, given.folder, given.team
    records = folder.records()
    references = find_references(scenario, given.env, team, begun.truth, records[-1].best)
    scopes = scopes_in_use(records[-1], read_world(folder))
    chosen = acquisition_in_words(team.setup) if team.setup.chooses else UNSET
    summary = summarise(scenario, records, folder.timings(), truth, references, scopes, begun.labels, chosen)
    if not isinstance(workers, UnsetType):
        summary = msgspec.structs.replace(summary, seconds=workers.wall_s, workers=workers)
    folder.write_json("summary.json", summary)
    return summary


def reset(env: Environment, seed: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Reset a world; one that would end the process is refused."""
    try:
        observations, infos = env.reset(seed=seed)
    except SystemExit as error:
        raise ConfigError(
            f"its reset ended with {error_text(error)}; wanted observations and infos", "$.environment"
        ) from error
    return observations, infos


def _begin(run: _Run, begun: Begun) -> _Standing:
    """Restore the last checkpoint that the log covers, or learn from the reset."""
    env, team, infos = run.env, run.team, begun.infos
    checkpoint = read_checkpoint(run.folder)
    if checkpoint is not None and checkpoint.round < len(run.logged):
        env.unwrapped.set_state(checkpoint.world)
        team.load_state_dict(checkpoint.team)
        record = msgspec.json.decode(run.logged[checkpoint.round], type=RoundRecord)
        behind = sum(number <= checkpoint.round for number in run.failures)
        return _Standing(record, dict.fromkeys(env.agents), {}, _state_of(env), behind)
    began = time.perf_counter()
    team.begin(infos)
    team.refit()
    learned = time.perf_counter()
    record = record_reset(team, infos, run.truth)
    recorded = time.perf_counter()
    run.on_round(record, _log(run, record, Timing(0, 0.0, begun.seconds, learned - began, recorded - learned)))
    return _Standing(record, begun.observations, infos, _state_of(env), 0)


def _round(run: _Run, standing: _Standing) -> _Standing:
    env, team = run.env, run.team
    links = links_of(env)
    began = time.perf_counter()
    actions = team.act(standing.observations, standing.infos)
    decided = time.perf_counter()
    answer = _step(run, standing, actions)
    measured = time.perf_counter()
    team.observe(answer.observations, answer.rewards, answer.terminations, answer.truncations, answer.infos)
    team.refit()
    learned = time.perf_counter()
    behind = standing.behind + (answer.failure is not None)
    truth = None if run.truth is None else run.truth.late(behind)
    record = record_round(standing.record, team, actions, answer.infos, links, truth)
    record = msgspec.structs.replace(record, failure=answer.failure)
    recorded = time.perf_counter()
    timing = Timing(record.round, decided - began, measured - decided, learned - measured, recorded - learned)
    was_logged, state = _log(run, record, timing), _state_of(env)
    if not was_logged and state is not None:
        write_checkpoint(run.folder, Checkpoint(record.round, team.state_dict(), state))
    run.on_round(record, was_logged)
    if answer.failure is not None:
        return _Standing(record, dict.fromkeys(env.agents), {}, state, behind)
    return _Standing(record, {agent: answer.observations[agent] for agent in env.agents}, answer.infos, state, behind)


def _step(run: _Run, standing: _Standing, actions: Mapping[str, np.ndarray]) -> _Answer:
    number = standing.record.round + 1
    if (failure := run.failures.get(number)) is not None:
        return _Answer(failure=failure)
    run.heartbeat(number)
    try:
        observations, rewards, terminations, truncations, infos = run.env.step(actions)
    except TransportError:  # a disconnected agent of a fleet, not a failure of the world, which continued
        raise
    except (Exception, SystemExit) as error:
        if run.scenario.when_step_fails == "stop":
            raise
        _put_back(run, standing)
        return _Answer(failure=error_text(error))
    finally:
        run.heartbeat(None)
    if standing.state is None:
        run.steps.append(actions)
    return _Answer(observations, rewards, terminations, truncations, infos)


def _put_back(run: _Run, standing: _Standing) -> None:
    """Set a world that failed within a step back to its state before."""
    if standing.state is not None:
        run.env.unwrapped.set_state(standing.state)
        return
    reset(run.env, run.scenario.seed)
    for actions in run.steps:
        run.env.step(actions)


def _state_of(env: Environment) -> State | None:
    return copy.deepcopy(env.unwrapped.get_state()) if hasattr(env.unwrapped, "get_state") else None


def _log(run: _Run, record: RoundRecord, timing: Timing) -> bool:
    """Log a round, or compare it with the existing line; True if there was one."""
    line = msgspec.json.encode(record)
    if record.round >= len(run.logged):
        run.folder.append(line, timing)
        return False
    if line != run.logged[record.round]:
        then, now = run.folder.versions(), versions()
        changed = ", ".join(f"{name} {then.get(name)} -> {now[name]}" for name in now if then.get(name) != now[name])
        raise RunFolderError(
            f"{run.folder.path}: round {record.round} differs from the logged line "
            f"({f'versions changed: {changed}' if changed else 'same versions, so the machine or the world changed'}); "
            "start it again in another folder"
        )
    return True


def links_of(env: Environment) -> list[tuple[str, str]]:
    """Connected pairs of agents, in the environment's order of agents."""
    if not hasattr(env.unwrapped, "interaction_graph"):
        return []
    rank = {agent: index for index, agent in enumerate(env.possible_agents)}
    pairs = [sorted(edge, key=rank.__getitem__) for edge in env.unwrapped.interaction_graph().edges]
    return [(first, second) for first, second in sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))]
