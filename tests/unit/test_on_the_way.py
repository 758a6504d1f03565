"""Measurements en route: in the environment, infos, beliefs, messages, logs and scores."""

import msgspec
import numpy as np
import pytest

import swarmbo as sb
from swarmbo.baselines import LawnMower
from swarmbo.belief import ExactGP
from swarmbo.errors import ConfigError
from swarmbo.metrics import mean_regret
from swarmbo.plotting.history import belief_after
from swarmbo.runs.recording import record_reset, record_round
from swarmbo.worlds import Report
from swarmbo_envs import robot_team_v1

from .teams import drive

PLAIN = {"elevation": "jacksboro", "window": [0, 0, 30, 30]}
BY_DEADLINE = sb.MaxSum(mode="asynchronous", deadline=6)
WALL = {"corners": [[900, 300], [1100, 300], [1100, 2700], [900, 2700]]}


def make(**arguments):
    plain = {"field": PLAIN, "robots": 3, "samples_per_leg": 2, "noise_std": 1.0, "max_cycles": 5}
    return robot_team_v1.parallel_env(**{**plain, **arguments})


def played(env, team, seed=0, truth=None):
    """Play an episode; return its records."""
    observations, infos = env.reset(seed=seed)
    team.begin(infos)
    records = [record_reset(team, infos, truth)]
    while env.agents:
        actions = team.act(observations, infos)
        told = env.step(actions)
        team.observe(*told)
        team.refit()
        records.append(record_round(records[-1], team, actions, told[4], [], truth))
        observations, infos = told[0], told[4]
    return records


@pytest.mark.parametrize(
    ("how", "gaps"), [({"samples_per_leg": 3}, None), ({"samples_per_leg": 0, "sample_every_m": 70.0}, 70.0)]
)
def test_robots_measure_at_even_distances_along_their_paths(how, gaps):
    env = make(no_go=[WALL], noise_std=0.0, robots=2, **how)
    env.reset(seed=3)
    rng, truth = np.random.default_rng(0), env.ground_truth()
    while env.agents:
        infos = env.step({agent: rng.uniform(env.field.low, env.field.high) for agent in env.agents})[4]
        for info in infos.values():
            steps = np.hypot(*np.diff(info["path"], axis=0).T)
            driven = np.append(0.0, np.cumsum(steps))
            assert driven[-1] == pytest.approx(info["distance"], rel=2e-3)  # paths have chords in place of arcs
            wanted = np.arange(1, 4) * driven[-1] / 4 if gaps is None else np.arange(gaps, driven[-1] - 1e-6, gaps)
            places = np.array([stop["location"] for stop in info["on_the_way"]]).reshape(-1, 2)
            expected = np.column_stack([np.interp(wanted, driven, info["path"][:, axis]) for axis in range(2)])
            np.testing.assert_allclose(places, expected, atol=2e-3 * driven[-1] + 1e-6)
            measured = [stop["measurement"] for stop in info["on_the_way"]]
            np.testing.assert_array_equal(measured, truth.value(places) if len(places) else [])


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        (None, []),
        ("nothing", []),
        ([3, {"measurement": 1.0}], []),
        ([{"location": [1.0, 2.0], "measurement": "high"}], [([1.0, 2.0], None)]),
        ([{"location": [1.0, 2.0], "measurement": 4.0, "on_the_way": [1]}, {"location": "x"}], [([1.0, 2.0], 4.0)]),
    ],
)
def test_invalid_reports_en_route_are_left_out_or_count_as_failed(told, kept):
    report = Report.of({"location": [0.0, 0.0], "measurement": 1.0, "on_the_way": told, "path": told})
    found = [(stop.place.tolist(), None if np.isnan(stop.outcome) else stop.outcome) for stop in report.on_the_way]
    assert found == kept
    assert report.path is None


@pytest.mark.parametrize("kind", ["exact", "fused"])
def test_the_belief_has_every_measurement_en_route(kind):
    env = make()
    team = sb.Team.for_env(env, belief={"kind": kind}, seed=0)
    records = played(env, team)
    taken = [one for record in records for one in record.evaluations]
    assert len(taken) == team.n_data == 3 + 5 * 3 * 3
    history = team.history
    assert history.attached.sum() == 5 * 3 * 2
    assert np.isfinite(history.factors).sum() == len(taken)
    if kind == "fused":
        assert sum(len(agent.y) for agent in team.belief.agents.values()) == len(taken)
    else:
        assert {tuple(x) for x in team.belief.X} == {tuple(one.location) for one in taken}
        rebuilt = belief_after(records, team.belief_settings, team.domain)
        places = env.sites()[::17]
        np.testing.assert_allclose(rebuilt.posterior(places), team.belief.posterior(places), rtol=1e-6)
        X, y = np.array([one.location for one in taken]), np.array([one.measurement for one in taken])
        alone = ExactGP.from_hyperparameters(team.belief_settings, team.domain, team.belief.hyperparameters, X, y)
        np.testing.assert_allclose(alone.posterior(places), team.belief.posterior(places), rtol=1e-6)


def test_queries_have_only_the_measurements_at_their_locations():
    env = make(failure_rate=0.4)
    team = sb.Team.for_env(env, seed=0)
    records = played(env, team, truth=env.ground_truth())
    rows = team.history.X[~team.history.attached]
    assert len(rows) == 6
    places = [team.problem.places(row, team.agents) for row in rows]
    for record, own in zip(records, places, strict=True):
        assert {s.agent: s.location for s in record.samples} == {agent: x.tolist() for agent, x in own.items()}
    alone = team._log.successes("robot_0")  # on which its caution depends
    assert len(alone) == 6


def test_bytes_of_measurements_en_route_are_counted():
    bytes_of_reports, messages = {}, {}
    for count in (0, 4):
        env = make(samples_per_leg=count, robots=2)
        team = sb.Team.for_env(env, seed=0)
        records = played(env, team)
        bytes_of_reports[count], messages[count] = records[2].sharing.bytes, records[2].sharing.messages
        if count:
            stops = [(stop.location, stop.measurement) for stop in records[1].samples[0].en_route]
            told = len(msgspec.msgpack.encode(stops))
    assert messages[0] == messages[4]
    assert bytes_of_reports[4] > bytes_of_reports[0] + 2 * told


@pytest.mark.parametrize("kind", ["exact", "fused"])
def test_measurements_en_route_of_a_failed_agent_reach_no_other_agent(kind):
    env = make()
    with_failure = {"kind": "faulty", "deaths": [{"agent": "robot_1", "round": 2, "step": 99}]}  # after the agreement
    team = sb.Team.for_env(env, belief={"kind": kind}, transport=with_failure, coordination=BY_DEADLINE, seed=0)
    records = played(env, team)
    measured = [sum(len(s.en_route) for s in record.samples if s.agent == "robot_1") for record in records]
    assert measured[1] == measured[2] == 2
    told = np.isfinite(team.history.factors).sum(axis=0)
    assert told[1] == 1 + 1 + measured[1]


@pytest.mark.parametrize("kind", ["exact", pytest.param("fused", marks=pytest.mark.thorough)])
def test_a_saved_team_continues_with_the_same_decisions(kind):
    env = make(max_cycles=4)
    team = sb.Team.for_env(env, belief={"kind": kind}, seed=0)
    infos = drive(env, team, 2)[-1][1]
    other, observations = make(max_cycles=4), dict.fromkeys(env.agents)
    other.reset(seed=9)
    other.set_state(env.get_state())
    again = sb.Team.from_state_dict(team.state_dict(), other)
    for _ in range(2):
        actions = team.act(observations, infos)
        np.testing.assert_equal(again.act(observations, infos), actions)
        told, same = env.step(actions), other.step(actions)
        np.testing.assert_equal(same, told)
        team.observe(*told)
        again.observe(*same)
        observations, infos = told[0], told[4]
    np.testing.assert_array_equal(again.belief.posterior(env.sites()[:50]), team.belief.posterior(env.sites()[:50]))


def test_batch_regret_counts_queries_only_and_simple_regret_all_measurements():
    env = make(samples_per_leg=6, noise_std=0.0, max_cycles=3)
    team = sb.Team.for_env(env, coordination=LawnMower(), seed=1)
    truth = env.ground_truth()
    records = played(env, team, truth=truth)
    so_far = np.inf
    for record in records:
        asked = truth.maximum - truth.value(np.array([s.location for s in record.samples]))
        everything = truth.maximum - truth.value(np.array([one.location for one in record.evaluations]))
        so_far = min(so_far, everything.min())
        assert record.score.batch_regret == pytest.approx(asked.min())
        assert record.score.total_regret == pytest.approx(asked.sum())
        assert record.score.simple_regret == pytest.approx(so_far)
    assert mean_regret(records) == pytest.approx(sum(record.score.total_regret for record in records[1:]) / 9)


@pytest.mark.parametrize("coordination", ["greedy", "exact", pytest.param("routes", marks=pytest.mark.thorough)])
def test_plans_ignore_future_measurements_en_route(coordination):
    """With equal data, decisions with and without samples en route are the same."""
    first = []
    for count in (0, 3):
        env = make(samples_per_leg=count)
        team = sb.Team.for_env(env, acquisition="targeted-variance", coordination=coordination, seed=0)
        first.append(team.act(*env.reset(seed=0)))
    np.testing.assert_equal(first[1], first[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample_every_m": 10.0}, r"\$\.sample_every_m: got 10\.0; wanted none together with samples_per_leg"),
        ({"samples_per_leg": 0, "sample_every_m": 0.1}, r"\$\.sample_every_m: got 0\.1 m, .* wanted at most 64"),
        ({"field": {"survey": "oxford-ph"}}, r"\$\.samples_per_leg: got a field that can be measured at its"),
        ({"samples_per_leg": 65}, r"\$\.samples_per_leg: got 65; wanted"),
    ],
)
def test_invalid_arguments_of_sampling_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        make(**arguments)
