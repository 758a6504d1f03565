"""Anywhere."""

from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Acquisition, Decision, Situation
from swarmbo.baselines.seen_totals import n_asked
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import stream
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Settings


@kind("coordination", FIELD, FUNCTION)
class Random(Settings, frozen=True, tag_field="kind", tag="random"):
    """Each agent picks one of the places it can reach, or values of its own variables, uniformly.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x"]})
        >>> twins = [sb.Team(graph, {"x": (0.0, 1.0)}, coordination="random", initial=1) for _ in range(2)]
        >>> for outcome, team in enumerate(twins):
        ...     team.tell(team.ask(), float(outcome))
        >>> twins[0].ask().point == twins[1].ask().point  # no outcome is looked at
        True
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose with one named random stream per agent and round; the acquisition is not looked at."""
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            rng = stream(situation.seed, "random baseline", agent=agent, round=situation.round)
            points[agent] = situation.candidates[agent][rng.integers(len(situation.candidates[agent]))]
        return Decision(points, SolveReport(status="not_needed"))

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """A point of the unit cube, by one named random stream per agent; the acquisition is not looked at."""
        graph, point = situation.graph, np.empty(situation.domain.n_dims)
        for agent in dict.fromkeys(graph.variable_owners):
            own = np.array([owner == agent for owner in graph.variable_owners])
            rng = stream(situation.seed, "random baseline", agent=agent, evaluations=n_asked(situation))
            point[own] = rng.random(int(own.sum()))
        return point, SolveReport(status="not_needed")
