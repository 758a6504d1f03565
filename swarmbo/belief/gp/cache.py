"""The posterior at a fixed set of points, kept so that covariances between its subsets are cheap."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.kernels import Covariance


@dataclass(frozen=True, eq=False)
class PosteriorCache:
    """Posterior at m points, in physical units.

    A covariance between r and c of them costs r c n, not a solve.

    Args:
        mean: Posterior means (m,).
        var: Latent posterior variances (m,), >= 0.
        V: L⁻¹ k(data, points) (n, m), standardised.
        U: The points in the unit cube (m, d), their times last where the belief has a time axis.
        prior: Covariance function of standardised outcomes.
        scale: Physical unit of one standardised unit.
    """

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    V: Float[np.ndarray, "n m"]
    U: Float[np.ndarray, "m d"]
    prior: Covariance
    scale: float

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets.

        Where a row and a column name the same point the entry agrees with ``var`` up to rounding, and may be smaller
        than 0 by as much.

        Args:
            rows: Indices into the points (r,), or a slice.
            cols: Indices into the points (c,), or a slice.

        Returns:
            Covariances (r, c), in the square of the outcome's unit.
        """
        prior = self.prior.matrix(self.U[rows], self.U[cols])
        return self.scale**2 * (prior - self.V[:, rows].T @ self.V[:, cols])
