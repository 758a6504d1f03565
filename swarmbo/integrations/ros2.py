"""Robots of ROS 2 in the loop of a team, over Zenoh. Needs the extra ``ros2``.

``zenoh-bridge-ros2dds`` next to the robots carries a topic such as ``/ann/pose`` to the Zenoh key ``ann/pose`` and
back, with the same bytes (CDR). With the robot's name as its ``namespace``, the robot's own topics need no prefix.
"""

import math
import queue
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.coordinates import Coordinates
from swarmbo.errors import ConfigError, SwarmboError, needed
from swarmbo.records import Query
from swarmbo.team import Team

cdr: Any = needed("pycdr2", "ros2", "swarmbo.integrations.ros2")
_types: Any = needed("pycdr2.types", "ros2", "swarmbo.integrations.ros2")
_f8 = _types.float64

_LONGEST = 1024  # bytes of a position

Reach = Callable[[str, Float[np.ndarray, " d"]], Float[np.ndarray, "k d"]]


def _message(name: str, **fields: Any) -> Any:
    """Type of a ROS 2 message by its fields, in the order of its definition."""
    return make_dataclass(name, fields.items(), bases=(cdr.IdlStruct,))


_Time = _message("Time", sec=_types.int32, nanosec=_types.uint32)
_Header = _message("Header", stamp=_Time, frame_id=str)
_Quaternion = _message("Quaternion", x=_f8, y=_f8, z=_f8, w=_f8)
_Point = _message("Point", x=_f8, y=_f8, z=_f8)
_GeoPoint = _message("GeoPoint", latitude=_f8, longitude=_f8, altitude=_f8)
_Pose = _message("Pose", position=_Point, orientation=_Quaternion)
_GeoPose = _message("GeoPose", position=_GeoPoint, orientation=_Quaternion)
Float64 = _message("Float64", data=_f8)  # std_msgs
PoseStamped = _message("PoseStamped", header=_Header, pose=_Pose)  # geometry_msgs
GeoPoseStamped = _message("GeoPoseStamped", header=_Header, pose=_GeoPose)  # geographic_msgs
NavSatFix = _message(  # sensor_msgs
    "NavSatFix",
    header=_Header,
    status=_message("NavSatStatus", status=_types.int8, service=_types.uint16),
    latitude=_f8,
    longitude=_f8,
    altitude=_f8,
    position_covariance=_types.array[_f8, 9],
    position_covariance_type=_types.uint8,
)


@dataclass
class Driven:
    """Counts of a drive, by robot.

    ``measured``: outcomes of goals. ``failed``: outcomes among them that are NaN or infinite. ``unasked``:
    measurements without a goal. ``silent``: goals that were given up. ``refused``: ``(robot, reason)`` of each message
    that could not be used.
    """

    measured: Counter[str] = field(default_factory=Counter[str])
    failed: Counter[str] = field(default_factory=Counter[str])
    unasked: Counter[str] = field(default_factory=Counter[str])
    silent: Counter[str] = field(default_factory=Counter[str])
    refused: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


class Ros2Robots:
    """Sends goals to robots, and receives their positions and measurements.

    A robot ``ann`` sends its position to ``/ann/pose`` (``geometry_msgs/PoseStamped``, metres in the frame of the map).
    It sends each measurement, made at its present position, to ``/ann/measurement`` (``std_msgs/Float64``; NaN is a
    failure). It receives goals at ``/ann/goal_pose`` (``geometry_msgs/PoseStamped``), which Nav2 follows. With
    ``coordinates``, it sends ``sensor_msgs/NavSatFix`` to ``/ann/fix``, and receives ``geographic_msgs/GeoPoseStamped``
    at ``/ann/goal_geopose``, with an unspecified altitude (NaN).

    Args:
        team: Team in a field of two or three dimensions in metres, with the robots' names as agents.
        session: Open Zenoh session, ``zenoh.open(config)``.
        coordinates: Conversion of longitudes and latitudes to the metres of the team; None: robots send metres.
        frame: ``frame_id`` of goals. Poses in other frames are refused; the frames of fixes are not read.

    Raises:
        ConfigError: If the team is not in a field of two dimensions, or of three without ``coordinates``.
    """

    def __init__(self, team: Team, session: Any, coordinates: Coordinates | None = None, frame: str = "map") -> None:
        dims = len(team.problem.domain.low) // len(team.problem.agents) if team.problem.is_field else 0
        if dims not in ((2,) if coordinates else (2, 3)):
            raise ConfigError(f"got {dims} dimensions; wanted a field of 2, or of 3 without coordinates=", at="$.team")
        self._team, self._session, self._coordinates, self._frame, self._dims = team, session, coordinates, frame, dims
        self._arrived: queue.SimpleQueue[tuple[str, bytes | None, bytes | None]] = queue.SimpleQueue()
        self._latest: dict[str, bytes] = {}  # position of each robot that was not read yet
        self._lock = threading.Lock()
        self._places: dict[str, Float[np.ndarray, " d"]] = {}
        self._goals: dict[str, tuple[Query, float]] = {}  # the query, and the time at which it is given up
        topics = ("fix" if coordinates else "pose", "measurement")
        self._subscribers = [
            session.declare_subscriber(f"{robot}/{topic}", self._listener(robot, topic))
            for robot in team.agents
            for topic in topics
        ]

    def drive(
        self, outcomes: int, *, patience_s: float = 600.0, timeout_s: float = math.inf, reach: Reach | None = None
    ) -> Driven:
        """Send goals to idle robots and learn from their measurements, until enough outcomes are known.

        A robot gets its first goal once its position is known. Robots do not wait for each other: goals of others are
        pending. A measurement without a goal is learned as data.

        Args:
            outcomes: Number of measurements at goals to wait for, failed ones included, >= 1.
            patience_s: Seconds after which a robot without a measurement counts as silent. Its goal is given up, and it
                gets another one after its next position.
            timeout_s: Seconds after which the drive ends in any case.
            reach: Function of a robot's name and location (d,) to reachable locations (k, d); default: random.

        Returns:
            Counts by robot. Goals of robots under way stay pending, and the next drive waits for them.
        """
        driven, idle, end = Driven(), set(self._places) - set(self._goals), time.monotonic() + timeout_s
        while driven.measured.total() < outcomes and time.monotonic() < end:
            self._give_up(driven)
            for robot in sorted(idle):
                self._send(robot, reach, patience_s)
            idle = set[str]()
            left = min([end, *(deadline for _, deadline in self._goals.values())]) - time.monotonic()
            try:
                robot, position, measurement = self._arrived.get(timeout=min(max(left, 0.0), 3600.0))
            except queue.Empty:
                continue
            if measurement is None:
                with self._lock:
                    position = self._latest.pop(robot, None)
            for payload, learn in ((position, self._move), (measurement, self._learn)):
                try:
                    if payload is not None:
                        learn(robot, payload, driven)
                except (SwarmboError, struct.error, ValueError) as error:  # any bytes may arrive
                    driven.refused.append((robot, str(error)))
            if robot in self._places and robot not in self._goals:
                idle.add(robot)
        return driven

    def close(self) -> None:
        """Stop listening; the session stays open."""
        for subscriber in self._subscribers:
            subscriber.undeclare()

    def _listener(self, robot: str, topic: str) -> Callable[[Any], None]:
        def on_sample(sample: Any) -> None:
            payload = bytes(sample.payload)
            with self._lock:  # a measurement is taken at the newest position before it
                if topic == "measurement":
                    self._arrived.put((robot, self._latest.pop(robot, None), payload))
                    return
                if robot not in self._latest:
                    self._arrived.put((robot, None, None))
                self._latest[robot] = payload

        return on_sample

    def _send(self, robot: str, reach: Reach | None, patience_s: float) -> None:
        candidates = None if reach is None else {robot: reach(robot, self._places[robot])}
        if candidates is not None and not len(candidates[robot]):
            return  # it has no place to go to; after its next message it may have one
        query = self._team.ask(candidates=candidates, agents=[robot])
        if robot not in query.points:
            return  # every place is refused, as by a no-go region
        self._goals[robot] = (query, time.monotonic() + patience_s)
        place = np.asarray(query.points[robot], dtype=float)
        header, upright = _Header(_Time(*divmod(time.time_ns(), 10**9)), self._frame), _Quaternion(0.0, 0.0, 0.0, 1.0)
        if self._coordinates is None:
            goal = PoseStamped(header, _Pose(_Point(*place, *[0.0] * (3 - self._dims)), upright))
            self._session.put(f"{robot}/goal_pose", goal.serialize())
        else:
            lon, lat = self._coordinates.own(place[None])[0]
            goal = GeoPoseStamped(header, _GeoPose(_GeoPoint(float(lat), float(lon), math.nan), upright))
            self._session.put(f"{robot}/goal_geopose", goal.serialize())

    def _learn(self, robot: str, payload: bytes, driven: Driven) -> None:
        _require_length("Float64", payload, 12, 12)
        value, place = float(Float64.deserialize(payload).data), self._places.get(robot)
        if place is None:
            raise ConfigError("got a measurement without a position; wanted a position before it")
        if robot not in self._goals:
            self._team.attach(place[None], [value], agents=robot)
            driven.unasked[robot] += 1
            return
        query, _ = self._goals.pop(robot)
        try:
            self._team.tell(query, {robot: value}, locations={robot: place})
        except SwarmboError:  # the robot is far from the area
            self._team.give_up(query)
            raise
        driven.measured[robot] += 1
        if not math.isfinite(value):
            driven.failed[robot] += 1

    def _move(self, robot: str, payload: bytes, driven: Driven) -> None:
        if self._coordinates is None:
            _require_length("PoseStamped", payload, 76, _LONGEST)
            pose = PoseStamped.deserialize(payload)
            if pose.header.frame_id.lstrip("/") != self._frame.lstrip("/"):
                raise ConfigError(f"got frame {pose.header.frame_id!r}; wanted {self._frame!r}")
            position = pose.pose.position
            place = np.array([position.x, position.y, position.z][: self._dims])
        else:
            _require_length("NavSatFix", payload, 117, _LONGEST)
            fix = NavSatFix.deserialize(payload)
            if fix.status.status < 0:
                raise ConfigError(f"got status {fix.status.status}; wanted a fix")
            place = self._coordinates.metres(np.array([[fix.longitude, fix.latitude]]))[0]
        if not np.isfinite(place).all():
            raise ConfigError(f"got {place.tolist()}; wanted finite numbers")
        self._places[robot] = place

    def _give_up(self, driven: Driven) -> None:
        for robot, (query, deadline) in list(self._goals.items()):
            if time.monotonic() >= deadline:
                self._team.give_up(query)
                del self._goals[robot], self._places[robot]
                driven.silent[robot] += 1


def _require_length(name: str, payload: bytes, least: int, most: int) -> None:
    """Refuse a payload that cannot be such a message; pycdr2 would read an empty payload as zeros."""
    if not least <= len(payload) <= most:
        raise ConfigError(f"got {len(payload)} bytes; wanted the {least} or more of a {name}")
