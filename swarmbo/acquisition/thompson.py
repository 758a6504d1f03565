"""Thompson sampling: maximise a draw from the posterior; for a function it splits exactly into one per factor."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions, Received
from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.field_draw import FieldDraw
from swarmbo.acquisition.local_utility import LocalUtility
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import PlaceBelief, Views, has_view, view_of
from swarmbo.belief.features.feature_sample import FeatureSample
from swarmbo.belief.gp.path_sample import PathSample
from swarmbo.belief.model.incumbents import starting_points
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Model
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorStack
from swarmbo.records import Goal
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Even


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledFunctions(BoxFunctions):
    """One drawn function per factor; together they are one joint draw of all factors given the outcomes."""

    sample: PathSample | FeatureSample

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's drawn function, in the unit of the belief."""
        self.check_owned(stack)
        return self.sample.value(stack, U)

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's drawn function and its gradient."""
        self.check_owned(stack)
        return self.sample.value_and_gradient(stack, U)


@kind("acquisition", FIELD, FUNCTION)
class Thompson(ChainAcquisition, frozen=True, tag="thompson"):
    """Thompson sampling (Thompson 1933): maximise a draw from the posterior.

    In a field each agent draws the field at all its reachable locations, jointly, from its own stream, and values a
    location by the draw. Differences between draws spread a batch (Kandasamy et al. 2018). Agents only have to agree
    not to share a location. With prices, a measurement is worthwhile if the draw exceeds the best mean at a measured
    location by more than the price.

    For a function there is one joint draw of all factors, by pathwise conditioning (Wilson et al. 2020, eq. (9)). Every
    factor draws from its own stream, so its owner can draw alone. The factors are coupled by one number per observation
    that each of them sends the others. A query while others are pending is drawn again, so the points of a batch
    differ.

    Args:
        n_features: For functions: random features of each factor's prior draw, an even number >= 2.

    The other settings are those of ``ChainAcquisition``, for fields.

    Example:
        >>> import swarmbo as sb
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 10)
        >>> team = sb.Team(graph, {"x": (0.0, 3.0)}, acquisition=sb.Thompson(n_features=64))
        >>> team.attach(x[:, None], np.sin(6.0 * x))  # nothing known beyond 1
        >>> bool(np.ptp([query.point["x"] for query in team.ask(4)]) > 0.1)  # every query of a batch has its own draw
        True
    """

    for_functions: ClassVar[tuple[str, ...]] = ("n_features",)

    n_features: Even = 512

    def aim(self, level: float | None) -> Goal:
        """The peak."""
        return "peak"

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Utility of the draw alone; idle agents have the best mean at a measured location."""
        opt_out_utility = situation.best_measured() if situation.prices else 0.0
        return LocalUtility(0.0, 0.0, situation.belief.prior_variance, opt_out_utility=opt_out_utility)

    def valued_by(self, situation: Situation) -> PlaceBelief:
        """A draw for each agent that can move."""
        draws: dict[str, PlaceBelief] = {}
        for agent in (agent for agent in situation.movers if has_view(situation.belief, agent)):
            rng = stream(situation.seed, "thompson", agent=agent, round=situation.round)
            draws[agent] = FieldDraw.of(view_of(situation.belief, agent), situation.candidates[agent], rng)
        return Views(draws, next(iter(draws))) if draws else situation.belief

    def local_functions(self, situation: JointSituation, model: Model) -> SampledFunctions:
        """A draw for this round."""
        belief, n_dims = model.belief, model.belief.domain.n_dims
        when = {"round": situation.round, "evaluations": len(situation.history), "pending": len(situation.pending)}
        rngs = {factor: stream(situation.seed, "thompson", factor=factor, **when) for factor in belief.graph.factors}
        sample = belief.sample(rngs, stream(situation.seed, "thompson", "noise", **when), self.n_features)
        low, high = np.zeros(n_dims), np.ones(n_dims)
        starts = starting_points(belief, low, high)
        return SampledFunctions(graph=belief.graph, low=low, high=high, starts=starts, sample=sample)
