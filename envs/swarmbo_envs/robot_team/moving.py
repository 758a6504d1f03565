"""Drives of robots on their paths: by the equations of motion, or in an engine (``physics``)."""

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
    """Drive of a robot in a round.

    Args:
        pose: Where it stands in the end.
        trace: Points along what it drove.
        length_m: How far that was.
        busy_s: How long it turned and drove.
        is_done: Whether it got to the end of its path.
        stops: Where it was after the distances that were asked for.
        failure: What went wrong, in words; None: nothing.
    """

    pose: Float[np.ndarray, " 3"]
    trace: Float[np.ndarray, "k 2"]
    length_m: float
    busy_s: float
    is_done: bool
    stops: Float[np.ndarray, "k 2"]
    failure: str | None = None


class Mover(ABC):
    """Mover of robots, one at a time: by default one without slack, which plans with all of their speed."""

    @property
    def pace(self) -> float:
        """Share of their largest speed and turn rate that robots plan with."""
        return 1.0

    @property
    def reserve(self) -> float:
        """Share by which a battery must last longer than the planned way home."""
        return 0.0

    @property
    def off_m(self) -> float:
        """Distance that robots may be from their path, and from their base when they are at it, m."""
        return 0.0

    @property
    def n_state(self) -> int:
        """Numbers in the state of each."""
        return 0

    def begin(self, poses: Float[np.ndarray, "robots 3"]) -> Float[np.ndarray, "robots n"]:
        """State of what moves robots, where they stand at the start; no columns if it has none."""
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
        """Set out on a path, which the round has time for; what is the mover's own in the episode changes.

        Args:
            episode: Where the team stands.
            robot: Its number.
            path: As ``motion`` has them.
            end: Where it ends, if that is known to the bit.
            stops: Where it measures on the way.
        """

    def scene(self, width: int, height: int) -> "Scene | None":
        """Scene in three dimensions, in pictures of so many pixels; None if nothing draws it."""
        return None


@dataclass(frozen=True, eq=False)
class Ideal(Mover):
    """Robots that drive as their equations of motion say, to the bit.

    Args:
        low: South-west corner of the map, m.
        high: North-east corner.
    """

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
