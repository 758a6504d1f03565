"""ns-3 itself, where it is installed: its outcomes at locations and powers, and runs in which it is killed."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from swarmbo.runs import load, run
from swarmbo_envs import wlan_power_v0

pytestmark = [
    pytest.mark.ns3,
    pytest.mark.skipif(importlib.util.find_spec("ns3") is None, reason="needs the extra `ns3`"),
]

FEW = {"generated": {"access_points": 4, "users": 8, "area_m": [150.0, 150.0]}}
QUICK = {"seconds": 0.1, "warm_up_s": 0.5}


@pytest.fixture
def world():
    made = []

    def make(**settings):
        made.append(wlan_power_v0.parallel_env(**{"radio": "ns3", "topology": FEW, "simulation": QUICK} | settings))
        return made[-1]

    yield make
    for env in made:
        env.close()


def one(power=15.0, away=5.0, **settings):
    """What a single access point delivers to a single user, Mbit/s."""
    topology = {"access_points": [[0, 0]], "users": [[away, 0]]}
    env = wlan_power_v0.parallel_env(radio="ns3", objective="throughput", topology=topology, **settings)
    delivered = float(env.outcomes([power])[0])
    env.close()
    return delivered


def process_of(env):
    child = env.rules.radio._children._places.get()
    env.rules.radio._children._places.put(child)
    return child._process


@pytest.mark.parametrize("interference", ["audible", "all"])
@pytest.mark.parametrize("shadowing_db", [0.0, 6.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_closed_form_has_the_sinr_of_ns3(world, interference, shadowing_db, seed):
    drawn = {"topology": None, "topology_seed": seed, "shadowing_db": shadowing_db}
    env = world(**drawn, interference=interference, airtime="full")  # so that rates determine the SINR
    for powers in np.random.default_rng(seed).uniform(1.0, 25.0, (5, 12)):
        rates = env.rules.radio.user_rates(env.network, env.topology, env.topology.users, powers)[0]
        sinr = np.expm1(rates * np.log(2.0) / env.network.bandwidth_mhz)
        assert 10.0 * np.log10(sinr / env.network.sinr(powers[None])[0]) == pytest.approx(0.0, abs=1e-9)
        assert env.outcomes(powers) == pytest.approx(env.network.factor_values(powers[None])[0], rel=1e-9)


@pytest.mark.parametrize(
    "channels", [{"channels": [1, 3, 6]}, {"channels": [36, 40, 44, 48], "widths_mhz": [20, 40, 80]}], ids=str
)
def test_the_closed_form_has_the_sinr_of_ns3_on_channels(world, channels):
    env, rng = world(topology=None, **channels), np.random.default_rng(0)
    for _ in range(5):
        choices = [rng.integers(0, len(values), 12) for values in env.settings.spectrum.choices.values()]
        point = np.concatenate([rng.uniform(1.0, 25.0, 12), *choices])
        assert env.outcomes(point) == pytest.approx(env.network.factor_values(point[None])[0], rel=1e-9)


def test_in_ns3_cells_share_the_air_where_channels_overlap_and_widths_deliver_more(world):
    cells = {"access_points": [[0, 0], [20, 0]], "users": [[5, 0], [15, 0]], "serving": [0, 1]}

    def both(*plan, **settings):
        return world(topology=cells, objective="throughput", **settings).outcomes([15.0, 15.0, *plan])

    on_2ghz = {apart: both(0, apart, channels=list(range(1, 14))) for apart in (0, 2, 4, 5)}
    assert max(on_2ghz[0].sum(), on_2ghz[2].sum()) < 65.0 < 110.0 < min(on_2ghz[4].sum(), on_2ghz[5].sum())
    wide = {"channels": [36, 40, 44, 48], "widths_mhz": [20, 40, 80]}
    narrow, blocks, overlap = (both(0, 2, width, width, **wide) for width in range(3))
    assert (blocks > 1.8 * narrow).all()
    assert overlap.sum() > blocks.sum()  # 80 MHz for half of the time, by 802.11ac
    assert both(0, 1, 1, 1, **wide).sum() < 0.6 * blocks.sum()  # 36 and 40 are one block of 40 MHz


def test_the_closed_form_has_the_sinr_of_ns3_where_users_walk_and_leave(world):
    env = world(mobility_m=20.0, leave_rate=0.3, return_rate=0.3, max_cycles=10)
    env.reset(seed=0)
    while env.agents:
        infos = env.step({agent: [5.0 + 4.0 * i] for i, agent in enumerate(env.agents)})[4]
        measured = [info["measurement"] for info in infos.values()]
        powers = env.get_state()["arrays"]["powers"]
        assert measured == pytest.approx(env.network.factor_values(powers[None])[0], rel=1e-9, abs=1e-12)


def test_the_same_input_gives_the_same_output_and_another_run_number_another_output(world):
    env, powers = world(objective="throughput"), np.array([20.0, 15.0, 10.0, 25.0])
    first = env.outcomes(powers)
    env.outcomes(powers[::-1])
    assert (env.outcomes(powers) == first).all()
    assert (world(objective="throughput").outcomes(powers) == first).all()
    other = world(objective="throughput", simulation=QUICK | {"run": 2}).outcomes(powers)
    assert (other != first).any()
    both = world(objective="throughput", simulation=QUICK | {"runs": 2, "processes": 2}).outcomes(powers)
    assert both == pytest.approx((first + other) / 2.0)


def test_a_single_link_delivers_a_rate_of_80211n_and_nothing_out_of_range():
    near = one()
    assert 50.0 < near < 65.0  # one stream at 20 MHz: at most 65 Mbit/s on the air
    assert near < one(bandwidth_mhz=40.0) < 135.0
    assert one(power=10.0, away=25.0) < near
    assert one(power=1.0, away=60.0) == 0.0  # arrives at -99 dBm; a preamble takes -82 dBm


def test_an_access_point_delivers_nothing_without_users_and_after_its_users_left(world):
    topology = {"access_points": [[0, 0], [60, 0]], "users": [[5, 0], [8, 0], [2, 3]], "serving": [0, 0, 0]}
    env = world(topology=topology, objective="throughput", departures=[[2, 1], [3, 0], [3, 2]])
    env.reset(seed=0)
    measured = [[i["measurement"] for i in env.step({"ap_0": [15.0], "ap_1": [15.0]})[4].values()] for _ in range(3)]
    assert [outcomes[1] for outcomes in measured] == [0.0] * 3
    assert measured[0][0] > 30.0
    assert measured[1][0] > 30.0
    assert measured[2][0] == 0.0


def test_only_the_outcome_of_a_simulation_in_which_ns3_is_killed_is_lost(world):
    env = world(objective="throughput", simulation={"seconds": 30.0})
    env.reset(seed=0)
    pid = process_of(env).pid
    threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
    infos = env.step({agent: [15.0] for agent in env.agents})[4]
    assert not any("measurement" in info for info in infos.values())
    assert all("SIGKILL" in info["source"]["failure"] for info in infos.values())
    env.rules.radio.settings = wlan_power_v0.parallel_env(simulation=QUICK).settings.simulation
    infos = env.step({agent: [15.0] for agent in env.agents})[4]
    assert sum(info["measurement"] for info in infos.values()) > 10.0


def test_ns3_is_killed_after_its_timeout_and_its_outcome_is_lost(world):
    env = world(objective="throughput", simulation={"seconds": 1000.0, "timeout_s": 1.0})
    env.reset(seed=0)
    process = process_of(env)
    infos = env.step({agent: [15.0] for agent in env.agents})[4]
    assert all("within 1 s" in info["failure"] for info in infos.values())
    assert process.returncode == -signal.SIGKILL


def test_a_simulator_ends_when_its_parent_process_ends():
    code = (
        "from swarmbo_envs import wlan_power_v0\n"
        "env = wlan_power_v0.parallel_env(radio='ns3', objective='throughput', simulation={'seconds': 1000.0})\n"
        "child = env.rules.radio._children._places.get()\n"
        "env.rules.radio._children._places.put(child)\n"
        "print(child._process.pid, flush=True)\n"
        "env.outcomes([15.0] * 12)\n"
    )
    asking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    pid = int(asking.stdout.readline())
    time.sleep(1.0)
    asking.kill()
    asking.wait()
    asking.stdout.close()
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().split()[2]
        except OSError:
            return
        if state == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the simulator is still running")


def test_the_scenario_runs_and_names_what_it_measured(tmp_path):
    summary = run(load("wlan-ns3", ["rounds=3", "environment.simulation.seconds=0.1"]), tmp_path / "run")
    assert (summary.measurements, summary.failures, summary.score) == (3, 0, None)
    for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[1:]:
        source = json.loads(line)["source"]
        assert (source["objective"], source["radio"], source["run"], source["runs"]) == ("throughput", "ns3", 1, 1)
        assert source["ns3"].startswith("3.")
