"""What exact promises beyond being right: see the oracle tests for that."""

import numpy as np
import pytest

from swarmbo.coordination import Exact, exact
from swarmbo.errors import BudgetError, ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.settings import convert

CHAIN = FactorGraph.from_scopes({"f": ["a", "b", "c"], "g": ["b", "c", "d"]})
TABLES = {"f": np.zeros((3, 4, 5)), "g": np.zeros((4, 5, 6))}


def test_the_budget_is_the_entries_of_the_largest_step() -> None:
    assert exact(CHAIN, TABLES, table_budget=120).value == 0.0
    with pytest.raises(
        BudgetError, match=r"4 x 5 x 6 = 120 entries .* over b, c, d; the budget is 119 entries\. Raise"
    ):
        exact(CHAIN, TABLES, table_budget=119)


def test_ties_go_to_the_lowest_indices() -> None:
    assert exact(CHAIN, TABLES).assignment == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_when_everything_is_forbidden_the_optimum_is_minus_infinity_without_a_gap() -> None:
    solution = exact(CHAIN, TABLES | {"f": np.full((3, 4, 5), -np.inf)})
    assert (solution.value, solution.upper_bound, solution.report.gap) == (-np.inf, -np.inf, 0.0)


def test_a_sweep_up_and_down_the_chain_is_counted_in_rounds_and_messages() -> None:
    report = exact(CHAIN, TABLES).report
    assert (report.rounds, report.messages) == (6, 6)  # each of three links of the chain once up and once down
    tables = 8 * (4 * 5 + 5 * 6 + 6)
    assert tables < report.bytes < tables + 6 * 32


def test_a_factor_held_by_an_agent_that_does_not_act_is_sent_once_to_the_one_that_joins_it() -> None:
    scopes = dict(zip(CHAIN.factors, CHAIN.scopes, strict=True))
    acted = {x: x for x in "abcd"}
    base = FactorGraph.from_scopes(scopes, {"f": "base", "g": "b"}, acted)
    at_home, away = exact(CHAIN, TABLES).report, exact(base, TABLES).report
    assert away.messages == at_home.messages + 1
    assert away.bytes > at_home.bytes + TABLES["f"].nbytes


def test_settings_are_checked_and_read_by_kind() -> None:
    assert convert({"kind": "exact", "table_budget": 5}, Exact) == Exact(table_budget=5)
    with pytest.raises(ConfigError, match=r"\$\.table_budget: got 0; wanted an integer >= 1"):
        convert({"kind": "exact", "table_budget": 0}, Exact)
