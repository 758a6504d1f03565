"""Teams in environments where agents have different boxes, may abstain, and old data lose weight."""

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.worlds import FieldWorld
from swarmbo_envs import sensor_field_v0

from .teams import drive

MOVING = {"gp": {"lengthscale_m": 300.0, "size_m": [900.0, 600.0], "time": {"lengthscale_rounds": 6.0}}}
SMALL = {"sensors": 5, "field": MOVING, "noise_std": 0.05, "max_cycles": 6, "spots": 9}
SURE = sb.ExactGPSettings(restarts=0)
FUSED = sb.FusedSettings(prior=SURE)
WITH_TIME = {"kind": "exact", "restarts": 0, "time": {"kernel": "matern32"}}


def driven(env, rounds, acquisition="information"):
    """A team after some rounds, and the actions and infos of each round."""
    team = sb.Team.for_env(env, belief=WITH_TIME, acquisition=acquisition)
    return team, drive(env, team, rounds, seed=1)


def measured(infos):
    return {agent for agent, info in infos.items() if info["sampled"]}


def test_a_field_world_has_boxes_and_prices_of_agents_and_an_abstaining_agent_stays():
    env = sensor_field_v0.parallel_env(**SMALL, energy_price=0.25)
    env.reset(seed=0)
    world, spot = FieldWorld(env), env.candidates("sensor_1")[0]
    for agent, box in world.boxes.items():
        own = env.action_space(agent)
        np.testing.assert_array_equal([box.low, box.high], [own.low[:2], own.high[:2]])
    np.testing.assert_array_equal(world.standpoints()["sensor_3"], env.stations.places[3])
    assert world.offers(["sensor_2"]).prices == {"sensor_2": 0.25}
    sent = world.actions({"sensor_1[0]": spot[0], "sensor_1[1]": spot[1]}, ["sensor_1"])
    assert sent["sensor_1"].tolist() == [*spot, 1.0]
    assert world.actions({}, ["sensor_1"], {"sensor_1": spot})["sensor_1"].tolist() == [*spot, 0.0]


@pytest.mark.parametrize(
    ("acquisition", "task"),
    [("db-gp-ucb", "peak"), ("information", "map"), ("straddle", "level"), ("targeted-variance", "level")],
)
def test_sensors_measure_their_own_candidates_only_and_always_without_a_price(acquisition, task):
    level = {"level": 0.3} if task == "level" else {}
    env = sensor_field_v0.parallel_env(**SMALL, task=task, **level)
    team, told = driven(env, 3, acquisition)
    for actions, infos in told:
        for agent in measured(infos):
            spot = infos[agent]["location"]
            assert (env.candidates(agent) == spot).all(axis=1).any()
            assert actions[agent][2] == 1.0
    assert all(len(measured(infos)) == 5 for _, infos in told)
    assert team.belief.n_data == 20
    assert team.failures == 0


def test_sensors_abstain_at_a_high_price_and_this_is_not_a_failure():
    env = sensor_field_v0.parallel_env(**SMALL, energy_price=1e6)
    team, told = driven(env, 6)
    assert all(not measured(infos) for _, infos in told)
    assert all(action[2] == 0.0 for actions, _ in told for action in actions.values())
    assert (team.belief.n_data, team.failures) == (5, 0)
    assert team.last_query is not None
    assert team.last_query.points == team.pending == {}
    assert team.round == 6
    assert team.last_sharing.messages > 0  # reachable locations and prices


def test_at_a_medium_price_sensors_measure_again_when_old_data_have_lost_weight():
    env = sensor_field_v0.parallel_env(**{**SMALL, "max_cycles": 12}, energy_price=0.3)
    counts = [len(measured(infos)) for _, infos in driven(env, 12)[1]]
    first_pause = counts.index(0)
    assert sum(counts[:first_pause]) > 0
    assert sum(counts[first_pause:]) > 0


def test_a_sensor_with_an_empty_battery_is_not_asked():
    env = sensor_field_v0.parallel_env(**SMALL, battery_j=2.0)
    team, told = driven(env, 4)
    assert [len(measured(infos)) for _, infos in told] == [5, 5, 0, 0]
    assert team.failures == 0


def test_data_have_the_rounds_of_their_queries_even_if_told_late():
    team = sb.Team.for_field(["a", "b"], [0.0, 0.0], [1.0, 1.0], belief=WITH_TIME, seed=2)
    first = team.ask()
    second = team.ask()
    team.tell(second, {"a": 1.0, "b": 2.0})
    assert team.belief.X[:, 2].tolist() == [2.0, 2.0]
    team.tell(first, {"a": 0.5})
    team.give_up(first)
    assert team.belief.X[:, 2].tolist() == [2.0, 2.0, 1.0]
    assert team.belief.now == 2.0
    team.attach([[0.3, 0.3]], [1.5])
    team.attach([[0.3, 0.3, 1.25]], [1.5])
    assert team.belief.X[3:, 2].tolist() == [2.0, 1.25]
    assert team.recommend() is not None


def test_old_data_lose_weight_also_without_new_data():
    env = sensor_field_v0.parallel_env(**SMALL, energy_price=1e6)
    (brief, longer), place = (driven(env, rounds)[0] for rounds in (1, 4)), env.stations.places[:1]
    assert longer.belief.now == 4.0
    assert longer.belief.posterior(place)[1][0] > brief.belief.posterior(place)[1][0]


def test_prices_are_checked_and_let_agents_abstain_in_ask_and_tell():
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], acquisition="information", seed=0)
    team.attach([[0.2], [0.7]], [1.0, 2.0], agents=["a", "b"])
    query = team.ask(prices={"a": 1e9})
    assert list(query.points) == ["b"]
    team.tell(query, {"b": 1.0})
    for price in (-1.0, np.nan, np.inf):
        with pytest.raises(ConfigError, match=r"\$\.prices\.a: got .*; wanted a finite number >= 0"):
            team.ask(prices={"a": price})
    with pytest.raises(ConfigError, match=r"\$\.prices: got \['c'\]; wanted some of"):
        team.ask(prices={"c": 1.0})


@pytest.mark.parametrize(
    ("belief", "coordination"),
    [
        *((SURE, "max-sum"), (FUSED, "greedy")),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((SURE, "greedy"), (FUSED, "max-sum"))),
        *(pytest.param(belief, "exact", marks=pytest.mark.slow) for belief in (SURE, FUSED)),
    ],
)
@pytest.mark.parametrize("acquisition", ["information", "thompson", "straddle"])
def test_in_every_unit_all_agents_measure_until_outcomes_differ(acquisition, belief, coordination):
    def numbers(unit, flat):
        settings = {"belief": belief, "coordination": coordination, "acquisition": acquisition, "seed": 0}
        if acquisition == "straddle":
            settings |= {"level": 0.5 * unit, "aim": "level"}
        team, out = sb.Team.for_field(["a", "b"], [0.0, 0.0], [1.0, 1.0], **settings), []
        for turn in range(4):
            query = team.ask(prices=dict.fromkeys(team.agents, 50.0 * unit))
            out.append(len(query.points))
            if query.points:
                values = {a: 0.25 if turn < flat else np.exp(-8 * x * x - y) for a, (x, y) in query.points.items()}
                team.tell(query, {a: float(unit * value) for a, value in values.items()})
        return out

    for unit in (2.0**10, 2.0**-10):
        varied, flat = numbers(unit, 0), numbers(unit, 2)
        assert varied[0] == 2
        assert varied[2:] == [0, 0]  # a local belief is fitted one round later to data that have reached the agent
        assert flat[:3] == [2, 2, 2]


def measuring_agents(time, price):
    """Numbers of measuring agents in 20 rounds, of which the first two are free, in a drifting field of deviation 1."""
    belief = sb.ExactGPSettings(time=time, refit_every=4, restarts=0)
    settings = {"acquisition": "information", "belief": belief, "rounds": 20, "seed": 0}
    team = sb.Team.for_field(["a", "b", "c"], [0.0, 0.0], [1.0, 1.0], **settings)
    measured = []
    for number in range(20):
        query = team.ask(prices=dict.fromkeys(team.agents, price if number > 1 else 0.0))
        measured.append(len(query.points))
        if query.points:
            values = {a: float(np.sin(5 * x + 0.2 * number) + np.cos(4 * y)) for a, (x, y) in query.points.items()}
            team.tell(query, values)
    return measured, np.sqrt(team.belief.prior_variance)


def test_abstaining_ends_if_old_data_lose_weight_and_an_unknown_location_is_worth_its_price():
    with_time = sb.TimeAxis(lengthscale_median=3.0)
    measured, prior_std = measuring_agents(with_time, 0.5)
    assert prior_std > 0.5
    assert 0 in measured[:-1]
    assert any(measured[measured.index(0) :])
    for time, price in ((None, 0.5), (with_time, 5.0)):
        measured, prior_std = measuring_agents(time, price)
        assert 0 in measured[:-1]
        assert not any(measured[measured.index(0) :])
        assert (prior_std > price) == (time is None)


def test_predictions_for_all_agents_at_once_agree_with_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    line, queries = np.linspace(0.0, 1.0, 21)[:, None], list[sb.Query]()
    for many in (2**15, 0):
        monkeypatch.setattr("swarmbo.deciding.field._MANY", many)
        team = sb.Team.for_field(["a", "b", "c"], low=[0.0], high=[1.0])
        team.attach(line[::4], np.sin(9.0 * line[::4, 0]))
        queries.append(team.ask({"a": line, "b": line[:0], "c": line}))
    each, at_once = queries
    assert list(each.means) == list(at_once.means) == ["a", "c"]
    assert at_once.means == pytest.approx(each.means, rel=1e-9)
    assert at_once.stds == pytest.approx(each.stds, rel=1e-9)
