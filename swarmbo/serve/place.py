"""Desk of a served scenario and its folder."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.evaluations import Ledger
from swarmbo.routing import Routes
from swarmbo.runs import RunFolder, Scenario, rounds
from swarmbo.runs.runner import assemble
from swarmbo.runs.stored_files import locked
from swarmbo.runs.telling import telling
from swarmbo.runs.world import digests, told_by_name
from swarmbo.serve import desk
from swarmbo.serve.outcomes import Log
from swarmbo.team import Team


@contextmanager
def opened(scenario: Scenario, out: Path, most_pending: int, trust: bool) -> Generator[desk.Desk]:
    """Block with the desk of a scenario, whose folder is locked: a new one, or as it was when its process ended."""
    if scenario.policy is not None:
        raise ConfigError("got a policy; wanted none, as clients are asked what the team decides", at="$.policy")
    with told_by_name(scenario):
        env, team = assemble(scenario, trust)
        _require_no_routes(team)
    with _held(scenario, out) as folder, told_by_name(scenario), telling(scenario, out, rounds.ignore) as calls:
        given = rounds.Drive(scenario, folder, env, team, calls)
        begun = rounds.begin(given)
        truth = begun.truth
        known = None if truth is None or truth.at_round is not None or truth.goal != "peak" else float(truth.maximum)
        service = desk.Service(scenario.name, scenario.seed, scenario.rounds, begun.labels.unit, known)
        log = Log(replace(given, team=_free(scenario, team)) if team.problem.is_field else given, begun)
        made = desk.Desk(log.ledger(), service, most_pending)
        log.end()  # of a service that was killed when all queries were told
        yield made
        log.end()


@contextmanager
def _held(scenario: Scenario, out: Path) -> Generator[RunFolder]:
    """Block with the locked folder of a scenario, made or as it was left."""
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


def _require_no_routes(team: Team) -> None:
    """Refuse a planner of routes."""
    if isinstance(team.setup.coordination, Routes):
        raise ConfigError(
            "got a planner of routes, which needs the ways of a simulated world; wanted a kind that chooses locations, "
            "such as 'max-sum'",
            at="$.coordination.kind",
        )


def _free(scenario: Scenario, team: Team) -> Team:
    """Team of agents that may be anywhere in the box of a field, as no world moves them."""
    parts: tuple[str, ...] = ("belief", "acquisition", "coordination", "transport", "seed", "rounds")
    settings: dict[str, Any] = {part: getattr(scenario, part) for part in parts}
    return Team(team.problem, **settings)
