"""What agents ask their access points to do."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.errors import ConfigError


def checked_powers(
    actions: Mapping[str, ArrayLike], agents: Sequence[str], low: float, high: float
) -> Float[np.ndarray, " k"]:
    """The powers asked for, dBm, in the order of the agents.

    Args:
        actions: One power per live agent, as an array of shape (1,).
        agents: The live agents.
        low: Least power.
        high: Largest power.

    Raises:
        ConfigError: Naming the agent whose action is missing, not wanted, of another shape, not finite or out of range.
    """
    for agent in actions:
        if agent not in agents:
            raise ConfigError("got an action, but this agent is not live", at=f"$.actions.{agent}")
    slack = 1e-6 * max(abs(low), abs(high))  # an action may have been rounded to float32
    powers = np.empty(len(agents))
    for i, agent in enumerate(agents):
        at = f"$.actions.{agent}"
        if agent not in actions:
            raise ConfigError("got no action; wanted one per live agent", at=at)
        try:
            power = np.asarray(actions[agent], dtype=float)
        except (TypeError, ValueError):
            raise ConfigError(f"got {actions[agent]!r}; wanted [power in dBm]", at=at) from None
        if power.shape != (1,):
            raise ConfigError(f"got shape {power.shape}; wanted (1,)", at=at)
        if not low - slack <= power[0] <= high + slack:
            raise ConfigError(f"got {power.tolist()}; wanted a power from {low:g} to {high:g} dBm", at=at)
        powers[i] = np.clip(power[0], low, high)
    return powers
