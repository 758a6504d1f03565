"""Safety of robots: battery reserves for the return to base, and separation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float
from scipy.spatial import KDTree

from swarmbo.errors import ConfigError
from swarmbo_envs.ground.path_planner import PathTree
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode, Robots, Tracks
from swarmbo_envs.robot_team.motion import Driver
from swarmbo_envs.robot_team.settings import Rules
from swarmbo_envs.shared import Mask, Path, Place, Places, Values

_MOMENTS = 512  # of a round
_MOST_BASES = 1024
# rounds to an unreachable place, and of an unlimited battery
NEVER = np.iinfo(int).max // 4
# times up to this factor over the limit count as within it, so that rounding does not exclude a place at the limit
SLACK = 1 + 1e-9


@dataclass(frozen=True, eq=False)
class Spacing:
    """Separation of robots: robots that drive later make way, and a robot may always stay where it is.

    Paths are compared at moments of the round. The distance that a pair drives in half the time between two moments is
    added to the separation, which then holds at all times. If robots may be ``off_m`` off their planned paths, their
    positions in time are unknown: a robot keeps away from all places that another passes in the round, and its stop is
    ``off_m`` farther away from them, so that it can leave.
    """

    separation_m: float
    speeds: Sequence[float]
    round_time_s: float
    off_m: float = 0.0

    @property
    def moments(self) -> Values:
        """Moments at which paths are compared, s."""
        return np.linspace(0.0, self.round_time_s, _MOMENTS + 1)

    def least(self, robot: int) -> Float[np.ndarray, " robots"]:
        """Least permitted distance of a robot from each other robot at ``moments``, m; 0 for itself."""
        both = self.speeds[robot] + np.array(self.speeds)
        # a moment is at most half an interval away: between moments, a pair nears by what both drive in that time
        distances = self.separation_m + self.off_m + both * self.round_time_s / _MOMENTS / 2.0
        distances[robot] = 0.0
        return distances

    def stops(self, robot: int, own: Places, others: Tracks, bases: Robots | None) -> Iterator[int]:
        """Moments at which a robot may stop and stay, clear of others and their bases: latest first, always with 0."""
        if self.off_m:
            yield from self._stops_at_any_time(robot, own, others, bases)
            return
        may_meet = self._may_meet(robot, own, others, bases)
        others, least = others[may_meet], self._squared(robot)[may_meet, None]
        bases = None if bases is None else bases[may_meet]
        near = (((others - own) ** 2).sum(axis=2) < least).any(axis=0)
        # a robot stops before it comes near another; later in the round, others may still drive past its stop
        end = int(near.argmax()) if near.any() else len(own)
        for moment in range(end - 1, 0, -1):
            standing = others[:, moment:] if bases is None else np.column_stack([others[:, moment:], bases[:, None]])
            if not (((standing - own[moment]) ** 2).sum(axis=2) < least).any():
                yield moment
        yield 0

    def is_clear(self, robot: int, places: Places, others: Robots) -> Mask:
        """Mask of places far enough from the positions of all other robots; ``others`` has the positions of all."""
        least = self.least(robot) + self.off_m
        low, high = places.min(axis=0, initial=np.inf), places.max(axis=0, initial=-np.inf)
        near = ((others >= low - least[:, None]) & (others <= high + least[:, None])).all(axis=1)
        squared = self._squared(robot, self.off_m)[near]
        return (((places[:, None] - others[near]) ** 2).sum(axis=2) >= squared).all(axis=1)

    def _may_meet(self, robot: int, own: Places, others: Tracks, bases: Robots | None) -> Bool[np.ndarray, " robots"]:
        """Mask of other robots that the robot may come near in this round, either at their places or at their bases."""
        speeds = np.array(self.speeds)
        room = self.least(robot) + (speeds[robot] + speeds) * self.round_time_s
        within = np.hypot(*(others[:, 0] - own[0]).T) <= 1.01 * room
        return within if bases is None else within | (np.hypot(*(bases - own[0]).T) <= 1.01 * room)

    def _stops_at_any_time(self, robot: int, own: Places, others: Tracks, bases: Robots | None) -> Iterator[int]:
        nearest = np.array([KDTree(track).query(own)[0] for track in others])
        passes = (nearest**2 >= self._squared(robot)[:, None]).all(axis=0)
        end = len(own) if passes.all() else int(passes.argmin())
        for moment in range(end - 1, 0, -1):
            standing = nearest[:, moment] if bases is None else np.hypot(*(bases - own[moment]).T)
            if (np.minimum(standing, nearest[:, moment]) ** 2 >= self._squared(robot, self.off_m)).all():
                yield moment
        yield 0

    def _squared(self, robot: int, more_m: float = 0.0) -> Float[np.ndarray, " robots"]:
        squared = (self.least(robot) + more_m) ** 2
        squared[robot] = -np.inf
        return squared


@dataclass(frozen=True, eq=False)
class BatteryLimits:
    """Limits that batteries set, if there are any. A robot within ``near_m`` of its base counts as being there."""

    rules: Rules
    drivers: Sequence[Driver]
    round_time_s: float
    reserve: float = 0.0
    near_m: float = 0.0
    _trees: dict[tuple[float, ...], PathTree] = field(default_factory=dict[tuple[float, ...], PathTree])

    def charge(self, episode: Episode) -> Float[np.ndarray, " robots"] | None:
        """Share of its battery that each robot has left; None without batteries."""
        return None if self.rules.batteries is None else episode.batteries / np.array(self.rules.batteries)

    def rounds_left(self, episode: Episode, robot: int) -> int:
        """Whole rounds that a robot can drive on its battery; ``NEVER`` if it has none."""
        # by rounding, a round may last longer than its time; this must not reduce the number of rounds
        left = (episode.batteries[robot] + 2.0 * self._slack(robot)) / self.round_time_s
        return int(left) if np.isfinite(left) else NEVER

    def is_at_base(self, episode: Episode, robot: int) -> bool:
        """True if a robot is at its base."""
        return bool(np.hypot(*(episode.poses[robot, :2] - episode.bases[robot])) <= self.near_m)

    def must_return(self, episode: Episode, robot: int) -> bool:
        """True if a robot must return: its battery does not last for another round and the return."""
        if self.rules.batteries is None or self.is_at_base(episode, robot):
            return False
        return_s = self._return_times(episode, robot, episode.poses[robot, None])[0]
        return bool(episode.batteries[robot] - return_s < self.round_time_s)

    def stop_on_return(self, episode: Episode, robot: int) -> Place:
        """Location that a robot on its return reaches in a round."""
        pose, driver = episode.poses[robot], self.drivers[robot]
        whole = self.return_path(episode, robot)
        path = self.cut_return(robot, whole)
        if (path[:, 0] == whole[:, 0]).all():
            return episode.bases[robot].copy()
        return np.clip(motion.advance(pose, path)[:2], driver.ground.low, driver.ground.high)

    def cut_return(self, robot: int, whole: Path) -> Path:
        """Part of a robot's return path that a round takes, including the slack that ``can_return_after`` permits."""
        return motion.cut(whole, self.round_time_s * SLACK, 2.0 * self._slack(robot))

    def return_path(self, episode: Episode, robot: int) -> Path:
        """Whole return path of a robot."""
        return self.drivers[robot].return_path(self._return_paths(episode, robot), episode.poses[robot])

    def can_return(self, episode: Episode, robot: int, times: Values, poses: Float[np.ndarray, "k 3"]) -> Mask:
        """Mask of drives, each with its time and final pose, after which the battery lasts for the return."""
        if self.rules.batteries is None:
            return np.ones(len(times), dtype=bool)
        return times + self._return_times(episode, robot, poses) <= episode.batteries[robot]

    def can_return_after(self, episode: Episode, robot: int, path: Path) -> bool:
        """True if the battery lasts for a path and the return from its end, up to rounding."""
        end, time_s = motion.advance(episode.poses[robot], path), path[:, :1].sum(axis=0) - self._slack(robot)
        return bool(self.can_return(episode, robot, time_s, end[None])[0])

    def discharge(self, episode: Episode, robot: int, time_s: float) -> None:
        """Subtract the time of a drive from a robot's battery, and charge it at the base."""
        if self.rules.batteries is not None:
            # charges below 0 are due to rounding: return paths may be longer by ``_slack``
            left = max(0.0, float(episode.batteries[robot] - time_s))
            episode.batteries[robot] = self.rules.batteries[robot] if self.is_at_base(episode, robot) else left

    def require_reach(self, starts: Robots, agents: Sequence[str]) -> None:
        """Refuse batteries that do not last from a start to its base."""
        if self.rules.batteries is None or self.rules.bases is None:
            return
        for robot, (start, base) in enumerate(zip(starts, np.array(self.rules.bases, dtype=float), strict=True)):
            driver = self.drivers[robot]
            return_s = float(driver.planner.returns(driver.planner.paths_to(base), np.array([[*start, np.nan]]))[0][0])
            # the heading is drawn at reset: the robot may have to turn about first
            return_s += np.pi / driver.unicycle.turn_rate_rad_s * bool((start != base).any())
            return_s *= 1.0 + self.reserve
            if return_s > (battery_s := self.rules.batteries[robot]):
                got = f"got {battery_s:g} s for {agents[robot]}, which starts {return_s:g} s from its base"
                raise ConfigError(f"{got}; wanted enough to get there", at="$.battery_s")

    def _slack(self, robot: int) -> float:
        """Seconds by which a path may exceed the battery, to allow for rounding."""
        return 0.0 if self.rules.batteries is None else (SLACK - 1) * self.rules.batteries[robot]

    def _return_times(self, episode: Episode, robot: int, poses: Float[np.ndarray, "k 3"]) -> Values:
        return self.drivers[robot].planner.returns(self._return_paths(episode, robot), poses)[0] * (1.0 + self.reserve)

    def _return_paths(self, episode: Episode, robot: int) -> PathTree:
        base, driver = episode.bases[robot], self.drivers[robot]
        key = (driver.unicycle.speed_m_s, driver.unicycle.turn_rate_rad_s, *base.tolist())
        # bases are drawn with the starts of every episode: the cache needs a limit
        if key not in self._trees:
            if len(self._trees) >= _MOST_BASES:
                self._trees.clear()
            self._trees[key] = driver.planner.paths_to(base)
        return self._trees[key]
