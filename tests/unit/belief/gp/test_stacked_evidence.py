"""Fits of factors observed one by one: the stacked evidence is the plain one, and its searches find as much."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.compiled_evidence import CompiledLogPosterior
from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.fit_alone import BRISK, compiled_search
from swarmbo.belief.gp.hyperparameters import COMPILED_FROM, TimeAxis, is_compiled
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.gp.stacked_evidence import StackedLogPosterior, maximise_stacked
from swarmbo.belief.gp.stacked_parts import StackedParts
from swarmbo.belief.gp.starts import starting_thetas
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES, kernel_matrix
from swarmbo.spaces import Domain


def prior_of(size, model="separate", time=None):
    own = AdditiveGPSettings(time=time)
    return HyperparameterPrior.of(own, ["f"], [size], model, [own.noise_median])


def problems(count, n_outcomes, size, seed=0):
    """Bowls, waves, cliffs and noise, standardised."""
    rng = np.random.default_rng(seed)
    U = rng.random((count, n_outcomes, size))
    z = np.empty((count, n_outcomes))
    for i in range(count):
        square = ((U[i] - rng.random(size)) ** 2).sum(axis=1)
        wave = np.sin(6.0 * U[i] @ rng.normal(size=size))
        z[i] = (-square, wave, -np.exp(4.0 * square), wave + 0.3 * rng.normal(size=n_outcomes))[i % 4]
        z[i] = (z[i] - z[i].mean()) / z[i].std()
    return U, z, rng


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.sampled_from(KERNEL_NAMES),
    model=st.sampled_from(["shared", "hierarchical", "separate"]),
    size=st.integers(1, 4),
    n_outcomes=st.integers(2, 12),
    fades=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_each_of_a_stack_is_worth_what_it_is_alone(kernel, model, size, n_outcomes, fades, seed):
    prior = prior_of(size, model, TimeAxis("matern32") if fades else None)
    U, z, rng = problems(3, n_outcomes, size, seed)
    noise = np.where(rng.random(z.shape) < 0.5, rng.random(z.shape), np.nan)  # NaN: as fitted
    rounds = rng.integers(0, 30, z.shape).astype(float)
    stacked = StackedLogPosterior([prior] * 3, kernel, U, z, noise, ("matern32", rounds) if fades else None)
    theta = np.array([prior.sample(rng) for _ in range(5)])
    theta[:, -1] = np.maximum(theta[:, -1], np.log(1e-4))  # singular matrices agree to fewer digits
    which = np.array([0, 1, 2, 2, 0])
    found = stacked(theta, which)
    for row, i in enumerate(which):
        fading = ("matern32", rounds[i]) if fades else None
        plain = LogPosterior(prior, [kernel], [range(size)], U[i], z[i], noise[i], decay=fading)
        value, gradient = plain(theta[row])
        assert found.value[row] == pytest.approx(value, rel=1e-7, abs=1e-7)
        np.testing.assert_allclose(found.gradient[row], gradient, rtol=1e-5, atol=1e-5)
        assert found.mean[row] == pytest.approx(plain.means(theta[row])[0], rel=1e-6, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(
    kernel=st.sampled_from(KERNEL_NAMES),
    model=st.sampled_from(["shared", "hierarchical", "separate"]),
    size=st.integers(1, 4),
    n_outcomes=st.integers(2, 30),
    seed=st.integers(0, 10**6),
)
def test_compiled_code_comes_to_what_numpy_does(kernel, model, size, n_outcomes, seed):
    prior = prior_of(size, model)
    U, z, rng = problems(3, n_outcomes, size, seed)
    noise = np.where(rng.random(z.shape) < 0.5, rng.random(z.shape), np.nan)
    theta = np.array([prior.sample(rng) for _ in range(5)])
    theta[:, -1] = np.maximum(theta[:, -1], np.log(1e-4))
    data, which = ([prior] * 3, kernel, U, z, noise), np.array([0, 1, 2, 2, 0])
    found, plain = CompiledLogPosterior(*data)(theta, which), StackedLogPosterior(*data)(theta, which)
    for one, other in zip(vars(found).values(), vars(plain).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(other).max())


def test_matrices_that_are_singular_to_rounding_are_left_to_numpy():
    prior = prior_of(1)
    U, z = np.repeat(np.linspace(0.4, 0.6, 5), 2)[None, :, None], np.arange(10.0)[None]  # every point twice
    theta, which = prior.centre[None].copy(), np.zeros(1, dtype=int)
    theta[0, 0], data = np.log(50.0), ([prior], "rbf", U, z, np.zeros((1, 10)))  # and no noise
    found, plain = CompiledLogPosterior(*data)(theta, which), StackedLogPosterior(*data)(theta, which)
    for one, other in zip(vars(found).values(), vars(plain).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(found.value).all()


def test_the_information_is_the_average_of_the_observed_and_the_expected_one():
    """Against its definition, with derivatives of the covariance by finite differences."""
    prior = prior_of(2)
    (U,), (z,), rng = problems(1, 9, 2)
    theta = prior.centre + 0.3 * rng.normal(size=4)
    stacked = StackedLogPosterior([prior], "matern52", U[None], z[None], np.full((1, 9), np.nan))
    found = stacked(theta[None], np.zeros(1, dtype=int))

    def covariance(theta):
        return kernel_matrix("matern52", U, U, np.exp(theta[:2]), np.exp(theta[2])) + np.exp(theta[3]) * np.eye(9)

    inverse = np.linalg.inv(covariance(theta))
    alpha = inverse @ (z - found.mean[0])
    steps = 1e-6 * np.eye(4)
    moved = [(covariance(theta + step) - covariance(theta - step)) @ alpha / 2e-6 for step in steps]
    wanted = 0.5 * np.array([[one @ inverse @ other for other in moved] for one in moved]) + prior.precision
    np.testing.assert_allclose(found.information[0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("brisk", [{}, BRISK])
@pytest.mark.parametrize(("n_outcomes", "size"), [(5, 1), (12, 2), (40, 2), (30, 4)])
def test_searches_side_by_side_find_as_much_as_one_that_learns_the_curvature_from_gradients(n_outcomes, size, brisk):
    """L-BFGS-B from the same starts. Noise has many maxima, so single ones may differ, either way."""
    prior = prior_of(size)
    U, z, _ = problems(16, n_outcomes, size)
    starts = starting_thetas(prior, [], None)
    stacked = StackedLogPosterior([prior] * 16, "matern52", U, z, np.full(z.shape, np.nan))
    which = np.repeat(np.arange(16), len(starts))
    theta, value, _ = maximise_stacked(stacked, np.tile(starts, (16, 1)), which, 60, **brisk)
    scopes, none = [range(size)], np.full(n_outcomes, np.nan)
    plain = [
        maximise(LogPosterior(prior, ["matern52"], scopes, X, y, none), starts, 60)[1]
        for X, y in zip(U, z, strict=True)
    ]
    best = value.reshape(16, -1).max(axis=1)
    assert (best > np.array(plain) - 1e-2).mean() >= 0.9
    assert best.sum() > sum(plain) - 0.1
    assert (theta >= prior.bounds[:, 0]).all()
    assert (theta <= prior.bounds[:, 1]).all()


@pytest.mark.parametrize("has_earlier", [False, True])
def test_of_many_outcomes_a_part_says_where_to_look_and_all_of_them_how_good_it_is(has_earlier, monkeypatch):
    """Against a search with all outcomes from every start; also where an earlier fit ended at the maximum."""
    prior = prior_of(2)
    U, z, _ = problems(12, 64, 2)
    data = [prior] * 12, "matern52", U, z, np.full(z.shape, np.nan)
    starts, which = np.tile(starting_thetas(prior, [], None), (12, 1)), np.repeat(np.arange(12), 2)
    whole = CompiledLogPosterior(*data)
    theta, value, _ = maximise_stacked(whole, starts, which, 60)
    best = value.reshape(12, 2).max(axis=1)
    if has_earlier:
        starts[::2] = theta[2 * np.arange(12) + value.reshape(12, 2).argmax(axis=1)]
    asked = list[int]()
    evaluated = CompiledLogPosterior.__call__

    def counted(self, theta, which):
        asked.append(len(theta) * (self._z.shape[1] == 64))
        return evaluated(self, theta, which)

    monkeypatch.setattr(CompiledLogPosterior, "__call__", counted)
    found, mean = compiled_search(data, starts, which, 60, goes_on=has_earlier)
    n_sketched = sum(asked)
    reached = evaluated(whole, found, np.arange(12))
    np.testing.assert_allclose(reached.mean, mean, atol=1e-9)
    assert (reached.value > best - 0.02).mean() >= 0.9
    assert (reached.value > best - 1e-3).all() or not has_earlier
    asked.clear()
    maximise_stacked(whole, starts, which, 60, **BRISK)
    assert n_sketched < (0.7 if has_earlier else 0.6) * sum(asked)


def test_searches_that_meet_go_on_as_one():
    prior = prior_of(2)
    U, z, _ = problems(8, 20, 2)
    starts, which = starting_thetas(prior, [], None), np.repeat(np.arange(8), 2)

    class Counted(StackedLogPosterior):
        n = 0

        def __call__(self, theta, which):
            self.n += len(theta)
            return super().__call__(theta, which)

    found = []
    for apart in (0.0, 0.3):
        stacked = Counted([prior] * 8, "matern52", U, z, np.full(z.shape, np.nan))
        _, value, _ = maximise_stacked(stacked, np.tile(starts, (8, 1)), which, 60, apart=apart)
        found.append((stacked.n, value.reshape(8, 2).max(axis=1)))
    (n_both, both), (n_one, one) = found
    assert n_one < 0.9 * n_both
    np.testing.assert_allclose(one, both, atol=1e-2)


def test_factors_of_many_are_fitted_as_those_of_few():
    """From some number on in compiled code, by longer steps: to the same maxima."""
    n = COMPILED_FROM
    X = np.random.default_rng(0).random((15, n + 1))
    F = -((X[:, 1:] - X[:, :-1] - 0.2) ** 2) + 0.3 * np.sin(5.0 * X[:, :-1])

    def fitted(n_factors):
        graph = FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n_factors)})
        domain = Domain(np.zeros(n_factors + 1), np.ones(n_factors + 1))
        belief = AdditiveGP.create(AdditiveGPSettings(), graph, domain, "per-factor")
        return belief.update(X[:, : n_factors + 1], factors=F[:, :n_factors]).fit(np.random.default_rng(0))

    many, few = fitted(n), fitted(n - 1)
    lengths = np.array(many.hyperparameters.lengthscales)[:-1]
    assert not np.array_equal(lengths, few.hyperparameters.lengthscales)
    assert (np.abs(np.array(many.log_evidences())[:-1] - few.log_evidences()) < 0.05).mean() > 0.97


@pytest.mark.parametrize(("n_factors", "n_outcomes", "is_much"), [(6, 73, False), (6, 74, True), (8, 64, True)])
def test_few_factors_of_many_outcomes_are_much_work_too(n_factors, n_outcomes, is_much):
    """Fits and posteriors alike; an outcome that failed does not count."""
    graph = FactorGraph.from_scopes({f"f{i}": (f"x{i}",) for i in range(n_factors)})
    rng = np.random.default_rng(0)
    X, F = rng.random((n_outcomes + 1, n_factors)), rng.normal(size=(n_outcomes + 1, n_factors))
    F[-1] = np.nan
    belief = AdditiveGP(graph, outcomes="per-factor").update(X, F)
    assert is_compiled(["matern52"] * n_factors, n_outcomes) == is_much
    assert belief._conditioned.is_compiled == isinstance(belief._conditioned.parts, StackedParts) == is_much
    assert not is_compiled(["matern52"] * (n_factors - 1) + ["mine:Own"], n_outcomes)


def test_what_a_factor_is_fitted_to_be_does_not_depend_to_the_bit_on_the_others():
    graph = FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(7)})
    rng = np.random.default_rng(0)
    X, F = rng.random((60, 8)), rng.normal(size=(60, 7))
    F[:, 2] = np.sin(5.0 * X[:, 2] + X[:, 3])
    F[40:, 4] = np.nan  # another number of outcomes: another stack
    own = AdditiveGPSettings(factors={"f5": FactorPrior(kernel="rbf", noise_median=0.1)})

    def fitted(columns):
        part = graph.of([f"f{j}" for j in columns])
        settings = AdditiveGPSettings(factors={f: p for f, p in own.factors.items() if f in part.factors})
        used = [int(name[1:]) for name in part.variables]
        domain = Domain(np.zeros(len(used)), np.ones(len(used)))
        belief = AdditiveGP.create(settings, part, domain, "per-factor").update(X[:, used], factors=F[:, columns])
        return belief.fit(np.random.default_rng(0)).hyperparameters

    together = fitted(list(range(7)))
    assert together.kernels[5] == "rbf"
    for j in range(7):
        alone = fitted([j])
        assert together.lengthscales[j] == alone.lengthscales[0]
        assert together.noise_variances[j] == alone.noise_variances[0]
        assert together.constants[j] == alone.constants[0]


@pytest.mark.parametrize("n_outcomes", [30, 80])
def test_several_fits_side_by_side_are_each_what_they_are_alone_to_the_bit(n_outcomes):
    """In NumPy and, where outcomes are many, in compiled code; of other units, gaps, starts and streams each."""
    graph = FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(6)})
    rng = np.random.default_rng(0)
    X, F = rng.random((n_outcomes, 7)), rng.normal(size=(n_outcomes, 6))
    F[:, 1], F[5:, 4] = 3.0, np.nan  # one is always the same, another was seen seldom
    empty = AdditiveGP.create(
        AdditiveGPSettings(restarts=1), graph, Domain(np.zeros(7), np.ones(7)), outcomes="per-factor"
    )
    beliefs = [empty.update(X, factors=values) for values in (F, 100.0 + 7.0 * F, np.exp(F))]
    warm = [None, beliefs[1].fit(np.random.default_rng(9)).hyperparameters, None]
    alone = [belief.fit(np.random.default_rng(i), warm=warm[i]) for i, belief in enumerate(beliefs)]
    together = AdditiveGP.fit_alike(beliefs, [np.random.default_rng(i) for i in range(3)], warm)
    for one, other in zip(alone, together, strict=True):
        assert one.hyperparameters == other.hyperparameters
        assert one.fitted_at == other.fitted_at == n_outcomes
    assert len({belief.hyperparameters.scales for belief in together}) == 3
