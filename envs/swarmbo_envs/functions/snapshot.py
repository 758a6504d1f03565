"""An episode written down as plain JSON and arrays, and read back, in the same world only."""

from collections.abc import Mapping
from typing import Any

from swarmbo_envs import saved_state
from swarmbo_envs.functions.episode import Episode
from swarmbo_envs.saved_state import SavedState

_VERSION = 1
_ARRAYS = ("setting", "last", "best")


def to_state(episode: Episode, world: dict[str, Any]) -> dict[str, Any]:
    """The episode as ``{"json": ..., "arrays": ...}``, with what makes its world this one.

    Args:
        episode: Where the agents stand.
        world: What makes their world this one.
    """
    arrays = {name: getattr(episode, name) for name in _ARRAYS}
    return saved_state.to_state(episode, _VERSION, world, arrays)


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
    return Episode(
        **saved.common,
        setting=saved.array("setting", "f", (n_variables,)),
        last=saved.array("last", "f", (n_agents,)),
        best=saved.array("best", "f", (saved.plain.round,)).tolist(),
    )
