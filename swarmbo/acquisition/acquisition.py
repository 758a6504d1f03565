"""What every acquisition offers, for agents in a field, for those who set the variables of a function, or for both."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.by_view import ViewSteps
from swarmbo.acquisition.local_problem import LocalProblem
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import PlaceBelief
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.records import Goal
from swarmbo.registry.plugins import checked_as, not_wanted
from swarmbo.settings import Settings

Chooser = Callable[[str, PlaceBelief, Float[np.ndarray, "k d"]], int | None]


class Acquisition(Settings, frozen=True, tag_field="kind"):
    """Base of acquisitions: what a query is worth, as a sum of local functions that agents maximise together.

    A subclass says it for one kind of problem or for both: in a field by ``local_problem``, of a function by
    ``local_functions``. ``ChainAcquisition`` is a base for fields that asks for less.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
        >>> class BestMean(sb.Acquisition, frozen=True):
        ...     def local_functions(self, situation, model):
        ...         weights = dict.fromkeys(model.belief.graph.factors, 0.0)  # of the standard deviations
        ...         return ConfidenceBounds.on_cube(model.belief, sqrt_beta=weights)
        >>> graph, x = sb.FactorGraph.from_scopes({"f": ["x"]}), np.linspace(0.0, 1.0, 11)
        >>> team = sb.Team(graph, {"x": (0.0, 1.0)}, acquisition=BestMean())
        >>> team.attach(x[:, None], -((x - 0.44) ** 2))
        >>> bool(abs(team.ask().point["x"] - 0.44) < 0.01)
        True
    """

    for_functions: ClassVar[tuple[str, ...]] = ()  # settings of no account in a field
    for_fields: ClassVar[tuple[str, ...]] = ()  # settings of no account for a function

    def check_world(self, level: float | None) -> None:
        """Refuse a world in which it could not say what a query is worth; before the first round.

        Args:
            level: That the world states; None where it states none.

        Raises:
            ConfigError: If something is missing. Here nothing is.
        """

    def aim(self, level: float | None) -> Goal | None:
        """What it looks for in a field; None: it does not say, and suits any.

        Args:
            level: That the world states; None where it states none.
        """
        return None

    def in_field(self, aim: Goal, *, priced: bool) -> "Acquisition":
        """What says what places are worth: itself, unless it chooses one.

        Args:
            aim: What the field is watched for.
            priced: Whether agents may decline a measurement for its price.
        """
        return self

    def local_problem(self, situation: Situation) -> LocalProblem | None:
        """What agents in a field have to agree on; None if nobody has anywhere to go.

        Args:
            situation: What is known.
        """
        raise NotImplementedError(f"{type(self).__name__} lacks a utility of locations (implement local_problem)")

    @property
    def splits(self) -> bool:
        """Whether agents with beliefs of their own can each work out their share of what they have to agree on."""
        return False

    def problem_steps(self, situation: Situation) -> ViewSteps[LocalProblem | None]:
        """The same in steps, in which agents with beliefs of their own say what others need of them; here there is one.

        Args:
            situation: What is known.
        """
        yield from ()
        return self.local_problem(situation)

    def alone(self, situation: Situation) -> Chooser:
        """How agents in a field choose by themselves, as baselines have them do.

        Here each takes the best of its places by the local problem of its own, as if nobody else were there.

        Args:
            situation: What is known.

        Returns:
            A function of an agent, what it believes, and places (k, d), k >= 1: the index of its choice among them;
            None where it declines.
        """

        def choose(agent: str, belief: PlaceBelief, places: Float[np.ndarray, "k d"]) -> int | None:
            by_itself = replace(situation, agents=(agent,), candidates={agent: places}, belief=belief)
            problem: LocalProblem | None = checked_as(
                LocalProblem | None, self.local_problem(by_itself), self, "local_problem"
            )
            if problem is None:
                return None
            if problem.graph.variables != (agent,):
                wanted = f"a problem of {agent!r} alone, which is the only one in the situation"
                raise not_wanted(problem.graph.variables, wanted, self, "local_problem")
            return problem.best_alone(agent, places)

        return choose

    def learn(self, situation: JointSituation, belief_settings: AdditiveGPSettings, previous: Learned | None) -> Model:
        """What the history of a function says: here all of it, untransformed; hyper-parameters are refitted when due.

        Args:
            situation: What is known.
            belief_settings: Kernel, priors, effort of the fit.
            previous: What the last model learned; None at first.
        """
        belief, learned = learned_belief(situation, situation.graph, situation.history, belief_settings, previous)
        return Model(given_out(belief, situation), learned)

    def local_functions(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """What agents that set the variables of a function maximise in sum.

        Args:
            situation: What is known.
            model: Of the same situation.

        Returns:
            One function per factor of ``model.belief.graph``, whose variables are those of the team's graph in the same
            order; its factors may be others.
        """
        raise NotImplementedError(
            f"{type(self).__name__} lacks the functions that agents maximise (implement local_functions)"
        )
