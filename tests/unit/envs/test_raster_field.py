"""Rasters as fields: where their cells lie on Earth, against formulas that share nothing with the projection."""

import json

import numpy as np
import pytest

from swarmbo.errors import ConfigError, MissingPackageError
from swarmbo_envs import robot_team_v0, robot_team_v1

rasterio = pytest.importorskip("rasterio")
MEAN_RADIUS_M = 6_371_008.8


@pytest.fixture
def tiff(tmp_path):
    def write(values, west, north, cell, crs="EPSG:4326", name="dem.tif", **more):
        path = tmp_path / name
        values = np.asarray(values, dtype="float32")
        shape = {"height": values.shape[0], "width": values.shape[1], "count": 1, "dtype": "float32"}
        transform = rasterio.Affine(cell, 0.0, west, 0.0, -cell, north)
        with rasterio.open(path, "w", driver="GTiff", transform=transform, crs=crs, **shape, **more) as file:
            file.write(values, 1)
        return str(path)

    return write


def haversine(a, b):
    """Distance of places (longitude, latitude) on a sphere, m: within 0.6 % of that on the ellipsoid."""
    (lon, lat), (lon2, lat2) = np.radians(a).T, np.radians(b).T
    h = np.sin((lat2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat2) * np.sin((lon2 - lon) / 2) ** 2
    return 2 * MEAN_RADIUS_M * np.arcsin(np.sqrt(h))


@pytest.mark.parametrize(("west", "north"), [(8.0, 47.5), (-70.3, -33.0), (179.9, 65.0)])
def test_degrees_become_metres_and_each_value_stays_where_it_was(tiff, west, north):
    generator = np.random.default_rng(0)
    values = generator.random((40, 60)).cumsum(axis=0).cumsum(axis=1)
    env = robot_team_v0.parallel_env(field={"raster": tiff(values, west, north, 0.01)})
    field = env.field
    a, b = (generator.uniform(field.low, field.high, (50, 2)) for _ in range(2))
    there = [field.projection.degrees(X) for X in (a, b)]
    np.testing.assert_allclose(np.hypot(*(a - b).T), haversine(*there), rtol=7e-3)
    lon = np.where(there[0][:, 0] < west, there[0][:, 0] + 360, there[0][:, 0])
    column, row = (lon - west) / 0.01 - 0.5, (north - there[0][:, 1]) / 0.01 - 0.5
    left, top = np.floor(column).astype(int), np.floor(row).astype(int)
    x, y = column - left, row - top
    upper = values[top, left] * (1 - x) + values[top, left + 1] * x
    lower = values[top + 1, left] * (1 - x) + values[top + 1, left + 1] * x
    np.testing.assert_allclose(field.value(a), upper * (1 - y) + lower * y, rtol=1e-5)
    assert "projected" in field.name
    assert field.maximum >= field.value(field.points).max()


def test_a_raster_in_metres_or_feet_is_taken_as_it_is(tiff):
    values = np.arange(12.0).reshape(3, 4)
    metres = robot_team_v0.parallel_env(field={"raster": tiff(values, 500_000, 5_200_000, 10.0, "EPSG:32632")}).field
    np.testing.assert_array_equal(metres.high, [30.0, 20.0])
    np.testing.assert_allclose(metres.value(np.array([[0.0, 0.0], [30.0, 20.0], [5.0, 20.0]])), [8.0, 3.0, 0.5])
    assert "EPSG:32632" in metres.name
    assert (metres.maximum, metres.argmax.tolist()) == (11.0, [30.0, 0.0])
    feet = robot_team_v0.parallel_env(field={"raster": tiff(values, 0, 0, 100.0, "EPSG:2272", "feet.tif")}).field
    np.testing.assert_allclose(feet.high, np.array([300.0, 200.0]) * 1200 / 3937)


def test_regions_in_degrees_lie_where_they_should_on_a_projected_raster(tiff, tmp_path):
    path = tmp_path / "lake.geojson"
    ring = [[8.1, 47.2], [8.2, 47.2], [8.2, 47.3], [8.1, 47.3], [8.1, 47.2]]
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    raster = tiff(np.random.default_rng(1).random((50, 50)), 8.0, 47.5, 0.01)
    env = robot_team_v1.parallel_env(field={"raster": raster}, no_go=[{"geojson": str(path)}])
    inside = env.field.projection.metres(np.array([[8.15, 47.25], [8.3, 47.25]]))
    assert env.ground.is_free(inside).tolist() == [False, True]


def test_what_is_refused(tiff, monkeypatch):
    values = np.ones((4, 5))

    def make(path, **more):
        return robot_team_v0.parallel_env(field={"raster": path, **more})

    with pytest.raises(ConfigError, match=r"\$\.field\.raster: got .* \(no CRS\); wanted one: `gdal_edit"):
        make(tiff(values, 8.0, 47.0, 0.01, crs=None))
    holes = values.copy()
    holes[1, 2] = -1
    with pytest.raises(ConfigError, match="1 cells without a value"):
        make(tiff(holes, 8.0, 47.0, 0.01, nodata=-1))
    with pytest.raises(ConfigError, match=r"got band 2 of .*; wanted one from 1 to 1"):
        make(tiff(values, 8.0, 47.0, 0.01), band=2)
    with pytest.raises(ConfigError, match="cannot be read"):
        make("nowhere.tif")
    monkeypatch.setitem(__import__("sys").modules, "rasterio", None)
    with pytest.raises(MissingPackageError, match=r"swarmbo\[geo\]"):
        make("dem.tif")


def test_a_state_is_of_the_data_and_not_of_the_path(tiff):
    values = np.random.default_rng(0).random((5, 6))
    one, same = (robot_team_v0.parallel_env(field={"raster": tiff(values, 8.0, 47.0, 0.01, name=n)}) for n in "ab")
    other = robot_team_v0.parallel_env(field={"raster": tiff(values + 1, 8.0, 47.0, 0.01, name="c")})
    one.reset(seed=0)
    same.set_state(one.get_state())
    with pytest.raises(ValueError, match="another world"):
        other.set_state(one.get_state())
