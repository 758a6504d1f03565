"""EGP-TS and EGP-EI: acquisitions of one model of an ensemble, drawn by weight (Lu et al. 2022)."""

from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.box_functions import on_cube
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.acquisition.thompson import SampledFunctions
from swarmbo.belief.model.ensemble_model import EnsembleModel
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Model
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError
from swarmbo.registry import FUNCTION, kind


@kind("acquisition", FUNCTION)
class EGPTS(Acquisition, frozen=True, tag="egp-ts"):
    """Thompson sampling from an ensemble: draw a member by weight, then a function from its posterior.

    Source: Lu, Polyzos, Li & Giannakis 2022, eqs. (8) and (9) and algorithm 1; requires ``belief = "ensemble"``, whose
    settings have the dictionary.

    With outcomes per factor, every factor draws its own member. With totals, one member is drawn for all. Each owner
    then draws its factor's weights from its own stream, and sends the others one number per evaluation, as for
    ``thompson``. Points of a batch are independent draws; pending points are not conditioned on (the paper's section
    4.2).

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
        # of a part of the graph, as its factors share the noise of one total
        noise_rngs = [stream(situation.seed, "egp-ts", "noise", part=i, **when) for i in range(len(of.ensemble.parts))]
        sample = of.ensemble.draw(of.chosen, rngs, noise_rngs)
        return SampledFunctions(**on_cube(of.belief), sample=sample)


@kind("acquisition", FUNCTION)
class EGPEI(Acquisition, frozen=True, tag="egp-ei"):
    """Expected improvement under one model of an ensemble, drawn by weight.

    Source: Lu, Polyzos, Li & Giannakis 2022, appendix E: the rule is that of ``expected-improvement``, for the exact
    Gaussian process of the member, without random features. It requires ``belief = "ensemble"``.

    The other acquisitions that use the team's belief directly (``thompson``, ``dec-hbo``, ``dumbo``,
    ``expected-improvement``) take an ensemble in the same way.

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
        return LogImprovements.over_incumbent(require_ensemble(model, "egp-ei").belief)


def require_ensemble(model: Model, kind: str) -> EnsembleModel:
    """The model, if it is of an ensemble."""
    if isinstance(model, EnsembleModel):
        return model
    raise ConfigError(f"got {kind!r} with a belief that is no ensemble; wanted belief = 'ensemble'", at="$.belief.kind")
