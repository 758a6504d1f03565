"""Running a scenario into a folder, and going on with a run that was interrupted.

Linear algebra runs on one thread: with more, the last bits of a product depend on how many there are, and a run that
was begun elsewhere would not resume to the same bytes. The matrices of a run are too small to gain from threads.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from swarmbo.errors import RunFolderError
from swarmbo.records import RoundRecord
from swarmbo.runs.attended import attend
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.limits import require_within_reason
from swarmbo.runs.lock import locked
from swarmbo.runs.policy import Policy
from swarmbo.runs.rounds import Drive, Heartbeat, Watcher, drive, reset
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.summary import Summary, read_summary
from swarmbo.runs.world import Environment, make_environment
from swarmbo.team import Team


def _ignore(record: RoundRecord, was_logged: bool) -> None:
    """Watch nothing."""


def _no_beat(step: int | None) -> None:
    """Nobody attends to the steps of the world."""


def run(scenario: Scenario, out: Path, *, force: bool = False, watch: Watcher = _ignore) -> Summary:
    """Run a scenario into a folder of its own.

    The seed of the scenario goes to ``env.reset`` and to the team, whose random streams carry other names than the
    world's. So methods that are compared at one seed share field, starts and noise.

    Args:
        scenario: What to run. With ``step_timeout_s`` it has a process of its own, in which the world must be known: as
            a plug-in, or by a class that can be imported.
        out: The folder; made if it is not there.
        force: Delete the run that lies there first, if there is one.
        watch: Called after each round.

    Returns:
        The summary; that of the folder if it holds this very run, complete.

    Raises:
        ConfigError: If the world refuses its settings; nothing is written then.
        RunFolderError: If the folder holds something else, or another process writes to it.
    """
    if RunFolder.holds_run(out) and not force and (summary := _ended(scenario, RunFolder.open(out))) is not None:
        return summary
    if scenario.step_timeout_s is None:
        return _run(scenario, out, force, watch, {}, _no_beat)
    return attend(scenario, partial(_run, scenario, out, force), partial(_resume, out), watch)


def resume(out: Path, *, watch: Watcher = _ignore) -> Summary:
    """Go on with a run that was interrupted, at whatever moment, as if it had never been.

    Rounds that were logged after the last checkpoint are run again and must come out equal to the byte.

    Args:
        out: The folder of the run.
        watch: Called after each round, replayed ones included.

    Returns:
        The summary; at once if the run is complete.

    Raises:
        RunFolderError: If there is no run, it was changed or damaged, or its rounds do not come out as logged.
    """
    folder = RunFolder.open(out)
    if (summary := read_summary(folder)) is not None:
        return summary
    scenario = folder.scenario()
    if scenario.step_timeout_s is None:
        return _resume(out, watch, {}, _no_beat)
    return attend(scenario, partial(_resume, out), partial(_resume, out), watch)


def assemble(scenario: Scenario) -> tuple[Environment, Policy]:
    """The world and the team of a scenario, not yet reset.

    Raises:
        ConfigError: If a setting is refused.
    """
    require_within_reason(scenario)
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
    reset(env, scenario.seed)


def _run(
    scenario: Scenario, out: Path, force: bool, watch: Watcher, failures: Mapping[int, str], heartbeat: Heartbeat
) -> Summary:
    with threadpool_limits(1, user_api="blas"):
        env, team = assemble(scenario)
        with locked(RunFolder.make(out)):
            # Only now is it certain what lies there: another process may have begun a run since, or ended one.
            if RunFolder.holds_run(out):
                there = RunFolder.open(out)
                if not force:
                    return _existing(scenario, there)
                there.clear()
            return drive(Drive(scenario, RunFolder.create(out, scenario), env, team, watch, failures, heartbeat))


def _resume(out: Path, watch: Watcher, failures: Mapping[int, str], heartbeat: Heartbeat) -> Summary:
    with threadpool_limits(1, user_api="blas"), locked(out):
        folder = RunFolder.open(out)
        if (summary := read_summary(folder)) is not None:  # another process was quicker
            return summary
        scenario = folder.scenario()
        env, team = assemble(scenario)
        return drive(Drive(scenario, folder, env, team, watch, failures, heartbeat))


def _ended(scenario: Scenario, folder: RunFolder) -> Summary | None:
    """The summary of this very run, if it is complete; what is not is looked at under its lock."""
    return read_summary(folder) if folder.scenario() == scenario else None


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
