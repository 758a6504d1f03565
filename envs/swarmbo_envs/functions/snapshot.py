"""An episode written down as plain JSON and arrays, and read back, in the same world only."""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from swarmbo_envs.functions.episode import Episode
from swarmbo_envs.saved_state import Plain, SavedState

_VERSION = 1
_ARRAYS = ("setting", "last", "best")


def to_state(episode: Episode, world: dict[str, Any]) -> dict[str, Any]:
    """The episode as ``{"json": ..., "arrays": ...}``, with what makes its world this one.

    Args:
        episode: Where the agents stand.
        world: What makes their world this one.
    """
    plain = Plain(_VERSION, world, episode.seed, episode.number, episode.round, episode.running)
    arrays = {name: np.array(getattr(episode, name), dtype=float) for name in _ARRAYS}
    return {"json": msgspec.to_builtins(plain), "arrays": arrays}


def from_state(state: Mapping[str, Any], world: dict[str, Any], n_variables: int, n_agents: int) -> Episode:
    """The episode that was written down.

    Args:
        state: From ``to_state``.
        world: What makes the world that it goes on in this one.
        n_variables: Of the function.
        n_agents: Who set them.

    Raises:
        StateVersionError: If the state was written by another version or in another world (the message says what
            differs), or is not a whole state.
    """
    saved = SavedState(state, "function", _VERSION, world)
    plain = saved.plain
    return Episode(
        plain.seed,
        plain.number,
        plain.round,
        plain.running,
        setting=saved.array("setting", "f", (n_variables,)),
        last=saved.array("last", "f", (n_agents,)),
        best=saved.array("best", "f", (plain.round,)).tolist(),
    )
