"""Fits of several sums side by side, in compiled code: held to the plain evidence, and to L-BFGS-B."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.compiled_evidence import CompiledLogPosterior
from swarmbo.belief.gp.evidence import LogPosterior
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES, kernel_matrix
from swarmbo.spaces import Domain

OWN = AdditiveGPSettings(restarts=3, outputscale_log_std=1.0)


def prior_of(sizes, model="separate"):
    return HyperparameterPrior.of(OWN, [f"f{i}" for i in range(len(sizes))], sizes, model, [OWN.noise_median])


def scopes_of(sizes):
    ends = np.cumsum(sizes)
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.sampled_from(KERNEL_NAMES),
    model=st.sampled_from(["shared", "hierarchical", "separate"]),
    sizes=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    n_outcomes=st.integers(2, 30),
    seed=st.integers(0, 10**6),
)
def test_each_sum_is_worth_what_it_is_alone_in_numpy(kernel, model, sizes, n_outcomes, seed):
    prior, rng = prior_of(sizes, model), np.random.default_rng(seed)
    U, z = rng.random((3, n_outcomes, sum(sizes))), rng.normal(size=(3, n_outcomes))
    noise = np.where(rng.random(z.shape) < 0.5, rng.random(z.shape), np.nan)
    theta, which = np.array([prior.sample(rng) for _ in range(4)]), np.array([0, 1, 2, 2])
    theta[:, -1] = np.maximum(theta[:, -1], np.log(1e-4))  # singular matrices agree to fewer digits
    found = CompiledLogPosterior([prior] * 3, kernel, U, z, noise)(theta, which)
    for row, i in enumerate(which):
        plain = LogPosterior(prior, [kernel] * len(sizes), scopes_of(sizes), U[i], z[i], noise[i])
        value, gradient = plain(theta[row])
        assert found.value[row] == pytest.approx(value, rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(found.gradient[row], gradient, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())
        assert found.mean[row] == pytest.approx(plain.means(theta[row])[0], rel=1e-6, abs=1e-6)


def test_the_information_of_a_sum_is_the_average_of_the_observed_and_the_expected_one():
    """Against its definition, with derivatives of the covariance by finite differences."""
    prior, rng = prior_of([2, 1]), np.random.default_rng(1)
    U, z = rng.random((9, 3)), rng.normal(size=9)
    theta = prior.centre + 0.3 * rng.normal(size=6)
    theta[-1] = np.log(0.1)
    found = CompiledLogPosterior([prior], "matern52", U[None], z[None], np.full((1, 9), np.nan))(
        theta[None], np.zeros(1, dtype=int)
    )

    def covariance(theta):
        first = kernel_matrix("matern52", U[:, :2], U[:, :2], np.exp(theta[:2]), np.exp(theta[3]))
        second = kernel_matrix("matern52", U[:, 2:], U[:, 2:], np.exp(theta[2:3]), np.exp(theta[4]))
        return first + second + np.exp(theta[5]) * np.eye(9)

    inverse = np.linalg.inv(covariance(theta))
    alpha = inverse @ (z - found.mean[0])
    steps = 1e-6 * np.eye(6)
    moved = [(covariance(theta + step) - covariance(theta - step)) @ alpha / 2e-6 for step in steps]
    wanted = 0.5 * np.array([[one @ inverse @ other for other in moved] for one in moved]) + prior.precision
    np.testing.assert_allclose(found.information[0], wanted, rtol=1e-6, atol=1e-6)


def test_to_a_matrix_that_is_singular_to_rounding_as_much_is_added_as_in_numpy():
    prior = prior_of([1, 1])
    U = np.repeat(np.random.default_rng(0).random((5, 2)), 2, axis=0)  # every point twice
    z, no_noise, noise = np.repeat(np.arange(5.0), 2), np.zeros(10), np.zeros((2, 10))
    theta = np.array([prior.centre, prior.centre])
    theta[0, :2] = np.log(0.01)
    apart = U + 0.1 * np.arange(10.0)[:, None] % 0.2  # no point twice
    log_posterior = CompiledLogPosterior([prior] * 2, "matern12", np.array([apart, U]), np.array([z, z]), noise)
    found = log_posterior(theta, np.arange(2))
    for row, points in enumerate((apart, U)):
        plain = LogPosterior(prior, ["matern12"] * 2, scopes_of([1, 1]), points, z, no_noise)
        value, gradient = plain(theta[row])  # where something is added pivots are as large as their rounding errors
        assert found.value[row] == pytest.approx(value, rel=1e-6 if points is apart else 2e-2)
        assert np.isfinite(found.gradient[row]).all()
        if points is apart:
            np.testing.assert_allclose(found.gradient[row], gradient, rtol=1e-6, atol=1e-6)


def sums(n_sums, n_outcomes, seed=0):
    """Beliefs about sums over three variables, of waves as long and as high as it happens."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph.from_scopes({f: [x] for f, x in zip("fgh", "abc", strict=True)})
    empty = AdditiveGP.create(OWN, graph, Domain(np.zeros(3), np.ones(3)))
    for i in range(n_sums):
        X = rng.random((n_outcomes, 3))
        y = (rng.uniform(0.5, 2.0, 3) * np.sin(rng.uniform(2.0, 12.0, 3) * X)).sum(axis=1)
        yield empty.update(X, 10.0**i * (y + 0.01 * rng.normal(size=n_outcomes)))


@pytest.mark.parametrize("n_outcomes", [30, 70])
def test_sums_are_fitted_as_well_as_by_a_search_that_learns_the_curvature_from_gradients(n_outcomes):
    beliefs = list(sums(6, n_outcomes))
    rngs = [np.random.default_rng(i) for i in range(6)]
    plain = [belief.fit(np.random.default_rng(i)) for i, belief in enumerate(beliefs)]
    fitted = AdditiveGP.fit_sums(beliefs, rngs, [None] * 6)
    gained = [one.log_evidence() - other.log_evidence() for one, other in zip(fitted, plain, strict=True)]
    assert (np.array(gained) > -0.3).mean() >= 0.8  # of maxima with the prior's density, which is left out here
    for one, other in zip(fitted, plain, strict=True):
        assert one.fitted_at == n_outcomes
        assert one.hyperparameters.constants == pytest.approx(other.hyperparameters.constants, rel=0.2, abs=0.5)
        assert one.hyperparameters.scales == other.hyperparameters.scales
    warm = AdditiveGP.fit_sums(beliefs, rngs, [belief.hyperparameters for belief in fitted])
    for one, other in zip(warm, fitted, strict=True):
        assert one.log_evidence() == pytest.approx(other.log_evidence(), abs=0.3)


def test_what_a_sum_is_fitted_to_be_does_not_depend_to_the_bit_on_the_others():
    beliefs = [*sums(3, 66), *sums(1, 40)]
    flat = beliefs[0].update(beliefs[0].X[:5], np.ones(5))
    constant = flat._with(**{name: getattr(flat, name)[-5:] for name in ("points", "totals", "factors", "noise")})
    beliefs.append(constant._with(rounds=np.zeros(5), base=None))

    def fitted(places):
        rngs = [np.random.default_rng(i) for i in places]
        return AdditiveGP.fit_sums([beliefs[i] for i in places], rngs, [None] * len(places))

    together = fitted(range(5))
    for i in range(5):
        assert fitted([i])[0].hyperparameters == together[i].hyperparameters
    prior = msgspec.structs.replace(constant.hyperparameters, constants=together[4].hyperparameters.constants)
    assert together[4].hyperparameters.lengthscales == prior.lengthscales  # outcomes that are alike tell of nothing
    assert sum(together[4].hyperparameters.constants) == pytest.approx(1.0)
