"""Policies in place of a team: the same environment, learning and scores, but no messages."""

import json

import msgspec
import numpy as np
import pettingzoo
import pytest

import swarmbo as sb
from swarmbo.compare import compare
from swarmbo.errors import ConfigError
from swarmbo.runs import run
from swarmbo.runs.reading import load_run
from swarmbo.runs.scenario import make_environment, scenario_of
from swarmbo.worlds.actions import ActionForm

OWN = "test_policies_own"
CODE = '''
import json
import numpy as np

class Same:
    """Actions from a file, by round."""

    def __init__(self, file):
        with open(file) as read:
            self.rounds = json.load(read)

    def begin(self, env, seed):
        self.left = list(self.rounds)

    def act(self, observations):
        assert all(np.isfinite(seen).all() for seen in observations.values())
        return self.left.pop(0)

class Mute:
    pass

class Short:
    def act(self, observations):
        return dict(list(observations.items())[1:])

class Beyond:
    def act(self, observations):
        return {agent: [np.nan] * 9 for agent in observations}
'''
GP = {"gp": {"lengthscale_m": 200.0, "size_m": [900.0, 600.0]}}
SENSORS = {"id": "swarmbo/sensor_field-v0", "field": GP, "sensors": 5, "energy_price": 0.02}
PLAN = {"generated": {"access_points": 4, "users": 9, "area_m": [150.0, 150.0]}}
WLAN = {"id": "swarmbo/wlan_power-v0", "topology": PLAN, "noise_std": 1.0, "failure_rate": 0.1}
DRAWN = {"id": "swarmbo/wlan_power-v0", "worlds": "drawn", "topology": PLAN}


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / f"{OWN}.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def scenario(environment, **more):
    return scenario_of({"name": "policies", "environment": environment, "rounds": 4, "seed": 5, **more})


def recorded(records, path):
    rounds = [{sample.agent: sample.target for sample in record.samples} for record in records[1:]]
    path.write_text(json.dumps(rounds))


@pytest.mark.parametrize("environment", [SENSORS, DRAWN], ids=["sensors", "drawn"])
def test_a_policy_with_a_team_s_actions_gets_the_team_s_scores(environment, own, tmp_path):
    run(scenario(environment), tmp_path / "team")
    team = load_run(tmp_path / "team").records
    recorded(team, tmp_path / "actions.json")
    policy = {"kind": f"{OWN}:Same", "file": "actions.json"}
    run(scenario(environment, policy=policy), tmp_path / "policy", trust=True)
    replayed = load_run(tmp_path / "policy").records
    for own_record, other in zip(replayed, team, strict=True):
        assert own_record.score == other.score
        assert own_record.recommendation == other.recommendation
        measured = [[(s.location, s.measurement, s.cost) for s in one.samples] for one in (own_record, other)]
        assert measured[0] == measured[1]
    sent = [sum((r.report.traffic + r.sharing).messages for r in records[1:]) for records in (team, replayed)]
    assert sent[0] > 0 == sent[1]
    table = compare([tmp_path])
    assert {row.method for row in table.rows} == {"team", f"{OWN}:Same"}


def test_an_interrupted_policy_is_replayed_from_the_first_round(own, tmp_path, same_when_resumed):
    run(scenario(WLAN), tmp_path / "team")
    recorded(load_run(tmp_path / "team").records, tmp_path / "actions.json")
    policy = {"kind": f"{OWN}:Same", "file": "actions.json"}
    same_when_resumed(scenario(WLAN, policy=policy), 2, trust=True)


@pytest.mark.parametrize(
    ("policy", "match"),
    [
        ("auto", r"^\$\.policy: got 'auto'; wanted 'module:Class'"),
        ({"file": "x.npz"}, "module:Class"),
        (f"{OWN}:Mute", "no method act"),
        (f"{OWN}:Nobody", "no 'Nobody'"),
        ({"kind": f"{OWN}:Same", "fil": "x"}, "did you mean 'file'"),
        (f"{OWN}:Short", "wanted an action for each of ap_0"),
        (f"{OWN}:Beyond", r"\$\.actions\.\w+: got .*; wanted an action of its space"),
    ],
)
def test_invalid_policies_are_refused(policy, match, own, tmp_path):
    with pytest.raises(ConfigError, match=match):
        run(scenario(WLAN, policy=policy), tmp_path / "out", trust=True)


def test_a_policy_runs_only_with_trust_and_without_workers(own, tmp_path):
    with pytest.raises(ConfigError, match="--trust"):
        run(scenario(WLAN, policy=f"{OWN}:Short"), tmp_path / "out")
    with pytest.raises(ConfigError, match="none with a policy"):
        scenario(WLAN, policy=f"{OWN}:Short", workers={"count": 2})


def test_a_team_learns_from_actions_of_another_policy():
    env = pettingzoo.make("parallel", "swarmbo/sensor_field-v0", sensors=4, field=GP)
    team = sb.Team.for_env(env, seed=0)
    _, infos = env.reset(seed=0)
    rng = np.random.default_rng(0)
    for number in range(3):
        boxes = {agent: env.action_space(agent) for agent in env.agents}
        actions = {agent: rng.uniform(box.low, box.high) for agent, box in boxes.items()}
        team.follow(actions, infos)
        step = env.step(actions)
        team.observe(*step)
        sampled = sum(info["sampled"] for info in step[-1].values())
        assert team.n_data == 4 + sampled if number == 0 else team.n_data >= 4 + sampled
        assert team.pending == {}
    assert team.last_report.traffic.messages == 0
    assert msgspec.json.encode(team.last_query.id) == b'"q00003"'
    box = env.action_space("sensor_0")
    for wrong in ([1.0], box.high + 0.01 * (box.high - box.low), None):
        with pytest.raises(ConfigError, match=r"\$\.actions\.sensor_0: got .*; wanted an action of its space"):
            team.follow({**actions, "sensor_0": wrong})
    for missing in ({}, {agent: action for agent, action in actions.items() if agent != "sensor_2"}):
        with pytest.raises(ConfigError, match=r"\$\.actions\.sensor_[02]: got None"):
            team.follow(missing)
    with pytest.raises(ConfigError, match=r"\$\.actions: got \['sensor_9'\]; wanted some of"):
        team.follow({**actions, "sensor_9": actions["sensor_0"]})
    assert (team.round, team.pending) == (3, {})


def test_each_action_is_read_once_and_an_error_names_a_wrong_one(monkeypatch):
    env = make_environment(scenario(WLAN))
    team = sb.Team.for_env(env, seed=0)
    _, infos = env.reset(seed=0)
    read, codes = [], ActionForm.codes
    monkeypatch.setattr(ActionForm, "codes", lambda *given: read.append(given) or codes(*given))
    actions = {agent: env.action_space(agent).sample() for agent in env.agents}
    team.follow(actions, infos)
    assert len(read) == len(env.agents)
    for wrong in (None, np.array([99.0]), "loud"):
        with pytest.raises(ConfigError, match=rf"\$\.actions\.{env.agents[1]}: got .*; wanted an action of its space"):
            team.follow({**actions, env.agents[1]: wrong})
    with pytest.raises(ConfigError, match=r"\$\.actions: got \['nobody'\]; wanted some of"):
        team.follow({**actions, "nobody": actions[env.agents[1]]})
    assert len(read) == 4 * len(env.agents)  # once per agent and call, also in refused calls
