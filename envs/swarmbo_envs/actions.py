"""What agents ask for, held to the boxes of their actions."""

from collections.abc import Mapping

import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.boundary.values import real_array, short, table
from swarmbo.errors import ConfigError


def checked_actions(
    actions: Mapping[str, ArrayLike], agents: list[str], boxes: Mapping[str, Box], what: str
) -> dict[str, Float[np.ndarray, " d"]]:
    """The actions of live agents, in their order.

    Args:
        actions: One per live agent.
        agents: The live agents.
        boxes: Action spaces of all agents.
        what: The coordinates in words, for messages: ``[x, y]``.

    Raises:
        ConfigError: If there is no table of actions; naming the agent whose action is missing, not wanted, of another
            shape or not in its box.
    """
    for agent in table(actions, "{agent: action}", "$.actions"):
        if agent not in agents:
            raise ConfigError(
                f"got an action, but this agent is not live; live agents: {agents}", at=f"$.actions.{agent}"
            )
    checked: dict[str, Float[np.ndarray, " d"]] = {}
    for agent in agents:
        at, box = f"$.actions.{agent}", boxes[agent]
        if agent not in actions:
            raise ConfigError("got no action; wanted one per live agent", at=at)
        if (action := real_array(actions[agent])) is None:
            raise ConfigError(f"got {short(actions[agent])}; wanted {what}", at=at)
        if action.shape != box.shape:
            raise ConfigError(f"got shape {action.shape}; wanted {what}, of shape {box.shape}", at=at)
        slack = 1e-6 * np.maximum(np.abs(box.low), np.abs(box.high))  # an action may have been rounded to float32
        if not ((action >= box.low - slack) & (action <= box.high + slack)).all():
            raise ConfigError(
                f"got {action.tolist()}; wanted {what} from {box.low.tolist()} to {box.high.tolist()}", at=at
            )
        checked[agent] = np.clip(action, box.low, box.high)
    return checked
