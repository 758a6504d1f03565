"""Simultaneous fits of factors and of sums: the stacked evidence is the plain one, and its searches are as good."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief.gp import fit, stack_evaluation
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.fit_alone import multi_start_search
from swarmbo.belief.gp.hyperparameters import TimeAxis
from swarmbo.belief.gp.prior import HyperparameterPrior, starting_thetas
from swarmbo.belief.gp.stack_fit import StackedLogPosterior, maximise_stacked
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES, kernel_matrix
from swarmbo.spaces import Domain

from .dense import MINE

BRISK = {"longest": 2.0, "apart": 0.3, "tolerance": 1e-5}


def prior_of(sizes, model="separate", time=None):
    own = AdditiveGPSettings(time=time)
    names = [f"f{i}" for i in range(len(sizes))]
    return HyperparameterPrior.of(own, names, sizes, model, [own.noise_median])


def of_each(prior, U, z, rounds=None):
    rounds = np.zeros(z.shape) if rounds is None else rounds
    return StackedLogPosterior([prior] * len(z), "matern52", U, z, np.full(z.shape, np.nan), rounds)


def scopes_of(sizes):
    ends = np.cumsum(sizes)
    return [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]


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


@given(
    case=st.one_of(
        st.tuples(st.sampled_from([*KERNEL_NAMES, MINE]), st.tuples(st.integers(1, 4)), st.booleans()),
        st.tuples(st.sampled_from(KERNEL_NAMES), st.lists(st.integers(1, 3), min_size=2, max_size=4), st.just(False)),
    ),
    model=st.sampled_from(["shared", "hierarchical", "separate"]),
    n_outcomes=st.integers(1, 30),
    is_many=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_the_evidence_of_each_in_a_stack_is_its_separate_evidence(case, model, n_outcomes, is_many, seed):
    """Single latent functions, also with a user's kernel or a time axis, and sums; with and without LAPACK."""
    kernel, sizes, fades = case
    prior, rng = prior_of(sizes, model, TimeAxis("matern12") if fades else None), np.random.default_rng(seed)
    U, z = rng.random((3, n_outcomes, sum(sizes))), rng.normal(size=(3, n_outcomes))
    noise = np.where(rng.random(z.shape) < 0.5, rng.random(z.shape), np.nan)  # NaN: as fitted
    rounds = rng.integers(0, 30, z.shape).astype(float)
    stacked = StackedLogPosterior([prior] * 3, kernel, U, z, noise, rounds)
    theta = np.array([prior.sample(rng) for _ in range(5)])
    theta[:, -1] = np.maximum(theta[:, -1], np.log(1e-4))  # singular matrices agree to fewer digits
    which = np.array([0, 1, 2, 2, 0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack_evaluation, "MANY", 1 if is_many else 31)
        found = stacked(theta, which)
    for row, i in enumerate(which):
        own = U[i], z[i], noise[i]
        plain = LogPosterior(prior, [kernel] * len(sizes), scopes_of(sizes), *own, rounds=rounds[i])
        value, gradient = plain(theta[row])
        assert found.value[row] == pytest.approx(value, rel=1e-6, abs=1e-6)
        np.testing.assert_allclose(found.gradient[row], gradient, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())
        assert found.mean[row] == pytest.approx(plain.means(theta[row])[0], rel=1e-6, abs=1e-6)


def test_uninitialised_memory_in_a_large_fit_causes_no_warning(monkeypatch):
    """New memory has arbitrary content, here signalling NaNs; LAPACK does not write to one triangle."""
    signalling = np.array([0x7FF0000000000001], dtype=np.uint64).view(float)
    monkeypatch.setattr(stack_evaluation, "MANY", 1)
    monkeypatch.setattr(stack_evaluation.np, "empty", lambda shape, dtype=float: np.full(shape, signalling[0], dtype))
    prior, rng = prior_of([2]), np.random.default_rng(0)
    found = of_each(prior, rng.random((1, 9, 2)), rng.normal(size=(1, 9)))(prior.centre[None], np.zeros(1, dtype=int))
    assert np.isfinite(found.gradient).all()


@pytest.mark.parametrize("many", [1, 700])
@pytest.mark.parametrize("fades", [False, True])
def test_the_information_is_the_average_of_the_observed_and_the_expected_one(fades, many, monkeypatch):
    """Compared with its definition, with derivatives of the covariance by finite differences."""
    monkeypatch.setattr(stack_evaluation, "MANY", many)
    sizes = [2] if fades else [2, 1]
    prior, rng = prior_of(sizes, time=TimeAxis("matern52") if fades else None), np.random.default_rng(1)
    U, z, rounds = rng.random((9, sum(sizes))), rng.normal(size=9), rng.integers(0, 20, 9).astype(float)
    theta = prior.centre + 0.3 * rng.normal(size=len(prior.centre))
    theta[-1] = np.log(0.1)
    found = of_each(prior, U[None], z[None], rounds[None])(theta[None], np.zeros(1, dtype=int))

    def covariance(theta):
        first, rest = kernel_matrix("matern52", U[:, :2], U[:, :2], np.exp(theta[:2]), np.exp(theta[3])), 0.0
        if fades:
            first *= kernel_matrix("matern52", rounds[:, None], rounds[:, None], np.exp(theta[2:3]), 1.0)
        else:
            rest = kernel_matrix("matern52", U[:, 2:], U[:, 2:], np.exp(theta[2:3]), np.exp(theta[4]))
        return first + rest + np.exp(theta[-1]) * np.eye(9)

    inverse = np.linalg.inv(covariance(theta))
    alpha = inverse @ (z - found.mean[0])
    steps = 1e-6 * np.eye(len(theta))
    moved = [(covariance(theta + step) - covariance(theta - step)) @ alpha / 2e-6 for step in steps]
    wanted = 0.5 * np.array([[one @ inverse @ other for other in moved] for one in moved]) + prior.precision
    np.testing.assert_allclose(found.information[0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("many", [1, 700])
@pytest.mark.parametrize("sizes", [[2], [1, 1]])
def test_a_numerically_singular_matrix_gets_the_jitter_that_lapack_needs(sizes, many, monkeypatch):
    monkeypatch.setattr(stack_evaluation, "MANY", many)
    prior = prior_of(sizes)
    U = np.repeat(np.random.default_rng(0).random((5, 2)), 2, axis=0)  # every point twice
    z, no_noise, noise = np.repeat(np.arange(5.0), 2), np.zeros(10), np.zeros((2, 10))
    theta = np.array([prior.centre, prior.centre])
    theta[0, :2] = np.log(0.01)
    apart = U + 0.1 * np.arange(10.0)[:, None] % 0.2  # no point twice
    given = np.array([apart, U]), np.array([z, z]), noise, np.zeros((2, 10))
    log_posterior = StackedLogPosterior([prior] * 2, "matern12", *given)
    found = log_posterior(theta, np.arange(2))
    for row, points in enumerate((apart, U)):
        plain = LogPosterior(prior, ["matern12"] * len(sizes), scopes_of(sizes), points, z, no_noise)
        value, gradient = plain(theta[row])  # with jitter, pivots are as small as their rounding errors
        assert found.value[row] == pytest.approx(value, rel=1e-6 if points is apart else 2e-2)
        assert np.isfinite(found.gradient[row]).all()
        if points is apart:
            np.testing.assert_allclose(found.gradient[row], gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("brisk", [{}, BRISK])
@pytest.mark.parametrize(("n_outcomes", "size"), [(5, 1), (12, 2), (40, 2), (30, 4)])
def test_stacked_searches_are_as_good_as_l_bfgs_b(n_outcomes, size, brisk):
    """L-BFGS-B has the same starts. Noise has many maxima, so single results may be better or worse."""
    prior = prior_of([size])
    U, z, _ = problems(16, n_outcomes, size)
    starts = starting_thetas(prior, [], None)
    which = np.repeat(np.arange(16), len(starts))
    theta, value, _ = maximise_stacked(of_each(prior, U, z), np.tile(starts, (16, 1)), which, 60, **brisk)
    none = np.full(n_outcomes, np.nan)
    alone = (LogPosterior(prior, ["matern52"], [range(size)], X, y, none) for X, y in zip(U, z, strict=True))
    plain = [maximise(log_posterior, starts, 60)[1] for log_posterior in alone]
    best = value.reshape(16, -1).max(axis=1)
    assert (best > np.array(plain) - 1e-2).mean() >= 0.9
    assert best.sum() > sum(plain) - 0.1
    assert ((theta >= prior.bounds[:, 0]) & (theta <= prior.bounds[:, 1])).all()


@pytest.mark.parametrize("has_earlier", [False, True])
def test_a_search_with_part_of_many_outcomes_leads_to_the_maximum_with_all(has_earlier, monkeypatch):
    """Compared with a search with all outcomes from every start; also if an earlier fit ended at the maximum."""
    prior = prior_of([2])
    U, z, _ = problems(12, 64, 2)
    whole = of_each(prior, U, z)
    starts, which = np.tile(starting_thetas(prior, [], None), (12, 1)), np.repeat(np.arange(12), 2)
    theta, value, _ = maximise_stacked(whole, starts, which, 60)
    best = value.reshape(12, 2).max(axis=1)
    if has_earlier:
        starts[::2] = theta[2 * np.arange(12) + value.reshape(12, 2).argmax(axis=1)]
    asked = list[int]()
    evaluated = StackedLogPosterior.__call__

    def counted(self, theta, which):
        asked.append(len(theta) * (self.z.shape[1] == 64))
        return evaluated(self, theta, which)

    monkeypatch.setattr(StackedLogPosterior, "__call__", counted)
    found, _, mean = multi_start_search(whole, starts, 60, is_warm=has_earlier)
    n_sketched = sum(asked)
    reached = evaluated(whole, found, np.arange(12))
    np.testing.assert_allclose(reached.mean, mean, atol=1e-9)
    assert (reached.value > best - 0.02).mean() >= 0.9
    assert (reached.value > best - 1e-3).all() or not has_earlier
    asked.clear()
    maximise_stacked(whole, starts, which, 60, **BRISK)
    assert n_sketched < (0.7 if has_earlier else 0.6) * sum(asked)


def test_searches_that_meet_continue_as_one():
    prior = prior_of([2])
    U, z, _ = problems(8, 20, 2)
    starts, which = starting_thetas(prior, [], None), np.repeat(np.arange(8), 2)

    class Counted(StackedLogPosterior):
        n = 0

        def __call__(self, theta, which):
            self.n += len(theta)
            return super().__call__(theta, which)

    found = []
    for apart in (0.0, 0.3):
        stacked = Counted([prior] * 8, "matern52", U, z, np.full(z.shape, np.nan), np.zeros(z.shape))
        _, value, _ = maximise_stacked(stacked, np.tile(starts, (8, 1)), which, 60, apart=apart)
        found.append((stacked.n, value.reshape(8, 2).max(axis=1)))
    (n_both, both), (n_one, one) = found
    assert n_one < 0.9 * n_both
    np.testing.assert_allclose(one, both, atol=1e-2)


@pytest.mark.parametrize("n_outcomes", [20, *(pytest.param(n, marks=pytest.mark.slow) for n in (70, 110))])
@pytest.mark.parametrize("has_earlier", [False, True])
@pytest.mark.parametrize("fades", [False, True])
def test_a_search_is_within_a_tenth_of_a_nat_of_a_longer_one(n_outcomes, has_earlier, fades):
    """Also with a time axis, and from the end of an earlier search, which is left for a better maximum."""
    prior = prior_of([2], time=TimeAxis() if fades else None)
    U, z, rng = problems(12, n_outcomes, 2, seed=3)
    rounds = np.sort(rng.integers(0, 40, z.shape), axis=1).astype(float)
    whole, which = of_each(prior, U, z, rounds), np.repeat(np.arange(12), 2)
    cold = np.array(starting_thetas(prior, [], None))
    poor = prior.centre.copy()
    poor[:2], poor[-1] = prior.bounds[:2, 1], prior.bounds[-1, 1]  # all is noise
    starts = np.tile(np.array(starting_thetas(prior, [], poor)) if has_earlier else cold, (12, 1))
    far = maximise_stacked(whole, np.tile(cold, (12, 1)), which, 60)[1].reshape(12, 2).max(axis=1)
    theta, _, mean = multi_start_search(whole, starts, 60, is_warm=has_earlier)
    reached = whole(theta, np.arange(12))
    assert (reached.value > far - 0.1).mean() >= (0.75 if has_earlier or n_outcomes > 64 else 0.9)
    np.testing.assert_allclose(reached.mean, mean, atol=1e-9)
    assert ((theta >= prior.bounds[:, 0]) & (theta <= prior.bounds[:, 1])).all()
    for i in range(0, 12, 5):  # each latent function ends where a separate search ends
        alone = of_each(prior, U[[i]], z[[i]], rounds[[i]])
        np.testing.assert_array_equal(multi_start_search(alone, starts[:2], 60, is_warm=has_earlier)[0][0], theta[i])


def test_the_fit_of_a_factor_is_bit_identical_whatever_other_factors_there_are():
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
        for name in ("lengthscales", "noise_variances", "constants"):
            assert getattr(together, name)[j] == getattr(alone, name)[0]


@pytest.mark.parametrize("n_outcomes", [30, 80])
def test_simultaneous_fits_are_bit_identical_to_separate_fits(n_outcomes):
    """With few outcomes, and with so many that a part is searched first; units, gaps, starts and streams differ."""
    graph = FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(6)})
    rng = np.random.default_rng(0)
    X, F = rng.random((n_outcomes, 7)), rng.normal(size=(n_outcomes, 6))
    F[:, 1], F[5:, 4] = 3.0, np.nan  # one is constant, another was seldom observed
    box = Domain(np.zeros(7), np.ones(7))
    empty = AdditiveGP.create(AdditiveGPSettings(restarts=1), graph, box, outcomes="per-factor")
    beliefs = [empty.update(X, factors=values) for values in (F, 100.0 + 7.0 * F, np.exp(F))]
    warm = [None, beliefs[1].fit(np.random.default_rng(9)).hyperparameters, None]
    alone = [belief.fit(np.random.default_rng(i), warm=warm[i]) for i, belief in enumerate(beliefs)]
    together = AdditiveGP.fit_together(beliefs, [np.random.default_rng(i) for i in range(3)], warm)
    for one, other in zip(alone, together, strict=True):
        assert one.hyperparameters == other.hyperparameters
        assert one.fitted_at == other.fitted_at == n_outcomes
    assert len({belief.hyperparameters.scales for belief in together}) == 3


def sums(n_sums, n_outcomes, seed=0):
    """Beliefs about sums over three variables, of waves with random lengths and heights."""
    rng = np.random.default_rng(seed)
    graph = FactorGraph.from_scopes({f: [x] for f, x in zip("fgh", "abc", strict=True)})
    settings = AdditiveGPSettings(restarts=3, outputscale_log_std=1.0)
    empty = AdditiveGP.create(settings, graph, Domain(np.zeros(3), np.ones(3)))
    for i in range(n_sums):
        X = rng.random((n_outcomes, 3))
        y = (rng.uniform(0.5, 2.0, 3) * np.sin(rng.uniform(2.0, 12.0, 3) * X)).sum(axis=1)
        yield empty.update(X, 10.0**i * (y + 0.01 * rng.normal(size=n_outcomes)))


@pytest.mark.parametrize("n_outcomes", [30, 70])
def test_simultaneous_fits_of_sums_are_as_good_as_separate_fits(n_outcomes):
    beliefs = list(sums(6, n_outcomes))
    rngs = [np.random.default_rng(i) for i in range(6)]
    plain = [belief.fit(np.random.default_rng(i)) for i, belief in enumerate(beliefs)]
    fitted = AdditiveGP.fit_together(beliefs, rngs, [None] * 6)
    gained = [one.log_evidence() - other.log_evidence() for one, other in zip(fitted, plain, strict=True)]
    assert (np.array(gained) > -0.3).mean() >= 0.8  # fits also maximise the prior, which is left out here
    for one, other in zip(fitted, plain, strict=True):
        assert one.fitted_at == n_outcomes
        assert one.hyperparameters.constants == pytest.approx(other.hyperparameters.constants, rel=0.2, abs=0.5)
        assert one.hyperparameters.scales == other.hyperparameters.scales
    warm = AdditiveGP.fit_together(beliefs, rngs, [belief.hyperparameters for belief in fitted])
    for one, other in zip(warm, fitted, strict=True):
        assert one.log_evidence() == pytest.approx(other.log_evidence(), abs=0.3)


def test_the_fit_of_a_sum_is_bit_identical_whatever_other_sums_there_are():
    beliefs = [*sums(3, 66), *sums(1, 40)]
    flat = beliefs[0].update(beliefs[0].X[:5], np.ones(5))
    constant = flat._with(**{name: getattr(flat, name)[-5:] for name in ("points", "totals", "factors", "noise")})
    beliefs.append(constant._with(rounds=np.zeros(5), base=None))

    def fitted(places):
        rngs = [np.random.default_rng(i) for i in places]
        return AdditiveGP.fit_together([beliefs[i] for i in places], rngs, [None] * len(places))

    together = fitted(range(5))
    for i in range(5):
        assert fitted([i])[0].hyperparameters == together[i].hyperparameters
    prior = msgspec.structs.replace(constant.hyperparameters, constants=together[4].hyperparameters.constants)
    assert together[4].hyperparameters.lengthscales == prior.lengthscales  # equal outcomes have no information
    assert sum(together[4].hyperparameters.constants) == pytest.approx(1.0)


@pytest.mark.parametrize("way", ["plain", "mixed", "fading"])
def test_a_fit_with_part_of_many_totals_leads_to_the_maximum_with_all(way, monkeypatch):
    """It needs fewer steps with all totals. Cases: a plain sum, with outcomes of factors, and with a time axis."""
    (plain,), rng, asked = sums(1, 120), np.random.default_rng(5), list[int]()
    given = {"totals": plain.totals, "rounds": np.arange(120.0)}
    if way == "mixed":
        given["factors"] = np.where(rng.random((120, 3)) < 0.3, np.sin(5.0 * plain.X), np.nan)
        given["totals"] = np.where(np.isfinite(given["factors"]).any(axis=1), np.nan, plain.totals)
    time = TimeAxis() if way == "fading" else None
    settings = msgspec.structs.replace(plain.settings, restarts=0, time=time)
    belief = AdditiveGP.create(settings, plain.graph, plain.domain).update(plain.X, **given)
    for kind in (LogPosterior, StackedLogPosterior):

        def counted(self, *at, call=kind.__call__):
            asked.append(self.z.shape[-1])
            return call(self, *at)

        monkeypatch.setattr(kind, "__call__", counted)
    whole = belief.fit(np.random.default_rng(0))
    n_whole = asked.count(len(belief.observations))
    asked.clear()
    monkeypatch.setattr(fit, "_SUBSET_FROM", 40)
    by_part = [belief.fit(np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert by_part[0].hyperparameters == by_part[1].hyperparameters
    assert asked.count(len(belief.observations)) < 0.7 * 3 * n_whole
    for found in by_part:
        assert found.log_evidence() == pytest.approx(whole.log_evidence(), abs=0.1)
    asked.clear()
    again = belief.fit(np.random.default_rng(2), warm=whole.hyperparameters)  # no part is searched first
    assert set(asked) == {len(belief.observations)}
    assert again.log_evidence() == pytest.approx(whole.log_evidence(), abs=0.1)
