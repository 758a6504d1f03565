import dataclasses
import functools

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition import DBGPUCB, Situation
from swarmbo.baselines import Greedy, Independent, LawnMower, Random
from swarmbo.baselines.planners import SweptGround, ground_of, sweep
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.errors import ConfigError
from swarmbo.spaces import Domain

DOMAIN = Domain(np.zeros(2), np.array([100.0, 60.0]))
LATTICE = np.array([(x, y) for x in np.linspace(0, 100, 21) for y in np.linspace(0, 60, 13)])


@functools.lru_cache
def some_belief() -> ExactGP:
    rng = np.random.default_rng(0)
    X = DOMAIN.from_unit(rng.random((8, 2)))
    return ExactGP.create(ExactGPSettings(), DOMAIN).update(X, np.sin(X[:, 0] / 9.0) + X[:, 1] / 30.0).fit(rng)


def situation(candidates=None, horizon: int | None = 10, round_number: int = 1, seed: int = 0) -> Situation:
    agents = ("robot_0", "robot_1", "robot_2")
    candidates = candidates or dict.fromkeys(agents, LATTICE)
    starts = {agent: np.array([x, 5.0]) for agent, x in zip(agents, (90.0, 10.0, 50.0), strict=True)}
    return Situation(agents, candidates, starts, starts, some_belief(), None, DOMAIN, round_number, horizon, seed)


def test_independent_agents_with_equal_choices_all_take_the_place_of_highest_ucb():
    now = situation()
    mean, var = now.belief.posterior(LATTICE)
    best = LATTICE[(mean + DBGPUCB().sqrt_beta(now) * np.sqrt(var)).argmax()]
    decision = Independent().decide(now, DBGPUCB())
    assert all((point == best).all() for point in decision.points.values())
    assert decision.report.messages == 0


def test_greedy_starts_like_independent_never_repeats_a_place_and_skips_agents_without_places():
    now = situation()
    first = Independent().decide(now, DBGPUCB()).points["robot_0"]
    decision = Greedy().decide(now, DBGPUCB())
    assert (decision.points["robot_0"] == first).all()
    assert len({tuple(point) for point in decision.points.values()}) == 3
    assert decision.report.messages == 0  # all agents know the same, so each can compute all choices
    only = {"robot_0": LATTICE[:1], "robot_1": LATTICE[:1], "robot_2": LATTICE}
    assert set(Greedy().decide(situation(only), DBGPUCB()).points) == {"robot_0", "robot_2"}


def test_random_draws_are_spread_and_depend_on_seed_agent_and_round_only():
    def drawn(round_number):
        points = Random().decide(situation(seed=1, round_number=round_number), DBGPUCB()).points
        return {agent: tuple(point) for agent, point in points.items()}

    assert drawn(1) == drawn(1) != drawn(2)
    assert len(set(drawn(1).values())) == 3
    assert len({drawn(r)["robot_0"] for r in range(1, 200)}) > 100


def test_lawn_mower_strips_go_from_west_to_east_by_start_and_are_swept_in_full():
    visited = {agent: [] for agent in ("robot_0", "robot_1", "robot_2")}
    for r in range(1, 41):
        for agent, point in LawnMower().decide(situation(horizon=40, round_number=r), DBGPUCB()).points.items():
            visited[agent].append(point)
    x = {agent: np.array(points)[:, 0] for agent, points in visited.items()}
    assert x["robot_1"].max() <= x["robot_2"].min() + 5.0
    assert x["robot_2"].max() <= x["robot_0"].min() + 5.0
    everything = np.concatenate([np.array(points) for points in visited.values()])
    gaps = np.linalg.norm(LATTICE[:, None] - everything[None], axis=-1).min(axis=1)
    assert gaps.max() < 12.0  # 120 points on 100 x 60: spacing about 7


@pytest.mark.parametrize("n_points", [1, 2, 7, 50])
def test_a_sweep_stays_in_its_strip_and_is_evenly_spaced(n_points):
    plan = sweep(ground_of(DOMAIN, None), 1, 4, n_points)
    assert plan.shape == (n_points, 2)
    assert ((plan >= [25.0, 0.0]) & (plan <= [50.0, 60.0])).all()
    steps = np.abs(np.diff(plan, axis=0)).sum(axis=1)  # along the tracks and the turns between them
    if n_points > 10:  # shorter only where a step cuts a turn
        assert (steps <= np.median(steps) + 1e-9).all()
        assert np.isclose(steps, np.median(steps)).mean() > 0.8
    if n_points > 1:
        assert plan[0, 1] < 30.0  # begins in the south if the position of the agent is unknown


def test_a_sweep_begins_at_its_start_and_never_steps_beyond_its_reach():
    for start, reach in [((49.0, 60.0), 5.0), ((90.0, 3.0), 9.0), ((30.0, 30.0), 2.0)]:
        plan = np.array([start, *sweep(ground_of(DOMAIN, None), 1, 4, 25, start, reach)])
        steps = np.linalg.norm(np.diff(plan, axis=0), axis=1)
        assert steps.max() <= reach + 1e-9
        assert np.median(steps) > 0.9 * min(reach, 8.0)
    assert (sweep(ground_of(DOMAIN, None), 1, 4, 25, (30.0, 55.0), 2.0)[-1] < [50.0, 40.0]).all()  # more is left there


PLACES = [(x, y) for x in np.linspace(1, 99, 50) for y in np.linspace(1, 59, 30)]
SHORE = np.array([(x, y) for x, y in PLACES if not (30 < x < 70 and 10 < y < 50)])


def test_tracks_are_cut_at_closed_areas_and_swept_in_cells_on_either_side():
    """Every open place is near the sweep, no track crosses the lake, and detours have their true length."""
    ground = ground_of(DOMAIN, SHORE)
    assert len(ground.open_parts(50.0, 3.0, 57.0)) == 2
    assert len(ground.open_parts(10.0, 3.0, 57.0)) == 1
    across = ground.distances(np.array([25.0, 30.0]), np.array([[75.0, 30.0], [25.0, 50.0]]))
    around = 2 * np.hypot(5.0, 20.0) + 40.0
    assert around * 0.9 < across[0] < around * 1.15
    assert across[1] == pytest.approx(20.0)
    plan = np.array([(5.0, 5.0), *sweep(ground, 0, 1, 120, (5.0, 5.0), 9.0)])
    assert np.linalg.norm(SHORE[:, None] - plan, axis=-1).min(axis=1).max() < 9.0
    assert ground.are_visible(plan[:-1], plan[1:]).mean() > 0.95


def test_a_lawn_mower_gets_round_a_wall_and_covers_what_is_behind_it():
    """Agents move to visible places; one that went to the nearest place would stop at the wall."""
    wall = np.array([(x, y) for x, y in SHORE if not (28 < x < 34 and y < 52)])
    ground, place, start = SweptGround(DOMAIN, wall), np.array([5.0, 5.0]), np.array([5.0, 5.0])
    seen = [place]
    for round_ in range(1, 61):
        near = wall[np.linalg.norm(wall - place, axis=1) <= 12.0]
        near = near[ground.are_visible(np.broadcast_to(place, near.shape), near)]
        alone = {"agents": ("robot_0",), "positions": {"robot_0": place}, "starts": {"robot_0": start}, "sites": wall}
        now = dataclasses.replace(situation({"robot_0": near}, horizon=60, round_number=round_), **alone)
        place = LawnMower().decide(now, DBGPUCB()).points["robot_0"]
        seen.append(place)
    off = np.linalg.norm(wall[:, None] - np.array(seen), axis=-1).min(axis=1)
    assert (off < 12.0).mean() > 0.97


@pytest.mark.parametrize("n_sites", [10, 1000, pytest.param(6000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("start", [None, (10.0, 6.0)])
def test_sweeps_reach_sites_in_clusters_that_are_small_compared_with_the_map(n_sites, start):
    noise = np.random.default_rng(0).uniform(-0.1, 0.1, (2, n_sites // 2, 2))
    sites = noise + np.array([[[10.0, 6.0]], [[90.0, 54.0]]])
    ground = ground_of(DOMAIN, sites.reshape(-1, 2))
    for strip, own in enumerate(sites):
        plan = sweep(ground, strip, 2, 40, start)
        off = np.linalg.norm(own[:, None] - plan, axis=-1)
        assert off.min(axis=1).max() < (30.0 if n_sites == 10 else 0.3)  # few sites are passed at a distance


def test_lawn_mower_strips_stay_when_an_agent_leaves():
    now = situation(round_number=5)
    fewer = dataclasses.replace(now, agents=now.agents[1:])
    one, other = (LawnMower().decide(each, DBGPUCB()).points["robot_2"] for each in (now, fewer))
    assert (one == other).all()


def test_lawn_mower_needs_a_horizon():
    with pytest.raises(ConfigError, match="rounds"):
        LawnMower().decide(situation(horizon=None), DBGPUCB())


@pytest.mark.parametrize("side", [2.0**-44, 3.7])
def test_a_lawn_mower_sweeps_the_same_in_every_unit_of_length(side):
    def swept(side):
        settings = {"coordination": "lawn-mower", "rounds": 6, "seed": 0}
        team = sb.Team.for_field(["a", "b"], [0.0, 0.0], [side, side], **settings)
        out, here = [], {"a": np.array([0.2, 0.1]), "b": np.array([0.8, 0.1])}
        for turn in range(6):
            near = {a: np.random.default_rng(turn).uniform(-0.25, 0.25, (40, 2)) + place for a, place in here.items()}
            query = team.ask({agent: np.clip(places, 0.0, 1.0) * side for agent, places in near.items()})
            here = {agent: place / side for agent, place in query.points.items()}
            team.tell(query, dict.fromkeys(query.points, 1.0))
            out.append([*here["a"], *here["b"]])
        return np.array(out)

    np.testing.assert_allclose(swept(side), swept(1.0), rtol=1e-9)
