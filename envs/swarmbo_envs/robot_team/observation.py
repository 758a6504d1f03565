"""What a robot sees of itself."""

import gymnasium
import numpy as np
from jaxtyping import Float

from swarmbo_envs.fields.field import Field
from swarmbo_envs.robot_team.episode import Episode

_LAST = 3  # index of the last good measurement


def observation_box(
    field: Field, noise_std: float, robots: int = 1, *, with_battery: bool = False
) -> gymnasium.spaces.Box:
    """The box of x, y, heading, last good measurement and share of rounds left, of one or several robots in turn.

    Args:
        field: What is measured; the box leaves a tenth of its span to either side.
        noise_std: Of a measurement; the box leaves six of them to either side.
        robots: How many.
        with_battery: Whether the share of the battery that is left comes last.
    """
    span = field.maximum - field.minimum
    margin = 6 * noise_std + (0.1 * span or 1.0)
    low = [*field.low, -np.pi, field.minimum - margin, 0.0]
    high = [*field.high, np.pi, field.maximum + margin, 1.0]
    if with_battery:
        low, high = [*low, 0.0], [*high, 1.0]
    return gymnasium.spaces.Box(np.tile(low, robots), np.tile(high, robots), dtype=np.float64)


def observe(
    episode: Episode, max_cycles: int, box: gymnasium.spaces.Box, charge: Float[np.ndarray, " robots"] | None = None
) -> Float[np.ndarray, "robots c"]:
    """The observations of all robots, clipped into the box of one; where nothing was measured yet, its lower bound.

    Args:
        episode: Where the team stands.
        max_cycles: Rounds of the episode.
        box: From ``observation_box``.
        charge: Share of the battery that each has left, in a box with it.
    """
    last = np.where(np.isnan(episode.last), box.low[_LAST], episode.last)
    left = np.full(len(last), episode.share_left(max_cycles))
    seen = [episode.poses, last, left] if charge is None else [episode.poses, last, left, charge]
    return np.clip(np.column_stack(seen), box.low, box.high)
