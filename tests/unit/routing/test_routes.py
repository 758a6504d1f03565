"""Routes by auction, compared with a plain auction, with brute force, and with messages between agents."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.acquisition import Decision, Situation, TargetedVariance
from swarmbo.acquisition.situation import NEVER
from swarmbo.acquisition.targeted_variance import TargetUtility, planning_places
from swarmbo.baselines import Greedy
from swarmbo.belief import ExactGP, ExactGPSettings, TimeAxis, Views
from swarmbo.deciding.central_driver import CentralDriver, CountedExchanges
from swarmbo.deciding.places import place_steps
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.routing import Routes
from swarmbo.routing.pilot import FREE, Gains, Pilot, Tour
from swarmbo.spaces import Domain
from swarmbo.transport import InProcess, Routes as RadioRoutes
from swarmbo.worlds.fields import WorldTravel
from swarmbo_envs import robot_team_v0

DOMAIN = Domain(np.zeros(2), np.array([100.0, 60.0]))
SITES = np.array([(x, y) for x in np.linspace(2, 98, 17) for y in np.linspace(2, 58, 11)])
TARGETED = TargetedVariance(places=40)


class Straight:
    """Travel in straight lines, ``reach`` metres per round; some agents have a battery and a base."""

    def __init__(self, reach: float = 12.0, left: Mapping[str, int] | None = None) -> None:
        self.reach, self.left = reach, left or {}

    def rounds(self, agent: str, origins: np.ndarray, places: np.ndarray) -> np.ndarray:
        distance = np.linalg.norm(origins[:, None] - places[None], axis=-1)
        return np.ceil(distance / self.reach - 1e-9).astype(int)

    def rounds_left(self, agent: str) -> int:
        return self.left.get(agent, NEVER)

    def base(self, agent: str) -> np.ndarray | None:
        return np.array([50.0, 30.0]) if agent in self.left else None


class Table:
    """Travel by a table over places on a line; some places may be unreachable."""

    def __init__(self, rounds: np.ndarray, left: int = NEVER) -> None:
        self.table, self.left = rounds, left

    def rounds(self, agent: str, origins: np.ndarray, places: np.ndarray) -> np.ndarray:
        return self.table[np.ix_(origins[:, 0].astype(int), places[:, 0].astype(int))]

    def rounds_left(self, agent: str) -> int:
        return self.left

    def base(self, agent: str) -> np.ndarray | None:
        return np.array([0.0]) if self.left < NEVER else None


def some_belief(seed: int, n: int = 8, fades: bool = False) -> ExactGP:
    rng = np.random.default_rng(seed)
    X = DOMAIN.from_unit(rng.random((n, 2)))
    prior = ExactGPSettings(time=TimeAxis(lengthscale_median=4.0)) if fades else ExactGPSettings()
    return ExactGP.create(prior, DOMAIN).update(X, np.sin(X[:, 0] / 17.0) + 0.1 * rng.normal(size=n)).fit(rng)


def a_team(seed: int = 0, n_agents: int = 3, travel: Straight | None = None, **more) -> Situation:
    rng, agents = np.random.default_rng(seed), tuple(f"r{n}" for n in range(n_agents))
    travel = travel or Straight()
    positions = {agent: DOMAIN.from_unit(rng.random(2)) for agent in agents}
    near = {a: SITES[travel.rounds(a, positions[a][None], SITES)[0] <= 1] for a in agents}
    given = {"belief": some_belief(seed), "links": None, "round": 5, "horizon": 10, "sites": SITES, **more}
    return Situation(agents, near, positions, {}, domain=DOMAIN, seed=0, travel=travel, **given)  # pyright: ignore[reportArgumentType]


def reduction(belief: ExactGP, utility: TargetUtility, batch: np.ndarray) -> float:
    """W of a set, by joint posterior covariances and an inverse."""
    n = len(batch)
    _, cov = belief.joint_posterior(np.concatenate([batch.reshape(n, 2), utility.targets]))
    across = cov[:n, n:]
    gone = np.diag(across.T @ np.linalg.inv(cov[:n, :n] + utility.noise_variance * np.eye(n)) @ across)
    return float(utility.weights @ gone)


def places_of(decision: Decision) -> dict[str, list[float]]:
    return {agent: place.tolist() for agent, place in decision.points.items()}


def legs_of(now: Situation, coordination: Routes):
    """Whole routes, of which a decision has the first legs only."""
    planned = coordination.planned(now, TARGETED)
    assert planned is not None
    outcomes, _ = planned.plan.central_driver(planned.pilots)
    return {agent: route for legs in outcomes for agent, route in legs.routes.items()}


def a_plain_auction(now: Situation, order: str, way_points: int = 40) -> dict[str, list[np.ndarray]]:
    """The rule of the class docstring, by brute force: each bid is computed from whole sets of places."""
    assert isinstance(now.belief, ExactGP)
    utility = TARGETED.utility(now)
    left = (now.horizon or 0) - now.round + 1
    routes: dict[str, list[np.ndarray]] = {agent: [] for agent in now.agents}
    taken: list[np.ndarray] = []

    def length(agent: str, route: list[np.ndarray]) -> int:
        stops = np.array([now.positions[agent], *route])
        return int(sum(max(1, now.travel.rounds(agent, a[None], b[None])[0, 0]) for a, b in itertools.pairwise(stops)))

    while True:
        before, bids = reduction(now.belief, utility, np.array(taken)) if taken else 0.0, []
        for turn, agent in enumerate(now.agents):
            for place in planning_places(DOMAIN, SITES, way_points):
                if any((place == other).all() for other in taken):
                    continue
                gain = reduction(now.belief, utility, np.array([*taken, place])) - before
                for slot in range(len(routes[agent]) + 1):
                    longer = [*routes[agent][:slot], place, *routes[agent][slot:]]
                    if (total := length(agent, longer)) <= left:
                        extra = max(total - length(agent, routes[agent]), FREE)
                        bids.append((gain / extra, -turn, agent, slot, place))
        if not bids:
            return routes
        if order == "sequential":
            first = max(bid[1] for bid in bids)
            bids = [bid for bid in bids if bid[1] == first]
        best = max(bid[0] for bid in bids)
        _, _, agent, slot, place = next(bid for bid in bids if bid[0] >= best * (1.0 - 1e-9))
        routes[agent].insert(slot, place)
        taken.append(place)


@pytest.mark.parametrize(("way_points", "horizon"), [(40, 7), (6, 30)], ids=["some of many", "all there are, once"])
@pytest.mark.parametrize("order", ["auction", "sequential"])
def test_routes_are_those_of_an_auction_by_brute_force(order, way_points: int, horizon: int) -> None:
    now = a_team(1, 2, Straight(25.0), horizon=horizon)
    found = legs_of(now, Routes(order=order, way_points=way_points))
    wanted = a_plain_auction(now, order, way_points)
    assert sum(map(len, wanted.values())) >= 4
    for agent in now.agents:
        assert found[agent].tolist() == np.array(wanted[agent]).tolist()


@given(st.integers(0, 10_000), st.integers(2, 7), st.integers(1, 12), st.booleans())
def test_a_way_point_goes_where_it_adds_fewest_rounds(seed: int, n: int, horizon: int, has_battery: bool) -> None:
    """Compared with all insertions, for any table of rounds; the route fits, with the way home."""
    rng = np.random.default_rng(seed)
    table = rng.integers(1, 6, size=(n, n)) * (1 - np.eye(n, dtype=int))
    table[rng.random((n, n)) < 0.1] = NEVER
    np.fill_diagonal(table, 0)
    left = int(rng.integers(1, 12)) if has_battery else NEVER
    places = np.arange(n, dtype=float)[:, None]
    nothing: Any = None  # a tour needs the places only
    gains, everywhere = Gains(nothing, nothing, places), np.ones(n, dtype=bool)
    tour = Tour(Pilot("a", gains, Table(table, left), places[0], places, everywhere, horizon))

    def length(route: list[int]) -> float:
        ways = [max(1, int(table[a, b])) for a, b in itertools.pairwise([0, *route])]
        return float("inf") if any(way >= NEVER for way in ways) else float(sum(ways))

    def home(route: list[int]) -> float:
        if not has_battery or not route:
            return 0.0
        return float("inf") if table[route[-1], 0] >= NEVER else float(max(1, table[route[-1], 0]))

    while True:
        extra = tour.added_rounds()
        for place in range(n):
            ways = [[*tour.stops[:slot], place, *tour.stops[slot:]] for slot in range(len(tour.stops) + 1)]
            fits = [length(way) <= horizon and length(way) + home(way) <= left for way in ways]
            added = [length(way) - length(tour.stops) if fit else np.inf for way, fit in zip(ways, fits, strict=True)]
            if place in tour.stops:
                assert extra[place] == np.inf
            else:
                assert extra[place] == max(min(added), FREE)
                assert extra[place] == np.inf or added[tour.best_slot(place)] == min(added)
        if np.isinf(extra).all():
            break
        place = int(extra.argmin())
        tour.insert(place, tour.best_slot(place))
        tour.exclude(place)
    assert length(tour.stops) <= horizon
    assert length(tour.stops) + home(tour.stops) <= left


def decided_alike(now: Situation, coordination: Routes, acquisition: sb.ChainAcquisition = TARGETED) -> Decision:
    """The decision of planners in one place; assert that agents with messages decide the same."""
    names = {name: name for name in now.agents}
    graph = sb.FactorGraph.from_scopes({f"of {name}": [name] for name in names}, variable_owners=names)
    decisions = list[Decision]()
    for transport in (InProcess(), InProcess(as_agents=True)):
        exchanges = CountedExchanges(graph, RadioRoutes(now.agents, now.links, has_base=True))
        driver = CentralDriver(coordination, transport, now.round, exchanges)
        decisions.append(driver.run(place_steps(now, acquisition, coordination)))
    alone, by_messages = decisions
    assert (places_of(alone), alone.report) == (places_of(by_messages), by_messages.report)
    assert alone.report.messages > 0
    return alone


@pytest.mark.parametrize("order", ["auction", "sequential"])
@pytest.mark.parametrize("kind", ["shared", "own", "parted", "priced", "battery"])
def test_agents_that_exchange_messages_decide_bit_identically(order, kind: str) -> None:
    more, travel = {}, Straight()
    if kind == "own":
        more["belief"] = Views({f"r{n}": some_belief(0, 6 + n) for n in range(5)}, "r0")
    if kind == "parted":
        more["links"] = nx.Graph([("r0", "r1"), ("r1", "r2"), ("r3", "r4")])
    if kind == "priced":
        more["prices"] = {"r1": 0.02, "r3": 100.0}
    if kind == "battery":
        travel = Straight(left={"r0": 3, "r2": 6})
    now, coordination = a_team(0, 5, travel, **more), Routes(order=order)
    up = decided_alike(dataclasses.replace(now, round=9), coordination, sb.DBGPUCB())
    for alone in (decided_alike(now, coordination), up):
        assert ("r3" in alone.points) is (kind != "priced")
        assert len({tuple(point) for point in alone.points.values()}) == len(alone.points)
    assert up.report.rounds == 2 * (3 if kind == "parted" else 5)


def test_each_agent_measures_among_its_candidates_and_is_in_time_for_its_first_way_point() -> None:
    away = 0
    for seed in range(6):
        now = a_team(seed, 4, Straight(5.0), horizon=25)
        routes, points = legs_of(now, Routes()), Routes().decide(now, TARGETED).points
        for agent in now.movers:
            assert (now.candidates[agent] == points[agent]).all(axis=1).any()
            if len(routes[agent]):
                here, first = now.positions[agent][None], routes[agent][0]
                leg = max(1, now.travel.rounds(agent, here, first[None])[0, 0])
                rest = now.travel.rounds(agent, points[agent][None], first[None])[0, 0]
                soonest = now.travel.rounds(agent, now.candidates[agent], first[None]).min()
                assert rest <= max(leg - 1, soonest)
                away += leg > 1
    assert away > 3


def test_a_robot_with_a_battery_can_always_return() -> None:
    """With a new plan each round, it is never farther from its base than the remaining rounds."""
    travel, base = Straight(9.0), np.array([50.0, 30.0])
    place = base + np.array([1.0, 0.0])
    for left in range(8, 0, -1):
        travel.left = {"r0": left}
        near = SITES[travel.rounds("r0", place[None], SITES)[0] <= 1]
        now = dataclasses.replace(a_team(0, 1, travel, horizon=30), positions={"r0": place}, candidates={"r0": near})
        place = Routes().decide(now, TARGETED).points["r0"]
        assert travel.rounds("r0", place[None], base[None])[0, 0] <= max(left - 1, 1)


@pytest.mark.parametrize("planner", [Routes(horizon=3), Routes()], ids=["routes of 3 rounds", "until the end"])
def test_a_robot_with_enough_battery_need_not_end_its_route_at_home(planner: Routes) -> None:
    """Five rounds from home, with three rounds to plan, it plans as without a battery."""
    far = {"r0": np.array([98.0, 30.0])}
    near = {"r0": SITES[Straight(9.0).rounds("r0", far["r0"][None], SITES)[0] <= 1]}
    found = []
    for left in ({}, {"r0": 9}):
        now = dataclasses.replace(a_team(0, 1, Straight(9.0, left), round=8), positions=far, candidates=near)
        found.append([stop.tolist() for stop in legs_of(now, planner)["r0"]])
    assert found[0] == found[1]
    assert len(found[0]) >= 2


def test_routes_keep_their_horizon_and_longer_ones_reduce_more_variance() -> None:
    reductions = []
    for horizon in (1, 3, 6):
        now = a_team(3, 3)
        routes = legs_of(now, Routes(horizon=horizon))
        visited = np.concatenate([route for route in routes.values() if len(route)])
        reductions.append(reduction(now.belief, TARGETED.utility(now), visited))  # pyright: ignore[reportArgumentType]
        for agent, route in routes.items():
            stops = [now.positions[agent], *route]
            ways = [max(1, now.travel.rounds(agent, a[None], b[None])[0, 0]) for a, b in itertools.pairwise(stops)]
            assert sum(ways) <= horizon
    assert reductions[0] < reductions[1] < reductions[2]


def test_routes_look_one_step_ahead_if_data_lose_weight_or_travel_times_are_unknown() -> None:
    forgetting, unknown = a_team(0, belief=some_belief(0, fades=True)), dataclasses.replace(a_team(0), travel=None)
    for now in (forgetting, unknown):
        in_turn, decided = Greedy().decide(now, TARGETED), Routes().decide(now, TARGETED)
        assert (places_of(decided), decided.report) == (places_of(in_turn), in_turn.report)
    assert Routes(horizon=4).decide(forgetting, TARGETED).report.rounds > 2  # a stated horizon is kept


@pytest.mark.parametrize(("share", "horizon"), [(0.9, 9), (0.0, 10)])
def test_with_few_rounds_or_without_exploration_routes_look_one_step_ahead(share: float, horizon: int) -> None:
    now = a_team(0, round=1, horizon=horizon)
    decided, in_turn = (each.decide(now, sb.DBGPUCB()) for each in (Routes(explore_share=share), Greedy()))
    assert (places_of(decided), decided.report) == (places_of(in_turn), in_turn.report)


def test_a_share_of_exploration_that_never_uses_the_acquisition_is_refused() -> None:
    assert Routes().explores(a_team(0, round=10), TARGETED)
    with pytest.raises(ConfigError, match=r"explore_share: got 1 with acquisition 'db-gp-ucb', which would never"):
        Routes(explore_share=1.0).decide(a_team(0), sb.DBGPUCB())


UCB = sb.DBGPUCB()


def upper(now: Situation, places: np.ndarray, given: list[np.ndarray], rule: sb.DBGPUCB = UCB) -> np.ndarray:
    """Upper confidence bounds, from joint posterior covariances and an inverse."""
    assert isinstance(now.belief, ExactGP)
    n = len(places)
    mean, cov = now.belief.joint_posterior(np.vstack([places, *given]))
    noise, across = now.belief.noise_variance * np.eye(len(given)), cov[:n, n:]
    var = np.diag(cov)[:n] - np.einsum("ij,jk,ik->i", across, np.linalg.inv(cov[n:, n:] + noise), across)
    return mean[:n] + rule.sqrt_beta(now) * np.sqrt(np.maximum(var, 0.0))


def an_ascent(now: Situation) -> tuple[float, dict[str, list[float]]]:
    """The rule of the class docstring, by brute force: rounds to the best place of all, and where agents measure."""
    left, places = (now.horizon or 0) - now.round + 1, planning_places(DOMAIN, SITES, 500)
    assert now.travel is not None
    ways = {a: np.maximum(now.travel.rounds(a, now.positions[a][None], places)[0], 1) for a in now.agents}
    back = {a: np.zeros(len(places)) for a in now.agents}
    for agent in now.agents:
        if (base := now.travel.base(agent)) is not None:
            back[agent] = np.maximum(now.travel.rounds(agent, places, base[None])[:, 0], 1)
    reached = {a: (ways[a] <= left) & (ways[a] + back[a] <= now.travel.rounds_left(a)) for a in now.agents}
    anyhow = np.flatnonzero(np.any(list(reached.values()), axis=0))
    nearest = -np.inf  # no agent can reach any place
    if len(anyhow):
        best = anyhow[upper(now, places[anyhow], []).argmax()]
        nearest = min(ways[agent][best] if reached[agent][best] else np.inf for agent in now.agents)
    goals, points = dict[str, np.ndarray](), dict[str, list[float]]()
    for agent in now.agents:
        others = list(goals.values())
        free = [n for n in np.flatnonzero(reached[agent]) if not any((places[n] == goal).all() for goal in others)]
        if free:
            goals[agent] = places[free][upper(now, places[free], others).argmax()]
    for agent in now.agents:
        near, base = np.array(now.candidates[agent]), now.travel.base(agent)
        near = near[[place.tolist() not in points.values() for place in near]]
        is_there = agent in goals and (near == goals[agent]).all(axis=1).any()
        if base is not None:
            near = near[now.travel.rounds(agent, near, base[None])[:, 0] <= now.travel.rounds_left(agent) - 1]
        if agent in goals and not is_there and len(near):
            rest = now.travel.rounds(agent, near, goals[agent][None])[:, 0]
            leg = max(1, now.travel.rounds(agent, now.positions[agent][None], goals[agent][None])[0, 0])
            near = near[rest <= max(leg - 1, rest.min())]
        others = list(map(np.array, points.values()))
        points[agent] = base.tolist() if not len(near) else near[upper(now, near, others).argmax()].tolist()
    return nearest, points


@pytest.mark.parametrize("left", [{}, {"r0": 6, "r1": 9}])
def test_agents_that_seek_the_peak_explore_until_it_is_time_to_go_there(left: dict[str, int]) -> None:
    seen = dict.fromkeys(("explores", "in time", "too late"), 0)
    for seed, round_ in itertools.product(range(2), (2, 9, 13, 15, 17, 20)):
        now = a_team(seed, 3, Straight(7.0, left), round=round_, horizon=20)
        decided = places_of(Routes().decide(now, sb.DBGPUCB()))
        rounds, up = an_ascent(now)
        if round_ <= 0.8 * 20 and 20 - round_ + 1 > rounds + 6:
            assert decided == places_of(Routes().decide(now, TargetedVariance(task="peak")))
            seen["explores"] += 1
        else:
            assert decided == up
            seen["in time" if round_ <= 0.8 * 20 else "too late"] += 1
    assert min(seen.values()) >= 2


class Walled(Straight):
    """No way leads through a wall."""

    def rounds(self, agent: str, origins: np.ndarray, places: np.ndarray) -> np.ndarray:
        is_parted = (origins[:, None, 0] > 70.0) != (places[None, :, 0] > 70.0)
        return np.where(is_parted, NEVER, super().rounds(agent, origins, places))


@pytest.mark.parametrize("own_views", [False, True])
@pytest.mark.parametrize("travel", [Walled(), Straight(6.0, dict.fromkeys(("r0", "r1", "r2"), 8))])
def test_unreachable_places_do_not_end_exploration(travel: Straight, own_views: bool) -> None:
    """They are never measured, so their upper bound remains the largest in every round."""
    rule, belief = sb.DBGPUCB(exploration="annealed"), ExactGP.create(ExactGPSettings(), DOMAIN)
    X = DOMAIN.from_unit(np.random.default_rng(0).random((12, 2)) * [0.6, 1.0])
    belief = belief.update(X, np.sin(X[:, 0] / 17.0)).fit(np.random.default_rng(0))
    now = a_team(0, 3, travel, belief=belief, round=2, horizon=12)
    here = {agent: np.array([20.0 + 12.0 * n, 30.0]) for n, agent in enumerate(now.agents)}
    near = {a: SITES[now.travel.rounds(a, here[a][None], SITES)[0] <= 1] for a in now.agents}
    now, places = dataclasses.replace(now, positions=here, candidates=near), planning_places(DOMAIN, SITES, 500)
    views = {a: belief.update(here[a][None], np.sin(here[a][:1] / 17.0)) if own_views else belief for a in now.agents}
    for view in views.values():
        assert places[upper(dataclasses.replace(now, belief=view), places, [], rule).argmax()][0] > 70.0
    now = dataclasses.replace(now, belief=Views(views, "r0") if own_views else belief)
    decided, explored = (Routes().decide(now, each) for each in (rule, TargetedVariance(task="peak")))
    assert places_of(decided) == places_of(explored)


def test_measured_places_are_not_way_points() -> None:
    now = a_team(2)
    visited = np.concatenate(list(legs_of(now, Routes()).values()))
    again = np.concatenate(list(legs_of(dataclasses.replace(now, measured=visited), Routes()).values()))
    assert not ({tuple(place) for place in visited} & {tuple(place) for place in again})


def test_the_contract_of_coordination_methods_holds() -> None:
    sb.testing.check_coordinator(Routes)
    sb.testing.check_coordinator(lambda: Routes(order="sequential", horizon=3, explore_share=0.5))


@pytest.mark.parametrize("round_", [2, 19], ids=["auction", "ascent"])
def test_with_nothing_left_to_measure_an_agent_heads_for_its_base(round_: int) -> None:
    now = a_team(travel=Straight(12.0, {"r1": 30}), round=round_, horizon=20)
    now = dataclasses.replace(now, candidates=dict.fromkeys(now.agents, SITES[:1]))
    points = Routes().decide(now, sb.DBGPUCB()).points
    assert {agent: place.tolist() for agent, place in points.items()} == {"r0": SITES[0].tolist(), "r1": [50.0, 30.0]}


@pytest.mark.parametrize("as_agents", [False, True])
def test_robots_that_sample_sites_never_meet_at_one(as_agents: bool) -> None:
    env = robot_team_v0.parallel_env(robots=4, field={"survey": "oxford-ph"}, max_cycles=5)
    transport = InProcess(as_agents=as_agents)
    team = sb.Team.for_env(env, acquisition="targeted-variance", coordination="routes", transport=transport)
    observations, infos = env.reset(seed=2)
    places = [tuple(info["location"]) for info in infos.values()]
    while env.agents:
        observations, *given, infos = env.step(team.act(observations, infos))
        team.observe(observations, *given, infos)
        places += [tuple(info["location"]) for info in infos.values()]
        assert all(info["reached"] for info in infos.values())
    assert len(set(places)) == len(places) == 24


@pytest.mark.parametrize("given", [np.ones((2, 3)), np.ones((3, 2), dtype=int), -np.ones((2, 3), dtype=int)])
def test_inadmissible_travel_rounds_are_refused_in_one_line(given: np.ndarray) -> None:
    class World:
        def travel_rounds(self, agent, origins, places):
            return given

    with pytest.raises(ShapeError, match=r"travel_rounds\('a', …\): got .*; wanted whole numbers \(2, 3\), >= 0"):
        WorldTravel(World()).rounds("a", np.zeros((2, 2)), np.zeros((3, 2)))
