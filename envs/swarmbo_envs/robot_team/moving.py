"""Drives of robots on their paths: by the equations of motion, or in an engine (``physics``)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from jaxtyping import Float

from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode

if TYPE_CHECKING:
    from swarmbo_envs.robot_team.physics.scene import Scene


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


class Stops(Protocol):
    """After which distances a robot measures on a drive of some length."""

    def __call__(self, length_m: float) -> Float[np.ndarray, " k"]:
        """The distances, m, rising."""
        ...


class Mover(Protocol):
    """Mover of robots, one at a time.

    Args:
        pace: Share of their largest speed and turn rate that they plan with.
        reserve: Share by which a battery must last longer than the planned way home.
        off_m: How far they may be from their path, and from their base when they are at it.
        n_state: Numbers in the state of each.
    """

    @property
    def pace(self) -> float:  # noqa: D102
        ...

    @property
    def reserve(self) -> float:  # noqa: D102
        ...

    @property
    def off_m(self) -> float:  # noqa: D102
        ...

    @property
    def n_state(self) -> int:  # noqa: D102
        ...

    def begin(self, poses: Float[np.ndarray, "robots 3"]) -> Float[np.ndarray, "robots n"]:
        """The state of what moves robots, where they stand at the start; no columns if it has none."""
        ...

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
        ...

    def scene(self, width: int, height: int) -> "Scene | None":
        """Scene in three dimensions, in pictures of so many pixels; None if nothing draws it."""
        ...


@dataclass(frozen=True, eq=False)
class Ideal:
    """Robots that drive as their equations of motion say, to the bit.

    Args:
        low: South-west corner of the map, m.
        high: North-east corner.
    """

    low: Float[np.ndarray, " 2"]
    high: Float[np.ndarray, " 2"]
    pace: float = 1.0
    reserve: float = 0.0
    off_m: float = 0.0
    n_state: int = 0

    def begin(self, poses: Float[np.ndarray, "robots 3"]) -> Float[np.ndarray, "robots n"]:
        """No state."""
        return np.empty((len(poses), 0))

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

    def scene(self, width: int, height: int) -> "Scene | None":
        """None: it is flat."""
        return None
