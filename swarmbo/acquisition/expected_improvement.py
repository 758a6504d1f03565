"""Expected improvement over the incumbent: for functions per factor, in fields per agent."""

from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.joint_improvement import JointImprovement
from swarmbo.acquisition.log_improvement import LogImprovements
from swarmbo.acquisition.situation import Situation
from swarmbo.belief.model import JointSituation, Model
from swarmbo.records import Goal
from swarmbo.registry import FIELD, FUNCTION, kind


@kind("acquisition", FIELD, FUNCTION)
class ExpectedImprovement(ChainAcquisition, frozen=True, tag="expected-improvement"):
    """Expected improvement over the incumbent's value, in a field or of a function.

    In a field it is that of the batch: E[max(f(x_1), …, f(x_N), best) - best], with the largest posterior mean over all
    measured locations as the best. It splits exactly into each agent's gain over its successors in the chain, of which
    it considers the next B (``joint_improvement``). With prices, a measurement is worthwhile if its gain exceeds the
    price.

    For a function it is a sum over factors, of the log expected improvement of f_i(x_i) over f_i at the incumbent. With
    one factor this is log expected improvement. With several it is a heuristic: every factor seeks to improve one term,
    although a loss of one may pay for a gain of another. The incumbent is the evaluated point with the largest
    posterior mean; with outcomes per factor, it is combined from the best point of each connected part.

    The settings are those of ``ChainAcquisition``, for fields; nothing is set for functions.

    Source: Mockus et al. 1978, Jones et al. 1998, for expected improvement; Ginsbourger et al. 2010 for that of a
    batch; Ament et al. 2023 for its logarithm.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 11)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, acquisition=sb.ExpectedImprovement())
        >>> team.attach(x[:, None], -((x - 0.44) ** 2))  # 0.4 is the best yet, the maximum is next to it
        >>> bool(abs(team.ask().point["x"] - 0.44) < 0.03)
        True
        >>> field, line = sb.Team.for_field(["a", "b"], [0.0], [1.0], acquisition="expected-improvement"), x[:, None]
        >>> field.attach(line[::2], [0.0, 1.0, 1.0, 0.0, 0.0, 0.0])  # as much at 0.2 as at 0.4
        >>> sorted(round(float(place[0]), 1) for place in field.ask({"a": line, "b": line}).points.values())
        [0.3, 0.4]
    """

    def aim(self, level: float | None) -> Goal:
        """The peak."""
        return "peak"

    def utility(self, situation: Situation, n_agents: int | None = None) -> JointImprovement:
        """Improvement on the largest posterior mean of measured locations."""
        return JointImprovement(situation.best_measured())

    def local_functions(self, situation: JointSituation, model: Model) -> LogImprovements:
        """Log expected improvements of the factors."""
        return LogImprovements.over_incumbent(model.belief)
