"""Covariance intersection: fuse two estimates whose errors may be correlated in any way."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar

from swarmbo.belief.features.information import Information


class Intersection(NamedTuple):
    """A fused estimate.

    Args:
        information: share times the first information and (1 - share) times the second.
        share: In [0, 1].
    """

    information: Information
    share: float


def intersection(
    first: Information, second: Information, importance: Float[np.ndarray, "p p"] | None = None
) -> Intersection:
    """Fuse two estimates of the same weights, each made from the prior N(0, I) and data of unknown overlap.

    The posterior precisions are averaged, P⁻¹ = a P₁⁻¹ + (1 - a) P₂⁻¹. If both reported covariances were at least the
    true ones then so is the fused one, whatever data they share. The share a minimises trace(importance P), so the
    result is never worse than the better of the two by that measure. The prior is in both, so it stays in it once.

    Source: Julier & Uhlmann 1997.

    Args:
        first: Without the prior.
        second: Without the prior.
        importance: Symmetric, positive semi-definite (p, p); with the mean of φφᵀ over places trace(importance P) is
            the mean variance of the field there. None: the identity.

    Example:
        >>> one = Information(np.diag([8.0, 0.0]), np.zeros(2), 1.0)
        >>> other = Information(np.diag([0.0, 8.0]), np.zeros(2), 1.0)
        >>> round(intersection(one, other).share, 3), round(intersection(one, one).share, 3) in (0.0, 0.5, 1.0)
        (0.5, True)
    """
    p = first.n_features
    W = np.eye(p) if importance is None else importance
    # P₁⁻¹ V = P₂⁻¹ V Λ with Vᵀ P₂⁻¹ V = I: then P(a) = V (a Λ + (1 - a) I)⁻¹ Vᵀ for every a
    ratios, V = eigh(first.precision + np.eye(p), second.precision + np.eye(p))
    costs = np.einsum("ij,ik,kj->j", V, W, V)

    def measure(a: float) -> float:
        return float((costs / (a * ratios + (1.0 - a))).sum())

    inside = float(minimize_scalar(measure, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-6}).x)
    share = min((1.0, 0.0, inside), key=measure)  # of equals the first: who hears what it knows already changes nothing
    return Intersection(first.scaled(share) + second.scaled(1.0 - share), share)
