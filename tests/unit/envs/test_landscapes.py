from functools import partial

import numpy as np
import pytest
from matplotlib.cbook import get_sample_data

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import lattice, summit
from swarmbo_envs.fields.landscape import build_field, drawn, elevation_field, load_elevation
from swarmbo_envs.fields.settings import DrawSettings, ElevationSettings


def test_many_draws_have_the_mean_variance_and_correlation_of_the_prior():
    places = np.array([[0.0, 0.0], [100.0, 0.0]])
    prior = {"kernel": "matern32", "lengthscale_m": 100.0, "std": 2.0, "mean": 5.0}
    draws = np.array([drawn(DrawSettings(**prior, seed=seed))(places) for seed in range(1000)])
    covariance = np.cov(draws.T)
    assert draws.mean() == pytest.approx(5, abs=0.2)
    assert covariance[0, 0] == pytest.approx(4, rel=0.15)
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert correlation == pytest.approx((1 + np.sqrt(3)) * np.exp(-np.sqrt(3)), abs=0.08)
    np.testing.assert_array_equal(drawn(DrawSettings(**prior, seed=7))(places), draws[7])


def test_a_field_shared_by_environments_is_read_only():
    field, again = (build_field({"gp": {"seed": 3}}, 50) for _ in range(2))
    assert field is again
    for array in (field.sites, field.points, field.argmax, field.low, field.high):
        with pytest.raises(ValueError, match="read-only"):
            array += 1.0


def test_after_a_kernel_is_replaced_under_its_name_a_field_is_drawn_again(monkeypatch):
    monkeypatch.setattr("swarmbo.kernels.registry._OWN", {})
    tops = set()
    for rate in (1.0, 4.0):
        bell = partial(lambda r, rate, by: by * np.exp(-0.5 * rate * r**2), rate=rate)
        own = {"correlation": partial(bell, by=1.0), "slope": partial(bell, by=rate)}
        sb.register_kernel("bell", **own, frequencies=lambda rng, *shape, by=rate**0.5: by * rng.normal(size=shape))
        tops.add(build_field({"gp": {"kernel": "bell"}}, 50).maximum)
    assert len(tops) == 2


@pytest.mark.parametrize("table", [{"gp": {"lengthscale_m": 300.0, "seed": 1}}, {"elevation": "topobathy"}])
def test_no_place_is_above_the_maximum(table):
    field = build_field(table, 500)
    assert (field.low == 0.0).all()
    assert field.value(lattice(field.low, field.high, 20_000)).max() <= field.maximum + 1e-9
    assert field.value(field.argmax[None])[0] == field.maximum


@pytest.mark.parametrize(("seed", "time"), [(2, None), (1, {"lengthscale_rounds": 3.0})])
def test_no_site_or_point_is_above_the_maximum_of_a_rough_field(seed, time):
    rough = {"kernel": "matern12", "lengthscale_m": 50.0, "size_m": [500.0, 400.0], "seed": seed, "time": time}
    field = build_field({"gp": rough}, 200, moving=True)
    for number in range(4):
        now = field.at(number)
        assert max(now.value(now.sites).max(), now.value(now.points).max()) <= now.maximum + 1e-9
        assert now.value(now.argmax[None])[0] == now.maximum


def test_the_summit_of_a_known_hill_is_found_between_lattice_points():
    centre = np.array([31.7, 12.3])
    low, high = np.zeros(2), np.array([50.0, 20.0])
    value, place = summit(lambda X: 100 - ((X - centre) ** 2).sum(axis=1), lattice(low, high, 30), low, high)
    assert value == pytest.approx(100, abs=1e-6)
    np.testing.assert_allclose(place, centre, atol=1e-2)


@pytest.mark.parametrize("n_points", [4, 7, 100, 333])
@pytest.mark.parametrize("size", [(1, 1), (100, 1), (1, 30)])
def test_a_lattice_never_exceeds_its_cap_and_includes_the_corners(n_points, size):
    high = np.array(size, dtype=float)
    places = lattice(np.zeros(2), high, n_points)
    assert 4 <= len(places) <= n_points
    assert {tuple(corner) for corner in ([0, 0], high, [high[0], 0], [0, high[1]])} <= {tuple(p) for p in places}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"lengthscale_m": 0}, r"\$\.field\.gp\.lengthscale_m: got 0; wanted a length from 1e-6 to 1e12 m"),
        ({"mean": -1e200}, r"\$\.field\.gp\.mean: got -1e\+200; wanted a number from -1e12 to 1e12"),
        ({"size_m": [1e-300, 5]}, r"\$\.field\.gp\.size_m: got .*; wanted width and height from 1e-6 to 1e12 m"),
        ({"mean": float("nan")}, r"\$\.field\.gp\.mean"),
        ({"kernel": "matern"}, r"\$\.field\.gp\.kernel"),
        ({"size_m": [0, 5]}, r"\$\.field\.gp\.size_m"),
        ({"size_m": [5]}, r"\$\.field\.gp\.size_m"),
        ({"size_m": [1e-6, 1e12]}, r"\$\.field\.gp\.size_m: .*neither a million times the other"),
        ({"size_m": [1e3, 1e3], "lengthscale_m": 1e-4}, r"\$\.field\.gp\.lengthscale_m: .*from 0\.001 to 1e\+09 m"),
        ({"sede": 1}, r"\$\.field\.gp: unknown key 'sede'; did you mean 'seed'"),
    ],
)
def test_bad_priors_are_refused_with_the_path(table, message):
    with pytest.raises(ConfigError, match=message):
        build_field({"gp": table}, 100)


@pytest.mark.parametrize(("share", "std"), [(1e-6, 1e12), (1e6, 1e-12)])
@pytest.mark.parametrize(
    "size_m",
    [[1e-6, 1e-6], [1.1e6, 1e12], *(pytest.param(s, marks=pytest.mark.slow) for s in ([1e-6, 0.9], [1e12, 1e12]))],
)
def test_priors_at_the_ends_of_their_ranges_are_drawn(share, std, size_m):
    lengthscale_m = float(np.clip(share * max(size_m), 1e-6, 1e12))
    prior = {"lengthscale_m": lengthscale_m, "std": std, "size_m": size_m, "mean": -1e12}
    field = build_field({"gp": prior}, 100)
    assert np.isfinite(field.value(field.points)).all()
    assert np.isfinite([field.maximum, field.minimum, *field.argmax]).all()


@pytest.mark.parametrize("table", [{}, {"elevation": "jacksboro", "gp": {}}, {"cvs": "a.csv"}])
def test_a_field_with_no_kind_or_several_kinds_is_refused(table):
    with pytest.raises(
        ConfigError, match=r"field: .*exactly one of the keys 'elevation', 'csv', 'raster', 'gp', 'survey'"
    ):
        build_field(table, 100)


@pytest.fixture(scope="module")
def raw():
    with np.load(get_sample_data("jacksboro_fault_dem.npz", asfileobj=False)) as data:
        return data["elevation"].astype(float)


def test_the_default_window_has_the_summit_of_the_whole_model_and_other_peaks(raw):
    field = build_field(None, 16_384)
    assert field.maximum == raw.max()
    assert field.value(field.argmax[None])[0] == field.maximum
    cells = field.value(field.sites).reshape(128, 128)
    inner = cells[1:-1, 1:-1]
    around = [cells[1 + i : 127 + i, 1 + j : 127 + j] for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
    peaks = (inner > np.max(around, axis=0)) & (inner > 0.9 * field.maximum)
    assert peaks.sum() >= 5


def test_sites_are_the_cells_with_north_up(raw):
    field = elevation_field(ElevationSettings(elevation="jacksboro", window=(10, 20, 5, 7)), 1000)
    assert field.sites.shape == (35, 2)
    values = {tuple(site): value for site, value in zip(field.sites, field.value(field.sites), strict=True)}
    north_west = values[field.low[0], field.high[1]]
    south_east = values[field.high[0], field.low[1]]
    assert north_west == raw[10, 20]
    assert south_east == raw[14, 26]


def test_cells_have_the_size_of_three_arc_seconds():
    field = elevation_field(ElevationSettings(elevation="jacksboro", window=(0, 0, 2, 2)), 100)
    width, height = field.high
    assert height == pytest.approx(3 / 3600 * 40_030_000 / 360, rel=1e-3)  # the Earth's circumference is 40,030 km
    assert width == pytest.approx(height * np.cos(np.radians(36.7)), rel=2e-3)


def test_between_cells_the_field_is_bilinear(raw):
    field = elevation_field(ElevationSettings(elevation="jacksboro", window=(50, 60, 4, 4)), 100)
    corner = field.high / 3
    u, v = 0.3, 0.8
    corners = raw[50:54, 60:64][::-1][1:3, 1:3]
    expected = (1 - v) * ((1 - u) * corners[0, 0] + u * corners[0, 1]) + v * (
        (1 - u) * corners[1, 0] + u * corners[1, 1]
    )
    assert field.value((corner * (1 + np.array([u, v])))[None])[0] == pytest.approx(expected)


def test_topobathy_has_mountains_in_the_north_east_and_the_ocean_in_the_south_west():
    field = build_field({"elevation": "topobathy"}, 16_384)
    share = np.stack(np.meshgrid(np.linspace(0, 1, 20), np.linspace(0, 1, 20)), -1).reshape(-1, 2)
    corner = 0.15 * field.high * share
    assert field.value(field.high - corner).mean() > 500  # the Coast Mountains
    assert field.value(corner).mean() < -100  # the Pacific
    assert load_elevation("topobathy")[1].max() == field.maximum


@pytest.mark.parametrize(("max_sites", "n_sites"), [(16_384, 128**2), (16_383, 64**2), (4096, 64**2), (4095, 43**2)])
def test_max_sites_sets_the_stride_of_the_lattice(max_sites, n_sites):
    assert len(build_field({"elevation": "jacksboro"}, max_sites).sites) == n_sites


@pytest.mark.parametrize("window", [[-1, 0, 10, 10], [0, 0, 1, 10], [340, 0, 10, 10], [0, 400, 10, 10], [0, 0, 345, 9]])
def test_a_window_outside_the_model_is_refused(window):
    with pytest.raises(ConfigError, match=r"\$\.field\.window: got \[.*wanted .*344 x 403"):
        build_field({"elevation": "jacksboro", "window": window}, 1000)
