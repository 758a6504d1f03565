"""Speed of ensembles of random-feature models: what one more outcome and one more draw cost."""

from functools import partial

import numpy as np
import pytest
from scipy.linalg import blas, lapack

from swarmbo.belief.features.ensemble import Ensemble
from swarmbo.belief.features.ensemble_part import of_part
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.features.feature_models import FeatureModels
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

from .timing import own_seconds as seconds

MODELS, FEATURES = 12, 1000


@pytest.mark.parametrize("t", [10, 100, 400, 1000])
def test_update_and_draw_of_12_models_with_1000_features(benchmark, t):
    rng = np.random.default_rng(0)
    rows, noise = rng.standard_normal((MODELS, t + 1, FEATURES)) / np.sqrt(FEATURES), np.full(MODELS, 1e-2)
    y, e = rng.standard_normal((2, MODELS, t + 1))
    models, prior = FeatureModels.given(rows[:, :t], y[:, :t], noise), rng.standard_normal((MODELS, FEATURES))

    def update():
        models.store.filled = t  # the same update again, into the room that is there
        return models.updated(rows[:, t], y[:, t])

    def update_and_draw():
        later = update()
        return [later.draw(m, prior[m], e[m]) for m in range(MODELS)]

    drawn = update_and_draw()
    precision = np.eye(FEATURES) + rows[0].T @ rows[0] / noise[0]

    def fresh():
        """A draw by factorising one model's precision anew, without the cost of its update."""
        L, _ = lapack.dpotrf(precision, lower=1)
        mean = lapack.dpotrs(L, rows[0].T @ y[0] / noise[0], lower=1)[0]
        return mean + lapack.dtrtrs(L, prior[0], lower=1, trans=1)[0]

    mean = models.updated(rows[:, t], y[:, t]).draw(0, np.zeros(FEATURES), np.zeros(t + 1))
    np.testing.assert_allclose(mean, lapack.dposv(precision, rows[0].T @ y[0] / noise[0])[1], atol=1e-8)
    assert np.isfinite(drawn).all()

    covariances = [np.asfortranarray(np.linalg.inv(precision)) for _ in range(MODELS)]

    def downdate():
        """The same updates in covariance form: a symmetric product and a rank-one correction of each matrix."""
        for Sigma, row in zip(covariances, rows[:, t], strict=True):
            v = blas.dsymv(1.0, Sigma, row, lower=1)
            blas.dsyr(-1e-9, v, lower=1, a=Sigma, overwrite_a=1)

    fresh_s, downdate_s, update_s = MODELS * seconds(fresh, 5, 3), seconds(downdate, 5, 3), seconds(update, 5, 5)
    benchmark(update_and_draw)
    benchmark.extra_info["fresh_factorisation_over_this"] = fresh_s / benchmark.stats.stats.min
    benchmark.extra_info["covariance_update_over_this_update"] = downdate_s / update_s


def test_one_more_evaluation_in_an_ensemble_of_6_variables(benchmark):
    """Features and all: 12 kernels with 1,000 features, 100 evaluations."""
    graph = FactorGraph.from_scopes({"whole": [f"x{i}" for i in range(6)]})
    rng = np.random.default_rng(0)
    X, y = rng.random((101, 6)), rng.standard_normal(101)
    seen = Dataset(X, y, np.full((101, 1), np.nan))
    settings = EnsembleSettings(lengthscales=(0.1, 0.3, 1.0), n_features=FEATURES)
    learned = partial(Ensemble.learned, settings, graph, Domain(np.zeros(6), np.ones(6)), coupled=True, seed=0)
    belief = learned(seen.take(slice(100)))

    def all_at_once():
        return belief.parts[0].create(belief.hyper.parts[0], belief.parts[0].scopes, belief.parts[0].bases, observed)

    observed = of_part(seen, belief.domain, [0], coupled=True)
    anew_s = seconds(all_at_once, 3)
    benchmark(lambda: learned(seen, previous=belief.hyper, last=belief))
    benchmark.extra_info["all_data_at_once_over_this"] = anew_s / benchmark.stats.stats.min
