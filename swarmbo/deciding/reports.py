"""Reports of agents in a field before a decision: their measurements, and their reachable locations.

From these reports, every agent gets the same log, belief and candidates as a team. Locations are packed as indices of
the common sites (``offers.packed``). An unchanged offer, as of a fixed sensor, takes one byte. With local beliefs,
reports contain the locations of measurements, but no outcomes; agents then exchange messages of the fusion method.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import networkx as nx
import numpy as np

from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import PackedOffer
from swarmbo.deciding.own_rows import UNREQUESTED, OwnRow, OwnRows
from swarmbo.graph.factor_graph import grouped
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, Measurement, News
from swarmbo.records import Traffic
from swarmbo.steps import Steps
from swarmbo.worlds.fields import news_of_measurements


class ReportedRow(msgspec.Struct, frozen=True, array_like=True):
    """Data of a query (by id) or attached evaluation (by index); ``order`` and ``has_ended`` are as in ``OwnRow``."""

    of: str | int
    order: int
    measurement: Measurement | None
    round: float | None = None
    on_the_way: tuple[Measurement, ...] = ()
    has_ended: bool = False


class Report(msgspec.Struct, frozen=True, array_like=True):
    """Report of an agent: new measurements, and its offer or, if that is unchanged, the offer's checksum."""

    rows: tuple[ReportedRow, ...]
    offer: PackedOffer | int


Reported = tuple[str, ReportedRow]  # an agent, and its measurement


def reported_rows(problem: Problem, agent: str, own: OwnRows) -> list[ReportedRow]:
    """Measurements among an agent's own data."""
    rows: list[tuple[str | int, OwnRow]] = [*own.by_query.items(), *enumerate(own.attached)]
    variables = problem.graph.variables_owned_by(agent)
    return [
        ReportedRow(of, row.order, row.measurement(variables), row.round, row.on_the_way, row.has_ended)
        for of, row in rows
        if row.has_news
    ]


def in_order(
    rows_by_agent: Mapping[str, Iterable[ReportedRow]], attached: Sequence[OwnRow]
) -> list[tuple[str | int, tuple[Reported, ...]]]:
    """Measurements of all agents, by query or call of ``attach``, in the order of telling.

    The order is the mean of the agents' orders; with equal means, the earlier query comes first. Rows of one call of
    ``attach`` have one order, and the index of the first row is their key.
    """
    # all agents got the same calls of attach, so each knows the groups from its own rows
    orders = [row.order for row in attached]
    reported = [(agent, row) for agent, rows in rows_by_agent.items() for row in rows]
    keys = [row.of if isinstance(row.of, str) else orders.index(orders[row.of]) for _, row in reported]

    def turn(item: tuple[str | int, tuple[Reported, ...]]) -> tuple[float, int, int, str]:
        of, group = item
        mean = float(np.mean([row.order for _, row in group]))
        return (mean, 0, len(of), of) if isinstance(of, str) else (mean, 1, of, "")

    return sorted(grouped(zip(keys, reported, strict=True)).items(), key=turn)


def news_of_group(problem: Problem, group: Iterable[Reported]) -> News:
    """News of the measurements of one round."""
    return news_of_measurements(problem, {agent: (row.measurement, row.on_the_way) for agent, row in group})


def data_of_group(problem: Problem, group: Iterable[Reported]) -> Dataset:
    """Evaluations attached in one call, in the order of the call."""
    rows = sorted(group, key=lambda one: one[1].of)
    n, k = len(rows), len(problem.channels)
    X, factors, noise = np.empty((n, problem.domain.n_dims)), np.full((n, k), np.nan), np.full((n, 1 + k), np.nan)
    for i, (agent, row) in enumerate(rows):
        column, made = problem.graph.place_of[agent], row.measurement
        assert made is not None  # every attached row has a measurement
        X[i] = problem.joint({agent: np.array(made.place)})
        factors[i, column], noise[i, 1 + column] = made.numbers
    rounds = np.array([row.round for _, row in rows], dtype=float)
    return Dataset(X, np.full(n, np.nan), factors, None if np.isnan(rounds).any() else rounds, noise_std=noise)


@dataclass(frozen=True, eq=False)
class Reports:
    """One agent's side of an exchange of reports.

    If ``keeps_outcomes``, outcomes stay with their author. ``known_offers`` has the last offers that all received.
    """

    problem: Problem
    agent: str
    own: OwnRows
    offer: PackedOffer
    links: "nx.Graph[str] | None" = None
    keeps_outcomes: bool = False
    known_offers: Mapping[str, PackedOffer] = field(default_factory=dict[str, PackedOffer])

    def packed(self) -> bytes:
        """Report of this agent."""
        own = self.own
        if self.keeps_outcomes:
            own = OwnRows({query_id: row.masked() for query_id, row in own.by_query.items()})
        rows = reported_rows(self.problem, self.agent, own)
        # common knowledge decides whether a checksum suffices: an agent that missed the last offer could not use it
        before = self.known_offers.get(self.agent)
        offer = before.checksum if before and self.offer == before else self.offer
        return msgspec.msgpack.encode(Report(tuple(rows), offer))

    def merged(
        self, log: Logbook, learner: FieldLearner, received: Mapping[str, bytes]
    ) -> Steps[tuple[Logbook, FieldLearner, dict[str, PackedOffer]]]:
        """Merge all reports into log and learner, in the order of telling; messages of local beliefs are yielded."""
        reports = {name: msgspec.msgpack.decode(report, type=Report) for name, report in received.items()}
        rows_by_agent = {name: reports[name].rows for name in log.problem.agents}
        # this agent's report may lack outcomes, but its own data have them
        rows_by_agent[self.agent] = tuple(reported_rows(self.problem, self.agent, self.own))
        for of, group in in_order(rows_by_agent, self.own.attached):
            if isinstance(of, str):
                has_ended = any(row.has_ended for _, row in group)
                news = news_of_group(log.problem, group)
                log, asked = log.with_news(of or None, news, is_all=has_ended)
                learner = learner.learn(news, asked, log.round - 1, self.links)
                # fuse each group before learning the next one, as a team does: message losses are drawn per exchange
                if due := learner.team_belief.take_due():
                    yield due
            else:
                data = data_of_group(log.problem, group)
                learner = learner.attach(data)
                log = log.with_evaluations(data)
        # a checksum stands for the last offer
        offers = {name: self.known_offers[name] if isinstance(r.offer, int) else r.offer for name, r in reports.items()}
        return log, learner, offers


class Unreported(msgspec.Struct, frozen=True):
    """Agents' unreported data since the last decision, and in a field the ``rounds`` of the news of queries.

    ``learned`` lists the learned data: queries, and calls of ``attach`` by their first row. ``gossip`` is the traffic
    of local beliefs. ``lines`` counts the evaluations of a function that may have news. In a field, ``offered`` has
    each agent's offer before the last decision, if all received it. ``edges`` are that decision's links, along which
    beliefs are fused, as plain data; None connects all.
    """

    own: dict[str, OwnRows] = {}
    rounds: dict[str, int] = {}
    learned: tuple[str | int, ...] = ()
    lines: int = 0
    gossip: Traffic = Traffic()
    offered: dict[str, PackedOffer] = {}
    edges: tuple[Any, ...] | None = None

    def of(self, agent: str) -> OwnRows:
        """Unreported data of one agent."""
        return self.own.get(agent, OwnRows())

    def with_news(
        self, problem: Problem, query_id: str | None, news: News, of_round: int, *, is_all: bool
    ) -> "Unreported":
        """Add news of a round in a field; ``is_all`` is True if the query or the round gets no more outcomes."""
        key = query_id or UNREQUESTED
        if query_id is None and key in self.rounds:
            key = f"{UNREQUESTED}{len(self.rounds)}"  # another round without a request
        rows = {agent: self.of(agent).row(problem, agent, news, has_ended=is_all) for agent in problem.agents}
        told = {agent: self.of(agent).with_row(key, row) for agent, row in rows.items() if row.has_news}
        # a row without outcomes is no news, but the end of a round is: beliefs are fused then, too
        if not told:
            return self
        return msgspec.structs.replace(self, own=self.own | told, rounds={**self.rounds, key: of_round})

    def new(self, problem: Problem) -> list[tuple[str | int, tuple[Reported, ...]]]:
        """Data that are not learned yet, in the order in which all agents learn them."""
        rows_by_agent = {agent: reported_rows(problem, agent, self.of(agent)) for agent in problem.agents}
        groups = in_order(rows_by_agent, self.of(problem.agents[0]).attached)
        return [(of, group) for of, group in groups if of not in self.learned]

    def after(self, log: Logbook) -> "Unreported":
        """Unreported data after a report and a decision, when only pending queries may have news."""
        return Unreported(lines=len(log.open), offered=self.offered, edges=self.edges)
