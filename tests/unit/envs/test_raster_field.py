"""Rasters as fields: the positions of cells on Earth, compared with formulas independent of the projection."""

import json
import warnings
from itertools import pairwise

import numpy as np
import pytest

from swarmbo.boundary.coordinates import Coordinates, LocalProjection, holds
from swarmbo.errors import ConfigError, DataWarning, MissingPackageError
from swarmbo_envs import robot_team_v0, robot_team_v1, sensor_field_v0
from swarmbo_envs.ground import Region

rasterio = pytest.importorskip("rasterio")
pytestmark = pytest.mark.filterwarnings("ignore:.*have no value and are no-go:swarmbo.errors.DataWarning")
MEAN_RADIUS_M = 6_371_008.8


@pytest.fixture
def tiff(tmp_path):
    def write(values, west, north, cell, crs="EPSG:4326", name="dem.tif", scale=1.0, offset=0.0, **more):
        path = tmp_path / name
        values = np.asarray(values)
        values = values.astype("complex64" if np.iscomplexobj(values) else "float32")
        shape = {"height": values.shape[0], "width": values.shape[1], "count": 1, "dtype": values.dtype}
        transform = rasterio.Affine(cell, 0.0, west, 0.0, -cell, north)
        with rasterio.open(path, "w", driver="GTiff", transform=transform, crs=crs, **shape, **more) as file:
            file.write(values, 1)
            file.scales, file.offsets = [scale], [offset]
        return str(path)

    return write


def haversine(a, b):
    """Distance in m between places (longitude, latitude) on a sphere, within 0.6 % of that on the ellipsoid."""
    (lon, lat), (lon2, lat2) = np.radians(a).T, np.radians(b).T
    h = np.sin((lat2 - lat) / 2) ** 2 + np.cos(lat) * np.cos(lat2) * np.sin((lon2 - lon) / 2) ** 2
    return 2 * MEAN_RADIUS_M * np.arcsin(np.sqrt(h))


@pytest.mark.parametrize(("west", "north"), [(-70.3, -33.0), (179.9, 65.0)])
def test_degrees_become_metres_and_each_value_keeps_its_place_on_earth(tiff, west, north):
    generator = np.random.default_rng(0)
    values = generator.random((40, 60)).cumsum(axis=0).cumsum(axis=1)
    env = robot_team_v0.parallel_env(field={"raster": tiff(values, west, north, 0.01)})
    field = env.field
    a, b = (generator.uniform(field.low, field.high, (50, 2)) for _ in range(2))
    there = [field.coordinates.projection.degrees(X) for X in (a, b)]
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


def test_a_raster_in_metres_or_feet_is_not_projected(tiff):
    values = np.arange(12.0).reshape(3, 4)
    metres = robot_team_v0.parallel_env(field={"raster": tiff(values, 500_000, 5_200_000, 10.0, "EPSG:32632")}).field
    np.testing.assert_array_equal(metres.high, [30.0, 20.0])
    np.testing.assert_allclose(metres.value(np.array([[0.0, 0.0], [30.0, 20.0], [5.0, 20.0]])), [8.0, 3.0, 0.5])
    assert "EPSG:32632" in metres.name
    assert (metres.maximum, metres.argmax.tolist()) == (11.0, [30.0, 0.0])
    feet = robot_team_v0.parallel_env(field={"raster": tiff(values, 0, 0, 100.0, "EPSG:2272", "feet.tif")}).field
    np.testing.assert_allclose(feet.high, np.array([300.0, 200.0]) * 1200 / 3937)


def test_regions_in_degrees_are_placed_correctly_on_a_raster_in_degrees(tiff, tmp_path):
    path = tmp_path / "lake.geojson"
    ring = [[8.1, 47.2], [8.2, 47.2], [8.2, 47.3], [8.1, 47.3], [8.1, 47.2]]
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    raster = tiff(np.random.default_rng(1).random((50, 50)), 8.0, 47.5, 0.01)
    env = robot_team_v1.parallel_env(field={"raster": raster}, no_go=[{"geojson": str(path)}])
    inside = env.field.coordinates.projection.metres(np.array([[8.15, 47.25], [8.3, 47.25]]))
    assert env.ground.is_free(inside).tolist() == [False, True]


@pytest.mark.parametrize("stated", [{}, {"coordinates": "degrees"}])
def test_regions_in_degrees_are_placed_correctly_on_a_raster_in_a_projected_system(tiff, tmp_path, stated):
    """Zone 32 N is a transverse Mercator projection around 9° E, scaled by 0.9996, with a false easting of 500 km."""
    corner, zone = np.array([500_050.0, 5_196_050.0]), LocalProjection(9.0, 0.0, 0.0)  # of the map: a cell's centre
    ring = corner + np.array([[1000.0, 900.0], [2000.0, 900.0], [2000.0, 1900.0], [1000.0, 1900.0]])
    path = tmp_path / "lake.geojson"
    in_degrees = zone.degrees((ring - [500_000.0, 0.0]) / 0.9996).tolist()
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [in_degrees]}))
    raster = tiff(np.random.default_rng(2).random((40, 50)), 500_000, 5_200_000, 100.0, "EPSG:32632")
    env = robot_team_v1.parallel_env(field={"raster": raster}, no_go=[{"geojson": str(path), **stated}])
    np.testing.assert_allclose(env.no_go()[0][0], ring - corner, atol=0.01)


MOON = "+proj=stere +lat_0=-90 +R=1737400 +units=m"


@pytest.mark.parametrize(
    ("crs", "west", "north", "cell"),
    [
        ("EPSG:4326", 9.0, 48.0, 0.01),
        ("EPSG:4326", 200.0, 48.0, 0.01),
        ("EPSG:32632", 500_000.0, 5_400_000.0, 100.0),
        ("EPSG:3832", 3.33e6, -1.9e6, 2000.0),  # across the date line
        ("EPSG:3031", -15e4, 10e4, 10_000.0),  # around the South Pole
        (MOON, -1000.0, 1000.0, 50.0),
        ("IAU_2015:49930", -1000.0, 1000.0, 50.0),  # on Mars
    ],
)
def test_corners_in_degrees_are_refused_on_each_map_of_the_earth_and_corners_in_metres_on_none(
    tiff, tmp_path, crs, west, north, cell
):
    field = {"raster": tiff(np.random.default_rng(0).random((20, 30)), west, north, cell, crs)}
    env = robot_team_v1.parallel_env(field=field)
    corners = np.array([[0.2, 0.2], [0.6, 0.2], [0.6, 0.6]]) * env.field.high
    assert len(robot_team_v1.parallel_env(field=field, no_go=[{"corners": corners.tolist()}]).no_go()) == 1
    is_earth = crs.startswith("EPSG")
    degrees = env.field.coordinates.lon_lat(corners)
    assert (degrees is not None) == is_earth
    speck = [[1.0, 2.0], [1.2, 2.0], [1.2, 2.1]]
    assert len(robot_team_v1.parallel_env(field=field, no_go=[{"corners": speck}]).no_go()) == 1
    if is_earth:
        for turn in (0.0, 360.0 if west == 200.0 else 0.0):
            around = degrees[1] + np.array([[turn, 0.0], [turn + 0.01, 0.0], [turn + 0.01, 0.01]])
            with pytest.raises(ConfigError, match="which lie on the map if they are degrees; wanted m"):
                robot_team_v1.parallel_env(field=field, no_go=[{"corners": around.tolist()}])
        return
    path = tmp_path / "p.geojson"
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [[*speck, speck[0]]]}))
    with pytest.raises(ConfigError, match="have no coordinates in"):
        robot_team_v1.parallel_env(field=field, no_go=[{"geojson": str(path), "coordinates": "degrees"}])


@pytest.mark.parametrize(("first", "last", "held"), [(-180.0, 180.0, 360), (-90.0, 90.0, 180), (179.0, -179.0, 2)])
def test_a_polygon_of_180_or_360_degrees_holds_its_longitudes_around_a_pole(first, last, held):
    coordinates = Coordinates(("x", "y"), None, "EPSG:3031")
    cap = np.array([[first, -60.0], [last, -60.0], [last, -89.0], [first, -89.0]])
    polygon = coordinates.of_ring(cap, 6e6, "$")
    around = np.column_stack([np.arange(-179.5, 180.0), np.full(360, -75.0)])
    places = np.column_stack(rasterio.warp.transform("EPSG:4326", "EPSG:3031", *around.T))
    is_within = holds([polygon], places)
    assert is_within.sum() == held
    assert is_within[0] == (held != 180)


@pytest.mark.parametrize("kind", ["array", "GeoTIFF", "elevation"])
def test_a_mask_with_the_cells_of_the_field_s_raster_lies_on_them(tiff, tmp_path, kind):
    mask, depth = np.zeros((10, 10), dtype=bool), np.random.default_rng(0).random((10, 10))
    mask[2:7, 8] = True
    np.save(tmp_path / "mask.npy", mask)
    np.save(tmp_path / "depth.npy", depth)
    field = {
        "array": {"raster": str(tmp_path / "depth.npy"), "cell_m": 100.0},
        "GeoTIFF": {"raster": tiff(depth, 500_000, 5_200_000, 100.0, "EPSG:32632")},
        "elevation": {"elevation": "jacksboro", "window": [0, 0, 10, 10]},
    }[kind]
    made = [robot_team_v1.parallel_env(field=field, no_go=[{"raster": str(tmp_path / "mask.npy")}])]
    half = made[0].field.high / 18.0  # of a cell: the map joins the centres of ten
    extent = [*(-half).tolist(), *(made[0].field.high + half).tolist()]
    made.append(
        robot_team_v1.parallel_env(field=field, no_go=[{"raster": str(tmp_path / "mask.npy"), "extent": extent}])
    )
    np.testing.assert_array_equal(made[0].ground.blocked, made[1].ground.blocked)
    centre = np.array([16.0, 10.0]) * half
    assert made[0].ground.is_free(centre + np.array([[0.9, 0.0], [-0.9, 0.0], [1.2, 0.0]]) * half).tolist() == [
        *(False, False, True)
    ]


@pytest.mark.parametrize(("crs", "unit_m"), [("EPSG:32632", 1.0), ("EPSG:2272", 1200 / 3937)])
def test_a_raster_of_regions_is_aligned_with_the_field_on_earth(tiff, crs, unit_m):
    """The map begins at the centre of the field's south-west cell."""
    field = {"raster": tiff(np.random.default_rng(2).random((40, 50)), 500_000, 5_200_000, 100.0, crs)}
    lake = np.zeros((6, 4))
    lake[1:3, 2] = -1.0  # 100 to 300 south of its north edge, 200 to 300 east of its west edge
    regions = tiff(lake, 501_000, 5_199_000, 100.0, crs, "lake.tif", nodata=-1.0)
    env = robot_team_v1.parallel_env(field=field, no_go=[{"raster": regions}], route_cells=200)
    corner = np.array([500_050.0, 5_196_050.0])
    wet, dry = np.array([[501_250.0, 5_198_800.0]]), np.array([[501_150.0, 5_198_800.0], [501_250.0, 5_199_100.0]])
    assert not env.ground.is_free((wet - corner) * unit_m).any()
    assert env.ground.is_free((dry - corner) * unit_m).all()
    elsewhere = tiff(lake, 9.0, 47.0, 0.01, "EPSG:32633", "other.tif", nodata=-1.0)
    with pytest.raises(ConfigError, match=rf"no_go\[0\].extent: got a raster in EPSG:32633 on a map in {crs}"):
        robot_team_v1.parallel_env(field=field, no_go=[{"raster": elsewhere}])


def test_invalid_rasters_and_settings_are_refused(tiff, monkeypatch):
    values = np.ones((4, 5))

    def make(path, **more):
        return robot_team_v0.parallel_env(field={"raster": path, **more})

    with pytest.raises(ConfigError, match=r"\.raster: .* without a coordinate reference system; .* `gdal_edit"):
        make(tiff(values, 8.0, 47.0, 0.01, crs=None))
    with pytest.raises(ConfigError, match=r"\$\.field\.cell_m: got cells of 10.0 m for a GeoTIFF; wanted none"):
        robot_team_v0.parallel_env(field={"raster": tiff(values, 8.0, 47.0, 0.01), "cell_m": 10.0})
    with pytest.raises(ConfigError, match=r"got band 2 of .*; wanted one from 1 to 1"):
        make(tiff(values, 8.0, 47.0, 0.01), band=2)
    with pytest.raises(ConfigError, match=r"\.raster: got complex numbers in band 1 of .*; wanted real ones"):
        make(tiff(values + 1j, 8.0, 47.0, 0.01))
    with pytest.raises(ConfigError, match="cannot be read"):
        make("nowhere.tif")
    monkeypatch.setitem(__import__("sys").modules, "rasterio", None)
    with pytest.raises(MissingPackageError, match=r"swarmbo\[geo\]"):
        make("dem.tif")


def test_a_state_depends_on_the_data_and_not_on_the_path(tiff):
    values = np.random.default_rng(0).random((5, 6))
    one, same = (robot_team_v0.parallel_env(field={"raster": tiff(values, 8.0, 47.0, 0.01, name=n)}) for n in "ab")
    other = robot_team_v0.parallel_env(field={"raster": tiff(values + 1, 8.0, 47.0, 0.01, name="c")})
    one.reset(seed=0)
    same.set_state(one.get_state())
    with pytest.raises(ValueError, match="another environment"):
        other.set_state(one.get_state())


def bay(rows=40, columns=50):
    """Heights that rise to the north-east, with a bay of cells without values that extends from the west edge."""
    values = np.add.outer(np.arange(rows)[::-1], np.arange(columns)).astype(float)
    values[12:25, :30] = np.nan
    values[30, 40] = np.nan  # and a hole of one cell
    return values


def between_known(values, cell, places):
    """Mask of places with values in all four cells around them. The map begins at the centre of the south-west cell."""
    rows = values[::-1]
    x, y = places.T / cell
    column = np.minimum(np.floor(x), rows.shape[1] - 2).astype(int)
    row = np.minimum(np.floor(y), len(rows) - 2).astype(int)
    return np.isfinite([rows[row + i, column + j] for i in (0, 1) for j in (0, 1)]).all(axis=0)


@pytest.mark.parametrize("kind", ["array", "metres", "mark"])
@pytest.mark.parametrize("version", [robot_team_v0, robot_team_v1])
def test_robots_avoid_cells_without_data_and_scores_ignore_them(tiff, tmp_path, kind, version):
    values = bay()
    if kind == "array":
        np.save(tmp_path / "bay.npy", values)
        field = {"raster": str(tmp_path / "bay.npy"), "cell_m": 20.0}
    else:  # by the nodata value of the file, or by a usual mark that the file does not state
        named = {"nodata": -7.0} if kind == "metres" else {}
        holes = np.where(np.isnan(values), named.get("nodata", -9999.0), values)
        field = {"raster": tiff(holes, 500_000, 5_200_000, 20.0, "EPSG:32632", **named)}
    with pytest.warns(DataWarning, match=r"\$\.field\.raster: 391 of 2,000 cells of .* have no value and are no-go"):
        env = version.parallel_env(field=field, robots=2, noise_std=0.0, max_cycles=6)
    _, infos = env.reset(seed=1)
    truth, generator = env.ground_truth(), np.random.default_rng(0)
    for known in (env.sites(), truth.points, truth.argmax[None]):
        assert between_known(values, 20.0, known).all()
    anywhere = generator.uniform(0, env.field.high, (4000, 2))
    known = between_known(values, 20.0, anywhere)
    assert env.ground.is_free(anywhere[known]).mean() > 0.9  # only cells of the ground at the shore are lost
    assert env.no_go()
    assert env.field.maximum == pytest.approx(39 + 49, abs=3)
    while env.agents:
        actions = {agent: generator.uniform(0, env.field.high) for agent in env.agents}
        _, _, _, _, infos = env.step(actions)
        for robot, info in enumerate(infos.values()):
            assert between_known(values, 20.0, info["location"][None]).all()
            trail = env._current().trails[robot]
            along = np.concatenate([a + np.linspace(0, 1, 50)[:, None] * (b - a) for a, b in pairwise(trail)])
            assert between_known(values, 20.0, along).all()
            x, y = info["location"] / 20.0
            assert info["measurement"] == pytest.approx(x + y, abs=1e-4)  # a plane, wherever values are known


def test_no_site_lies_in_a_gap_of_a_projected_raster(tiff):
    """All four cells around each site, found by its position on Earth, have values."""
    values, west, north, cell = bay(), 24.0, 60.4, 0.01
    raster = tiff(np.where(np.isnan(values), -1.0, values), west, north, cell, nodata=-1.0)
    env = robot_team_v1.parallel_env(field={"raster": raster})
    sites = env.sites()
    lon, lat = env.field.coordinates.projection.degrees(sites).T
    own = np.column_stack([lon - west - cell / 2, lat - (north - 39.5 * cell)])
    assert len(sites) > 8000
    assert between_known(values, cell, own).all()


def test_the_user_can_state_which_numbers_are_missing_values(tmp_path):
    values = np.add.outer(np.arange(20.0), np.arange(20.0))
    values[3, 3], values[9, 9] = -99.0, 1e30
    np.save(tmp_path / "a.npy", values)
    field = {"raster": str(tmp_path / "a.npy"), "cell_m": [20.0, 10.0]}
    with pytest.warns(DataWarning, match=r"2 of 400 cells .*: 1 with -99; 1 with 1e\+30 \(missing = \[\] takes all"):
        assert robot_team_v0.parallel_env(field=field).field.high.tolist() == [380.0, 190.0]
    with pytest.warns(DataWarning, match="1 of 400 cells .*: 1 with 1e"):
        env = robot_team_v0.parallel_env(field={**field, "missing": [1e30]})
    assert env.ground_truth().values.min() < -30.0  # the site nearest to the cell with -99
    assert robot_team_v0.parallel_env(field={**field, "missing": []}).ground.is_open


def test_rasters_without_room_for_robots_are_refused(tmp_path):
    path = str(tmp_path / "a.npy")
    np.save(path, np.where(np.eye(6, dtype=bool), 1.0, np.nan))
    with pytest.raises(ConfigError, match=r"\$\.field\.cell_m: got .*, an array, .*; wanted their width in m"):
        robot_team_v0.parallel_env(field={"raster": path})
    with pytest.raises(ConfigError, match=r"\.raster: got .* 6 with a value; wanted at least 2 x 2 adjacent"):
        robot_team_v0.parallel_env(field={"raster": path, "cell_m": 5.0})
    speckled = np.ones((300, 300))
    speckled[::3, ::3] = np.nan
    np.save(path, speckled)
    with pytest.raises(ConfigError, match=r"\$\.field: got no-go regions that cover the map"):
        robot_team_v0.parallel_env(field={"raster": path, "cell_m": 5.0})
    np.save(path, bay())
    with pytest.raises(ConfigError, match=r"\$\.starts\[0\]: got \[100.0, 400.0\] in a no-go region"):
        robot_team_v0.parallel_env(field={"raster": path, "cell_m": 20.0}, robots=1, starts=[[100.0, 400.0]])


@pytest.mark.filterwarnings("error::swarmbo.errors.DataWarning")
def test_fixed_sensors_refuse_a_raster_with_gaps(tmp_path):
    path = str(tmp_path / "bay.npy")
    np.save(path, bay())
    refused = r"\$\.field\.raster: got .* with 391 of 2,000 cells that have no value \(391 without a number\); wanted"
    with pytest.raises(ConfigError, match=refused):
        sensor_field_v0.parallel_env(field={"raster": path, "cell_m": 20.0})


def test_scattered_cells_are_drawn_as_few_rings():
    marked = np.random.default_rng(0).random((400, 300)) < 0.1
    rings = Region.of_cells(marked, (0.0, 0.0, 300.0, 400.0)).rings
    assert 0 < len(rings) <= 300
    one = np.zeros((40, 30), dtype=bool)
    one[10:20, 5:15] = True
    (ring,) = Region.of_cells(one, (0.0, 0.0, 300.0, 400.0)).rings
    np.testing.assert_allclose([ring.min(axis=0), ring.max(axis=0)], [[50.0, 100.0], [150.0, 200.0]])


def test_scale_and_offset_of_a_band_are_applied_after_gaps_are_found(tiff):
    packed = np.arange(12.0).reshape(3, 4)
    packed[0, 0] = -9999
    at = ("EPSG:32632", "dem.tif", 0.1, 5.0)
    with pytest.warns(DataWarning, match="1 without a number"):
        env = robot_team_v0.parallel_env(field={"raster": tiff(packed, 5e5, 52e5, 10.0, *at, nodata=-9999)})
    np.testing.assert_allclose(env.field.value(np.array([[0.0, 0.0], [30.0, 0.0]])), [5.8, 6.1])
    assert env.field.maximum == pytest.approx(6.1)


def test_a_large_value_near_the_others_is_no_mark_and_one_far_from_them_is_doubtful(tmp_path):
    def caught(values):
        np.save(tmp_path / "own.npy", values)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            robot_team_v0.parallel_env(field={"raster": str(tmp_path / "own.npy"), "cell_m": 10.0})
        return [str(each.message) for each in found]

    heights = np.linspace(300.0, 999.9, 2000).reshape(40, 50)
    assert not caught(heights)
    heights[3, 4] = 9999.0
    heights[heights < 9999.0] *= 5.0
    assert "holds 9999 in 1 of 2,000 cells" in caught(heights)[0]


@pytest.mark.parametrize("classes", [[0.0, 500.0], np.arange(100.0, 1000.0, 100.0), np.arange(0.0, 999.0, 0.3)])
def test_a_number_that_many_cells_of_a_raster_hold_may_be_a_mark(tiff, classes):
    values = np.random.default_rng(0).choice(classes, (60, 60))
    values[:20, :15] = 999.0
    with pytest.warns(DataWarning, match=r"holds 999 in 300 of 3,600 cells. It may mark a gap"):
        robot_team_v0.parallel_env(field={"raster": tiff(values, 500_000, 5_200_000, 10.0, "EPSG:32632")})
