"""Against a dense Gaussian written out with explicit loops, and against scikit-learn for one factor."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from swarmbo.belief import AdditiveGP, AdditiveGPSettings, AdditiveHyperparameters
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES
from swarmbo.spaces import Domain

VARIABLES = ("a", "b", "c", "d")
RADIAL = {
    "matern12": lambda r: math.exp(-r),
    "matern32": lambda r: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
    "matern52": lambda r: (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r),
    "rbf": lambda r: math.exp(-(r**2) / 2),
}


class Dense:
    """All factors at all points and all outcomes as one big normal vector, in physical units.

    A quantity is (factors it is the sum of, point); observations have noise besides.
    """

    def __init__(self, scopes, domain, h):
        self.scopes, self.domain, self.h = scopes, domain, h
        self.common = math.sqrt(sum(scale**2 for scale in h.scales) / len(h.scales))

    def covariance(self, one, other):
        (factors, x), (others, z), total = one, other, 0.0
        for i in set(factors) & set(others):
            square = 0.0
            for variable, length in zip(self.scopes[i], self.h.lengthscales[i], strict=True):
                j = VARIABLES.index(variable)
                side = self.domain.high[j] - self.domain.low[j]
                square += ((x[j] - z[j]) / (length * side)) ** 2
            total += self.h.scales[i] ** 2 * self.h.outputscales[i] * RADIAL[self.h.kernels[i]](math.sqrt(square))
        return total

    def matrix(self, rows, columns):
        return np.array([[self.covariance(one, other) for other in columns] for one in rows]).reshape(
            len(rows), len(columns)
        )

    def mean(self, quantity):
        return sum(self.h.constants[i] for i in quantity[0])

    def noise(self, factors, is_total):
        if is_total:
            return self.h.total_noise_variance * self.common**2
        (i,) = factors
        return self.h.noise_variances[i] * self.h.scales[i] ** 2

    def posterior(self, wanted, observed, outcomes, noises):
        K = self.matrix(observed, observed) + np.diag(noises)
        k = self.matrix(wanted, observed)
        residual = np.array(outcomes) - [self.mean(quantity) for quantity in observed]
        mean = np.array([self.mean(quantity) for quantity in wanted]) + k @ np.linalg.solve(K, residual)
        return mean, self.matrix(wanted, wanted) - k @ np.linalg.solve(K, k.T)

    def log_density(self, observed, outcomes, noises):
        K = self.matrix(observed, observed) + np.diag(noises)
        residual = np.array(outcomes) - [self.mean(quantity) for quantity in observed]
        _, log_determinant = np.linalg.slogdet(K)
        fit = residual @ np.linalg.solve(K, residual)
        return -0.5 * (fit + log_determinant + len(residual) * math.log(2 * math.pi))


CASES = {
    "seed": st.integers(0, 2**31),
    "way": st.sampled_from(["total", "per-factor", "mixed"]),
    "kernels": st.lists(st.sampled_from(KERNEL_NAMES), min_size=2, max_size=5),
    "t": st.integers(0, 7),
    "cut": st.integers(0, 7),
}


def case_of(seed, way, kernels, t, cut):
    """A graph whose scopes may overlap, hyper-parameters, and data observed in one of three ways, in two updates."""
    rng, k = np.random.default_rng(seed), len(kernels) - 1
    scopes = {f"f{i}": list(rng.permutation(VARIABLES)[: rng.integers(1, 4)]) for i in range(k)}
    scopes["all"] = list(VARIABLES)
    graph = FactorGraph.from_scopes({name: [str(v) for v in scope] for name, scope in scopes.items()})
    k = len(scopes)
    low = rng.normal(size=4) * 10.0
    domain = Domain(low, low + np.exp(rng.normal(size=4)))
    order = [VARIABLES.index(variable) for variable in graph.variables]
    scale = math.exp(rng.normal() * 2.0)
    scales = scale * np.exp(rng.normal(size=k)) if way == "per-factor" else np.full(k, scale)
    h = AdditiveHyperparameters(
        kernels=tuple(kernels),
        lengthscales=tuple(tuple(np.exp(rng.normal(size=len(s)) * 0.5 - 1.0).tolist()) for s in graph.scopes),
        outputscales=tuple(np.exp(rng.normal(size=k)).tolist()),
        noise_variances=tuple(np.exp(rng.normal(size=k) - 6.0).tolist()),
        total_noise_variance=float(np.exp(rng.normal() - 6.0)),
        constants=tuple((rng.normal(size=k) * scale).tolist()),
        scales=tuple(scales.tolist()),
    )
    X = domain.from_unit(rng.random((t, 4)))
    totals, factors = scale * rng.normal(size=t), scale * rng.normal(size=(t, k))
    if way == "total":
        factors[:] = np.nan
    if way == "per-factor":
        totals[:] = np.nan
    factors[rng.random((t, k)) < 0.2], totals[rng.random(t) < 0.2] = np.nan, np.nan
    noise = scale**2 * np.where(rng.random((t, 1 + k)) < 0.5, np.nan, np.exp(rng.normal(size=(t, 1 + k)) - 4.0))
    own = Domain(domain.low[order], domain.high[order])
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, own).with_hyperparameters(h)
    for rows in (slice(0, cut), slice(cut, t)):
        belief = belief.update(
            X[rows][:, order], totals=totals[rows], factors=factors[rows], noise_variance=noise[rows]
        )
    dense = Dense(graph.scopes, domain, h)
    observed, outcomes, noises = [], [], []
    for x, total, parts, own_noise in zip(X, totals, factors, noise, strict=True):
        told = [(tuple(range(k)), total, True), *(((i,), part, False) for i, part in enumerate(parts))]
        for (held, outcome, is_total), variance in zip(told, own_noise, strict=True):
            if not math.isnan(outcome):
                observed.append((held, x))
                outcomes.append(outcome)
                noises.append(dense.noise(held, is_total) if math.isnan(variance) else variance)
    Q = domain.from_unit(rng.random((4, 4)))
    return belief, dense, (observed, outcomes, noises), Q, order


@given(**CASES)
def test_sum_and_factors_equal_the_dense_posterior(**case):
    belief, dense, data, Q, order = case_of(**case)
    k = len(belief.graph.factors)
    scale = max(belief.hyperparameters.scales)
    mean, cov = dense.posterior([(tuple(range(k)), q) for q in Q], *data)
    ours, ours_cov = belief.joint_posterior(Q[:, order])
    np.testing.assert_allclose(ours, mean, rtol=1e-8, atol=1e-8 * scale)
    np.testing.assert_allclose(ours_cov, cov, rtol=1e-8, atol=1e-8 * scale**2)
    np.testing.assert_allclose(belief.posterior(Q[:, order])[1], cov.diagonal(), rtol=1e-8, atol=1e-8 * scale**2)
    for i, factor in enumerate(belief.graph.factors):
        mean, cov = dense.posterior([((i,), q) for q in Q], *data)
        columns = [VARIABLES.index(variable) for variable in belief.graph.scope(factor)]
        ours, var = belief.factor_posterior(factor, Q[:, columns])
        np.testing.assert_allclose(ours, mean, rtol=1e-8, atol=1e-8 * scale)
        np.testing.assert_allclose(var, cov.diagonal(), rtol=1e-8, atol=1e-8 * scale**2)


@given(**CASES)
def test_means_add_up_and_the_deviation_of_the_sum_is_at_most_the_sum_of_deviations(**case):
    belief, _, _, Q, order = case_of(**case)
    mean, var = belief.posterior(Q[:, order])
    parts = []
    for factor in belief.graph.factors:
        columns = [VARIABLES.index(variable) for variable in belief.graph.scope(factor)]
        parts.append(belief.factor_posterior(factor, Q[:, columns]))
    scale = max(belief.hyperparameters.scales)
    np.testing.assert_allclose(sum(part[0] for part in parts), mean, rtol=1e-12, atol=1e-12 * scale)
    deviations = sum(np.sqrt(part[1]) for part in parts)
    assert (np.sqrt(var) <= deviations * (1.0 + 1e-9) + 1e-9 * scale).all()
    if not belief.is_coupled:
        np.testing.assert_allclose(sum(part[1] for part in parts), var, rtol=1e-9, atol=1e-9 * scale**2)


@given(**CASES)
def test_evidence_equals_the_dense_log_density(**case):
    belief, dense, data, _, _ = case_of(**case)
    if belief.is_coupled:
        jacobian = len(data[1]) * math.log(belief.hyperparameters.scales[0])
    else:
        jacobian = sum(math.log(belief.hyperparameters.scales[held[0]]) for held, _ in data[0])
    assert belief.log_evidence() - jacobian == pytest.approx(dense.log_density(*data), rel=1e-8, abs=1e-8)


@given(**CASES, p=st.integers(1, 3))
def test_points_pending_take_the_variance_that_outcomes_there_would_take(p, **case):
    belief, dense, data, Q, order = case_of(**case)
    k = len(belief.graph.factors)
    ahead = [(tuple(range(k)), q) for q in Q[:p]]
    noises = [*data[2], *[dense.noise(tuple(range(k)), True)] * p]
    _, cov = dense.posterior([(tuple(range(k)), q) for q in Q], [*data[0], *ahead], [0.0] * len(noises), noises)
    waiting = belief.condition_on_pending(Q[:p, order])
    scale = max(belief.hyperparameters.scales)
    np.testing.assert_allclose(waiting.posterior(Q[:, order])[1], cov.diagonal(), rtol=1e-8, atol=1e-8 * scale**2)
    before, after = belief.posterior_mean(Q[:, order]), waiting.posterior_mean(Q[:, order])
    np.testing.assert_allclose(after, before, rtol=1e-9, atol=1e-9 * scale)


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_one_factor_equals_scikit_learns(name, outcomes):
    rng = np.random.default_rng(0)
    lengths, output, noise = (0.3, 0.5, 0.2), 1.7, 1e-3
    graph = FactorGraph.from_scopes({"f": ["a", "b", "c"]})
    belief = AdditiveGP(
        graph,
        kernel=name,
        lengthscale=dict(zip("abc", lengths, strict=True)),
        outputscale=output,
        noise_variance=noise,
        mean=0.7,
        outcomes=outcomes,
    )
    X, y = rng.random((60, 3)), rng.normal(size=60)
    for rows in np.array_split(np.arange(60), 7):
        belief = belief.update(X[rows], y[rows] if outcomes == "total" else y[rows, None])
    nu = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    radial = RBF(lengths) if name == "rbf" else Matern(lengths, nu=nu[name])
    oracle = GaussianProcessRegressor(ConstantKernel(output) * radial, alpha=noise, optimizer=None)
    oracle.fit(X, y - 0.7)
    Q = rng.random((20, 3))
    expected, expected_cov = oracle.predict(Q, return_cov=True)
    mean, cov = belief.joint_posterior(Q)
    np.testing.assert_allclose(mean - 0.7, expected, rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(cov, expected_cov, rtol=0.0, atol=1e-8)
    assert belief.log_evidence() == pytest.approx(oracle.log_marginal_likelihood_value_, rel=1e-10)
