"""Files of a survey plan: the map as GeoTIFF and CSV, the next places as GeoJSON, GPX and CSV."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from swarmbo.boundary.extras import needed
from swarmbo.boundary.files import replacing
from swarmbo.errors import MissingPackageError
from swarmbo.runs.table import write_csv
from swarmbo.survey.plan import SurveyPlan

_GPX = "http://www.topografix.com/GPX/1/1"


def write_plan(plan: SurveyPlan, folder: Path) -> tuple[list[Path], list[str]]:
    """Write all files of a plan but its figure; also returns a line for each that could not be written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("next.geojson", "next.gpx", "map.tif"):  # of an earlier plan, and perhaps not written again
        (folder / name).unlink(missing_ok=True)
    found, rows, left_out = plan.map, np.argwhere(np.isfinite(plan.map.mean)), list[str]()
    next_ones: dict[str, list[Any]] = {"agent": [place.agent for place in plan.places]}
    for key in ("mean", "std", "distance_m", "why"):
        next_ones["expected" if key == "mean" else key] = [getattr(place, key) for place in plan.places]
    cells = np.column_stack([found.x[rows[:, 1]], found.y[rows[:, 0]]])
    shown = (("expected", found.mean), ("std", found.std))
    map_values = {name: [float(f"{value:.6g}") for value in values[tuple(rows.T)]] for name, values in shown}
    written = [
        _csv(plan, folder / "next.csv", [place.place for place in plan.places], next_ones),
        _csv(plan, folder / "map.csv", cells, map_values),
    ]
    if all(place.lon_lat is not None for place in plan.places):
        written += [_geojson(plan, folder / "next.geojson"), _gpx(plan, folder / "next.gpx")]
    else:
        left_out.append(
            "next.geojson and next.gpx need longitudes and latitudes: name the samples' coordinate reference system, "
            "such as --crs EPSG:32632"
        )
    try:
        written.append(_geotiff(plan, folder / "map.tif"))
    except MissingPackageError as error:
        left_out.append(str(error.message))
    return written, left_out


def _csv(plan: SurveyPlan, path: Path, places: Any, more: dict[str, list[Any]]) -> Path:
    """Write a table that begins with the columns of coordinates of the samples' file."""
    where = plan.samples.coordinates
    own = np.round(np.asarray(places, dtype=float), where.decimals)
    write_csv({**dict(zip(where.columns, own.T.tolist(), strict=True)), **more}, path)
    return path


def _geojson(plan: SurveyPlan, path: Path) -> Path:
    features: list[dict[str, Any]] = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [round(c, 8) for c in place.lon_lat or ()]},
            "properties": {"agent": place.agent, "expected": place.mean, "std": place.std, "why": place.why},
        }
        for place in plan.places
    ]
    with replacing(path) as file:
        file.write(json.dumps({"type": "FeatureCollection", "features": features}, indent=1).encode())
    return path


def _gpx(plan: SurveyPlan, path: Path) -> Path:
    root = ElementTree.Element("gpx", {"version": "1.1", "creator": "swarmbo", "xmlns": _GPX})
    for place in plan.places:
        lon, lat = place.lon_lat or (0.0, 0.0)
        point = ElementTree.SubElement(root, "wpt", {"lat": f"{lat:.8f}", "lon": f"{lon:.8f}"})
        ElementTree.SubElement(point, "name").text = place.agent
        ElementTree.SubElement(point, "desc").text = place.why
    with replacing(path) as file:
        ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    return path


def _geotiff(plan: SurveyPlan, path: Path) -> Path:
    rasterio = needed("rasterio", "geo", "map.tif")
    found = plan.map
    dx, dy = found.x[1] - found.x[0], found.y[1] - found.y[0]
    corner = rasterio.Affine(dx, 0.0, found.x[0] - dx / 2.0, 0.0, -dy, found.y[-1] + dy / 2.0)
    crs = plan.samples.coordinates.known_crs
    shape: dict[str, Any] = {"height": len(found.y), "width": len(found.x), "count": 2, "dtype": "float32"}
    with rasterio.io.MemoryFile() as memory:
        with memory.open(driver="GTiff", crs=crs, transform=corner, nodata=np.nan, compress="deflate", **shape) as tiff:
            for band, (values, name) in enumerate(((found.mean, "expected"), (found.std, "std")), start=1):
                tiff.write(values[::-1].astype(np.float32), band)  # the first row is in the north
                tiff.set_band_description(band, f"{name} {plan.samples.quantity}")
        with replacing(path) as file:
            file.write(memory.read())
    return path
