"""Capacities against formulas by hand, gradients against differences, the best known against brute force."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import check_grad

from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power import Network, best_known
from swarmbo_envs.wlan_power.network import Link
from swarmbo_envs.wlan_power.topology import path_loss_db

from .wlan_by_hand import rates_by_hand


@pytest.mark.parametrize("interference", ["audible", "all"])
@pytest.mark.parametrize("airtime", [None, "shared", "full"])
def test_outcomes_are_the_sums_of_the_users_capacities_by_hand(interference, airtime):
    named = {} if airtime is None else {"airtime": airtime}  # shared by default
    env = wlan_power_v0.parallel_env(topology_seed=1, interference=interference, **named)
    points, reach = env.topology.access_points, 10 ** ((25 + 82 - 46.6777) / 30)
    near = np.hypot(*(points[:, None] - points).transpose(2, 0, 1)) <= reach
    np.testing.assert_array_equal(env.network.disturbs, (near | (interference == "all")) & ~np.eye(12, dtype=bool))
    assert env.settings.airtime == (airtime or "shared")
    powers = np.random.default_rng(1).uniform(1, 25, 12)
    wanted, serving = rates_by_hand(env, powers)
    assert env.network.user_capacities(powers[None])[0] == pytest.approx(wanted)
    env.reset(seed=0)
    *_, infos = env.step({agent: [power] for agent, power in zip(env.agents, powers, strict=True)})
    for i, info in enumerate(infos.values()):
        own = math.fsum(c for c, s in zip(wanted, serving, strict=True) if s == i)
        assert info["factors"] == {f"capacity_{i}": pytest.approx(own)}
        assert info["users"] == serving.count(i)


def test_nearer_than_a_metre_no_less_is_lost():
    assert path_loss_db(np.array([0.0, 0.5, 1.0])) == pytest.approx([46.6777] * 3)


def networks():
    @st.composite
    def draw(draw):
        k, m = draw(st.integers(1, 5)), draw(st.integers(0, 8))
        rng = np.random.default_rng(draw(st.integers(0, 2**32)))
        return Network(
            loss_db=rng.uniform(50.0, 130.0, (k, m)),
            serving=rng.integers(0, k, m),
            present=rng.random(m) < 0.8,
            disturbs=rng.random((k, k)) < 0.6,
            noise_mw=10**-9.4,
            bandwidth_mhz=20.0,
            link=draw(st.sampled_from([Link(), Link(gap=10.0, cap_mbps=65.0, shared=True)])),
        ), rng.uniform(1.0, 25.0, k)

    return draw()


@given(networks())
def test_the_gradient_is_that_of_finite_differences(drawn):
    network, x = drawn
    weights = np.linspace(0.1, 2.0, len(network.serving))
    error = check_grad(
        lambda x: network.user_capacities(x[None])[0] @ weights, lambda x: network.gradient(x, weights), x, epsilon=1e-6
    )
    assert error <= 1e-4 * (1.0 + np.linalg.norm(network.gradient(x, weights)))


@given(networks(), st.integers(0, 4))
def test_more_own_power_never_hurts_ones_own_users_and_never_helps_those_of_others(drawn, which):
    network, x = drawn
    i = which % len(x)
    louder = x.copy()
    louder[i] += 3.0
    before, after = network.factor_values(np.array([x, louder]))
    slack = 1e-9 * (1.0 + before)
    assert after[i] >= before[i] - slack[i]
    others = np.arange(len(x)) != i
    assert (after[others] <= before[others] + slack[others]).all()
    untouched = others & ~network.disturbs[:, i]
    assert after[untouched] == pytest.approx(before[untouched])


def test_a_user_that_is_gone_gets_nothing_and_an_access_point_without_users_neither():
    env = wlan_power_v0.parallel_env(
        topology={"access_points": [[0, 0], [50, 0]], "users": [[5, 0], [9, 0]]}, departures=[[2, 0]], airtime="full"
    )
    env.reset(seed=0)
    loud = {agent: [20.0] for agent in env.agents}
    *_, both = env.step(loud)
    *_, one = env.step(loud)
    assert both["ap_1"]["measurement"] == one["ap_1"]["measurement"] == 0.0
    assert (both["ap_0"]["users"], one["ap_0"]["users"], one["ap_1"]["users"]) == (2, 1, 0)
    assert 0.0 < one["ap_0"]["measurement"] < both["ap_0"]["measurement"]
    assert env.network.user_capacities(np.full((1, 2), 20.0))[0][0] == 0.0


@pytest.mark.thorough
def test_the_best_known_of_the_default_does_not_hang_on_the_number_of_starts():
    env = wlan_power_v0.parallel_env()
    few, many = (best_known(env.network, 1.0, 25.0, starts)[1] for starts in (16, 64))
    assert few == pytest.approx(many, abs=1e-4)
    assert many >= env.network.value(np.random.default_rng(0).uniform(1, 25, (20_000, 12))).max()


@pytest.mark.thorough
def test_the_best_known_is_kept_by_what_the_network_is():
    best_known.cache_clear()
    wlan_power_v0.parallel_env().best_known()
    wlan_power_v0.parallel_env(max_cycles=3, noise_std=2.0).best_known()
    assert best_known.cache_info().misses == 1
    wlan_power_v0.parallel_env(interference="all").best_known()
    assert best_known.cache_info().misses == 2
