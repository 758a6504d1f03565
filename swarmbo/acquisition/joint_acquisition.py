"""What every acquisition of joint points offers."""

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.settings import Settings


class JointAcquisition(Settings, frozen=True, tag_field="kind"):
    """Base of acquisitions that are sums of local functions over a factor graph.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
        >>> class BestMean(sb.JointAcquisition, frozen=True, tag="best-mean"):
        ...     def local_functions(self, situation, model):
        ...         weights = dict.fromkeys(model.belief.graph.factors, 0.0)  # of the standard deviations
        ...         return ConfidenceBounds.on_cube(model.belief, sqrt_beta=weights)
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 11)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, acquisition=BestMean())
        >>> team.attach(x[:, None], -((x - 0.44) ** 2))
        >>> bool(abs(team.ask().point["x"] - 0.44) < 0.01)
        True
    """

    def learn(self, situation: JointSituation, belief_settings: AdditiveGPSettings, previous: Learned | None) -> Model:
        """What the history says: here all of it, untransformed; hyper-parameters are refitted when due.

        Args:
            situation: What is known.
            belief_settings: Kernel, priors, effort of the fit.
            previous: What the last model learned; None at first.
        """
        belief, learned = learned_belief(situation, situation.graph, situation.history, belief_settings, previous)
        return Model(given_out(belief, situation), learned)

    def local_functions(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """What agents maximise in sum.

        Args:
            situation: What is known.
            model: Of the same situation.

        Returns:
            One function per factor of ``model.belief.graph``, whose variables are those of the team's graph in the same
            order; its factors may be others.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what agents maximise")
