"""The run folder: all that is known of a run, as files that anything can read.

``scenario.toml`` (resolved, with versions), ``world.json`` and ``world.npz`` (the truth, where there is one),
``rounds.jsonl`` (one line a round, nothing in it depends on the clock), ``timings.jsonl``, ``checkpoint.json`` with its
``checkpoint-*.npz``, ``summary.json``, ``figures/``.
"""

import os
import platform
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import scipy

import swarmbo
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.experiment.scenario import Scenario, dump, read_toml, scenario_of
from swarmbo.records import RoundRecord

_OWN_FILES = (
    "rounds.jsonl",
    "timings.jsonl",
    "summary.json",
    "world.json",
    "world.npz",
    "checkpoint.json",
)
_OWN_FIGURES = (
    "belief.png",
    "regret.png",
    "traffic.png",
    "variables.png",
    "factor_graph.png",
    "agents.png",
    "error_traffic.png",
    "run.gif",
)
CHECKPOINTS = f"checkpoint-{'[0-9]' * 6}.npz"


class Timing(msgspec.Struct, frozen=True):
    """Seconds that one round took, by the wall clock.

    Args:
        round: Which one.
        decide: To choose the next locations; 0 in round 0.
        measure: For the world to step.
        learn: For the belief to take the measurements in.
        record: To score and write the round down.
    """

    round: int
    decide: float
    measure: float
    learn: float
    record: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.decide + self.measure + self.learn + self.record


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds one run."""

    path: Path

    @classmethod
    def create(cls, path: Path, scenario: Scenario, *, among_others: bool = False) -> "RunFolder":
        """Make the folder of a new run.

        Args:
            path: The folder; it must hold nothing yet.
            scenario: What will be run.
            among_others: Whether files that are not a run's may lie there.

        Raises:
            RunFolderError: If something is there already, or the folder cannot be made.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            ours = {".lock", "scenario.toml.partial"}  # the latter of a run that was killed before it began
            occupied = any(file.name not in ours for file in path.iterdir())
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be made: {error.strerror}; choose another --out") from error
        if occupied and not among_others:
            raise RunFolderError(f"{path}: is not empty; choose another --out")
        folder = cls(path)
        folder.write_text("scenario.toml", dump(scenario, versions()))
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of a run that was begun.

        Raises:
            RunFolderError: If it is none.
        """
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such folder; wanted the folder of a run")
        if not cls.holds_run(path):
            raise RunFolderError(f"{path}: no run lies here (it has no scenario.toml); wanted the folder of a run")
        return cls(path)

    @staticmethod
    def holds_run(path: Path) -> bool:
        """Whether a run was begun here."""
        return (path / "scenario.toml").is_file()

    def clear(self) -> None:
        """Delete the run, and nothing that is not a run's: files that others put there or among the figures stay.

        Its scenario goes last: a folder that is killed half cleared still holds a run, which can be cleared again.

        Raises:
            RunFolderError: If a file cannot be deleted.
        """
        figures = self.path / "figures"
        own = [self.path / f"{name}{end}" for name in _OWN_FILES for end in ("", ".partial")]
        own += [self.path / "scenario.toml.partial"]
        own += [file for end in ("", ".partial") for file in self.path.glob(CHECKPOINTS + end)]
        own += [figures / name for name in _OWN_FIGURES] if figures.is_dir() else []
        for file in own:
            self._delete(file)
        if figures.is_dir() and not figures.is_symlink() and not any(figures.iterdir()):
            figures.rmdir()
        self._delete(self.path / "scenario.toml")

    def _delete(self, file: Path) -> None:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(f"{file}: cannot be deleted: {error.strerror}; choose another --out") from error

    def scenario(self) -> Scenario:
        """The resolved scenario.

        Raises:
            RunFolderError: If it was damaged.
        """
        path = self.path / "scenario.toml"
        try:
            data = read_toml(path)
        except ConfigError as error:
            raise RunFolderError(str(error)) from error
        data.pop("versions", None)
        try:
            return scenario_of(data)
        except ConfigError as error:
            raise RunFolderError(f"{path}: {error.at}: {error.message}") from error

    def versions(self) -> dict[str, str]:
        """What wrote the run."""
        return read_toml(self.path / "scenario.toml").get("versions", {})

    def lines(self) -> list[bytes]:
        """The complete lines of the log, without their line ends. A torn last line is left out.

        Raises:
            RunFolderError: If the log cannot be read, or a line before the last is damaged.
        """
        try:
            text = (self.path / "rounds.jsonl").read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunFolderError(f"{self.path / 'rounds.jsonl'}: cannot be read: {error.strerror}") from error
        lines = text.split(b"\n")[:-1]
        if lines and not _is_record(lines[-1], len(lines) - 1):
            lines.pop()
        for number, line in enumerate(lines):
            if not _is_record(line, number):
                raise RunFolderError(
                    f"{self.path / 'rounds.jsonl'}: line {number + 1} is not the record of round {number}"
                )
        return lines

    def records(self) -> list[RoundRecord]:
        """The rounds that were logged."""
        return [msgspec.json.decode(line, type=RoundRecord) for line in self.lines()]

    def cut_torn_line(self) -> None:
        """Shorten the log to its complete lines, so that the next one can follow."""
        length = sum(len(line) + 1 for line in self.lines())
        log = self.path / "rounds.jsonl"
        with self._writing("rounds.jsonl"):
            if log.is_file() and log.stat().st_size != length:
                os.truncate(log, length)

    def append(self, line: bytes, timing: Timing) -> None:
        """Log a round. When this returns, it is on the disk.

        Raises:
            RunFolderError: If it cannot be written, as whatever else is written here.
        """
        with self._writing("rounds.jsonl"), (self.path / "rounds.jsonl").open("ab") as log:
            log.write(line + b"\n")
            log.flush()
            os.fsync(log.fileno())
        with self._writing("timings.jsonl"), (self.path / "timings.jsonl").open("ab") as log:
            log.write(msgspec.json.encode(timing) + b"\n")

    def timings(self) -> list[Timing]:
        """How long the rounds took; rounds whose timing was lost to a crash are missing."""
        return list(self._timings())

    def _timings(self) -> Iterator[Timing]:
        if not (log := self.path / "timings.jsonl").is_file():
            return
        for line in log.read_bytes().split(b"\n"):
            try:
                yield msgspec.json.decode(line, type=Timing)
            except msgspec.DecodeError:
                continue  # torn by a crash, or the empty end: it only says how long something took

    def write_text(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        self._replace(name, text.encode())

    def write_json(self, name: str, value: Any) -> None:
        """Write plain data or a Struct, whole or not at all."""
        self._replace(name, msgspec.json.format(msgspec.json.encode(value)) + b"\n")

    def write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Write arrays of numbers, whole or not at all.

        Raises:
            RunFolderError: If they cannot be written.
            ValueError: If one holds Python objects, which could only be pickled.
        """
        if objects := [key for key, array in arrays.items() if array.dtype.hasobject]:
            raise ValueError(f"{name}: arrays {objects} hold objects; wanted numbers")
        with self._replacing(name) as file:
            np.savez(file, **arrays)  # pyright: ignore[reportArgumentType]

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Arrays as they were written."""
        with np.load(self.path / name, allow_pickle=False) as file:
            return dict(file)

    def _replace(self, name: str, content: bytes) -> None:
        with self._replacing(name) as file:
            file.write(content)

    @contextmanager
    def _replacing(self, name: str) -> Generator[IO[bytes]]:
        """A file that takes the place of another when it is whole and on the disk."""
        partial = self.path / f"{name}.partial"
        with self._writing(name):
            with partial.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path / name)

    @contextmanager
    def _writing(self, name: str) -> Generator[None]:
        """Name the file that cannot be written; of a full disk the system says no name."""
        try:
            yield
        except OSError as error:
            safe = (
                f"; what was logged is safe, `swarmbo resume {self.path}` goes on" if self.holds_run(self.path) else ""
            )
            raise RunFolderError(f"{self.path / name}: cannot be written: {error.strerror or error}{safe}") from error


def versions() -> dict[str, str]:
    """What a run's numbers may depend on."""
    return {
        "swarmbo": swarmbo.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def _is_record(line: bytes, number: int) -> bool:
    try:
        return msgspec.json.decode(line, type=RoundRecord).round == number
    except msgspec.DecodeError:  # also a ValidationError
        return False
