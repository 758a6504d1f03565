"""DuMBO: bounds of factors that send their neighbours their uncertainty (Bardou et al. 2024)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from jaxtyping import Float

from swarmbo import settings
from swarmbo.acquisition import schedules
from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.box_functions import BeliefFunctions
from swarmbo.belief.gp.stack import Marginals
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Model
from swarmbo.graph import FactorGraph, FactorStack
from swarmbo.graph.box_functions import Points, Received, Values
from swarmbo.registry import FUNCTION, kind


@dataclass(frozen=True, eq=False, kw_only=True)
class NeighbourhoodBounds(BeliefFunctions):
    """The local functions mu_i + sqrt(beta) S_i with S_i² = sum over k in N_i of w_k, w_k = sigma_k² / |N_k|².

    N_i are the factors that share a variable with factor i, itself included. Factors publish their w; coupled ones then
    publish 1/S. A factor receives the sums of its neighbours' numbers, which count as 0 until they arrive.

    A factor climbs its own term mu_i + sqrt(beta) S_i. A coupled one adds sqrt(beta) w_i/2 x sum of the neighbours'
    1/S_k, their terms to first order in w_i. Where the copies of all variables are the exchanged point, the factors'
    gradients then add up to that of the sum of the functions.
    """

    sqrt_beta: float
    coupled: bool

    @property
    def n_exchanges(self) -> int:
        """One phase for w, and one for 1/S if coupled."""
        return 2 if self.coupled else 1

    def published(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """The numbers that factors publish: first w_i, then 1/S_i."""
        self.check_owned(stack)
        w = self._published_variance(stack, self.belief.local(stack, U).var)
        return w if not received else 1.0 / np.sqrt(w + received[0])

    def _terms(
        self, stack: FactorStack, marginals: Marginals, received: Received, *, climbs: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bound, or with ``climbs`` the factor's objective, and derivatives with respect to mean and variance."""
        w = self._published_variance(stack, marginals.var)
        root = np.sqrt(w + (received[0] if received else 0.0))
        bound, slope = root, 0.5 / root
        if climbs and self.coupled and len(received) > 1:
            bound, slope = bound + 0.5 * received[1] * w, slope + 0.5 * received[1]
        # chain rule: w_i = sigma_i² / |N_i|², so dw_i is dvar over the squared size of the neighbourhood
        slope = slope * self.sqrt_beta / self._neighbourhood(stack) ** 2
        return marginals.mean + self.sqrt_beta * bound, np.ones(1), slope

    def _published_variance(self, stack: FactorStack, variance: Float[np.ndarray, "g m"]) -> Float[np.ndarray, "g m"]:
        return (variance + self.variance_floor(stack)) / self._neighbourhood(stack) ** 2

    def _neighbourhood(self, stack: FactorStack) -> Float[np.ndarray, "g 1"]:
        return np.array([self._sizes[factor] for factor in stack.factors])[:, None]

    @cached_property
    def _sizes(self) -> dict[str, float]:
        """|N_i| by factor."""
        return {factor: 1.0 + len(self.graph.neighbours(factor)) for factor in self.graph.factors}


def _squared_excess(graph: FactorGraph) -> float:
    """(Sum of S_i)² / variance of the sum, for equal variances: 1 if all factors are neighbours, n if none are."""
    around = {factor: (factor, *graph.neighbours(factor)) for factor in graph.factors}
    roots = [math.sqrt(sum(len(around[k]) ** -2 for k in near)) for near in around.values()]
    return sum(roots) ** 2 / len(roots)


@kind("acquisition", FUNCTION)
class DuMBO(Acquisition, frozen=True, tag="dumbo"):
    """mu + sqrt(beta) sum_i sqrt(sum over k in N_i of sigma_k² / |N_k|²) (Bardou et al. 2024, eqs. (8) and (9)).

    N_i are factor i and the factors that share a variable with it. If every pair of factors shares a variable, the sum
    of roots is the root of the summed variances; without shared variables it is Add-GP-UCB's sum. By the paper's
    equations, a factor considers its variance in its own root only. So the agents' agreement is in general no
    stationary point of the acquisition. ``coupled`` repairs this with a second number per neighbour.

    If only totals are observed, factors' errors are correlated, and the standard deviation of the sum may exceed the
    paper's bound. So theorem 3.5 and its consequences hold only for outcomes per factor. Agents that agree by ADMM find
    stationary points, not always the maximum.

    Args:
        coupled: True: neighbours also exchange 1/S_k, with S_k the root of factor k, and use the full gradient.
        exploration: Schedule of beta. ``paper``: 0.2 d log(2t) with d the number of all variables and t evaluations, as
            in the authors' program. If factors share few variables, the sum of n roots is up to sqrt(n) times the
            standard deviation of the sum. Then this schedule explores until the budget ends: docs/studies/sums.md.
            ``practical``: the schedule of ``paper`` divided by the square of this ratio, which is computed for equally
            uncertain factors. ``theory``: 2 log(|D| pi² t² / (6 delta)).
        exploration_scale: Factor on sqrt(beta), > 0.
        delta: Failure probability in ``theory``, in (0, 1).
        grid: Points along each variable, >= 2, in the finite domain D of ``theory``.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]})
        >>> X, asked = np.random.default_rng(0).random((8, 2)), []
        >>> for rule in (sb.DuMBO(), sb.AddGPUCB()):
        ...     team = sb.Team(graph, {"x": (0, 1), "y": (0, 1)}, acquisition=rule, outcomes="per-factor", initial=8)
        ...     team.attach(X, np.sin(5.0 * X))
        ...     asked.append(list(team.ask().point.values()))
        >>> bool(np.allclose(asked[0], asked[1], atol=1e-3))  # the factors are disjoint
        True
    """

    coupled: bool = False
    exploration: schedules.NeighbourhoodExploration = "practical"
    exploration_scale: settings.Positive = 1.0
    delta: settings.ProperFraction = 0.1
    grid: Annotated[int, settings.within(2)] = 100

    def local_functions(self, situation: JointSituation, model: Model) -> NeighbourhoodBounds:
        """Upper confidence bounds of the factors."""
        graph, t = model.belief.graph, model.belief.n_data
        n_dims = len(graph.variables)
        if self.exploration == "theory":
            beta = schedules.finite_beta(n_dims * math.log(self.grid), 1, t, self.delta)
        else:
            divisor = 1.0 if self.exploration == "paper" else _squared_excess(graph)
            beta = schedules.practical_beta(n_dims / divisor, t)
        sqrt_beta = self.exploration_scale * math.sqrt(beta)
        return NeighbourhoodBounds.on_cube(model.belief.by_factor_ahead, sqrt_beta=sqrt_beta, coupled=self.coupled)
