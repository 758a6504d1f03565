"""Evaluations that a user attaches: arrays, or a table (a list of dicts, a frame, or a CSV file)."""

import difflib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.spatial import checked_rounds
from swarmbo.boundary.csv_measurements import is_missing, marked
from swarmbo.boundary.files import read_table
from swarmbo.boundary.values import LARGEST_OUTCOME, is_plain, real_array, short
from swarmbo.errors import ConfigError, DataWarning, ShapeError
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset
from swarmbo.spaces.variables import Categorical, Variable

Column = Float[np.ndarray, " t"]
TOTAL, VALUE, AGENT, FACTOR, NOISE = "total", "value", "agent", "factor", "noise_std"


class Rows(NamedTuple):
    """Evaluations that a user attaches: arrays, or a table and names of its columns; see ``AskTell.attach``.

    ``are_codes`` is True for points with codes of variables in place of values.
    """

    points: Any
    outcomes: Any = None
    agents: str | Sequence[str] | None = None
    rounds: Any = None
    noise_std: Any = None
    constraints: Any = None
    are_codes: bool = False


def is_table(points: object) -> bool:
    """True if evaluations have named columns: a path, dicts, a table of columns, or a frame of any library."""
    if isinstance(points, str | os.PathLike | Mapping) or hasattr(points, "columns"):
        return True
    return isinstance(points, Sequence) and any(isinstance(row, Mapping) for row in cast(Sequence[object], points))


def read_rows(given: Rows, problem: Problem, columns: object = None) -> Rows:
    """Evaluations of a table as arrays, NaN without an outcome; ``columns`` names the coordinates' columns."""
    table = _Table.of(given.points)
    axes = place_names(problem.box.n_dims) if problem.is_field else problem.graph.variables
    names = axes if columns is None else _texts(columns, len(axes))
    X = _places(table, problem, names)
    agents, outcomes, rounds, noise = given.agents, given.outcomes, given.rounds, given.noise_std
    taken = [*names, *problem.channels, *problem.ranges, *(name for name in (outcomes, rounds) if type(name) is str)]
    noise = NOISE if noise is None and NOISE in table.columns and NOISE not in taken else noise
    when = table.numbers(_text(rounds, "$.rounds")) if isinstance(rounds, str | Mapping) else None
    stds = _columns(table.numbers, problem, noise, "$.noise_std") if isinstance(noise, str | Mapping) else None
    quantities = {name: table.numbers(name) for name in problem.ranges if name in table.columns}
    if given.constraints is None and (lost := [name for name in problem.ranges if name not in quantities]):
        got = f"{table.source}: no column of {', '.join(lost)}, which have limits"
        warnings.warn(f"{got}; columns: {table.names}", DataWarning, stacklevel=4)
    if problem.is_field:
        results = _columns(table.outcomes, problem, VALUE if outcomes is None else outcomes, "$.outcomes")
        agents = table.texts(AGENT, problem.agents) if agents is None and AGENT in table.columns else agents
    elif outcomes is None and {FACTOR, VALUE} <= set(table.columns) - set(names):
        X, results, when, stds, quantities = _long(table, problem, X, when, stds, quantities)
    else:
        results = _outcomes(table, problem, outcomes, names)
    measured = quantities if given.constraints is None else given.constraints
    when, stds = rounds if when is None else when, noise if stds is None else stds
    return Rows(X, results, agents, when, stds, measured, are_codes=True)


def _places(table: "_Table", problem: Problem, names: Sequence[str]) -> Float[np.ndarray, "t n"]:
    if problem.is_mixed:
        columns = zip(names, problem.variables.values(), strict=True)
        return np.column_stack([table.codes(name, variable) for name, variable in columns])
    X = np.column_stack([table.numbers(name) for name in names]).reshape(-1, len(names))
    good = problem.box.is_near(X) if problem.is_field else np.array([problem.has(place) for place in X], dtype=bool)
    good &= np.isfinite(X).all(axis=1)
    if not good.all():
        row = int(np.argmin(good))
        column = problem.box.farthest(X[row])
        low, high = problem.box.low[column], problem.box.high[column]
        near = ", or at most 100 longest sides of the box away" if problem.is_field else ""
        raise table.refused(row, names[column], f"a number between {low:g} and {high:g}{near}")
    return X


def place_names(n_dims: int) -> tuple[str, ...]:
    """Names of the coordinates of a location in a field: x, y and z, or numbered names."""
    return ("x", "y", "z")[:n_dims] if n_dims <= 3 else tuple(f"x{axis}" for axis in range(n_dims))


def _columns(read: Callable[[str], Column], problem: Problem, given: object, at: str) -> Float[np.ndarray, " t *k"]:
    """Column of a given name or, for a function, one per factor from a table ``{factor: name}``."""
    if not isinstance(given, Mapping) or problem.is_field:
        return read(_text(given, at))
    named = cast(Mapping[str, object], given)
    if set(named) != set(problem.channels):
        raise ConfigError(f"got columns of {list(named)}; wanted one for each of {list(problem.channels)}", at=at)
    return np.column_stack([read(_text(named[factor], at)) for factor in problem.channels])


def _outcomes(table: "_Table", problem: Problem, outcomes: object, places: Sequence[str]) -> Float[np.ndarray, " t *k"]:
    """Totals, or a column for each factor, from columns with given or default names."""
    if outcomes is not None:
        return _columns(table.outcomes, problem, outcomes, "$.outcomes")
    if all(factor in table.columns for factor in problem.channels):
        return np.column_stack([table.outcomes(factor) for factor in problem.channels])
    found = next((name for name in (TOTAL, VALUE) if name in table.columns and name not in places), None)
    if found is None:
        wanted = f"{TOTAL!r}, or one for each of {list(problem.channels)}"
        raise ConfigError(f"{table.source}: no column of outcomes among {table.names}; wanted {wanted}, or outcomes=…")
    return table.outcomes(found)


def _long(
    table: "_Table", problem: Problem, X: Float[np.ndarray, "t n"], when: Any, noise: Any, there: Mapping[str, Column]
) -> tuple[Any, ...]:
    """Evaluations from a table with one row per evaluation and factor, as ``swarmbo export`` writes it."""
    values, factors = table.outcomes(VALUE), table.texts(FACTOR, (*problem.channels, ""))
    if not any(factors):
        return X, values, when, noise, there
    if noise is not None and noise.ndim > 1:
        raise ConfigError("got a table of columns; wanted one column, as each row is of one factor", at="$.noise_std")
    if not all(factors):
        row = factors.index("")
        raise ConfigError(f"{table.where(row)}, column {FACTOR!r}: got no factor; wanted one in each row, or in no row")
    keys = [(*place, *(() if when is None else (when[row],))) for row, place in enumerate(X.tolist())]
    firsts, evaluations = list[int](), list[dict[str, int]]()
    for row, (key, factor) in enumerate(zip(keys, factors, strict=True)):
        if not firsts or key != keys[firsts[-1]] or factor in evaluations[-1]:
            firsts.append(row)
            evaluations.append({})
        evaluations[-1][factor] = row

    def by_factor(column: Float[np.ndarray, " r"]) -> Float[np.ndarray, "t k"]:
        return np.array([[column[one[f]] if f in one else np.nan for f in problem.channels] for one in evaluations])

    noise = None if noise is None else by_factor(noise)
    there = {name: column[firsts] for name, column in there.items()}
    return X[firsts], by_factor(values), None if when is None else when[firsts], noise, there


def _has_booleans(points: object) -> bool:
    if isinstance(points, np.ndarray) and points.dtype.kind in "iuf":
        return False
    return not {bool, np.bool}.isdisjoint(map(type, np.array(points, dtype=object).flat))


def attached(given: Rows, problem: Problem, own: Sequence[str] | None = None, *, takes_rounds: bool = True) -> Dataset:
    """Dataset of evaluations that a user attaches as arrays, NaN for failed or missing outcomes.

    For a function, a table of outcomes has a column for each of the ``own`` channels, by default all. Evaluations may
    have rounds if the belief ``takes_rounds``.
    """
    X, y = real_array(given.points), real_array(given.outcomes)
    if not (given.are_codes or problem.is_field) and (
        problem.is_mixed or (X is not None and _has_booleans(given.points))
    ):
        X = problem.coded_rows(given.points)  # booleans are no numbers
    if X is None or y is None:
        got = short(given.points if X is None else given.outcomes)
        raise ShapeError(f"got {got}; wanted arrays of numbers, NaN for a failed outcome")
    X = X.reshape(0, problem.box.n_dims) if X.shape == (0,) else np.atleast_2d(X)
    # NaN compares as False, so missing and absurd outcomes become failures in one step
    y = np.where(np.abs(y) < LARGEST_OUTCOME, y, np.nan)
    rounds = None if given.rounds is None else checked_rounds(given.rounds, len(X))
    if rounds is not None and not takes_rounds:
        raise ShapeError("got rounds for a belief without a time axis; wanted none, or a belief with `time`")
    t, n, k = len(X), problem.domain.n_dims, len(problem.channels)
    measured = _measured(given.constraints, problem, t)
    if problem.is_field:
        return _measurements(given._replace(points=X, outcomes=y, rounds=rounds), problem, takes_rounds=takes_rounds)
    if given.agents is not None:
        raise ConfigError("got agents; wanted none: in a function all agents set one joint point", at="$.agents")
    columns = [problem.graph.place_of[channel] for channel in (problem.channels if own is None else own)]
    if X.shape != (t, n) or y.shape not in ((t,), (t, len(columns))):
        wanted = f"(t, {n}) and (t,) or (t, {len(columns)})" + f", of the agent's factors {own}" * (own is not None)
        raise ShapeError(f"got points {X.shape} and outcomes {y.shape}; wanted {wanted}")
    if y.ndim == 1 and problem.outcomes == "per-factor":
        if k > 1 and t:
            raise ShapeError(f"got totals; this team observes factors: wanted outcomes ({t}, {k})")
        y, columns = y[:, None], [0]  # the total is the outcome of the only factor
    X = problem.points(X)
    totals, factors, noise = (np.full(shape, np.nan) for shape in (t, (t, k), (t, 1 + k)))
    if y.ndim == 1:
        totals, noise[:, :1] = y, _known_noise(given.noise_std, y[:, None])
    else:
        factors[:, columns], noise[:, 1:][:, columns] = y, _known_noise(given.noise_std, y)
    return Dataset(X, totals, factors, rounds, noise_std=noise, measured=measured)


def _measurements(checked: Rows, problem: Problem, *, takes_rounds: bool) -> Dataset:
    """Dataset of a field; a location may end with its round."""
    X, y = checked.points, checked.outcomes.reshape(-1)
    t, d, k = len(y), problem.box.n_dims, len(problem.channels)
    if X.shape not in ((t, d), (t, d + takes_rounds)):
        with_rounds = f", or ({t}, {d + 1}) for a belief with `time`" * (X.shape == (t, d + 1))
        raise ShapeError(f"got locations {X.shape} and {t} outcomes; wanted ({t}, {d}){with_rounds}")
    if not (is_near := problem.box.is_near(X[:, :d]) & np.isfinite(X).all(axis=1)).all():
        row = int(np.argmin(is_near))
        raise ShapeError(f"locations[{row}]: got {X[row].tolist()}; wanted finite numbers {problem.box.NEAR}")
    known_noise = _known_noise(checked.noise_std, y[:, None])[:, 0]
    points, factors, noise = (np.full((t, n), np.nan) for n in (problem.domain.n_dims, k, 1 + k))
    for row, channel in enumerate(_measurers(problem, checked.agents, t)):
        points[row, problem.columns(problem.channels[channel])] = X[row, :d]
        factors[row, channel] = y[row]
        noise[row, 1 + channel] = known_noise[row]
    return Dataset(points, np.full(t, np.nan), factors, X[:, d] if X.shape[1] > d else checked.rounds, noise_std=noise)


def _measured(constraints: object, problem: Problem, t: int) -> Float[np.ndarray, "t c"] | None:
    """Measured quantities (t, c) with limits, of attached evaluations; NaN if unknown. None if there are no limits."""
    given, columns = problem.quantities(constraints), list[Column]()
    for name in problem.ranges:
        column = real_array(given.get(name, np.nan))
        if column is None or column.shape not in ((), (t,)):
            raise ShapeError(f"constraints[{name!r}]: got {short(given[name])}; wanted ({t},) numbers, NaN if unknown")
        columns.append(np.broadcast_to(np.where(np.abs(column) < LARGEST_OUTCOME, column, np.nan), t))
    return np.column_stack(columns) if columns else None


def _known_noise(noise_std: object, y: Float[np.ndarray, "t k"]) -> Float[np.ndarray, "t k"]:
    """Standard deviation of the noise of attached outcomes; NaN if unknown."""
    given, (t, k) = real_array(np.nan if noise_std is None else noise_std), y.shape
    if given is None or given.shape not in ((), (t,), (t, k)):
        got = short(noise_std) if given is None else f"shape {given.shape}"
        raise ShapeError(f"noise_std: got {got} for {t} points; wanted a number, ({t},)" + (f" or {y.shape}" * (k > 1)))
    noise = np.broadcast_to(given[:, None] if given.ndim == 1 else given, (t, k))
    if (refused := ~np.isnan(noise) & ~((noise >= 0.0) & (noise < LARGEST_OUTCOME))).any():
        row, column = np.argwhere(refused)[0]
        wanted = f"a finite number >= 0 and < {LARGEST_OUTCOME:g}, NaN if not known"
        raise ShapeError(f"noise_std[{row}]: got {noise[row, column]}; wanted {wanted}")
    return noise


def _measurers(problem: Problem, agents: str | Sequence[str] | None, count: int) -> list[int]:
    given = problem.agents[0] if agents is None else agents
    names = [given] * count if isinstance(given, str) else list(given)
    if len(names) != count:
        raise ShapeError(f"got {len(names)} agents for {count} measurements; wanted one, or one for each")
    if strangers := [name for name in names if name not in problem.agents]:
        raise ConfigError(f"got {short(strangers[0])}; wanted one of {list(problem.agents)}", at="$.agents")
    return [problem.graph.place_of[name] for name in names]


@dataclass(frozen=True, eq=False)
class _Table:
    """Columns of cells, None if empty; ``source`` and ``where`` name the table and its rows in messages."""

    source: str
    columns: Mapping[str, Sequence[object]] = field(repr=False)
    where: Callable[[int], str]

    @classmethod
    def of(cls, given: Any) -> "_Table":
        if isinstance(given, str | os.PathLike):
            path = os.fspath(cast("str | os.PathLike[str]", given))
            header, lines = read_table(path)
            cells = {name: [row[column] for _, row in lines] for column, name in enumerate(header)}
            return cls(path, cells, lambda row: f"{path}: line {lines[row][0]}")
        if isinstance(given, Mapping) or hasattr(given, "columns"):
            names = list(given) if isinstance(given, Mapping) else [*getattr(given, "column_names", given.columns)]
            columns = {str(name): _cells(given[name]) for name in names}
            if len({len(cells) for cells in columns.values()}) > 1:
                raise ConfigError("got columns of different lengths; wanted an entry in each row", at="$.points")
            return cls("the table", columns, lambda row: f"row {row}")
        for row, line in enumerate(given):
            if not isinstance(line, Mapping):
                raise ConfigError(f"got {short(line)}; wanted a dict, as in the other rows", at=f"$.points[{row}]")
        names = dict.fromkeys(str(name) for line in given for name in line)
        columns = {name: [line.get(name) for line in given] for name in names}
        return cls("the rows", columns, lambda row: f"row {row}")

    @property
    def names(self) -> str:
        return ", ".join(self.columns) or "none"

    def column(self, name: str) -> Sequence[object]:
        if name not in self.columns:
            near = difflib.get_close_matches(name, self.columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{self.source}: no column {name!r}; columns: {self.names}{hint}")
        return self.columns[name]

    def numbers(self, name: str) -> Column:
        """Column of numbers; NaN for empty cells."""
        numbers = [_number(cell) for cell in self.column(name)]
        if None in numbers:
            wanted = "a number in the digits 0 to 9, or an empty cell"
            raise self.refused(numbers.index(None), name, wanted)
        return np.array(numbers, dtype=float)

    def codes(self, name: str, variable: Variable) -> Column:
        found = [_code(cell, variable) for cell in self.column(name)]
        for row, code in enumerate(found):
            if code is None or not variable.axis.has(code):
                raise self.refused(row, name, variable.wanted)
        return np.array(found, dtype=float)

    def outcomes(self, name: str) -> Column:
        """Column of outcomes; NaN also for numbers that mark missing outcomes, with a warning."""
        numbers = self.numbers(name)
        marks, _ = marked(numbers, None, is_coordinate=False)
        if marks.any():
            stand_ins = ", ".join(f"{number:.10g}" for number in np.unique(numbers[marks]))
            taken = f"{self.source}: {stand_ins} in {marks.sum()} rows of {name!r} is taken for no outcome"
            warnings.warn(f"{taken}, as an empty cell is; arrays are taken as they are", DataWarning, stacklevel=2)
        return np.where(marks, np.nan, numbers)

    def texts(self, name: str, known: Sequence[str]) -> list[str]:
        """Column of names; an empty name for an empty cell."""
        texts = ["" if _is_nothing(cell) else str(cell) for cell in self.column(name)]
        for row, text in enumerate(texts):
            if text not in known:
                raise self.refused(row, name, f"one of {[one for one in known if one]}")
        return texts

    def refused(self, row: int, name: str, wanted: str) -> ConfigError:
        return ConfigError(f"{self.where(row)}, column {name!r}: got {short(self.columns[name][row])}; wanted {wanted}")


def _cells(column: Any) -> Sequence[object]:
    to_list = getattr(column, "to_pylist", None) or getattr(column, "to_list", None) or getattr(column, "tolist", None)
    cells = column if to_list is None else to_list()
    if isinstance(cells, str) or not isinstance(cells, Iterable):
        wanted = "a list of values, or [{column: value, …}] for one evaluation"
        raise ConfigError(f"got {short(column)} as a column; wanted {wanted}", at="$.points")
    return list(cast(Iterable[object], cells))


def _number(cell: Any) -> float | None:
    """Number of a cell, NaN if it is empty; None if it is not a number."""
    if _is_nothing(cell) or (isinstance(cell, str) and is_missing(cell)):
        return np.nan
    if isinstance(cell, bool | complex) or (isinstance(cell, str) and not is_plain(cell)):
        return None
    try:
        return float(cell)
    except (TypeError, ValueError):
        return None


def _code(cell: Any, variable: Variable) -> float | None:
    """Code of a cell's value, which is text in a file; None if the variable has no such value."""
    if not isinstance(cell, str):
        return variable.code(None if _is_nothing(cell) else cell)
    code = variable.code(cell)
    if code is None and isinstance(variable, Categorical):  # the cell may be a value's text
        code = next((float(i) for i, value in enumerate(variable.values) if str(value) == cell), None)
    if code is not None:
        return code
    number = _number(cell)
    return None if number is None else variable.code(None if cell == "" else number)


def _is_nothing(cell: Any) -> bool:
    # NAType is a type of pandas, which is not imported
    return cell is None or type(cell).__name__ == "NAType" or (isinstance(cell, float) and cell != cell)


def _text(given: object, at: str) -> str:
    if not isinstance(given, str):
        raise ConfigError(f"got {short(given)}; wanted the name of a column", at=at)
    return given


def _texts(given: object, count: int) -> list[str]:
    if not isinstance(given, Sequence) or isinstance(given, str) or len(cast(Sequence[object], given)) != count:
        raise ConfigError(f"got {short(given)}; wanted the names of {count} columns", at="$.columns")
    return [_text(name, "$.columns") for name in cast(Sequence[object], given)]
