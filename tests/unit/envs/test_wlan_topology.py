"""Topologies: guarantees of drawn ones, files, refused arguments."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.errors import ConfigError, StateVersionError
from swarmbo_envs import wlan_power_v0

REACH_M = 10 ** ((25 + 82 - 46.6777) / 30)


@given(seed=st.integers(0, 10**6), access_points=st.integers(3, 20), users=st.integers(0, 60))
def test_drawn_access_points_have_two_to_four_neighbours(seed, access_points, users):
    table = {"generated": {"access_points": access_points, "users": users, "area_m": [500.0, 400.0]}}
    env = wlan_power_v0.parallel_env(topology=table, topology_seed=seed)
    points, places = env.topology.access_points, env.topology.users
    assert points.shape == (access_points, 2)
    assert places.shape == (users, 2)
    for place in (*points, *places):
        assert 0 <= place[0] <= 500
        assert 0 <= place[1] <= 400
    scopes = env.factor_graph()["scopes"]
    for i in range(access_points):
        apart = [math.dist(points[i], points[j]) for j in range(access_points)]
        neighbours = {f"power_{j}" for j in range(access_points) if j != i and apart[j] <= REACH_M}
        assert set(scopes[f"capacity_{i}"]) == neighbours | {f"power_{i}"}
        assert 3 <= len(scopes[f"capacity_{i}"]) <= 5
        assert all(distance >= 30.0 for j, distance in enumerate(apart) if j != i)


@given(seed=st.integers(0, 10**6), std=st.floats(0.5, 8.0))
def test_with_shadowing_drawn_access_points_have_two_to_four_neighbours(seed, std):
    env = wlan_power_v0.parallel_env(topology_seed=seed, shadowing_db=std)
    neighbours = env.hears.sum(axis=1)
    assert neighbours.min() >= 2
    assert neighbours.max() <= 4
    assert (env.hears == env.hears.T).all()


def test_large_topologies_can_be_drawn():
    table = {"generated": {"access_points": 300, "users": 900, "area_m": [1300.0, 1300.0], "most_heard": 8}}
    neighbours = wlan_power_v0.parallel_env(topology=table).hears.sum(axis=1)
    assert (len(neighbours), neighbours.min() >= 2, neighbours.max() <= 8) == (300, True, True)


def test_shadowing_has_the_requested_spread_and_is_symmetric():
    topology = wlan_power_v0.parallel_env(
        topology={"access_points": [[i * 60.0, 0] for i in range(60)], "users": [[5, 5]] * 60}, shadowing_db=6.0
    ).topology
    assert (topology.between_db == topology.between_db.T).all()
    assert (np.diag(topology.between_db) == 0).all()
    assert topology.between_db[np.triu_indices(60, 1)].std() == pytest.approx(6.0, rel=0.06)
    assert topology.to_users_db.std() == pytest.approx(6.0, rel=0.06)


@pytest.mark.parametrize("other", [{"users": [[1, 1]]}, {"serving": [0, 1, 1]}])
def test_a_state_of_another_topology_is_refused(other):
    """Even if both networks are equal at first."""
    pair = {"access_points": [[0, 0], [60, 0]], "users": [[5, 0], [40, 0], [55, 5]]}
    env = wlan_power_v0.parallel_env(topology=pair)
    env.reset(seed=0)
    with pytest.raises(StateVersionError, match=r"another environment \(\$\.topology: "):
        wlan_power_v0.parallel_env(topology=pair | other).set_state(env.get_state())


def test_access_points_are_audible_above_a_threshold():
    line = {"access_points": [[0, 0], [100, 0], [205, 0]], "users": []}
    assert wlan_power_v0.parallel_env(topology=line).hears.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    deaf = wlan_power_v0.parallel_env(topology=line, audible_dbm=-80.0)
    assert not deaf.hears.any()
    sharp = wlan_power_v0.parallel_env(topology=line, audible_dbm=-92.0)
    assert sharp.hears.sum() == 6
    quiet = wlan_power_v0.parallel_env(topology=line, power_dbm=[1.0, 20.0])
    assert not quiet.hears.any()


CSV = """kind, x_m, y_m, access_point
access_point, 0, 0,
user, 5, 5, 1
access_point, 60, 0,

user, 58, 3, 0
"""


def test_a_file_gives_the_same_topology_as_a_table(tmp_path):
    (tmp_path / "office.csv").write_text(CSV, encoding="utf-8")
    read = wlan_power_v0.parallel_env(topology={"csv": str(tmp_path / "office.csv")})
    stated = wlan_power_v0.parallel_env(
        topology={"access_points": [[0, 0], [60, 0]], "users": [[5, 5], [58, 3]], "serving": [1, 0]}
    )
    assert read.network == stated.network
    assert read.network.serving.tolist() == [1, 0]
    (tmp_path / "free.csv").write_text("kind,x_m,y_m\naccess_point,0,0\naccess_point,60,0\nuser,58,3\n")
    free = wlan_power_v0.parallel_env(topology={"csv": str(tmp_path / "free.csv")})
    assert free.network.serving.tolist() == [1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind,x_m\nuser,1\n", r"got no column y_m"),
        ("label\nuser\n", r"got no column kind, x_m, y_m"),
        ("", r"office.csv' is empty; wanted a header line"),
        ("kind,x_m,y_m\nrouter,1,2\n", r"office\.csv: line 2: got 'router'; wanted 'access_point' or 'user'"),
        ("kind,x_m,y_m\nuser,1,two\n", r"office\.csv: line 2, column 'y_m': got 'two'; wanted a finite number"),
        ("kind,x_m,y_m\nuser,1,２\n", r"office\.csv: line 2, column 'y_m': got '２'; wanted a finite number"),
        ("kind,x_m,y_m\nuser,1\n", r"office\.csv: line 2, column 'y_m': got ''"),
        ("kind,x_m,y_m\nuser,1,inf\n", r"wanted a finite number"),
        ("kind,x_m,y_m\nuser,1,1\n", r"got no access point"),
        ("kind,x_m,y_m,access_point\naccess_point,0,0,\nuser,1,1,0\nuser,1,1,\n", r"for some users only"),
        ("kind,x_m,y_m,access_point\naccess_point,0,0,\nuser,1,1,-1\n", r"got '-1'; wanted an index from 0"),
        ("kind,x_m,y_m,access_point\naccess_point,0,0,\nuser,1,1,3\n", r"wanted one index from 0 to 0"),
        ("kind,x_m,y_m\naccess_point,0,0\naccess_point,0,0\n", r"two access points at one location"),
        ("kind,x_m,y_m\naccess_point,1e9,0\n", r"beyond 1e6 m"),
        ("x_m,y_m,kind,access_point\n50,0\n", r"office\.csv: line 2: got ''; wanted 'access_point' or 'user'"),
        (f"kind,x_m,y_m,access_point\naccess_point,0,0,\nuser,1,1,{10**20 - 1}\n", r"wanted an index from 0"),
    ],
)
def test_errors_in_a_file_are_reported_with_their_line(tmp_path, text, message):
    (tmp_path / "office.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"^\$\.topology.*{message}"):
        wlan_power_v0.parallel_env(topology={"csv": str(tmp_path / "office.csv")})


def test_a_missing_or_binary_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"\$\.topology\.csv: cannot read .*No such file"):
        wlan_power_v0.parallel_env(topology={"csv": str(tmp_path / "none.csv")})
    (tmp_path / "bytes.csv").write_bytes(b"kind,x_m,y_m\n\xff\xfe\n")
    with pytest.raises(ConfigError, match="cannot read"):
        wlan_power_v0.parallel_env(topology={"csv": str(tmp_path / "bytes.csv")})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"topology": {}}, r"\$\.topology: got an empty table; wanted exactly one of the keys 'generated'"),
        ({"topology": {"generated": {}, "csv": "a"}}, r"exactly one of the keys .*: topology = \{ csv = …, … \}"),
        (
            {"topology": {"generated": {"user": 3}}},
            r"\$\.topology\.generated: unknown key 'user'; did you mean 'users'",
        ),
        ({"topology": {"generated": {"area_m": [50.0, 50.0]}}}, r"got 12 access points in 50 m x 50 m, and no draw"),
        ({"topology": {"access_points": []}}, r"got no access point"),
        ({"topology": {"access_points": [[0, 0]], "users": [[1, 1]], "serving": [1]}}, r"\$\.topology\.serving"),
        ({"topology": {"access_points": [[0, 0]], "users": [[float("nan"), 1]]}}, r"not finite"),
        ({"radio": "ns2"}, r"\$\.radio: got 'ns2'; .*'closed-form', 'ns3'"),
        ({"objective": "throughput"}, r"\$\.objective: got 'throughput'; wanted 'capacity', or radio = 'ns3'"),
        (
            {"radio": "ns3", "objective": "throughput", "bandwidth_mhz": 80.0},
            r"\$\.bandwidth_mhz: got 80\.0; wanted 20 or 40 MHz",
        ),
        ({"power_dbm": [25.0, 1.0]}, r"\$\.power_dbm: got \(25.0, 1.0\); wanted lowest < highest"),
        ({"interference": "some"}, r"\$\.interference: got 'some'; wanted one of 'all', 'audible'|'audible', 'all'"),
        ({"leave_rate": 1.5}, r"\$\.leave_rate: got 1.5; wanted a probability"),
        ({"departures": [[0, 3]]}, r"\$\.departures: got .*wanted \[round >= 1"),
        ({"departures": [[3, 36]]}, r"\$\.departures\[0\]: got user 36; wanted one from 0 to 35"),
        ({"max_cycle": 3}, "did you mean 'max_cycles'"),
    ],
)
def test_wrong_arguments_are_refused_with_their_path(arguments, message):
    with pytest.raises(ConfigError, match=message):
        wlan_power_v0.parallel_env(**arguments)
