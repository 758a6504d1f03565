"""Teams whose belief is an ensemble: ask and tell, batches, failures, resume, scenarios."""

import json

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.runs import load, run

SMALL = {"kind": "ensemble", "kernels": ["matern52", "rbf"], "lengthscales": [0.3, "fitted"], "n_features": 64}
GRAPH = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
BOUNDS = dict.fromkeys("xyz", (-1.0, 1.0))


def parts(point):
    x, y, z = (point[name] for name in "xyz")
    return {"f": -((x - y) ** 2) - (y - 0.3) ** 2, "g": -((y - z) ** 2)}


def team_of(acquisition="egp-ts", outcomes="total", graph=GRAPH, **more):
    settings = {"belief": {**SMALL, "refit_every": 5}, "seed": 2, "initial": 6, **more}
    return sb.Team(graph, BOUNDS, acquisition=acquisition, outcomes=outcomes, **settings)


def tell(team, query):
    told = parts(query.point)
    team.tell(query, told if team.outcomes == "per-factor" else sum(told.values()))


def points(queries):
    return [list(query.point.values()) for query in queries]


@pytest.mark.parametrize(
    ("acquisition", "outcomes"),
    [
        ("egp-ts", "total"),
        ("egp-ei", "per-factor"),
        pytest.param("thompson", "per-factor", marks=pytest.mark.thorough),
        pytest.param("dumbo", "total", marks=pytest.mark.thorough),
    ],
)
def test_a_resumed_team_goes_on_to_the_bit(acquisition, outcomes) -> None:
    team = team_of(acquisition, outcomes)
    for _ in range(8):
        tell(team, team.ask())
    lost = team.ask()
    team.tell(lost, None)
    team.ask()  # stays out
    state = team.state_dict()
    plain = {"json": json.loads(json.dumps(state["json"])), "arrays": state["arrays"]}
    twin = sb.Team.from_state_dict(plain)
    for _ in range(4):
        ours, theirs = team.ask(), twin.ask()
        assert ours == theirs
        tell(team, ours)
        tell(twin, theirs)
    assert team.recommend() == twin.recommend()


def test_asking_what_to_recommend_changes_no_later_decision() -> None:
    quiet, curious = team_of(), team_of()
    for _ in range(14):
        a, b = quiet.ask(), curious.ask()
        assert a == b
        tell(quiet, a)
        tell(curious, b)
        curious.recommend()


@pytest.mark.parametrize("acquisition", ["egp-ts", "egp-ei"])
def test_points_of_a_batch_differ_and_later_ones_are_surer(acquisition) -> None:
    team = team_of(acquisition)
    for _ in range(6):
        tell(team, team.ask())
    batch = team.ask(4)
    table = np.array(points(batch))
    assert min(np.abs(table[i] - table[j]).max() for i in range(4) for j in range(i)) > 1e-4
    for query in reversed(batch):
        tell(team, query)
    assert team.n_data == 10


@pytest.mark.parametrize("acquisition", ["egp-ei", pytest.param("egp-ts", marks=pytest.mark.thorough)])
def test_teams_find_the_maximum_of_a_simple_function(acquisition) -> None:
    for outcomes, graph in (("total", None), ("per-factor", GRAPH)):
        team = team_of(acquisition, outcomes, graph)
        for _ in range(26):
            tell(team, team.ask())
        assert sum(parts(team.recommend().point).values()) > -0.03


def test_evaluations_that_were_attached_are_learned() -> None:
    team = team_of()
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (8, 3))
    y = [sum(parts(dict(zip("xyz", row, strict=True))).values()) for row in X]
    y[3] = np.nan
    team.attach(X, y)
    assert team.ask().mean is not None  # not of the initial design
    assert team.model.ensemble.parts[0].models.n_rows == 7


def test_agents_with_real_messages_agree_on_the_same_point() -> None:
    for outcomes in ("total", "per-factor"):
        whole, agents = team_of(outcomes=outcomes), team_of(outcomes=outcomes, transport=sb.InProcess(as_agents=True))
        for _ in range(8):
            a, b = whole.ask(), agents.ask()
            assert a == b
            tell(whole, a)
            tell(agents, b)
        assert whole.last_report.traffic == agents.last_report.traffic


def test_kinds_that_do_not_go_together_are_refused_with_what_does() -> None:
    with pytest.raises(ConfigError, match=r"belief.kind.*got 'additive' with acquisition 'egp-ts'; wanted 'ensemble'"):
        sb.Team(GRAPH, BOUNDS, acquisition="egp-ts")
    with pytest.raises(ConfigError, match=r"acquisition.kind.*got 'auto'.*'egp-ts', 'egp-ei'"):
        sb.Team(GRAPH, BOUNDS, belief="ensemble")


def test_a_scenario_takes_an_ensemble_by_overrides_and_runs(tmp_path) -> None:
    kinds = ["belief.kind=ensemble", "acquisition.kind=egp-ts", "rounds=12"]
    more = ["belief.n_features=32", 'belief.lengthscales=[0.2, "fitted"]']
    scenario = load("hartmann", kinds + more)
    assert scenario.belief.lengthscales == (0.2, "fitted")
    summary = run(scenario, tmp_path / "run")
    assert summary.rounds == 12
