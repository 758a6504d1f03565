"""Expected improvement over the incumbent, factor by factor."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.belief_functions import BeliefFunctions
from swarmbo.acquisition.box_functions import Received
from swarmbo.acquisition.joint_acquisition import JointAcquisition
from swarmbo.acquisition.log_improvement import log_improvement
from swarmbo.belief.model.incumbents import incumbent
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Model
from swarmbo.graph import FactorStack
from swarmbo.registry import FUNCTION, kind


@dataclass(frozen=True, eq=False, kw_only=True)
class LogImprovements(BeliefFunctions):
    """The local functions log E[max(f_i(u) - f_i(reference), 0)].

    The difference's own posterior is used: offsets between factors, which totals can't tell, cancel in it. The floor
    under the root keeps the value finite at the reference itself, where the difference is known to be zero.

    Args:
        reference: The incumbent (n,), a joint point of the unit cube.
    """

    reference: Float[np.ndarray, " n"]

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's log expected improvement; the improvement is in the unit the belief is about."""
        self.check_owned(stack)
        moments = self.belief.local_contrast(stack, U, self.reference)
        return log_improvement(moments.mean, np.sqrt(moments.var + self.variance_floor(stack)))[0]

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's log expected improvement and its gradient."""
        self.check_owned(stack)
        moments = self.belief.local_contrast(stack, U, self.reference, gradient=True)
        assert moments.dmean is not None
        assert moments.dvar is not None
        std = np.sqrt(moments.var + self.variance_floor(stack))
        value, by_mean, by_std = log_improvement(moments.mean, std)
        return value, by_mean[..., None] * moments.dmean + (0.5 * by_std / std)[..., None] * moments.dvar


@kind("acquisition", FUNCTION)
class ExpectedImprovement(JointAcquisition, frozen=True, tag="expected-improvement"):
    """Sum over factors of the log expected improvement of f_i(x_i) over f_i at the incumbent.

    With one factor this is log expected improvement. With several it is a heuristic that splits: every factor asks for
    an improvement of its own share, where the expected improvement of the sum would let one pay for another. The
    incumbent is the evaluated point with the largest posterior mean; where factors are observed one by one, it is put
    together from the best point of each connected part.

    Source:
        Mockus et al. 1978, Jones et al. 1998, for expected improvement; Ament et al. 2023 for its logarithm.

    Example:
        >>> import swarmbo as sb
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 11)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, acquisition=sb.ExpectedImprovement())
        >>> team.attach(x[:, None], -((x - 0.44) ** 2))  # 0.4 is the best yet, the maximum is next to it
        >>> bool(abs(team.ask().point["x"] - 0.44) < 0.03)
        True
    """

    def local_functions(self, situation: JointSituation, model: Model) -> LogImprovements:
        """The factors' log expected improvements."""
        return LogImprovements.on_cube(model.belief, reference=incumbent(model.belief))
