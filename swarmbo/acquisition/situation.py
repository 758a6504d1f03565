"""What is known when a round is decided, and what was decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.schedules import Moment
from swarmbo.belief import ExactGP
from swarmbo.records import SolveReport
from swarmbo.spaces import Domain


@dataclass(frozen=True)
class Situation:
    """Everything that a method may look at when it chooses the next measurements.

    Args:
        agents: Who measures in this round, in the team's order.
        candidates: For each agent the places (k, d) it can measure in this round, in physical units; k may be 0.
        positions: Where each agent is (d,); agents whose position is unknown are missing.
        starts: Where each agent of the team made its first measurement (d,), whether it takes part or not.
        belief: What the team thinks of the field.
        links: Who hears whom; None means that everyone hears everyone.
        domain: The box that all locations lie in.
        round: 1 for the first decision.
        horizon: Number of rounds planned; None if unknown.
        seed: The team's seed, for named random streams.
        prices: What a measurement costs agents that may decline it, in the unit of the field; others measure in any
            case.
        level: The level that the world is watched for; None where there is none.
    """

    agents: tuple[str, ...]
    candidates: Mapping[str, Float[np.ndarray, "_ d"]]
    positions: Mapping[str, Float[np.ndarray, " d"]]
    starts: Mapping[str, Float[np.ndarray, " d"]]
    belief: ExactGP
    links: "nx.Graph[str] | None"
    domain: Domain
    round: int
    horizon: int | None
    seed: int
    prices: Mapping[str, float] = field(default_factory=lambda: dict[str, float]())
    level: float | None = None

    @property
    def movers(self) -> tuple[str, ...]:
        """The agents that have somewhere to go."""
        return tuple(agent for agent in self.agents if len(self.candidates[agent]))

    def best_mean(self) -> float:
        """The largest posterior mean over everything that anybody can measure in this round."""
        return max(float(self.belief.posterior_mean(self.candidates[agent]).max()) for agent in self.movers)

    @property
    def moment(self) -> Moment:
        """When the decision is made and over how many places."""
        n_sites = sum(len(self.candidates[agent]) for agent in self.agents)
        return Moment(self.round, self.horizon, self.belief.n_data, self.domain.n_dims, n_sites)


@dataclass(frozen=True)
class Decision:
    """Where each agent shall measure, and how that was agreed.

    Args:
        points: For each agent that has somewhere to go, the place (d,).
        report: How the agreement went.
    """

    points: dict[str, Float[np.ndarray, " d"]]
    report: SolveReport
