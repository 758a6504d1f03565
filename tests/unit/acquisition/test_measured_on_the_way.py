"""Legs: what a place is worth with what is measured on the way to it, held to joint posteriors of sets."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition import Situation, choose_in_turn
from swarmbo.acquisition.chain_acquisition import local_acquisition
from swarmbo.acquisition.local_worth import LocalWorth
from swarmbo.acquisition.target_worth import TargetWorth
from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain
from swarmbo.transport import InProcess
from swarmbo.worlds.travel import WorldWay
from swarmbo_envs import robot_team_v1

DOMAIN = Domain(np.zeros(2), np.ones(2))
RNG = np.random.default_rng(0)
BELIEF = ExactGP.create(ExactGPSettings(), DOMAIN).update(RNG.random((6, 2)), RNG.normal(size=6)).fit(RNG)
TARGETS = RNG.random((30, 2))
TARGETED = TargetWorth(TARGETS, RNG.random(30), 0.05)
INFORMED = LocalWorth(1.3, 2.0, 0.4, neighbours_noise=0.1)
NOWHERE = np.full((1, 2), np.nan)


def legs(n: int, stops: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Places, and what is measured on the way to each: to some less than to others, to the last nothing."""
    rng = np.random.default_rng(seed)
    way = rng.random((n, stops, 2))
    way[1, -1], way[-1] = np.nan, np.nan
    return rng.random((n, 2)), way


def leg(places: np.ndarray, way: np.ndarray, n: int) -> np.ndarray:
    found = np.vstack([places[n], way[n]])
    return found[~np.isnan(found[:, 0])]


def taken_away(batch: np.ndarray) -> float:
    n = len(batch)
    cov = BELIEF.joint_posterior(np.concatenate([batch.reshape(n, 2), TARGETS]))[1]
    across = cov[:n, n:]
    noisy = cov[:n, :n] + TARGETED.noise_variance * np.eye(n)
    return float(TARGETED.weights @ np.diag(across.T @ np.linalg.solve(noisy, across)))


def log_psi(own: np.ndarray, others: np.ndarray) -> float:
    """Of an agent's own measurements, given those of others."""
    n, noise = len(own), INFORMED.noise_variance
    cov = BELIEF.joint_posterior(np.concatenate([own, others.reshape(-1, 2)]))[1]
    told = cov[n:, n:] + INFORMED.told_noise * np.eye(len(others))
    left = cov[:n, :n] - cov[:n, n:] @ np.linalg.solve(told, cov[n:, :n])
    return float(np.linalg.slogdet(np.eye(n) + left / noise)[1])


def test_a_leg_is_worth_all_that_is_measured_on_it():
    places, way = legs(40, 3, 1)
    told, ranked = TARGETED.with_way(BELIEF, places, way), INFORMED.with_way(BELIEF, places, way)
    for n in range(40):
        own = leg(places, way, n)
        assert told[n] == pytest.approx(taken_away(own), rel=1e-6)
        mean, cov = BELIEF.joint_posterior(own)
        noisy, total = cov + BELIEF.noise_variance * np.eye(len(own)), 0.0
        for row in range(len(own)):  # the place given its way, each stop given those after it
            given = noisy[row + 1 :, row + 1 :]
            total += cov[row, row] - cov[row, row + 1 :] @ np.linalg.solve(given, cov[row + 1 :, row])
        assert ranked[n] == pytest.approx(mean[0] + 1.3 * np.sqrt(total), rel=1e-6)
    alone = TARGETED.scores(BELIEF, places).value
    assert (told >= alone - 1e-9).all()
    assert told[-1] == pytest.approx(alone[-1])
    assert TARGETED.best_of(BELIEF, places, None, way) == told.argmax()


@pytest.mark.parametrize("declines", [False, True])
def test_tables_are_of_whole_legs(declines):
    options, ways = map(list, zip(*(legs(4, 2, seed) for seed in (2, 3, 4)), strict=True))
    ways[2] = ways[2][:, :0]  # one measures nothing on its way
    if declines:
        options[1], ways[1] = np.vstack([options[1], NOWHERE]), np.concatenate([ways[1], NOWHERE[None].repeat(2, 1)])
        options[0], ways[0] = np.vstack([options[0], NOWHERE]), np.concatenate([ways[0], NOWHERE[None].repeat(2, 1)])
    targeted = local_acquisition(BELIEF, options, TARGETED, 0.25, ways)
    informed = local_acquisition(BELIEF, options, INFORMED, 0.25, ways)
    for choice in np.ndindex(*targeted.shape):
        first, *others = (leg(places, way, n) for places, way, n in zip(options, ways, choice, strict=True))
        given = np.concatenate(others)
        if not len(first):
            assert (targeted[choice], informed[choice]) == (0.0, 0.0)
            continue
        wanted = taken_away(np.concatenate([first, given])) - taken_away(given)
        assert targeted[choice] == pytest.approx(wanted - 0.25, rel=1e-6)
        merit = BELIEF.posterior(first[:1])[0][0]
        assert informed[choice] == pytest.approx(merit + 2.0 * np.sqrt(log_psi(first, given)) - 0.25, rel=1e-6)
        rows = np.concatenate([first, given])
        for worth, table in ((TARGETED, targeted), (INFORMED, informed)):
            value = worth.jointly(BELIEF, rows).of_first(range(len(rows)), own=len(first))
            assert value - 0.25 == pytest.approx(table[choice], rel=1e-6)


def a_situation(**more) -> Situation:
    line = np.linspace(0.0, 1.0, 21)
    near = {"a": np.array([[1.0, 0.5]]), "b": np.column_stack([line, np.full(21, 0.55)])}
    positions = {"a": np.array([0.0, 0.5]), "b": np.array([0.5, 0.55])}
    belief = ExactGP.create(ExactGPSettings(), DOMAIN)
    given = {"agents": ("a", "b"), "candidates": near, "positions": positions, "starts": {}, "belief": belief}
    return Situation(**given, links=None, domain=DOMAIN, round=1, horizon=5, seed=0, **more)  # pyright: ignore[reportArgumentType]


def along(agent: str, origin: np.ndarray, places: np.ndarray) -> np.ndarray:
    shares = np.array([0.25, 0.5, 0.75])[:, None]
    return origin + shares * (places - origin)[:, None]


def test_others_take_what_is_measured_on_a_leg_as_measured():
    """Each is given the whole legs of those before it."""
    now, given = a_situation(on_the_way=along), list[np.ndarray]()

    def choose(agent: str, belief: ExactGP, places: np.ndarray) -> int:
        given.append(np.sqrt(belief.posterior(np.array([[0.25, 0.5], [0.75, 0.5], [0.5, 0.9]]))[1]))
        return 0

    choose_in_turn(now, choose)  # pyright: ignore[reportArgumentType]
    prior = np.sqrt(now.belief.prior_variance)
    assert (given[0] > 0.9 * prior).all()
    assert (given[1][:2] < 0.3 * prior).all()  # a passes there
    assert (
        now.leg("a", now.candidates["a"][0])[1:] == along("a", np.array([0.0, 0.5]), np.array([[1.0, 0.5]]))[0]
    ).all()


def make(**more):
    plain = {"field": {"elevation": "jacksboro", "window": [0, 0, 40, 40]}, "robots": 3, "samples_per_leg": 2}
    return robot_team_v1.parallel_env(**{**plain, "max_cycles": 2, "noise_std": 1.0, **more})


def played(acquisition, coordination, as_agents=False, **more) -> list[list[float]]:
    env, transport = make(**more), InProcess(as_agents=as_agents)
    team = sb.Team.for_env(env, acquisition=acquisition, coordination=coordination, seed=0, transport=transport)
    observations, infos = env.reset(seed=0)
    went = []
    while env.agents:
        told = env.step(team.act(observations, infos))
        team.observe(*told)
        observations, infos = told[0], told[4]
        went += [info["location"].tolist() for info in infos.values()]
    return went


@pytest.mark.parametrize(
    ("acquisition", "coordination"),
    [("targeted-variance", "greedy"), ("information", "exact"), ("targeted-variance", "routes")],
)
def test_teams_count_on_it_where_the_world_says_so_unless_told_not_to(acquisition, coordination):
    counting = played(acquisition, coordination)
    blind = played({"kind": acquisition, "on_the_way": False}, coordination)
    assert counting != blind
    without = played(acquisition, coordination, samples_per_leg=0)
    assert without == played({"kind": acquisition, "on_the_way": False}, coordination, samples_per_leg=0)


def test_agents_with_messages_decide_alike():
    for coordination in ("max-sum", "routes"):
        few = {"robots": 2, "max_cycles": 2, "sample_every_m": 150.0, "samples_per_leg": 0, "battery_s": 900.0}
        alone, by_messages = (played("targeted-variance", coordination, as_agents=own, **few) for own in (False, True))
        assert alone == by_messages


@pytest.mark.parametrize(
    "told", [np.ones((2, 2)), np.ones((3, 1, 2)), np.array([[[1.0, np.nan]], [[1.0, 1.0]]]), np.full((2, 1, 2), np.inf)]
)
def test_ways_that_make_no_sense_are_refused_in_one_line(told):
    class World:
        def on_the_way(self, agent, origin, places):
            return told

    with pytest.raises(ShapeError, match=r"on_the_way\('a', …\): got .*; wanted numbers \(2, k, 2\), or NaN"):
        WorldWay(World())("a", np.zeros(2), np.zeros((2, 2)))
