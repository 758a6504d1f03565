"""Batches that agents on a chain agree on by messages: one local function per agent, over shortlists of places."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.acquisition import Acquisition
from swarmbo.acquisition.by_view import Chooser, are_rows, at_once, each, fast_belief, greedy_picks
from swarmbo.acquisition.chain import Candidates, Spots, assign, chains, divide, matched, relevant_places, shares_factor
from swarmbo.acquisition.local_problem import LocalProblem, Safeguard, TablesOnDemand
from swarmbo.acquisition.local_utility import LocalUtility
from swarmbo.acquisition.situation import Situation
from swarmbo.acquisition.utility import Options, Utility, shortlist
from swarmbo.belief import PlaceBelief, has_view, view_of
from swarmbo.boundary.values import unused_prefix
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.registry import checked_result
from swarmbo.settings import require, within
from swarmbo.spaces import Domain
from swarmbo.steps import Steps

# beyond this team size, all tables share a limit of entries, unless agents would get too few candidates ...
_LARGE_TEAM = 48
_FULL_TABLES = 8  # ... in units of full tables


class ChainAcquisition(Acquisition, frozen=True):
    """Base of acquisitions for fields, split over a chain of agents by a Markov approximation (Daxberger & Low 2017).

    Agent n of the chain chooses location x_n of the batch. Its local function w_n is the utility of x_n, given the
    locations of the next B agents of the chain. Subclasses define w_n by ``utility``. With a ``LocalUtility``, w_n =
    merit(mean(x_n)) + bonus sqrt(log Psi_n|nB). Psi_n|nB is the variance of the scaled residual at x_n given these B
    locations.

    An agent whose measurement has a price may abstain. If it measures, its utility is w_n minus the price. If it
    abstains, it has the utility of abstaining, and other agents get no information from it.

    Args:
        markov_order: B, the number of next agents on the chain that a local acquisition considers, >= 0. With 0, agents
            only avoid each other's locations.
        noise_ratio_floor: Least ratio of noise variance to prior variance in the information gain, 0 to 100. With a
            precise sensor, log(1 + variance/noise) is almost equal at well known and at unknown locations; the floor
            makes it differ. 0 is the paper's rule. Acquisitions without an information term ignore it.
        candidates: Length of an agent's shortlist, 1 to 4096.
        table_entries: Most entries of one local acquisition's table, 2^10 to 2^28. A shortlist is cut to the (B + 1)-th
            root of this number: 2^18 keeps 64 candidates at B = 2 and 22 at B = 3. At least 2B + 1 candidates must
            remain, so that an agent can avoid all agents with which it shares a factor. B = 4 fits 2^18 entries, and B
            = 6 fits 2^26. If there are more than 48 agents, all their tables together have at most 8 times this number,
            unless 2B + 1 candidates need more. At B = 2, each of 64 agents has 32 candidates, and each of 256 has 20.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> class BestMean(sb.ChainAcquisition, frozen=True):  # goes where most is expected, and learns by the way
        ...     def utility(self, situation, n_agents=None):
        ...         belief = situation.belief
        ...         return sb.LocalUtility(sqrt_beta=0.0, bonus=0.0, noise_variance=belief.noise_variance)
        >>> line = np.linspace(0.0, 1.0, 21)[:, None]
        >>> team = sb.Team.for_field(["a"], low=[0.0], high=[1.0], acquisition=BestMean())
        >>> team.attach(line, -((line[:, 0] - 0.2) ** 2))
        >>> team.ask({"a": line}).points["a"].round(2).tolist()
        [0.2]
    """

    for_fields: ClassVar[tuple[str, ...]] = ("markov_order", "noise_ratio_floor", "candidates", "table_entries")

    markov_order: int = 2
    noise_ratio_floor: Annotated[float, within(0, 100)] = 1.0
    candidates: Annotated[int, within(1, 4096)] = 64
    table_entries: Annotated[int, within(2**10, 2**28)] = 2**18

    def __post_init__(self) -> None:
        super().__post_init__()
        wanted = f"an integer B >= 0 with (2B + 1)^(B + 1) <= table_entries ({self.table_entries})"
        # for order 8 or more no table is large enough, and the power of a huge order would take very long
        require(self, "markov_order", lambda v: 0 <= v < 8 and (2 * v + 1) ** (v + 1) <= self.table_entries, wanted)

    def utility(self, situation: Situation, n_agents: int | None = None) -> Utility:
        """Utility of locations in a round in which ``n_agents`` measure; by default all agents that can move."""
        raise NotImplementedError(f"{type(self).__name__} lacks a utility of locations (implement utility)")

    def valued_by(self, situation: Situation) -> PlaceBelief:
        """Belief by which locations are valued: the agents' belief, unless a subclass replaces it.

        If agents have separate beliefs, only those known locally are used (``swarmbo.belief.has_view``).
        """
        return situation.belief

    def alone(self, situation: Situation) -> Chooser:
        """Choice of an agent's location with the largest utility, without regard to other agents."""
        if type(self).utility is ChainAcquisition.utility:  # a subclass with its own local problem
            return super().alone(situation)
        choose, valued = self._best(situation), self.valued_by(situation)
        if valued is situation.belief:
            return choose  # by the passed belief, in which the choices of others are pending
        return lambda agent, belief, places: choose(agent, view_of(valued, agent), places)

    def _best(self, situation: Situation) -> Chooser:
        utility_for = _utilities(self, situation)
        return lambda agent, belief, places: utility_for(agent).best_of(belief, places, situation.price(agent))

    def local_problem(self, situation: Situation) -> LocalProblem | None:
        """Local acquisitions of one round; None if no agent can move.

        Two agents never choose the same location. Within a factor, equal locations have the value -inf. Agents that
        share no factor have disjoint shortlists. An agent left without a location does not take part; the others can
        always choose without a conflict.

        The problem starts from sequential greedy choices. Each is on the shortlist of the agent that chose it, and not
        on shortlists of agents that share no factor with that agent. An agent assumes that agents with which it shares
        no factor measure at their greedy choices. So the best joint choice has at least the value of the greedy choices
        by these tables, and agents do not crowd agents outside their factors.
        """
        return at_once(self._problem_steps(situation))

    @property
    def splits(self) -> bool:
        """True if agents with separate beliefs can compute their own shares; False if a subclass has its own."""
        return type(self).local_problem is ChainAcquisition.local_problem

    def problem_steps(self, situation: Situation) -> Steps[LocalProblem | None]:
        """Steps of ``local_problem``: agents with separate beliefs send their sequential choices and shortlists."""
        return self._problem_steps(situation) if self.splits else super().problem_steps(situation)

    def _problem_steps(self, situation: Situation) -> Steps[LocalProblem | None]:
        order, fast = self.markov_order, fast_belief(situation, self.valued_by(situation))
        picks, left_out = yield from greedy_picks(situation, self._best(situation), fast)
        claims = picks
        if left_out:  # distinct places for as many agents as possible, and of these for as many without a price
            wanted = {a: situation.candidates[a] for a in situation.movers if a in picks or a in left_out}
            claims = matched(wanted, wanted.keys() - situation.prices.keys() if situation.prices else ())
        bound = {*situation.movers} - situation.prices.keys()
        is_better = (len(claims.keys() & bound), len(claims)) > (len(picks.keys() & bound), len(picks))
        in_turn = None if is_better else picks
        groups, places = self._territories(situation, in_turn or {})
        if is_better and not places.keys() >= claims.keys():  # other territories have a place for more agents
            groups, places = self._territories(situation, claims)
        if not groups:
            return None
        known = [agent for agent in places if has_view(situation.belief, agent)]
        utility_for = _utilities(self, situation, len(places))
        utilities = {agent: utility_for(agent) for agent in known}
        views = {agent: view_of(fast, agent) for agent in known}  # each by its own belief
        beliefs = _given_other_picks(views, groups, order, picks, places, situation.domain)
        prices = {agent: situation.price(agent) or 0.0 for agent in situation.prices}
        size = self._shortlist_size(min(order + 1, max(map(len, groups))), len(places))

        def listed_rows(agent: str, _: object) -> list[int]:
            rows, pick = shortlist(beliefs[agent], places[agent], size, utilities[agent]), (in_turn or {}).get(agent)
            at = [] if pick is None else np.flatnonzero((places[agent] == pick).all(axis=1))[:1]
            if len(at) and not (rows == at).any():  # the sequential choice replaces the last place
                rows = np.concatenate([rows[:-1], at])
            return rows.tolist()

        def fits(agent: str, rows: Any) -> bool:
            return are_rows(rows, len(places[agent])) and len(rows) <= size

        rows = yield from each(situation, "shortlists", tuple(places), listed_rows, fits)
        shortlists = {agent: own[rows[agent]] for agent, own in places.items()}
        for agent in shortlists.keys() & prices.keys():  # a last row of NaN is to abstain
            shortlists[agent] = np.vstack([shortlists[agent], np.full(situation.domain.n_dims, np.nan)])
        w = unused_prefix("w_", places)
        scopes = {f"{w}{agent}": list(group[n : n + order + 1]) for group in groups for n, agent in enumerate(group)}
        graph = FactorGraph.from_scopes(scopes)  # each factor is its first agent's

        def table(factor: str) -> np.ndarray:
            scope = scopes[factor]
            agent, options = scope[0], [shortlists[other] for other in scope]
            found = local_acquisition(beliefs[agent], options, utilities[agent], prices.get(agent, 0.0))
            # an agent that measures at any price does not abstain
            return np.concatenate([found[:-1], found[-1:] - np.inf]) if agent in situation.unscaled else found

        in_order = {agent: views[agent] for agent in situation.movers if agent in views}
        safeguard = Safeguard(tuple(groups), order, in_order, utilities, prices, in_turn)
        return LocalProblem(graph, TablesOnDemand(graph.factors, table), shortlists, safeguard)

    def _shortlist_size(self, arity: int, n_agents: int) -> int:
        """Largest length of shortlists for which tables over ``arity`` of them have at most ``table_entries``."""
        entries, least = self.table_entries, 2 * self.markov_order + 1
        if n_agents > _LARGE_TEAM:
            entries = max(_FULL_TABLES * entries // n_agents, min(entries, least**arity))
        return min(max(self.candidates, least), int(round(entries ** (1 / arity), 9)))

    def _territories(
        self, situation: Situation, claims: Spots
    ) -> tuple[list[tuple[str, ...]], dict[str, Float[np.ndarray, "_ d"]]]:
        """Chains of agents, and the locations, at least one, that each of these agents may choose."""
        agents = situation.movers
        while True:
            links = situation.links
            if links is not None and not {*links} <= {*agents}:
                links = links.subgraph(agents)
            groups = chains(agents, situation.positions, links)
            known = situation.numbered if agents == situation.movers else None
            places = divide(groups, self.markov_order, situation.candidates, situation.positions, claims, known)
            assigned, idle = assign(agents, places, enough=2 * self.markov_order + 1, claims=claims)
            if not idle:
                return groups, places
            agents = tuple(assigned)  # the chain without idle agents differs


def require_level(world: float | None, own: float | None) -> float:
    """Level of an acquisition: its own, or else the world's; a ConfigError if neither states one."""
    if (level := world if own is None else own) is None:
        wanted = "a level, here or by an environment with the task 'level'"
        raise ConfigError(f"got none, and the environment states none; wanted {wanted}", at="$.acquisition.level")
    return level


def _utilities(
    acquisition: ChainAcquisition, situation: Situation, n_agents: int | None = None
) -> Callable[[str], Utility]:
    made: dict[int, Utility] = {}

    def utility_for(agent: str) -> Utility:
        key = id(view_of(situation.belief, agent))
        if key not in made:
            utility = acquisition.utility(situation.seen_by(agent), n_agents)  # which may be a user's own
            made[key] = checked_result(Utility, utility, acquisition, "utility")
        return made[key]

    return utility_for


def _given_other_picks(
    beliefs: Mapping[str, PlaceBelief],
    groups: Sequence[Sequence[str]],
    order: int,
    picks: Spots,
    places: Candidates,
    domain: Domain,
) -> dict[str, PlaceBelief]:
    """Belief of each agent, given the sequential choices of the agents with which it shares no factor."""
    # Only choices near an agent's places are used, as in sequential greedy.
    agents = [agent for group in groups for agent in group]
    numbers = [number for number, agent in enumerate(agents) if agent in picks]
    chosen = np.array([picks[agents[number]] for number in numbers])
    unseen, conditioned = ~shares_factor(groups, order)[:, numbers], dict(beliefs)
    for agent, is_unseen in zip(agents, unseen, strict=True):
        if is_unseen.any() and agent in beliefs:
            others = relevant_places(beliefs[agent], places[agent], chosen[is_unseen], domain)
            conditioned[agent] = beliefs[agent].condition_on_pending(others)
    return conditioned


def local_acquisition(belief: PlaceBelief, options: Options, utility: Utility, price: float = 0.0) -> np.ndarray:
    """Table of w_n over options of agent n and its successors: utility of its location given theirs, minus the price. A
    last row of NaN in ``options`` is to abstain; if agent n abstains, entries are the utility of abstaining. Entries
    are -inf if two agents would be at one location. Source: Daxberger & Low 2017, eqs. (3) and (5).
    """
    table = utility.table_of(belief, options, price)
    is_new = type(utility) is LocalUtility  # creates a new table each time; others may keep theirs
    for i, j in itertools.combinations(range(len(options)), 2):
        rows, columns = (options[i][:, None] == options[j]).all(axis=2).nonzero()
        if len(rows):
            table, is_new = table if is_new else table.copy(), True
            same = {i: rows, j: columns}
            table[tuple(same.get(axis, slice(None)) for axis in range(table.ndim))] = -np.inf
    return table
