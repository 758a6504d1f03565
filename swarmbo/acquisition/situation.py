"""Knowledge at the time of a decision, and the decision."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int

from swarmbo.acquisition.chain import Numbered, numbered
from swarmbo.acquisition.schedules import Progress
from swarmbo.belief import PlaceBelief, view_of
from swarmbo.belief.model.success import Requirement
from swarmbo.records import SolveReport
from swarmbo.spaces import Domain

NEVER = np.iinfo(np.int64).max // 4  # rounds to an unreachable place; sums of a few do not overflow
Places = Float[np.ndarray, "m d"]


def is_never(rounds: Int[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
    """Mask of unreachable places, for any large number that marks them."""
    return rounds >= 2**31 - 1


class Travel(Protocol):
    """Travel times of a world, in rounds."""

    def rounds(self, agent: str, origins: Float[np.ndarray, "n d"], places: Places) -> Int[np.ndarray, "n m"]:
        """Least rounds of an agent from each origin to each place, 0 if there; ``NEVER`` or more without a path."""
        ...

    def rounds_left(self, agent: str) -> int:
        """Rounds for which an agent can still move, ``NEVER`` if unlimited."""
        ...

    def base(self, agent: str) -> Float[np.ndarray, " d"] | None:
        """Location where an agent must be when no rounds are left; None: anywhere."""
        ...


# difference in logits of success that has no effect if all places are too likely to fail
_ABOUT = 0.5


@dataclass(frozen=True)
class Situation:
    """Everything that a method may use to choose the next measurements.

    Args:
        agents: Agents that measure in this round, in the team's order.
        candidates: Places (k, d) that each agent can measure in this round, in physical units; k may be 0.
        positions: Position of each agent (d,); agents of unknown position are missing.
        starts: First measured location of each agent of the team (d,).
        belief: Belief of the team; ``Views`` if each agent has a separate one.
        links: Communication graph; None if all agents are connected.
        domain: The box of all locations.
        round: 1 for the first decision.
        horizon: Number of planned rounds; None if unknown.
        seed: Seed of named random streams: the team's, and in each later episode another drawn from it.
        prices: Price of a measurement for agents that may abstain, in the unit of the field; others always measure.
        level: Threshold that the environment watches; None if it has none.
        measured: Measured and pending locations (m, d) known to the reader of the situation.
        measured_by: The same per agent with separate beliefs.
        sites: All measurable places (k, d); None: anything in the box.
        travel: Travel times for route planning; None if the world gives none.
        required: Requirements on success, by each agent's knowledge of failures; agents without failures are missing.
        unscaled: Agents that measure at any price, because their belief has no scale yet; remote agents may be missing.
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
    measured: Places | None = None
    measured_by: Mapping[str, Places] = field(default_factory=lambda: dict[str, np.ndarray]())
    sites: Float[np.ndarray, "k d"] | None = None
    travel: Travel | None = None
    required: Mapping[str, Requirement] = field(default_factory=lambda: dict[str, Requirement]())
    unscaled: Collection[str] = ()

    def likely_rows(self, agent: str) -> list[int] | None:
        """Rows of locations where an agent's measurement is likely to succeed, or nearly the likeliest; None: all."""
        places = self.candidates[agent]
        if agent not in self.required or not len(places):
            return None
        margin = self.required[agent].margin(self.domain.to_unit(places))
        kept = margin >= min(0.0, float(margin.max()) - _ABOUT)
        return None if kept.all() else np.flatnonzero(kept).tolist()

    def price(self, agent: str) -> float | None:
        """Price of an agent's measurement; None: it measures at any price."""
        return None if agent in self.unscaled else self.prices.get(agent)

    @cached_property
    def numbered(self) -> Numbered:
        """Numbered candidates of all agents that can move."""
        return numbered(self.candidates, self.movers)

    @property
    def movers(self) -> tuple[str, ...]:
        """Agents that can move."""
        return tuple(agent for agent in self.agents if len(self.candidates[agent]))

    def seen_by(self, agent: str) -> "Situation":
        """Situation with an agent's own belief; unchanged if all share one."""
        own = view_of(self.belief, agent)
        return self if own is self.belief else replace(self, belief=own, measured=self.measured_by.get(agent))

    def best_mean(self) -> float:
        """Largest posterior mean over everything that any agent can measure in this round."""
        return max(float(self.belief.posterior_mean(self.candidates[agent]).max()) for agent in self.movers)

    def best_measured(self) -> float:
        """Largest posterior mean over measured and pending locations; if none, over reachable locations."""
        if self.measured is None or not len(self.measured):
            return self.best_mean()
        return float(self.belief.posterior_mean(np.unique(self.measured, axis=0)).max())

    @property
    def progress(self) -> Progress:
        """Time of the decision and number of places."""
        n_sites = sum(len(self.candidates[agent]) for agent in self.agents)
        return Progress(self.round, self.horizon, self.belief.n_data, self.domain.n_dims, n_sites)


@dataclass(frozen=True)
class Decision:
    """Location of each measuring agent, and the report of the agreement.

    Args:
        points: Location (d,) of each measuring agent.
        report: Report of the agreement.

    Example:
        >>> import swarmbo as sb
        >>> class First:  # a planner: every agent takes the first of its locations
        ...     def decide(self, situation, acquisition):
        ...         points = {agent: situation.candidates[agent][0] for agent in situation.movers}
        ...         return sb.Decision(points, sb.SolveReport("not_needed"))
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0], coordination=First())
        >>> {agent: float(x[0]) for agent, x in team.ask({"a": [[0.3], [0.1]], "b": [[0.5]]}).points.items()}
        {'a': 0.3, 'b': 0.5}
    """

    points: dict[str, Float[np.ndarray, " d"]]
    report: SolveReport
