"""Desk: gives the queries of a ledger to clients, and takes their outcomes, put together from tells.

The ledger is the only log: keys and leases are in the notes of its events, so that a desk that begins again knows them.
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
_KEY, _UNTIL = "key", "until"


class Outcome(NamedTuple):
    """Outcome of a query, in a field that of one ``agent``: value (None: failed), actual point, values by factor.

    ``noise_std`` is that of the value, or by factor.
    """

    value: float | None
    point: dict[str, Any]
    factors: Mapping[str, float | None]
    noise_std: float | Mapping[str, float | None] | None = None
    agent: str = ""


class Outcomes:
    """Tells put together: of a function an outcome is complete with its last factor, in a field each agent has one.

    ``seen`` is the number of events that were taken.
    """

    def __init__(self, problem: Problem) -> None:
        # by query: outcomes and noise by channel, and the actual point as far as it is told
        self._parts = dict[str, tuple[dict[str, float | None], dict[str, Any], dict[str, Any]]]()
        self._problem, self.seen = problem, 0

    def new(self, ledger: Ledger) -> Iterator[tuple[Event, list[Outcome]]]:
        """New events of a ledger, each with the outcomes that it completes."""
        for event in ledger.events[self.seen :]:
            self.seen += 1
            yield event, self._completed(ledger.query(event.query), event) if event.kind == "tell" else []

    def _completed(self, query: Query, event: Event) -> list[Outcome]:
        problem, given, std = self._problem, event.outcome, event.noise_std
        known, stds, point = self._parts.setdefault(query.id, ({}, {}, dict(query.point)))
        # a point that is told moves what is still unknown, as in a team's log
        fixed = {variable for channel in known for variable in problem.graph.scope(channel)}
        point |= {v: x for v, x in (event.point or {}).items() if v not in fixed}
        if isinstance(given, float) and problem.outcomes == "total":
            return [Outcome(given, point, known, std)]
        has_failed = event.failed or given is None
        given = given if isinstance(given, dict) else {} if given is None else {problem.channels[0]: given}
        new = {channel: value for channel, value in given.items() if channel not in known}
        channels = list(query.points) if problem.is_field else problem.channels
        if has_failed:
            new |= {channel: None for channel in channels if channel not in known and channel not in new}
        known |= new
        stds |= {c: one for c in new if (one := std.get(c) if isinstance(std, dict) else std) is not None}
        if problem.is_field:
            told = event.locations or {}
            places = {agent: told.get(agent) or query.points[agent].tolist() for agent in new}
            names = place_names(problem.box.n_dims)
            at = {agent: dict(zip(names, places[agent], strict=True)) for agent in new}
            return [Outcome(y, at[agent], {}, stds.get(agent), agent) for agent, y in new.items()]
        if not set(channels) <= set(known):
            return []
        parts = [value for value in known.values() if value is not None]
        return [Outcome(math.fsum(parts) if len(parts) == len(known) else None, point, known, stds)]


class Lease(NamedTuple):
    """Loan of a query: the key of the request that holds it, and its end in s since 1970."""

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


class Desk:
    """Queries on loan. Calls must come one at a time, as from one thread; ``clock`` gives s since 1970."""

    def __init__(
        self, ledger: Ledger, service: Service, most_pending: int = MOST_PENDING, clock: Callable[[], float] = time.time
    ) -> None:
        self.ledger, self.service = ledger, service
        self._most, self._clock = most_pending, clock
        self._keys, self._leases = dict[str, str](), dict[str, Lease]()
        self._told = Outcomes(ledger.team.problem)
        self._outcomes, self._best, self._curve = list[float | None](), messages.Best(), list[tuple[int, float]]()
        self._recommended: tuple[int, Any] = (-1, None)  # number of events taken before it, and the recommendation
        self._catch_up()

    def ask(self, request: messages.AskRequest) -> messages.Asked:
        """Query for a client: that of its key, else one whose lease ran out, else a new one."""
        now, held = self._clock(), self._keys.get(request.key)
        lease = None if held is None else self._leases.get(held)
        if held is None or (lease is not None and lease.until <= now):
            held = self._lend(request, now, held)
        return self._asked(held, request.key)

    def _lend(self, request: messages.AskRequest, now: float, held: str | None) -> str:
        """Lend a query; ``held`` is that of the same key, whose lease ran out."""
        note = {_KEY: request.key, _UNTIL: now + request.lease_s}
        ended = [(lease.until, query) for query, lease in self._leases.items() if lease.until <= now]
        if held is None and ended:
            held = min(ended)[1]
        if held is not None:
            self.ledger.lost(held, f"the lease of {self._leases[held].key!r} ran out", note)
        elif self.ledger.n_asked < self.service.rounds and len(self._leases) < self._most:
            held = self.ledger.ask(note).id
        else:
            raise self._none_left(now)
        self._catch_up()
        return held

    def _none_left(self, now: float) -> messages.Refused:
        n_pending, rounds = len(self._leases), self.service.rounds
        if not n_pending:
            what, fix = f"all {rounds} queries are told", "stop; GET /best has the result"
            return messages.Refused(410, what, str(rounds), "no further query", fix)
        wait = max(1, math.ceil(min(lease.until for lease in self._leases.values()) - now))
        what = f"{n_pending} queries are pending, and no lease has run out"
        wanted = f"fewer than {self._most} pending" if self.ledger.n_asked < rounds else "one whose lease ran out"
        fix, headers = "tell outcomes, or ask again later", {"Retry-After": str(min(wait, 60))}
        return messages.Refused(429, what, str(n_pending), wanted, fix, headers)

    def tell(self, query_id: str, request: messages.TellRequest) -> messages.Told:
        """Take an outcome."""
        self.ledger.asked(query_id)  # raises for an unknown query
        outcome = None if isinstance(request.outcome, UnsetType) else request.outcome
        if isinstance(request.outcome, UnsetType) and not request.failed:
            raise ConfigError("missing; wanted an outcome, null, or failed = true", at="$.outcome")
        if request.failed and isinstance(outcome, float):
            raise ConfigError(f"got {outcome} and failed = true; wanted one of them", at="$.outcome")
        if outcome == {} and not request.failed and request.point is None:
            raise ConfigError("got an empty table; wanted outcomes, null, or failed = true", at="$.outcome")
        given: dict[str, Any] = {"point": request.point, "noise_std": request.noise_std, "locations": request.locations}
        try:
            is_new = self.ledger.tell(query_id, outcome, failed=request.failed, **given)
        except UnknownQueryError as error:  # of a factor or agent, as the query is known
            raise ConfigError(str(error), at="$.outcome") from error
        self._catch_up()
        is_pending = query_id in self.ledger.team.pending
        return messages.Told(query_id, is_new, is_pending, self.ledger.n_told, self.service.rounds)

    def best(self) -> messages.Best:
        """Best outcome, and the recommendation, which takes a decision's time after news."""
        self.ledger.require_whole()
        if self._recommended[0] != self._told.seen:
            # a copy, since the belief of a field is fitted here, and a replay of the ledger would not do so
            found = copy(self.ledger.team).recommend()
            self._recommended = self._told.seen, found
        best, found = self._best, self._recommended[1]
        if found is None:
            return best
        place = zip(place_names(len(found.location)), found.location, strict=True)
        point = dict(place if found.point is None else found.point)
        return replace(best, recommended=point, mean=found.mean, std=found.std)

    def state(self) -> messages.State:
        """Last state, with the present time; any thread may call it."""
        return replace(self._state, now=self._clock())

    def _asked(self, query_id: str, key: str) -> messages.Asked:
        query, lease = self.ledger.query(query_id), self._leases.get(query_id)
        is_field, losses = self.ledger.team.problem.is_field, self.ledger.losses(query_id)
        places = {agent: place.tolist() for agent, place in query.points.items()} if is_field else {}
        until = lease.until if lease is not None and lease.key == key else None
        return messages.Asked(query_id, query.point, places, until, lease is None, losses, query.mean, query.std)

    def _catch_up(self) -> None:
        """Take new events of the ledger, and renew the state."""
        for event, outcomes in self._told.new(self.ledger):
            if event.kind in ("ask", "lost"):
                # a query that was asked without a desk is free
                key, until = event.note.get(_KEY, ""), event.note.get(_UNTIL, 0.0)
                self._keys |= {key: event.query} if key else {}
                self._leases[event.query] = Lease(key, until)
            for known in outcomes:
                self._outcomes.append(known.value)
                if known.value is not None and (self._best.outcome is None or known.value > self._best.outcome):
                    self._best = messages.Best(known.value, event.query, known.point)
                    self._curve.append((len(self._outcomes), known.value))
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
