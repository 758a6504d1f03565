"""Mean of several acquisitions over different decompositions, as one sum over all their scopes."""

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
    """Bounds of one sampled decomposition.

    Args:
        bounds: Over its own graph.
        share: Share of equal samples.
        names: Its factor for each factor of the merged graph that has the same scope.
    """

    bounds: ConfidenceBounds
    share: float
    names: Mapping[str, str]


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragedBounds(BoxFunctions):
    """(1/k) sum over k samples of their factors' bounds (Hoang et al. 2018, appendix B).

    A factor of the merged graph is the sum of the bounds on its scope, over the samples that have it.
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
        """Each factor's share of the mean and its gradient."""
        self.check_owned(stack)
        out, slopes = np.zeros(U.shape[:2]), np.zeros(U.shape)
        for sample, rows, own in self._parts(stack):
            value, slope = sample.bounds.value_and_gradient(own, U[rows], received)
            out[rows] += sample.share * value
            slopes[rows] += sample.share * slope
        return out, slopes

    def _parts(self, stack: FactorStack) -> list[tuple[Sampled, list[int], FactorStack]]:
        """Rows of a stack of each sample that has some of its scopes, with the sample's own stack in that order."""
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
