"""From samples in a user's file to a map and the next places: by command line, in the coordinates of the file."""

import csv
import json
import re
import warnings
from xml.etree import ElementTree

import numpy as np
import pytest
import rasterio
from typer.testing import CliRunner

from swarmbo.belief.gp.exact import ExactGP
from swarmbo.boundary.coordinates import LocalProjection
from swarmbo.cli import app
from swarmbo.errors import ConfigError, DataWarning, ShapeError
from swarmbo.survey import Coordinates, Samples, plan_next, read_samples
from swarmbo.survey.output import survey_figure
from swarmbo.survey.plan import left_out_rmse
from swarmbo.survey.samples import read_region
from swarmbo.team import Team

pytestmark = pytest.mark.filterwarnings("ignore:.*taken for degrees:swarmbo.errors.DataWarning")
HERE = LocalProjection(9.0, 0.0, 0.0)
CORNER = HERE.metres(np.array([[9.1, 48.0]]))[0]


@pytest.fixture(autouse=True)
def undrawn(request, monkeypatch):
    """Leave out the figure, which takes most of the time, in tests that do not examine it."""
    if "drawn" not in request.fixturenames:
        monkeypatch.setattr("swarmbo.survey.output.survey_figure", lambda *plan: None)
        monkeypatch.setattr("swarmbo.plotting.style.save", lambda figure, path: path)


@pytest.fixture
def drawn():
    """Ask for figures in a test."""


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """Write samples of a bowl at random places of a square of 1 km, and run `swarmbo next` on them."""
    monkeypatch.chdir(tmp_path)

    def run(*options, kind="degrees", n=40, rows=(), ends_with=0):
        metres = np.random.default_rng(0).random((n, 2)) * 1000.0
        values = 9.0 - ((metres - 600.0) ** 2).sum(axis=1) / 1e5
        own, names = metres, "x,y"
        if kind != "metres":
            own, names = HERE.degrees(metres + CORNER), "lon,lat"
        if kind == "0 to 360":
            own = own - [9.2, 0.0]
            own[:, 0] %= 360.0
        if kind == "date line":
            own[:, 0] = (own[:, 0] - 9.107) % 360.0 - 180.0
        if kind in ("Greenwich, 0 to 360", "west of the date line", "west of Greenwich, 0 to 360"):
            middle, turned = 0.5 * (own[:, 0].min() + own[:, 0].max()), "date line" in kind
            own[:, 0] -= own[:, 0].max() + 1e-6 if "west" in kind else middle  # its margin crosses the line
            own[:, 0] = own[:, 0] + 180.0 if turned else own[:, 0] % 360.0
        lines = [f"{names},ph", *(f"{a:.8f},{b:.8f},{v:.6f}" for (a, b), v in zip(own, values, strict=True)), *rows]
        (tmp_path / "s.csv").write_text("\n".join(lines) + "\n")
        result = CliRunner().invoke(app, ["next", "s.csv", "--value", "ph", *options])
        assert result.exit_code == ends_with, result.output
        return result, tmp_path / "next" / "s"

    return run


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_places_and_map_come_in_the_coordinates_of_the_file(survey, drawn):
    result, folder = survey("--agents", "3")
    places, cells = rows_of(folder / "next.csv"), rows_of(folder / "map.csv")
    assert [row["agent"] for row in places] == ["agent_1", "agent_2", "agent_3"]
    own = np.array([[float(row["lon"]), float(row["lat"])] for row in places])
    at_cells = np.array([[float(row["lon"]), float(row["lat"])] for row in cells])
    gaps = HERE.metres(own)[:, None] - HERE.metres(at_cells)
    assert np.sqrt((gaps**2).sum(axis=2)).min(axis=1).max() < 0.01  # each is a cell of the map, to a centimetre
    points = json.loads((folder / "next.geojson").read_text())["features"]
    np.testing.assert_allclose([point["geometry"]["coordinates"] for point in points], own, atol=1e-8)
    marks = ElementTree.parse(folder / "next.gpx").getroot()
    np.testing.assert_allclose([[float(m.get("lon")), float(m.get("lat"))] for m in marks], own, atol=1e-8)
    for mark, row in zip(marks, places, strict=True):
        expected, std, why = re.fullmatch("expected (.*) ± (.*?); (.*)", mark[1].text).groups()
        assert float(expected) == pytest.approx(float(row["expected"]), rel=1e-3, abs=0.1 * float(row["std"]))
        assert (std, why) == (f"{float(row['std']):.3g}", row["why"])
    with rasterio.open(folder / "map.tif") as tiff:
        assert tiff.crs.to_string() == "EPSG:4326"
        found = np.array(list(tiff.sample(at_cells[::97])))
    wanted = [[float(row["expected"]), float(row["std"])] for row in cells[::97]]
    np.testing.assert_allclose(found, wanted, rtol=1e-4)
    assert (folder / "map.png").stat().st_size > 20_000
    assert "error of the map at locations that are left out" in result.output


def test_longitudes_across_the_date_line_continue_beyond_180_and_nothing_else_differs(survey):
    wanted = [float(row["expected"]) for row in rows_of(survey("--agents", "2")[1] / "map.csv")]
    _, folder = survey("--agents", "2", kind="date line")
    cells = rows_of(folder / "map.csv")
    np.testing.assert_allclose([float(row["expected"]) for row in cells], wanted, atol=1e-3)
    east = np.array([float(row["lon"]) for row in cells])
    assert 179.99 < east.min() < 180.0 < east.max() < 180.01
    points = json.loads((folder / "next.geojson").read_text())["features"]
    assert all(-180.0 <= point["geometry"]["coordinates"][0] <= 180.0 for point in points)


@pytest.mark.parametrize(
    ("kind", "line"),
    [("Greenwich, 0 to 360", 0.0), ("west of the date line", 180.0), ("west of Greenwich, 0 to 360", 360.0)],
)
def test_a_map_across_a_line_of_longitudes_has_no_jump(survey, kind, line):
    wanted = [float(row["expected"]) for row in rows_of(survey("--agents", "2")[1] / "map.csv")]
    cells = rows_of(survey("--agents", "2", kind=kind)[1] / "map.csv")
    np.testing.assert_allclose([float(row["expected"]) for row in cells], wanted, atol=1e-3)
    east = np.array([float(row["lon"]) for row in cells])
    assert line - 0.02 < east.min() < line < east.max() < line + 0.01


@pytest.mark.parametrize(("side", "ratio"), [(0.0, 6.0), (5.0, 2.0)])
def test_a_map_is_true_to_scale_except_for_samples_on_a_line(side, ratio):
    places = np.array([[side * (i % 3) / 2.0, i] for i in range(11)])
    samples = Samples(places, np.sin(places[:, 1]), None, Coordinates(("x", "y")), "depth")
    figure = survey_figure(plan_next(samples, aim="level", level=0.1))
    figure.draw_without_rendering()
    assert "level 0.1" in [text.get_text() for text in figure.legends[0].get_texts()]
    box = figure.axes[0].get_window_extent()
    assert box.height / box.width == pytest.approx(ratio, rel=0.2)


def test_a_map_has_whole_coordinates_and_colours_of_the_std_from_zero(drawn):
    places = np.column_stack([np.full(20, 5e5), np.linspace(5.4e6, 5.403e6, 20)])
    samples = Samples(places, np.sin(np.arange(20.0)), None, Coordinates(("easting", "northing")), "q")
    figure = survey_figure(plan_next(samples))
    figure.canvas.draw()
    left, right = figure.axes[:2]
    assert {"5401000", "5402000"} <= {text.get_text() for text in left.get_yticklabels()}
    assert left.yaxis.get_offset_text().get_text() == ""
    assert {text.get_rotation() for text in left.get_xticklabels()} == {45.0}  # so that they do not overlap
    assert right.images[0].norm.vmin == 0.0 < left.images[0].norm.vmax


def test_proposals_close_to_the_date_line_can_be_read_again(tmp_path):
    rng, low = np.random.default_rng(0), np.array([-179.995, 50.0])
    rows = [(*place, np.sin(10.0 * place[0])) for place in low + [0.09, 0.1] * rng.random((25, 2))]
    for _ in range(4):
        lines = [",".join(map(repr, map(float, row))) for row in rows]
        (tmp_path / "s.csv").write_text("\n".join(["lon,lat,v", *lines]))
        with pytest.warns(UserWarning, match="taken for degrees"):
            plan = plan_next(read_samples(tmp_path / "s.csv", "v"), 4)
        rows += [(*next_place.place, next_place.mean) for next_place in plan.places]
    assert min(row[0] for row in rows) < -180.0


def test_longitudes_from_0_to_360_are_kept(survey):
    _, folder = survey(kind="0 to 360")
    assert all(float(row["lon"]) > 359.0 for row in rows_of(folder / "next.csv"))
    assert -1.0 < json.loads((folder / "next.geojson").read_text())["features"][0]["geometry"]["coordinates"][0] < 0.0


def test_the_aim_decides_where_to_go(survey):
    _, folder = survey("--aim", "peak", kind="metres")
    peak = rows_of(folder / "next.csv")[0]
    assert np.hypot(float(peak["x"]) - 600.0, float(peak["y"]) - 600.0) < 150.0
    assert "to exceed the largest sample" in peak["why"]
    result, folder = survey("--aim", "level", "--level", "8", kind="metres")
    level = rows_of(folder / "next.csv")[0]
    assert abs(np.hypot(float(level["x"]) - 600.0, float(level["y"]) - 600.0) - np.sqrt(1e5)) < 200.0
    assert "above 8" in level["why"]
    assert "name the samples' coordinate reference system" in result.output  # no longitudes without it
    assert not (folder / "next.gpx").exists()


def test_metres_of_a_named_system_give_longitudes(survey):
    _, folder = survey("--crs", "EPSG:32632", kind="metres")
    own = rows_of(folder / "next.csv")[0]
    lon, lat = json.loads((folder / "next.geojson").read_text())["features"][0]["geometry"]["coordinates"]
    x, y = rasterio.warp.transform("EPSG:4326", "EPSG:32632", [lon], [lat])
    np.testing.assert_allclose([x[0], y[0]], [float(own["x"]), float(own["y"])], atol=0.01)


def test_regions_to_avoid_and_areas_are_kept(survey, tmp_path):
    def polygon(name, west, east):
        ring = HERE.degrees(CORNER + np.array([[west, -200], [east, -200], [east, 1200], [west, 1200.0]]))
        shape = {"type": "Polygon", "coordinates": [ring.tolist()]}
        (tmp_path / name).write_text(json.dumps({"type": "Feature", "geometry": shape, "properties": {}}))

    polygon("lake.json", -200, 500)
    polygon("farm.json", -200, 800)
    _, folder = survey("--agents", "4", "--avoid", "lake.json", "--area", "farm.json")
    lines = [*rows_of(folder / "next.csv"), *rows_of(folder / "map.csv")]
    east = HERE.metres(np.array([[float(row["lon"]), float(row["lat"])] for row in lines]))[:, 0] - CORNER[0]
    assert (east > 499.0).all()
    assert (east < 801.0).all()


def test_the_sum_of_distances_to_the_next_places_is_minimal(survey, tmp_path):
    begin = HERE.degrees(CORNER + np.array([[0.0, 0.0], [1000.0, 1000.0], [0.0, 1000.0]]))
    lines = ["lon,lat,agent", *(f"{a},{b},{name}" for (a, b), name in zip(begin, ("ann", "bob", "cyd"), strict=True))]
    (tmp_path / "now.csv").write_text("\n".join(lines))
    _, folder = survey("--from", "now.csv")
    rows = rows_of(folder / "next.csv")
    assert [row["agent"] for row in rows] == ["ann", "bob", "cyd"]
    places = HERE.metres(np.array([[float(row["lon"]), float(row["lat"])] for row in rows]))
    apart = np.sqrt(((HERE.metres(begin)[:, None] - places) ** 2).sum(axis=2))
    np.testing.assert_allclose([float(row["distance_m"]) for row in rows], np.diag(apart), atol=0.1)
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    assert np.trace(apart) <= min(sum(apart[i, order[i]] for i in range(3)) for order in orders) + 1e-6


def test_more_samples_move_the_next_place_and_the_same_file_gives_the_same_bytes(survey):
    _, folder = survey(kind="metres")
    first = (folder / "next.csv").read_bytes()
    _, folder = survey(kind="metres")
    assert (folder / "next.csv").read_bytes() == first
    row = rows_of(folder / "next.csv")[0]
    _, folder = survey(kind="metres", rows=[f"{row['x']},{row['y']},5.0"])
    then = rows_of(folder / "next.csv")[0]
    assert (then["x"], then["y"]) != (row["x"], row["y"])


def test_noise_per_row_is_used():
    places = np.random.default_rng(1).random((30, 2)) * 100.0
    values = places[:, 0] / 50.0
    values[0] += 3.0
    noise = np.full(30, np.nan)
    noise[0] = 3.0
    errors = []
    for given in (None, noise):
        found = plan_next(Samples(places, values, given, Coordinates(("x", "y")), "v")).map
        errors.append(np.sqrt(np.nanmean((found.mean - found.x / 50.0) ** 2)))
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("mark", [-9999, 9999, -999])
@pytest.mark.parametrize("is_stated", [True, False])
def test_marks_of_gaps_in_the_noise_mean_unknown_noise(tmp_path, mark, is_stated):
    lines = [f"{i},{i * i % 7},{i % 3},{mark if i == 4 else 0.1}" for i in range(12)]
    path = tmp_path / "s.csv"
    path.write_text("\n".join(["x_m,y_m,v,noise_std", *lines]) + "\n")
    with pytest.warns(DataWarning, match=f"noise of rows of .* is unknown: 1 with {mark} in 'noise_std'"):
        samples = read_samples(path, "v", missing=[mark] if is_stated else None)
    np.testing.assert_array_equal(samples.noise_std, [np.nan if i == 4 else 0.1 for i in range(12)])


@pytest.mark.parametrize("slope", [0.0, 0.7, 1e-7, -3.0])
@pytest.mark.parametrize("width", [0.0, 1e-9, 0.3])
def test_samples_on_a_transect_have_a_map_along_it_also_in_a_gap(slope, width):
    along = np.append(np.arange(0.0, 101.0, 10.0), np.arange(300.0, 401.0, 10.0))
    places = np.column_stack([along, 5e6 + slope * along + width * (np.arange(len(along)) % 2)])
    plan = plan_next(Samples(places, np.sin(along / 20.0), None, Coordinates(("x", "y")), "v"), 2)
    has_cell = np.isfinite(plan.map.mean).any(axis=0)
    assert has_cell[(plan.map.x > 0.0) & (plan.map.x < 400.0)].all()
    assert all(100.0 < place.place[0] < 300.0 for place in plan.places)


@pytest.mark.parametrize("is_dense", [False, True])
def test_samples_much_denser_than_the_map_leave_places_between_them(is_dense):
    if is_dense:  # every 2 m, with a gap, and a metre of scatter
        along = np.append(np.arange(0.0, 3000.0, 2.0), np.arange(7000.0, 10_000.0, 2.0))
        across = 0.7 * along + np.random.default_rng(0).normal(0.0, 1.0, len(along))
    else:  # pairs
        along = np.repeat(np.arange(0.0, 10_000.0, 250.0), 2)
        along, across = along + np.tile([0.0, 0.5], len(along) // 2), 0.5 * along
    places = np.column_stack([along, across])
    plan = plan_next(Samples(places, np.sin(along / 900.0), None, Coordinates(("x", "y")), "v"), 2)
    has_cell = np.isfinite(plan.map.mean).any(axis=0)
    assert has_cell[(plan.map.x > 0.0) & (plan.map.x < along.max())].all()


def test_the_error_for_too_few_places_names_regions_only_if_there_are_some(tmp_path, monkeypatch):
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    samples = Samples(places, np.arange(3.0), None, Coordinates(("x", "y")), "v")
    ring = [[-9, -9], [9, -9], [9, 9], [-9, 9], [-9, -9]]
    (tmp_path / "all.json").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    with pytest.raises(ConfigError, match=r"got 0 locations for 1 agents; .* smaller regions to avoid"):
        plan_next(samples, avoid=read_region(tmp_path / "all.json", samples, "--avoid"))
    monkeypatch.setattr("swarmbo.survey.plan._CLEAR", 1e3)
    with pytest.raises(ConfigError, match=r"got 0 locations for 1 agents; wanted an area, or fewer agents"):
        plan_next(samples)


def test_the_map_of_a_wide_survey_in_degrees_has_all_samples():
    degrees = np.array([[0.0, 56.0], [20.0, 56.0], [0.0, 69.9], [20.0, 69.9], [10.0, 56.2], [10.1, 69.95], [3.0, 62.0]])
    coordinates = Coordinates.about(degrees)
    found = plan_next(Samples(coordinates.metres(degrees), degrees[:, 1], None, coordinates, "v")).map
    for axis, own in ((found.x, degrees[:, 0]), (found.y, degrees[:, 1])):
        half = 0.5 * (axis[1] - axis[0])
        assert axis[0] - half <= own.min() < own.max() <= axis[-1] + half


def test_areas_and_regions_to_avoid_have_straight_edges_in_degrees(tmp_path):
    degrees = np.random.default_rng(0).uniform([0.0, 56.0], [20.0, 70.0], (40, 2))
    coordinates = Coordinates.about(degrees)
    samples = Samples(coordinates.metres(degrees), degrees[:, 1], None, coordinates, "v")
    ring = [[0, 60], [20, 60], [20, 65], [0, 65], [0, 60]]
    (tmp_path / "box.json").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    box = read_region(tmp_path / "box.json", samples, "--avoid")
    for name in ("avoid", "area"):
        found = plan_next(samples, **{name: box}).map
        lon, lat = np.meshgrid(found.x, found.y)
        is_inside = (lon > 0.01) & (lon < 19.99) & (lat > 60.001) & (lat < 64.999)
        assert is_inside.sum() > 1000
        assert np.isnan(found.mean[is_inside]).all() if name == "avoid" else np.isfinite(found.mean[is_inside]).all()


def test_values_with_a_large_offset_keep_their_digits(survey, tmp_path, monkeypatch):
    monkeypatch.setattr("swarmbo.survey.output.survey_figure", lambda *plan: None)
    places = np.random.default_rng(0).random((40, 2)) * 1000.0
    rows = "".join(f"{x:.2f},{y:.2f},{980123 + 0.3 * np.sin(x / 150):.3f}\n" for x, y in places)
    (tmp_path / "g.csv").write_text(f"x,y,gravity\n{rows}")
    result = CliRunner().invoke(app, ["next", "g.csv", "--crs", "EPSG:32632", "--aim", "peak"])
    assert result.exit_code == 0, result.output
    folder = tmp_path / "next" / "g"
    cells, place = rows_of(folder / "map.csv"), rows_of(folder / "next.csv")[0]
    found = np.array([float(row["expected"]) for row in cells])
    truth = 980123 + 0.3 * np.sin(np.array([float(row["x"]) for row in cells]) / 150)
    assert np.median(np.abs(found - truth)) < 0.01
    with rasterio.open(folder / "map.tif") as tiff:
        image = tiff.read(1)[::-1]
    np.testing.assert_allclose(image[np.isfinite(image)], found, rtol=0, atol=1e-3)
    texts = [result.output, (folder / "next.gpx").read_text(), place["why"]]
    near = [[float(text) for text in re.findall(r"980123\.\d+", each)] for each in texts]
    assert near[0][0] == near[1][0] == pytest.approx(float(place["expected"]), abs=0.01)
    assert near[2][0] == pytest.approx(980123.3, abs=0.01)  # the largest sample


@pytest.mark.parametrize("replicates", [1, 3])
def test_error_at_left_out_locations_is_that_of_beliefs_without_them(replicates):
    rng = np.random.default_rng(2)
    places = np.tile(rng.random((12, 2)), (replicates, 1))
    values = np.sin(5 * places[:, 0]) + 0.1 * rng.normal(size=len(places))
    samples = Samples(places, values, None, Coordinates(("x", "y")), "v")
    team = Team.for_field(["a"], [0.0, 0.0], [1.0, 1.0], aim="map", seed=0)
    team.attach(places, samples.values)
    team.refit()
    belief = team.belief
    errors = []
    for i in range(len(places)):
        others = (places != places[i]).any(axis=1)
        rest = ExactGP.from_hyperparameters(
            belief.settings, belief.domain, belief.hyperparameters, places[others], samples.values[others]
        )
        errors.append(rest.posterior(places[i : i + 1])[0][0] - samples.values[i])
    assert left_out_rmse(belief) == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--aim", "level"], "wanted a number for 'level'"),
        (["--noise", "ph2"], "--noise COLUMN"),
        (["--x", "east"], "--x east --y COLUMN"),
        (["--from", "none.csv"], "cannot read 'none.csv'"),
        (["--agents", "0"], "--agents: got 0"),
        (["--avoid", "s.csv"], "wanted GeoJSON"),
        (["--crs", "EPSG:32632"], "with longitudes and latitudes; wanted none"),
    ],
)
def test_mistakes_are_reported_in_one_line(survey, options, message):
    result, _ = survey(*options, ends_with=2)
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lon;lat;ph\n9,1;48,0;5\n", "cannot read 's.csv': its columns are separated by ';'; wanted a CSV file"),
        ("x,y,ph\n9.10123,48.00213,5\n9.10345,48.00345,6\n", "wanted --coordinates degrees, or metres"),
        ("lat,lon,ph\n48.1,9.1,5\n48.2,9.2,6\n", "to the east: --x lon --y lat"),
        ("x_km,y_km,ph\n1,2,5\n2,3,6\n", "convert them, or state --coordinates metres"),
        ("", "csv: 's.csv' is empty; wanted a header line and rows of numbers"),
        ("x,y,sd\n1,2,3\n", "got columns x, y, sd; wanted the column of the values"),
        (
            "lon,lat,ph\n2,3,6\n400,2,5\n",
            "s.csv: line 3, column 'lon': got 400, which is not a longitude; wanted degrees",
        ),
        ("lon,lat,ph\n9,48,6\n9,49,x\n", "s.csv: line 3, column 'ph': got 'x'; wanted a finite number"),
        ("lon,lat,ph,sd\n9,48,6,1\n9,49,7,-1\n", "s.csv: line 3, column 'sd': got -1; wanted standard deviations >= 0"),
        (
            "lon,lat,ph\n9,48,6\n\n70,48,5\n9,49,6\n",
            "s.csv: got longitudes and latitudes that reach 2,260 km east and west of their middle (the farthest is "
            "[70.0, 48.0], in line 4); wanted at most 1,2",
        ),
        (
            "lon,lat,ph\n9,48,6\n170,48,5\n9,49,6\n",
            "s.csv: got longitudes and latitudes that span 161 degrees of longitude (the farthest is [170.0, 48.0], in "
            "line 3)",
        ),
    ],
)
def test_ambiguous_columns_are_reported_with_the_option_that_resolves_them(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.csv").write_text(text)
    stated = ["--x", "lat", "--y", "lon"] if text.startswith("lat") else []
    result = CliRunner().invoke(app, ["next", "s.csv", "--value", "ph", *stated][: None if "ph" in text else 2])
    assert (result.exit_code, message in result.output) == (2, True), result.output


@pytest.mark.parametrize("n", [4, 10, 30])
@pytest.mark.parametrize("is_mistyped", [False, True])
def test_a_sample_far_from_all_others_is_named_in_a_warning(is_mistyped, n, tmp_path):
    X = np.random.default_rng(0).uniform(0.0, 100.0, (n, 2))
    X[n // 2] = (5e6, 40.0) if is_mistyped else (900.0, 40.0)
    np.savetxt(tmp_path / "s.csv", np.column_stack([X, X[:, 0]]), delimiter=",", header="x_m,y_m,v", comments="")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(read_samples(tmp_path / "s.csv", "v")) == n
    texts = [str(warning.message) for warning in caught]
    assert any(f"1 of {n} samples lie far" in text and "[5.e+06 4.e+01]" in text for text in texts) == is_mistyped


def test_a_file_without_a_clear_value_column_is_refused(tmp_path):
    (tmp_path / "s.csv").write_text("x,y,ph,zinc\n1,2,3,4\n")
    with pytest.raises(ConfigError, match="got columns ph, zinc; wanted the column of the values: --value COLUMN"):
        read_samples(tmp_path / "s.csv")
    assert read_samples(tmp_path / "s.csv", "zinc").values.tolist() == [4.0]
    (tmp_path / "s.csv").write_text("x,y,zinc,std\n1,2,4,0.5\n")
    only = read_samples(tmp_path / "s.csv")
    assert (only.quantity, only.noise_column, only.noise_std.tolist()) == ("zinc", "std", [0.5])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,y,ph\n1,5,2,5,7,1\n", "line 2 has 6 cells, and the header 3; wanted .* points in numbers"),
        ("x,y,ph,ph\n1,2,3,4\n", "it has the column 'ph' twice"),
        ("x;y;ph\n1,5;2,5;7,1\n", "its columns are separated by ';'; wanted"),
        ("x,y,\n1,2,3\n", "line 2 has 3 cells, and the header 2"),
    ],
)
def test_a_file_whose_cells_have_ambiguous_columns_is_refused(tmp_path, text, message):
    (tmp_path / "s.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_samples(tmp_path / "s.csv", "ph")


@pytest.mark.parametrize(("options", "of"), [({"noise": "x"}, "x"), ({"noise": "ph"}, "value"), ({"value": "y"}, "y")])
def test_a_column_has_one_meaning(tmp_path, options, of):
    (tmp_path / "s.csv").write_text("x,y,ph\n1,2,3\n2,3,5\n")
    with pytest.raises(ConfigError, match=f"which is the column of {of}; wanted another"):
        read_samples(tmp_path / "s.csv", **({"value": "ph", "x": "x", "y": "y"} | options))


def test_empty_lines_and_columns_without_name_and_cells_are_ignored(tmp_path):
    (tmp_path / "s.csv").write_bytes(b"\xef\xbb\xbf\r\n,,,\r\nx,y,ph,\r\n\r\n1,2,3,\r\n4,5,6,,\r\n")
    read = read_samples(tmp_path / "s.csv")
    assert (read.quantity, read.places.tolist(), read.values.tolist()) == ("ph", [[1, 2], [4, 5]], [3, 6])


def test_footprints_are_refused_as_samples_are_points(tmp_path):
    (tmp_path / "s.csv").write_text("x,y,ph,footprint_m\n1,2,3,40\n")
    with pytest.raises(ConfigError, match="got the column 'footprint_m', but samples are taken at points"):
        read_samples(tmp_path / "s.csv", "ph")
    assert read_samples(tmp_path / "s.csv", "footprint_m").values.tolist() == [40.0]


SQUARE = [[10, 10], [60, 10], [60, 60], [10, 60], [10, 10]]


def test_polygons_in_metres_are_kept_on_a_small_field_and_degrees_are_not_taken_for_metres(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = np.random.default_rng(0).random((30, 2)) * 80.0

    def called(ring, *options, shift=0.0):
        rows = "".join(f"{x + shift},{y + shift},{x * y}\n" for x, y in places)
        (tmp_path / "s.csv").write_text(f"x,y,v\n{rows}")
        (tmp_path / "area.json").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
        return CliRunner().invoke(app, ["next", "s.csv", "--area", "area.json", *options])

    result = called(SQUARE)
    assert result.exit_code == 0, result.output
    cells = np.array([[float(row["x"]), float(row["y"])] for row in rows_of(tmp_path / "next" / "s" / "map.csv")])
    assert ((cells > 10.0) & (cells < 60.0)).all()
    degrees = [[9.1, 48.7], [9.1001, 48.7], [9.1001, 48.7001], [9.1, 48.7]]
    for ring, shift in ((degrees, 0.0), (degrees, 5e5), (SQUARE, 5e5)):
        refused = called(ring, shift=shift)
        assert refused.exit_code == 2
        assert "in longitudes and latitudes for samples in metres; wanted --crs" in refused.output
    in_km = [[500.1, 5650.1], [500.9, 5650.1], [500.9, 5650.9]]
    refused = called(in_km, shift=5e5)
    assert refused.exit_code == 2
    assert "m from the samples; wanted some near them, in metres like the samples, not in km" in refused.output


def test_places_on_a_plate_of_millimetres_keep_their_digits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = np.random.default_rng(0).random((30, 2)) * 0.004
    (tmp_path / "s.csv").write_text("x,y,v\n" + "".join(f"{x:.7f},{y:.7f},{x + y:.7f}\n" for x, y in places))
    result = CliRunner().invoke(app, ["next", "s.csv", "--agents", "2"])
    assert result.exit_code == 0, result.output
    found = np.array([[float(row["x"]), float(row["y"])] for row in rows_of(tmp_path / "next" / "s" / "map.csv")])
    assert len(np.unique(found, axis=0)) == len(found) > 1000
    assert all(f"{float(row['x']):.6f}" in result.output for row in rows_of(tmp_path / "next" / "s" / "next.csv"))


@pytest.mark.parametrize("header", ["Longitude,latitude", "Lon_deg,LAT_deg", "lon,lat"])
def test_columns_of_positions_may_have_other_names_than_those_of_samples(header, survey, tmp_path):
    (tmp_path / "now.csv").write_text(f"agent,{header}\nann,9.1,48.0\nbob,9.11,48.0\n")
    _, folder = survey("--from", "now.csv")
    assert [row["agent"] for row in rows_of(folder / "next.csv")] == ["ann", "bob"]


@pytest.mark.parametrize(
    ("kind", "header"),
    [("degrees", "east,north"), ("degrees", "x_km,y_km"), ("degrees", "a,b"), ("metres", "lon,lat"), ("metres", "x,b")],
)
def test_positions_without_coordinates_in_the_unit_of_the_samples_are_refused(kind, header, survey, tmp_path):
    (tmp_path / "now.csv").write_text(f"{header}\n9.1,48.0\n")
    result, _ = survey("--from", "now.csv", kind=kind, ends_with=2)
    names, unit = ("('lon', 'lat')", "degrees") if kind == "degrees" else ("('x', 'y')", "m")
    wanted = f"wanted the samples' columns {names}, or one pair with other such names, in {unit}"
    assert f"--from: now.csv: got columns {header.replace(',', ', ')}; {wanted}" in result.output


def test_a_row_of_positions_without_its_name_is_reported(survey, tmp_path):
    (tmp_path / "now.csv").write_text("lon,lat,agent\n9.1,48.0\n")
    result, _ = survey("--from", "now.csv", ends_with=2)
    assert "got the agents ['']; wanted one row for each, with distinct names" in result.output


def test_each_agent_has_a_row_of_positions(survey, tmp_path):
    (tmp_path / "now.csv").write_text("lon,lat\n9.1,48.0\n9.2,48.0\n")
    result, _ = survey("--from", "now.csv", "--agents", "5", ends_with=2)
    assert "got 2 rows; wanted one for each of --agents 5" in result.output
    _, folder = survey("--from", "now.csv", "--agents", "2")
    assert len(rows_of(folder / "next.csv")) == 2


@pytest.mark.filterwarnings("default::swarmbo.errors.DataWarning")
def test_marks_of_missing_values_are_set_as_the_warning_says(survey):
    rows = ["9.1,48.0,-999", "9.11,48.01,9999"]
    result, _ = survey(rows=rows)
    assert "--missing nan takes all numbers as they are" in result.output
    assert "missing =" not in result.output
    assert "from 40 samples" in result.output
    assert "from 42 samples" in survey("--missing", "nan", rows=rows)[0].output
    assert "from 41 samples" in survey("--missing", "-999", rows=rows)[0].output


@pytest.mark.parametrize(
    ("positions", "value", "message"),
    [
        (np.zeros((3, 2)), 1.0, r"positions: got array.*; wanted .* \(2, 2\)"),
        (np.zeros((1, 2)), 1.0, r"positions: got array\(\[\[0., 0.\]\]\); wanted"),
        (np.array([[0.0, np.nan], [1.0, 1.0]]), 1.0, r"positions: got array.*nan.*; wanted finite numbers"),
        ([["a", "b"], ["c", "d"]], 1.0, r"positions: got \[\['a'"),
        ([[1.0], [2.0, 3.0]], 1.0, r"positions: got \[\[1.0\]"),
        (None, np.nan, r"values: got array.*; wanted finite numbers, of shape \(20,\)"),
    ],
)
def test_positions_of_other_agents_and_numbers_that_are_not_finite_are_refused(positions, value, message):
    places = np.random.default_rng(0).random((20, 2))
    samples = Samples(places, np.array([value, *places[1:, 0]]), None, Coordinates(("x", "y")), "ph")
    with pytest.raises(ShapeError, match=message):
        plan_next(samples, agents=2, positions=positions)


def test_each_reason_to_refuse_degrees_has_its_own_text():
    with pytest.raises(ConfigError, match=r"longitude \(the farthest is \[0.0, 84.0\]\); wanted at most 90"):
        LocalProjection.about(np.array([[0.0, 84.0], [50.0, 84.5], [100.0, 85.0]]), "$")
    with pytest.raises(ConfigError, match=r"reach 2,[0-9]+ km .* \(the farthest is .*\); wanted at most 1,200 km"):
        LocalProjection.about(np.array([[0.0, 10.0], [20.0, 10.0], [40.0, 10.0]]), "$")
