"""Covariance function of a Gaussian process over space, or over space and time.

Over space it is one stationary kernel. Over space and time it is the product of a kernel over locations and one over
times, each with its own lengthscales:

    k((x, t), (z, u)) = s c(r) b(q),   r² = Σ_j ((x_j - z_j) / l_j)²,   q = |t - u| / l_t,

so that old measurements are less informative about the present field; b alone determines the rate.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.spatial.distance import cdist

from swarmbo.kernels.registry import KernelName
from swarmbo.kernels.stationary import correlation, kernel_matrix, scaled_distance


@dataclass(frozen=True, eq=False)
class Covariance:
    """A covariance function with its hyper-parameters; the lengthscale of time is last, if there is a ``time_kernel``.

    Source: Rasmussen & Williams 2006, section 4.2.4: a product of kernels over different coordinates is a kernel.
    """

    kernel: KernelName
    lengthscales: Float[np.ndarray, " d"]
    outputscale: float
    time_kernel: KernelName | None = None

    def matrix(self, X: Float[np.ndarray, "n d"], Z: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "n m"]:
        """Prior covariances k(X, Z)."""
        if self.time_kernel is None:
            return kernel_matrix(self.kernel, X, Z, self.lengthscales, self.outputscale)
        places = kernel_matrix(self.kernel, X[:, :-1], Z[:, :-1], self.lengthscales[:-1], self.outputscale)
        return places * correlation(self.time_kernel, scaled_distance(X[:, -1:], Z[:, -1:], self.lengthscales[-1:]))

    def by_row(self, X: Float[np.ndarray, "n d"]) -> Callable[[int], Float[np.ndarray, " n"]]:
        """Make a function of a point's index: prior covariances of that point with all, as a new array."""
        scaled, d = X / self.lengthscales, X.shape[1] - (self.time_kernel is not None)
        places, times = np.ascontiguousarray(scaled[:, :d]), np.ascontiguousarray(scaled[:, d:])

        def row(point: int) -> Float[np.ndarray, " n"]:
            here = slice(point, point + 1)
            covariances = correlation(self.kernel, cdist(places[here], places)[0])
            covariances *= self.outputscale
            if self.time_kernel is not None:
                covariances *= correlation(self.time_kernel, cdist(times[here], times)[0])
            return covariances

        return row
