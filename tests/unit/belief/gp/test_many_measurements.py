"""Thousands of measurements of a field: exact results, and errors of approximate ones."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from msgspec import UNSET

from swarmbo.acquisition import LocalUtility
from swarmbo.acquisition.local_utility import PlaceScores
from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters, TimeAxis, TimeCorrelation, Views, quick_at
from swarmbo.belief.at_places import AtTiles, means_by_agent
from swarmbo.belief.fusion import FusedSettings
from swarmbo.belief.gp import cholesky, evidence, fit
from swarmbo.belief.gp.conditioning import CovarianceRows
from swarmbo.belief.gp.tiles import Tiles, merged
from swarmbo.kernels import Covariance
from swarmbo.records import Neglected
from swarmbo.runs import load, run
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.report import report_rows
from swarmbo.spaces import Domain
from swarmbo.survey import Coordinates, Samples, plan_next
from swarmbo.team import Team

DOMAIN = Domain(np.zeros(2), np.array([100.0, 50.0]))
HYPER = Hyperparameters("matern52", (0.15, 0.15), 1.0, 0.03)
SITES = np.stack(np.meshgrid(np.linspace(0.0, 100.0, 33), np.linspace(0.0, 50.0, 33)), axis=-1).reshape(-1, 2)


def survey(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = DOMAIN.from_unit(rng.random((n, 2)))
    return X, np.sin(X[:, 0] / 11.0) * np.cos(X[:, 1] / 4.0) + 0.17 * rng.normal(size=n)


def belief_of(n: int) -> ExactGP:
    return ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, HYPER, *survey(n))


def test_tiles_with_some_measurements_of_huge_noise_predict_as_without_these():
    (X, y), is_useless = survey(2100), np.arange(2100) % 50 == 0
    noise = np.where(is_useless, 1e20, 1e-4)
    given = [ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, HYPER, X, y, noise)]
    given += [ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, HYPER, *(a[~is_useless] for a in (X, y, noise)))]
    with_all, without = (belief.posterior(SITES) for belief in given)
    np.testing.assert_allclose(with_all[1], without[1], rtol=0.05)
    assert np.abs((with_all[0] - without[0]) / np.sqrt(without[1])).max() < 0.5


def test_predictions_of_tiles_at_no_points_are_empty():
    belief = belief_of(2100)
    for known in (belief, belief.condition_on_pending(SITES[:3]), quick_at(belief, {"a": SITES})):
        cache = known.posterior_cache(np.zeros((0, 2)))
        assert (cache.mean.shape, cache.var.shape) == ((0,), (0,))


def exact_and_tiled(n: int, patch: pytest.MonkeyPatch, fades: bool = False) -> tuple[ExactGP, ExactGP]:
    """One belief twice: exact, and with tiles."""
    X, y = survey(n)
    X[: n // 8] = X[n // 8 : 2 * (n // 8)]  # measured twice
    noise = np.where(np.arange(n) % 3 == 0, 0.05, np.nan)
    time = TimeCorrelation("matern32", 4.0) if fades else None
    hyper = Hyperparameters("matern52", (0.15, 0.2), 1.0, 0.03, 0.1, 2.0, 1.5, time)
    given = np.column_stack([X, np.arange(n) % 7]) if fades else X
    settings = ExactGPSettings(time=TimeAxis() if fades else None)
    plain, tiled = (ExactGP.from_hyperparameters(settings, DOMAIN, hyper, given, y, noise).at(8.0) for _ in range(2))
    plain.posterior(SITES[:1])
    patch.setattr("swarmbo.belief.gp.tiles.TILED_FROM", n - 1)
    assert tiled.is_tiled
    return plain, tiled


@contextmanager
def exactly() -> Iterator[None]:
    """A context in which no belief uses tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("swarmbo.belief.gp.tiles.TILED_FROM", 10**9)
        yield


@pytest.mark.parametrize("fades", [False, True])
def test_with_all_measurements_in_each_tile_the_posterior_is_exact(fades, monkeypatch):
    plain, tiled = exact_and_tiled(120, monkeypatch, fades)
    X = np.concatenate([SITES[::37], [[120.0, -9.0]]])  # one of them outside
    ahead = SITES[5:400:80] + 0.01
    for p in (0, len(ahead)):
        with exactly():
            wanted = plain.condition_on_pending(ahead[:p]).posterior_cache(X)
        own = tiled.condition_on_pending(ahead[:p])
        for belief in (own, quick_at(tiled, {"a": X[:9], "b": X[5:]}).condition_on_pending(ahead[:p])):
            cache, every = belief.posterior_cache(X), np.arange(len(X))
            np.testing.assert_allclose(cache.mean, wanted.mean, rtol=0, atol=1e-9)
            np.testing.assert_allclose(cache.var, wanted.var, rtol=0, atol=1e-9)
            np.testing.assert_allclose(cache.cov(every, every[:5]), wanted.cov(every, every[:5]), rtol=0, atol=1e-9)
            np.testing.assert_allclose(belief.posterior(X), (wanted.mean, wanted.var), rtol=0, atol=1e-9)
            np.testing.assert_allclose(belief.posterior_mean(X), wanted.mean, rtol=0, atol=1e-9)
            scores = PlaceScores(LocalUtility(1.0, 1.0, 0.1), belief, X, 3)
            with exactly():
                by_all = PlaceScores(LocalUtility(1.0, 1.0, 0.1), plain.condition_on_pending(ahead[:p]), X, 3)
            for pick in (4, 7):
                scores.take(pick)
                by_all.take(pick)
            np.testing.assert_allclose(scores.value, by_all.value, rtol=0, atol=1e-8)
    updated = tiled.update(X[:3], np.ones(3))  # tiles use new data immediately
    with exactly():
        wanted = plain.update(X[:3], np.ones(3)).posterior(X)
    np.testing.assert_allclose(updated.posterior(X), wanted, rtol=0, atol=1e-9)


def test_tiles_of_2000_measurements_differ_little_from_the_exact_posterior(monkeypatch):
    belief = belief_of(2000)
    mean, var = belief.posterior(SITES)
    monkeypatch.setattr("swarmbo.belief.gp.tiles.TILED_FROM", 1999)
    by_tiles, var_by_tiles = belief.posterior(SITES)
    off = np.abs(by_tiles - mean) / np.sqrt(var)
    assert np.all(var_by_tiles >= var * (1.0 - 1e-9))  # fewer data never give a smaller variance
    assert np.sqrt(var_by_tiles / var).max() < 1.01
    assert off.max() < 0.25
    assert np.sqrt((off**2).mean()) < 0.03
    one_by_one = [belief.posterior(SITES[n : n + 1])[0][0] for n in range(0, len(SITES), 99)]
    np.testing.assert_allclose(one_by_one, by_tiles[::99], rtol=1e-9)  # independent of other points
    # the covariance of two close places is that of the exact posterior, too
    pair, every = SITES[[400, 401]], np.arange(2)
    with exactly():
        wanted = belief.posterior_cache(pair).cov(every, every)
    np.testing.assert_allclose(belief.posterior_cache(pair).cov(every, every), wanted, rtol=0.05)


def test_covariances_of_tiles_are_positive_semidefinite_with_the_marginals_of_the_tiles(monkeypatch):
    monkeypatch.setattr("swarmbo.belief.gp.tiles.Tiles", partial(Tiles, neighbours=40, jointly=20))
    _, tiled = exact_and_tiled(160, monkeypatch)
    X, every = SITES[300:420:4], np.arange(30)
    for belief in (tiled, tiled.condition_on_pending(SITES[301:420:30])):
        cache = belief.posterior_cache(X)
        C, noise = cache.cov(every, every), belief.noise_variance
        assert (cache.var < tiled.posterior(X)[1] * (1.0 - 1e-6)).any() == bool(belief.n_pending)
        np.testing.assert_allclose(cache.mean, tiled.posterior_mean(X), rtol=1e-12)
        np.testing.assert_allclose(C.diagonal(), cache.var, rtol=1e-9)
        assert np.linalg.eigvalsh(C).min() > -1e-9
        rows = CovarianceRows(cache, 1)
        np.testing.assert_allclose(rows.row(7), C[7], rtol=1e-9, atol=1e-12)
        rows.take(7, C[7, 7] + noise)
        left = C - np.outer(C[7], C[7]) / (C[7, 7] + noise)
        np.testing.assert_allclose(rows.row(9), left[9], rtol=1e-9, atol=1e-12)
    waiting = tiled.condition_on_pending(X[9:10]).posterior_cache(X)
    C = tiled.posterior_cache(np.concatenate([X, X[9:10]])).cov(np.arange(30), np.array([30]))[:, 0]
    wanted = tiled.posterior(X)[1] - C**2 / (C[9] + tiled.noise_variance)
    np.testing.assert_allclose(waiting.var, wanted, rtol=1e-9)


def test_a_belief_with_tiles_is_saved_without_a_matrix_and_continues_bit_identically(monkeypatch):
    _, tiled = exact_and_tiled(120, monkeypatch)
    waiting = tiled.condition_on_pending(SITES[:3])
    state = waiting.state_dict()
    assert max(array.size for array in state["arrays"].values()) < 120 * 3
    again = ExactGP.from_state_dict(ExactGPSettings(), DOMAIN, state)
    np.testing.assert_array_equal(again.posterior(SITES), waiting.posterior(SITES))


def test_beliefs_with_tiles_of_agents_predict_at_the_agents_places(monkeypatch):
    _, tiled = exact_and_tiled(120, monkeypatch)
    views = quick_at(Views({"a": tiled, "b": tiled, "c": belief_of(20)}, "c"), {"a": SITES[:6], "b": SITES[-6:]})
    for agent, own in (("a", SITES[:6]), ("b", SITES[-6:])):
        quick = views.by_agent[agent]
        assert isinstance(quick, AtTiles)
        np.testing.assert_allclose(quick.posterior(own), tiled.posterior(own), rtol=1e-9)
    means = means_by_agent(views, SITES[:9])
    np.testing.assert_allclose(means["a"], tiled.posterior_mean(SITES[:9]), rtol=1e-9)


def test_further_measurements_factorise_only_their_own_rows(monkeypatch):
    belief = belief_of(200)
    belief.posterior(SITES[:1])
    sizes, plain = list[int](), cholesky._factorise_above  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(cholesky, "_factorise_above", lambda K, level: sizes.append(len(K)) or plain(K, level))
    updated = belief.update(*survey(7, seed=1))
    assert not sizes  # an update alone computes nothing
    updated.posterior(SITES[:1])
    assert sizes == [7]


def test_a_fit_to_many_measurements_uses_a_random_part_of_them(monkeypatch):
    empty = ExactGP.create(ExactGPSettings(), DOMAIN)
    whole = empty.update(*survey(160)).fit(np.random.default_rng(0)).hyperparameters
    monkeypatch.setattr("swarmbo.belief.gp.fit.FITTED_TO", 120)
    few = empty.update(*survey(160)).fit(np.random.default_rng(0))
    assert few.hyperparameters != whole
    assert few.hyperparameters == empty.update(*survey(160)).fit(np.random.default_rng(0)).hyperparameters
    assert (few.hyperparameters.offset, few.hyperparameters.scale) == (whole.offset, whole.scale)
    np.testing.assert_allclose(few.hyperparameters.lengthscales, whole.lengthscales, rtol=0.35)
    again = few.fit(np.random.default_rng(1)).hyperparameters  # from the last one, with other rows
    np.testing.assert_allclose(again.lengthscales, whole.lengthscales, rtol=0.35)
    assert few.n_data == 160  # the belief still has all of them
    monkeypatch.setattr("swarmbo.belief.gp.fit.SETTLED_FROM", 150)
    monkeypatch.setattr("swarmbo.belief.gp.fit._SEARCHED", 40)
    searched = empty.update(*survey(160)).fit(np.random.default_rng(0)).hyperparameters
    assert searched != few.hyperparameters  # another search finds the same optimum
    np.testing.assert_allclose(searched.lengthscales, few.hyperparameters.lengthscales, rtol=1e-2)
    np.testing.assert_allclose(searched.noise_variance, few.hyperparameters.noise_variance, rtol=1e-2)


@pytest.mark.parametrize(("rows", "wait"), [(30, 1), (50, 1), (51, 2), (100, 4), (250, 25)])
def test_with_many_rows_fits_are_less_frequent(monkeypatch, rows: int, wait: int):
    monkeypatch.setattr("swarmbo.belief.gp.fit.FITTED_TO", 50)
    belief, tells = belief_of(rows), 0
    while not belief.needs_fit:
        belief, tells = dataclasses.replace(belief, tells_since_fit=tells + 1), tells + 1
    assert tells == wait


def test_later_fits_to_many_measurements_are_as_good_without_random_starts(monkeypatch):
    made, starts = list[float](), list[int]()
    plain = evidence.maximise

    def counted(log, begins, *rest):
        starts.append(len(begins))
        return plain(log, begins, *rest)

    monkeypatch.setattr(evidence, "maximise", counted)
    for seed in range(2):
        X, y = survey(240, seed)
        first = ExactGP.create(ExactGPSettings(), DOMAIN).update(X[:100], y[:100]).fit(np.random.default_rng(seed))
        updated = first.update(X[100:], y[100:] + 9.0 * (np.arange(140) % 20 == 7))  # some are outliers
        by_all = updated.fit(np.random.default_rng(seed)).log_evidence()
        with monkeypatch.context() as patch:
            patch.setattr(fit, "SETTLED_FROM", 200)
            patch.setattr(fit, "_SEARCHED", 100)
            made.append(updated.fit(np.random.default_rng(seed)).log_evidence() - by_all)
    assert starts == [3, 4, 2, 1] * 2  # the last two: with every second row, and from the best result of that
    assert min(made) > -1e-3


@pytest.mark.parametrize("kind", ["exact", "readings", pytest.param("experts", marks=pytest.mark.slow)])
def test_a_team_whose_tiles_have_all_measurements_decides_as_with_the_exact_belief(kind, monkeypatch):
    agents, (X, y) = ["a", "b", "c"], survey(60)
    prior = ExactGPSettings(restarts=0, max_iterations=5)
    belief = prior if kind == "exact" else FusedSettings(prior=prior, method=cast(Any, kind))
    offers = {agent: SITES[n :: 3 * 7] for n, agent in enumerate(agents)}

    def asked() -> list[Any]:
        team = Team.for_field(agents, DOMAIN.low, DOMAIN.high, belief=belief, seed=1)
        team.attach(X, y, agents=[agents[n % 3] for n in range(len(X))])
        first, second = team.ask(offers), team.ask(offers)  # the second while the first is pending
        team.tell(first, dict.fromkeys(agents, 0.5))
        return [first, second, team.ask(offers), team.recommend()]

    exact = asked()
    monkeypatch.setattr("swarmbo.belief.gp.tiles.TILED_FROM", 15)
    tiled = asked()
    for one, other in zip(tiled[:-1], exact[:-1], strict=True):
        assert one.point == other.point
        np.testing.assert_allclose(list(one.stds.values()), list(other.stds.values()), rtol=1e-6)
    assert tiled[-1].location == exact[-1].location
    assert asked()[:-1] == tiled[:-1]  # and bit-identically again


def test_a_run_and_a_survey_report_what_tiles_neglect(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("swarmbo.belief.gp.tiles.TILED_FROM", 20)
    monkeypatch.setattr("swarmbo.belief.gp.tiles.Tiles", partial(Tiles, neighbours=10, jointly=10))
    summary = run(load("robots", ["rounds=6"]), tmp_path / "run")
    neglected = summary.neglected
    assert (neglected.neighbours, dict(report_rows(summary))["map"]) == (10, str(neglected))
    assert 0.0 < neglected.mean < 3.0
    records = RunFolder(tmp_path / "run").records()
    recorded = [record.neglected for record in records]
    assert [found is UNSET for found in recorded] == [record.round < 5 for record in records]
    assert set(recorded[5:]) == {neglected}
    samples = Samples(SITES[::20], np.sin(SITES[::20, 0]), None, Coordinates(("x", "y")), "depth")
    assert isinstance(plan_next(samples, aim="map").neglected, Neglected)


@pytest.mark.parametrize(("noise", "fewer"), [(0.5, True), (0.001, False)])
def test_close_measurements_are_merged_if_noise_hides_the_field_between_them(noise, fewer, monkeypatch):
    X, _ = survey(900)
    y = np.sin(X[:, 0] / 20.0) * np.cos(X[:, 1] / 15.0) + np.sqrt(noise) * np.random.default_rng(2).normal(size=900)
    hyper = Hyperparameters("matern52", (0.4, 0.6), 1.0, noise)
    exact, tiled = (ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, hyper, X, y) for _ in range(2))
    mean, var = exact.posterior(SITES)
    monkeypatch.setattr("swarmbo.belief.gp.tiles.TILED_FROM", 800)
    monkeypatch.setattr("swarmbo.belief.gp.tiles.Tiles", partial(Tiles, neighbours=900))
    by_tiles, var_by_tiles = tiled.posterior(SITES)
    near = merged(tiled.channels, tiled.observations)
    assert (len(near) < 450) == fewer
    assert len(near) == 900 or fewer
    np.testing.assert_allclose((1.0 / near.noise_variances(tiled.channels)).sum(), 900 / noise, rtol=1e-2)
    np.testing.assert_allclose(var_by_tiles, var, rtol=0.05 if fewer else 1e-9)
    assert np.sqrt(np.mean((by_tiles - mean) ** 2 / var)) < (0.2 if fewer else 1e-6)


@pytest.mark.parametrize("case", ["precise among noisy", "clustered", "beyond the box"])
def test_tiles_are_accurate_for_heterogeneous_measurements(case: str):
    n, rng = 2100, np.random.default_rng(5)
    U, noise, query = rng.random((n, 2)), np.full(n, 0.09), rng.random((150, 2))
    if case == "precise among noisy":
        noise[: int(0.6 * n)], noise[int(0.6 * n) :] = 1.0, 1e-6
        query = U[-150:]
    elif case == "clustered":
        U = np.clip(0.5 + 0.03 * rng.normal(size=(n, 2)), 0.0, 1.0)
        query = U[:150]
    else:
        U, query = 1.1 + 0.2 * U, 1.1 + 0.2 * query
    X, y = DOMAIN.from_unit(U), np.sin(8.0 * U).sum(axis=1) + np.sqrt(noise) * rng.normal(size=n)
    hyper = Hyperparameters("matern52", (0.3, 0.3), 1.0, 0.09)
    given = DOMAIN, hyper, X, y, np.sqrt(noise)
    exact, tiled = (ExactGP.from_hyperparameters(ExactGPSettings(), *given) for _ in range(2))
    with exactly():
        mean, var = exact.posterior(DOMAIN.from_unit(query))
    by_tiles, var_by_tiles = tiled.posterior(DOMAIN.from_unit(query))
    assert (var_by_tiles / var).max() < 1.15
    assert np.abs((by_tiles - mean) / np.sqrt(var)).max() < 0.6


def test_nothing_is_neglected_where_all_measurements_are_neighbours():
    X, y = survey(900)
    noise = np.full(900, 2.0)
    X[:500], noise[:500] = X[:20].repeat(25, axis=0), 0.01  # once repeated places are merged, most are noisy
    hyper = Hyperparameters("matern52", (0.4, 0.6), 1.0, 0.1)
    belief = ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, hyper, X, y, noise)
    neglected = Tiles(belief.channels, belief.observations, neighbours=900).neglected(0.0)
    assert (neglected.neighbours, neglected.mean, neglected.std) == (900, 0.0, 0.0)


@pytest.mark.parametrize(
    ("stations", "rounds", "fades", "noise"),
    [
        *((25, 90, 10.0, 0.01), (25, 90, 200.0, 0.3), (25, 90, 1000.0, 0.01)),
        *((12, 180, 200.0, 0.05), (100, 25, 100.0, 0.05), (25, 400, 1000.0, 1e-4)),
    ],
)
def test_tiles_of_fixed_stations_in_a_changing_field_differ_little_from_the_exact_posterior(
    stations: int, rounds: int, fades: float, noise: float
):
    """The exact posterior is by eigenvectors of both factors of the covariance: places and rounds."""
    rng, length = np.random.default_rng(1), 0.3
    places, query, times = rng.random((stations, 2)), rng.random((80, 2)), np.arange(rounds + 0.0)
    site, over_time = Covariance("matern52", np.full(2, length), 1.0), Covariance("matern32", np.array([fades]), 1.0)
    in_space, V = np.linalg.eigh(site.matrix(places, places))
    in_time, W = np.linalg.eigh(over_time.matrix(times[:, None], times[:, None]))
    total = np.maximum(np.outer(in_time, in_space), 0.0) + noise
    y = W @ (np.sqrt(total) * rng.normal(size=total.shape)) @ V.T
    at, ahead = site.matrix(query, places) @ V, over_time.matrix(np.array([[rounds + 0.0]]), times[:, None])[0] @ W
    mean, var = at @ ((W.T @ y @ V / total).T @ ahead), 1.0 - at**2 @ ((1.0 / total).T @ ahead**2)
    hyper = Hyperparameters("matern52", (length,) * 2, 1.0, noise, time=TimeCorrelation("matern32", fades))
    X = np.column_stack([np.tile(places, (rounds, 1)), np.repeat(times, stations)])
    unit, settings = Domain(np.zeros(2), np.ones(2)), ExactGPSettings(time=TimeAxis())
    tiled = ExactGP.from_hyperparameters(settings, unit, hyper, X, y.ravel()).at(rounds)
    by_tiles, var_by_tiles = tiled.posterior(query)
    assert tiled.is_tiled
    ratio = np.sqrt(var_by_tiles / var)
    assert ratio.min() > 0.98
    assert ratio.max() < 1.05
    assert np.abs((by_tiles - mean) / np.sqrt(var)).max() < 0.4
    assert tiled.neglected().std < 0.05


def test_the_effect_of_neglected_measurements_includes_locations_between_measurements():
    rng = np.random.default_rng(0)
    X = DOMAIN.from_unit(rng.random((25, 2)).repeat(90, axis=0) + 0.005 * rng.random((2250, 2)))  # dense clusters
    hyper = Hyperparameters("matern52", (0.3, 0.3), 1.0, 1e-4)
    exact, tiled = (
        ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, hyper, X, np.sin(X[:, 0])) for _ in range(2)
    )
    with exactly():
        mean, var = exact.posterior(SITES)
    worst = np.abs((tiled.posterior(SITES)[0] - mean) / np.sqrt(var)).max()
    assert 0.1 * worst < tiled.neglected().mean < 1.1 * worst
