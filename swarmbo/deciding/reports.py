"""What an agent in a field tells all others before a decision: what it measured, and where it can go now.

From these reports everybody has the same log and the same belief, as a team has them, and knows the same places to
choose from. Places are said in few bytes: as indices of the sites, which all know (``packed_places``). An agent whose
offer is as it was, as that of a fixed sensor is, says that in one byte. Where beliefs are agents' own nobody says what
came of a measurement: only that it was made, and where; and then agents talk, as their way to fuse beliefs has it.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.belief.fusion.fused import Talk
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.offers import Offer, PackedOffer
from swarmbo.deciding.own_rows import OwnRow, OwnRows, Stop
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, News
from swarmbo.worlds.fields import news_of_measurements

Out = TypeVar("Out")
Learning = Generator[tuple[Talk, ...], None, Out]  # yields what agents have to say of their beliefs


class _Measurement(msgspec.Struct, frozen=True, array_like=True):
    """What came of a query, or of one of the evaluations attached.

    Args:
        of: Which one.
        order: Of evaluations that the agent was told of, which this is.
        stop: What it measured in the end; None if that is nothing, and has not failed.
        round: Of one that was attached, where data fade.
        on_the_way: What it measured besides.
        has_ended: Whether nothing more will come of the query.
    """

    of: str | int
    order: int
    stop: Stop | None
    round: float | None = None
    on_the_way: tuple[Stop, ...] = ()
    has_ended: bool = False

    def without_outcome(self) -> "_Measurement":
        """That there was one, and where."""
        stop = None if self.stop is None else self.stop.without_outcome()
        stops = tuple(stop.without_outcome() for stop in self.on_the_way)
        return msgspec.structs.replace(self, stop=stop, on_the_way=stops)


class Report(msgspec.Struct, frozen=True, array_like=True):
    """All that an agent says; of an offer that is as in its report before only the check."""

    measurements: tuple[_Measurement, ...]
    offer: PackedOffer | int


class Told(NamedTuple):
    """A reading, and whose it is."""

    agent: str
    measurement: _Measurement


def measurements_of(problem: Problem, agent: str, own: OwnRows) -> list[Told]:
    """What an agent measured, of what it was told.

    Args:
        problem: The field.
        agent: Which.
        own: What it was told.
    """
    rows: list[tuple[str | int, OwnRow]] = [*own.told.items(), *enumerate(own.attached)]
    return [Told(agent, _measurement(problem, agent, of, row)) for of, row in rows if row.has_come]


def _measurement(problem: Problem, agent: str, of: str | int, row: OwnRow) -> _Measurement:
    stop = None
    if agent in row.factors:
        place = tuple(row.place[variable] for variable in problem.graph.variables_owned_by(agent))
        stop = Stop(place, row.factors[agent], row.noise.get(agent))
    return _Measurement(of, row.order, stop, row.round, row.on_the_way, row.has_ended)


def in_order(told: Iterable[Told], attached: Sequence[OwnRow]) -> list[tuple[str | int, list[Told]]]:
    """What all agents measured, by query or call of ``attach``, in the order in which it was told.

    That is the mean of the orders in which agents were told of it; of equals a query that was asked before comes first.

    Args:
        told: By agents in the problem's order.
        attached: The rows of one of them; those of one call of ``attach``, for which the first stands, have one order.
    """
    orders, groups = [row.order for row in attached], dict[str | int, list[Told]]()
    for one in told:
        of = one.measurement.of
        groups.setdefault(of if isinstance(of, str) else orders.index(orders[of]), []).append(one)

    def turn(item: tuple[str | int, list[Told]]) -> tuple[float, int, int, str]:
        of, group = item
        mean = float(np.mean([one.measurement.order for one in group]))
        return (mean, 0, len(of), of) if isinstance(of, str) else (mean, 1, of, "")

    return sorted(groups.items(), key=turn)


def news_of_group(problem: Problem, group: Iterable[Told]) -> News:
    """What agents measured in one round.

    Args:
        problem: The field.
        group: Their readings of one query, or of what nobody asked for.
    """
    found = {
        agent: (
            None if measurement.stop is None else measurement.stop.measurement(agent),
            tuple(stop.measurement(agent) for stop in measurement.on_the_way),
        )
        for agent, measurement in group
    }
    return news_of_measurements(problem, found)


def data_of_group(problem: Problem, group: Iterable[Told]) -> Dataset:
    """Evaluations that were attached in one call, in the order of the call.

    Args:
        problem: The field.
        group: What agents said of them.
    """
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
    """One exchange of reports.

    Args:
        problem: The field.
        agent: Whose side this is.
        own: What it was told since the last exchange.
        offer: Where it can go.
        links: Who hears whom; None: everyone hears everyone.
        keeps: Whether outcomes stay with who measured.
        sites: Every place that can be measured at all, as all know them; None: nobody says.
        known: What each offered in the report before, where all know that all heard it.
    """

    problem: Problem
    agent: str
    own: OwnRows
    offer: Offer
    links: "nx.Graph[str] | None" = None
    keeps: bool = False
    sites: Float[np.ndarray, "s d"] | None = None
    known: Mapping[str, PackedOffer] = field(default_factory=dict[str, PackedOffer])

    def said(self) -> bytes:
        """What this agent has to say."""
        measurements = [one.measurement for one in self._measurements()]
        if self.keeps:
            measurements = [
                measurement.without_outcome() for measurement in measurements if isinstance(measurement.of, str)
            ]
        offer = PackedOffer.of(self.offer, self.problem.box.n_dims, self.sites)
        before = self.known.get(self.agent)
        return msgspec.msgpack.encode(
            Report(tuple(measurements), before.check if before and offer == before else offer)
        )

    def _measurements(self) -> list[Told]:
        """What this agent measured."""
        return measurements_of(self.problem, self.agent, self.own)

    def merged(
        self, log: Logbook, learner: FieldLearner, heard: Mapping[str, bytes]
    ) -> Learning[tuple[Logbook, FieldLearner, dict[str, PackedOffer]]]:
        """What all know now: measurements in the order in which they were told, and where each agent can go.

        After each of them agents with beliefs of their own have something to say: these are yielded.

        Args:
            log: What was known before.
            learner: What was made of it.
            heard: What each agent said, this one included.
        """
        reports = {name: msgspec.msgpack.decode(said, type=Report) for name, said in heard.items()}
        said = {
            name: [Told(name, measurement) for measurement in report.measurements] for name, report in reports.items()
        }
        said |= {self.agent: self._measurements()}
        told = [one for name in self.problem.agents for one in said[name]]
        log, learner = yield from self._learned(log, learner, told)
        return log, learner, offered(reports, self.known)

    def _learned(self, log: Logbook, learner: FieldLearner, told: list[Told]) -> Learning[tuple[Logbook, FieldLearner]]:
        """The log and the learner with all that came, one evaluation after the other."""
        for of, group in in_order(told, self.own.attached):
            if isinstance(of, str):
                has_ended = any(one.measurement.has_ended for one in group)
                news, asked = news_of_group(self.problem, group), log.round_of(of or None, is_all=has_ended)
                log = log.with_news(of or None, news, is_all=has_ended)
                learner = learner.learn(news, asked, log.round - 1, self.links)
                if due := learner.believed.to_say().due:
                    yield due
            else:
                data = data_of_group(self.problem, group)
                learner = learner.attach(data)
                log = log.with_evaluations(data.X, data.totals, data.factors, data.rounds, data.noise_std)
        return log, learner


def offered(reports: Mapping[str, Report], known: Mapping[str, PackedOffer]) -> dict[str, PackedOffer]:
    """Offer of each agent.

    Args:
        reports: What agents said.
        known: What each offered in the report before.
    """
    offers = {name: report.offer for name, report in reports.items()}
    return {name: known[name] if isinstance(offer, int) else offer for name, offer in offers.items()}
