"""Channels and widths of a WLAN: frequencies from the standard's tables, rates and best settings by brute force."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import check_grad

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power.network import greedy_colouring
from swarmbo_envs.wlan_power.references import best_known
from swarmbo_envs.wlan_power.settings import centre_mhz, shares, whole_channel

from .playing import played
from .wlan_by_hand import rates_by_hand

SMALL = {"generated": {"access_points": 4, "users": 10, "area_m": [90.0, 90.0], "separation_m": 20.0}}
BLOCKS = {  # centre channel numbers at 5 GHz, of IEEE 802.11-2020, table E-4, by width
    40.0: {38: (36, 40), 46: (44, 48), 54: (52, 56), 62: (60, 64), 102: (100, 104), 142: (140, 144), 159: (157, 161)},
    80.0: {42: (36, 40, 44, 48), 58: (52, 56, 60, 64), 138: (132, 136, 140, 144), 155: (149, 153, 157, 161)},
    160.0: {50: tuple(range(36, 65, 4)), 114: tuple(range(100, 129, 4))},
}


def test_centre_frequencies_equal_those_of_the_standard():
    assert [centre_mhz(channel, 20.0) for channel in (1, 6, 11, 13)] == [2412.0, 2437.0, 2462.0, 2472.0]
    channels = (36, 64, 100, 144, 149, 165)
    assert [centre_mhz(channel, 20.0) for channel in channels] == [5180, 5320, 5500, 5720, 5745, 5825]
    for width, blocks in BLOCKS.items():
        for number, channels in blocks.items():
            assert {centre_mhz(channel, width) for channel in channels} == {5000.0 + 5.0 * number}
            whole = [(number, n) for n in range(len(channels))]
            assert [whole_channel(channel, width) for channel in channels] == whole
    # 40 MHz at 2.4 GHz: a second channel four numbers above or below, so centres at channels 3 to 11
    assert [centre_mhz(channel, 40.0) for channel in (1, 7, 8, 13)] == [2422.0, 2452.0, 2437.0, 2462.0]
    assert [centre_mhz(*none) for none in ((14, 20.0), (38, 20.0), (1, 80.0), (132, 160.0))] == [None] * 4


def test_a_share_of_overlap_is_the_integral_of_two_rectangles():
    chosen = [(36, 20.0), (36, 40.0), (40, 20.0), (44, 80.0), (48, 20.0), (52, 40.0)]
    grid = np.arange(5100.0, 5400.0, 0.25) + 0.125
    inside = [np.abs(grid - centre_mhz(*one)) < one[1] / 2 for one in chosen]
    for i, j in itertools.product(range(len(chosen)), repeat=2):
        assert shares(chosen)[i, j] == pytest.approx((inside[i] & inside[j]).sum() / inside[j].sum())
    apart = shares([(channel, 20.0) for channel in range(1, 7)])[0]
    assert apart == pytest.approx([1.0, 0.75, 0.5, 0.25, 0.0, 0.0])


@pytest.mark.parametrize(
    "arguments",
    [
        {"channels": list(range(1, 14))},
        {"channels": [1, 6, 11], "bandwidth_mhz": 40.0},
        {"channels": [36, 40, 44, 48, 52], "widths_mhz": [40, 20]},
    ],
    ids=str,
)
def test_rates_equal_the_formulas_and_each_outcome_depends_only_on_its_scope(arguments):
    env, rng = wlan_power_v0.parallel_env(**arguments), np.random.default_rng(0)
    env.reset(seed=0)
    sizes = {"channel": len(env.settings.channels)} | ({"width": 2} if "widths_mhz" in arguments else {})
    drawn = [{"power": rng.uniform(1, 25, 1)} | {n: rng.integers(size) for n, size in sizes.items()} for _ in range(12)]
    actions = dict(zip(env.agents, drawn, strict=True))
    *_, infos = env.step(actions)
    point = np.array([[float(np.squeeze(a[name])) for a in drawn] for name in ("power", *sizes)]).ravel()
    rates, serving = rates_by_hand(env, point)
    assert env.network.user_capacities(point[None])[0] == pytest.approx(rates)
    graph = env.factor_graph()
    for i, (agent, info) in enumerate(infos.items()):
        assert info["measurement"] == pytest.approx(math.fsum(r for r, s in zip(rates, serving, strict=True) if s == i))
        assert [*info["location"].pop("power"), *info["location"].values()] == point.reshape(-1, 12)[:, i].tolist()
        assert info["channel"] == env.settings.channels[actions[agent]["channel"]]
    for column, variable in enumerate(env.variables):
        other = point.copy()
        other[column] = 0.0 if point[column] else 1.0
        before, after = env.utility.factor_values(env.network, np.array([point, other]))
        changed = after != before
        readers = np.array([variable in scope for scope in graph["scopes"].values()])
        assert not (changed & ~readers).any()


def test_on_one_common_channel_rates_equal_bit_for_bit_those_without_channels():
    one, other = wlan_power_v0.parallel_env(), wlan_power_v0.parallel_env(channels=[1, 6, 11])
    X = np.random.default_rng(0).uniform(1, 25, (20, 12))
    for position in range(3):
        plan = np.full((20, 12), float(position))
        assert (other.network.user_capacities(np.hstack([X, plan])) == one.network.user_capacities(X)).all()


def test_gradients_by_powers_equal_finite_differences():
    env, rng = wlan_power_v0.parallel_env(channels=[36, 40, 44, 48], widths_mhz=[20, 40, 80]), np.random.default_rng(3)
    x = rng.uniform(1, 25, 12)
    network = env.network.on(np.concatenate([rng.integers(0, 4, 12), rng.integers(0, 3, 12)]))
    ones = np.ones(36)
    (rates, gradient), capped = network.uncapped_rates(x), network.user_capacities(x[None])[0]
    assert np.minimum(rates, network.largest_rates) == pytest.approx(capped)
    error = check_grad(lambda x: network.uncapped_rates(x)[0].sum(), lambda _: gradient(ones), x, epsilon=1e-6)
    assert error <= 1e-4 * (1.0 + np.linalg.norm(gradient(ones)))


@pytest.mark.parametrize(
    ("utility", "seed"),
    [
        ("sum", 0),
        ("minimum-rate", 2),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in (("proportional-fair", 2), ("cell-minimum", 0))),
    ],
)
def test_no_setting_of_a_grid_beats_the_best_known_and_baselines_have_their_stated_values(utility, seed):
    outcomes = "total" if utility == "minimum-rate" else "per-factor"
    env = wlan_power_v0.parallel_env(
        topology=SMALL, topology_seed=seed, channels=[1, 4, 7], utility=utility, outcomes=outcomes
    )
    grid = np.array(list(itertools.product(*[[1.0, 13.0, 25.0]] * 4, *[range(3)] * 4)), dtype=float)
    values = env.utility.value(env.network, grid)
    place, best = env.best_known()
    assert values.max() <= best + 1e-9 * abs(best)
    assert best == pytest.approx(env.utility.value(env.network, place[None])[0])
    assert len(place) == 8
    found = env.references(budget=200)
    assert max(found.values()) <= best + 1e-9 * abs(best)
    loud = grid[(grid[:, :4] == 25.0).all(axis=1)]
    assert found["greedy colouring, all at maximum"] <= env.utility.value(env.network, loud).max() + 1e-9
    together = env.utility.value(env.network, np.array([[25.0] * 4 + [0.0] * 4]))[0]
    assert found["all at maximum, one channel"] == pytest.approx(together)


@pytest.mark.slow
def test_a_team_ends_near_the_best_setting_of_a_grid():
    env = wlan_power_v0.parallel_env(topology=SMALL, channels=[1, 6, 11], max_cycles=32)
    grid = np.array(list(itertools.product(*[[1.0, 13.0, 25.0]] * 4, *[range(3)] * 4)), dtype=float)
    by_hand = np.array([math.fsum(rates_by_hand(env, point)[0]) for point in grid])
    assert env.network.value(grid) == pytest.approx(by_hand)
    team = sb.Team.for_env(env, seed=0, rounds=32)
    totals = [math.fsum(info["measurement"] for info in infos.values()) for infos in played(env, team)]
    assert max(totals) >= 0.97 * by_hand.max()
    point = team.recommend().point
    assert {point[f"channel_{i}"] for i in range(4)} <= {1, 6, 11}


def test_greedy_colouring_separates_all_neighbours_if_there_are_enough_channels():
    env = wlan_power_v0.parallel_env(channels=[36, 40, 44, 48, 52])  # each has at most four neighbours
    chosen = greedy_colouring(env.network, 25.0)[12:]
    assert not (env.hears & (chosen[:, None] == chosen)).any()
    assert best_known(env.network, 1.0, 25.0, 16)[1] == pytest.approx(
        env.network.value(greedy_colouring(env.network, 25.0)[None])[0]
    )


def test_states_and_pictures_include_the_channels_and_other_channels_make_another_environment():
    arguments = {"topology": SMALL, "channels": [1, 6, 11], "render_mode": "rgb_array"}
    env, other = (wlan_power_v0.parallel_env(**arguments) for _ in range(2))
    env.reset(seed=0)
    env.step({agent: {"power": [9.0 + i], "channel": i % 3} for i, agent in enumerate(env.agents)})
    other.set_state(env.get_state())
    assert other.state().tolist() == env.state().tolist()
    assert other.state()[:8].tolist() == [9.0, 10.0, 11.0, 12.0, 0.0, 1.0, 2.0, 0.0]
    before = env.render()
    assert (before == other.render()).all()
    other.replay([9.0, 10.0, 11.0, 12.0, 0.0, 0.0, 0.0, 0.0], None)
    assert not (before == other.render()).all()
    with pytest.raises(Exception, match=r"channels\[2\]|\$\.channels"):
        wlan_power_v0.parallel_env(**arguments | {"channels": [1, 6, 12]}).set_state(env.get_state())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"channels": [1]}, r"\$\.channels: got \(1,\); wanted two or more different channels"),
        ({"channels": [1, 1]}, r"\$\.channels: .*different"),
        ({"widths_mhz": [20, 40]}, r"\$\.channels: got \(\); wanted two or more"),
        ({"channels": [1, 36]}, r"\$\.channels: .*channels of one band: 1 to 13, or 36, 40, ... to 177"),
        ({"channels": [38, 46]}, r"\$\.channels: .*one band"),
        ({"channels": [1, 6], "widths_mhz": [20, 80]}, r"\$\.widths_mhz: .*wanted \(20.0, 40.0\) MHz"),
        ({"channels": [1, 6], "widths_mhz": [20]}, r"\$\.widths_mhz: .*two or more different widths, or none"),
        ({"channels": [1, 6], "bandwidth_mhz": 22.0}, r"\$\.bandwidth_mhz: got 22.0; wanted \(20.0, 40.0\) MHz"),
        (
            {"channels": [1, 11], "bandwidth_mhz": 40.0, "radio": "ns3", "objective": "throughput"},
            r"\$\.channels: got \(1, 11\); wanted channels 1 to 7: in ns-3 nothing arrives",
        ),
        ({"channels": [128, 132], "bandwidth_mhz": 160.0}, r"\$\.channels: .*unlike \[132\]"),
    ],
)
def test_channels_that_do_not_exist_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        wlan_power_v0.parallel_env(**arguments)
