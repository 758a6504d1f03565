"""Paths around no-go regions, compared with closed forms, dense samples and shortest paths on a grid."""

import json
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, strategies as st
from matplotlib.path import Path
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from swarmbo.boundary.coordinates import Coordinates, LocalProjection
from swarmbo.errors import ConfigError, DataWarning, MissingPackageError
from swarmbo_envs import robot_team_v1
from swarmbo_envs.ground import Ground, PathPlanner, read_regions
from swarmbo_envs.ground.grid import widest_closed_passage
from swarmbo_envs.robot_team.motion import Driver, Unicycle, advance, cut

LOW, HIGH = np.zeros(2), np.array([120.0, 100.0])
SQUARE = {"corners": [[40.0, 20.0], [80.0, 20.0], [80.0, 70.0], [40.0, 70.0]]}
ELL = {"corners": [[20, 20], [100, 20], [100, 80], [90, 80], [90, 30], [20, 30]]}


def ground(*tables, cells=120, **more):
    return Ground(LOW, HIGH, read_regions(tables, LOW, HIGH), cells, **more)


def test_the_shortest_path_around_a_square_passes_its_corners():
    planner = PathPlanner(ground(SQUARE), 2.0, 1.0)
    origin, place = np.array([[10.0, 40.0]]), np.array([[110.0, 30.0]])
    below = np.hypot(30, 20) + 40 + np.hypot(30, 10)
    assert planner.times_between(origin, place)[0, 0] == pytest.approx(below / 2.0, rel=0.03)
    assert planner.times_between(origin, place)[0, 0] >= below / 2.0
    assert planner.times_between(origin, origin + 5.0)[0, 0] == pytest.approx(np.hypot(5, 5) / 2.0)


def test_path_lengths_lie_between_the_straight_line_and_shortest_paths_on_the_grid():
    """Paths over the eight neighbours of a cell are up to 8.3 % longer than straight lines in free space."""
    free = ground(ELL, SQUARE, cells=60)
    rows, columns = free.blocked.shape
    number = np.arange(rows * columns).reshape(rows, columns)
    edges = []
    for dy, dx in ((0, 1), (1, 0), (1, 1), (1, -1)):
        here = np.s_[: rows - dy, max(0, -dx) : columns - max(0, dx)]
        there = np.s_[dy:, max(0, dx) : columns + min(0, dx)]
        ok = ~free.blocked[here] & ~free.blocked[there]
        if dx and dy:
            ok &= ~free.blocked[dy:, max(0, -dx) : columns - max(0, dx)] & ~free.blocked[: rows - dy, there[1]]
        length = float(np.hypot(dx * free.cell[0], dy * free.cell[1]))
        edges.append(np.column_stack([number[here][ok], number[there][ok], np.full(ok.sum(), length)]))
    i, j, d = np.concatenate(edges).T
    middles = np.stack(np.meshgrid(np.arange(columns) + 0.5, np.arange(rows) + 0.5), axis=-1) * free.cell
    some = np.flatnonzero(~free.blocked.ravel())[::97]
    steps = dijkstra(coo_array((d, (i.astype(int), j.astype(int))), shape=(rows * columns,) * 2), False, some)[:, some]
    places = middles.reshape(-1, 2)[some]
    own = PathPlanner(free, 1.0, 1.0).times_between(places, places)
    # planned bends lie a twentieth of a cell from a corner, but grid paths pass the centres of cells
    assert (own <= steps * 1.001 + 1e-9).all()
    assert (own >= steps / 1.083 - 4 * free.cell.max()).all()
    assert (own >= np.hypot(*(places[:, None] - places).transpose(2, 0, 1)) - 1e-9).all()


@given(st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4))
def test_a_visible_line_is_free_along_its_whole_length(ends):
    free = ground(ELL, SQUARE, cells=40)
    a, b = np.array(ends[:2]) * HIGH, np.array(ends[2:]) * HIGH
    along = a + np.linspace(0, 1, 5000)[:, None] * (b - a)
    cells = np.clip(np.floor(along / free.cell), 0, free.shape - 1).astype(int)
    hits = free.blocked[cells[:, 1], cells[:, 0]].any()
    seen = free.sees(a[None], b[None])[0]
    assert not (seen and hits)
    if not seen:  # then the line touches a blocked cell, perhaps at a corner between two samples
        near = np.concatenate([along + shift for shift in ((-0.1, -0.1), (0.1, 0.1), (-0.1, 0.1), (0.1, -0.1))])
        columns, rows = np.clip(np.floor(near / free.cell), 0, free.shape - 1).astype(int).T
        assert free.blocked[rows, columns].any()


WINDS = st.sampled_from([(0.0, 0.0), (0.8, -0.4)])


@given(st.tuples(*[st.floats(0.02, 0.98)] * 4), st.floats(-3.0, 3.0), st.floats(0.0, 1.0), WINDS)
def test_after_a_stop_on_the_way_home_the_new_path_is_no_longer_than_the_rest(ends, heading, share, wind):
    free = ground(ELL, SQUARE)
    start, base = np.array(ends[:2]) * HIGH, np.array(ends[2:]) * HIGH
    if not free.part_of(np.stack([start, base])).all():
        return
    driver = Driver(Unicycle(2.0, 0.5, LOW, HIGH), free, wind)
    home, pose = driver.planner.paths_to(base), np.array([*start, heading])
    path, whole = driver.return_path(home, pose), driver.planner.returns(home, pose[None])[0][0]
    assert path[:, 0].sum() == pytest.approx(whole)
    np.testing.assert_allclose(advance(pose, path)[:2], base, atol=1e-6)
    rest = driver.planner.returns(home, advance(pose, cut(path, share * whole))[None])[0][0]
    assert rest <= (1 - share) * whole + 1e-6


def test_predicted_arrivals_equal_those_of_the_driven_paths():
    free, rng = ground(ELL, SQUARE), np.random.default_rng(0)
    driver = Driver(Unicycle(2.0, 0.5, LOW, HIGH), free)
    pose = np.array([85.0, 50.0, 1.0])  # inside the L, beside the square
    places = rng.uniform(LOW, HIGH, size=(60, 2))
    places = places[free.part_of(places) > 0]
    for place, (when, heading) in zip(places, driver.arrivals(pose, places), strict=True):
        path = driver.path(pose, place)
        there = advance(pose, path)
        np.testing.assert_allclose([path[:, 0].sum(), *there[:2]], [when, *place], atol=1e-6)
        assert np.cos(there[2] - heading) == pytest.approx(1.0)


def test_a_robot_has_arrived_if_no_time_is_left_to_a_place():
    """A distance of 5e-324 m is not 0, but takes no time."""
    driver = Driver(Unicycle(2.0, 0.5, LOW, HIGH), ground(ELL, SQUARE))
    path = driver.path(np.array([5e-324, 20.0, 1.0]), np.array([0.0, 20.0]))
    assert path is not None
    assert path[:, 0].sum() < 10.0
    np.testing.assert_allclose(advance(np.array([5e-324, 20.0, 1.0]), path)[:2], [0.0, 20.0], atol=1e-300)


def test_a_current_shortens_one_way_and_lengthens_the_return():
    planner = PathPlanner(ground(), 2.0, 1.0, (1.0, 0.0))
    west, east, north = np.array([[10.0, 50.0]]), np.array([[70.0, 50.0]]), np.array([[10.0, 90.0]])
    assert planner.times_between(west, east)[0, 0] == pytest.approx(60 / 3)
    assert planner.times_between(east, west)[0, 0] == pytest.approx(60 / 1)
    assert planner.times_between(west, north)[0, 0] == pytest.approx(40 / np.sqrt(3))


@given(st.floats(1.5, 30.0), st.sampled_from(["wall", "islands", "cove", "shore"]), st.sampled_from([10, 24, 60]))
def test_the_width_of_a_passage_that_cells_close_is_found(width, kind, cells):
    """A passage through a wall, between two islands, into a cove, or between an island and the map's edge."""
    half, (x, y) = width / 2, (55.3, 50.7)
    south, north = (-1.0, 101.0) if kind == "wall" else (20.0, 80.0)
    walls = [[[x, south], [x + 4, south], [x + 4, y - half], [x, y - half]]]
    walls += [[[x, y + half], [x + 4, y + half], [x + 4, north], [x, north]]]
    if kind == "shore":
        walls = [[[30.0, width], [70.0, width], [70.0, 60.0], [30.0, 60.0]]]
    if kind == "cove":  # closed behind the wall
        out = [[x, y - half], [x, 16], [100, 16], [100, 84], [x, 84], [x, y + half]]
        walls = [[*out, [x + 4, y + half], [x + 4, 80], [96, 80], [96, 20], [x + 4, 20], [x + 4, y - half]]]
    found = widest_closed_passage(ground(*({"corners": wall} for wall in walls), cells=cells))
    cell, fine = 120.0 / cells, 120.0 / cells / (512 // cells)
    if width >= 2.0 * cell:
        assert found is None  # a row of cells is free in any case
    elif width <= 0.9 * cell:  # cells are a little lower than wide
        assert found == pytest.approx(width, abs=3.0 * fine)
    else:
        assert found is None or found == pytest.approx(width, abs=3.0 * fine)


def test_a_warning_states_the_number_of_cells_that_keeps_a_passage_open():
    walls = [{"corners": [[a, 500], [b, 500], [b, 520], [a, 520]]} for a, b in ((0, 400), (440, 1000))]
    field = {"gp": {"size_m": [1000.0, 1000.0]}}
    with pytest.warns(DataWarning, match=r"\$\.no_go: passages of up to .* m are shut by cells of 41.7 m") as caught:
        shut = robot_team_v1.parallel_env(field=field, no_go=walls, route_cells=24).field
    (cells,) = re.findall(r"route_cells = (\d+) would leave them open", str(caught[0].message))
    assert int(cells) in range(50, 58)  # the passage of 40 m is about two such cells wide
    room = robot_team_v1.parallel_env(field=field, no_go=walls, route_cells=int(cells)).field  # without a warning
    assert len(shut.sites) < 0.6 * len(room.sites)
    starts = [[500, 100], [500, 900]]  # on both sides, so both parts of the map count
    with pytest.warns(DataWarning, match=f"route_cells = {cells} would leave them open, and join what is apart"):
        robot_team_v1.parallel_env(field=field, no_go=walls, route_cells=24, robots=2, starts=starts)


@pytest.mark.parametrize(
    ("walls", "message"),
    [
        pytest.param([(300, 700, 300, 650), (720, 760, 400, 440)], "", id="a rock by a lake"),
        pytest.param([(300, 400, 20, 110)], "", id="a pond by the shore"),
        pytest.param(
            [(100, 480, 500, 520), (500, 900, 500, 520)],
            r"route_cells = 1\d\d .*, and make ways up to (\d+) m",
            id="wall",
        ),
        pytest.param([(0, 498, 500, 520), (502, 1000, 500, 520)], "they are too narrow for any cells", id="slit"),
        pytest.param([(100, 498, 500, 520), (502, 900, 500, 520)], "", id="a slit that no cells would open"),
    ],
)
def test_a_warning_is_given_only_for_closed_passages_that_matter(walls, message):
    no_go = [{"corners": [[a, c], [b, c], [b, d], [a, d]]} for a, b, c, d in walls]
    regions = read_regions(no_go, np.zeros(2), np.array([1000.0, 1000.0]))
    assert widest_closed_passage(Ground(np.zeros(2), np.array([1000.0, 1000.0]), regions, 24)) is not None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        robot_team_v1.parallel_env(field={"gp": {"size_m": [1000.0, 1000.0]}}, no_go=no_go, route_cells=24)
    assert len(caught) == bool(message)
    if message:
        found = re.search(message, str(caught[0].message))
        assert found, caught[0].message
        if found.groups():  # between the two sides of the wall's middle, the gap saves up to 2 x 400 m around its end
            assert 500 < int(found[1]) < 850


def test_no_path_leads_into_an_enclosed_area():
    ring = [[30, 30], [70, 30], [70, 70], [30, 70]], [[40, 40], [60, 40], [60, 60], [40, 60]]
    wall = [{"corners": [*ring[0], ring[0][0], ring[1][0], *ring[1][::-1]]}]
    inside, outside = np.array([[50.0, 50.0]]), np.array([[10.0, 10.0]])
    largest, both = ground(*wall), ground(*wall, anchors={"$.starts[0]": inside[0], "$.starts[1]": outside[0]})
    assert largest.part_of(np.vstack([inside, outside])).tolist() == [0, 1]
    assert len(set(both.part_of(np.vstack([inside, outside])).tolist()) - {0}) == 2
    assert np.isinf(PathPlanner(both, 1.0, 1.0).times_between(inside, outside)).all()
    with pytest.raises(ConfigError, match=r"\$\.starts\[0\]: got \[35\.0, 35\.0\] in a no-go region"):
        ground(*wall, anchors={"$.starts[0]": np.array([35.0, 35.0])})


def test_paths_keep_the_clearance_from_regions():
    place = np.array([[35.0, 45.0], [30.0, 45.0]])
    assert ground(SQUARE).is_free(place).all()
    assert ground(SQUARE, clearance_m=8.0).is_free(place).tolist() == [False, True]


def test_geojson_has_holes_and_may_be_in_degrees(tmp_path):
    outer, hole = [[40, 20], [80, 20], [80, 70], [40, 70], [40, 20]], [[50, 30], [70, 30], [70, 60], [50, 60], [50, 30]]
    feature = {"type": "Feature", "properties": {}, "geometry": {"type": "Polygon", "coordinates": [outer, hole]}}
    file = tmp_path / "lake.geojson"
    file.write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    region = read_regions([{"geojson": str(file)}], LOW, HIGH)[0]
    assert region.holds(np.array([[45.0, 45.0], [60.0, 45.0], [10.0, 10.0]])).tolist() == [True, False, False]
    projection = LocalProjection(9.0, 0.0, 0.0)
    corners = projection.degrees(np.array(outer, dtype=float)).tolist()
    file.write_text(json.dumps({"type": "Polygon", "coordinates": [corners]}))
    found = read_regions([{"geojson": str(file)}], LOW, HIGH, Coordinates(("lon", "lat"), projection))[0]
    np.testing.assert_allclose(found.rings[0], outer, atol=1e-3)


@pytest.mark.parametrize(
    ("corners", "coordinates"),
    [
        ([[0, 60], [20, 60], [20, 65], [0, 65]], Coordinates(("lon", "lat"), LocalProjection(10.0, 0.0, 0.0))),
        ([[170, 60], [-170, 60], [-170, 65], [170, 65]], Coordinates(("lon", "lat"), LocalProjection(180.0, 0.0, 0.0))),
        ([[-10, -10], [10, 10], [-10, 10]], Coordinates(("lon", "lat"), LocalProjection(0.0, 0.0, 0.0))),  # an S on it
        ([[5, 50], [25, 50], [25, 55]], Coordinates(("x", "y"), crs="EPSG:32633", corner=(2e5, 5e6), unit_m=0.3)),
    ],
)
def test_edges_of_geojson_are_straight_in_degrees(tmp_path, corners, coordinates):
    pytest.importorskip("rasterio")
    (tmp_path / "a.json").write_text(json.dumps({"type": "Polygon", "coordinates": [[*corners, corners[0]]]}))
    table = {"geojson": str(tmp_path / "a.json"), "coordinates": "degrees"}
    begin = read_regions([table], LOW, np.array([1e6, 1e6]), coordinates)[0].rings[0]
    assert len(begin) < 1000
    along = np.roll(begin, -1, axis=0) - begin
    a, steps = np.array(corners, dtype=float), np.roll(corners, -1, axis=0) - np.array(corners, dtype=float)
    steps[:, 0] = (steps[:, 0] + 180.0) % 360.0 - 180.0
    degrees = (a[:, None] + steps[:, None] * np.linspace(0.0, 1.0, 100)[:, None]).reshape(-1, 2)
    if coordinates.projection is None:
        rasterio = pytest.importorskip("rasterio.warp")
        metres = coordinates.metres(np.column_stack(rasterio.transform("EPSG:4326", coordinates.crs, *degrees.T)))
    else:
        metres = coordinates.projection.metres(degrees)
    to_place = metres[:, None] - begin
    share = np.clip((to_place * along).sum(axis=2) / np.maximum((along**2).sum(axis=1), 1e-9), 0.0, 1.0)
    assert np.hypot(*np.moveaxis(to_place - share[..., None] * along, 2, 0)).min(axis=1).max() < 12.0


def test_corners_in_degrees_on_a_map_of_the_earth_are_refused():
    high, coordinates = np.array([53_000.0, 53_000.0]), Coordinates.about([[9.1, 59.9], [10.0, 60.4]])
    table = {"corners": [[9.2, 60.0], [9.6, 60.0], [9.6, 60.2]]}
    with pytest.raises(
        ConfigError, match=r"no_go\[0\]\.corners: got .* if they are degrees; wanted m on the map, or a GeoJSON"
    ):
        read_regions([table], LOW, high, coordinates)
    assert len(read_regions([table], LOW, high)) == len(read_regions([SQUARE], LOW, high, coordinates)) == 1


@pytest.mark.parametrize("side_m", [20.0, 800.0, 11_900.0])
@pytest.mark.parametrize("south_west", [(8.53, 47.21), (-83.9, 35.4), (0.001, 0.001)])
def test_geojson_in_degrees_is_never_taken_for_metres(tmp_path, side_m, south_west):
    """Three lakes, each a tenth of the map wide, a hundred map widths apart."""
    width, path = side_m / 111_000 / 10, tmp_path / "lakes.geojson"
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * width + south_west
    lakes = [[(corners + shift * 1000 * width).tolist()] for shift in range(3)]
    path.write_text(json.dumps({"type": "MultiPolygon", "coordinates": lakes}))
    high, table = np.array([side_m, 0.7 * side_m]), {"geojson": str(path)}
    with pytest.raises(ConfigError, match=r"no_go\[0\]\.coordinates: .*, whose numbers look like degrees, on a"):
        read_regions([table], LOW, high)
    with pytest.raises(ConfigError, match="got degrees on a map in metres; wanted coordinates = 'metres'"):
        read_regions([{**table, "coordinates": "degrees"}], LOW, high)
    assert len(read_regions([{**table, "coordinates": "metres"}], LOW, high)) == 3
    path.write_text(json.dumps({"type": "Polygon", "coordinates": [(np.array(SQUARE["corners"]) * 5).tolist()]}))
    with pytest.raises(ConfigError, match=r"coordinates: .* with numbers that are not longitudes and latitude"):
        read_regions([table], LOW, high, Coordinates(("lon", "lat"), LocalProjection(9.0, 0.0, 0.0)))


@pytest.mark.parametrize("kind", ["booleans", "nan", "nodata"])
def test_a_raster_blocks_the_area_of_its_no_go_cells(tmp_path, kind):
    """Exactly as a polygon around the same cells does."""
    marked = np.zeros((10, 12), dtype=bool)
    marked[3:8, 4:8] = True  # rows begin in the north: y from 20 to 70
    values = {"booleans": marked, "nan": np.where(marked, np.nan, 1.0), "nodata": np.where(marked, -9999, 7)}[kind]
    np.save(tmp_path / "mask.npy", values)
    table = {"raster": str(tmp_path / "mask.npy"), **({"nodata": -9999} if kind == "nodata" else {})}
    np.testing.assert_array_equal(ground(table).blocked, ground(SQUARE).blocked)
    moved = {**table, "extent": [0.0, 0.0, 60.0, 50.0]}
    half = {"corners": [[20.0, 10.0], [40.0, 10.0], [40.0, 35.0], [20.0, 35.0]]}
    np.testing.assert_array_equal(ground(moved).blocked, ground(half).blocked)
    inside = Path(np.array(SQUARE["corners"])).contains_points(np.array([[60.0, 40.0]]))
    assert read_regions([table], LOW, HIGH)[0].holds(np.array([[60.0, 40.0]])).tolist() == inside.tolist()


def test_a_geotiff_lies_at_its_own_coordinates(tmp_path):
    rasterio = pytest.importorskip("rasterio")
    values = np.ones((10, 12), dtype=np.float32)
    values[3:8, 4:8] = -1.0
    path = str(tmp_path / "map.tif")
    profile = {"driver": "GTiff", "height": 10, "width": 12, "count": 1, "dtype": "float32", "nodata": -1.0}
    here, there = rasterio.Affine(10, 0, 0, 0, -10, 100), rasterio.Affine(0.1, 0, 9, 0, -0.1, 49)
    with rasterio.open(path, "w", transform=here, crs="EPSG:32633", **profile) as file:
        file.write(values, 1)
    np.testing.assert_array_equal(ground({"raster": path}).blocked, ground(SQUARE).blocked)
    with rasterio.open(path, "w", transform=there, crs="EPSG:4326", **profile) as file:
        file.write(values, 1)
    with pytest.raises(ConfigError, match=r"\$\.no_go\[0\]\.extent: got a raster in degrees; wanted its extent"):
        ground({"raster": path})
    assert ground({"raster": path, "extent": [0, 0, 120, 100]}).blocked.sum() == ground(SQUARE).blocked.sum()


def test_a_geotiff_without_the_extra_raises_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rasterio", None)
    with pytest.raises(
        MissingPackageError, match=r"a GeoTIFF of no-go regions needs .* pip install \"swarmbo\[geo\]\""
    ):
        read_regions([{"raster": str(tmp_path / "map.tif")}], LOW, HIGH)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({}, r"\$\.no_go\[0\]: got an empty table; wanted exactly one of the keys"),
        ({"corners": [[0, 0], [1, 1]]}, r"\$\.no_go\[0\]\.corners: got .*; wanted at least 3"),
        ({"geojson": "nowhere.geojson"}, r"\$\.no_go\[0\]\.geojson: got 'nowhere.geojson', which cannot be read"),
        ({"raster": "map.png"}, r"\$\.no_go\[0\]\.raster: got 'map.png'; wanted a \.npy array or a GeoTIFF"),
        ({"raster": "nowhere.npy"}, r"\$\.no_go\[0\]\.raster: got 'nowhere.npy', which cannot be read"),
        ({"raster": "a.npy", "extent": [1, 0, 0, 1]}, r"\$\.no_go\[0\]\.extent: got .*; wanted \[west, south"),
        ({"corners": [[500, 500], [600, 500], [600, 600]]}, r"\$\.no_go: got region 1 of 1 outside the map"),
        ({"corners": [[-1, -1], [200, -1], [200, 200], [-1, 200]]}, r"\$\.no_go: got no-go regions that cover the map"),
    ],
)
def test_invalid_regions_are_refused_with_their_path(table, message):
    with pytest.raises(ConfigError, match=message):
        ground(table)
