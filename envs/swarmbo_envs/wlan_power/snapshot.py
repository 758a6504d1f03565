"""An episode written down as plain JSON and arrays, and read back, in the same world only."""

from collections.abc import Mapping
from typing import Any

from swarmbo_envs import saved_state
from swarmbo_envs.saved_state import SavedState
from swarmbo_envs.wlan_power.episode import Episode
from swarmbo_envs.wlan_power.world import World

_VERSION = 1
_ARRAYS = ("powers", "last", "totals", "users", "present")


def to_state(episode: Episode, world: World) -> dict[str, Any]:
    """The episode as ``{"json": ..., "arrays": ...}``, with what makes its world this one.

    Args:
        episode: Where the network stands.
        world: Where it does.
    """
    arrays = {name: getattr(episode, name) for name in _ARRAYS}
    return saved_state.to_state(episode, _VERSION, world.description(), arrays)


def from_state(state: Mapping[str, Any], world: World) -> Episode:
    """The episode that was written down.

    Args:
        state: From ``to_state``.
        world: Where it goes on.

    Raises:
        StateVersionError: If the state was written by another version or in another world (the message says what
            differs), or is not a whole state.
    """
    saved = SavedState(state, "WLAN", _VERSION, world.description())
    k, m = len(world.agents), len(world.topology.users)
    return Episode(
        **saved.common,
        powers=saved.array("powers", "f", (k,)),
        last=saved.array("last", "f", (k,)),
        totals=saved.array("totals", "f", (saved.plain.round,)).tolist(),
        users=saved.array("users", "f", (m, 2)),
        present=saved.array("present", "b", (m,)),
    )
