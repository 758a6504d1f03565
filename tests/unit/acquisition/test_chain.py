import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.acquisition.chain import chains, shortest_path_order


def length(P: np.ndarray, path: list[int]) -> float:
    return float(np.linalg.norm(np.diff(P[path], axis=0), axis=1).sum())


@given(st.integers(0, 1000), st.integers(2, 6))
def test_few_points_get_the_shortest_path(seed, n):
    P = np.random.default_rng(seed).normal(size=(n, 2))
    best = min(length(P, list(path)) for path in itertools.permutations(range(n)))
    assert np.isclose(length(P, shortest_path_order(P)), best)


def test_many_points_on_a_line_are_ordered_along_it():
    P = np.column_stack([np.random.default_rng(1).permutation(40.0 * np.arange(30)), np.zeros(30)])
    x = P[shortest_path_order(P), 0]
    assert (np.diff(x) > 0).all() or (np.diff(x) < 0).all()


@given(st.integers(0, 1000), st.integers(8, 30))
def test_many_points_are_visited_once_by_a_path_shorter_than_the_given_order(seed, n):
    P = np.random.default_rng(seed).normal(size=(n, 2))
    path = shortest_path_order(P)
    assert sorted(path) == list(range(n))
    assert length(P, path) <= length(P, list(range(n)))


def test_groups_out_of_contact_get_chains_of_their_own():
    links = nx.Graph([("a", "c"), ("b", "d")])
    links.add_node("e")
    positions = {agent: np.array([float(i), 0.0]) for i, agent in enumerate("abcde")}
    assert [set(chain) for chain in chains("abcde", positions, links)] == [{"a", "c"}, {"b", "d"}, {"e"}]


def test_relayed_contact_is_contact_and_agents_without_position_come_last():
    links = nx.path_graph(["a", "b", "c", "d"])
    positions = {"a": np.array([0.0]), "c": np.array([1.0]), "d": np.array([2.0])}
    assert chains("abcd", positions, links) == [("a", "c", "d", "b")]
    assert chains("abcd", positions, None) == [("a", "c", "d", "b")]
    assert chains("", {}, None) == []


@given(st.integers(0, 1000), st.integers(8, 14))
def test_no_stretch_of_a_long_path_is_better_turned_round(seed, n):
    P = np.random.default_rng(seed).normal(size=(n, 2))
    path = shortest_path_order(P)
    turned = [path[:i] + path[i:j][::-1] + path[j:] for i in range(n) for j in range(i + 2, n + 1)]
    assert min(length(P, other) for other in turned) >= length(P, path) - 1e-9


def by_hand(P: np.ndarray) -> list[int]:
    """Nearest neighbours, then stretches turned round one pair of ends after the other, as long as that shortens."""
    d, n = np.linalg.norm(P[:, None] - P[None], axis=-1), len(P)
    path = [int(d.sum(axis=1).argmax())]
    while len(path) < n:
        path.append(min(set(range(n)) - set(path), key=lambda i: (d[path[-1], i], i)))
    improved = True
    while improved:
        improved = False
        for i, j in itertools.combinations(range(n), 2):
            before = (d[path[i - 1], path[i]] if i else 0.0) + (d[path[j], path[j + 1]] if j + 1 < n else 0.0)
            after = (d[path[i - 1], path[j]] if i else 0.0) + (d[path[i], path[j + 1]] if j + 1 < n else 0.0)
            if after < before - 1e-12 * (before + 1.0):
                path[i : j + 1], improved = path[i : j + 1][::-1], True
    return path if path[0] < path[-1] else path[::-1]


@given(st.integers(0, 1000), st.integers(8, 40), st.booleans())
def test_a_long_path_is_the_one_that_single_exchanges_lead_to(seed, n, on_lattice):
    """On a lattice many are equally long, and which one is found decides who are neighbours."""
    rng = np.random.default_rng(seed)
    P = rng.integers(0, 7, size=(n, 2)).astype(float) if on_lattice else rng.normal(size=(n, 2))
    assert shortest_path_order(P) == by_hand(P)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_a_path_through_a_point_or_none_is_that(n: int):
    assert shortest_path_order(np.zeros((n, 2))) == list(range(n))
