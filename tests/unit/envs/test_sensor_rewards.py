"""What a sensor field pays for maps and levels: the gain of a belief that stands on all samples so far."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from swarmbo.metrics import level_f1, map_rmse
from swarmbo_envs import sensor_field_v0

STILL = {"gp": {"lengthscale_m": 200.0, "size_m": [900.0, 600.0]}}
MOVING = {"gp": {"lengthscale_m": 200.0, "size_m": [900.0, 600.0], "time": {"lengthscale_rounds": 4.0}}}
PLUME = {"plume": {}}
TASKS = [("map", STILL, {}), ("map", MOVING, {}), ("level", STILL, {"level": 0.2}), ("level", PLUME, {"level": 30.0})]


def episode(env, generator, wish=0.7):
    """Random spots; who samples is random too. Yields what each step returns."""
    while env.agents:
        spots = {agent: generator.choice(env.candidates(agent)) for agent in env.agents}
        yield env.step({agent: np.append(spot, float(generator.random() < wish)) for agent, spot in spots.items()})


def sampled_in(env):
    """Places, rounds and values of the samples of an episode."""
    _, infos = env.reset(seed=0)
    told = enumerate([infos, *(infos for *_, infos in episode(env, np.random.default_rng(3)))])
    samples = [(number, info) for number, infos in told for info in infos.values() if info["sampled"]]
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


@pytest.mark.parametrize(("task", "field", "more"), TASKS)
def test_the_score_is_that_of_the_metrics_by_which_runs_are_judged(task, field, more):
    env = sensor_field_v0.parallel_env(sensors=6, field=field, task=task, **more, max_cycles=8)
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
def test_where_all_sites_are_knots_the_belief_is_that_of_a_gaussian_process(series, noise_std):
    """Oracle: scikit-learn, with all data at once."""
    env = sensor_field_v0.parallel_env(sensors=5, field=series, noise_std=noise_std, max_cycles=5)
    (X, _, y), scorer = sampled_in(env), env._scorer
    truth = env.field.value(scorer.points)
    kernel = ConstantKernel(truth.var(), "fixed") * Matern(scorer._lengthscale, "fixed", nu=1.5)
    process = GaussianProcessRegressor(kernel, alpha=noise_std**2 + 1e-6 * truth.var(), optimizer=None)
    process.fit(X, y - truth.mean())
    believed = scorer.map(env.get_state()["arrays"]["knots_mean"])
    np.testing.assert_allclose(believed, truth.mean() + process.predict(scorer.points), atol=3e-4)


def test_of_a_field_that_changes_it_is_the_process_whose_old_data_fade_by_a_share_each_round(series):
    """Oracle: the regression over places and rounds with all data at once, of covariance k(x, x') share^|t - t'|."""
    env = sensor_field_v0.parallel_env(sensors=5, field={**series, "time": "t"}, noise_std=0.2, max_cycles=5)
    (X, t, v), scorer = sampled_in(env), env._scorer
    assert 0.5 < scorer._kept < 1.0
    truth = env.field.value(scorer.points, 0)

    def covariance(a, b, lag):
        r = np.sqrt(3) * np.hypot(*(a[:, None] - b[None]).transpose(2, 0, 1)) / scorer._lengthscale
        return truth.var() * (1 + r) * np.exp(-r) * scorer._kept**lag

    K = covariance(X, X, np.abs(t[:, None] - t[None])) + (0.2**2 + 1e-6 * truth.var()) * np.eye(len(v))
    expected = truth.mean() + covariance(scorer.points, X, 5 - t[None]) @ np.linalg.solve(K, v - truth.mean())
    np.testing.assert_allclose(scorer.map(env.get_state()["arrays"]["knots_mean"]), expected, atol=2e-3)


@pytest.mark.parametrize("field", [STILL, {"survey": "oxford-ph"}, {"elevation": "jacksboro"}])
def test_with_default_settings_sampling_pays_and_doing_without_pays_nothing(field):
    returns = {}
    for wish in (0.0, 1.0):
        env = sensor_field_v0.parallel_env(sensors=12, field=field, max_cycles=6)
        env.reset(seed=1)
        returns[wish] = sum(sum(rewards.values()) for _, rewards, *_ in episode(env, np.random.default_rng(5), wish))
    assert returns[0.0] == 0.0
    assert returns[1.0] > 0.1 * env.field.at(0).value(env.field.points).std()
