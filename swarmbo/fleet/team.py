"""The team as the hub sees it: agents elsewhere decide, the world is here, and so is the log."""

from collections.abc import Collection
from functools import partial
from typing import Any, NoReturn

import msgspec
import networkx as nx
import numpy as np

from swarmbo.agent.reports import Offer
from swarmbo.agent.ways import checked_ways
from swarmbo.data import News
from swarmbo.deciding.candidates import random_candidates
from swarmbo.deciding.choice import Choice
from swarmbo.errors import ConfigError
from swarmbo.fleet.hub import Hub, Links
from swarmbo.fleet.letters import Word
from swarmbo.fleet.plan import Plan
from swarmbo.records import LinkReport, SolveReport, Status, Traffic
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld, Offers, World

_AGREEING = (  # what messages of an agreement are for; all others share what is known
    *("agreement", "choices", "likely places", "choices in turn", "shortlists", "declining", "looking again", "values"),
)
_WORST_FIRST: tuple[Status, ...] = ("blocked", "infeasible", "max_rounds", "sequential", "converged", "exact")


class FleetTeam(Team):
    """A team whose agents are members of a fleet: it asks for what they decided.

    What it believes is for the log alone: recommendations, what was expected, hyper-parameters. It learns from its
    world and what it is told of its queries, as its agents do; what else a team can be told is refused.
    """

    hub: Hub | None = None
    _shared = Traffic()

    def _decided(self, offers: Offers) -> tuple[Any, Choice]:
        if self.hub is None:
            raise ConfigError("got a team without a hub; wanted one whose agents are a fleet's")
        given = None
        if self.problem.is_field:
            _require_told(offers, self.hub.plan)
            given = {agent: self._offer(agent, offers) for agent in self.agents}
        words = self.hub.words(partial(_edges, offers.links, is_field=self.problem.is_field), given)
        self._shared = _sent(words, is_agreement=False)
        values = {variable: y for word in words for variable, y in (*word.values.items(), *word.others.items())}
        if self.problem.is_field:
            point = np.array([values.get(variable, np.nan) for variable in self.graph.variables])
        else:
            point = self.problem.placed(values)
        return self._learner.decided_elsewhere(self._log, point, _report(words, self.hub.absent))

    def _offer(self, agent: str, offers: Offers) -> Offer:
        """Of what a world in a field says, what is one agent's own."""
        box, places, ways = self.problem.box, None, None
        if offers.candidates is not None:
            places = np.asarray(offers.candidates.get(agent, ()), dtype=float).reshape(-1, box.n_dims)
        else:
            own = offers.boxes.get(agent, box)
            is_box = (own.low == box.low).all() and (own.high == box.high).all()
            if not is_box or offers.on_the_way is not None:
                places = random_candidates({agent: own}, self.seed, self._log.round, self.problem)[agent]
        stands = offers.standpoints.get(agent)
        origin = self._learner.positions.get(agent) if stands is None else stands
        if offers.on_the_way is not None and places is not None and len(places) and origin is not None:
            ways = checked_ways(list(offers.on_the_way(agent, origin, places)), len(places), box.n_dims)
        return Offer(
            None if places is None else tuple(map(tuple, places.tolist())),
            float(offers.prices.get(agent, 0.0)),
            None if stands is None else tuple(stands.tolist()),
            offers.agents is None or agent in offers.agents,
            ways,
        )

    def _take(self, query_id: str | None, news: News | None, *, is_all: bool = False) -> None:
        super()._take(query_id, news, is_all=is_all)
        if self.hub is not None and news is not None:
            self.hub.tell(query_id, news, is_all=is_all)
            self.last_sharing = self._shared

    def _present(self) -> Collection[str] | None:
        if self.hub is None or not (absent := self.hub.absent):
            return super()._present()
        return [agent for agent in self.agents if agent not in absent]

    def attach(self, *told: Any, **more: Any) -> NoReturn:
        """Refused: its agents would not hear of it."""
        raise self._not_heard("attach")

    def expect(self, *told: Any, **more: Any) -> NoReturn:
        """Refused: its agents would not hear of it."""
        raise self._not_heard("expect")

    def give_up(self, *told: Any, **more: Any) -> NoReturn:
        """Refused: its agents would not hear of it."""
        raise self._not_heard("give_up")

    def _not_heard(self, what: str) -> ConfigError:
        return ConfigError(f"got {what}(…), of which agents of a fleet do not hear; wanted ask, tell, act and observe")


def told_beforehand(world: World | None) -> tuple[float | None, list[list[float]] | None]:
    """What all agents know of a world in a field before it begins: its level, and its sites.

    Args:
        world: The team's.
    """
    if not isinstance(world, FieldWorld):
        return None, None
    sites = world.sites()
    return world.level, None if sites is None else sites.tolist()


def _edges(links: "nx.Graph[Any] | None", absent: Collection[str], *, is_field: bool) -> Links | None:
    """Who hears whom, as members are told it; who is absent hears nobody, and relays nothing."""
    if links is None:
        return None
    there: nx.Graph[Any] = nx.restricted_view(links, [agent for agent in absent if agent in links], [])
    return tuple((str(a), str(b)) for a, b in (there if is_field else _joined(there)).edges)


def _joined(links: "nx.Graph[Any]") -> "nx.Graph[Any]":
    """The same links, and one from each part to the next: what is told of a function has to reach all agents.

    A fleet's network can carry that: every member dials every other one. Neighbours of the factor graph are linked in
    any case, so what is agreed does not depend on it.
    """
    firsts = [min(part) for part in nx.connected_components(links)]
    return nx.compose(links, nx.path_graph(firsts))


def _require_told(offers: Offers, plan: Plan) -> None:
    """Refuse a world of which agents were told something else."""
    sites = None if offers.sites is None else offers.sites.tolist()
    if offers.level != plan.level or sites not in (None, plan.sites):
        raise ConfigError("its level or its sites() changed; wanted a world of which both stay", at="$.environment")


def _report(words: list[Word], absent: tuple[str, ...]) -> SolveReport:
    """Of the whole agreement: the worst status, the longest way, what all said, and who was gone."""
    order = {status: rank for rank, status in enumerate(_WORST_FIRST)}
    worst = min((word.report for word in words), key=lambda report: order.get(report.status, len(order)))
    rounds = max(word.report.rounds for word in words)
    links = LinkReport(ticks=rounds, silent=absent) if absent else worst.links
    return msgspec.structs.replace(worst, rounds=rounds, traffic=_sent(words, is_agreement=True), links=links)


def _sent(words: list[Word], *, is_agreement: bool) -> Traffic:
    """What the agreement took, or all else: what came, what was best, the joint point."""
    own = [took for word in words for what, took in word.sent.items() if (what in _AGREEING) is is_agreement]
    return sum(own, Traffic())
