"""Results of runs over fields come in the coordinates of the input, to a centimetre."""

import csv
import re

import numpy as np
import pytest
import rasterio
from typer.testing import CliRunner

import swarmbo as sb
from swarmbo.boundary.coordinates import LocalProjection
from swarmbo.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:.*(taken for degrees|are left out|no value):swarmbo.errors.DataWarning")
CENTIMETRE = {"m": 0.01, "degrees": 9e-8}


def exported(folder, *command):
    """Run a command without figures; rows of its exported table, and what it printed."""
    result = CliRunner().invoke(app, [*command, "--no-figures", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    table = CliRunner().invoke(app, ["export", str(folder), "-"]).stdout
    return list(csv.DictReader(table.splitlines())), result.output


def test_samples_at_longitudes_and_latitudes_come_back_as_in_the_file(tmp_path):
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
def test_places_on_a_raster_are_told_in_its_own_system(tmp_path, scenario, crs, corner, cell, names, unit):
    """Values rise linearly in the raster's own coordinates, so each value tells where it was measured."""
    x = (np.arange(60) + 0.5) * cell
    for axis, values in enumerate((np.tile(x, (60, 1)), np.tile(-x[:, None], (1, 60)))):
        path = tmp_path / f"{axis}.tif"
        place = rasterio.Affine(cell, 0.0, corner[0], 0.0, -cell, corner[1])
        shape = {"height": 60, "width": 60, "count": 1, "dtype": "float64"}
        with rasterio.open(path, "w", driver="GTiff", crs=crs, transform=place, **shape) as tiff:
            tiff.write(values, 1)
        found, _ = exported(
            tmp_path / f"run{axis}",
            *("run", scenario, "--set", f"environment.field={{raster = '{path}'}}", "--set", "rounds=2"),
            *("--set", "environment.noise_std=0.0"),
        )
        own = np.array([float(row[names[axis]]) for row in found if row["value"]])
        told = np.array([float(row["value"]) for row in found if row["value"]])
        assert np.ptp(own) > 5 * cell
        np.testing.assert_allclose(own, told + corner[axis], atol=CENTIMETRE[unit])


def test_a_table_with_these_columns_is_attached_as_any_other(tmp_path):
    rows = [f"{9.1 + i % 7 / 1e3},{48.0 + i // 7 / 1e3},{i}" for i in range(49)]
    (tmp_path / "s.csv").write_text("\n".join(["x_deg,y_deg,ph", *rows]))
    exported(
        tmp_path / "run",
        *("run", "measured", "--set", f"environment.field.csv={tmp_path / 's.csv'}", "--set", "rounds=1"),
        *("--set", "environment.field.value=ph"),
    )
    table = sb.load_run(tmp_path / "run").table()
    assert {"x", "y", "x_deg", "y_deg"} <= set(table)
    team = sb.Team.for_field([f"robot_{i}" for i in range(4)], [0.0, 0.0], [1000.0, 1000.0], seed=0)
    team.attach(table)
    assert team.n_data == len(table["value"])
