"""Posterior covariances of single points with all of some, while more and more of these are taken as measured.

With W the whitened covariances of all outcomes, one column for each,

    cov(u, v) = k(u, v) - W(u)·W(v),

and an outcome at u that is measured with variance s² beyond what is known adds the column cov(u, ·) / s. So a row is
one product of a matrix with a vector, however outcomes came to be known.
"""

import numpy as np
from jaxtyping import Float

from swarmbo.belief.gp.joint_posterior import JointPosterior


class CovarianceRows:
    """Rows of the covariance matrix of some points.

    Args:
        posterior: Of the points, given data.
        told: What is known beside these, whitened (p, m), in physical units.
        more: How many points will be taken as measured at most.
    """

    def __init__(self, posterior: JointPosterior, told: Float[np.ndarray, "p m"] | None, more: int) -> None:
        n, p = len(posterior.V), 0 if told is None else len(told)
        self._known, self._whitened = n + p, np.empty((len(posterior.mean), n + p + more))
        np.multiply(posterior.V.T, posterior.scale, out=self._whitened[:, :n])
        if told is not None:
            self._whitened[:, n : n + p] = told.T
        unit = posterior.scale**2
        self._priors = [(unit * term.weight, term.prior.by_row(term.at)) for term in posterior.terms]

    def row(self, point: int) -> Float[np.ndarray, " m"]:
        """Latent covariances of one of the points with all, in the square of the outcome's unit."""
        (unit, prior), *further = self._priors
        covariances = prior(point)
        covariances *= unit
        for unit, prior in further:
            covariances += unit * prior(point)
        known = self._whitened[:, : self._known]
        covariances -= known @ known[point]
        return covariances

    def take(self, point: int, variance: float) -> Float[np.ndarray, " m"]:
        """Take one of the points as measured.

        Args:
            point: Which.
            variance: Of its outcome given what is known, noise included.

        Returns:
            What it tells of each, whitened: variances fall by the square.
        """
        told = self.row(point)
        told /= np.sqrt(variance)
        self._whitened[:, self._known] = told
        self._known += 1
        return told
