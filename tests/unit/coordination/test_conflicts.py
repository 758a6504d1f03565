"""Which values forbid one another, who speaks when, and what may be taken before which words are heard."""

import itertools

import numpy as np
from hypothesis import given, strategies as st

from swarmbo.coordination.tables import Conflicts
from swarmbo.graph import FactorGraph

GRAPH = FactorGraph.from_scopes({"f": ["x", "y", "z"], "g": ["y", "z"], "h": ["z", "w"]})
SIZES = dict(zip(GRAPH.variables, (2, 3, 4, 2), strict=True))


def drawn(seed, share):
    rng = np.random.default_rng(seed)
    shapes = {f: [SIZES[x] for x in GRAPH.scope(f)] for f in GRAPH.factors}
    return {f: np.where(rng.random(shape) < share, -np.inf, 0.0) for f, shape in shapes.items()}


@given(st.integers(0, 1000), st.floats(0.0, 1.0))
def test_a_pair_is_forbidden_if_a_factor_forbids_it_whatever_else_is_chosen(seed, share):
    tables = drawn(seed, share)
    claims = Conflicts.of(GRAPH, tables)
    for x, y in itertools.permutations(GRAPH.variables, 2):
        shared = [f for f in GRAPH.factors if {x, y} <= set(GRAPH.scope(f))]
        for i, j in itertools.product(range(SIZES[x]), range(SIZES[y])):
            lines = [tables[f][tuple({x: i, y: j}.get(v, slice(None)) for v in GRAPH.scope(f))] for f in shared]
            wanted = any(np.all(line == -np.inf) for line in lines)
            assert ((x, y) in claims.forbidden and claims.forbidden[x, y][i, j]) == wanted


def test_neighbours_never_speak_together():
    claims = Conflicts.of(GRAPH, drawn(0, 0.5))
    assert {x: set(others) for x, others in claims.neighbours.items()} == {
        "x": {"y", "z"},
        "y": {"x", "z"},
        "z": {"x", "y", "w"},
        "w": {"z"},
    }
    assert all(claims.colour[x] != claims.colour[y] for x, others in claims.neighbours.items() for y in others)
    assert claims.n_colours == 3


@given(st.integers(0, 1000), st.floats(0.1, 0.9))
def test_whoever_hears_of_whom_what_they_may_take_never_clashes(seed, share):
    """Each variable takes any value that it may, in any order, having heard of any of those who spoke before."""
    rng = np.random.default_rng(seed)
    claims = Conflicts.of(GRAPH, drawn(seed, share))
    words = {}
    for x in rng.permutation(GRAPH.variables):
        heard = {y: word for y, word in words.items() if rng.random() < 0.5}
        open_to = np.flatnonzero(claims.allowed(x, SIZES[x], heard))
        words[x] = int(rng.choice(open_to)) if len(open_to) else None
    assert claims.clashes(words) == 0


def test_what_an_earlier_one_may_take_waits_for_its_word_and_a_later_one_need_not_be_heard():
    graph = FactorGraph.from_scopes({"f": ["x", "y"]})
    claims = Conflicts.of(graph, {"f": np.where(np.eye(3), -np.inf, 0.0)[:, :2]})  # x has a third value, y has not
    assert claims.allowed("x", 3, {}).tolist() == [True, True, True]
    assert claims.allowed("y", 2, {}).tolist() == [False, False]
    assert claims.allowed("y", 2, {"x": 1}).tolist() == [True, False]
    assert claims.allowed("y", 2, {"x": None}).tolist() == [True, True]
    assert claims.clashes({"x": 1, "y": 1}) == 1
    assert claims.clashes({"x": 1, "y": None}) == 0
