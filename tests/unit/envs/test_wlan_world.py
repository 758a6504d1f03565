"""What changes in a WLAN: noise, failures, users who walk, leave and return; what is told of the truth, and drawn."""

import math

import numpy as np
import pytest

from swarmbo.boundary import look
from swarmbo.errors import ConfigError
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power import Network, references
from swarmbo_envs.wlan_power.rendering import sinr_map

PAIR = {"access_points": [[0, 0], [60, 0]], "users": [[5, 0], [40, 0], [55, 5]]}


def begun(**arguments):
    env = wlan_power_v0.parallel_env(**arguments)
    env.reset(seed=0)
    return env


def steps(env, rounds, power=15.0, seed=0):
    """Infos of some rounds at equal power."""
    env.reset(seed=seed)
    return [env.step({agent: [power] for agent in env.agents})[4] for _ in range(rounds)]


def test_the_noise_of_outcomes_adds_up_to_that_of_a_total():
    by_factor = wlan_power_v0.parallel_env(topology=PAIR, noise_std=4.0, max_cycles=1000)
    true = by_factor.network.factor_values(np.full((1, 2), 15.0))[0]
    told = np.array([[info["measurement"] for info in infos.values()] for infos in steps(by_factor, 1000)])
    assert told.std(axis=0) == pytest.approx([4.0 / math.sqrt(2)] * 2, rel=0.06)
    assert told.sum(axis=1).std() == pytest.approx(4.0, rel=0.06)
    assert told.mean(axis=0) == pytest.approx(true, abs=0.3)
    totals = wlan_power_v0.parallel_env(topology=PAIR, noise_std=4.0, max_cycles=1000, outcomes="total")
    told = np.array([[info["measurement"] for info in infos.values()] for infos in steps(totals, 1000)])
    assert (told[:, 0] == told[:, 1]).all()
    assert told[:, 0].std() == pytest.approx(4.0, rel=0.06)
    assert told[:, 0].mean() == pytest.approx(true.sum(), abs=0.4)


def test_an_access_point_without_users_measures_nothing_noise_included():
    env = wlan_power_v0.parallel_env(topology=PAIR | {"serving": [1, 1, 1]}, noise_std=4.0)
    for infos in steps(env, 5):
        assert infos["ap_0"]["measurement"] == 0.0
        assert infos["ap_1"]["measurement"] != env.network.value(np.full((1, 2), 15.0))[0]


def test_measurements_fail_as_often_as_asked_for_each_on_its_own_and_whatever_their_noise():
    rare = wlan_power_v0.parallel_env(topology=PAIR, noise_std=4.0, failure_rate=0.8, max_cycles=1200)
    told = np.array([[i.get("measurement", np.nan) for i in infos.values()] for infos in steps(rare, 1200)])
    assert np.nanstd(told, axis=0) == pytest.approx([4.0 / math.sqrt(2)] * 2, rel=0.15)
    env = wlan_power_v0.parallel_env(topology=PAIR, failure_rate=0.3, max_cycles=1500)
    failed = np.array([["measurement" not in info for info in infos.values()] for infos in steps(env, 1500)])
    assert failed.mean(axis=0) == pytest.approx([0.3, 0.3], abs=0.04)
    assert failed.all(axis=1).mean() == pytest.approx(0.09, abs=0.03)
    totals = wlan_power_v0.parallel_env(topology=PAIR, failure_rate=0.3, max_cycles=500, outcomes="total")
    for infos in steps(totals, 500):
        assert len({"measurement" not in info for info in infos.values()}) == 1


def test_users_walk_as_far_as_asked_for_and_stay_in_the_area():
    many = {"generated": {"users": 400, "area_m": [600.0, 600.0]}}
    env = begun(topology=many, mobility_m=2.0, max_cycles=30)
    before = env.get_state()["arrays"]["users"]
    env.step({agent: [10.0] for agent in env.agents})
    after = env.get_state()["arrays"]["users"]
    inside = ((before > 20.0) & (before < 580.0)).all(axis=1)
    assert (after - before)[inside].std() == pytest.approx(2.0, rel=0.1)
    wild = wlan_power_v0.parallel_env(mobility_m=200.0, max_cycles=10)
    steps(wild, 10)
    places = wild.get_state()["arrays"]["users"]
    assert places.min() >= 0.0
    assert places.max() <= 300.0
    assert len(np.unique(places, axis=0)) == 36


def test_users_choose_the_access_point_of_least_loss_as_they_walk_unless_they_are_bound():
    env = wlan_power_v0.parallel_env(topology=PAIR, mobility_m=30.0, max_cycles=20)
    bound = wlan_power_v0.parallel_env(topology=PAIR | {"serving": [0, 0, 1]}, mobility_m=30.0, max_cycles=20)
    env.reset(seed=1)
    bound.reset(seed=1)
    seen = set()
    for _ in range(20):
        env.step({agent: [10.0] for agent in env.agents})
        bound.step({agent: [10.0] for agent in bound.agents})
        users = env.get_state()["arrays"]["users"]
        assert env.network.serving.tolist() == [int(math.dist(u, (60, 0)) < math.dist(u, (0, 0))) for u in users]
        assert bound.network.serving.tolist() == [0, 0, 1]
        seen.add(tuple(env.network.serving))
    assert len(seen) > 1


def test_users_leave_and_return_as_often_as_asked_for():
    env = begun(topology={"generated": {"users": 200}}, leave_rate=0.1, return_rate=0.3, max_cycles=200)
    there = [np.ones(200, dtype=bool)]
    for _ in range(200):
        *_, infos = env.step({agent: [10.0] for agent in env.agents})
        there.append(env.get_state()["arrays"]["present"])
        assert sum(info["users"] for info in infos.values()) == there[-1].sum()
    before, after = np.array(there[:-1]), np.array(there[1:])
    assert (before & ~after).sum() / before.sum() == pytest.approx(0.1, abs=0.01)
    assert (~before & after).sum() / (~before).sum() == pytest.approx(0.3, abs=0.02)


def test_who_left_as_stated_may_return_by_chance_and_then_stays():
    env = wlan_power_v0.parallel_env(topology=PAIR, departures=[[2, 1]], return_rate=1.0, max_cycles=4)
    present = []
    for round_number in range(1, 5):
        steps(env, round_number)
        present.append(bool(env.network.present[1]))
    assert present == [True, False, True, True]


def test_a_stated_departure_happens_in_its_round_in_every_episode():
    env = wlan_power_v0.parallel_env(topology=PAIR, departures=[[3, 1], [4, 0]], max_cycles=5)
    counts = [sum(info["users"] for info in infos.values()) for infos in steps(env, 5)]
    assert counts == [3, 3, 2, 1, 1]
    assert [sum(info["users"] for info in infos.values()) for infos in steps(env, 5)] == counts
    env.reset()
    assert env.network.n_users.sum() == 3


def test_the_truth_is_told_where_there_is_one():
    env = begun(noise_std=50.0)
    truth = env.ground_truth()
    assert truth.values == pytest.approx(env.network.factor_values(truth.points).sum(axis=1))
    assert truth.values.max() < truth.maximum == pytest.approx(truth.value(truth.argmax[None])[0])
    assert (truth.unit, truth.axis_unit) == ("Mbit/s", "dBm")
    assert ((truth.points >= 1.0) & (truth.points <= 25.0)).all()
    for changing in ({"mobility_m": 1.0}, {"leave_rate": 0.1}, {"departures": [[2, 1]]}):
        assert wlan_power_v0.parallel_env(**changing).ground_truth() is None


def test_an_agent_sees_its_own_power_its_outcome_and_the_powers_of_those_it_hears_only():
    env = wlan_power_v0.parallel_env(
        topology={"access_points": [[0, 0], [60, 0], [160, 0], [140, 5]], "users": [[5, 0]]}
    )
    env.reset(seed=0)
    powers = dict(zip(env.possible_agents, [3.0, 5.0, 7.0, 11.0], strict=True))
    observations, _, _, _, infos = env.step({agent: [power] for agent, power in powers.items()})
    for agent, seen in observations.items():
        neighbours = sorted(env.interaction_graph()[agent])
        expected = [powers[agent], infos[agent]["measurement"], 1 - 1 / 60, *(powers[other] for other in neighbours)]
        assert seen.tolist() == pytest.approx(expected)
    assert len(observations["ap_0"]) == 4  # those at 140 and 160 m are too far


SMALL = {"generated": {"access_points": 4, "users": 9, "area_m": [150.0, 150.0]}}


@pytest.mark.parametrize(
    "arguments",
    [{}, {"interference": "all", "shadowing_db": 4.0}, {"channels": [36, 40, 44, 48], "widths_mhz": [20, 40]}],
    ids=str,
)
def test_every_agent_owns_its_power_and_the_factor_of_its_users(arguments):
    env = wlan_power_v0.parallel_env(topology=SMALL, **arguments)
    told, links = env.factor_graph(), env.interaction_graph()
    for i, agent in enumerate(env.possible_agents):
        assert told["variable_owners"][f"power_{i}"] == told["owners"][f"capacity_{i}"] == agent
        assert told["bounds"][f"power_{i}"] == (1.0, 25.0)
        others = {told["variable_owners"][variable] for variable in told["scopes"][f"capacity_{i}"]} - {agent}
        assert others == set(links[agent])


def test_references_stay_in_their_budget_and_come_out_as_by_hand():
    env = wlan_power_v0.parallel_env(airtime="full")  # without a largest rate
    found = references(env.network, 1.0, 25.0, budget=60)
    for name, reference in found.items():
        assert reference.evaluations <= 60
        assert reference.value == pytest.approx(env.network.value(reference.point[None])[0])
        assert reference.value <= env.best_known()[1] + 1e-9, name
    equal = [env.network.value(np.full((1, 12), power))[0] for power in np.linspace(1.0, 25.0, 60)]
    assert found["equal"].value == pytest.approx(max(equal))
    assert found["maximum"].value == pytest.approx(equal[-1])
    assert (found["independent"].point == 25.0).all()  # more power never hurts one's own users
    assert found["greedy"].value > found["maximum"].value
    long = references(env.network, 1.0, 25.0, budget=2000)["greedy"]
    for i in range(12):  # a joint setting that no access point alone can better on the levels
        for level in np.linspace(1.0, 25.0, 5):
            other = long.point.copy()
            other[i] = level
            assert env.network.value(other[None])[0] <= long.value + 1e-9
    with pytest.raises(ConfigError, match="budget 0"):
        references(env.network, 1.0, 25.0, budget=0)


def test_two_that_disturb_each_other_are_better_off_with_one_of_them_quiet():
    network = Network(
        loss_db=np.array([[70.0, 72.0], [72.0, 70.0]]),
        serving=np.array([0, 1]),
        present=np.ones(2, dtype=bool),
        disturbs=~np.eye(2, dtype=bool),
        noise_mw=10**-9.4,
        bandwidth_mhz=20.0,
    )
    found = references(network, 1.0, 25.0, budget=60)
    assert sorted(found["greedy"].point) == [1.0, 25.0]


def test_the_map_shows_what_a_user_would_get_at_each_place():
    env = wlan_power_v0.parallel_env()
    powers = np.linspace(1.0, 25.0, 12)
    places = np.vstack([env.topology.users, [[150.0, 10.0]]])
    shown = sinr_map(env.topology, env.network, powers, places)
    assert shown[:36] == pytest.approx(10 * np.log10(env.network.sinr(powers[None])[0]))


@pytest.mark.parametrize("topology", [None, {"access_points": [[0, 0]]}])
def test_pictures_change_with_powers_and_fit_any_topology(topology):
    env = begun(topology=topology, render_mode="rgb_array", max_cycles=3)
    first = env.render()
    env.step({agent: [25.0] for agent in env.agents})
    second = env.render()
    assert first.shape == second.shape == (640, 1200, 3)
    assert (first != second).mean() > 0.01


def test_each_of_twelve_access_points_is_seen_in_a_colour_of_its_own_at_the_least_power_too():
    env = begun(render_mode="rgb_array")
    env.step({agent: [1.0] for agent in env.agents})
    bars = env.render()[:215, 700:].reshape(-1, 3)
    colours = {look.agent_colour(number) for number in range(12)}
    assert len(colours) == 12
    for colour in colours:
        wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        assert (bars == wanted).all(axis=1).sum() > 50, colour


def test_text_says_what_the_network_gets():
    env = begun(topology=PAIR, render_mode="ansi")
    assert env.render() == "WLAN: round 0 of 60, nothing measured, powers 13.0 13.0 dBm\n"
    env.step({"ap_0": [1.0], "ap_1": [25.0]})
    total = env.network.value(np.array([[1.0, 25.0]]))[0]
    assert env.render() == f"WLAN: round 1 of 60, {total:.1f} Mbit/s, powers 1.0 25.0 dBm\n"
    unseen = wlan_power_v0.parallel_env(topology=PAIR)
    unseen.reset(seed=0)
    with pytest.raises(ConfigError, match=r"\$\.render_mode: got None"):
        unseen.render()
