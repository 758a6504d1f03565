import networkx as nx
import numpy as np
import pytest

from swarmbo.errors import ConfigError
from swarmbo_envs import sensor_field_v0
from swarmbo_envs.fields import build_field
from swarmbo_envs.pictures import FieldPicture

STILL = {"gp": {"lengthscale_m": 300.0, "size_m": [900.0, 600.0]}}
MOVING = {"gp": {"lengthscale_m": 300.0, "size_m": [900.0, 600.0], "time": {"lengthscale_rounds": 4.0}}}
ENERGY = {"sample_energy_j": 0.5, "energy_price": 0.2}


def world(**changed):
    env = sensor_field_v0.parallel_env(**{"sensors": 4, "field": STILL, **changed})
    env.reset(seed=3)
    return env


def act(env, *awake):
    """One round in which the numbered sensors sample at their first candidate."""
    actions = {agent: np.append(env.stations.spots[n][0], n in awake) for n, agent in enumerate(env.agents)}
    return env.step(actions)


def test_all_used_energy_is_counted():
    env = world(task="level", level=1e9, **ENERGY)  # nothing lies above this level, so the F1 score is always 1
    spent = np.zeros(4)
    for awake in ((0, 1), (1,), (), (1, 2)):
        _, rewards, *_, infos = act(env, *awake)
        for n, agent in enumerate(env.agents):
            used = 0.5 if n in awake else 0.0
            spent[n] += used
            info = infos[agent]
            assert (info["energy_j"], info["cost"], info["sampled"]) == (used, 0.2 * used, n in awake)
            assert ("measurement" in info) == (n in awake)
            assert (rewards[agent], info["left_j"]) == (-0.2 * used, np.inf)
    assert env.get_state()["arrays"]["spent_j"].tolist() == spent.tolist() == [0.5, 1.5, 0.5, 0.0]
    assert env.prices() == dict.fromkeys(env.agents, 0.1)


def test_an_empty_battery_ends_sampling_and_is_observed():
    env = world(battery_j=1.2, **ENERGY)
    for left, can in ((0.7, True), (0.2, False), (0.2, False)):
        observations, *_, infos = act(env, 0)
        assert infos["sensor_0"]["left_j"] == pytest.approx(left)
        assert observations["sensor_0"][3] == pytest.approx(left / 1.2)
        assert (len(env.candidates("sensor_0")) > 0) == can
    assert infos["sensor_0"]["sampled"] is False
    assert infos["sensor_1"]["left_j"] == 1.2


def test_a_battery_of_three_samples_is_enough_for_three_and_not_for_four():
    """As floats, three times 0.1 exceeds 0.3. Rounding errors neither cost nor add a sample."""
    env = sensor_field_v0.parallel_env(sensors=4, field=STILL, battery_j=0.3, sample_energy_j=0.1)
    env.reset(seed=0)
    assert 0.3 - 0.1 - 0.1 < 0.1
    assert [act(env, 0)[-1]["sensor_0"]["sampled"] for _ in range(4)] == [True, True, True, False]


def test_a_sensor_that_saves_its_energy_keeps_its_spot():
    env = world()
    act(env, 0)
    before = env.get_state()["arrays"]["spots"]
    _, _, _, _, infos = env.step({agent: env.action_space(agent).low for agent in env.agents})
    np.testing.assert_array_equal(env.get_state()["arrays"]["spots"], before)
    np.testing.assert_array_equal(infos["sensor_0"]["location"], before[0])


def test_sensors_reach_the_whole_map_and_the_default_radio_range_connects_them():
    env = world(sensors=17)
    low, high = env.stations.low, env.stations.high
    sites = env.field.sites
    assert ((sites[:, None] >= low - 1e-6) & (sites[:, None] <= high + 1e-6)).all(axis=2).any(axis=1).all()
    assert nx.is_connected(env.interaction_graph())
    env.stations.radio_range_m /= 1.06
    assert not nx.is_connected(env.interaction_graph())


def test_places_are_spread_over_the_map_by_their_seed():
    env, same, other = world(sensors=9), world(sensors=9), world(sensors=9, place_seed=1)
    places = env.stations.places
    np.testing.assert_array_equal(places, same.stations.places)
    assert np.abs(places - other.stations.places).max() > 1.0
    share = np.sqrt(900 * 600 / 9)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)[~np.eye(9, dtype=bool)]
    assert apart.min() > 0.5 * share
    given = [[10.0, 20.0], [800.0, 500.0]]
    assert world(sensors=2, places=given).stations.places.tolist() == given
    standpoints = world(sensors=2, places=given).standpoints()
    assert {agent: place.tolist() for agent, place in standpoints.items()} == {
        "sensor_0": given[0],
        "sensor_1": given[1],
    }


def test_boxes_are_within_reach_and_on_the_map():
    env = world(places=[[10, 10], [450, 300], [890, 590], [450, 590]], reach_m=120.0, spots=7)
    with pytest.raises(ConfigError, match=r"\$\.agent: got 'nobody'; wanted one of"):
        env.candidates("nobody")
    box = env.action_space("sensor_0")
    assert (box.low.tolist(), box.high.tolist()) == ([0.0, 0.0, 0.0], [130.0, 130.0, 1.0])
    assert env.action_space("sensor_1").low.tolist() == [330.0, 180.0, 0.0]
    for agent in env.agents:
        spots, box = env.candidates(agent), env.action_space(agent)
        assert len(spots) == 7
        assert ((spots >= box.low[:2]) & (spots <= box.high[:2])).all()


def test_with_sites_only_a_sensor_measures_the_same_site_repeatedly():
    env = world(field={"survey": "oxford-ph"}, task="peak", reach_m=110.0)
    own = env.stations.spots[1]
    x, y = own[0]
    for _ in range(2):
        _, _, _, _, infos = env.step(
            {a: [*env.action_space(a).low[:2], 0.0] for a in env.agents} | {"sensor_1": [x + 20.0, y - 20.0, 1.0]}
        )
        np.testing.assert_array_equal(infos["sensor_1"]["location"], own[0])
        assert infos["sensor_1"]["measurement"] == env.field.value(own[:1])[0]
    assert len(env.candidates("sensor_1")) == len(own)
    assert (np.abs(own - env.stations.places[1]) <= 110.0 + 1e-6).all()


def test_a_sensor_without_a_site_in_reach_gets_the_nearest_one():
    env = world(field={"survey": "oxford-ph"}, places=[[150, 150], [350, 1050], [550, 2050], [250, 550]], reach_m=1.0)
    assert [len(env.candidates(agent)) for agent in env.agents] == [1] * 4
    assert env.action_space("sensor_0").contains(np.append(env.candidates("sensor_0")[0], 1.0))


def test_measurements_show_the_field_of_their_round():
    env = world(field=MOVING, noise_std=0.0)
    values = []
    for round_number in (1, 2, 3):
        _, _, _, _, infos = act(env, 2)
        spot = infos["sensor_2"]["location"][None]
        assert infos["sensor_2"]["measurement"] == env.field.at(round_number).value(spot)[0]
        values.append(infos["sensor_2"]["measurement"])
        truth = env.ground_truth()
        assert truth.maximum >= truth.values.max() - 1e-9
        np.testing.assert_array_equal(truth.at(round_number).values, truth.values)
        assert np.abs(truth.at(0).values - truth.values).max() > 0.1
    assert len(set(values)) == 3


def test_noise_does_not_depend_on_prices_or_spots():
    def measured(**changed):
        env = world(noise_std=1.0, **changed)
        still = [act(env, 1)[4]["sensor_1"]["measurement"] for _ in range(2)]
        return np.array(still) - env.field.value(env.stations.spots[1][:1])[0]

    np.testing.assert_allclose(measured(), measured(energy_price=3.0, spots=9), rtol=1e-9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sensors": 0}, r"\$\.sensors: got 0; wanted an integer from 1 to 1024"),
        ({"sensor": 3}, "unknown key 'sensor'; did you mean 'sensors'"),
        ({"task": "peek"}, r"\$\.task: got 'peek'; wanted one of 'peak', 'map', 'level'; did you mean 'peak'"),
        ({"task": "level"}, r"\$\.level: got None; wanted the level that is watched, for the task 'level'"),
        ({"task": "map", "level": 2.0}, r"\$\.level: got 2\.0; wanted no level, or the task 'level'"),
        ({"places": [[0, 0]]}, r"\$\.places: got \[\(0\.0, 0\.0\)\]; wanted one \[x, y\] per sensor: 4"),
        (
            {"places": [[0, 0], [1, 1], [901, 3], [2, 2]]},
            r"\$\.places\[2\]: .*; wanted a location on the map, x from 0 to",
        ),
        ({"places": [[5, 5], [5, 5], [1, 1], [2, 2]]}, r"\$\.places\[1\]: got \[5\.0, 5\.0\] twice; wanted different"),
        ({"field": {"plumes": {}}}, r"\$\.field: got 'plumes'; wanted .* 'csv', 'raster', 'gp', 'survey', 'plume'"),
        (
            {"field": {"survey": "oxford-ph", "csv": "a"}},
            "got 'survey', 'csv'; wanted exactly one.*field = { csv = …, … }",
        ),
        ({"field": {"plume": {"gusts": 3.0}}}, r"\$\.field\.plume\.gusts: got 3\.0; wanted a number from 0 to 2"),
        ({"field": {"plume": {"sources": []}}}, r"\$\.field\.plume\.sources: got \[\]; wanted 1 to 16 places"),
        ({"field": {"survey": "oxford"}}, r"\$\.field\.survey: got 'oxford'; wanted one of 'oxford-ph'; did you mean"),
        (
            {"field": {"gp": {"time": {"lengthscale_rounds": 0.0}}}},
            r"time\.lengthscale_rounds: got 0\.0; wanted a time from",
        ),
        ({"sensors": 200, "field": {"survey": "oxford-ph"}}, r"\$\.sensors: got 200; wanted at most one per site: 126"),
    ],
)
def test_wrong_arguments_are_refused_with_path_value_and_valid_values(changed, message):
    with pytest.raises(ConfigError, match=message):
        world(**changed)


def test_states_with_invalid_arrays_are_refused():
    env = world()
    state = env.get_state()
    for name, array, message in (
        ("spots", np.full((4, 2), np.nan), "wanted spots that are finite"),
        ("spent_j", np.full(4, -1.0), "wanted 'spent_j' of 0 or more"),
        ("last", np.zeros(3), r"wanted an array 'last' of shape \(4,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            env.set_state({"json": state["json"], "arrays": {**state["arrays"], name: array}})


def test_pictures_and_text_show_the_round():
    env = world(field={"plume": {}}, render_mode="ansi", task="level", level=10.0)
    act(env, 0)
    lines = env.render().splitlines()
    assert lines[0] == "plume 0: round 1 of 25, 1 sampled"
    assert "saved its energy" in lines[2]
    assert lines[1].endswith("1 J spent")
    pictured = world(field={"plume": {}}, render_mode="rgb_array")
    first = pictured.render()
    act(pictured, 0, 1, 2, 3)
    second = pictured.render()
    assert first.shape == second.shape
    assert (first != second).any()


@pytest.mark.parametrize(
    ("table", "title"),
    [
        ({"plume": {}}, "short"),
        ({"survey": "oxford-ph"}, "a long name of a field that was measured (measured sites only)\nround 4 of 25"),
    ],
)
def test_titles_fit_into_their_pictures(table, title):
    picture = FieldPicture(build_field(table, 100, moving=True))
    height, width, _ = picture.finish(title).shape
    box = picture._figure._suptitle.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= width
    assert 0 <= box.y0 < box.y1 <= height
    assert picture.axes.get_window_extent().y1 <= box.y0
    assert picture._figure.axes[1].get_ylabel() == ("pH" if "survey" in table else "concentration")


@pytest.mark.parametrize("table", [{"survey": "oxford-ph"}, {"plume": {}}])
def test_links_and_failures_are_visible_on_any_background(table):
    def picture(**changed):
        return world(field=table, render_mode="rgb_array", **changed).render().astype(int)

    linked, alone = picture(), picture(radio_range_m=1.0)
    assert (np.abs(linked - alone).sum(axis=2) > 40).sum() > 100
    failed = picture(failure_rate=1.0)
    crosses = np.abs(failed - linked).sum(axis=2) > 0
    assert {failed[crosses].sum(axis=1).min() < 130, failed[crosses].sum(axis=1).max() > 700} == {True}
