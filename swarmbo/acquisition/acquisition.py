"""Base of every acquisition, for fields, for functions, or for both."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from swarmbo import registry
from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.by_view import Chooser
from swarmbo.acquisition.local_problem import LocalProblem
from swarmbo.acquisition.situation import Situation
from swarmbo.belief import PlaceBelief
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model, given_out, learned_belief
from swarmbo.records import Goal
from swarmbo.settings import Settings
from swarmbo.steps import Steps


class Acquisition(Settings, frozen=True, tag_field="kind"):
    """Base of acquisitions: sums of local functions that agents maximise together.

    A subclass implements ``local_problem`` for fields, ``local_functions`` for functions, or both. ``ChainAcquisition``
    is a base for fields that needs less.

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

    for_functions: ClassVar[tuple[str, ...]] = ()  # settings without effect in a field
    for_fields: ClassVar[tuple[str, ...]] = ()  # settings without effect for a function
    goal: ClassVar[Goal | None] = None  # task in a field; None: any

    def check_world(self, level: float | None) -> None:
        """Check before the first round that the world has what the acquisition needs; the base needs nothing.

        Args:
            level: Threshold of the environment, in the unit of the field; None if it has no threshold.

        Raises:
            ConfigError: If a property is missing.
        """

    def aim(self, level: float | None) -> Goal | None:
        """Task in a field; None if the acquisition suits any task. ``level`` is the world's threshold or None."""
        return self.goal

    def in_field(self, aim: Goal, *, priced: bool) -> "Acquisition":
        """Acquisition that values locations: this one, unless it selects another, as ``Auto`` does.

        Args:
            aim: Task in the field.
            priced: True if measurements have a price, so that agents may abstain.
        """
        return self

    def local_problem(self, situation: Situation) -> LocalProblem | None:
        """Problem that agents in a field have to agree on; None if no agent can move."""
        raise NotImplementedError(f"{type(self).__name__} lacks a utility of locations (implement local_problem)")

    @property
    def splits(self) -> bool:
        """True if agents with separate beliefs can each compute their share of the problem."""
        return False

    def problem_steps(self, situation: Situation) -> Steps[LocalProblem | None]:
        """Steps of ``local_problem``, which request messages of agents with separate beliefs; here, no messages."""
        yield from ()
        return self.local_problem(situation)

    def alone(self, situation: Situation) -> Chooser:
        """Rule by which an agent in a field chooses without others, for baselines.

        By default, each agent takes its best location by its own local problem.

        Returns:
            A function of an agent, its belief and its locations (k, d), k >= 1. It returns the index of the chosen
            location, or None to abstain.
        """

        def choose(agent: str, belief: PlaceBelief, places: Float[np.ndarray, "k d"]) -> int | None:
            by_itself = replace(situation, agents=(agent,), candidates={agent: places}, belief=belief)
            made = self.local_problem(by_itself)
            problem: LocalProblem | None = registry.checked_result(LocalProblem | None, made, self, "local_problem")
            if problem is None:
                return None
            if problem.graph.variables != (agent,):
                wanted = f"a problem of {agent!r} alone, which is the only one in the situation"
                raise registry.invalid_result(problem.graph.variables, wanted, self, "local_problem")
            return problem.best_alone(agent, places)

        return choose

    def learn(self, situation: JointSituation, belief_settings: AdditiveGPSettings, previous: Learned | None) -> Model:
        """Model of a function's history; by default of all outcomes, untransformed, with a refit when it is due.

        Args:
            situation: Present knowledge.
            belief_settings: Kernel, priors and effort of the fit.
            previous: State that the last model learned; None for the first model.
        """
        belief, learned = learned_belief(situation, situation.graph, situation.history, belief_settings, previous)
        return Model(given_out(belief, situation), learned)

    def local_functions(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """Functions whose sum agents maximise to set the variables of a function.

        Args:
            situation: Present knowledge.
            model: Model learned in this situation.

        Returns:
            One function per factor of ``model.belief.graph``. That graph has the variables of the team's graph in the
            same order; its factors may differ.
        """
        lacks = "lacks the functions that agents maximise (implement local_functions)"
        raise NotImplementedError(f"{type(self).__name__} {lacks}")
