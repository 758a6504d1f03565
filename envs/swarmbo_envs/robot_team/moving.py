"""Robots' motion along paths: by the equations of motion, or in a physics engine."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode

if TYPE_CHECKING:
    from swarmbo_envs.robot_team.physics.scene import Scene

Stops = Callable[[float], Float[np.ndarray, " k"]]
"""Distances after which a robot measures on a drive of some length, m, rising."""


@dataclass(frozen=True, eq=False)
class Drive:
    """Drive of a robot in a round; ``stops`` are its positions after the requested distances."""

    pose: Float[np.ndarray, " 3"]
    trace: Float[np.ndarray, "k 2"]
    length_m: float
    busy_s: float
    is_done: bool
    stops: Float[np.ndarray, "k 2"]
    failure: str | None = None


class Mover(ABC):
    """Mover of robots, one at a time; by default without reserves, planning with full speed."""

    @property
    def pace(self) -> float:
        """Share of their largest speed and turn rate that robots plan with."""
        return 1.0

    @property
    def reserve(self) -> float:
        """Share by which a battery must outlast the planned return to base."""
        return 0.0

    @property
    def off_m(self) -> float:
        """Largest distance of robots from their path, and from their base when they are at it, m."""
        return 0.0

    @property
    def n_state(self) -> int:
        """Size of the state of each."""
        return 0

    def begin(self, poses: Float[np.ndarray, "robots 3"]) -> Float[np.ndarray, "robots n"]:
        """Initial state of the mover; no columns if it has none."""
        return np.empty((len(poses), 0))

    @abstractmethod
    def drive(
        self,
        episode: Episode,
        robot: int,
        path: Float[np.ndarray, "s 3"],
        end: Float[np.ndarray, " 2"] | None,
        stops: Stops,
    ) -> Drive:
        """Drive a path within the round's time, updating the mover's own state in the episode.

        ``end`` is the exact end of the path, if known; ``stops`` the distances of measurements en route.
        """

    def scene(self, width: int, height: int) -> "Scene | None":
        """Three-dimensional scene in pictures of a size in pixels; None without a renderer."""
        return None


@dataclass(frozen=True, eq=False)
class Ideal(Mover):
    """Robots that obey their equations of motion exactly, clipped to the map."""

    low: Float[np.ndarray, " 2"]
    high: Float[np.ndarray, " 2"]

    def drive(
        self,
        episode: Episode,
        robot: int,
        path: Float[np.ndarray, "s 3"],
        end: Float[np.ndarray, " 2"] | None,
        stops: Stops,
    ) -> Drive:
        """Drive all of a path."""
        pose, length = episode.poses[robot], motion.length(path)
        there = motion.advance(pose, path)
        there[:2] = np.clip(there[:2], self.low, self.high) if end is None else end
        places = motion.places_along(pose, path, stops(length))
        return Drive(there, motion.trace(pose, path), length, float(path[:, 0].sum()), True, places)
