"""Dec-MCTS: held to every joint choice of routes, to what agents can drive, and to messages between them."""

import dataclasses
import itertools

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition import Situation
from swarmbo.acquisition.targeted_variance import planning_places
from swarmbo.belief import ExactGP, Views
from swarmbo.routing import DecMCTS, RoutePlanner, Routes

from .test_routes import DOMAIN, SITES, TARGETED, Straight, a_team, decided_alike, reduction, some_belief


def legs_of(now: Situation, coordination: RoutePlanner) -> dict[str, np.ndarray]:
    planned = coordination.planned(now, TARGETED)
    assert planned is not None
    outcomes, _ = planned.plan.central_driver(planned.pilots)
    return {agent: route for legs in outcomes for agent, route in legs.routes.items()}


def best_of_all(now: Situation, places: np.ndarray, horizon: int) -> float:
    """The best joint choice of so many way-points each, all in reach of one another in a round."""
    worth = TARGETED.utility(now)
    pairs = list(itertools.combinations(range(len(places)), horizon))
    return max(
        reduction(now.belief, worth, places[sorted({*one, *other})]) for one, other in itertools.product(pairs, pairs)
    )


def test_it_comes_near_the_best_of_all_joint_routes():
    shares = []
    for seed in range(2):
        now = a_team(seed, 2, Straight(1000.0), horizon=7, round=6)  # two rounds; everything is a round away
        places = planning_places(DOMAIN, SITES, 9)
        routes = legs_of(now, DecMCTS(way_points=9))
        assert all(len(route) == 2 for route in routes.values())
        assert isinstance(now.belief, ExactGP)
        told = reduction(now.belief, TARGETED.utility(now), np.unique(np.concatenate(list(routes.values())), axis=0))
        shares.append(told / best_of_all(now, places, 2))
    assert min(shares) > 0.95


@pytest.mark.parametrize("kind", ["shared", "own", "parted", "priced", "battery"])
def test_agents_that_exchange_messages_decide_alike_to_the_bit(kind: str):
    more, travel = {}, Straight()
    if kind == "own":
        more["belief"] = Views({f"r{n}": some_belief(1, 6 + n) for n in range(4)}, "r0")
    if kind == "parted":
        more["links"] = nx.Graph([("r0", "r1"), ("r2", "r3")])
    if kind == "priced":
        more["prices"] = {"r1": 0.02, "r3": 100.0}
    if kind == "battery":
        travel = Straight(left={"r0": 3, "r2": 6})
    now, coordination = a_team(1, 4, travel, **more), DecMCTS(draws=4, exchanges=3, way_points=60)
    alone = decided_alike(now, coordination)
    assert ("r3" in alone.points) is (kind != "priced")
    assert len({tuple(point) for point in alone.points.values()}) == len(alone.points)


def test_routes_can_be_driven_and_lead_home():
    travel = Straight(9.0, left={"r0": 4})
    now = a_team(3, 3, travel, horizon=30)
    for agent, route in legs_of(now, DecMCTS(draws=4, exchanges=3, way_points=120)).items():
        stops = [now.positions[agent], *route]
        ways = [max(1, travel.rounds(agent, a[None], b[None])[0, 0]) for a, b in itertools.pairwise(stops)]
        base = travel.base(agent)
        home = 0 if base is None or not len(route) else max(1, travel.rounds(agent, route[-1][None], base[None])[0, 0])
        assert sum(ways) + home <= (4 if agent == "r0" else 6)
        assert len(np.unique(route, axis=0)) == len(route)


def test_more_exchange_is_more_agreement():
    """Who hears nothing of the others in time plans as if alone, and they meet."""
    told = []
    for exchanges in (1, 8):
        worths = []
        for seed in range(3):
            now = dataclasses.replace(a_team(seed, 3, horizon=7), positions={f"r{n}": SITES[90] for n in range(3)})
            routes = legs_of(now, DecMCTS(draws=40 // exchanges, exchanges=exchanges, way_points=60))
            assert isinstance(now.belief, ExactGP)
            visited = np.unique(np.concatenate([route for route in routes.values() if len(route)]), axis=0)
            worths.append(reduction(now.belief, TARGETED.utility(now), visited))
        told.append(np.mean(worths))
    assert told[1] > told[0]


def test_the_contract_of_ways_to_agree_holds():
    sb.testing.check_coordinator(lambda: DecMCTS(draws=4, exchanges=2))


def test_one_step_ahead_where_nobody_says_how_long_ways_take():
    now = dataclasses.replace(a_team(0), travel=None)
    decided, same = DecMCTS().decide(now, TARGETED), Routes().decide(now, TARGETED)
    assert {a: p.tolist() for a, p in decided.points.items()} == {a: p.tolist() for a, p in same.points.items()}
