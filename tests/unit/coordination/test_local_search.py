"""DSA and MGM against what their authors prove, by brute force on small graphs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.coordination.tables import sizes_of

from .example_tables import Problem, Tables, some_problem, values_at


@st.composite
def loopy(draw: st.DrawFn, forbidden: float = 0.0) -> Problem:
    rng, n, n_factors = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), st.integers(2, 5), st.integers(1, 7)
    return some_problem(rng, draw(n), draw(n_factors), forbidden=forbidden)


def rank(graph: sb.FactorGraph, tables: Tables, chosen: dict[str, int]) -> tuple[int, float]:
    """Fewer violated factors first, then the sum of all others."""
    values = values_at(graph, tables, chosen).values()
    return -sum(v == -np.inf for v in values), sum(v for v in values if v > -np.inf)


def best_single_change(graph: sb.FactorGraph, tables: Tables, chosen: dict[str, int]) -> tuple[int, float]:
    sizes = sizes_of(graph, tables)
    return max(rank(graph, tables, chosen | {x: value}) for x in graph.variables for value in range(sizes[x]))


@given(st.one_of(loopy(), loopy(0.3)), st.integers(0, 9))
def test_mgm_never_gets_worse_and_ends_where_no_single_change_is_better(problem: Problem, seed: int) -> None:
    graph, tables = problem
    before = (-len(graph.factors), -np.inf)
    for rounds in (1, 2, 3, 5, 200):
        solution = sb.MGM(rounds=rounds).solve(graph, tables, seed=seed)
        now = rank(graph, tables, solution.assignment)
        assert now[0] > before[0] or (now[0] == before[0] and now[1] >= before[1] - 1e-12)
        before = now
    assert solution.report.rounds < 200
    broken, best = best_single_change(graph, tables, solution.assignment)
    assert broken == before[0]
    assert best == pytest.approx(before[1], abs=1e-9)


@pytest.mark.thorough
@given(st.one_of(loopy(), loopy(0.3)), st.integers(0, 9))
def test_where_dsa_a_converged_no_single_change_is_better_than_its_last_choice(problem: Problem, seed: int) -> None:
    graph, tables = problem
    solution = sb.DSA(variant="A", rounds=300, probability=0.5, keep_best=False).solve(graph, tables, seed=seed)
    kept = sb.DSA(variant="A", rounds=300, probability=0.5).solve(graph, tables, seed=seed)
    assert kept.report.status in ("converged", "infeasible")
    last = rank(graph, tables, solution.assignment)
    assert best_single_change(graph, tables, solution.assignment) == pytest.approx(last, abs=1e-9)
    assert rank(graph, tables, kept.assignment) >= (last[0], last[1] - 1e-9)  # the best of all rounds, and the last


@pytest.mark.parametrize("variant", ["A", "B", "C"])
def test_unconnected_variables_have_their_best_values_after_one_round_with_probability_1(variant: str) -> None:
    rng = np.random.default_rng(0)
    graph = sb.FactorGraph.from_scopes({f"f{i}": [f"x{i}"] for i in range(20)})
    tables = {f: rng.normal(size=6) for f in graph.factors}
    solution = sb.DSA(variant=variant, probability=1.0, rounds=1, keep_best=False).solve(graph, tables)
    assert solution.assignment == {f"x{i}": int(tables[f"f{i}"].argmax()) for i in range(20)}


def test_with_probability_1_neighbours_that_start_equal_alternate_for_ever() -> None:
    """Two variables should differ. This is why Zhang et al. 2005 move at random."""
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
    apart = {"f": 1.0 - np.eye(2)}
    reports = {sb.DSA(probability=1.0).solve(graph, apart, seed=seed).report.status for seed in range(20)}
    assert reports == {"converged", "max_rounds"}
    assert all(sb.DSA(probability=0.5).solve(graph, apart, seed=seed).value == 1.0 for seed in range(20))


def moves_of_x(variant: str, graph: sb.FactorGraph, tables: Tables, rounds: int) -> int:
    """Number of rounds in which x takes another value, if it moves whenever it may."""
    methods = [sb.DSA(variant=variant, probability=1.0, rounds=r + 1, keep_best=False) for r in range(rounds)]
    ends = [method.solve(graph, tables).assignment["x"] for method in methods]
    return sum(a != b for a, b in itertools.pairwise(ends))


def test_an_equally_good_value_is_taken_by_variant_c_always_and_by_b_in_conflict_only() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"]})
    # f is 0 for every x if y is 0, so y stays at 0, x cannot gain, and no factor could be better
    tables = {"f": np.zeros((4, 2)), "g": np.array([5.0, 0.0])}

    assert [moves_of_x(variant, graph, tables, 7) for variant in "ABC"] == [0, 0, 6]
    # each value of x makes one of two factors good and the other bad: always in conflict, never a gain
    torn = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["x"]})
    swing = {"f": np.array([1.0, 0.0]), "g": np.array([0.0, 1.0])}
    assert moves_of_x("B", torn, swing, 2) == 1


def test_a_forbidden_choice_is_left_for_any_allowed_choice_however_poor() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["x"]})
    tables = {"f": np.array([[-1e6, -1e6], [-np.inf, -np.inf]]), "g": np.array([0.0, 1e9])}
    for method in (sb.DSA(), sb.MGM()):
        for seed in range(8):
            assert method.solve(graph, tables, seed=seed).assignment["x"] == 0


@pytest.mark.parametrize("seed", range(6))
def test_with_equal_gains_mgm_moves_the_first_variable_of_the_graph(seed: int) -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["y", "x"], "g": ["x"], "h": ["y"]})  # y comes first
    drawn = {x: int(stream(seed, "mgm", variable=x).integers(2)) for x in graph.variables}
    tables = {"f": 1.0 - np.eye(2), "g": np.zeros(2), "h": np.zeros(2)}
    moved = drawn if drawn["x"] != drawn["y"] else drawn | {"y": 1 - drawn["y"]}
    assert sb.MGM(rounds=1).solve(graph, tables, seed=seed).assignment == moved
