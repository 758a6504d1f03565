"""The posterior of a channel at a fixed set of points, kept so that covariances between its subsets are cheap.

A channel is a sum of latents. With L Lᵀ the covariance of the outcomes, k(u) = k(u, data) and V = L⁻¹ k(data, u), its
posterior has mean(u) = m + k(u)·alpha and cov(u, v) = k(u, v) - V(u)ᵀ V(v). Where outcomes leave latents independent
there is one such part for each, and the rows of their V are stacked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.cholesky import solve_lower
from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.observations import Observations, projection
from swarmbo.kernels import Covariance


@dataclass(frozen=True, eq=False)
class Term:
    """One latent of the channel: its prior, the points as it reads them, and the square of its unit over theirs."""

    prior: Covariance
    at: Float[np.ndarray, "m a"]
    weight: float

    def matrix(self, rows: Int[np.ndarray, " r"] | slice, at: Float[np.ndarray, "c a"]) -> Float[np.ndarray, "r c"]:
        """Prior covariances of some of the points with others."""
        prior = self.prior.matrix(self.at[rows], at)
        return prior if self.weight == 1.0 else self.weight * prior


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """Posterior of a channel at m points, in physical units; a covariance of r and c of them costs r c n, no solve."""

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    V: Float[np.ndarray, "n m"]  # of all parts, one below the other, in the channel's unit
    terms: tuple[Term, ...]
    scale: float  # physical unit of one standardised unit

    @classmethod
    def of(cls, conditioned: Conditioned, channel: int, query: Observations) -> "JointPosterior":
        """Posterior of a channel, ``TOTAL`` or the index of a latent, at points and rounds of its outcomes."""
        hyper, scopes, V, means = conditioned.hyper, conditioned.scopes, list[np.ndarray](), list[np.ndarray]()
        scale = hyper.scale_of(channel)
        weights = [(own / scale) ** 2 for own in hyper.scales]
        terms = [
            Term(hyper.covariance(i), projection(hyper, scopes[i], query), weights[i])
            for i in conditioned.latents_of(channel)
        ]
        for place in conditioned.parts_of(channel):
            part = conditioned.parts[place]  # one of many is made when it is asked for
            cross = conditioned.covariance(place, query, conditioned.part_data[place]).T  # in the order of the solve
            whitened = solve_lower(part.L, cross, in_place=True)
            V.append(whitened if weights[place] == 1.0 else np.sqrt(weights[place]) * whitened)
            means.append(V[-1].T @ part.whitened)
        stacked = V[0] if len(V) == 1 else np.concatenate(V)
        variance = sum(term.weight * term.prior.outputscale for term in terms)
        return cls(
            mean=hyper.constant_of(channel) + scale * np.asarray(sum(means)),
            var=scale**2 * np.maximum(variance - np.einsum("nm,nm->m", stacked, stacked), 0.0),
            V=stacked,
            terms=tuple(terms),
            scale=scale,
        )

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets, given as indices or slices.

        Where a row and a column name the same point the entry agrees with ``var`` up to rounding, and may be smaller
        than 0 by as much.
        """
        return self._covariances(rows, [term.at[cols] for term in self.terms], self.V[:, cols])

    def cross(self, rows: Int[np.ndarray, " r"], other: "JointPosterior") -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances of some of the points with all of another one's, of the same belief."""
        return self._covariances(rows, [term.at for term in other.terms], other.V)

    def _covariances(
        self, rows: Int[np.ndarray, " r"] | slice, at: Sequence[Float[np.ndarray, "c _a"]], V: Float[np.ndarray, "n c"]
    ) -> Float[np.ndarray, "r c"]:
        prior = reduce(np.add, [term.matrix(rows, own) for term, own in zip(self.terms, at, strict=True)])
        prior -= self.V[:, rows].T @ V  # in place: there are very many of these
        prior *= self.scale**2
        return prior

    def of_rows(self, rows: Int[np.ndarray, " r"]) -> "JointPosterior":
        """Posterior at some of the points."""
        terms = tuple(replace(term, at=term.at[rows]) for term in self.terms)
        V = self.V.T.take(rows, axis=0).T
        return replace(self, mean=self.mean[rows], var=self.var[rows], V=V, terms=terms)

    def joined(self, other: "JointPosterior") -> "JointPosterior":
        """Posterior at the points of both, this one's first; of the same channel and the same belief."""
        return replace(
            self,
            mean=np.concatenate([self.mean, other.mean]),
            var=np.concatenate([self.var, other.var]),
            V=np.concatenate([self.V, other.V], axis=1),
            terms=tuple(
                replace(own, at=np.concatenate([own.at, term.at]))
                for own, term in zip(self.terms, other.terms, strict=True)
            ),
        )


class CovarianceRows:
    """Posterior covariances of single points with all of some, while up to ``more`` of these are taken as measured.

    With whitened covariances W of all outcomes, a column each, cov(u, v) = k(u, v) - W(u)·W(v). An outcome at u with a
    variance s² beyond what is known adds the column cov(u, ·) / s. So a row is one product of a matrix with a vector.
    ``told`` is whitened information beside the data's, in physical units.
    """

    def __init__(self, posterior: JointPosterior, told: Float[np.ndarray, "p m"] | None, more: int) -> None:
        n, p = len(posterior.V), 0 if told is None else len(told)
        self._known, self._whitened = n + p, np.empty((len(posterior.mean), n + p + more))
        np.multiply(posterior.V.T, posterior.scale, out=self._whitened[:, :n])
        if told is not None:
            self._whitened[:, n : n + p] = told.T
        unit = posterior.scale**2
        self._priors = [(unit * term.weight, term.prior.by_row(term.at)) for term in posterior.terms]

    def row(self, point: int) -> Float[np.ndarray, " m"]:
        """Latent covariances of one of the points with all, in the square of the outcome's unit."""
        (unit, prior), *further = self._priors
        covariances = prior(point)
        covariances *= unit
        for unit, prior in further:
            covariances += unit * prior(point)
        known = self._whitened[:, : self._known]
        covariances -= known @ known[point]
        return covariances

    def take(self, point: int, variance: float) -> Float[np.ndarray, " m"]:
        """Take a point as measured, with the variance of its outcome; returns information of each by it, whitened."""
        told = self.row(point)
        told /= np.sqrt(variance)
        self._whitened[:, self._known] = told
        self._known += 1
        return told
