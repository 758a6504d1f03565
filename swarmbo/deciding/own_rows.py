"""Unreported data of an agent, and the merging of all agents' data into each agent's logbook.

Before a decision agents add up numbers for every pending or attached evaluation: the new outcomes, and the values of
variables. Every number has one author, and the other agents add 0, so the sum is exact. Outcomes per factor stay with
the factor's owner: other agents only learn that they are known. Totals, with their noise, are sent.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import UNSET, UnsetType

from swarmbo.boundary.values import LARGEST_OUTCOME
from swarmbo.deciding.logbook import Logbook
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, Measurement, News, known

PRIVATE_OUTCOME = 0.0  # placeholder in the logbook for another agent's private outcome; nothing depends on its value

UNREQUESTED = ""  # id of an unrequested measurement in a field, such as at the start

PENDING, ARRIVED, FAILED = 0.0, 1.0, 2.0
UNKNOWN_NOISE = -1.0  # stands for the unknown noise of an arrived outcome
_BETWEEN_CALLS = 2**20  # number of orders between two calls of attach


class OwnRow(msgspec.Struct, frozen=True):
    """Data of an agent about one evaluation: outcomes (None: failed), noise if known, and values of own variables.

    Args:
        order: Number of calls of attach since the last report, times 2**20, plus that of the agent's outcomes since the
            last call. The first row of a call has the last order before the next multiple, so it follows the outcomes
            of all agents. Two outcomes, a call and another outcome have the orders 0, 1, 2**20 - 1 and 2**20.
        place: Codes of own variables.
        round: Round, if the evaluation was attached.
        on_the_way: In a field, measurements en route.
        has_ended: In a field, True if no agent will add to the query.
    """

    order: int
    factors: dict[str, float | None] = {}
    total: float | UnsetType | None = UNSET
    place: dict[str, float] = {}
    round: float | None = None
    noise: dict[str, float] = {}
    total_noise: float | None = None
    on_the_way: tuple[Measurement, ...] = ()
    has_ended: bool = False

    @classmethod
    def measured(
        cls,
        order: int,
        problem: Problem,
        agent: str,
        measurement: Measurement | None,
        on_the_way: tuple[Measurement, ...] = (),
        *,
        has_ended: bool = False,
    ) -> "OwnRow":
        """Row of an agent's measurement in a field (None: nothing) and of those en route."""
        if measurement is None:
            return cls(order, on_the_way=on_the_way, has_ended=has_ended)
        outcome, std = measurement.outcome, measurement.noise_std
        place = dict(zip(problem.graph.variables_owned_by(agent), measurement.place, strict=True))
        noise = {} if std is None or outcome is None else {agent: std}
        return cls(order, {agent: outcome}, place=place, noise=noise, on_the_way=on_the_way, has_ended=has_ended)

    @classmethod
    def of_news(
        cls, order: int, news: News, factors: Sequence[str], place: Mapping[str, float], round: float | None = None
    ) -> "OwnRow":
        """Row of an agent's own factors of a function; with the total, if the news has one."""
        return cls(
            order,
            {factor: known(news.factors[factor]) for factor in factors if factor in news.factors},
            UNSET if news.total is None else known(news.total),
            dict(place),
            round,
            noise={factor: news.noise[factor] for factor in factors if factor in news.noise},
            total_noise=None if news.total is None else known(news.total_noise),
        )

    def measurement(self, variables: Iterable[str]) -> Measurement | None:
        """Own measurement in a field, with coordinates in the order of the agent's variables; None if there is none."""
        for agent, outcome in self.factors.items():
            place = tuple(self.place[variable] for variable in variables)
            return Measurement(place, outcome, self.noise.get(agent))
        return None

    def masked(self, *, shows_failures: bool = False) -> "OwnRow":
        """Row without outcomes: it shows which are known, and where; if ``shows_failures``, also which failed."""
        factors = dict.fromkeys(self.factors, PRIVATE_OUTCOME)
        if shows_failures:
            factors |= {factor: None for factor, outcome in self.factors.items() if outcome is None}
        stops = tuple(Measurement(stop.place, PRIVATE_OUTCOME) for stop in self.on_the_way)
        return msgspec.structs.replace(self, factors=factors, noise={}, on_the_way=stops)

    @property
    def has_news(self) -> bool:
        """True if it has an outcome, a failure, or the end of the query."""
        return bool(self.factors) or self.total is not UNSET or bool(self.on_the_way) or self.has_ended


class OwnRows(msgspec.Struct, frozen=True, rename={"by_query": "told"}):
    """Data of an agent since its last report: by query, and unrequested evaluations."""

    by_query: dict[str, OwnRow] = {}
    attached: tuple[OwnRow, ...] = ()

    @property
    def next_order(self) -> int:
        """Order of the next outcome. All agents get the same calls of attach, which come between their outcomes."""
        orders = [row.order for row in self.by_query.values() if row.has_news]
        return max([*orders, *(row.order for row in self.attached[-1:])], default=-1) + 1

    @property
    def attach_order(self) -> int:
        """Order of rows that are attached now: after the outcomes of all agents so far."""
        return (self.next_order // _BETWEEN_CALLS + 1) * _BETWEEN_CALLS - 1

    def with_row(self, query_id: str, row: OwnRow) -> "OwnRows":
        """Add outcomes of a query, some of which may be known already."""
        if (before := self.by_query.get(query_id)) is not None:
            row = OwnRow(
                # the first outcome decides the order, as in a team's history
                order=before.order if before.has_news else row.order,
                factors=before.factors | row.factors,
                total=before.total if row.total is UNSET else row.total,
                place=before.place | row.place,
                noise=before.noise | row.noise,
                total_noise=before.total_noise if row.total is UNSET else row.total_noise,
                on_the_way=before.on_the_way + row.on_the_way,
                has_ended=before.has_ended or row.has_ended,
            )
        return OwnRows({**self.by_query, query_id: row}, self.attached)

    def with_attached(self, rows: Sequence[OwnRow]) -> "OwnRows":
        """Add attached evaluations."""
        return OwnRows(self.by_query, (*self.attached, *rows))

    def then(self, later: "OwnRows") -> "OwnRows":
        """Add later data, in the same order; orders may have gaps."""
        n_calls, n_own = divmod(self.next_order, _BETWEEN_CALLS)

        def renumbered(row: OwnRow) -> OwnRow:
            n_before = n_own if row.order < OwnRows().attach_order else 0  # a call of attach starts the count again
            return msgspec.structs.replace(row, order=n_calls * _BETWEEN_CALLS + n_before + row.order)

        merged = self
        for query_id, row in later.by_query.items():
            merged = merged.with_row(query_id, renumbered(row))
        return merged.with_attached([renumbered(row) for row in later.attached])

    def row(self, problem: Problem, agent: str, news: News, *, has_ended: bool) -> OwnRow:
        """Row of an agent in a field from a round's news."""
        measurement = news.measurement(agent, problem) if agent in news.factors else None
        stops = tuple(stop for name, stop in news.on_the_way if name == agent)
        return OwnRow.measured(self.next_order, problem, agent, measurement, stops, has_ended=has_ended)

    def with_data(self, problem: Problem, agent: str, data: Dataset, present: int, *, fades: bool) -> "OwnRows":
        """Add a row per unrequested measurement in a field, empty if another agent's; default round: ``present``."""
        order, variables = self.attach_order, problem.graph.variables_owned_by(agent)
        rounds = (np.full(len(data), float(present)) if data.rounds is None else data.rounds).tolist()
        empty_rows = {round: OwnRow(order, round=round if fades else None) for round in set(rounds)}
        rows = [empty_rows[round] for round in rounds]
        column, places = problem.graph.place_of[agent], data.X[:, problem.columns(agent)]
        outcomes, stds = data.factors[:, column], data.known_noise[:, 1 + column]
        for n in np.flatnonzero(~np.isnan(places).any(axis=1)):
            place = dict(zip(variables, places[n].tolist(), strict=True))
            noise = {} if np.isnan(stds[n]) else {agent: float(stds[n])}
            rows[n] = OwnRow(order, {agent: known(outcomes[n])}, place=place, round=rows[n].round, noise=noise)
        return self.with_attached(rows)


def measurements_by_round(rows: Mapping[str, OwnRow], variables: Sequence[str]) -> list[tuple[int, list[Measurement]]]:
    """Rounds with the measurements of the agent that owns these variables in a field, in the order of arrival."""
    by_query = {name: [*filter(None, [row.measurement(variables)]), *row.on_the_way] for name, row in rows.items()}
    return [(int(name[1:]), measured) for name, measured in by_query.items()]  # a query has the number of its round


class Layout(NamedTuple):
    """Columns of a row of numbers, by their meaning."""

    status: slice
    values: slice
    noise: slice
    place: slice
    order: int
    n_reporters: int
    width: int

    @classmethod
    def of(cls, problem: Problem) -> "Layout":
        """Layout for a function."""
        k, n = len(problem.channels) + 1, problem.domain.n_dims  # the total comes last
        n_shared = k if problem.shares_outcomes else 0
        values, noise = slice(k, k + n_shared), slice(k + n_shared, k + 2 * n_shared)
        place = slice(noise.stop, noise.stop + n)
        return cls(slice(0, k), values, noise, place, place.stop, place.stop + 1, place.stop + 2)


def is_place(place: Sequence[float], problem: Problem) -> bool:
    """True if coordinates are in or near the box of a field."""
    return len(place) == problem.box.n_dims and bool(problem.box.is_near(np.array(place, dtype=float)))


def is_admissible(measured: Measurement, problem: Problem) -> bool:
    """True if an agent in the field can have made a measurement."""
    is_outcome, std = measured.outcome is None or abs(measured.outcome) <= LARGEST_OUTCOME, measured.noise_std
    return is_outcome and (std is None or 0.0 <= std < np.inf) and is_place(measured.place, problem)


@dataclass(frozen=True, eq=False)
class OutcomeExchange:
    """One agent's side of an exchange of outcomes of a function: its log before, and its own data since."""

    agent: str
    log: Logbook
    own: OwnRows

    def numbers(self) -> Float[np.ndarray, "rows w"]:
        """Numbers of this agent: a row for each pending query, then one for each attached evaluation."""
        problem, layout = self.log.problem, Layout.of(self.log.problem)
        variables = problem.graph.variables
        own_variables = set(problem.graph.variables_owned_by(self.agent))
        rows = [(query.place, self.own.by_query.get(name, OwnRow(0))) for name, query in self.log.open.items()]
        rows += [(np.zeros(problem.domain.n_dims), row) for row in self.own.attached]
        out = np.zeros((len(rows), layout.width))
        for line, (requested, row) in zip(out, rows, strict=True):
            outcomes = {problem.graph.place_of[c]: (y, row.noise.get(c)) for c, y in row.factors.items()}
            if row.total is not UNSET:
                outcomes[len(problem.channels)] = row.total, row.total_noise
            for i, (outcome, noise) in outcomes.items():
                line[layout.status][i] = FAILED if outcome is None else ARRIVED
                if problem.shares_outcomes and outcome is not None:
                    line[layout.values][i], line[layout.noise][i] = outcome, UNKNOWN_NOISE if noise is None else noise
            # the owner of a variable states its value for all queries, so the sum has each value once
            points = zip(variables, requested.tolist(), strict=True)
            line[layout.place] = [row.place.get(x, value) if x in own_variables else 0.0 for x, value in points]
            # agents without an outcome do not count for the order
            if outcomes or row.round is not None:
                line[layout.order], line[layout.n_reporters] = row.order, 1.0
        return out

    def merged(self, sums: Float[np.ndarray, "rows w"]) -> Logbook:
        """Log with all agents' data from the sums, in the order in which evaluations were told."""
        layout, queries, log = Layout.of(self.log.problem), list(self.log.open), self.log
        # each agent counts its own outcomes only. The mean is an order that all share; ties keep that of queries
        order = sums[:, layout.order] / np.maximum(sums[:, layout.n_reporters], 1.0)
        for i in np.argsort(order, kind="stable"):
            place = sums[i, layout.place].copy()
            if i >= len(queries):
                row = self.own.attached[i - len(queries)]
                news = self._news(sums[i], place, row)
                log = log.with_evaluations(news.evaluation(self.log.problem.channels, row.round))
                continue
            query_id = queries[i]
            news = self._news(sums[i], place, self.own.by_query.get(query_id, OwnRow(0)))
            if news.factors or (query_id in log.open and (place != log.open[query_id].place).any()):
                log = log.with_factors(query_id, news.factors, point=place, noise_std=news.noise)
            if news.total is not None and query_id in log.open:
                log = log.with_total(query_id, news.total, place, news.total_noise)
        return log

    def _news(self, line: Float[np.ndarray, " w"], place: Float[np.ndarray, " n"], own: OwnRow) -> News:
        """News of an evaluation, with outcomes as far as this agent knows them."""
        layout, channels = Layout.of(self.log.problem), self.log.problem.channels
        arrived = np.flatnonzero(line[layout.status] != PENDING).tolist()
        pairs = {column: self._outcome_of(line, column, own) for column in arrived}
        total, total_noise = pairs.pop(len(channels), (None, np.nan))
        outcomes = {channels[column]: outcome for column, (outcome, _) in pairs.items()}
        noise = {channels[column]: std for column, (_, std) in pairs.items()}
        return News(place, total, outcomes, total_noise, noise)

    def _outcome_of(self, line: Float[np.ndarray, " w"], column: int, own: OwnRow) -> tuple[float, float]:
        """Outcome and its noise as far as this agent knows them; NaN for a failed outcome, or unknown noise."""
        layout = Layout.of(self.log.problem)
        if line[layout.status][column] == FAILED:
            return np.nan, np.nan
        if self.log.problem.shares_outcomes:
            noise = float(line[layout.noise][column])
            return float(line[layout.values][column]), np.nan if noise == UNKNOWN_NOISE else noise
        channel = self.log.problem.channels[column]
        y = own.factors.get(channel)
        return PRIVATE_OUTCOME if y is None else y, own.noise.get(channel, np.nan)
