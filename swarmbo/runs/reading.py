"""A finished or partial run: its scenario, results, tables and figures."""

import os
import sys
import warnings
from base64 import b64encode
from collections.abc import Callable, Iterable
from csv import writer as csv_writer
from dataclasses import dataclass
from functools import cached_property
from html import escape
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from swarmbo.boundary.files import LoggedLines
from swarmbo.boundary.values import counted, digits, html_table
from swarmbo.errors import ConfigError, DataWarning, RunFolderError, SwarmboWarning
from swarmbo.records import Recommendation, RoundRecord
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.report import Summary, report_rows
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.states import WorldRecord, read_world
from swarmbo.runs.table import Columns, measurements, stacked, to_frame, write_csv, write_parquet

T = TypeVar("T")
STDOUT = Path("-")
_MEDIA = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}  # displayable in a page


class Pictures(tuple[Path, ...]):
    """Files of figures, displayed by notebooks."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """HTML of the displayable files; other files are shown by name."""
        return "".join(map(_picture_html, self))


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """A run in its folder. Properties are read once: load the run again for newer rounds.

    Example:
        >>> import tempfile
        >>> import swarmbo as sb
        >>> from swarmbo.runs import load, run
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = run(load("camel", ["rounds=2"]), folder)
        ...     done = sb.load_run(folder)
        ...     done.is_complete, done.scenario.rounds, len(done.records), list(done.table())[6:9]
        (True, 2, 3, ['x0', 'x1', 'value'])
    """

    folder: RunFolder

    @property
    def path(self) -> Path:
        """Path of the folder."""
        return self.folder.path

    @cached_property
    def scenario(self) -> Scenario:
        """Resolved scenario.

        Raises:
            RunFolderError: If it was changed or damaged; the other properties raise it too.
        """
        return self.folder.scenario()

    @cached_property
    def world(self) -> WorldRecord:
        """World of the run: bounds, agents, variables, and the maximum if known."""
        return read_world(self.folder)

    @cached_property
    def records(self) -> list[RoundRecord]:
        """Logged rounds; the first is the reset, round 0."""
        if self.log.damage is not None:
            raise RunFolderError(self.log.damage)
        return self.log.records

    @cached_property
    def log(self) -> LoggedLines:
        """Lines and rounds of the log before the first changed or damaged line, and a message about that line."""
        return self.folder.log_before_damage()

    @cached_property
    def summary(self) -> Summary | None:
        """Summary of the run; None while rounds are missing from its log."""
        return read_summary(self.folder)

    @property
    def is_complete(self) -> bool:
        """True once all rounds are complete."""
        return self.summary is not None

    @property
    def best(self) -> Recommendation | None:
        """Largest measurement so far and its location; None without a measurement."""
        return self.records[-1].best if self.records else None

    @property
    def recommendation(self) -> Recommendation | None:
        """Maximum expected by the team after the last logged round, and its location."""
        return self.records[-1].recommendation if self.records else None

    def table(self) -> Columns:
        """Measurements as a dict of columns, with one row per measurement; see ``swarmbo.runs.table.measurements``.

        A team's ``attach`` takes it unchanged.

        Warns:
            DataWarning: If the log is damaged; the table has the rounds before the damaged line.
        """
        if self.log.damage is not None:
            message = f"{self.log.damage}; the table has the {len(self.log.records)} rounds before it"
            warnings.warn(message, DataWarning, stacklevel=2)
        return measurements(self.log.records, self.world, self.scenario)

    def to_dataframe(self) -> Any:
        """Measurements as a ``pandas.DataFrame``.

        Raises:
            ConfigError: If pandas is not installed.
        """
        return to_frame(self.table())

    def plot(self, *names: str) -> Pictures:
        """Figures of the run for a notebook; drawn first if they are missing.

        Args:
            names: Names of figures: ``regret``, ``belief``, ``run`` (the animation), …; by default all but the
                animation.

        Raises:
            RunFolderError: If figures cannot be drawn or written.
            ConfigError: If a name is not that of a figure.
        """
        from swarmbo.runs.figures import draw_run, drawn_files  # late: matplotlib takes time to import

        files = {path.stem: path for path in drawn_files(self.path) or draw_run(self.path)}
        if unknown := [name for name in names if name not in files]:
            raise ConfigError(f"got {unknown[0]!r}; wanted some of {', '.join(files) or 'none: no round is logged'}")
        return Pictures(files[name] for name in names or [name for name in files if name != "run"])

    def __repr__(self) -> str:
        """Name, progress and best measurement, in one line."""
        best = "" if self.best is None else f", best {digits(self.best.mean, self.best.std, 6)}"
        return f"<{self._title}{best}; {self.path}>"

    def _repr_html_(self) -> str:
        """Closing table for notebooks; for a partial run, its best measurement and progress."""
        if self.summary is not None:
            return html_table(self._title, report_rows(self.summary))
        best = "none" if self.best is None else digits(self.best.mean, self.best.std, 6)
        return html_table(self._title, [("best measurement", best), ("folder", self.path)])

    @property
    def _title(self) -> str:
        scenario = self.scenario
        done = "" if self.is_complete else f", {max(len(self.records) - 1, 0)} of {counted(scenario.rounds, 'round')}"
        return f"Run of {scenario.name}, seed {scenario.seed}{done}"


def load_run(path: str | os.PathLike[str]) -> Run:
    """Load a run from its folder, without running any of its code; ``summary`` is None if it is incomplete.

    Raises:
        RunFolderError: If there is no run.

    Example:
        >>> import swarmbo as sb
        >>> try:
        ...     sb.load_run("runs/none")
        ... except sb.SwarmboError as error:
        ...     print(error)
        runs/none: no such folder; wanted the folder of a run
    """
    return Run(RunFolder.open(Path(path)))


def read_each(paths: Iterable[Path], read: Callable[[Run], T]) -> tuple[list[T], list[str]]:
    """Results of ``read`` for readable runs, and error messages of the others: a damaged run does not stop the rest."""
    found, left_out = list[T](), list[str]()
    for path in paths:
        try:
            found.append(read(load_run(path)))
        except RunFolderError as error:
            left_out.append(str(error))
    return found, left_out


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Run folders at or below some folders, in the order given, then by name."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such folder; wanted folders of runs")
        below = sorted(file.parent for file in path.rglob("scenario.toml"))
        found.update(dict.fromkeys(run.resolve() for run in below))
    if not found:
        raise RunFolderError(f"no run lies in {', '.join(map(str, paths))}; wanted folders of runs")
    return list(found)


def _picture_html(path: Path) -> str:
    media = _MEDIA.get(path.suffix)
    if media is None:
        return f"<p>{escape(str(path))}</p>"
    content = b64encode(path.read_bytes()).decode()
    return f'<img alt="{escape(path.stem)}" style="max-width:100%" src="data:{media};base64,{content}">'


def read_summary(folder: RunFolder) -> Summary | None:
    """Summary of a complete run; None while rounds are missing from the log."""
    path = folder.path / "summary.json"
    if not path.is_file():
        return None
    with folder.reading(path.name, "delete it and resume the run"):
        summary = msgspec.json.decode(folder.read_sealed(path.name), type=Summary)
    return summary if len(folder.records()) == summary.rounds + 1 else None


def export(
    folder: Path, file: Path | None = None, *, csv: bool = False, parquet: bool = False
) -> tuple[Path | None, bool]:
    """Write the table of a run, or one table of all runs below a folder, with a column ``run``.

    By default, the file is ``measurements.csv`` or ``.parquet`` in the folder. ``-`` is standard output, for CSV only.
    Returns the file (None for standard output), and False if rounds are missing because a run is damaged.
    """
    if csv and parquet:
        raise ConfigError("got --csv and --parquet; wanted one of them")
    ending = "" if file is None else file.suffix.lower()
    if not csv and not parquet and ending not in ("", ".csv", ".parquet"):
        raise ConfigError(f"got {str(file)!r}; wanted a name that ends in .csv or .parquet, or --csv with any name")
    as_parquet = parquet or (not csv and ending == ".parquet")
    if as_parquet and file == STDOUT:
        raise ConfigError("got - for Parquet; wanted a file")
    root, is_run = folder.resolve(), RunFolder.holds_run(folder)

    def tabled(run: Run) -> tuple[Path, bool, Columns | None]:
        is_intact = run.log.damage is None
        has_rounds = is_run or run.log.records or not is_intact  # a run without rounds may have no world either
        return run.path, is_intact, run.table() if has_rounds else None

    readable, left_out = ([tabled(load_run(folder))], []) if is_run else read_each(find_runs([folder]), tabled)
    is_whole = not left_out and all(is_intact for _, is_intact, _ in readable)
    left_out += [f"{path}: no round is logged" for path, _, table in readable if table is None]
    for why in left_out:
        warnings.warn(f"{why}; left out", SwarmboWarning, stacklevel=2)
    tables = {path.resolve().relative_to(root): table for path, _, table in readable if table is not None}
    if not tables:
        raise RunFolderError(f"{folder}: no run there has logged a round; wanted at least one")
    names = (os.fsencode(path.as_posix()).decode(errors="backslashreplace") for path in tables)  # in UTF-8
    table = tables[Path()] if is_run else stacked(dict(zip(names, tables.values(), strict=True)))
    if file == STDOUT:
        if isinstance(sys.stdout, TextIOWrapper):  # UTF-8 as in files, whatever the system's encoding
            sys.stdout.reconfigure(encoding="utf-8")
        csv_writer(sys.stdout, lineterminator="\n").writerows([table, *zip(*table.values(), strict=True)])
        return None, is_whole
    path = folder / f"measurements.{'parquet' if as_parquet else 'csv'}" if file is None else file
    (write_parquet if as_parquet else write_csv)(table, path)
    return path, is_whole
