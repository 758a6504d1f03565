"""Compiled loops over lines of sight on a grid of cells.

A segment touches a cell if any of its points lies in the closed square, up to ``_SLACK`` sides of a cell. So part of a
segment never touches more cells than the whole.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.boundary.compiling import compiled, inner
from swarmbo_envs.shared import Ends, Marks, Mask, PerStart, Place, Places, Starts

_SLACK = 1e-9
_THERE = 1e-7  # sides of a cell: within this distance a robot is at a place, and need not turn to it
_FULL_TURN = 2 * np.pi

Motor = tuple[float, float, float, float]  # speed, turn rate, and the current to the east and north
Grid = tuple[float, float, float, float]  # x and y of the south-west corner, then width and height of a cell


@inner()
def _clipped(p: float, q: float, low: float, high: float) -> tuple[float, float]:
    """Shares of a segment from p to q between which a coordinate lies from low to high; reversed if there are none."""
    if p == q:
        return (0.0, 1.0) if low <= p <= high else (1.0, 0.0)
    one, other = (low - p) / (q - p), (high - p) / (q - p)
    return max(0.0, min(one, other)), min(1.0, max(one, other))


@compiled()
def mark_segments(starts: Places, ends: Places, around: Place, cells: Marks) -> None:
    """Mark the cells within the distance ``around`` of segments along each axis; in sides of a cell from the corner."""
    rows, columns = cells.shape
    for k in range(len(starts)):
        px, py, qx, qy = starts[k, 0], starts[k, 1], ends[k, 0], ends[k, 1]
        first = max(0, int(np.floor(min(px, qx) - around[0] - _SLACK)))
        last = min(columns - 1, int(np.floor(max(px, qx) + around[0] + _SLACK)))
        for column in range(first, last + 1):
            enter, leave = _clipped(px, qx, column - around[0] - _SLACK, column + 1 + around[0] + _SLACK)
            if enter > leave:
                continue
            one, other = py + enter * (qy - py), py + leave * (qy - py)
            low = max(0, int(np.floor(min(one, other) - around[1] - _SLACK)))
            high = min(rows - 1, int(np.floor(max(one, other) + around[1] + _SLACK)))
            for row in range(low, high + 1):
                cells[row, column] = True


@inner()
def _is_free(px: float, py: float, qx: float, qy: float, blocked: Marks, grid: Grid) -> bool:
    """True if a segment (m) touches no blocked cell; points outside the map count as on its edge."""
    west, south, width, height = grid
    px, py, qx, qy = (px - west) / width, (py - south) / height, (qx - west) / width, (qy - south) / height
    rows, columns = blocked.shape
    first = min(max(int(np.floor(min(px, qx) - _SLACK)), 0), columns - 1)
    last = min(max(int(np.floor(max(px, qx) + _SLACK)), 0), columns - 1)
    for column in range(first, last + 1):
        enter, leave = _clipped(px, qx, column - _SLACK, column + 1 + _SLACK)
        if enter > leave:  # beyond the edge
            enter, leave = 0.0, 1.0
        one, other = py + enter * (qy - py), py + leave * (qy - py)
        low = min(max(int(np.floor(min(one, other) - _SLACK)), 0), rows - 1)
        high = min(max(int(np.floor(max(one, other) + _SLACK)), 0), rows - 1)
        for row in range(low, high + 1):
            if blocked[row, column]:
                return False
    return True


@compiled()
def free_segments(starts: Places, ends: Places, blocked: Marks, grid: Grid) -> Mask:
    """Mask of segments (m) that touch no blocked cell."""
    out = np.empty(len(starts), dtype=np.bool_)
    for k in range(len(starts)):
        out[k] = _is_free(starts[k, 0], starts[k, 1], ends[k, 0], ends[k, 1], blocked, grid)
    return out


@inner()
def _turn(from_heading: float, to_heading: float) -> float:
    """Angle between two headings; 0 if one of them is NaN."""
    if np.isnan(from_heading) or np.isnan(to_heading):
        return 0.0
    gap = (to_heading - from_heading) % _FULL_TURN
    return min(gap, _FULL_TURN - gap)


@inner()
def _straight(dx: float, dy: float, speed: float, wind_x: float, wind_y: float) -> float:
    distance = np.hypot(dx, dy)
    if distance == 0.0:
        return 0.0
    along, across = (wind_x * dx + wind_y * dy) / distance, (wind_x * dy - wind_y * dx) / distance
    return distance / (along + np.sqrt(speed * speed - across * across))


@compiled()
def times_of(starts: Starts, ends: Ends, speed: float, wind: Place) -> Float[np.ndarray, "n m"]:
    """Times of straight courses from each start to each end, without regard to obstacles."""
    out = np.empty((len(starts), len(ends)))
    for i in range(len(starts)):
        for j in range(len(ends)):
            out[i, j] = _straight(ends[j, 0] - starts[i, 0], ends[j, 1] - starts[i, 1], speed, wind[0], wind[1])
    return out


@compiled()
def sights(starts: Starts, ends: Ends, blocked: Marks, grid: Grid) -> Bool[np.ndarray, "n m"]:
    """Mask of ends visible from each start."""
    out = np.empty((len(starts), len(ends)), dtype=np.bool_)
    for i in range(len(starts)):
        for j in range(len(ends)):
            out[i, j] = _is_free(starts[i, 0], starts[i, 1], ends[j, 0], ends[j, 1], blocked, grid)
    return out


@compiled()
def quickest(
    poses: Float[np.ndarray, "m 3"],
    nodes: Starts,
    times: PerStart,
    headings: PerStart,
    motor: Motor,
    blocked: Marks,
    grid: Grid,
    is_back: bool,
) -> tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Least times from a tree's place to poses, straight from the last node; with ``is_back``, from poses to the place.

    Also returns the node next to each pose (-1: no path), and the course between them. ``times`` and ``headings`` are
    those of a ``PathTree``; a NaN heading needs no turn.
    """
    speed, rate, wind_x, wind_y = motor
    best, bends, courses = np.full(len(poses), np.inf), np.full(len(poses), -1), np.full(len(poses), np.nan)
    for k in range(len(poses)):
        for n in range(len(nodes)):
            if times[n] >= best[k]:
                continue
            px, py, begin, qx, qy, end = nodes[n, 0], nodes[n, 1], headings[n], poses[k, 0], poses[k, 1], poses[k, 2]
            if is_back:
                px, py, begin, qx, qy, end = qx, qy, end, px, py, begin
            dx, dy = qx - px, qy - py
            course = begin if np.hypot(dx, dy) <= _THERE * grid[2] else np.arctan2(dy, dx)
            turns = _turn(begin, course) + _turn(course, end)
            time = times[n] + turns / rate + _straight(dx, dy, speed, wind_x, wind_y)
            if time < best[k] and _is_free(px, py, qx, qy, blocked, grid):
                best[k], bends[k], courses[k] = time, n, course
    return best, bends, courses
