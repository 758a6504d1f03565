"""A product of experts that can be asked like one Gaussian process: at any place, and about several jointly."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from swarmbo.belief.fusion.experts import robust_committee
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.spatial import FieldGP
from swarmbo.belief.views import PosteriorCache

_SMALLEST = 1e-12  # share of the prior variance below which a variance is taken for rounding


@dataclass(frozen=True, eq=False)
class CommitteePosterior:
    """Marginals of a committee at m points: its means and variances, and the correlations of one expert.

    Args:
        mean: Means (m,), in the unit of the outcome.
        var: Variances (m,), in its square.
        expert: Whose correlations are taken.
        factor: What its standard deviations (m,) are multiplied by.
    """

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    expert: PosteriorCache
    factor: Float[np.ndarray, " m"]

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Covariances (r, c) between two subsets of the points, in the square of the outcome's unit.

        Args:
            rows: Indices into the points (r,), or a slice.
            cols: Indices into the points (c,), or a slice.
        """
        return self.factor[rows, None] * self.expert.cov(rows, cols) * self.factor[cols]


@dataclass(frozen=True, eq=False, kw_only=True)
class CommitteeGP(FieldGP):
    """The robust Bayesian committee machine of experts who each know the readings of one author.

    It takes the cube of each author's number of readings to make, not the cube of their sum. It is a product at every
    place by itself. What it says of several places jointly is the correlation that one expert, its owner, sees between
    them, scaled to the committee's variances: a covariance, and near the owner a good one, but far from it the owner
    has only its prior to go by. Measurements to come take the share of variance that they take of the owner's own.

    Its place and time are those of its base, ``FieldGP``.

    Source: of the product Deisenroth & Ng 2015; of the rest none, it is ours.

    Args:
        experts: With readings, and all with the same hyper-parameters.
        own: The owner's expert, perhaps without readings.
        foreseen: The same, knowing of the measurements to come.
    """

    experts: tuple[ExactGP, ...]
    own: ExactGP
    foreseen: ExactGP

    @property
    def n_data(self) -> int:
        """Number of outcomes of all authors."""
        return sum(expert.n_data for expert in self.experts)

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means (m,) of the field at physical points (m, d).

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        return self.posterior(X)[0]

    def posterior_cache(self, X: ArrayLike) -> CommitteePosterior:
        """The posterior at fixed physical points (m, d), from which covariances between subsets are cheap.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        points, h = self._points(X), self.hyperparameters
        told = [expert.posterior(points) for expert in self.experts or (self.own,)]
        means, variances = np.array([mean for mean, _ in told]), np.array([var for _, var in told])
        mean, var = robust_committee(means, variances, h.offset + h.scale * h.mean, self.prior_variance)
        expert, least = self.foreseen.posterior_cache(points), _SMALLEST * self.prior_variance
        var = var * np.clip(expert.var / np.maximum(self.own.posterior(points)[1], least), 0.0, 1.0)
        return CommitteePosterior(mean, var, expert, np.sqrt(var / np.maximum(expert.var, least)))

    def condition_on_pending(self, X: Float[np.ndarray, "q d"]) -> "CommitteeGP":
        """A belief whose variance knows of measurements to come, and whose mean does not move.

        Args:
            X: Points (q, d), physical, that will be measured with the usual noise; added to those pending already.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        return replace(self, foreseen=self.foreseen.condition_on_pending(self._points(X)))
