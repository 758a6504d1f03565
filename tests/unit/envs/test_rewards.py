"""Rewards of each setting. The score of maps and level sets is that of a belief on all samples."""

import numpy as np
import pettingzoo
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.metrics import level_f1, map_rmse
from swarmbo_envs import sensor_field_v0

GP = {"gp": {"lengthscale_m": 200.0, "size_m": [900.0, 600.0]}}
MOVING = {"gp": {**GP["gp"], "time": {"lengthscale_rounds": 4.0}}}
PLUME = {"plume": {}}
LAKE = {"corners": [[300, 200], [500, 200], [500, 400], [300, 400]]}
ROBOTS = {"field": GP, "robots": 3, "max_sites": 100, "travel_cost": 0.01, "failure_rate": 0.2}
SENSORS = {"field": GP, "sensors": 4, "energy_price": 0.1, "failure_rate": 0.2}
FIELDS = [
    ("robot_team-v0", {**ROBOTS, "task": "peak"}),
    ("robot_team-v0", {**ROBOTS, "task": "map", "noise_std": 0.1}),
    ("robot_team-v1", {**ROBOTS, "task": "level", "level": 0.1, "samples_per_leg": 2, "no_go": [LAKE]}),
    ("robot_team-v1", {**ROBOTS, "task": "peak", "samples_per_leg": 2, "noise_std": [0.1, 0.2, 0.3]}),
    ("sensor_field-v0", {**SENSORS, "task": "peak"}),
    ("sensor_field-v0", {**SENSORS, "task": "peak", "field": MOVING}),
    ("sensor_field-v0", {**SENSORS, "task": "map"}),
    ("sensor_field-v0", {**SENSORS, "task": "map", "field": MOVING, "noise_std": 0.1, "sample_energy_j": 0.5}),
    ("sensor_field-v0", {**SENSORS, "task": "level", "level": 0.2}),
    ("sensor_field-v0", {**SENSORS, "task": "level", "level": 30.0, "field": PLUME}),
]
FUNCTIONS = [
    ("wlan_power-v0", {"noise_std": 5.0, "failure_rate": 0.2}),
    ("wlan_power-v0", {"utility": "minimum-rate", "outcomes": "total"}),
    ("function-v0", {"noise_std": 1.0, "failure_rate": 0.2, "outcomes": "per-factor"}),
    ("function-v0", {"noise_std": 1.0, "failure_rate": 0.2}),
]


def made(world, arguments, **more):
    return pettingzoo.make("parallel", f"swarmbo/{world}", max_cycles=6, **arguments, **more)


def rounds(env, seed):
    """Random actions to the end; yields rewards and infos."""
    env.reset(seed=seed)
    for number, agent in enumerate(env.possible_agents):
        env.action_space(agent).seed(100 * seed + number)
    while env.agents:
        _, rewards, _, _, infos = env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        yield rewards, infos


@pytest.mark.parametrize(("world", "arguments"), FIELDS)
def test_rewards_of_a_task_are_equal_shares_of_the_change_of_its_score_minus_costs(world, arguments):
    env = made(world, arguments)
    for seed in (0, 2**20):
        env.reset(seed=seed)
        before = env.unwrapped.score
        for rewards, infos in rounds(env, seed):
            share = (env.unwrapped.score - before) / len(infos)
            gains = [rewards[agent] + info["cost"] for agent, info in infos.items()]
            np.testing.assert_allclose(gains, share, rtol=1e-9, atol=1e-9)
            before = env.unwrapped.score


@pytest.mark.parametrize(("world", "arguments"), FIELDS + FUNCTIONS)
def test_team_rewards_are_the_mean_of_own_rewards(world, arguments):
    own, team = made(world, arguments, reward="own"), made(world, arguments, reward="team")
    for (alone, infos), (shared, _) in zip(rounds(own, 3), rounds(team, 3), strict=True):
        costs = np.array([info["cost"] for info in infos.values()])
        before = np.array(list(alone.values())) + costs
        is_total = arguments.get("outcomes", "total" if world == "function-v0" else "") == "total"
        outcomes = np.array([info.get("measurement", 0.0) for info in infos.values()])
        np.testing.assert_allclose(before, outcomes / len(outcomes) if is_total else outcomes, rtol=1e-12)
        np.testing.assert_allclose(np.array(list(shared.values())) + costs, before.mean(), rtol=1e-12)
        for info in infos.values() if (world, arguments) in FUNCTIONS else ():
            assert ("failure" in info) == ("measurement" not in info)
            assert ("factors" in info) is not is_total


def test_a_peak_pays_its_true_gain_and_nothing_more_after_the_summit_is_found():
    env = made("robot_team-v0", {**ROBOTS, "failure_rate": 0.0, "travel_cost": 0.0})
    env.reset(seed=0)
    field = env.unwrapped.field
    best, found = -np.inf, [info["location"] for info in env.reset(seed=0)[1].values()]
    for rewards, infos in rounds(env, 0):
        best = max(best, field.value(np.array(found)).max())
        found = [info["location"] for info in infos.values()]
        gain = max(0.0, field.value(np.array(found)).max() - best)
        assert list(rewards.values()) == pytest.approx([gain / 3] * 3)
    env = made("robot_team-v0", {**ROBOTS, "failure_rate": 0.0, "travel_cost": 0.0})
    env.reset(seed=0)
    for _ in range(6):
        _, rewards, *_ = env.step(dict.fromkeys(env.agents, field.argmax))
    assert env.unwrapped.score == pytest.approx(0.0, abs=1e-9)
    assert sum(rewards.values()) == pytest.approx(0.0, abs=1e-9)


def test_the_map_of_robots_is_that_of_a_gaussian_process_on_all_their_samples():
    rng = np.random.default_rng(0)
    env = made("robot_team-v1", {**ROBOTS, "task": "map", "samples_per_leg": 2, "noise_std": 0.1, "failure_rate": 0.0})
    _, infos = env.reset(seed=1)
    scorer, reports = env.unwrapped._scorer, list(infos.values())
    while env.agents:
        infos = env.step({agent: rng.uniform(0, [900, 600]) for agent in env.agents})[4]
        reports += [report for info in infos.values() for report in (*info["on_the_way"], info)]
    X, y = np.array([t["location"] for t in reports]), np.array([t["measurement"] for t in reports])

    def kernel(A, B):  # Matern 3/2, of the scorer's own settings, on its knots (Snelson & Ghahramani's FITC)
        r = np.sqrt(3.0) * cdist(A, B) / scorer._lengthscale
        return scorer._std**2 * (1.0 + r) * np.exp(-r)

    Z = scorer.knots
    inner = np.linalg.inv(kernel(Z, Z) + 1e-6 * scorer._std**2 * np.eye(len(Z)))
    seen, at = kernel(X, Z), kernel(scorer.points, Z)
    left = scorer._std**2 - np.einsum("nk,kl,nl->n", seen, inner, seen)
    noise = np.diag(np.maximum(left, 0.0) + 0.1**2 + 1e-6 * scorer._std**2)
    mean = scorer._mean + at @ inner @ seen.T @ np.linalg.solve(seen @ inner @ seen.T + noise, y - scorer._mean)
    error = np.sqrt(np.mean((mean - env.unwrapped.field.value(scorer.points)) ** 2))
    assert -env.unwrapped.score == pytest.approx(error, rel=1e-6)


def test_access_points_that_share_the_utility_earn_most_when_the_network_is_best():
    env = made("wlan_power-v0", {"failure_rate": 1.0, "noise_std": 9.0})  # rewards need no measurement
    env.reset(seed=0)
    world = env.unwrapped
    for rewards, infos in rounds(env, 0):
        powers = np.array([info["location"][0] for info in infos.values()])
        true = world.utility.value(world.network, powers[None])[0]
        assert list(rewards.values()) == pytest.approx([true / 12] * 12)
    best = made("wlan_power-v0", {}).unwrapped.best_known()[0]
    paid = {}
    for reward in ("own", "task"):
        env = made("wlan_power-v0", {}, reward=reward)
        for name, powers in (("best", best), ("full", np.full(12, 25.0))):
            env.reset(seed=0)
            _, rewards, *_ = env.step({f"ap_{i}": [power] for i, power in enumerate(powers)})
            paid[reward, name] = sum(rewards.values()), rewards
    assert paid["task", "best"][0] > 1.2 * paid["task", "full"][0]
    off = int(np.argmin(best))  # turned down for the benefit of others, so its own reward falls
    assert paid["own", "best"][1][f"ap_{off}"] < paid["own", "full"][1][f"ap_{off}"]


def test_an_unknown_reward_is_refused_with_the_valid_names():
    with pytest.raises(ConfigError, match=r"reward.*'task'"):
        made("function-v0", {}, reward="mine")


def episode(env, generator, wish=0.7):
    """Step with random sites and random decisions to sample; yield the result of each step."""
    while env.agents:
        spots = {agent: generator.choice(env.candidates(agent)) for agent in env.agents}
        yield env.step({agent: np.append(spot, float(generator.random() < wish)) for agent, spot in spots.items()})


def sampled_in(env):
    """Places, rounds and values of an episode's samples."""
    _, infos = env.reset(seed=0)
    rounds = enumerate([infos, *(infos for *_, infos in episode(env, np.random.default_rng(3)))])
    samples = [(number, info) for number, infos in rounds for info in infos.values() if info["sampled"]]
    rows = np.array([(*info["location"], number, info["measurement"]) for number, info in samples])
    return rows[:, :2], rows[:, 2], rows[:, 3]


@pytest.fixture
def series(tmp_path):
    """A field over 30 sites, measured at four times."""
    generator = np.random.default_rng(1)
    places = generator.uniform(0, 1000, size=(30, 2)).round(1)
    waves = [np.sin(places[:, 0] / 200 + t / 3) + places[:, 1] / 700 for t in range(4)]
    rows = [f"{x},{y},{t},{v:.6f}" for t, wave in enumerate(waves) for (x, y), v in zip(places, wave, strict=True)]
    (tmp_path / "series.csv").write_text("\n".join(["x_m,y_m,t,v", *rows]))
    return {"csv": str(tmp_path / "series.csv"), "x": "x_m", "y": "y_m", "value": "v"}


@pytest.mark.parametrize(
    ("task", "field", "more"),
    [("map", GP, {}), ("map", MOVING, {}), ("level", GP, {"level": 0.2}), ("level", PLUME, {"level": 30.0})],
)
def test_the_score_equals_the_metrics_of_runs(task, field, more):
    env = sensor_field_v0.parallel_env(sensors=6, field=field, task=task, **more, max_cycles=6)
    env.reset(seed=2)
    scores = {env.score}
    for _ in episode(env, np.random.default_rng(0)):
        scorer, state = env._scorer, env.get_state()["arrays"]
        truth = env.ground_truth().value(scorer.points)
        believed = scorer.map(state["knots_mean"])
        expected = -map_rmse(believed, truth) if task == "map" else level_f1(believed, truth, more["level"])
        assert env.score == pytest.approx(expected)
        assert state["score"] == env.score
        scores.add(env.score)
    assert len(scores) > 4  # samples count


@pytest.mark.parametrize("noise_std", [0.0, 0.3])
def test_if_all_sites_are_knots_the_belief_is_an_exact_gaussian_process(series, noise_std):
    """Oracle: scikit-learn, with all data at once."""
    env = sensor_field_v0.parallel_env(sensors=5, field=series, noise_std=noise_std, max_cycles=5)
    (X, _, y), scorer = sampled_in(env), env._scorer
    truth = env.field.value(scorer.points)
    kernel = ConstantKernel(truth.var(), "fixed") * Matern(scorer._lengthscale, "fixed", nu=1.5)
    process = GaussianProcessRegressor(kernel, alpha=noise_std**2 + 1e-6 * truth.var(), optimizer=None)
    process.fit(X, y - truth.mean())
    believed = scorer.map(env.get_state()["arrays"]["knots_mean"])
    np.testing.assert_allclose(believed, truth.mean() + process.predict(scorer.points), atol=3e-4)


def test_in_a_changing_field_the_belief_is_a_gaussian_process_with_exponential_decay_in_time(series):
    """Oracle: regression over places and rounds, all data at once, with covariance k(x, x') retention^|t - t'|."""
    env = sensor_field_v0.parallel_env(sensors=5, field={**series, "time": "t"}, noise_std=0.2, max_cycles=5)
    (X, t, v), scorer = sampled_in(env), env._scorer
    assert 0.5 < scorer._retention < 1.0
    truth = env.field.value(scorer.points, 0)

    def covariance(a, b, lag):
        r = np.sqrt(3) * np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1)) / scorer._lengthscale
        return truth.var() * (1 + r) * np.exp(-r) * scorer._retention**lag

    K = covariance(X, X, np.abs(t[:, None] - t[None])) + (0.2**2 + 1e-6 * truth.var()) * np.eye(len(v))
    expected = truth.mean() + covariance(scorer.points, X, 5 - t[None]) @ np.linalg.solve(K, v - truth.mean())
    np.testing.assert_allclose(scorer.map(env.get_state()["arrays"]["knots_mean"]), expected, atol=2e-3)


@pytest.mark.parametrize(("world", "arguments"), [FIELDS[1], FIELDS[7], FIELDS[8]])
def test_a_saved_belief_is_restored_and_refused_if_its_covariance_is_invalid(world, arguments):
    env, again = (made(world, arguments, reward="task").unwrapped for _ in range(2))
    all(rounds(env, 3))
    state = env.get_state()
    again.set_state(state)
    np.testing.assert_equal(again.get_state(), state)
    K, mean = (state["arrays"][f"knots_{name}"] for name in ("covariance", "mean"))
    damaged = [("covariance", change) for change in (-K, K * np.nan, np.triu(K), K - 2.0 * np.diag(np.diag(K)))]
    for name, array in (*damaged, ("mean", mean * np.inf)):
        with pytest.raises(StateVersionError, match="wanted a finite score, and a belief at knots that is a mean and"):
            again.set_state({**state, "arrays": {**state["arrays"], f"knots_{name}": array}})
    np.testing.assert_equal(again.get_state(), state)


@pytest.mark.parametrize("field", [GP, {"survey": "oxford-ph"}, {"elevation": "jacksboro"}])
def test_with_default_settings_sampling_pays_and_not_sampling_pays_nothing(field):
    returns = {}
    for wish in (0.0, 1.0):
        env = sensor_field_v0.parallel_env(sensors=12, field=field, max_cycles=6)
        env.reset(seed=1)
        returns[wish] = sum(sum(rewards.values()) for _, rewards, *_ in episode(env, np.random.default_rng(5), wish))
    assert returns[0.0] == 0.0
    assert returns[1.0] > 0.1 * env.field.at(0).value(env.field.points).std()
