"""State of an episode of robots, and the movers and sensors that change it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.world import FieldEpisode
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.settings import RobotTeamSettings, Rules
from swarmbo_envs.shared import Mask, Path, Place, Places, Pose, Values, nearest

Robots = Float[np.ndarray, "robots 2"]  # one place per robot
Tracks = Float[np.ndarray, "robots k 2"]  # places of each robot at all moments of a round
_MOST_ON_THE_WAY = 64  # measurements of one robot in a round


@dataclass
class Episode(FieldEpisode):
    """State of an episode, in addition to the fields of all worlds over a field.

    ``measured`` masks measured sites, and is used only if nothing lies between sites. Rows of ``samples`` and
    ``on_the_way`` are robot, x, y, measurement. ``batteries`` are in seconds of driving, infinite without batteries.
    ``engine`` has the states of the physics engine; it has no columns without an engine.
    """

    poses: Float[np.ndarray, "robots 3"]
    last: Float[np.ndarray, " robots"]
    measured: Mask
    trails: list[Float[np.ndarray, "points 2"]]
    samples: Float[np.ndarray, "n 4"]
    on_the_way: Float[np.ndarray, "m 4"]
    batteries: Float[np.ndarray, " robots"]
    bases: Float[np.ndarray, "robots 2"]
    engine: Float[np.ndarray, "robots n"]

    def note(self, infos: Iterable[dict[str, Any]]) -> None:
        """Keep the measurement of every robot at the end of a round."""
        rows = [[n, *info["location"], info.get("measurement", np.nan)] for n, info in enumerate(infos)]
        self.samples = np.vstack([self.samples, rows])


Stops = Callable[[float], Values]
"""Increasing distances after which a robot measures on a drive of some length, all in m."""


@dataclass(frozen=True, eq=False)
class Drive:
    """Drive of a robot in a round; ``stops`` are its positions after the requested distances."""

    pose: Pose
    trace: Places
    length_m: float
    busy_s: float
    is_done: bool
    stops: Places
    failure: str | None = None


class Mover(ABC):
    """Mover of robots, one at a time; by default, plans use the full speed and no reserves.

    ``pace`` and ``reserve`` are as in ``MujocoSettings``; ``off_m`` is the largest distance from a path, goal or base.
    """

    pace: float = 1.0
    reserve: float = 0.0
    off_m: float = 0.0

    def begin(self, poses: Float[np.ndarray, "robots 3"]) -> Float[np.ndarray, "robots n"]:
        """Initial state of the mover; no columns if it has none."""
        return np.empty((len(poses), 0))

    @abstractmethod
    def drive(self, episode: Episode, robot: int, path: Path, end: Place | None, stops: Stops) -> Drive:
        """Drive a path, whose exact ``end`` may be known, within the round's time, and update the mover's own state."""


@dataclass(frozen=True, eq=False)
class Ideal(Mover):
    """Robots that obey their equations of motion exactly, clipped to the map."""

    low: Place
    high: Place

    def drive(self, episode: Episode, robot: int, path: Path, end: Place | None, stops: Stops) -> Drive:
        """Drive all of a path."""
        pose, length = episode.poses[robot], motion.length(path)
        end_pose = motion.advance(pose, path)
        end_pose[:2] = np.clip(end_pose[:2], self.low, self.high) if end is None else end
        places = motion.places_along(pose, path, at) if len(at := stops(length)) else np.empty((0, 2))
        return Drive(end_pose, motion.trace(pose, path), length, float(path[:, 0].sum()), True, places)


@dataclass(frozen=True, eq=False)
class Sensors:
    """One sensor per robot; noise and failures come from streams named by robot and round."""

    settings: RobotTeamSettings
    rules: Rules
    field: Field
    agents: Sequence[str]
    longest_m: float  # longest drive in a round

    def __post_init__(self) -> None:
        if (spacing_m := self.rules.sample_every_m) is not None and self.longest_m / spacing_m > _MOST_ON_THE_WAY:
            got = f"got {spacing_m:g} m, up to {self.longest_m / spacing_m:.0f} measurements en route in a round"
            raise ConfigError(f"{got}; wanted at most {_MOST_ON_THE_WAY}", at="$.sample_every_m")
        if self.is_used_on_the_way and self.field.sites_only:
            at = "$.samples_per_leg" if self.rules.samples_per_leg else "$.sample_every_m"
            got = "got a field that can be measured at its sites only"
            raise ConfigError(f"{got}; wanted another field, or no samples en route", at=at)

    @property
    def is_used_on_the_way(self) -> bool:
        """True if robots also measure while they drive."""
        return self.rules.samples_per_leg > 0 or self.rules.sample_every_m is not None

    def stops(self, length_m: float) -> Values:
        """Distances after which a robot measures on a drive of some length, without the measurement at its end."""
        rules = self.rules
        if rules.sample_every_m is not None:
            return np.arange(1, np.ceil(length_m / rules.sample_every_m - 1e-6)) * rules.sample_every_m
        count = rules.samples_per_leg if length_m > 0 else 0
        return np.arange(1, count + 1) * length_m / (rules.samples_per_leg + 1)

    def measure(
        self, episode: Episode, robot: int, distance: float = 0.0, reached: bool = True, measurable: bool = True
    ) -> dict[str, Any]:
        """Measure with one robot at its position, unless nothing is ``measurable`` there; return its info."""
        location, site = episode.poses[robot, :2].copy(), -1
        # a robot near a site measures that site: rovers stop a little off
        if measurable and self.field.sites_only:
            site = nearest(self.field.sites, location)
            location = self.field.sites[site].copy()
        reading = self._read(episode, robot, location) if measurable else {}
        if reading and site >= 0:
            episode.measured[site] = True
        motion_report = {"cost": self.settings.travel_cost * distance, "distance": distance, "reached": reached}
        info = {**reading, "location": location, **motion_report, "interpolated": self.field.interpolated}
        batteries = self.rules.batteries
        return info if batteries is None else info | {"battery": float(episode.batteries[robot] / batteries[robot])}

    def sample(self, episode: Episode, robot: int, location: Place, number: int) -> dict[str, Any]:
        """Measure en route; ``number`` counts the robot's measurements en route in this round."""
        reading = self._read(episode, robot, location, sample=number)
        row = [robot, *location, reading.get("measurement", np.nan)]
        episode.on_the_way = np.vstack([episode.on_the_way, row])
        return {**reading, "location": location.copy()}

    def _read(self, episode: Episode, robot: int, location: Place, **which: int) -> dict[str, float]:
        noise_std, rate = self.rules.noise_stds[robot], self.settings.failure_rate
        named = {"agent": self.agents[robot], **which}
        measurement = self.field.measure(episode, location, noise_std, rate, "robot_team", **named)
        if measurement is None:
            return {}
        episode.last[robot] = measurement
        return {"measurement": measurement, **({"noise_std": noise_std} if self.rules.reports_noise else {})}
