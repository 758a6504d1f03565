"""Checkpoint of a run: the states of the team and the world, as plain JSON and arrays.

The arrays are in a file named by the round. The JSON names that file and is renamed into place after it; older arrays
are deleted last. So whenever a run is killed, the JSON fits the arrays it names.
"""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from swarmbo.boundary.files import digest_of_arrays, read_regular
from swarmbo.errors import StateVersionError
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.stored_files import CHECKPOINTS

STATE_VERSION = 1

State = dict[str, Any]  # {"json": plain data, "arrays": {name: array}}


@dataclass(frozen=True)
class Checkpoint:
    """The last round in the checkpoint, ``Team.state_dict()``, and the environment's ``get_state()``."""

    round: int
    team: State
    world: State


def write_checkpoint(folder: RunFolder, checkpoint: Checkpoint) -> None:
    """Replace the last checkpoint."""
    arrays_name = _arrays_name(checkpoint.round)
    arrays = {
        f"{part}/{name}": np.asarray(array)
        for part, state in (("team", checkpoint.team), ("world", checkpoint.world))
        for name, array in state["arrays"].items()
    }
    folder.write_arrays(arrays_name, arrays)
    plain = {
        "version": STATE_VERSION,
        "round": checkpoint.round,
        "arrays": arrays_name,
        "arrays_digest": digest_of_arrays(arrays),
        "team": checkpoint.team["json"],
        "world": checkpoint.world["json"],
    }
    folder.write_sealed("checkpoint.json", json.dumps(plain))  # not msgspec: generator states exceed 64 bits
    for old in folder.path.glob(CHECKPOINTS):
        if old.name != arrays_name:
            old.unlink()


def read_checkpoint(folder: RunFolder) -> Checkpoint | None:
    """Read the last checkpoint; None if there is none."""
    path = folder.path / "checkpoint.json"
    if not path.is_file():
        return None
    with folder.reading(path.name, "delete it, and `swarmbo resume` starts from round 0"):
        version = json.loads(read_regular(path))["version"]
        if version != STATE_VERSION:
            raise StateVersionError(f"{path}: has version {version!r:.20}; this swarmbo reads {STATE_VERSION}")
        plain = json.loads(folder.read_sealed(path.name))
        if plain["arrays"] != (name := _arrays_name(plain["round"])):
            raise ValueError(f"it names {plain['arrays']!r:.60}; wanted {name}")
        arrays = folder.read_arrays(name)
        if plain["arrays_digest"] != digest_of_arrays(arrays):
            raise ValueError(f"{name} was changed or damaged: its digest does not fit")
        team, world = (
            {
                "json": plain[part],
                "arrays": {n.removeprefix(f"{part}/"): a for n, a in arrays.items() if n.startswith(f"{part}/")},
            }
            for part in ("team", "world")
        )
        return Checkpoint(plain["round"], team, world)


def _arrays_name(round_number: int) -> str:
    return f"checkpoint-{round_number:06d}.npz"
