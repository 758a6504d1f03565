"""Totals of many factors: few hyper-parameters stand for all, and the evidence is worked out factor after factor."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import approx_fprime

from swarmbo.belief.gp import prior as priors
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.compiled_sum import CompiledSumPosterior, TiedSumPosterior
from swarmbo.belief.gp.evidence import LogPosterior, maximise
from swarmbo.belief.gp.hyperparameters import TimeAxis
from swarmbo.belief.gp.joint_search import search_jointly
from swarmbo.belief.gp.observations import TOTAL
from swarmbo.belief.gp.prior import TIED_FROM, HyperparameterPrior
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES
from swarmbo.spaces import Domain

SCOPES = [[0, 1], [1, 2], [3], [2, 3], [0], [1, 3]]
SIZES = [len(scope) for scope in SCOPES]
NAMES = [f"f{i}" for i in range(6)]
OWN = {"f5": FactorPrior(outputscale_median=2.0)}


def prior_of(model: str, n_noises: int, time: TimeAxis | None = None) -> HyperparameterPrior:
    own = AdditiveGPSettings(factors={} if time else OWN, time=time)
    return HyperparameterPrior.of(own, NAMES, SIZES, model, [1e-3] * n_noises)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def _ties(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(priors, "TIED_FROM", 6)


@pytest.mark.usefixtures("_ties")
@pytest.mark.parametrize("model", ["shared", "hierarchical", "separate"])
@pytest.mark.parametrize("n_noises", [1, 7])
def test_factors_of_one_size_and_prior_have_hyperparameters_in_common(model: str, n_noises: int) -> None:
    prior = prior_of(model, n_noises)
    theta = prior.sample(np.random.default_rng(0))
    lengths, outputs, noises = prior.unpack(theta)
    assert [len(part) for part in (lengths, outputs, noises)] == [sum(SIZES), 6, n_noises]
    pairs, singles = [0, 1, 3], [2, 4]
    for alike in (pairs, singles):
        assert len(set(outputs[alike])) == 1
        assert n_noises == 1 or len(set(noises[alike])) == 1
    ends = np.cumsum(SIZES)
    assert len({length for i in pairs for length in lengths[ends[i] - 2 : ends[i]]}) == 1
    assert outputs[0] != outputs[5]  # it has a prior of its own
    np.testing.assert_allclose(prior.pack(lengths, outputs, noises), theta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priors, "TIED_FROM", 7)
        free = prior_of(model, n_noises)
    for tied, untied in zip(prior.unpack(prior.centre), free.unpack(free.centre), strict=True):
        np.testing.assert_allclose(tied, untied)


@pytest.mark.usefixtures("_ties")
@pytest.mark.parametrize(("is_mixed", "fades"), [(False, False), (True, False), (False, True)])
def test_gradients_by_what_is_in_common_equal_finite_differences(is_mixed: bool, fades: bool) -> None:
    rng = np.random.default_rng(1)
    prior = prior_of("hierarchical", 7 if is_mixed else 1, TimeAxis() if fades else None)
    channel = np.repeat([TOTAL, 1, 4], 4) if is_mixed else None
    fading = ("matern32", rng.integers(0, 9, 12).astype(float)) if fades else None
    kernels = [*KERNEL_NAMES[1:], *KERNEL_NAMES[1:]]
    U, z, noise = rng.random((12, 4)), rng.normal(size=12), np.full(12, np.nan)
    log_posterior = LogPosterior(prior, kernels, SCOPES, U, z, noise, channel, fading)
    theta = prior.centre + 0.2 * rng.normal(size=len(prior.centre))
    theta[-1] = np.log(0.1)
    expected = approx_fprime(theta, lambda at: log_posterior(at)[0], 1e-6)
    np.testing.assert_allclose(log_posterior(theta)[1], expected, rtol=1e-3, atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(
    kernels=st.lists(st.sampled_from(KERNEL_NAMES), min_size=6, max_size=6),
    n_outcomes=st.integers(1, 30),
    fades=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_compiled_code_comes_to_what_numpy_does(kernels: list[str], n_outcomes: int, fades: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    prior = prior_of("separate", 1, TimeAxis() if fades else None)
    fading = ("matern32", rng.integers(0, 9, n_outcomes).astype(float)) if fades else None
    noise = np.where(rng.random(n_outcomes) < 0.5, rng.random(n_outcomes), np.nan)
    data = (prior, kernels, SCOPES, rng.random((n_outcomes, 4)), rng.normal(size=n_outcomes), noise, None, fading)
    plain, compiled = LogPosterior(*data), CompiledSumPosterior(*data)
    theta = prior.sample(rng)
    theta[-1] = max(theta[-1], np.log(1e-3))
    for one, other in zip(compiled(theta), plain(theta), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(compiled.means(theta), plain.means(theta), rtol=1e-7)


def tied_case(model: str, has_ties: bool, n_outcomes: int, fades: bool, seed: int):
    """A prior with hyper-parameters in common by ties, or by one lengthscale alone; a kernel for each group; data."""
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priors, "TIED_FROM", 6 if has_ties else 7)
        prior = prior_of(model, 1, TimeAxis() if fades else None)
    # of a size and a prior one kernel; without priors of their own all pairs are alike
    kernels = ["matern52", "matern52", "rbf", "matern52", "rbf", "matern52" if fades else "matern32"]
    noise = np.where(rng.random(n_outcomes) < 0.5, rng.random(n_outcomes), np.nan)
    fading = ("matern32", rng.integers(0, 9, n_outcomes).astype(float)) if fades else None
    theta = prior.sample(rng)
    theta[-1] = max(theta[-1], np.log(1e-3))
    return (prior, kernels, SCOPES, rng.random((n_outcomes, 4)), rng.normal(size=n_outcomes), noise), fading, theta


@settings(max_examples=30, deadline=None)
@given(
    way=st.sampled_from([("shared", True), ("hierarchical", True), ("separate", True), ("shared", False)]),
    n_outcomes=st.integers(2, 30),
    fades=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_one_pass_for_all_factors_alike_comes_to_what_numpy_does(
    way: tuple[str, bool], n_outcomes: int, fades: bool, seed: int
) -> None:
    data, fading, theta = tied_case(*way, n_outcomes, fades, seed)
    plain, tied = LogPosterior(*data, decay=fading), TiedSumPosterior(*data, decay=fading)
    for one, other in zip(tied(theta), plain(theta), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(tied.means(theta), plain.means(theta), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n_factors", [1, TIED_FROM])
def test_what_is_in_common_is_searched_for_by_one_pass_for_each_theta(n_factors: int) -> None:
    n = n_factors + 1 if n_factors > 1 else 150  # of one factor with very many variables
    scopes = [(i, i + 1) for i in range(n_factors)] if n_factors > 1 else [tuple(range(n))]
    kernels, model = ["matern52"] * n_factors, "hierarchical" if n_factors > 1 else "shared"
    sizes, own = [len(scope) for scope in scopes], AdditiveGPSettings()
    prior = HyperparameterPrior.of(own, [""] * n_factors, sizes, model, [own.noise_median])
    U = np.random.default_rng(0).random((40, n))
    z = np.sin(5.0 * U).sum(axis=1)
    z, known = (z - z.mean()) / z.std(), np.full(40, np.nan)
    with pytest.MonkeyPatch.context() as patch:
        asked = list[int]()
        plain = TiedSumPosterior.__call__
        patch.setattr(TiedSumPosterior, "__call__", lambda *given: (asked.append(1), plain(*given))[1])
        theta, value, _ = search_jointly(prior, kernels, scopes, U, z, known, [prior.centre], 60)
    assert asked
    wanted, worth = maximise(LogPosterior(prior, kernels, scopes, U, z, known), [prior.centre], 60)
    assert value == pytest.approx(worth, abs=1e-4)
    np.testing.assert_allclose(theta, wanted, atol=0.01)


def belief_of(n: int, n_outcomes: int) -> AdditiveGP:
    graph = FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n)})
    X = np.random.default_rng(0).random((n_outcomes, n + 1))
    totals = (-((X[:, 1:] - X[:, :-1] - 0.2) ** 2) + 0.3 * np.sin(5.0 * X[:, :-1])).sum(axis=1)
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, Domain(np.zeros(n + 1), np.ones(n + 1)))
    return belief.update(X, totals)


def test_a_fit_of_many_factors_goes_on_from_the_last_one() -> None:
    belief = belief_of(TIED_FROM, 20)
    fitted = belief.fit(np.random.default_rng(0))
    h = fitted.hyperparameters
    assert len(set(h.lengthscales)) == len(set(h.outputscales)) == 1
    assert fitted.log_evidence() > belief.log_evidence()
    again = fitted.fit(np.random.default_rng(0), warm=h)
    assert again.log_evidence() > fitted.log_evidence() - 0.1
    means, _ = fitted.posterior(fitted.X)
    assert np.corrcoef(means, fitted.totals)[0, 1] > 0.9


def test_memory_of_a_fit_to_totals_is_linear_in_the_factors() -> None:
    def peak(n: int) -> int:
        belief = belief_of(n, 10)
        tracemalloc.start()
        belief.fit(np.random.default_rng(0))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(TIED_FROM)  # what is loaded once
    assert peak(4 * TIED_FROM) < 1.3 * 4 * peak(TIED_FROM)
