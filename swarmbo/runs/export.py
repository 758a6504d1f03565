"""Tables of runs as files."""

import sys
from pathlib import Path

from swarmbo.errors import ConfigError
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.reading import find_runs, load_run
from swarmbo.runs.table import stacked, write_csv, write_parquet, write_rows

STDOUT = Path("-")


def export(folder: Path, file: Path | None = None, *, csv: bool = False, parquet: bool = False) -> Path | None:
    """Write the table of a run, or those of all runs below a folder as one, with a column ``run``.

    Args:
        folder: Of the run, or of runs.
        file: Where to; by default ``measurements.csv`` or ``measurements.parquet`` in the folder. ``-`` is standard
            output, of CSV.
        csv: Whether to write CSV, the default unless the file's name ends in ``.parquet``.
        parquet: Whether to write Parquet.

    Returns:
        The file; None where standard output was written.

    Raises:
        RunFolderError: If no run lies there, or its scenario or world is damaged.
        ConfigError: If both formats are wanted, or what writes Parquet is not installed.
        OSError: If the file cannot be written.
    """
    if csv and parquet:
        raise ConfigError("got --csv and --parquet; wanted one of them")
    as_parquet = parquet or (not csv and file is not None and file.suffix == ".parquet")
    if as_parquet and file == STDOUT:
        raise ConfigError("got - for Parquet; wanted a file")
    if RunFolder.holds_run(folder):
        table = load_run(folder).table()
    else:
        top = folder.resolve()
        table = stacked({run.relative_to(top).as_posix(): load_run(run).table() for run in find_runs([folder])})
    if file == STDOUT:
        write_rows(table, sys.stdout)
        return None
    path = folder / f"measurements.{'parquet' if as_parquet else 'csv'}" if file is None else file
    (write_parquet if as_parquet else write_csv)(table, path)
    return path
