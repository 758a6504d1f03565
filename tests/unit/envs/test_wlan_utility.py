"""Capacities and utilities of a WLAN, compared with formulas, finite differences and grids of joint settings."""

import io
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console
from scipy.optimize import check_grad

from swarmbo.errors import ConfigError
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.report import reference_table, report_rows
from swarmbo.runs.runner import run
from swarmbo.runs.scenario import scenario_of
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power import Network, Utility, best_known, references
from swarmbo_envs.wlan_power.network import Link
from swarmbo_envs.wlan_power.topology import path_loss_db

from .wlan_by_hand import rates_by_hand


@pytest.mark.parametrize("interference", ["audible", "all"])
@pytest.mark.parametrize("airtime", [None, "shared", "full"])
def test_outcomes_are_the_sums_of_the_users_capacities_by_the_formulas(interference, airtime):
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


def test_path_loss_is_constant_below_a_metre():
    assert path_loss_db(np.array([0.0, 0.5, 1.0])) == pytest.approx([46.6777] * 3)


def any_networks():
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


@given(any_networks())
def test_the_gradient_equals_finite_differences(drawn):
    network, x = drawn
    weights = np.linspace(0.1, 2.0, len(network.serving))
    (rates, gradient), capped = network.uncapped_rates(x), network.user_capacities(x[None])[0]
    assert np.minimum(rates, network.largest_rates) == pytest.approx(capped)
    error = check_grad(lambda x: network.uncapped_rates(x)[0] @ weights, lambda _: gradient(weights), x, epsilon=1e-6)
    assert error <= 1e-4 * (1.0 + np.linalg.norm(gradient(weights)))


@given(any_networks(), st.integers(0, 4))
def test_more_power_never_hurts_an_access_point_s_own_users_or_helps_those_of_others(drawn, which):
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


def test_a_departed_user_and_an_access_point_without_users_have_no_capacity():
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
def test_the_best_known_of_the_default_does_not_depend_on_the_number_of_starts():
    env = wlan_power_v0.parallel_env()
    few, many = (best_known(env.network, 1.0, 25.0, starts)[1] for starts in (16, 32))
    assert few == pytest.approx(many, abs=1e-4)
    assert many >= env.network.value(np.random.default_rng(0).uniform(1, 25, (20_000, 12))).max()


@pytest.mark.thorough
def test_the_best_known_is_cached_per_network():
    single = {"access_points": [[0, 0]], "users": [[5, 5]]}
    best_known.cache_clear()
    wlan_power_v0.parallel_env(topology=single).best_known()
    wlan_power_v0.parallel_env(topology=single, max_cycles=3, noise_std=2.0).best_known()
    assert best_known.cache_info().misses == 1
    wlan_power_v0.parallel_env(topology=single, noise_figure_db=3.0).best_known()
    assert best_known.cache_info().misses == 2


LOW, HIGH = 1.0, 25.0
LINKS = [Link(), Link(gap=10.0, cap_mbps=65.0, shared=True), Link(cap_mbps=120.0)]
NAMES = ["sum", "proportional-fair", "minimum-rate", "cell-minimum", "users-above"]
TRIANGLE = {"access_points": [[0, 0], [60, 0], [30, 50]], "users": [[5, 5], [40, 0], [30, 40]], "serving": [0, 1, 1]}


def utility_of(name, rate=20.0):
    return Utility(name, rate if name == "users-above" else 0.0)


def by_hand(name, network, x, rate=20.0):
    """Values per access point and their total, user by user, from the formulas of the documentation."""
    power = [10 ** (p / 10) for p in x]
    gain = 10 ** (-network.loss_db / 10)
    rates = [[] for _ in power]
    for user, own in enumerate(network.serving):
        if network.present[user]:
            others = sum(power[j] * gain[j, user] for j in range(len(power)) if j != own and network.disturbs[own, j])
            sinr = power[own] * gain[own, user] / (network.noise_mw + others)
            link, turns = network.link, sum(network.present & (network.serving == own))
            fastest = min(network.bandwidth_mhz * math.log2(1 + sinr / link.gap), link.cap_mbps)
            rates[own].append(fastest / turns if link.shared else fastest)
    of_one = {
        "sum": sum,
        "proportional-fair": lambda own: sum(math.log(max(r, 0.001)) for r in own),
        "minimum-rate": lambda own: min(own, default=0.0),
        "cell-minimum": lambda own: min(own, default=0.0),
        "users-above": lambda own: sum(r >= rate for r in own),
    }[name]
    values = [of_one(own) for own in rates]
    if name != "minimum-rate":
        return values, sum(values)
    return values, min((value for value, own in zip(values, rates, strict=True) if own), default=0.0)


@st.composite
def networks(draw, k=3, most_users=6):
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.integers(1, most_users))
    loss = generator.uniform(60.0, 105.0, size=(k, m))
    return Network(
        loss_db=loss,
        serving=loss.argmin(axis=0),
        present=generator.random(m) < 0.9,
        disturbs=~np.eye(k, dtype=bool),
        noise_mw=10**-9.4,
        bandwidth_mhz=20.0,
        link=draw(st.sampled_from(LINKS)),
    )


@pytest.mark.parametrize("name", NAMES)
@given(network=networks(), seed=st.integers(0, 2**32 - 1))
def test_every_utility_equals_its_formula(name, network, seed):
    x = np.random.default_rng(seed).uniform(LOW, HIGH, size=(4, 3))
    utility = utility_of(name)
    outcomes, totals = utility.factor_values(network, x), utility.value(network, x)
    for row, values, total in zip(x, outcomes, totals, strict=True):
        expected = by_hand(name, network, row)
        assert values.tolist() == pytest.approx(expected[0], abs=1e-9)
        assert total == pytest.approx(expected[1], abs=1e-9)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=4, deadline=None)
@given(network=networks())
def test_no_joint_setting_of_a_grid_beats_the_best_known(name, network):
    grid = np.array(list(itertools.product(np.linspace(LOW, HIGH, 17), repeat=3)))
    utility = utility_of(name)
    powers, value = best_known(network, LOW, HIGH, 64, utility)
    assert all(LOW <= power <= HIGH for power in powers)
    assert value == pytest.approx(by_hand(name, network, powers)[1], abs=1e-9)
    assert value >= utility.value(network, grid).max() * (1 - 1e-9) - 1e-9


@given(network=networks())
def test_no_step_raises_the_best_known_minimum_rate(network):
    """The problem has no other local maxima: if the result were not the maximum, a small step would improve it."""
    utility = Utility("minimum-rate")
    powers, value = best_known(network, LOW, HIGH, utility=utility)
    generator = np.random.default_rng(0)
    for size in (0.01, 0.3, 3.0):
        near = np.clip(powers + size * generator.standard_normal((500, 3)), LOW, HIGH)
        assert utility.value(network, near).max() <= value * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("airtime", ["full", pytest.param("shared", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES[1:])
def test_each_utility_is_largest_at_its_own_best_known(name, airtime):
    """Simple reference methods do not find a better setting."""
    network = wlan_power_v0.parallel_env(airtime=airtime).network
    utility, own = utility_of(name), {}
    for other in NAMES:
        powers, _ = best_known(network, LOW, HIGH, 32, utility_of(other))
        own[other] = float(utility.value(network, np.array([powers]))[0])
    assert own[name] == max(own.values())
    assert own[name] > own["sum"]
    for reference in references(network, LOW, HIGH, budget=60, utility=utility).values():
        assert reference.value == pytest.approx(by_hand(name, network, reference.point)[1])
        assert reference.value <= own[name] + 1e-9


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("outcomes", ["per-factor", "total"])
def test_access_points_measure_the_chosen_utility(name, outcomes):
    arguments = {"utility": name, "outcomes": outcomes, **({"rate_mbps": 20.0} if name == "users-above" else {})}
    if (name, outcomes) == ("minimum-rate", "per-factor"):
        with pytest.raises(
            ConfigError, match=r"\$\.utility: .* outcomes = 'total', since .* not a sum .*'cell-minimum'"
        ):
            wlan_power_v0.parallel_env(topology=TRIANGLE, **arguments)
        return
    env = wlan_power_v0.parallel_env(topology=TRIANGLE, **arguments)
    env.reset(seed=0)
    x = [3.0, 20.0, 7.0]
    *_, infos = env.step({agent: [power] for agent, power in zip(env.agents, x, strict=True)})
    values, total = by_hand(name, env.network, x)
    measured = [info["measurement"] for info in infos.values()]
    assert measured == pytest.approx(values if outcomes == "per-factor" else [total] * 3)
    assert env.outcomes(x) == pytest.approx(values)
    assert env.get_state()["arrays"]["totals"] == pytest.approx([total])
    source = infos["ap_0"]["source"]
    assert source.get("utility") == (None if name == "sum" else name)
    truth = env.ground_truth()
    assert truth.value(np.array([x]))[0] == pytest.approx(total)
    assert truth.maximum == env.best_known()[1] >= total
    rates = env.network.user_capacities(np.array([x]))[0]
    worst = env.worst_off(x)
    assert list(worst.values()) == pytest.approx([min(rates[0], rates[1] + rates[2]), rates.min()])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"utility": "users-above"}, r"\$\.rate_mbps: got None; wanted the rate threshold of the utility"),
        ({"utility": "users-above", "rate_mbps": 0.0}, r"\$\.rate_mbps: got 0\.0; wanted"),
        ({"rate_mbps": 5.0}, r"\$\.rate_mbps: got 5\.0; wanted no rate, or the utility 'users-above'"),
        ({"utility": "fair"}, r"\$\.utility: got 'fair'"),
    ],
)
def test_unknown_utilities_and_a_missing_rate_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        wlan_power_v0.parallel_env(topology=TRIANGLE, **given)


@pytest.mark.parametrize("name", ["proportional-fair", "minimum-rate"])
def test_a_run_reports_the_worst_off_users_beside_its_utility(tmp_path, name):
    outcomes = "total" if name == "minimum-rate" else "per-factor"
    table = {"topology": TRIANGLE, "utility": name, "outcomes": outcomes}
    wanted = {"name": "fair", "rounds": 4, "environment": {"id": "swarmbo/wlan_power-v0", **table}}
    summary = run(scenario_of(wanted), tmp_path / "run")
    env = wlan_power_v0.parallel_env(**table)
    records = RunFolder.open(tmp_path / "run").records()
    best = max((record.joint for record in records[1:]), key=lambda joint: joint.measurement)
    assert best.measurement == pytest.approx(by_hand(name, env.network, best.location)[1])
    assert summary.worst_off["this run"] == pytest.approx(env.worst_off(best.location))
    assert summary.source["utility"] == name
    rows = dict(report_rows(summary))
    least = env.network.user_capacities(np.array([best.location])).min()
    assert float(rows["worst user (Mbit/s)"]) == pytest.approx(least, rel=1e-3)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(reference_table(summary))
    text = console.export_text()
    assert "worst access point (Mbit/s)" in text
    # a share of a sum of logarithms has no meaning
    assert ("below the reference optimum" in text) == (name == "proportional-fair")
    assert set(summary.worst_off) == {"this run", *summary.references}


GIVEN = [({}, 10.0, 65.0), ({"bandwidth_mhz": 40.0}, 10.0, 130.0)]
GIVEN += [({"rate_cap_mbps": 7.0, "snr_gap_db": 3.0}, 10**0.3, 7.0)]


@pytest.mark.parametrize(("arguments", "gap", "cap"), GIVEN, ids=str)
def test_rates_with_shared_airtime_equal_the_formula_of_one_link(arguments, gap, cap):
    near, far = 5.0, 40.0
    topology = {"access_points": [[0, 0]], "users": [[near, 0], [far, 0]]}
    network = wlan_power_v0.parallel_env(topology=topology, airtime="shared", **arguments).network
    width = arguments.get("bandwidth_mhz", 20.0)
    noise_dbm = -174.0 + 10.0 * math.log10(width * 1e6) + 7.0
    snr = [10 ** ((8.0 - 46.6777 - 30.0 * math.log10(away) - noise_dbm) / 10.0) for away in (near, far)]
    wanted = [min(width * math.log2(1.0 + one / gap), cap) / 2.0 for one in snr]
    assert network.user_capacities(np.array([[8.0]]))[0] == pytest.approx(wanted)
    assert wanted[0] == cap / 2.0


def test_a_wide_channel_has_a_larger_cap():
    arguments = {"topology": TRIANGLE, "channels": [36, 40], "widths_mhz": [20.0, 40.0], "airtime": "shared"}
    network = wlan_power_v0.parallel_env(**arguments).network
    rates = [network.user_capacities(np.array([[25.0] * 3 + [0, 0, 0] + [width] * 3]))[0].max() for width in (0, 1)]
    assert rates[0] <= 65.0 < rates[1] <= 130.0
