import numpy as np
import pytest

from swarmbo.acquisition.trust_box import TrustBox
from swarmbo.baselines import IsotropicGP
from swarmbo.belief.additive import AdditiveGP
from swarmbo.belief.additive_settings import AdditiveGPSettings
from swarmbo.belief.warping import Warp
from swarmbo.graph import FactorGraph
from swarmbo.rng import stream
from swarmbo.spaces import Domain


def bowl(X):
    return -((np.asarray(X) - 1.0) ** 2).sum(axis=1)


def some_points(t: int, n: int = 4, seed: int = 0):
    return np.random.default_rng(seed).uniform(-2.0, 3.0, (t, n))


def test_it_asks_in_the_box_where_the_bound_written_out_is_as_large_as_at_any_of_many_points(joint_situation):
    X = some_points(14)
    y = bowl(X)
    now = joint_situation(X, y, initial=14)
    point, report = IsotropicGP(exploration_scale=1.0, box=TrustBox(initial=0.5)).decide_joint(now, None)
    whole = FactorGraph.from_scopes({"whole": now.graph.variables})
    belief = AdditiveGP.create(
        AdditiveGPSettings(lengthscales="shared"), whole, Domain(np.full(4, -2.0), np.full(4, 3.0))
    )
    belief = belief.update(X, Warp.fitted("power", y).forward(y)).fit(stream(0, "isotropic baseline", evaluations=14))
    lengthscales = belief.hyperparameters.lengthscales[0]
    best = X[int(y.argmax())]
    centre = (best + 2.0) / 5.0
    low, high = np.maximum(centre - 0.25, 0.0), np.minimum(centre + 0.25, 1.0)
    others = low + np.random.default_rng(1).random((4000, 4)) * (high - low)
    points = -2.0 + 5.0 * np.concatenate([point[None], others, centre[None]])
    mean, covariance = belief.joint_posterior(points)
    spread = covariance.diagonal() + covariance[-1, -1] - 2.0 * covariance[-1]
    bound = mean + np.sqrt(0.2 * 4 * np.log(28)) * np.sqrt(np.maximum(spread, 0.0))
    assert len(set(lengthscales)) == 1
    assert ((point >= low) & (point <= high)).all()
    assert bound[0] >= bound[1:].max()
    assert report.messages == 0


def test_its_box_halves_after_failures_and_it_asks_closer_to_the_best_point(joint_situation):
    X = some_points(4)
    X[0] = 1.0
    worse = np.concatenate([X, some_points(30, seed=1)])
    near, _ = IsotropicGP().decide_joint(joint_situation(worse, bowl(worse)), None)
    assert np.abs(near - 0.6).max() <= 2.0**-7 / 2 + 1e-12  # its smallest box


def test_it_gets_to_the_top_of_a_bowl_and_repeats_itself(joint_situation):
    X = some_points(6)
    for _ in range(25):
        point, _ = IsotropicGP().decide_joint(joint_situation(X, bowl(X), initial=6), None)
        again, _ = IsotropicGP().decide_joint(joint_situation(X, bowl(X), initial=6), None)
        assert (point == again).all()
        X = np.concatenate([X, (-2.0 + 5.0 * point)[None]])
    assert bowl(X[:6]).max() < -1.0
    assert bowl(X).max() > -0.02


def test_failures_and_points_pending_are_taken_in(joint_situation):
    X = some_points(8)
    y = np.where(np.arange(8) == 2, np.nan, bowl(X))
    first, _ = IsotropicGP(exploration_scale=1.0).decide_joint(joint_situation(X, y), None)
    beside, _ = IsotropicGP(exploration_scale=1.0).decide_joint(joint_situation(X, y, pending=-2.0 + 5.0 * first), None)
    blind, _ = IsotropicGP().decide_joint(joint_situation(X, np.full(8, np.nan)), None)
    assert np.abs(first - beside).max() > 0.05
    assert ((blind >= 0.0) & (blind <= 1.0)).all()


def test_after_a_restart_it_first_asks_anew_at_random(joint_situation):
    X = some_points(4)
    X[0] = 1.0
    worse = np.concatenate([X, some_points(12, seed=1)])
    method = IsotropicGP(box=TrustBox(restart_after=12, fresh=3))
    point, _ = method.decide_joint(joint_situation(worse, bowl(worse)), None)
    assert np.abs(point - 0.6).max() > 0.1


@pytest.mark.parametrize("wrong", [{"exploration_scale": -1.0}, {"raw_samples": 0}, {"starts": 0}, {"steps": -1}])
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match="wanted"):
        IsotropicGP(**wrong)
