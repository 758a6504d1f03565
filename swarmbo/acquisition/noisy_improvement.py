"""Expected improvement over a best value that noise hides, averaged over draws of the function at evaluated points.

With noise, the improvement over one incumbent is misleading: its value is uncertain, and so is which point is best. A
search by it measures points beside the incumbent again and again. Here the function is drawn at the evaluated points.
Given a draw, the improvement over its largest value has a closed form, and an evaluated point improves on nothing.

Source: Letham et al. 2019, section 4.1 (average over quasi-random draws); Ament et al. 2023, section 4 (logarithm).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, ndtri

from swarmbo.acquisition.box_functions import on_box
from swarmbo.acquisition.expected_improvement import log_improvement
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.cholesky import factorise, solve_lower
from swarmbo.boundary.rng import sobol, stream
from swarmbo.graph import BoxFunctions, FactorStack
from swarmbo.graph.box_functions import Climbing, Points, Received, Values
from swarmbo.kernels.stationary import Covariance, correlation_and_slope

_N_DRAWS = 64  # draws of the function; with 8, a search follows the error of their average
_N_RIVALS = 256  # points that are drawn: those that may be the best; other values follow from them
_BOUND = 2.0  # standard deviations above the mean by which these points are selected
_JITTER = 1e-6  # share of the prior variance, below which the value at an evaluated point is not known
_LEAST_VARIANCE = 1e-10  # share of the prior variance: smaller ones are rounding errors


@dataclass(frozen=True, eq=False, kw_only=True)
class NoisyImprovements(BoxFunctions):
    """The local function of one factor: the log of its improvement over the best value, averaged over s draws.

    Args:
        prior: Covariance of the factor's standardised outcomes over the unit cube.
        points: Evaluated and pending points (n, d) in the unit cube.
        drawn: Values (n, s) of the draws at these points, standardised, less the prior mean.
        best: Largest value (s,) of each draw at points that may be incumbents.
    """

    prior: Covariance
    points: Float[np.ndarray, "n d"]
    drawn: Float[np.ndarray, "n s"]
    best: Float[np.ndarray, " s"]

    @classmethod
    def on_cube(cls, belief: AdditiveGP, seed: int) -> Self:
        """Improvement by a belief about one factor, on the unit cube."""
        hyper, scale = belief.hyperparameters, belief.hyperparameters.scales[0]
        points = np.concatenate([belief.X[belief.known], belief.pending])
        joint = belief.without_pending.posterior_cache(points)
        may_be_best = np.concatenate([belief.eligible[belief.known], np.ones(len(belief.pending), dtype=bool)])
        bounds = np.where(may_be_best, joint.mean + _BOUND * np.sqrt(joint.var), -np.inf)
        rivals = np.argsort(-bounds, kind="stable")[: min(_N_RIVALS, max(1, int(may_be_best.sum())))]
        covariances = joint.cov(np.arange(len(points)), rivals) / scale**2
        variances, vectors = np.linalg.eigh(covariances[rivals])
        roots = np.sqrt(np.maximum(variances, _JITTER * hyper.outputscales[0]))
        rng = stream(seed, "noisy improvement", evaluations=len(belief.X), pending=len(belief.pending))
        normal = ndtri(sobol(_N_DRAWS, len(rivals), rng)).T
        mean = (joint.mean - hyper.constants[0]) / scale
        drawn = mean[:, None] + covariances @ (vectors / roots) @ normal
        best, places = drawn[rivals].max(axis=0), belief.domain.to_unit(points)
        return cls(**on_box(belief), prior=hyper.covariance(0), points=places, drawn=drawn, best=best)

    @cached_property
    def _root(self) -> Float[np.ndarray, "n n"]:
        jitter = _JITTER * self.prior.outputscale * np.eye(len(self.points))
        return factorise(self.prior.matrix(self.points, self.points) + jitter)[0]

    @cached_property
    def _weights(self) -> Float[np.ndarray, "n s"]:
        return solve_lower(self._root, solve_lower(self._root, self.drawn), transposed=True)

    def value(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """The factor's log improvement, in the unit of standardised outcomes."""
        return self.value_and_gradient(stack, U, received)[0]

    def value_and_gradient(self, stack: FactorStack, U: Points, received: Received) -> Climbing:
        """The factor's log improvement and its gradient."""
        self.check_owned(stack)
        lengths, outputscale = self.prior.lengthscales, self.prior.outputscale
        distances = cdist(U[0] / lengths, self.points / lengths)
        correlations, slopes = correlation_and_slope(self.prior.kernel, distances)
        covariances = outputscale * correlations
        whitened = solve_lower(self._root, covariances.T)
        variance = outputscale - np.einsum("nm,nm->m", whitened, whitened)
        std = np.sqrt(np.maximum(variance, _LEAST_VARIANCE * outputscale))[:, None]
        gain = covariances @ self._weights - self.best
        logs, by_mean, by_std = log_improvement(gain, np.broadcast_to(std, gain.shape))
        total = logsumexp(logs, axis=1)
        share = np.exp(logs - total[:, None])  # of each draw in the gradient of the sum's logarithm
        # derivative with respect to each covariance with an evaluated point: by the means, and by the deviation
        by_covariance = (share * by_mean) @ self._weights.T
        of_std = np.where(variance > _LEAST_VARIANCE * outputscale, (share * by_std).sum(axis=1) / std[:, 0], 0.0)
        by_covariance -= of_std[:, None] * solve_lower(self._root, whitened, transposed=True).T
        by_covariance *= outputscale * slopes  # d c(r) / d u = -w(r) (u - z) / lengthscale²
        gradient = (by_covariance @ self.points - by_covariance.sum(axis=1)[:, None] * U[0]) / lengths**2
        return (total - np.log(gain.shape[1]))[None], gradient[None]
