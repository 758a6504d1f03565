"""Speed of the belief; run with ``pytest tests/benchmarks --benchmark-enable --benchmark-only``."""

import timeit

import numpy as np
import pytest

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.belief.cholesky import extend, factorise
from swarmbo.kernels import draw, kernel_matrix
from swarmbo.rng import stream
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
