"""What is known when a team with a factor graph decides where to evaluate next, and what it makes of it."""

from dataclasses import dataclass
from typing import Literal

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.graph import FactorGraph
from swarmbo.spaces import Domain

OutcomeMode = Literal["total", "per-factor"]


@dataclass(frozen=True, eq=False)
class History:
    """Everything that was evaluated so far, in the order in which outcomes were told.

    Args:
        X: Joint points (t, n), physical, columns in the order of the graph's variables.
        totals: Outcome of the sum of all factors (t,); NaN where it is not known or failed.
        factors: Outcome of each factor (t, n_factors); NaN where it is not known or failed.
        moments: The round (t,) in which each was asked for; needed if the belief has a time axis.
    """

    X: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    factors: Float[np.ndarray, "t k"]
    moments: Float[np.ndarray, " t"] | None = None

    def __len__(self) -> int:
        return len(self.totals)


@dataclass(frozen=True, eq=False)
class JointSituation:
    """Everything that a method may look at when a team with a factor graph chooses its next joint point.

    Args:
        graph: Scopes and owners.
        domain: The box of joint points, in the order of ``graph.variables``.
        history: What was evaluated.
        pending: Joint points (p, n), physical, that are out for evaluation.
        outcomes: Whether outcomes are told of the sum, or of every factor.
        links: Who hears whom; None means that everyone hears everyone.
        round: 1 for the first decision.
        horizon: Number of rounds planned; None if unknown.
        seed: The team's seed, for named random streams.
        initial: How many of the first evaluations belong to the initial design, which no method chose.
        structure: Whether the graph tells the factors; if not, it has one over all variables, and a method may look for
            others. ``learned``: somebody else looked for them.
        pending_moments: The round (p,) in which each point that is out was asked for; None as in ``History``.
    """

    graph: FactorGraph
    domain: Domain
    history: History
    pending: Float[np.ndarray, "p n"]
    outcomes: OutcomeMode
    links: "nx.Graph[str] | None"
    round: int
    horizon: int | None
    seed: int
    initial: int = 10
    structure: Literal["known", "unknown", "learned"] = "known"
    pending_moments: Float[np.ndarray, " p"] | None = None
