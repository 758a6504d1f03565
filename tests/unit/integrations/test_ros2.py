"""ROS 2 robots: the bytes of messages, and teams that drive robots with them."""

import json
import math
import struct
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.survey import Coordinates

pytest.importorskip("pycdr2")
from swarmbo.integrations import ros2
from swarmbo.integrations.ros2 import Ros2Robots

SIZE = (60.0, 40.0)
HERE = Coordinates.about([[9.100, 48.740], [9.101, 48.741]])


class Wire:
    """A replacement for a Zenoh session in this process."""

    def __init__(self):
        self.subscribers = {}

    def declare_subscriber(self, key, callback):
        self.subscribers[key] = callback
        return SimpleNamespace(undeclare=lambda: self.subscribers.pop(key))

    def put(self, key, payload):
        if key in self.subscribers:
            self.subscribers[key](SimpleNamespace(payload=payload))


class Robot:
    """A robot that drives to each goal. ``answers`` gives its (place, value) there, or None for no answer."""

    def __init__(self, wire, name, answers, gps=False):
        self.wire, self.name, self.answers, self.gps, self.goals = wire, name, answers, gps, []
        topic = "goal_geopose" if gps else "goal_pose"
        self.subscriber = wire.declare_subscriber(f"{name}/{topic}", self.hear)

    def hear(self, sample):
        kind = ros2.GeoPoseStamped if self.gps else ros2.PoseStamped
        position = kind.deserialize(bytes(sample.payload)).pose.position
        goal = (position.longitude, position.latitude) if self.gps else (position.x, position.y)
        self.altitude = position.altitude if self.gps else None
        self.goals.append(goal)
        if answer := self.answers(np.array(goal)):
            self.be_at(answer[0])
            self.measure(answer[1])

    def be_at(self, place):
        self.wire.put(f"{self.name}/{'fix' if self.gps else 'pose'}", self.position(*place))

    def measure(self, value):
        self.wire.put(f"{self.name}/measurement", struct.pack("<4sd", b"\0\1\0\0", value))

    def position(self, x, y):
        """Bytes in the published layout (OMG CDR, little endian, numbers aligned to their size)."""
        header = struct.pack("<4siII4s", b"\0\1\0\0", 7, 8, 4, b"map\0")
        if not self.gps:
            return header + struct.pack("<7d", x, y, 0.0, 0.0, 0.0, 0.0, 1.0)
        header = struct.pack("<4siII4sbxH", b"\0\1\0\0", 7, 8, 4, b"map\0", 0, 1)
        return header + struct.pack("<4xddd9dB", y, x, 300.0, *[0.0] * 9, 0)


def team_of(*names, **more):
    return sb.Team.for_field(list(names), low=[0.0, 0.0], high=list(SIZE), seed=0, **more)


def driven_of(*names, coordinates=None, **more):
    """A wire, a team of these robots, and its driver."""
    wire, team = Wire(), team_of(*names, **more)
    return wire, team, Ros2Robots(team, wire, coordinates)


def value_at(place):
    return float(np.sin(place / 9.0).sum())


def test_positions_have_the_published_layout():
    robot, gps = Robot(Wire(), "ann", None), Robot(Wire(), "ann", None, gps=True)
    pose = ros2.PoseStamped.deserialize(robot.position(3.0, 4.0))
    assert (pose.header.stamp.sec, pose.header.frame_id) == (7, "map")
    assert (pose.pose.position.x, pose.pose.position.y, pose.pose.orientation.w) == (3.0, 4.0, 1.0)
    assert pose.serialize() == robot.position(3.0, 4.0)
    fix = ros2.NavSatFix.deserialize(gps.position(9.1, 48.7))
    assert (fix.latitude, fix.longitude, fix.status.service) == (48.7, 9.1, 1)


def test_messages_equal_those_of_another_library():
    typesys = pytest.importorskip("rosbags.typesys")
    store = typesys.get_typestore(typesys.Stores.ROS2_JAZZY)
    position = Robot(Wire(), "ann", None).position(3.0, 4.0)
    read = store.deserialize_cdr(position, "geometry_msgs/msg/PoseStamped")
    assert (read.pose.position.x, read.pose.position.y, read.header.frame_id) == (3.0, 4.0, "map")
    fix = store.deserialize_cdr(Robot(Wire(), "a", None, gps=True).position(9.1, 48.7), "sensor_msgs/msg/NavSatFix")
    assert (fix.latitude, fix.longitude) == (48.7, 9.1)


def test_a_team_learns_the_places_of_measurements_and_failures():
    wire, team, driver = driven_of("ann", "bob", aim="map", rounds=8)
    at_first, drift = iter([math.nan]), np.array([0.5, -0.25])

    def drifted(goal):
        return np.clip(np.array(goal) + drift, [1.0, 1.0], [59.0, 39.0])

    ann = Robot(wire, "ann", lambda goal: (drifted(goal), value_at(drifted(goal))))
    bob = Robot(wire, "bob", lambda goal: (goal, next(at_first, value_at(goal))))
    for robot in (ann, bob):
        robot.be_at((30.0, 20.0))
    driven = driver.drive(8, timeout_s=60.0)
    assert sum(driven.measured.values()) == 8
    assert driven.failed == {"bob": 1}
    assert not driven.refused
    places = team.history.X[np.isfinite(team.history.factors[:, 0]), :2]
    np.testing.assert_allclose(places, drifted(ann.goals[: driven.measured["ann"]]))
    assert team.n_data == 7
    assert team.failures == 1


def test_a_silent_robot_loses_its_goal_and_gets_another_one_when_it_answers():
    wire, _, driver = driven_of("ann", "bob")
    talks = [False]
    ann = Robot(wire, "ann", lambda goal: (goal, 1.0) if talks[0] else None)
    bob = Robot(wire, "bob", lambda goal: (goal, 2.0))
    ann.be_at((1.0, 1.0))
    driven = driver.drive(1, patience_s=0.05, timeout_s=0.4)
    assert (driven.measured, driven.silent, len(ann.goals)) == ({}, {"ann": 1}, 1)
    bob.be_at((50.0, 30.0))
    assert driver.drive(3, timeout_s=60.0).measured == {"bob": 3}
    talks[0] = True
    ann.be_at((1.0, 1.0))
    assert driver.drive(4, timeout_s=60.0).measured["ann"] >= 1
    driver.close()
    assert not [key for key in wire.subscribers if "goal" not in key]


def test_goals_and_fixes_in_degrees_are_exact_to_a_centimetre():
    wire, team, driver = driven_of("ann", aim="peak", coordinates=HERE)
    ann = Robot(wire, "ann", lambda goal: (goal, 1.0), gps=True)
    ann.be_at((9.1002, 48.7402))
    driver.drive(3, timeout_s=60.0)
    ann.answers = lambda goal: None
    driver.drive(1, timeout_s=0.05)
    wire.put("ann/fix", ann.position(9.1005, 48.7405).replace(b"map\0\0", b"map\0\xff"))  # without a position fix
    assert "wanted a fix" in driver.drive(1, timeout_s=0.2).refused[0][1]
    shortest = ros2.NavSatFix.deserialize(ann.position(9.1005, 48.7405))
    shortest.header.frame_id = ""
    wire.put("ann/fix", shortest.serialize())
    assert not driver.drive(1, timeout_s=0.2).refused
    assert math.isnan(ann.altitude)
    goals = HERE.metres(np.array(ann.goals[:3]))
    np.testing.assert_allclose(team.history.X[:3], goals, atol=0.01)
    assert (goals >= -0.01).all()
    assert (goals <= np.array(SIZE) + 0.01).all()


def test_no_observation_is_lost_and_invalid_messages_are_reported():
    wire, team, driver = driven_of("ann", "bob")
    ann, bob = (Robot(wire, name, lambda goal: (goal, value_at(goal))) for name in ("ann", "bob"))
    bob.measure(3.0)  # without a place
    invalid = [
        ("ann/pose", b"\0\1\0\0short", "the 76 or more of a PoseStamped"),
        ("ann/pose", ann.position(math.nan, 1.0), "finite numbers"),
        ("ann/pose", ann.position(5.0, 5.0).replace(b"map", b"odo"), "'map'"),
        ("ann/measurement", b"", "the 12 or more of a Float64"),  # like a deletion in Zenoh
    ]
    for key, payload, _ in invalid:
        wire.put(key, payload)
        wire.put("ann/measurement", b"?")
    ann.be_at((1.0, 1.0))
    ann.be_at((30.0, 20.0))
    ann.measure(7.0)  # without a goal
    driven = driver.drive(1, timeout_s=0.3, reach=lambda name, place: np.empty((0, 2)))
    assert driven.refused[0][0] == "bob"
    assert "wanted a position before it" in driven.refused[0][1]
    reasons = [reason for _, reason in driven.refused[1:] if "got 1 bytes" not in reason]
    assert [wanted in reason for reason, (*_, wanted) in zip(reasons, invalid, strict=True)] == [True] * 4
    assert driven.unasked == {"ann": 1}
    assert team.history.X[0, :2].tolist() == [30.0, 20.0]
    assert team.history.factors[0, 0] == 7.0


def test_a_measurement_far_outside_the_area_ends_its_goal_and_is_reported():
    wire, team, driver = driven_of("ann")
    places = iter([(1e12, 1e12)])
    ann = Robot(wire, "ann", lambda goal: (next(places, goal), 5.0))
    ann.be_at((30.0, 20.0))
    driven = driver.drive(2, timeout_s=60.0)
    assert driven.measured == {"ann": 2}
    ((_, reason),) = driven.refused
    assert "in or near the box" in reason
    assert len(team.pending) <= 1  # only the last goal


def test_the_caller_can_limit_the_reachable_places():
    wire, _, driver = driven_of("ann")
    ann = Robot(wire, "ann", lambda goal: (goal, 1.0))
    ann.be_at((30.0, 20.0))
    asked = []

    def reach(name, place):
        asked.append((name, place.tolist()))
        return place + np.array([[1.0, 0.0], [0.0, 1.0]]) if len(asked) < 4 else np.empty((0, 2))

    driven = driver.drive(9, timeout_s=0.5, reach=reach)
    assert driven.measured == {"ann": 3}
    assert asked[0] == ("ann", [30.0, 20.0])
    assert {round(abs(np.subtract(g, a[1])).sum(), 9) for g, a in zip(ann.goals, asked, strict=False)} == {1.0}


def test_a_robot_whose_reachable_places_are_all_refused_waits_for_its_next_position():
    wire, team, driver = driven_of("ann", no_go=[sb.NoGoBall(centre=(30.0, 20.0), radius=9.0)])
    ann = Robot(wire, "ann", lambda goal: (goal, 1.0))

    def reach(name, place):
        return place + np.array([[1.0, 0.0], [-1.0, 0.0]])

    ann.be_at((30.0, 20.0))
    assert driver.drive(1, timeout_s=0.1, reach=reach).measured == {}
    assert (ann.goals, list(team.pending)) == ([], [])
    ann.be_at((5.0, 5.0))
    assert driver.drive(1, timeout_s=60.0, reach=reach).measured == {"ann": 1}


@pytest.mark.parametrize(
    ("team", "coordinates"),
    [
        (lambda: sb.Team(sb.FactorGraph.from_scopes({"f": ["x", "y"]}), {"x": (0.0, 1.0), "y": (0.0, 1.0)}), None),
        (lambda: sb.Team.for_field(["a"], [0.0] * 3, [1.0] * 3), HERE),
        (lambda: sb.Team.for_field(["a"], [0.0], [1.0]), None),
    ],
)
def test_teams_without_a_field_of_two_dimensions_are_refused(team, coordinates):
    with pytest.raises(ConfigError, match=r"\$\.team: got \d dimensions; wanted a field of 2"):
        Ros2Robots(team(), Wire(), coordinates)


@pytest.mark.fleet
def test_robots_are_driven_over_zenoh():
    zenoh = pytest.importorskip("zenoh")
    address = json.dumps(["tcp/127.0.0.1:17447"])

    def opened(*settings):
        config = zenoh.Config()
        for key, value in (("scouting/multicast/enabled", "false"), *settings):
            config.insert_json5(key, value)
        return zenoh.open(config)

    with opened(("listen/endpoints", address)) as near, opened(("connect/endpoints", address)) as far:
        team = team_of("ann", "bob")
        driver = Ros2Robots(team, near)
        robots = [Robot(far, name, lambda goal: (goal, value_at(goal))) for name in team.agents]
        stop = threading.Event()

        def speak():
            while not stop.wait(0.05):
                for robot in robots:
                    robot.be_at((30.0, 20.0) if not robot.goals else robot.goals[-1])

        speaker = threading.Thread(target=speak)
        speaker.start()
        try:
            driven = driver.drive(6, timeout_s=60.0)
        finally:
            stop.set()
            speaker.join()
        assert sum(driven.measured.values()) == 6
        assert not driven.refused
        driver.close()
