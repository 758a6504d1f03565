"""Speed of the belief; run with ``pytest tests/benchmarks --benchmark-enable --benchmark-only``."""

import timeit

import numpy as np
import pytest

from swarmbo.belief import ExactGP, ExactGPSettings, TimeAxis
from swarmbo.belief.gp.cholesky import extend, factorise
from swarmbo.boundary.rng import stream
from swarmbo.kernels import draw, kernel_matrix
from swarmbo.spaces import Domain

SQUARE = Domain(np.zeros(2), np.ones(2))


def belief_on(n):
    rng = stream(0, "benchmark")
    X = rng.uniform(size=(n, 2))
    y = draw(rng, "matern52", np.array([0.3, 0.3]), 1.0)(X) + 0.05 * rng.normal(size=n)
    return ExactGP.create(ExactGPSettings(), SQUARE).update(X, y)


def test_cholesky_append_against_a_full_factor_at_1000(benchmark):
    X = stream(0, "benchmark").uniform(size=(1001, 2))
    K = kernel_matrix("matern52", X, X, np.array([0.3, 0.3]), 1.0) + 1e-3 * np.eye(1001)
    L, _ = factorise(K[:1000, :1000])
    full_s = min(timeit.repeat(lambda: factorise(K), number=3, repeat=5)) / 3
    benchmark(extend, L, K[1000:, :1000], K[1000:, 1000:])
    benchmark.extra_info["full_ms"] = 1e3 * full_s
    benchmark.extra_info["full_over_append"] = full_s / benchmark.stats.stats.min


def test_warm_fit_at_100(benchmark):
    belief = belief_on(100).fit(stream(0, "fit"))
    benchmark(lambda: belief.fit(stream(1, "fit")))


@pytest.mark.parametrize("n", [20, 100])
def test_cold_fit(benchmark, n):
    belief = belief_on(n)
    benchmark(lambda: belief.fit(stream(1, "fit")))


def test_posterior_cache_of_256_candidates_at_100(benchmark):
    belief = belief_on(100).fit(stream(0, "fit"))
    X = stream(0, "candidates").uniform(size=(256, 2))
    benchmark(belief.posterior_cache, X)


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
    without_s = min(timeit.repeat(job(still), number=1, repeat=repeat))
    benchmark.pedantic(job(moving), rounds=repeat, warmup_rounds=1)
    benchmark.extra_info["without_ms"] = 1e3 * without_s
    benchmark.extra_info["with_over_without"] = benchmark.stats.stats.min / without_s
