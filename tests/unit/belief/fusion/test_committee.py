"""A committee with the interface of one process, compared with its experts one by one."""

import numpy as np
import pytest

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.fusion import CommitteeFlooding, exchange
from swarmbo.belief.fusion.experts import robust_committee
from swarmbo.belief.gp.hyperparameters import Hyperparameters, TimeCorrelation
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


def test_joint_covariances_have_variances_of_the_committee_and_correlations_of_the_owner(agents):
    for agent in agents.values():
        cache, mean = agent.belief.posterior_cache(PLACES), agent.belief.posterior(PLACES)[0]
        np.testing.assert_allclose(agent.belief.posterior_mean(PLACES), mean, rtol=1e-9)
        assert agent.belief.n_data == 10
        every = np.arange(len(PLACES))
        covariance, own = cache.cov(every, every), expert(agent).joint_posterior(PLACES)[1]
        np.testing.assert_allclose(np.diag(covariance), cache.var, rtol=1e-7)
        deviations, own_deviations = np.sqrt(np.diag(covariance)), np.sqrt(np.diag(own))
        correlation = covariance / np.outer(deviations, deviations)
        np.testing.assert_allclose(correlation, own / np.outer(own_deviations, own_deviations), atol=1e-7)
        assert np.linalg.eigvalsh(covariance)[0] > -1e-9 * covariance.max()
        rows, cols = np.array([3, 1]), np.array([0, 3, 7])
        np.testing.assert_allclose(cache.cov(rows, cols), covariance[np.ix_(rows, cols)])


def test_pending_measurements_reduce_the_variance_and_keep_the_mean(agents):
    for agent in agents.values():
        belief, nothing = agent.belief, agent.belief.condition_on_pending(np.zeros((0, 2)))
        np.testing.assert_array_equal(nothing.posterior(PLACES), belief.posterior(PLACES))
        waiting = belief.condition_on_pending(PLACES[:1]).condition_on_pending(PLACES[1:3])
        (mean, var), (later_mean, later_var) = belief.posterior(PLACES), waiting.posterior(PLACES)
        np.testing.assert_array_equal(later_mean, mean)
        own = expert(agent)
        share = own.condition_on_pending(PLACES[:3]).posterior(PLACES)[1] / own.posterior(PLACES)[1]
        np.testing.assert_allclose(later_var, var * share, rtol=1e-9)
        assert (later_var[:3] < 0.5 * var[:3]).any()


def test_without_measurements_the_belief_is_the_prior_and_points_of_another_shape_are_refused():
    belief = CommitteeFlooding("a", DOMAIN, START).belief
    mean, var = belief.posterior(PLACES)
    np.testing.assert_allclose(mean, 7.6)
    np.testing.assert_allclose(var, 9.0 * 1.3)
    with pytest.raises(ShapeError, match=r"X: got shape \(2, 3\); wanted \(m, 2\)"):
        belief.posterior(np.zeros((2, 3)))


def test_with_a_time_axis_the_data_of_experts_lose_weight():
    h = Hyperparameters("matern52", (0.3, 0.5), 1.3, 0.05, 0.2, 7.0, 3.0, TimeCorrelation("matern32", 4.0))
    agent = CommitteeFlooding("a", DOMAIN, type(START)(0, "", h, 0, 24))
    agent.measure(np.column_stack([PLACES[:5], np.ones(5)]), 7.0 + stream(0, "outcomes").standard_normal(5))
    var = [agent.belief.at(moment).posterior(PLACES)[1].mean() for moment in (1.0, 5.0, 1e3)]
    assert var[0] < var[1] < var[2]
    np.testing.assert_allclose(agent.belief.at(1e3).posterior(PLACES)[0], 7.6)


GRID = np.linspace(-30.0, 30.0, 60_001)


def log_normal(mean, var):
    return -0.5 * (GRID - mean) ** 2 / var - 0.5 * np.log(var)


def moments(log_density):
    density = np.exp(log_density - log_density.max())
    mean = (density * GRID).sum() / density.sum()
    return mean, (density * (GRID - mean) ** 2).sum() / density.sum()


def some_experts():
    rng = stream(0, "experts")
    return rng.normal(1.0, 1.0, (3, 5)), rng.uniform(0.1, 1.9, (3, 5))


def test_the_robust_committee_counts_the_prior_once():
    means, variances = some_experts()
    mean, var = robust_committee(means, variances, 1.5, 2.0)
    weights = 0.5 * np.log(2.0 / variances)
    for m in range(5):
        product = sum(w * log_normal(a, v) for w, a, v in zip(weights[:, m], means[:, m], variances[:, m], strict=True))
        expected = moments(product + (1.0 - weights[:, m].sum()) * log_normal(1.5, 2.0))
        np.testing.assert_allclose((mean[m], var[m]), expected, rtol=1e-6)


def test_experts_without_data_give_the_prior_and_do_not_change_the_result_of_others():
    ignorant = (np.full((2, 3), 1.5), np.full((2, 3), 2.0))
    np.testing.assert_allclose(robust_committee(*ignorant, 1.5, 2.0), [np.full(3, 1.5), np.full(3, 2.0)])
    means, variances = np.vstack([ignorant[0], np.full((1, 3), 4.0)]), np.vstack([ignorant[1], np.full((1, 3), 0.2)])
    alone = robust_committee(means[2:], variances[2:], 1.5, 2.0)
    np.testing.assert_allclose(robust_committee(means, variances, 1.5, 2.0), alone)
