"""Tables of variances given the choices of others, on random positive definite matrices."""

import itertools
from unittest import mock

import numpy as np
from hypothesis import given, strategies as st

from swarmbo.acquisition import LocalUtility, local_utility
from swarmbo.acquisition.utility import Block, of_first, of_successors


def some_block(seed: int, sizes: list[int]) -> tuple[Block, list[np.ndarray]]:
    """Places of agents with a covariance, and their variances."""
    n, rng = sum(sizes), np.random.default_rng(seed)
    factor = rng.normal(size=(n, n + 2))
    C = np.eye(n) + factor @ factor.T * rng.uniform(0.1, 10.0)
    rows = [np.arange(a, b) for a, b in itertools.pairwise(np.cumsum([0, *sizes]))]
    means, variances = [rng.normal(size=size) for size in sizes], [np.diag(C)[r] for r in rows]
    there = [np.ones(size, dtype=bool) for size in sizes]
    return Block(means, variances, [[C[np.ix_(r, s)] for s in rows] for r in rows], there), variances


@given(st.integers(0, 10_000), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_some_rows_of_a_table_are_bit_identical_to_those_of_the_whole_table(seed, sizes):
    block, variances = some_block(seed, sizes)
    known = of_successors(block, variances)
    whole = of_first(block, variances, known)
    for start in range(0, sizes[0], 2):
        part = slice(start, start + 2)
        assert (of_first(block.first(part), [variances[0][part], *variances[1:]], known) == whole[part]).all()


@given(st.integers(0, 10_000), st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_table_does_not_depend_on_how_many_entries_are_computed_at_once(seed, sizes):
    block, _ = some_block(seed, sizes)
    rule, tables = LocalUtility(sqrt_beta=1.0, bonus=2.0, noise_variance=0.5, neighbours_noise=0.1), list[np.ndarray]()
    for entries in (1, 2**15):
        with mock.patch.object(local_utility, "_AT_ONCE", entries):
            tables.append(rule.table(block, 0.25))
    assert tables[0].shape == tuple(sizes)
    assert (tables[0] == tables[1]).all()
