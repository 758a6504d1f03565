"""Results of a survey: its map, a table of the next places, and files of them."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.table import Table

from swarmbo.boundary.files import replacing
from swarmbo.boundary.values import digits
from swarmbo.errors import MissingPackageError, needed
from swarmbo.plotting import maps, style
from swarmbo.runs.table import write_csv
from swarmbo.survey.plan import SurveyPlan

_MOST_LONG = 6.0  # largest ratio of the longer to the shorter side of a panel
_GPX = "http://www.topografix.com/GPX/1/1"


def survey_figure(plan: SurveyPlan, title: str = "") -> Figure:
    """Two panels in the coordinates of the file: expected values, and their standard deviation."""
    grid, samples, coordinates = plan.map, plan.samples, plan.samples.coordinates
    lattice = maps.Lattice(grid.x, grid.y, np.isfinite(grid.mean))
    xy = coordinates.own(samples.places)
    # a degree of longitude is shorter than one of latitude
    aspect = 1.0 if coordinates.unit == "m" else 1.0 / np.cos(np.deg2rad(float(grid.y.mean())))
    true_ratio = np.ptp(grid.y) * aspect / np.ptp(grid.x)
    ratio = np.clip(true_ratio, 1.0 / _MOST_LONG, _MOST_LONG)  # a panel of samples on a line would be too narrow
    aspect *= ratio / true_ratio
    with style.applied():
        size = (10.5, 1.4 + 3.9 * ratio) if ratio < 1.3 else (3.0 + 8.4 / ratio, 6.4)
        figure = style.new_figure(*size, layout="compressed")
        panels = figure.subplots(1, 2, sharex=True, sharey=True)
        mean_look: tuple[Any, ...] = (style.MEAN_COLOURS, None, samples.quantity)
        std_look: tuple[Any, ...] = (style.STD_COLOURS, maps.from_zero(grid.std.ravel()), f"std of {samples.quantity}")
        values = grid.mean.ravel(), grid.std.ravel()
        for ax, picture, look in zip(panels, values, (mean_look, std_look), strict=True):
            maps.plot_lattice(ax, lattice, picture, *look)
            ax.set(aspect=aspect, xlabel=coordinates.columns[0])
            ax.grid(visible=False)
            ax.scatter(*xy.T, s=11, facecolors="white", edgecolors=style.INK, linewidths=0.6, label="sample", zorder=3)
            for number, place in enumerate(plan.places):
                ax.plot(*place.place, "o", ms=13, mfc="white", mec=style.VERMILLION, mew=1.8, zorder=5, clip_on=False)
                ax.annotate(str(number + 1), place.place, ha="center", va="center_baseline", fontsize=9, zorder=6)
            ax.locator_params(axis="x", nbins=4 if ratio < 1.3 else 1)
            ax.ticklabel_format(style="plain", useOffset=False)  # coordinates as in the file
            if ratio >= 1.3 and (coordinates.unit == "degrees" or abs(grid.x).max() >= 1e4):  # long labels overlap
                ax.tick_params(axis="x", rotation=45)
        handles = panels[0].get_legend_handles_labels()[0]
        if plan.level is not None and np.nanmin(grid.mean) < plan.level < np.nanmax(grid.mean):
            panels[0].contour(grid.x, grid.y, lattice.image(grid.mean.ravel()), levels=[plan.level], **style.LEVEL)
            handles.append(Line2D([], [], color=style.INK, linewidth=1.8, label=f"level {plan.level:g}"))
        panels[0].set_ylabel(coordinates.columns[1])
        mark: dict[str, Any] = {"marker": "o", "ms": 9, "mfc": "white", "mec": style.VERMILLION, "mew": 1.6}
        handles.append(Line2D([], [], label="next location", linestyle="none", **mark))
        figure.legend(handles=handles, loc="outside lower center", ncols=3)
        style.name_figure(figure, title, f"{len(samples)} samples")
    return figure


def places_table(plan: SurveyPlan, title: str) -> Table:
    """The next locations, in order, with the expected value, its standard deviation, and the reason."""
    frame, table = plan.samples.coordinates, Table(title=title, title_justify="left")
    for name in ("", "agent", *frame.columns, "expected", "std", "why"):
        table.add_column(name, overflow="fold")
    decimals = max(6 if frame.unit == "degrees" else 1, plan.decimals - 1)
    for number, place in enumerate(plan.places, start=1):
        mean = digits(place.mean, place.std)
        cells = (*(f"{c:.{decimals}f}" for c in place.place), mean, f"{place.std:.3g}", place.why)
        table.add_row(str(number), place.agent, *cells)
    return table


def write_plan(plan: SurveyPlan, folder: Path) -> tuple[list[Path], list[str]]:
    """Write all files of a plan except its figure; return their paths, and lines about files that are left out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("next.geojson", "next.gpx", "map.tif"):  # files of an earlier plan may not be written again
        (folder / name).unlink(missing_ok=True)
    grid, rows, left_out = plan.map, np.argwhere(np.isfinite(plan.map.mean)), list[str]()
    columns = {"agent": "agent", "expected": "mean", "std": "std", "distance_m": "distance_m", "why": "why"}
    next_ones = {name: [getattr(place, key) for place in plan.places] for name, key in columns.items()}
    cells = np.column_stack([grid.x[rows[:, 1]], grid.y[rows[:, 0]]])
    shown = (("expected", grid.mean), ("std", grid.std))
    tenth = 0.1 * float(np.nanmedian(grid.std))  # neighbouring cells differ by less than a standard deviation
    map_values = {name: [float(digits(value, tenth, 6)) for value in values[tuple(rows.T)]] for name, values in shown}
    written = [
        _csv(plan, folder / "next.csv", [place.place for place in plan.places], next_ones),
        _csv(plan, folder / "map.csv", cells, map_values),
    ]
    if all(place.lon_lat is not None for place in plan.places):
        written += [_geojson(plan, folder / "next.geojson"), _gpx(plan, folder / "next.gpx")]
    else:
        fix = "name the samples' coordinate reference system, such as --crs EPSG:32632"
        left_out.append(f"next.geojson and next.gpx need longitudes and latitudes: {fix}")
    try:
        written.append(_geotiff(plan, folder / "map.tif"))
    except MissingPackageError as error:
        left_out.append(str(error.message))
    return written, left_out


def _csv(plan: SurveyPlan, path: Path, places: Any, more: dict[str, list[Any]]) -> Path:
    """Write a table that begins with the columns of coordinates of the samples' file."""
    where = plan.samples.coordinates
    own = np.round(np.asarray(places, dtype=float), max(where.decimals, plan.decimals))
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
        mean = digits(place.mean, place.std)
        ElementTree.SubElement(point, "desc").text = f"expected {mean} ± {place.std:.3g}; {place.why}"
    with replacing(path) as file:
        ElementTree.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
    return path


def _geotiff(plan: SurveyPlan, path: Path) -> Path:
    rasterio = needed("rasterio", "geo", "map.tif")
    found = plan.map
    dx, dy = found.x[1] - found.x[0], found.y[1] - found.y[0]
    corner = rasterio.Affine(dx, 0.0, found.x[0] - dx / 2.0, 0.0, -dy, found.y[-1] + dy / 2.0)
    crs = "EPSG:4326" if plan.samples.coordinates.unit == "degrees" else plan.samples.coordinates.crs
    shape: dict[str, Any] = {"height": len(found.y), "width": len(found.x), "count": 2, "dtype": "float64"}
    with rasterio.io.MemoryFile() as memory:
        with memory.open(driver="GTiff", crs=crs, transform=corner, nodata=np.nan, compress="deflate", **shape) as tiff:
            for band, (values, name) in enumerate(((found.mean, "expected"), (found.std, "std")), start=1):
                tiff.write(values[::-1], band)  # the first row is in the north
                tiff.set_band_description(band, f"{name} {plan.samples.quantity}")
        with replacing(path) as file:
            file.write(memory.read())
    return path
