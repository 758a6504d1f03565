"""UAI and WCSP files: their meaning, round trips, and invalid files."""

import itertools
import json
import math
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.boundary.coordinates import read_polygons
from swarmbo.errors import ConfigError
from swarmbo.interchange import TableProblem, read_problem, write_problem
from swarmbo.interchange.networks import problem_of_uai, problem_of_wcsp, uai_of_problem, uai_solution, wcsp_of_problem
from swarmbo.interchange.solved import solve_problem
from swarmbo.runs.scenario_files import read_toml, summary_line

THREE = """MARKOV
3
2 2 3
2
2 0 1
2 2 1

4
 0.436 0.564
 0.128 0.872

6
 0.210 0.333
 0.457 0.811 0.000 0.189
"""


def test_the_most_probable_state_has_the_largest_product() -> None:
    problem = problem_of_uai(THREE, "three")
    f = np.array([[0.436, 0.564], [0.128, 0.872]])
    g = np.array([[0.210, 0.333], [0.457, 0.811], [0.0, 0.189]])
    best = max(itertools.product(range(2), range(2), range(3)), key=lambda x: f[x[0], x[1]] * g[x[2], x[1]])
    solution = sb.exact(problem.graph, problem.tables)
    assert problem.graph.variables == ("x0", "x1", "x2")
    assert tuple(solution.assignment.values()) == best == (1, 1, 1)
    assert problem.told(solution.value) == pytest.approx(math.log(0.872 * 0.811))
    assert uai_solution(solution.assignment) == "MPE\n3 1 1 1\n"
    assert problem.tables["f1"][2, 0] == -np.inf


@st.composite
def networks(draw: st.DrawFn) -> TableProblem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 5))
    sizes = rng.integers(1, 4, size=n)
    scopes = [rng.permutation(n)[: rng.integers(0, 4)].tolist() for _ in range(draw(st.integers(0, 6)))]
    words = ["MARKOV", n, *sizes, len(scopes)]
    for scope in scopes:
        words += [len(scope), *scope]
    for scope in scopes:
        entries = rng.exponential(size=math.prod(sizes[i] for i in scope)) + 1e-6
        if scope and rng.random() < 0.5:
            entries[rng.integers(len(entries))] = 0.0 if len(entries) > 1 else 1.0
        words += [len(entries), *(repr(float(entry)) for entry in entries)]
    return problem_of_uai(" ".join(map(str, words)), "drawn")


@given(networks())
def test_a_written_uai_file_is_read_back_up_to_a_factor_per_table(problem: TableProblem) -> None:
    again = problem_of_uai(uai_of_problem(problem), "again")
    assert again.graph.variables == problem.graph.variables
    assert again.graph.scopes == problem.graph.scopes
    assert again.domains == problem.domains
    for before, after in zip(problem.tables.values(), again.tables.values(), strict=True):
        np.testing.assert_allclose(after, before - before.max(), atol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends after 0 words"),
        ("MARKOVIAN 1", "begins with 'MARKOVIAN'"),
        ("MARKOV x", "got 'x', word 2; wanted the number of variables"),
        ("MARKOV -1", "got '-1'"),
        ("MARKOV 99999999", "wanted the number of variables, 1 to 100000"),
        ("MARKOV 2 2", "ends after 3 words; wanted the size of variable 1"),
        ("MARKOV 1 0 0", "wanted the size of variable 0, 1 to"),
        ("MARKOV 1 2 1 1 1", "wanted a variable of factor 0, 0 to 0"),
        ("MARKOV 2 2 2 1 2 1 1 4 1 1 1 1", "wanted each once"),
        ("MARKOV 1 2 1 1 0 3 1 1 1", "factor 0 has 3 entries; wanted 2"),
        ("MARKOV 1 2 1 1 0 2 1", "ends after 1 of 2 entries"),
        ("MARKOV 1 2 1 1 0 2 1 -1", "got '-1'; wanted numbers >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 nan", "wanted numbers >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 inf", "wanted numbers >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 one", "wanted numbers >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 ٢", "wanted numbers >= 0"),
        *(
            (f"MARKOV 1 2 1 1 0 2 1 {word}", f"got '{word}'; wanted numbers >= 0, none between 0 and 2.23e-308")
            for word in ("1e-400", "-1e-400", "0.1E-999", "2e-308", "e5", f"0.{'0' * 9}1e-400")
        ),
        (
            f"MARKOV 70 {'1 ' * 70} 1 70 {' '.join(map(str, range(70)))} 1 1",
            "a table of 70 variables; wanted at most 64",
        ),
        ("MARKOV 1 2 1 1 0 2 1 1 7 7", "got 2 words after the last table"),
        ("MARKOV 1 2 1 0 1 0", "forbid every choice; wanted potentials above 0"),
        ("MARKOV 1 2147483648 1 1 0 2147483648 1", "wanted at most 16,777,216"),
        ("MARKOV 1 2147483648 0", "wanted at most 16,777,216"),
        ("MARKOV 3 99999 99999 99999 1 3 0 1 2 999970000299999 1", "99999 x 99999 x 99999"),
    ],
)
def test_invalid_uai_files_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        problem_of_uai(text, "file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "below", "wanted"),
    [
        ([0.0, -1000.0], "1000", "at most 708.396: divide"),
        ([0.0, -744.9, -744.2], "744.9", "at most 708.396: divide"),
        ([-739.5, -740.0, 0.0], "740", "at most 708.396: divide"),
        ([0.0, -708.3968], "708.3968", "at most 708.396: divide"),  # its potential has fewer digits
        ([1e-17, 3e-17], "2e-17", "0, or 2e-10 or more: multiply"),
    ],
)
def test_entries_that_potentials_would_round_are_not_written(entries: list[float], below: str, wanted: str) -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    problem = TableProblem("p", graph, {"f": np.array(entries)}, {"x": range(len(entries))})
    with pytest.raises(ConfigError, match=f"up to {below} below its largest, .*; wanted {wanted}"):
        uai_of_problem(problem)


@pytest.mark.parametrize("table", [[0.1 + 0.2, 0.3], [1e-17, 0.0]])
def test_rounding_errors_in_a_constant_table_do_not_keep_it_from_a_file(table: list[float]) -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["x"]})
    problem = TableProblem("p", graph, {"f": np.array(table), "g": np.array([1.0, 0.0])}, {"x": range(2)})
    again = problem_of_uai(uai_of_problem(problem), "again")
    np.testing.assert_allclose([*again.tables.values()], [[0.0, 0.0], [0.0, -1.0]], atol=1e-15)


@pytest.mark.parametrize("spread", [2e-10, 1.0, 708.396])
def test_written_potentials_keep_differences_up_to_a_millionth_of_the_spread(spread: float) -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    table = spread * np.random.default_rng(0).permutation(np.linspace(0.0, 1.0, 50))
    again = problem_of_uai(uai_of_problem(TableProblem("p", graph, {"f": table}, {"x": range(50)})), "again")
    np.testing.assert_allclose(again.tables["f0"], table - spread, atol=1e-6 * spread)


def test_every_form_of_zero_forbids() -> None:
    table = problem_of_uai("MARKOV 1 6 1 1 0 6 0 0.00 0e-5 -0. +0.0E99 0.3e-307", "file").tables["f0"]
    assert (table > -np.inf).tolist() == [False] * 5 + [True]


def test_a_factor_that_forbids_all_is_not_written() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    with pytest.raises(ConfigError, match="forbids all"):
        uai_of_problem(TableProblem("p", graph, {"f": np.full(2, -np.inf)}, {"x": (0, 1)}))


FORBIDS = 1000


def drawn(seed: int) -> tuple[list[int], list[tuple[list[int], int, dict[tuple[int, ...], int]]]]:
    """Sizes, and for each factor its variables, default cost and listed costs."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 4).tolist()
    factors = [([], 7, {})]
    for _ in range(5):
        scope = rng.permutation(4)[: rng.integers(1, 4)].tolist()
        cells = [cell for cell in itertools.product(*(range(sizes[i]) for i in scope)) if rng.random() < 0.6]
        costs = {cell: int(rng.choice([0, 1, 2, 5, FORBIDS, 5 * FORBIDS])) for cell in cells}
        factors.append((scope, int(rng.integers(0, 9)), costs))
    return sizes, factors


def text_of(sizes, factors) -> str:
    lines = [f"drawn {len(sizes)} {max(sizes)} {len(factors)} {FORBIDS}", " ".join(map(str, sizes))]
    for scope, default, costs in factors:
        lines.append(" ".join(map(str, [len(scope), *scope, default, len(costs)])))
        lines += [" ".join(map(str, [*cell, cost])) for cell, cost in costs.items()]
    return "\n".join(lines)


def least(sizes, factors) -> float:
    """Least sum of costs by enumeration; infinite if every choice is forbidden."""
    found = float("inf")
    for choice in itertools.product(*map(range, sizes)):
        own = [costs.get(tuple(choice[i] for i in scope), default) for scope, default, costs in factors]
        found = min(found, sum(own) if max(own) < FORBIDS else found)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_equals_that_of_enumeration_and_of_toulbar2(tmp_path: Path, seed: int) -> None:
    file, again = tmp_path / "drawn.wcsp", tmp_path / "again.wcsp"
    file.write_text(text_of(*drawn(seed)))
    problem = read_problem(file)
    assert (problem.name, problem.objective, problem.graph.variables) == ("drawn", "min", ("x0", "x1", "x2", "x3"))
    forbidden = sum(cost >= FORBIDS for _, _, costs in drawn(seed)[1] for cost in costs.values())
    assert sum(np.isinf(table).sum() for table in problem.tables.values()) == forbidden
    cost = problem.told(sb.exact(problem.graph, problem.tables).value)
    assert cost == least(*drawn(seed))
    read = read_problem(write_problem(problem, again))
    assert read.told(sb.exact(read.graph, read.tables).value) == cost
    toulbar2 = pytest.importorskip("pytoulbar2")
    for path in (file, again):
        network = toulbar2.CFN()
        try:
            network.Read(str(path))
            solved = network.Solve()
        except toulbar2.pytb2.Contradiction:
            solved = None
        assert (float("inf") if solved is None else solved[1]) == cost


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends after 0 words; wanted the name"),
        ("p 2 2 0 9 2 3", "got '3', word 7; wanted the size of variable 1, 1 to 2"),
        ("p 1 2 0 0 2", "wanted the upper bound, 1 to"),
        ("p 4 4 1 9 4 4 4 4 4 0 1 2 3 -1 salldiff var 1", r"word 15; wanted the default cost of .* \(global ones"),
        ("p 2 2 1 9 2 2 -2 0 1 0 1 1 1 1", r"got '-2', word 8; wanted how many variables factor 0 has \(shared ones"),
        ("p 2 2 1 9 2 2 2 0 1 0 -1", r"got '-1', word 12; wanted the number of tuples of factor 0 \(shared ones"),
        (f"p 1 2 1 {2**60} 2 1 0 {2**53} 0", "got 9007199254740992; wanted the default cost of factor 0"),
        ("p 1 2 2 9 2 0 4 0 0 5 0", "forbid every choice"),
        ("p 1 2 1 9 2 1 0 0 3 0 1 1 1 0 1", "got '3'"),
        ("p 1 2 1 9 2 1 0 0 2 1 3 1 4", r"f0: got 3 and 4 for values \(1,\) of variables \[0\]; wanted one number"),
        ("p 1 2 1 9 2 1 0 0 2 1 3 1 9", r"got 3 and inf for values \(1,\) of"),
        ("p 1 2 1 9 2 1 0 0 1 2 1", "wanted a value of variable 0 in factor 0, 0 to 1"),
        ("p 1 2 1 9 2 1 0 0 1 1 0.5", "got '0.5', word 12; wanted a cost of factor 0"),
        ("p 2 2 1 9 2 2 2 0 0 1 0", "wanted each once"),
        ("p 1 2 0 9 2 1", "got 1 words after the last table"),
        ("p 2 99999 1 9 99999 99999 2 0 1 0 0", "wanted at most 16,777,216"),
    ],
)
def test_invalid_wcsp_files_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        problem_of_wcsp(text, "file")
    assert "\n" not in str(caught.value)


QUEENS = """4-WQUEENS 4 4 11 {}
4 4 4 4
2 0 1 0 10  0 0 5  0 1 5  1 0 5  1 1 5  1 2 5  2 1 5  2 2 5  2 3 5  3 2 5  3 3 5
2 0 2 0 8  0 0 5  0 2 5  1 1 5  1 3 5  2 0 5  2 2 5  3 1 5  3 3 5
2 0 3 0 6  0 0 5  0 3 5  1 1 5  2 2 5  3 0 5  3 3 5
2 1 2 0 10  0 0 5  0 1 5  1 0 5  1 1 5  1 2 5  2 1 5  2 2 5  2 3 5  3 2 5  3 3 5
2 1 3 0 8  0 0 5  0 2 5  1 1 5  1 3 5  2 0 5  2 2 5  3 1 5  3 3 5
2 2 3 0 10  0 0 5  0 1 5  1 0 5  1 1 5  1 2 5  2 1 5  2 2 5  2 3 5  3 2 5  3 3 5
1 0 0 2  1 1  3 1
1 1 0 2  1 1  2 1
1 2 0 2  1 1  2 1
1 3 0 2  0 1  2 1
1 0 0 1  2 5
"""  # the format's example with bound 5, and an extra factor so that the least cost is 2


@pytest.mark.parametrize(("upper", "is_valid"), [(5, True), (3, True), (2, False)])
def test_a_cost_that_reaches_the_upper_bound_is_not_a_solution_even_in_a_rewritten_file(
    tmp_path: Path, upper: int, is_valid: bool
) -> None:
    first, again = tmp_path / "first.wcsp", tmp_path / "again.wcsp"
    first.write_text(QUEENS.format(upper))
    write_problem(read_problem(first), again)
    for path in (first, again):
        solved = solve_problem(read_problem(path), {"kind": "exact"})
        summary = solved.summary()
        assert (summary["value"], summary["valid"], not summary["notes"]) == (2.0, is_valid, is_valid)
        if not is_valid:
            assert summary["notes"] == ["the cost reaches the file's upper bound, 2: it is no solution"]


@pytest.mark.parametrize(
    ("objective", "constant", "table", "beginning"),
    [
        ("min", 4.0, [-3.0, -5.0], "p 1 2 2 10\n2\n0 4 0\n"),
        ("min", -4.0, [-4.0, -6.0], "p_costs_+4 1 2 2 7\n2\n0 0 0\n"),
        ("min", 2.7, [0.0, -1.0], "p_costs_-2.7 1 2 2 2\n2\n0 0 0\n"),
        ("min", 9.0, [3.0, 5.0], "p 1 2 2 7\n2\n0 4 0\n"),
        ("max", -9.0, [3.0, 5.0], "p 1 2 2 7\n2\n0 4 0\n"),
    ],
)
def test_the_written_constant_compensates_shifted_costs_or_the_name_states_the_shift(
    objective: Literal["min", "max"], constant: float, table: list[float], beginning: str
) -> None:
    graph = sb.FactorGraph.from_scopes({"f0": ["x"]})
    problem = TableProblem("p", graph, {"f0": np.array(table)}, {"x": (0, 1)}, objective, constant)
    assert wcsp_of_problem(problem).startswith(beginning)


def test_a_tuple_may_be_stated_twice_with_one_cost() -> None:
    table = problem_of_wcsp("p 2 2 1 9 2 2 2 0 1 5 3 1 0 3 0 1 9 1 0 3", "file").tables["f0"]
    assert (-table).tolist() == [[5.0, np.inf], [3.0, 5.0]]


@pytest.mark.parametrize("constant", [np.inf, -np.inf, np.nan, 1e201, None, "one"])
def test_a_constant_that_is_not_finite_is_refused(constant) -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    with pytest.raises(ConfigError, match=r"\$\.constant: got .*; wanted a number up to 1e\+200"):
        TableProblem("p", graph, {"f": np.zeros(2)}, {"x": (0, 1)}, constant=constant)


def test_an_upper_bound_that_is_too_large_is_not_written() -> None:
    graph = sb.FactorGraph.from_scopes({f"f{i}": ["x"] for i in range(1025)})
    tables = dict.fromkeys(graph.factors, np.array([0.0, -(2.0**52)]))
    with pytest.raises(ConfigError, match=r"wanted one above the constant, 0, up to 2\^62"):
        wcsp_of_problem(TableProblem("p", graph, tables, {"x": (0, 1)}, "min"))


def test_costs_that_are_not_whole_numbers_are_refused_and_costs_are_shifted_to_zero() -> None:
    problem = problem_of_wcsp("p 1 2 1 9 2 1 0 0 1 1 4", "file")
    shifted = TableProblem("a b", problem.graph, {"f0": np.array([3.0, 5.0])}, problem.domains)
    assert wcsp_of_problem(shifted) == "a_b_costs_+5 1 2 2 3\n2\n0 0 0\n1 0 0 1\n0 2\n"
    halves = TableProblem("p", problem.graph, {"f0": np.array([0.5, 0.0])}, problem.domains)
    with pytest.raises(ConfigError, match="other than whole numbers"):
        wcsp_of_problem(halves)


def test_formats_without_an_upper_bound_are_refused_if_some_choice_reaches_it(tmp_path: Path) -> None:
    (tmp_path / "q.wcsp").write_text(QUEENS.format(2))
    problem = read_problem(tmp_path / "q.wcsp")
    for name in ("q.yaml", "q.uai"):
        with pytest.raises(ConfigError, match=r"an upper bound of 2, which .* cannot state; wanted a \.wcsp file"):
            write_problem(problem, tmp_path / name)
    (tmp_path / "q.wcsp").write_text(QUEENS.format(1000))  # no sum of costs reaches it
    again = read_problem(write_problem(read_problem(tmp_path / "q.wcsp"), tmp_path / "q.yaml"))
    assert solve_problem(again, {"kind": "exact"}).summary()["value"] == 2.0


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "net.uai").write_text("MARKOV 1 2 1 1 0 2 0.2 0.8", encoding="utf-8-sig")
    assert read_problem(tmp_path / "net.uai").n_entries == 2
    (tmp_path / "own.toml").write_text('# Own.\nname = "own"\n', encoding="utf-8-sig")
    assert (read_toml(tmp_path / "own.toml"), summary_line(tmp_path / "own.toml")) == ({"name": "own"}, "Own.")
    ring = [[0, 0], [1, 0], [1, 1], [0, 0]]
    (tmp_path / "a.json").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}), encoding="utf-8-sig")
    assert read_polygons(str(tmp_path / "a.json"), "$")[0][0].tolist()[:3] == ring[:3]
