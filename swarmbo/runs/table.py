"""A run as one tidy table: a row for each measurement."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swarmbo.boundary import files
from swarmbo.deciding.tables import place_names
from swarmbo.errors import needed
from swarmbo.records import Evaluation, RoundRecord, Sample
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.states import WorldRecord

Columns = dict[str, list[Any]]  # cells by column, None if missing

_INTEGER_COLUMNS = ("seed", "round")
_TEXT_COLUMNS = ("run", "scenario", "query", "agent", "factor", "status")
_FIRST_COLUMNS, _LAST_COLUMNS = (  # columns before and after those of the location
    ("scenario", "seed", "round", "query", "agent", "factor"),
    ("value", "noise_std", "status", "predicted_mean", "predicted_std", "cost", "distance"),
)


def measurements(records: Sequence[RoundRecord], world: WorldRecord, scenario: Scenario) -> Columns:
    """Table of a run, whose columns ``docs/guide/runs-and-papers.md`` describes.

    In a field, a row is one agent's measurement in one round; abstaining agents have none. Measurements en route
    follow, in rows without a query. Locations are also given in the coordinates of the input, if these are not the
    map's. For a function, a row is the outcome of one factor, if factors are reported, otherwise that of the sum. A
    variable with the name of another column is ``point.<name>``.
    """
    names = tuple(world.variables) or place_names(len(world.low))
    fixed = (*_FIRST_COLUMNS, *_LAST_COLUMNS)
    axes = {name: f"point.{name}" if name in fixed else name for name in names}
    rows, coordinates = list[dict[str, Any]](), world.coordinates
    input_axes = () if coordinates is None else coordinates.axes((*fixed, *axes.values()))
    for record in records:
        common = {"scenario": scenario.name, "seed": scenario.seed, "round": record.round, "query": record.query}
        placed = _field_rows(record) if record.joint is None else _function_rows(record, record.joint, world)
        for place, row in placed:
            if coordinates is not None and len(place) == len(input_axes):
                location = coordinates.own(np.array([place]))[0].round(coordinates.decimals)
                row |= dict(zip(input_axes, location.tolist(), strict=True))
            values = world.named(place).values() if world.types else place
            rows.append({**common, **dict(zip(axes.values(), values, strict=False)), **row})
    columns = (*_FIRST_COLUMNS, *axes.values(), *input_axes, *_LAST_COLUMNS)
    return {name: [row.get(name) for row in rows] for name in columns}


def _field_rows(record: RoundRecord) -> list[tuple[list[float], dict[str, Any]]]:
    requested = [
        (s.location, {"agent": s.agent, **_outcome_cells(s), "cost": s.cost, "distance": s.distance})
        for s in record.samples
        if not s.declined
    ]
    stops = [(sample.agent, stop) for sample in record.samples for stop in sample.en_route]
    return requested + [(s.location, {"agent": agent, "query": None, **_outcome_cells(s)}) for agent, s in stops]


def _function_rows(
    record: RoundRecord, joint: Evaluation, world: WorldRecord
) -> list[tuple[list[float], dict[str, Any]]]:
    if joint.factors is None:
        return [(joint.location, {**_outcome_cells(joint), "cost": sum(sample.cost for sample in record.samples)})]
    owners, noise_stds = world.owners or {}, joint.noise_std if isinstance(joint.noise_std, dict) else {}
    return [
        (joint.location, {"agent": owners.get(factor), "factor": factor, **_value_cells(value, noise_stds.get(factor))})
        for factor, value in joint.factors.items()
    ]


def _outcome_cells(outcome: Sample | Evaluation) -> dict[str, Any]:
    cells = _value_cells(outcome.measurement, outcome.noise_std)
    return {**cells, "predicted_mean": outcome.mean, "predicted_std": outcome.std}


def _value_cells(value: float | None, noise_std: object) -> dict[str, Any]:
    has_noise = isinstance(noise_std, float | int) and noise_std == noise_std  # no NaN
    status = "failed" if value is None else "ok"
    return {"value": value, "noise_std": noise_std if has_noise else None, "status": status}


def stacked(tables: Mapping[str, Columns]) -> Columns:
    """Tables of several runs as one, with the name of each in the column ``run``."""
    names = dict.fromkeys(name for table in tables.values() for name in table)
    lengths = {run: len(next(iter(table.values()))) for run, table in tables.items()}
    combined: Columns = {"run": [run for run, length in lengths.items() for _ in range(length)]}
    for name in names:
        cells = [cell for run, table in tables.items() for cell in table.get(name, [None] * lengths[run])]
        combined["point.run" if name == "run" else name] = cells
    return combined


def to_frame(table: Columns) -> Any:
    """Table as a ``pandas.DataFrame``."""
    pandas = needed("pandas", "pandas", "to_dataframe()")
    numbers = {name: cells for name, cells in table.items() if _column_kind(name, cells) == "number"}
    return pandas.DataFrame({**table, **{name: np.array(cells, dtype=float) for name, cells in numbers.items()}})


def write_csv(table: Columns, path: str | os.PathLike[str]) -> None:
    """Write the table as CSV, completely or not at all; missing cells are empty, numbers exact."""
    files.write_rows(Path(path), [table, *zip(*table.values(), strict=True)])


def write_parquet(table: Columns, path: str | os.PathLike[str]) -> None:
    """Write the table as Parquet, completely or not at all."""
    arrow = needed("pyarrow", "pandas", "Parquet")
    parquet = needed("pyarrow.parquet", "pandas", "Parquet")
    types = {"text": arrow.string(), "integer": arrow.int64(), "number": arrow.float64(), "mixed": arrow.string()}
    kinds = {name: _column_kind(name, cells) for name, cells in table.items()}
    mixed_columns = {
        name: [None if cell is None else str(cell) for cell in table[name]] for name in kinds if kinds[name] == "mixed"
    }
    arrays = {name: arrow.array(cells, types[kinds[name]]) for name, cells in {**table, **mixed_columns}.items()}
    with files.replacing(Path(path)) as file:
        parquet.write_table(arrow.table(arrays), file)


def _column_kind(name: str, cells: Sequence[Any]) -> str:
    """Kind of a column; ``mixed``: choices that are texts, numbers and booleans together."""
    if name in (*_TEXT_COLUMNS, *_INTEGER_COLUMNS):
        return "text" if name in _TEXT_COLUMNS else "integer"
    types = {type(cell) for cell in cells if cell is not None}
    if types == {int}:
        return "integer"
    if types == {str}:
        return "text"
    return "number" if types <= {int, float} else "mixed"
