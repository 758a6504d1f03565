"""Fits of very many factors are searched for less long: they come as far as longer searches, but for a trifle."""

import numpy as np
import pytest

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.compiled_evidence import CompiledLogPosterior
from swarmbo.belief.gp.fit_alone import compiled_search
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.gp.starts import starting_thetas

N_LATENTS = 12


def prior_of() -> HyperparameterPrior:
    settings = AdditiveGPSettings()
    model = settings.lengthscale_model([2], alone=True)
    return HyperparameterPrior.of(settings, ["f"], [2], model, [settings.noise_median])


def data_of(t: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    U = rng.random((N_LATENTS, t, 2))
    waves = rng.normal(size=(N_LATENTS, 1, 2)) * 5.0
    z = np.sin((U * waves).sum(axis=-1)) + 0.1 * rng.normal(size=(N_LATENTS, t))
    z = (z - z.mean(axis=1, keepdims=True)) / z.std(axis=1, keepdims=True)
    return [prior_of()] * N_LATENTS, "matern52", U, z, np.full((N_LATENTS, t), np.nan)


def searched(data, thetas, *, is_many: bool, goes_on: bool):
    starts = np.concatenate(thetas)
    which = np.repeat(np.arange(N_LATENTS), len(starts) // N_LATENTS)
    theta, mean = compiled_search(data, starts, which, 60, goes_on=goes_on, is_many=is_many)
    return theta, CompiledLogPosterior(*data)(theta, np.arange(N_LATENTS)).value, mean


@pytest.mark.parametrize("t", [40, 70, 110])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_shorter_search_comes_as_far_but_for_a_tenth_of_a_nat(t, goes_on):
    data, prior = data_of(t), prior_of()
    warm: list = [None] * N_LATENTS
    if goes_on:
        earlier = tuple(part if i < 2 else part[:, : t - 3] for i, part in enumerate(data))
        cold = [np.array(starting_thetas(prior, [], None))] * N_LATENTS
        warm = list(searched(earlier, cold, is_many=True, goes_on=False)[0])
    starts = [np.array(starting_thetas(prior, [], start)) for start in warm]
    _, far, _ = searched(data, starts, is_many=False, goes_on=goes_on)
    theta, value, mean = searched(data, starts, is_many=True, goes_on=goes_on)
    assert (value > far - 0.1).all()
    assert np.isfinite(mean).all()
    assert ((theta >= prior.bounds[:, 0]) & (theta <= prior.bounds[:, 1])).all()
    if goes_on:
        before = CompiledLogPosterior(*data)(np.array(warm), np.arange(N_LATENTS)).value
        assert (value >= before).all()


def test_a_better_maximum_is_found_though_an_earlier_search_ended_elsewhere():
    """Where it ended is not looked at in part; what is found from elsewhere still takes its place."""
    data, prior = data_of(100), prior_of()
    right = [np.array(starting_thetas(prior, [], None))] * N_LATENTS
    _, expected, _ = searched(data, right, is_many=False, goes_on=False)
    poor = prior.centre.copy()
    poor[:2], poor[-1] = prior.bounds[:2, 1], prior.bounds[-1, 1]  # all is noise
    starts = [np.array(starting_thetas(prior, [], poor))] * N_LATENTS
    _, value, _ = searched(data, starts, is_many=True, goes_on=True)
    assert (value > expected - 0.1).mean() >= 0.75


def test_starts_are_shared_out_to_the_latents_they_are_of():
    """Every latent ends where its own search leads."""
    data, prior = data_of(70, 3), prior_of()
    starts = [np.array(starting_thetas(prior, [], None))] * N_LATENTS
    theta, _, _ = searched(data, starts, is_many=True, goes_on=False)
    for i in range(0, N_LATENTS, 5):
        alone = tuple(part[i : i + 1] if n != 1 else part for n, part in enumerate(data))
        own, _ = compiled_search(alone, starts[i], np.zeros(2, dtype=np.int64), 60, is_many=True)
        np.testing.assert_array_equal(own[0], theta[i])
