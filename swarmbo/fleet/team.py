"""Team with members of a fleet as agents, as the coordinator process sees it."""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any, NoReturn

import msgspec
import networkx as nx
import numpy as np

from swarmbo.deciding.logbook import Choice
from swarmbo.deciding.offers import offer_of, reachable_places
from swarmbo.errors import ConfigError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.messages import Decision
from swarmbo.problem.data import News
from swarmbo.records import LinkReport, SolveReport, Status, Traffic
from swarmbo.team import Team
from swarmbo.worlds import FieldWorld, Offers, World

_WORST_FIRST: tuple[Status, ...] = ("blocked", "infeasible", "max_rounds", "sequential", "converged", "exact")


class FleetTeam(Team):
    """A team that collects decisions of a fleet's members. Its belief is for the log only; ``attach`` is refused."""

    hub: Hub | None = None

    def _decide(self, offers: Offers, *, in_batch: bool) -> tuple[Any, Choice, Mapping[str, Traffic]]:
        if self.hub is None:
            raise ConfigError("got a team without a coordinator process; wanted the team of a fleet")
        by_agent = self._offers_by_agent(offers, self.hub) if self.problem.is_field else None
        decisions = self.hub.decisions(partial(_present_links, offers.links, is_field=self.problem.is_field), by_agent)
        values, sent = dict[str, float](), dict[str, Traffic]()
        for decision in decisions:
            values |= {**decision.values, **decision.absent_values}
            for purpose, traffic in decision.sent.items():
                sent[purpose] = sent.get(purpose, Traffic()) + traffic
        point = np.array([values.get(variable, np.nan) for variable in self.graph.variables])
        if not self.problem.is_field:
            (point,) = self.problem.points(point[None])
        learner, choice = self._learner.decided_elsewhere(self._log, point, _report(decisions, self.hub.absent))
        return learner, choice, sent

    def _offers_by_agent(self, offers: Offers, hub: Hub) -> dict[str, Any]:
        sites = None if offers.sites is None else offers.sites.tolist()
        if offers.level != hub.plan.level or sites not in (None, hub.plan.sites):
            raise ConfigError("its level or its sites() changed; wanted both to stay the same", at="$.environment")
        common = self.problem, self.seed, self._log.round
        return {agent: offer_of(agent, offers, reachable_places(agent, offers, *common)) for agent in self.agents}

    def _learn_news(self, query_id: str | None, news: News | None, *, is_all: bool = False) -> None:
        super()._learn_news(query_id, news, is_all=is_all)
        if self.hub is not None and news is not None:
            self.hub.tell(query_id, news, is_all=is_all)

    def _present(self) -> Collection[str] | None:
        if self.hub is None or not (absent := self.hub.absent):
            return super()._present()
        return [agent for agent in self.agents if agent not in absent]

    def attach(self, *_arguments: object, **_options: object) -> NoReturn:
        """Refuse attach, expect and give_up: agents of a fleet would not receive the data."""
        got = "got attach, expect or give_up, which agents of a fleet do not support"
        raise ConfigError(f"{got}; wanted ask, tell, act and observe")

    expect = give_up = attach


def level_and_sites(world: World | None) -> tuple[float | None, list[list[float]] | None]:
    """Level and sites of an environment of a field, known to all agents beforehand."""
    if not isinstance(world, FieldWorld):
        return None, None
    sites = world.sites()
    return world.level, None if sites is None else sites.tolist()


def _present_links(
    links: "nx.Graph[Any] | None", absent: Collection[str], *, is_field: bool
) -> tuple[tuple[str, str], ...] | None:
    """Links between present members; absent agents receive nothing, and relay nothing."""
    if links is None:
        return None
    present: nx.Graph[Any] = nx.restricted_view(links, [agent for agent in absent if agent in links], [])
    if not is_field:  # a function's reports must reach all agents: add a link from each part to the next
        firsts = [min(part, key=str) for part in nx.connected_components(present)]
        present = nx.compose(present, nx.path_graph(firsts))
    return tuple((str(a), str(b)) for a, b in present.edges)


def _report(decisions: list[Decision], absent: tuple[str, ...]) -> SolveReport:
    """Report of the whole agreement: the worst status and the most rounds of all members, and absent agents."""
    ranks = {status: rank for rank, status in enumerate(_WORST_FIRST)}
    reports = [decision.report for decision in decisions]
    worst = min(reports, key=lambda report: ranks.get(report.status, len(ranks)))
    rounds = max(report.rounds for report in reports)
    links = LinkReport(ticks=rounds, silent=absent) if absent else worst.links
    return msgspec.structs.replace(worst, rounds=rounds, links=links)
