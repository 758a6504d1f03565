"""How a rover follows a route: it looks a little ahead, and turns on the spot where the route bends sharply."""

from dataclasses import dataclass, field
from math import atan2, cos, hypot, pi, sqrt

import numpy as np
from jaxtyping import Float

_SHARP = 0.35  # rad: where a route bends more, the rover stops and turns
_AHEAD_S, _AHEAD = 0.8, 1.0  # how far it looks: this time at full speed, but a length at the least
_BRAKES = 1.5  # m/s²: what it counts on when it slows down
_CREEPS = 0.15  # of its speed, on the last metres
_THERE = 0.1  # lengths from a bend, at which it has got there
_GAIN = 2.5  # 1/s: of the turn rate, by what the heading is off
_OFF = 0.5  # rad: it drives only where its heading is off by less


@dataclass
class Follower:
    """A rover on its route: where it has got to, and what it does next.

    Source: pure pursuit, Coulter 1992 (CMU-RI-TR-92-01), with stops at sharp bends.

    Args:
        route: Places (k, 2) from where it stands to where it goes, m.
        speed_m_s: Not to be exceeded.
        turn_rate_rad_s: Not to be exceeded.
        length_m: Of the rover.
    """

    route: Float[np.ndarray, "k 2"]
    speed_m_s: float
    turn_rate_rad_s: float
    length_m: float
    done_m: float = 0.0
    _points: list[tuple[float, float]] = field(init=False)
    _along: list[float] = field(init=False)
    _stops: list[float] = field(init=False)
    _piece: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        moves = np.append(True, (np.diff(self.route, axis=0) != 0).any(axis=1))
        route = self.route[moves]
        steps = np.diff(route, axis=0)
        along = np.append(0.0, np.cumsum(np.hypot(steps[:, 0], steps[:, 1])))
        courses = np.arctan2(steps[:, 1], steps[:, 0])
        turns = np.abs(np.mod(np.diff(courses) + pi, 2 * pi) - pi)
        self._points = [(x, y) for x, y in route.tolist()]
        self._along = along.tolist()
        self._stops = [*along[1:-1][turns > _SHARP].tolist(), float(along[-1])]

    @property
    def left_m(self) -> float:
        """How far it still has to go."""
        return self._along[-1] - self.done_m

    def off_m(self, x: float, y: float) -> float:
        """How far a place is from the route, near where the rover is on it."""
        here, there = max(0, self._piece - 1), min(len(self._points) - 2, self._piece + 1)
        if len(self._points) < 2:
            return hypot(x - self._points[0][0], y - self._points[0][1])
        return min(self._nearest(piece, x, y)[1] for piece in range(here, there + 1))

    def back_on_route(self) -> Float[np.ndarray, " 2"]:
        """The place on the route that the rover has got to."""
        return np.array(self._at(self.done_m))

    def command(self, x: float, y: float, heading: float, seconds_left: float) -> tuple[float, float]:
        """Speed and turn rate for the next moment.

        Args:
            x: Where it is.
            y: Where it is.
            heading: In rad.
            seconds_left: Until it must stand.
        """
        self._go_on(x, y)
        stop = self._stops[0]
        ahead = max(_AHEAD * self.length_m, _AHEAD_S * self.speed_m_s)
        goal_x, goal_y = self._at(min(self.done_m + ahead, stop))
        off_x, off_y = goal_x - x, goal_y - y
        gap = hypot(off_x, off_y)
        if gap == 0.0:
            return 0.0, 0.0
        error = (atan2(off_y, off_x) - heading + pi) % (2 * pi) - pi
        turn = max(-self.turn_rate_rad_s, min(self.turn_rate_rad_s, _GAIN * error))
        to_stop = hypot(self._at(stop)[0] - x, self._at(stop)[1] - y)
        speed = min(self.speed_m_s, sqrt(2 * _BRAKES * to_stop) + _CREEPS * self.speed_m_s, _BRAKES * seconds_left)
        return (speed * cos(error) * max(0.0, 1.0 - abs(error) / _OFF), turn)

    def _go_on(self, x: float, y: float) -> None:
        """Note how far it has got."""
        while self._piece < len(self._points) - 1:
            share, _ = self._nearest(self._piece, x, y)
            begin, end = self._along[self._piece], self._along[self._piece + 1]
            self.done_m = max(self.done_m, begin + share * (end - begin))
            to_x, to_y = self._points[self._piece + 1]
            is_there = share == 1.0 or hypot(to_x - x, to_y - y) < _THERE * self.length_m
            if not is_there or self._piece == len(self._points) - 2:
                break
            self._piece, self.done_m = self._piece + 1, end
            if end == self._stops[0]:
                self._stops.pop(0)

    def _nearest(self, piece: int, x: float, y: float) -> tuple[float, float]:
        """The share of a piece at which it is nearest to a place, and how near."""
        (ax, ay), (bx, by) = self._points[piece], self._points[piece + 1]
        dx, dy = bx - ax, by - ay
        share = max(0.0, min(1.0, ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy)))
        return share, hypot(ax + share * dx - x, ay + share * dy - y)

    def _at(self, along: float) -> tuple[float, float]:
        """The place on the route after a distance, at or beyond the piece it is on."""
        piece = self._piece
        while piece < len(self._points) - 2 and self._along[piece + 1] < along:
            piece += 1
        if piece >= len(self._points) - 1:
            return self._points[-1]
        begin, end = self._along[piece], self._along[piece + 1]
        share = min(1.0, (along - begin) / (end - begin))
        (ax, ay), (bx, by) = self._points[piece], self._points[piece + 1]
        return ax + share * (bx - ax), ay + share * (by - ay)
