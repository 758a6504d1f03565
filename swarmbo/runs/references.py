"""What a joint run is held against: what simple ways, and one process for all, find with as many evaluations."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from swarmbo.records import GroundTruth, Recommendation
from swarmbo.runs.scenario import Scenario
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld

CENTRALISED = "one Gaussian process for all"
THIS_RUN = "this run"


@dataclass(frozen=True)
class References:
    """What a joint run is held against.

    Args:
        values: Best true value that other ways find, by name.
        worst_off: What those get who get least, by name of the way, this run first, and what it is; empty where the
            world can't tell.
    """

    values: dict[str, float] = field(default_factory=dict[str, float])
    worst_off: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])


def find_references(
    scenario: Scenario, env: Any, team: Team, truth: GroundTruth | None, best: Recommendation | None
) -> References:
    """What other ways find within the scenario's rounds, all of them without noise.

    Args:
        scenario: What was run.
        env: Its world. Only one that offers ``references(budget, seed)`` is asked, and what a process for all would
            find is worked out only where the truth is known; one that offers ``worst_off(place)`` and
            ``reference_points(budget, seed)`` also for those who get least.
        team: Of the run: for the variables. One in a field is held against nothing.
        truth: The world's.
        best: The best measurement of the run.
    """
    values, places, world = dict[str, float](), dict[str, Any](), team.world
    if best is not None:
        places[THIS_RUN] = best.location
    if isinstance(world, FunctionWorld) and hasattr(env.unwrapped, "references"):
        budget = {"budget": scenario.rounds, "seed": scenario.seed}
        values = {**env.unwrapped.references(**budget)}
        if hasattr(env.unwrapped, "reference_points"):
            places |= env.unwrapped.reference_points(**budget)
        if truth is not None:
            values[CENTRALISED], places[CENTRALISED] = _centralised(scenario, team, world, truth)
    if not hasattr(env.unwrapped, "worst_off"):
        return References(values)
    told: dict[str, dict[str, float]] = {label: env.unwrapped.worst_off(place) for label, place in places.items()}
    return References(values, {label: worst for label, worst in told.items() if worst})


def _centralised(scenario: Scenario, team: Team, world: FunctionWorld, truth: GroundTruth) -> tuple[float, np.ndarray]:
    """The isotropic process, told the true total of every point that it asks for: its best value, and where."""
    bounds = {
        v: (float(a), float(b)) for v, a, b in zip(team.graph.variables, team.domain.low, team.domain.high, strict=True)
    }
    alone = Team(None, bounds, coordination="isotropic-gp", seed=scenario.seed, rounds=scenario.rounds)
    best, where = -np.inf, np.zeros(0)
    for _ in range(scenario.rounds):
        query = alone.ask()
        place = np.array(world.place(query.point))
        value = float(truth.value(place[None])[0])
        alone.tell(query, value)
        if value > best:
            best, where = value, place
    return best, where
