"""What a sensor sees of itself."""

import gymnasium
import numpy as np
from jaxtyping import Float

from swarmbo_envs.sensor_field.episode import Episode
from swarmbo_envs.sensor_field.world import World

_LAST = 2  # index of the last good measurement


def observation_box(world: World) -> gymnasium.spaces.Box:
    """The box of spot x and y, last good measurement, share of the battery left and share of rounds left.

    Args:
        world: Whose sensors; values may reach six standard deviations of the noise and a tenth of the field's span
            beyond its bounds.
    """
    field, noise_std = world.field, world.settings.noise_std
    span = field.maximum - field.minimum
    margin = 6 * noise_std + (0.1 * span or 1.0)
    low = [*field.first.low, field.minimum - margin, 0.0, 0.0]
    high = [*field.first.high, field.maximum + margin, 1.0, 1.0]
    return gymnasium.spaces.Box(np.array(low), np.array(high), dtype=np.float64)


def observe(episode: Episode, world: World, box: gymnasium.spaces.Box) -> Float[np.ndarray, "n 5"]:
    """The observations of all sensors, clipped into the box; where nothing was measured yet, its lower bound.

    Args:
        episode: Where the sensors stand.
        world: Where they do.
        box: From ``observation_box``.
    """
    settings, n = world.settings, len(world.agents)
    last = np.where(np.isnan(episode.last), box.low[_LAST], episode.last)
    battery = np.ones(n) if not settings.battery_j else 1.0 - episode.spent_j / settings.battery_j
    if settings.battery_j == 0:
        battery = np.zeros(n)
    left = np.full(n, episode.share_left(settings.max_cycles))
    return np.clip(np.column_stack([episode.spots, last, battery, left]), box.low, box.high)
