"""Quickest paths of a robot round blocked cells: straight courses between bends, with turns on the spot."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse.csgraph import shortest_path

from swarmbo_envs.ground.grid import Ground, as_rows
from swarmbo_envs.shared import Ends, Place, Pose, Starts


@dataclass(frozen=True, eq=False)
class PathTree:
    """Paths from a place, the first node, to all bends (``paths_from``), or from all bends to it (``paths_to``).

    From the place: earliest arrivals at nodes as ``times`` (s), ``headings`` on arrival, previous nodes as ``links``.
    To it: times left after the turn at a node, headings on departure, next nodes. NaN: no turn. -1: no link.
    """

    nodes: Float[np.ndarray, "n 2"]
    times: Float[np.ndarray, " n"]
    headings: Float[np.ndarray, " n"]
    links: Int[np.ndarray, " n"]

    def linked(self, node: int) -> list[Place]:
        """Nodes along the links from a node to the tree's root, both included; none from -1."""
        places: list[Place] = []
        while node >= 0:
            places.append(self.nodes[node])
            node = int(self.links[node])
        return places


@dataclass(frozen=True, eq=False)
class PathPlanner:
    """Paths of a robot of constant speed on a ground.

    It turns on the spot and drives straight courses over ground, held against the current (``wind``: east, north, m/s).
    Bends are chosen by shortest paths on the visibility graph, which neglect turns; times include turns.

    The rest of a path never takes longer than planned: a robot that stops and plans again finds it, or a better one.
    """

    ground: Ground
    speed_m_s: float
    turn_rate_rad_s: float
    wind: tuple[float, float] = (0.0, 0.0)

    def straight_times(self, starts: Starts, ends: Ends) -> Float[np.ndarray, "n m"]:
        """Times (s) of straight courses, without regard to obstacles."""
        from swarmbo_envs.ground.sight import times_of  # numba takes a second to import

        return times_of(as_rows(starts), as_rows(ends), self.speed_m_s, np.array(self.wind))

    def paths_from(self, pose: Pose) -> PathTree:
        """Paths from a pose to all bends."""
        return self._tree(pose[None, :2], float(pose[2]))

    def paths_to(self, place: Place) -> PathTree:
        """Paths from all bends to a place."""
        return self._tree(place[None], np.nan, is_homeward=True)

    def _tree(self, root: Starts, heading: float, *, is_homeward: bool = False) -> PathTree:
        bends, nodes = self.ground.nodes, np.concatenate([root, self.ground.nodes])
        times, headings, links = np.full(len(nodes), np.inf), np.full(len(nodes), np.nan), np.full(len(nodes), -1)
        times[0], headings[0] = 0.0, heading
        if not len(bends):
            return PathTree(nodes, times, headings, links)
        direct, (between, before) = self._direct_times(root, bends)[0], self._between
        if is_homeward:
            direct, between, before = self._direct_times(bends, root)[:, 0], between.T, self._between_back
        # straight to a first bend, then along scipy's shortest paths
        total = direct[:, None] + between
        first_bend, shortest = total.argmin(axis=0), total.min(axis=0)
        for bend in np.argsort(shortest, kind="stable"):
            if not np.isfinite(shortest[bend]):
                break
            link = 0 if bend == first_bend[bend] else int(before[first_bend[bend], bend]) + 1
            leg = (bend + 1, link) if is_homeward else (link, bend + 1)
            offset = nodes[leg[1]] - nodes[leg[0]]
            course = float(np.arctan2(offset[1], offset[0])) if offset.any() else float(headings[link])
            straight = self.straight_times(nodes[[leg[0]]], nodes[[leg[1]]])[0, 0]
            # paths were chosen without turns; their times include the turns, so that the plan can be kept
            times[bend + 1] = times[link] + turn_between(headings[link], course) / self.turn_rate_rad_s + straight
            headings[bend + 1], links[bend + 1] = course, link
        return PathTree(nodes, times, headings, links)

    def arrivals(
        self, tree: PathTree, places: Float[np.ndarray, "m 2"]
    ) -> tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Times (s) from the tree's pose to places, last nodes before them (-1: no path), and headings there."""
        return self._quickest(tree, np.column_stack([places, np.full(len(places), np.nan)]))

    def returns(
        self, tree: PathTree, poses: Float[np.ndarray, "m 3"]
    ) -> tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"]]:
        """Times (s) from poses to the tree's place, and the first node of each path (-1: no path)."""
        return self._quickest(tree, poses, is_back=True)[:2]

    def _quickest(
        self, tree: PathTree, poses: Float[np.ndarray, "m 3"], *, is_back: bool = False
    ) -> tuple[Float[np.ndarray, " m"], Int[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        from swarmbo_envs.ground.sight import quickest

        motor, ground = (self.speed_m_s, self.turn_rate_rad_s, float(self.wind[0]), float(self.wind[1])), self.ground
        reached = tree.nodes, tree.times, tree.headings
        return quickest(as_rows(poses), *reached, motor, ground.blocked, ground.grid, is_back)

    def times_between(self, origins: Starts, places: Ends) -> Float[np.ndarray, "n m"]:
        """Times (s) of the quickest paths, without turns; infinite without a path."""
        direct, nodes = self._direct_times(origins, places), self.ground.nodes
        if not len(nodes):
            return direct
        to_bends, from_bends = self._direct_times(origins, nodes), self._direct_times(nodes, places)
        return np.minimum(direct, _least_sums(_least_sums(to_bends, self._between[0]), from_bends))

    @cached_property
    def _between(self) -> tuple[Float[np.ndarray, "n n"], Int[np.ndarray, "n n"]]:
        """Least times between all bends, without turns, and the bend before the last on each path."""
        graph = np.where(self.ground.visible, self.straight_times(self.ground.nodes, self.ground.nodes), 0.0)
        return shortest_path(graph, method="D", return_predecessors=True)

    @cached_property
    def _between_back(self) -> Int[np.ndarray, "n n"]:
        """Bend before the last on each path of the graph with all courses reversed."""
        # in a current, the way back takes another time, so paths to a place are not the reversed paths from it
        if not any(self.wind):
            return self._between[1]
        graph = np.where(self.ground.visible, self.straight_times(self.ground.nodes, self.ground.nodes), 0.0).T
        return shortest_path(graph, method="D", return_predecessors=True)[1]

    def _direct_times(self, starts: Starts, ends: Ends) -> Float[np.ndarray, "n m"]:
        times = self.straight_times(starts, ends)
        if self.ground.is_open:
            return times
        from swarmbo_envs.ground.sight import sights

        return np.where(sights(as_rows(starts), as_rows(ends), self.ground.blocked, self.ground.grid), times, np.inf)


def turn_between(heading: float, course: float) -> float:
    """Angle from one heading to another, 0 to pi; 0 if one is NaN."""
    gap = float(np.mod(course - heading, 2 * np.pi))
    return 0.0 if np.isnan(gap) else min(gap, 2 * np.pi - gap)


def _least_sums(A: Float[np.ndarray, "n k"], B: Float[np.ndarray, "k m"]) -> Float[np.ndarray, "n m"]:
    out = np.full((len(A), B.shape[1]), np.inf)
    for k in range(len(B)):
        np.minimum(out, A[:, k, None] + B[k], out=out)
    return out
