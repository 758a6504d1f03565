"""The evidence of totals and of mixed outcomes equals a dense formula; many factors may share hyper-parameters."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from swarmbo.belief.gp import prior as priors
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings, FactorPrior
from swarmbo.belief.gp.evidence import LogPosterior
from swarmbo.belief.gp.hyperparameters import ExactGPSettings, TimeAxis
from swarmbo.belief.gp.observations import TOTAL
from swarmbo.belief.gp.prior import TIED_FROM, HyperparameterPrior
from swarmbo.graph import FactorGraph
from swarmbo.kernels import KERNEL_NAMES, correlation
from swarmbo.spaces import Domain

from .dense import MINE

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


def dense(prior, kernels, U, z, known, channel, rounds, is_mixed, theta):
    """Log posterior density and profiled means, from dense matrices."""
    lengths, outputs, noises = prior.unpack(theta)
    holds = np.array([(channel == TOTAL) | (channel == i) for i in range(6)], dtype=float)
    K, ends = np.zeros((len(z), len(z))), np.cumsum(SIZES)
    for i, scope in enumerate(SCOPES):
        X = U[:, scope] / lengths[ends[i] - len(scope) : ends[i]]
        K += outputs[i] * correlation(kernels[i], cdist(X, X)) * np.outer(holds[i], holds[i])
    if prior.time_kernel is not None:
        times = rounds[:, None] / prior.time_correlation(theta).lengthscale
        K *= correlation(prior.time_kernel, cdist(times, times))
    own = noises[np.where(channel == TOTAL, len(noises) - 1, channel if len(noises) > 1 else 0)]
    K += np.diag(np.where(np.isnan(known), own, known))
    design = holds.T if is_mixed else np.ones((len(z), 1))
    half = np.linalg.inv(np.linalg.cholesky(K))
    means = np.linalg.lstsq(half @ design, half @ z, rcond=1e-10)[0]
    return multivariate_normal(design @ means, K).logpdf(z) + prior.log_density(theta)[0], means


@given(
    kernels=st.lists(st.sampled_from([*KERNEL_NAMES, MINE]), min_size=6, max_size=6),
    model=st.sampled_from(["shared", "hierarchical", "separate"]),
    n_outcomes=st.integers(1, 25),
    is_mixed=st.booleans(),
    has_ties=st.booleans(),
    fades=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_values_gradients_and_means_are_those_of_a_dense_formula(
    kernels: list[str], model: str, n_outcomes: int, is_mixed: bool, has_ties: bool, fades: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(priors, "TIED_FROM", 6 if has_ties else 7)
        prior = prior_of(model, 7 if is_mixed else 1, TimeAxis() if fades else None)
    if has_ties:  # equal size and prior imply one kernel; without own priors that holds for all pairs
        kernels = ["matern52", "matern52", "rbf", "matern52", "rbf", "matern52" if fades else "matern32"]
    channel = rng.choice([TOTAL, TOTAL, 1, 4], n_outcomes) if is_mixed else np.full(n_outcomes, TOTAL)
    U, z = rng.random((n_outcomes, 4)), rng.normal(size=n_outcomes)
    known = np.where(rng.random(n_outcomes) < 0.5, 0.1 + rng.random(n_outcomes), np.nan)
    rounds = rng.integers(0, 9, n_outcomes).astype(float)
    log_posterior = LogPosterior(prior, kernels, SCOPES, U, z, known, channel if is_mixed else None, rounds)
    theta = prior.centre + 0.3 * rng.normal(size=len(prior.centre))
    theta[-7 if is_mixed and not has_ties else -1 :] = np.log(0.1)
    case = kernels, U, z, known, channel, rounds, is_mixed
    value, gradient = log_posterior(theta)
    expected, means = dense(prior, *case, theta)
    assert value == pytest.approx(expected, rel=1e-8, abs=1e-8)
    np.testing.assert_allclose(log_posterior.means(theta), means, rtol=1e-6, atol=1e-8)
    steps = 1e-5 * np.eye(len(theta))
    changes = [dense(prior, *case, theta + step)[0] - dense(prior, *case, theta - step)[0] for step in steps]
    np.testing.assert_allclose(gradient, np.array(changes) / 2e-5, rtol=1e-4, atol=1e-5)
    again = log_posterior(theta)  # a call does not depend on earlier calls
    log_posterior(prior.sample(rng))
    np.testing.assert_array_equal(again[1], log_posterior(theta)[1])


@pytest.mark.parametrize("time", [None, TimeAxis()])
@pytest.mark.parametrize("model", ["shared", "hierarchical", "separate"])
def test_each_coordinate_of_a_field_has_its_own_lengthscale_where_equal_lengths_are_physical(
    model: str, time: TimeAxis | None
) -> None:
    rng = np.random.default_rng(0)
    settings = ExactGPSettings(lengthscales=model, equal_in="physical", time=time)  # pyright: ignore[reportArgumentType]
    prior = HyperparameterPrior.of_field(settings, Domain(np.zeros(2), np.array([100.0, 10.0])))
    U, z, rounds = rng.random((12, 2)), rng.normal(size=12), rng.integers(0, 9, 12).astype(float)
    theta = prior.centre + 0.3 * rng.normal(size=len(prior.centre))
    lengths, (output,), (noise,) = prior.unpack(theta)
    K = output * correlation(settings.kernel, cdist(U / lengths, U / lengths))
    if (memory := prior.time_correlation(theta)) is not None:
        K *= memory.between(rounds[:, None], rounds)
    K += noise * np.eye(12)
    mean = np.linalg.solve(K, z).sum() / np.linalg.inv(K).sum()
    expected = multivariate_normal(np.full(12, mean), K).logpdf(z) + prior.log_density(theta)[0]
    log_posterior = LogPosterior(prior, ["matern52"], [[0, 1]], U, z, np.full(12, np.nan), rounds=rounds)
    assert log_posterior(theta)[0] == pytest.approx(expected)


def belief_of(n: int, n_outcomes: int) -> AdditiveGP:
    graph = FactorGraph.from_scopes({f"f{i}": (f"x{i}", f"x{i + 1}") for i in range(n)})
    X = np.random.default_rng(0).random((n_outcomes, n + 1))
    totals = (-((X[:, 1:] - X[:, :-1] - 0.2) ** 2) + 0.3 * np.sin(5.0 * X[:, :-1])).sum(axis=1)
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, Domain(np.zeros(n + 1), np.ones(n + 1)))
    return belief.update(X, totals)


def test_a_fit_of_many_factors_continues_from_the_last_one() -> None:
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

    peak(TIED_FROM)  # what is loaded once does not count
    assert peak(4 * TIED_FROM) < 1.3 * 4 * peak(TIED_FROM)
