"""Distributed batch GP-UCB: what a joint batch is worth, as one local function per robot (Daxberger & Low 2017)."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.chain import chains
from swarmbo.acquisition.markov import conditional_variances
from swarmbo.acquisition.schedules import Exploration, alpha, beta
from swarmbo.acquisition.shortlist import shortlist
from swarmbo.acquisition.situation import Situation
from swarmbo.acquisition.territory import divide, seat
from swarmbo.belief import PlaceBelief, view_of
from swarmbo.graph import FactorGraph
from swarmbo.settings import Settings, require


@dataclass(frozen=True)
class LocalProblem:
    """What the agents have to agree on.

    Args:
        graph: One variable per agent, named after it (the place it measures), and one factor, its local acquisition
            ``w_<agent>``; it owns both. Groups of agents that no links connect are parts of their own.
        tables: The factors over the shortlists, one axis per variable of the scope.
        shortlists: For each variable the places (s, d) that its values stand for.
    """

    graph: FactorGraph
    tables: dict[str, np.ndarray]
    shortlists: dict[str, Float[np.ndarray, "s d"]]


class DBGPUCB(Settings, frozen=True, tag_field="kind", tag="db-gp-ucb"):
    """Distributed batch GP-UCB (Daxberger & Low 2017, eq. (5)).

    Robot n owns block n of the batch and the local acquisition
    w_n = mean(x_n) + s_f sqrt(0.5 alpha log Psi_n|nB), with Psi_n|nB the conditional variance of its scaled residual
    given those of the next B robots of the chain, and s_f^2 the belief's prior variance (the paper takes it as 1).
    Note the sum of roots where the batch rule, eq. (2), has the root of the sum.

    Motion limits and shortlists void the paper's regret bound; the theory schedule is there for study.

    Args:
        markov_order: B, how many robots further along the chain a local acquisition sees, >= 0. With 0 robots only
            keep out of each other's places.
        exploration: Schedule of alpha_t and beta_t (see ``swarmbo.acquisition.schedules``).
        exploration_scale: Factor on sqrt(alpha_t) and sqrt(beta_t), > 0.
        noise_ratio_floor: The gain is computed as if the noise variance were at least this share of the prior
            variance, 0 to 100. With a good sensor log(1 + variance/noise) hardly tells a place that is nearly known
            from one that is unknown; the floor keeps the difference. 0 is the paper's rule.
        delta: Failure probability in the theory schedule, in (0, 1).
        candidates: Length of a robot's shortlist, 1 to 4096.
        table_entries: Most entries that one local acquisition's table may have, 2^10 to 2^28. A shortlist is cut to the
            root of it, so 2^18 keeps 64 candidates at B = 2 and 22 at B = 3. It must leave at least 2B + 1, which is
            what a robot needs to get out of the way of all that it shares a factor with: B = 4 fits 2^18, B = 6 2^26.
    """

    markov_order: int = 2
    exploration: Exploration = "annealed"
    exploration_scale: float = 1.0
    noise_ratio_floor: float = 1.0
    delta: float = 0.1
    candidates: int = 64
    table_entries: int = 2**18

    def __post_init__(self) -> None:
        require(self, "exploration_scale", lambda v: v > 0, "a number > 0")
        require(self, "noise_ratio_floor", lambda v: 0 <= v <= 100, "a number from 0 to 100")
        require(self, "delta", lambda v: 0 < v < 1, "a number between 0 and 1")
        require(self, "candidates", lambda v: 1 <= v <= 4096, "an integer from 1 to 4096")
        require(self, "table_entries", lambda v: 2**10 <= v <= 2**28, "an integer from 2^10 to 2^28")
        require(
            self,
            "markov_order",
            # from order 8 on no table is large enough, and the power of a huge one would take for ever
            lambda v: 0 <= v < 8 and (2 * v + 1) ** (v + 1) <= self.table_entries,
            f"an integer B >= 0 with (2B + 1)^(B + 1) <= table_entries ({self.table_entries})",
        )

    def sqrt_beta(self, situation: Situation) -> float:
        """Weight of the standard deviation where single places are ranked by mean + weight x std."""
        return self.exploration_scale * math.sqrt(beta(self.exploration, situation.moment, self.delta))

    def local_problem(self, situation: Situation) -> LocalProblem | None:
        """The local acquisitions of one round; None if nobody has anywhere to go.

        Two robots never end at one place: within a factor equal places get -inf; robots that share no factor get
        disjoint shortlists. A robot for which that leaves no place sits the round out; for the others there is always a
        joint choice without a clash.
        """
        order = self.markov_order
        beliefs = {agent: view_of(situation.belief, agent) for agent in situation.movers}
        groups, places = self._territories(situation)
        if not groups:
            return None
        sqrt_beta = self.sqrt_beta(situation)
        arity = min(order + 1, max(map(len, groups)))
        size = min(max(self.candidates, 2 * order + 1), int(round(self.table_entries ** (1 / arity), 9)))
        shortlists = {agent: own[shortlist(beliefs[agent], own, size, sqrt_beta)] for agent, own in places.items()}
        scopes = {f"w_{agent}": list(group[n : n + order + 1]) for group in groups for n, agent in enumerate(group)}
        owners = {f"w_{agent}": agent for agent in places}
        graph = FactorGraph.from_scopes(scopes, owners=owners, variable_owners={agent: agent for agent in places})
        tables: dict[str, np.ndarray] = {}
        for factor, scope in scopes.items():  # the owner, first in its scope, decides by what it believes itself
            belief = beliefs[scope[0]]
            bonus, noise_variance = self._bonus(belief, situation, len(places))
            tables[factor] = local_acquisition(belief, [shortlists[agent] for agent in scope], bonus, noise_variance)
        return LocalProblem(graph, tables, shortlists)

    def _bonus(self, belief: PlaceBelief, situation: Situation, n_robots: int) -> tuple[float, float]:
        """Weight s_f sqrt(0.5 alpha) of the root of the gain, and the noise variance that the gain is computed with."""
        noise_variance = max(belief.noise_variance, self.noise_ratio_floor * belief.prior_variance)
        noise_ratio = noise_variance / belief.prior_variance
        weight = alpha(self.exploration, situation.moment, n_robots, noise_ratio, self.delta)
        return self.exploration_scale * math.sqrt(0.5 * weight * belief.prior_variance), noise_variance

    def _territories(self, situation: Situation) -> tuple[list[tuple[str, ...]], dict[str, Float[np.ndarray, "_ d"]]]:
        """The chains, and for each robot in them the places it may bargain for, at least one."""
        agents = situation.movers
        while True:
            links = None if situation.links is None else situation.links.subgraph(agents)
            groups = chains(agents, situation.positions, links)
            places = divide(groups, self.markov_order, situation.candidates, situation.positions)
            seated, idle = seat(agents, places, enough=2 * self.markov_order + 1)
            if not idle:
                return groups, places
            agents = tuple(seated)  # a chain without the idle ones is another chain


def local_acquisition(
    belief: PlaceBelief, places: Sequence[Float[np.ndarray, "_ d"]], bonus: float, noise_variance: float
) -> np.ndarray:
    """Table of w_n = mean(x_n) + bonus sqrt(log Psi_n|nB) over the candidates of robot n and of its B successors.

    Args:
        belief: The team's, or robot n's own.
        places: Candidates of robot n, then of each successor, in physical units.
        bonus: s_f sqrt(0.5 alpha), in the unit of the outcome.
        noise_variance: s^2 of Psi = I + Sigma / s^2, in the square of that unit.

    Returns:
        One axis per robot; -inf where two of them would be at one place.

    Source:
        Daxberger & Low 2017, eqs. (3) and (5).
    """
    cache = belief.posterior_cache(np.concatenate(places))
    ends = np.cumsum([0, *map(len, places)])
    rows = [np.arange(start, stop) for start, stop in itertools.pairwise(ends)]
    variances = [1.0 + cache.var[own] / noise_variance for own in rows]
    covariances = [
        [cache.cov(rows[i], rows[j]) / noise_variance if j > i else np.empty((0, 0)) for j in range(len(rows))]
        for i in range(len(rows))
    ]
    # Psi >= I, so a conditional variance below 1 is rounding
    gain = np.log(np.maximum(conditional_variances(covariances, variances), 1.0))
    on_first = (-1,) + (1,) * (len(places) - 1)
    table = cache.mean[rows[0]].reshape(on_first) + bonus * np.sqrt(gain)
    for i in range(len(places)):
        for j in range(i + 1, len(places)):
            clash = (places[i][:, None, :] == places[j][None, :, :]).all(axis=-1)
            shape = [1] * len(places)
            shape[i], shape[j] = clash.shape
            table = np.where(clash.reshape(shape), -np.inf, table) if clash.any() else table
    return table
