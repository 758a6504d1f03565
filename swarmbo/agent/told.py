"""Checks of an agent's inputs: outcomes of its own factors, and values of its own variables."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from msgspec import UNSET, UnsetType
from numpy.typing import ArrayLike

from swarmbo.boundary.values import real_array, reported_number, short, table, told_number
from swarmbo.deciding.candidates import checked_candidates
from swarmbo.deciding.logbook import Logbook, OpenQuery
from swarmbo.deciding.offers import Offer
from swarmbo.deciding.own_rows import UNASKED, OwnRow, OwnRows, shares_outcomes
from swarmbo.deciding.told import Noise, attached, known_outcome, measured_place, noise_of, require_same
from swarmbo.errors import ConfigError, ConflictError, ShapeError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.problem.data import Measurement
from swarmbo.worlds.fields import measurements_of

OwnOutcome = float | Mapping[str, float | None] | None


@dataclass(frozen=True)
class Owned:
    """Factors and variables of an agent, and checks of its inputs.

    ``teller`` is the agent that gets totals, and reports them; None: the first agent.
    """

    name: str
    problem: Problem
    teller: str | None = None

    @cached_property
    def factors(self) -> tuple[str, ...]:
        """Its factors."""
        return self.problem.graph.factors_owned_by(self.name)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """Its variables."""
        return self.problem.graph.variables_owned_by(self.name)

    def told(
        self,
        log: Logbook,
        query_id: str,
        before: OwnRow,
        outcome: OwnOutcome,
        point: Mapping[str, float] | None,
        noise_std: Noise,
        *,
        failed: bool,
        order: int,
    ) -> OwnRow | None:
        """Check outcomes of a query, and leave out known ones; None if all are; see ``Agent.tell``.

        ``before`` are those that it got and that its log does not have yet.
        """
        factors, total = self._outcome(outcome)
        query = log.asked_of(query_id, factors)
        waits = [factor for factor in query.waits if factor in self.factors and factor not in before.factors]
        told = {factor: np.nan if y is None else y for factor, y in factors.items()}
        of_total, noise = noise_of(noise_std, None if total is UNSET else np.nan, told)
        for factor in told.keys() - waits:
            is_new = factor in before.factors
            known = before.factors[factor] if is_new else known_outcome(log, query_id, query, factor)
            require_same(query_id, repr(factor), told[factor], known)
        has_total = before.total is not UNSET or not query.waits
        if total is not UNSET and has_total:
            known = before.total if before.total is not UNSET else float(log.history.totals[query.row])
            require_same(query_id, "the total", total, known)
        new = {factor: y for factor, y in factors.items() if factor in waits}
        if failed or (outcome is None and total is UNSET):
            if not waits and not factors:
                self._require_failure(log, query_id, query, before)
            new = dict.fromkeys(waits) | new
        if not new and (factors or not waits) and (total is UNSET or has_total):
            return None
        own = {} if point is None else table(point, "{variable: value}", "$.point")
        if foreign := [variable for variable in own if variable not in self.variables]:
            raise ConfigError(f"got {foreign}; wanted its own of {list(self.variables)}", at="$.point")
        placed = self.problem.named(self.problem.placed({**self.problem.named(query.point), **own}))
        return OwnRow(
            order,
            new,
            UNSET if has_total else total,
            {variable: placed[variable] for variable in own},
            noise={factor: std for factor, std in noise.items() if factor in new},
            total_noise=_known(of_total),
        )

    def _require_failure(self, log: Logbook, query_id: str, query: OpenQuery, before: OwnRow) -> None:
        """Refuse a failure of a query of which no own outcome failed."""
        known = {
            factor: before.factors[factor] if factor in before.factors else known_outcome(log, query_id, query, factor)
            for factor in self.factors
        }
        if not any(y is None or math.isnan(y) for y in known.values()):
            raise ConflictError(f"query {query_id!r}: got a failure; told before: {short(known)}")

    def attached(
        self,
        points: ArrayLike,
        outcomes: ArrayLike,
        rounds: ArrayLike | float | None,
        noise_std: ArrayLike | float | None,
        *,
        present: int,
        order: int,
    ) -> list[OwnRow]:
        """Check unrequested evaluations; see ``Agent.attach``. ``present`` is the default round."""
        y, channels = real_array(outcomes), self.problem.channels
        is_by_factor = not shares_outcomes(self.problem) or (y is not None and y.ndim == 2)
        if y is not None and y.ndim == 2:
            if y.shape[1] != len(self.factors):
                wanted = f"(t, {len(self.factors)}), of the agent's factors {list(self.factors)}"
                raise ShapeError(f"got outcomes {y.shape}; wanted {wanted}")
            own = [channels.index(factor) for factor in self.factors]
            given = real_array(np.nan if noise_std is None else noise_std)
            if given is not None and given.shape == y.shape:
                noise_std = np.full((len(y), len(channels)), np.nan)
                noise_std[:, own] = given
            everybody = np.full((len(y), len(channels)), np.nan)
            everybody[:, own] = y
            y = everybody
        data = attached(points, outcomes if y is None else y, self.problem, rounds, noise_std=noise_std)
        rounds = np.full(len(data), float(present)) if data.rounds is None else data.rounds
        rows: list[OwnRow] = []
        for x, total, known, of_round, noise in zip(
            data.X, data.totals, data.factors, rounds, data.known_noise, strict=True
        ):
            by_factor = dict(zip(channels, known.tolist(), strict=True)) if is_by_factor else {}
            stds = {channel: std for channel, std in zip(channels, noise[1:].tolist(), strict=True) if std == std}
            rows.append(
                OwnRow(
                    order + len(rows),
                    {factor: _known(by_factor[factor]) for factor in self.factors if factor in by_factor},
                    UNSET if is_by_factor or self.name != self.problem.agents[0] else _known(float(total)),
                    {
                        variable: value
                        for variable, value in self.problem.named(x).items()
                        if variable in self.variables
                    },
                    float(of_round),
                    {factor: std for factor, std in stds.items() if factor in by_factor and factor in self.factors},
                    _known(float(noise[0])),
                )
            )
        return rows

    def measured(
        self,
        log: Logbook,
        query_id: str,
        before: OwnRow,
        outcome: OwnOutcome,
        location: ArrayLike | None,
        noise_std: Noise,
        *,
        failed: bool,
        order: int,
    ) -> OwnRow | None:
        """Check a measurement in a field; None if it is known; see ``Agent.tell``."""
        factors, _ = self._outcome(None if failed else outcome)
        y = factors.get(self.name)
        if query_id == UNASKED:
            if before.has_come:
                raise UnknownQueryError(f"got {self.name!r} again without a query; its measurement is already known")
            if location is None:
                raise ConfigError(
                    "got none; wanted the location, as no query asked for this measurement", at="$.location"
                )
            place = measured_place(self.problem, self.name, location)
        else:
            query = log.asked_of(query_id, [self.name])
            if before.has_come or self.name not in query.waits:
                is_new = self.name in before.factors
                known = before.factors[self.name] if is_new else known_outcome(log, query_id, query, self.name)
                require_same(query_id, repr(self.name), y, known)
                return None
            sent = self.problem.places(query.point, [self.name])[self.name]
            place = sent if location is None else measured_place(self.problem, self.name, location)
        _, noise = noise_of(noise_std, None, {self.name: 0.0})
        measurement = Measurement(self.name, place, np.nan if y is None else y, noise.get(self.name, np.nan))
        return OwnRow.measured(order, self.problem, measurement)

    def observed(self, log: Logbook, query_id: str, info: Mapping[str, Any], *, order: int, is_all: bool) -> OwnRow:
        """Check its environment's info of a round; see ``Agent.observe``."""
        sent: Mapping[str, np.ndarray] = {}
        if query_id != UNASKED:
            point = log.query(query_id).point
            sent = self.problem.places(point, self.problem.channels_in(point))
        measurement, stops = measurements_of(self.name, info, sent.get(self.name), self.problem.box)
        return OwnRow.measured(order, self.problem, measurement, stops, has_ended=is_all)

    def surveyed(
        self,
        points: ArrayLike,
        outcomes: ArrayLike,
        rounds: ArrayLike | float | None,
        agents: str | Sequence[str] | None,
        noise_std: ArrayLike | float | None,
        present: int,
        before: OwnRows,
        *,
        fades: bool,
    ) -> OwnRows:
        """Check unrequested measurements in a field, and add them to its data; see ``Agent.attach``."""
        data = attached(points, outcomes, self.problem, rounds, agents, noise_std=noise_std)
        return before.surveyed(self.problem, self.name, data, present, fades=fades)

    def offer(
        self,
        candidates: ArrayLike | None,
        price: float,
        position: ArrayLike | None,
        *,
        takes_part: bool,
    ) -> Offer:
        """Check its reachable locations in a round; see ``Agent.ask``."""
        if not reported_number(price) >= 0.0:
            raise ConfigError(f"got {short(price)}; wanted a finite number >= 0", at="$.price")
        if not self.problem.is_field:
            if not (candidates is None and position is None and price == 0.0 and takes_part):
                raise ConfigError("got candidates, a price or a position; wanted none: only a field has locations")
            return Offer()
        places = None
        if candidates is not None:
            checked = checked_candidates({self.name: candidates}, [self.name], self.problem.box)[self.name]
            places = tuple(map(tuple, checked.tolist()))
        stands = None if position is None else tuple(measured_place(self.problem, self.name, position).tolist())
        return Offer(places, float(price), stands, takes_part)

    def _outcome(self, outcome: OwnOutcome) -> tuple[dict[str, float | None], float | UnsetType | None]:
        """Outcomes of own factors, and the total."""
        if isinstance(outcome, Mapping):
            told = table(outcome, "{factor: outcome}", "$.outcome")
            if foreign := [factor for factor in told if factor not in self.factors]:
                raise ConfigError(f"got {foreign}; wanted its own of {list(self.factors)}", at="$.outcome")
            return {factor: _known(told_number(value, repr(factor))) for factor, value in told.items()}, UNSET
        number = _known(told_number(outcome, "the evaluation"))
        if shares_outcomes(self.problem):
            if self.name != (first := self.teller or self.problem.agents[0]):
                raise ConfigError(
                    f"got a total; wanted it given to {first!r}, which reports it to the others", at="$.outcome"
                )
            return {}, number
        if number is None:
            return {}, UNSET
        if len(self.factors) != 1:
            raise ConfigError(f"got {number}; wanted a table of its factors {list(self.factors)}", at="$.outcome")
        return {self.factors[0]: number}, UNSET


def checked_sites(sites: ArrayLike, problem: Problem) -> Float[np.ndarray, "k d"]:
    """Check all measurable locations (k, d), k >= 1, of a field."""
    if not problem.is_field or not len(checked := checked_candidates({"": sites}, [""], problem.box)[""]):
        raise ConfigError("got none, or those of a function; wanted locations in a field", at="$.sites")
    return checked


def _known(number: float) -> float | None:
    """None for a failed outcome."""
    return None if math.isnan(number) else number
