"""Saved teams continue bit-identically, and loading executes nothing in the file."""

import json
import os
import sys
import zipfile
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError, StateVersionError, SwarmboError
from swarmbo_envs import robot_team_v0

from .teams import CHAIN

BOUNDS = dict.fromkeys("xyz", (0.0, 2.0))


def field_team(belief="exact", **more):
    return sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 2.0], belief=belief, seed=3, **more)


def fused(method, **more):
    return field_team({"kind": "fused", "method": method, "n_features": 20, "loss": 0.2, **more})


def joint_team(outcomes="total", graph=CHAIN, **more):
    return sb.Team(graph, BOUNDS, outcomes=outcomes, seed=3, **{"initial": 3, **more})


WITH_TIME = {"kind": "additive", "time": {"kernel": "matern12", "lengthscale_median": 5.0}}
PARTS = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"], "h": ["z"]})
JOINED = replace(PARTS, joined=(("x", "y"),))
SMALL = {"kind": "ensemble", "kernels": ["matern52", "rbf"], "lengthscales": [0.3, "fitted"], "n_features": 64}
SAMPLED = {"kind": "additive", "structure": {"kind": "sampled", "burn_in": 3}}
PRESENT = {"x": 1.0, "y": 1.0, "z": 1.5}
TIMED = {"kind": "admm", "mode": "asynchronous", "deadline": 30, "patience": 8}
LOSSY = {"kind": "faulty", "loss": 0.5, "delay": 3}
GROUPS = {"kind": "add-gp-ucb", "groups": "learned", "group_size": 1}
TEAMS = {
    "field": field_team,
    "a level": lambda: field_team(level=0.7),
    "fading": lambda: field_team({"kind": "exact", "restarts": 0, "time": {}}, acquisition="information"),
    "readings": lambda: fused("readings"),
    "experts": lambda: fused("experts"),
    "consensus, fading": lambda: fused("consensus", prior={"restarts": 0, "time": {}}),
    "readings, fading": lambda: fused("readings", prior={"restarts": 0, "time": {}}),
    "covariance intersection": lambda: fused("covariance-intersection"),
    "totals": joint_team,
    "by factor": lambda: joint_team("per-factor"),
    "fading totals": lambda: joint_team(belief=WITH_TIME, acquisition="dec-hbo"),
    "fading, by factor": lambda: joint_team("per-factor", belief=WITH_TIME, acquisition="thompson"),
    "ensemble": lambda: joint_team(belief=SMALL, acquisition="egp-ts"),
    "ensemble, by factor": lambda: joint_team("per-factor", belief=SMALL, acquisition="egp-ei"),
    "sampled structure": lambda: joint_team(belief=SAMPLED, acquisition="dec-hbo"),
    "regions": lambda: joint_team(no_go=[sb.NoGoBall(variables=("x",), centre=(1.0,), radius=0.4)]),
    "a present setting": lambda: joint_team(initial=1, start=PRESENT, step_limit={"x": 0.5}, safe={"share": 0.9}),
    "by a deadline, over losses": lambda: joint_team("per-factor", coordination=TIMED, transport=LOSSY),
    "learned groups": lambda: sb.Team(None, BOUNDS, acquisition=GROUPS, seed=3, initial=3),
    "joined parts": lambda: joint_team("per-factor", graph=JOINED),
    "joined parts, limits": lambda: joint_team(graph=JOINED, constraints=[sb.Linear({"y": 1.0, "z": 1.0}, 3.0)]),
    "no structure": lambda: sb.Team(None, BOUNDS, seed=3, initial=3, rounds=9),
}
ALIKE = {"fading", "readings, fading", "totals", "fading totals", "ensemble"}  # other cases cover these


def told(team, query):
    """Outcomes of the kind that the team expects."""
    if team.problem.is_field:
        return {agent: float(np.sin(3 * place).sum()) for agent, place in query.points.items()}
    x, y, z = (query.point[name] for name in "xyz")
    parts = {"f": np.sin(x) * y, "g": -((y - z) ** 2), **({"h": z} if "h" in team.graph.factors else {})}
    return parts if team.outcomes == "per-factor" else sum(parts.values())


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in ALIKE)) for kind in TEAMS])
def test_a_loaded_team_continues_bit_identically_with_pending_queries(kind, tmp_path):
    team = TEAMS[kind]()
    first = team.ask()  # a point of the initial design, told last
    for number in range(5):
        query = team.ask()
        team.tell(query, None if number == 1 else told(team, query), failed=number == 1)
    pending = team.ask()
    path = tmp_path / "team.any-name"
    team.save(path)
    again = sb.Team.load(path)
    assert list(again.pending) == [first.id, pending.id]
    assert (again.pending, again.graph) == (team.pending, team.graph)
    assert (again.problem.to_plain(), repr(again)) == (team.problem.to_plain(), repr(team))
    assert (again.n_data, again.failures, again.round) == (team.n_data, team.failures, team.round)
    for one in (team, again):
        one.tell(first.id, told(one, first))
        one.tell(pending.id, told(one, pending))
    assert again.ask() == team.ask()
    assert again.sent == team.sent
    assert again.recommend() == team.recommend()
    assert again.state_dict()["json"] == team.state_dict()["json"]
    for name, array in team.state_dict()["arrays"].items():
        np.testing.assert_array_equal(again.state_dict()["arrays"][name], array)


def test_a_state_loaded_in_place_leaves_nothing_of_the_decision_before():
    saved, team = field_team().state_dict(), field_team()
    team.tell(query := team.ask(), told(team, query))
    team.ask()
    kept = ("last_query", "last_report", "sent", "last_sharing", "sharing_links")
    left = {name: getattr(team.load_state_dict(saved), name) for name in kept}
    assert left == {name: getattr(field_team(), name) for name in kept}


@pytest.mark.parametrize("relay", ["r", 7, 2.5, np.int64(7), (0, 1), (0, ("r", 1)), frozenset("r")])
def test_a_team_and_an_agent_with_any_relay_continue_bit_identically(relay, tmp_path):
    links, team = nx.Graph([("a", relay), (relay, "b")]), fused("readings")
    team.tell(query := team.ask(links=links), told(team, query))
    team.save(tmp_path / "team")
    again = sb.Team.load(tmp_path / "team")
    for one in (team, again):
        one.tell(query := one.ask(links=links), told(one, query))
    assert again.ask(links=links) == team.ask(links=links)
    assert again.sent == team.sent
    state = sb.Agent("a", team.problem, links=links).state_dict()
    agent = sb.Agent.from_state_dict(state | {"json": json.loads(json.dumps(state["json"]))})
    name = relay if relay != frozenset("r") else "frozenset({'r'})"  # other nodes only keep a name
    assert nx.utils.graphs_equal(agent.links, nx.relabel_nodes(links, {relay: name}))


def test_a_team_of_an_environment_is_loaded_with_it(tmp_path):
    env = robot_team_v0.parallel_env(robots=2, max_cycles=4)
    team = sb.Team.for_env(env, seed=1)
    actions = team.act(*env.reset(seed=1))
    team.save(tmp_path / "acting.npz")
    again = sb.Team.load(tmp_path / "acting.npz", env)
    observations, *rest, infos = env.step(actions)
    for one in (team, again):
        one.observe(observations, *rest, infos)
    team.save(tmp_path / "team.npz")
    actions = team.act(observations, infos)
    for other in (again, sb.Team.load(tmp_path / "team.npz", env)):
        np.testing.assert_equal(other.act(observations, infos), actions)
    with pytest.raises(StateVersionError, match="other factors"):
        sb.Team.load(tmp_path / "team.npz", robot_team_v0.parallel_env(robots=3))


def test_the_file_contains_numbers_and_text_only(tmp_path):
    team = field_team()
    team.tell(team.ask(), {"a": 1.0, "b": 2.0})
    team.save(tmp_path / "team")
    with np.load(tmp_path / "team", allow_pickle=False) as arrays:
        assert all(not arrays[name].dtype.hasobject for name in arrays.files)
        assert "team.json" in arrays.files


def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch):
    team, path = joint_team(), tmp_path / "team.npz"
    team.save(path)
    before = path.read_bytes()
    team.ask()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="No space left"):
            team.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["team.npz"]
    team.save(path)
    assert len(sb.Team.load(path).pending) == 1


def test_files_without_a_team_are_refused_in_one_line(tmp_path):
    with pytest.raises(FileNotFoundError):
        sb.Team.load(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ConfigError, match=r"text\.npz: got damaged or incomplete data \(.*File is not a zip file"):
        sb.Team.load(tmp_path / "text.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(ConfigError, match=r"other\.npz: got damaged or incomplete data"):
        sb.Team.load(tmp_path / "other.npz")
    for plain, error in (
        (b"[1]", "damaged or incomplete"),
        (b"{}", "damaged or incomplete data"),
        (b'{"version": 2}', "other version, 2; wanted a team's, 10"),
        (b'{"version": 10}', "damaged or incomplete"),
    ):
        np.savez(tmp_path / "plain.npz", **{"team.json": np.frombuffer(plain, dtype=np.uint8)})
        with pytest.raises((ConfigError, StateVersionError), match=error):
            sb.Team.load(tmp_path / "plain.npz")


PARTS = ("json", "arrays", "problem", "settings", "log", "acting", "learned", "X", "since")


@pytest.mark.parametrize("lost", PARTS)
def test_a_state_without_a_part_is_refused_and_changes_nothing(lost):
    team = joint_team()
    team.tell(team.ask(), 1.0)
    state, before = team.state_dict(), repr(team.state_dict())
    damaged = {top: {k: v for k, v in table.items() if k != lost} for top, table in state.items() if top != lost}
    wanted = "wanted what `state_dict` or `save` of a team wrote"
    for load in (sb.Team.from_state_dict, team.load_state_dict):
        with pytest.raises(ConfigError, match=rf"^\$\.state: got damaged or incomplete data \(.*'{lost}'.*{wanted}"):
            load(damaged)
    assert repr(team.state_dict()) == before


@pytest.mark.parametrize("part", ["arrays", "log", "learned"])
def test_a_state_with_a_part_of_another_kind_is_refused(part):
    state = joint_team().state_dict()
    damaged = state | {"arrays": 5} if part == "arrays" else state | {"json": state["json"] | {part: 5}}
    with pytest.raises(ConfigError, match=r"^\$\.state: got damaged or incomplete data"):
        sb.Team.from_state_dict(damaged)


def test_damage_anywhere_in_the_file_is_detected_or_has_no_effect(tmp_path):
    team, path = joint_team(), tmp_path / "team.npz"
    team.tell(team.ask(), 1.0)
    team.save(path)
    whole, state = path.read_bytes(), team.state_dict()["json"]
    rng, noticed = np.random.default_rng(0), 0
    for place in rng.integers(len(whole), size=60):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            assert sb.Team.load(path).state_dict()["json"] == state  # the damage is in a date or a flag of the archive
        except SwarmboError:
            noticed += 1
    assert noticed > 30
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigError):
        sb.Team.load(path)


OWN = """
import swarmbo as sb
from swarmbo.settings import Settings

class Shifted(sb.Acquisition, frozen=True):
    shift: float = 1.0
    def local_functions(self, situation, model):
        return sb.Thompson().local_functions(situation, model)

class Middle:
    corner = 0.5
    def decide_joint(self, situation, acquisition):
        return [self.corner] * 3, sb.SolveReport("not_needed")

class Corner(Middle):
    def __init__(self, corner=0.0):
        self.corner = corner
"""


def test_code_that_a_file_names_is_loaded_only_with_trust(tmp_path, monkeypatch):
    (tmp_path / "own_parts_of_a_team.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    name, path = "own_parts_of_a_team", tmp_path / "team.npz"
    joint_team(acquisition={"kind": f"{name}:Shifted", "shift": 2.0}).save(path)
    kept = sys.modules.pop(name)
    with pytest.raises(ConfigError, match=rf"team\.npz: \$\.acquisition: got '{name}:Shifted', your .* trust=True"):
        sb.Team.load(path)
    assert name not in sys.modules
    sys.modules[name] = kept
    again = sb.Team.load(path, trust=True)
    assert type(again.acquisition) is kept.Shifted
    assert again.acquisition.shift == 2.0
    again.ask()
    joint_team(coordination=kept.Corner(1.0)).save(path)
    with pytest.raises(ConfigError, match=r"the state lacks.*pass it again: coordination=…"):
        sb.Team.load(path, trust=True)  # the default argument would give another object
    assert sb.Team.load(path, coordination=kept.Corner(1.0)).coordination.corner == 1.0
    joint_team(coordination=kept.Middle()).save(path)
    assert type(sb.Team.load(path, trust=True).coordination) is kept.Middle


def test_a_file_with_an_array_larger_than_its_data_is_refused(tmp_path):
    path = tmp_path / "team.npz"
    joint_team().save(path)
    with zipfile.ZipFile(path, "a") as archive, archive.open("huge.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with pytest.raises(ConfigError, match="claims"):
        sb.Team.load(path)
