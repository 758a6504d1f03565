"""Every agent for itself."""

import numpy as np

from swarmbo.acquisition import ChainAcquisition, Decision, Situation
from swarmbo.records import SolveReport
from swarmbo.settings import Settings


class Independent(Settings, frozen=True, tag_field="kind", tag="independent"):
    """Each agent maximises GP-UCB (Srinivas et al. 2010) over all that it can reach, as if it were alone.

    The belief is shared all the same; nothing is negotiated, so two agents may choose neighbouring places, or one.
    """

    def decide(self, situation: Situation, acquisition: ChainAcquisition) -> Decision:
        """Choose by mean + sqrt(beta) std, or what else the acquisition says a place is worth."""
        worth = acquisition.worth(situation)
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            mean, var = situation.belief.posterior(situation.candidates[agent])
            chosen = worth.best(mean, var, situation.prices.get(agent))
            if chosen is not None:
                points[agent] = situation.candidates[agent][chosen]
        return Decision(points, SolveReport(status="not_needed"))
