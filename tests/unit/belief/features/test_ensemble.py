"""Ensembles of Gaussian processes: weights, members, features, draws."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import multivariate_normal

import swarmbo as sb
from swarmbo.belief import AdditiveGP, AdditiveGPSettings
from swarmbo.belief.features.ensemble import Ensemble
from swarmbo.belief.features.ensemble_part import _fit_variances, feature_rows, observed, part_of
from swarmbo.belief.features.ensemble_settings import EnsembleSettings, Member
from swarmbo.belief.gp.observations import TOTAL
from swarmbo.belief.gp.spatial import checked_noise, checked_partial_outcomes, checked_points
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.kernels import kernel_matrix
from swarmbo.problem.data import Dataset
from swarmbo.settings import convert
from swarmbo.spaces import Domain
from swarmbo.testing import check_belief

GRAPH = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
DOMAIN = Domain(np.array([-1.0, 0.0, 0.0]), np.array([1.0, 2.0, 5.0]))
SMALL = EnsembleSettings(n_features=40)


def some_data(t=14, outcomes="total", seed=0):
    rng = np.random.default_rng(seed)
    U = rng.random((t, 3))
    parts = np.column_stack([np.sin(5.0 * U[:, 0] + U[:, 1]), np.cos(4.0 * U[:, 1]) * U[:, 2]]) * 7.0 + 3.0
    parts += 0.05 * rng.standard_normal(parts.shape)
    none = np.full((t, 2), np.nan)
    totals = parts.sum(axis=1) if outcomes == "total" else np.full(t, np.nan)
    return Dataset(DOMAIN.from_unit(U), totals, none if outcomes == "total" else parts)


def with_noise(data, seed=7):
    """Two of three outcomes have a known noise."""
    noise = np.exp(np.random.default_rng(seed).normal(size=(len(data), 3)) - 1.0)
    return replace(data, noise_std=np.where(np.arange(len(data))[:, None] % 3, noise, np.nan))


class Taught(Ensemble):
    """An ensemble that is updated as other beliefs are; hyper-parameters and features stay."""

    @property
    def n_data(self):
        return int((np.isfinite(self.data.totals) | np.isfinite(self.data.factors).any(axis=1)).sum())

    def update(self, X, y=None, *, totals=None, factors=None, noise_variance=None):
        X, n = checked_points(X, 3), len(X)
        totals = checked_partial_outcomes("totals", y if totals is None else totals, (n,))
        factors = checked_partial_outcomes("factors", factors, (n, 2))
        new = Dataset(X, totals, factors, noise_std=np.sqrt(checked_noise(noise_variance, n, 2)))
        parts = [part_of(new, part.hyper.factors, coupled=self.is_coupled) for part in self.parts]
        own = [observed(part, self.domain) for part in parts]
        parts = tuple(part.updated(rows) for part, rows in zip(self.parts, own, strict=True))
        return replace(self, parts=parts, data=self.data.then(new))


def learn(belief, more):
    return belief.update(more.X, totals=more.totals, factors=more.factors, noise_variance=more.known_noise**2)


def taught(data, outcomes="total", settings=SMALL, **more):
    given = {"coupled": outcomes == "total", "seed": 3} | more
    return Taught.learned(settings, GRAPH, DOMAIN, data, **given)


def fitted(outcomes="total", settings=SMALL, t=14):
    return taught(some_data(t, outcomes), outcomes, settings)


@pytest.mark.parametrize("has_noise", [False, True])
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_weights_by_recursion_are_those_of_the_batch_evidence_of_random_features(outcomes, has_noise) -> None:
    # the oracle computes y ~ N(c, Phi Phi' + D) of each member from its bases, in standardised units
    known, more = some_data(14, outcomes), some_data(9, outcomes, seed=1)
    if has_noise:
        known, more = with_noise(known), with_noise(more, seed=8)
    belief = learn(taught(known, outcomes), more)
    U = DOMAIN.to_unit(np.concatenate([known.X, more.X]))
    for part in belief.parts:
        i = part.hyper.factors[0]
        y, column = np.concatenate([known.totals, more.totals]), 0 if outcomes == "total" else 1 + i
        variance = np.concatenate([known.known_noise, more.known_noise])[:, column] ** 2 / part.hyper.scale**2
        if outcomes == "per-factor":
            y = np.concatenate([known.factors, more.factors])[:, i]
        evidence = np.empty(12)
        for m, member in enumerate(part.hyper.members):
            own = [basis.features(U[:, list(s)]) for basis, s in zip(part.bases[m], part.scopes, strict=True)]
            K = sum(Phi @ Phi.T for Phi in own)
            K += np.diag(np.where(np.isnan(variance), member.noise_variance, variance))
            z = (y - part.hyper.constants(member).sum()) / part.hyper.scale
            evidence[m] = multivariate_normal.logpdf(z, np.zeros(23), K)
        np.testing.assert_allclose(part.models.log_evidence, evidence, rtol=1e-8, atol=1e-8)
        odds = np.exp(evidence - evidence.max())
        np.testing.assert_allclose(part.weights(0.0), odds / odds.sum(), atol=1e-8)


def test_learning_in_parts_of_any_size_is_bit_identical() -> None:
    base, more = fitted(), some_data(8, seed=1)
    whole = learn(base, more)
    cut = base
    for rows in (slice(3), slice(3, 4), slice(4, None)):
        cut = learn(cut, more.take(rows))
    history = base.data.then(more)
    again = [taught(history, previous=base.hyper, last=last) for last in (None, base, cut, fitted(t=5))]
    for other in (cut, *again):
        assert other.weights[0].tolist() == whole.weights[0].tolist()
        assert other.posterior(more.X)[1].tolist() == whole.posterior(more.X)[1].tolist()
    assert cut.data.begins_with(base.data)
    assert not base.data.begins_with(cut.data)


@given(st.lists(st.floats(-1e5, 1e5), min_size=12, max_size=12), st.floats(0.0, 0.08))
def test_weights_are_a_distribution_above_the_floor_in_the_order_of_evidence(evidence, floor) -> None:
    part = fitted(settings=msgspec.structs.replace(SMALL, lengthscales=(0.1, 0.3, 1.0), n_features=2)).parts[0]
    w = replace(part, models=replace(part.models, log_evidence=np.array(evidence))).weights(floor)
    assert w.sum() == pytest.approx(1.0)
    assert (w >= floor).all()
    order = np.argsort(evidence)
    assert (np.diff(w[order]) >= 0.0).all()


def test_an_ensemble_of_one_member_passes_the_checks_of_all_beliefs() -> None:
    # with several members, data that favour another member may increase the variance of the mixture
    one = EnsembleSettings(kernels=("matern52",), lengthscales=(0.5,), n_features=200)
    none = Dataset(np.zeros((0, 3)), np.zeros(0), np.zeros((0, 2)))
    check_belief(lambda: taught(none, settings=one))


def test_parts_of_factors_do_not_use_outcomes_of_other_parts() -> None:
    ours = some_data(30, "per-factor")
    theirs = replace(ours, factors=np.where([True, False], ours.factors, np.nan))
    previous = [None, None]
    for t in range(10, 31, 5):
        given = zip((ours, theirs), previous, strict=True)
        both = [taught(data.take(slice(t)), "per-factor", previous=kept) for data, kept in given]
        previous = [belief.hyper for belief in both]
        assert both[0].weights[0].tolist() == both[1].weights[0].tolist()
        assert both[0].hyper.parts[0] == both[1].hyper.parts[0]


def test_the_member_that_generated_the_data_has_the_largest_weight() -> None:
    dictionary = EnsembleSettings(kernels=("rbf", "matern12"), lengthscales=(0.05, 0.5), n_features=1000)
    graph, domain = FactorGraph.from_scopes({"f": ["x"]}), Domain(np.zeros(1), np.ones(1))
    X = np.linspace(0.0, 1.0, 150)[:, None]
    # the fourth is left out: finely sampled, exp(-r) of any lengthscale is nearly the same up to its outputscale
    for m, (kernel, length) in enumerate([("rbf", 0.05), ("rbf", 0.5), ("matern12", 0.05)]):
        K = kernel_matrix(kernel, X, X, np.array([length]), 1.0) + 1e-2 * np.eye(150)
        y = np.linalg.cholesky(K) @ np.random.default_rng(m + 1).standard_normal(150)
        data = Dataset(X, y, np.full((150, 1), np.nan))
        belief = Taught.learned(dictionary, graph, domain, data, coupled=True, seed=0)
        assert int(belief.weights[0].argmax()) == m


def test_lengthscales_from_a_ten_thousandth_to_a_million_give_finite_values() -> None:
    # the paper's second dictionary; pytest turns warnings into errors
    lengths = tuple(10.0**c for c in range(-4, 7))
    wide = EnsembleSettings(kernels=("rbf", "matern12"), lengthscales=lengths, n_features=40)
    for outcomes in ("total", "per-factor"):
        belief = learn(fitted(outcomes, wide), some_data(10, outcomes, seed=2)).condition_on_pending(some_data(3).X)
        mean, var = belief.posterior(some_data(30, seed=9).X)
        assert np.isfinite(mean).all()
        assert (var > 0.0).all()
        for part in belief.parts:
            assert np.isfinite(part.models.log_evidence).all()
        k = len(belief.parts)
        for m in range(22):
            rngs = [np.random.default_rng([m, i]) for i in range(4)]
            sample = belief.draw((m,) * k, rngs[:2], rngs[2 : 2 + k])
            (stack,) = stacks_of(GRAPH)
            value, slope = sample.value_and_gradient(stack, np.random.default_rng(0).random((2, 6, 2)))
            assert all(np.isfinite(found).all() for found in (value, slope))


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_a_draw_splits_over_factors_and_is_a_weighted_sum_of_features(outcomes) -> None:
    belief = learn(fitted(outcomes), some_data(4, outcomes, seed=1))
    k, U = len(belief.parts), np.random.default_rng(1).random((7, 3))
    chosen = (5, 7)[:k]

    def rngs(first):
        return [np.random.default_rng([first, i]) for i in range(2)]

    sample = belief.draw(chosen, rngs(0), rngs(1)[:k])
    (stack,) = stacks_of(GRAPH)
    values = sample.value(stack, stack.take(U))
    prior, noise = [rng.standard_normal(40) for rng in rngs(0)], [rng.standard_normal(18) for rng in rngs(1)]
    for part, m, e in zip(belief.parts, chosen, noise, strict=False):
        own = list(part.hyper.factors)
        w = part.models.draw(m, np.concatenate([prior[i] for i in own]), e)
        Phi = feature_rows(part.bases, part.scopes, U, np.full(7, TOTAL))[m]
        wanted = part.hyper.constants(part.hyper.members[m]).sum() + part.hyper.scale * (Phi @ w)
        np.testing.assert_allclose(values[own].sum(axis=0), wanted, rtol=1e-5, atol=1e-4)  # waves are in float32
    plain, (again, slope) = values, sample.value_and_gradient(stack, stack.take(U))
    np.testing.assert_allclose(plain, again, rtol=1e-12)
    step = np.zeros(3)
    step[1] = 1e-3
    change = sample.value(stack, stack.take(U + step)) - sample.value(stack, stack.take(U - step))
    np.testing.assert_allclose(change[0] / 2e-3, slope[0, :, 1], rtol=0.05, atol=0.5)


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_with_many_features_a_member_is_the_exact_process_of_its_hyperparameters(outcomes) -> None:
    many = EnsembleSettings(kernels=("rbf",), lengthscales=(0.5,), n_features=8000)
    belief = fitted(outcomes, many)
    exact, X = belief.exact((0,) * len(belief.parts)), some_data(6, seed=4).X
    mean, var = belief.posterior(X)
    wanted, wanted_var = exact.posterior(X)
    scale = belief.hyper.parts[0].scale
    np.testing.assert_allclose(mean, wanted, atol=0.15 * scale)
    np.testing.assert_allclose(np.sqrt(var), np.sqrt(wanted_var), atol=0.1 * scale)
    waiting, wanted = (np.sqrt(one.condition_on_pending(X[:1]).posterior(X)[1]) for one in (belief, exact))
    np.testing.assert_allclose(waiting, wanted, atol=0.1 * scale)
    for factor, scope in zip(GRAPH.factors, GRAPH.columns, strict=True):
        mean, var = belief.factor_posterior(factor, X)
        wanted, wanted_var = exact.factor_posterior(factor, X[:, list(scope)])
        np.testing.assert_allclose(mean, wanted, atol=0.2 * scale)
        np.testing.assert_allclose(np.sqrt(var), np.sqrt(wanted_var), atol=0.1 * scale)
    for part in belief.parts:  # factors share the variance of their sum
        (member,), (bases,), U = part.hyper.members, part.bases, DOMAIN.to_unit(X)
        features = [basis.features(U[:, list(scope)]) for basis, scope in zip(bases, part.scopes, strict=True)]
        shares = [(Phi[0] ** 2).sum() / member.outputscale for Phi in features]
        assert shares == pytest.approx(list(member.shares))


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_the_posterior_is_that_of_a_member_drawn_by_weight(outcomes) -> None:
    belief, X = fitted(outcomes), some_data(5, seed=8).X
    U = DOMAIN.to_unit(X)
    mean, var = np.zeros(5), np.zeros(5)
    for part, w in zip(belief.parts, belief.weights, strict=True):
        of_features, spread = part.models.marginals(feature_rows(part.bases, part.scopes, U, np.full(5, TOTAL)))
        constants = np.array([part.hyper.constants(member).sum() for member in part.hyper.members])
        own = constants[:, None] + part.hyper.scale * of_features
        mean, var = mean + w @ own, var + w @ (part.hyper.scale**2 * spread + own**2) - (w @ own) ** 2
    np.testing.assert_allclose(belief.posterior(X)[0], mean, rtol=1e-6)
    np.testing.assert_allclose(belief.posterior(X)[1], var, rtol=1e-5)
    np.testing.assert_allclose(belief.factor_means(U).sum(axis=0), mean, rtol=1e-6)


def test_the_unit_of_a_sum_counts_all_factors_whose_outcomes_vary() -> None:
    known = some_data(14, "per-factor")
    for sizes in ([1e-3, 1e4], [1e4, 1e-3], [0.0, 1e4], [1e4, 0.0]):
        factors = known.factors * sizes
        stds = [std for std in factors.std(axis=0) if std]
        (part,) = taught(replace(known, factors=factors), coupled=True).hyper.parts
        assert part.scale == pytest.approx(np.sqrt(np.mean(np.square(stds))))


def test_totals_and_outcomes_of_factors_are_learned_together() -> None:
    known = some_data(14, "per-factor")
    totals = known.factors.sum(axis=1)
    factors = known.factors.copy()
    totals[:7], factors[7:] = np.nan, np.nan
    mixed = taught(Dataset(known.X, totals, factors))
    assert mixed.parts[0].models.n_rows == 14 + 7
    means = mixed.factor_means(DOMAIN.to_unit(known.X[:7]))
    assert np.abs(means - known.factors[:7].T).max() < 1.5


@given(st.floats(0.01, 50.0), st.floats(1e-5, 1.0), st.integers(0, 99), st.sampled_from(["none", "some", "all"]))
def test_fitted_variances_are_the_best_of_their_neighbourhood(scale, noise, seed, told) -> None:
    """If all noises are known, that of future outcomes is their mean."""
    rng = np.random.default_rng(seed)
    Phi = rng.standard_normal((20, 30)) / np.sqrt(30)
    z = 0.7 + Phi @ rng.standard_normal(30) * np.sqrt(scale) + np.sqrt(noise) * rng.standard_normal(20)
    share = {"none": 0.0, "some": 0.5, "all": 1.0}[told]
    known = np.where(rng.random(20) < share, np.where(np.arange(20) % 2, noise, 10.0 * noise), np.nan)
    got = _fit_variances(SMALL, Member("rbf", ((1.0,),), (1.0,)), Phi @ Phi.T, z, known, has_constant=True)

    def objective(s, n):
        K = s * Phi @ Phi.T + np.diag(np.where(np.isnan(known), n, known))
        one = np.ones(20)
        c = (one @ np.linalg.solve(K, z)) / (one @ np.linalg.solve(K, one))
        density = multivariate_normal.logpdf(z - c, np.zeros(20), K)
        return density - 0.5 * np.log(s) ** 2 - 0.5 * (np.log(n / 1e-4) / 1.5) ** 2, c

    best, c = objective(got.outputscale, got.noise_variance)
    assert got.constant == pytest.approx(c, abs=1e-6)
    step = 1.0 if np.isfinite(known).any() else 0.25  # of noise; fewer are tried where noises differ
    if told == "all":
        assert got.noise_variance == pytest.approx(5.5 * noise)
    for ds, dn in ((0.25, 0), (-0.25, 0), (0, step), (0, -step))[: 2 if told == "all" else 4]:
        s, n = got.outputscale * np.exp(ds), got.noise_variance * np.exp(dn)
        if n >= SMALL.noise_floor and 1e-3 < s < 1e3:
            assert objective(s, n)[0] <= best + 1e-6


@pytest.mark.parametrize("t", [0, 1, 2])
def test_few_or_equal_or_huge_outcomes_give_a_proper_belief(t) -> None:
    for y in (np.full(t, 3.0), np.linspace(1e59, 2e59, t), np.linspace(0.0, 1e-40, t)):
        data = Dataset(some_data(t).X, y, np.full((t, 2), np.nan))
        belief = taught(data).update(some_data(1).X, [-9e59])
        mean, var = belief.posterior(some_data(5).X)
        assert all(np.isfinite(found).all() for found in (mean, var, belief.weights[0]))


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize(("length", "model"), [("fitted", "auto"), ("shared", "shared")])
def test_fitted_lengthscales_are_those_of_an_additive_belief_with_the_same_priors(outcomes, length, model) -> None:
    noise = {"noise_median": 0.2, "noise_log_std": 0.3, "noise_floor": 0.01}
    belief = fitted(outcomes, EnsembleSettings(kernels=("rbf",), lengthscales=(0.3, length), n_features=20, **noise))
    data, kind = some_data(14, outcomes), AdditiveGPSettings(kernel="rbf", lengthscales=model, **noise)
    additive = AdditiveGP.create(kind, GRAPH, DOMAIN, outcomes).update(data.X, totals=data.totals, factors=data.factors)
    wanted = additive.fit(np.random.default_rng(0)).hyperparameters.lengthscales
    got = [lengths for part in belief.hyper.parts for lengths in part.members[1].lengthscales]
    np.testing.assert_allclose(got, wanted, rtol=1e-9)
    alike = [len(set(lengths)) == 1 for lengths in got] + [outcomes == "per-factor" or got[0] == got[1]]
    assert all(alike) == (length == "shared")


def test_the_four_kernels_of_the_paper_are_members_of_a_dictionary() -> None:
    given = {"kernels": ["rbf", "matern32", "matern52"], "lengthscales": ["fitted", "shared"]}
    named = convert({"kind": "ensemble", **given}, EnsembleSettings)
    (part,) = fitted(settings=msgspec.structs.replace(named, n_features=100)).hyper.parts
    found = [(member.kernel, len({*member.lengthscales[0], *member.lengthscales[1]}) == 1) for member in part.members]
    assert found == [(kernel, shared) for kernel in ("rbf", "matern32", "matern52") for shared in (False, True)]


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"kernels": ["rbf", "rbf"]}, "kernels"),
        ({"kernels": ["rfb"]}, "kernels"),
        ({"lengthscales": []}, "lengthscales"),
        ({"lengthscales": [0.0]}, "lengthscales"),
        ({"lengthscales": ["guessed"]}, "lengthscales"),
        ({"floor": 0.1}, "12 members"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong, names) -> None:
    with pytest.raises(sb.SwarmboError, match=names):
        convert({"kind": "ensemble", **wrong}, EnsembleSettings)
    with pytest.raises(ValueError, match="'fitted' or 'shared'"):
        EnsembleSettings(lengthscales=(0.3, "guessed"))


def test_members_predict_the_mean_of_known_noises_if_all_are_known() -> None:
    data = replace(some_data(14), noise_std=np.full((14, 3), 0.5))
    belief = taught(data)
    noises = np.array([member.noise_variance for member in belief.parts[0].hyper.members])
    np.testing.assert_allclose(noises * belief.parts[0].hyper.scale ** 2, 0.25, rtol=1e-9)
    chosen = belief.choose([np.random.default_rng(0)])
    np.testing.assert_array_equal(belief.exact(chosen).noise[:, 0], 0.25)
