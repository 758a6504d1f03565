"""The product of experts against products of densities, worked out on a grid."""

import numpy as np

from swarmbo.belief.fusion import robust_committee
from swarmbo.boundary.rng import stream

GRID = np.linspace(-30.0, 30.0, 60_001)


def log_normal(mean, var):
    return -0.5 * (GRID - mean) ** 2 / var - 0.5 * np.log(var)


def moments(log_density):
    density = np.exp(log_density - log_density.max())
    mean = (density * GRID).sum() / density.sum()
    return mean, (density * (GRID - mean) ** 2).sum() / density.sum()


def experts():
    rng = stream(0, "experts")
    return rng.normal(1.0, 1.0, (3, 5)), rng.uniform(0.1, 1.9, (3, 5))


def test_the_robust_committee_divides_the_product_by_the_prior_as_often_as_it_is_in_it():
    means, variances = experts()
    mean, var = robust_committee(means, variances, 1.5, 2.0)
    weights = 0.5 * np.log(2.0 / variances)
    for m in range(5):
        product = sum(w * log_normal(a, v) for w, a, v in zip(weights[:, m], means[:, m], variances[:, m], strict=True))
        expected = moments(product + (1.0 - weights[:, m].sum()) * log_normal(1.5, 2.0))
        np.testing.assert_allclose((mean[m], var[m]), expected, rtol=1e-6)


def test_experts_who_know_nothing_leave_the_prior_and_do_not_spoil_the_others():
    ignorant = (np.full((2, 3), 1.5), np.full((2, 3), 2.0))
    np.testing.assert_allclose(robust_committee(*ignorant, 1.5, 2.0), [np.full(3, 1.5), np.full(3, 2.0)])
    means, variances = np.vstack([ignorant[0], np.full((1, 3), 4.0)]), np.vstack([ignorant[1], np.full((1, 3), 0.2)])
    alone = robust_committee(means[2:], variances[2:], 1.5, 2.0)
    np.testing.assert_allclose(robust_committee(means, variances, 1.5, 2.0), alone)
