"""The weight of scopes, the sampler against enumeration, and the search for scopes that overlap."""

import math
from collections import Counter

import msgspec
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from swarmbo.belief import AdditiveGPSettings
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.model.partitions import sample_partitions
from swarmbo.belief.model.structure import (
    ScopeEvidence,
    StartingPoint,
    candidates,
    promises,
    screened,
    with_scope,
    without_pair,
    without_scope,
)
from swarmbo.kernels import kernel_matrix

from .conftest import all_partitions

SETTINGS = AdditiveGPSettings()
CHAIN = tuple((i, i + 1) for i in range(7))


def points(t: int, n: int, seed: int = 0) -> tuple[np.random.Generator, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng, rng.random((t, n))


def chain_data(t: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Waves of neighbours: a sum over overlapping pairs, with noise."""
    rng, U = points(t, 8, seed)
    y = 0.03 * rng.normal(size=t)
    for a, b in CHAIN:
        p, q = rng.uniform(2.0, 4.0, 2)
        y += np.sin(p * U[:, a] - q * U[:, b] + 6.0 * rng.random())
    return U, y


def group_data(groups, t: int, seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    rng, U = points(t, 10, seed)
    y = noise * rng.normal(size=t)
    for group in groups:
        V = U[:, list(group)]
        y += np.sin(V @ (3.0 * rng.normal(size=len(group))) + 6.0 * rng.random())
        y += np.prod(2.0 * V - 1.0, axis=1)
    return U, y


def covariance_of(fit, U):
    K = fit.noise_variance * np.eye(len(U))
    for scope, lengths, output in zip(fit.scopes, fit.lengthscales, fit.outputscales, strict=True):
        K += kernel_matrix("matern52", U[:, list(scope)], U[:, list(scope)], lengths, output)
    return K


def four_variables() -> ScopeEvidence:
    rng, U = points(20, 4)
    y = np.sin(5.0 * U[:, 0] * U[:, 2]) + 0.5 * np.cos(4.0 * U[:, 1]) + 0.3 * U[:, 3] + 0.1 * rng.normal(size=20)
    return ScopeEvidence(SETTINGS, U, y)


@pytest.mark.parametrize("scopes", [((0, 1, 2, 3),), ((0, 2), (1, 3)), ((0, 2), (1,), (2, 3))])
def test_the_weight_is_the_evidence_times_the_prior_density_relative_to_its_mode(scopes) -> None:
    evidence = four_variables()
    fit, t = evidence.fit(scopes), 20
    K = covariance_of(fit, evidence.U)
    z = (evidence.totals - evidence.totals.mean()) / evidence.totals.std()
    ones, inverse = np.ones(t), np.linalg.inv(K)
    mean = (ones @ inverse @ z) / (ones @ inverse @ ones)
    log_evidence = multivariate_normal.logpdf(z, np.full(t, mean), K)
    sizes = [len(scope) for scope in scopes]
    prior = HyperparameterPrior.of(SETTINGS, list("abc")[: len(sizes)], sizes, "hierarchical", [SETTINGS.noise_median])
    theta = prior.pack(np.concatenate(fit.lengthscales), fit.outputscales, np.array([fit.noise_variance]))
    away = theta - prior.centre
    assert fit.log_weight == pytest.approx(log_evidence - 0.5 * away @ prior.precision @ away, abs=1e-6)
    assert evidence(scopes) == fit.log_weight


def test_a_weight_does_not_depend_on_what_was_asked_before() -> None:
    first, second = four_variables(), four_variables()
    space = list(all_partitions(4))
    forwards = {p: first(p) for p in space}
    assert {p: second(p) for p in reversed(space)} == forwards
    assert first.n_fits == 15


def test_without_data_or_with_constant_ones_all_scopes_weigh_the_same() -> None:
    for U, y in ((np.zeros((0, 3)), np.zeros(0)), (np.zeros((4, 3)), np.ones(4))):
        evidence = ScopeEvidence(SETTINGS, U, y)
        assert {evidence(p) for p in all_partitions(3)} == {0.0}


def test_fits_that_begin_at_a_fitted_place_find_the_same() -> None:
    cold = four_variables()
    warm = ScopeEvidence(SETTINGS, cold.U, cold.totals, cold.fit(((0, 2), (1,), (3,))).starting_point())
    for scopes in (((0, 2), (1,), (3,)), ((0, 2), (1, 3)), ((0, 1, 2, 3),)):
        assert warm(scopes) == pytest.approx(cold(scopes), abs=0.1)


def test_a_starting_point_takes_sizes_of_scopes_into_account_and_survives_json() -> None:
    evidence = four_variables()
    fit = evidence.fit(((0, 2), (1, 2, 3)))
    start = fit.starting_point()
    first, second = fit.lengthscales
    assert start.lengthscales[0] == pytest.approx(first[0] / math.sqrt(2.0))
    assert start.lengthscales[2] == pytest.approx(math.sqrt(first[1] / math.sqrt(2.0) * second[1] / math.sqrt(3.0)))
    assert msgspec.json.decode(msgspec.json.encode(start), type=StartingPoint) == start


def test_frequencies_of_the_sampler_equal_enumeration() -> None:
    evidence = four_variables()
    space = list(all_partitions(4))
    weights = np.array([evidence(p) for p in space])
    exact = np.exp(weights - weights.max())
    exact /= exact.sum()
    assert 0.1 < exact.max() < 0.9  # the data leave some doubt, so that frequencies say something
    chain = sample_partitions(((0, 1, 2, 3),), evidence, np.random.default_rng(0), 30_000)
    seen = Counter(chain)
    assert sum(abs(seen[p] / len(chain) - share) for p, share in zip(space, exact, strict=True)) / 2.0 < 0.03


@pytest.mark.parametrize("seed", [pytest.param(2, marks=pytest.mark.thorough), 4])
def test_planted_groups_get_most_of_the_weight(seed) -> None:
    groups = ((0, 3, 7), (1, 4), (2, 5, 8), (6, 9))
    U, y = group_data(groups, 100, seed, noise=0.05)
    chain = sample_partitions((tuple(range(10)),), ScopeEvidence(SETTINGS, U, y), np.random.default_rng(seed), 1000)
    assert chain[500:].count(groups) > 250


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.thorough), 3])
def test_a_planted_chain_of_overlapping_scopes_is_found(seed) -> None:
    U, y = chain_data(80, seed)
    start = tuple((i,) for i in range(8))
    evidence = ScopeEvidence(SETTINGS, U, y)
    found = screened(start, evidence, np.random.default_rng(0), largest=4, gain=1.0, tries=60)
    assert found == CHAIN
    assert evidence.n_fits <= 60


def test_what_is_right_stays_and_effects_that_add_up_stay_apart() -> None:
    U, y = chain_data(60, 3)
    evidence = ScopeEvidence(SETTINGS, U, y)
    assert screened(CHAIN, evidence, np.random.default_rng(1), largest=3, gain=1.0, tries=60) == CHAIN
    rng, U = points(60, 5, 4)
    sums = ScopeEvidence(SETTINGS, U, np.sin(4.0 * U + np.arange(5)).sum(axis=1) + 0.05 * rng.normal(size=60))
    alone = tuple((i,) for i in range(5))
    assert screened(alone, sums, rng, largest=3, gain=1.0, tries=60) == alone


def test_tries_and_the_cap_are_kept() -> None:
    U, y = chain_data(60, 0)
    evidence = ScopeEvidence(SETTINGS, U, y)
    start = tuple((i,) for i in range(8))
    found = screened(start, evidence, np.random.default_rng(0), largest=2, gain=0.0, tries=5)
    assert evidence.n_fits <= 6
    assert max(map(len, found)) <= 2
    assert {variable for scope in found for variable in scope} == set(range(8))


def test_the_score_points_at_the_pair_that_is_missing() -> None:
    U, y = chain_data(100, 1)
    evidence, missing = ScopeEvidence(SETTINGS, U, y), (3, 4)
    present = without_scope(CHAIN, missing)
    added = candidates(present, 2)
    score = promises(evidence.fit(present), evidence, added, np.random.default_rng(0))
    assert added[int(score.argmax())] == missing
    assert score.max() > 5.0


def test_scores_of_data_from_the_present_model_are_standard() -> None:
    rng, U = points(80, 4, 0)
    present = tuple((i,) for i in range(4))
    fit = ScopeEvidence(SETTINGS, U, U.sum(axis=1) + 0.1 * rng.normal(size=80)).fit(present)
    L, scores = np.linalg.cholesky(covariance_of(fit, U)), []
    for seed in range(200):
        drawn = L @ np.random.default_rng(seed).normal(size=80)
        evidence = ScopeEvidence(SETTINGS, U, drawn)
        object.__setattr__(evidence, "standardised", lambda z=drawn: (z, True))  # they are in the unit of the fit
        scores.append(promises(fit, evidence, [(0, 1)], np.random.default_rng(1000 + seed))[0])
    assert abs(np.mean(scores)) < 0.3
    assert 0.7 < np.std(scores) < 1.4


def test_scopes_are_added_without_those_inside_and_taken_out_without_a_gap() -> None:
    scopes = ((0,), (1, 2), (3,), (2, 3))
    assert with_scope(scopes, (0, 1, 2)) == ((0, 1, 2), (2, 3), (3,))
    assert without_scope(((0, 1), (1, 2)), (1, 2)) == ((0, 1), (2,))
    assert without_pair(((0, 1, 2), (2, 3)), (0, 1, 2), (0, 2)) == ((0, 1), (1, 2), (2, 3))
    assert without_pair(((0, 1, 2), (1, 2, 3)), (0, 1, 2), (0, 1)) == ((0, 2), (1, 2, 3))


def test_candidates_lie_in_no_scope_and_within_the_cap() -> None:
    found = candidates(((0, 1), (1, 2), (3,)), 3)
    assert found == ((0, 1, 2), (0, 1, 3), (0, 2), (0, 3), (1, 2, 3), (1, 3), (2, 3))
    assert candidates(((0, 1), (1, 2), (3,)), 1) == ()
