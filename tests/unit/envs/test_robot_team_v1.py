"""Additions of version 1 of the robot team. Without them, it equals version 0."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.worlds import FieldWorld
from swarmbo_envs import robot_team_v0, robot_team_v1
from swarmbo_envs.robot_team.safety import Spacing

from .playing import at, played

PLAIN = {"elevation": "jacksboro", "window": [0, 0, 30, 30]}  # 2.2 by 2.7 km
WALL = {"corners": [[900, 300], [1100, 300], [1100, 2700], [900, 2700]]}
NEVER = np.iinfo(int).max // 4


def make(**arguments):
    return robot_team_v1.parallel_env(**{"field": PLAIN, **arguments})


def begun(**arguments):
    env = make(**arguments)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    "more", [{}, {"noise_std": 2.0, "failure_rate": 0.3, "travel_cost": 0.1, "round_time_s": 70.0}]
)
def test_without_its_additions_it_equals_version_0(more):
    old, new = robot_team_v0.parallel_env(field=PLAIN, **more), make(**more)
    assert data_equivalence(old.reset(seed=1), new.reset(seed=1))
    rng = np.random.default_rng(0)
    while old.agents:
        actions = {agent: rng.uniform(old.field.low, old.field.high) for agent in old.agents}
        assert all(np.array_equal(old.candidates(agent), new.candidates(agent)) for agent in old.agents)
        result = new.step(actions)
        assert all(info.pop("path") is not None for info in result[4].values())  # only in version 1, for figures
        assert data_equivalence(old.step(actions), result)


def test_robots_may_differ():
    different = {"speed_m_s": [2.0, 8.0], "turn_rate_rad_s": [3.0, 0.3], "radio_range_m": [2000.0, 1450.0]}
    env = make(robots=2, starts=[[100, 100], [100, 1500]], noise_std=[0.0, 5.0], round_time_s=60.0, **different)
    _, infos = env.reset(seed=0)
    assert [info["noise_std"] for info in infos.values()] == [0.0, 5.0]
    truth = env.ground_truth().value(np.array([info["location"] for info in infos.values()]))
    errors = np.array([info["measurement"] for info in infos.values()]) - truth
    assert errors[0] == 0.0
    assert 0.0 < abs(errors[1]) < 30.0
    assert env.interaction_graph().number_of_edges() == 1
    _, _, _, _, infos = env.step(at(env, [2000, 100], [2000, 1500]))
    assert infos["robot_0"]["distance"] <= 120.001 < infos["robot_1"]["distance"] <= 480.001
    env.step(at(env, [100, 100], [100, 2300]))
    apart = np.hypot(*(env.state()[:2] - env.state()[5:7]))
    assert 1450 < apart < 2000  # beyond the shorter range
    assert env.interaction_graph().number_of_edges() == 0


def test_robots_drive_around_a_wall_in_the_predicted_number_of_rounds():
    env = begun(robots=1, starts=[[800, 1500]], no_go=[WALL], round_time_s=100.0)
    goal = np.array([1200.0, 1500.0])
    expected = env.travel_rounds("robot_0", [[800, 1500], [800, 1500], [1200, 1500]], [[1200, 1500], [1000, 1000]])
    assert expected[0, 0] == np.ceil((np.hypot(100, 1200) * 2 + 200) / 500)
    assert expected[2, 0] == 0
    assert (expected[:, 1] == NEVER).all()
    rounds = 0
    while not env.step(at(env, goal))[4]["robot_0"]["reached"]:
        rounds += 1
    assert rounds + 1 == expected[0, 0]
    np.testing.assert_array_equal(env.state()[:2], goal)


def test_a_robot_sent_into_a_region_goes_to_the_nearest_site():
    env = begun(robots=1, starts=[[800, 1500]], no_go=[WALL])
    info = env.step(at(env, [950, 1500]))[4]["robot_0"]
    sites = env.sites()
    assert not info["reached"]
    np.testing.assert_array_equal(info["location"], sites[((sites - [950, 1500]) ** 2).sum(axis=1).argmin()])
    assert not ((sites[:, 0] > 900) & (sites[:, 0] < 1100) & (sites[:, 1] > 300)).any()


def test_a_robot_sent_behind_a_wall_drives_to_the_nearest_open_site_on_its_own_side(tmp_path):
    path = tmp_path / "sites.csv"
    path.write_text("x,y,v\n" + "".join(f"{x},{y},{x + y}\n" for x in (0, 1000) for y in (0, 400)))
    wall = {"corners": [[460, -10], [540, -10], [540, 410], [460, 410]]}
    field = {"csv": str(path), "x": "x", "y": "y", "value": "v", "sites": "only"}
    env = begun(robots=2, field=field, no_go=[wall], starts=[[0, 0], [1000, 0]], round_time_s=70.0, speed_m_s=2.0)
    for northing in (140.0, 280.0, 400.0):  # no candidate is in the first round's reach
        info = env.step(at(env, [900, 390], [1000, 0]))[4]["robot_0"]
        assert not info["reached"]
        assert info["location"][1] == pytest.approx(northing, abs=20.0)
    assert "measurement" in info
    # robot_1 could still measure (1000, 400), but all sites on this side are measured
    assert env.step(at(env, [900, 390], [1000, 0]))[4]["robot_0"]["distance"] == 0.0


def test_the_ground_truth_excludes_no_go_regions():
    plain = make().ground_truth()
    x, y = plain.argmax
    shut = make(no_go=[{"corners": [[x - 300, y - 300], [x + 300, y - 300], [x + 300, y + 300], [x - 300, y + 300]]}])
    truth = shut.ground_truth()
    assert truth.maximum < plain.maximum
    assert np.abs(truth.argmax - plain.argmax).max() >= 300
    assert truth.value(truth.argmax[None])[0] == truth.maximum
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 300)] * 2), axis=-1).reshape(-1, 2) * shut.field.high
    assert truth.maximum >= truth.value(grid[shut.ground.is_free(grid)]).max() - 0.5
    assert shut.ground.is_free(truth.points).all()


@pytest.mark.parametrize("rounds", [1, 3])
def test_rounding_errors_never_leave_a_robot_with_an_empty_battery_away_from_home(rounds):
    env = begun(robots=1, starts=[[200, 200]], bases=[[200, 200]], battery_s=300.0, round_time_s=60.0, speed_m_s=5.0)
    episode, seconds = env._current(), rounds * 60.0 + 3e-7  # longer than whole rounds, within the tolerance
    episode.poses[0], episode.batteries[0] = [200.0 + 5.0 * seconds, 200.0, np.pi], rounds * 60.0
    for _ in range(rounds):
        infos = env.step({"robot_0": env.action_space("robot_0").high})[4]
    assert infos["robot_0"]["battery"] == 1.0
    np.testing.assert_array_equal(env._current().poses[0, :2], [200.0, 200.0])


@pytest.mark.parametrize("reserve", [0.0, 0.5])
def test_a_battery_lasts_for_the_return_and_the_reserve(reserve):
    """The return takes 40 s plus the reserve. The robot must return if the rest is less than a round."""
    env = begun(robots=1, starts=[[200, 200]], bases=[[200, 200]], battery_s=300.0, round_time_s=60.0, speed_m_s=5.0)
    limits = replace(env._world.battery_limits, reserve=reserve)
    episode, needed = env._current(), 40.0 * (1.0 + reserve)
    pose = np.array([400.0, 200.0, np.pi])
    for spare, is_due in ((59.0, True), (61.0, False)):
        episode.poses[0], episode.batteries[0] = pose, needed + spare
        assert limits.must_return(episode, 0) is is_due
        there = np.array([spare - 1e-6, spare + 1e-6])
        assert limits.can_return(episode, 0, there, np.array([pose, pose])).tolist() == [True, False]


def test_each_round_of_driving_reduces_the_rounds_left_by_one():
    env = begun(robots=1, starts=[[200, 200]], battery_s=600.0, round_time_s=60.0, speed_m_s=5.0)
    for left in (10, 9, 8, 7):
        assert env.rounds_left("robot_0") == left
        env.step(at(env, [200, 2500]))


def test_a_robot_returns_in_time_and_is_charged_at_its_base():
    env = make(robots=1, starts=[[200, 200]], battery_s=300.0, round_time_s=60.0)
    observations, infos = env.reset(seed=0)
    assert (infos["robot_0"]["battery"], observations["robot_0"][5], env.rounds_left("robot_0")) == (1.0, 1.0, 5)
    np.testing.assert_array_equal(env.base("robot_0"), [200, 200])
    shares, places = [], []
    for _ in range(8):
        observations, _, _, _, infos = env.step(at(env, [2000, 2500]))
        shares.append(infos["robot_0"]["battery"])
        places.append(infos["robot_0"]["location"])
        assert observations["robot_0"][5] == shares[-1]
    assert shares[0] == pytest.approx(0.8)
    home = next(n for n, place in enumerate(places) if (place == [200, 200]).all())
    assert home >= 3
    assert shares[home] == 1.0
    assert min(shares) > 0.0
    endless = make()
    endless.reset(seed=0)
    assert (endless.base("robot_0"), endless.rounds_left("robot_0")) == (None, NEVER)


def test_a_robot_that_must_return_has_one_candidate_and_goes_there_for_any_action():
    env = begun(robots=1, starts=[[200, 200]], battery_s=300.0, round_time_s=60.0)
    for _ in range(2):
        env.step(at(env, [2000, 2500]))
    assert len(env.candidates("robot_0")) == 1
    state = env.get_state()
    info = env.step(at(env, env.candidates("robot_0")[0]))[4]["robot_0"]
    assert info["reached"]
    env.set_state(state)
    elsewhere = env.step(at(env, [2000, 2500]))[4]["robot_0"]
    np.testing.assert_array_equal(elsewhere["location"], info["location"])
    assert not elsewhere["reached"]


def test_a_robot_that_returns_to_a_base_without_a_site_does_not_measure():
    env = make(robots=1, field={"survey": "oxford-ph"}, battery_s=300.0, round_time_s=60.0, max_cycles=12)
    team = sb.Team.for_env(env, seed=0)
    home = sum(infos["robot_0"].get("sampled") is False for infos in played(env, team))
    assert home > 0
    assert team.n_data == 13 - home
    assert "0 failed" in str(team)


def test_robots_start_at_their_bases_by_default():
    both = make(robots=2, bases=[[300, 300], [900, 900]], battery_s=500.0)
    assert [info["location"].tolist() for info in both.reset(seed=0)[1].values()] == [[300, 300], [900, 900]]
    shared = make(robots=3, bases=[[300, 300]], battery_s=500.0)
    starts = np.array([info["location"] for info in shared.reset(seed=0)[1].values()])
    assert len(np.unique(starts, axis=0)) == 3
    assert np.hypot(*(starts - 300).T).max() < 200
    assert all((shared.base(agent) == 300).all() for agent in shared.agents)


def test_a_robot_later_in_order_makes_way():
    env = begun(robots=2, starts=[[500, 1000], [1500, 1000]], separation_m=100.0, round_time_s=300.0)
    infos = env.step(at(env, [1350, 1000], [600, 1000]))[4]
    assert infos["robot_0"]["reached"]
    assert not infos["robot_1"]["reached"]
    assert np.hypot(*(infos["robot_0"]["location"] - infos["robot_1"]["location"])) >= 100.0


def test_a_current_carries_robots_farther_than_their_speed():
    env = begun(robots=1, starts=[[600, 1300]], wind=(4.0, 0.0), round_time_s=60.0)
    places = env.candidates("robot_0")
    farthest = places[np.hypot(*(places - [600, 1300]).T).argmax()]
    assert farthest[0] - 600 > 1.3 * 5.0 * 60.0
    assert env.step(at(env, farthest))[4]["robot_0"]["reached"]


def test_a_robot_sent_to_the_base_of_another_leaves_room_for_its_owner():
    """The owner is away, and can still return."""
    bases = [[300, 300], [300, 2000]]
    env = begun(robots=2, starts=bases, bases=bases, battery_s=1e6, separation_m=100.0, round_time_s=600.0)
    env.step(at(env, [400, 300], [1800, 2000]))
    infos = env.step(at(env, bases[1], [1700, 2000]))[4]
    assert not infos["robot_0"]["reached"]
    assert 100.0 <= np.hypot(*(infos["robot_0"]["location"] - bases[1])) < 200.0
    assert env.step(at(env, [300, 300], bases[1]))[4]["robot_1"]["reached"]


def test_a_team_works_with_regions_batteries_and_different_noise():
    env = make(robots=3, no_go=[WALL], battery_s=[400.0, 300.0, 500.0], noise_std=[1.0, 2.0, 3.0], max_cycles=5)
    team = sb.Team.for_env(env, seed=0)
    for infos in played(env, team):
        assert all(info["reached"] for info in infos.values())
    assert team.n_data == 18
    assert set(team.history.noise_std[:, 1:][np.isfinite(team.history.noise_std[:, 1:])]) == {1.0, 2.0, 3.0}
    assert env.ground.is_free(np.array([team.recommend().location])).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"speed_m_s": [1.0, 2.0]}, r"\$\.speed_m_s: got \[1\.0, 2\.0\]; wanted a number, or one for each of 4 robots"),
        ({"speed_m_s": [1.0, 0.0, 1.0, 1.0]}, r"\$\.speed_m_s"),
        ({"wind": [5.0, 0.0]}, r"\$\.wind: .*less than 95 % of the slowest robot's speed, 5 m/s"),
        ({"bases": [[1, 1], [2, 2]]}, r"\$\.bases: .*one \[x, y\], or one for each of 4 robots"),
        ({"bases": [[1, 1]], "separation_m": 5.0}, r"\$\.separation_m: got 5\.0; wanted 0 where robots share a base"),
        ({"bases": [[1, 99999]]}, r"\$\.bases\[0\]: got \[1\.0, 99999\.0\]; wanted a location on the map"),
        ({"robots": 1, "starts": [[1000, 1000]], "no_go": [WALL]}, r"\$\.starts\[0\]: got .* in a no-go region"),
        (
            {"robots": 1, "starts": [[100, 100]], "bases": [[2000, 2000]], "battery_s": 60.0},
            r"\$\.battery_s: got 60 s for robot_0, which starts .* s from its base; wanted enough to get there",
        ),
        (
            {"robots": 2, "starts": [[100, 100], [150, 100]], "separation_m": 60.0},
            r"\$\.separation_m: got 60 m and starts nearer than that; wanted starts at least 6\d",
        ),
        ({"separation": 3}, r"unknown key 'separation'; did you mean 'separation_m'"),
    ],
)
def test_impossible_settings_are_refused_with_their_path(arguments, message):
    with pytest.raises(ConfigError, match=message):
        make(**arguments)


@pytest.mark.thorough
@pytest.mark.parametrize("with_bases", [False, True])
def test_spacing_equals_a_check_of_all_robots_at_all_times(with_bases):
    """Spacing skips robots that are too far away to meet, without a change of results."""
    generator, n, time = np.random.default_rng(0), 16, 20.0
    speeds = generator.uniform(1.0, 5.0, n)
    spacing = Spacing(6.0, speeds.tolist(), time)
    starts, courses = generator.uniform(0.0, 90.0, (n, 2)), generator.uniform(-np.pi, np.pi, n)
    ahead = np.column_stack([np.cos(courses), np.sin(courses)]) * speeds[:, None]
    tracks = starts[:, None] + spacing.moments[None, :, None] * ahead[:, None]
    bases = generator.uniform(0.0, 90.0, (n, 2)) if with_bases else None
    cut_short = 0
    for robot in range(n):
        others = np.delete(np.arange(n), robot)
        least = spacing.least(robot)[others]
        apart = np.hypot(*(tracks[others] - tracks[robot]).transpose(2, 0, 1))
        wanted = [0]
        for moment in range(1, len(spacing.moments)):
            if (apart[:, moment] < least).any():
                break
            stays = (least <= np.hypot(*(tracks[others, moment:] - tracks[robot, moment]).transpose(2, 0, 1)).T).all()
            if bases is not None:
                stays &= (np.hypot(*(bases[others] - tracks[robot, moment]).T) >= least).all()
            wanted += [moment] if stays else []
        assert list(spacing.stops(robot, tracks[robot], tracks, bases)) == wanted[::-1]
        cut_short += wanted[-1] < len(spacing.moments) - 1
        places = generator.uniform(0.0, 90.0, (50, 2))
        clear = (np.hypot(*(places[:, None] - starts[others]).transpose(2, 0, 1)) >= least).all(axis=1)
        assert spacing.is_clear(robot, places, starts).tolist() == clear.tolist()
    assert 0 < cut_short < n


@pytest.mark.parametrize("make", [robot_team_v0.parallel_env, robot_team_v1.parallel_env])
def test_the_task_appears_in_the_ground_truth_and_in_the_world_s_offers(make) -> None:
    for task, level in [("peak", None), ("map", None), ("level", 900.0)]:
        env = make(robots=2, task=task, level=level)
        env.reset(seed=0)
        truth = env.unwrapped.ground_truth()
        assert (truth.goal, truth.level) == (task, level)
        assert FieldWorld(env).offers(env.agents).level == level
    assert make(robots=2).unwrapped.settings.task == "peak"
