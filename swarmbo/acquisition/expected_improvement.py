"""Expected improvement over the incumbent: of a function factor by factor, in a field agent by agent."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition.belief_functions import ContrastFunctions
from swarmbo.acquisition.box_functions import Received
from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.joint_improvement import JointImprovement
from swarmbo.acquisition.log_improvement import log_improvement
from swarmbo.acquisition.situation import Situation
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.model import JointSituation, Model
from swarmbo.belief.model.incumbents import to_beat
from swarmbo.graph import FactorStack
from swarmbo.records import Goal
from swarmbo.registry import FIELD, FUNCTION, kind


@dataclass(frozen=True, eq=False, kw_only=True)
class LogImprovements(ContrastFunctions):
    """The local functions log E[max(f_i(u) - f_i(reference), 0)].

    The difference's own posterior is used: offsets between factors, which totals can't tell, cancel in it. The floor
    under the root keeps the value finite at the reference itself, where the difference is known to be zero.
    """

    @classmethod
    def over_incumbent(cls, belief: AdditiveGP) -> "LogImprovements":
        """On the whole unit cube, over the best of what was evaluated, and of what is expected of pending points."""
        return cls.on_cube(belief, reference=to_beat(belief))

    def starting_from(
        self, best: Float[np.ndarray, "k n"], columns: Int[np.ndarray, " a"], beaten: Float[np.ndarray, " n"]
    ) -> "LogImprovements":
        """The same over the best point of what was evaluated or is pending."""
        return super().starting_from(best, columns, beaten)._over(beaten, columns)

    def value(self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received) -> Float[np.ndarray, "g m"]:
        """Each factor's log expected improvement; the improvement is in the unit the belief is about."""
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference)
        return log_improvement(marginals.mean, np.sqrt(marginals.var + self.variance_floor(stack)))[0]

    def value_and_gradient(
        self, stack: FactorStack, U: Float[np.ndarray, "g m a"], received: Received
    ) -> tuple[Float[np.ndarray, "g m"], Float[np.ndarray, "g m a"]]:
        """Each factor's log expected improvement and its gradient."""
        self.check_owned(stack)
        marginals = self.belief.local_contrast(stack, U, self.reference, gradient=True)
        assert marginals.dmean is not None
        assert marginals.dvar is not None
        std = np.sqrt(marginals.var + self.variance_floor(stack))
        value, by_mean, by_std = log_improvement(marginals.mean, std)
        return value, by_mean[..., None] * marginals.dmean + (0.5 * by_std / std)[..., None] * marginals.dvar


@kind("acquisition", FIELD, FUNCTION)
class ExpectedImprovement(ChainAcquisition, frozen=True, tag="expected-improvement"):
    """Expected improvement over the best known value, in a field or of a function.

    In a field it is that of the batch: E[max(f(x_1), …, f(x_N), best) - best], with the largest posterior mean over
    all measured places as the best. It splits exactly into what each agent adds to its successors in the chain, of
    which it sees the next B (``joint_improvement``). Where measurements have a price, one is worth it if it adds more.

    Of a function it is a sum over factors, of the log expected improvement of f_i(x_i) over f_i at the incumbent. With
    one factor this is log expected improvement. With several it is a heuristic that splits: every factor asks for an
    improvement of its own share, where the expected improvement of the sum would let one pay for another. The incumbent
    is the evaluated point with the largest posterior mean; where factors are observed one by one, it is put together
    from the best point of each connected part.

    The settings are those of ``ChainAcquisition``, for fields; nothing is set for functions.

    Source:
        Mockus et al. 1978, Jones et al. 1998, for expected improvement; Ginsbourger et al. 2010 for that of a batch;
        Ament et al. 2023 for its logarithm.

    Example:
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

    def worth(self, situation: Situation, n_agents: int | None = None) -> JointImprovement:
        """Improvements on the largest posterior mean where somebody has measured."""
        return JointImprovement(situation.best_measured())

    def local_functions(self, situation: JointSituation, model: Model) -> LogImprovements:
        """The factors' log expected improvements."""
        return LogImprovements.over_incumbent(model.belief)
