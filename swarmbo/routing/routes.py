"""Teams that plan routes for the remaining rounds, and drive the first leg."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from swarmbo.acquisition import Acquisition, Decision, Situation, Straddle, TargetedVariance
from swarmbo.acquisition.chain import in_contact
from swarmbo.acquisition.targeted_variance import keys_of, planning_places
from swarmbo.baselines import Greedy
from swarmbo.belief import has_view, view_of
from swarmbo.boundary.values import unused_prefix
from swarmbo.coordination.part import LocalView, Part
from swarmbo.coordination.participant import Transport, run_plan
from swarmbo.coordination.plan import Plan
from swarmbo.coordination.requests import Steps
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.records import SolveReport, Traffic
from swarmbo.registry import FIELD, kind, name_of
from swarmbo.routing.auction import Climber, Order, ascent, auction, is_due
from swarmbo.routing.pilot import Gains, Legs, Pilot
from swarmbo.settings import Count, Probability, Settings, within
from swarmbo.transport import Routes as RadioRoutes

Program = Callable[[LocalView, Mapping[str, Pilot]], Steps[Legs]]

_UNKNOWN = 8  # planned rounds without a horizon
_SHARE = 0.8  # share of the rounds with planned routes, if the acquisition is not targeted-variance
_FEWEST = 10  # fewest rounds for which exploring first is useful


@kind("coordination", FIELD)
class Routes(Settings, frozen=True, tag_field="kind", tag="routes"):
    """Routes of robots by an auction of way-points, which is repeated in every round.

    This is a sequential single-item auction over insertions into routes. An agent's bid for a way-point is the gain of
    a measurement there, per round that the way-point adds to the agent's route. The gain is the utility by
    ``targeted-variance``, given all measurements planned so far. The highest bid wins, until no route has room for
    more. Then each agent goes one leg. If an agent's first way-point is several rounds away, it measures the most
    informative location en route that keeps the schedule. Agents with a battery return to their base before it is
    empty. Agents with a price bid the gain minus the price, or abstain.

    For each way-point, a few numbers go up and down a tree of the radio links. Unconnected agents plan independently.

    Plans use the present belief. So agents choose one step ahead, by sequential greedy, if the belief has a time axis
    and ``horizon`` is not set. They also choose one step ahead in worlds without travel times (``travel_rounds``).

    With ``targeted-variance``, routes are planned in all rounds. Other acquisitions are used in the last rounds. Before
    these, routes explore for the acquisition's task: level (``straddle``), map (``information``) or peak (all others).

    For the peak, exploration ends early enough that the nearest agent can spend 6 rounds at the best reachable
    way-point. Then agents sequentially choose goals: each takes the best way-point that it can reach, and measures the
    best location en route that keeps the schedule. For a level or a map, the acquisition is then used one step ahead.

    Args:
        horizon: Number of rounds planned ahead, >= 1; None: all that are left.
        way_points: Approximate number of locations, spread over the map, that may become way-points, 1 to 4096.
        explore_share: Largest share of the rounds with planned routes, 0 to 1; 1 needs ``targeted-variance``. None: 1
            with ``targeted-variance``, 0.8 with others. With fewer than 10 rounds or an unknown number, shares below 1
            act as 0: the acquisition is used from the beginning, one step ahead.
        order: ``auction``: the highest bid wins. ``sequential``: one agent after another plans its whole route.

    Example:
        >>> import numpy as np
        >>> import swarmbo as sb
        >>> from swarmbo_envs import robot_team_v0
        >>> env = robot_team_v0.parallel_env(robots=4, max_cycles=3)
        >>> team = sb.Team.for_env(env, acquisition="targeted-variance", coordination="routes")
        >>> observations, infos = env.reset(seed=0)
        >>> actions = team.act(observations, infos)
        >>> team.last_report.status, team.last_report.messages > 0
        ('sequential', True)
    """

    horizon: Count | None = None
    way_points: Annotated[int, within(1, 4096)] = 500
    explore_share: Probability | None = None
    order: Order = "auction"

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Plan and go one leg, in this process; report the traffic that separate agents would have."""
        planned = self.planned(situation, acquisition)
        return Greedy().decide(situation, acquisition) if planned is None else planned.central_driver()

    def steps(self, situation: Situation, acquisition: Acquisition) -> Steps[Decision]:
        """Steps of a sequential choice one step ahead, for rounds without planned routes."""
        return Greedy().steps(situation, acquisition)

    def explores(self, situation: Situation, acquisition: Acquisition) -> bool:
        """True if routes are to be planned in this round."""
        targeted = isinstance(acquisition, TargetedVariance)
        share = self.explore_share if self.explore_share is not None else 1.0 if targeted else _SHARE
        if share == 1.0:
            if not targeted:
                got = f"got 1 with acquisition {name_of(acquisition)!r}, which would never be used"
                wanted = "a share below 1, or acquisition 'targeted-variance'"
                raise ConfigError(f"{got}; wanted {wanted}", at="$.coordination.explore_share")
            return True
        horizon = situation.horizon
        return horizon is not None and horizon >= _FEWEST and situation.round <= share * horizon

    def planned(self, situation: Situation, acquisition: Acquisition) -> "Planned | None":
        """Plan and planning agents of this round; None if agents choose one step ahead."""
        agents, climbs = situation.movers, self._climbs(situation, acquisition)
        if not agents or situation.travel is None or not (self.explores(situation, acquisition) or climbs):
            return None
        views = {agent: view_of(situation.belief, agent) for agent in agents if has_view(situation.belief, agent)}
        if self.horizon is None and any(view.at(situation.round + 1.0) is not view for view in views.values()):
            return None
        exploration = _targeted(acquisition, situation.level)
        places = planning_places(situation.domain, situation.sites, self.way_points)
        gains: dict[int, Gains] = {}
        for agent, view in views.items():
            if id(view) not in gains:
                gains[id(view)] = Gains(view, exploration.utility(situation.seen_by(agent)), places)
        pilots = {agent: self._pilot(situation, agent, gains[id(view)]) for agent, view in views.items()}
        routes = RadioRoutes(agents, situation.links)
        parts = tuple(Part(_graph(group), n, routes) for n, group in enumerate(in_contact(agents, situation.links)))
        explore = partial(auction, order=self.order)
        program = self._with_ascent(situation, acquisition, explore) if climbs else explore
        return Planned(Plan(parts, program), pilots)

    def _climbs(self, situation: Situation, acquisition: Acquisition) -> bool:
        """True if agents explore for the peak, so that some rounds are kept to get there."""
        if isinstance(acquisition, TargetedVariance) or _targeted(acquisition, situation.level).task != "peak":
            return False
        return self.explore_share != 0.0 and situation.horizon is not None and situation.horizon >= _FEWEST

    def _with_ascent(self, situation: Situation, acquisition: Acquisition, explore: Program) -> Program:
        """Program that plans routes until it is time to go for the peak."""
        assert situation.horizon is not None
        horizon, explores = max(situation.horizon - situation.round + 1, 1), self.explores(situation, acquisition)
        step = acquisition.alone(situation)

        def steps(view: LocalView, pilots: Mapping[str, Pilot]) -> Steps[Legs]:
            climbers: dict[str, Climber] = {}
            for agent in view.variables:
                anywhere = {agent: pilots[agent].places}
                alone = replace(situation, agents=(agent,), candidates=anywhere, prices={})
                climbers[agent] = Climber(replace(pilots[agent], horizon=horizon), acquisition.alone(alone), step)
            if explores and not (yield from is_due(climbers, horizon)):
                return (yield from explore(view, pilots))
            return (yield from ascent(view, climbers))

        return steps

    def _pilot(self, situation: Situation, agent: str, gains: Gains) -> Pilot:
        left = self.horizon or _UNKNOWN
        if situation.horizon is not None:
            ahead = max(situation.horizon - situation.round + 1, 1)
            left = ahead if self.horizon is None else min(ahead, self.horizon)
        assert situation.travel is not None
        start, candidates = situation.positions.get(agent), situation.candidates[agent]
        is_open, price = _open_places(situation, agent, gains.places), situation.price(agent)
        return Pilot(agent, gains, situation.travel, start, candidates, is_open, horizon=left, price=price)


@dataclass(frozen=True, eq=False)
class Planned:
    """Routes to be planned: the common knowledge, and the private knowledge of agents whose beliefs are at hand."""

    plan: Plan[Mapping[str, Pilot], Legs]
    pilots: Mapping[str, Pilot]

    def central_driver(self) -> Decision:
        """First legs, with the traffic that agents would have."""
        return _decision(*self.plan.central_driver(self.pilots))

    def with_agents(self, transport: Transport, decision: int) -> Decision:
        """The same by real messages, each agent with its private knowledge only. ``decision`` must be larger than all
        earlier ones. TransportError if a transport without faults loses or changes messages.
        """
        owns = {name: {name: pilot} for name, pilot in self.pilots.items()}
        ended = run_plan(self.plan, owns, transport, decision)
        decided = _decision(ended.outcomes, ended.traffic)
        status = "blocked" if ended.without else decided.report.status
        return replace(decided, report=msgspec.structs.replace(decided.report, status=status, links=ended.links))


def _targeted(acquisition: Acquisition, level: float | None) -> TargetedVariance:
    if isinstance(acquisition, TargetedVariance):
        return acquisition
    own = acquisition.level if isinstance(acquisition, Straddle) else None
    return TargetedVariance(task=acquisition.aim(level) or "peak", level=own)


def _open_places(situation: Situation, agent: str, places: Float[np.ndarray, "p d"]) -> Bool[np.ndarray, " p"]:
    """Mask of locations that an agent may plan to measure: likely to succeed, and not measured by its knowledge."""
    seen = situation.seen_by(agent)
    is_open = np.ones(len(places), dtype=bool)
    if seen.measured is not None and len(seen.measured):
        measured = set(keys_of(seen.measured))
        is_open = np.array([key not in measured for key in keys_of(places)])
    if agent in situation.required:
        is_open &= situation.required[agent].margin(situation.domain.to_unit(places)) >= 0.0
    return is_open


def _graph(group: tuple[str, ...]) -> FactorGraph:
    """Graph that links each agent with the next one; only participants and names matter."""
    route = unused_prefix("route_", group)
    return FactorGraph.from_scopes({f"{route}{agent}": group[n : n + 2] for n, agent in enumerate(group)})


def _decision(legs: list[Legs], traffic: Traffic) -> Decision:
    points = {agent: place for part in legs for agent, place in part.points.items()}
    rounds = max((part.rounds for part in legs), default=0)
    return Decision(points, SolveReport(status="sequential", rounds=rounds, traffic=traffic))
