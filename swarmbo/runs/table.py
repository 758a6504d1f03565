"""A run as one tidy table: a row for each measurement."""

import csv
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

Columns = dict[str, list[Any]]  # cells by column, None for missing ones

_WHOLE = ("seed", "round")
_TEXTS = ("run", "scenario", "query", "agent", "factor", "status")
_BEFORE, _AFTER = (  # columns before those of the location, and after
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
    axes = {name: f"point.{name}" if name in (*_BEFORE, *_AFTER) else name for name in names}
    rows, given = list[dict[str, Any]](), world.coordinates
    own = () if given is None else given.axes((*_BEFORE, *axes.values(), *_AFTER))
    for record in records:
        common = {"scenario": scenario.name, "seed": scenario.seed, "round": record.round, "query": record.query}
        found = _field_rows(record) if record.joint is None else _function_rows(record, record.joint, world)
        for place, row in found:
            if given is not None and len(place) == len(own):
                row |= dict(zip(own, given.own(np.array([place]))[0].round(given.decimals).tolist(), strict=True))
            values = world.named(place).values() if world.types else place
            rows.append({**common, **dict(zip(axes.values(), values, strict=False)), **row})
    return {name: [row.get(name) for row in rows] for name in (*_BEFORE, *axes.values(), *own, *_AFTER)}


def _field_rows(record: RoundRecord) -> list[tuple[list[float], dict[str, Any]]]:
    asked = [
        (s.location, {"agent": s.agent, **_outcome(s), "cost": s.cost, "distance": s.distance})
        for s in record.samples
        if not s.declined
    ]
    stops = ((s.agent, stop) for s in record.samples for stop in s.along)
    return asked + [(stop.location, {"agent": agent, "query": None, **_outcome(stop)}) for agent, stop in stops]


def _function_rows(
    record: RoundRecord, joint: Evaluation, world: WorldRecord
) -> list[tuple[list[float], dict[str, Any]]]:
    if joint.factors is None:
        return [(joint.location, {**_outcome(joint), "cost": sum(sample.cost for sample in record.samples)})]
    owners, noise = world.owners or {}, joint.noise_std if isinstance(joint.noise_std, dict) else {}
    return [
        (joint.location, {"agent": owners.get(factor), "factor": factor, **_value(value, noise.get(factor))})
        for factor, value in joint.factors.items()
    ]


def _outcome(of: Sample | Evaluation) -> dict[str, Any]:
    return {**_value(of.measurement, of.noise_std), "predicted_mean": of.mean, "predicted_std": of.std}


def _value(value: float | None, noise_std: object) -> dict[str, Any]:
    is_known = isinstance(noise_std, float | int) and noise_std == noise_std  # no NaN
    return {"value": value, "noise_std": noise_std if is_known else None, "status": "failed" if value is None else "ok"}


def stacked(tables: Mapping[str, Columns]) -> Columns:
    """Tables of several runs as one, with the name of each in the column ``run``."""
    names = dict.fromkeys(name for table in tables.values() for name in table)
    lengths = {run: len(next(iter(table.values()))) for run, table in tables.items()}
    out: Columns = {"run": [run for run, length in lengths.items() for _ in range(length)]}
    for name in names:
        cells = [cell for run, table in tables.items() for cell in table.get(name, [None] * lengths[run])]
        out["point.run" if name == "run" else name] = cells
    return out


def to_frame(table: Columns) -> Any:
    """Table as a ``pandas.DataFrame``."""
    pandas = needed("pandas", "pandas", "to_dataframe()")
    kinds = {name: _kind(name, cells) for name, cells in table.items()}
    numbers = {name: np.array(table[name], dtype=float) for name, kind in kinds.items() if kind == "number"}
    return pandas.DataFrame({**table, **numbers})


def write_csv(table: Columns, path: str | os.PathLike[str]) -> None:
    """Write the table as CSV, completely or not at all; missing cells are empty, numbers exact."""
    files.write_rows(Path(path), [table, *zip(*table.values(), strict=True)])


def write_rows(table: Columns, file: Any) -> None:
    """Write the table as CSV into an open text file."""
    csv.writer(file, lineterminator="\n").writerows([table, *zip(*table.values(), strict=True)])


def write_parquet(table: Columns, path: str | os.PathLike[str]) -> None:
    """Write the table as Parquet, completely or not at all."""
    arrow = needed("pyarrow", "pandas", "Parquet")
    parquet = needed("pyarrow.parquet", "pandas", "Parquet")
    types = {"text": arrow.string(), "whole": arrow.int64(), "number": arrow.float64(), "mixed": arrow.string()}
    kinds = {name: _kind(name, cells) for name, cells in table.items()}
    texts = {
        name: [None if cell is None else str(cell) for cell in table[name]] for name in kinds if kinds[name] == "mixed"
    }
    arrays = {name: arrow.array(cells, types[kinds[name]]) for name, cells in {**table, **texts}.items()}
    with files.replacing(Path(path)) as file:
        parquet.write_table(arrow.table(arrays), file)


def _kind(name: str, cells: Sequence[Any]) -> str:
    """Kind of a column; ``mixed``: choices that are texts, numbers and booleans together."""
    if name in (*_TEXTS, *_WHOLE):
        return "text" if name in _TEXTS else "whole"
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {int}:
        return "whole"
    return "text" if kinds == {str} else "number" if kinds <= {int, float} else "mixed"
