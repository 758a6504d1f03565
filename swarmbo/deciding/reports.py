"""What an agent in a field tells all others before a decision: what it measured, and where it can go now.

From these reports everybody has the same log and the same belief, as a team has them, and knows the same places to
choose from. Places are said in few bytes: as indices of the sites, which all know (``packed_places``). Where beliefs
are agents' own nobody says what came of a measurement: only that it was made, and where; and then agents talk, as their
way to fuse beliefs has it.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float

from swarmbo.belief.fusion import FusedBelief
from swarmbo.deciding.candidates import random_candidates
from swarmbo.deciding.field import FieldLearner
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.own_rows import OwnRow, OwnRows, Stop
from swarmbo.deciding.packed_places import packed, unpacked
from swarmbo.deciding.taking import noted, round_of, with_attached
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, News
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
    """

    candidates: tuple[tuple[float, ...], ...] | None = None
    price: float = 0.0
    position: tuple[float, ...] | None = None
    takes_part: bool = True


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
    """All that an agent says: candidates are packed."""

    readings: tuple[_Reading, ...]
    candidates: bytes | None
    price: float
    position: tuple[float, ...] | None
    takes_part: bool = True


class Told(NamedTuple):
    """A reading, and whose it is."""

    agent: str
    reading: _Reading


def readings_of(problem: Problem, agent: str, own: OwnRows) -> list[Told]:
    """What an agent measured, of what it was told.

    Args:
        problem: The field.
        agent: Which.
        own: What it was told.
    """
    rows: list[tuple[str | int, OwnRow]] = [*own.told.items(), *enumerate(own.attached)]
    return [Told(agent, _reading(problem, agent, of, row)) for of, row in rows if row.has_come]


def _reading(problem: Problem, agent: str, of: str | int, row: OwnRow) -> _Reading:
    stop = None
    if agent in row.factors:
        place = tuple(row.place[variable] for variable in problem.graph.variables_owned_by(agent))
        stop = Stop(place, row.factors[agent], row.noise.get(agent))
    return _Reading(of, row.order, stop, row.round, row.on_the_way, row.has_ended)


def in_order(told: Iterable[Told], attached: Sequence[OwnRow]) -> list[tuple[str | int, list[Told]]]:
    """What all agents measured, by query or call of ``attach``, in the order in which it was told.

    That is the mean of the orders in which agents were told of it; of equals a query that was asked before comes first.

    Args:
        told: By agents in the problem's order.
        attached: The rows of one of them; those of one call of ``attach``, for which the first stands, have one order.
    """
    orders, groups = [row.order for row in attached], dict[str | int, list[Told]]()
    for one in told:
        of = one.reading.of
        groups.setdefault(of if isinstance(of, str) else orders.index(orders[of]), []).append(one)

    def turn(item: tuple[str | int, list[Told]]) -> tuple[float, int, int, str]:
        of, group = item
        mean = float(np.mean([one.reading.order for one in group]))
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
            None if reading.stop is None else reading.stop.reading(agent),
            tuple(stop.reading(agent) for stop in reading.on_the_way),
        )
        for agent, reading in group
    }
    return news_of_readings(problem, found)


def data_of_group(problem: Problem, group: Iterable[Told]) -> Dataset:
    """Evaluations that were attached in one call, in the order of the call.

    Args:
        problem: The field.
        group: What agents said of them.
    """
    rows = sorted(group, key=lambda one: one.reading.of)
    n, k = len(rows), len(problem.channels)
    factors, noise = np.full((n, k), np.nan), np.full((n, 1 + k), np.nan)
    readings = [reading.stop.reading(agent) for agent, reading in rows if reading.stop is not None]  # all have one
    for row, reading in enumerate(readings):
        column = problem.channels.index(reading.agent)
        factors[row, column], noise[row, 1 + column] = reading.outcome, reading.noise_std
    X = np.array([problem.joint({reading.agent: reading.place}) for reading in readings])
    rounds = np.array([reading.round for _, reading in rows], dtype=float)
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
    """

    problem: Problem
    agent: str
    own: OwnRows
    offer: Offer
    links: "nx.Graph[str] | None" = None
    keeps: bool = False
    sites: Float[np.ndarray, "s d"] | None = None

    def said(self) -> bytes:
        """What this agent has to say."""
        readings, offer, d = [one.reading for one in self._readings()], self.offer, self.problem.box.n_dims
        if self.keeps:
            readings = [reading.without_outcome() for reading in readings if isinstance(reading.of, str)]
        places = offer.candidates
        report = Report(
            tuple(readings),
            None if places is None else packed(np.array(places).reshape(-1, d), self.sites),
            offer.price,
            offer.position,
            offer.takes_part,
        )
        return msgspec.msgpack.encode(report)

    def _readings(self) -> list[Told]:
        """What this agent measured."""
        return readings_of(self.problem, self.agent, self.own)

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
        said = {name: [Told(name, reading) for reading in report.readings] for name, report in reports.items()}
        said |= {self.agent: self._readings()}
        told = [one for name in self.problem.agents for one in said[name]]
        log, learner = yield from self._learned(log, learner, told)
        return log, learner, {name: self._offered(report) for name, report in reports.items()}

    def _learned(self, log: Logbook, learner: FieldLearner, told: list[Told]) -> Learning[tuple[Logbook, FieldLearner]]:
        """The log and the learner with all that came, one evaluation after the other."""
        for of, group in in_order(told, self.own.attached):
            if isinstance(of, str):
                has_ended = any(one.reading.has_ended for one in group)
                news, asked = news_of_group(self.problem, group), round_of(log, of or None, is_all=has_ended)
                log = noted(log, of or None, news, is_all=has_ended)
                learner = learner.learn(news, asked, log.round - 1, self.links)
                if isinstance(learner.belief, FusedBelief):
                    yield learner.belief
            else:
                log, learner = with_attached(log, learner, data_of_group(self.problem, group))
        return log, learner

    def _offered(self, report: Report) -> Offer:
        places = None
        if report.candidates is not None:
            found = unpacked(report.candidates, self.problem.box.n_dims, self.sites)
            places = tuple(tuple(place) for place in found.tolist())
        return Offer(places, report.price, report.position, report.takes_part)


def offer_of(
    agent: str,
    offers: Offers,
    problem: Problem,
    seed: int,
    round_number: int,
    position: "Float[np.ndarray, ' d'] | None",
) -> Offer:
    """Of what a world in a field says, what is one agent's own.

    Args:
        agent: Which.
        offers: What a world says.
        problem: The field.
        seed: Of all agents.
        round_number: The coming round.
        position: Where the agent measured last, if that is known.
    """
    box, places = problem.box, None
    if offers.candidates is not None:
        places = np.asarray(offers.candidates.get(agent, ()), dtype=float).reshape(-1, box.n_dims)
    else:
        own = offers.boxes.get(agent, box)
        is_box = (own.low == box.low).all() and (own.high == box.high).all()
        if not is_box:
            places = random_candidates({agent: own}, seed, round_number, problem)[agent]
    stands = offers.standpoints.get(agent)
    return Offer(
        None if places is None else tuple(map(tuple, places.tolist())),
        float(offers.prices.get(agent, 0.0)),
        None if stands is None else tuple(stands.tolist()),
        offers.agents is None or agent in offers.agents,
    )


def offers_of(common: Offers, given: Mapping[str, Offer], problem: Problem, seed: int, round_number: int) -> Offers:
    """What agents said of where they can go, as a world says it to a team.

    Args:
        common: What all know of the world.
        given: By agent.
        problem: The field.
        seed: Of all agents.
        round_number: The coming round; who does not say where it can go draws places anew in each.
    """
    present = {name: offer for name, offer in given.items() if offer.takes_part}
    candidates: dict[str, np.ndarray] | None = None
    if any(offer.candidates is not None for offer in present.values()):
        anywhere = {name: problem.box for name, offer in present.items() if offer.candidates is None}
        candidates = random_candidates(anywhere, seed, round_number, problem)
        for name, offer in present.items():
            if offer.candidates is not None:
                candidates[name] = np.array(offer.candidates).reshape(-1, problem.box.n_dims)
    return replace(
        common,
        agents=tuple(present),
        candidates=candidates,
        prices={name: offer.price for name, offer in present.items()},
        standpoints={name: np.array(offer.position) for name, offer in given.items() if offer.position is not None},
    )
