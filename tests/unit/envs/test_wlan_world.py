"""A WLAN over time: noise, failures, users that move, leave and return; its ground truth, references and pictures."""

import math

import numpy as np
import pytest

from swarmbo.boundary import look
from swarmbo.errors import ConfigError
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power import Network, references, rendering
from swarmbo_envs.wlan_power.rendering import sinr_map

PAIR = {"access_points": [[0, 0], [60, 0]], "users": [[5, 0], [40, 0], [55, 5]]}


def begun(**arguments):
    env = wlan_power_v0.parallel_env(**arguments)
    env.reset(seed=0)
    return env


def steps(env, rounds, power=15.0, seed=0):
    """Infos of some rounds with equal powers."""
    env.reset(seed=seed)
    return [env.step({agent: [power] for agent in env.agents})[4] for _ in range(rounds)]


def test_noise_of_outcomes_adds_up_to_the_noise_of_a_total():
    by_factor = wlan_power_v0.parallel_env(topology=PAIR, noise_std=4.0, max_cycles=1000)
    true = by_factor.network.factor_values(np.full((1, 2), 15.0))[0]
    measured = np.array([[info["measurement"] for info in infos.values()] for infos in steps(by_factor, 1000)])
    assert measured.std(axis=0) == pytest.approx([4.0 / math.sqrt(2)] * 2, rel=0.06)
    assert measured.sum(axis=1).std() == pytest.approx(4.0, rel=0.06)
    assert measured.mean(axis=0) == pytest.approx(true, abs=0.3)
    totals = wlan_power_v0.parallel_env(topology=PAIR, noise_std=4.0, max_cycles=1000, outcomes="total")
    measured = np.array([[info["measurement"] for info in infos.values()] for infos in steps(totals, 1000)])
    assert (measured[:, 0] == measured[:, 1]).all()
    assert measured[:, 0].std() == pytest.approx(4.0, rel=0.06)
    assert measured[:, 0].mean() == pytest.approx(true.sum(), abs=0.4)


def test_an_access_point_without_users_measures_zero_without_noise():
    env = wlan_power_v0.parallel_env(topology=PAIR | {"serving": [1, 1, 1]}, noise_std=4.0)
    for infos in steps(env, 5):
        assert infos["ap_0"]["measurement"] == 0.0
        assert infos["ap_1"]["measurement"] != env.network.value(np.full((1, 2), 15.0))[0]


def test_measurements_fail_at_the_requested_rate_independently_of_each_other_and_of_noise():
    rare = wlan_power_v0.parallel_env(topology=PAIR, noise_std=4.0, failure_rate=0.8, max_cycles=1200)
    measured = np.array([[i.get("measurement", np.nan) for i in infos.values()] for infos in steps(rare, 1200)])
    assert np.nanstd(measured, axis=0) == pytest.approx([4.0 / math.sqrt(2)] * 2, rel=0.15)
    env = wlan_power_v0.parallel_env(topology=PAIR, failure_rate=0.3, max_cycles=1500)
    failed = np.array([["measurement" not in info for info in infos.values()] for infos in steps(env, 1500)])
    assert failed.mean(axis=0) == pytest.approx([0.3, 0.3], abs=0.04)
    assert failed.all(axis=1).mean() == pytest.approx(0.09, abs=0.03)
    totals = wlan_power_v0.parallel_env(topology=PAIR, failure_rate=0.3, max_cycles=500, outcomes="total")
    for infos in steps(totals, 500):
        assert len({"measurement" not in info for info in infos.values()}) == 1


def test_users_move_by_the_requested_distance_and_stay_in_the_area():
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


def test_moving_users_choose_the_access_point_with_the_least_loss_unless_one_is_assigned():
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


def test_users_leave_and_return_at_the_requested_rates():
    env = begun(topology={"generated": {"users": 200}}, leave_rate=0.1, return_rate=0.3, max_cycles=200)
    there = [np.ones(200, dtype=bool)]
    for _ in range(200):
        *_, infos = env.step({agent: [10.0] for agent in env.agents})
        there.append(env.get_state()["arrays"]["present"])
        assert sum(info["users"] for info in infos.values()) == there[-1].sum()
    before, after = np.array(there[:-1]), np.array(there[1:])
    assert (before & ~after).sum() / before.sum() == pytest.approx(0.1, abs=0.01)
    assert (~before & after).sum() / (~before).sum() == pytest.approx(0.3, abs=0.02)


def test_a_user_that_left_as_stated_may_return_by_chance_and_then_stays():
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


def test_an_unchanging_network_has_a_ground_truth():
    env = begun(noise_std=50.0)
    truth = env.ground_truth()
    assert truth.values == pytest.approx(env.network.factor_values(truth.points).sum(axis=1))
    assert truth.values.max() < truth.maximum == pytest.approx(truth.value(truth.argmax[None])[0])
    assert (truth.unit, truth.axis_unit) == ("Mbit/s", "dBm")
    assert ((truth.points >= 1.0) & (truth.points <= 25.0)).all()
    for changing in ({"mobility_m": 1.0}, {"leave_rate": 0.1}, {"departures": [[2, 1]]}):
        assert wlan_power_v0.parallel_env(**changing).ground_truth() is None


def test_an_agent_observes_only_its_power_its_outcome_and_the_powers_of_its_neighbours():
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
    graph, links = env.factor_graph(), env.interaction_graph()
    for i, agent in enumerate(env.possible_agents):
        assert graph["variable_owners"][f"power_{i}"] == graph["owners"][f"capacity_{i}"] == agent
        assert graph["bounds"][f"power_{i}"] == (1.0, 25.0)
        others = {graph["variable_owners"][variable] for variable in graph["scopes"][f"capacity_{i}"]} - {agent}
        assert others == set(links[agent])


def test_references_stay_in_their_budget_and_report_true_values():
    env = wlan_power_v0.parallel_env(airtime="full")  # without a cap on rates
    found = references(env.network, 1.0, 25.0, budget=60)
    for name, reference in found.items():
        assert reference.evaluations <= 60
        assert reference.value == pytest.approx(env.network.value(reference.point[None])[0])
        assert reference.value <= env.best_known()[1] + 1e-9, name
    equal = [env.network.value(np.full((1, 12), power))[0] for power in np.linspace(1.0, 25.0, 60)]
    assert found["equal"].value == pytest.approx(max(equal))
    assert found["maximum"].value == pytest.approx(equal[-1])
    assert (found["independent"].point == 25.0).all()  # more power never hurts an access point's own users
    assert found["greedy"].value > found["maximum"].value
    long = references(env.network, 1.0, 25.0, budget=2000)["greedy"]
    for i in range(12):  # no access point alone can improve this joint setting with a power of the grid
        for level in np.linspace(1.0, 25.0, 5):
            other = long.point.copy()
            other[i] = level
            assert env.network.value(other[None])[0] <= long.value + 1e-9
    with pytest.raises(ConfigError, match="budget 0"):
        references(env.network, 1.0, 25.0, budget=0)


def test_if_two_access_points_interfere_one_of_them_sends_at_least_power():
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


def test_the_map_shows_the_sinr_of_a_user_at_each_place():
    env = wlan_power_v0.parallel_env()
    powers = np.linspace(1.0, 25.0, 12)
    places = np.vstack([env.topology.users, [[150.0, 10.0]]])
    shown = sinr_map(env.topology, env.network, powers, places)
    assert shown[:36] == pytest.approx(10 * np.log10(env.network.sinr(powers[None])[0]))


@pytest.mark.parametrize(("count", "label"), [(24, "0: 13 dBm"), (25, "0")])
def test_labels_of_many_access_points_are_only_numbers(count, label, monkeypatch):
    texts = []
    monkeypatch.setattr(rendering, "write_beside", lambda ax, text, *args, **more: texts.append(text))
    places = [[40.0 * (i % 5), 40.0 * (i // 5)] for i in range(count)]
    begun(topology={"access_points": places}, render_mode="rgb_array").render()
    assert (len(texts), texts[0]) == (count, label)


@pytest.mark.parametrize("topology", [None, {"access_points": [[0, 0]]}])
def test_pictures_change_with_powers_and_fit_any_topology(topology):
    env = begun(topology=topology, render_mode="rgb_array", max_cycles=3)
    first = env.render()
    env.step({agent: [25.0] for agent in env.agents})
    second = env.render()
    assert first.shape == second.shape == (640, 1200, 3)
    assert (first != second).mean() > 0.01


def test_each_of_twelve_access_points_has_a_visible_colour_even_at_the_least_power():
    env = begun(render_mode="rgb_array")
    env.step({agent: [1.0] for agent in env.agents})
    bars = env.render()[:215, 700:].reshape(-1, 3)
    colours = {look.agent_colour(number) for number in range(12)}
    assert len(colours) == 12
    for colour in colours:
        wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
        assert (bars == wanted).all(axis=1).sum() > 50, colour


def test_text_shows_the_total_rate_and_the_powers():
    env = begun(topology=PAIR, render_mode="ansi")
    assert env.render() == "WLAN: round 0 of 60, nothing measured, powers 13.0 13.0 dBm\n"
    env.step({"ap_0": [1.0], "ap_1": [25.0]})
    total = env.network.value(np.array([[1.0, 25.0]]))[0]
    assert env.render() == f"WLAN: round 1 of 60, {total:.1f} Mbit/s, powers 1.0 25.0 dBm\n"
    unseen = wlan_power_v0.parallel_env(topology=PAIR)
    unseen.reset(seed=0)
    with pytest.raises(ConfigError, match=r"\$\.render_mode: got None"):
        unseen.render()
