"""What exact promises beyond being right: see the oracle tests for that."""

import itertools

import numpy as np
import pytest

from swarmbo.coordination import Exact, exact
from swarmbo.errors import BudgetError
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes

CHAIN = FactorGraph.from_scopes({"f": ["a", "b", "c"], "g": ["b", "c", "d"]})
TABLES = {"f": np.zeros((3, 4, 5)), "g": np.zeros((4, 5, 6))}


def test_the_budget_is_the_entries_of_the_largest_step() -> None:
    assert exact(CHAIN, TABLES, table_budget=120).value == 0.0
    with pytest.raises(
        BudgetError, match=r"4 x 5 x 6 = 120 entries .* over b, c, d; the budget is 119 entries\. Raise"
    ):
        exact(CHAIN, TABLES, table_budget=119)


@pytest.mark.parametrize(("size", "entries", "mebibytes"), [(10**9, 360, 355), (10**200, 8000, 7995)])
def test_a_table_beyond_all_floats_is_refused_like_any_other(size: int, entries: int, mebibytes: int) -> None:
    graph = FactorGraph.from_scopes({f"f{i}_{j}": [f"x{i}", f"x{j}"] for i, j in itertools.combinations(range(40), 2)})
    with pytest.raises(BudgetError) as refused:
        Exact().plan(graph, dict.fromkeys(graph.variables, size), Routes(graph.agents))
    said = str(refused.value)
    assert (
        f" x … = about 10^{entries} entries (about 10^{mebibytes} MiB) over x0, x1, x2, x3, x4, x5, x6, x7, …" in said
    )
    assert "the budget is 16,777,216 entries" in said


def test_ties_go_to_the_lowest_indices() -> None:
    assert exact(CHAIN, TABLES).assignment == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_when_everything_is_forbidden_the_optimum_is_minus_infinity_without_a_gap() -> None:
    solution = exact(CHAIN, TABLES | {"f": np.full((3, 4, 5), -np.inf)})
    assert (solution.value, solution.upper_bound, solution.report.gap) == (-np.inf, -np.inf, None)
    assert (solution.report.status, solution.report.violated) == ("infeasible", ("f",))


def test_a_sweep_up_and_down_the_chain_is_counted_in_rounds_and_messages() -> None:
    report = exact(CHAIN, TABLES).report
    assert (report.rounds, report.messages) == (6, 6)  # each of three links of the chain once up and once down
    tables = 8 * (4 * 5 + 5 * 6 + 6)
    assert tables < report.bytes < tables + 6 * 32


@pytest.mark.parametrize(
    ("actors", "rounds"),
    [("aaaa", 0), ("aabb", 2), ("abab", 6), ("abbc", 4)],
)
def test_steps_that_stay_with_one_agent_are_no_rounds(actors: str, rounds: int) -> None:
    graph = FactorGraph.from_scopes(
        dict(zip(CHAIN.factors, CHAIN.scopes, strict=True)), variable_owners=dict(zip("abcd", actors, strict=True))
    )
    report = exact(graph, TABLES).report
    assert (report.rounds, report.messages) == (rounds, rounds)


def test_rounds_are_those_of_the_path_with_most_steps_to_another_agent() -> None:
    scopes = {"f": ["p", "r"], "g": ["q", "r"], "h": ["r", "s"]}  # p and q are eliminated into r, and r into s
    tables = dict.fromkeys(scopes, np.zeros((2, 2)))
    for actors, rounds in [("baaa", 2), ("abaa", 2), ("bcaa", 2), ("abac", 4), ("bcad", 4), ("aaaa", 0)]:
        graph = FactorGraph.from_scopes(scopes, variable_owners=dict(zip("pqrs", actors, strict=True)))
        assert exact(graph, tables).report.rounds == rounds, actors


def test_a_factor_held_by_an_agent_that_does_not_act_is_sent_once_to_the_one_that_joins_it() -> None:
    scopes = dict(zip(CHAIN.factors, CHAIN.scopes, strict=True))
    acted = {x: x for x in "abcd"}
    base = FactorGraph.from_scopes(scopes, {"f": "base", "g": "b"}, acted)
    at_home, away = exact(CHAIN, TABLES).report, exact(base, TABLES).report
    assert away.messages == at_home.messages + 1
    assert away.bytes > at_home.bytes + TABLES["f"].nbytes
