"""Scopes drawn at random."""

import math
from collections import Counter
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.belief.structure import canonical, random_blocks, random_forest


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_random_blocks_are_a_partition_into_equal_sizes(n, size, seed) -> None:
    blocks = random_blocks(n, size, np.random.default_rng(seed))
    assert blocks == canonical(blocks)
    assert sorted(element for block in blocks for element in block) == list(range(n))
    assert sorted(map(len, blocks), reverse=True) == [size] * (n // size) + [n % size] * (n % size > 0)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 2**32 - 1))
def test_random_forests_have_no_loop_and_cover_all(n, edges, seed) -> None:
    scopes = random_forest(n, edges, np.random.default_rng(seed))
    pairs = [scope for scope in scopes if len(scope) == 2]
    tree = nx.Graph(pairs)
    assert len(pairs) == min(edges, n - 1)
    assert len(tree) == 0 or nx.is_forest(tree)
    assert {variable for scope in scopes for variable in scope} == set(range(n))
    assert all(len(scope) == 2 or scope[0] not in tree for scope in scopes)
    assert len(scopes) == len(set(scopes))


def test_every_pairing_and_every_edge_comes_up_alike() -> None:
    pairings = Counter(random_blocks(4, 2, np.random.default_rng(seed)) for seed in range(3000))
    assert len(pairings) == 3
    assert max(pairings.values()) < 1100
    edges = Counter(scope for seed in range(3000) for scope in random_forest(4, 1, np.random.default_rng(seed)))
    drawn = [edges[pair] for pair in combinations(range(4), 2)]
    assert sum(drawn) == 3000
    assert max(drawn) < 500 + 5 * math.sqrt(3000 / 6)


def test_a_full_forest_is_a_tree() -> None:
    assert nx.is_tree(nx.Graph(list(random_forest(7, 100, np.random.default_rng(0)))))
    assert random_forest(1, 3, np.random.default_rng(0)) == ((0,),)
    assert random_blocks(3, 5, np.random.default_rng(0)) == ((0, 1, 2),)


@pytest.mark.parametrize("draw", [random_blocks, random_forest])
def test_draws_repeat_with_their_stream_and_differ_without(draw) -> None:
    assert draw(9, 3, np.random.default_rng(0)) == draw(9, 3, np.random.default_rng(0))
    assert len({draw(9, 3, np.random.default_rng(seed)) for seed in range(20)}) > 15
