"""Speed of beliefs about a field: one exact process, with a time axis, and a committee of experts."""

import numpy as np
import pytest

from swarmbo.belief import ExactGP, ExactGPSettings, TimeAxis
from swarmbo.belief.fusion import CommitteeFlooding, MeasurementFlooding, Proposal
from swarmbo.belief.fusion.measurement_flooding import _Log
from swarmbo.belief.gp.hyperparameters import Hyperparameters
from swarmbo.boundary.rng import stream
from swarmbo.kernels import draw
from swarmbo.spaces import Domain

from .timing import seconds

SQUARE = Domain(np.zeros(2), np.ones(2))


def belief_on(n):
    rng = stream(0, "benchmark")
    X = rng.uniform(size=(n, 2))
    y = draw(rng, "matern52", np.array([0.3, 0.3]), 1.0)(X) + 0.05 * rng.normal(size=n)
    return ExactGP.create(ExactGPSettings(), SQUARE).update(X, y)


@pytest.mark.parametrize("n", [20, 100])
def test_a_warm_fit_and_256_predictions_beside_a_cold_fit(benchmark, n):
    cold, X = belief_on(n), stream(0, "candidates").uniform(size=(256, 2))
    warm = cold.fit(stream(0, "fit"))
    cold_s, predicting_s = seconds(lambda: cold.fit(stream(1, "fit"))), seconds(lambda: warm.posterior_cache(X))
    benchmark(lambda: warm.fit(stream(1, "fit")))
    benchmark.extra_info["cold_over_this"] = cold_s / benchmark.stats.stats.min
    benchmark.extra_info["cold_over_predictions"] = cold_s / predicting_s


def belief_over_rounds(time):
    """24 sensors, 25 rounds, a field that drifts: 600 readings, each of its round where there is a time axis."""
    rng = stream(0, "benchmark")
    X, rounds = rng.uniform(size=(600, 2)), np.repeat(np.arange(25.0), 24)
    drift = np.column_stack([X, rounds / 25.0])
    y = draw(rng, "matern52", np.array([0.3, 0.3, 0.5]), 1.0)(drift) + 0.05 * rng.normal(size=600)
    equal_effort = ExactGPSettings(time=time, restarts=0, max_iterations=5)
    belief = ExactGP.create(equal_effort, SQUARE)
    return belief.update(X if time is None else np.column_stack([X, rounds]), y).at(25.0)


@pytest.mark.parametrize("work", ["fit", "update"])
def test_a_time_axis_at_600_readings_against_none(benchmark, work):
    rng = stream(1, "benchmark")
    more, y = rng.uniform(size=(24, 2)), rng.normal(size=24)

    def job(belief):
        return lambda: belief.fit(stream(2, "fit")) if work == "fit" else belief.update(more, y)

    still, moving = (belief_over_rounds(time).fit(stream(0, "fit")) for time in (None, TimeAxis()))
    repeat = 3 if work == "fit" else 20
    without_s = seconds(job(still), repeat)
    benchmark.pedantic(job(moving), rounds=repeat, warmup_rounds=1)
    benchmark.extra_info["without_ms"] = 1e3 * without_s
    benchmark.extra_info["with_over_without"] = benchmark.stats.stats.min / without_s


@pytest.mark.parametrize("n_each", [10, 30, 100])
def test_a_committee_of_24_that_is_made_and_predicts_512_places_beside_one_process(benchmark, n_each):
    start = Proposal(0, "", Hyperparameters("matern52", (0.2, 0.2), 1.0, 0.1), seed=0, n_features=2)
    rng = stream(0, "benchmark")
    told, places = rng.random((24, n_each, 4)), rng.random((512, 2))
    told[..., 3] = np.nan  # noise that is not known

    def predict(kind):
        agent = kind("a", SQUARE, start)
        agent._logs = {f"s{author:02d}": _Log(rows) for author, rows in enumerate(told)}
        return agent.belief.posterior(places)

    whole_s = seconds(lambda: predict(MeasurementFlooding), 3)
    benchmark(lambda: predict(CommitteeFlooding))
    benchmark.extra_info["one_process_over_this"] = whole_s / benchmark.stats.stats.min
