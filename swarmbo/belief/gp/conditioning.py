"""Data behind each factor of an additive belief, in one padded form for all ways of observing.

Total and mixed outcomes tie all factors together: one covariance matrix of all observations, one Cholesky factor.
Outcomes of single factors alone leave them independent: one small matrix each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.belief.gp.additive_settings import AdditiveHyperparameters
from swarmbo.belief.gp.factorised import Factorised
from swarmbo.belief.gp.observations import Observations, factor_covariance, observation_covariance


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A posterior, ready for use factor by factor; in the standardised unit of each factor.

    Args:
        hyper: Hyper-parameters; all in one unit if factors are tied.
        scopes: Columns of U that each factor sees.
        data: The observations, those pending last.
        is_tied: Whether all factors share one covariance matrix.
        parts: That one, factorised, or one for each factor.
        points: For each factor the observed points (T, a) that it sees, padded to a common T.
        seen: Whether an observation holds the factor (k, T); never for padding.
        alpha: Weights (k, T) of the posterior mean: mean_i(u) = k_i(u, points_i) · alpha_i.
        inverse: L⁻¹ of each part (1 or k, T, T), zero in padding.
        now: The round that it tells of; of no account where nothing fades.
    """

    hyper: AdditiveHyperparameters
    scopes: Sequence[Sequence[int]]
    data: Observations
    is_tied: bool
    parts: tuple[Factorised, ...]
    points: tuple[Float[np.ndarray, "T _a"], ...]
    seen: Bool[np.ndarray, "k T"]
    alpha: Float[np.ndarray, "k T"]
    inverse: Float[np.ndarray, "_ T T"]
    now: float = 0.0

    @property
    def jitter(self) -> float:
        """The largest share of its diagonal that had to be added to an entry of a covariance matrix."""
        return max(part.jitter for part in self.parts)

    def at(self, moment: float) -> "Conditioned":
        """The same posterior, telling of another round."""
        return self if moment == self.now else replace(self, now=moment)

    def fading(self, factors: Sequence[int]) -> Float[np.ndarray, "g T"]:
        """What is left at ``now`` of what some factors were when each observation was made: 1 is all, 0 in padding.

        Covariances between a factor now and the observations are those of a function that stays as it is, times this.
        """
        left, data = np.zeros((len(factors), self.seen.shape[1])), self.part_data
        for row, factor in zip(left, factors, strict=True):
            moments = data[0 if self.is_tied else factor].moment
            row[: len(moments)] = self.hyper.times[factor].between(moments, np.array(self.now))
        return left

    @cached_property
    def part_data(self) -> list[Observations]:
        """The observations of each part."""
        return [self.data] if self.is_tied else [self.data.of_channel(i) for i in range(len(self.scopes))]

    def spread(self, alphas: Sequence[Float[np.ndarray, " _r"]]) -> Float[np.ndarray, "k T"]:
        """Weights of each part's observations as weights of each factor's."""
        out = np.zeros(self.seen.shape)
        if self.is_tied:
            return np.where(self.seen, alphas[0], out)
        for row, alpha in zip(out, alphas, strict=True):
            row[: len(alpha)] = alpha
        return out

    def extended(self, new: Observations) -> "Conditioned":
        """With further observations, in time quadratic in the number of old ones; ``new`` known, or all pending."""
        if not len(new):
            return self
        is_pending = bool(np.isnan(new.outcome).any())
        ahead = [new] if self.is_tied else [new.of_channel(i) for i in range(len(self.scopes))]
        parts = [
            part.extended(
                self._covariance(index, more, old),
                self._covariance(index, more, more, noisy=True),
                more.residuals(self.hyper),
                is_pending=is_pending,
            )
            for index, (part, old, more) in enumerate(zip(self.parts, self.part_data, ahead, strict=True))
        ]
        return assembled(self.hyper, self.scopes, self.data.then(new), parts, is_tied=self.is_tied).at(self.now)

    def _covariance(
        self, part: int, one: Observations, other: Observations, *, noisy: bool = False
    ) -> Float[np.ndarray, "_r _s"]:
        return _covariance(self.hyper, self.scopes, None if self.is_tied else part, one, other, noisy=noisy)


def condition(
    hyper: AdditiveHyperparameters, scopes: Sequence[Sequence[int]], data: Observations, *, is_tied: bool
) -> Conditioned:
    """The posterior given observations.

    Args:
        hyper: Hyper-parameters.
        scopes: Columns of U that each factor sees.
        data: Observations, all known.
        is_tied: Whether to keep all in one matrix; needed as soon as there is one total.
    """
    if is_tied:
        hyper = hyper.in_one_unit()
        chosen: list[tuple[int | None, Observations]] = [(None, data)]
    else:
        chosen = [(i, data.of_channel(i)) for i in range(len(scopes))]
    parts = [
        Factorised.of(_covariance(hyper, scopes, factor, own, own, noisy=True), own.residuals(hyper))
        for factor, own in chosen
    ]
    return assembled(hyper, scopes, data, parts, is_tied=is_tied)


def assembled(
    hyper: AdditiveHyperparameters,
    scopes: Sequence[Sequence[int]],
    data: Observations,
    parts: Sequence[Factorised],
    *,
    is_tied: bool,
) -> Conditioned:
    """Put factorised parts into the padded form."""
    k = len(scopes)
    if is_tied:
        (part,) = parts
        points = tuple(np.ascontiguousarray(data.U[:, list(scope)]) for scope in scopes)
        seen = np.array([data.hold(i) for i in range(k)]).reshape(k, len(data))
        alpha = np.where(seen, part.alpha, 0.0)
        return Conditioned(hyper, scopes, data, True, (part,), points, seen, alpha, part.inverse[None])
    T = max((len(part.alpha) for part in parts), default=0)
    seen, alpha, inverse = np.zeros((k, T), dtype=bool), np.zeros((k, T)), np.zeros((k, T, T))
    padded: list[np.ndarray] = []
    for i, (part, scope) in enumerate(zip(parts, scopes, strict=True)):
        t = len(part.alpha)
        own = data.U[data.channel == i][:, list(scope)]
        padded.append(np.concatenate([own, np.zeros((T - t, len(scope)))]))
        seen[i, :t], alpha[i, :t], inverse[i, :t, :t] = True, part.alpha, part.inverse
    return Conditioned(hyper, scopes, data, False, tuple(parts), tuple(padded), seen, alpha, inverse)


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
