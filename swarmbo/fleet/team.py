"""Team with members of a fleet as agents, as the coordinator process sees it."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NoReturn

import msgspec
import networkx as nx
import numpy as np

from swarmbo.deciding.logbook import Choice
from swarmbo.deciding.offers import offer_of, reachable_places
from swarmbo.errors import ConfigError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.letters import Word
from swarmbo.problem.data import News
from swarmbo.records import LinkReport, SolveReport, Status, Traffic
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld, Offers, World

_WORST_FIRST: tuple[Status, ...] = ("blocked", "infeasible", "max_rounds", "sequential", "converged", "exact")


def _refused(what: str) -> Callable[..., NoReturn]:
    """Make a method that is refused, as agents of a fleet would not receive its data."""

    def refuse(*_told: object, **_more: object) -> NoReturn:
        wanted = "wanted ask, tell, act and observe"
        raise ConfigError(f"got {what}(…), which agents of a fleet do not support; {wanted}")

    refuse.__doc__ = f"Refuse {what} with a ``ConfigError``: agents of a fleet would not receive its data."
    return refuse


class FleetTeam(Team):
    """A team that collects decisions of a fleet's members; its belief is for the log only, and refuses other data."""

    hub: Hub | None = None

    def _decide(self, offers: Offers, *, in_batch: bool) -> tuple[Any, Choice, Mapping[str, Traffic]]:
        if self.hub is None:
            raise ConfigError("got a team without a coordinator process; wanted the team of a fleet")
        given = None
        if self.problem.is_field:
            sites = None if offers.sites is None else offers.sites.tolist()
            if offers.level != self.hub.plan.level or sites not in (None, self.hub.plan.sites):
                raise ConfigError("its level or its sites() changed; wanted both to stay the same", at="$.environment")
            of_all = self.problem, self.seed, self._log.round
            given = {agent: offer_of(agent, offers, reachable_places(agent, offers, *of_all)) for agent in self.agents}
        words = self.hub.words(partial(_edges, offers.links, is_field=self.problem.is_field), given)
        values = {variable: y for word in words for variable, y in (*word.values.items(), *word.others.items())}
        point = np.array([values.get(variable, np.nan) for variable in self.graph.variables])
        if not self.problem.is_field:
            (point,) = self.problem.points(point[None])
        learner, choice = self._learner.decided_elsewhere(self._log, point, _report(words, self.hub.absent))
        purposes = dict.fromkeys(purpose for word in words for purpose in word.sent)
        sent = {p: sum((word.sent[p] for word in words if p in word.sent), Traffic()) for p in purposes}
        return learner, choice, sent

    def _learn_news(self, query_id: str | None, news: News | None, *, is_all: bool = False) -> None:
        super()._learn_news(query_id, news, is_all=is_all)
        if self.hub is not None and news is not None:
            self.hub.tell(query_id, news, is_all=is_all)

    def _present(self) -> Collection[str] | None:
        if self.hub is None or not (absent := self.hub.absent):
            return super()._present()
        return [agent for agent in self.agents if agent not in absent]

    attach, expect, give_up = map(_refused, ("attach", "expect", "give_up"))


def told_beforehand(world: World | None) -> tuple[float | None, list[list[float]] | None]:
    """Level and sites of an environment of a field, known to all agents beforehand."""
    if not isinstance(world, FieldWorld):
        return None, None
    sites = world.sites()
    return world.level, None if sites is None else sites.tolist()


def _edges(
    links: "nx.Graph[Any] | None", absent: Collection[str], *, is_field: bool
) -> tuple[tuple[str, str], ...] | None:
    """Links for members; absent agents receive nothing, and relay nothing."""
    if links is None:
        return None
    there: nx.Graph[Any] = nx.restricted_view(links, [agent for agent in absent if agent in links], [])
    return tuple((str(a), str(b)) for a, b in (there if is_field else _joined(there)).edges)


def _joined(links: "nx.Graph[Any]") -> "nx.Graph[Any]":
    """Links with one more from each part to the next, as a function's reports have to reach all agents."""
    firsts = [min(part, key=str) for part in nx.connected_components(links)]
    return nx.compose(links, nx.path_graph(firsts))


def _report(words: list[Word], absent: tuple[str, ...]) -> SolveReport:
    """Report of the whole agreement: the worst status, the most rounds, and absent agents."""
    order = {status: rank for rank, status in enumerate(_WORST_FIRST)}
    worst = min((word.report for word in words), key=lambda report: order.get(report.status, len(order)))
    rounds = max(word.report.rounds for word in words)
    links = LinkReport(ticks=rounds, silent=absent) if absent else worst.links
    return msgspec.structs.replace(worst, rounds=rounds, links=links)
