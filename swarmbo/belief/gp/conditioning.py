"""Posteriors given factorised data: of single latents, and of a channel at a fixed set of points.

Totals couple all latents: one covariance matrix of all observations, with one Cholesky factor. A field, which has one
latent, has one matrix too. Without totals, several latents are independent: a stack of small matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.cholesky import BlockRows, Factorised, factorise, solve_lower, solve_rows
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, Scopes
from swarmbo.belief.gp.observations import TOTAL, Observations, factor_covariance, observation_covariance, projection
from swarmbo.belief.gp.stack import StackedParts
from swarmbo.kernels import Covariance

SMALLEST = 1e-12  # share of the prior variance below which a variance counts as a rounding error


class OneMatrix:
    """Posterior data of latents that share one covariance matrix; ``Conditioned`` uses it like ``StackedParts``."""

    def __init__(self, whole: Factorised) -> None:
        self.whole, n = whole, len(whole.residual)
        self.entries, self.counts, self.jitters = np.arange(n)[None], np.array([n]), np.array([whole.jitter])
        self.residuals, self.alpha = whole.residual[None], whole.alpha[None]

    @classmethod
    def of(cls, hyper: AdditiveHyperparameters, scopes: Scopes, data: Observations, keeps_inverse: bool) -> "OneMatrix":
        """Factorise the covariance of known observations, noise included."""
        K = _noisy_covariance(hyper, scopes, data)
        return cls(Factorised.of(K, data.residuals(hyper), keeps_inverse=keeps_inverse))

    def extended(self, hyper: AdditiveHyperparameters, scopes: Scopes, data: Observations) -> "OneMatrix":
        """Factorisation of ``data``, which begins with data factorised here; the rest is all known or all pending."""
        n = len(self.whole.residual)
        old, new = data.take(slice(n)), data.take(slice(n, None))
        cross = observation_covariance(hyper, scopes, new, old)
        residual = None if np.isnan(new.outcome).any() else new.residuals(hyper)
        return OneMatrix(self.whole.extended(cross, _noisy_covariance(hyper, scopes, new), residual))

    @cached_property
    def inverse(self) -> BlockRows:
        """Rows of L⁻¹."""
        return BlockRows.of(self.whole.inverse[None])

    @property
    def log_densities(self) -> Float[np.ndarray, " 1"]:
        """Log density of the residuals, none of which may be pending."""
        return np.array([self.whole.log_density()])

    def solve(self, part: int, residual: Float[np.ndarray, " s"]) -> Float[np.ndarray, " r"]:
        """K⁻¹ r for other residuals r (s,) of the s known observations; 0 for pending observations."""
        return self.whole.solve(residual)

    def __getitem__(self, part: int) -> Factorised:
        return (self.whole,)[part]  # a further part raises an IndexError, which ends loops


def _noisy_covariance(hyper: AdditiveHyperparameters, scopes: Scopes, data: Observations) -> Float[np.ndarray, "r r"]:
    K = observation_covariance(hyper, scopes, data, data)
    K.flat[:: len(data) + 1] += data.noise_variances(hyper)
    return K


@dataclass(frozen=True, eq=False)
class Conditioned:
    """Data of a posterior, latent by latent, in the standardised unit of each."""

    hyper: AdditiveHyperparameters  # all in one unit if latents are coupled
    scopes: Scopes  # columns that each latent reads
    data: Observations  # pending ones come last
    parts: OneMatrix | StackedParts  # one for all latents, or one for each
    now: float = 0.0  # round of predictions; without effect unless there is a time axis

    @property
    def is_coupled(self) -> bool:
        """True if all latents share one covariance matrix."""
        return isinstance(self.parts, OneMatrix)

    @property
    def _entries(self) -> Int[np.ndarray, "k T"]:
        own = self.parts.entries
        return np.broadcast_to(own, (len(self.scopes), own.shape[1]))

    def points(self, latents: Sequence[int]) -> Float[np.ndarray, "g T a"]:
        """Observed points (g, T, a) in the scopes of some latents of equal size, padded to a common T."""
        columns = np.array([self.scopes[i] for i in latents])
        return self.data.places[self.data.row[self._entries[latents]][:, :, None], columns[:, None, :]]

    @cached_property
    def seen(self) -> Bool[np.ndarray, "k T"]:
        """Mask of observations that each latent contributes to; False for padding."""
        if not self.is_coupled:  # a part has only its own observations
            return np.arange(self.parts.entries.shape[1]) < self.parts.counts[:, None]
        channel, latents = self.data.channel, np.arange(len(self.scopes))
        return (channel == TOTAL) | (channel == latents[:, None])

    @cached_property
    def alpha(self) -> Float[np.ndarray, "k T"]:
        """Weights (k, T) of the posterior mean: mean_i(u) = k_i(u, points_i) · alpha_i."""
        return self.spread(self.parts.alpha)

    def spread(self, weights: Float[np.ndarray, "p T"]) -> Float[np.ndarray, "k T"]:
        """Weights of each latent's observations, from weights of each part's; 0 for padding."""
        return np.where(self.seen, weights, 0.0) if self.is_coupled else weights

    def latents_of(self, channel: int) -> Sequence[int]:
        """Latents that a channel reads: all for ``TOTAL``, else its own."""
        return range(len(self.scopes)) if channel == TOTAL else [channel]

    def parts_of(self, channel: int) -> Sequence[int]:
        """Parts that have the latents of a channel."""
        return [0] if self.is_coupled else self.latents_of(channel)

    def at(self, now: float) -> "Conditioned":
        """Posterior for predictions in another round."""
        return self if now == self.now else replace(self, now=now)

    def decay(self, factors: Sequence[int]) -> Float[np.ndarray, "g T"]:
        """Correlations (g, T) over time between each observation and ``now``; 0 for observations without the factor."""
        rounds, times = self.data.rounds[self._entries[factors]], [self.hyper.times[factor] for factor in factors]
        left = [time.between(own, np.array(self.now)) for time, own in zip(times, rounds, strict=True)]
        return np.where(self.seen[factors], left, 0.0)

    @cached_property
    def part_data(self) -> list[Observations]:
        """The observations of each part."""
        return [self.data] if self.is_coupled else self.data.by_factor(len(self.scopes))

    def extended(self, new: Observations) -> "Conditioned":
        """Posterior with more observations, all known or all pending, in time quadratic in their earlier number."""
        if not len(new):
            return self
        data = self.data.then(new)
        return replace(self, data=data, parts=self.parts.extended(self.hyper, self.scopes, data))

    def covariance(self, part: int, one: Observations, other: Observations) -> Float[np.ndarray, "_r _s"]:
        """Prior covariances between outcomes of one part, standardised."""
        if self.is_coupled:
            return observation_covariance(self.hyper, self.scopes, one, other)
        return factor_covariance(self.hyper, self.scopes[part], part, one, other)


Rows = Int[np.ndarray, " r"] | slice  # a slice copies nothing


class Term(NamedTuple):
    """One latent of the channel: its prior, in the square of the channel's unit, and the points in its scope."""

    prior: Covariance
    at: Float[np.ndarray, "m a"]


@dataclass(frozen=True, eq=False)
class JointPosterior:
    """Posterior of a channel at m points, in physical units; covariances of r with c points cost r c n and no solve."""

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    V: Float[np.ndarray, "n m"]  # L⁻¹ k of all parts, one below the other, in the channel's unit
    terms: tuple[Term, ...]
    scale: float  # physical unit of one standardised unit
    factor: Float[np.ndarray, " m"] | None = None  # of standard deviations, if ``var`` does not result from V

    @classmethod
    def of(cls, conditioned: Conditioned, channel: int, query: Observations) -> "JointPosterior":
        """Posterior of a channel, ``TOTAL`` or the index of a latent, at points and rounds of its outcomes."""
        hyper, scopes, V, means = conditioned.hyper, conditioned.scopes, list[np.ndarray](), list[np.ndarray]()
        scale = hyper.scale_of(channel)
        weights = [(own / scale) ** 2 for own in hyper.scales]
        priors = {i: hyper.covariance(i) for i in conditioned.latents_of(channel)}
        terms = [
            Term(replace(prior, outputscale=weights[i] * prior.outputscale), projection(hyper, scopes[i], query))
            for i, prior in priors.items()
        ]
        for place in conditioned.parts_of(channel):
            part = conditioned.parts[place]  # a stacked part is computed on each access
            cross = conditioned.covariance(place, query, conditioned.part_data[place]).T  # in the solver's memory order
            whitened = solve_lower(part.L, cross, in_place=True)
            V.append(whitened if weights[place] == 1.0 else np.sqrt(weights[place]) * whitened)
            means.append(V[-1].T @ part.whitened)
        stacked = V[0] if len(V) == 1 else np.concatenate(V)
        variance = sum(term.prior.outputscale for term in terms)
        mean = hyper.constant_of(channel) + scale * np.asarray(sum(means))
        var = scale**2 * np.maximum(variance - np.einsum("nm,nm->m", stacked, stacked), 0.0)
        return cls(mean, var, stacked, tuple(terms), scale)

    def cov(self, rows: Rows, cols: Rows) -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances between two subsets; for a point and itself, ``var`` up to rounding."""
        covariances = self._covariances(rows, [term.at[cols] for term in self.terms], _columns(self.V, cols))
        return covariances if self.factor is None else covariances * self.factor[rows, None] * self.factor[cols]

    def cross(self, rows: Rows, other: "JointPosterior") -> Float[np.ndarray, "r c"]:
        """Latent posterior covariances of some points with all points of another posterior of the same belief."""
        return self._covariances(rows, [term.at for term in other.terms], other.V)

    def _covariances(
        self, rows: Rows, at: Sequence[Float[np.ndarray, "c _a"]], V: Float[np.ndarray, "n c"]
    ) -> Float[np.ndarray, "r c"]:
        priors = [term.prior.matrix(term.at[rows], own) for term, own in zip(self.terms, at, strict=True)]
        prior = reduce(np.add, priors)
        prior -= _columns(self.V, rows).T @ V  # in place, as the matrix may be large
        prior *= self.scale**2
        return prior

    def of_rows(self, rows: Rows) -> "JointPosterior":
        """Posterior at some of the points."""
        terms = tuple(Term(term.prior, term.at[rows]) for term in self.terms)
        V, factor = _columns(self.V, rows), None if self.factor is None else self.factor[rows]
        return JointPosterior(self.mean[rows], self.var[rows], V, terms, self.scale, factor)

    def scaled(self, mean: Float[np.ndarray, " m"], var: Float[np.ndarray, " m"]) -> "JointPosterior":
        """Posterior with other means and variances, and the same correlations."""
        least = SMALLEST * self.scale**2 * sum(term.prior.outputscale for term in self.terms)
        factor = np.sqrt(np.maximum(var, least) / np.maximum(self.var, least))
        return replace(self, mean=mean, var=var, factor=factor if self.factor is None else factor * self.factor)

    def without_last(self, count: int, noise_variance: float) -> "JointPosterior":
        """Posterior at all but the last ``count`` points, with measurements pending at these; means are unchanged."""
        if not count:
            return self
        first, last = slice(-count), slice(-count, None)
        noisy, own = self.cov(last, last), self.of_rows(first)
        noisy.flat[:: count + 1] += noise_variance
        return own.with_pending(solve_rows(factorise(noisy)[0], self.cov(last, first).T).T)

    def with_pending(self, whitened: Float[np.ndarray, "p m"]) -> "JointPosterior":
        """Posterior with p pending outcomes, from their whitened covariances (p, m) with the points, in their unit."""
        unscaled = whitened / (self.scale if self.factor is None else self.scale * self.factor)
        var = np.maximum(self.var - np.einsum("pm,pm->m", whitened, whitened), 0.0)
        return replace(self, var=var, V=np.concatenate([self.V.T, unscaled.T], axis=1).T)


def _columns(V: Float[np.ndarray, "n m"], rows: Rows) -> Float[np.ndarray, "n r"]:
    """Columns of V, each consecutive in memory, as in V; for index arrays, V[:, rows] takes twice as long."""
    return V[:, rows] if isinstance(rows, slice) else V.T.take(rows, axis=0).T


class CovarianceRows:
    """Posterior covariances of single points with all points, of which up to ``more`` may be taken as measured: with
    whitened covariances W, cov(u, v) = k(u, v) - W(u)·W(v), and an outcome at u adds a column to W.
    """

    def __init__(self, posterior: JointPosterior, more: int) -> None:
        self._known, self._factor = len(posterior.V), posterior.factor
        self._whitened = np.empty((len(posterior.mean), self._known + more))
        np.multiply(posterior.V.T, posterior.scale, out=self._whitened[:, : self._known])
        self._unit = posterior.scale**2
        self._priors = [term.prior.by_row(term.at) for term in posterior.terms]

    def row(self, point: int) -> Float[np.ndarray, " m"]:
        """Latent covariances of one of the points with all, in the square of the outcome's unit."""
        covariances = reduce(np.add, [prior(point) for prior in self._priors])
        covariances *= self._unit
        known = self._whitened[:, : self._known]
        covariances -= known @ known[point]
        return covariances if self._factor is None else covariances * self._factor * self._factor[point]

    def take(self, point: int, variance: float) -> Float[np.ndarray, " m"]:
        """Take a point as measured, its outcome with this variance; return its whitened covariances with all points."""
        information = self.row(point)
        information /= np.sqrt(variance)
        self._whitened[:, self._known] = information if self._factor is None else information / self._factor
        self._known += 1
        return information
