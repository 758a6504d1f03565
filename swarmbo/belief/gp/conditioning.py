"""A posterior given the rows of data, factorised, and its latents in one padded form for all ways of observing.

Total and mixed outcomes tie all latents together: one covariance matrix of all observations, one Cholesky factor.
Outcomes of single latents alone leave them independent: one small matrix each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.belief.gp.block_rows import BlockRows
from swarmbo.belief.gp.factorised import Factorised
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters, is_compiled, is_compiled_sum
from swarmbo.belief.gp.observations import TOTAL, Observations, factor_covariance, observation_covariance
from swarmbo.belief.gp.stacked_parts import StackedParts


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A posterior, ready for use latent by latent; in the standardised unit of each.

    Args:
        hyper: Hyper-parameters; all in one unit if latents are coupled.
        scopes: Columns of U that each latent reads.
        data: The observations, those pending last.
        is_coupled: Whether all latents share one covariance matrix.
        parts: That one, factorised, or one for each latent; of many latents ``StackedParts``.
        now: The round that it tells of; of no account where nothing fades.
        kept: The inverses of the parts (k, T, T) in one array, where they are of one size and were made together.
    """

    hyper: AdditiveHyperparameters
    scopes: Sequence[Sequence[int]]
    data: Observations
    is_coupled: bool
    parts: Sequence[Factorised]
    now: float = 0.0
    kept: Float[np.ndarray, "k T T"] | None = None

    def points(self, latents: Sequence[int]) -> Float[np.ndarray, "g T a"]:
        """The observed points that some latents of one size read, padded to a common T."""
        data = self.data
        if isinstance(self.parts, StackedParts):
            columns = np.array([self.scopes[i] for i in latents])
            return data.places[data.row[self.parts.entries[latents]][:, :, None], columns[:, None, :]]
        if self.is_coupled:
            return np.array([data.at(self.scopes[i]) for i in latents])
        own = [self.part_data[i].at(self.scopes[i]) for i in latents]
        return np.array([np.concatenate([U, np.zeros((self._width - len(U), U.shape[1]))]) for U in own])

    @cached_property
    def seen(self) -> Bool[np.ndarray, "k T"]:
        """Whether an observation holds the latent (k, T); never for padding."""
        if self.is_coupled:
            return np.array([self.data.hold(i) for i in range(len(self.scopes))]).reshape(-1, len(self.data))
        return np.arange(self._width) < self.counts[:, None]

    @cached_property
    def alpha(self) -> Float[np.ndarray, "k T"]:
        """Weights (k, T) of the posterior mean: mean_i(u) = k_i(u, points_i) · alpha_i."""
        return self.parts.alpha if isinstance(self.parts, StackedParts) else self.spread([p.alpha for p in self.parts])

    @cached_property
    def inverse(self) -> Float[np.ndarray, "_ T T"]:
        """L⁻¹ of each part (1 or k, T, T), zero in padding."""
        if self.is_coupled:
            return self.parts[0].inverse[None]
        if self.kept is not None:
            return self.kept
        out = np.zeros((len(self.parts), self._width, self._width))
        for square, part in zip(out, self.parts, strict=True):
            square[: len(part.alpha), : len(part.alpha)] = part.inverse
        return out

    @cached_property
    def rows(self) -> BlockRows:
        """The same as compiled code reads it."""
        return self.parts.inverse if isinstance(self.parts, StackedParts) else BlockRows.of(self.inverse)

    @cached_property
    def counts(self) -> Int[np.ndarray, " p"]:
        """How many observations each part has."""
        if isinstance(self.parts, StackedParts):
            return self.parts.counts
        return np.array([len(part.alpha) for part in self.parts], dtype=np.int64)

    @property
    def is_compiled(self) -> bool:
        """Whether it is asked in compiled code."""
        kernels = self.hyper.kernels
        if isinstance(self.parts, StackedParts) or is_compiled(kernels):
            return True
        return self.is_coupled and is_compiled_sum(kernels, self.scopes, len(self.data))

    @cached_property
    def _width(self) -> int:
        return int(self.counts.max(initial=0))

    def latents_of(self, channel: int) -> Sequence[int]:
        """Which latents a channel reads: ``TOTAL`` all, another its own."""
        return range(len(self.scopes)) if channel == TOTAL else [channel]

    @property
    def jitters(self) -> Float[np.ndarray, " p"]:
        """Of each part the largest share of its diagonal that had to be added to an entry of its covariance matrix."""
        if isinstance(self.parts, StackedParts):
            return self.parts.jitters
        return np.array([part.jitter for part in self.parts], dtype=float)

    @property
    def log_densities(self) -> Float[np.ndarray, " p"]:
        """Of each part's residuals, of which none is to come."""
        if isinstance(self.parts, StackedParts):
            return self.parts.log_densities
        return np.array([part.log_density() for part in self.parts])

    def at(self, now: float) -> "Conditioned":
        """The same posterior, telling of another round."""
        return self if now == self.now else replace(self, now=now)

    def decay(self, factors: Sequence[int]) -> Float[np.ndarray, "g T"]:
        """What is left at ``now`` of what some factors were when each observation was made: 1 is all, 0 in padding.

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
        if isinstance(self.parts, StackedParts):
            data = self.data.then(new)
            return replace(self, data=data, parts=StackedParts.of(self.hyper, self.scopes, data, self.parts))
        is_pending = bool(np.isnan(new.outcome).any())
        ahead = [new] if self.is_coupled else new.by_factor(len(self.scopes))
        parts = [
            part.extended(
                self.covariance(index, more, old),
                self.covariance(index, more, more, noisy=True),
                None if is_pending else more.residuals(self.hyper),
            )
            for index, (part, old, more) in enumerate(zip(self.parts, self.part_data, ahead, strict=True))
        ]
        return replace(self, data=self.data.then(new), parts=tuple(parts), kept=None)

    def covariance(
        self, part: int, one: Observations, other: Observations, *, noisy: bool = False
    ) -> Float[np.ndarray, "_r _s"]:
        """Prior covariances between outcomes of one part, standardised."""
        return _covariance(self.hyper, self.scopes, None if self.is_coupled else part, one, other, noisy=noisy)


def condition(
    hyper: AdditiveHyperparameters,
    scopes: Sequence[Sequence[int]],
    data: Observations,
    *,
    is_coupled: bool,
    now: float = 0.0,
    keeps_inverse: bool = True,
) -> Conditioned:
    """The posterior given observations.

    Args:
        hyper: Hyper-parameters.
        scopes: Columns of U that each latent reads.
        data: Observations, all known.
        is_coupled: Whether to keep all in one matrix; needed as soon as there is one total.
        now: The round that it tells of.
        keeps_inverse: Whether inverses of the factors are kept up to date: quick where single latents are asked at a
            few points again and again, of no use where a channel is asked at many at once.
    """
    if not is_coupled and not hyper.times and keeps_inverse and is_compiled(hyper.kernels, _most(data)):
        return Conditioned(hyper, scopes, data, is_coupled, StackedParts.of(hyper, scopes, data), now)
    if is_coupled:
        hyper = hyper.in_one_unit()
        chosen: list[tuple[int | None, Observations]] = [(None, data)]
    else:
        chosen = list(enumerate(data.by_factor(len(scopes))))
    kept, (size, *others) = None, [len(own) for _, own in chosen]
    if keeps_inverse and not is_coupled and all(other == size for other in others):
        kept = np.empty((len(chosen), size, size))
    parts = tuple(
        Factorised.of(
            _covariance(hyper, scopes, factor, own, own, noisy=True),
            own.residuals(hyper),
            keeps_inverse=keeps_inverse,
            out=None if kept is None else kept[place],
        )
        for place, (factor, own) in enumerate(chosen)
    )
    return Conditioned(hyper, scopes, data, is_coupled, parts, now, kept)


def _most(data: Observations) -> int:
    """How many observations a latent has at most, where each is observed by itself."""
    return int(np.bincount(data.channel).max(initial=0))


def _covariance(
    hyper: AdditiveHyperparameters,
    scopes: Sequence[Sequence[int]],
    factor: int | None,
    one: Observations,
    other: Observations,
    *,
    noisy: bool,
) -> Float[np.ndarray, "_r _s"]:
    """Covariance of outcomes: of everything, or of one factor alone."""
    if factor is None:
        K = observation_covariance(hyper, scopes, one, other)
    else:
        K = factor_covariance(hyper, scopes[factor], factor, one, other)
    if noisy:
        K.flat[:: len(one) + 1] += one.noise_variances(hyper)
    return K
