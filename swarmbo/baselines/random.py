"""Anywhere."""

import numpy as np

from swarmbo.acquisition import DBGPUCB, Decision, Situation
from swarmbo.records import SolveReport
from swarmbo.rng import stream
from swarmbo.settings import Settings


class Random(Settings, frozen=True, tag_field="kind", tag="random"):
    """Each agent picks one of the places it can reach, uniformly."""

    def decide(self, situation: Situation, acquisition: DBGPUCB) -> Decision:
        """Choose with one named random stream per agent and round; the acquisition is not looked at."""
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            rng = stream(situation.seed, "random baseline", agent=agent, round=situation.round)
            points[agent] = situation.candidates[agent][rng.integers(len(situation.candidates[agent]))]
        return Decision(points, SolveReport(status="not_needed"))
