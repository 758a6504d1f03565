"""Requested queries of a team, pending outcomes, and results."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import msgspec
import numpy as np
from jaxtyping import Bool, Float

from swarmbo.boundary.rng import stream
from swarmbo.errors import ConflictError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, News
from swarmbo.records import Query, SolveReport

MOST_QUERIES = 10_000  # of one call of ask


@dataclass(frozen=True, eq=False)
class Choice:
    """Decision of a team for its next evaluation, with expectations: of the sum, or of each agent's measurement.

    The ``point`` (n,) is physical, NaN for variables of agents without a part. ``chosen`` is False in the initial
    design.
    """

    point: Float[np.ndarray, " n"]
    report: SolveReport
    mean: float | None = None
    std: float | None = None
    means: Mapping[str, float] = field(default_factory=dict[str, float])
    stds: Mapping[str, float] = field(default_factory=dict[str, float])
    chosen: bool = True

    def query(self, query_id: str, problem: Problem) -> Query:
        """Query of the decision."""
        point, points = problem.named(self.point), problem.by_agent(self.point)
        return Query(query_id, point, points, self.mean, self.std, dict(self.means), dict(self.stds))


_COLUMNS: Mapping[str, Any] = {  # columns of a saved history, and their types
    **dict.fromkeys(("X", "totals", "factors", "rounds", "noise_std", "measured"), float),
    **dict.fromkeys(("attached", "chosen", "taken"), bool),
    **dict.fromkeys(("basis", "query"), np.int64),
}
_Count = Annotated[int, msgspec.Meta(ge=0)]
_DIGITS = 18  # most digits of a query's number, an integer of 64 bits


class _SavedQuery(msgspec.Struct, frozen=True, array_like=True):
    """An ``OpenQuery`` in a state, without its point."""

    awaited: tuple[str, ...]
    row: _Count | None
    round: _Count
    chosen: bool
    basis: _Count
    actual_point: tuple[float, ...] | None = None


@dataclass(frozen=True, eq=False)
class OpenQuery:
    """A pending joint point, and the channels for which it waits.

    Once a part of its outcome is known, it has a ``row`` in the history. ``chosen`` is False in the initial design;
    ``basis`` counts the evaluations known when it was requested; ``actual_point`` was told before any outcome.
    """

    point: Float[np.ndarray, " n"]
    awaited: tuple[str, ...]
    row: int | None = None
    round: int = 1
    chosen: bool = True
    basis: int = 0
    actual_point: Float[np.ndarray, " n"] | None = None

    @property
    def place(self) -> Float[np.ndarray, " n"]:
        """Actual point if it was told, otherwise the requested point."""
        return self.point if self.actual_point is None else self.actual_point

    def to_plain(self) -> list[Any]:
        """Plain data in the order of ``_SavedQuery``."""
        actual_point = None if self.actual_point is None else self.actual_point.tolist()
        return [list(self.awaited), self.row, self.round, self.chosen, self.basis, actual_point]


@dataclass(frozen=True, eq=False)
class Logbook:
    """Immutable history of a team and its open queries; changes return a new logbook.

    Args:
        history: Evaluations, in the order of their first outcome.
        open: Queries that wait for outcomes, by id, in the order of requests.
        n_asked: Number of queries so far.
        n_before_episode: In a field, number of queries before this episode.
        failures: Number of failed outcomes.
    """

    problem: Problem
    history: Dataset
    open: Mapping[str, OpenQuery]
    n_asked: int = 0
    n_before_episode: int = 0
    failures: int = 0

    @classmethod
    def empty(cls, problem: Problem) -> "Logbook":
        """Empty logbook."""
        X, none, nothing = np.zeros((0, problem.domain.n_dims)), np.zeros(0), np.zeros((0, len(problem.channels)))
        data = Dataset(X, none, nothing, none)
        return cls(problem, _complete(data, problem, 0, attached=False, chosen=False), {})

    @property
    def round(self) -> int:
        """Number of the coming round, from 1. Every query is a round; in a field, every query of this episode."""
        return self.n_asked - self.n_before_episode + 1

    def seed_of_episode(self, seed: int) -> int:
        """Seed of random streams that are named by round: the team's seed, or one drawn from it in later episodes."""
        begun = self.n_before_episode
        return int(stream(seed, "episode", asked=begun).integers(2**32)) if begun else seed

    @property
    def pending(self) -> Float[np.ndarray, "p n"]:
        """Pending points without any outcome; points with a part of their outcomes are in the history."""
        return self._stacked([query.place for query in self.open.values() if query.row is None])

    @property
    def pending_rounds(self) -> Float[np.ndarray, " p"]:
        """Rounds of the requests of ``pending``."""
        return np.array([query.round for query in self.open.values() if query.row is None], dtype=float)

    @property
    def n_batched(self) -> int:
        """Number of open queries in the batch of the next query: those requested since the history last grew."""
        return sum(query.basis == len(self.history) for query in self.open.values())

    @property
    def outstanding_points(self) -> Float[np.ndarray, "q n"]:
        """Points with an outstanding outcome."""
        return self._stacked([query.place for query in self.open.values()])

    @property
    def points(self) -> Float[np.ndarray, "k n"]:
        """All evaluated and pending points."""
        return np.concatenate([self.history.X, self.pending])

    def successes(self, channel: str) -> Bool[np.ndarray, " s"]:
        """Mask of successes among a channel's own outcomes, in the order of the history; attached ones are left out."""
        data, column = self.history, self.problem.graph.place_of[channel]
        succeeded = ~np.isnan(data.factors[:, column])
        return succeeded[~data.attached & (succeeded | data.failed[:, column])]

    def next_ids(self, count: int = 1) -> list[str]:
        """Ids of the coming queries."""
        return [_query_id(self.n_asked + i) for i in range(1, count + 1)]

    def with_query(self, point: Float[np.ndarray, " n"], *, chosen: bool = True) -> tuple["Logbook", str]:
        """Request a point; return the new logbook, and the query's id. Without participants it waits for nothing."""
        query_id, awaited = self.next_ids()[0], self.problem.channels_in(point)
        query = OpenQuery(point.copy(), awaited, round=self.round, chosen=chosen, basis=len(self.history))
        still_open = {**self.open, query_id: query} if awaited else self.open
        return replace(self, open=still_open, n_asked=self.n_asked + 1), query_id

    def without(self, query_ids: Iterable[str]) -> "Logbook":
        """Give up queries; known outcomes stay, and others do not count as failed."""
        # an outcome that never comes is no failure: mark its channel as not taking part
        history, taken = self.history, self.history.taken.copy()
        given_up = {key: self.open[key] for key in query_ids if key in self.open}
        for query in given_up.values():
            if query.row is not None:
                taken[query.row, self._channel_mask(query.awaited)] = False
        return replace(self, history=replace(history, taken=taken))._closed(given_up)

    def in_new_episode(self) -> "Logbook":
        """Give up all queries; in a field, count rounds from 1 again."""
        n_before = self.n_asked if self.problem.is_field else self.n_before_episode
        return replace(self.without(self.open), n_before_episode=n_before)

    def query(self, query_id: str, channels: Collection[str] = ()) -> OpenQuery:
        """Find an open query that waits for the channels."""
        if query_id not in self.open:
            raise self._not_pending(query_id)
        query = self.requested_query(query_id, channels)
        awaited = frozenset(query.awaited)
        if again := [channel for channel in channels if channel not in awaited]:
            raise UnknownQueryError(f"query {query_id!r}: got {again} again; waiting for {list(query.awaited)}")
        return query

    def _not_pending(self, query_id: str) -> UnknownQueryError:
        waits = f"waiting for outcomes: {list(self.open)}; if it was given up, attach its outcome"
        return UnknownQueryError(f"query {query_id!r} is not pending; {waits}")

    def requested_query(self, query_id: str, channels: Iterable[str] = ()) -> OpenQuery:
        """Find an open or told query that includes the channels; a told query awaits no outcome and has a row."""
        if query_id in self.open:
            query = self.open[query_id]
        else:
            data, number = self.history, _query_number(query_id)
            row = next(iter(np.flatnonzero(data.query == number).tolist()), None) if number else None
            if row is None:
                raise self._not_pending(query_id)
            query = OpenQuery(data.X[row], (), row)
        asked = set(self.problem.channels_in(query.point))
        if strangers := [channel for channel in channels if channel not in asked]:
            total = " or the total" * (not self.problem.is_field and self.problem.outcomes == "total")
            raise UnknownQueryError(f"query {query_id!r}: got {strangers}; wanted some of {sorted(asked)}{total}")
        return query

    def with_total(
        self, query_id: str, total: float, point: Float[np.ndarray, " n"] | None = None, noise_std: float = np.nan
    ) -> "Logbook":
        """Close a query with its total, NaN if failed; ``point`` is the actual point, and a noise of NaN is unknown."""
        row, history = self._row_of(query_id, self.query(query_id), point)
        totals, noise = history.totals.copy(), history.known_noise
        totals[row], noise[row, 0] = total, noise_std
        history = replace(history, totals=totals, noise_std=noise)
        return replace(self, history=history, failures=self.failures + int(np.isnan(total)))._closed([query_id])

    def with_factors(
        self,
        query_id: str,
        outcomes: Mapping[str, float],
        *,
        point: Float[np.ndarray, " n"] | None = None,
        noise_std: Mapping[str, float] | None = None,
    ) -> "Logbook":
        """Record outcomes of some channels, NaN if failed; the query stays open until all are known.

        ``point`` is the actual point, NaN for variables at their requested values. Variables of channels with earlier
        outcomes stay unchanged. Without any outcome so far, only the point is noted.
        """
        query = self.query(query_id, outcomes)
        if not outcomes and query.row is None:
            return replace(self, open={**self.open, query_id: replace(query, actual_point=point)})
        row, history = self._row_of(query_id, query, point)
        factors, noise, place = history.factors.copy(), history.known_noise, self.problem.graph.place_of
        for channel, outcome in outcomes.items():
            column = place[channel]
            factors[row, column], noise[row, 1 + column] = outcome, (noise_std or {}).get(channel, np.nan)
        history = replace(history, factors=factors, noise_std=noise)
        still_awaited = tuple(channel for channel in query.awaited if channel not in outcomes)
        failures = sum(bool(np.isnan(outcome)) for outcome in outcomes.values())
        log = replace(self, history=self._summed(history), failures=self.failures + failures)
        if not still_awaited:
            return log._closed([query_id])
        known = replace(query, point=history.X[row], awaited=still_awaited, row=row, actual_point=None)
        return log._with_open({**log.open, query_id: known})

    def with_quantities(self, query_id: str, quantities: Mapping[str, float]) -> "Logbook":
        """Record measured quantities of a told query."""
        row = self.requested_query(query_id).row
        if row is None or self.history.measured is None:
            raise UnknownQueryError(f"query {query_id!r}: got constraints without an outcome; tell both")
        measured = self.history.measured.copy()
        for name, value in quantities.items():
            known = measured[row, column := list(self.problem.ranges).index(name)]
            if not (np.isnan(known) or known == value):
                raise ConflictError(f"query {query_id!r}: got {name!r} {value}; recorded before: {known}")
            measured[row, column] = value
        is_known = np.array_equal(measured, self.history.measured, equal_nan=True)
        return self if is_known else replace(self, history=replace(self.history, measured=measured))

    def with_evaluations(self, data: Dataset, *, attached: bool = True) -> "Logbook":
        """Add evaluations without a query; NaN for unknown outcomes and for agents without a part.

        The default round is that of the last query. In a user's data (``attached``), a row without any outcome is one
        failure. In an environment's data, each agent that takes part and has no outcome failed.
        """
        rounds = np.full(len(data), float(self.round - 1)) if data.rounds is None else data.rounds
        data = replace(data, rounds=rounds)
        added = _complete(data, self.problem, len(self.history), attached=attached, chosen=False)
        unknown = (np.isnan(data.totals) & np.isnan(data.factors).all(axis=1)) if attached else added.failed
        failures = self.failures + int(unknown.sum())
        return replace(self, history=self._summed(self.history.then(added)), failures=failures)

    def with_news(self, query_id: str | None, news: News, *, is_all: bool = False) -> tuple["Logbook", int]:
        """Add news of a query, or unrequested news; ``is_all`` is True if the query gets no more outcomes. Return also
        the round of the news: that of the query, or the present one if the round has ended or there is no query.
        """
        log, problem, query = self, self.problem, None if query_id is None else self.open[query_id]
        places = problem.places(news.point, news.factors)
        awaited = frozenset[str]() if query is None else frozenset(query.awaited)
        # an agent may measure without a request, or again; these outcomes get a separate row
        outcomes = {c: y for c, y in news.factors.items() if c in awaited}
        if query_id is not None and news.total is not None:
            log = log.with_total(query_id, news.total, news.point, news.total_noise)
        elif query_id is not None:
            if outcomes or not problem.is_field:
                point = problem.joint({c: places[c] for c in outcomes}) if problem.is_field else news.point
                log = log.with_factors(query_id, outcomes, point=point, noise_std=news.noise)
            log = log.without([query_id]) if is_all else log
        if unasked := {channel: y for channel, y in news.factors.items() if channel not in outcomes}:
            point = problem.joint({channel: places[channel] for channel in unasked})
            unrequested = News(point, None, unasked, noise=news.noise).evaluation(problem.channels)
            log = log.with_evaluations(unrequested, attached=False)
        for agent, stop in news.on_the_way:  # unrequested: separate rows
            point = problem.joint({agent: np.array(stop.place)})
            outcome, std = stop.numbers
            made = News(point, None, {agent: outcome}, noise={agent: std})
            log = log.with_evaluations(made.evaluation(problem.channels))
        return log, self.round - 1 if query is None or is_all else query.round

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """State as plain data and arrays."""
        queries = {query_id: query.to_plain() for query_id, query in self.open.items()}
        plain = {"asked": self.n_asked, "begun": self.n_before_episode, "failures": self.failures, "open": queries}
        rows = {name: column.copy() for name in _COLUMNS if (column := getattr(self.history, name)) is not None}
        return plain, {**rows, "open": self._stacked([query.point for query in self.open.values()])}

    def from_state(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Logbook":
        """Restore the state of ``to_state``, with the same problem."""
        stored = [name for name in _COLUMNS if name in arrays or name != "measured"]  # measured only with limits
        history = Dataset(**{name: np.array(arrays[name], dtype=_COLUMNS[name]) for name in stored})
        for name in stored:
            shape, wanted = getattr(history, name).shape, (len(history), *getattr(self.history, name).shape[1:])
            if shape != wanted:
                raise ValueError(f"got {name!r} {shape}; wanted {wanted}")
        if np.isinf(history.X).any():
            raise ValueError("got infinite points")
        counts = [plain[name] for name in ("asked", "begun", "failures")]
        n_asked, n_before, failures = msgspec.convert(counts, tuple[_Count, _Count, _Count])
        saved_queries = msgspec.convert(plain["open"], dict[str, _SavedQuery])
        points = np.array(arrays["open"], dtype=float).reshape(-1, history.X.shape[1])
        queries = dict[str, OpenQuery]()
        for point, (query_id, q) in zip(points, saved_queries.items(), strict=True):
            if not set(q.awaited) <= set(self.problem.channels) or (q.row is not None and q.row >= len(history)):
                raise ValueError(f"query {query_id!r}: got {q.awaited}, row {q.row}; wanted agents and rows of the log")
            actual = None if q.actual_point is None else np.array(q.actual_point)
            if actual is not None and not (actual.shape == point.shape and np.isfinite(actual).all()):
                raise ValueError(f"query {query_id!r}: got the point {actual}; wanted {len(point)} finite numbers")
            queries[query_id] = OpenQuery(point, q.awaited, q.row, q.round, q.chosen, q.basis, actual)
        log = replace(self, history=history, n_asked=n_asked, n_before_episode=n_before, failures=failures)
        return log._with_open(queries)

    def _closed(self, query_ids: Iterable[str]) -> "Logbook":
        gone = set(query_ids)
        return self._with_open({key: query for key, query in self.open.items() if key not in gone})

    def _with_open(self, queries: Mapping[str, OpenQuery]) -> "Logbook":
        """Replace the open queries; the history then marks the pending outcomes of partly known rows."""
        awaited = np.zeros(self.history.factors.shape, dtype=bool)
        for query in queries.values():
            if query.row is not None:
                awaited[query.row] = self._channel_mask(query.awaited)
        return replace(self, open=queries, history=replace(self.history, awaited=awaited))

    def _channel_mask(self, channels: Iterable[str]) -> Bool[np.ndarray, " k"]:
        named = set(channels)
        return np.array([channel in named for channel in self.problem.channels], dtype=bool)

    def _stacked(self, points: list[Float[np.ndarray, " n"]]) -> Float[np.ndarray, "q n"]:
        return np.array(points).reshape(-1, self.history.X.shape[1])

    def _summed(self, history: Dataset) -> Dataset:
        """History with totals of rows whose factors are all known; in a field, there are no totals."""
        return history if self.problem.is_field else history.with_sums()

    def _row_of(self, query_id: str, query: OpenQuery, point: Float[np.ndarray, " n"] | None) -> tuple[int, Dataset]:
        """A query's row in the history, and the history with that row at the actual point."""
        place = query.place if point is None else np.where(np.isnan(point), query.place, point)
        if query.row is None:
            unknown, number = np.full((1, len(self.problem.channels)), np.nan), np.array([_query_number(query_id)])
            data = Dataset(place[None], unknown[:, 0], unknown, np.array([float(query.round)]), query=number)
            added = _complete(data, self.problem, query.basis, attached=False, chosen=query.chosen)
            return len(self.history), self.history.then(added)
        # a later part may come from another point: it replaces only variables on which no known outcome depends
        if point is None:
            return query.row, self.history
        X, free = self.history.X.copy(), np.ones(len(place), dtype=bool)
        for channel in set(self.problem.channels_in(query.point)) - set(query.awaited):
            free[self.problem.columns(channel)] = False  # known outcomes belong to the earlier point
        X[query.row, free] = place[free]
        return query.row, replace(self.history, X=X)


def _complete(data: Dataset, problem: Problem, basis: int, *, attached: bool, chosen: bool) -> Dataset:
    """Rows with all columns, for evaluations that are not pending; ``basis`` evaluations were known before these."""
    t, measured = len(data), data.measured
    return replace(
        data,
        attached=np.full(t, attached),
        chosen=np.full(t, chosen),
        taken=problem.takes_part(data.X),
        basis=basis + np.arange(t),
        measured=np.full((t, len(problem.ranges)), np.nan) if problem.ranges and measured is None else measured,
    )


def _query_id(number: int) -> str:
    return f"q{number:05d}"


def _query_number(query_id: str) -> int:
    """Number of a query from its id; 0 for a text that is not an id."""
    digits = query_id[1:]
    number = int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else 0
    return number if query_id == _query_id(number) else 0
