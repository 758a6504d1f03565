"""A committee that is asked like one process: rounds against those of its experts, worked out one by one."""

import numpy as np
import pytest

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.fusion import CommitteeFlooding, exchange, robust_committee
from swarmbo.belief.gp.hyperparameters import Hyperparameters, TimeCorrelation
from swarmbo.belief.gp.spatial import PlaceBelief
from swarmbo.boundary.rng import stream
from swarmbo.errors import ShapeError
from swarmbo.transport import InProcess

from .conftest import DOMAIN, PLACES, START, measure, ring

NAMES = ["a", "b", "c"]


@pytest.fixture
def agents():
    agents = ring(CommitteeFlooding, NAMES)
    measure(agents["a"], 4)
    measure(agents["b"], 6)
    exchange(agents.values(), InProcess().open(NAMES), steps=10)
    return agents


def expert(agent):
    h = START.hyperparameters
    return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), DOMAIN, h, agent.X, agent.y)


def test_it_is_the_committee_of_all_authors_at_every_place(agents):
    told = [expert(agents[name]).posterior(PLACES) for name in ("a", "b")]
    wanted = robust_committee(*(np.array(part) for part in zip(*told, strict=True)), 7.6, 9.0 * 1.3)
    for agent in agents.values():
        belief = agent.belief
        assert isinstance(belief, PlaceBelief)
        assert belief.n_data == 10
        np.testing.assert_allclose(belief.posterior(PLACES), wanted, rtol=1e-9)
        np.testing.assert_allclose(belief.posterior_mean(PLACES), wanted[0], rtol=1e-9)


def test_jointly_it_has_its_variances_and_its_owners_correlations(agents):
    for agent in agents.values():
        cache = agent.belief.posterior_cache(PLACES)
        every = np.arange(len(PLACES))
        covariance, own = cache.cov(every, every), expert(agent).joint_posterior(PLACES)[1]
        np.testing.assert_allclose(np.diag(covariance), cache.var, rtol=1e-7)
        deviations, own_deviations = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(own))
        correlation = covariance / np.outer(deviations, deviations)
        np.testing.assert_allclose(correlation, own / np.outer(own_deviations, own_deviations), atol=1e-7)
        assert np.linalg.eigvalsh(covariance)[0] > -1e-9 * covariance.max()
        rows, cols = np.array([3, 1]), np.array([0, 3, 7])
        np.testing.assert_allclose(cache.cov(rows, cols), covariance[np.ix_(rows, cols)])


def test_measurements_to_come_take_variance_and_leave_the_mean(agents):
    for agent in agents.values():
        belief, nothing = agent.belief, agent.belief.condition_on_pending(np.zeros((0, 2)))
        np.testing.assert_array_equal(nothing.posterior(PLACES), belief.posterior(PLACES))
        (mean, var), (later_mean, later_var) = (
            b.posterior(PLACES)
            for b in (belief, belief.condition_on_pending(PLACES[:1]).condition_on_pending(PLACES[1:3]))
        )
        np.testing.assert_array_equal(later_mean, mean)
        own = expert(agent)
        share = own.condition_on_pending(PLACES[:3]).posterior(PLACES)[1] / own.posterior(PLACES)[1]
        np.testing.assert_allclose(later_var, var * share, rtol=1e-9)
        assert (later_var[:3] < 0.5 * var[:3]).any()


def test_without_readings_it_is_the_prior_and_strange_points_are_refused():
    belief = CommitteeFlooding("a", DOMAIN, START).belief
    mean, var = belief.posterior(PLACES)
    np.testing.assert_allclose(mean, 7.6)
    np.testing.assert_allclose(var, 9.0 * 1.3)
    with pytest.raises(ShapeError, match=r"X: got shape \(2, 3\); wanted \(m, 2\)"):
        belief.posterior(np.zeros((2, 3)))


def test_with_a_time_axis_its_experts_fade():
    h = Hyperparameters("matern52", (0.3, 0.5), 1.3, 0.05, 0.2, 7.0, 3.0, TimeCorrelation("matern32", 4.0))
    agent = CommitteeFlooding("a", DOMAIN, type(START)(0, "", h, 0, 24))
    agent.measure(np.column_stack([PLACES[:5], np.ones(5)]), 7.0 + stream(0, "outcomes").standard_normal(5))
    var = [agent.belief.at(moment).posterior(PLACES)[1].mean() for moment in (1.0, 5.0, 1e3)]
    assert var[0] < var[1] < var[2]
    np.testing.assert_allclose(agent.belief.at(1e3).posterior(PLACES)[0], 7.6)
