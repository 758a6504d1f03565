"""Planners in a field without negotiation: independent agents, sequential greedy, and a sweep in lanes."""

from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from swarmbo.acquisition import Acquisition, Decision, Situation
from swarmbo.acquisition.by_view import at_once, each, greedy_picks, is_row
from swarmbo.belief import view_of
from swarmbo.errors import ConfigError
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, kind
from swarmbo.settings import Settings
from swarmbo.spaces import Domain
from swarmbo.steps import Steps


@kind("coordination", FIELD)
class Independent(Settings, frozen=True, tag_field="kind", tag="independent"):
    """Each agent maximises GP-UCB (Srinivas et al. 2010) over its reachable locations, independently.

    Agents may share a belief, and yet choose neighbouring locations or the same location.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], coordination="independent")
        >>> team.tell(team.ask({"a": [[0.4]], "b": [[0.6]]}), {"a": 0.0, "b": 1.0})
        >>> points = team.ask(dict.fromkeys("ab", [[0.1], [0.5], [0.9]])).points
        >>> bool(points["a"] == points["b"])  # both choose one location
        True
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose locations by mean + sqrt(beta) std, or by the acquisition's own utility of a location."""
        return at_once(self.steps(situation, acquisition))

    def steps(self, situation: Situation, acquisition: Acquisition) -> Steps[Decision]:
        """Steps of ``decide``, in which agents with separate beliefs send their choices."""
        choose = acquisition.alone(situation)

        def choose_row(agent: str, _: object) -> int | None:
            chosen = choose(agent, view_of(situation.belief, agent), situation.candidates[agent])
            return None if chosen is None else int(chosen)

        def is_valid_row(agent: str, row: Any) -> bool:
            return row is None or is_row(row, len(situation.candidates[agent]))

        rows_by_agent = yield from each(situation, "choices", situation.movers, choose_row, is_valid_row)
        points = {agent: situation.candidates[agent][row] for agent, row in rows_by_agent.items() if row is not None}
        return Decision(points, SolveReport(status="not_needed"))


@kind("coordination", FIELD)
class Greedy(Settings, frozen=True, tag_field="kind", tag="greedy"):
    """Sequential greedy batch: GP-BUCB (Desautels et al. 2014).

    Agents choose in the environment's order. Each maximises mean + sqrt(beta) std, or the acquisition's own utility of
    a location. Earlier choices reduce the variance and leave the mean unchanged; no location is chosen twice. Agents
    that share a belief know earlier choices without messages. An agent with a separate belief sends all choices so far
    to the next agent, and the last agent sends the others what they lack. Messages are relayed over links or, between
    unconnected agents, by a base station (two transmissions). The report has no value: nothing is maximised jointly.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], coordination="greedy")
        >>> team.tell(team.ask({"a": [[0.4]], "b": [[0.6]]}), {"a": 0.0, "b": 1.0})
        >>> points = team.ask(dict.fromkeys("ab", [[0.1], [0.5], [0.9]])).points
        >>> bool(points["a"] == points["b"])  # b avoids the location that a chose
        False
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose locations sequentially, by the acquisition's utility of single locations."""
        return at_once(self.steps(situation, acquisition))

    def steps(self, situation: Situation, acquisition: Acquisition) -> Steps[Decision]:
        """Steps of ``decide``, in which agents with separate beliefs send their choices to the next agent."""
        points, _ = yield from greedy_picks(situation, acquisition.alone(situation))
        return Decision(points, SolveReport(status="sequential", rounds=max(len(situation.movers) - 1, 0)))


_CLOSED_GAPS = 1.5  # distance to the nearest site, in mean gaps between sites, above which nothing can be measured
_CELLS = 900  # number of cells of the map, for paths round closed areas
_MOST_SCORED = 400  # most places of a strip for the choice of the number of lanes
_REACH_STEP = 1.03  # reaches are rounded to powers of it, so that sweeps stay the same from round to round

Lane = tuple[float, float, float]  # x, and the range of y
Pair = tuple[float, float]
Spot = Float[np.ndarray, " 2"]


@kind("coordination", FIELD)
class LawnMower(Settings, frozen=True, tag_field="kind", tag="lawn-mower"):
    """Boustrophedon sweep: each agent sweeps its own strip of the map in parallel tracks over the planned rounds.

    An agent chooses the number of tracks and the corner where it begins. The choice minimises the mean squared distance
    from locations of the strip to the agent's nearest measurement, including those en route. Measurements are spaced
    evenly. Their spacing is at most the distance from the agent to its farthest candidate. In each round, the agent
    goes to the reachable location nearest to the present target of the sweep.

    If the world's sites have gaps, tracks are cut there, and strips have equal numbers of sites. Adjacent parts of
    tracks form cells, which are swept sequentially, the nearest one first. Between cells, agents go round closed areas
    (boustrophedon cellular decomposition, Choset and Pignon 1997). Sweeps need two dimensions and a number of rounds.

    Example:
        >>> import swarmbo as sb
        >>> settings = {"coordination": "lawn-mower", "rounds": 4}
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], **settings)
        >>> sweep = [team.ask().points for _ in range(4)]
        >>> all(points["a"][0] < 0.5 < points["b"][0] for points in sweep)  # each agent is in its own strip
        True
        >>> [points["a"].round(1).tolist() for points in sweep][0]  # it begins in the south-west
        [0.1, 0.1]
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Follow the sweep; the acquisition is not used."""
        if situation.domain.n_dims != 2:
            got = f"a lawn-mower sweep needs 2 coordinates, got {situation.domain.n_dims}; choose another kind"
            raise ConfigError(got, at="$.coordination.kind")
        if situation.horizon is None:
            raise ConfigError("a lawn-mower sweep needs the number of rounds; give `rounds`", at="$.rounds")
        ground, unknown = ground_of(situation.domain, situation.sites), dict.fromkeys(situation.agents, np.inf)
        west_starts = unknown | {agent: float(place[0]) for agent, place in situation.starts.items()}
        from_west = sorted(west_starts, key=lambda agent: (west_starts[agent], agent))  # the strips of agents
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            places, reach = situation.candidates[agent], np.inf
            if (position := situation.positions.get(agent)) is not None:
                side = float((situation.domain.high - situation.domain.low).max())
                farthest = max(float(np.linalg.norm(places - position, axis=1).max()) / side, np.finfo(float).tiny)
                reach = side * _REACH_STEP ** np.round(np.log(farthest) / np.log(_REACH_STEP))
            start = situation.starts.get(agent)
            start_pair = None if start is None else (float(start[0]), float(start[1]))
            plan = sweep(ground, from_west.index(agent), len(from_west), situation.horizon, start_pair, reach)
            target = plan[min(situation.round, len(plan)) - 1]
            if position is not None and np.isfinite(reach):
                target = ground.next_place(position, target, reach)
            points[agent] = places[int(np.linalg.norm(places - target, axis=1).argmin())]
        return Decision(points, SolveReport(status="not_needed"))


def ground_of(domain: Domain, sites: Float[np.ndarray, "k 2"] | None) -> "SweptGround":
    """Measurable ground, cached for equal sites."""
    given = None if sites is None or not len(sites) else np.ascontiguousarray(sites, dtype=float).tobytes()
    return _ground(domain.low.tobytes(), domain.high.tobytes(), given)


@lru_cache(maxsize=4)  # a world's sites are the same in every round
def _ground(low: bytes, high: bytes, sites: bytes | None) -> "SweptGround":
    domain = Domain(np.frombuffer(low), np.frombuffer(high))
    return SweptGround(domain, None if sites is None else np.frombuffer(sites).reshape(-1, 2))


class SweptGround:
    """Measurable ground, and paths round closed areas; ``sites`` None permits any place."""

    def __init__(self, domain: Domain, sites: Float[np.ndarray, "k 2"] | None) -> None:
        self.low, self.side, self.sites = domain.low, domain.high - domain.low, sites
        self._site_tree = None if sites is None else cKDTree(sites)
        self._gap = _CLOSED_GAPS * float(np.sqrt(self.side.prod() / len(sites))) if sites is not None else np.inf

    def is_open(self, places: Float[np.ndarray, "m 2"]) -> Bool[np.ndarray, " m"]:
        """Mask of places near which something can be measured."""
        if self._site_tree is None:
            return np.ones(len(places), dtype=bool)
        return np.asarray(self._site_tree.query(places)[0]) <= self._gap

    def strip(self, number: int, n_strips: int) -> Pair:
        """West and east of a strip; strips have equally many sites, or equal widths without sites."""
        shares = np.array([number, number + 1]) / n_strips
        edges = self.low[0] + self.side[0] * shares
        if self.sites is not None:
            inner = np.quantile(self.sites[:, 0], shares)
            edges = np.where((shares > 0.0) & (shares < 1.0), inner, edges)
        return float(edges[0]), float(edges[1])

    def open_parts(self, x: float, low: float, high: float) -> list[Lane]:
        """Parts of a lane along which something can be measured."""
        step = min(self._gap / 2.0, (high - low) / 8.0) or 1.0
        y = np.linspace(low, high, int(np.ceil((high - low) / step)) + 1)
        closed = np.flatnonzero(~self.is_open(np.column_stack([np.full(len(y), x), y])))
        ends = [-1, *closed.tolist(), len(y)]
        return [(x, float(y[a + 1]), float(y[b - 1])) for a, b in pairwise(ends) if b - a > 1]

    def path(self, start: Spot, end: Spot) -> Float[np.ndarray, "k 2"] | None:
        """Bends of a path, both ends included; None without a path. Straight if unobstructed."""
        straight = np.array([start, end])
        if self.are_visible(straight[:1], straight[1:])[0]:
            return straight
        nodes, _, tree = self._grid
        length, previous = self._lengths(start)
        cell, cells = int(tree.query(end)[1]), list[np.ndarray]()
        if not np.isfinite(length[cell]):
            return None
        while cell >= 0:
            cells.append(nodes[cell])
            cell = int(previous[cell])
        return np.array([start, *cells[::-1], end])

    def distances(self, start: Spot, ends: Float[np.ndarray, "m 2"]) -> Float[np.ndarray, " m"]:
        """Approximate lengths of paths; infinite without a path."""
        straight = np.linalg.norm(ends - start, axis=1)
        is_visible = self.are_visible(np.broadcast_to(start, ends.shape), ends)
        if is_visible.all():
            return straight
        return np.where(is_visible, straight, self._lengths(start)[0][self._grid[2].query(ends)[1]])

    def _lengths(self, start: Spot) -> tuple[Float[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """Distance to each cell, and the previous cell on its path; -9999 for the first."""
        _, graph, tree = self._grid
        length, previous = dijkstra(graph, indices=np.array([tree.query(start)[1]]), return_predecessors=True)
        return length[0], previous[0]

    def next_place(self, start: Spot, end: Spot, reach: float) -> Spot:
        """Next place en route to a target: the target, or the farthest within reach on a path round closed areas."""
        path = self.path(start, end)
        if path is None or len(path) == 2:
            return end
        return _points_at(path, np.array([min(reach, _arc_lengths(path)[-1])]))[0]

    def are_visible(self, starts: Float[np.ndarray, "m 2"], ends: Float[np.ndarray, "m 2"]) -> Bool[np.ndarray, " m"]:
        """Mask of pairs of places without a closed area between."""
        if self._site_tree is None or not len(starts):
            return np.ones(len(starts), dtype=bool)
        longest = float(np.linalg.norm(ends - starts, axis=1).max())
        shares = np.linspace(0.0, 1.0, int(np.ceil(2.0 * longest / self._gap)) + 1)
        between = starts[:, None] + shares[:, None] * (ends - starts)[:, None]
        return np.asarray(self.is_open(between.reshape(-1, 2)).reshape(len(starts), -1).all(axis=1))

    @cached_property
    def _grid(self) -> tuple[Float[np.ndarray, "n 2"], csr_array, cKDTree]:
        """Centres of measurable cells, and a graph of the distances between mutually visible neighbours."""
        counts = np.maximum(1, np.round(self.side * np.sqrt(_CELLS / self.side.prod()))).astype(int)
        axes = [low + side * (np.arange(n) + 0.5) / n for low, side, n in zip(self.low, self.side, counts, strict=True)]
        nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        is_open = self.is_open(nodes)
        # if no cell is near a site, sites are denser than cells
        if self.sites is not None and not is_open.any():
            nodes, is_open = self.sites[:: max(1, len(self.sites) // _CELLS)], np.s_[:]
        nodes = nodes[is_open]
        tree = cKDTree(nodes)
        first, second = tree.query_pairs(1.01 * float(np.hypot(*(self.side / counts))), output_type="ndarray").T
        is_visible = self.are_visible(nodes[first], nodes[second])
        first, second = first[is_visible], second[is_visible]
        lengths = np.linalg.norm(nodes[first] - nodes[second], axis=1)
        edges = (np.append(first, second), np.append(second, first))
        return nodes, csr_array((np.append(lengths, lengths), edges), shape=(len(nodes), len(nodes))), tree


@lru_cache(maxsize=64)  # the same in every round
def sweep(
    ground: SweptGround, strip: int, n_strips: int, rounds: int, start: Pair | None = None, reach: float = np.inf
) -> Float[np.ndarray, "rounds 2"]:
    """Places of an agent at the end of each round."""
    west, east = ground.strip(strip, n_strips)
    scored, n_steps = _scored_places(ground, west, east), rounds - (start is None)
    even_lanes = np.sqrt(rounds * (east - west) / ground.side[1])  # lane distance equals the distance along lanes
    plans = list[tuple[float, Float[np.ndarray, "r 2"]]]()
    for n_lanes in range(1, int(2.0 * even_lanes) + 2):
        for entry in range(1 if start is None else 4):
            path = _path(ground, (west, east), n_lanes, start, entry)
            step = min(float(_arc_lengths(path)[-1]) / max(n_steps, 1), reach)
            ends = _points_at(path, step * np.arange(n_steps + 1))
            distances = cKDTree(ends).query(scored)[0]
            plans.append((float(np.square(distances).mean()), ends[-rounds:]))
    return min(plans, key=lambda plan: plan[0])[1]


def _scored_places(ground: SweptGround, west: float, east: float) -> Float[np.ndarray, "j 2"]:
    if ground.sites is not None:
        own = ground.sites[(ground.sites[:, 0] >= west) & (ground.sites[:, 0] <= east)]
        own = own if len(own) else ground.sites
        return own[:: max(1, len(own) // _MOST_SCORED)]
    n = int(np.sqrt(_MOST_SCORED))
    shares = (np.arange(n) + 0.5) / n
    x, y = np.meshgrid(west + (east - west) * shares, ground.low[1] + ground.side[1] * shares)
    return np.column_stack([x.ravel(), y.ravel()])


def _path(ground: SweptGround, strip: Pair, n_lanes: int, start: Pair | None, entry: int) -> Float[np.ndarray, "k 2"]:
    """Bends of the path through all lanes of a strip, cell by cell, from the nearest corner (0) or a farther one."""
    (west, east), height = strip, float(ground.side[1])
    margin = min((east - west) / n_lanes, height) / 2.0
    low, high = float(ground.low[1]) + margin, float(ground.low[1]) + height - margin
    cells = _cells(ground, n_lanes, west, east, low, high)
    if not cells:  # lanes miss small clusters of sites: they are laid over the sites alone
        sites = _scored_places(ground, west, east)
        (west, low), (east, high) = sites.min(axis=0).tolist(), sites.max(axis=0).tolist()
        cells = _cells(ground, n_lanes, west, east, low, high)
    path = [np.array([west, ground.low[1]] if start is None else start)]
    while cells:
        corners = np.array([[(lane[0], y) for lane in (cell[0], cell[-1]) for y in lane[1:]] for cell in cells])
        distances = ground.distances(path[-1], corners.reshape(-1, 2))
        is_lost = len(path) == 1 and not np.isfinite(distances).any()
        if is_lost:  # far from all sites: straight to the nearest one
            distances = np.linalg.norm(corners.reshape(-1, 2) - path[-1], axis=1)
        nearest = int(distances.argmin())
        if len(path) == 1:
            first = 4 * (nearest // 4)  # corner of the nearest cell
            nearest = first + int(np.argsort(distances[first : first + 4], kind="stable")[entry])
        corner = corners.reshape(-1, 2)[nearest]
        leg = np.array([path[-1], corner]) if is_lost else ground.path(path[-1], corner)
        if leg is None or not np.isfinite(distances[nearest]):
            break  # the rest is unreachable
        number, corner_index = divmod(nearest, 4)
        cell = cells.pop(number)
        path += [*leg[1:]]
        upwards = corner_index % 2 == 0
        for x, south, north in cell if corner_index < 2 else cell[::-1]:
            path += [np.array([x, y]) for y in ((south, north) if upwards else (north, south))]
            upwards = not upwards
    return np.array(path[1:] if start is None and len(path) > 1 else path)


def _cells(ground: SweptGround, n_lanes: int, west: float, east: float, low: float, high: float) -> list[list[Lane]]:
    """Cells of parts of lanes: a part in the next lane continues a cell if each is the other's only neighbour."""
    cells, active, spacing = list[list[Lane]](), list[list[Lane]](), (east - west) / n_lanes
    for lane in range(n_lanes):
        parts = ground.open_parts(west + spacing * (lane + 0.5), low, high)
        adjacent = [[cell for cell in active if cell[-1][1] <= part[2] and part[1] <= cell[-1][2]] for part in parts]
        current = list[list[Lane]]()
        for part, beside in zip(parts, adjacent, strict=True):
            if len(beside) == 1 and sum(any(cell is beside[0] for cell in others) for others in adjacent) == 1:
                beside[0].append(part)
                current.append(beside[0])
            else:
                current.append([part])
                cells.append(current[-1])
        active = current
    return cells


def _arc_lengths(path: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " k"]:
    return np.append(0.0, np.linalg.norm(np.diff(path, axis=0), axis=1).cumsum())


def _points_at(path: Float[np.ndarray, "k 2"], lengths: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 2"]:
    """Points of a path at some lengths from its start; its end for larger lengths."""
    arc_lengths = _arc_lengths(path)
    return np.column_stack([np.interp(lengths, arc_lengths, path[:, axis]) for axis in range(2)])
