"""WCSP files: what they mean, round trips, and files that are wrong."""

import itertools
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.interchange import TableProblem, read_problem, write_problem
from swarmbo.interchange.networks import problem_of_wcsp, wcsp_of_problem
from swarmbo.interchange.solved import solve_problem

FORBIDS = 1000


def drawn(seed: int) -> tuple[list[int], list[tuple[list[int], int, dict[tuple[int, ...], int]]]]:
    """Sizes, and of each factor its variables, default cost and listed costs."""
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
    """Least sum of costs by enumeration; infinite if every choice has a cost that forbids."""
    found = float("inf")
    for choice in itertools.product(*map(range, sizes)):
        own = [costs.get(tuple(choice[i] for i in scope), default) for scope, default, costs in factors]
        found = min(found, sum(own) if max(own) < FORBIDS else found)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_that_of_enumeration_and_of_toulbar2(tmp_path: Path, seed: int) -> None:
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
    ("text", "says"),
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
        ("p 1 2 1 9 2 1 0 0 1 2 1", "wanted a value of variable 0 in factor 0, 0 to 1"),
        ("p 1 2 1 9 2 1 0 0 1 1 0.5", "got '0.5', word 12; wanted a cost of factor 0"),
        ("p 2 2 1 9 2 2 2 0 0 1 0", "wanted each once"),
        ("p 1 2 0 9 2 1", "got 1 words behind the last table"),
        ("p 2 99999 1 9 99999 99999 2 0 1 0 0", "wanted at most 16,777,216"),
    ],
)
def test_a_text_that_is_wrong_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
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
"""  # the format's own example with bound 5, and one factor more, so that the least cost is 2


@pytest.mark.parametrize(("upper", "is_valid"), [(5, True), (3, True), (2, False)])
def test_a_cost_that_reaches_the_upper_bound_is_no_solution_also_of_a_file_written_again(
    tmp_path: Path, upper: int, is_valid: bool
) -> None:
    first, again = tmp_path / "first.wcsp", tmp_path / "again.wcsp"
    first.write_text(QUEENS.format(upper))
    write_problem(read_problem(first), again)
    for path in (first, again):
        solved = solve_problem(read_problem(path), {"kind": "exact"})
        told = solved.summary()
        assert (told["value"], told["valid"], not told["notes"]) == (2.0, is_valid, is_valid)
        if not is_valid:
            assert told["notes"] == ["the cost reaches the file's upper bound, 2: it is no solution"]


@pytest.mark.parametrize(
    ("objective", "constant", "table", "begins"),
    [
        ("min", 4.0, [-3.0, -5.0], "p 1 2 2 10\n2\n0 4 0\n"),
        ("min", -4.0, [-4.0, -6.0], "p_costs_+4 1 2 2 7\n2\n0 0 0\n"),
        ("min", 2.7, [0.0, -1.0], "p_costs_-2.7 1 2 2 2\n2\n0 0 0\n"),
        ("min", 9.0, [3.0, 5.0], "p 1 2 2 7\n2\n0 4 0\n"),
        ("max", -9.0, [3.0, 5.0], "p 1 2 2 7\n2\n0 4 0\n"),
    ],
)
def test_the_written_constant_makes_up_for_raised_costs_or_the_name_says_by_how_much(
    objective: Literal["min", "max"], constant: float, table: list[float], begins: str
) -> None:
    graph = sb.FactorGraph.from_scopes({"f0": ["x"]})
    problem = TableProblem("p", graph, {"f0": np.array(table)}, {"x": (0, 1)}, objective, constant)
    assert wcsp_of_problem(problem).startswith(begins)


def test_an_upper_bound_that_no_reader_takes_is_not_written() -> None:
    graph = sb.FactorGraph.from_scopes({f"f{i}": ["x"] for i in range(1025)})
    tables = dict.fromkeys(graph.factors, np.array([0.0, -(2.0**52)]))
    with pytest.raises(ConfigError, match=r"wanted one above the constant, 0, up to 2\^62"):
        wcsp_of_problem(TableProblem("p", graph, tables, {"x": (0, 1)}, "min"))


def test_what_a_file_cannot_hold_is_refused_and_negative_costs_are_raised() -> None:
    problem = problem_of_wcsp("p 1 2 1 9 2 1 0 0 1 1 4", "file")
    shifted = TableProblem("a b", problem.graph, {"f0": np.array([3.0, 5.0])}, problem.domains)
    assert wcsp_of_problem(shifted) == "a_b_costs_+5 1 2 2 3\n2\n0 0 0\n1 0 0 1\n0 2\n"
    halves = TableProblem("p", problem.graph, {"f0": np.array([0.5, 0.0])}, problem.domains)
    with pytest.raises(ConfigError, match="other than whole numbers"):
        wcsp_of_problem(halves)
