"""What a team with a factor graph asked for, what is still out, and what came back."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from swarmbo.acquisition import History
from swarmbo.errors import UnknownQueryError

_DATA = ("X", "totals", "factors", "moments")  # of a history
_ORIGINS = ("attached", "chosen")


@dataclass(frozen=True, eq=False)
class OpenQuery:
    """A joint point that is out for evaluation.

    Args:
        point: Where (n,), physical.
        row: Its row in the history, once a part of its outcome was told.
        told: Factors whose outcomes were told.
        moment: The round in which it was asked for.
        chosen: Whether a method chose it; if not, it belongs to the initial design.
    """

    point: Float[np.ndarray, " n"]
    row: int | None = None
    told: tuple[str, ...] = ()
    moment: float = 0.0
    chosen: bool = True


@dataclass(frozen=True, eq=False)
class Logbook:
    """The history of a team and its open queries, immutable: what changes it returns a new one.

    Args:
        factors: Names of the graph's factors, in its order.
        history: Evaluations, in the order in which their first outcome was told.
        open: Queries that wait for outcomes, by id, in the order in which they were asked.
        asked: Number of queries so far.
        failures: Number of outcomes that were told to have failed.
    """

    factors: tuple[str, ...]
    history: History
    open: Mapping[str, OpenQuery]
    asked: int = 0
    failures: int = 0

    @classmethod
    def empty(cls, n_variables: int, factors: Iterable[str]) -> "Logbook":
        """A logbook with nothing in it."""
        names = tuple(factors)
        no_rows, k = np.zeros(0, dtype=bool), len(names)
        nothing = History(
            X=np.zeros((0, n_variables)),
            totals=np.zeros(0),
            factors=np.zeros((0, k)),
            moments=np.zeros(0),
            attached=no_rows,
            chosen=no_rows,
            awaited=np.zeros((0, k), dtype=bool),
        )
        return cls(names, nothing, {})

    @property
    def round(self) -> int:
        """1 before anything was asked; every query is a round."""
        return self.asked + 1

    @property
    def n_evaluations(self) -> int:
        """Points that were evaluated or are out."""
        return len(self.history) + len(self.pending)

    @property
    def n_data(self) -> int:
        """Evaluated points with at least one outcome."""
        known = np.isfinite(self.history.totals) | np.isfinite(self.history.factors).any(axis=1)
        return int(known.sum())

    @property
    def pending(self) -> Float[np.ndarray, "p n"]:
        """Points that are out, and of which nothing was told yet; the history has those that were told in part."""
        return self._stacked([query.point for query in self.open.values() if query.row is None])

    @property
    def pending_moments(self) -> Float[np.ndarray, " p"]:
        """The rounds in which they were asked for."""
        return np.array([query.moment for query in self.open.values() if query.row is None], dtype=float)

    @property
    def out(self) -> Float[np.ndarray, "q n"]:
        """Points of which not all was told yet."""
        return self._stacked([query.point for query in self.open.values()])

    def out_of(self, factor: str) -> Float[np.ndarray, "q n"]:
        """Points of which the outcome of a factor was not told yet."""
        return self._stacked([query.point for query in self.open.values() if factor not in query.told])

    @property
    def points(self) -> Float[np.ndarray, "k n"]:
        """All points that were ever evaluated or are out."""
        return np.concatenate([self.history.X, self.pending])

    @property
    def failed(self) -> Bool[np.ndarray, "t k"]:
        """Which outcomes of factors failed: those that nobody waits for any more, and that nothing is known of."""
        history = self.history
        unknown = np.isnan(history.factors) & np.isnan(history.totals)[:, None]
        return unknown if history.awaited is None else unknown & ~history.awaited

    def with_query(self, point: Float[np.ndarray, " n"], *, chosen: bool = True) -> tuple["Logbook", str]:
        """Send out a point, which a method chose or the initial design has; the new logbook, and the query's id."""
        query_id = f"q{self.asked + 1:05d}"
        query = OpenQuery(point, moment=self.round, chosen=chosen)
        return replace(self, open={**self.open, query_id: query}, asked=self.asked + 1), query_id

    def without(self, query_ids: Iterable[str]) -> "Logbook":
        """Give up waiting for queries; what was told of them stays."""
        given_up = set(query_ids)
        return self._with_open({key: query for key, query in self.open.items() if key not in given_up})

    def with_total(self, query_id: str, total: float, point: Float[np.ndarray, " n"] | None = None) -> "Logbook":
        """Close a query with the outcome of the sum of all factors.

        Args:
            query_id: Of an open query.
            total: NaN if it failed.
            point: Where it was really evaluated.

        Raises:
            UnknownQueryError: If it is not open.
        """
        query = self._open_query(query_id)
        row, history = self._row(query, point)
        totals = history.totals.copy()
        totals[row] = total
        failures = self.failures + int(np.isnan(total))
        return replace(self, history=replace(history, totals=totals), failures=failures).without([query_id])

    def with_factors(
        self,
        query_id: str,
        outcomes: Mapping[str, float],
        *,
        rest_failed: bool = False,
        point: Float[np.ndarray, " n"] | None = None,
    ) -> "Logbook":
        """Note outcomes of some factors; the query stays open until all are told.

        Args:
            query_id: Of an open query.
            outcomes: By factor; NaN if it failed.
            rest_failed: Whether all factors that are not told failed.
            point: Where it was really evaluated.

        Raises:
            UnknownQueryError: If the query is not open, or a factor is unknown or was told before.
        """
        query = self._open_query(query_id)
        if strangers := [factor for factor in outcomes if factor not in self.factors]:
            raise UnknownQueryError(f"query {query_id!r} waits for factors {self._left(query)}, got one of {strangers}")
        if again := [factor for factor in outcomes if factor in query.told]:
            raise UnknownQueryError(f"query {query_id!r}: got {again} again; waiting for {self._left(query)}")
        row, history = self._row(query, point)
        by_factor = history.factors.copy()
        for factor, outcome in outcomes.items():
            by_factor[row, self.factors.index(factor)] = outcome
        told = replace(query, point=history.X[row], row=row, told=(*query.told, *outcomes))
        left = self._left(told)
        failures = sum(bool(np.isnan(outcome)) for outcome in outcomes.values()) + (len(left) if rest_failed else 0)
        log = replace(self, history=_with_sums(replace(history, factors=by_factor)), failures=self.failures + failures)
        if rest_failed or not left:
            return log.without([query_id])
        return log._with_open({**log.open, query_id: told})

    def with_evaluations(
        self,
        X: Float[np.ndarray, "t n"],
        totals: Float[np.ndarray, " t"],
        factors: Float[np.ndarray, "t k"],
        moments: Float[np.ndarray, " t"] | None = None,
    ) -> "Logbook":
        """Add evaluations that were never asked for, of the present round if nobody says of which.

        Rows without any outcome count as failed.
        """
        rounds = np.full(len(X), float(self.round)) if moments is None else moments
        added = self._with_rows(X, totals, factors, rounds, attached=True)
        nothing = np.isnan(totals) & np.isnan(factors).all(axis=1)
        return replace(self, history=_with_sums(added), failures=self.failures + int(nothing.sum()))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain data and arrays."""
        plain = {
            "asked": self.asked,
            "failures": self.failures,
            "open": {key: [q.point.tolist(), q.row, list(q.told), q.moment, q.chosen] for key, q in self.open.items()},
        }
        return plain, {name: getattr(self.history, name).copy() for name in (*_DATA, *_ORIGINS)}

    def from_state(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "Logbook":
        """The logbook, of the same factors, that ``to_state`` wrote down."""
        history = History(
            **{name: np.array(arrays[name], dtype=float) for name in _DATA},
            **{name: np.array(arrays[name], dtype=bool) for name in _ORIGINS},
        )
        log = replace(self, history=history, asked=plain["asked"], failures=plain["failures"])
        return log._with_open(
            {
                key: OpenQuery(np.array(point), row, tuple(told), moment, chosen)
                for key, (point, row, told, moment, chosen) in plain["open"].items()
            }
        )

    def _with_open(self, queries: Mapping[str, OpenQuery]) -> "Logbook":
        """Wait for other queries; the history then says what is still to come of those that were told in part."""
        awaited = np.zeros(self.history.factors.shape, dtype=bool)
        for query in queries.values():
            if query.row is not None:
                awaited[query.row] = [factor not in query.told for factor in self.factors]
        return replace(self, open=queries, history=replace(self.history, awaited=awaited))

    def _stacked(self, points: list[Float[np.ndarray, " n"]]) -> Float[np.ndarray, "q n"]:
        return np.array(points).reshape(-1, self.history.X.shape[1])

    def _open_query(self, query_id: str) -> OpenQuery:
        if query_id not in self.open:
            raise UnknownQueryError(f"query {query_id!r} is not out; waiting for outcomes: {list(self.open)}")
        return self.open[query_id]

    def _left(self, query: OpenQuery) -> list[str]:
        return [factor for factor in self.factors if factor not in query.told]

    def _row(self, query: OpenQuery, point: Float[np.ndarray, " n"] | None) -> tuple[int, History]:
        """A query's row in the history, and the history that has it."""
        if query.row is not None:
            return query.row, self.history
        place = query.point if point is None else point
        unknown = np.full((1, len(self.factors)), np.nan)
        moment = np.array([query.moment])
        added = self._with_rows(place[None], np.array([np.nan]), unknown, moment, chosen=query.chosen)
        return len(self.history), added

    def _with_rows(
        self,
        X: Float[np.ndarray, "t n"],
        totals: Float[np.ndarray, " t"],
        factors: Float[np.ndarray, "t k"],
        moments: Float[np.ndarray, " t"],
        *,
        attached: bool = False,
        chosen: bool = False,
    ) -> History:
        new = {
            "X": X,
            "totals": totals,
            "factors": factors,
            "moments": moments,
            "attached": np.full(len(X), attached),
            "chosen": np.full(len(X), chosen),
            "awaited": np.zeros(factors.shape, dtype=bool),
        }
        return History(**{name: np.concatenate([getattr(self.history, name), rows]) for name, rows in new.items()})


def _with_sums(history: History) -> History:
    """Totals that follow from the outcomes of all factors."""
    sums = history.factors.sum(axis=1)  # NaN unless all are known
    return replace(history, totals=np.where(np.isnan(history.totals), sums, history.totals))
