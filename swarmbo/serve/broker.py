"""Broker: it leases the queries of a ledger to clients, and assembles the outcomes that they tell.

The ledger is the only log: keys and leases are in the notes of its events, where a restarted broker finds them.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec import UnsetType
from msgspec.structs import replace

from swarmbo.deciding.tables import place_names
from swarmbo.errors import ConfigError, UnknownQueryError
from swarmbo.evaluations import Event, Ledger
from swarmbo.problem import Problem
from swarmbo.records import Query
from swarmbo.serve import messages

MOST_PENDING = 256
_MOST_OUTCOMES = 500  # in a state
ByChannel = dict[str, float | None]


class Outcome(NamedTuple):
    """Outcome of a query (in a field, of one ``agent``): value (None: failed), actual point, values by factor.

    ``noise_std`` is the noise of the value, or by factor.
    """

    value: float | None
    point: dict[str, Any]
    factors: Mapping[str, float | None]
    noise_std: float | Mapping[str, float | None] | None = None
    agent: str = ""


class OutcomeAssembler:
    """Assembly of outcomes from tells. A function's is complete with its last factor; in a field, each agent has one.

    ``n_events`` is the number of events that were processed.
    """

    def __init__(self, problem: Problem) -> None:
        # by query: outcomes and noise by channel, and the actual point as told so far
        self._parts = dict[str, tuple[ByChannel, dict[str, Any], dict[str, Any]]]()
        self._problem, self.n_events = problem, 0

    def new_events(self, ledger: Ledger) -> Iterator[tuple[Event, list[Outcome]]]:
        """New events of a ledger, each with the outcomes that it completes."""
        for event in ledger.events[self.n_events :]:
            self.n_events += 1
            yield event, self._completed(ledger.query(event.query), event) if event.kind == "tell" else []

    def _completed(self, query: Query, event: Event) -> list[Outcome]:
        problem, outcome, std = self._problem, event.outcome, event.noise_std
        outcomes, stds, point = self._parts.setdefault(query.id, ({}, {}, dict(query.point)))
        # a told point changes only variables of factors without an outcome, as in a team's log
        fixed = {variable for channel in outcomes for variable in problem.graph.scope(channel)}
        point |= {variable: value for variable, value in (event.point or {}).items() if variable not in fixed}
        if isinstance(outcome, float) and problem.outcomes == "total":
            return [Outcome(outcome, point, outcomes, std)]
        channels = list(query.points) if problem.is_field else problem.channels
        by_channel = outcome if isinstance(outcome, dict) else {} if outcome is None else {problem.channels[0]: outcome}
        new: ByChannel = {channel: value for channel, value in by_channel.items() if channel not in outcomes}
        if event.failed or outcome is None:
            new |= {channel: None for channel in channels if channel not in outcomes and channel not in new}
        outcomes |= new
        of_channel = std if isinstance(std, dict) else dict.fromkeys(new, std)
        stds |= {channel: of_channel[channel] for channel in new if of_channel.get(channel) is not None}
        if problem.is_field:
            locations, names = event.locations or {}, place_names(problem.box.n_dims)
            places = {agent: locations.get(agent) or query.points[agent].tolist() for agent in new}
            points = {agent: dict(zip(names, place, strict=True)) for agent, place in places.items()}
            return [Outcome(value, points[agent], {}, stds.get(agent), agent) for agent, value in new.items()]
        if not set(channels) <= set(outcomes):
            return []
        parts = [value for value in outcomes.values() if value is not None]
        return [Outcome(math.fsum(parts) if len(parts) == len(outcomes) else None, point, outcomes, stds)]


class Lease(NamedTuple):
    """Lease of a query: the key of the request that holds it, and its end in s since 1970."""

    key: str
    until: float


@dataclass(frozen=True)
class Service:
    """Constant facts of a service; fields as in ``State``."""

    name: str
    seed: int
    rounds: int
    unit: str = ""
    maximum: float | None = None


class Broker:
    """Queries on lease. Calls must come one at a time, as from one thread; ``clock`` gives s since 1970."""

    def __init__(
        self, ledger: Ledger, service: Service, most_pending: int = MOST_PENDING, clock: Callable[[], float] = time.time
    ) -> None:
        self.ledger, self.service = ledger, service
        self._most_pending, self._clock = most_pending, clock
        self._query_of_key, self._leases = dict[str, str](), dict[str, Lease]()
        self._assembler = OutcomeAssembler(ledger.team.problem)
        self._outcomes, self._best, self._curve = list[float | None](), messages.Best(), list[tuple[int, float]]()
        self._recommended: tuple[int, Any] = (-1, None)  # number of events before it, and the recommendation
        self._update()

    def ask(self, request: messages.AskRequest) -> messages.Asked:
        """Query for a client: the query of its key, else one whose lease ran out, else a new one."""
        now, query_id = self._clock(), self._query_of_key.get(request.key)
        lease = None if query_id is None else self._leases.get(query_id)
        if query_id is None or (lease is not None and lease.until <= now):
            query_id = self._lease_query(request, now, query_id)
        return self._answer(query_id, request.key)

    def _lease_query(self, request: messages.AskRequest, now: float, query_id: str | None) -> str:
        """Lease a query; ``query_id`` is the query of the same key, whose lease ran out, if there is one."""
        note = Lease(request.key, now + request.lease_s)._asdict()
        ended = [(lease.until, query) for query, lease in self._leases.items() if lease.until <= now]
        if query_id is None and ended:
            query_id = min(ended)[1]
        if query_id is not None:
            self.ledger.lost(query_id, f"the lease of {self._leases[query_id].key!r} ran out", note)
        elif self.ledger.n_asked < self.service.rounds and len(self._leases) < self._most_pending:
            query_id = self.ledger.ask(note).id
        else:
            raise self._no_query_left(now)
        self._update()
        return query_id

    def _no_query_left(self, now: float) -> messages.Refused:
        n_pending, rounds = len(self._leases), self.service.rounds
        if not n_pending:
            what, fix = f"all {rounds} queries are told", "stop; GET /best has the result"
            return messages.Refused(410, what, str(rounds), "no further query", fix)
        wait = max(1, math.ceil(min(lease.until for lease in self._leases.values()) - now))
        what = f"{n_pending} queries are pending, and no lease has run out"
        is_full = self.ledger.n_asked < rounds
        wanted = f"fewer than {self._most_pending} pending" if is_full else "one whose lease ran out"
        fix, headers = "tell outcomes, or ask again later", {"Retry-After": str(min(wait, 60))}
        return messages.Refused(429, what, str(n_pending), wanted, fix, headers)

    def tell(self, query_id: str, request: messages.TellRequest) -> messages.Told:
        """Record an outcome."""
        self.ledger.asked(query_id)  # raises for an unknown query
        outcome = None if isinstance(request.outcome, UnsetType) else request.outcome
        if isinstance(request.outcome, UnsetType) and not request.failed:
            raise ConfigError("missing; wanted an outcome, null, or failed = true", at="$.outcome")
        if request.failed and isinstance(outcome, float):
            raise ConfigError(f"got {outcome} and failed = true; wanted one of them", at="$.outcome")
        if outcome == {} and not request.failed and request.point is None:
            raise ConfigError("got an empty table; wanted outcomes, null, or failed = true", at="$.outcome")
        facts: dict[str, Any] = {"point": request.point, "noise_std": request.noise_std, "locations": request.locations}
        try:
            is_new = self.ledger.tell(query_id, outcome, failed=request.failed, **facts)
        except UnknownQueryError as error:  # a factor or agent is unknown; the query is known
            raise ConfigError(str(error), at="$.outcome") from error
        self._update()
        is_pending = query_id in self.ledger.team.pending
        return messages.Told(query_id, is_new, is_pending, self.ledger.n_told, self.service.rounds)

    def best(self) -> messages.Best:
        """Best outcome, and the recommendation. After new outcomes, this takes as long as a decision."""
        self.ledger.require_whole()
        if self._recommended[0] != self._assembler.n_events:
            # a copy, since the belief of a field is fitted here, and a replay of the ledger would not do so
            self._recommended = self._assembler.n_events, copy(self.ledger.team).recommend()
        recommended = self._recommended[1]
        if recommended is None:
            return self._best
        point = recommended.point
        if point is None:
            point = dict(zip(place_names(len(recommended.location)), recommended.location, strict=True))
        return replace(self._best, recommended=dict(point), mean=recommended.mean, std=recommended.std)

    def state(self) -> messages.State:
        """Last state, with the present time; any thread may call it."""
        return replace(self._state, now=self._clock())

    def _answer(self, query_id: str, key: str) -> messages.Asked:
        query, lease = self.ledger.query(query_id), self._leases.get(query_id)
        is_field, losses = self.ledger.team.problem.is_field, self.ledger.losses(query_id)
        places = {agent: place.tolist() for agent, place in query.points.items()} if is_field else {}
        until = lease.until if lease is not None and lease.key == key else None
        return messages.Asked(query_id, query.point, places, until, lease is None, losses, query.mean, query.std)

    def _update(self) -> None:
        for event, outcomes in self._assembler.new_events(self.ledger):
            if event.kind in ("ask", "lost"):
                # a query that was asked without a broker gets a lease that has run out
                lease = Lease(event.note.get("key", ""), event.note.get("until", 0.0))
                self._query_of_key |= {lease.key: event.query} if lease.key else {}
                self._leases[event.query] = lease
            for outcome in outcomes:
                self._outcomes.append(outcome.value)
                if outcome.value is not None and (self._best.outcome is None or outcome.value > self._best.outcome):
                    self._best = messages.Best(outcome.value, event.query, outcome.point)
                    self._curve.append((len(self._outcomes), outcome.value))
        pending = self.ledger.team.pending
        self._leases = {query: lease for query, lease in self._leases.items() if query in pending}
        self._state = self._new_state()

    def _new_state(self) -> messages.State:
        problem, outcomes = self.ledger.team.problem, self._outcomes
        names = place_names(problem.box.n_dims) if problem.is_field else problem.graph.variables
        ends = zip(problem.box.low.tolist(), problem.box.high.tolist(), strict=True)
        types = list(problem.variables.values()) if problem.is_mixed else ends
        pending = [
            messages.Waiting(query, self.ledger.asked(query).point or {}, lease.until, self.ledger.losses(query))
            for query, lease in self._leases.items()
        ]
        return messages.State(
            **vars(self.service),
            asked=self.ledger.n_asked,
            told=self.ledger.n_told,
            failed=sum(value is None for value in outcomes),
            now=self._clock(),
            variables=dict(zip(names, types, strict=True)),
            is_field=problem.is_field,
            pending=pending,
            best=self._best,
            curve=list(self._curve),
            outcomes=outcomes[-_MOST_OUTCOMES:],
            first=max(0, len(outcomes) - _MOST_OUTCOMES),
        )
