"""What a team in a field asked for, and what is still out."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from swarmbo.belief.success import excess_of
from swarmbo.errors import UnknownQueryError


@dataclass(frozen=True, eq=False)
class OpenBatch:
    """Places that are out for measurement.

    Args:
        points: For each agent that has yet to report the place (d,), physical.
        round: In which they were asked for.
    """

    points: Mapping[str, np.ndarray]
    round: int


@dataclass(frozen=True, eq=False)
class FieldLogbook:
    """The queries of a team in a field, immutable: what changes it returns a new one. The belief has the outcomes.

    Args:
        open: Queries that wait for outcomes, by id, in the order in which they were asked.
        asked: Number of queries so far.
        dead: Where and when measurements failed: places, physical, and the round last.
        excess: By how much each agent's measurements have failed more often than is put up with; 0 where missing.

    Example:
        >>> log, query_id = FieldLogbook().with_query({"a": np.zeros(1), "b": np.ones(1)}, 1)
        >>> log = log.with_told(query_id, ["b"])
        >>> list(log.batch(query_id, ["a"]).points)
        ['a']
    """

    open: Mapping[str, OpenBatch] = field(default_factory=dict[str, OpenBatch])
    asked: int = 0
    dead: tuple[tuple[float, ...], ...] = ()
    excess: Mapping[str, float] = field(default_factory=dict[str, float])

    def with_query(self, points: Mapping[str, np.ndarray], round_number: int) -> tuple["FieldLogbook", str]:
        """Send agents out; the new logbook, and the query's id. A query without places waits for nothing."""
        query_id = f"q{self.asked + 1:05d}"
        sent = OpenBatch({agent: point.copy() for agent, point in points.items()}, round_number)
        return replace(
            self, open={**self.open, query_id: sent} if points else self.open, asked=self.asked + 1
        ), query_id

    def batch(self, query_id: str, agents: Iterable[str]) -> OpenBatch:
        """What a query waits for.

        Args:
            query_id: Of an open query.
            agents: Who must be in it.

        Raises:
            UnknownQueryError: If it is not open, or one of them has no open measurement in it.
        """
        if query_id not in self.open:
            raise UnknownQueryError(f"query {query_id!r} is not out; waiting for outcomes: {list(self.open)}")
        points = self.open[query_id].points
        if strangers := [agent for agent in agents if agent not in points]:
            raise UnknownQueryError(f"query {query_id!r} waits for {list(points)}, got an outcome of {strangers}")
        return self.open[query_id]

    def with_told(self, query_id: str, agents: Collection[str]) -> "FieldLogbook":
        """Wait no longer for agents of an open query; it is closed when it waits for nobody.

        Args:
            query_id: Of an open query.
            agents: Who told their outcomes, be they failures or not.
        """
        batch = self.open[query_id]
        left = {agent: point for agent, point in batch.points.items() if agent not in agents}
        if not left:
            return self.without([query_id])
        return replace(self, open={**self.open, query_id: replace(batch, points=left)})

    @property
    def failures(self) -> int:
        """Number of measurements that failed."""
        return len(self.dead)

    def with_dead(self, places: Float[np.ndarray, "f d"], moments: float | Float[np.ndarray, " f"]) -> "FieldLogbook":
        """Note where measurements failed, and in which round, or which rounds."""
        rounds = np.broadcast_to(np.asarray(moments, dtype=float), len(places)).tolist()
        return replace(
            self, dead=(*self.dead, *((*place, moment) for place, moment in zip(places.tolist(), rounds, strict=True)))
        )

    def with_record(self, succeeded: Mapping[str, bool]) -> "FieldLogbook":
        """Note whose measurements came to something."""
        excess = {agent: excess_of([good], self.excess.get(agent, 0.0)) for agent, good in succeeded.items()}
        return replace(self, excess={agent: sum_ for agent, sum_ in {**self.excess, **excess}.items() if sum_ > 0.0})

    def without(self, query_ids: Iterable[str]) -> "FieldLogbook":
        """Give up waiting for queries."""
        given_up = set(query_ids)
        return replace(self, open={key: batch for key, batch in self.open.items() if key not in given_up})

    def to_plain(self) -> dict[str, Any]:
        """Open queries and what failed, as plain data."""
        return {
            "pending": {key: {a: p.tolist() for a, p in batch.points.items()} for key, batch in self.open.items()},
            "asked_in": {key: batch.round for key, batch in self.open.items()},
            "dead": [list(row) for row in self.dead],
            "excess": dict(self.excess),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "FieldLogbook":
        """The logbook of a team's state; queries of unknown round count as of the state's."""
        rounds = plain.get("asked_in", {})
        pending = {
            key: OpenBatch({a: np.array(p) for a, p in points.items()}, int(rounds.get(key, plain["round"])))
            for key, points in plain["pending"].items()
        }
        dead = tuple(tuple(row) for row in plain.get("dead", ()))
        return cls(pending, plain["asked"], dead, plain.get("excess", {}))
