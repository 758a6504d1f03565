"""The mean of several acquisitions, each over a decomposition of its own, as one sum over all their scopes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model.groupings import graph_of_groups
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.structure.partitions import Scopes
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorStack, stacks_of


@dataclass(frozen=True, eq=False)
class Sampled:
    """The bounds of one sampled decomposition.

    Args:
        bounds: Over its own graph.
        share: Of the samples that are it.
        names: Its factor for each factor of the merged graph that has the same scope.
    """

    bounds: ConfidenceBounds
    share: float
    names: Mapping[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedBounds(BoxFunctions):
    """(1/k) sum over k samples of their factors' bounds (Hoang et al. 2018, appendix B).

    A factor of the merged graph is the sum, over the samples that have its scope, of their bounds on it.

    Args:
        samples: At least one.
        lattice_points: As for ``ConfidenceBounds``.
    """

    samples: Sequence[Sampled]
    lattice_points: int = 0

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's share of the mean."""
        self.check_owned(stack)
        out = np.zeros(U.shape[:2])
        for sample, rows, own in self._parts(stack):
            out[rows] += sample.share * sample.bounds.value(own, U[rows], received)
        return out

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """The same with its gradient."""
        self.check_owned(stack)
        out, slopes = np.zeros(U.shape[:2]), np.zeros(U.shape)
        for sample, rows, own in self._parts(stack):
            value, slope = sample.bounds.value_and_gradient(own, U[rows], received)
            out[rows] += sample.share * value
            slopes[rows] += sample.share * slope
        return out, slopes

    def _parts(self, stack: FactorStack) -> list[tuple[Sampled, list[int], FactorStack]]:
        """For each sample that has scopes of a stack: their rows of it, and the sample's own stack, in that order."""
        out: list[tuple[Sampled, list[int], FactorStack]] = []
        for sample in self.samples:
            row_of = {sample.names[name]: row for row, name in enumerate(stack.factors) if name in sample.names}
            if row_of:
                (own,) = stacks_of(sample.bounds.graph, row_of)  # all of one size
                out.append((sample, [row_of[name] for name in own.factors], own))
        return out


def sampled_beliefs(
    merged: AdditiveGP, samples: Sequence[Scopes], situation: JointSituation
) -> list[tuple[AdditiveGP, float, dict[str, str]]]:
    """The belief of each sampled decomposition, fitted to the same outcomes by itself.

    Args:
        merged: About the graph of all scopes of the samples; for the outcomes and settings.
        samples: Decompositions, as columns of joint points; equal ones are fitted once.
        situation: For the team's graph, seed and pending points.

    Returns:
        Beliefs, their shares of the samples, and the name of their factor for each merged one of the same scope.
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
