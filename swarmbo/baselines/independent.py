"""Every agent for itself."""

import numpy as np

from swarmbo.acquisition import DBGPUCB, Decision, Situation
from swarmbo.belief import view_of
from swarmbo.records import SolveReport
from swarmbo.settings import Settings


class Independent(Settings, frozen=True, tag_field="kind", tag="independent"):
    """Each agent maximises GP-UCB (Srinivas et al. 2010) over all that it can reach, as if it were alone.

    The belief is shared all the same; nothing is negotiated, so two agents may choose neighbouring places, or one.
    """

    def decide(self, situation: Situation, acquisition: DBGPUCB) -> Decision:
        """Choose by mean + sqrt(beta) std, with the acquisition's schedule of beta."""
        sqrt_beta = acquisition.sqrt_beta(situation)
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            mean, var = view_of(situation.belief, agent).posterior(situation.candidates[agent])
            points[agent] = situation.candidates[agent][int((mean + sqrt_beta * np.sqrt(var)).argmax())]
        return Decision(points, SolveReport(status="not_needed"))
