"""Coverage of the 95 % intervals of fused beliefs, over fields drawn from the prior.

Single beliefs need no such test: other files compare them with closed forms.
"""

import networkx as nx
import numpy as np
import pytest

from swarmbo.belief import Hyperparameters
from swarmbo.belief.fusion import CovarianceIntersection, Proposal, PushSum, exchange
from swarmbo.boundary.rng import stream
from swarmbo.spaces import Domain
from swarmbo.transport import Faults

# Shares over 80 fields of 60 points have a standard error of at most 0.7 %, as errors in one field are correlated
N_DATA, N_TEST, NOISE = 20, 60, 0.05
SQUARE = Domain(np.zeros(2), np.ones(2))
START = Proposal(0, "", Hyperparameters("matern52", (0.25, 0.4), 1.0, NOISE), seed=2, n_features=60)
LINKS = nx.cycle_graph(["a", "b", "c", "d"])


def coverage(kind, fields, steps):
    """Every agent has a share of the measurements; the belief is that of the agent that they reach last."""
    basis, inside = START.basis, []
    for k in range(fields):
        rng = stream(0, "calibration", field=k)
        X, Z = rng.random((N_DATA, 2)), rng.random((N_TEST, 2))
        f = basis.features(np.concatenate([X, Z])) @ rng.standard_normal(basis.n_features)
        y = f[:N_DATA] + np.sqrt(NOISE) * rng.standard_normal(N_DATA)
        agents = {name: kind(name, SQUARE, START) for name in LINKS}
        for name, agent in agents.items():
            agent.meet(LINKS[name])
        for n, agent in enumerate(agents.values()):
            agent.measure(X[n::4], y[n::4])
        exchange(agents.values(), Faults(loss=0.2, seed=k).open(list(LINKS), LINKS), steps=steps)
        mean, var = agents["d"].belief.posterior(Z)
        inside.append(np.abs(f[N_DATA:] - mean) <= 1.96 * np.sqrt(var))
    return float(np.mean(inside))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fields", "steps", "most"), [(PushSum, 80, 40, 0.97), (CovarianceIntersection, 40, 10, 1.0)]
)
def test_95_percent_intervals_cover_at_least_93_percent_and_those_of_a_pool_at_most_97(kind, fields, steps, most):
    assert 0.93 <= coverage(kind, fields, steps) <= most
