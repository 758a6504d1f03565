"""Files of a run: their names, durations of rounds, and a lock that lets only one process write."""

import re
import stat
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from fnmatch import translate
from pathlib import Path
from typing import IO

import msgspec

from swarmbo.boundary.files import ANIMATION_FORMATS, FIGURE_FORMATS, PARTIALS, kind_of, naming
from swarmbo.errors import RunFolderError
from swarmbo.evaluations.executor import RUN_RESULTS
from swarmbo.evaluations.ledger import LEDGER, STATES

SCENARIO = "scenario.toml"
SUMMARY = "summary.json"  # written when the run is complete
LOCK = ".lock"
NETWORK = "network.jsonl"  # network traffic of a fleet in each round
# names of a fleet's agents that measured with --measure, not in the scenario's world
ELSEWHERE = "elsewhere.json"
CHECKPOINTS = f"checkpoint-{'[0-9]' * 6}.npz"
# written by callbacks
ROUNDS, MLFLOW_RUN, EVENTS, EVENT_FILES = "rounds.csv", "mlflow.json", "tensorboard", "events.out.tfevents.*"
RESULTS = "results"  # folder with the outcomes of workers
FOLDERS = ("figures", EVENTS, RESULTS)
_FIGURES = ("belief", "regret", "traffic", "faults", "variables", "factor_graph", "agents", "error_traffic")
_DRAWN = [*(f"{name}.{end}" for name in _FIGURES for end in FIGURE_FORMATS), *map("run.{}".format, ANIMATION_FORMATS)]
_FILES = (
    *("rounds.jsonl", "timings.jsonl", SUMMARY, "world.json", "world.npz", "checkpoint.json", "figures.json"),
    *(ELSEWHERE, NETWORK, "measurements.csv", "measurements.parquet", ROUNDS, MLFLOW_RUN, LEDGER, CHECKPOINTS, STATES),
    *(f"{RESULTS}/q*.json", *(f"figures/{name}" for name in _DRAWN)),
)
_PATTERNS = (*_FILES, f"{EVENTS}/{EVENT_FILES}", *(name + end for name in (*_FILES, SCENARIO) for end in PARTIALS))
_IS_WRITTEN = re.compile("|".join(map(translate, _PATTERNS)))


def run_files(run: Path) -> list[Path]:
    """Files, complete or partial, that a run wrote into its folder, except the lock and the complete scenario."""
    found = [path for folder in ("", *FOLDERS) for path in (run / folder).glob("*")]
    return [path for path in found if _IS_WRITTEN.fullmatch(path.relative_to(run).as_posix())]


def require_regular(run: Path) -> None:
    """Refuse a folder where a link, a pipe or the like has the name of a run's file: it may lead outside, or block."""
    folders = [*(run / folder for folder in FOLDERS), *(run / RESULTS).glob(RUN_RESULTS)]
    kinds = [(folder, stat.S_ISDIR, "a folder") for folder in folders]
    kinds += [(file, stat.S_ISREG, "a file") for file in (run / SCENARIO, run / LOCK, *run_files(run))]
    for path, is_wanted, wanted in kinds:
        with naming(path, "cannot be read"), suppress(FileNotFoundError, NotADirectoryError):
            mode = path.lstat().st_mode
            if not is_wanted(mode):
                got = "a file" if stat.S_ISREG(mode) else kind_of(mode)
                raise RunFolderError(f"{path}: got {got}; wanted {wanted} that the run wrote; move it away")


class Timing(msgspec.Struct, frozen=True):
    """Durations of the parts of a round by the wall clock, s."""

    round: int
    decide: float
    measure: float
    learn: float
    record: float

    @property
    def total(self) -> float:
        """Sum of all parts."""
        return self.decide + self.measure + self.learn + self.record


if sys.platform == "win32":
    import msvcrt

    def _acquire(file: IO[bytes]) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _acquire(file: IO[bytes]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Hold a run folder's lock for the length of a ``with`` block; it is released when the process ends in any way."""
    with naming(folder / LOCK, "cannot be written"):
        file = (folder / LOCK).open("ab")
    with file:
        try:
            _acquire(file)
        except OSError as error:
            told = f"{folder}: another process is writing to this run; wait for it, or stop it"
            raise RunFolderError(told) from error
        yield
