import numpy as np
import pytest
from matplotlib.cbook import get_sample_data

from swarmbo.errors import ConfigError
from swarmbo_envs.fields.landscape import build_field, elevation_field, load
from swarmbo_envs.fields.settings import ElevationSettings


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


def test_no_place_on_the_map_is_above_the_maximum():
    field = build_field({"elevation": "topobathy"}, 16_384)
    X = np.random.default_rng(0).uniform(field.low, field.high, size=(5000, 2))
    assert field.value(X).max() <= field.maximum
    assert (field.low == 0).all()
    assert load("topobathy")[1].max() == field.maximum


def test_topobathy_lies_with_its_mountains_in_the_north_east_and_the_ocean_in_the_south_west():
    field = build_field({"elevation": "topobathy"}, 16_384)
    share = np.stack(np.meshgrid(np.linspace(0, 1, 20), np.linspace(0, 1, 20)), -1).reshape(-1, 2)
    corner = 0.15 * field.high * share
    assert field.value(field.high - corner).mean() > 500  # the Coast Mountains
    assert field.value(corner).mean() < -100  # the Pacific


@pytest.mark.parametrize(("max_sites", "n_sites"), [(16_384, 128**2), (16_383, 64**2), (4096, 64**2), (4095, 43**2)])
def test_max_sites_strides_the_lattice(max_sites, n_sites):
    assert len(build_field({"elevation": "jacksboro"}, max_sites).sites) == n_sites


@pytest.mark.parametrize("window", [[-1, 0, 10, 10], [0, 0, 1, 10], [340, 0, 10, 10], [0, 400, 10, 10], [0, 0, 345, 9]])
def test_a_window_outside_the_model_is_refused(window):
    with pytest.raises(ConfigError, match=r"\$\.field\.window: got \[.*wanted .*344 x 403"):
        build_field({"elevation": "jacksboro", "window": window}, 1000)
