"""Batteries, and the ways to where they are loaded."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.errors import ConfigError
from swarmbo_envs.ground.ways import Homeward
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.driving import Driver
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.settings import Rules

_MOST_BASES = 1024
NEVER = np.iinfo(int).max // 4  # rounds to where there is no way, and of a battery without end
SLACK = 1 + 1e-9  # a place exactly at the limit of time is within it, whatever the rounding


@dataclass(frozen=True, eq=False)
class Homes:
    """What batteries still allow; without batteries everything.

    Args:
        rules: What binds the robots.
        drivers: One for each.
        round_time_s: Of a round.
        reserve: Share by which a battery must last longer than the way home.
        near_m: How far from its base a robot is still at it.
    """

    rules: Rules
    drivers: Sequence[Driver]
    round_time_s: float
    reserve: float = 0.0
    near_m: float = 0.0
    _known: dict[tuple[float, ...], Homeward] = field(default_factory=dict[tuple[float, ...], Homeward])

    def charge(self, episode: Episode) -> Float[np.ndarray, " robots"] | None:
        """The share of its battery that each robot has left; None without batteries."""
        return None if self.rules.batteries is None else episode.batteries / np.array(self.rules.batteries)

    def rounds_left(self, episode: Episode, robot: int) -> int:
        """Whole rounds that a robot can drive with what its battery has; ``NEVER`` without one."""
        left = episode.batteries[robot] / self.round_time_s
        return int(left) if np.isfinite(left) else NEVER

    def is_home(self, episode: Episode, robot: int) -> bool:
        """Whether a robot is where it loads."""
        return bool(np.hypot(*(episode.poses[robot, :2] - episode.bases[robot])) <= self.near_m)

    def is_due(self, episode: Episode, robot: int) -> bool:
        """Whether a robot must go home: without the way there, its battery does not last for another round."""
        if self.rules.batteries is None or self.is_home(episode, robot):
            return False
        return bool(
            episode.batteries[robot] - self._times(episode, robot, episode.poses[robot, None])[0] < self.round_time_s
        )

    def homebound(self, episode: Episode, robot: int) -> Float[np.ndarray, " 2"]:
        """Where a round on the way home takes a robot."""
        pose, driver = episode.poses[robot], self.drivers[robot]
        whole = self.path(episode, robot)
        path = self.cut_home(robot, whole)
        if (path[:, 0] == whole[:, 0]).all():
            return episode.bases[robot].copy()
        return np.clip(motion.advance(pose, path)[:2], driver.ground.low, driver.ground.high)

    def cut_home(self, robot: int, whole: Float[np.ndarray, "s 3"]) -> Float[np.ndarray, "s 3"]:
        """What a round takes of a robot's way home: also what ``lasts_for`` let it be longer than the battery lasts."""
        return motion.cut(whole, self.round_time_s * SLACK, 2.0 * self._slack(robot))

    def path(self, episode: Episode, robot: int) -> Float[np.ndarray, "s 3"]:
        """The whole way home of a robot."""
        return self.drivers[robot].path_home(self._ways(episode, robot), episode.poses[robot])

    def lasts(
        self, episode: Episode, robot: int, times: Float[np.ndarray, " k"], poses: Float[np.ndarray, "k 3"]
    ) -> Bool[np.ndarray, " k"]:
        """For which drives of some time, to some pose each, the battery lasts, and for the way home from there."""
        if self.rules.batteries is None:
            return np.ones(len(times), dtype=bool)
        return times + self._times(episode, robot, poses) <= episode.batteries[robot]

    def lasts_for(self, episode: Episode, robot: int, path: Float[np.ndarray, "s 3"]) -> bool:
        """Whether the battery lasts for a path and the way home from its end, up to rounding."""
        if self.rules.batteries is None:
            return True
        there = motion.advance(episode.poses[robot], path)
        home = self._times(episode, robot, there[None])[0]
        return bool(path[:, 0].sum() + home <= episode.batteries[robot] + self._slack(robot))

    def use(self, episode: Episode, robot: int, time_s: float) -> None:
        """Take the time of a drive from a robot's battery, and load it where it is home."""
        if self.rules.batteries is not None:
            left = max(0.0, float(episode.batteries[robot] - time_s))
            episode.batteries[robot] = self.rules.batteries[robot] if self.is_home(episode, robot) else left

    def require(self, starts: Float[np.ndarray, "robots 2"], agents: Sequence[str]) -> None:
        """Refuse batteries that do not last from a start to its base.

        Raises:
            ConfigError: If one does not.
        """
        if self.rules.batteries is None or self.rules.bases is None:
            return
        for robot, (start, base) in enumerate(zip(starts, np.array(self.rules.bases, dtype=float), strict=True)):
            driver = self.drivers[robot]
            home = float(driver.home_times(driver.homeward(base), np.array([[*start, np.nan]]))[0])
            home += np.pi / driver.unicycle.turn_rate_rad_s * bool((start != base).any())
            home *= 1.0 + self.reserve
            if home > self.rules.batteries[robot]:
                time = self.rules.batteries[robot]
                got = f"got {time:g} s for {agents[robot]}, which starts {home:g} s from its base"
                raise ConfigError(f"{got}; wanted enough to get there", at="$.battery_s")

    def _slack(self, robot: int) -> float:
        """By how many seconds a way may be longer than a battery lasts: what rounding may make of it."""
        return 0.0 if self.rules.batteries is None else (SLACK - 1) * self.rules.batteries[robot]

    def _times(self, episode: Episode, robot: int, poses: Float[np.ndarray, "k 3"]) -> Float[np.ndarray, " k"]:
        """How long a battery must last at poses, to get home."""
        return self.drivers[robot].home_times(self._ways(episode, robot), poses) * (1.0 + self.reserve)

    def _ways(self, episode: Episode, robot: int) -> Homeward:
        """The ways to a robot's base, worked out once for each."""
        base, driver = episode.bases[robot], self.drivers[robot]
        key = (driver.unicycle.speed_m_s, driver.unicycle.turn_rate_rad_s, *base.tolist())
        if key not in self._known:
            if len(self._known) >= _MOST_BASES:
                self._known.clear()
            self._known[key] = driver.homeward(base)
        return self._known[key]
