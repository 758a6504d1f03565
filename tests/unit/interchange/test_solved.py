"""`swarmbo solve`: its output, files and figures."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import swarmbo as sb
from swarmbo.cli import app
from swarmbo.coordination.plan import traced
from swarmbo.errors import ConfigError
from swarmbo.interchange import TableProblem, read_problem, write_problem
from swarmbo.interchange.solved import solve_problem
from swarmbo.plotting.run_figures import solve_trace_figure
from swarmbo.runs.scenario_files import find

RING = sb.FactorGraph.from_scopes({f"f{i}": [f"x{i}", f"x{(i + 1) % 7}"] for i in range(7)})
TREE = sb.FactorGraph.from_scopes({"t": ["p", "q"], "u": ["q", "r"]})


def tables_of(graph: sb.FactorGraph, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f: rng.normal(size=(3, 3)) for f in graph.factors}


@pytest.fixture
def solve(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, status=0):
        result = CliRunner().invoke(app, ["solve", *map(str, arguments)], catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return call


@pytest.mark.parametrize(
    "method",
    [
        sb.MaxSum(bound="mplp"),
        sb.DSA(bound="mplp", bound_rounds=3),
        sb.DSA(keep_best=False),
        sb.DSA(keep_best=False, bound="mplp", bound_rounds=2),
        sb.MGM(bound="mplp"),
        sb.Exact(),
    ],
)
def test_a_trace_ends_at_the_solution_and_does_not_change_it(method):
    whole = sb.FactorGraph.from_scopes({f: g.scope(f) for g in (RING, TREE) for f in g.factors})
    tables = tables_of(whole)
    solution, rows = traced(method, whole, tables, seed=3)
    assert solution == method.solve(whole, tables, seed=3)
    assert [row.round for row in rows] == list(range(rows[0].round, rows[0].round + len(rows)))
    last = rows[-1]
    turns = (method.bound_rounds or 20) if method.bound else 0  # rounds of the bound
    assert 0 <= last.round - solution.report.rounds <= turns
    assert (last.value, last.bound, last.traffic) == (solution.value, solution.upper_bound, solution.report.traffic)
    values = [row.value for row in rows]
    assert all(value is not None for value in values)
    if getattr(method, "keep_best", True):
        assert values == sorted(values)  # best values so far
    bounds = [row.bound for row in rows if row.bound is not None]
    assert all(after <= before + 1e-9 for before, after in itertools.pairwise(bounds))
    sent = [row.traffic.bytes for row in rows]
    assert sent == sorted(sent)


def test_a_row_of_a_trace_equals_a_run_of_that_many_rounds():
    tables = tables_of(RING)
    _, rows = max((traced(sb.MGM(), RING, tables, seed=seed) for seed in range(9)), key=lambda made: len(made[1]))
    seed = next(seed for seed in range(9) if traced(sb.MGM(), RING, tables, seed=seed)[1] == rows)
    assert len(rows) > 3
    for n in range(1, len(rows)):
        assert rows[n].round == n
        assert rows[n].value == pytest.approx(sb.MGM(rounds=n).solve(RING, tables, seed=seed).value)


def test_the_example_is_solved_written_and_drawn(solve):
    asked = ["--coordination", "dsa", "--bound", "mplp", "--seed", 2, "--rounds", 9, "--set", "variant=A"]
    out = solve("channels", *asked, "--trace", "deep/trace.csv", "--figure", "trace.svg", "--out", "solution.json")
    solution = json.loads(Path("solution.json").read_text())
    settings = {"kind": "dsa", "bound": "mplp", "rounds": 9, "probability": 0.7, "variant": "A", "keep_best": True}
    assert solution["coordination"] == settings
    problem = read_problem(Path(sb.__file__).parent.parent / "scenarios" / "channels.yaml")
    best = sb.exact(problem.graph, problem.tables)
    assert solution["bound"] <= problem.told(best.value) == 6.0 <= solution["value"]
    assert solution["gap"] == pytest.approx(solution["value"] - solution["bound"])
    index = {x: problem.domains[x].index(value) for x, value in solution["assignment"].items()}
    cost = -sum(problem.tables[f][tuple(index[x] for x in problem.graph.scope(f))] for f in problem.graph.factors)
    assert solution["value"] == pytest.approx(cost)
    with open("deep/trace.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[-1]["value"]) == float(rows[-1]["cost"]) == solution["value"]
    assert float(rows[-1]["bound"]) == solution["bound"]
    assert (int(rows[-1]["msg_count"]), int(rows[-1]["msg_size"])) == (solution["messages"], solution["bytes"])
    assert [row["status"] for row in rows[-2:]] == ["RUNNING", "FINISHED"]
    assert rows[0]["bound"] == rows[0]["time"] == ""
    assert Path("trace.svg").read_text().startswith("<?xml")
    for word in ("10 variables, 22 factors, 10 agents", "dsa, seed 2", "cost", "no cost is below", "ap9 "):
        assert word in out.stdout
    assert out.stdout.endswith("solution.json\ndeep/trace.csv\ntrace.svg\n")


def test_two_different_kinds_from_an_option_and_a_setting_are_refused(solve):
    out = solve("channels", "--set", "coordination=dsa", "--json")
    assert json.loads(out.stdout)["coordination"]["kind"] == "dsa"
    out = solve("channels", "--algo", "mgm", "--set", "coordination.kind=dsa", status=2)
    assert "--set kind: got 'dsa', and 'mgm' as an option; wanted one" in out.stderr


def test_with_json_nothing_else_is_printed(solve):
    out = solve("channels", "--json", "--coordination", "exact", "--out", "s.json")
    assert json.loads(out.stdout) == json.loads(Path("s.json").read_text())
    assert json.loads(out.stdout)["status"] == "exact"


def test_uai_files_are_solved_with_an_mpe_file_as_answer(solve):
    Path("net.uai").write_text("MARKOV 2 2 3 2 1 0 2 0 1 2 0.2 0.8 6 1 2 3 3 9 1")
    out = solve("net.uai", "--coordination", "exact", "--out", "net.uai.MPE")
    assert Path("net.uai.MPE").read_text() == "MPE\n2 1 1\n"
    assert f"{np.log(0.8 * 9):.5f}" in out.stdout


def test_an_infeasible_problem_is_reported_and_drawn(solve):
    clash = np.where(np.eye(2) > 0, -np.inf, 0.0)
    ring = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"], "h": ["z", "x"]})
    problem = TableProblem("clash", ring, dict.fromkeys(ring.factors, clash), dict.fromkeys("xyz", ("R", "G")), "min")
    write_problem(problem, "clash.yaml")
    out = solve("clash.yaml", "--coordination", "mgm", "--out", "s.json", "--figure", "f", "--trace", "t.csv")
    solution = json.loads(Path("s.json").read_text())
    assert (solution["status"], solution["value"], solution["gap"], len(solution["violated"])) == (
        "infeasible",
        None,
        None,
        1,
    )
    assert "forbidden by" in out.stdout
    assert Path("f.png").stat().st_size > 1000
    with open("t.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:7] == [
        "cycle",
        "time",
        "cost",
        "violation",
        "msg_count",
        "msg_size",
        "status",
    ]  # columns of pyDCOP
    assert (rows[-1]["cost"], rows[-1]["violation"], rows[-1]["value"]) == ("0.0", "1", "inf")
    proved = solve("clash.yaml", "--coordination", "exact")
    assert "every choice is forbidden" in proved.stdout


@pytest.mark.parametrize("method", ["dsa", "mgm", "maxsum", "dpop"])
def test_with_reliable_messages_loss_and_delay_change_no_choice_but_cost_messages(solve, method):
    alone = json.loads(solve("channels", "--algo", method, "--json", "--seed", 1).stdout)
    asked = ["--algo", method, "--seed", 1, "--set", "transport.loss=.3", "--set", "transport.delay=2"]
    shown = solve("channels", *asked, "--out", "lossy.json").stdout
    lossy = json.loads(Path("lossy.json").read_text())
    assert {key: lossy[key] for key in ("assignment", "value", "status")} == {
        key: alone[key] for key in ("assignment", "value", "status")
    }
    assert lossy["valid"]
    assert lossy["value_without_faults"] == alone["value"]
    assert lossy["messages"] > alone["messages"]
    assert lossy["links"]["lost"] > 0
    assert "cost without faults" in shown
    one_by_one = json.loads(solve("channels", *asked[:4], "--set", "transport.as_agents=true", "--json").stdout)
    assert (one_by_one["messages"], one_by_one["bytes"]) == (alone["messages"], alone["bytes"])


def test_by_a_deadline_agents_continue_without_one_that_fails(solve):
    asked = ["channels", "--set", "mode=asynchronous", "--set", "transport.loss=.3", "--json"]
    whole = json.loads(solve(*asked).stdout)
    assert (whole["valid"], whole["undecided"], whole["status"]) == (True, [], "deadline")
    death = ["--set", 'transport.deaths=[{agent="ap3", step=4}]']
    partly = json.loads(solve(*asked, *death).stdout)
    assert (partly["valid"], partly["undecided"], partly["value"]) == (False, ["ap3"], None)
    assert len(partly["assignment"]) == 9
    assert partly["value_without_faults"] == json.loads(solve(*asked[:3], "--json").stdout)["value"]
    blocked = solve("channels", "--algo", "mgm", *death)
    shown = " ".join(blocked.stdout.replace("│", " ").split())  # the terminal breaks lines
    assert "blocked: an agent failed; with max-sum and mode=asynchronous" in shown
    printed = solve(*asked[:-1], *death).stdout
    assert "without a value" in printed
    assert "got no value of 'ap3'" in solve(*asked[:-1], *death, "--out", "x.MPE", status=2).stderr
    assert "failed agents" in printed


def test_agents_without_variables_or_factors_are_kept_and_named(solve):
    Path("idle.yaml").write_text(
        "objective: min\ndomains: {d: {values: [1, 2]}}\nvariables: {x: {domain: d}}\nagents: [a1, a2, a3]\n"
    )
    output = solve("idle.yaml").stdout
    assert "3 agents" in output
    assert "a2, a3" in output
    output = json.loads(solve("idle.yaml", "--json").stdout)
    assert (output["agents"], output["own_nothing"]) == (3, ["a2", "a3"])
    again = read_problem(write_problem(read_problem("idle.yaml"), "again.yaml"))
    assert (again.graph.agents, again.idle) == (("a1",), ("a2", "a3"))


def test_notes_about_a_file_go_to_stderr(solve):
    Path("n.yaml").write_text(
        "objective: max\ndomains: {d: {values: [1, 2]}}\n"
        "variables: {x: {domain: d, cost_function: x, noise_level: 0.1}}\n"
    )
    out = solve("n.yaml")
    assert "noise_level" in out.stderr
    assert "no value is above" in out.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.yaml"], "nowhere.yaml: No such file"),
        (["channel"], "got the ending ''"),
        (["channels", "--coordination", "admm"], "wanted one of dsa, exact, max-sum, mgm"),
        (["channels", "--bound", "tight"], "$.coordination.bound: got 'tight'"),
        (["channels", "--coordination", "mgm", "--rounds", "0"], "$.coordination.rounds: got 0"),
        (["channels", "--set", "damping"], "--set: got 'damping'"),
        (["channels", "--set", "damping=2"], "$.coordination.damping: got 2"),
        (["channels", "--coordination", "dsa", "--seed", "-1"], "$.seed: got -1"),
        (["channels", "--seed", "-1"], "$.seed: got -1"),  # even with a deterministic method
        (["channels", "--coordination", "exact", "--set", "table_budget=2"], "exact needs a table of"),
        (["channels", "--algo", "mgm2"], "wanted one of dsa, exact, max-sum, mgm; did you mean 'mgm'?"),
        (["channels", "--algo", "amaxsum"], "did you mean 'max-sum'?"),
        (["channels", "--set", "transport.loss=2"], "$.transport.loss: got 2"),
        (["channels", "--set", "transport.los=.2"], "unknown key 'los'; did you mean 'loss'?"),
        (["channels", "--set", 'transport.joins=[{agent="ap1", round=2}]'], "got round 2 of ap1; wanted round 0"),
        (["channels", "--set", 'transport.cuts=[{parts=[["ap1"]], rounds=[1, 2]}]'], "got round 1 of a cut"),
        (["channels", "--set", 'transport.deaths=[{agent="a"}]'], "$.transport: got 'a'; wanted some of ap0, "),
        (["channels", "--set", "transport.loss=.2", "--trace", "t"], "got transport settings, with which no round is"),
        (["channels", "--set", "mode=asynchronous", "--figure", "f"], "got mode 'asynchronous', with which no round"),
        (["channels", "--figure", "f.bmp"], "got 'bmp'"),
        (["channels", "--figure", "f.gif"], "got 'gif'; wanted png, pdf or svg"),
    ],
)
def test_invalid_arguments_are_refused_in_one_line(solve, arguments, message):
    out = solve(*arguments, status=2)
    assert message in out.stderr
    assert out.stderr.count("\n") == 1
    assert out.stdout == ""


@pytest.mark.parametrize(
    ("coordination", "transport", "message"),
    [
        ("dsa", None, r"\$\.coordination: got 'dsa'; wanted a table"),
        ({"kind": ["dsa"]}, None, r"\$\.coordination\.kind: got \['dsa'\]; wanted one of .*; did you mean 'dsa'\?"),
        ({"kind": "dsa"}, ["loss"], r"\$\.transport: got \['loss'\]; wanted a table"),
    ],
)
def test_settings_that_are_not_tables_are_refused_in_python(coordination, transport, message):
    with pytest.raises(ConfigError, match=message):
        solve_problem(read_problem(find("channels", ".yaml")), coordination, transport=transport)


def test_the_figure_shows_values_and_bounds_as_costs():
    tables = tables_of(RING, 1)
    solution, rows = traced(sb.MGM(bound="mplp"), RING, tables)
    figure = solve_trace_figure(rows, "ring", "cost", lambda value: -value)
    left, right = figure.axes
    best, bound = left.lines
    assert best.zorder > bound.zorder  # and narrower: both are seen where they are equal
    assert best.get_linewidth() < bound.get_linewidth()
    assert best.get_ydata()[-1] == -solution.value
    assert bound.get_ydata()[-1] == -solution.upper_bound
    assert (left.get_xlabel(), right.get_xlabel(), left.get_ylabel()) == ("round", "bytes sent", "cost")
    assert right.lines[0].get_xdata()[-1] == solution.report.bytes


def test_a_team_learns_the_factors_of_a_file_and_ends_at_its_optimum():
    problem = read_problem(find("channels", ".yaml"))
    best = sb.Exact().solve(problem.graph, problem.tables).value
    team = sb.Team(problem.graph, problem.space, outcomes="per-factor", constraints=problem.constraints, seed=0)
    places = {variable: list(values) for variable, values in problem.domains.items()}
    found = []
    for _ in range(30):
        query = team.ask()
        at = {variable: places[variable].index(value) for variable, value in query.point.items()}
        scopes = {factor: tuple(at[x] for x in problem.graph.scope(factor)) for factor in problem.graph.factors}
        outcomes = {factor: float(problem.tables[factor][scopes[factor]]) for factor in problem.graph.factors}
        team.tell(query, outcomes)
        found.append(sum(outcomes.values()))
    assert np.isfinite(found).all()  # no forbidden combination
    assert max(found) == pytest.approx(best)


def test_forbidden_entries_become_constraints_and_variables_with_one_value_are_refused():
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"]})
    tables = {"f": np.array([[0.0, -np.inf], [1.0, 2.0]]), "g": np.zeros(2)}
    problem = TableProblem("two", graph, tables, {"x": ("R", "G"), "y": (1, 2)})
    (rule,) = problem.constraints
    assert (rule.scope, rule.allowed) == (("x", "y"), [[True, False], [True, True]])
    lone = TableProblem("one", sb.FactorGraph.from_scopes({"f": ["x"]}), {"f": np.zeros(1)}, {"x": ("R",)})
    with pytest.raises(ConfigError, match="single value"):
        _ = lone.space
