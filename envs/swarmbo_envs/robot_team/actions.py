"""What agents ask their robots to do."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.errors import ConfigError


def checked_actions(
    actions: Mapping[str, ArrayLike], agents: list[str], low: Float[np.ndarray, " 2"], high: Float[np.ndarray, " 2"]
) -> Float[np.ndarray, "agents 2"]:
    """The places asked for, in the order of the agents.

    Args:
        actions: [x, y] per live agent, m.
        agents: The live agents.
        low: South-west corner of the map.
        high: North-east corner.

    Raises:
        ConfigError: Naming the agent whose action is missing, not wanted, of another shape, not finite or off the map.
    """
    for agent in actions:
        if agent not in agents:
            raise ConfigError(
                f"got an action, but this agent is not live; live agents: {agents}", at=f"$.actions.{agent}"
            )
    slack = 1e-6 * np.maximum(np.abs(low), np.abs(high))  # an action may have been rounded to float32
    places = np.empty((len(agents), 2))
    for i, agent in enumerate(agents):
        at = f"$.actions.{agent}"
        if agent not in actions:
            raise ConfigError("got no action; wanted one per live agent", at=at)
        try:
            place = np.asarray(actions[agent], dtype=float)
        except (TypeError, ValueError):
            raise ConfigError(f"got {actions[agent]!r}; wanted [x, y]", at=at) from None
        if place.shape != (2,):
            raise ConfigError(f"got shape {place.shape}; wanted [x, y]", at=at)
        if not ((place >= low - slack) & (place <= high + slack)).all():
            raise ConfigError(f"got {place.tolist()}; wanted a place from {low.tolist()} to {high.tolist()}", at=at)
        places[i] = np.clip(place, low, high)
    return places
