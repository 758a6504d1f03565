"""Posteriors of all factors from dense matrices, and a user-defined kernel."""

from typing import Any

import msgspec
import numpy as np
from scipy.linalg import block_diag
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal

from swarmbo.belief import AdditiveGP
from swarmbo.kernels import correlation, register_kernel

MINE = "rational-quadratic-of-tests"
register_kernel(MINE, correlation=lambda r: 1.0 / (1.0 + 0.5 * r**2), slope=lambda r: 1.0 / (1.0 + 0.5 * r**2) ** 2)


def with_own(belief: AdditiveGP, **own: tuple[Any, ...]) -> AdditiveGP:
    """A belief with these hyper-parameters of its factors, in the order of its graph."""
    return belief.with_hyperparameters(msgspec.structs.replace(belief.hyperparameters, **own))


class Dense:
    """All outcomes of a belief as one normal vector, in the unit of outcomes."""

    def __init__(self, belief: AdditiveGP) -> None:
        self.belief, h, k = belief, belief.hyperparameters, len(belief.scopes)
        outcomes, scales = np.column_stack([belief.totals, belief.factors]), np.array(h.scales)
        rows, channel = np.nonzero(~np.isnan(outcomes))
        self.X, self.rounds = belief.domain.to_unit(belief.points)[rows], belief.rounds[rows]
        self.holds = np.array([(channel == 0) | (channel == 1 + i) for i in range(k)], dtype=float)
        noises = np.array([h.total_noise_variance * (scales**2).mean(), *(h.noise_variances * scales**2)])
        known = belief.noise[rows, channel]
        self.K = np.diag(np.where(np.isnan(known), noises[channel], known))
        for i in range(k):
            self.K += self.prior(i, self.X, self.X, self.rounds, self.rounds) * np.outer(self.holds[i], self.holds[i])
        self.residual = outcomes[rows, channel] - np.array([h.constant, *h.constants])[channel]

    def prior(self, i: int, A: np.ndarray, B: np.ndarray, when: np.ndarray, then: np.ndarray) -> np.ndarray:
        h, own = self.belief.hyperparameters, list(self.belief.scopes[i])
        r = cdist(A[:, own] / h.lengthscales[i], B[:, own] / h.lengthscales[i])
        K = h.scales[i] ** 2 * h.outputscales[i] * correlation(h.kernels[i], r)
        if not h.times:
            return K
        return K * correlation(h.times[i].kernel, np.abs(when[:, None] - then) / h.times[i].lengthscale)

    def posterior(self, U: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean (k, m) and covariance (k, m, k, m) of all k factors at m joint points of the unit cube."""
        k, m, now = len(self.holds), len(U), np.full(len(U), self.belief.now)
        cross = np.concatenate([self.prior(i, U, self.X, now, self.rounds) * self.holds[i] for i in range(k)])
        mean = np.repeat(self.belief.hyperparameters.constants, m) + cross @ np.linalg.solve(self.K, self.residual)
        cov = block_diag(*(self.prior(i, U, U, now, now) for i in range(k))) - cross @ np.linalg.solve(self.K, cross.T)
        return mean.reshape(k, m), cov.reshape(k, m, k, m)

    def log_density(self) -> float:
        return multivariate_normal.logpdf(self.residual, cov=self.K) if len(self.K) else 0.0
