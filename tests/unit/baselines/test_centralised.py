"""The centralised search: it finds what is there, and says that it exchanged nothing."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition import DuMBO, Thompson
from swarmbo.baselines import Centralised
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.errors import ConfigError
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.graph.box_functions import total_value
from swarmbo.problem.data import Dataset
from swarmbo.records import SolveReport, Traffic
from swarmbo.spaces import Domain

SCOPES = {"f": ["a"], "g": ["a", "b"]}


def functions_of(kind: Thompson | DuMBO, seed: int = 0) -> BoxFunctions:
    graph, rng = FactorGraph.from_scopes(SCOPES), np.random.default_rng(seed)
    X = rng.random((15, 2))
    y = np.sin(9.0 * X[:, 0]) + np.cos(7.0 * X.sum(axis=1))
    history, domain = Dataset(X, y, np.full((15, 2), np.nan)), Domain(np.zeros(2), np.ones(2))
    now = JointSituation(graph, domain, history, np.zeros((0, 2)), "total", None, 1, None, seed)
    return kind.local_functions(now, kind.learn(now, AdditiveGPSettings(), None))


@pytest.mark.parametrize("kind", [Thompson(), DuMBO(), DuMBO(coupled=True)], ids=["draw", "dumbo", "coupled"])
@pytest.mark.parametrize("seed", range(2))
def test_it_is_as_high_as_a_fine_grid_says(kind, seed) -> None:
    functions = functions_of(kind, seed)
    axis = np.linspace(0.0, 1.0, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    on_grid = total_value(functions, grid)
    found = Centralised().maximise(functions, seed=seed)
    # between two lattice points a smooth function rises by little more than between the highest of them
    assert on_grid.max() - 1e-9 <= found.value <= on_grid.max() + 0.01 * np.ptp(on_grid)
    assert found.value == pytest.approx(total_value(functions, found.point[None])[0], abs=1e-12)
    nearby = np.clip(found.point + 1e-3 * np.random.default_rng(seed).normal(size=(500, 2)), 0.0, 1.0)
    assert total_value(functions, nearby).max() <= found.value + 1e-7 * np.ptp(on_grid)  # a local maximum


def test_it_says_that_it_is_centralised_and_exchanged_nothing() -> None:
    found = Centralised(starts=2).maximise(functions_of(Thompson()))
    assert found.report == SolveReport(status="centralised", value=found.value, traffic=Traffic())


def test_the_seed_decides_and_more_starts_are_no_worse() -> None:
    functions = functions_of(Thompson())
    one, again = (Centralised(starts=3).maximise(functions, seed=5) for _ in range(2))
    assert one.point.tobytes() == again.point.tobytes()
    assert Centralised(starts=30).maximise(functions, seed=5).value >= one.value - 1e-12


def test_a_team_asks_by_it_but_not_as_agents() -> None:
    graph = sb.FactorGraph.from_scopes(SCOPES)
    for as_agents in (False, True):
        bounds, transport = {"a": (0.0, 1.0), "b": (-1.0, 1.0)}, sb.InProcess(as_agents=as_agents)
        team = sb.Team(graph, bounds, coordination="centralised", initial=2, seed=1, transport=transport)
        for _ in range(2):
            query = team.ask()
            team.tell(query, query.point["a"] - query.point["b"] ** 2)
        if as_agents:
            with pytest.raises(ConfigError, match="Centralised knows no agents"):
                team.ask()
        else:
            team.ask()
            assert team.last_report.status == "centralised"
