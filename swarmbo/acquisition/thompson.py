"""Thompson sampling of one belief or of an ensemble, and expected improvement under a drawn member (Lu et al. 2022)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.box_functions import on_box
from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.expected_improvement import ExpectedImprovement, LogImprovements
from swarmbo.acquisition.local_utility import LocalUtility
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import PlaceBelief, Views, has_view, view_of
from swarmbo.belief.gp.additive_prediction import FeatureSample, PathSample
from swarmbo.belief.gp.cholesky import root_of
from swarmbo.belief.gp.spatial import Delegating
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import EnsembleModel, Model
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.graph import BoxFunctions, FactorStack
from swarmbo.graph.box_functions import Climbing, Points, Received, Values
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Even

_MOST = 1024  # most locations of a draw, whose cost is cubic: a tenth of a second for this number


@dataclass(frozen=True, eq=False)
class _Certain:
    """Posterior cache of drawn values: means without variance."""

    mean: Float[np.ndarray, " m"]

    @property
    def var(self) -> Float[np.ndarray, " m"]:
        return np.zeros(len(self.mean))

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        return np.zeros((len(self.mean[rows]), len(self.mean[cols])))


@dataclass(frozen=True, eq=False)
class FieldDraw(Delegating):
    """A belief that treats one draw of the field as the truth. Means are the drawn values (by place, as bytes); -inf at
    places left out of the draw, NaN at other places.
    """

    belief: PlaceBelief
    values: Mapping[bytes, float]

    @classmethod
    def of(cls, belief: PlaceBelief, places: Float[np.ndarray, "k d"], rng: np.random.Generator) -> "FieldDraw":
        """A joint draw at physical places, one or more; at a random 1,024 of them at most, as the cost is cubic."""
        places = np.unique(places, axis=0)
        listed, values = places, dict.fromkeys((place.tobytes() for place in places), -np.inf)
        if len(places) > _MOST:
            listed = places[np.sort(rng.choice(len(places), _MOST, replace=False))]
        cache, every = belief.posterior_cache(listed), np.arange(len(listed))
        drawn = cache.mean + root_of(cache.cov(every, every)) @ rng.standard_normal(len(listed))
        return cls(belief, values | dict(zip((place.tobytes() for place in listed), drawn.tolist(), strict=True)))

    @property
    def delegate(self) -> PlaceBelief:
        """The belief behind the draw."""
        return self.belief

    def posterior(self, X: Float[np.ndarray, "m d"]) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]:
        """Drawn values, with zero variance."""
        return self.posterior_mean(X), np.zeros(len(X))

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Drawn values."""
        return np.array([self.values.get(place.tobytes(), np.nan) for place in X])

    def posterior_cache(self, X: Float[np.ndarray, "m d"]) -> _Certain:
        """Drawn values, with zero covariance."""
        return _Certain(self.posterior_mean(X))

    def at(self, now: float) -> "FieldDraw":
        """The draw itself, which was made for one round."""
        return self

    def condition_on_pending(self, X: Float[np.ndarray, "p d"]) -> "FieldDraw":
        """The draw itself, which has no uncertainty."""
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledFunctions(BoxFunctions):
    """One drawn function per factor; together they are one joint draw of all factors given the outcomes."""

    sample: PathSample | FeatureSample

    def value(self, stack: FactorStack, U: Points, received: Received) -> Values:
        """Each factor's drawn function, in the unit of the belief."""
        self.check_owned(stack)
        return self.sample.value(stack, U)

    def value_and_gradient(self, stack: FactorStack, U: Points, received: Received) -> Climbing:
        """Each factor's drawn function and its gradient."""
        self.check_owned(stack)
        return self.sample.value_and_gradient(stack, U)


@kind("acquisition", FIELD, FUNCTION)
class Thompson(ChainAcquisition, frozen=True, tag="thompson"):
    """Thompson sampling (Thompson 1933): maximise a draw from the posterior.

    In a field, each agent draws one function at all its reachable locations, with its own random stream. The utility of
    a location is the value of this function. As the draws of agents differ, a batch is spread (Kandasamy et al. 2018).
    Agents only have to agree not to share a location. With prices, a measurement is worthwhile if the draw exceeds the
    best mean at a measured location by more than the price.

    For a function, all factors are drawn jointly, by pathwise conditioning (Wilson et al. 2020, eq. (9)). Every factor
    has its own random stream, so its owner draws alone. Then each factor sends the others one number per observation,
    which couples the draws. Each query of a batch has a new draw, so its points differ.

    Args:
        n_features: For functions: number of random features of each factor's prior draw, even, >= 2.

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

    goal = "peak"

    def utility(self, situation: Situation, n_agents: int | None = None) -> LocalUtility:
        """Utility by the draw alone; the best mean at a measured location is the utility of abstaining."""
        opt_out_utility = situation.best_measured() if situation.prices else 0.0
        return LocalUtility(0.0, 0.0, situation.belief.prior_variance, opt_out_utility=opt_out_utility)

    def valued_by(self, situation: Situation) -> PlaceBelief:
        """Belief that consists of a draw for each agent that can move."""
        draws: dict[str, PlaceBelief] = {}
        for agent in (agent for agent in situation.movers if has_view(situation.belief, agent)):
            # a stream per agent: each draws alone, and the draws of a batch differ
            rng = stream(situation.seed, "thompson", agent=agent, round=situation.round)
            draws[agent] = FieldDraw.of(view_of(situation.belief, agent), situation.candidates[agent], rng)
        return Views(draws, next(iter(draws))) if draws else situation.belief

    def local_functions(self, situation: JointSituation, model: Model) -> SampledFunctions:
        """A draw for this round."""
        belief = model.belief
        when = {"round": situation.round, "evaluations": len(situation.history), "pending": len(situation.pending)}
        rngs = {factor: stream(situation.seed, "thompson", factor=factor, **when) for factor in belief.graph.factors}
        sample = belief.sample(rngs, stream(situation.seed, "thompson", "noise", **when), self.n_features)
        return SampledFunctions(**on_box(belief), sample=sample)


@kind("acquisition", FUNCTION)
class EGPTS(Acquisition, frozen=True, tag="egp-ts"):
    """Thompson sampling from an ensemble: draw a member by weight, then a function from its posterior.

    Source: Lu, Polyzos, Li & Giannakis 2022, eqs. (8) and (9) and algorithm 1. It requires ``belief = "ensemble"``,
        whose settings define the members.

    With outcomes per factor, a member is drawn for each factor. With totals, one member is drawn for all factors. Each
    owner then draws its factor's function with its own random stream, and sends the others one number per evaluation,
    as in ``thompson``. Points of a batch are from independent draws, which ignore pending points (section 4.2).

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 10)
        >>> belief = sb.EnsembleSettings(kernels=("matern32", "rbf"), lengthscales=(0.1, 0.3), n_features=64)
        >>> team = sb.Team(graph, {"x": (0.0, 3.0)}, belief=belief, acquisition=sb.EGPTS())
        >>> team.attach(x[:, None], np.sin(6.0 * x))  # nothing known beyond 1
        >>> bool(np.ptp([query.point["x"] for query in team.ask(4)]) > 0.1)  # independent draws differ
        True
    """

    def local_functions(self, situation: JointSituation, model: Model) -> SampledFunctions:
        """A draw for this round."""
        of = require_ensemble(model, "egp-ts")
        when = {"round": situation.round, "evaluations": len(situation.history), "pending": len(situation.pending)}
        rngs = [stream(situation.seed, "egp-ts", factor=factor, **when) for factor in situation.graph.factors]
        # one stream per part of the graph, as its factors share the noise of one total
        noise_rngs = [stream(situation.seed, "egp-ts", "noise", part=i, **when) for i in range(len(of.ensemble.parts))]
        sample = of.ensemble.draw(of.chosen, rngs, noise_rngs)
        return SampledFunctions(**on_box(of.belief), sample=sample)


@kind("acquisition", FUNCTION)
class EGPEI(Acquisition, frozen=True, tag="egp-ei"):
    """Expected improvement under one model of an ensemble, drawn by weight.

    Source: Lu, Polyzos, Li & Giannakis 2022, appendix E: the rule is ``expected-improvement``, applied to the exact
        Gaussian process of the drawn member, without random features. It requires ``belief = "ensemble"``.

    With an ensemble, ``thompson``, ``dec-hbo``, ``dumbo`` and ``expected-improvement`` also draw a member by weight.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 11)
        >>> belief = sb.EnsembleSettings(kernels=("matern52", "rbf"), lengthscales=(0.3,), n_features=64)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, belief=belief, acquisition=sb.EGPEI())
        >>> team.attach(x[:, None], -((x - 0.44) ** 2))  # 0.4 is the best yet, the maximum is next to it
        >>> bool(abs(team.ask().point["x"] - 0.44) < 0.03)
        True
    """

    def local_functions(self, situation: JointSituation, model: Model) -> LogImprovements:
        """Log expected improvements of the factors under the drawn member."""
        return ExpectedImprovement().local_functions(situation, require_ensemble(model, "egp-ei"))


def require_ensemble(model: Model, kind: str) -> EnsembleModel:
    """Check that a model belongs to an ensemble."""
    if isinstance(model, EnsembleModel):
        return model
    raise ConfigError(f"got {kind!r} without an ensemble as belief; wanted belief = 'ensemble'", at="$.belief.kind")
