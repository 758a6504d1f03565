import numpy as np
import pytest
from gymnasium.error import ResetNeeded

from swarmbo.errors import ConfigError
from swarmbo_envs import robot_team_v0

from .playing import at

PLAIN = {"elevation": "jacksboro", "window": [0, 0, 30, 30]}


def begun(**arguments):
    env = robot_team_v0.parallel_env(**{"field": PLAIN, **arguments})
    env.reset(seed=0)
    return env


@pytest.fixture
def line(tmp_path):
    """Ten sites 100 m apart, with values that rise to the east."""
    path = tmp_path / "line.csv"
    path.write_text("x,y,v\n" + "".join(f"{100 * i},0,{i}\n" for i in range(10)))
    return {"csv": str(path), "x": "x", "y": "y", "value": "v"}


def test_reset_measures_at_the_starts_without_cost():
    starts = [[100.0, 200.0], [900.0, 800.0]]
    env = robot_team_v0.parallel_env(robots=2, field=PLAIN, starts=starts, travel_cost=1.0)
    observations, infos = env.reset(seed=0)
    truth = env.ground_truth().value(np.array(starts))
    for i, agent in enumerate(env.agents):
        np.testing.assert_array_equal(infos[agent]["location"], starts[i])
        assert infos[agent]["measurement"] == truth[i] == observations[agent][3]
        assert (infos[agent]["cost"], infos[agent]["distance"], infos[agent]["reached"]) == (0.0, 0.0, True)
        assert observations[agent][4] == 1.0


def test_a_robot_that_arrives_measures_there_and_pays_for_its_path():
    env = begun(robots=1, starts=[[500.0, 500.0]], travel_cost=0.5, reward="own")
    observations, rewards, _, _, infos = env.step(at(env, [540.0, 530.0]))
    info = infos["robot_0"]
    assert info["reached"]
    np.testing.assert_array_equal(info["location"], [540.0, 530.0])
    assert 50.0 <= info["distance"] <= 50.0 + 2 * np.pi * 10
    assert info["cost"] == 0.5 * info["distance"]
    assert info["measurement"] == env.ground_truth().value(np.array([[540.0, 530.0]]))[0]
    assert rewards["robot_0"] == info["measurement"] - info["cost"]
    np.testing.assert_array_equal(observations["robot_0"][:2], info["location"])


def test_a_robot_that_is_late_measures_at_its_place_and_reports_that_it_did_not_arrive():
    env = begun(robots=1, starts=[[100.0, 100.0]], round_time_s=40.0)
    goal = np.array([1600.0, 1500.0])
    before = np.array([100.0, 100.0])
    for _ in range(20):
        _, _, _, _, infos = env.step(at(env, goal))
        info = infos["robot_0"]
        assert np.hypot(*(info["location"] - goal)) < np.hypot(*(before - goal))
        assert info["measurement"] == env.ground_truth().value(info["location"][None])[0]
        assert info["distance"] <= 40.0 * 5.0 * (1 + 1e-8)
        before = info["location"]
        if info["reached"]:
            break
        assert info["distance"] > 40.0 * 5.0 - 2 * np.pi * 10
    assert info["reached"]
    np.testing.assert_array_equal(info["location"], goal)


@pytest.mark.parametrize("seed", range(2))
def test_exactly_the_candidates_are_reached(seed):
    env = robot_team_v0.parallel_env(robots=2, field=PLAIN, round_time_s=30.0)
    env.reset(seed=seed)
    state = env.get_state()
    offered = {tuple(site) for site in env.candidates("robot_1")}
    assert offered
    for site in env.unwrapped.field.sites[::7]:
        env.set_state(state)
        here = env.unwrapped.field.sites[0]
        _, _, _, _, infos = env.step(at(env, here, site))
        assert infos["robot_1"]["reached"] == (tuple(site) in offered)


def test_robots_observe_the_share_of_rounds_left():
    env = begun(robots=2, max_cycles=4)
    seen = []
    while env.agents:
        observations = env.step(at(env, [500, 500], [600, 600]))[0]
        seen.append([observation[4] for observation in observations.values()])
    assert seen == [[0.75, 0.75], [0.5, 0.5], [0.25, 0.25], [0.0, 0.0]]
    np.testing.assert_array_equal(env.state()[[4, 9]], [0.0, 0.0])


def test_noise_and_failures_of_a_robot_do_not_depend_on_any_robot_s_path():
    arguments = {"robots": 2, "field": PLAIN, "noise_std": 2.0, "failure_rate": 0.3}
    luck = []
    for places in ([[0, 0], [900, 900]], [[1500, 900], [20, 30]]):
        env = robot_team_v0.parallel_env(**arguments)
        env.reset(seed=0)
        rounds = []
        for _ in range(20):
            _, _, _, _, infos = env.step(at(env, *places))
            where = np.array([info["location"] for info in infos.values()])
            rounds.append(
                [info.get("measurement", np.nan) for info in infos.values()] - env.ground_truth().value(where)
            )
        luck.append(rounds)
    np.testing.assert_allclose(luck[0], luck[1], atol=1e-9)
    assert 0.1 < np.isnan(luck[0]).mean() < 0.5
    assert np.nanstd(luck[0]) == pytest.approx(2.0, rel=0.4)
    assert len(np.unique(np.round(luck[0], 6))) > 20


def test_a_failed_measurement_costs_its_path_and_has_no_reward():
    env = robot_team_v0.parallel_env(robots=1, field=PLAIN, starts=[[100, 100]], failure_rate=1.0, travel_cost=1.0)
    observations, infos = env.reset(seed=0)
    assert "measurement" not in infos["robot_0"]
    assert observations["robot_0"][3] == env.observation_space("robot_0").low[3]
    _, rewards, _, _, infos = env.step(at(env, [130, 100]))
    assert "measurement" not in infos["robot_0"]
    assert rewards["robot_0"] == -infos["robot_0"]["cost"] < 0


def test_each_episode_has_its_own_noise_and_failures():
    starts = [[100.0 * i, 100.0] for i in range(16)]
    episodes = {}
    for name, luck in (("noise", {"noise_std": 1.0}), ("failures", {"failure_rate": 0.5})):
        env = robot_team_v0.parallel_env(robots=16, field=PLAIN, starts=starts, **luck)
        infos = [env.reset(seed=0)[1], env.reset()[1]]
        episodes[name] = [np.array([info.get("measurement", np.nan) for info in episode.values()]) for episode in infos]
    assert (episodes["noise"][0] != episodes["noise"][1]).all()
    assert (np.isnan(episodes["failures"][0]) != np.isnan(episodes["failures"][1])).any()


def test_unseeded_environments_differ():
    starts = [robot_team_v0.parallel_env(field=PLAIN).reset()[0]["robot_0"] for _ in range(4)]
    assert len({tuple(start) for start in starts}) > 1


def test_each_measured_site_is_sampled_once_and_no_other_place(line):
    env = robot_team_v0.parallel_env(robots=2, field=line, starts=[[20, 0], [880, 0]], round_time_s=500.0)
    _, infos = env.reset(seed=0)
    assert [info["location"].tolist() for info in infos.values()] == [[0, 0], [900, 0]]
    assert [info["measurement"] for info in infos.values()] == [0.0, 9.0]
    assert len(env.candidates("robot_0")) == 8
    _, _, _, _, infos = env.step(at(env, [330, 0], [330, 0]))  # both want site 3; the first in order gets it
    assert [info["measurement"] for info in infos.values()] == [3.0, 4.0]
    assert [info["reached"] for info in infos.values()] == [True, True]
    _, _, _, _, infos = env.step(at(env, [300, 0], [400, 0]))  # both are taken: the nearest free sites
    assert [info["measurement"] for info in infos.values()] == [2.0, 5.0]


def test_a_robot_goes_to_a_reachable_site_if_its_target_is_out_of_reach(line):
    env = begun(robots=1, field=line, starts=[[0, 0]], round_time_s=60.0)
    _, _, _, _, infos = env.step(at(env, [900, 0]))
    assert infos["robot_0"]["measurement"] == 2.0  # 300 m take 60 s without a turn
    assert not infos["robot_0"]["reached"]


def test_a_robot_that_can_reach_no_site_drives_towards_the_nearest_without_a_measurement(line):
    env = begun(robots=1, field=line, starts=[[0, 0]], round_time_s=10.0)
    outcomes = []
    for _ in range(3):
        assert len(env.candidates("robot_0")) in (0, 1)
        _, rewards, _, _, infos = env.step(at(env, [100, 0]))
        outcomes.append((infos["robot_0"].get("measurement", np.nan), infos["robot_0"]["reached"]))
        if infos["robot_0"]["reached"]:
            break
        assert 0 <= infos["robot_0"]["location"][0] < 100
        assert rewards["robot_0"] == 0
    assert np.isnan(outcomes[0][0])
    assert outcomes[-1] == (1.0, True)


def test_a_site_whose_measurement_failed_stays_a_candidate(line):
    env = begun(robots=1, field=line, starts=[[0, 0]], failure_rate=1.0)
    assert len(env.candidates("robot_0")) > 0
    assert [0.0, 0.0] in env.candidates("robot_0").tolist()
    _, _, _, _, infos = env.step(at(env, [100, 0]))
    assert infos["robot_0"]["reached"]
    assert [100.0, 0.0] in env.candidates("robot_0").tolist()


def test_after_all_sites_are_measured_robots_stay_and_measure_nothing(line):
    env = begun(robots=2, field=line, round_time_s=1000.0)
    for _ in range(4):
        env.step(at(env, [0, 0], [0, 0]))
    assert len(env.candidates("robot_0")) == 0
    before = env.state()
    infos = env.step(at(env, [0, 0], [0, 0]))[4]
    assert all("measurement" not in info and info["distance"] == 0 for info in infos.values())
    np.testing.assert_array_equal(env.state()[:3], before[:3])


def test_the_ground_truth_states_that_only_sites_are_measured(line):
    env = robot_team_v0.parallel_env(robots=2, field=line)
    truth = env.ground_truth()
    assert truth.name == "line v (measured sites only)"
    assert (truth.maximum, truth.argmax.tolist(), truth.axis_unit) == (9.0, [900.0, 0.0], "m")
    _, infos = env.reset(seed=0)
    assert infos["robot_0"]["interpolated"] is False


def test_actions_rounded_to_single_precision_are_accepted():
    env = begun(robots=1)
    corner = np.nextafter(env.action_space("robot_0").high.astype(np.float32), np.float32(np.inf))
    env.step({"robot_0": corner})


def test_all_calls_before_reset_are_refused():
    env = robot_team_v0.parallel_env(robots=1, field=PLAIN, render_mode="ansi")
    for call in (lambda: env.step({}), env.state, env.render, env.get_state, env.interaction_graph):
        with pytest.raises(ResetNeeded):
            call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"robots": 0}, r"\$\.robots: got 0; wanted an integer from 1 to 1024"),
        ({"robotz": 3}, r"^unknown key 'robotz'; did you mean 'robots'"),
        ({"robots": 2.5}, r"\$\.robots: got 2\.5"),
        ({"robots": "four"}, r"\$\.robots: got 'four'"),
        ({"render_mode": "film"}, r"\$\.render_mode: got 'film'"),
        ({"field": 3}, r"\$\.field: got 3"),
        ({"robots": 1, "starts": [[-1, 0]]}, r"\$\.starts\[0\]: got \[-1\.0, 0\.0\]; wanted a location on the map"),
        ({"robots": 1, "starts": [[float("nan"), 0]]}, r"\$\.starts\[0\]: got \[nan"),
        ({"robots": 2, "starts": [[1, 1], [1, 1]]}, r"\$\.starts\[1\]: got \[1\.0, 1\.0\] twice"),
        ({"robots": 3, "starts": [[1, 1], [2, 1]]}, r"\$\.starts: got .*; wanted one \[x, y\] per robot: 3"),
        ({"robots": 1, "starts": [[1, 1, 1]]}, r"\$\.starts\[0\]: got"),
        ({"robots": 50, "max_sites": 9}, r"\$\.robots: got 50; wanted at most one per site"),
    ],
)
def test_bad_arguments_are_refused_in_one_line_with_the_path(arguments, message):
    with pytest.raises(ConfigError, match=message) as error:
        robot_team_v0.parallel_env(**{"field": PLAIN, **arguments})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("speed_m_s", [1e-6, 1e12])
@pytest.mark.parametrize("turn_rate_rad_s", [1e-6, 1e6])
@pytest.mark.parametrize("round_time_s", [1e-6, 1e12, None])
def test_robots_drive_with_limits_at_the_ends_of_their_ranges(speed_m_s, turn_rate_rad_s, round_time_s):
    limits = {"speed_m_s": speed_m_s, "turn_rate_rad_s": turn_rate_rad_s, "round_time_s": round_time_s}
    env = begun(robots=2, travel_cost=1e12, noise_std=1e12, **limits)
    observations, rewards, _, _, _ = env.step(at(env, [500, 500], [600, 600]))
    assert np.isfinite([*observations.values()]).all()
    assert np.isfinite([*rewards.values()]).all()
    assert np.isfinite(env.candidates("robot_0")).all()


def test_an_action_outside_the_area_is_refused_also_far_from_the_origin(tmp_path):
    path = tmp_path / "far.csv"
    path.write_text("x,y,v\n" + "".join(f"{5e5 + 10 * (i % 4)},{5e6 + 10 * (i // 4)},{i}\n" for i in range(16)))
    env = begun(robots=1, field={"csv": str(path), "x": "x", "y": "y", "value": "v"})
    high = env.action_space("robot_0").high
    env.step({"robot_0": high.astype(np.float32)})
    with pytest.raises(ConfigError, match="wanted"):
        env.step({"robot_0": high + np.array([0.0, 3.0])})
