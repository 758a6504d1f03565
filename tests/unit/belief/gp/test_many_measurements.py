"""Thousands of measurements of a field: what is exact, what is not, and how far off."""

import dataclasses

import numpy as np
import pytest

from swarmbo.acquisition import DBGPUCB, Situation
from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters, TimeAxis, TimeCorrelation, Views, quick_at
from swarmbo.belief.at_places import AtPlaces
from swarmbo.belief.gp import cholesky, evidence, fit
from swarmbo.kernels import kernel_matrix
from swarmbo.spaces import Domain

DOMAIN = Domain(np.zeros(2), np.array([100.0, 50.0]))
HYPER = Hyperparameters("matern52", (0.15, 0.15), 1.0, 0.03)
SITES = np.stack(np.meshgrid(np.linspace(0.0, 100.0, 33), np.linspace(0.0, 50.0, 33)), axis=-1).reshape(-1, 2)


def survey(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = DOMAIN.from_unit(rng.random((n, 2)))
    return X, np.sin(X[:, 0] / 11.0) * np.cos(X[:, 1] / 4.0) + 0.17 * rng.normal(size=n)


def belief_of(n: int) -> ExactGP:
    return ExactGP.from_hyperparameters(ExactGPSettings(), DOMAIN, HYPER, *survey(n))


@pytest.mark.parametrize("middle", [(50.0, 25.0), (10.0, 45.0)])
def test_near_a_place_the_nearest_measurements_are_as_good_as_all(middle: tuple[float, float]) -> None:
    belief = belief_of(1200)
    places = SITES[np.linalg.norm(DOMAIN.to_unit(SITES) - DOMAIN.to_unit(np.array(middle)), axis=1) < 0.15]
    (mean, var), (by_near, var_by_near) = belief.posterior(places), belief.near(places, 500).posterior(places)
    assert np.all(var_by_near >= var * (1.0 - 1e-9))  # fewer data never know more
    assert np.sqrt(var_by_near / var).max() < 1.02
    assert np.abs(by_near - mean).max() < 0.3 * np.sqrt(var).min()


def test_the_nearest_are_those_that_correlate_most_with_the_middle_at_its_round() -> None:
    fading = ExactGP.from_hyperparameters(
        ExactGPSettings(time=TimeAxis()),
        DOMAIN,
        Hyperparameters("matern52", HYPER.lengthscales, 1.0, 0.03, time=TimeCorrelation("matern12", 2.0)),
        np.column_stack([survey(60)[0], np.arange(60) // 6]),
        survey(60)[1],
    ).at(9.0)
    places, lengths = SITES[:4], np.array([0.15, 0.15])
    middle = DOMAIN.to_unit(places).mean(axis=0)[None]
    tells = kernel_matrix("matern52", middle, DOMAIN.to_unit(fading.points), lengths, 1.0)[0]
    tells = tells * np.exp(-(9.0 - fading.rounds) / 2.0)
    near = fading.near(places, 20)
    assert {tuple(row) for row in near.X} == {tuple(row) for row in fading.X[np.argsort(-tells)[:20]]}
    assert [tuple(row) for row in near.X] == [tuple(row) for row in fading.X if tuple(row) in set(map(tuple, near.X))]
    assert near.near(places, 20) is near


def test_what_is_pending_is_kept() -> None:
    waiting = belief_of(80).condition_on_pending(SITES[:3])
    near = waiting.near(SITES[500:502], 40)
    wanted = belief_of(80).near(SITES[500:502], 40).condition_on_pending(SITES[:3])
    assert near.n_pending == 3
    np.testing.assert_allclose(near.posterior(SITES[:9])[1], wanted.posterior(SITES[:9])[1])


def test_each_agent_takes_its_own_part_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    belief, places = belief_of(300), {"a": SITES[:6], "b": SITES[-6:]}
    assert not isinstance(quick_at(belief, places), Views)
    monkeypatch.setattr("swarmbo.belief.at_places._MANY", 200)
    monkeypatch.setattr("swarmbo.belief.at_places._NEAR", (100,))
    views = quick_at(belief, places)
    assert isinstance(views, Views)
    for agent, own in places.items():
        near, quick = belief.near(own, 100), views.by_agent[agent]
        np.testing.assert_allclose(quick.posterior(own), near.posterior(own), rtol=1e-12)
        quick, near = (view.condition_on_pending(SITES[300:302] + 0.01) for view in (quick, near))
        assert isinstance(quick, AtPlaces)  # also where what is pending is not among an agent's own places
        np.testing.assert_allclose(quick.posterior(own), near.posterior(own), rtol=1e-9)
    shared = quick_at(Views({"a": belief, "b": belief, "c": belief_of(20)}, "c"), {**places, "c": SITES[:5]})
    assert isinstance(shared, Views)
    assert [view.n_data for view in shared.by_agent.values()] == [100, 100, 20]


def test_who_can_go_further_takes_more_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    belief, near, far = belief_of(300), SITES[:6], SITES[np.linalg.norm(SITES - SITES[544], axis=1) < 18.0]
    monkeypatch.setattr("swarmbo.belief.at_places._MANY", 200)
    monkeypatch.setattr("swarmbo.belief.at_places._NEAR", (20, 150))
    views = quick_at(belief, {"a": near, "b": far})
    assert isinstance(views, Views)
    assert [view.n_data for view in views.by_agent.values()] == [20, 150]
    assert belief.near(far, 20) is belief


def test_who_can_go_far_takes_all_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows nearest to the middle of a box know nothing of its corners, however often somebody measured there."""
    belief, near, corners = belief_of(300), SITES[:6], SITES[[0, 32, -33, -1]]
    monkeypatch.setattr("swarmbo.belief.at_places._MANY", 200)
    monkeypatch.setattr("swarmbo.belief.at_places._NEAR", (100,))
    everywhere = quick_at(belief, {"a": SITES, "b": SITES})
    assert not isinstance(everywhere, Views)  # as of fewer measurements
    both = quick_at(belief, {"a": SITES, "b": near, "c": corners})
    assert isinstance(both, Views)
    for view in (everywhere, both.by_agent["a"], both.by_agent["c"]):
        np.testing.assert_allclose(view.posterior(corners), belief.posterior(corners), rtol=1e-7, atol=1e-9)
    assert both.by_agent["b"].n_data == 100
    own = quick_at(Views({"a": belief, "b": belief}, "a"), {"a": SITES, "b": near})
    assert isinstance(own, Views)
    assert [view.n_data for view in own.by_agent.values()] == [300, 100]


def test_where_the_part_is_all_the_decision_is_the_exact_one(monkeypatch: pytest.MonkeyPatch) -> None:
    places = {f"r{n}": SITES[n * 40 : n * 40 + 200] for n in range(4)}
    now = Situation(tuple(places), places, {}, {}, belief_of(90), None, DOMAIN, 3, 10, 0)

    def tables() -> dict[str, np.ndarray]:
        problem = DBGPUCB(candidates=8).local_problem(now)
        assert problem is not None
        return dict(problem.tables)

    exact = tables()
    monkeypatch.setattr("swarmbo.belief.at_places._MANY", 50)
    for factor, table in tables().items():
        np.testing.assert_allclose(table, exact[factor], rtol=1e-7, atol=1e-9)


def test_further_measurements_factorise_no_more_than_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    belief = belief_of(200)
    belief.posterior(SITES[:1])
    sizes, plain = list[int](), cholesky._factorise_above  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(cholesky, "_factorise_above", lambda K, level: sizes.append(len(K)) or plain(K, level))
    told = belief.update(*survey(7, seed=1))
    assert not sizes  # telling works nothing out
    told.posterior(SITES[:1])
    assert sizes == [7]


def test_a_fit_to_many_is_one_to_as_many_as_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = ExactGP.create(ExactGPSettings(), DOMAIN)
    whole = empty.update(*survey(160)).fit(np.random.default_rng(0)).hyperparameters
    monkeypatch.setattr("swarmbo.belief.gp.fit.FITTED_TO", 120)
    few = empty.update(*survey(160)).fit(np.random.default_rng(0))
    assert few.hyperparameters != whole
    assert few.hyperparameters == empty.update(*survey(160)).fit(np.random.default_rng(0)).hyperparameters
    assert (few.hyperparameters.offset, few.hyperparameters.scale) == (whole.offset, whole.scale)
    np.testing.assert_allclose(few.hyperparameters.lengthscales, whole.lengthscales, rtol=0.35)
    again = few.fit(np.random.default_rng(1)).hyperparameters  # from the last one, by other rows
    np.testing.assert_allclose(again.lengthscales, whole.lengthscales, rtol=0.35)
    assert few.n_data == 160  # all of them are known all the same


@pytest.mark.parametrize(("rows", "wait"), [(30, 1), (50, 1), (51, 2), (100, 4), (250, 25)])
def test_with_many_rows_fits_come_less_often(monkeypatch: pytest.MonkeyPatch, rows: int, wait: int) -> None:
    monkeypatch.setattr("swarmbo.belief.gp.exact.FITTED_TO", 50)
    belief, tells = belief_of(rows), 0
    while not belief.needs_fit:
        belief, tells = dataclasses.replace(belief, tells_since_fit=tells + 1), tells + 1
    assert tells == wait


def test_later_fits_to_many_find_without_drawn_starts_what_they_find_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    made, starts = list[float](), list[int]()
    plain = evidence.maximise

    def counted(log: evidence.LogPosterior, begins: list[np.ndarray], *rest: float) -> tuple[np.ndarray, float]:
        starts.append(len(begins))
        return plain(log, begins, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(evidence, "maximise", counted)
    for seed in range(2):
        X, y = survey(240, seed)
        first = ExactGP.create(ExactGPSettings(), DOMAIN).update(X[:100], y[:100]).fit(np.random.default_rng(seed))
        told = first.update(X[100:], y[100:] + 9.0 * (np.arange(140) % 20 == 7))  # some tell of something else
        by_all = told.fit(np.random.default_rng(seed)).log_evidence()
        with monkeypatch.context() as patch:
            patch.setattr(fit, "SETTLED_FROM", 200)
            made.append(told.fit(np.random.default_rng(seed)).log_evidence() - by_all)
    assert starts == [3, 4, 2] * 2
    assert min(made) > -1e-3
