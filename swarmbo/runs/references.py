"""What a joint run is held against: what simple ways, and one process for all, find with as many evaluations."""

from typing import Any

import numpy as np

from swarmbo.records import GroundTruth
from swarmbo.runs.scenario import Scenario
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld

CENTRALISED = "one Gaussian process for all"


def reference_values(scenario: Scenario, env: Any, team: Team, truth: GroundTruth | None) -> dict[str, float]:
    """The best true value that other ways find within the scenario's rounds, by name; all of them without noise.

    Args:
        scenario: What was run.
        env: Its world. Only one that offers ``references(budget, seed)`` is asked, and only of a known truth.
        team: Of the run: for the variables.
        truth: The world's.
    """
    if truth is None or not hasattr(env.unwrapped, "references"):
        return {}
    found: dict[str, float] = env.unwrapped.references(budget=scenario.rounds, seed=scenario.seed)
    return found | {CENTRALISED: _centralised(scenario, team, truth)}


def _centralised(scenario: Scenario, team: Team, truth: GroundTruth) -> float:
    """The isotropic process, told the true total of every point that it asks for."""
    bounds = {
        v: (float(a), float(b)) for v, a, b in zip(team.graph.variables, team.domain.low, team.domain.high, strict=True)
    }
    alone = Team(None, bounds, coordination="isotropic-gp", seed=scenario.seed, rounds=scenario.rounds)
    best, world = -np.inf, team.world
    assert isinstance(world, FunctionWorld), "its world has references"
    for _ in range(scenario.rounds):
        query = alone.ask()
        value = float(truth.value(np.array([world.place(query.point)]))[0])
        alone.tell(query, value)
        best = max(best, value)
    return best
