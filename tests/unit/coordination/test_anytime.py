"""More rounds are never worse, with loops, ties and constraints."""

import itertools
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import swarmbo as sb
from swarmbo.coordination.plan import TableMethod, traced
from swarmbo.coordination.tables import factor_values, rank

from .example_tables import NO, Problem, by_agents


def pairs(rng: np.random.Generator, n: int, n_factors: int) -> dict[str, list[str]]:
    return {f"f{k}": [f"x{v}" for v in rng.choice(n, 2, replace=False)] for k in range(n_factors)}


def celar_like(seed: int, n: int, size: int) -> Problem:
    """Frequencies with hard or soft constraints on their distances; violating a soft one costs 1 to 1,000."""
    rng, (i, j) = np.random.default_rng([1, seed]), np.indices((size, size))
    scopes, tables = pairs(rng, n, 5 * n // 2), dict[str, np.ndarray]()
    for f in scopes:
        cost = NO if rng.random() < 0.3 else -(10.0 ** rng.integers(0, 4))
        tables[f] = np.where(abs(i - j) <= rng.integers(1, max(2, size // 4)), cost, 0.0)
    for v in range(n):
        scopes[f"u{v}"] = [f"x{v}"]
        tables[f"u{v}"] = -rng.integers(0, 5, size).astype(float)
    return sb.FactorGraph.from_scopes(scopes), tables


def forbidding(seed: int, n: int, size: int) -> Problem:
    """30 % of all entries are forbidden, except those of one joint choice."""
    rng = np.random.default_rng([2, seed])
    scopes, tables = pairs(rng, n, 2 * n), dict[str, np.ndarray]()
    allowed = dict(zip([f"x{v}" for v in range(n)], rng.integers(0, size, n).tolist(), strict=True))
    for f, scope in scopes.items():
        is_forbidden = rng.random((size, size)) < 0.3
        is_forbidden[tuple(allowed[x] for x in scope)] = False
        tables[f] = np.where(is_forbidden, NO, rng.normal(size=(size, size)))
    return sb.FactorGraph.from_scopes(scopes), tables


def colouring(seed: int, n: int, size: int) -> Problem:
    """Neighbours must differ, and each variable prefers some colours."""
    rng = np.random.default_rng([3, seed])
    true = rng.integers(0, size, n)
    edges = [(a, b) for a, b in itertools.combinations(range(n), 2) if true[a] != true[b]]
    scopes = {f"f{k}": [f"x{v}" for v in edges[i]] for k, i in enumerate(rng.permutation(len(edges))[: 2 * n])}
    tables = dict.fromkeys(scopes, np.where(np.eye(size) > 0, NO, 0.0))
    for v in sorted({int(x[1:]) for scope in scopes.values() for x in scope}):
        scopes[f"u{v}"] = [f"x{v}"]
        tables[f"u{v}"] = rng.normal(size=size)
    return sb.FactorGraph.from_scopes(scopes), tables


def tied(seed: int, n: int, size: int) -> Problem:
    """Tables of one to three variables, with few different values and forbidden entries."""
    rng = np.random.default_rng([4, seed])
    scopes = {f"f{k}": [f"x{v}" for v in rng.permutation(n)[: rng.integers(1, 4)]] for k in range(2 * n)}
    tables = {f: rng.choice([NO, 0.0, 1.0], (size,) * len(scope), p=[0.3, 0.4, 0.3]) for f, scope in scopes.items()}
    return sb.FactorGraph.from_scopes(scopes), tables


KINDS = [celar_like, forbidding, colouring, tied]
problems = st.builds(
    lambda make, *drawn: make(*drawn),
    st.sampled_from(KINDS), st.integers(0, 10_000), st.integers(5, 9), st.integers(2, 4),
)  # fmt: skip
methods = st.sampled_from(
    [sb.MaxSum(), sb.MaxSum(damping=0.0), sb.MaxSum(repairs=2), sb.DSA(), sb.DSA(variant="C"), sb.MGM()]
)


@settings(max_examples=5, deadline=None)
@given(problem=problems, method=methods)
def test_a_round_more_is_never_worse_and_agents_decide_and_send_as_a_team(problem: Problem, method: TableMethod):
    methods = [msgspec.structs.replace(method, rounds=rounds) for rounds in range(1, 8)]
    found = [method.solve(*problem, seed=5) for method in methods]
    good = [rank(factor_values(*problem, solution.assignment)) for solution in found]  # few forbidden, then the sum
    assert good == sorted(good)
    for rounds in (1, 4):
        assert by_agents(methods[rounds - 1], *problem, seed=5) == found[rounds - 1]


@pytest.mark.parametrize(("make", "share"), [(celar_like, 0.9), (forbidding, 0.9), (colouring, 0.98)])
def test_choices_under_constraints_are_allowed_and_near_the_best(
    make: Callable[[int, int, int], Problem], share: float
) -> None:
    """The share of the gain of the optimum over the first allowed choice of a local search."""
    gained, possible = 0.0, 0.0
    for seed in range(6):
        graph, tables = make(seed, 14, 4)
        best, found = sb.exact(graph, tables).value, sb.max_sum(graph, tables).value
        assert best == NO or found > NO
        if best > NO:
            base = next(s.value for k in range(50) if (s := sb.MGM().solve(graph, tables, seed=k)).value > NO)
            gained, possible = gained + found - base, possible + best - base
    assert gained >= share * possible


def test_the_trace_of_hard_constraints_never_falls() -> None:
    _, rows = traced(sb.MaxSum(rounds=20), *forbidding(0, 30, 4))
    values = [row.value for row in rows if row.value is not None]
    assert values == sorted(values)
    assert values[-1] > NO
    assert len(set(values)) > 2
    assert len(rows) <= 22  # one per round, one for the last messages, and the end


def test_on_a_large_graph_a_hundred_rounds_are_no_worse_than_a_few() -> None:
    graph, tables = forbidding(0, 50, 5)
    few, some, many = (sb.max_sum(graph, tables, rounds=rounds).value for rounds in (5, 25, 100))
    assert NO < few <= some <= many
