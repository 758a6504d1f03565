"""What an agent in a field tells all others before a decision: what it measured, and where it can go now.

From these reports everybody has the same log and the same belief, as a team has them, and knows the same places to
choose from. Where beliefs are agents' own nobody says what came of a measurement: only that it was made, and where; and
then agents talk, as their way to fuse beliefs has it.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np

from swarmbo.agent.rows import UNASKED, OwnRow, OwnRows, Stop
from swarmbo.agent.ways import SaidWays, Ways
from swarmbo.belief.fusion import FusedBelief
from swarmbo.data import Dataset, News
from swarmbo.deciding.candidates import random_candidates
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.taking import taken, with_attached
from swarmbo.logbook import Logbook
from swarmbo.problem import Problem
from swarmbo.worlds import Offers
from swarmbo.worlds.fields import news_of_readings

Out = TypeVar("Out")
Learning = Generator[FusedBelief, None, Out]  # yields beliefs that have something to say


class Offer(msgspec.Struct, frozen=True):
    """Where one agent can go in a round, and on what terms.

    Args:
        candidates: Places (k, d), physical; None: anywhere in the box.
        price: What a measurement costs it, in the unit of the outcome; one that pays nothing does not decline.
        position: Where it stands (d,), if not where it measured last.
        takes_part: Whether it is there at all: who is gone is not among those who choose.
        on_the_way: For each candidate where it measures before it is there; None where it does not.
    """

    candidates: tuple[tuple[float, ...], ...] | None = None
    price: float = 0.0
    position: tuple[float, ...] | None = None
    takes_part: bool = True
    on_the_way: Ways | None = None


class _Reading(msgspec.Struct, frozen=True, array_like=True):
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

    def without_outcome(self) -> "_Reading":
        """That there was one, and where."""
        stop = None if self.stop is None else self.stop.without_outcome()
        stops = tuple(stop.without_outcome() for stop in self.on_the_way)
        return msgspec.structs.replace(self, stop=stop, on_the_way=stops)


class Report(msgspec.Struct, frozen=True, array_like=True):
    """All that an agent says: numbers of candidates as little-endian float64."""

    readings: tuple[_Reading, ...]
    candidates: bytes | None
    price: float
    position: tuple[float, ...] | None
    takes_part: bool = True
    on_the_way: Ways | None = None


class _Told(NamedTuple):
    """A reading, and whose it is."""

    agent: str
    reading: _Reading


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
    """

    problem: Problem
    agent: str
    own: OwnRows
    offer: Offer
    links: "nx.Graph[str] | None" = None
    keeps: bool = False

    def said(self) -> bytes:
        """What this agent has to say."""
        readings, offer, places = self._readings(), self.offer, self.offer.candidates
        if self.keeps:
            readings = tuple(reading.without_outcome() for reading in readings if isinstance(reading.of, str))
        packed = None if places is None else np.array(places, dtype="<f8").tobytes()
        report = Report(readings, packed, offer.price, offer.position, offer.takes_part, offer.on_the_way)
        return msgspec.msgpack.encode(report)

    def _readings(self) -> tuple[_Reading, ...]:
        """What this agent measured."""
        rows: list[tuple[str | int, OwnRow]] = [*self.own.told.items(), *enumerate(self.own.attached)]
        return tuple(self._reading(of, row) for of, row in rows if row.has_come)

    def _reading(self, of: str | int, row: OwnRow) -> _Reading:
        stop = None
        if self.agent in row.factors:
            place = tuple(row.place[variable] for variable in self.problem.graph.variables_owned_by(self.agent))
            stop = Stop(place, row.factors[self.agent], row.noise.get(self.agent))
        return _Reading(of, row.order, stop, row.round, row.on_the_way, row.has_ended)

    def merged(
        self, log: Logbook, learner: FieldLearner, heard: Mapping[str, bytes]
    ) -> Learning[tuple[Logbook, FieldLearner, Mapping[str, Offer]]]:
        """What all know now: measurements in the order in which they were told, and where each agent can go.

        After each of them agents with beliefs of their own have something to say: these are yielded.

        Args:
            log: What was known before.
            learner: What was made of it.
            heard: What each agent said, this one included.
        """
        reports = {name: msgspec.msgpack.decode(said, type=Report) for name, said in heard.items()}
        said = {name: report.readings for name, report in reports.items()} | {self.agent: self._readings()}
        told = [_Told(name, reading) for name in self.problem.agents for reading in said[name]]
        log, learner = yield from self._learned(log, learner, told)
        return log, learner, {name: self._offered(report) for name, report in reports.items()}

    def _learned(
        self, log: Logbook, learner: FieldLearner, told: list[_Told]
    ) -> Learning[tuple[Logbook, FieldLearner]]:
        """The log and the learner with all that came, one evaluation after the other.

        What was attached in one call has one place in the order, and is learned at once, as a team does.
        """
        orders = [row.order for row in self.own.attached]
        groups: dict[str | int, list[_Told]] = {UNASKED: [], **{name: [] for name in log.open}}
        for one in told:  # a query's readings, or those of one call of attach, which its first row stands for
            of = one.reading.of
            groups.setdefault(of if isinstance(of, str) else orders.index(orders[of]), []).append(one)
        came = [(np.mean([one.reading.order for one in group]), of, group) for of, group in groups.items() if group]
        for _, of, group in sorted(came, key=lambda item: item[0]):  # sorted() is stable
            if isinstance(of, str):
                has_ended = any(one.reading.has_ended for one in group)
                log, learner, _ = taken(log, learner, of or None, self._news(group), self.links, is_all=has_ended)
                if isinstance(learner.belief, FusedBelief):
                    yield learner.belief
            else:
                log, learner = with_attached(log, learner, self._data(group))
        return log, learner

    def _news(self, group: list[_Told]) -> News:
        """Of one query, or of what nobody asked for."""
        found = {
            agent: (
                None if reading.stop is None else reading.stop.reading(agent),
                tuple(stop.reading(agent) for stop in reading.on_the_way),
            )
            for agent, reading in group
        }
        return news_of_readings(self.problem, found)

    def _data(self, group: list[_Told]) -> Dataset:
        """Evaluations that were attached in one call, in the order of the call."""
        problem, rows = self.problem, sorted(group, key=lambda one: one.reading.of)
        n, k = len(rows), len(problem.channels)
        factors, noise = np.full((n, k), np.nan), np.full((n, 1 + k), np.nan)
        readings = [reading.stop.reading(agent) for agent, reading in rows if reading.stop is not None]  # all have one
        for row, reading in enumerate(readings):
            column = problem.channels.index(reading.agent)
            factors[row, column], noise[row, 1 + column] = reading.outcome, reading.noise_std
        X = np.array([problem.joint({reading.agent: reading.place}) for reading in readings])
        rounds = np.array([reading.round for _, reading in rows], dtype=float)
        return Dataset(X, np.full(n, np.nan), factors, None if np.isnan(rounds).any() else rounds, noise_std=noise)

    def _offered(self, report: Report) -> Offer:
        places = None
        if report.candidates is not None:
            numbers = np.frombuffer(report.candidates, dtype="<f8").reshape(-1, self.problem.box.n_dims)
            places = tuple(tuple(place) for place in numbers.tolist())
        return Offer(places, report.price, report.position, report.takes_part, report.on_the_way)


def offers_of(
    common: Offers, given: Mapping[str, Offer], problem: Problem, seed: int, round_number: int, own: str = ""
) -> Offers:
    """What agents said of where they can go, as a world says it to a team.

    Args:
        common: What all know of the world, and where this agent measures on its ways, if it knows.
        given: By agent.
        problem: The field.
        seed: Of all agents.
        round_number: The coming round; who does not say where it can go draws places anew in each.
        own: Whose side this is.
    """
    present = {name: offer for name, offer in given.items() if offer.takes_part}
    candidates: dict[str, np.ndarray] | None = None
    if any(offer.candidates is not None for offer in present.values()):
        anywhere = {name: problem.box for name, offer in present.items() if offer.candidates is None}
        candidates = random_candidates(anywhere, seed, round_number, problem)
        for name, offer in present.items():
            if offer.candidates is not None:
                candidates[name] = np.array(offer.candidates).reshape(-1, problem.box.n_dims)
    ways = {
        name: (offer.candidates, offer.on_the_way)
        for name, offer in present.items()
        if offer.candidates is not None and offer.on_the_way is not None
    }
    return replace(
        common,
        agents=tuple(present),
        on_the_way=SaidWays(ways, own, common.on_the_way) if ways else None,
        candidates=candidates,
        prices={name: offer.price for name, offer in present.items()},
        standpoints={name: np.array(offer.position) for name, offer in given.items() if offer.position is not None},
    )
