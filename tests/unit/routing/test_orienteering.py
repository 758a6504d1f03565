"""Routes by an orienteering solver: held to brute force over joint routes, and to differences of sets."""

import itertools

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition import Situation
from swarmbo.acquisition.planning_places import planning_places
from swarmbo.belief import ExactGP, Views
from swarmbo.errors import ConfigError
from swarmbo.routing import Orienteering, RoutePlanner, Routes
from swarmbo.routing.orienteering import marginals, orienteered

from .test_routes import DOMAIN, SITES, TARGETED, Straight, a_team, decided_alike, reduction, some_belief

solver = pytest.importorskip("ortools.constraint_solver.pywrapcp")
QUICK = {"way_points": 40, "solutions": 60}


def legs_of(now: Situation, coordination: RoutePlanner) -> dict[str, np.ndarray]:
    planned = coordination.planned(now, TARGETED)
    assert planned is not None
    outcomes, _ = planned.plan.in_one_place(planned.pilots)
    return {agent: route for legs in outcomes for agent, route in legs.routes.items()}


def some_ways(rng: np.random.Generator, n: int, p: int) -> np.ndarray:
    """What agents tell of ways between places in a square, with a way home and limits of their own."""
    rows = list[np.ndarray]()
    for has in rng.integers(2, 7, size=n):
        points, here = rng.random((p, 2)), rng.random(2)
        far = [np.linalg.norm(points - end, axis=1) for end in (here, *points, here)]
        rounds = np.maximum(np.ceil(3.0 * np.concatenate(far)), 1.0)
        rows.append(np.array([*np.minimum(rounds, has + 1.0), has, rng.choice([0.0, 0.3])]))
    return np.array(rows)


def collected(ways: np.ndarray, prizes: np.ndarray, routes: list[list[int]]) -> float:
    """The prizes of routes less what they cost; -inf where one is too long, or a place has two visitors."""
    p, stops = len(prizes), [stop for route in routes for stop in route]
    if len(set(stops)) < len(stops):
        return -np.inf
    for row, route in zip(ways, routes, strict=True):
        legs = [row[p + a * p + b] for a, b in itertools.pairwise(route)]
        if route and row[route[0]] + sum(legs) + row[p + p * p + route[-1]] > row[-2]:
            return -np.inf
    return float(prizes[stops].sum() - sum(row[-1] * len(route) for row, route in zip(ways, routes, strict=True)))


@pytest.mark.parametrize("seed", range(6))
def test_prizes_are_those_of_the_best_joint_routes_by_brute_force(seed: int) -> None:
    rng, p = np.random.default_rng(seed), 5
    ways, prizes = some_ways(rng, 2, p), rng.random(p)
    every = [list(route) for k in range(p + 1) for route in itertools.permutations(range(p), k)]
    one, other = ([route for route in every if collected(row[None], prizes, [route]) > -np.inf] for row in ways)
    best = max(collected(ways, prizes, [own, its]) for own in one for its in other)
    found = collected(ways, prizes, orienteered(solver, ways, prizes, 200))
    assert found >= best - 1e-4  # prizes are whole numbers to it
    assert best > 0.0


@pytest.mark.parametrize("reached", [0, 1])
def test_where_there_is_no_choice_the_search_ends(reached: int) -> None:
    """Of one place, which is in reach or is not: there are no more solutions to look at."""
    ways = np.array([[2.0 - reached, 1.0, 0.0, 1.0, 0.0]])
    assert orienteered(solver, ways, np.ones(1), 50) == [list(range(reached))]


@pytest.mark.parametrize("largest", [0.0, 5e-324, 1e-30, 1e300])
def test_prizes_of_any_size_have_routes_and_no_price_is_too_large(largest: float) -> None:
    """As of a level far from all that is known, where the chance to be wrong about it vanishes."""
    ways, prizes = some_ways(np.random.default_rng(0), 2, 5), largest * np.array([0.0, 1.0, 0.0, 0.0, 0.0])
    ways[:, -1] = 0.0
    free = orienteered(solver, ways, prizes, 20)
    assert (1 in [stop for route in free for stop in route]) is (largest > 0.0)
    ways[:, -1] = 1e3 * largest + 5.0
    assert orienteered(solver, ways, prizes, 20) == [[], []]


def test_what_each_place_adds_is_a_difference_of_sets() -> None:
    now, places = a_team(3), planning_places(DOMAIN, SITES, 20)
    assert isinstance(now.belief, ExactGP)
    value = TARGETED.worth(now).jointly(now.belief, places)
    for own in ([], [4], [2, 9, 11, 17]):
        found = marginals(value, own)
        for place in range(len(places)):
            rest = [other for other in own if other != place]
            without = value.of_set(rest) if rest else 0.0
            assert found[place] == pytest.approx(value.of_set([*rest, place]) - without, rel=1e-6, abs=1e-12)


def test_it_comes_near_the_best_of_all_joint_routes() -> None:
    """By what measurements tell, of which prizes are a linear picture only."""
    for seed in range(3):
        now = a_team(seed, 2, Straight(1000.0), horizon=7, round=6)  # two rounds; everything is a round away
        places, worth = planning_places(DOMAIN, SITES, 9), TARGETED.worth(now)
        assert isinstance(now.belief, ExactGP)
        best = max(
            reduction(now.belief, worth, places[list(four)]) for four in itertools.combinations(range(len(places)), 4)
        )
        routes = legs_of(now, Orienteering(way_points=9))
        assert reduction(now.belief, worth, np.concatenate(list(routes.values()))) > 0.97 * best


def test_routes_can_be_driven_and_lead_home_and_tell_more_than_those_by_auction() -> None:
    shares = []
    for seed in range(3):
        travel = Straight(9.0, left={"r0": 4})
        now = a_team(seed, 3, travel, horizon=14)
        assert isinstance(now.belief, ExactGP)
        told = []
        for planner in (Orienteering(**QUICK), Routes(way_points=40)):
            routes = legs_of(now, planner)
            for agent, route in routes.items():
                stops = [now.positions[agent], *route]
                ways = [max(1, travel.rounds(agent, a[None], b[None])[0, 0]) for a, b in itertools.pairwise(stops)]
                base = travel.base(agent)
                home = max(1, travel.rounds(agent, stops[-1][None], base[None])[0, 0]) if base is not None else 0
                assert sum(ways) + home * (len(route) > 0) <= (4 if agent == "r0" else 10)
            visited = np.concatenate([route for route in routes.values() if len(route)])
            assert len(np.unique(visited, axis=0)) == len(visited)
            told.append(reduction(now.belief, TARGETED.worth(now), visited))
        shares.append(told[0] / told[1])
    assert min(shares) > 1.0 - 1e-9
    assert max(shares) > 1.01


@pytest.mark.parametrize("kind", ["own", "parted", "priced"])
def test_agents_that_exchange_messages_decide_alike_to_the_bit(kind: str) -> None:
    more = {}
    if kind == "own":
        more["belief"] = Views({f"r{n}": some_belief(1, 6 + n) for n in range(3)}, "r0")
    if kind == "parted":
        more["links"] = nx.Graph([("r0", "r1")])
    if kind == "priced":
        more["prices"] = {"r1": 0.02, "r2": 100.0}
    now, coordination = a_team(1, 3, **more), Orienteering(**QUICK, linearisations=2)
    alone = decided_alike(now, coordination)
    assert ("r2" in alone.points) is (kind != "priced")


def test_the_contract_of_ways_to_agree_holds() -> None:
    sb.testing.check_coordinator(lambda: Orienteering(**QUICK, linearisations=1))


def test_without_the_library_it_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ortools", None)
    monkeypatch.setitem(__import__("sys").modules, "ortools.constraint_solver.pywrapcp", None)
    with pytest.raises(ConfigError, match=r"pip install swarmbo\[orienteering\]"):
        Orienteering().decide(a_team(0), TARGETED)
