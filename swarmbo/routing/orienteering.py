"""Routes of the whole team by an orienteering solver from a library: what other planners are held against."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Situation
from swarmbo.acquisition.planning_places import keys_of
from swarmbo.acquisition.target_worth import TargetValue
from swarmbo.boundary.extras import needed
from swarmbo.coordination.requests import AllReduce, Steps
from swarmbo.coordination.schema import each_own
from swarmbo.coordination.view import LocalView
from swarmbo.registry import FIELD, kind
from swarmbo.routing.auction import Legs, Pilot, auction, on_course
from swarmbo.routing.routes import RoutePlanner
from swarmbo.routing.tour import in_rounds, unspared
from swarmbo.settings import Count, within

_FAILURES = 100  # for each solution, of which few take more than 5: where there is no other, it would search for ever
_LARGEST = 1e30  # number that an agent may tell others
_UNIT = 1_000_000  # of the largest prize: the solver takes whole numbers, and a round counts as one


@kind("coordination", FIELD)
class Orienteering(RoutePlanner, frozen=True, tag="orienteering"):
    """The team orienteering problem over way-points, solved in every round anew by OR-tools' guided local search.

    Who solves it knows all: every agent tells all others how long all its ways are, and each solves the same problem,
    with the same end. That is many numbers; it is a reference to hold other planners against, not one to drive with.

    An orienteering problem has a prize for each place, and what measurements tell is no sum of prizes. So it is solved
    several times, from routes by auction on. A prize is what a measurement adds to the way-points of the solution
    before, averaged over all solutions so far, as in fictitious play. The routes that tell most count, those by auction
    among them: so they never tell less. What is measured on the way to way-points is in no prize. Limits of time and
    batteries are those of the other planners. Takes the extra ``orienteering``.

    Args:
        way_points: About how many places may become way-points, 1 to 1024; beyond 100 it takes tens of seconds.
        linearisations: How often prizes are taken anew, >= 1.
        solutions: That the search looks at each time, >= 1.

    The other settings are those of ``RoutePlanner``.

    Source: Chao, Golden and Wasil 1996, The team orienteering problem; Furnon and Perron, OR-tools routing library.

    Example:
        >>> import pytest
        >>> ortools = pytest.importorskip("ortools")
        >>> import swarmbo as sb
        >>> from swarmbo_envs import robot_team_v0
        >>> env = robot_team_v0.parallel_env(robots=3, max_cycles=3)
        >>> solver = {"kind": "orienteering", "way_points": 60, "solutions": 20}
        >>> team = sb.Team.for_env(env, acquisition="targeted-variance", coordination=solver)
        >>> actions = team.act(*env.reset(seed=0))
        >>> team.last_report.status
        'sequential'
    """

    way_points: Annotated[int, within(1, 1024)] = 60
    linearisations: Count = 3
    solutions: Count = 100

    def program(self, situation: Situation) -> "Callable[[LocalView, Mapping[str, Pilot]], Steps[Legs]]":
        """The solver, at every agent alike."""
        solver = needed(
            "ortools.constraint_solver.pywrapcp", "orienteering", "'orienteering'", at="$.coordination.kind"
        )
        return lambda view, own: _solved(view, own, self, solver)


def _solved(view: LocalView, pilots: Mapping[str, Pilot], settings: Orienteering, solver: Any) -> Steps[Legs]:
    agents, own = view.graph.variables, [pilots[agent] for agent in view.variables]
    number, places = {agent: n for n, agent in enumerate(agents)}, own[0].places
    values = {id(pilot.gains): pilot.gains.worth.jointly(pilot.gains.belief, places) for pilot in own}
    told = np.zeros((len(own), len(agents), len(_ways_of(own[0]))))
    for n, pilot in enumerate(own):
        told[n, number[pilot.agent]] = _ways_of(pilot)
    ways = yield AllReduce(told, each_own(agents, 0.0, _LARGEST, axis=0))
    routes = best = yield from _auctioned(view, pilots)
    prizes, most = np.zeros(len(places)), -np.inf
    for turn in range(settings.linearisations + 1):
        stops = [stop for route in routes for stop in route]
        told = np.zeros((len(own), len(agents), 1 + len(places)))
        for n, pilot in enumerate(own):  # agents that believe otherwise than others have prizes of their own
            value = values[id(pilot.gains)]
            told[n, number[pilot.agent]] = [value.of_set(stops) if stops else 0.0, *marginals(value, stops)]
        heard = (yield AllReduce(told, each_own(agents, -_LARGEST, _LARGEST, axis=0))).mean(axis=0)
        paid = sum(float(row[-1]) * len(route) for row, route in zip(ways, routes, strict=True))
        if heard[0] - paid > most:
            best, most = routes, float(heard[0]) - paid
        prizes = prizes + (heard[1:] - prizes) / (turn + 1)
        if turn < settings.linearisations:
            routes = orienteered(solver, ways, prizes, settings.solutions)
    planned, tours = np.zeros(len(places), dtype=bool), {pilot.agent: pilot.tour() for pilot in own}
    planned[[stop for route in best for stop in route]] = True
    for agent, tour in tours.items():
        for n, stop in enumerate(best[number[agent]]):
            tour.put_in(stop, n)
    left_over = {pilot.agent: np.diag(values[id(pilot.gains)].told) for pilot in own}
    points = yield from on_course(agents, {pilot.agent: pilot for pilot in own}, tours, left_over, planned, set())
    exchanges = 3 + settings.linearisations + len(agents)  # and those of the auction
    return Legs(points, {agent: places[tour.stops] for agent, tour in tours.items()}, exchanges)


def _auctioned(view: LocalView, pilots: Mapping[str, Pilot]) -> Steps[list[list[int]]]:
    """The way-points of all agents by auction, as indices of places."""
    agents, own = view.graph.variables, [pilots[agent] for agent in view.variables]
    legs = yield from auction(view, pilots, "auction")
    index = {key: n for n, key in enumerate(keys_of(own[0].places))}
    told = np.zeros((len(own), len(agents), len(index)))  # of each place its number in the route of an agent
    for n, pilot in enumerate(own):
        for turn, key in enumerate(keys_of(legs.routes[pilot.agent]), start=1):
            told[n, agents.index(pilot.agent), index[key]] = turn
    heard = yield AllReduce(told, each_own(agents, 0.0, float(len(index)), whole=True, axis=0))
    return [[int(place) for place in np.argsort(row, kind="stable") if row[place]] for row in heard]


def _ways_of(pilot: Pilot) -> Float[np.ndarray, " m"]:
    """What one agent tells of its ways: rounds from where it is, between places and home, how many it has, the price.

    A way that takes longer than it has counts as one round more than that.
    """
    travel, places, base = pilot.travel, pilot.places, pilot.travel.base(pilot.agent)
    has, home = float(pilot.horizon), np.zeros(len(places))
    if base is not None:
        battery = max(0.0, float(travel.rounds_left(pilot.agent)))
        home = unspared(in_rounds(travel.rounds(pilot.agent, places, base[None])[:, 0]), has, battery)
        has = min(has, battery)
    between = in_rounds(travel.rounds(pilot.agent, places, places).ravel()).reshape(len(places), -1)
    away = np.full(len(places), np.inf)
    if pilot.start is not None:
        away = in_rounds(travel.rounds(pilot.agent, pilot.start[None], places)[0])
    away, between = (np.where(pilot.is_open, told, np.inf) for told in (away, between))
    rounds = np.minimum(np.concatenate([away, between.ravel(), home]), has + 1.0)
    return np.array([*rounds, has, pilot.price or 0.0])


def marginals(value: TargetValue, rows: Sequence[int]) -> Float[np.ndarray, " p"]:
    """What each place adds to some of them: W with it less W without it, whether it is one of them or not.

    With A = C_SS + sigma_n^2 I and B = A^-1, leaving p out of S takes (B M_SS B)_pp / B_pp from W.
    """
    own, C, M = list(rows), value.cov, value.told
    B = np.linalg.inv(C[np.ix_(own, own)] + value.noise_variance * np.eye(len(own)))
    gain = B @ C[own]
    told = np.diag(M) - 2.0 * np.einsum("sp,sp->p", gain, M[own])
    told += np.einsum("sp,sp->p", gain, M[np.ix_(own, own)] @ gain)
    added = np.maximum(told, 0.0) / (
        np.maximum(np.diag(C) - np.einsum("sp,sp->p", gain, C[own]), 0.0) + value.noise_variance
    )
    added[own] = np.einsum("ps,sp->p", B @ M[np.ix_(own, own)], B) / np.diag(B)
    return added


def orienteered(
    solver: Any, ways: Float[np.ndarray, "n m"], prizes: Float[np.ndarray, " p"], solutions: int
) -> list[list[int]]:
    """Routes with about the largest sum of prizes, each place visited by one agent at most.

    Args:
        solver: The module of the library.
        ways: Of each agent, as agents tell them.
        prizes: Of places, >= 0.
        solutions: That are looked at.

    Returns:
        For each agent its way-points, in turn.
    """
    n, p, largest = len(ways), len(prizes), float(prizes.max())
    if not largest:
        return [list[int]() for _ in ways]
    manager = solver.RoutingIndexManager(p + 2 * n, n, list(range(p, p + n)), list(range(p + n, p + 2 * n)))
    model = solver.RoutingModel(manager)
    legs, limits = list[int](), [int(row[-2]) for row in ways]
    for agent, row in enumerate(ways):
        rounds = np.full((p + 2 * n, p + 2 * n), limits[agent] + 1, dtype=int)
        rounds[p + agent, :p], rounds[:p, :p] = row[:p], row[p : p + p * p].reshape(p, p)
        rounds[:p, p + n + agent], rounds[p + agent, p + n + agent] = row[p + p * p : -2], 0
        legs.append(model.RegisterTransitMatrix(rounds.tolist()))
        cost = rounds.copy()
        cost[:, :p] += round(min(float(row[-1]), (p + 1) * largest) / largest * _UNIT)  # all prizes are worth less
        model.SetArcCostEvaluatorOfVehicle(model.RegisterTransitMatrix(cost.tolist()), agent)
    model.AddDimensionWithVehicleTransitAndCapacity(legs, 0, limits, True, "rounds")
    for place, prize in enumerate(prizes.tolist()):
        model.AddDisjunction([manager.NodeToIndex(place)], round(prize / largest * _UNIT))
    search = solver.DefaultRoutingSearchParameters()
    search.local_search_metaheuristic = 2  # guided local search, by its number in the library
    search.solution_limit = solutions
    model.AddSearchMonitor(model.solver().FailuresLimit(_FAILURES * solutions))
    found = model.SolveWithParameters(search)
    routes = [list[int]() for _ in ways]
    for agent in range(n):
        index = found.Value(model.NextVar(model.Start(agent)))
        while not model.IsEnd(index):
            routes[agent].append(manager.IndexToNode(index))
            index = found.Value(model.NextVar(index))
    return routes
