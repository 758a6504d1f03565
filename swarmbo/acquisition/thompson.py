"""Thompson sampling: maximise a function drawn from the posterior, which splits exactly into one per factor."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.acquisition.joint_acquisition import JointAcquisition
from swarmbo.belief.features.feature_sample import FeatureSample
from swarmbo.belief.gp.path_sample import PathSample
from swarmbo.belief.model.incumbents import starting_points
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Model
from swarmbo.graph import FactorStack
from swarmbo.registry import FUNCTION, kind
from swarmbo.rng import stream
from swarmbo.settings import Even


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledFunctions(BoxFunctions):
    """One drawn function per factor; together they are one draw of all factors given the outcomes.

    Args:
        sample: The draw.
    """

    sample: PathSample | FeatureSample

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's drawn function, in the unit the belief is about."""
        self.check_owned(stack)
        return self.sample.value(stack, U)

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's drawn function and its gradient."""
        self.check_owned(stack)
        return self.sample.value_and_gradient(stack, U)


@kind("acquisition", FUNCTION)
class Thompson(JointAcquisition, frozen=True, tag="thompson"):
    """Additive Thompson sampling (Thompson 1933) by pathwise conditioning (Wilson et al. 2020, eq. (9)).

    Every factor draws from a stream of its own, so its owner can draw alone; what ties the factors together is one
    number per observation that each of them tells the others. A query asked while others are out draws anew, which
    is what makes the points of a batch differ.

    Args:
        n_features: Random features of each factor's prior draw, an even number >= 2.

    Example:
        >>> import swarmbo as sb
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 10)
        >>> team = sb.Team(graph, {"x": (0.0, 3.0)}, acquisition=sb.Thompson(n_features=64))
        >>> team.attach(x[:, None], np.sin(6.0 * x))  # nothing known beyond 1
        >>> bool(np.ptp([query.point["x"] for query in team.ask(4)]) > 0.1)  # every query of a batch has its own draw
        True
    """

    n_features: Even = 512

    def local_functions(self, situation: JointSituation, model: Model) -> SampledFunctions:
        """A draw for this round."""
        belief, n_dims = model.belief, model.belief.domain.n_dims
        when = {"round": situation.round, "evaluations": len(situation.history), "pending": len(situation.pending)}
        rngs = {factor: stream(situation.seed, "thompson", factor=factor, **when) for factor in belief.graph.factors}
        sample = belief.sample(rngs, stream(situation.seed, "thompson", "noise", **when), self.n_features)
        low, high = np.zeros(n_dims), np.ones(n_dims)
        starts = starting_points(belief, low, high)
        return SampledFunctions(graph=belief.graph, low=low, high=high, starts=starts, sample=sample)
