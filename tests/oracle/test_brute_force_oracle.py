"""Max-sum and exact against plain enumeration and a naive max-sum written from the formulas."""

import itertools
from collections.abc import Mapping
from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.coordination import Solution, exact, max_sum
from swarmbo.coordination.tables import sizes_of
from swarmbo.graph import FactorGraph

TIED = (-2.0, -1.0, 0.0, 1.0, 2.0)  # few integers: many ties, and no rounding
FORBIDDING = (-np.inf, -np.inf, -1.0, 0.0, 1.0, 1.0)
REAL = ()  # normal
Tables = dict[str, np.ndarray]
Problem = tuple[FactorGraph, Tables]


@st.composite
def problems(draw: st.DrawFn, *entries: tuple[float, ...], forest: bool = False, most_variables: int = 7) -> Problem:
    """Random graphs. Their size comes from hypothesis and the rest from a seed, so that cases are dense."""
    n = draw(st.integers(1, most_variables))
    n_factors = draw(st.integers(1, 7))
    allowed = draw(st.sampled_from(entries))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = rng.integers(1, 4, size=n)
    tree_of = list(range(n))
    scopes: dict[str, list[str]] = {}
    tables: Tables = {}
    for k in range(n_factors):
        scope: list[int] = []
        for v in rng.permutation(n)[: rng.integers(1, 4)].tolist():
            if not forest or all(tree_of[v] != tree_of[u] for u in scope):
                scope.append(v)
        joined = {tree_of[v] for v in scope}
        tree_of = [min(joined) if tree in joined else tree for tree in tree_of]
        shape = tuple(sizes[v] for v in scope)
        scopes[f"f{k}"] = [f"x{v}" for v in scope]
        tables[f"f{k}"] = rng.choice(allowed, size=shape) if allowed else rng.normal(size=shape)
    return FactorGraph.from_scopes(scopes), tables


def value_at(graph: FactorGraph, tables: Tables, assignment: Mapping[str, int]) -> float:
    entries = (float(tables[f][tuple(assignment[x] for x in graph.scope(f))]) for f in graph.factors)
    return reduce(add, entries)  # sum() adds floats with compensation from Python 3.12 on


def best_by_enumeration(graph: FactorGraph, tables: Tables) -> float:
    sizes = sizes_of(graph, tables)
    choices = itertools.product(*(range(sizes[x]) for x in graph.variables))
    return max(value_at(graph, tables, dict(zip(graph.variables, choice, strict=True))) for choice in choices)


def naive_best_round(graph: FactorGraph, tables: Tables, rounds: int, damping: float) -> float:
    """The best value over the rounds of max-sum, each message by its formula, maxima by enumeration."""
    sizes = sizes_of(graph, tables)
    edges = [(f, x) for f in graph.factors for x in graph.scope(f)]
    to_variable = {(f, x): [0.0] * sizes[x] for f, x in edges}
    best = -np.inf
    for _ in range(rounds):
        to_factor, new = dict[tuple[str, str], list[float]](), dict[tuple[str, str], list[float]]()
        for f, x in edges:
            others = [to_variable[g, x] for g in graph.factors_of(x) if g != f]
            to_factor[f, x] = [sum(message[i] for message in others) for i in range(sizes[x])]
        for f, x in edges:
            message = [-np.inf] * sizes[x]
            for index in np.ndindex(tables[f].shape):
                at = dict(zip(graph.scope(f), index, strict=True))
                entry = float(tables[f][index]) + sum(to_factor[f, y][at[y]] for y in graph.scope(f) if y != x)
                message[at[x]] = max(message[at[x]], entry)
            both, top = zip(to_variable[f, x], message, strict=True), max(message)
            new[f, x] = [damping * old + (1 - damping) * (entry - top) for old, entry in both]
        to_variable = new
        sums = {x: [sum(to_variable[f, x][i] for f in graph.factors_of(x)) for i in range(sizes[x])] for x in sizes}
        best = max(best, value_at(graph, tables, {x: sums[x].index(max(sums[x])) for x in sums}))
    return best


def assert_is_best(solution: Solution, graph: FactorGraph, tables: Tables) -> None:
    """Assert that a solution is optimal, and that its value is exactly that of its assignment."""
    best = best_by_enumeration(graph, tables)
    assert solution.value == pytest.approx(best, abs=1e-12)
    assert value_at(graph, tables, solution.assignment) == solution.value
    expected = ("exact", 0.0) if solution.value > -np.inf else ("infeasible", None)
    assert (solution.report.status, solution.report.gap, solution.upper_bound) == (*expected, solution.value)


@pytest.mark.parametrize("entries", [TIED, FORBIDDING, REAL], ids=["ties", "forbidden combinations", "real tables"])
@given(data=st.data(), rounds=st.integers(1, 3), damping=st.sampled_from([0.0, 0.5]))
@settings(deadline=None, max_examples=50)
def test_max_sum_equals_brute_force_on_forests(
    entries: tuple[float, ...], data: st.DataObject, rounds: int, damping: float
) -> None:
    graph, tables = data.draw(problems(entries, forest=True))
    assert graph.is_forest
    assert_is_best(max_sum(graph, tables, rounds=rounds, damping=damping), graph, tables)


@given(problems(TIED, FORBIDDING, most_variables=6))
def test_exact_equals_brute_force(problem: Problem) -> None:
    assert_is_best(exact(*problem), *problem)


@pytest.mark.parametrize("order", [1, 2, 3])
@given(data=st.data())
def test_exact_equals_brute_force_on_markov_chains(order: int, data: st.DataObject) -> None:
    n = data.draw(st.integers(order + 1, 6))
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=n, max_size=n))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scopes = {f"f{i}": [f"x{j}" for j in range(i, min(i + order + 1, n))] for i in range(n)}
    tables = {f"f{i}": rng.normal(size=sizes[i : i + order + 1]) for i in range(n)}
    graph = FactorGraph.from_scopes(scopes)
    assert_is_best(exact(graph, tables), graph, tables)


@given(problems(TIED, FORBIDDING, most_variables=6), st.integers(1, 8), st.sampled_from([0.0, 0.5]))
def test_max_sum_is_never_worse_than_its_own_best_round(problem: Problem, rounds: int, damping: float) -> None:
    graph, tables = problem
    solution = max_sum(graph, tables, rounds=rounds, damping=damping, tolerance=0.0)
    assert solution.value == value_at(graph, tables, solution.assignment)
    assert solution.value <= best_by_enumeration(graph, tables)
    if all(np.isfinite(table).all() for table in tables.values()) and len(graph.components) == 1:
        assert solution.value >= naive_best_round(graph, tables, min(rounds, solution.report.rounds), damping)


def test_naive_max_sum_is_sharp_enough_to_notice_a_worse_round() -> None:
    rng = np.random.default_rng(3)
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
    tables = {f: rng.integers(-5, 6, size=(4, 4)).astype(float) for f in graph.factors}
    rounds = [naive_best_round(graph, tables, k, 0.5) for k in (1, 2, 8)]
    assert rounds[0] < rounds[-1]


@given(problems(FORBIDDING), st.integers(1, 6))
def test_max_sum_on_loops_reports_its_value_bound_and_status_correctly(problem: Problem, rounds: int) -> None:
    graph, tables = problem
    solution = max_sum(graph, tables, rounds=rounds)
    assert not np.isnan(solution.value)
    assert solution.value == value_at(graph, tables, solution.assignment)
    if solution.report.status == "infeasible" and solution.upper_bound is not None:  # trees only
        assert solution.upper_bound == best_by_enumeration(graph, tables) == -np.inf
    elif solution.report.status != "exact":
        assert solution.upper_bound is None
    if solution.report.status != "exact":
        assert solution.report.gap is None
