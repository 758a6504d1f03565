"""Hard constraints: violated factors are reported, and max-sum nearly always finds allowed choices."""

import itertools
import math
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.coordination import Exact, MaxSum, exact, max_sum
from swarmbo.coordination.decoding import least_forbidden
from swarmbo.coordination.methods.admm import ADMM
from swarmbo.coordination.methods.refined import RefinedMaxSum
from swarmbo.coordination.participant import maximise_with_agents
from swarmbo.graph import FactorGraph
from swarmbo.transport import InProcess

from .example_sums import ExampleSum
from .example_tables import NO, TRIANGLE, Problem, Tables, by_agents, joint_values, ring, values_at

Kind = Literal["random", "colouring", "all different"]


def hard_problem(kind: Kind, seed: int) -> Problem:
    """A graph with loops and tight constraints: half of its entries are forbidden, or all with equal values."""
    rng = np.random.default_rng([seed, len(kind)])
    n = int(rng.integers(7, 11))
    size = int(rng.integers(2, 4)) if kind == "random" else 3
    tightness = rng.uniform(1.0, 1.6) if kind != "colouring" else 2.2
    scopes = {
        f"f{i}": [f"x{v}" for v in rng.choice(n, 2 if kind == "colouring" else int(rng.integers(2, 4)), replace=False)]
        for i in range(int(n * tightness))
    }
    graph = FactorGraph.from_scopes(scopes)
    tables: Tables = {}
    for factor, scope in scopes.items():
        table = rng.normal(size=(size,) * len(scope))
        if kind == "random":
            forbidden = rng.random(table.shape) < rng.uniform(0.45, 0.65)
        else:
            places = np.indices(table.shape).reshape(len(scope), -1).T
            forbidden = np.array([len(set(place)) < len(place) for place in places.tolist()]).reshape(table.shape)
        tables[factor] = np.where(forbidden, NO, table)
    return graph, tables


@pytest.mark.slow
def test_an_allowed_choice_is_found_in_nearly_all_feasible_problems() -> None:
    found, without = list[bool](), list[bool]()
    for kind in ("random", "colouring", "all different"):
        drawn = (hard_problem(kind, seed) for seed in itertools.count())
        for graph, tables in itertools.islice((problem for problem in drawn if joint_values(*problem).max() > NO), 60):
            found.append(max_sum(graph, tables).value > NO)
            without.append(max_sum(graph, tables, repairs=0).value > NO)
    assert np.mean(found) >= 0.97  # of 180 problems: all, and 178 without repairs
    assert sum(found) > sum(without)


def test_repairs_go_on_in_every_round_while_they_help() -> None:
    """If only rounds 1, 2, 4, … were repaired, all of these would end further from the best value."""
    for seed in (4, 5, 6, 27, 33):
        graph, tables = hard_problem("colouring", seed)
        assert max_sum(graph, tables, rounds=5).value == pytest.approx(joint_values(graph, tables).max())


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["random", "colouring", "all different"]),
    method=st.sampled_from([Exact(), MaxSum(), MaxSum(rounds=1, repairs=3), MaxSum(rounds=2, repairs=0)]),
)
def test_agents_repair_as_the_fast_path_does_and_both_report_violated_factors(
    seed: int, kind: Kind, method: Exact | MaxSum
) -> None:
    graph, tables = hard_problem(kind, seed)
    solution = method.solve(graph, tables)
    assert by_agents(method, graph, tables) == solution
    values = values_at(graph, tables, solution.assignment)
    assert list(solution.report.violated) == [f for f, value in values.items() if value == NO]
    assert (solution.report.status == "infeasible") == bool(solution.report.violated) == (solution.value == NO)
    assert not math.isnan(solution.value)
    if isinstance(method, Exact):
        assert (solution.value > NO) == (joint_values(graph, tables).max() > NO)
        assert solution.report.gap == (0.0 if solution.value > NO else None)
        assert solution.upper_bound == solution.value


WANTS = {"is 0": np.array([0.0, NO]), "is 1": np.array([NO, 0.0])}
EQUAL = np.array([[0.0, NO], [NO, 0.0]])


@pytest.mark.parametrize("method", [exact, max_sum])
def test_on_an_infeasible_tree_violated_factors_are_named(method) -> None:
    graph = FactorGraph.from_scopes({"a": ["x"], "xy": ["x", "y"], "b": ["y"], "free": ["y", "z"]})
    tables = {"a": WANTS["is 0"], "xy": EQUAL, "b": WANTS["is 1"], "free": np.ones((2, 2))}
    solution = method(graph, tables)
    assert (solution.report.status, solution.value, solution.upper_bound) == ("infeasible", NO, NO)
    assert solution.report.gap is None
    assert set(solution.report.violated) <= {"a", "xy", "b"}
    assert solution.report.violated


@pytest.mark.parametrize("n", [3, 5, 7])
def test_on_an_odd_ring_of_two_colours_max_sum_violates_one_factor_only(n: int) -> None:
    graph = FactorGraph.from_scopes(ring(n))
    tables = dict.fromkeys(graph.factors, np.array([[NO, 0.0], [0.0, NO]]))
    solution = max_sum(graph, tables)
    assert solution.report.status == "infeasible"
    assert len(solution.report.violated) == 1
    assert solution.upper_bound is None  # on loops max-sum proves nothing
    assert exact(graph, tables).upper_bound == NO


def test_a_factor_that_forbids_everything_is_named_and_other_factors_are_kept() -> None:
    graph = FactorGraph.from_scopes(TRIANGLE)
    tables = {"f": np.full((2, 2), NO), "g": EQUAL, "h": EQUAL}
    assert max_sum(graph, tables).report.violated == ("f",)


def test_on_feasible_problems_repair_sends_nothing() -> None:
    graph = FactorGraph.from_scopes(TRIANGLE)
    tables = dict.fromkeys(graph.factors, EQUAL + np.array([0.1, 0.2]))
    with_repair, without = max_sum(graph, tables), max_sum(graph, tables, repairs=0)
    assert with_repair == without


def test_the_value_that_violates_least_is_taken_then_the_largest_sum_then_the_lowest() -> None:
    lines = [np.array([NO, 1.0, 0.0, 1.0]), np.array([5.0, NO, 2.0, NO])]
    assert least_forbidden(lines, [1.0, 1.0]) == 2
    assert least_forbidden([line[[0, 1, 3]] for line in lines], [1.0, 1.0]) == 0
    assert least_forbidden([line[[0, 1, 3]] for line in lines], [2.0, 1.0]) == 1
    assert least_forbidden([line[[0, 1, 3]] for line in lines], [2.0, 1.0], present=1) == 2  # another value is taken
    assert least_forbidden(lines, [2.0, 1.0], present=2) == 2  # if nothing is violated it stays
    assert least_forbidden([np.array([1.0, 1.0])], [1.0], present=0) == 0  # also if another value is as good


@pytest.mark.parametrize(("kind", "seed"), [("random", 96), ("colouring", 34)])
def test_factors_that_stay_violated_gain_weight_sweep_by_sweep(kind: Kind, seed: int) -> None:
    # with equal weights, sweeps end in a forbidden choice that no variable alone improves
    assert max_sum(*hard_problem(kind, seed), rounds=1).value > NO


class Apart(ExampleSum):
    """Factors that allow only the left or the right third of the box, by their number; slopes are zero."""

    def own(self, factor, X):
        left = self.graph.factors.index(factor) % 2 == 0
        inside = (X < 0.34).all(axis=-1) if left else (X > 0.66).all(axis=-1)
        return np.where(inside, 0.0, NO), np.zeros_like(X)


@pytest.mark.parametrize("method", [RefinedMaxSum(points=5, levels=3), ADMM(rounds=3, polish_steps=2)])
@pytest.mark.parametrize("scopes", [{"f": ["x", "y"], "g": ["y", "z"]}, TRIANGLE])
@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_a_continuous_sum_that_is_forbidden_everywhere_is_reported_in_both_forms(method, scopes) -> None:
    functions = Apart.on_box(scopes)
    fast = method.maximise(functions)
    by_messages = maximise_with_agents(method, functions, InProcess().open(functions.graph.agents))
    assert by_messages.report == fast.report
    assert by_messages.point.tobytes() == fast.point.tobytes()
    assert (fast.report.status, fast.value) == ("infeasible", NO)
    assert fast.report.violated
    assert np.isfinite(fast.point).all()
    assert fast.report.polish_gain is None
