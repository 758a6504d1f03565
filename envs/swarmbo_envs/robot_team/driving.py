"""How a robot gets from where it is to a place: round what is blocked, and home in time."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from swarmbo_envs.ground import Ground, Ways
from swarmbo_envs.ground.ways import Homeward, turn_between
from swarmbo_envs.robot_team.motion import Unicycle, ends_of_arcs, wrap_angle


@dataclass(frozen=True, eq=False)
class Driver:
    """A robot's motion on a map of which some may be blocked.

    In the open it drives as a ``Unicycle``. Where something is in the way, or there is a current, it turns on the spot
    and drives straight courses, ``Ways``.

    Args:
        unicycle: Its limits.
        ground: Where it may drive.
        wind: The current (east, north), m/s.
    """

    unicycle: Unicycle
    ground: Ground
    wind: tuple[float, float] = (0.0, 0.0)

    @cached_property
    def ways(self) -> Ways:
        """Its ways around what is blocked."""
        return Ways(self.ground, self.unicycle.speed_m_s, self.unicycle.turn_rate_rad_s, self.wind)

    @property
    def is_plain(self) -> bool:
        """Whether nothing is in its way."""
        return self.ground.is_open and not any(self.wind)

    def arrivals(self, pose: Float[np.ndarray, " 3"], places: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, "k 2"]:
        """When it gets to places at the earliest that it knows, s, and in which heading; infinite where never."""
        if self.is_plain:
            paths = self.unicycle.paths(pose, places)
            return np.column_stack([paths[:, :, 0].sum(axis=1), _last_headings(pose, paths)])
        when, by, heading = self.ways.arrivals(self.ways.fan(pose), places)
        straight = np.flatnonzero(by == 0)
        paths, ok = self._arcs(pose, places[straight])
        sooner = ok & (paths[:, :, 0].sum(axis=1) < when[straight])
        when[straight[sooner]] = paths[sooner, :, 0].sum(axis=1)
        heading[straight[sooner]] = _last_headings(pose, paths[sooner])
        return np.column_stack([when, heading])

    def path(self, pose: Float[np.ndarray, " 3"], place: Float[np.ndarray, " 2"]) -> Float[np.ndarray, "s 3"] | None:
        """The quickest known path to a place, as ``motion`` has them; None where there is none."""
        if self.is_plain:
            return self.unicycle.paths(pose, place[None])[0]
        fan = self.ways.fan(pose)
        when, by, _ = self.ways.arrivals(fan, place[None])
        if by[0] < 0:
            return None
        if by[0] == 0:
            paths, ok = self._arcs(pose, place[None])
            if ok[0] and paths[0, :, 0].sum() < when[0]:
                return paths[0]
        return self._courses(pose, [*self.ways.bends(fan, int(by[0])), place])

    def homeward(self, base: Float[np.ndarray, " 2"]) -> Homeward:
        """The ways to a base, from wherever."""
        return self.ways.homeward(base)

    def home_times(self, homeward: Homeward, poses: Float[np.ndarray, "k 3"]) -> Float[np.ndarray, " k"]:
        """How long it takes from poses to the base."""
        return self.ways.returns(homeward, poses)[0]

    def path_home(self, homeward: Homeward, pose: Float[np.ndarray, " 3"]) -> Float[np.ndarray, "s 3"]:
        """The way to the base; it takes as long as ``home_times`` says, and so does what is left of it."""
        node, stops = int(self.ways.returns(homeward, pose[None])[1][0]), list[Float[np.ndarray, " 2"]]()
        while node >= 0:
            stops.append(homeward.nodes[node])
            node = int(homeward.following[node])
        return self._courses(pose, stops)

    def _courses(self, pose: Float[np.ndarray, " 3"], stops: list[Float[np.ndarray, " 2"]]) -> Float[np.ndarray, "s 3"]:
        """Turns on the spot and straight courses from stop to stop."""
        here, heading, path = pose[:2], float(pose[2]), list[tuple[float, float, float]]()
        rate = self.unicycle.turn_rate_rad_s
        for stop in stops:
            offset = stop - here
            if not offset.any():
                continue
            course, distance = float(np.arctan2(offset[1], offset[0])), float(np.hypot(*offset))
            time = float(self.ways.straight_times(here[None], stop[None])[0, 0])
            side = float(np.sign(wrap_angle(course - heading)))
            path.append((turn_between(heading, course) / rate, 0.0, side * rate))
            path.append((time, distance / time, 0.0))
            here, heading = stop, course
        return np.array(path).reshape(-1, 3)

    def _arcs(
        self, pose: Float[np.ndarray, " 3"], places: Float[np.ndarray, "k 2"]
    ) -> tuple[Float[np.ndarray, "k 2 3"], np.ndarray]:
        """The unicycle's own paths, and whether each is free: the circles about the pose, and the straight ends."""
        paths = self.unicycle.paths(pose, places)
        across = 2 * self.unicycle.speed_m_s / self.unicycle.turn_rate_rad_s
        if not len(places) or any(self.wind) or np.isnan(pose[2]) or not self.ground.is_free_around(pose[:2], across):
            return paths, np.zeros(len(places), dtype=bool)
        return paths, self.ground.sees(ends_of_arcs(pose, paths[:, 0]), places)


def _last_headings(pose: Float[np.ndarray, " 3"], paths: Float[np.ndarray, "k s 3"]) -> Float[np.ndarray, " k"]:
    return wrap_angle(pose[2] + (paths[:, :, 0] * paths[:, :, 2]).sum(axis=1))
