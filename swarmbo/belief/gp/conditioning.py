"""A posterior given the rows of data, factorised, and its latents in one padded form for all ways of observing.

Total and mixed outcomes tie all latents together: one covariance matrix of all observations, one Cholesky factor. So it
is of a field, which has one latent. Outcomes of single latents alone leave them independent: a stack of small matrices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.cholesky import BlockRows
from swarmbo.belief.gp.factorised import Factorised
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.observations import TOTAL, Observations, factor_covariance, observation_covariance
from swarmbo.belief.gp.stack import StackedParts


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A posterior, ready for use latent by latent; in the standardised unit of each."""

    hyper: AdditiveHyperparameters  # all in one unit if latents are coupled
    scopes: Sequence[Sequence[int]]  # columns that each latent reads
    data: Observations  # those pending last
    is_coupled: bool  # all latents share one covariance matrix
    parts: tuple[Factorised] | StackedParts  # that one, or the stack of one for each latent
    now: float = 0.0  # of no account where nothing fades

    def points(self, latents: Sequence[int]) -> Float[np.ndarray, "g T a"]:
        """The observed points that some latents of one size read, padded to a common T."""
        data = self.data
        if isinstance(self.parts, StackedParts):
            columns = np.array([self.scopes[i] for i in latents])
            return data.places[data.row[self.parts.entries[latents]][:, :, None], columns[:, None, :]]
        return np.array([data.at(self.scopes[i]) for i in latents])

    @cached_property
    def seen(self) -> Bool[np.ndarray, "k T"]:
        """Whether an observation holds the latent (k, T); never for padding."""
        if isinstance(self.parts, StackedParts):
            return np.arange(self.parts.entries.shape[1]) < self.counts[:, None]
        return np.array([self.data.hold(i) for i in range(len(self.scopes))]).reshape(-1, len(self.data))

    @cached_property
    def alpha(self) -> Float[np.ndarray, "k T"]:
        """Weights (k, T) of the posterior mean: mean_i(u) = k_i(u, points_i) · alpha_i."""
        return self.parts.alpha if isinstance(self.parts, StackedParts) else self.spread([self.parts[0].alpha])

    def alpha_of(self, part: int) -> Float[np.ndarray, " _r"]:
        """K⁻¹ residual of one part, 0 where pending."""
        parts = self.parts
        return parts.alpha[part, : self.counts[part]] if isinstance(parts, StackedParts) else parts[0].alpha

    @cached_property
    def rows(self) -> BlockRows:
        """Rows of L⁻¹ of each part."""
        if isinstance(self.parts, StackedParts):
            return self.parts.inverse
        return BlockRows.of(self.parts[0].inverse[None])

    @cached_property
    def counts(self) -> Int[np.ndarray, " p"]:
        """How many observations each part has."""
        return self.parts.counts if isinstance(self.parts, StackedParts) else np.array([len(self.data)])

    def latents_of(self, channel: int) -> Sequence[int]:
        """Which latents a channel reads: ``TOTAL`` all, another its own."""
        return range(len(self.scopes)) if channel == TOTAL else [channel]

    def parts_of(self, channel: int) -> Sequence[int]:
        """Which parts hold the latents of a channel."""
        return [0] if self.is_coupled else self.latents_of(channel)

    @property
    def jitters(self) -> Float[np.ndarray, " p"]:
        """Of each part the largest share of its diagonal that was added to an entry of its covariance matrix."""
        return self.parts.jitters if isinstance(self.parts, StackedParts) else np.array([self.parts[0].jitter])

    @property
    def log_densities(self) -> Float[np.ndarray, " p"]:
        """Of each part's residuals, of which none is to come."""
        if isinstance(self.parts, StackedParts):
            return self.parts.log_densities
        return np.array([self.parts[0].log_density()])

    def at(self, now: float) -> "Conditioned":
        """The same posterior, telling of another round."""
        return self if now == self.now else replace(self, now=now)

    def decay(self, factors: Sequence[int]) -> Float[np.ndarray, "g T"]:
        """Share left at ``now`` (0 in padding) of some factors as they were when each observation was made.

        Covariances between a factor now and the observations are those of a function that stays as it is, times this.
        """
        left, data = np.zeros((len(factors), self.seen.shape[1])), self.part_data
        for row, factor in zip(left, factors, strict=True):
            rounds = data[0 if self.is_coupled else factor].rounds
            row[: len(rounds)] = self.hyper.times[factor].between(rounds, np.array(self.now))
        return left

    @cached_property
    def part_data(self) -> list[Observations]:
        """The observations of each part."""
        return [self.data] if self.is_coupled else self.data.by_factor(len(self.scopes))

    def spread(self, alphas: Sequence[Float[np.ndarray, " _r"]]) -> Float[np.ndarray, "k T"]:
        """Weights of each part's observations as weights of each factor's."""
        out = np.zeros(self.seen.shape)
        if self.is_coupled:
            return np.where(self.seen, alphas[0], 0.0)
        for row, alpha in zip(out, alphas, strict=True):
            row[: len(alpha)] = alpha
        return out

    def extended(self, new: Observations) -> "Conditioned":
        """With further observations, in time quadratic in the number of old ones; ``new`` known, or all pending."""
        if not len(new):
            return self
        data = self.data.then(new)
        if isinstance(self.parts, StackedParts):
            return replace(self, data=data, parts=StackedParts.of(self.hyper, self.scopes, data, self.parts))
        is_pending = bool(np.isnan(new.outcome).any())
        part = self.parts[0].extended(
            self.covariance(0, new, self.data),
            self.covariance(0, new, new, noisy=True),
            None if is_pending else new.residuals(self.hyper),
        )
        return replace(self, data=data, parts=(part,))

    def covariance(
        self, part: int, one: Observations, other: Observations, *, noisy: bool = False
    ) -> Float[np.ndarray, "_r _s"]:
        """Prior covariances between outcomes of one part, standardised."""
        if self.is_coupled:
            K = observation_covariance(self.hyper, self.scopes, one, other)
        else:
            K = factor_covariance(self.hyper, self.scopes[part], part, one, other)
        if noisy:
            K.flat[:: len(one) + 1] += one.noise_variances(self.hyper)
        return K


def condition(
    hyper: AdditiveHyperparameters,
    scopes: Sequence[Sequence[int]],
    data: Observations,
    *,
    is_coupled: bool,
    now: float = 0.0,
    keeps_inverse: bool = True,
) -> Conditioned:
    """Posterior given known observations; in one matrix if latents are coupled, as a single total couples them.

    To keep the inverse of that matrix's factor up to date is quick where single latents are asked at a few points again
    and again, and of no use where a channel is asked at many at once.
    """
    if not is_coupled:
        return Conditioned(hyper, scopes, data, is_coupled, StackedParts.of(hyper, scopes, data), now)
    hyper = hyper.in_one_unit()
    K = observation_covariance(hyper, scopes, data, data)
    K.flat[:: len(data) + 1] += data.noise_variances(hyper)
    part = Factorised.of(K, data.residuals(hyper), keeps_inverse=keeps_inverse)
    return Conditioned(hyper, scopes, data, is_coupled, (part,), now)
