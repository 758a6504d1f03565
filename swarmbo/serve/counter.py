"""Desk of a scenario and its folder: team, ledger and lock."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.evaluations import Ledger
from swarmbo.evaluations.ledger import LEDGER
from swarmbo.routing import RoutePlanner
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.rounds import Drive, begin, no_beat, tell_nobody
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.stored_files import locked
from swarmbo.runs.telling import telling
from swarmbo.runs.world import digests, told_by_name
from swarmbo.serve.desk import Desk, Service
from swarmbo.serve.outcomes import Log
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
    with (
        locked(RunFolder.make(out)),
        told_by_name(scenario),
        telling(scenario, out, tell_nobody) as told,
    ):
        folder = _folder(scenario, out)
        given = Drive(scenario, folder, env, team, told, {}, no_beat)
        begun = begin(given)
        truth = begun.truth
        known = None if truth is None or truth.at_round is not None or truth.goal != "peak" else float(truth.maximum)
        service = Service(scenario.name, scenario.seed, scenario.rounds, begun.labels.unit, known)
        if team.problem.is_field:
            yield Desk(_ledger_of_field(scenario, team, out), service, most_pending)
            return
        log = Log(given, begun)
        desk = Desk(log.ledger(), service, most_pending)
        log.end()  # of a service that was killed when all queries were told
        yield desk
        log.end()


def _folder(scenario: Scenario, out: Path) -> RunFolder:
    if not RunFolder.holds_run(out):
        return RunFolder.create(out, scenario, digests(scenario))
    folder = RunFolder.open(out)
    if folder.scenario() != scenario:
        raise RunFolderError(f"{out}: holds another run; choose another --out, or the scenario that it was begun with")
    folder.require_same_code(digests(scenario))
    if len(folder.lines()) > 1 and not (out / LEDGER).exists():
        raise RunFolderError(f"{out}: holds a run without a ledger; choose another --out")
    return folder


def _ledger_of_field(scenario: Scenario, team: Team, out: Path) -> Ledger:
    """Ledger of agents that may be anywhere in the box of a field, as no world moves them."""

    def free() -> Team:
        parts: tuple[str, ...] = ("belief", "acquisition", "coordination", "transport", "seed", "rounds")
        settings: dict[str, Any] = {part: getattr(scenario, part) for part in parts}
        return Team(team.problem, **settings)

    return Ledger.open(out, free) if (out / LEDGER).exists() else Ledger.create(out, free())
