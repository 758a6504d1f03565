"""Speed of the additive belief beside its limits."""

import msgspec
import numpy as np
import pytest
from scipy.linalg import cholesky

from swarmbo.belief import AdditiveGP, AdditiveGPSettings, TimeAxis, TimeCorrelation
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph, stacks_of
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


@pytest.mark.parametrize("kind", ["contrast", "draw", "with a time axis"])
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_other_values_and_gradients_beside_those_of_the_posterior(benchmark, outcomes, kind):
    belief = powell_belief(outcomes=outcomes).fit(stream(0, "fit"))
    (stack,) = stacks_of(belief.graph)
    U = stream(1, "benchmark").uniform(size=(6, 20, 4))
    times = (TimeCorrelation("matern32", 20.0),) * 6
    fading = belief.with_hyperparameters(msgspec.structs.replace(belief.hyperparameters, times=times)).at(100.0)
    sample = belief.sample({f: stream(0, f) for f in belief.graph.factors}, stream(0, "noise"))
    call = {
        "contrast": lambda: belief.local_contrast(stack, U, np.full(24, 0.5), gradient=True),
        "draw": lambda: sample.value_and_gradient(stack, U),
        "with a time axis": lambda: fading.local(stack, U, gradient=True),
    }[kind]
    posterior_s = seconds(lambda: belief.local(stack, U, gradient=True), repeat=300)
    benchmark(call)
    benchmark.extra_info["this_over_the_posterior"] = benchmark.stats.stats.min / posterior_s


@pytest.mark.parametrize(("outcomes", "t"), [("total", 100), ("per-factor", 100), ("total", 500), ("total", 1000)])
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_a_fit_of_24_variables_in_cholesky_factors(benchmark, start, outcomes, t):
    belief, K = powell_belief(t, outcomes), np.eye(t) + 0.5
    warm = powell_belief(t - 3, outcomes).fit(stream(0, "fit")).hyperparameters if start == "warm" else None
    benchmark.pedantic(lambda: belief.fit(stream(1, "fit"), warm=warm), rounds=3)
    cholesky_s = seconds(lambda: cholesky(K, lower=True, check_finite=False), number=3)
    benchmark.extra_info["choleskys"] = benchmark.stats.stats.min / cholesky_s


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_a_fit_with_a_time_axis_beside_one_without(benchmark, outcomes):
    still = powell_belief(outcomes=outcomes)
    told = {"totals": still.totals} if outcomes == "total" else {"factors": still.factors}
    empty = AdditiveGP.create(AdditiveGPSettings(time=TimeAxis()), still.graph, still.domain, still.outcomes)
    fading = empty.update(still.X, **told, rounds=np.arange(100.0)).at(100.0)
    without_s = seconds(lambda: still.fit(stream(0, "fit")), repeat=3)
    benchmark.pedantic(lambda: fading.fit(stream(0, "fit")), rounds=3)
    benchmark.extra_info["this_over_one_without_time"] = benchmark.stats.stats.min / without_s


def test_a_draw_of_100_factors_beside_one_of_10(benchmark):
    """Linear in the number of factors: the observations of each are looked up once, not once for every other."""

    def draw_of(k):
        X = stream(0, "benchmark").uniform(size=(100, k))
        belief = AdditiveGP(blocks(k, 1), lengthscale=0.3).update(X, np.sin(5.0 * X))
        belief.posterior(X[:1])
        rngs = {factor: stream(0, "draw", factor=factor) for factor in belief.graph.factors}
        return lambda: belief.sample(rngs, stream(0, "noise"))

    few_s = seconds(draw_of(10), number=3)
    benchmark(draw_of(100))
    benchmark.extra_info["this_over_one_of_10"] = benchmark.stats.stats.min / few_s
