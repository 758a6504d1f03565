"""The identities of Daxberger & Low 2017, section 3, on random positive definite matrices."""

import itertools
from unittest import mock

import numpy as np
from hypothesis import given, strategies as st

from swarmbo.acquisition import LocalUtility, local_utility
from swarmbo.acquisition.utility import Block, of_first, of_successors

from .markov_reference import conditional_block, log_det_terms, markov_approximation


def random_psi(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n, n + 2))
    return np.eye(n) + factor @ factor.T * rng.uniform(0.1, 10.0)


def kl(P: np.ndarray, Q: np.ndarray) -> float:
    product = P @ np.linalg.inv(Q)
    return 0.5 * (np.trace(product) - np.linalg.slogdet(product)[1] - len(P))


blocks = st.tuples(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 3))


@given(blocks, st.integers(0, 5))
def test_block_terms_sum_to_log_det_of_the_markov_approximation(case, order):
    seed, n_blocks, size = case
    Psi = random_psi(seed, n_blocks * size)
    Psi_bar = markov_approximation(Psi, n_blocks, max(order, 1))
    terms = log_det_terms(Psi, n_blocks, max(order, 1))
    assert np.isclose(terms.sum(), np.linalg.slogdet(Psi_bar)[1], rtol=1e-9, atol=1e-9)
    assert (terms >= -1e-9).all()


@given(blocks, st.integers(1, 4))
def test_inverse_of_the_markov_approximation_is_block_banded(case, order):
    seed, n_blocks, size = case
    inverse = np.linalg.inv(markov_approximation(random_psi(seed, n_blocks * size), n_blocks, order))
    block = np.arange(n_blocks * size) // size
    outside = np.abs(block[:, None] - block[None]) > order
    assert np.abs(inverse[outside]).max(initial=0.0) < 1e-8 * np.abs(inverse).max()


@given(blocks)
def test_kl_divergence_does_not_increase_with_the_order_and_is_the_overstated_information(case):
    seed, n_blocks, size = case
    Psi = random_psi(seed, n_blocks * size)
    exact = 0.5 * np.linalg.slogdet(Psi)[1]
    divergences = []
    for order in range(1, n_blocks + 1):
        divergences.append(kl(Psi, markov_approximation(Psi, n_blocks, order)))
        assert np.isclose(divergences[-1], 0.5 * log_det_terms(Psi, n_blocks, order).sum() - exact, atol=1e-7)
    assert all(b <= a + 1e-8 for a, b in itertools.pairwise(divergences))
    if n_blocks > 1:
        assert divergences[n_blocks - 2] < 1e-7  # order N - 1 is exact
    assert divergences[-1] < 1e-7


@given(blocks, st.integers(1, 4))
def test_trace_identity_holds(case, order):
    seed, n_blocks, size = case
    Psi = random_psi(seed, n_blocks * size)
    Psi_bar = markov_approximation(Psi, n_blocks, order)
    assert np.isclose(np.trace(Psi @ np.linalg.inv(Psi_bar)), len(Psi))


def test_one_block_is_the_exact_batch_rule():
    Psi = random_psi(3, 6)
    assert np.allclose(conditional_block(Psi, 1, 2, 0), Psi)
    assert np.isclose(log_det_terms(Psi, 1, 2)[0], np.linalg.slogdet(Psi)[1])


@given(st.integers(0, 10_000), st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_variances_equal_the_schur_complement_at_every_combination(seed, sizes):
    n = sum(sizes)
    C = random_psi(seed, n)
    ends = np.cumsum([0, *sizes])
    rows = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    variances, there = [np.diag(C)[r] for r in rows], [np.ones(size, dtype=bool) for size in sizes]
    covariances = [[C[np.ix_(r, s)] for s in rows] for r in rows]
    block = Block(variances, variances, covariances, there)
    table = np.broadcast_to(of_first(block, variances, of_successors(block, variances)), block.shape)
    assert table.shape == tuple(sizes)
    for choice in np.ndindex(*sizes):
        own, *others = (rows[i][c] for i, c in enumerate(choice))
        cross = C[own, others]
        wanted = C[own, own] - cross @ np.linalg.solve(C[np.ix_(others, others)], cross) if others else C[own, own]
        assert np.isclose(table[choice], wanted, rtol=1e-9)


def some_block(seed: int, sizes: list[int]) -> tuple[Block, list[np.ndarray]]:
    C, ends = random_psi(seed, sum(sizes)), np.cumsum([0, *sizes])
    rows = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
    covariances = [[C[np.ix_(r, s)] for s in rows] for r in rows]
    means = [np.random.default_rng(seed).normal(size=size) for size in sizes]
    variances, there = [np.diag(C)[r] for r in rows], [np.ones(size, dtype=bool) for size in sizes]
    return Block(means, variances, covariances, there), variances


@given(st.integers(0, 10_000), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_rows_of_a_table_are_to_the_bit_what_they_are_in_all_of_it(seed, sizes):
    block, variances = some_block(seed, sizes)
    known = of_successors(block, variances)
    whole = of_first(block, variances, known)
    for start in range(0, sizes[0], 2):
        part = slice(start, start + 2)
        assert (of_first(block.first(part), [variances[0][part], *variances[1:]], known) == whole[part]).all()


@given(st.integers(0, 10_000), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_table_does_not_depend_on_how_much_of_it_is_worked_out_at_once(seed, sizes):
    block, _ = some_block(seed, sizes)
    rule, tables = LocalUtility(sqrt_beta=1.0, bonus=2.0, noise_variance=0.5, neighbours_noise=0.1), list[np.ndarray]()
    for entries in (1, 2**15):
        with mock.patch.object(local_utility, "_AT_ONCE", entries):
            tables.append(rule.table(block, 0.25))
    assert tables[0].shape == tuple(sizes)
    assert (tables[0] == tables[1]).all()
