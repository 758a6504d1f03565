"""Upper confidence bounds of factors, and of their difference to the incumbent, as terms of a sum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BeliefFunctions, ContrastFunctions, Received
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model.groupings import graph_of_groups
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.structure.partitions import Scopes
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorStack


@dataclass(frozen=True, eq=False, kw_only=True)
class ConfidenceBounds(BeliefFunctions):
    """The local functions mu_i + sqrt(beta_i) sigma_i, which Add-GP-UCB and DEC-HBO maximise in sum.

    Args:
        sqrt_beta: Weight of each factor's standard deviation.
        lattice_points: Least number of points along each variable for coordination methods with a lattice.
    """

    sqrt_beta: Mapping[str, float]
    lattice_points: int = 0

    def merit(
        self, stack: FactorStack, mean: Float[np.ndarray, "g m"], std: Float[np.ndarray, "g m"]
    ) -> tuple[Float[np.ndarray, "g m"], Any, Any]:
        """Upper confidence bound."""
        weights = np.array([self.sqrt_beta[factor] for factor in stack.factors])[:, None]
        return mean + weights * std, 1.0, weights


@dataclass(frozen=True, eq=False, kw_only=True)
class ContrastBounds(ContrastFunctions):
    """The local functions mean + weight x std of f_i(u) - f_i(reference).

    ``weight`` is multiplied by the root of a factor's number of variables.
    """

    weight: float

    def merit(
        self, stack: FactorStack, mean: Float[np.ndarray, "g m"], std: Float[np.ndarray, "g m"]
    ) -> tuple[Float[np.ndarray, "g m"], Any, Any]:
        """Upper confidence bound of the difference."""
        weight = self.weight * float(np.sqrt(stack.size))
        return mean + weight * std, 1.0, weight

    def rough_value(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> Float[np.ndarray, "g m"]:
        """Each factor's bound to some digits, for tables that guide a search; much faster with many factors."""
        self.check_owned(stack)
        return self._merit_of(stack, self.belief.local_contrast(stack, U, self.reference, rough=True))[0]


def sampled_beliefs(
    merged: AdditiveGP, samples: Sequence[Scopes], situation: JointSituation
) -> list[tuple[AdditiveGP, float, dict[str, str]]]:
    """Beliefs of sampled decompositions, each fitted to the same outcomes, their shares, and names of merged factors.

    ``merged`` is the belief about the graph of all scopes of the samples. Equal samples are fitted once.
    """
    variables, found = merged.graph.variables, dict.fromkeys(samples, 0)
    for sample in samples:
        found[sample] += 1
    out: list[tuple[AdditiveGP, float, dict[str, str]]] = []
    for place, (scopes, count) in enumerate(found.items()):
        graph = graph_of_groups(situation.graph, [[variables[i] for i in scope] for scope in scopes])
        graph = replace(graph, factors=tuple(f"sample_{factor}" for factor in graph.factors))  # no name of the merged
        rng = stream(situation.seed, "structure", "average", evaluations=len(situation.history), sample=place)
        belief = merged.with_graph(graph).fit(rng)
        belief = belief.condition_on_pending(situation.pending, situation.pending_rounds)
        own = dict(zip(graph.scopes, graph.factors, strict=True))
        names = {f: own[s] for f, s in zip(merged.graph.factors, merged.graph.scopes, strict=True) if s in own}
        out.append((belief, count / len(samples), names))
    return out
