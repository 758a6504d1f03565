"""The run folder: all that is known of a run, as files that anything can read.

``scenario.toml`` (resolved, with versions), ``world.json`` and ``world.npz`` (the truth, where there is one),
``rounds.jsonl`` (one line a round, nothing in it depends on the clock), ``timings.jsonl``, ``checkpoint.json`` with its
``checkpoint-*.npz``, ``summary.json``, ``figures/``.
"""

import os
import platform
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import scipy
import tomli_w

import swarmbo
from swarmbo.boundary.files import PARTIAL, read_regular, regular_file
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.records import NetworkRecord, RoundRecord
from swarmbo.runs.limits import require_shallow
from swarmbo.runs.own_files import LOCK, NETWORK, SCENARIO, own_files, require_own, stale_files
from swarmbo.runs.round_log import LoggedLines, Timing, logged_lines, logged_timings
from swarmbo.runs.scenario import Scenario, dump, read_toml, scenario_of
from swarmbo.runs.seal import SEAL_LENGTH, digest_of_table, read_seal, seal
from swarmbo.runs.stored_files import StoredFiles


@dataclass(frozen=True)
class RunFolder(StoredFiles):
    """A folder that holds one run.

    Args:
        path: Of the folder.
    """

    @classmethod
    def make(cls, path: Path) -> Path:
        """Make the folder that a run shall have, empty, or take one that holds a run or nothing.

        Raises:
            RunFolderError: If it holds something else, or cannot be made.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            ours = {LOCK, SCENARIO + PARTIAL}  # the latter of a run that was killed before it began
            is_occupied = any(file.name not in ours for file in path.iterdir())
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be made: {error.strerror}; choose another --out") from error
        if is_occupied and not cls.holds_run(path):
            raise RunFolderError(f"{path}: is not empty; choose another --out")
        require_own(path)
        return path

    @classmethod
    def create(cls, path: Path, scenario: Scenario, code: Mapping[str, str] | None = None) -> "RunFolder":
        """Begin a run in a folder that holds none; whoever may meet others there holds its lock.

        Args:
            path: The folder, which ``make`` made; files that are not a run's may lie there.
            scenario: What will be run.
            code: Digests of code of a user's own, by its name.

        Raises:
            RunFolderError: If it cannot be written.
        """
        folder = cls(path)
        text, used = dump(scenario), {**versions(), **(code or {})}
        note = {**used, "digest": _digest(tomllib.loads(text), used)}
        folder.write_text(SCENARIO, text + "\n" + tomli_w.dumps({"versions": note}))
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The folder of a run that was begun.

        Raises:
            RunFolderError: If it is none, or links, pipes or devices lie in it under the names of its files.
        """
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such folder; wanted the folder of a run")
        require_own(path)
        if not cls.holds_run(path):
            raise RunFolderError(f"{path}: no run lies here (it has no scenario.toml); wanted the folder of a run")
        return cls(path)

    @staticmethod
    def holds_run(path: Path) -> bool:
        """Whether a run was begun here."""
        return (path / SCENARIO).is_file()

    def clear(self) -> None:
        """Delete the run, and nothing that is not a run's: files that others put there or among the figures stay.

        Its scenario goes last: a folder that is killed half cleared still holds a run, which can be cleared again.

        Raises:
            RunFolderError: If a file cannot be deleted.
        """
        for file in own_files(self.path):
            self._delete(file)
        figures = self.path / "figures"
        if figures.is_dir() and not any(figures.iterdir()):
            figures.rmdir()
        self._delete(self.path / SCENARIO)

    def sweep_out(self) -> None:
        """Delete what a process that was killed left half written, and cut what it tore in the logs.

        Raises:
            RunFolderError: If a file cannot be deleted or shortened.
        """
        for file in stale_files(self.path):
            self._delete(file)
        timings = self._read("timings.jsonl")
        self._cut("rounds.jsonl", self._log().length)
        self._cut("timings.jsonl", timings.rfind(b"\n") + 1)

    def _delete(self, file: Path) -> None:
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise RunFolderError(f"{file}: cannot be deleted: {error.strerror}; choose another --out") from error

    def _cut(self, name: str, length: int) -> None:
        """Shorten a log to its whole lines, so that the next one can follow."""
        log = self.path / name
        with self.writing(name):
            if log.is_file() and log.stat().st_size != length:
                os.truncate(log, length)

    def scenario(self) -> Scenario:
        """The resolved scenario.

        Raises:
            RunFolderError: If it was changed or damaged.
        """
        settings, _ = self._told
        try:
            return scenario_of(settings)
        except ConfigError as error:
            raise RunFolderError(f"{self.path / SCENARIO}: {error.at}: {error.message}") from error

    def versions(self) -> dict[str, str]:
        """What wrote the run.

        Raises:
            RunFolderError: If its scenario was changed or damaged.
        """
        return self._told[1]

    def require_same_code(self, code: Mapping[str, str]) -> None:
        """Refuse to take for one run what was made by other code.

        Args:
            code: Digests of a user's own, by its name, as it is now.

        Raises:
            RunFolderError: If it was changed since the run began.
        """
        then = self.versions()
        if changed := [name for name, digest in code.items() if then.get(name) != digest]:
            raise RunFolderError(
                f"{self.path}: the code of {', '.join(changed)} was changed since the run began; put it back, or run "
                "it again, in another folder or with --force"
            )

    @cached_property
    def _told(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The tables of the scenario, and what wrote them."""
        path = self.path / SCENARIO
        try:
            settings = read_toml(path)
            require_shallow(settings, at=str(path))
        except ConfigError as error:
            raise RunFolderError(str(error)) from error
        note = settings.pop("versions", {})
        if not isinstance(note, dict):
            raise RunFolderError(f"{path}: $.versions: got {note!r:.60}; wanted a table")
        if "digest" in note and note["digest"] != _digest(settings, _without_digest(note)):
            raise RunFolderError(
                f"{path}: was changed or damaged after the run began: its digest does not fit; put it back, or run the "
                "new settings in a folder of their own"
            )
        return settings, note

    @property
    def is_sealed(self) -> bool:
        """Whether its files have digests; those of earlier versions do not."""
        return "digest" in self._told[1]

    @property
    def _start(self) -> str | None:
        """What the digests of the log go on from: that of the settings; None for a run of an earlier version."""
        return digest_of_table(self._told[0]) if self.is_sealed else None

    def _read(self, name: str) -> bytes:
        try:
            return read_regular(self.path / name)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise RunFolderError(f"{self.path / name}: cannot be read: {error.strerror}") from error

    def _log(self) -> LoggedLines:
        log = self._log_before_damage()
        if log.damage is not None:
            raise RunFolderError(log.damage)
        return log

    def _log_before_damage(self) -> LoggedLines:
        return logged_lines(self._read("rounds.jsonl"), self._start, self.path / "rounds.jsonl")

    def lines(self) -> list[bytes]:
        """The complete lines of the log, without their line ends and digests. A torn last line is left out.

        Raises:
            RunFolderError: If the log cannot be read, or a line was changed or damaged.
        """
        return self._log().lines

    def records(self) -> list[RoundRecord]:
        """The rounds that were logged."""
        return [msgspec.json.decode(line, type=RoundRecord) for line in self.lines()]

    def records_before_damage(self) -> tuple[list[RoundRecord], str | None]:
        """The rounds before the first line of the log that was changed or damaged, and what is wrong with that."""
        log = self._log_before_damage()
        return [msgspec.json.decode(line, type=RoundRecord) for line in log.lines], log.damage

    def append(self, line: bytes, timing: Timing) -> None:
        """Log a round. When this returns, it is on the disk.

        Raises:
            RunFolderError: If it cannot be written, as whatever else is written here.
        """
        noted, after = msgspec.json.encode(timing), self._last_digest()
        if after is not None:
            line, noted = seal(line, after), seal(noted)
        with self.writing("rounds.jsonl"), (self.path / "rounds.jsonl").open("ab") as log:
            log.write(line + b"\n")
            log.flush()
            os.fsync(log.fileno())
        with self.writing("timings.jsonl"), (self.path / "timings.jsonl").open("ab") as log:
            log.write(noted + b"\n")

    def _last_digest(self) -> str | None:
        """What the digest of the next line goes on from, by the end of the log."""
        start, log = self._start, self.path / "rounds.jsonl"
        if start is None or not regular_file(log):
            return start
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - SEAL_LENGTH, 0))
            last = read_seal(file.read())
        return start if last is None else last.digest

    def network(self) -> list[NetworkRecord]:
        """What a fleet's network took in each round; empty where the run was none. A torn last line is left out.

        Raises:
            RunFolderError: If it is damaged, or cannot be read.
        """
        lines = self._read(NETWORK).splitlines(keepends=True)
        try:
            return [msgspec.json.decode(line, type=NetworkRecord) for line in lines if line.endswith(b"\n")]
        except msgspec.MsgspecError as error:
            raise RunFolderError(f"{self.path / NETWORK}: is damaged: {error}") from error

    def timings(self) -> list[Timing]:
        """How long the rounds took; rounds whose timing was lost to a crash are missing.

        Raises:
            RunFolderError: If a line was changed.
        """
        path = self.path / "timings.jsonl"
        return list(logged_timings(self._read(path.name), sealed=self.is_sealed, path=path))


def versions() -> dict[str, str]:
    """What a run's numbers may depend on."""
    return {
        "swarmbo": swarmbo.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }


def _without_digest(note: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in note.items() if key != "digest"}


def _digest(settings: dict[str, Any], note: dict[str, str]) -> str:
    """What tells whether a scenario was changed, however it was formatted."""
    return digest_of_table({**settings, "versions": note})
