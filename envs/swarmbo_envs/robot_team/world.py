"""What happens in a round: robots drive, and measure where they get to."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from swarmbo import rng
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.placing import spread
from swarmbo_envs.fields.settings import plain_settings
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.settings import RobotTeamSettings
from swarmbo_envs.robot_team.starts import checked_starts

_SLACK = 1 + 1e-9  # a place exactly at the limit of time is within it, whatever the rounding


class World:
    """The rules of the robot team; it never changes. What changes is the episode that its methods are given.

    Args:
        settings: Limits, noise and costs.
        field: What is measured.
        agents: Names of the robots.

    Raises:
        ConfigError: If the starts are wrong, or there are more robots than places for them.
    """

    def __init__(self, settings: RobotTeamSettings, field: Field, agents: list[str]) -> None:
        self.settings, self.field, self.agents = settings, field, agents
        self.unicycle = motion.Unicycle(settings.speed_m_s, settings.turn_rate_rad_s, field.low, field.high)
        turn_about_s = np.pi / settings.turn_rate_rad_s
        self.round_time_s = settings.round_time_s or turn_about_s + field.reach_m / settings.speed_m_s
        self.radio_range_m = settings.radio_range_m or 0.5 * float(np.hypot(*(field.high - field.low)))
        self._starts = checked_starts(settings, field)

    def description(self) -> dict[str, Any]:
        """What makes it this world, as plain JSON: all settings, with defaults filled in.

        How it is shown is left out. A CSV file counts by its data, not by its path.
        """
        return plain_settings(self.settings, self.field.digest)

    def begin(self, seed: int, number: int) -> Episode:
        """An episode with every robot at its start and nothing measured yet.

        Args:
            seed: Of all its randomness, >= 0.
            number: Which of the episodes with this seed.
        """
        generator = rng.stream(seed, "robot_team", "starts", episode=number)
        starts = self._starts
        if starts is None:
            starts = spread(generator, self.field.sites, self.settings.robots)
        headings = generator.uniform(-np.pi, np.pi, size=len(starts))
        return Episode(
            seed=seed,
            number=number,
            round=0,
            running=True,
            poses=np.column_stack([starts, headings]),
            last=np.full(len(starts), np.nan),
            measured=np.zeros(len(self.field.sites), dtype=bool),
            trails=[start[None].copy() for start in starts],
            samples=np.empty((0, 4)),
        )

    def reachable(self, episode: Episode, robot: int) -> Int[np.ndarray, " k"]:
        """Indices of the sites that a robot can reach and measure in one round."""
        pose, sites = episode.poses[robot], self.field.sites
        limit = self.settings.speed_m_s * self.round_time_s * _SLACK
        near = np.flatnonzero((((sites - pose[:2]) ** 2).sum(axis=1) <= limit**2) & ~episode.measured)
        return near[self.unicycle.travel_time(pose, sites[near]) <= self.round_time_s * _SLACK]

    def drive_and_measure(self, episode: Episode, robot: int, place: Float[np.ndarray, " 2"]) -> dict[str, Any]:
        """One robot's round, written into the episode.

        Args:
            episode: Where the team stands; the pose, trail and samples of the robot change.
            robot: Its number.
            place: Where it shall measure, on the map.

        Returns:
            Its info.
        """
        goal, as_asked, is_open = place, True, True
        if self.field.sites_only:
            goal, as_asked, is_open = self._site_to_sample(episode, robot, place)
        pose = episode.poses[robot]
        whole = self.unicycle.paths(pose, goal[None])[0]
        path = motion.cut(whole, self.round_time_s * _SLACK)
        arrived = bool((path[:, 0] == whole[:, 0]).all())
        there = motion.advance(pose, path)
        there[:2] = goal if arrived else np.clip(there[:2], self.field.low, self.field.high)
        episode.trails[robot] = np.concatenate([episode.trails[robot], motion.trace(pose, path)[1:]])
        episode.poses[robot] = there
        measurable = (arrived and is_open) or not self.field.sites_only
        return self.measure(episode, robot, motion.length(path), arrived and as_asked, measurable)

    def measure(
        self, episode: Episode, robot: int, distance: float = 0.0, reached: bool = True, measurable: bool = True
    ) -> dict[str, Any]:
        """What one robot measures where it stands, written into the episode.

        Args:
            episode: Where the team stands.
            robot: Its number.
            distance: Metres driven for it.
            reached: Whether it stands where it was asked to.
            measurable: Whether there is anything to measure here.

        Returns:
            Its info.
        """
        settings, location = self.settings, episode.poses[robot, :2].copy()
        where = {"agent": self.agents[robot], "round": episode.round, "episode": episode.number}
        failed = rng.stream(episode.seed, "robot_team", "failure", **where).random() < settings.failure_rate
        measurement = float("nan")
        if measurable and not failed:
            noise = settings.noise_std * rng.stream(episode.seed, "robot_team", "noise", **where).standard_normal()
            measurement = float(self.field.value(location[None])[0] + noise)
            episode.last[robot] = measurement
            if self.field.sites_only:
                episode.measured[((self.field.sites - location) ** 2).sum(axis=1).argmin()] = True
        episode.samples = np.vstack([episode.samples, [robot, *location, measurement]])
        told = {} if np.isnan(measurement) else {"measurement": measurement}
        return {
            **told,
            "location": location,
            "cost": settings.travel_cost * distance,
            "distance": distance,
            "reached": reached,
            "interpolated": self.field.interpolated,
        }

    def _site_to_sample(
        self, episode: Episode, robot: int, place: Float[np.ndarray, " 2"]
    ) -> tuple[Float[np.ndarray, " 2"], bool, bool]:
        """Where to drive when only sites can be measured, whether that is as asked, and whether it is still open."""
        sites = self.field.sites
        squared = np.where(episode.measured, np.inf, ((sites - place) ** 2).sum(axis=1))
        nearest = int(squared.argmin())
        if np.isinf(squared[nearest]):  # every site was measured: stay
            return episode.poses[robot, :2].copy(), False, False
        reachable = self.reachable(episode, robot)
        if len(reachable) == 0:
            return sites[nearest], True, True
        chosen = int(reachable[squared[reachable].argmin()])
        return sites[chosen], chosen == nearest, True
