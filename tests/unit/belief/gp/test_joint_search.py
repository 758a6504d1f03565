"""Fits of sums of which totals are told: compiled code comes to what NumPy does."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief.gp import hyperparameters, joint_search
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.compiled_evidence import OneSumPosterior
from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.hyperparameters import COMPILED_FROM, TimeAxis, is_compiled_sum
from swarmbo.belief.gp.joint_search import search_jointly
from swarmbo.belief.gp.observations import TOTAL
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.gp.starts import starting_thetas
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES

SCOPES = [(0, 1), (2,), (1, 3), (4, 5)]  # of which two overlap
KERNELS = ["matern52"] * len(SCOPES)


def prior_of(model="hierarchical", scopes=SCOPES, n_noises=1, time=None):
    own = AdditiveGPSettings(time=time)
    noises = [own.noise_median] * n_noises
    return HyperparameterPrior.of(own, [""] * len(scopes), [len(scope) for scope in scopes], model, noises)


def data(n_outcomes, seed):
    """Waves and bowls of the scopes, with a little noise of which some was told."""
    rng = np.random.default_rng(seed)
    U, z = rng.random((n_outcomes, 6)), 0.05 * rng.normal(size=n_outcomes)
    for scope in SCOPES:
        own = U[:, scope]
        z += np.sin(own @ rng.uniform(1.0, 8.0, len(scope))) - 2.0 * ((own - rng.random(len(scope))) ** 2).sum(axis=1)
    known = np.where(rng.random(n_outcomes) < 0.2, 0.01, np.nan)
    return U, (z - z.mean()) / z.std(), known


@pytest.fixture
def _compiled(monkeypatch):
    monkeypatch.setattr(hyperparameters, "_COMPILED_COORDINATES", 1)


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize("model", ["hierarchical", "separate", "shared"])
@pytest.mark.parametrize("is_warm", [False, True])
def test_compiled_searches_come_to_what_numpy_does(model, is_warm):
    prior, agree = prior_of(model), list[bool]()
    for seed in range(4):
        U, z, known = data(40, seed)
        plain = LogPosterior(prior, KERNELS, SCOPES, U, z, known)
        starts = starting_thetas(prior, [], None)
        if is_warm:
            starts = [maximise(LogPosterior(prior, KERNELS, SCOPES, U[:-3], z[:-3], known[:-3]), starts, 60)[0]]
        theta, value, means = search_jointly(prior, KERNELS, SCOPES, U, z, known, starts, 60)
        wanted, worth = maximise(plain, starts, 60)
        assert not np.array_equal(theta, wanted)  # nothing was compared with itself
        assert value == pytest.approx(plain(theta)[0], abs=1e-6)
        agree.append(abs(value - worth) < 1e-3 and bool(np.abs(theta - wanted).max() < 0.05))
        np.testing.assert_allclose(means, plain.means(theta), rtol=1e-6, atol=1e-8)
    assert sum(agree) >= 3  # last digits may send one search up another hill


@settings(max_examples=30, deadline=None)
@given(
    kernel=st.sampled_from(KERNEL_NAMES),
    model=st.sampled_from(["shared", "hierarchical", "separate"]),
    n_outcomes=st.integers(1, 30),
    seed=st.integers(0, 10**6),
)
def test_one_sum_is_worth_in_compiled_code_what_it_is_in_numpy(kernel, model, n_outcomes, seed):
    prior, rng = prior_of(model), np.random.default_rng(seed)
    known = np.where(rng.random(n_outcomes) < 0.3, rng.random(n_outcomes), np.nan)
    told = (prior, [kernel] * len(SCOPES), SCOPES, rng.random((n_outcomes, 6)), rng.normal(size=n_outcomes), known)
    plain, compiled = LogPosterior(*told), OneSumPosterior(*told)
    theta = prior.sample(rng)
    theta[-1] = max(theta[-1], np.log(1e-3))  # singular matrices agree to fewer digits
    for one, other in zip(compiled(theta), plain(theta), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(compiled.means(theta), plain.means(theta), rtol=1e-6, atol=1e-8)


def test_a_matrix_that_is_singular_to_rounding_is_left_to_numpy():
    prior, U = prior_of("separate"), np.repeat(np.random.default_rng(0).random((5, 6)), 2, axis=0)  # every point twice
    given = (prior, KERNELS, SCOPES, U, np.repeat(np.arange(5.0), 2), np.zeros(10))
    plain, compiled = LogPosterior(*given), OneSumPosterior(*given)
    value, gradient = compiled(prior.centre)
    assert value == plain(prior.centre)[0]
    np.testing.assert_array_equal(gradient, plain(prior.centre)[1])
    np.testing.assert_array_equal(compiled.means(prior.centre), plain.means(prior.centre))


@pytest.mark.usefixtures("_compiled")
def test_what_compiled_searches_cannot_do_is_left_to_numpy_to_the_same_bits():
    U, z, known = data(20, 0)
    channel, mixed = np.where(np.arange(20) % 3, TOTAL, 1), prior_of(n_noises=len(SCOPES) + 1)
    fading, fades = ("matern32", np.arange(20.0)), prior_of(time=TimeAxis())
    several = [*KERNELS[:-1], "rbf"]
    cases = [
        (mixed, KERNELS, channel, None),
        (fades, KERNELS, None, fading),
        (prior_of(), several, None, None),
    ]
    for prior, kernels, told, time in cases:
        found = search_jointly(prior, kernels, SCOPES, U, z, known, [prior.centre], 9, channel=told, decay=time)
        plain = LogPosterior(prior, kernels, SCOPES, U, z, known, told, time)
        theta, value = maximise(plain, [prior.centre], 9)
        np.testing.assert_array_equal(found[0], theta)
        assert found[1] == value
        np.testing.assert_array_equal(found[2], plain.means(theta))


@pytest.mark.parametrize(("n_outcomes", "is_much"), [(73, False), (74, True)])
def test_a_sum_that_reads_many_coordinates_of_many_totals_is_much_work(n_outcomes, is_much, monkeypatch):
    """Fits and posteriors alike, and whether or not all its variables are in one factor."""
    blocks = [tuple(range(4 * i, 4 * i + 4)) for i in range(6)]
    searched = list[str]()
    plain = joint_search.maximise
    monkeypatch.setattr(joint_search, "maximise", lambda *a: (searched.append(type(a[0]).__name__), plain(*a))[1])
    rng = np.random.default_rng(0)
    X, y = rng.random((n_outcomes, 24)), rng.normal(size=n_outcomes)
    for scopes in (blocks, [tuple(range(24))]):
        assert is_compiled_sum(["rbf"] * len(scopes), scopes, n_outcomes) == is_much
        graph = FactorGraph.from_scopes({f"f{i}": [f"x{j}" for j in scope] for i, scope in enumerate(scopes)})
        belief = AdditiveGP(graph, outcomes="total").update(X, y)
        assert belief._conditioned.is_compiled == is_much
        belief.fit(np.random.default_rng(0))
    assert set(searched) == {"OneSumPosterior" if is_much else "LogPosterior"}
    assert not is_compiled_sum(["rbf", "mine:Own"], [range(12)] * 2, n_outcomes)
    assert not is_compiled_sum(["rbf", "matern52"], [range(12)] * 2, n_outcomes)
    assert not is_compiled_sum(["rbf"] * COMPILED_FROM, [range(12)] * COMPILED_FROM, n_outcomes)
