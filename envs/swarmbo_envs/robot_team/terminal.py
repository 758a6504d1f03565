"""The robots on their field as text, for terminals."""

import numpy as np

from swarmbo_envs.fields.field import Field
from swarmbo_envs.robot_team.episode import Episode

_SHADES = " .:-=+*#%@"
_COLUMNS, _ROWS = 64, 24


def text_map(field: Field, episode: Episode, max_cycles: int) -> str:
    """A map of the field, higher is denser, with the robots' numbers on it, and a line per robot.

    Args:
        field: What is measured.
        episode: Where the team stands.
        max_cycles: Rounds of the episode.

    Returns:
        Lines of text, each ended.
    """
    xs = np.linspace(field.low[0], field.high[0], _COLUMNS)
    ys = np.linspace(field.high[1], field.low[1], _ROWS)
    values = field.value(np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)).reshape(_ROWS, _COLUMNS)
    share = (values - values.min()) / (np.ptp(values) or 1.0)
    cells = np.array(list(_SHADES))[(share * (len(_SHADES) - 1)).round().astype(int)]
    for robot, (x, y, _) in enumerate(episode.poses):
        column, row = np.abs(xs - x).argmin(), np.abs(ys - y).argmin()
        cells[row, column] = str(robot % 10)
    lines = [f"{field.name}: round {episode.round} of {max_cycles}", *("".join(row) for row in cells)]
    for robot, (x, y, heading) in enumerate(episode.poses):
        measurement = episode.samples[episode.samples[:, 0] == robot][-1, 3]
        seen = "failed" if np.isnan(measurement) else f"{measurement:.4g} {field.unit}".rstrip()
        lines.append(f"robot_{robot}: x {x:.1f} m, y {y:.1f} m, heading {np.degrees(heading):.0f}°, measured {seen}")
    return "\n".join(lines) + "\n"
