"""Draws of all factors at once."""

import numpy as np
import pytest

from swarmbo.belief import AdditiveGP
from swarmbo.belief.gp.additive_prediction import StackedDraws, draw_prior
from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.graph import FactorGraph, stacks_of

from .dense import Dense, with_own

GRAPH = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"], "h": ["c"]})
FADE = TimeCorrelation("matern12", 6.0)
PLACES = np.array([[0.1, 0.4, 0.8], [0.7, 0.2, 0.3], [0.5, 0.9, 0.5]])


def belief_of(way, t=6, noise_variance=0.05, time=None):
    rng, outcomes = np.random.default_rng(0), "per-factor" if way == "per-factor" else "total"
    given = {"lengthscale": 0.4, "noise_variance": noise_variance, "mean": 5.0, "time": time}
    belief = AdditiveGP(GRAPH, kernel="rbf", outcomes=outcomes, **given)
    belief = with_own(belief, outputscales=(1.0, 2.0, 0.5))
    X, totals, factors = rng.random((t, 3)), rng.normal(size=t) + 5.0, rng.normal(size=(t, 3))
    if way == "total":
        factors[:] = np.nan
    elif way == "per-factor":
        totals[:] = np.nan
    else:
        factors[::2], totals[1::3] = np.nan, np.nan
    noise = np.where(np.arange(t) % 2, 0.01, np.nan)
    return belief.update(X, totals=totals, factors=factors, noise_variance=noise, rounds=np.arange(t)).at(t + 1.0)


def streams(seed):
    return {factor: np.random.default_rng([seed, i]) for i, factor in enumerate(GRAPH.factors)}


def values_at(sample, U):
    """All factors' drawn functions at joint points (m, 3): (3, m)."""
    out = {}
    for stack in stacks_of(GRAPH):
        out |= dict(zip(stack.factors, sample.value(stack, stack.take(U)), strict=True))
    return np.array([out[factor] for factor in GRAPH.factors])


@pytest.mark.parametrize(
    ("way", "time"),
    [
        ("mixed", FADE),
        *(pytest.param(way, time, marks=pytest.mark.slow) for way in ("total", "per-factor") for time in (None, FADE)),
    ],
)
def test_draws_have_the_mean_and_all_cross_covariances_of_the_joint_posterior(way, time):
    belief, n = belief_of(way, time=time), 1000
    samples = (belief.sample(streams(seed), np.random.default_rng([seed, 9]), 128) for seed in range(n))
    draws = np.array([values_at(sample, PLACES).ravel() for sample in samples])
    mean, cov = (part.reshape(shape) for part, shape in zip(Dense(belief).posterior(PLACES), (9, (9, 9)), strict=True))
    spread = np.sqrt(cov.diagonal())
    np.testing.assert_array_less(np.abs(draws.mean(axis=0) - mean), 4.0 * spread / np.sqrt(n) + 1e-9)
    # the error of a sample covariance is about sqrt((c_ii c_jj + c_ij²) / n)
    error = np.sqrt((np.outer(spread, spread) ** 2 + cov**2) / n)
    np.testing.assert_array_less(np.abs(np.cov(draws.T) - cov), 4.0 * error + 1e-9)
    if way == "total" and time is None:
        assert cov[0, 3] < -0.05  # negative, as only sums are observed


def test_draws_add_up_to_totals_without_noise():
    seen = belief_of("mixed")
    factors = np.where(np.isnan(seen.factors), np.nan, np.random.default_rng(4).normal(size=(6, 3)))
    totals = np.where(np.isnan(factors).any(axis=1), seen.totals, factors.sum(axis=1))
    belief = AdditiveGP(GRAPH, kernel="rbf", lengthscale=0.4, noise_variance=0.0, mean=5.0)
    belief = belief.update(seen.X, totals=np.where(np.isnan(seen.totals), np.nan, totals), factors=factors)
    sample = belief.sample(streams(1), np.random.default_rng(2))
    values = values_at(sample, belief.X)
    for drawn, outcomes in ((values.sum(axis=0), belief.totals), (values, belief.factors.T)):
        is_known = ~np.isnan(outcomes)
        np.testing.assert_allclose(drawn[is_known], outcomes[is_known], rtol=0.0, atol=1e-6)
    other = values_at(belief.sample(streams(2), np.random.default_rng(2)), PLACES)
    assert np.abs(other - values_at(sample, PLACES)).max() > 0.1


@pytest.mark.parametrize(("way", "time"), [("per-factor", None), ("mixed", None), ("mixed", FADE)])
def test_gradients_of_draws_equal_finite_differences(way, time):
    sample, rng = belief_of(way, time=time).sample(streams(1), np.random.default_rng(2)), np.random.default_rng(3)
    for stack in stacks_of(GRAPH):
        U = rng.random((len(stack.factors), 5, stack.size))
        value, gradient = sample.value_and_gradient(stack, U)
        np.testing.assert_allclose(sample.value(stack, U), value, rtol=0.0, atol=1e-9)
        for j, step in enumerate(1e-3 * np.eye(stack.size)):
            change = (sample.value(stack, U + step) - sample.value(stack, U - step)) / 2e-3
            np.testing.assert_allclose(gradient[..., j], change, rtol=0.0, atol=2e-3)


@pytest.mark.parametrize("way", ["total", "per-factor"])
def test_pending_points_do_not_change_a_draw(way):
    belief = belief_of(way)
    before = values_at(belief.sample(streams(1), np.random.default_rng(2), 64), PLACES)
    after = values_at(belief.condition_on_pending(PLACES[:2]).sample(streams(1), np.random.default_rng(2), 64), PLACES)
    np.testing.assert_allclose(after, before, rtol=0.0, atol=1e-10)


def test_without_data_draws_are_of_the_prior():
    belief = with_own(AdditiveGP(GRAPH, mean=6.0), outputscales=(1.0, 4.0, 0.25))
    draws = np.array([values_at(belief.sample(streams(s), np.random.default_rng(s), 32), PLACES) for s in range(1000)])
    np.testing.assert_allclose(draws.mean(axis=0), 2.0, atol=0.15)
    np.testing.assert_allclose(draws.std(axis=0), np.array([[1.0], [2.0], [0.5]]) * np.ones(3), rtol=0.1)


@pytest.mark.parametrize("fades", [False, True])
def test_waves_are_sines_and_cosines(fades):
    """Compared with NumPy and with finite differences, at phases of many turns in both directions."""
    hyper = belief_of("per-factor", time=TimeCorrelation("matern32", 0.01) if fades else None).hyperparameters
    draws = [draw_prior(np.random.default_rng(i), hyper, 0, 64) for i in range(2)]
    U, rounds = np.random.default_rng(3).normal(size=(2, 7, 2)) * 20.0, np.arange(7.0)
    waves, steps = StackedDraws(draws, 3.0), 1e-6 * np.eye(2)
    for given, when in ((None, np.full(7, 3.0)), (rounds, rounds)):
        phases = [own @ draw.frequencies[:, :2].T for own, draw in zip(U, draws, strict=True)]
        if fades:
            phases = [phase + when[:, None] * draw.frequencies[:, 2] for phase, draw in zip(phases, draws, strict=True)]
        expected = [
            np.sin(phase) @ draw.sine_weights + np.cos(phase) @ draw.cosine_weights
            for phase, draw in zip(phases, draws, strict=True)
        ]
        np.testing.assert_allclose(waves.values(U, given)[0], expected, rtol=0.0, atol=1e-7)
    value, gradient = waves.values(U, gradient=True)
    np.testing.assert_allclose(value, waves.values(U)[0], rtol=0.0, atol=1e-12)
    for j, step in enumerate(steps):
        change = (waves.values(U + step)[0] - waves.values(U - step)[0]) / 2e-6
        np.testing.assert_allclose(gradient[..., j], change, rtol=0.0, atol=1e-3 * np.abs(gradient).max())
