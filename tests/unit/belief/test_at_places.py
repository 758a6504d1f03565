"""A belief that is quick at places known beforehand, compared with the same belief without them."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters, TimeAxis, TimeCorrelation, Views
from swarmbo.belief.at_places import AtPlaces, means_by_agent, quick_at
from swarmbo.belief.gp.conditioning import CovarianceRows
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain, PlaceTable, place_keys, unique_places

DOMAIN = Domain(np.array([-50.0, 0.0]), np.array([50.0, 30.0]))
SITES = np.stack(np.meshgrid(np.linspace(-50.0, 50.0, 9), np.linspace(0.0, 30.0, 7)), axis=-1).reshape(-1, 2)


def belief_of(seed: int, n: int, time: TimeAxis | None = None) -> ExactGP:
    rng = np.random.default_rng(seed)
    X, empty = DOMAIN.from_unit(rng.random((n, 2))), ExactGP.create(ExactGPSettings(time=time), DOMAIN)
    return empty.at(3.0).update(X, 40.0 * np.sin(X[:, 0] / 20.0) + rng.normal(size=n)).fit(rng).at(5.0)


@given(st.integers(0, 50), st.integers(0, 12), st.booleans(), st.data())
def test_pending_places_have_the_same_effect_as_in_the_plain_belief(
    seed: int, n: int, fades: bool, data: st.DataObject
) -> None:
    belief = belief_of(seed, n, TimeAxis(lengthscale_median=4.0) if fades else None)
    belief = belief.condition_on_pending(DOMAIN.from_unit(np.random.default_rng(seed).random((2, 2))))
    quick = AtPlaces.of(belief, np.concatenate([SITES, SITES[:5]]))
    assert isinstance(quick, AtPlaces)
    plain = belief
    for rows in data.draw(st.lists(st.lists(st.integers(0, 62), max_size=4), max_size=3)):
        shift = data.draw(st.sampled_from([0.0, 0.5]))  # to places that are not known beforehand
        taken = SITES[rows] + shift
        quick, plain = quick.condition_on_pending(taken), plain.condition_on_pending(taken)
    looked = SITES[data.draw(st.lists(st.integers(0, 62), min_size=1, max_size=8))]
    unit = plain.prior_variance
    for X in (looked, looked + 0.25):  # known beforehand, and not
        mean, var = quick.posterior(X)
        np.testing.assert_allclose(mean, plain.posterior(X)[0], rtol=0, atol=1e-8 * np.sqrt(unit))
        np.testing.assert_allclose(var, plain.posterior(X)[1], rtol=0, atol=1e-8 * unit)
        np.testing.assert_allclose(quick.posterior_mean(X), mean, rtol=0, atol=1e-8 * np.sqrt(unit))
        every, cache = np.arange(len(X)), quick.posterior_cache(X)
        wanted = plain.posterior_cache(X).cov(every, every[:2])
        np.testing.assert_allclose(cache.cov(every, every[:2]), wanted, rtol=0, atol=1e-8 * unit)
        np.testing.assert_array_equal(cache.var, var)
        last, by_row = len(X) - 1, CovarianceRows(cache, 0)
        np.testing.assert_allclose(by_row.row(last), cache.cov(every[last:], every)[0], rtol=0, atol=1e-12 * unit)
    np.testing.assert_allclose(quick.at(9.0).posterior(looked)[1], plain.at(9.0).posterior(looked)[1], atol=1e-8 * unit)


def test_separate_beliefs_of_agents_are_not_replaced() -> None:
    """An agent that knows only its own belief has to be bit-identical to a team that knows all beliefs."""
    a, b = belief_of(0, 8), belief_of(1, 8)
    quick = quick_at(Views({"r": a, "s": b, "t": a}, "s"), {"r": SITES[:4], "t": SITES[4:8], "s": SITES})
    assert (quick.by_agent["r"], quick.by_agent["s"], quick.by_agent["t"]) == (a, b, a)


def test_a_belief_of_another_kind_stays_as_it_is() -> None:
    drawn = sb.Thompson()  # no belief at all
    assert AtPlaces.of(drawn, SITES) is drawn  # pyright: ignore[reportArgumentType]


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=60))
def test_different_places_are_those_of_numpy(rows: list[tuple[int, int]]) -> None:
    X = np.array(rows, dtype=float) / 3.0
    places, number = unique_places(np.where(X == 0.0, -0.0, X))
    wanted, inverse = np.unique(X, axis=0, return_inverse=True)
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(number, inverse.reshape(-1))


def test_places_with_equal_keys_are_still_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swarmbo.spaces.box.place_keys", lambda X: np.zeros(len(X), dtype=np.uint64))
    places, number = unique_places(SITES[::-1])
    np.testing.assert_array_equal(places[number], SITES[::-1])
    assert len(places) == len(SITES)


def test_keys_of_a_hundred_thousand_sites_are_distinct() -> None:
    side = np.linspace(0.0, 1.0, 316)
    sites = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    assert len(np.unique(place_keys(sites))) == len(sites)


@pytest.mark.parametrize("shift", [0, 20, 63])
@given(asked=st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=30))
def test_a_table_of_places_finds_each_and_no_other(asked: list[tuple[int, int]], shift: int) -> None:
    known, X = np.array([(i, j) for i in range(-3, 3) for j in (-1, 0, 3)]) / 3.0, np.array(asked) / 3.0
    with pytest.MonkeyPatch.context() as patch:
        keys = place_keys  # with 20 bits fewer all keys begin alike, with 63 many are equal
        patch.setattr("swarmbo.spaces.box.place_keys", lambda X: keys(X) >> np.uint64(shift))
        table, asked_for = PlaceTable(known), np.where(X == 0.0, -0.0, X)
        rows, found = table.rows_of(asked_for), table.find(asked_for)
        assert (PlaceTable(known[:0]).find(X) < 0).all()
    among = [(known == place).all(axis=1).any() for place in X]
    assert (found >= 0).tolist() == among
    if rows is None:
        assert not all(among)
    else:
        np.testing.assert_array_equal(known[rows], X)


@pytest.mark.parametrize("kernel", ["matern12", "matern52", "rbf"])
@pytest.mark.parametrize("fades", [False, True])
def test_no_prior_correlation_is_larger_than_that_with_the_box_around_places(kernel: str, fades: bool) -> None:
    X, places = SITES[::2] + 0.3, SITES[[3, 4, 12, 30]]
    time = TimeAxis(lengthscale_median=4.0) if fades else None
    belief = ExactGP.create(ExactGPSettings(kernel=kernel, time=time), DOMAIN)
    short = msgspec.structs.replace(belief.hyperparameters, lengthscales=(0.2, 0.4))
    prior = replace(belief, hyperparameters=short)
    belief = prior.update(SITES[:3], np.arange(3.0))
    quick = AtPlaces.of(belief, SITES)
    assert isinstance(quick, AtPlaces)
    most, every = quick.prior_correlation(X, places), np.concatenate([X, places])
    cov = prior.posterior_cache(every).cov(np.arange(len(X)), np.arange(len(X), len(every)))
    assert (most >= cov.max(axis=1) / prior.prior_variance - 1e-12).all()
    assert (most < 0.5).any()
    inside = ((places.min(axis=0) <= X) & (places.max(axis=0) >= X)).all(axis=1)
    assert inside.any()
    np.testing.assert_array_equal(most == 1.0, inside)


@given(st.integers(0, 20), st.booleans(), st.lists(st.integers(0, 29), min_size=1, max_size=5, unique=True))
def test_rows_of_covariances_count_the_taken_places_as_measured(seed: int, fades: bool, taken: list[int]) -> None:
    belief, places = belief_of(seed, 9, TimeAxis(lengthscale_median=4.0) if fades else None), SITES[::2][:30]
    quick = AtPlaces.of(belief, SITES).condition_on_pending(SITES[1:4])
    looked = quick.posterior_cache(places)
    rows, var, unit = CovarianceRows(looked, len(taken)), looked.var, belief.prior_variance
    for n, point in enumerate(taken):
        known = belief.condition_on_pending(np.concatenate([SITES[1:4], places[taken[:n]]])).posterior_cache(places)
        expected = known.cov(np.array([point]), np.arange(len(places)))[0]
        np.testing.assert_allclose(rows.row(point), expected, rtol=0, atol=1e-8 * unit)
        told = rows.take(point, var[point] + belief.noise_variance)
        var = var - told**2
    final = belief.condition_on_pending(np.concatenate([SITES[1:4], places[taken]])).posterior(places)[1]
    np.testing.assert_allclose(var, final, rtol=0, atol=1e-8 * unit)


BOX = Domain(np.array([0.0, -5.0]), np.array([10.0, 5.0]))
STILL = Hyperparameters("matern52", (0.3, 0.2), 1.3, 0.04, mean=0.2, offset=7.0, scale=3.0)
OVER_TIME = Hyperparameters("rbf", (0.3, 0.2), 0.8, 0.02, offset=-1.0, scale=2.0, time=TimeCorrelation("matern32", 4.0))
RNG = np.random.default_rng(0)
MEASUREMENTS = np.column_stack([BOX.from_unit(RNG.random((30, 2))), RNG.integers(0, 6, 30), RNG.normal(size=30)])
MEASUREMENTS[20:25, :2] = MEASUREMENTS[3:8, :2]  # some places were measured twice
PLACES = BOX.from_unit(RNG.random((40, 2)))


def view(hyperparameters, rows):
    """The belief about some of the measurements."""
    columns = [0, 1, 2] if hyperparameters.time is not None else [0, 1]
    X, y = MEASUREMENTS[rows][:, columns], MEASUREMENTS[rows][:, 3]
    return ExactGP.from_hyperparameters(ExactGPSettings(kernel=hyperparameters.kernel), BOX, hyperparameters, X, y)


@given(
    known=st.lists(st.lists(st.integers(0, 29), max_size=12, unique=True), min_size=2, max_size=5),
    is_fading=st.booleans(),
    is_pending=st.booleans(),
)
def test_means_of_several_beliefs_at_once_are_those_of_each(known, is_fading, is_pending):
    views = [view(OVER_TIME if is_fading else STILL, rows).at(7.0) for rows in known]
    if is_pending:
        views[0] = views[0].condition_on_pending(PLACES[:2])
    for got, each in zip(ExactGP.posterior_means(views, PLACES), views, strict=True):
        np.testing.assert_allclose(got, each.posterior(PLACES)[0], rtol=1e-9, atol=1e-9)


def test_agents_may_differ_in_hyperparameters_and_rounds_and_may_share_a_belief():
    one = view(OVER_TIME, [1, 2, 3]).at(3.0)
    louder = view(msgspec.structs.replace(OVER_TIME, noise_variance=0.5), [1, 2, 3]).at(3.0)
    by_agent = {"a": one, "b": view(OVER_TIME, [2, 9]).at(3.0), "c": one, "d": one.at(50.0), "e": louder}
    means = means_by_agent(Views(by_agent, "a"), PLACES)
    assert list(means) == list(by_agent)
    assert means["a"] is means["c"]
    for name, belief in by_agent.items():
        np.testing.assert_allclose(means[name], belief.posterior(PLACES)[0], rtol=1e-9)
    assert len({means[name][0] for name in "abde"}) == 4


def test_places_that_are_not_finite_are_refused():
    with pytest.raises(ShapeError, match="finite"):
        means_by_agent(Views({"a": view(STILL, [0]), "b": view(STILL, [1])}, "a"), np.full((1, 2), np.nan))
