"""Journal of a member: its state after a round, and all letters since."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from swarmbo.deciding.team_state import read_state, write_state
from swarmbo.errors import ConfigError

_LENGTH = 4  # bytes before each entry


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A processed letter, as it was sealed, with its sender."""

    sender: str
    content: bytes


class Journal:
    """A member's state after a round, and later letters, in two files of its folder.

    A killed process leaves at most one partial letter, whose receipt was not sent: it comes again.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._number = max((int(file.stem) for file in folder.glob("*.npz") if file.stem.isdecimal()), default=0)
        self._log = (folder / f"{self._number}.letters").open("ab")

    def state(self) -> dict[str, Any] | None:
        """Last saved state; None before the first."""
        return read_state(self._path("npz")) if self._number else None

    def letters(self) -> Iterator[tuple[str, bytes]]:
        """Letters since that state, in their order."""
        path = self._path("letters")
        data, start = path.read_bytes(), 0
        while start + _LENGTH <= len(data):
            end = start + _LENGTH + int.from_bytes(data[start : start + _LENGTH], "little")
            if end > len(data):
                break
            try:
                entry = msgspec.msgpack.decode(data[start + _LENGTH : end], type=Entry)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"{path}: is damaged ({error}); wanted it as the member wrote it") from error
            yield entry.sender, entry.content
            start = end
        if start < len(data):
            self._log.truncate(start)

    def keep(self, sender: str, content: bytes) -> None:
        """Save a letter."""
        entry = msgspec.msgpack.encode(Entry(sender, content))
        self._log.write(len(entry).to_bytes(_LENGTH, "little") + entry)
        self._log.flush()

    def turn(self, state: Mapping[str, Any], outstanding: Sequence[tuple[str, bytes]]) -> None:
        """Begin a new page: a state, with unacknowledged letters, and no letters since."""
        plain = {**state["json"], "outstanding": [[to, content.hex()] for to, content in outstanding]}
        old, self._number = self._number, self._number + 1
        write_state(self._path("npz"), {**state, "json": plain})  # from now on this page counts
        self._log.close()
        self._log = self._path("letters").open("ab")
        for kind in ("npz", "letters"):
            (self.folder / f"{old}.{kind}").unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        self._log.close()

    def _path(self, kind: str) -> Path:
        return self.folder / f"{self._number}.{kind}"
