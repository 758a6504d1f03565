"""A team with default settings goes on, whatever outcomes and points it is told."""

from collections.abc import Callable

import numpy as np
import pytest

import swarmbo as sb

GRAPH = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
BOUNDS = dict.fromkeys("xyz", (0.0, 1.0))

OUTCOMES: dict[str, Callable[[int, float], float | None]] = {
    "some-nan": lambda index, value: float("nan") if index % 3 == 0 else value,
    "some-infinite": lambda index, value: float("inf") if index % 3 == 0 else value,
    "some-minus-infinite": lambda index, value: -float("inf") if index % 3 == 0 else value,
    "all-failed": lambda index, value: None,
    "huge": lambda index, value: 1e12 * value,
    "tiny": lambda index, value: 1e-12 * value,
    "constant": lambda index, value: 2.0,
}


def parts(point: dict[str, float]) -> dict[str, float]:
    x, y, z = (point[name] for name in "xyz")
    return {"f": -((x - y) ** 2) - (y - 0.3) ** 2, "g": -((y - z) ** 2)}


def goes_on(team: sb.Team) -> None:
    twin = sb.Team.from_state_dict(team.state_dict())
    query, again = team.ask(), twin.ask()
    assert query.point == again.point
    assert all(0.0 <= value <= 1.0 for value in query.point.values())
    assert query.mean is not None
    assert query.std is not None
    assert np.isfinite([query.mean, query.std]).all()
    assert query.std >= 0.0
    assert team.last_report is not None
    assert team.last_report.status in ("converged", "max_rounds")


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_team_goes_on_to_the_bit_whatever_outcomes_are(kind, outcomes):
    team = sb.Team(GRAPH, bounds=BOUNDS, seed=0, initial=4, outcomes=outcomes)
    for index in range(6):
        query = team.ask()
        told = {factor: OUTCOMES[kind](index, value) for factor, value in parts(query.point).items()}
        if outcomes == "per-factor":
            team.tell(query, told)
        else:
            team.tell(query, OUTCOMES[kind](index, sum(parts(query.point).values())))
    goes_on(team)


def test_team_goes_on_after_300_duplicates():
    team = sb.Team(GRAPH, bounds=BOUNDS, seed=0)
    team.attach(np.full((300, 3), 0.5), np.full(300, 1.0))
    goes_on(team)


def test_team_goes_on_after_points_1e_12_apart():
    team = sb.Team(GRAPH, bounds=BOUNDS, seed=0, initial=2)
    team.attach([[0.5, 0.5, 0.5], [0.5 + 1e-12, 0.5, 0.5]], [1.0, 1.5])
    goes_on(team)


def test_team_goes_on_with_one_factor():
    team = sb.Team(sb.FactorGraph.from_scopes({"f": ["x", "y"]}), bounds={"x": (0.0, 1.0), "y": (0.0, 1.0)}, initial=2)
    team.attach([[0.1, 0.2], [0.8, 0.4], [0.5, 0.9]], [1.0, 0.0, 2.0])
    goes_on(team)
