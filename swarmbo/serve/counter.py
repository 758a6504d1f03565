"""Desk of a scenario and its folder: team, ledger and lock."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.evaluations import Ledger
from swarmbo.evaluations.ledger import LEDGER
from swarmbo.records import Labels
from swarmbo.routing import RoutePlanner
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.rounds import reset
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.stored_files import locked
from swarmbo.runs.world import digests, told_by_name
from swarmbo.serve.desk import Desk, Service
from swarmbo.team import Team


@contextmanager
def opened(scenario: Scenario, out: Path, most_pending: int, trust: bool) -> Generator[Desk]:
    """Block with the desk of a scenario, whose folder is locked: a new one, or as it was when its process ended.

    Raises:
        ConfigError: If the scenario is refused.
        RunFolderError: If the folder holds something else, or another process writes to it.
    """
    with told_by_name(scenario):
        env, team = assemble(scenario, trust)
        if isinstance(team.setup.coordination, RoutePlanner):
            raise ConfigError(
                "got a planner of routes, which needs the ways of a simulated world; wanted a kind that chooses "
                "places, such as 'max-sum'",
                at="$.coordination.kind",
            )
        reset(env, scenario.seed)  # some worlds draw their truth there
        truth = env.unwrapped.ground_truth() if hasattr(env.unwrapped, "ground_truth") else None
    labels = Labels.of(env, truth)
    maximum = None if truth is None or truth.at_round is not None or team.problem.aim != "peak" else truth.maximum
    service = Service(scenario.name, scenario.seed, scenario.rounds, labels.unit, maximum)
    with locked(RunFolder.make(out)), told_by_name(scenario):
        folder = _folder(scenario, out)
        has_ledger = (folder.path / LEDGER).exists()
        if folder.lines() and not has_ledger:
            raise RunFolderError(f"{out}: holds a run that was not served; choose another --out")
        if has_ledger:
            ledger = Ledger.open(out, lambda: _team(scenario, trust))
        else:
            ledger = Ledger.create(out, _team(scenario, trust))
        yield Desk(ledger, service, most_pending)


def _folder(scenario: Scenario, out: Path) -> RunFolder:
    if not RunFolder.holds_run(out):
        return RunFolder.create(out, scenario, digests(scenario))
    folder = RunFolder.open(out)
    if folder.scenario() != scenario:
        raise RunFolderError(f"{out}: holds another run; choose another --out, or the scenario that it was begun with")
    folder.require_same_code(digests(scenario))
    return folder


def _team(scenario: Scenario, trust: bool) -> Team:
    """Team of a scenario; in a field its agents may be anywhere in the box, as no world moves them."""
    _, team = assemble(scenario, trust)
    if not team.problem.is_field:
        return team
    parts: tuple[str, ...] = ("belief", "acquisition", "coordination", "transport", "seed", "rounds")
    settings: dict[str, Any] = {part: getattr(scenario, part) for part in parts}
    return Team(team.problem, **settings)
