"""Running a scenario into a folder, and resuming an interrupted run.

Linear algebra uses one thread: with more, the last bits of a product depend on their number, and a run resumed on
another machine would not be bit-identical. The matrices of a run are too small to gain from threads.
"""

import os
from functools import partial
from pathlib import Path

import msgspec

from swarmbo.boundary.processes import one_blas_thread
from swarmbo.boundary.values import flat
from swarmbo.deciding.team_state import acquisition_in_words, warn_of_aim
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.evaluations import Ledger
from swarmbo.evaluations.engines import engine_of
from swarmbo.registry import FUNCTION
from swarmbo.runs.callbacks import make_callbacks
from swarmbo.runs.child_processes import entry_point_of, require_copyable, run_with_step_limit
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.ledger_rounds import run_with_workers
from swarmbo.runs.policies import PolicyTeam, make_policy
from swarmbo.runs.progress import run_hooks
from swarmbo.runs.reading import read_summary
from swarmbo.runs.report import Summary
from swarmbo.runs.rounds import Hooks, OnRound, RunParts, ignore, reset, run_rounds
from swarmbo.runs.scenario import Scenario, make_environment, require_practical_numbers
from swarmbo.runs.stored_files import ELSEWHERE, locked
from swarmbo.runs.world import Environment, code_digests, naming_user_code, require_trust, team_kind
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld


def run(
    scenario: Scenario,
    out: str | os.PathLike[str],
    *,
    force: bool = False,
    on_round: OnRound = ignore,
    progress: bool = False,
    trust: bool = False,
) -> Summary:
    """Run a scenario into a separate folder.

    The scenario's seed goes to ``env.reset`` and to the team, which draw from separate random streams. So methods
    compared at one seed share field, starts and noise.

    Args:
        scenario: Scenario to run. With ``step_timeout_s``, it runs in a separate process, which must be able to load
            the world: a plug-in, or a class that can be imported.
        out: The folder; created if missing.
        force: Delete an existing run there first.
        on_round: Called after each round with its record, and True if it was logged before. An exception ends the run,
            which can be resumed.
        progress: Show a bar on the terminal or in a notebook; plain lines elsewhere.
        trust: Permit user code that the scenario names.

    Returns:
        The summary; read from the folder if this run is complete there.

    Raises:
        ConfigError: If the world refuses its settings, or code is named without ``trust``; nothing is written then.
        OwnCodeError: If user code raises.
        RunFolderError: If the folder holds anything but this run, or another process writes to it.
    """
    require_trust(scenario, trust)
    path = Path(out)
    if not force and (summary := completed_summary(scenario, path, trust)) is not None:
        return summary
    with run_hooks(scenario, path, on_round, progress=progress) as hooks:
        start = partial(_run, scenario, path, force, trust)
        return run_with_step_limit(scenario, start, partial(_resume, path, trust), hooks)


def resume(
    out: str | os.PathLike[str], *, on_round: OnRound = ignore, progress: bool = False, trust: bool = False
) -> Summary:
    """Resume an interrupted run; the result is bit-identical to an uninterrupted one.

    Rounds that were logged after the last checkpoint are run again and must be bit-identical.

    Args:
        out: The folder of the run.
        on_round: As in ``run``; replayed rounds are included.
        progress: As in ``run``.
        trust: Permit user code that the scenario names; it must be unchanged.

    Returns:
        The summary; at once if the run is complete.

    Raises:
        RunFolderError: If there is no run, it or user code was changed, it is damaged, or rounds differ from the log.
        ConfigError: If it is not complete, and code is named without ``trust``.
        OwnCodeError: If user code raises.
    """
    folder = RunFolder.open(Path(out))
    path, scenario, summary = folder.path, folder.scenario(), read_summary(folder)
    if summary is None or trust:
        require_trust(scenario, trust)
        folder.require_same_code(code_digests(scenario))
    if summary is not None:
        return summary
    if (path / ELSEWHERE).exists():
        got = f"agents of its fleet measured with --measure (see {ELSEWHERE}), but here its environment would simulate"
        raise RunFolderError(f"{path}: {got}; wanted swarmbo.fleet.run.resume_fleet, or `swarmbo resume`")
    if scenario.workers is None and Ledger.is_in(path):
        got = "clients tell its outcomes, but here its environment would simulate further outcomes"
        raise RunFolderError(f"{path}: {got}; {folder.resume_hint}, with the scenario that it began with")
    with run_hooks(scenario, path, on_round, progress=progress) as hooks:
        task = partial(_resume, path, trust)
        return run_with_step_limit(scenario, task, task, hooks)


def assemble(scenario: Scenario, trust: bool = False, is_served: bool = False) -> tuple[Environment, Team]:
    """Make world and team of a scenario; workers are refused for a world whose copies may differ."""
    require_trust(scenario, trust)
    require_practical_numbers(scenario)
    env = make_environment(scenario, trust, is_served)
    try:
        team = (Team if scenario.policy is None else PolicyTeam).for_env(env, **scenario.team_settings)
    except ConfigError as error:
        is_function = error.at.endswith(".kind") and hasattr(env.unwrapped, "factor_graph")
        if not is_function or team_kind(scenario.environment, trust) == FUNCTION:
            raise
        fix = f"state one, or annotate {scenario.environment['id']} with the class that it returns"
        raise ConfigError(f"{error.message}; {fix}", error.at) from error
    if isinstance(team, PolicyTeam):
        team.follow_policy(make_policy(scenario.policy), env)
    elif isinstance(world := team.world, FieldWorld) and world.stated_task is None and "task" in scenario.environment:
        warn_of_aim(team.setup, world.task)  # the task may be the world's default
    if scenario.workers is not None:
        engine_of(scenario.workers, scenario.modules or ())
        reset(env, scenario.seed)
        require_copyable(env)
        entry_point_of(scenario, "$.workers")
    return env, team


def check(scenario: Scenario, trust: bool = False) -> str:
    """Build world and team and reset the world, so that any refusal of a run occurs here.

    Returns the acquisition in words.
    """
    with naming_user_code(scenario):
        make_callbacks(scenario.callbacks or ())
        env, team = assemble(scenario, trust)
        reset(env, scenario.seed)
        return acquisition_in_words(team.setup)


def _run(scenario: Scenario, out: Path, force: bool, trust: bool, hooks: Hooks) -> Summary:
    with one_blas_thread(), naming_user_code(scenario):
        env, team = assemble(scenario, trust)
        with locked(RunFolder.make(out)):
            # the content is certain only under the lock: another process may have begun or ended a run since
            if RunFolder.holds_run(out):
                there = RunFolder.open(out)
                if not force and (there.has_begun or there.scenario() != scenario):
                    return _summary_of_existing(scenario, there)
                there.clear()
            folder = RunFolder.create(out, scenario, code_digests(scenario))
            return _run_to_end(RunParts(scenario, folder, env, team, hooks), trust)


def _run_to_end(parts: RunParts, trust: bool) -> Summary:
    workers = parts.scenario.workers
    return run_rounds(parts) if workers is None else run_with_workers(parts, workers, trust)


def _resume(out: Path, trust: bool, hooks: Hooks) -> Summary:
    with one_blas_thread(), locked(out):
        folder = RunFolder.open(out)
        if (summary := read_summary(folder)) is not None:  # another process was faster
            return summary
        scenario = folder.scenario()
        with naming_user_code(scenario):
            env, team = assemble(scenario, trust)
            return _run_to_end(RunParts(scenario, folder, env, team, hooks), trust)


def completed_summary(scenario: Scenario, path: Path, trust: bool) -> Summary | None:
    """Summary of the run in a folder if it is this scenario's and complete; a partial run is checked later, locked."""
    if not RunFolder.holds_run(path) or (folder := RunFolder.open(path)).scenario() != scenario:
        return None
    if trust:
        folder.require_same_code(code_digests(scenario))
    return read_summary(folder)


def _summary_of_existing(scenario: Scenario, folder: RunFolder) -> Summary:
    there = folder.scenario()
    if there != scenario:
        before, now = (flat(msgspec.to_builtins(stated)) for stated in (there, scenario))
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        got = f"{folder.path}: holds another run (it differs in {', '.join(keys)})"
        raise RunFolderError(f"{got}; choose another --out, or replace it by `swarmbo run --force`")
    folder.require_same_code(code_digests(scenario))
    if (summary := read_summary(folder)) is None:
        got = f"{folder.path}: holds {len(folder.records()[1:])} of {scenario.rounds} rounds of this run"
        raise RunFolderError(f"{got}; {folder.resume_hint} with it, --force starts over")
    return summary
