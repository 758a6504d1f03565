"""An episode written down as plain JSON and arrays, and read back, in the same world only."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from swarmbo_envs import saved_state
from swarmbo_envs.saved_state import SavedState
from swarmbo_envs.sensor_field.episode import Episode
from swarmbo_envs.sensor_field.world import World

_VERSION = 2
_ARRAYS = ("spots", "last", "spent_j", "sampled", "failed", "knots_mean", "knots_covariance", "score")


def to_state(episode: Episode, world: World) -> dict[str, Any]:
    """The episode as ``{"json": ..., "arrays": ...}``, with what makes its world this one.

    Args:
        episode: Where the sensors stand.
        world: Where they do.
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
    saved, n = SavedState(state, "sensor-field", _VERSION, world.description()), len(world.agents)
    k = 0 if world.scorer is None else len(world.scorer.knots)
    spots, spent = saved.array("spots", "f", (n, 2)), saved.array("spent_j", "f", (n,))
    saved.hold(bool(np.isfinite(spots).all()), "spots that are finite")
    saved.hold(bool((np.isfinite(spent) & (spent >= 0.0)).all()), "'spent_j' of 0 or more")
    return Episode(
        **saved.common,
        spots=spots,
        last=saved.array("last", "f", (n,)),
        spent_j=spent,
        sampled=saved.array("sampled", "b", (n,)),
        failed=saved.array("failed", "b", (n,)),
        knots_mean=saved.array("knots_mean", "f", (k,)),
        knots_covariance=saved.array("knots_covariance", "f", (k, k)),
        score=float(saved.array("score", "f", ())),
    )
