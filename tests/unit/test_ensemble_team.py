"""Teams whose belief is an ensemble: ask and tell, batches, failures, resume, scenarios."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.runs import load, run

from .teams import CHAIN, ask_and_tell, springs

SMALL = {"kind": "ensemble", "kernels": ["matern52", "rbf"], "lengthscales": [0.3, "fitted"], "n_features": 64}
BOUNDS = dict.fromkeys("xyz", (-1.0, 1.0))


def team_of(acquisition="egp-ts", outcomes="total", graph=CHAIN, **more):
    settings = {"belief": {**SMALL, "refit_every": 5}, "seed": 2, "initial": 6, **more}
    return sb.Team(graph, BOUNDS, acquisition=acquisition, outcomes=outcomes, **settings)


@pytest.mark.parametrize("acquisition", ["egp-ei", pytest.param("egp-ts", marks=pytest.mark.slow)])
def test_teams_find_the_maximum_of_a_simple_function(acquisition) -> None:
    for outcomes, graph in (("total", None), ("per-factor", CHAIN)):
        team = team_of(acquisition, outcomes, graph)
        ask_and_tell(team, 26, springs)
        assert sum(springs(team.recommend().point).values()) > -0.03


def test_attached_evaluations_are_learned() -> None:
    team = team_of()
    X = np.random.default_rng(0).uniform(-1.0, 1.0, (8, 3))
    y = [sum(springs(dict(zip("xyz", row, strict=True))).values()) for row in X]
    y[3] = np.nan
    team.attach(X, y)
    assert team.ask().mean is not None  # so it is not a point of the initial design
    assert team.model.ensemble.parts[0].models.n_rows == 7


def test_kinds_that_do_not_fit_together_are_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match=r"belief.kind.*got 'additive' with acquisition 'egp-ts'; wanted 'ensemble'"):
        sb.Team(CHAIN, BOUNDS, acquisition="egp-ts")
    with pytest.raises(ConfigError, match=r"acquisition.kind.*got 'auto'.*'egp-ts', 'egp-ei'"):
        sb.Team(CHAIN, BOUNDS, belief="ensemble")


def test_a_scenario_runs_with_an_ensemble_set_by_overrides(tmp_path) -> None:
    kinds = ["belief.kind=ensemble", "acquisition.kind=egp-ts", "rounds=12"]
    more = ["belief.n_features=32", 'belief.lengthscales=[0.2, "fitted"]']
    scenario = load("hartmann", kinds + more)
    assert scenario.belief.lengthscales == (0.2, "fitted")
    summary = run(scenario, tmp_path / "run")
    assert summary.rounds == 12
