"""Set partitions and their sampler; the weight of scopes; and the search for scopes that overlap."""

import math
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import multivariate_normal

from swarmbo.belief import AdditiveGPSettings
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.model.partitions import (
    Proposal,
    averaged,
    canonical,
    log_acceptance,
    log_probability,
    propose,
    sample_partitions,
)
from swarmbo.belief.model.structure import (
    ScopeEvidence,
    StartingPoint,
    candidates,
    score_statistics,
    screened,
    with_scope,
    without_pair,
    without_scope,
)
from swarmbo.kernels import kernel_matrix

from .conftest import all_partitions

CAPS = [None, 1, 2, 3]


class Scripted:
    """A substitute for a generator: makes the given choices and multiplies their probabilities."""

    def __init__(self, choices) -> None:
        self.choices, self.taken, self.probability = choices, 0, 1.0

    def _choice(self, n) -> int:
        if self.taken == len(self.choices):
            raise LookupError(n)
        self.taken, self.probability = self.taken + 1, self.probability / n
        return self.choices[self.taken - 1]

    def random(self) -> float:
        return (0.25, 0.75)[self._choice(2)]

    def integers(self, n, size=None):
        if size is None:
            return self._choice(n)
        number = 1 + self._choice(n**size - 1)  # all zeros would be drawn again, so all others are equally likely
        return np.array([number >> bit & 1 for bit in range(size)])


def proposed_from(partition, largest) -> dict:
    """Every proposal and its probability, by following all branches that ``propose`` may take."""
    found, scripts = dict[tuple, float](), [()]
    while scripts:
        choices = scripts.pop()
        rng = Scripted(choices)
        try:
            proposal = propose(partition, rng, largest)
        except LookupError as more:
            scripts += [(*choices, choice) for choice in range(more.args[0])]
        else:
            new = partition if proposal is None else proposal.partition
            if proposal is not None:
                assert proposal.log_forward == log_probability(partition, new, largest)
                assert proposal.log_back == log_probability(new, partition, largest)
            found[new] = found.get(new, 0.0) + rng.probability
    return found


@pytest.mark.parametrize("largest", [*CAPS, 4])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_every_branch_of_the_proposal_has_the_reported_probability_and_can_be_undone(n, largest) -> None:
    space = list(all_partitions(n, largest))
    for old in space:
        found = proposed_from(old, largest)
        for new in space:
            forward, back = log_probability(old, new, largest), log_probability(new, old, largest)
            assert math.exp(forward) == pytest.approx(found.get(new, 0.0) if new != old else 0.0, abs=1e-12)
            assert (forward > -math.inf) == (back > -math.inf)


def test_without_a_possible_move_none_is_proposed_and_the_chain_stays() -> None:
    rng, singles = np.random.default_rng(0), ((0,), (1,))
    assert propose(((0,),), rng) is None
    assert propose(singles, rng, largest=1) is None
    assert sample_partitions(singles, lambda p: 0.0, rng, 3, largest=1) == [singles] * 3


def transitions(space, weights, largest):
    """The chain's matrix of transitions, from its proposal and its acceptance."""
    P = np.zeros((len(space), len(space)))
    for i, old in enumerate(space):
        for j, new in enumerate(space):
            forward, back = log_probability(old, new, largest), log_probability(new, old, largest)
            if forward > -math.inf:
                accepted = log_acceptance(weights[i], weights[j], Proposal(new, forward, back))
                P[i, j] = math.exp(forward + accepted)
        P[i, i] += 1.0 - P[i].sum()
    return P


@given(st.integers(2, 5), st.sampled_from([None, 2, 3]), st.integers(0, 2**32 - 1), st.floats(0.0, 8.0))
def test_detailed_balance_holds_for_any_weights(n, largest, seed, spread) -> None:
    space = list(all_partitions(n, largest))
    weights = spread * np.random.default_rng(seed).normal(size=len(space))
    P, share = transitions(space, weights, largest), np.exp(weights - weights.max())
    share /= share.sum()
    flow = share[:, None] * P
    np.testing.assert_allclose(flow, flow.T, atol=1e-14)
    np.testing.assert_allclose(share @ P, share, atol=1e-13)
    anywhere = np.linalg.matrix_power((P > 0.0) | np.eye(len(space), dtype=bool), len(space))
    assert anywhere.all()  # every state can be reached from every state


def test_a_chain_repeats_with_its_stream_and_continues_from_its_last_state() -> None:
    def weight(partition) -> float:
        return float(len(partition))

    start = (tuple(range(6)),)
    whole = sample_partitions(start, weight, np.random.default_rng(3), 30, moves=2)
    assert whole == sample_partitions(start, weight, np.random.default_rng(3), 30, moves=2)
    rng = np.random.default_rng(3)
    first = sample_partitions(start, weight, rng, 10, moves=2)
    assert first + sample_partitions(first[-1], weight, rng, 20, moves=2) == whole


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_the_cap_is_kept_and_blocks_stay_a_partition(n, largest, moves, seed) -> None:
    rng = np.random.default_rng(seed)
    start = tuple((i,) for i in range(n))
    for state in sample_partitions(start, lambda p: 0.0, rng, 3, moves=moves, largest=largest):
        assert max(map(len, state)) <= largest
        assert state == canonical(state)
        assert sorted(element for block in state for element in block) == list(range(n))


def test_equal_scopes_are_merged_and_shares_are_averages() -> None:
    samples = [((0, 1), (2,)), ((0, 1), (2,)), ((0, 1, 2),), ((0,), (1,), (2,))]
    scopes, shares = averaged(samples)
    assert scopes == ((0,), (0, 1), (0, 1, 2), (1,), (2,))
    np.testing.assert_allclose(shares, [1 / 12, 1 / 4, 1 / 4, 1 / 12, 1 / 4 + 1 / 12])
    assert sum(shares) == pytest.approx(1.0)
    assert averaged([((0,), (1,))]) == (((0,), (1,)), (0.5, 0.5))


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


def test_fits_that_start_at_a_fitted_point_find_the_same() -> None:
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
    assert 0.1 < exact.max() < 0.9  # the data leave some doubt, so that frequencies are a real check
    chain = sample_partitions(((0, 1, 2, 3),), evidence, np.random.default_rng(0), 15_000)
    seen = Counter(chain)
    assert sum(abs(seen[p] / len(chain) - share) for p, share in zip(space, exact, strict=True)) / 2.0 < 0.03


@pytest.mark.parametrize("seed", [4, pytest.param(2, marks=pytest.mark.slow)])
def test_planted_groups_get_most_of_the_weight(seed) -> None:
    groups = ((0, 3, 7), (1, 4), (2, 5, 8), (6, 9))
    U, y = group_data(groups, 100, seed, noise=0.05)
    chain = sample_partitions((tuple(range(10)),), ScopeEvidence(SETTINGS, U, y), np.random.default_rng(seed), 1000)
    assert chain[500:].count(groups) > 250


@pytest.mark.parametrize("seed", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_planted_chain_of_overlapping_scopes_is_found(seed) -> None:
    U, y = chain_data(80, seed)
    start = tuple((i,) for i in range(8))
    evidence = ScopeEvidence(SETTINGS, U, y)
    found = screened(start, evidence, np.random.default_rng(0), largest=4, gain=1.0, tries=60)
    assert found == CHAIN
    assert evidence.n_fits <= 60


def test_right_scopes_are_kept_and_additive_effects_stay_separate() -> None:
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


def test_the_score_is_largest_for_the_missing_pair() -> None:
    U, y = chain_data(100, 1)
    evidence, missing = ScopeEvidence(SETTINGS, U, y), (3, 4)
    present = without_scope(CHAIN, missing)
    added = candidates(present, 2)
    score = score_statistics(evidence.fit(present), evidence, added, np.random.default_rng(0))
    assert added[int(score.argmax())] == missing
    assert score.max() > 5.0


def test_scores_of_data_from_the_present_model_have_mean_zero_and_deviation_one() -> None:
    rng, U = points(80, 4, 0)
    present = tuple((i,) for i in range(4))
    fit = ScopeEvidence(SETTINGS, U, U.sum(axis=1) + 0.1 * rng.normal(size=80)).fit(present)
    L, scores = np.linalg.cholesky(covariance_of(fit, U)), []
    for seed in range(200):
        drawn = L @ np.random.default_rng(seed).normal(size=80)
        evidence = ScopeEvidence(SETTINGS, U, drawn)
        given = drawn, np.full(80, np.nan), True  # they are in the unit of the fit
        object.__setattr__(evidence, "standardised", lambda given=given: given)
        scores.append(score_statistics(fit, evidence, [(0, 1)], np.random.default_rng(1000 + seed))[0])
    assert abs(np.mean(scores)) < 0.3
    assert 0.7 < np.std(scores) < 1.4


def test_an_added_scope_replaces_those_inside_it_and_a_removed_scope_leaves_no_variable_out() -> None:
    scopes = ((0,), (1, 2), (3,), (2, 3))
    assert with_scope(scopes, (0, 1, 2)) == ((0, 1, 2), (2, 3), (3,))
    assert without_scope(((0, 1), (1, 2)), (1, 2)) == ((0, 1), (2,))
    assert without_pair(((0, 1, 2), (2, 3)), (0, 1, 2), (0, 2)) == ((0, 1), (1, 2), (2, 3))
    assert without_pair(((0, 1, 2), (1, 2, 3)), (0, 1, 2), (0, 1)) == ((0, 2), (1, 2, 3))


def test_candidates_lie_in_no_scope_and_within_the_cap() -> None:
    found = candidates(((0, 1), (1, 2), (3,)), 3)
    assert found == ((0, 1, 2), (0, 1, 3), (0, 2), (0, 3), (1, 2, 3), (1, 3), (2, 3))
    assert candidates(((0, 1), (1, 2), (3,)), 1) == ()
