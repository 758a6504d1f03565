"""Sums of processes, compared with dense matrices and scikit-learn; factors differ in units, noises and kernels."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from swarmbo.belief import AdditiveGP, AdditiveGPSettings, AdditiveHyperparameters, TimeAxis, TimeCorrelation
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.kernels import KERNEL_NAMES
from swarmbo.spaces import Domain

from .dense import MINE, Dense

VARIABLES = ("a", "b", "c", "d")


def belief_of(seed, way, kernels, pace, n_rows, cut, now):
    """A belief with random scopes, which may overlap, and with data of one of three kinds in two updates."""
    rng, k = np.random.default_rng(seed), len(kernels)
    scopes = {f"f{i}": [str(v) for v in rng.permutation(VARIABLES)[: rng.integers(1, 4)]] for i in range(k - 1)}
    graph = FactorGraph.from_scopes({**scopes, "all": VARIABLES})
    low, scale = rng.normal(size=4) * 10.0, np.exp(rng.normal() * 2.0)
    scales = scale * np.exp(rng.normal(size=k)) if way == "per-factor" else np.full(k, scale)
    paces = {"none": [], "one": [6.0] * k, "own": np.exp(rng.normal(size=k) + 1.5)}[pace]
    h = AdditiveHyperparameters(
        kernels=tuple(kernels),
        lengthscales=tuple(tuple(np.exp(rng.normal(size=len(s)) * 0.5 - 1.0).tolist()) for s in graph.scopes),
        outputscales=tuple(np.exp(rng.normal(size=k)).tolist()),
        noise_variances=tuple(np.exp(rng.normal(size=k) - 6.0).tolist()),
        total_noise_variance=float(np.exp(rng.normal() - 6.0)),
        constants=tuple((rng.normal(size=k) * scale).tolist()),
        scales=tuple(scales.tolist()),
        times=tuple(TimeCorrelation("matern12", float(pace)) for pace in paces),
    )
    domain = Domain(low, low + np.exp(rng.normal(size=4)))
    prior = AdditiveGPSettings(time=TimeAxis("matern12") if len(paces) else None)
    belief = AdditiveGP.create(prior, graph, domain).with_hyperparameters(h)
    given = {"totals": scale * rng.normal(size=n_rows), "factors": scale * rng.normal(size=(n_rows, k))}
    for kind, array in given.items():
        is_other = way == {"totals": "per-factor", "factors": "total"}[kind]
        array[rng.random(array.shape) < (1.0 if is_other else 0.2)] = np.nan
    noise = scale**2 * np.exp(rng.normal(size=(n_rows, 1 + k)) - 4.0)
    noise[rng.random(noise.shape) < 0.5] = np.nan  # the fitted noise is used
    given |= {"noise_variance": noise, "rounds": rng.integers(0, 15, n_rows).astype(float)}
    X = domain.from_unit(rng.random((n_rows, 4)))
    for rows in (slice(0, cut), slice(cut, n_rows)):  # learned while the belief is at different rounds
        belief = belief.at(float(cut)).update(X[rows], **{name: array[rows] for name, array in given.items()})
    np.testing.assert_array_equal(belief.rounds, given["rounds"])
    return belief.at(now)


@given(
    seed=st.integers(0, 2**31),
    way=st.sampled_from(["total", "per-factor", "mixed"]),
    kernels=st.lists(st.sampled_from([*KERNEL_NAMES, MINE]), min_size=2, max_size=5),
    pace=st.sampled_from(["none", "one", "own"]),
    n_rows=st.integers(0, 22),
    cut=st.integers(0, 7),
    now=st.floats(-3.0, 40.0),
)
@settings(max_examples=50)
def test_all_results_of_a_belief_are_those_of_dense_matrices(**case):
    belief, U = belief_of(**case), np.random.default_rng(case["seed"] + 1).random((5, 4))
    X, unit, dense = belief.domain.from_unit(U), max(belief.hyperparameters.scales), Dense(belief)
    means, cov = dense.posterior(U)

    def same(got, mean, var):
        np.testing.assert_allclose(got[0], mean, rtol=1e-7, atol=1e-8 * unit)
        np.testing.assert_allclose(got[1], var, rtol=1e-7, atol=1e-8 * unit**2)

    mean, var = means.sum(axis=0), cov.sum(axis=(0, 2))
    same(belief.joint_posterior(X), mean, var)
    same(belief.posterior(X), mean, var.diagonal())
    for stack in stacks_of(belief.graph):
        found, places = belief.local(stack, stack.take(U)), stack.take(U[:4])
        contrast = belief.local_contrast(stack, places, U[4])
        np.testing.assert_allclose(belief.local_mean(stack, places), found.mean[:, :4], rtol=1e-11, atol=1e-12 * unit)
        for g, factor in enumerate(stack.factors):
            i = belief.graph.place_of[factor]
            own = cov[i, :, i]
            same(belief.factor_posterior(factor, X[:, stack.columns[g]]), means[i], own.diagonal())
            same((found.mean[g], found.var[g]), means[i], own.diagonal())
            apart = own.diagonal()[:4] + own[4, 4] - 2.0 * own[:4, 4]
            same((contrast.mean[g], contrast.var[g]), means[i, :4] - means[i, 4], apart)
    jacobian = (dense.holds.T @ np.log(belief.hyperparameters.scales) / dense.holds.sum(axis=0)).sum()
    assert belief.log_evidence() - jacobian == pytest.approx(dense.log_density(), rel=1e-8, abs=1e-8)
    waiting, done = belief.condition_on_pending(X[:2]), belief.update(X[:2], totals=np.zeros(2))
    same(waiting.posterior(X), mean, Dense(done).posterior(U)[1].sum(axis=(0, 2)).diagonal())


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_a_single_factor_equals_scikit_learn(name, outcomes):
    rng, lengths = np.random.default_rng(0), (0.3, 0.5, 0.2)
    given = {"lengthscale": dict(zip("abc", lengths, strict=True)), "outputscale": 1.7, "noise_variance": 1e-3}
    graph = FactorGraph.from_scopes({"f": ["a", "b", "c"]})
    belief = AdditiveGP(graph, kernel=name, mean=0.7, outcomes=outcomes, **given)
    X, y = rng.random((60, 3)), rng.normal(size=60)
    for rows in np.array_split(np.arange(60), 7):
        belief = belief.update(X[rows], y[rows] if outcomes == "total" else y[rows, None])
    radial = RBF(lengths) if name == "rbf" else Matern(lengths, nu={"1": 0.5, "3": 1.5, "5": 2.5}[name[-2]])
    oracle = GaussianProcessRegressor(ConstantKernel(1.7) * radial, alpha=1e-3, optimizer=None).fit(X, y - 0.7)
    Q = rng.random((20, 3))
    expected, expected_cov = oracle.predict(Q, return_cov=True)
    mean, cov = belief.joint_posterior(Q)
    np.testing.assert_allclose(mean - 0.7, expected, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(cov, expected_cov, rtol=0.0, atol=1e-8)
    assert belief.log_evidence() == pytest.approx(oracle.log_marginal_likelihood_value_, rel=1e-10)
