"""The posterior of a channel at a fixed set of points, kept so that covariances between its subsets are cheap.

A channel is a sum of latents. With L Lᵀ the covariance of the outcomes, k_i(u) = k_i(u, data), V = L⁻¹ k(data, u) and
A = L⁻ᵀ V, its posterior has

    mean(u) = m + k(u)·alpha,                d mean = Σ_i dk_i(u)·alpha
    cov(u, v) = k(u, v) - V(u)ᵀ V(v),        d var  = -2 Σ_i dk_i(u) A(u)

Where outcomes leave the latents independent there is one such part for each, and the rows of their V are stacked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.gp.cholesky import solve_lower, solve_lower_transposed
from swarmbo.belief.gp.conditioning import Conditioned
from swarmbo.belief.gp.factorised import Factorised
from swarmbo.belief.gp.observations import Observations, projection
from swarmbo.kernels import Covariance


@dataclass(frozen=True, eq=False)
class Term:
    """One latent of the channel.

    Args:
        columns: Coordinates that it reads, that of time last where there is one.
        prior: Its covariance function.
        at: The points as it reads them (m, a).
        part: The place of its data among the parts.
        data: These as it reads them (r, a).
        seen: Which of them hold it, as 0 or 1 (r,).
        weight: Square of its own unit over the channel's.
    """

    columns: list[int]
    prior: Covariance
    at: Float[np.ndarray, "m a"]
    part: int
    data: Float[np.ndarray, "r a"]
    seen: Float[np.ndarray, " r"]
    weight: float


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """Posterior of a channel at m points, in physical units.

    A covariance between r and c of them costs r c n, not a solve.

    Args:
        mean: Posterior means (m,).
        var: Latent posterior variances (m,), >= 0.
        V: Of all parts, one below the other (n, m), in the channel's unit.
        ends: Where the rows of each part end.
        terms: The latents of the channel.
        factors: Of each part L and alpha.
        scale: Physical unit of one standardised unit.
        n_coordinates: Of a point, its time included where there is one.
    """

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    V: Float[np.ndarray, "n m"]
    ends: tuple[int, ...]
    terms: tuple[Term, ...]
    factors: tuple[tuple[Float[np.ndarray, "r r"], Float[np.ndarray, " r"]], ...]
    scale: float
    n_coordinates: int

    @classmethod
    def of(cls, conditioned: Conditioned, channel: int, query: Observations) -> "JointPosterior":
        """Of a channel at points.

        Args:
            conditioned: On what.
            channel: ``TOTAL`` or the index of a latent.
            query: Points and their rounds, as outcomes of the channel.
        """
        hyper, latents = conditioned.hyper, conditioned.latents_of(channel)
        scale, terms, V = hyper.scale_of(channel), list[Term](), list[np.ndarray]()
        parts, number = list[Factorised](), dict[int, int]()
        for i in latents:
            place = 0 if conditioned.is_coupled else i
            data, scope = conditioned.part_data[place], conditioned.scopes[i]
            weight = (hyper.scales[i] / scale) ** 2
            if place not in number:
                number[place] = len(parts)
                parts.append(conditioned.parts[place])  # once: one of many is made when it is asked for
                cross = conditioned.covariance(place, query, data).T  # in the order in which it is solved
                whitened = solve_lower(parts[-1].L, cross, in_place=True)
                V.append(whitened if weight == 1.0 else np.sqrt(weight) * whitened)
            columns = [*scope, query.places.shape[1]] if hyper.times else [*scope]
            at, of = (projection(hyper, scope, rows) for rows in (query, data))
            seen = np.asarray(data.hold(i), dtype=float)
            terms.append(Term(columns, hyper.covariance(i), at, number[place], of, seen, weight))
        stacked = V[0] if len(V) == 1 else np.concatenate(V)
        means = sum(rows.T @ part.whitened for rows, part in zip(V, parts, strict=True))
        variance = sum(term.weight * term.prior.outputscale for term in terms)
        return cls(
            mean=hyper.constant_of(channel) + scale * np.asarray(means),
            var=scale**2 * np.maximum(variance - np.einsum("nm,nm->m", stacked, stacked), 0.0),
            V=stacked,
            ends=tuple(np.cumsum([len(rows) for rows in V]).tolist()),
            terms=tuple(terms),
            factors=tuple((part.L, part.alpha) for part in parts),
            scale=scale,
            n_coordinates=query.places.shape[1] + bool(hyper.times),
        )

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets.

        Where a row and a column name the same point the entry agrees with ``var`` up to rounding, and may be smaller
        than 0 by as much.

        Args:
            rows: Indices into the points (r,), or a slice.
            cols: Indices into the points (c,), or a slice.

        Returns:
            Covariances (r, c), in the square of the outcome's unit.
        """
        return self._covariances(rows, [term.at[cols] for term in self.terms], self.V[:, cols])

    def cross(self, rows: Int[np.ndarray, " r"], other: "JointPosterior") -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances (r, c) of some of the points with all of another one's, of the same belief."""
        return self._covariances(rows, [term.at for term in other.terms], other.V)

    def _covariances(
        self,
        rows: Int[np.ndarray, " r"] | slice,
        at: Sequence[Float[np.ndarray, "c _a"]],
        V: Float[np.ndarray, "n c"],
    ) -> Float[np.ndarray, "r c"]:
        prior = _sum(
            [_weighted(term, term.prior.matrix(term.at[rows], own)) for term, own in zip(self.terms, at, strict=True)]
        )
        prior -= self.V[:, rows].T @ V  # in place: there are very many of these
        prior *= self.scale**2
        return prior

    def of_rows(self, rows: Int[np.ndarray, " r"]) -> "JointPosterior":
        """Of some of the points (r,)."""
        terms = tuple(replace(term, at=term.at[rows]) for term in self.terms)
        V = self.V.T.take(rows, axis=0).T
        return replace(self, mean=self.mean[rows], var=self.var[rows], V=V, terms=terms)

    def joined(self, other: "JointPosterior") -> "JointPosterior":
        """Of the points of both, this one's first.

        Args:
            other: Of the same channel and the same belief.
        """
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

    def gradients(self) -> tuple[Float[np.ndarray, "m c"], Float[np.ndarray, "m c"]]:
        """Gradients of mean and variance (m, c) by the coordinates of the unit cube, and by time where it counts."""
        shape = (self.n_coordinates, len(self.mean))
        dmean, dvar = np.zeros(shape), np.zeros(shape)
        parts = zip(self.factors, np.split(self.V, self.ends[:-1]), strict=True)
        back = [solve_lower_transposed(L, np.asfortranarray(V)) for (L, _), V in parts]  # A of each part
        for term in self.terms:
            D = term.prior.gradient(term.at, term.data) * term.seen
            alpha = self.factors[term.part][1]
            root = np.sqrt(term.weight)
            dmean[term.columns] += root * (D @ alpha)
            dvar[term.columns] -= 2.0 * root * np.einsum("jmn,nm->jm", D, back[term.part])
        return self.scale * dmean.T, self.scale**2 * dvar.T


def _weighted(term: Term, prior: Float[np.ndarray, "r c"]) -> Float[np.ndarray, "r c"]:
    return prior if term.weight == 1.0 else term.weight * prior


def _sum(parts: Sequence[Float[np.ndarray, "r c"]]) -> Float[np.ndarray, "r c"]:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


class CovarianceRows:
    """Posterior covariances of single points with all of some, while more and more of these are taken as measured.

    With whitened covariances W of all outcomes, a column each, cov(u, v) = k(u, v) - W(u)·W(v). An outcome at u with
    a variance s² beyond what is known adds the column cov(u, ·) / s. So a row is one product of a matrix with a vector.

    Args:
        posterior: Of the points, given data.
        told: Whitened information beside these (p, m), in physical units.
        more: Most points that will be taken as measured.
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
