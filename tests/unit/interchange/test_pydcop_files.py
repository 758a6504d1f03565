"""pyDCOP's YAML files: their meaning, round trips, and invalid files."""

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.errors import ConfigError, MissingPackageError, ShapeError
from swarmbo.interchange import TableProblem, read_problem, write_problem
from swarmbo.interchange.pydcop import problem_of_yaml, yaml_of_problem

pytest.importorskip("yaml")

COLOURING = """
name: three walls
objective: min
description: >
  Neighbours want to differ,
  and each has a taste.
domains:
  colours: {values: [R, G], type: colour}
  level: {values: [1 .. 3]}
  lamp: {values: [true, false]}
variables:
  v1: {domain: colours, cost_function: -0.1 if v1 == 'R' else 0.1, initial_value: R}
  v2: {domain: colours}
  l: {domain: level, cost_function: 0.5 * l, noise_level: 0.2, anything: else}
  idle: {domain: lamp}
external_variables:
  dark: {domain: lamp, initial_value: true}
constraints:
  differ: {type: intention, function: 1 if v1 == v2 else 0}
  seen:
    type: extensional
    variables: [v2, l]
    default: 7
    values:
      0.5: R 1 | R 2
      .inf: G 3
  taste:
    type: extensional
    variables: v2
    values: {-1: R, 2: G}
  light: {type: intention, function: 4 - l if dark else l}
  frozen: {type: intention, function: l * 2 + (10 if v1 == 'G' else 0), partial: {l: 3}}
agents:
  a1: {capacity: 100}
  a2: {capacity: 100}
routes: {default: 5, a1: {a2: 3}}
hosting_costs: {default: 1}
distribution_hints:
  must_host: {a2: [v1, taste]}
"""


def test_a_file_has_the_meaning_of_pydcop() -> None:
    problem = problem_of_yaml(COLOURING, "file")
    assert (problem.name, problem.objective) == ("three walls", "min")
    assert problem.domains == {"v1": ("R", "G"), "v2": ("R", "G"), "l": (1, 2, 3), "idle": (True, False)}
    costs = {f: (-table).tolist() for f, table in problem.tables.items()}
    assert costs == {
        "differ": [[1, 0], [0, 1]],
        "seen": [[0.5, 0.5, 7], [7, 7, np.inf]],
        "taste": [-1, 2],
        "light": [3, 2, 1],
        "frozen": [6, 16],
        "cost_v1": [-0.1, 0.1],
        "cost_l": [0.5, 1.0, 1.5],
        "free_idle": [0, 0],
    }
    graph = problem.graph
    assert graph.variables == ("v1", "v2", "l", "idle")
    assert {x: graph.variable_owner(x) for x in graph.variables} == {"v1": "a2", "v2": "a1", "l": "a2", "idle": "a1"}
    assert (graph.owner("taste"), graph.owner("differ"), graph.owner("seen")) == ("a2", "a2", "a1")
    assert problem.notes == ("variable 'l': noise_level = 0.2 is not drawn",)


def test_the_best_choice_has_the_least_cost() -> None:
    problem = problem_of_yaml(COLOURING, "file")

    def cost(v1: str, v2: str, level: int) -> float:
        seen = {("R", 1): 0.5, ("R", 2): 0.5, ("G", 3): np.inf}.get((v2, level), 7.0)
        taste = {"R": -1.0, "G": 2.0}[v2]
        frozen = 6.0 + (10.0 if v1 == "G" else 0.0)
        return (v1 == v2) + seen + taste + (4 - level) + frozen + (-0.1 if v1 == "R" else 0.1) + 0.5 * level

    best = min(itertools.product("RG", "RG", (1, 2, 3)), key=lambda choice: cost(*choice))
    solution = sb.exact(problem.graph, problem.tables)
    chosen = problem.chosen(solution.assignment)
    assert (chosen["v1"], chosen["v2"], chosen["l"]) == best
    assert problem.told(solution.value) == pytest.approx(cost(*best))


TUTORIAL = """
objective: max
domains: {colors: {values: [R, G]}}
variables: {v1: {domain: colors}, v2: {domain: colors}, v3: {domain: colors}, v4: {domain: colors}}
constraints:
  c_1_2: {type: extensional, variables: [v1, v2], values: {5: R R, 8: R G, 20: G R, 3: G G}}
  c_1_3: {type: extensional, variables: [v1, v3], values: {5: R R, 10: R G, 20: G R, 3: G G}}
  c_2_3: {type: extensional, variables: [v2, v3], values: {5: R R, 4: R G, 3: G R | G G}}
  c_2_4: {type: extensional, variables: [v2, v4], values: {3: R R | G G, 8: R G, 10: G R}}
agents: {a1: {capacity: 100}, a2: {capacity: 100}}
"""


def test_the_example_of_pydcop_s_tutorial_has_the_stated_value() -> None:
    problem = problem_of_yaml(TUTORIAL, "file")
    assert problem.told(sb.exact(problem.graph, problem.tables).value) == 53.0


@st.composite
def table_problems(draw: st.DrawFn) -> TableProblem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kinds = [("R", "G", "B"), (0, 1, 2, 3), (True, False), (1, 0), (0.5, -1.25), ("only",), ("a", 1)]
    n, k, n_agents = draw(st.integers(1, 5)), draw(st.integers(0, 6)), draw(st.integers(1, 3))
    names = [f"x{i}" for i in rng.permutation(n)]
    domains = {x: kinds[rng.integers(len(kinds))] for x in names}
    scopes = {f"f{j}": [names[i] for i in rng.permutation(n)[: rng.integers(1, 4)]] for j in range(k)}
    scopes |= {f"u{i}": [x] for i, x in enumerate(names)}
    agent = {name: f"agent {rng.integers(n_agents)}" for name in [*names, *scopes]}
    tables: dict[str, np.ndarray] = {}
    for f, scope in scopes.items():
        table = rng.choice([-1.5, 0.0, 2.0, 1e9, 0.1, rng.normal()], size=[len(domains[x]) for x in scope])
        tables[f] = np.where(rng.random(table.shape) < 0.2, -np.inf, table)
    graph = sb.FactorGraph(
        tuple(scopes),
        tuple(map(tuple, scopes.values())),
        tuple(agent[f] for f in scopes),
        tuple(names),
        tuple(agent[x] for x in names),
    )
    objective = draw(st.sampled_from(["min", "max"]))
    return TableProblem("drawn: 'so'", graph, tables, domains, objective)  # pyright: ignore[reportArgumentType]


@given(table_problems())
def test_a_written_yaml_file_is_read_back_equal(problem: TableProblem) -> None:
    again = problem_of_yaml(yaml_of_problem(problem), "file")
    assert (again.name, again.objective) == (problem.name, problem.objective)
    assert repr(again.domains) == repr(problem.domains)  # (1, 0) is equal to (True, False)
    assert again.graph == problem.graph
    np.testing.assert_equal(dict(again.tables), dict(problem.tables))


def test_a_combination_may_be_stated_twice_with_one_number_and_the_default_fills_the_rest() -> None:
    rows = "type: extensional, variables: x, default: 7, values: {3: 1 | 1}"
    assert (-problem_of_yaml(constraint(rows), "file").tables["c"]).tolist() == [7.0, 3.0]


def test_names_in_expressions_are_as_written_and_float_inf_forbids() -> None:
    text = HEAD.replace("x:", "µ1:").replace("y:", "ﬁ:")
    text += "constraints: {c: {type: intention, function: 'float(\"inf\") if µ1 == ﬁ else µ1'}}"
    problem = problem_of_yaml(text, "file")
    assert problem.graph.scope("c") == ("µ1", "ﬁ")
    assert (-problem.tables["c"]).tolist() == [[np.inf, 0.0], [1.0, np.inf]]


def test_a_constant_is_written_as_a_constraint() -> None:
    text = "objective: max\ndomains: {d: {values: [0, 1]}}\nvariables: {x: {domain: d, cost_function: x}}\n"
    problem = problem_of_yaml(text + "constraints: {c: {type: intention, function: 3 * 4}}\n", "file")
    assert (problem.constant, problem.name) == (12.0, "file")
    again = problem_of_yaml(yaml_of_problem(problem), "file")
    assert again.told(sb.exact(again.graph, again.tables).value) == 13.0


@pytest.mark.parametrize("values", [{"R": 1, "G": 2}.keys(), (v for v in "RG"), np.array(["R", "G"]), ["R", "G"]])
def test_domains_are_any_ordered_values(values: Any) -> None:
    problem = TableProblem("p", sb.FactorGraph.from_scopes({"f": ["x"]}), {"f": np.zeros(2)}, {"x": values})
    assert problem.domains == {"x": ("R", "G")}


HEAD = "name: p\nobjective: min\ndomains: {d: {values: [0, 1]}}\nvariables: {x: {domain: d}, y: {domain: d}}\n"
BOMB = "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in itertools.pairwise("abcdefghijklmnopqrstuvwxyz"))


def constraint(text: str) -> str:
    """A file with one invalid constraint."""
    return f"{HEAD}constraints: {{c: {{{text}}}}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got None; wanted tables"),
        ("[1, 2]", "wanted tables"),
        ("objective: min", r"\$\.variables: got no variable"),
        ("objective: most\n", r"\$\.objective: got 'most'; wanted 'min' or 'max'"),
        ("objective: [min]\n", r"\$\.objective: got \['min'\]"),
        ("objective: min\ndomains: [d]", r"\$\.domains: got \['d'\]; wanted a table by name"),
        ("objective: min\ndomains: {d: [1]}", r"\$\.domains\.d: got \[1\]; wanted a table"),
        ("objective: min\ndomains: {d: {values: []}}", r"\$\.domains\.d\.values"),
        ("objective: min\ndomains: {d: {values: [1 .. x]}}", r"wanted a range as '1 \.\. 10'"),
        ("objective: min\ndomains: {d: {values: [1 .. 999999999999]}}", "got 999999999999 values"),
        ("objective: min\ndomains: {d: {values: [5 .. 1]}}", "got -3 values"),
        ("objective: min\ndomains: {d: {values: [1, 1]}}", "wanted each value once"),
        ("objective: min\ndomains: {d: {values: [1, '1']}}", "wanted each value once"),
        ("objective: min\ndomains: {d: {values: [[1], 2]}}", "wanted numbers and texts"),
        ("objective: min\ndomains: {d: {values: [2020-01-01, 2]}}", "wanted numbers and texts"),
        ("objective: min\nvariables: {x: {domain: d}}", r"\$\.variables\.x\.domain: got 'd'; wanted a defined one"),
        (constraint("type: soft"), r"\$\.constraints\.c\.type"),
        (constraint("type: intention, function: x + z"), "got the name 'z'"),
        (constraint("type: intention, function: open('f')"), 'call "open'),
        (constraint("type: intention, function: source.f(x), source: f.py"), "no code of a file is run"),
        (constraint("type: intention, function: 'if x:\\n  return 1'"), "function of several lines"),
        (constraint("type: intention, function: 1 / x"), "x = 0, where float division|x = 0, where"),
        (constraint("type: intention, function: x, 2: 3"), "got the key 2"),
        (constraint("type: intention, function: x, partial: {x: 5}"), r"partial\.x: got 5; wanted 0 or 1"),
        (constraint("type: extensional, variables: x, values: {-.inf: 0 | 1}"), r"-\.inf, which is below any"),
        (constraint("type: extensional, variables: [x, z], values: {}"), "got 'z'; wanted 'x' or 'y'"),
        (constraint("type: extensional, variables: [x, x], values: {}"), "no name twice"),
        (constraint("type: extensional, variables: [x, y], values: {1: 0 0}"), "no value for '0 1'"),
        (constraint("type: extensional, variables: x, values: {1: 0 | 2}"), r"values\.1: got '2'"),
        (constraint("type: extensional, variables: [x, y], values: {1: 0}"), "got '0'; wanted a value of"),
        (
            constraint("type: extensional, variables: x, values: {3: 0 1}"),
            r"wanted a value of each of x in \[0, 1\]; \|",
        ),
        (
            constraint("type: extensional, variables: x, values: {3: 0 | 1, 4: 1}"),
            r"values\.4: got 3 and 4 for '1'; wanted",
        ),
        (
            "objective: min\ndomains: {d: {values: [yes, no]}}\nvariables: {x: {domain: d}}\n"
            "constraints: {c: {type: extensional, variables: x, values: {3: yes | no}}}",
            r"got 'yes'; wanted a value of each of x in \[True, False\]",
        ),
        (constraint("type: extensional, variables: x, values: {one: 0 | 1}"), "got 'one'; wanted a number"),
        (constraint("type: extensional, variables: x, values: {.nan: 0}"), "wanted a number"),
        (constraint(f"type: extensional, variables: x, values: {{{2**53 + 1}: 0}}"), "float64 does not round"),
        (constraint("type: extensional, variables: x, values: {1.0e+250: 0}"), r"\.c\.values: got 1e\+250; wanted"),
        (constraint("type: intention, function: 1e250 + x"), "x = 0, where a result is not a number up to 1e"),
        (
            constraint("type: intention, function: 1e250 if x else 0"),
            "x = 1, where it is 1e.250; wanted one up to 1e200",
        ),
        (constraint(f"type: intention, function: {2**53} + x"), "x = 1, where .* float64 does not round"),
        (constraint(f"type: extensional, variables: x, values: {{1{'0' * 400}: 0}}"), "wanted a number"),
        (constraint("type: extensional, variables: x, values: [1]"), "wanted a table"),
        (HEAD + "agents: 3", r"\$\.agents: got 3"),
        (HEAD + "agents: [a]\ndistribution_hints: {must_host: {b: [x]}}", "got 'b'; wanted 'a'"),
        (HEAD + "agents: [a]\ndistribution_hints: {must_host: {a: [q]}}", "got 'q'; wanted 'x' or 'y'"),
        (HEAD + "agents: [a, b]\ndistribution_hints: {must_host: {a: [x], b: [x]}}", "'x', which 'a' hosts too"),
        (HEAD + "agents: [a]\ndistribution_hints: [a]", r"\$\.distribution_hints: got"),
        (HEAD + "agents: [a]\ndistribution_hints: {must_host: [x]}", r"\.must_host: got .*wanted a table"),
        (HEAD + "constraints: {x: {type: intention, function: y}}", "names both a factor and a variable"),
        (HEAD + "external_variables: {e: {domain: d}}", r"\$\.external_variables\.e\.initial_value: got None"),
        (HEAD + "external_variables: {x: {domain: d, initial_value: 1}}", r"'x', which is in \$\.variables too"),
        ("a: !!python/object/apply:os.system ['id']", "got no YAML"),
        ("a: [", "got no YAML"),
        ("a: &a [1]\nb: {<<: {c: 1}}", "merge key `<<` in line 2"),
        ("objective: min\nobjective: max", "a key twice"),
        (HEAD + "external_variables: {1: {domain: d}, '1': {domain: d}}", "a key twice"),
        ("[" * 5000, "got no YAML|nested"),
        (f"a: &a [{'x, ' * 9}]\n{BOMB}objective: min\nname: *z", "aliases that expand to more than 8,388,608"),
        ("agents: &a [*a]", "none that contains itself"),
        (f"a: &a {'x' * 10**5}\nagents: [{'*a, ' * 100}]", "aliases that expand to more than"),
        (f"a: {'1:' * 10**4}1", "a number of 20001 characters in line 1"),
        (HEAD + f"x: 0x{'f' * 600}", "a number of 602 characters"),
        ("? [1]\n: 2\n? {}\n: 3", "got no YAML"),
        ("a: 0x", "objective"),
    ],
)
def test_invalid_yaml_files_are_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        problem_of_yaml(text, "file")
    line = str(caught.value)
    assert re.search(message, line), line
    assert "\n" not in line


def test_a_table_that_is_too_large_is_refused_before_it_is_computed() -> None:
    """Otherwise, 10^36 entries or evaluations would take for ever."""
    many = ", ".join(f"x{i}: {{domain: d}}" for i in range(12))
    head = f"objective: min\ndomains: {{d: {{values: [1 .. 1000]}}}}\nvariables: {{{many}}}\n"
    for constraint in (
        f"{{type: intention, function: {' + '.join(f'x{i}' for i in range(12))}}}",
        f"{{type: extensional, default: 0, values: {{}}, variables: [{', '.join(f'x{i}' for i in range(12))}]}}",
    ):
        with pytest.raises(ConfigError, match=r"1000 x 1000 x 1000 .* wanted at most 16,777,216"):
            problem_of_yaml(head + f"constraints: {{c: {constraint}}}", "file")
    long = f"max(x0, {', '.join(['x1 * 2'] * 500)})"
    with pytest.raises(ConfigError, match=r"1,000,000 combinations for an expression of 1,502 parts; wanted at most"):
        problem_of_yaml(head + f"constraints: {{c: {{type: intention, function: '{long}'}}}}", "file")


def test_the_format_of_a_file_depends_on_its_ending(tmp_path: Path) -> None:
    problem = problem_of_yaml(COLOURING, "file")
    path = write_problem(problem, tmp_path / "p.YML")
    assert read_problem(path).domains == problem.domains
    with pytest.raises(ConfigError, match=r"got the ending '\.xml'; wanted \.yaml, \.yml, \.uai"):
        read_problem(tmp_path / "p.xml")
    for content, why in (
        (
            constraint("type: intention, function: z").encode(),
            r"bad\.yaml: \$\.constraints\.c\.function: got the name 'z'",
        ),
        (b"name: \xff", "position 6 that is not UTF-8 text"),
        (b"#" * (2**22 + 1), "more than 4,194,304 bytes"),
    ):
        (tmp_path / "bad.yaml").write_bytes(content)
        with pytest.raises(ConfigError, match=why):
            read_problem(tmp_path / "bad.yaml")
    with pytest.raises(OSError, match="folder"):
        read_problem(tmp_path.joinpath("dir.yaml").mkdir() or tmp_path / "dir.yaml")


def test_values_that_a_file_cannot_represent_are_not_written() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    for value in ("two words", "2\u00a0dB", "a|b", "it's", "", "1..3"):
        with pytest.raises(ConfigError, match="without spaces, quotes, bars"):
            yaml_of_problem(TableProblem("p", graph, {"f": np.zeros(2)}, {"x": ("ok", value)}))


def test_without_pyyaml_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingPackageError, match=r"pip install \"swarmbo\[dcop\]\""):
        problem_of_yaml(COLOURING, "file")


@pytest.mark.parametrize("ending", ["yaml", "wcsp"])
def test_a_problem_with_numpy_values_and_graph_nodes_is_written_and_read_back(ending: str, tmp_path: Path) -> None:
    domains = {0: np.arange(2), 1: tuple(np.array([0.5, 1.5]))}
    problem = TableProblem("p", nx.path_graph(2), {(0, 1): np.eye(2)}, domains)
    again = read_problem(write_problem(problem, tmp_path / f"p.{ending}"))
    assert problem.domains == {"0": (0, 1), "1": (0.5, 1.5)}
    if ending == "yaml":
        assert again.domains == problem.domains
        np.testing.assert_array_equal(again.tables["f(0,1)"], np.eye(2))
    else:  # costs relative to the lowest
        np.testing.assert_array_equal(again.tables["f1"], np.eye(2) - 1.0)


def test_a_note_names_an_unknown_section() -> None:
    problem = problem_of_yaml(HEAD + "constraint: {c: {type: intention, function: x + y}}\nroutes: {}\n", "file")
    assert problem.notes == ("section 'constraint' is not read",)


def test_objectives_other_than_min_and_max_are_refused() -> None:
    graph = sb.FactorGraph.from_scopes({"f": ["x"]})
    with pytest.raises(ConfigError, match=r"\$\.objective: got 'maximise'; wanted 'min' or 'max'"):
        TableProblem("p", graph, {"f": np.zeros(2)}, {"x": (1, 2)}, "maximise")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("wrong", ["1", None, [1.0], float("nan")])
def test_constants_and_upper_bounds_are_numbers(wrong) -> None:
    graph, table = sb.FactorGraph.from_scopes({"f": ["x"]}), {"f": np.zeros(2)}
    for name in ("constant", "upper"):
        with pytest.raises(ConfigError, match=rf"\$\.{name}: got .*; wanted a number"):
            TableProblem("p", graph, table, {"x": (1, 2)}, **{name: wrong})


def test_domains_that_do_not_fit_are_refused() -> None:
    graph, table = sb.FactorGraph.from_scopes({"f": ["x"]}), {"f": np.zeros(2)}
    for domains, got in (({}, "None"), (None, "None"), ({"x": 2}, "2"), ({"x": (1, 2, 3)}, r"\(1, 2, 3\)")):
        with pytest.raises(ShapeError, match=f"domain of 'x': got {got}; wanted a list of 2 values, as its tables"):
            TableProblem("p", graph, table, domains)  # pyright: ignore[reportArgumentType]
    for values in (("1", 1), (None, 1), (float("nan"), 1.0)):
        with pytest.raises(ConfigError, match=r"\$\.domains\.x\.values: got .*; wanted"):
            yaml_of_problem(TableProblem("p", graph, table, {"x": values}))
