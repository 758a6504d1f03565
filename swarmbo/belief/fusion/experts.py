"""Products of experts: one prediction made of several agents' predictions at the same places."""

import numpy as np
from jaxtyping import Float

Predictions = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]

_SMALLEST = 1e-12  # share of the prior variance below which a variance is taken for rounding


def generalised_product(
    means: Float[np.ndarray, "k m"], variances: Float[np.ndarray, "k m"], prior_variance: float
) -> Predictions:
    """The generalised product of experts: precisions are averaged, by how much each expert knows of the place.

    The weight of an expert is what it has learned of the place, ½ log(prior variance / its variance), as a share of
    what all have; equal where none has learned anything. As weights sum to 1 the product is never surer than its
    surest expert: safe if experts share data, too unsure if they do not.

    Source: Cao & Fleet 2014, with weights normalised to a sum of 1.

    Args:
        means: Of each expert at each place, in the unit of the outcome.
        variances: As ``means``, > 0, in its square.
        prior_variance: Of the field, which all experts share.

    Returns:
        Means (m,) and variances (m,).

    Example:
        >>> mean, var = generalised_product(np.array([[1.0], [5.0]]), np.array([[0.1], [2.0]]), 2.0)
        >>> mean.round(6).tolist(), var.round(6).tolist()  # the second expert has seen nothing
        ([1.0], [0.1])
    """
    variances = np.maximum(variances, _SMALLEST * prior_variance)
    learned = np.maximum(0.5 * np.log(prior_variance / variances), 0.0)
    total = learned.sum(axis=0)
    weights = np.where(total > 0.0, learned / np.where(total > 0.0, total, 1.0), 1.0 / len(means))
    precision = (weights / variances).sum(axis=0)
    return (weights * means / variances).sum(axis=0) / precision, 1.0 / precision


def robust_committee(
    means: Float[np.ndarray, "k m"], variances: Float[np.ndarray, "k m"], prior_mean: float, prior_variance: float
) -> Predictions:
    """The robust Bayesian committee machine: precisions add up, by what each expert knows.

    With weights b = ½ log(prior variance / variance): precision = Σ b / variance + (1 - Σ b) / prior variance, so that
    the prior counts once. Where nobody knows anything it is the prior. It takes the experts' data as independent given
    the field at the place, so it is too sure where they are not. The weight of an expert whose variance is below e⁻² of
    the prior's is above 1: near its own readings the committee is surer than it, be it of that expert alone.

    Source: Deisenroth & Ng 2015, robust Bayesian committee machine.

    Args:
        means: Of each expert at each place, in the unit of the outcome.
        variances: As ``means``, > 0, in its square.
        prior_mean: Of the field, which all experts share.
        prior_variance: As ``prior_mean``.

    Returns:
        Means (m,) and variances (m,).

    Example:
        >>> mean, var = robust_committee(np.array([[5.0], [5.0]]), np.array([[2.0], [2.0]]), 5.0, 2.0)
        >>> mean.round(6).tolist(), var.round(6).tolist()  # nobody has seen anything
        ([5.0], [2.0])
    """
    variances = np.maximum(variances, _SMALLEST * prior_variance)
    weights = np.maximum(0.5 * np.log(prior_variance / variances), 0.0)
    precision = 1.0 / prior_variance + (weights * (1.0 / variances - 1.0 / prior_variance)).sum(axis=0)
    shift = (weights * (means - prior_mean) / variances).sum(axis=0)
    return prior_mean + shift / precision, 1.0 / precision
