"""Gaussian linear models of the same data, each over its own features, updated one datum at a time.

Model m is y = w·phi_m + e with weights w ~ N(0, I) of p features and noise e ~ N(0, s_m). After t data its posterior
has in information form the precision I + Phi'Phi / s_m and the vector Phi'y / s_m. Equivalently, by the matrix
inversion lemma, a model stores Phi, of rank t, and the Cholesky factor L of Phi Phi' + s_m I:

    a new datum:  v = L⁻¹ Phi phi, variance phi·phi + s_m - v·v and mean v·L⁻¹y make the next row of L and of L⁻¹y
    a draw:       w = w0 + Phi'(Phi Phi' + s_m I)⁻¹ (y - Phi w0 - e), w0 and e drawn from the prior (Matheron's rule)

Both take O(t p + t²) instead of O(p²), and nothing is ever subtracted from a covariance matrix. When there are twice as
many data as features, p rows R and outcomes Q'y, with Phi = Q R, replace the data: Phi'Phi and Phi'y, and so the
posterior, stay the same, and the number of rows is bounded.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from scipy.linalg.blas import dtpsv

from swarmbo.belief.gp.cholesky import factorise, solve_lower

_LOG_2PI = float(np.log(2.0 * np.pi))
_FIRST_ROWS = 16  # initial capacity; it doubles when full
PerModel = Float[np.ndarray, " M"]  # one number for each of M models
Rows = Float[np.ndarray, "M p"]
Outcomes = Float[np.ndarray, "M t"]


class _Store:
    """Append-only rows, shared between models; before a model appends, it copies them if another one has appended.
    ``packed`` holds rows 0 … i of L consecutively, so that appending moves no row; ``whitened`` is L⁻¹ y.
    """

    def __init__(self, M: int, capacity: int, p: int) -> None:
        self.features = np.empty((M, capacity, p))
        self.packed = np.empty((M, capacity * (capacity + 1) // 2))
        self.whitened = np.empty((M, capacity))
        self.filled = 0

    def continued_after(self, n: int) -> "_Store":
        """Store whose next row is row n: this one if no model has appended it, and the capacity suffices."""
        M, capacity, p = self.features.shape
        if self.filled == n and n < capacity:
            return self
        out = _Store(M, capacity if n < capacity else max(2 * capacity, _FIRST_ROWS), p)
        out.features[:, :n] = self.features[:, :n]
        out.packed[:, : _end(n)] = self.packed[:, : _end(n)]
        out.whitened[:, :n] = self.whitened[:, :n]
        out.filled = n
        return out


@dataclass(frozen=True, eq=False)
class FeatureModels:
    """M immutable models of ``n_rows`` data (or rows that replace them), then ``n_pending`` pending data."""

    noise: PerModel
    n_rows: int
    n_pending: int
    log_evidence: PerModel
    store: _Store

    @classmethod
    def given(cls, rows: Float[np.ndarray, "M t p"], outcomes: Outcomes, noise: PerModel) -> "FeatureModels":
        """Posterior of all data at once; ``outcomes`` are relative to each model's mean."""
        M, t, p = rows.shape
        evidence = np.zeros(M)
        if t >= 2 * p:
            n_left_out = t - p
            squares = (outcomes**2).sum(axis=1)
            rows, outcomes = _condensed(rows, outcomes)
            misfit = np.maximum(squares - (outcomes**2).sum(axis=1), 0.0)  # unexplained by any weights
            evidence = -0.5 * (misfit / noise + n_left_out * (_LOG_2PI + np.log(noise)))
            t = p
        store, pairs = _Store(M, max(2 * t, _FIRST_ROWS), p), np.tril_indices(t)
        store.features[:, :t], store.filled = rows, t
        for m in range(M):
            L, _ = factorise(rows[m] @ rows[m].T + noise[m] * np.eye(t))
            z = solve_lower(L, outcomes[m])
            store.packed[m, : _end(t)], store.whitened[m, :t] = L[pairs], z
            evidence[m] += -0.5 * float(z @ z) - float(np.log(L.diagonal()).sum()) - 0.5 * t * _LOG_2PI
        return cls(noise, t, 0, evidence, store)

    def updated(self, row: Rows, outcome: PerModel) -> "FeatureModels":
        """Add one datum: a rank-one update of every model, and its predictive density in the evidence."""
        assert not self.n_pending, "outcomes must be added before pending ones"
        n = self.n_rows
        v, variance = self._next(row)
        innovation = (outcome - _dots(v, self.store.whitened[:, :n])) / np.sqrt(variance)
        store = self._append(row, v, variance, innovation)
        density = -0.5 * (innovation**2 + np.log(variance) + _LOG_2PI)
        longer = replace(self, n_rows=n + 1, log_evidence=self.log_evidence + density, store=store)
        if n + 1 < 2 * row.shape[1]:
            return longer
        # equivalent models with as few rows as features
        outcomes = (longer._factors @ store.whitened[:, : n + 1, None])[:, :, 0]
        condensed = FeatureModels.given(*_condensed(store.features[:, : n + 1], outcomes), self.noise)
        return replace(condensed, log_evidence=longer.log_evidence)

    def in_unit_of(self, ratios: Float[np.ndarray, "M r"]) -> "FeatureModels":
        """Models with the evidence of the outcomes as they were before multiplication by ``ratios``."""
        return replace(self, log_evidence=self.log_evidence + np.log(ratios).sum(axis=1))

    def awaiting(self, row: Rows) -> "FeatureModels":
        """Add a pending datum, which changes variances, not means, evidence or draws."""
        v, variance = self._next(row)
        store = self._append(row, v, variance, np.zeros(len(v)))
        return replace(self, n_pending=self.n_pending + 1, store=store)

    def _next(self, row: Rows) -> tuple[Float[np.ndarray, "M n"], PerModel]:
        n = self.n_rows + self.n_pending
        v = (self.store.features[:, :n] @ row[:, :, None])[:, :, 0]
        for m in range(len(v)) if n else ():
            v[m] = dtpsv(n, self.store.packed[m, : _end(n)], v[m], trans=1)
        # the exact variance is at least the noise; for a repeated datum, rounding may make it smaller
        return v, np.maximum(_dots(row, row) + self.noise - _dots(v, v), self.noise)

    def _append(self, row: Rows, v: Float[np.ndarray, "M n"], variance: PerModel, innovation: PerModel) -> _Store:
        n = self.n_rows + self.n_pending
        store = self.store.continued_after(n)
        store.features[:, n], store.whitened[:, n] = row, innovation
        store.packed[:, _end(n) : _end(n) + n] = v
        store.packed[:, _end(n) + n] = np.sqrt(variance)
        store.filled = n + 1
        return store

    @cached_property
    def _factors(self) -> Float[np.ndarray, "M n n"]:
        n = self.n_rows + self.n_pending
        L = np.zeros((len(self.noise), n, n))
        for i, (start, end) in enumerate(pairwise(_end(k) for k in range(n + 1))):
            L[:, i, : i + 1] = self.store.packed[:, start:end]
        return L

    def marginals(self, Phi: Float[np.ndarray, "M m p"]) -> tuple[Float[np.ndarray, "M m"], Float[np.ndarray, "M m"]]:
        """Mean and variance of w·phi at the features of m points, without noise."""
        n = self.n_rows + self.n_pending
        mean, var = np.zeros(Phi.shape[:2]), np.einsum("amp,amp->am", Phi, Phi)
        for m, points in enumerate(Phi) if n else ():
            V = solve_lower(self._factors[m], self.store.features[m, :n] @ points.T)
            mean[m] = V.T @ self.store.whitened[m, :n]
            var[m] -= np.einsum("nm,nm->m", V, V)
        return mean, np.maximum(var, 0.0)

    def mean(self, Phi: Float[np.ndarray, "M m p"]) -> Float[np.ndarray, "M m"]:
        """Mean of w·phi at the features of m points."""
        weights = np.array([self.draw(m, np.zeros(Phi.shape[2]), np.zeros(self.n_rows)) for m in range(len(Phi))])
        return (Phi @ weights[:, :, None])[:, :, 0]

    def draw(
        self, model: int, prior: Float[np.ndarray, " p"], noise: Float[np.ndarray, " t"]
    ) -> Float[np.ndarray, " p"]:
        """Weights drawn from one model's posterior given standard normal ``prior`` and ``noise``; given 0, its mean."""
        t, store = self.n_rows, self.store
        if not t:
            return prior.copy()
        rows, packed = store.features[model, :t], store.packed[model, : _end(t)]
        drawn = rows @ prior + np.sqrt(self.noise[model]) * noise
        rest = store.whitened[model, :t] - dtpsv(t, packed, drawn, trans=1)
        return prior + dtpsv(t, packed, rest) @ rows


def _condensed(rows: Float[np.ndarray, "M t p"], outcomes: Outcomes) -> tuple[Float[np.ndarray, "M p p"], Rows]:
    Q, R = np.linalg.qr(rows)
    return R, (outcomes[:, None, :] @ Q)[:, 0]


def _end(n: int) -> int:
    return n * (n + 1) // 2


def _dots(a: Float[np.ndarray, "M n"], b: Float[np.ndarray, "M n"]) -> PerModel:
    return (a[:, None, :] @ b[:, :, None])[:, 0, 0]
