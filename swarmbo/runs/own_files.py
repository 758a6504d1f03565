"""The names of all files that a run writes, and what may lie under them."""

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from swarmbo.boundary.files import PARTIAL, kind_of
from swarmbo.errors import RunFolderError

SCENARIO = "scenario.toml"
LOCK = ".lock"
NETWORK = "network.jsonl"  # what a fleet's network took in each round
ELSEWHERE = "elsewhere.json"  # agents of a fleet that measured by themselves, in a world that is not the scenario's
CHECKPOINTS = f"checkpoint-{'[0-9]' * 6}.npz"

_FILES = (
    *("rounds.jsonl", "timings.jsonl", "summary.json", "world.json", "world.npz", "checkpoint.json", "figures.json"),
    ELSEWHERE,
    NETWORK,
)
_EXPORTS = ("measurements.csv", "measurements.parquet")
_FIGURES = ("belief", "regret", "traffic", "faults", "variables", "factor_graph", "agents", "error_traffic")
_DRAWN = (*(f"{name}.{end}" for name in _FIGURES for end in ("png", "pdf", "svg")), "run.gif", "run.mp4")


def own_files(run: Path) -> Iterator[Path]:
    """Every file that a run may have written into its folder but for its scenario and lock, be it there or not."""
    for end in ("", PARTIAL):
        yield from (run / f"{name}{end}" for name in (*_FILES, *_EXPORTS))
        yield from run.glob(CHECKPOINTS + end)
        yield from (run / "figures" / f"{name}{end}" for name in _DRAWN)
    yield run / (SCENARIO + PARTIAL)


def stale_files(run: Path) -> Iterator[Path]:
    """Files that a process began to write and did not live to put in their places."""
    return (file for file in own_files(run) if file.name.endswith(PARTIAL) and file.is_file())


def require_own(run: Path) -> None:
    """Refuse a folder in which something else than a regular file has the name of a file of a run.

    A link would lead out of the folder, and what is written through it would overwrite something that is not the run's;
    a pipe would be waited for, and a device never ends.

    Raises:
        RunFolderError: With the name of the first one.
    """
    figures = run / "figures"
    _require(figures, stat.S_ISDIR, "a folder")
    for file in (run / SCENARIO, run / LOCK, *own_files(run)):
        _require(file, stat.S_ISREG, "a file")


def _require(path: Path, is_wanted: Callable[[int], bool], wanted: str) -> None:
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from error
    if not is_wanted(mode):
        got = "a file" if stat.S_ISREG(mode) else kind_of(mode)
        raise RunFolderError(f"{path}: got {got}; wanted {wanted} of the run's own: move it away")
