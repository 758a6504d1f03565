"""What is known when a round is decided, and what was decided."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.schedules import Progress
from swarmbo.acquisition.travel import Travel
from swarmbo.belief import PlaceBelief, view_of
from swarmbo.belief.model.success import Requirement
from swarmbo.records import SolveReport
from swarmbo.spaces import Domain

_ABOUT = 0.5  # logits of success that make no difference where all places are too likely to fail


@dataclass(frozen=True)
class Situation:
    """Everything that a method may look at when it chooses the next measurements.

    Args:
        agents: Who measures in this round, in the team's order.
        candidates: For each agent the places (k, d) it can measure in this round, in physical units; k may be 0.
        positions: Where each agent is (d,); agents whose position is unknown are missing.
        starts: Where each agent of the team made its first measurement (d,), whether it takes part or not.
        belief: What the team thinks of the field; ``Views`` where each agent thinks its own.
        links: Who hears whom; None means that everyone hears everyone.
        domain: The box that all locations lie in.
        round: 1 for the first decision.
        horizon: Number of rounds planned; None if unknown.
        seed: The team's seed, for named random streams.
        prices: What a measurement costs agents that may decline it, in the unit of the field; others measure in any
            case.
        level: The level that the world is watched for; None where there is none.
        measured: Where measurements were made, or are pending, (m, d), as far as whoever looks at the situation knows.
        measured_by: The same for agents with beliefs of their own.
        sites: Every place (k, d) that may be measured at all; None: anything in the box.
        travel: How many rounds ways take, for those who plan routes; None where the world does not say.
        required: How likely measurements must be to succeed, by what each agent knows of failures; agents that know of
            none are missing.
    """

    agents: tuple[str, ...]
    candidates: Mapping[str, Float[np.ndarray, "_ d"]]
    positions: Mapping[str, Float[np.ndarray, " d"]]
    starts: Mapping[str, Float[np.ndarray, " d"]]
    belief: PlaceBelief
    links: "nx.Graph[str] | None"
    domain: Domain
    round: int
    horizon: int | None
    seed: int
    prices: Mapping[str, float] = field(default_factory=lambda: dict[str, float]())
    level: float | None = None
    measured: Float[np.ndarray, "m d"] | None = None
    measured_by: Mapping[str, Float[np.ndarray, "m d"]] = field(default_factory=lambda: dict[str, np.ndarray]())
    sites: Float[np.ndarray, "k d"] | None = None
    travel: Travel | None = None
    required: Mapping[str, Requirement] = field(default_factory=lambda: dict[str, Requirement]())

    def likely(self) -> "Situation":
        """The same without the places where a measurement will probably fail; this one where nobody knows of failures.

        An agent that can only reach such places keeps those that are about as likely to succeed as any of them.
        """
        if not self.required:
            return self
        rows = {agent: self.likely_rows(agent) for agent in self.required}
        return self.keeping({agent: kept for agent, kept in rows.items() if kept is not None})

    def likely_rows(self, agent: str) -> list[int] | None:
        """Which of its places an agent keeps, by what it knows of failures; None: all of them."""
        places = self.candidates[agent]
        if agent not in self.required or not len(places):
            return None
        margin = self.required[agent].margin(self.domain.to_unit(places))
        kept = margin >= min(0.0, float(margin.max()) - _ABOUT)
        return None if kept.all() else np.flatnonzero(kept).tolist()

    def keeping(self, rows: Mapping[str, list[int]]) -> "Situation":
        """The same with some of the places of some agents."""
        kept = {agent: self.candidates[agent][some] for agent, some in rows.items()}
        return replace(self, candidates={**self.candidates, **kept})

    @property
    def movers(self) -> tuple[str, ...]:
        """The agents that have somewhere to go."""
        return tuple(agent for agent in self.agents if len(self.candidates[agent]))

    def seen_by(self, agent: str) -> "Situation":
        """The same with what an agent believes itself; this one where all share a belief."""
        own = view_of(self.belief, agent)
        return self if own is self.belief else replace(self, belief=own, measured=self.measured_by.get(agent))

    def best_mean(self) -> float:
        """The largest posterior mean over everything that anybody can measure in this round."""
        return max(float(self.belief.posterior_mean(self.candidates[agent]).max()) for agent in self.movers)

    def best_measured(self) -> float:
        """The largest posterior mean over measured and pending places; before there are any, over what is in reach."""
        if self.measured is None or not len(self.measured):
            return self.best_mean()
        return float(self.belief.posterior_mean(np.unique(self.measured, axis=0)).max())

    @property
    def progress(self) -> Progress:
        """When the decision is made and over how many places."""
        n_sites = sum(len(self.candidates[agent]) for agent in self.agents)
        return Progress(self.round, self.horizon, self.belief.n_data, self.domain.n_dims, n_sites)


@dataclass(frozen=True)
class Decision:
    """Where each agent shall measure, and how that was agreed.

    Args:
        points: For each agent that has somewhere to go, the place (d,).
        report: How the agreement went.

    Example:
        >>> import swarmbo as sb
        >>> class First:  # a planner: everybody takes the first place of its list
        ...     def decide(self, situation, acquisition):
        ...         points = {agent: situation.candidates[agent][0] for agent in situation.movers}
        ...         return sb.Decision(points, sb.SolveReport("not_needed"))
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], coordination=First())
        >>> {agent: float(x[0]) for agent, x in team.ask({"a": [[0.3], [0.1]], "b": [[0.5]]}).points.items()}
        {'a': 0.3, 'b': 0.5}
    """

    points: dict[str, Float[np.ndarray, " d"]]
    report: SolveReport
