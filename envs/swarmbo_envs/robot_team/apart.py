"""How robots keep apart while they drive: who drives later makes way, and staying is always possible.

Paths are compared at moments of the round. Between two of them a pair comes nearer by at most what both drive in half
the time between, so that much is added to the separation, and it holds at every moment.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from swarmbo_envs.robot_team.motion import poses_at

_MOMENTS = 512  # of a round


@dataclass(frozen=True, eq=False)
class Spacing:
    """How near robots may come.

    Args:
        separation_m: At every moment, > 0.
        speeds: The largest over ground of each, m/s.
        round_time_s: Of a round.
        off_m: How far they may be from their paths. Nobody then knows when they are where, so a robot keeps away from
            wherever another was or stands in the round; and by as much more from where it stays, so that it can leave.
    """

    separation_m: float
    speeds: Sequence[float]
    round_time_s: float
    off_m: float = 0.0

    @property
    def moments(self) -> Float[np.ndarray, " k"]:
        """When paths are compared, s."""
        return np.linspace(0.0, self.round_time_s, _MOMENTS + 1)

    def least(self, robot: int) -> Float[np.ndarray, " robots"]:
        """How far a robot is from each other one at every such moment, m; nothing from itself."""
        both = self.speeds[robot] + np.array(self.speeds)
        out = self.separation_m + self.off_m + both * self.round_time_s / _MOMENTS / 2.0
        out[robot] = 0.0
        return out

    def standing(self, places: Float[np.ndarray, "robots 2"]) -> Float[np.ndarray, "robots k 2"]:
        """Where robots are at all moments, if they stay."""
        return np.repeat(places[:, None], _MOMENTS + 1, axis=1)

    def driving(self, pose: Float[np.ndarray, " 3"], path: Float[np.ndarray, "s 3"]) -> Float[np.ndarray, "k 3"]:
        """The poses of a robot on a path at all moments."""
        return poses_at(pose, path, self.moments)

    def stops(
        self,
        robot: int,
        own: Float[np.ndarray, "k 2"],
        others: Float[np.ndarray, "robots k 2"],
        bases: Float[np.ndarray, "robots 2"] | None,
    ) -> Iterator[int]:
        """Moments at which a robot may end its drive and stay, the last first; the first moment is always one.

        Args:
            robot: Its number.
            own: Where it would be.
            others: Where all are: those before it where they drive, those after it where they stand.
            bases: Where others must be able to load; it does not stay near them.
        """
        if self.off_m:
            yield from self._stops_at_any_time(robot, own, others, bases)
            return
        least = self._squared(robot)
        meets = self._may_meet(robot, own, others, bases)
        others, least = others[meets], least[meets, None]
        bases = None if bases is None else bases[meets]
        near = (((others - own) ** 2).sum(axis=2) < least).any(axis=0)
        end = int(near.argmax()) if near.any() else len(own)  # it must have stopped before
        for moment in range(end - 1, 0, -1):
            standing = others[:, moment:] if bases is None else np.column_stack([others[:, moment:], bases[:, None]])
            if not (((standing - own[moment]) ** 2).sum(axis=2) < least).any():
                yield moment
        yield 0

    def is_clear(
        self, robot: int, places: Float[np.ndarray, "k 2"], others: Float[np.ndarray, "robots 2"]
    ) -> Bool[np.ndarray, " k"]:
        """Which places are far enough from where the others stand."""
        least = self.least(robot) + self.off_m
        least[robot] = 0.0
        low, high = places.min(axis=0, initial=np.inf), places.max(axis=0, initial=-np.inf)
        near = ((others >= low - least[:, None]) & (others <= high + least[:, None])).all(axis=1)
        squared = self._squared(robot, self.off_m)[near]
        return (((places[:, None] - others[near]) ** 2).sum(axis=2) >= squared).all(axis=1)

    def tracked(self, driven: Float[np.ndarray, "s 2"]) -> Float[np.ndarray, "k 2"]:
        """What a robot drove, as many places as there are moments."""
        at = np.linspace(0.0, len(driven) - 1.0, _MOMENTS + 1)
        return np.column_stack([np.interp(at, np.arange(len(driven)), driven[:, axis]) for axis in range(2)])

    def _may_meet(
        self,
        robot: int,
        own: Float[np.ndarray, "k 2"],
        others: Float[np.ndarray, "robots k 2"],
        bases: Float[np.ndarray, "robots 2"] | None,
    ) -> Bool[np.ndarray, " robots"]:
        """Who, or whose base, is not so far off that the robot can't come near in this round."""
        speeds = np.array(self.speeds)
        room = self.least(robot) + (speeds[robot] + speeds) * self.round_time_s
        within = np.hypot(*(others[:, 0] - own[0]).T) <= 1.01 * room
        return within if bases is None else within | (np.hypot(*(bases - own[0]).T) <= 1.01 * room)

    def _stops_at_any_time(
        self,
        robot: int,
        own: Float[np.ndarray, "k 2"],
        others: Float[np.ndarray, "robots k 2"],
        bases: Float[np.ndarray, "robots 2"] | None,
    ) -> Iterator[int]:
        nearest = np.array([KDTree(track).query(own)[0] for track in others])
        passes = (nearest**2 >= self._squared(robot)[:, None]).all(axis=0)
        end = len(own) if passes.all() else int(passes.argmin())
        for moment in range(end - 1, 0, -1):
            standing = nearest[:, moment] if bases is None else np.hypot(*(bases - own[moment]).T)
            both = np.minimum(standing, nearest[:, moment])
            if (both**2 >= self._squared(robot, self.off_m)).all():
                yield moment
        yield 0

    def _squared(self, robot: int, more_m: float = 0.0) -> Float[np.ndarray, " robots"]:
        squared = (self.least(robot) + more_m) ** 2
        squared[robot] = -np.inf
        return squared
