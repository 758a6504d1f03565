"""Posteriors of all factors by whole matrices, and a kernel of a user's own."""

from typing import Any

import msgspec
import numpy as np
from scipy.linalg import block_diag
from scipy.spatial.distance import cdist

from swarmbo.belief import AdditiveGP
from swarmbo.kernels import correlation, register_kernel

MINE = "rational-quadratic-of-tests"
register_kernel(MINE, correlation=lambda r: 1.0 / (1.0 + 0.5 * r**2), slope=lambda r: 1.0 / (1.0 + 0.5 * r**2) ** 2)


def with_own(belief: AdditiveGP, **own: tuple[Any, ...]) -> AdditiveGP:
    """A belief whose factors have hyper-parameters of their own, in the order of its graph."""
    return belief.with_hyperparameters(msgspec.structs.replace(belief.hyperparameters, **own))


def dense_posterior(belief: AdditiveGP, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean (k, m) and covariance (k, m, k, m) of all k factors at m joint points of the unit cube.

    Of beliefs whose hyper-parameters are in the unit of outcomes.
    """
    h, k, m = belief.hyperparameters, len(belief.scopes), len(U)
    assert set(h.scales) == {1.0}
    told = np.column_stack([belief.totals, belief.factors])
    rows, channel = np.nonzero(~np.isnan(told))
    X, then, now = belief.domain.to_unit(belief.points)[rows], belief.rounds[rows], np.full(m, belief.now)
    holds = np.array([(channel == 0) | (channel == 1 + i) for i in range(k)], dtype=float)

    def prior(i: int, A: np.ndarray, B: np.ndarray, when: np.ndarray, then: np.ndarray) -> np.ndarray:
        own, lengths = list(belief.scopes[i]), np.array(h.lengthscales[i])
        K = h.outputscales[i] * correlation(h.kernels[i], cdist(A[:, own] / lengths, B[:, own] / lengths))
        if not h.times:
            return K
        return K * correlation(h.times[i].kernel, np.abs(when[:, None] - then) / h.times[i].lengthscale)

    known, fitted = belief.noise[rows, channel], np.array([h.total_noise_variance, *h.noise_variances])[channel]
    K = np.diag(np.where(np.isnan(known), fitted, known))
    K += sum(prior(i, X, X, then, then) * np.outer(holds[i], holds[i]) for i in range(k))
    cross = np.concatenate([prior(i, U, X, now, then) * holds[i] for i in range(k)])
    residual = told[rows, channel] - np.array([h.constant, *h.constants])[channel]
    mean = np.repeat(h.constants, m) + cross @ np.linalg.solve(K, residual)
    cov = block_diag(*(prior(i, U, U, now, now) for i in range(k))) - cross @ np.linalg.solve(K, cross.T)
    return mean.reshape(k, m), cov.reshape(k, m, k, m)
