"""Predictions of a team whose outcomes are noisy: means within a few standard deviations of the truth."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.prior import HyperparameterPrior
from swarmbo.belief.model.warping import Warp

UNIT = (0.0, 1.0)
SUM = {"f": ["x", "y"], "g": ["y", "z"]}


def bowl(X):
    return -((X[:, 0] - 0.3) ** 2) - (X[:, 1] - 0.6) ** 2


def bowls(X):
    f = -((X[:, 0] - 0.3) ** 2) - 0.5 * (X[:, 1] - 0.4) ** 2
    return np.stack([f, -0.5 * (X[:, 1] - 0.4) ** 2 - (X[:, 2] - 0.6) ** 2], axis=1)


def places(rng, middle, n, spread):
    """Half of the points anywhere, half near the maximum, as after a search."""
    near = np.clip(middle + spread * rng.standard_normal((n // 2, len(middle))), 0.0, 1.0)
    return np.vstack([rng.random((n // 2, len(middle))), near])


def surprise(team, truth):
    """Error of the recommended value in standard deviations."""
    found = team.recommend()
    return abs(found.mean - truth(np.array([found.location])).sum()) / found.std


@pytest.mark.parametrize("acquisition", ["auto", "dec-hbo", "thompson", "expected-improvement"])
@pytest.mark.parametrize("noise_std", [0.05, 0.1])
def test_the_luckiest_of_noisy_outcomes_is_not_believed(acquisition, noise_std):
    surprises = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = places(rng, [0.3, 0.6], 40, 0.1)
        team = sb.Team(None, dict.fromkeys("xy", UNIT), acquisition=acquisition, seed=0)
        team.attach(X, bowl(X) + noise_std * rng.standard_normal(40))
        surprises.append(surprise(team, bowl))
    assert max(surprises) < 4.0


@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize("known", [None, 0.1])
def test_the_luckiest_of_noisy_outcomes_of_a_sum_is_not_believed(outcomes, known):
    surprises, graph = [], sb.FactorGraph.from_scopes(SUM)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = places(rng, [0.3, 0.4, 0.6], 60, 0.12)
        values = bowls(X) if outcomes == "per-factor" else bowls(X).sum(axis=1)
        team = sb.Team(graph, dict.fromkeys("xyz", UNIT), outcomes=outcomes, seed=0)
        team.attach(X, values + 0.1 * rng.standard_normal(values.shape), noise_std=known)
        surprises.append(surprise(team, bowls))
    assert np.sort(surprises)[-2] < 4.0  # one of eight may look like a rough function without noise


@pytest.mark.parametrize("noise_std", [0.02, 0.1])
def test_predictions_with_known_noise_are_not_biased(noise_std):
    signed = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = places(rng, [0.3, 0.6], 40, 0.1)
        team = sb.Team(None, dict.fromkeys("xy", UNIT), seed=0)
        team.attach(X, bowl(X) + noise_std * rng.standard_normal(40), noise_std=noise_std)
        found = team.recommend()
        signed.append((found.mean - bowl(np.array([found.location]))[0]) / found.std)
    assert np.abs(signed).max() < 3.0
    assert abs(np.mean(signed)) < 1.5


@pytest.mark.parametrize("noise_std", [None, 0.45])
def test_means_of_two_valued_outcomes_are_near_those_of_their_samples(noise_std):
    successes = np.array([2, 6, 10, 12, 16])
    outcomes = np.concatenate([[1.0] * n + [0.0] * (20 - n) for n in successes])
    team = sb.Team(None, {"x": UNIT}, seed=0)
    team.attach(np.repeat(np.linspace(0.0, 1.0, 5), 20)[:, None], outcomes, noise_std=noise_std)
    assert team.recommend().location == [1.0]
    means, _ = team.model.posterior(np.linspace(0.0, 1.0, 5)[:, None])
    np.testing.assert_allclose(means, successes / 20, atol=0.08)


def test_a_batch_of_noisy_evaluations_finds_the_maximum_as_single_ones_do():
    def regret(q):
        rng, team = np.random.default_rng(0), sb.Team(None, dict.fromkeys("xy", UNIT), seed=1)
        for _ in range(40 // q):
            for query in team.ask(q):
                place = np.array([[query.point["x"], query.point["y"]]])
                team.tell(query, bowl(place)[0] + 0.1 * rng.standard_normal())
        return -bowl(np.array([team.recommend().location]))[0]

    assert max(regret(1), regret(4)) < 0.02


@pytest.mark.parametrize(
    ("settings", "found", "is_open"),
    [({}, 1e-4, True), ({}, 0.02, False), ({"noise_log_std": 0.1}, 1e-4, False), ({"noise_median": 0.3}, 1e-4, True)],
)
def test_much_noise_is_tried_if_a_fit_finds_little_and_its_prior_is_not_narrow(settings, found, is_open):
    own = AdditiveGPSettings(**settings)
    prior = HyperparameterPrior.of(own, ["f"], [2], "separate", [own.noise_median])
    noisy = prior.noisy(np.log([0.4, 0.2, 1.0, found]))
    assert (noisy is not None) == is_open
    if noisy is not None:
        expected, start = noisy
        assert expected.centre[-1] == np.log(max(0.1, own.noise_median))
        assert start[-1] == np.log(0.5)
        np.testing.assert_array_equal(expected.centre[:-1], prior.centre[:-1])


@pytest.mark.parametrize(
    ("outcomes", "noise_std", "is_comparable"),
    [
        (np.linspace(0.0, 1.0, 9), np.nan, True),
        (np.linspace(0.0, 1.0, 9), 1e-5, True),
        (np.linspace(0.0, 1.0, 9), 0.1, False),  # the noise is larger than the gap at which the root is steepest
        (np.array([0.0, 0.1, 0.2, 1.0, 1.0, 1.0]), np.nan, False),  # a density of equal numbers has no bound
        (np.array([0.0, 0.0, 0.0, 0.0, 0.3, 1.0]), np.nan, True),  # equal bad outcomes do not matter
    ],
)
def test_evidences_of_transforms_are_compared_only_if_they_are_densities_of_known_noise(
    outcomes, noise_std, is_comparable
):
    known = np.full(len(outcomes), noise_std)
    for kind in ("power", "log"):
        assert Warp.fitted(kind, outcomes).is_comparable(outcomes, known) == is_comparable
    assert Warp().is_comparable(outcomes, known)
