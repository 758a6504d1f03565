"""The loop: reset, then act, step and observe; every round is written down before the next one begins.

Linear algebra runs on one thread: with more, the last bits of a product depend on how many there are, and a run that
was begun elsewhere would not resume to the same bytes. The matrices of a run are too small to gain from threads.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from swarmbo.errors import RunFolderError
from swarmbo.experiment.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from swarmbo.experiment.folder import RunFolder, Timing, versions
from swarmbo.experiment.lock import locked
from swarmbo.experiment.policy import Policy
from swarmbo.experiment.recording import record_reset, record_round
from swarmbo.experiment.references import reference_values
from swarmbo.experiment.scenario import Scenario
from swarmbo.experiment.scopes_in_use import scopes_in_use
from swarmbo.experiment.summary import Summary, read_summary, summarise
from swarmbo.experiment.world import Environment, make_environment
from swarmbo.experiment.world_record import keep_world, read_world
from swarmbo.records import GroundTruth, RoundRecord
from swarmbo.team import Team

Watcher = Callable[[RoundRecord, bool], None]  # the round, and whether it was logged before


def _ignore(record: RoundRecord, was_logged: bool) -> None:
    """Watch nothing."""


def run(scenario: Scenario, out: Path, *, force: bool = False, watch: Watcher = _ignore) -> Summary:
    """Run a scenario into a folder of its own.

    The seed of the scenario goes to ``env.reset`` and to the team, whose random streams carry other names than the
    world's. So methods that are compared at one seed share field, starts and noise.

    Args:
        scenario: What to run.
        out: The folder; made if it is not there.
        force: Delete the run that lies there first, if there is one.
        watch: Called after each round.

    Returns:
        The summary; that of the folder if it holds this very run, complete.

    Raises:
        ConfigError: If the world refuses its settings; nothing is written then.
        RunFolderError: If the folder holds something else, or another process writes to it.
    """
    if RunFolder.holds_run(out) and not force:
        return _existing(scenario, RunFolder.open(out))
    with threadpool_limits(1, user_api="blas"):
        env, team = assemble(scenario)
        if replaces := RunFolder.holds_run(out):
            with locked(out):
                RunFolder.open(out).clear()
        folder = RunFolder.create(out, scenario, among_others=replaces)
        with locked(out):
            return _drive(scenario, folder, env, team, watch)


def resume(out: Path, *, watch: Watcher = _ignore) -> Summary:
    """Go on with a run that was interrupted, at whatever moment, as if it had never been.

    Rounds that were logged after the last checkpoint are run again and must come out equal to the byte.

    Args:
        out: The folder of the run.
        watch: Called after each round, replayed ones included.

    Returns:
        The summary; at once if the run is complete.

    Raises:
        RunFolderError: If there is no run, or its rounds do not come out as logged.
    """
    folder = RunFolder.open(out)
    if (summary := read_summary(folder)) is not None:
        return summary
    scenario = folder.scenario()
    with threadpool_limits(1, user_api="blas"), locked(out):
        env, team = assemble(scenario)
        return _drive(scenario, folder, env, team, watch)


def assemble(scenario: Scenario) -> tuple[Environment, Policy]:
    """The world and the team of a scenario, not yet reset.

    Raises:
        ConfigError: If a setting is refused.
    """
    env = make_environment(scenario)
    team = Team.for_env(
        env,
        belief=scenario.belief,
        acquisition=scenario.acquisition,
        coordination=scenario.coordination,
        transport=scenario.transport,
        seed=scenario.seed,
        rounds=scenario.rounds,
    )
    return env, team


def check(scenario: Scenario) -> None:
    """Build the world and the team, reset the world, and stop: whatever a run would refuse is refused here.

    Raises:
        ConfigError: With the path of the setting.
    """
    env, _ = assemble(scenario)
    env.reset(seed=scenario.seed)


@dataclass(frozen=True)
class _Run:
    """What stays the same from round to round.

    Args:
        scenario: What to run.
        folder: Where it is written down.
        env: The world.
        team: In it; it changes as it learns.
        truth: The world's, where it tells.
        logged: Lines that an earlier process logged.
        watch: Called after each round.
    """

    scenario: Scenario
    folder: RunFolder
    env: Environment
    team: Policy
    truth: GroundTruth | None
    logged: list[bytes]
    watch: Watcher


@dataclass(frozen=True)
class _Moment:
    """Between two rounds: the last one, and what the world said at its end."""

    record: RoundRecord
    observations: Mapping[str, Any]
    infos: Mapping[str, Any]


def _existing(scenario: Scenario, folder: RunFolder) -> Summary:
    there = folder.scenario()
    if there != scenario:
        raise RunFolderError(
            f"{folder.path}: holds another run ({_differences(there, scenario)}); "
            "choose another --out, or --force to replace it"
        )
    if (summary := read_summary(folder)) is None:
        raise RunFolderError(
            f"{folder.path}: holds {len(folder.lines())} of {scenario.rounds + 1} rounds of this run; "
            f"`swarmbo resume {folder.path}` goes on with it, --force starts over"
        )
    return summary


def _differences(there: Scenario, wanted: Scenario) -> str:
    names = [name for name in Scenario.__struct_fields__ if getattr(there, name) != getattr(wanted, name)]
    return "it differs in " + ", ".join(names)


def _drive(scenario: Scenario, folder: RunFolder, env: Environment, team: Policy, watch: Watcher) -> Summary:
    folder.cut_torn_line()
    began = time.perf_counter()
    observations, infos = env.reset(seed=scenario.seed)
    reset_seconds = time.perf_counter() - began
    # Asked for after the reset: a world may draw its field there.
    truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    run = _Run(scenario, folder, env, team, truth, folder.lines(), watch)
    keep_world(folder, scenario, team, infos, truth)
    moment = _begin(run, observations, infos, reset_seconds)
    while moment.record.round < scenario.rounds and env.agents:
        moment = _round(run, moment)
    references, records = reference_values(scenario, env, team, truth), folder.records()
    scopes = scopes_in_use(records[-1], read_world(folder))
    summary = summarise(scenario, records, folder.timings(), truth, references, scopes)
    folder.write_json("summary.json", summary)
    return summary


def _begin(run: _Run, observations: Mapping[str, Any], infos: Mapping[str, Any], reset_seconds: float) -> _Moment:
    """Go to the last checkpoint that the log covers, or learn from what the reset brought."""
    env, team = run.env, run.team
    checkpoint = read_checkpoint(run.folder)
    if checkpoint is not None and checkpoint.round < len(run.logged):
        env.unwrapped.set_state(checkpoint.world)
        team.load_state_dict(checkpoint.team)
        record = msgspec.json.decode(run.logged[checkpoint.round], type=RoundRecord)
        return _Moment(record, dict.fromkeys(env.agents), {})
    began = time.perf_counter()
    team.begin(infos)
    team.refit()
    learned = time.perf_counter()
    record = record_reset(team, infos, run.truth)
    recorded = time.perf_counter()
    run.watch(record, _log(run, record, Timing(0, 0.0, reset_seconds, learned - began, recorded - learned)))
    return _Moment(record, observations, infos)


def _round(run: _Run, moment: _Moment) -> _Moment:
    env, team = run.env, run.team
    links = _links(env)
    began = time.perf_counter()
    actions = team.act(moment.observations, moment.infos)
    decided = time.perf_counter()
    observations, rewards, terminations, truncations, infos = env.step(actions)
    measured = time.perf_counter()
    team.observe(observations, rewards, terminations, truncations, infos)
    team.refit()
    learned = time.perf_counter()
    record = record_round(moment.record, team, actions, infos, links, run.truth)
    recorded = time.perf_counter()
    timing = Timing(record.round, decided - began, measured - decided, learned - measured, recorded - learned)
    was_logged = _log(run, record, timing)
    if not was_logged and hasattr(env.unwrapped, "get_state"):
        write_checkpoint(run.folder, Checkpoint(record.round, team.state_dict(), env.unwrapped.get_state()))
    run.watch(record, was_logged)
    return _Moment(record, {agent: observations[agent] for agent in env.agents}, infos)


def _log(run: _Run, record: RoundRecord, timing: Timing) -> bool:
    """Write a round down, or hold it against the line that is there; whether there was one."""
    line = msgspec.json.encode(record)
    if record.round >= len(run.logged):
        run.folder.append(line, timing)
        return False
    if line != run.logged[record.round]:
        then, now = run.folder.versions(), versions()
        changed = ", ".join(f"{name} {then.get(name)} -> {now[name]}" for name in now if then.get(name) != now[name])
        raise RunFolderError(
            f"{run.folder.path}: round {record.round} came out different from the line that was logged "
            f"({f'versions changed: {changed}' if changed else 'same versions, so the machine or the world changed'}); "
            "start it again in another folder"
        )
    return True


def _links(env: Environment) -> list[tuple[str, str]]:
    """Pairs of agents that hear each other, in the environment's order of agents."""
    if not hasattr(env.unwrapped, "interaction_graph"):
        return []
    rank = {agent: index for index, agent in enumerate(env.possible_agents)}
    pairs = [sorted(edge, key=rank.__getitem__) for edge in env.unwrapped.interaction_graph().edges]
    return [(first, second) for first, second in sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))]
