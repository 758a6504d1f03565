"""The state of an episode of the robot team, and what robots and terminals see of it."""

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
    """State of an episode of the robot team, beside what those of all worlds have.

    Args:
        poses: (x, y, heading) of each robot.
        last: Last good measurement of each robot; NaN while there is none.
        measured: Which of the field's sites were measured; used only where nothing lies between the sites.
        trails: Per robot, points of the path driven so far.
        samples: Per measurement so far: robot, x, y, measurement.
        on_the_way: Per measurement on the way so far: robot, x, y, measurement.
        batteries: Seconds of driving that each robot has left; infinite without batteries.
        bases: Where each loads.
        engine: Per robot, the state of the engine that moves it; no columns without one.
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
    """Least and largest x, y, heading, last good measurement and share of rounds left, then of the battery if there is.

    Args:
        field: What is measured.
        noise_std: Of a measurement.
        has_battery: Whether the share of the battery that is left comes last.
    """
    least, most = seen_values(field.minimum, field.maximum, noise_std)
    low, high = [*field.low, -np.pi, least, 0.0], [*field.high, np.pi, most, 1.0]
    return np.array(low + [0.0] * has_battery), np.array(high + [1.0] * has_battery)


def observe(
    episode: Episode, max_cycles: int, box: gymnasium.spaces.Box, charge: Float[np.ndarray, " robots"] | None = None
) -> Float[np.ndarray, "robots c"]:
    """The observations of all robots, clipped into the box of one; where nothing was measured yet, its lower bound.

    Args:
        episode: Where the team stands.
        max_cycles: Rounds of the episode.
        box: Of one robot.
        charge: Share of the battery that each has left, in a box with it.
    """
    last = np.where(np.isnan(episode.last), box.low[_LAST], episode.last)
    left = np.full(len(last), episode.share_left(max_cycles))
    seen = [episode.poses, last, left] if charge is None else [episode.poses, last, left, charge]
    return np.clip(np.column_stack(seen), box.low, box.high)


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
