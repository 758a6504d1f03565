"""Speed of a committee of experts beside one exact process of the same readings.

Run it with ``pytest tests/benchmarks --benchmark-enable --benchmark-only``. Ratios are taken within one run, one core.
"""

import timeit

import numpy as np
import pytest

from swarmbo.belief.fusion import CommitteeFlooding, MeasurementFlooding, Proposal
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.boundary.rng import stream
from swarmbo.spaces import Domain

START = Proposal(0, "", Hyperparameters("matern52", (0.2, 0.2), 1.0, 0.1), seed=0, n_features=2)
AUTHORS = 24


@pytest.mark.parametrize("n_each", [10, 30, 100])
def test_making_it_and_predicting_512_places(benchmark, n_each):
    rng = stream(0, "benchmark")
    told, places = rng.random((AUTHORS, n_each, 3)), rng.random((512, 2))

    def predict(kind):
        agent = kind("a", Domain(np.zeros(2), np.ones(2)), START)
        for author, rows in enumerate(told):
            agent._append(f"s{author:02d}", rows)
        return agent.belief.posterior(places)

    whole_s = min(timeit.repeat(lambda: predict(MeasurementFlooding), number=1, repeat=3))
    benchmark(lambda: predict(CommitteeFlooding))
    benchmark.extra_info["one_process_over_this"] = whole_s / benchmark.stats.stats.min
