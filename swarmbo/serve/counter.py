"""Desk of a scenario and its folder."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from swarmbo.runs.rounds import Drive, begin, no_beat, tell_nobody
from swarmbo.runs.runner import assemble
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.telling import telling
from swarmbo.runs.world import told_by_name
from swarmbo.serve.desk import Desk, Service
from swarmbo.serve.outcomes import Log
from swarmbo.serve.place import free, held, require_no_routes


@contextmanager
def opened(scenario: Scenario, out: Path, most_pending: int, trust: bool) -> Generator[Desk]:
    """Block with the desk of a scenario, whose folder is locked: a new one, or as it was when its process ended.

    Raises:
        ConfigError: If the scenario is refused.
        RunFolderError: If the folder holds something else, or another process writes to it.
    """
    with told_by_name(scenario):
        env, team = assemble(scenario, trust)
        require_no_routes(team)
    with held(scenario, out) as folder, told_by_name(scenario), telling(scenario, out, tell_nobody) as told:
        given = Drive(scenario, folder, env, team, told.on_round, {}, no_beat)
        begun = begin(given)
        truth = begun.truth
        known = None if truth is None or truth.at_round is not None or truth.goal != "peak" else float(truth.maximum)
        service = Service(scenario.name, scenario.seed, scenario.rounds, begun.labels.unit, known)
        log = Log(replace(given, team=free(scenario, team)) if team.problem.is_field else given, begun)
        desk = Desk(log.ledger(), service, most_pending)
        log.end()  # of a service that was killed when all queries were told
        yield desk
        log.end()
