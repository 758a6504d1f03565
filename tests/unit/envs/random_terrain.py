"""Random environments for robots, and checks of their invariants by independent code."""

import json
import tempfile
from itertools import count, pairwise
from pathlib import Path

import numpy as np
from hypothesis import reject, strategies as st
from matplotlib.path import Path as Outline
from scipy.ndimage import gaussian_filter
from scipy.spatial import KDTree

from swarmbo.errors import ConfigError
from swarmbo_envs import robot_team_v1

FIELD = {"elevation": "jacksboro", "window": [0, 0, 10, 11]}
SIZE = robot_team_v1.parallel_env(field=FIELD).field.high


_FOLDER, _NUMBER = tempfile.TemporaryDirectory(), count()


def _file(ending):
    return str(Path(_FOLDER.name) / f"{next(_NUMBER)}{ending}")


@st.composite
def _stars(draw):
    """A polygon around a centre with corners at random distances, often not convex; some are a GeoJSON with a hole."""
    middle = np.array([draw(st.floats(0.1, 0.9)), draw(st.floats(0.1, 0.9))]) * SIZE
    radii = draw(st.lists(st.floats(20.0, 180.0), min_size=3, max_size=8))
    turns = np.arange(len(radii)) * 2 * np.pi / len(radii) + draw(st.floats(0.0, 3.0))
    out = np.array(radii)[:, None] * np.column_stack([np.cos(turns), np.sin(turns)])
    if draw(st.integers(0, 3)):
        return {"corners": (middle + out).tolist()}
    rings = [(middle + share * out).tolist() for share in (1.0, 0.6)]
    path = _file(".geojson")
    Path(path).write_text(json.dumps({"type": "Polygon", "coordinates": [[*ring, ring[0]] for ring in rings]}))
    return {"geojson": path}


@st.composite
def _walls(draw):
    """A wall across the map with one gap, which may be too narrow."""
    x, gap = draw(st.floats(0.2, 0.8)) * SIZE[0], draw(st.floats(0.1, 0.9)) * SIZE[1]
    half, thick = draw(st.floats(10.0, 80.0)), draw(st.floats(5.0, 40.0))
    ends = [(-10.0, gap - half), (gap + half, SIZE[1] + 10.0)]
    walls = [[[x, south], [x + thick, south], [x + thick, north], [x, north]] for south, north in ends if south < north]
    return [{"corners": wall} for wall in walls if min(corner[1] for corner in wall) < SIZE[1]]


@st.composite
def _rasters(draw):
    """Blobs of no-go cells."""
    noise = np.random.default_rng(draw(st.integers(0, 10**6))).standard_normal((31, 28))
    noise = gaussian_filter(noise, draw(st.sampled_from([0.5, 2.0])))
    path = _file(".npy")
    np.save(path, noise > np.quantile(noise, draw(st.sampled_from([0.75, 0.9, 0.98]))))
    return {"raster": path}


@st.composite
def terrains(draw):
    """Arguments of an environment; some are refused, because no robot has room."""
    robots = draw(st.integers(1, 4))

    def each(numbers):
        return st.lists(numbers, min_size=robots, max_size=robots)

    no_go = draw(st.lists(_stars(), max_size=4) | _walls() | _rasters().map(lambda raster: [raster]))
    places = st.tuples(*(st.floats(0.0, float(length)) for length in SIZE))
    beside = [corner for table in no_go for corner in table.get("corners", ())]  # where space is tight
    if beside:
        places = places | st.builds(
            lambda corner, off: tuple(np.clip(np.array(corner) + off, 0.0, SIZE).tolist()),
            st.sampled_from(beside),
            st.tuples(*[st.floats(-25.0, 25.0)] * 2),
        )
    battery = draw(st.none() | st.sampled_from([80.0, 200.0, 500.0]) | each(st.sampled_from([60.0, 120.0, 400.0])))
    homes = draw(st.sampled_from(["starts", "bases", "one base", "anywhere", "anywhere", "anywhere"]))
    named = {"starts": "starts", "bases": "bases", "one base": "bases"}.get(homes)
    where = {named: draw(each(places))[: 1 if homes == "one base" else robots]} if named else {}
    return {
        "field": FIELD,
        "max_sites": 120,
        "robots": robots,
        "no_go": no_go,
        "route_cells": draw(st.sampled_from([24, 48, 64])),
        "clearance_m": draw(st.sampled_from([0.0, 0.0, 6.0])),
        "speed_m_s": draw(each(st.floats(2.0, 12.0))),
        "turn_rate_rad_s": draw(st.sampled_from([0.1, 0.5, 3.0]) | each(st.sampled_from([0.05, 0.3, 2.0]))),
        "round_time_s": draw(st.sampled_from([20.0, 60.0])),
        "battery_s": battery,
        "separation_m": 0.0 if homes == "one base" else draw(st.sampled_from([0.0, 5.0, 60.0])),
        "samples_per_leg": draw(st.sampled_from([0, 0, 3])),
        "wind": draw(st.sampled_from([(0.0, 0.0), (1.0, 0.5), (-1.5, 0.3)])),
        "max_cycles": 5,
        **where,
    }


def _holds(table, places):
    """Mask of places in the no-go region of a table."""
    if "raster" in table:
        cells = np.load(table["raster"])[::-1]  # the first row of the file is the northern one
        column, row = np.minimum(
            (places / SIZE * cells.shape[::-1]).astype(int).T, np.array(cells.shape[::-1])[:, None] - 1
        )
        return cells[np.maximum(row, 0), np.maximum(column, 0)]
    rings = [table["corners"]] if "corners" in table else json.loads(Path(table["geojson"]).read_text())["coordinates"]
    return np.logical_xor.reduce([Outline(ring).contains_points(places) for ring in rings])


class Witness:
    """An environment, in which every drive is checked by step-by-step integration.

    Args:
        arguments: Arguments of the environment.
        seed: Seed of the episode. The example is rejected if the environment has no room.
    """

    def __init__(self, arguments, seed):
        try:
            self.env = robot_team_v1.parallel_env(**arguments)
            self.seen = self.env.reset(seed=seed)
        except ConfigError:
            reject()
        self.arguments = arguments
        self._world = self.env._world
        self._driven = {}
        self._is_engine = self._world.settings.rovers is not None
        kept = self._world._separated_path

        def note(episode, robot, path, tracks):
            self._driven[robot] = kept(episode, robot, path, tracks)
            return self._driven[robot]

        self._world._separated_path = note

    def step(self, actions):
        """Step one round, then check all invariants."""
        before = self.env._current().poses.copy()
        ends = {robot: len(trail) for robot, trail in enumerate(self.env._current().trails)}
        batteries = self.env._current().batteries.copy()
        result = self.env.step(actions)
        self._check_no_go(ends)
        self._check_separation(before, [info["path"] for info in result[4].values()])
        self._check_batteries(batteries, result[4])
        self._check_samples(result[4])
        return result

    def _check_no_go(self, ends):
        episode = self.env._current()
        for robot, trail in enumerate(episode.trails):
            driven = trail[max(0, ends[robot] - 1) :]
            shares = np.linspace(0.0, 1.0, 200)[:, None]
            pieces = [a + shares * (b - a) for a, b in pairwise(driven)]
            places = np.concatenate([*pieces, episode.poses[robot, None, :2]])
            for table in self.arguments["no_go"]:
                inside = _holds(table, places)
                assert not inside.any(), (robot, places[inside][:3])
            assert ((places >= -1e-6) & (places <= SIZE + 1e-6)).all()

    def _check_samples(self, infos):
        for info in infos.values():
            for sample in info.get("on_the_way", ()):  # on the driven path, hence outside all regions
                assert KDTree(_dense(info["path"])).query(sample["location"])[0] <= 0.1 * max(1.0, info["distance"])

    def _check_separation(self, before, paths):
        least = self.arguments["separation_m"]
        if not least or len(before) < 2:
            return
        if self._is_engine:
            for one, driven in enumerate(paths):
                for other in paths[:one]:  # the whole paths keep their distance, at any times
                    assert KDTree(_dense(driven)).query(_dense(other))[0].min() >= least - 0.05
            return
        time = self._world.round_time_s
        tracks = [_integrated(pose, self._driven[robot], time) for robot, pose in enumerate(before)]
        for one in range(len(tracks)):
            np.testing.assert_allclose(tracks[one][-1], self.env._current().poses[one, :2], atol=1e-2)
            for other in range(one):
                assert np.hypot(*(tracks[one] - tracks[other]).T).min() >= least - 1e-2  # the error of the integration

    def _check_batteries(self, before, infos):
        if self.arguments["battery_s"] is None:
            return
        episode = self.env._current()
        for robot, info in enumerate(infos.values()):
            is_home = (episode.poses[robot, :2] == episode.bases[robot]).all()
            if self._is_engine:  # within its length of its base, a robot is at it; an empty robot was carried there
                length = self._world.mover.off_m
                is_home = np.hypot(*(episode.poses[robot, :2] - episode.bases[robot])) <= length
            assert info["battery"] > 0.0 or is_home
            full = np.broadcast_to(self.arguments["battery_s"], len(infos))[robot]
            assert info["battery"] == (1.0 if is_home else episode.batteries[robot] / full)
            speed = self.arguments["speed_m_s"][robot] + np.hypot(*self.arguments["wind"])
            if not is_home and not self._is_engine:
                assert before[robot] - episode.batteries[robot] >= info["distance"] / speed - 1e-6


def _dense(places):
    """A path of straight pieces, sampled densely along each piece."""
    pieces = [a + np.linspace(0.0, 1.0, 12)[:, None] * (b - a) for a, b in pairwise(places)]
    return np.concatenate([places[:1], *pieces])


def _integrated(pose, path, time):
    """Places of a robot at many times of a round, by the unicycle's equations of motion and the midpoint rule."""
    times, here, headings = [np.zeros(1)], [np.array(pose[:2])[None]], pose[2]
    for duration, speed, rate in path:
        dt = duration / 400
        middles = headings + rate * dt * (np.arange(400) + 0.5)
        steps = speed * dt * np.column_stack([np.cos(middles), np.sin(middles)])
        here.append(here[-1][-1] + np.cumsum(steps, axis=0))
        times.append(times[-1][-1] + dt * np.arange(1, 401))
        headings += rate * duration
    t, places = np.concatenate(times), np.concatenate(here)
    moments = np.linspace(0.0, time, 4000)
    return np.column_stack([np.interp(moments, t, places[:, axis]) for axis in range(2)])
