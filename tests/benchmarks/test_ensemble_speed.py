"""Speed of ensembles of random-feature models: what one more outcome costs."""

from functools import partial

import numpy as np

from swarmbo.belief.features.ensemble import Ensemble
from swarmbo.belief.features.ensemble_part import of_part
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

from .timing import own_seconds as seconds

FEATURES = 1000


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
