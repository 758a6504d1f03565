"""Folder of a served scenario, and the team of a field."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.evaluations import Ledger
from swarmbo.routing import RoutePlanner
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.stored_files import locked
from swarmbo.runs.world import digests
from swarmbo.team import Team


@contextmanager
def held(scenario: Scenario, out: Path) -> Generator[RunFolder]:
    """Block with the locked folder of a scenario, made or as it was left.

    Raises:
        RunFolderError: If it holds something else, or another process writes to it.
    """
    with locked(RunFolder.make(out)):
        if not RunFolder.holds_run(out):
            yield RunFolder.create(out, scenario, digests(scenario))
            return
        folder = RunFolder.open(out)
        if folder.scenario() != scenario:
            raise RunFolderError(f"{out}: holds another run; choose another --out, or the scenario of that run")
        folder.require_same_code(digests(scenario))
        if len(folder.lines()) > 1 and not Ledger.is_in(out):
            raise RunFolderError(f"{out}: holds a run without a ledger; choose another --out")
        yield folder


def require_no_routes(team: Team) -> None:
    """Refuse a planner of routes.

    Raises:
        ConfigError: Then.
    """
    if isinstance(team.setup.coordination, RoutePlanner):
        raise ConfigError(
            "got a planner of routes, which needs the ways of a simulated world; wanted a kind that chooses locations, "
            "such as 'max-sum'",
            at="$.coordination.kind",
        )


def free(scenario: Scenario, team: Team) -> Team:
    """Team of agents that may be anywhere in the box of a field, as no world moves them."""
    parts: tuple[str, ...] = ("belief", "acquisition", "coordination", "transport", "seed", "rounds")
    settings: dict[str, Any] = {part: getattr(scenario, part) for part in parts}
    return Team(team.problem, **settings)
