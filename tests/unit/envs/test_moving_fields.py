"""Fields that change over time: draws, plumes and time series of measurements."""

import pickle

import numpy as np
import pytest

from swarmbo.errors import ConfigError
from swarmbo_envs import robot_team_v0
from swarmbo_envs.fields import build_field, lattice
from swarmbo_envs.fields.landscape import DrawnInTime, Plume, _shared_field
from swarmbo_envs.fields.settings import ChangeSettings, DrawSettings, PlumeSettings

PLACES = np.array([[100.0, 100.0], [700.0, 400.0], [1100.0, 50.0]])


@pytest.mark.parametrize("table", [{"gp": {"time": {}}}, {"plume": {}}])
def test_equal_seeds_give_equal_fields_in_every_round_and_different_seeds_do_not(table):
    (kind,) = table
    other, one = (build_field({kind: {**table[kind], "seed": seed}}, 200, moving=True) for seed in (4, 3))
    _shared_field.cache_clear()
    same = build_field({kind: {**table[kind], "seed": 3}}, 200, moving=True)
    assert one.change is not None
    for round_number in (9, 0, 4):
        np.testing.assert_array_equal(one.at(round_number).value(PLACES), same.at(round_number).value(PLACES))
        np.testing.assert_array_equal(one.value(PLACES, round_number), one.at(round_number).value(PLACES))
    assert np.abs(one.at(4).value(PLACES) - one.at(9).value(PLACES)).max() > 1e-3
    assert np.abs(one.at(4).value(PLACES) - other.at(4).value(PLACES)).max() > 1e-3
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.at(7).value(PLACES), one.at(7).value(PLACES))


def test_draws_have_the_covariance_of_the_product_kernel():
    """Estimated from many draws: one place at two times, and two places at two times."""
    change = ChangeSettings(lengthscale_rounds=5.0, kernel="matern12")
    draws = []
    for seed in range(1500):
        field = DrawnInTime(DrawSettings(kernel="rbf", lengthscale_m=100.0, std=2.0, mean=3.0, seed=seed), change)
        here, there = np.array([[0.0, 0.0]]), np.array([[100.0, 0.0]])
        draws.append([field.surface(0)(here)[0], field.surface(4)(here)[0], field.surface(4)(there)[0]])
    draws = np.array(draws)
    covariance = np.cov(draws.T)
    np.testing.assert_allclose(draws.mean(axis=0), 3.0, atol=0.25)
    np.testing.assert_allclose(covariance.diagonal(), 4.0, rtol=0.15)
    assert covariance[0, 1] == pytest.approx(4.0 * np.exp(-4 / 5), abs=0.35)
    assert covariance[0, 2] == pytest.approx(4.0 * np.exp(-4 / 5) * np.exp(-0.5), abs=0.35)


def test_a_plume_in_a_steady_wind_has_the_stated_peak_at_its_source_and_is_symmetric():
    field = build_field({"plume": {"gusts": 0.0, "peak": 50.0, "decay_rounds": 20.0}}, 200, moving=True)
    source = np.array([[120.0, 400.0]])
    assert field.at(8).value(source)[0] == pytest.approx(50.0, rel=1e-6)
    downwind = field.at(8).value(np.array([[300.0, 400.0], [600.0, 400.0], [300.0, 600.0], [300.0, 200.0]]))
    assert downwind[0] > downwind[1] > 0.0
    assert downwind[2] == pytest.approx(downwind[3], rel=1e-9)
    assert downwind[2] < 0.2 * downwind[0]
    assert field.at(8).maximum >= 50.0


def test_a_wind_in_which_puffs_do_not_overlap_is_refused():
    wanted = "got 500.0; wanted at most 8 `radius_m`, 480: puffs must overlap"
    with pytest.raises(ConfigError, match=wanted):
        PlumeSettings(wind_m_per_round=500.0)
    field = build_field({"plume": {"gusts": 0.0, "wind_m_per_round": 480.0, "decay_rounds": 50.0}}, 200, moving=True)
    downwind = field.at(8).value(np.column_stack([np.arange(150.0, 1150.0, 10.0), np.full(100, 400.0)]))
    assert np.abs(np.diff(downwind)).max() < 0.01 * downwind.mean()


def test_a_puff_is_carried_by_the_integral_of_the_wind():
    """The centre of a puff is its source plus the wind's displacement since its release."""
    plume = Plume(PlumeSettings(gusts=1.0, seed=5))
    times = np.linspace(0.0, 30.0, 30001)
    path = plume.carried(times)
    assert np.abs(path[0]).max() == 0.0
    puffs = plume.surface(12.0)
    age = 3.0
    middle = (
        np.array([0.1 * 1200.0, 0.5 * 800.0]) + plume.carried(np.array([12.0]))[0] - plume.carried(np.array([9.0]))[0]
    )
    number = round(age * 4)
    np.testing.assert_allclose(puffs.centres[number], middle, rtol=1e-12)
    assert puffs.variances[number] == pytest.approx(60.0**2 * (1 + age / 4))
    far = plume.carried(np.array([1e5]))[0] / 1e5
    np.testing.assert_allclose(far, [60.0, 0.0], atol=0.1)  # gusts average out, so only the mean wind remains


def test_a_plume_solves_the_equation_of_advection_diffusion_and_decay():
    """Between two releases, c_t + v . grad c = D lap c - c / tau, by central differences of c and of the path (v)."""
    settings = PlumeSettings(gusts=1.5, seed=4, decay_rounds=5.0, spread_m2_per_round=700.0, sources=[(200.0, 300.0)])
    plume, now, h = Plume(settings), 9.1, 1.0
    places = np.array([[200.0, 300.0], [250.0, 320.0], [330.0, 260.0], [420.0, 380.0]])

    def c(dx=0.0, dy=0.0, dt=0.0):
        return plume.surface(now + dt)(np.add(places, [dx, dy]))

    wind = (plume.carried(np.array([now + 1e-3])) - plume.carried(np.array([now - 1e-3])))[0] / 2e-3
    change = (c(dt=1e-3) - c(dt=-1e-3)) / 2e-3
    slope = np.array([c(dx=h) - c(dx=-h), c(dy=h) - c(dy=-h)]) / (2 * h)
    curvature = (c(dx=h) + c(dx=-h) + c(dy=h) + c(dy=-h) - 4 * c()) / h**2
    np.testing.assert_allclose(change, -wind @ slope + 350.0 * curvature - c() / 5.0, rtol=2e-4, atol=1e-3)


def test_the_content_of_a_plume_is_its_release_minus_its_decay():
    """The sum over a wide lattice is a geometric series of puffs, for any wind and spreading."""
    contents = []
    for more in ({}, {"wind_m_per_round": 15.0, "spread_m2_per_round": 90.0}):
        settings = PlumeSettings(gusts=0.5, seed=1, decay_rounds=2.0, **more)
        xs = np.arange(-1500.0, 3000.0, 15.0)
        plume, grid = Plume(settings), np.stack(np.meshgrid(xs, xs), axis=-1).reshape(-1, 2)
        puffs = plume.surface(30.0)
        one = 2 * np.pi * puffs.heights[0] * puffs.variances[0]  # the content of a puff at its release
        contents.append(plume.surface(30.0)(grid).sum() * 15.0**2 / one)
    ratio = np.exp(-0.25 / 2.0)
    # puffs are dropped after six decay times
    np.testing.assert_allclose(contents, (1 - ratio**48) / (1 - ratio), rtol=1e-6)


@pytest.mark.slow
def test_the_range_of_a_plume_covers_its_maximum_with_any_gusts_and_several_sources():
    near = [[300.0, 350.0], [300.0, 400.0], [300.0, 450.0]]
    for settings in ({"gusts": 0.0}, {}, {"gusts": 2.0}, {"sources": near}, {"sources": near, "gusts": 2.0, "seed": 3}):
        field = build_field({"plume": settings}, 300, moving=True)
        assert max(field.at(number).maximum for number in range(0, 45, 3)) <= field.span[1]


def test_no_place_is_above_the_maximum_of_any_round_however_narrow_the_peak_is(tmp_path):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.uniform(0.0, 300.0, (40, 2)), rng.uniform(0.0, 20_000.0, (12, 2))])  # a cluster of stations
    rows = [f"{x},{y},{t},{10 + t if n == 7 else rng.normal()}" for t in range(2) for n, (x, y) in enumerate(X)]
    (path := tmp_path / "cluster.csv").write_text("\n".join(["x,y,t,v", *rows]))
    csv = {"csv": str(path), "value": "v", "time": "t", "sites": "interpolated"}
    draw = {"gp": {"lengthscale_m": 10.0, "size_m": [600.0, 600.0], "time": {}}}
    everywhere, source = lattice(np.zeros(2), np.full(2, 600.0), 30_000), np.array([[120.0, 400.0]])
    for table, places in ((csv, X), (draw, everywhere), ({"plume": {"radius_m": 8.0}}, source)):
        field = build_field(table, 200, moving=True)
        for number in (0, 1):
            assert field.value(places, number).max() <= field.at(number).maximum * (1.0 + 1e-9)


def series(tmp_path, **more):
    path = tmp_path / "series.csv"
    rows = ["x,y,week,v"]
    for x, y, offset in ((0, 0, 0.0), (100, 0, 10.0), (0, 100, 20.0), (100, 100, 30.0)):
        rows += [f"{x},{y},{t},{offset + 2 * t}" for t in (10, 12, 14, 20)]
    rows += ["50,50,12,99", "50,50,12,101"]  # one time only, measured twice
    path.write_text("\n".join(rows))
    return {"csv": str(path), "x": "x", "y": "y", "value": "v", "time": "week", **more}


@pytest.mark.parametrize("sites", ["only", "interpolated"])
def test_series_are_linear_between_their_times_and_constant_beyond(tmp_path, sites):
    field = build_field(series(tmp_path, sites=sites, time_step=1.0), 50, moving=True)
    corner = np.array([[100.0, 0.0], [50.0, 50.0]])
    for round_number, value in ((0, 30.0), (1, 32.0), (3, 36.0), (10, 50.0), (99, 50.0)):
        np.testing.assert_allclose(field.at(round_number).value(corner), [value, 100.0], rtol=1e-9)
    assert field.span == (20.0, 101.0)


def test_by_default_a_round_lasts_the_median_step_between_times(tmp_path):
    field = build_field(series(tmp_path), 50, moving=True)  # steps of 2, 2 and 6
    assert field.at(1).value(np.zeros((1, 2)))[0] == pytest.approx(24.0)


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        (None, {"time": "when"}, r"time: .*: no column 'when'; columns: x, y, week, v"),
        (None, {"time_step": 0.0}, r"time_step: got 0\.0; wanted a time from 1e-9 to 1e12, beside the column `time`"),
        (None, {"time": None, "time_step": 1.0}, r"time_step: got 1\.0; wanted a time from 1e-9 to 1e12, beside"),
        ("x,y,week,v\n0,0,1,2\n9,9,1,3\n", {}, "time: got 1 time; wanted at least 2, or no column of times"),
        (
            "x,y,week,v\n0,0,2026-01-01,2\n",
            {},
            r"time: .*\.csv: line 2, column 'week': got '2026-01-01'.*time since the first",
        ),
        ("x;y;week;v\n0;0;1;2\n", {}, r"csv: cannot read .*: its columns are separated by ';'; wanted"),
    ],
)
def test_errors_name_wrong_columns_of_times(tmp_path, text, more, message):
    table = series(tmp_path, **more)
    if text is not None:
        (tmp_path / "series.csv").write_text(text)
    with pytest.raises(ConfigError, match=rf"^\$\.field\.{message}"):
        build_field(table, 50, moving=True)


@pytest.mark.parametrize(("table", "at"), [({"gp": {"time": {}}}, "gp.time"), ({"plume": {}}, None)])
def test_robots_refuse_a_field_that_changes(table, at):
    message = rf"\$\.field\.{at}: got a field that changes" if at else r"\$\.field: got 'plume'; wanted exactly one of"
    with pytest.raises(ConfigError, match=message):
        robot_team_v0.parallel_env(field=table)


def test_the_included_survey_is_the_oxford_grid_and_robots_accept_it():
    field = build_field({"survey": "oxford-ph"}, 500)
    assert (len(field.sites), field.unit, field.name) == (126, "pH", "Oxford soil, pH (measured sites only)")
    assert (field.low.tolist(), field.high.tolist()) == ([100.0, 100.0], [600.0, 2100.0])
    assert (field.minimum, field.maximum) == (4.2, 7.7)
    assert robot_team_v0.parallel_env(field={"survey": "oxford-ph"}).field.sites_only
