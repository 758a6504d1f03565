"""Experts with one author's measurements each, and the product of their predictions, used like one Gaussian process."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.fusion.measurement_flooding import MeasurementFlooding, Measurements
from swarmbo.belief.gp.conditioning import SMALLEST, JointPosterior
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.spatial import FieldGP


def robust_committee(
    means: Float[np.ndarray, "k m"], variances: Float[np.ndarray, "k m"], prior_mean: float, prior_variance: float
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
    """Robust Bayesian committee machine: precisions add up, weighted by each expert's information.

    With weights b = ½ log(prior variance / variance): precision = Σ b / variance + (1 - Σ b) / prior variance, so that
    the prior counts once. It assumes that the experts' data are independent given the field at the location, and is
    overconfident otherwise. The weight of an expert whose variance is below e⁻² of the prior's is above 1: near its own
    measurements even a committee of one is more confident than its expert.

    Source: Deisenroth & Ng 2015.
    """
    variances = np.maximum(variances, SMALLEST * prior_variance)
    weights = np.maximum(0.5 * np.log(prior_variance / variances), 0.0)
    precision = 1.0 / prior_variance + (weights * (1.0 / variances - 1.0 / prior_variance)).sum(axis=0)
    shift = (weights * (means - prior_mean) / variances).sum(axis=0)
    return prior_mean + shift / precision, 1.0 / precision


@dataclass(frozen=True, eq=False, kw_only=True)
class CommitteeGP(FieldGP):
    """Robust Bayesian committee machine of experts that each have one author's measurements.

    It costs the cube of each author's number of measurements, not the cube of their sum. Products are taken location by
    location. Joint predictions use the correlations of one expert, the agent's ``own``, scaled to the committee's
    variances. The covariance is valid, and accurate near the agent's own measurements; far from them, the correlations
    are the prior's. Pending measurements, in ``foreseen``, reduce variances by the same share as those of ``own``.

    Source: Deisenroth & Ng 2015 for the product; the rest is our own.
    """

    experts: tuple[ExactGP, ...]
    own: ExactGP
    foreseen: ExactGP

    @property
    def n_data(self) -> int:
        """Number of outcomes of all authors."""
        return sum(expert.n_data for expert in self.experts)

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means (m,) at physical points (m, d)."""
        return self.posterior(X)[0]

    def posterior_cache(self, X: ArrayLike) -> JointPosterior:
        """Posterior at fixed physical points (m, d)."""
        points, h = self._points(X), self.hyperparameters
        told = [expert.posterior(points) for expert in self.experts or (self.own,)]
        means, variances = np.array([mean for mean, _ in told]), np.array([var for _, var in told])
        mean, var = robust_committee(means, variances, h.offset + h.scale * h.mean, self.prior_variance)
        expert, least = self.foreseen.posterior_cache(points), SMALLEST * self.prior_variance
        var = var * np.clip(expert.var / np.maximum(self.own.posterior(points)[1], least), 0.0, 1.0)
        return expert.scaled(mean, var)

    def condition_on_pending(self, X: Float[np.ndarray, "q d"]) -> "CommitteeGP":
        """Belief whose variance includes measurements with the usual noise at pending points; the mean is unchanged."""
        return replace(self, foreseen=self.foreseen.condition_on_pending(self._points(X)))


class CommitteeFlooding(MeasurementFlooding):
    """An agent that collects measurements as its base class does, but has one expert per author to save computation."""

    @property
    def knowledge(self) -> None:
        """None: agents with the same measurements use correlations of different experts."""
        return None

    def _make_belief(self) -> CommitteeGP:
        by_author = {author: self._exact(Measurements.of(log.rows)) for author, log in sorted(self._logs.items())}
        own = by_author.get(self.name, self._exact(Measurements.of(np.zeros((0, self.n_columns + 2)))))
        experts, hyper = tuple(by_author.values()), self.hyperparameters
        return CommitteeGP(domain=self.domain, hyperparameters=hyper, experts=experts, own=own, foreseen=own)
