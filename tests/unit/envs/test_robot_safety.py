"""No robot enters a no-go region, comes too near to another, or runs out of battery away from its base."""

from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import swarmbo as sb

from .random_terrain import Witness, terrains

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*(are shut by cells|may pass through each other):swarmbo.errors.DataWarning"
)

FEW = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate]
)  # no shrinking: it takes minutes
SEEDS = st.integers(0, 10**6)
thorough, slow = pytest.mark.thorough, pytest.mark.slow


def in_worlds(drive, n_worlds, *drawn):
    """A test that drives in `n_worlds` random environments."""
    return settings(FEW, max_examples=n_worlds)(given(terrains(), *drawn)(drive))


def drive_at_random(arguments, seed):
    world = Witness(arguments, seed)
    generator = np.random.default_rng(seed)
    boxes = {agent: world.env.action_space(agent) for agent in world.env.agents}
    while world.env.agents:
        world.step({agent: generator.uniform(box.low, box.high) for agent, box in boxes.items()})


def drive_as_a_team(arguments, seed):
    play(arguments, seed, "in-process", ("exact", "greedy", "lawn-mower", "random"))


def play(arguments, seed, transport, kinds, rounds=4, **more):
    world = Witness({**arguments, "max_cycles": rounds}, seed)
    kind = kinds[seed % len(kinds)]
    team = sb.Team.for_env(world.env, coordination=kind, transport=transport, seed=seed, **more)
    observations, infos = world.seen
    while world.env.agents:
        result = world.step(team.act(observations, infos))
        team.observe(*result)
        observations, infos = result[0], result[4]


def drive_rovers(arguments, seed):
    """The same with wheels on slippery ground."""
    slippery = {"friction": (1.0, 0.35)[seed % 2], "relief_m": (60.0, 200.0)[seed // 2 % 2]}
    rovers = {"rover_m": 4.0, "step_s": 0.02, "terrain_cells": 32, **slippery}
    still = {"wind": (0.0, 0.0), "max_cycles": 3, "physics": {"mujoco": rovers}}
    drive_at_random({**arguments, **still}, seed)


@st.composite
def faults(draw):
    """Links that lose, delay and duplicate messages, and perhaps a robot that stops sending."""
    silent = {"agent": "robot_0", "round": draw(st.integers(1, 3)), "step": draw(st.integers(0, 6))}
    return {
        "kind": "faulty",
        "loss": draw(st.sampled_from([0.1, 0.4, 0.7])),
        "delay": draw(st.integers(0, 3)),
        "duplicate": draw(st.sampled_from([0.0, 0.3])),
        "deaths": draw(st.sampled_from([(), (silent,)])),
        "seed": draw(st.integers(0, 10**6)),
    }


def drive_over_bad_links(arguments, transport, seed):
    """Decide by a deadline, whatever arrives: robots stay safe even without any agreement."""
    play(arguments, seed, transport, ({"kind": "max-sum", "mode": "asynchronous"}, "exact"))


def drive_along_routes(arguments, transport, acquisition, seed):
    """Follow planned routes for 12 rounds."""
    play(arguments, seed, transport, ["routes"], rounds=12, acquisition=acquisition)


PLANNERS = st.just("in-process") | faults(), st.sampled_from(["targeted-variance", "db-gp-ucb"]), st.integers(0, 99)
needs_mujoco = pytest.mark.skipif(find_spec("mujoco") is None, reason="needs the extra `mujoco`")

test_teams_stay_safe = in_worlds(drive_as_a_team, 8, SEEDS)
test_teams_stay_safe_in_a_hundred_worlds = slow(in_worlds(drive_as_a_team, 100, SEEDS))
test_robots_with_random_actions_stay_safe = thorough(in_worlds(drive_at_random, 25, SEEDS))
test_robots_stay_safe_in_a_thousand_worlds = slow(in_worlds(drive_at_random, 1000, SEEDS))
test_rovers_stay_safe_on_slippery_ground = needs_mujoco(thorough(in_worlds(drive_rovers, 6, SEEDS)))
test_teams_stay_safe_over_faulty_links = thorough(in_worlds(drive_over_bad_links, 6, faults(), SEEDS))
test_teams_stay_safe_over_faulty_links_in_a_thousand_worlds = slow(
    in_worlds(drive_over_bad_links, 1000, faults(), SEEDS)
)
test_teams_that_plan_routes_stay_safe = thorough(in_worlds(drive_along_routes, 4, *PLANNERS))


@pytest.mark.thorough
@settings(FEW, max_examples=8)
@given(terrains(), SEEDS)
def test_every_candidate_is_reached_and_leaves_enough_battery_to_return(arguments, seed):
    """Without a separation, so that no robot must make way for another."""
    world = Witness({**arguments, "separation_m": 0.0}, seed)
    generator, env = np.random.default_rng(seed), world.env
    for _ in range(3):
        offered = {agent: env.candidates(agent) for agent in env.agents}
        sent = {a: X[generator.integers(len(X))] if len(X) else env.state()[:2] for a, X in offered.items()}
        result = world.step(sent)
        assert all(result[4][agent]["reached"] for agent, X in offered.items() if len(X))
    for _ in range(40):  # robots that turn back now get home
        if not env.agents or env.base("robot_0") is None:
            return
        env.max_cycles = 100
        world.step({agent: env.base(agent) for agent in env.agents})
    assert all((env.base(agent) == env._current().poses[n, :2]).all() for n, agent in enumerate(env.agents))
