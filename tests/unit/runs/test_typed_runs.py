"""Results use the user's values and coordinates: typed variables, degrees, a raster's own system."""

import csv
import json
import re
import shutil

import matplotlib.pyplot as plt
import numpy as np
import pytest
import rasterio

import swarmbo as sb
from swarmbo.boundary.coordinates import LocalProjection
from swarmbo.errors import ConfigError
from swarmbo.plotting.variables import plot_found, plot_variables
from swarmbo.runs import load, load_run, resume, run
from swarmbo.runs.figures import world_of
from swarmbo.runs.report import report_rows
from swarmbo.runs.runner import assemble
from swarmbo.runs.table import write_csv, write_parquet
from swarmbo_envs.functions import get
from swarmbo_envs.functions.additive_function import typed

SETTINGS = ["rounds=4", "initial=2"]
TREES = ["ash", "birch", "elm", "larch", "oak"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "mixed"
    run(load("hartmann-mixed", SETTINGS), path)
    return path


def test_the_log_has_values_and_codes_and_the_summary_has_values(folder):
    found = load_run(folder)
    env, team = assemble(load("hartmann-mixed", SETTINGS))
    for record in found.records[1:]:
        point = record.joint.point
        assert [type(value) for value in point.values()] == [int, int, int, str, float, float]
        assert team.world.place(point) == record.joint.location
        assert record.joint.measurement == pytest.approx(
            env.unwrapped.function.value(np.array([record.joint.location]))[0]
        )
    assert found.best.point in [record.joint.point for record in found.records[1:]]
    assert found.summary.recommendation.point["x3"] in TREES
    assert found.summary.recommendation.point == team.world.named(found.summary.recommendation.location)
    shown = dict(report_rows(found.summary))["recommendation"].partition("(")[2].split(", ")
    assert [one.partition(" = ")[0] for one in shown] == list(found.summary.recommendation.point)
    text = json.loads((folder / "summary.json").read_text())
    assert text["best"]["point"]["x3"] in TREES


def test_tables_have_values_and_a_team_accepts_them_unchanged(folder, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    found = load_run(folder)
    frame = found.to_dataframe()
    assert [str(frame[name].dtype)[:5] for name in ("x0", "x1", "x2", "x4", "x5")] == ["int64"] * 3 + ["float"] * 2
    assert set(frame["x3"]) <= set(TREES)
    _, team = assemble(load("hartmann-mixed", SETTINGS))
    X = [record.joint.location for record in found.records[1:]]
    write_csv(found.table(), tmp_path / "all.csv")
    write_parquet(found.table(), tmp_path / "all.parquet")
    for table in (found.table(), frame, tmp_path / "all.csv", pandas.read_parquet(tmp_path / "all.parquet")):
        attached = sb.Team(None, team.problem.variables, seed=0)
        attached.attach(table)
        assert attached.history.X.tolist() == X


def test_figures_name_values_and_ranges(folder):
    found = load_run(folder)
    world = world_of(found.folder)
    _, (left, right) = plt.subplots(1, 2)
    plot_variables(left, found.records, world)
    plot_found(right, found.records, world)
    names = [text.get_text() for text in left.get_yticklabels()]
    assert names[0] == "x0: 1 to 9"
    assert names[2] == "x2: 1 to 16, logarithmic"
    assert names[3].startswith("x3: 'ash', ")
    written = [text.get_text() for text in right.texts]
    assert found.best.point["x3"] in written
    assert str(found.best.point["x0"]) in written
    # codes are shown by their position on the axis, which may be logarithmic
    shares = left.images[0].get_array()
    x4 = np.array([record.joint.point["x4"] for record in found.records[1:]])
    np.testing.assert_allclose(shares[4], np.log(x4 / 0.001) / np.log(1000.0))
    plt.close("all")


def test_a_run_resumes_to_the_same_bytes_and_workers_evaluate_the_same_design(folder, tmp_path, cut):
    shutil.copytree(folder, tmp_path / "cut")
    cut(tmp_path / "cut", 3)
    resume(tmp_path / "cut")
    assert (tmp_path / "cut" / "rounds.jsonl").read_bytes() == (folder / "rounds.jsonl").read_bytes()
    points = [record.joint.point for record in load_run(folder).records[1:]]
    threads = ["workers.count=1", "workers.engine=concurrent.futures:ThreadPoolExecutor"]  # threads start at once
    run(load("hartmann-mixed", [*SETTINGS, *threads], trust=True), tmp_path / "workers", trust=True)
    found = {record.query: record.joint.point for record in load_run(tmp_path / "workers").records[1:]}
    assert [found["q00001"], found["q00002"]] == points[:2]
    assert all(type(point["x0"]) is int for point in found.values())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('environment.types.x0={kind="integer", low=3, high=1}', r"types\.x0"),
        ('environment.types.x9={kind="integer", low=1, high=3}', r"types: got 'x9'; wanted some of x0"),
        ('environment.types.x3={kind="tree"}', r"types\.x3"),
        ('environment.types.x3={kind="categorical", values=["oak"]}', r"types\.x3"),
    ],
)
def test_wrong_types_of_a_scenario_are_refused_with_their_path(setting, message):
    with pytest.raises(ConfigError, match=message):
        assemble(load("hartmann-mixed", [setting]))


def test_the_maximum_of_a_typed_function_is_the_largest_of_all_its_values():
    types = {"x0": {"kind": "integer", "low": 0, "high": 8}, "x1": {"kind": "categorical", "values": list("abcde")}}
    f = typed(get("camel"), types, seed=3)
    X = np.array([(a, b) for a in range(9) for b in range(5)], dtype=float)
    values = f.value(X)
    assert f.maximum == values.max()
    assert f.argmax.tolist() == X[values.argmax()].tolist()
    own = get("camel")
    places = np.sort(np.unique(f.value(np.column_stack([np.full(5, 4.0), np.arange(5.0)]))))
    wanted = own.value(np.column_stack([np.zeros(5), np.linspace(-2.0, 2.0, 5)]))
    np.testing.assert_allclose(places, np.sort(np.unique(wanted)))


pytestmark = pytest.mark.filterwarnings("ignore:.*(taken for degrees|are left out|no value):swarmbo.errors.DataWarning")
CENTIMETRE = {"m": 0.01, "degrees": 9e-8}


@pytest.fixture
def exported(cli):
    """A function that runs a command without figures, and returns the rows of its exported table and its output."""

    def make(folder, *command):
        result = cli(*command, "--no-figures", "--out", folder)
        return list(csv.DictReader(cli("export", folder, "-").stdout.splitlines())), result.output

    return make


def test_samples_at_longitudes_and_latitudes_have_the_coordinates_of_the_file(tmp_path, exported):
    here, rng = LocalProjection(9.0, 0.0, 0.0), np.random.default_rng(0)
    degrees = here.degrees(here.metres(np.array([[9.1, 48.0]])) + 1000.0 * rng.random((60, 2)))
    rows = [f"{lon:.8f},{lat:.8f},{'' if i % 9 == 0 else i}" for i, (lon, lat) in enumerate(degrees)]
    (tmp_path / "s.csv").write_text("\n".join(["lon,lat,ph", *rows]))
    found, output = exported(
        tmp_path / "run",
        *("run", "measured", "--set", f"environment.field.csv={tmp_path / 's.csv'}", "--set", "rounds=2"),
        *("--set", "environment.field.value=ph", "--set", "environment.noise_std=0.0"),
    )
    for row in found:
        wanted = degrees[round(float(row["value"]))]  # a value is the number of its row
        np.testing.assert_allclose([float(row["lon"]), float(row["lat"])], wanted, atol=CENTIMETRE["degrees"])
    best = max(found, key=lambda row: float(row["value"]))
    lon, lat = re.search(r"at lon ([\d.]+), lat ([\d.]+),", output).groups()
    np.testing.assert_allclose([float(lon), float(lat)], [float(best["lon"]), float(best["lat"])], atol=1e-6)


@pytest.mark.parametrize(
    ("scenario", "crs", "corner", "cell", "names", "unit"),
    [
        ("robots", "EPSG:4326", (-84.42, 36.7), 0.0005, ("lon", "lat"), "degrees"),
        ("field", "EPSG:32616", (720000.0, 4060000.0), 50.0, ("easting", "northing"), "m"),
    ],
)
def test_places_on_a_raster_are_reported_in_its_own_system(
    tmp_path, exported, scenario, crs, corner, cell, names, unit
):
    """Values rise linearly in the raster's own coordinates, so each value shows where it was measured."""
    x = (np.arange(60) + 0.5) * cell
    for axis, values in enumerate((np.tile(x, (60, 1)), np.tile(-x[:, None], (1, 60)))):
        path = tmp_path / f"{axis}.tif"
        place = rasterio.Affine(cell, 0.0, corner[0], 0.0, -cell, corner[1])
        shape = {"height": 60, "width": 60, "count": 1, "dtype": "float64"}
        with rasterio.open(path, "w", driver="GTiff", crs=crs, transform=place, **shape) as tiff:
            tiff.write(values, 1)
        found, _ = exported(
            tmp_path / f"run{axis}",
            *("run", scenario, "--set", f"environment.field={{raster = '{path}'}}", "--set", "rounds=1"),
            *("--set", "environment.noise_std=0.0"),
        )
        own = np.array([float(row[names[axis]]) for row in found if row["value"]])
        measured = np.array([float(row["value"]) for row in found if row["value"]])
        assert np.ptp(own) > 5 * cell
        np.testing.assert_allclose(own, measured + corner[axis], atol=CENTIMETRE[unit])


def test_a_team_accepts_a_table_with_coordinates_of_the_file(tmp_path):
    rows = [f"{9.1 + i % 7 / 1e3},{48.0 + i // 7 / 1e3},{i}" for i in range(49)]
    (tmp_path / "s.csv").write_text("\n".join(["x_deg,y_deg,ph", *rows]))
    field = [f"environment.field.csv={tmp_path / 's.csv'}", "environment.field.value=ph"]
    run(load("measured", ["rounds=1", *field]), tmp_path / "run")
    table = sb.load_run(tmp_path / "run").table()
    assert {"x", "y", "x_deg", "y_deg"} <= set(table)
    team = sb.Team.for_field([f"robot_{i}" for i in range(4)], [0.0, 0.0], [1000.0, 1000.0], seed=0)
    team.attach(table)
    assert team.n_data == len(table["value"])
