"""Data behind each factor of an additive belief, in one padded form for all ways of observing.

Total and mixed outcomes tie all factors together: one covariance matrix of all observations, one Cholesky factor.
Outcomes of single factors alone leave them independent: one small matrix each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.linalg import lapack

from swarmbo.belief.additive_settings import AdditiveHyperparameters
from swarmbo.belief.cholesky import factorise, solve_lower, solve_lower_transposed
from swarmbo.kernels import kernel_matrix

TOTAL = -1  # channel of an observation of the sum; a factor's own outcomes have its index as channel


@dataclass(frozen=True, eq=False)
class Observations:
    """What was observed, one entry each.

    Args:
        U: Joint points (r, n) in the unit cube.
        channel: ``TOTAL`` or the index of a factor (r,).
        outcome: In physical units (r,); NaN for points that are pending.
        noise: Known variance (r,) on top of the fitted one, physical.
    """

    U: Float[np.ndarray, "r n"]
    channel: Int[np.ndarray, " r"]
    outcome: Float[np.ndarray, " r"]
    noise: Float[np.ndarray, " r"]

    def of_channel(self, factor: int) -> "Observations":
        """Those of one factor alone."""
        rows = self.channel == factor
        return Observations(self.U[rows], self.channel[rows], self.outcome[rows], self.noise[rows])


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A posterior, ready for use factor by factor; in the standardised unit of each factor.

    Args:
        points: For each factor the observed points (T, a) that it sees, padded to a common T.
        seen: Whether an observation holds the factor (k, T); never for padding.
        alpha: Weights (k, T) of the posterior mean: mean_i(u) = k_i(u, points_i) · alpha_i.
        inverse: Inverse covariances of the observations (k or 1, T, T), zero in padding; one for all if they are tied.
        L: Cholesky factors of what is not padding: one if tied, else one per factor.
        residuals: Standardised outcomes less prior means, in the same division.
        n_pending: Pending observations at the end of each division.
        jitter: What had to be added to diagonals, the largest.
    """

    points: tuple[Float[np.ndarray, "T _a"], ...]
    seen: Bool[np.ndarray, "k T"]
    alpha: Float[np.ndarray, "k T"]
    inverse: Float[np.ndarray, "_ T T"]
    L: tuple[Float[np.ndarray, "_t _t"], ...]
    residuals: tuple[Float[np.ndarray, " _t"], ...]
    jitter: float

    @property
    def is_tied(self) -> bool:
        """Whether all factors share one covariance matrix."""
        return len(self.L) == 1 and self.inverse.shape[0] == 1

    def inverse_of(self, factor: int) -> Float[np.ndarray, "T T"]:
        """Inverse covariance of the observations that a factor's posterior rests on."""
        return self.inverse[0 if self.is_tied else factor]


def observation_covariance(
    hyper: AdditiveHyperparameters, scopes: Sequence[Sequence[int]], data: Observations
) -> Float[np.ndarray, "r r"]:
    """Prior covariance of observations without noise: two of them share what factors both hold."""
    r = len(data.channel)
    K = np.zeros((r, r))
    for i, scope in enumerate(scopes):
        holds = (data.channel == TOTAL) | (data.channel == i)
        rows = np.flatnonzero(holds)
        points = data.U[rows][:, list(scope)]
        part = kernel_matrix(hyper.kernels[i], points, points, hyper.lengthscale_array(i), hyper.outputscales[i])
        if len(rows) == r:
            K += part
        else:
            K[np.ix_(rows, rows)] += part
    return K


def condition(
    hyper: AdditiveHyperparameters, scopes: Sequence[Sequence[int]], data: Observations, *, is_tied: bool
) -> Conditioned:
    """The posterior given observations.

    Args:
        hyper: Hyper-parameters.
        scopes: Columns of U that each factor sees.
        data: Observations; outcomes that are NaN are pending: they take variance and bring no news.
        is_tied: Whether to keep all in one matrix; needed as soon as there is one total.
    """
    k = len(scopes)
    if is_tied:
        scale = hyper.scales[0]
        constants = np.array([*hyper.constants, hyper.constant])  # TOTAL = -1 indexes the last
        residual = np.nan_to_num((data.outcome - constants[data.channel]) / scale)
        residual[np.isnan(data.outcome)] = 0.0
        noise = np.array([*hyper.noise_variances, hyper.total_noise_variance])[data.channel] + data.noise / scale**2
        K = observation_covariance(hyper, scopes, data)
        alpha, inverse, L, jitter = _solve(K, noise, residual, np.isnan(data.outcome))
        points = tuple(np.ascontiguousarray(data.U[:, list(scope)]) for scope in scopes)
        seen = np.array([(data.channel == TOTAL) | (data.channel == i) for i in range(k)]).reshape(k, len(alpha))
        return Conditioned(points, seen, np.where(seen, alpha, 0.0), inverse[None], (L,), (residual,), jitter)
    parts = [data.of_channel(i) for i in range(k)]
    T = max((len(part.channel) for part in parts), default=0)
    points, seen, alphas = [], np.zeros((k, T), dtype=bool), np.zeros((k, T))
    inverses, factors, residuals, jitters = np.zeros((k, T, T)), [], [], [0.0]
    for i, (part, scope) in enumerate(zip(parts, scopes, strict=True)):
        t = len(part.channel)
        own = part.U[:, list(scope)]
        residual = np.where(np.isnan(part.outcome), 0.0, (part.outcome - hyper.constants[i]) / hyper.scales[i])
        noise = hyper.noise_variances[i] + part.noise / hyper.scales[i] ** 2
        K = kernel_matrix(hyper.kernels[i], own, own, hyper.lengthscale_array(i), hyper.outputscales[i])
        alphas[i, :t], inverses[i, :t, :t], L, jitter = _solve(K, noise, residual, np.isnan(part.outcome))
        seen[i, :t] = True
        points.append(np.concatenate([own, np.zeros((T - t, len(scope)))]))
        factors.append(L)
        residuals.append(residual)
        jitters.append(jitter)
    return Conditioned(tuple(points), seen, alphas, inverses, tuple(factors), tuple(residuals), max(jitters))


def _solve(
    K: Float[np.ndarray, "r r"],
    noise: Float[np.ndarray, " r"],
    residual: Float[np.ndarray, " r"],
    is_pending: Bool[np.ndarray, " r"],
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "r r"], Float[np.ndarray, "r r"], float]:
    """Weights of the mean, inverse covariance, Cholesky factor, jitter. Pending ones come last, with weight 0."""
    r, n_known = len(residual), int((~is_pending).sum())
    assert not is_pending[:n_known].any(), "pending observations come last"
    K.flat[:: r + 1] += noise
    L, jitter = factorise(K)
    known = L[:n_known, :n_known]
    alpha = np.zeros(r)
    alpha[:n_known] = solve_lower_transposed(known, solve_lower(known, residual[:n_known]))
    inverse = np.zeros((r, r))
    if r:
        lower, info = lapack.dpotri(L, lower=1)
        assert info == 0
        inverse = np.tril(lower) + np.tril(lower, -1).T
    return alpha, np.ascontiguousarray(inverse), L, jitter
