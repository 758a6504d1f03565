"""Sensors of robots, at their stops and en route."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.boundary import rng
from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import Field
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.settings import RobotTeamSettings, Rules

_MOST_ON_THE_WAY = 64  # measurements of one robot in a round


@dataclass(frozen=True, eq=False)
class Sensors:
    """One sensor per robot; noise and failures come from streams named by robot and round."""

    settings: RobotTeamSettings
    field: Field
    agents: Sequence[str]

    def __post_init__(self) -> None:
        if self.is_used_on_the_way and self.field.sites_only:
            at = "$.samples_per_leg" if self.rules.samples_per_leg else "$.sample_every_m"
            raise ConfigError(
                "got a field that can be measured at its sites only; wanted another field, or no samples en route",
                at=at,
            )

    @cached_property
    def rules(self) -> Rules:
        """Limits of each robot."""
        return self.settings.rules()

    @property
    def is_used_on_the_way(self) -> bool:
        """True if robots also measure while they drive."""
        return self.rules.samples_per_leg > 0 or self.rules.sample_every_m is not None

    def require_few(self, longest_m: float) -> None:
        """Refuse too many measurements en route, for the longest drive of a round."""
        if (every := self.rules.sample_every_m) is not None and longest_m / every > _MOST_ON_THE_WAY:
            got = f"got {every:g} m, up to {longest_m / every:.0f} measurements on the way of a round"
            raise ConfigError(f"{got}; wanted at most {_MOST_ON_THE_WAY}", at="$.sample_every_m")

    def stops(self, length_m: float) -> Float[np.ndarray, " k"]:
        """Distances after which a robot measures on a drive of some length, without its end."""
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
        # a robot near a site measures it: rovers stop a little off
        if measurable and self.field.sites_only:
            site = int(((self.field.sites - location) ** 2).sum(axis=1).argmin())
            location = self.field.sites[site].copy()
        told = self._read(episode, robot, location) if measurable else {}
        if told and site >= 0:
            episode.measured[site] = True
        episode.samples = np.vstack([episode.samples, [robot, *location, told.get("measurement", np.nan)]])
        return {
            **told,
            "location": location,
            "cost": self.settings.travel_cost * distance,
            "distance": distance,
            "reached": reached,
            "interpolated": self.field.interpolated,
        }

    def sample(self, episode: Episode, robot: int, location: Float[np.ndarray, " 2"], number: int) -> dict[str, Any]:
        """Measure en route, by the number of the measurement in this round."""
        told = self._read(episode, robot, location, sample=number)
        row = [robot, *location, told.get("measurement", np.nan)]
        episode.on_the_way = np.vstack([episode.on_the_way, row])
        return {**told, "location": location.copy()}

    def _read(self, episode: Episode, robot: int, location: Float[np.ndarray, " 2"], **which: int) -> dict[str, float]:
        """Read a robot's sensor at a place; empty if it fails."""
        # named streams make a robot's draws independent of all actions, so compared methods meet equal noise
        where = {"agent": self.agents[robot], "round": episode.round, "episode": episode.number, **which}
        if rng.stream(episode.seed, "robot_team", "failure", **where).random() < self.settings.failure_rate:
            return {}
        noise_std = self.rules.noise_stds[robot]
        noise = noise_std * rng.stream(episode.seed, "robot_team", "noise", **where).standard_normal()
        measurement = float(self.field.value(location[None])[0] + noise)
        episode.last[robot] = measurement
        return {"measurement": measurement, **({"noise_std": noise_std} if self.rules.is_noise_told else {})}
