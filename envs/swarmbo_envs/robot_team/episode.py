"""Episode state of the robot team, its observations and text map."""

from dataclasses import dataclass

import gymnasium
import numpy as np
from jaxtyping import Bool, Float

from swarmbo_envs.fields.field import Field, seen_values
from swarmbo_envs.saved_state import WorldEpisode

_LAST = 3  # index of the last good measurement
_SHADES = " .:-=+*#%@"
_COLUMNS, _ROWS = 64, 24


@dataclass
class Episode(WorldEpisode):
    """State of an episode, in addition to the fields of all worlds.

    Args:
        poses: (x, y, heading) of each robot.
        last: Last good measurement of each robot; NaN while there is none.
        measured: Mask of measured sites; used only if nothing lies between the sites.
        trails: Per robot, points of the path driven so far.
        samples: Per measurement so far: robot, x, y, measurement.
        on_the_way: Per measurement en route so far: robot, x, y, measurement.
        batteries: Seconds of driving that each robot has left; infinite without batteries.
        bases: Charging site of each.
        engine: Per robot, the state of the physics engine; no columns without one.
    """

    poses: Float[np.ndarray, "robots 3"]
    last: Float[np.ndarray, " robots"]
    measured: Bool[np.ndarray, " k"]
    trails: list[Float[np.ndarray, "points 2"]]
    samples: Float[np.ndarray, "n 4"]
    on_the_way: Float[np.ndarray, "m 4"]
    batteries: Float[np.ndarray, " robots"]
    bases: Float[np.ndarray, "robots 2"]
    engine: Float[np.ndarray, "robots n"]


def observation_ends(
    field: Field, noise_std: float, has_battery: bool
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Least and largest x, y, heading, last good measurement, share of rounds left, and share of a battery."""
    least, most = seen_values(field.minimum, field.maximum, noise_std)
    low, high = [*field.low, -np.pi, least, 0.0], [*field.high, np.pi, most, 1.0]
    return np.array(low + [0.0] * has_battery), np.array(high + [1.0] * has_battery)


def observe(
    episode: Episode, max_cycles: int, box: gymnasium.spaces.Box, charge: Float[np.ndarray, " robots"] | None = None
) -> Float[np.ndarray, "robots c"]:
    """Observations of all robots, clipped into the box of one; its lower bound if nothing was measured."""
    last = np.where(np.isnan(episode.last), box.low[_LAST], episode.last)
    left = np.full(len(last), episode.share_left(max_cycles))
    seen = [episode.poses, last, left] if charge is None else [episode.poses, last, left, charge]
    return np.clip(np.column_stack(seen), box.low, box.high)


def text_map(field: Field, episode: Episode, max_cycles: int) -> str:
    """Text map of the field, higher is denser, with the robots' numbers on it, and a line per robot."""
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
