"""The state of a team in one file: arrays of numbers, and the rest as JSON among them. No pickle."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from swarmbo.boundary.arrays import read_arrays, write_arrays
from swarmbo.errors import ConfigError

_PLAIN = "team.json"  # its text, as bytes


def write_state(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state, whole or not at all.

    Args:
        path: Of the file; what ``numpy.load`` reads, whatever its name ends in.
        state: Plain data and arrays: what ``state_dict`` returned.

    Raises:
        OSError: If it cannot be written.
    """
    text = np.frombuffer(json.dumps(state["json"]).encode(), dtype=np.uint8)
    write_arrays(Path(path), {**{name: np.asarray(array) for name, array in state["arrays"].items()}, _PLAIN: text})


def read_state(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A state as it was written.

    Raises:
        OSError: If there is no such file.
        ConfigError: If it is damaged, or something else than the state of a team.
    """
    try:
        arrays = read_arrays(Path(path))
        plain = json.loads(arrays.pop(_PLAIN).tobytes())
    except KeyError:
        raise ConfigError(f"{path}: holds no team; wanted a file that team.save wrote") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); wanted a file that team.save wrote") from error
    if not isinstance(plain, dict):
        raise ConfigError(f"{path}: holds no team; wanted a file that team.save wrote")
    return {"json": plain, "arrays": arrays}
