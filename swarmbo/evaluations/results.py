"""Results of tasks on the disk: a worker writes each before it reports it, so that no kill of the driver loses it."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swarmbo.boundary.files import read_regular, read_seal, replacing, seal
from swarmbo.errors import RunFolderError
from swarmbo.evaluations.executor import Ended


class _Stored(msgspec.Struct):
    task: str
    status: str
    value: Any
    seconds: float


def keep(folder: Path, end: Ended) -> None:
    """Write a result, completely or not at all."""
    text = msgspec.json.encode(_Stored(*end), enc_hook=_plain)
    with replacing(folder / f"{end.task}.json") as file:
        file.write(seal(text))


def kept(folder: Path, task: str) -> Ended | None:
    """Result of a task on the disk; None without one."""
    path = folder / f"{task}.json"
    try:
        text = read_regular(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read: {error.strerror}") from error
    sealed = read_seal(text)
    if sealed is None or not sealed.fits:
        raise RunFolderError(f"{path}: was changed or damaged; delete it, and its task is done again")
    stored = msgspec.json.decode(sealed.text, type=_Stored)
    return Ended(stored.task, "done" if stored.status == "done" else "error", stored.value, stored.seconds)


def _plain(value: object) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise NotImplementedError(f"got {type(value).__name__}; wanted plain data")
