"""The run folder: all data of a run, in standard file formats.

``scenario.toml`` (resolved, with versions), ``world.json`` and ``world.npz`` (the ground truth, if there is one),
``rounds.jsonl`` (one line a round, independent of the clock), ``timings.jsonl``, ``checkpoint.json`` with its
``checkpoint-*.npz``, ``summary.json``, ``figures/``.
"""

import os
import platform
import shutil
import tomllib
import warnings
from collections.abc import Collection, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import scipy
import tomli_w

import swarmbo
from swarmbo import errors
from swarmbo.boundary import files
from swarmbo.errors import RunFolderError, typed
from swarmbo.evaluations.ledger import LEDGER
from swarmbo.records import NetworkRecord, RoundRecord
from swarmbo.runs import stored_files
from swarmbo.runs.scenario import Scenario, require_shallow, scenario_of
from swarmbo.runs.scenario_files import dump, read_toml
from swarmbo.runs.world import user_code_names


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds one run."""

    path: Path

    @classmethod
    def make(cls, path: Path, leftovers: Collection[str] = ()) -> Path:
        """Make a folder for a run; an existing one must hold a run, or only files that match ``leftovers``."""
        with files.naming(path, "cannot be made", "; choose another --out"):
            path.mkdir(parents=True, exist_ok=True)
            # the scenario's partial file is left by a run killed before it began
            ignored = (stored_files.LOCK, *(stored_files.SCENARIO + end for end in files.PARTIALS), *leftovers)
            is_occupied = any(not any(map(file.match, ignored)) for file in path.iterdir())
        if is_occupied and not cls.holds_run(path):
            raise RunFolderError(f"{path}: is not empty; choose another --out")
        stored_files.require_regular(path)
        return path

    @classmethod
    def create(cls, path: Path, scenario: Scenario, code: Mapping[str, str] | None = None) -> "RunFolder":
        """Begin a run in a locked folder from ``make``; ``code`` has the digests of user code by name."""
        folder = cls(path)
        text, used_versions = dump(scenario), {**versions(), **(code or {})}
        note = {**used_versions, "digest": files.digest_of_table({**tomllib.loads(text), "versions": used_versions})}
        folder._replace(stored_files.SCENARIO, (text + "\n" + tomli_w.dumps({"versions": note})).encode())
        return folder

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of a run that was begun."""
        if not path.is_dir():
            raise RunFolderError(f"{path}: no such folder; wanted the folder of a run")
        stored_files.require_regular(path)
        if not cls.holds_run(path):
            raise RunFolderError(f"{path}: no run lies here (it has no scenario.toml); wanted the folder of a run")
        return cls(path)

    @staticmethod
    def holds_run(path: Path) -> bool:
        """Test that a run was begun here."""
        return (path / stored_files.SCENARIO).is_file()

    @property
    def has_begun(self) -> bool:
        """True if the run has logged anything, even a damaged line, or if its agents may have measured elsewhere."""
        files_of_rounds = [self.path / name for name in (LEDGER, "checkpoint.json", stored_files.ELSEWHERE)]
        files_of_rounds += self.path.glob(stored_files.CHECKPOINTS)
        return any(path.exists() for path in files_of_rounds) or bool(self._read("rounds.jsonl"))

    def clear(self) -> None:
        """Delete the files of the run and no others.

        The scenario is deleted last: if the process is killed before, the folder holds a run and can be cleared again.
        """
        for own in (self.path / stored_files.RESULTS).glob(stored_files.RUN_RESULTS):
            with files.naming(own, "cannot be deleted", "; choose another --out"):  # a late worker may write there
                shutil.rmtree(own)
        for file in stored_files.run_files(self.path):
            self._delete(file)
        for inside in (self.path / folder for folder in stored_files.FOLDERS):
            if inside.is_dir() and not any(inside.iterdir()):
                inside.rmdir()
        self._delete(self.path / stored_files.SCENARIO)

    def remove_partial_files(self) -> None:
        """Delete partial files of a killed process, and cut incomplete lines off the logs."""
        for file in stored_files.run_files(self.path):
            if file.name.endswith(files.PARTIAL) and file.is_file():
                self._delete(file)
        length, timings = self.log().length, self._read("timings.jsonl")  # nothing is cut if one cannot be read
        self._cut("rounds.jsonl", length)
        self._cut("timings.jsonl", timings.rfind(b"\n") + 1)

    def _delete(self, file: Path) -> None:
        with files.naming(file, "cannot be deleted", "; choose another --out"):
            file.unlink(missing_ok=True)

    def _cut(self, name: str, length: int) -> None:
        """Shorten a log to its complete lines, so that the next line can follow."""
        log = self.path / name
        with self.writing(name):
            if log.is_file() and log.stat().st_size != length:
                os.truncate(log, length)

    def scenario(self) -> Scenario:
        """Read the resolved scenario."""
        try:
            return scenario_of(self._settings_and_versions[0])
        except errors.ConfigError as error:
            raise RunFolderError(f"{self.path / stored_files.SCENARIO}: {error.at}: {error.message}") from error

    def versions(self) -> dict[str, str]:
        """Versions of the packages that wrote the run, and digests of its user code, by name."""
        return self._settings_and_versions[1]

    def require_same_code(self, code: Mapping[str, str]) -> None:
        """Refuse to continue a run with changed code; ``code`` has the present digests, by name."""
        then = self.versions()
        if changed := [name for name, digest in code.items() if then.get(name) != digest]:
            got = f"{self.path}: the code of {', '.join(changed)} was changed since the run began"
            raise RunFolderError(f"{got}; put it back, or run it again, in another folder or with --force")

    @cached_property
    def _settings_and_versions(self) -> tuple[dict[str, Any], dict[str, str]]:
        path = self.path / stored_files.SCENARIO
        try:
            settings = read_toml(path)
            require_shallow(settings, at=str(path))
        except errors.ConfigError as error:
            raise RunFolderError(str(error)) from error
        note = settings.pop("versions", {})
        if not isinstance(note, dict):
            raise RunFolderError(f"{path}: $.versions: got {note!r:.60}; wanted a table")
        used_versions = {key: value for key, value in note.items() if key != "digest"}
        if note.get("digest") != files.digest_of_table({**settings, "versions": used_versions}):
            got = f"{path}: was changed or damaged after the run began: its digest does not fit"
            raise RunFolderError(f"{got}; put it back, or run the new settings in another folder")
        return settings, note

    @property
    def _start(self) -> str:
        """First digest of the log's hash chain: the digest of the settings."""
        return files.digest_of_table(self._settings_and_versions[0])

    def write_json(self, name: str, value: Any) -> None:
        """Write plain data or a Struct with a digest, completely or not at all."""
        self.write_sealed(name, msgspec.json.format(msgspec.json.encode(value)))

    def write_sealed(self, name: str, text: bytes) -> None:
        """Write a JSON object with a digest, completely or not at all."""
        self._replace(name, files.seal(text))

    def read_sealed(self, name: str) -> bytes:
        """Read a JSON object and check its digest; a ValueError if it was changed since."""
        sealed = files.read_seal(files.read_regular(self.path / name))
        if sealed is None or not sealed.fits:
            why = "is missing" if sealed is None else "does not fit"
            raise ValueError(f"it was changed or damaged: its digest {why}")
        return sealed.text

    def write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Write arrays of numbers, completely or not at all."""
        with self.writing(name):
            files.write_arrays(self.path / name, arrays)

    def _replace(self, name: str, content: bytes) -> None:
        with self.writing(name), files.replacing(self.path / name) as file:
            file.write(content)

    @contextmanager
    def reading(self, name: str, fix: str) -> Generator[None]:
        """Block that reads a file: errors in it name the file and end with ``fix``, how to continue without it."""
        try:
            yield
        except (RunFolderError, errors.StateVersionError):
            raise
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            wrong = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else f"is damaged ({error})"
            raise RunFolderError(f"{self.path / name}: {wrong}; {fix}") from error

    def writing(self, name: str) -> AbstractContextManager[None]:
        """Block that writes a file: errors in it name the file, which the system's error of a full disk does not."""
        hint = f"; what was logged is safe, {self.resume_hint}" if self.holds_run(self.path) else ""
        return files.naming(self.path / name, "cannot be written", hint, errors.UnwritableError)

    @property
    def resume_hint(self) -> str:
        """Words that name the command to continue the run."""
        settings, folder = self._settings_and_versions[0], typed(self.path)
        if (self.path / LEDGER).exists() and "workers" not in settings:
            return f"`swarmbo serve … --out {folder}` goes on"
        return f"`swarmbo resume {folder}{' --trust' if user_code_names(settings) else ''}` goes on"

    def _read(self, name: str) -> bytes:
        with files.naming(self.path / name, "cannot be read"), suppress(FileNotFoundError):
            return files.read_regular(self.path / name)
        return b""

    def log(self) -> files.LoggedLines:
        """Complete lines of the log, without line ends and digests, and their rounds; not an incomplete last line."""
        log = self.log_before_damage()
        if log.damage is not None:
            raise RunFolderError(log.damage)
        return log

    def log_before_damage(self) -> files.LoggedLines:
        """Lines and rounds before the first changed or damaged line of the log, and a message about that line."""
        text, path = self._read("rounds.jsonl"), self.path / "rounds.jsonl"
        return files.logged_lines(text, self._start, path, RoundRecord, lambda record, number: record.round == number)

    def records(self) -> list[RoundRecord]:
        """Logged rounds."""
        return self.log().records

    def append(self, line: bytes, timing: stored_files.Timing | None = None) -> None:
        """Log a round; its line is on the disk on return. If the timing cannot be written, this only warns."""
        with self.writing("rounds.jsonl"):
            files.append_line(self.path / "rounds.jsonl", files.seal(line, self._last_digest()))
        if timing is not None:
            path = self.path / "timings.jsonl"
            try:
                files.append_line(path, files.seal(msgspec.json.encode(timing)), durable=False)
            except OSError as error:
                message = f"{path}: the duration of round {timing.round} cannot be written: {error.strerror or error}"
                warnings.warn(message, errors.SwarmboWarning, stacklevel=2)

    def _last_digest(self) -> str:
        """Last digest of the log's hash chain, read from the end of the file."""
        log = self.path / "rounds.jsonl"
        if not files.regular_file(log):
            return self._start
        with log.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - files.SEAL_LENGTH, 0))
            last = files.read_seal(file.read())
        return self._start if last is None else last.digest

    def network(self) -> list[NetworkRecord]:
        """Records of a fleet's network, one a round; empty without a fleet. An incomplete last line is left out."""
        lines = self._read(stored_files.NETWORK).splitlines(keepends=True)
        try:
            return [msgspec.json.decode(line, type=NetworkRecord) for line in lines if line.endswith(b"\n")]
        except msgspec.MsgspecError as error:
            raise RunFolderError(f"{self.path / stored_files.NETWORK}: is damaged: {error}") from error

    def timings(self) -> list[stored_files.Timing]:
        """Durations of the rounds; timings lost in a crash are missing."""
        found: list[stored_files.Timing] = []
        for number, row in enumerate(self._read("timings.jsonl").split(b"\n"), start=1):
            sealed = files.read_seal(row)
            if sealed is None:  # torn
                continue
            if not sealed.fits:
                got = f"{self.path / 'timings.jsonl'}: line {number} was changed or damaged: its digest does not fit"
                raise RunFolderError(f"{got}; delete it, it only says how long a round took")
            found.append(msgspec.json.decode(sealed.text, type=stored_files.Timing))
        return found


def versions() -> dict[str, str]:
    """Versions of the packages that a run's numbers may depend on."""
    packages = {module.__name__: str(module.__version__) for module in (swarmbo, np, scipy)}
    return {**packages, "python": platform.python_version()}
