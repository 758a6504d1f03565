"""Upper bounds against brute force."""

import itertools
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.settings import convert

from .example_tables import TRIANGLE, Problem, Tables, by_agents, drawn, joint_values, ring, some_problem


@st.composite
def problems(draw: st.DrawFn, forest: bool = False) -> Problem:
    """Problems with one to four variables per factor, and no, some or many forbidden combinations."""
    rng, n, n_factors = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), st.integers(1, 6), st.integers(1, 8)
    forbidden, scale = draw(st.sampled_from([0.0, 0.0, 0.2, 0.6])), draw(st.sampled_from([1e-6, 1.0, 1e9]))
    graph, tables = some_problem(rng, draw(n), draw(n_factors), forbidden=forbidden, forest=forest)
    if draw(st.booleans()):  # a constraint couples some or all variables, perhaps of parts that share none
        graph = replace(graph, joined=(graph.variables[: draw(n)],))
    return graph, {f: scale * table for f, table in tables.items()}


def slack(tables: Tables) -> float:
    finite = [np.abs(table[table > -np.inf]).max(initial=0.0) for table in tables.values()]
    return 1e-9 * sum(map(float, finite))


@given(problems(), st.integers(1, 25), st.sampled_from([sb.MGM, sb.MaxSum]))
@settings(deadline=None, max_examples=60)
def test_no_choice_exceeds_the_bound(problem: Problem, rounds: int, kind: type[sb.MGM | sb.MaxSum]) -> None:
    graph, tables = problem
    best = joint_values(graph, tables).max()
    solution = kind(rounds=2, bound="mplp", bound_rounds=rounds).solve(graph, tables)
    assert solution.value <= best + slack(tables)
    assert solution.upper_bound is not None
    assert solution.upper_bound >= best - slack(tables)
    assert solution.upper_bound <= sum(float(table.max()) for table in tables.values()) + slack(tables)
    if solution.value > -np.inf:
        assert solution.report.gap == solution.upper_bound - solution.value >= 0.0
        assert solution.report.upper_bound == pytest.approx(solution.upper_bound)
    else:
        assert solution.report.gap is None


@given(problems(forest=True))
@settings(deadline=None, max_examples=45)
def test_without_loops_the_bound_is_the_optimum(problem: Problem) -> None:
    graph, tables = problem
    best = joint_values(graph, tables).max()
    found = sb.DSA(rounds=1, bound="mplp").solve(graph, tables).upper_bound
    assert found == best or found == pytest.approx(best, abs=slack(tables))


@given(problems(), st.integers(1, 5))
def test_agents_find_the_same_bound_by_messages_and_count_them(problem: Problem, n_agents: int) -> None:
    graph, tables = problem
    owner = {name: f"agent {k % n_agents}" for k, name in enumerate([*graph.factors, *graph.variables])}
    owners = {
        f"{kind}_owners": tuple(owner[name] for name in getattr(graph, f"{kind}s")) for kind in ("factor", "variable")
    }
    graph = replace(graph, **owners)
    method = sb.MaxSum(rounds=3, bound="mplp", bound_rounds=4)
    line = nx.path_graph([f"agent {k}" for k in range(n_agents)])
    links = line if set(line) >= set(graph.agents) else None
    central = method.solve(graph, tables, links)
    agents = by_agents(method, graph, tables, links)
    assert (agents.upper_bound, agents.report) == (central.upper_bound, central.report)
    plain = sb.MaxSum(rounds=3).solve(graph, tables, links)
    assert plain.assignment == central.assignment
    is_loopy = not graph.is_forest
    crosses = any(graph.owner(f) != graph.variable_owner(x) for f in graph.factors for x in graph.scope(f))
    if is_loopy and crosses and len(graph.components) == 1:
        assert central.report.messages > plain.report.messages


@given(problems())
def test_mplp_falls_from_round_to_round_and_begins_below_the_sum_of_maxima(problem: Problem) -> None:
    graph, tables = problem
    methods = [sb.MGM(rounds=1, bound="mplp", bound_rounds=rounds) for rounds in (1, 2, 3, 8)]
    bounds = [method.solve(graph, tables).upper_bound for method in methods]
    first = sum(float(table.max()) for table in tables.values())
    for before, after in itertools.pairwise([first, *bounds]):
        assert before is not None
        assert after is not None
        assert after <= before + slack(tables)


def test_the_bound_of_many_parts_has_the_same_bits_by_messages() -> None:
    graph = sb.FactorGraph.from_scopes({f"f{n}": [f"x{n}"] for n in range(12)}, {f"f{n}": "a" for n in range(12)})
    method = sb.DSA(bound="mplp", variant="C", probability=0.3)  # parts end after different numbers of rounds
    for seed in range(20):
        rng = np.random.default_rng(seed)
        tables = {factor: rng.random(3) for factor in graph.factors}
        central = method.solve(graph, tables, seed=seed).upper_bound
        assert central == by_agents(method, graph, tables, seed=seed).upper_bound


def test_a_combination_that_is_forbidden_stays_so_in_the_bound() -> None:
    """A ring of three: f and g forbid all but one value of y and z, h is soft and has by far the largest spread."""
    graph = sb.FactorGraph.from_scopes(TRIANGLE)
    hard = np.where(np.eye(3) > 0, 0.0, -np.inf)
    tables = {"f": hard, "g": hard, "h": 1e6 * (1.0 - np.eye(3))}
    assert np.isfinite(sb.MGM(bound="mplp").solve(graph, tables).upper_bound or np.nan)


def test_mplp_proves_infeasibility_if_values_are_excluded_one_after_the_other() -> None:
    """x < y < z < x on a ring: pairs allow something, all three together nothing."""
    graph = sb.FactorGraph.from_scopes(TRIANGLE)
    less = np.where(np.triu(np.ones((4, 4)), 1) > 0, 0.0, -np.inf)
    solution = sb.MaxSum(bound="mplp").solve(graph, dict.fromkeys(graph.factors, less))
    assert (solution.upper_bound, solution.report.gap, solution.report.status) == (-np.inf, None, "infeasible")


def test_bounds_of_parts_add_up_and_a_solved_part_is_its_own_bound() -> None:
    rng = np.random.default_rng(1)
    loop, pair = ring(5), {"t": ["p", "q"], "u": ["q", "r"]}
    tables = {f: rng.normal(size=(3, 3)) for f in [*loop, *pair]}
    whole = sb.FactorGraph.from_scopes(loop | pair)
    method = sb.MaxSum(bound="mplp")
    alone = method.solve(sb.FactorGraph.from_scopes(loop), {f: tables[f] for f in loop}).upper_bound
    tree = sb.exact(sb.FactorGraph.from_scopes(pair), {f: tables[f] for f in pair}).value
    assert alone is not None
    assert method.solve(whole, tables).upper_bound == pytest.approx(alone + tree, abs=1e-12)
    assert sb.MaxSum().solve(whole, tables).upper_bound is None


@pytest.mark.parametrize("kind", [sb.MaxSum, sb.MGM, sb.DSA])
@pytest.mark.parametrize(
    "rules",
    [{"constraints": [sb.Linear(weights={"x": 1.0, "w": 1.0}, at_most=1.5)]}, {"limits": {"load": (None, 0.5)}}],
)
def test_a_bound_holds_on_the_graph_of_a_team_whose_rule_couples_a_loop_and_a_lonely_variable(kind, rules) -> None:
    graph = sb.FactorGraph.from_scopes(TRIANGLE | {"k": ["w"]})
    graph = sb.Team(graph, dict.fromkeys(graph.variables, (0.0, 1.0)), **rules).graph
    tables = {f: np.random.default_rng(0).normal(size=(2,) * len(graph.scope(f))) for f in graph.factors}
    found, best = kind(bound="mplp").solve(graph, tables), joint_values(graph, tables).max()
    assert found.value <= best <= found.upper_bound + 1e-12
    assert found.upper_bound <= sum(table.max() for table in tables.values())
    assert by_agents(kind(bound="mplp"), graph, tables).upper_bound == found.upper_bound


def test_a_loop_that_a_constraint_joins_to_a_variable_is_no_tree_if_other_parts_exist() -> None:
    graph = sb.FactorGraph.from_scopes(TRIANGLE | {"k": ["w"], "apart": ["u"]})
    graph = replace(graph, joined=(("x", "w"),))
    assert [part.is_forest for part in graph.components] == [False, True]
    for seed in range(10):
        tables = drawn(graph, seed)
        found = sb.MaxSum().solve(graph, tables)
        assert found.report.status != "exact" or found.value == pytest.approx(joint_values(graph, tables).max())


def test_a_bound_is_selected_by_name() -> None:
    assert convert({"kind": "max-sum", "bound": "mplp", "bound_rounds": 7}, sb.MaxSum).bound_rounds == 7
    with pytest.raises(ConfigError, match=r"\$\.bound.*mplp"):
        convert({"kind": "max-sum", "bound": "mplb"}, sb.MaxSum)


def test_entries_of_the_largest_size_give_a_finite_bound() -> None:
    graph = sb.FactorGraph.from_scopes(TRIANGLE)
    rng = np.random.default_rng(0)
    tables = {f: 1e200 * rng.choice([-1.0, 1.0], size=(3, 3)) for f in graph.factors}
    found = sb.MGM(bound="mplp").solve(graph, tables).upper_bound
    assert found is not None
    assert by_agents(sb.MGM(bound="mplp"), graph, tables).upper_bound == found
    assert joint_values(graph, tables).max() <= found * (1.0 + 1e-12) <= 3.1e200
