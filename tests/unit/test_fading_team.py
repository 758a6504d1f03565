"""Teams with a factor graph whose function changes: every outcome keeps the round in which it was asked for."""

from dataclasses import replace

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ShapeError

from .teams import CHAIN

BOUNDS = dict.fromkeys("xyz", (-1.0, 3.0))
WITH_TIME = {"kind": "additive", "time": {"kernel": "matern12", "lengthscale_median": 5.0}}


def team_of(**settings):
    return sb.Team(
        CHAIN, BOUNDS, **{"belief": WITH_TIME, "seed": 3, "initial": 4, "outcomes": "per-factor", **settings}
    )


def outcome_of(query, now):
    """Two bowls whose optima move periodically."""
    x, y, z = (query.point[name] for name in "xyz")
    centre = 1.0 + np.sin(now / 6.0)
    return {"f": -((x - centre) ** 2) - 0.5 * (y - 1.0) ** 2, "g": -((z - centre) ** 2) - 0.3 * (y - z) ** 2}


def played(team, rounds, first=1):
    for now in range(first, first + rounds):
        query = team.ask()
        outcome = outcome_of(query, now)
        team.tell(query, outcome if team.outcomes == "per-factor" else sum(outcome.values()))
    return team


def test_outcomes_keep_the_round_in_which_they_were_asked():
    team = team_of()
    team.attach([[0.0, 0.0, 0.0]], [[1.0, 2.0]])
    team.attach([[1.0, 1.0, 1.0]], [[1.0, 2.0]], rounds=[-7.0])
    first, second, third = (team.ask() for _ in range(3))
    team.tell(third, {"f": 0.0, "g": 0.0})
    team.tell(first, {"f": 0.0})
    later = team.ask()
    team.tell(later, {"f": 0.0, "g": 0.0})
    team.tell(first, {"g": 0.0})
    team.tell(second, failed=True)
    assert team.history.rounds.tolist() == [0.0, -7.0, 3.0, 1.0, 4.0, 2.0]
    belief = team.model.belief
    assert belief.now == 5.0
    np.testing.assert_array_equal(belief.rounds, team.history.rounds)
    with pytest.raises(ShapeError, match=r"rounds: got shape \(2,\) for 1 points; wanted \(1,\)"):
        team.attach([[0.0, 0.0, 0.0]], [[1.0, 2.0]], rounds=[0.0, 1.0])


@pytest.mark.slow
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_auto_follows_a_maximum_that_moves(outcomes):
    """Over one and a half periods; a team without a time axis mostly stays at an old maximum."""

    def late_loss(belief, seed):
        team, loss = team_of(belief=belief, outcomes=outcomes, seed=seed), list[float]()
        y, z = np.meshgrid(*[np.linspace(-1.0, 3.0, 81)] * 2)
        for now in range(1, 60):
            played(team, 1, first=now)
            centre = 1.0 + np.sin(now / 6.0)
            best = (-0.5 * (y - 1.0) ** 2 - ((z - centre) ** 2) - 0.3 * (y - z) ** 2).max()
            loss.append(best - sum(outcome_of(team.last_query, now).values()))
        return float(np.mean(loss[20:]))

    smooth = {"kind": "additive", "time": {"kernel": "matern52"}}
    with_time, still = (sum(late_loss(belief, seed) for seed in (0, 3)) for belief in (smooth, {"kind": "additive"}))
    assert with_time < 0.6 * still, (with_time, still)


@pytest.mark.parametrize("acquisition", ["auto", "add-gp-ucb"])
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_a_pending_query_counts_for_the_round_in_which_it_was_asked(acquisition, outcomes):
    """The variance then equals that after the outcome."""
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["z"]})
    team = sb.Team(graph, BOUNDS, belief=WITH_TIME, acquisition=acquisition, seed=3, initial=4, outcomes=outcomes)
    first, second = team.ask(2)
    played(team, 8, first=3)
    belief, places = team.model.belief, np.array([list(query.point.values()) for query in (first, second)])
    assert belief.n_pending == 2
    told = belief.update(places, np.zeros(2) if outcomes == "total" else np.zeros((2, 2)), rounds=[1.0, 2.0])
    np.testing.assert_allclose(belief.posterior(places)[1], told.posterior(places)[1], rtol=1e-9)


def test_with_a_time_axis_an_evaluated_point_may_be_asked_again_but_not_a_pending_one():
    for belief, is_moved in ((WITH_TIME, False), ({"kind": "additive"}, True)):
        team = played(team_of(belief=belief, coordination=AlwaysCentre()), 4)
        first = team.ask()
        team.tell(first, outcome_of(first, 5))
        second, third = team.ask(), team.ask()
        assert (second.point != first.point) == is_moved
        assert third.point != second.point


class AlwaysCentre:
    """Agents that always agree on the centre of the box."""

    def decide_joint(self, situation, acquisition, /):
        return np.full(3, 0.5), sb.SolveReport(status="converged")


def test_auto_with_a_time_axis_searches_the_whole_box():
    """There is no trust region around an old best point."""
    team = played(team_of(acquisition="auto"), 6)
    functions = team.acquisition.local_functions(team._learner.situation(team._log, None), team.model)
    assert functions.low.tolist() == [0.0] * 3
    assert functions.high.tolist() == [1.0] * 3


def test_a_belief_with_a_time_axis_refuses_a_history_without_rounds():
    team = played(team_of(), 5)
    situation = team._learner.situation(team._log, None)
    blind = replace(situation, history=replace(situation.history, rounds=None))
    with pytest.raises(ShapeError, match=r"history: got no rounds; wanted 5 of them"):
        team.acquisition.learn(blind, team.belief_settings, None)
