"""The command that maps a user's samples and proposes the next locations."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Argument, Option

from swarmbo.cli import options


@options.app.command("next")
def next_places(
    samples: Annotated[Path, Argument(metavar="SAMPLES.csv", help="Samples: coordinates and a value in each row.")],
    value: Annotated[
        str | None, Option(metavar="COLUMN", help="Column of the values (default: value, or the only other one).")
    ] = None,
    agents: Annotated[int | None, Option(help="Number of agents (default: 1, or the rows of --from).")] = None,
    aim: Annotated[Literal["map", "peak", "level"], Option(help="Task of the survey.")] = "map",
    level: Annotated[float | None, Option(help="Level of interest, with --aim level.")] = None,
    avoid: Annotated[Path | None, Option(metavar="GEOJSON", help="Polygons without next locations.")] = None,
    area: Annotated[Path | None, Option(metavar="GEOJSON", help="Polygons of interest.")] = None,
    positions: Annotated[Path | None, Option("--from", metavar="CSV", help="Agents' positions, one row each.")] = None,
    x: Annotated[str | None, Option(metavar="COLUMN", help="Column to the east (default: by its name).")] = None,
    y: Annotated[str | None, Option(metavar="COLUMN", help="Column to the north (default: by its name).")] = None,
    coordinates: Annotated[
        Literal["metres", "degrees"] | None, Option(help="Kind of coordinates (default: by the columns' names).")
    ] = None,
    missing: Annotated[list[float] | None, Option(metavar="X", help="Mark of gaps; repeatable. nan: no marks.")] = None,
    noise: Annotated[str | None, Option(metavar="COLUMN", help="Column of the noise (default: by its name).")] = None,
    crs: Annotated[
        str | None, Option(metavar="EPSG:CODE", help="Coordinate reference system of coordinates in metres.")
    ] = None,
    out: Annotated[Path | None, Option(metavar="DIR", help="Default: next/<name of the file>.")] = None,
) -> None:
    """Map samples of a CSV file with their uncertainty, and choose the next locations to sample jointly.

    Append new samples to the file, and type the same command again.
    """
    from swarmbo.plotting import style
    from swarmbo.survey.output import places_table, survey_figure, write_plan
    from swarmbo.survey.plan import plan_next
    from swarmbo.survey.samples import read_positions, read_region, read_samples

    data = read_samples(samples, value, x=x, y=y, coordinates=coordinates, noise=noise, missing=missing, crs=crs)
    folder = out or Path("next") / samples.stem
    names, starts = (agents, None) if positions is None else read_positions(positions, data.coordinates, agents)
    no_go = None if avoid is None else read_region(avoid, data, "--avoid")
    of_interest = None if area is None else read_region(area, data, "--area")
    plan = plan_next(data, names, aim=aim, level=level, avoid=no_go, area=of_interest, positions=starts)
    written, notes = write_plan(plan, folder)
    figure = survey_figure(plan, f"{os.fsencode(samples.name).decode(errors='replace')}, {data.quantity}")
    options.show(places_table(plan, f"next locations: {aim} of {data.quantity} from {len(data)} samples"))
    if data.noise_column is not None:
        typer.echo(f"standard deviation of each value's noise: column {data.noise_column!r}")
    if plan.left_out_rmse is not None:
        error = f"error of the map at locations that are left out: {plan.left_out_rmse:.3g}"
        typer.echo(f"{error}; standard deviation of the samples: {plan.spread:.3g}")
    if plan.neglected is not None:
        typer.echo(f"map: {plan.neglected}")
    for path in (style.save(figure, folder / "map.png"), *written):
        typer.echo(path)
    options.say_notes(notes)
