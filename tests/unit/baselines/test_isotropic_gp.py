import numpy as np
import pytest

from swarmbo.acquisition.trust_region import TrustRegion
from swarmbo.baselines import IsotropicGP
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.warping import Warp
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph

from .conftest import bowl, some_points


def written_out(now, X, y, scale):
    """The bound at points of the unit cube, from the joint posterior; and the fitted belief."""
    whole = FactorGraph.from_scopes({"whole": now.graph.variables})
    belief = AdditiveGP.create(AdditiveGPSettings(lengthscales="shared"), whole, now.domain)
    belief = belief.update(X, Warp.fitted("power", y).forward(y))
    belief = belief.fit(stream(0, "isotropic baseline", evaluations=len(y)))

    def bound(U):
        mean, covariance = belief.joint_posterior(now.domain.from_unit(np.concatenate([U, centre[None]])))
        spread = covariance.diagonal() + covariance[-1, -1] - 2.0 * covariance[-1]
        weight = scale * np.sqrt(0.2 * X.shape[1] * np.log(2 * len(y)))
        return (mean - mean[-1] + weight * np.sqrt(np.maximum(spread, 0.0)))[:-1]

    centre = now.domain.to_unit(X[int(y.argmax())])
    return belief, bound, centre


def waves(X):
    return np.sin(4.0 * X).sum(axis=1)


@pytest.mark.parametrize(("function", "scale", "n"), [(bowl, 0.1, 4), (bowl, 4.0, 4), (waves, 0.1, 2), (waves, 2.0, 2)])
def test_it_asks_in_the_box_where_the_bound_written_out_is_largest_far_and_near(function, scale, n, joint_situation):
    X = some_points(14 if n == 4 else 30, n)
    y = function(X)
    now = joint_situation(X, y, initial=len(y))
    method = IsotropicGP(exploration_scale=scale, box=TrustRegion(initial=0.5 if n == 4 else 1.0), steps=300)
    point, report = method.decide_joint(now, None)
    belief, bound, centre = written_out(now, X, y, scale)
    half = 0.25 if n == 4 else 0.5
    low, high = np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
    rng = np.random.default_rng(1)
    far = low + rng.random((1500, n)) * (high - low)
    near = np.clip(point + rng.normal(size=(1500, n)) * 10.0 ** rng.uniform(-4, -1, (1500, 1)), low, high)
    values = bound(np.concatenate([point[None], far, near]))
    assert len(set(belief.hyperparameters.lengthscales[0])) == 1
    assert ((point >= low) & (point <= high)).all()
    assert values[0] >= values.max() - 1e-6 * np.ptp(values)
    assert report.messages == 0


def test_its_box_halves_after_failures_and_it_asks_closer_to_the_best_point(joint_situation):
    X = some_points(4, 4)
    X[0] = 1.0
    worse = np.concatenate([X, some_points(30, 4, seed=1)])
    near, _ = IsotropicGP().decide_joint(joint_situation(worse, bowl(worse)), None)
    assert np.abs(near - 0.6).max() <= 2.0**-7 / 2 + 1e-12  # its smallest box


def test_it_gets_to_the_top_of_a_bowl_and_repeats_itself(joint_situation):
    X = some_points(6, 4)
    for _ in range(25):
        point, _ = IsotropicGP().decide_joint(joint_situation(X, bowl(X), initial=6), None)
        again, _ = IsotropicGP().decide_joint(joint_situation(X, bowl(X), initial=6), None)
        assert (point == again).all()
        X = np.concatenate([X, (-2.0 + 5.0 * point)[None]])
    assert bowl(X[:6]).max() < -1.0
    assert bowl(X).max() > -0.02


def test_failures_and_points_pending_are_taken_in(joint_situation):
    X = some_points(8, 4)
    y = np.where(np.arange(8) == 2, np.nan, bowl(X))
    first, _ = IsotropicGP(exploration_scale=1.0).decide_joint(joint_situation(X, y), None)
    beside, _ = IsotropicGP(exploration_scale=1.0).decide_joint(joint_situation(X, y, pending=-2.0 + 5.0 * first), None)
    blind, _ = IsotropicGP().decide_joint(joint_situation(X, np.full(8, np.nan)), None)
    assert np.abs(first - beside).max() > 0.05
    assert ((blind >= 0.0) & (blind <= 1.0)).all()
