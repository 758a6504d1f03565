"""The sensors as text, for terminals."""

import numpy as np

from swarmbo_envs.sensor_field.episode import Episode
from swarmbo_envs.sensor_field.world import World


def text_table(world: World, episode: Episode, max_cycles: int) -> str:
    """A line per sensor: where it looks, what it saw, and what it has spent.

    Args:
        world: The rules.
        episode: Where the sensors stand.
        max_cycles: Rounds of the episode.

    Returns:
        Lines of text, each ended.
    """
    field = world.field.first
    lines = [f"{field.name}: round {episode.round} of {max_cycles}, {int(episode.sampled.sum())} sampled"]
    for sensor, agent in enumerate(world.agents):
        seen = "saved its energy"
        if episode.failed[sensor]:
            seen = "failed"
        elif episode.sampled[sensor]:
            seen = f"measured {episode.last[sensor]:.4g} {field.unit}".rstrip()
        x, y = episode.spots[sensor]
        lines.append(f"{agent}: x {x:.1f} m, y {y:.1f} m, {seen}, {np.round(episode.spent_j[sensor], 9):g} J spent")
    return "\n".join(lines) + "\n"
