"""Reports of agents in a field before a decision: their measurements, and their reachable locations.

From these reports every agent has the same log, belief and candidates as a team. Locations are packed as indices of the
common sites (``offers.packed``). An unchanged offer, as of a fixed sensor, takes one byte. With local beliefs reports
have the locations of measurements without outcomes; agents then exchange messages of the fusion method.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np

from swarmbo.belief.fusion.fused import Talk
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import PackedOffer
from swarmbo.deciding.own_rows import UNASKED, OwnRow, OwnRows, Stop
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, News
from swarmbo.records import Traffic
from swarmbo.worlds.fields import news_of_measurements

Out = TypeVar("Out")
Learning = Generator[tuple[Talk, ...], None, Out]  # yields due exchanges of beliefs


class _Measurement(msgspec.Struct, frozen=True, array_like=True):
    """Result of a query, or of the attached evaluation of an index; ``stop`` is None without a measurement.

    ``order`` is the number of the agent's evaluations before this. After ``has_ended`` the query gets no more outcomes.
    """

    of: str | int
    order: int
    stop: Stop | None
    round: float | None = None
    on_the_way: tuple[Stop, ...] = ()
    has_ended: bool = False

    def without_outcome(self) -> "_Measurement":
        """Measurement with its location, and without its outcome."""
        stop = None if self.stop is None else self.stop.without_outcome()
        stops = tuple(stop.without_outcome() for stop in self.on_the_way)
        return msgspec.structs.replace(self, stop=stop, on_the_way=stops)


class Report(msgspec.Struct, frozen=True, array_like=True):
    """Report of an agent; an unchanged offer is replaced by its check."""

    measurements: tuple[_Measurement, ...]
    offer: PackedOffer | int


class Reported(NamedTuple):
    """A measurement, and its author."""

    agent: str
    measurement: _Measurement


def measurements_of(problem: Problem, agent: str, own: OwnRows) -> list[Reported]:
    """Measurements among an agent's own data."""
    rows: list[tuple[str | int, OwnRow]] = [*own.told.items(), *enumerate(own.attached)]
    return [Reported(agent, _measurement(problem, agent, of, row)) for of, row in rows if row.has_come]


def _measurement(problem: Problem, agent: str, of: str | int, row: OwnRow) -> _Measurement:
    stop = None
    if agent in row.factors:
        place = tuple(row.place[variable] for variable in problem.graph.variables_owned_by(agent))
        stop = Stop(place, row.factors[agent], row.noise.get(agent))
    return _Measurement(of, row.order, stop, row.round, row.on_the_way, row.has_ended)


def in_order(told: Iterable[Reported], attached: Sequence[OwnRow]) -> list[tuple[str | int, list[Reported]]]:
    """Measurements of all agents, by query or call of ``attach``, in the order of telling.

    The order is the mean of the agents' orders; of equals the earlier query comes first. Rows of one call of ``attach``
    have one order, and the first row is their key.
    """
    # all agents got the same calls of attach, so each knows the groups from its own rows
    orders, groups = [row.order for row in attached], dict[str | int, list[Reported]]()
    for one in told:
        of = one.measurement.of
        groups.setdefault(of if isinstance(of, str) else orders.index(orders[of]), []).append(one)

    def turn(item: tuple[str | int, list[Reported]]) -> tuple[float, int, int, str]:
        of, group = item
        mean = float(np.mean([one.measurement.order for one in group]))
        return (mean, 0, len(of), of) if isinstance(of, str) else (mean, 1, of, "")

    return sorted(groups.items(), key=turn)


def news_of_group(problem: Problem, group: Iterable[Reported]) -> News:
    """News of the measurements of one round."""
    found = {
        agent: (
            None if measurement.stop is None else measurement.stop.measurement(agent),
            tuple(stop.measurement(agent) for stop in measurement.on_the_way),
        )
        for agent, measurement in group
    }
    return news_of_measurements(problem, found)


def data_of_group(problem: Problem, group: Iterable[Reported]) -> Dataset:
    """Evaluations attached in one call, in the order of the call."""
    rows = sorted(group, key=lambda one: one.measurement.of)
    n, k = len(rows), len(problem.channels)
    factors, noise = np.full((n, k), np.nan), np.full((n, 1 + k), np.nan)
    measurements = [
        measurement.stop.measurement(agent) for agent, measurement in rows if measurement.stop is not None
    ]  # all have one
    for row, measurement in enumerate(measurements):
        column = problem.channels.index(measurement.agent)
        factors[row, column], noise[row, 1 + column] = measurement.outcome, measurement.noise_std
    X = np.array([problem.joint({measurement.agent: measurement.place}) for measurement in measurements])
    rounds = np.array([measurement.round for _, measurement in rows], dtype=float)
    return Dataset(X, np.full(n, np.nan), factors, None if np.isnan(rounds).any() else rounds, noise_std=noise)


@dataclass(frozen=True, eq=False)
class Reports:
    """One agent's side of an exchange of reports.

    If ``keeps``, outcomes stay with their author. ``known`` has last offers, if all agents know that all received them.
    """

    problem: Problem
    agent: str
    own: OwnRows
    offer: PackedOffer
    links: "nx.Graph[str] | None" = None
    keeps: bool = False
    known: Mapping[str, PackedOffer] = field(default_factory=dict[str, PackedOffer])

    def said(self) -> bytes:
        """Report of this agent."""
        measurements = [one.measurement for one in self._measurements()]
        if self.keeps:
            measurements = [
                measurement.without_outcome() for measurement in measurements if isinstance(measurement.of, str)
            ]
        # common knowledge decides if a check suffices; an agent that missed the last offer could not use it
        before = self.known.get(self.agent)
        return msgspec.msgpack.encode(
            Report(tuple(measurements), before.check if before and self.offer == before else self.offer)
        )

    def _measurements(self) -> list[Reported]:
        """Measurements of this agent."""
        return measurements_of(self.problem, self.agent, self.own)

    def merged(
        self, log: Logbook, learner: FieldLearner, heard: Mapping[str, bytes]
    ) -> Learning[tuple[Logbook, FieldLearner, dict[str, PackedOffer]]]:
        """Merge all reports into log and learner, in the order of telling; messages of local beliefs are yielded."""
        reports = {name: msgspec.msgpack.decode(said, type=Report) for name, said in heard.items()}
        said = {
            name: [Reported(name, measurement) for measurement in report.measurements]
            for name, report in reports.items()
        }
        # its own report may lack outcomes; its own data do not
        said |= {self.agent: self._measurements()}
        told = [one for name in self.problem.agents for one in said[name]]
        log, learner = yield from self._learned(log, learner, told)
        return log, learner, offered(reports, self.known)

    def _learned(
        self, log: Logbook, learner: FieldLearner, told: list[Reported]
    ) -> Learning[tuple[Logbook, FieldLearner]]:
        """Log and learner with all evaluations, one after the other."""
        for of, group in in_order(told, self.own.attached):
            if isinstance(of, str):
                has_ended = any(one.measurement.has_ended for one in group)
                news, asked = news_of_group(self.problem, group), log.round_of(of or None, is_all=has_ended)
                log = log.with_news(of or None, news, is_all=has_ended)
                learner = learner.learn(news, asked, log.round - 1, self.links)
                # each group is fused before the next is learned, as a team does: losses are drawn by exchange
                if due := learner.believed.to_say().due:
                    yield due
            else:
                data = data_of_group(self.problem, group)
                learner = learner.attach(data)
                log = log.with_evaluations(data.X, data.totals, data.factors, data.rounds, data.noise_std)
        return log, learner


def offered(reports: Mapping[str, Report], known: Mapping[str, PackedOffer]) -> dict[str, PackedOffer]:
    """Offer of each agent; a check means its last offer."""
    offers = {name: report.offer for name, report in reports.items()}
    return {name: known[name] if isinstance(offer, int) else offer for name, offer in offers.items()}


class Unreported(msgspec.Struct, frozen=True):
    """Agents' unreported data since the last decision.

    Args:
        rounds: Round of the news of each query.
        learned: Data that are learned: queries, and calls of ``attach`` by their first row.
        lines: Of a function, number of evaluations that may have news.
        gossip: Traffic of local beliefs since then.
        offered: In a field, each agent's offer before the last decision, if all received it.
        edges: Links of the last decision; None: every agent reached every other.
    """

    own: dict[str, OwnRows] = {}
    rounds: dict[str, int] = {}
    learned: tuple[str | int, ...] = ()
    lines: int = 0
    gossip: Traffic = Traffic()
    offered: dict[str, PackedOffer] = {}
    edges: tuple[tuple[str, str], ...] | None = None

    def of(self, agent: str) -> OwnRows:
        """Data of one agent."""
        return self.own.get(agent, OwnRows())

    def with_news(
        self, problem: Problem, query_id: str | None, news: News, of_round: int, *, is_all: bool
    ) -> "Unreported":
        """Add news of a round in a field; ``is_all`` is True if the query or the round gets no more outcomes."""
        key = query_id or UNASKED
        if query_id is None and key in self.rounds:
            key = f"{UNASKED}{len(self.rounds)}"  # another round without a request
        rows = {agent: self.of(agent).row(problem, agent, news, has_ended=is_all) for agent in problem.agents}
        told = {agent: self.of(agent).with_told(key, row) for agent, row in rows.items() if row.has_come}
        # a row without outcomes is none, but the end of a round is: beliefs are fused then, too
        if not told:
            return self
        return msgspec.structs.replace(self, own=self.own | told, rounds={**self.rounds, key: of_round})

    def with_survey(self, problem: Problem, data: Dataset, present: int, *, fades: bool) -> "Unreported":
        """Add attached data in a field; ``present`` is the default round, ``fades`` True if rounds matter."""
        own = {agent: self.of(agent).surveyed(problem, agent, data, present, fades=fades) for agent in problem.agents}
        return msgspec.structs.replace(self, own=own)

    def new(self, problem: Problem) -> list[tuple[str | int, list[Reported]]]:
        """Data that are not learned yet, in the order in which all agents learn them."""
        told = [one for agent in problem.agents for one in measurements_of(problem, agent, self.of(agent))]
        groups = in_order(told, self.of(problem.agents[0]).attached)
        return [(of, group) for of, group in groups if of not in self.learned]

    def after(self, log: Logbook) -> "Unreported":
        """State after a report and a decision: only pending queries may have news."""
        return Unreported(lines=len(log.open), offered=self.offered, edges=self.edges)

    def to_array(self) -> np.ndarray:
        """Encode as bytes."""
        return np.frombuffer(msgspec.msgpack.encode(self), dtype=np.uint8).copy()

    @classmethod
    def from_array(cls, content: np.ndarray) -> "Unreported":
        """Decode the bytes of ``to_array``."""
        return msgspec.msgpack.decode(content.tobytes(), type=Unreported)
