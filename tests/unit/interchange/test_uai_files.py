"""UAI's format: logarithms of potentials, round trips, and texts that are wrong."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.interchange import TableProblem
from swarmbo.interchange.networks import problem_of_uai, uai_of_problem, uai_solution

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


def test_the_most_probable_state_is_that_of_the_largest_product() -> None:
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
def test_what_is_written_is_read_again_but_for_a_factor_of_each_table(problem: TableProblem) -> None:
    again = problem_of_uai(uai_of_problem(problem), "again")
    assert again.graph.variables == problem.graph.variables
    assert again.graph.scopes == problem.graph.scopes
    assert again.domains == problem.domains
    for before, after in zip(problem.tables.values(), again.tables.values(), strict=True):
        np.testing.assert_allclose(after, before - before.max(), atol=1e-12)


@pytest.mark.parametrize(
    ("text", "says"),
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
        ("MARKOV 1 2 1 1 0 2 1 -1", "got -1.0; wanted potentials >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 nan", "wanted potentials >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 inf", "wanted potentials >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 one", "wanted numbers >= 0"),
        ("MARKOV 1 2 1 1 0 2 1 ٢", "wanted numbers >= 0"),
        (
            f"MARKOV 70 {'1 ' * 70} 1 70 {' '.join(map(str, range(70)))} 1 1",
            "a table of 70 variables; wanted at most 64",
        ),
        ("MARKOV 1 2 1 1 0 2 1 1 7 7", "got 2 words behind the last table"),
        ("MARKOV 1 2 1 0 1 0", "every choice is forbidden"),
        ("MARKOV 1 2147483648 1 1 0 2147483648 1", "wanted at most 16,777,216"),
        ("MARKOV 1 2147483648 0", "wanted at most 16,777,216"),
        ("MARKOV 3 99999 99999 99999 1 3 0 1 2 999970000299999 1", "99999 x 99999 x 99999"),
    ],
)
def test_a_text_that_is_wrong_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        problem_of_uai(text, "file")
    assert "\n" not in str(caught.value)


def test_potentials_that_would_come_out_as_zero_are_not_written() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    problem = TableProblem("p", graph, {"f": np.array([0.0, -1000.0])}, {"x": (0, 1)})
    with pytest.raises(ConfigError, match="more than 745 below"):
        uai_of_problem(problem)
    with pytest.raises(ConfigError, match="forbids all"):
        uai_of_problem(TableProblem("p", graph, {"f": np.full(2, -np.inf)}, {"x": (0, 1)}))
