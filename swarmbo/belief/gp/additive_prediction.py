"""Predictions of an additive belief: single factors for agents, and their sum."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.engine import ChannelGP
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.gp.path_sample import PathSample, draw_posterior
from swarmbo.belief.gp.spatial import checked_points
from swarmbo.belief.gp.stack import Marginals, StackedParts
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph, FactorStack, stacks_of

if TYPE_CHECKING:
    from swarmbo.belief.gp.stack_predict import StackPosterior

_ENTRIES = 2**20  # means of factors worked out at once


@dataclass(frozen=True, eq=False, kw_only=True)
class AdditivePosterior(ChannelGP):
    """The posterior of a sum of Gaussian processes, and of each of them.

    Predictions of the sum, and the fields not listed here, are those of its base, ``ChannelGP``. Columns of points are
    in the order of ``graph.variables``.
    """

    settings: AdditiveGPSettings
    graph: FactorGraph
    hyperparameters: AdditiveHyperparameters
    fitted_at: int = 0  # number of data at the last fit; 0: not yet

    @cached_property
    def channels(self) -> AdditiveHyperparameters:
        """Hyper-parameters of the factors, and of their sum."""
        return self.hyperparameters

    @property
    def has_time(self) -> bool:
        """True if the belief has a time axis."""
        return bool(self.hyperparameters.times)

    @property
    def prior_variance(self) -> float:
        """Prior variance of the sum, in the square of the outcome's unit."""
        h = self.hyperparameters
        return float(np.sum(np.array(h.outputscales) * np.array(h.scales) ** 2))

    @property
    def noise_variance(self) -> float:
        """Fitted noise variance of totals, in the square of the outcome's unit."""
        return self.hyperparameters.total_noise_variance * self.hyperparameters.common_scale**2

    @property
    def scopes(self) -> tuple[tuple[int, ...], ...]:
        """For each factor the columns of X that it sees."""
        return self.graph.columns

    @cached_property
    def _prepared(self) -> "dict[tuple[str, ...], StackPosterior]":
        return {}

    def _stack(self, stack: FactorStack) -> "StackPosterior":
        from swarmbo.belief.gp.stack_predict import StackPosterior  # late: numba is slow to load

        if stack.factors not in self._prepared:
            index = [self.graph.place_of[factor] for factor in stack.factors]
            self._prepared[stack.factors] = StackPosterior(self._conditioned, index)
        return self._prepared[stack.factors]

    def posterior(self, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of the sum (without noise); see ``SpatialGP.posterior``."""
        points = self._points(X)
        if self._conditioned.is_coupled or self.has_time:
            return super().posterior(points)
        mean, var = np.zeros(len(points)), np.zeros(len(points))  # the factors are independent of one another
        size = max(1, _ENTRIES // len(self.graph.factors))
        for start in range(0, len(points), size):
            rows, U = slice(start, start + size), self.domain.to_unit(points[start : start + size])
            for stack in stacks_of(self.graph):
                found = self.local(stack, stack.take(U))
                mean[rows] += found.mean.sum(axis=0)
                var[rows] += found.var.sum(axis=0)
        return mean, var

    @cached_property
    def means_at_data(self) -> Float[np.ndarray, "k t"]:
        """What the factors, stack after stack, are expected to be at the points of which an outcome is known."""
        U, parts, hyper = self.domain.to_unit(self.points[self.known]), self._conditioned.parts, self.hyperparameters
        # ``fitted`` tells of the round of each outcome, which is not this one where beliefs decay
        if self.has_time or not isinstance(parts, StackedParts):
            return np.concatenate([self.local_mean(stack, stack.take(U)) for stack in stacks_of(self.graph)])
        order = [self.graph.place_of[factor] for stack in stacks_of(self.graph) for factor in stack.factors]
        is_whole, means = (parts.known == len(U)) & (parts.jitters == 0.0), np.empty((len(order), len(U)))
        if is_whole.any():
            constants, scales = np.array(hyper.constants)[is_whole, None], np.array(hyper.scales)[is_whole, None]
            means[is_whole] = constants + scales * parts.fitted[is_whole, : len(U)]
        if not is_whole.all():
            for stack in stacks_of(self.graph, np.array(self.graph.factors)[~is_whole].tolist()):
                means[[self.graph.place_of[factor] for factor in stack.factors]] = self.local_mean(stack, stack.take(U))
        return means[order]

    def local(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], *, gradient: bool = False) -> Marginals:
        """Posterior of each factor of a stack at separate points of the unit cube, in the unit of the outcomes.

        For a factor it is bit-identical with any others in the stack.
        """
        return self._stack(stack).posterior(U, gradient=gradient)

    def local_mean(self, stack: FactorStack, U: Float[np.ndarray, "g m a"]) -> Float[np.ndarray, "g m"]:
        """Mean of ``local`` (g, m), bit-identical, without the cost of a variance."""
        return self._stack(stack).mean(U)

    def local_contrast(
        self,
        stack: FactorStack,
        U: Float[np.ndarray, "g m a"],
        reference: Float[np.ndarray, " n"],
        *,
        gradient: bool = False,
        rough: bool = False,
    ) -> Marginals:
        """Posterior of f_i(u) - f_i(reference), for a joint reference point of the unit cube.

        ``rough``: three digits will do, where that is quicker.
        """
        return self._stack(stack).posterior(U, stack.take(reference[None]), gradient=gradient, rough=rough)

    def factor_posterior(self, factor: str, X: ArrayLike) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Mean and variance of one factor.

        Totals alone don't tell how the mean of the sum divides among factors: then each has an even share.

        Args:
            factor: Its name.
            X: Points (m, a) of its scope, physical.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        self.graph.scope(factor)  # refuses a name it does not know
        (stack,) = stacks_of(self.graph, [factor])
        columns = stack.columns[0]
        points = checked_points(X, stack.size)
        U = (points - self.domain.low[columns]) / (self.domain.high - self.domain.low)[columns]
        marginals = self.local(stack, U[None])
        return marginals.mean[0], marginals.var[0]

    def sample(
        self, rngs: Mapping[str, np.random.Generator], noise_rng: np.random.Generator, n_features: int = 512
    ) -> PathSample:
        """A joint draw of all factors from the posterior; see ``swarmbo.belief.gp.path_sample``.

        Args:
            rngs: One stream per factor, so that its owner can draw alone.
            noise_rng: A stream that all agents share.
            n_features: Random features of each factor's prior draw, an even number >= 2.
        """
        return draw_posterior(self.graph, self._conditioned, rngs, noise_rng, n_features)

    def log_evidences(self) -> tuple[float, ...]:
        """``log_evidence`` for each factor's own outcomes.

        Raises:
            ConfigError: If there are totals, which tie the factors together.
        """
        if self._has_totals:
            raise ConfigError("got outcomes of the sum; wanted outcomes of single factors", at="$.outcomes")
        return tuple(self._on_data.log_densities.tolist())
