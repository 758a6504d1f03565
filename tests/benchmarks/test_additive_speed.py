"""Speed of fits and draws of the additive belief."""

import numpy as np
import pytest
from scipy.linalg import cholesky

from swarmbo.belief import AdditiveGP, AdditiveGPSettings
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo.spaces import Domain

from .timing import seconds


def blocks(n_blocks, size):
    return FactorGraph.from_scopes({f"f{i}": [f"x{i}_{j}" for j in range(size)] for i in range(n_blocks)})


def powell_belief(t=100, outcomes="total"):
    graph, rng = blocks(6, 4), stream(0, "benchmark")
    X = rng.uniform(-4.0, 5.0, size=(t, 24))
    a, b, c, d = np.moveaxis(X.reshape(t, 6, 4), 2, 0)
    F = -((a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4)
    belief = AdditiveGP.create(AdditiveGPSettings(), graph, Domain(np.full(24, -4.0), np.full(24, 5.0)), outcomes)
    return belief.update(X, F.sum(axis=1) if outcomes == "total" else F)


@pytest.mark.parametrize(("outcomes", "t"), [("total", 100), ("per-factor", 100), ("total", 500), ("total", 1000)])
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_a_fit_of_24_variables_in_units_of_a_cholesky_factorisation(benchmark, start, outcomes, t):
    belief, K = powell_belief(t, outcomes), np.eye(t) + 0.5
    warm = powell_belief(t - 3, outcomes).fit(stream(0, "fit")).hyperparameters if start == "warm" else None
    benchmark.pedantic(lambda: belief.fit(stream(1, "fit"), warm=warm), rounds=3)
    cholesky_s = seconds(lambda: cholesky(K, lower=True, check_finite=False), number=3)
    benchmark.extra_info["choleskys"] = benchmark.stats.stats.min / cholesky_s


def test_a_draw_of_100_factors_compared_with_a_draw_of_10(benchmark):
    """Time is linear in the number of factors: the observations of a factor are looked up once."""

    def draw_of(k):
        X = stream(0, "benchmark").uniform(size=(100, k))
        belief = AdditiveGP(blocks(k, 1), lengthscale=0.3).update(X, np.sin(5.0 * X))
        belief.posterior(X[:1])
        rngs = {factor: stream(0, "draw", factor=factor) for factor in belief.graph.factors}
        return lambda: belief.sample(rngs, stream(0, "noise"))

    few_s = seconds(draw_of(10), number=3)
    benchmark(draw_of(100))
    benchmark.extra_info["this_over_one_of_10"] = benchmark.stats.stats.min / few_s
