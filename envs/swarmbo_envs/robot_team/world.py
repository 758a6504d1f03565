"""What happens in a round: robots drive, and measure where they get to."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from swarmbo import rng
from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import Field
from swarmbo_envs.fields.placing import spread
from swarmbo_envs.fields.settings import plain_settings
from swarmbo_envs.ground import Ground
from swarmbo_envs.ground.ways import Homeward
from swarmbo_envs.robot_team import motion
from swarmbo_envs.robot_team.apart import Spacing
from swarmbo_envs.robot_team.driving import Driver
from swarmbo_envs.robot_team.episode import Episode
from swarmbo_envs.robot_team.settings import RobotTeamSettings
from swarmbo_envs.robot_team.starts import checked_starts

_MOST_BASES = 1024
_MOST_ON_THE_WAY = 64  # measurements of one robot in a round
NEVER = np.iinfo(int).max // 4  # rounds to where there is no way
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

    def __init__(
        self, settings: RobotTeamSettings, field: Field, agents: list[str], ground: Ground | None = None
    ) -> None:
        self.settings, self.field, self.agents = settings, field, agents
        self.rules = rules = settings.rules()
        self.ground = ground or Ground(field.low, field.high)
        limits = list(zip(rules.speeds, rules.turn_rates, strict=True))
        made = {
            (speed, rate): Driver(motion.Unicycle(speed, rate, field.low, field.high), self.ground, rules.wind)
            for speed, rate in limits
        }
        self.drivers = [made[limit] for limit in limits]
        self.round_time_s = settings.round_time_s or max(np.pi / rate + field.reach_m / speed for speed, rate in limits)
        diagonal = float(np.hypot(*(field.high - field.low)))
        self.radio_ranges_m = rules.radio_ranges or (0.5 * diagonal,) * len(agents)
        self._fastest = [speed + float(np.hypot(*rules.wind)) for speed in rules.speeds]  # over ground
        self.spacing = Spacing(rules.separation_m, self._fastest, self.round_time_s) if rules.separation_m else None
        if rules.sample_every_m is not None:
            most = max(self._fastest) * self.round_time_s / rules.sample_every_m
            if most > _MOST_ON_THE_WAY:
                got = f"got {rules.sample_every_m:g} m, up to {most:.0f} measurements on the way of a round"
                raise ConfigError(f"{got}; wanted at most {_MOST_ON_THE_WAY}", at="$.sample_every_m")
        if self._samples_on_the_way and field.sites_only:
            at = "$.samples_per_leg" if rules.samples_per_leg else "$.sample_every_m"
            raise ConfigError("got a field that can be measured at its sites only; wanted none", at=at)
        self._starts = checked_starts(settings, field)
        self._there_m = 1e-9 * float((field.high - field.low).max())
        self._parts = self.ground.part_of(field.sites)
        self._ways_home: dict[tuple[float, ...], Homeward] = {}  # worked out once for each base
        if self._starts is not None:
            self._require_apart(self._starts)
            self._require_battery(self._starts)

    def description(self) -> dict[str, Any]:
        """What makes it this world, as plain JSON: all settings, with defaults filled in.

        How it is shown is left out. A CSV file counts by its data, not by its path.
        """
        plain = plain_settings(self.settings, self.field.digest)
        return plain if self.ground.is_open else {**plain, "no_go": f"data {self.ground.digest}"}

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
            self._require_apart(starts)
        headings = generator.uniform(-np.pi, np.pi, size=len(starts))
        rules = self.rules
        return Episode(
            seed=seed,
            number=number,
            round=0,
            running=True,
            poses=np.column_stack([starts, headings]),
            batteries=np.full(len(starts), np.inf) if rules.batteries is None else np.array(rules.batteries),
            bases=starts.copy() if rules.bases is None else np.array(rules.bases, dtype=float),
            last=np.full(len(starts), np.nan),
            measured=np.zeros(len(self.field.sites), dtype=bool),
            trails=[start[None].copy() for start in starts],
            samples=np.empty((0, 4)),
            on_the_way=np.empty((0, 4)),
        )

    def reachable(self, episode: Episode, robot: int) -> Int[np.ndarray, " k"]:
        """Indices of the sites that a robot can reach and measure in one round, and get home from."""
        pose, sites = episode.poses[robot], self.field.sites
        limit = self._fastest[robot] * self.round_time_s * _SLACK
        near = np.flatnonzero((((sites - pose[:2]) ** 2).sum(axis=1) <= limit**2) & ~episode.measured)
        if self.spacing is not None:
            near = near[self.spacing.is_clear(robot, sites[near], episode.poses[:, :2])]
        when, headings = self.drivers[robot].arrivals(pose, sites[near]).T
        possible = when <= self.round_time_s * _SLACK
        if self.rules.batteries is not None and possible.any():
            there = np.column_stack([sites[near], headings])[possible]
            home = self.drivers[robot].home_times(self._home(episode, robot), there)
            possible[possible] = when[possible] + home <= episode.batteries[robot]
        return near[possible]

    def candidates(self, episode: Episode, robot: int) -> Float[np.ndarray, "k 2"]:
        """Where a robot can measure in this round; of one that must go home, where that takes it."""
        if self._is_due(episode, robot):
            return np.empty((0, 2)) if self.field.sites_only else self._homebound(episode, robot)[None]
        return self.field.sites[self.reachable(episode, robot)]

    def _is_due(self, episode: Episode, robot: int) -> bool:
        """Whether a robot must go home: without the way there, its battery does not last for another round."""
        if self.rules.batteries is None or bool((episode.poses[robot, :2] == episode.bases[robot]).all()):
            return False
        home = self.drivers[robot].home_times(self._home(episode, robot), episode.poses[robot, None])[0]
        return bool(episode.batteries[robot] - home < self.round_time_s)

    def _homebound(self, episode: Episode, robot: int) -> Float[np.ndarray, " 2"]:
        """Where a round on the way home takes a robot."""
        pose = episode.poses[robot]
        whole = self.drivers[robot].path_home(self._home(episode, robot), pose)
        path = motion.cut(whole, self.round_time_s * _SLACK)
        if (path[:, 0] == whole[:, 0]).all():
            return episode.bases[robot].copy()
        return np.clip(motion.advance(pose, path)[:2], self.field.low, self.field.high)

    def travel_rounds(
        self, robot: int, origins: Float[np.ndarray, "n 2"], places: Float[np.ndarray, "m 2"]
    ) -> Int[np.ndarray, "n m"]:
        """The least number of rounds in which a robot gets from each origin to each place, first turns left out.

        0 where it is there, ``NEVER`` where there is no way.
        """
        times = self.drivers[robot].ways.times_between(origins, places)
        rounds = np.full(times.shape, NEVER)
        there = np.isfinite(times)
        rounds[there] = np.ceil(times[there] / (self.round_time_s * _SLACK))
        return rounds

    def charge(self, episode: Episode) -> Float[np.ndarray, " robots"] | None:
        """The share of its battery that each robot has left; None without batteries."""
        return None if self.rules.batteries is None else episode.batteries / np.array(self.rules.batteries)

    def rounds_left(self, episode: Episode, robot: int) -> int:
        """Whole rounds that a robot can drive with what its battery has; ``NEVER`` without one."""
        left = episode.batteries[robot] / self.round_time_s
        return int(left) if np.isfinite(left) else NEVER

    def drive(self, episode: Episode, places: Sequence[Float[np.ndarray, " 2"]]) -> list[dict[str, Any]]:
        """One round of all robots, in the order of their numbers, written into the episode.

        Args:
            episode: Where the team stands; it changes.
            places: Where each shall measure, on the map.

        Returns:
            The info of each.
        """
        tracks = None if self.spacing is None else self.spacing.standing(episode.poses[:, :2])
        return [self._drive_and_measure(episode, robot, place, tracks) for robot, place in enumerate(places)]

    def _drive_and_measure(
        self,
        episode: Episode,
        robot: int,
        place: Float[np.ndarray, " 2"],
        tracks: Float[np.ndarray, "robots k 2"] | None,
    ) -> dict[str, Any]:
        """One robot's round.

        Args:
            episode: Where the team stands; the pose, trail, battery and samples of the robot change.
            robot: Its number.
            place: Where it shall measure, on the map.
            tracks: Where all are at every moment of the round, if they keep apart; the robot's row changes.

        Returns:
            Its info.
        """
        pose, is_open, is_due = episode.poses[robot], True, self._is_due(episode, robot)
        if is_due:
            goal, is_open = episode.bases[robot], not self.field.sites_only
            as_asked = is_open and np.allclose(place, self._homebound(episode, robot), rtol=0.0, atol=self._there_m)
        elif self.field.sites_only:
            goal, as_asked, is_open = self._site_to_sample(episode, robot, place)
        else:
            goal, as_asked = self._free_place(pose, place)
        whole, end = self._way(episode, robot, goal, is_due=is_due)
        if end is not goal:
            goal, as_asked, is_open = end, False, False
        path = meant = motion.cut(whole, self.round_time_s * _SLACK)
        if tracks is not None:
            path = self._kept_apart(episode, robot, path, tracks)
        arrived = bool((path[:, 0] == whole[:, 0]).all())
        there = motion.advance(pose, path)
        there[:2] = goal if arrived else np.clip(there[:2], self.field.low, self.field.high)
        trace = motion.trace(pose, path)
        episode.trails[robot] = np.concatenate([episode.trails[robot], trace[1:]])
        places = motion.places_along(pose, path, self._stops_of(motion.length(path)))
        on_the_way = [self._sample(episode, robot, place, number) for number, place in enumerate(places, start=1)]
        episode.poses[robot] = there
        if self.rules.batteries is not None:
            is_home = bool((there[:2] == episode.bases[robot]).all())
            left = max(0.0, float(episode.batteries[robot] - path[:, 0].sum()))
            episode.batteries[robot] = self.rules.batteries[robot] if is_home else left
        measurable = (arrived and is_open) or not self.field.sites_only
        as_meant = arrived or (is_due and bool((path[:, 0] == meant[:, 0]).all()))
        info = self.measure(episode, robot, motion.length(path), as_meant and as_asked, measurable)
        if is_due and self.field.sites_only:
            info["sampled"] = False  # there is nothing to measure at home
        more = {"path": trace} if self.settings.version > 0 else {}
        return {**info, **more, **({"on_the_way": on_the_way} if self._samples_on_the_way else {})}

    @property
    def _samples_on_the_way(self) -> bool:
        return self.rules.samples_per_leg > 0 or self.rules.sample_every_m is not None

    def _stops_of(self, length_m: float) -> Float[np.ndarray, " k"]:
        """After which distances a robot measures on a drive of some length; its end is left out."""
        rules = self.rules
        if rules.sample_every_m is not None:
            return np.arange(1, np.ceil(length_m / rules.sample_every_m - 1e-6)) * rules.sample_every_m
        count = rules.samples_per_leg if length_m > 0 else 0
        return np.arange(1, count + 1) * length_m / (rules.samples_per_leg + 1)

    def on_the_way(
        self, robot: int, origin: Float[np.ndarray, " 2"], place: Float[np.ndarray, " 2"]
    ) -> Float[np.ndarray, "k 2"]:
        """Where a robot would measure before it is at a place: on the way, and where rounds end."""
        pose = self.drivers[robot].departure(origin, place)
        path = self.drivers[robot].path(pose, place)
        if path is None or not len(path):
            return np.empty((0, 2))
        ends = np.cumsum(path[:, 0] * path[:, 1])
        times = np.arange(0.0, path[:, 0].sum() * (2 - _SLACK), self.round_time_s)
        rounds = np.append(np.interp(times, np.append(0.0, np.cumsum(path[:, 0])), np.append(0.0, ends)), ends[-1])
        stops = [[*(begin + self._stops_of(end - begin)), end] for begin, end in pairwise(rounds)]
        return motion.places_along(pose, path, np.concatenate(stops)[:-1])

    def _way(
        self, episode: Episode, robot: int, goal: Float[np.ndarray, " 2"], *, is_due: bool
    ) -> tuple[Float[np.ndarray, "s 3"], Float[np.ndarray, " 2"]]:
        """The whole way that a robot sets out on, and where it leads.

        That is home if it could not get there from where it would be at the end of the round, and nowhere if there is
        no way to the goal.
        """
        pose, driver = episode.poses[robot], self.drivers[robot]
        if is_due:
            return driver.path_home(self._home(episode, robot), pose), goal
        path = driver.path(pose, goal)
        if path is None:
            return np.zeros((0, 3)), pose[:2].copy()
        if self._gets_home(episode, robot, motion.cut(path, self.round_time_s * _SLACK)):
            return path, goal
        return driver.path_home(self._home(episode, robot), pose), episode.bases[robot].copy()

    def _gets_home(self, episode: Episode, robot: int, path: Float[np.ndarray, "s 3"]) -> bool:
        """Whether the battery lasts for a path and the way home from its end."""
        if self.rules.batteries is None:
            return True
        there = motion.advance(episode.poses[robot], path)
        home = self.drivers[robot].home_times(self._home(episode, robot), there[None])[0]
        slack = (_SLACK - 1) * self.rules.batteries[robot]
        return bool(path[:, 0].sum() + home <= episode.batteries[robot] + slack)

    def _kept_apart(
        self, episode: Episode, robot: int, path: Float[np.ndarray, "s 3"], tracks: Float[np.ndarray, "robots k 2"]
    ) -> Float[np.ndarray, "s 3"]:
        """As much of a path as keeps the robot away from the others, and in reach of its base."""
        assert self.spacing is not None
        pose, moments = episode.poses[robot], self.spacing.moments
        own = self.spacing.driving(pose, path)[:, :2]
        bases = None if self.rules.batteries is None else episode.bases
        for moment in self.spacing.stops(robot, own, tracks, bases):
            part = path if moment == len(moments) - 1 else motion.cut(path, float(moments[moment]))
            if moment == 0 or self._gets_home(episode, robot, part):
                tracks[robot] = own[np.minimum(np.arange(len(own)), moment)]
                return part
        raise AssertionError("the first moment is always one at which it may stay")

    def _home(self, episode: Episode, robot: int) -> Homeward:
        """The ways to a robot's base."""
        base, driver = episode.bases[robot], self.drivers[robot]
        key = (driver.unicycle.speed_m_s, driver.unicycle.turn_rate_rad_s, *base.tolist())
        if key not in self._ways_home:
            if len(self._ways_home) >= _MOST_BASES:
                self._ways_home.clear()
            self._ways_home[key] = driver.homeward(base)
        return self._ways_home[key]

    def _free_place(
        self, pose: Float[np.ndarray, " 3"], place: Float[np.ndarray, " 2"]
    ) -> tuple[Float[np.ndarray, " 2"], bool]:
        """Where to drive for a place, and whether that is as asked: the nearest site to one that has no way to it."""
        if self.ground.is_open:
            return place, True
        part, wanted = self.ground.part_of(np.stack([pose[:2], place]))
        if part == wanted:
            return place, True
        near = np.where(self._parts == part, ((self.field.sites - place) ** 2).sum(axis=1), np.inf)
        return (self.field.sites[near.argmin()] if np.isfinite(near).any() else pose[:2]).copy(), False

    def _require_apart(self, starts: Float[np.ndarray, "robots 2"]) -> None:
        if self.spacing is None:
            return
        bases = starts if self.rules.bases is None else np.array(self.rules.bases)
        for places, what in ((starts, "starts"), (bases, "bases")):
            if not all(self.spacing.is_clear(robot, place[None], places).all() for robot, place in enumerate(places)):
                room = max(float(self.spacing.least(robot).max()) for robot in range(len(places)))
                raise ConfigError(
                    f"got {self.rules.separation_m:g} m and {what} nearer than that; wanted {what} at least {room:g} m "
                    "apart, which leaves room between two moments of the round at which robots look",
                    at="$.separation_m",
                )

    def _require_battery(self, starts: Float[np.ndarray, "robots 2"]) -> None:
        if self.rules.batteries is None or self.rules.bases is None:
            return
        for robot, (start, base) in enumerate(zip(starts, np.array(self.rules.bases, dtype=float), strict=True)):
            driver = self.drivers[robot]
            home = float(driver.home_times(driver.homeward(base), np.array([[*start, np.nan]]))[0])
            home += np.pi / driver.unicycle.turn_rate_rad_s * bool((start != base).any())
            if home > self.rules.batteries[robot]:
                time = self.rules.batteries[robot]
                got = f"got {time:g} s for {self.agents[robot]}, which starts {home:g} s from its base"
                raise ConfigError(f"{got}; wanted enough to get there", at="$.battery_s")

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
        location = episode.poses[robot, :2].copy()
        told = self._read(episode, robot, location) if measurable else {}
        if told and self.field.sites_only:
            episode.measured[((self.field.sites - location) ** 2).sum(axis=1).argmin()] = True
        episode.samples = np.vstack([episode.samples, [robot, *location, told.get("measurement", np.nan)]])
        if (charge := self.charge(episode)) is not None:
            told["battery"] = float(charge[robot])
        return {
            **told,
            "location": location,
            "cost": self.settings.travel_cost * distance,
            "distance": distance,
            "reached": reached,
            "interpolated": self.field.interpolated,
        }

    def _sample(self, episode: Episode, robot: int, location: Float[np.ndarray, " 2"], number: int) -> dict[str, Any]:
        """What a robot measures on its way, the how-manieth time this round."""
        told = self._read(episode, robot, location, sample=number)
        row = [robot, *location, told.get("measurement", np.nan)]
        episode.on_the_way = np.vstack([episode.on_the_way, row])
        return {**told, "location": location.copy()}

    def _read(self, episode: Episode, robot: int, location: Float[np.ndarray, " 2"], **which: int) -> dict[str, float]:
        """A robot's sensor at a place; nothing if it fails."""
        where = {"agent": self.agents[robot], "round": episode.round, "episode": episode.number, **which}
        if rng.stream(episode.seed, "robot_team", "failure", **where).random() < self.settings.failure_rate:
            return {}
        noise_std = self.rules.noise_stds[robot]
        noise = noise_std * rng.stream(episode.seed, "robot_team", "noise", **where).standard_normal()
        measurement = float(self.field.value(location[None])[0] + noise)
        episode.last[robot] = measurement
        return {"measurement": measurement, **({"noise_std": noise_std} if self.rules.is_noise_told else {})}

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
