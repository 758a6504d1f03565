"""Files of a run that are there whole or not at all, and tell when they were changed."""

from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swarmbo.boundary.arrays import read_arrays, write_arrays
from swarmbo.boundary.files import read_regular, replacing
from swarmbo.errors import RunFolderError
from swarmbo.runs.own_files import SCENARIO
from swarmbo.runs.seal import read_seal, seal


@dataclass(frozen=True)
class StoredFiles(ABC):
    """A folder in which files are replaced as a whole.

    Args:
        path: Of the folder.
    """

    path: Path

    @property
    @abstractmethod
    def is_sealed(self) -> bool:
        """Whether its files have digests."""

    def write_text(self, name: str, text: str) -> None:
        """Write a file whole or not at all."""
        self._replace(name, text.encode())

    def write_json(self, name: str, value: Any) -> None:
        """Write plain data or a Struct with a digest, whole or not at all."""
        self._replace(name, seal(msgspec.json.format(msgspec.json.encode(value))))

    def write_sealed(self, name: str, text: str) -> None:
        """Write a JSON object with a digest, whole or not at all."""
        self._replace(name, seal(text.encode()))

    def read_sealed(self, name: str) -> bytes:
        """A JSON object as it was written.

        Raises:
            OSError: If it cannot be read.
            ValueError: If it was changed since.
        """
        text = read_regular(self.path / name)
        sealed = read_seal(text)
        if sealed is None and self.is_sealed:
            raise ValueError("its digest is missing")
        if sealed is not None and not sealed.fits:
            raise ValueError("it was changed or damaged: its digest does not fit")
        return text if sealed is None else sealed.text

    def write_arrays(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Write arrays of numbers, whole or not at all.

        Raises:
            RunFolderError: If they cannot be written.
            ValueError: If one holds Python objects, which could only be pickled.
        """
        with self.writing(name):
            write_arrays(self.path / name, arrays)

    def read_arrays(self, name: str) -> dict[str, np.ndarray]:
        """Arrays as they were written.

        Raises:
            OSError: If they cannot be read.
            ValueError: If they are damaged.
        """
        return read_arrays(self.path / name)

    def _replace(self, name: str, content: bytes) -> None:
        with self.writing(name), replacing(self.path / name) as file:
            file.write(content)

    @contextmanager
    def writing(self, name: str) -> Generator[None]:
        """A block that writes a file: what fails in it names the file, as the system does not of a full disk."""
        try:
            yield
        except OSError as error:
            begun = (self.path / SCENARIO).is_file()
            safe = f"; what was logged is safe, `swarmbo resume {self.path}` goes on" if begun else ""
            raise RunFolderError(f"{self.path / name}: cannot be written: {error.strerror or error}{safe}") from error
