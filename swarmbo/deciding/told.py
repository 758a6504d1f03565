"""Outcomes that users tell to a team, or to an agent about its own channels, and their checks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsFloat

import msgspec
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.boundary import values
from swarmbo.deciding import offers, tables
from swarmbo.deciding.logbook import Logbook
from swarmbo.deciding.own_rows import UNREQUESTED, OwnRow
from swarmbo.errors import ConfigError, ConflictError, ShapeError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.problem.data import Measurement, News
from swarmbo.worlds.fields import measurements_of

Outcome = SupportsFloat | None | Mapping[str, SupportsFloat | None]
OwnChannels = tuple[str, ...] | None  # channels of an agent; None: all
Point = Float[np.ndarray, " n"]
Noise = SupportsFloat | None | Mapping[str, SupportsFloat | None]


class ToldOutcome(NamedTuple):
    """Arguments of ``tell`` about an evaluation; ``failed`` is True if all outcomes that are not given failed."""

    outcome: Outcome
    point: Mapping[str, Any] | None
    locations: Mapping[str, ArrayLike] | None
    noise_std: Noise
    failed: bool


def news_of(log: Logbook, query_id: str, told: ToldOutcome, own: OwnChannels = None) -> News | None:
    """News of told outcomes (``AskTell.tell``) of ``own`` channels, without recorded outcomes; None if none is left."""
    query, channels = log.requested_query(query_id), log.problem.channels if own is None else own
    awaited = [channel for channel in query.awaited if own is None or channel in own]
    if log.problem.is_field:
        point, total, factors, rest_failed = _checked_measurements(log, query_id, query.point, awaited, told, own)
    else:
        if told.locations is not None:
            wanted = "point = {variable: value}, as this is a function"
            raise ConfigError(f"got locations; wanted {wanted}", at="$.locations")
        point = query.place if told.point is None else log.problem.placed(told.point)
        total, factors = _total_or_factors(told.outcome, log.problem, own)
        rest_failed = told.failed or not isinstance(told.outcome, Mapping)
        log.requested_query(query_id, factors)
    total_noise, noise = noise_of(told.noise_std, total, factors)
    is_awaited = frozenset(awaited)
    new = {channel: y for channel, y in factors.items() if channel in is_awaited}
    for channel in factors.keys() - new.keys():
        _require_same(query_id, repr(channel), factors[channel], _recorded_outcome(log, query_id, query.row, channel))
    if total is not None and not query.awaited:
        _require_same(query_id, "the total", total, float(log.history.totals[query.row]))
        return None
    if total is None and rest_failed and channels:
        if not awaited and not factors:
            data, columns = log.history, [log.problem.graph.place_of[channel] for channel in channels]
            if not data.failed[query.row, columns].any():
                recorded = dict(zip(channels, data.factors[query.row, columns].tolist(), strict=True))
                raise ConflictError(f"query {query_id!r}: got a failure; recorded before: {values.short(recorded)}")
        new = dict.fromkeys(awaited, np.nan) | new
    # an agent without factors still tells the actual values of its variables
    if total is None and not new and channels and (factors or not awaited):
        return None
    return News(point, total, new, total_noise, {channel: noise[channel] for channel in new if channel in noise})


def _checked_measurements(
    log: Logbook, query_id: str, requested: Point, awaited: Sequence[str], told: ToldOutcome, own: OwnChannels
) -> tuple[Point, None, dict[str, float], bool]:
    """Check outcomes in a field, and the locations of agents that measured elsewhere; True if other outcomes failed."""
    if told.point is not None:
        raise ConfigError("got a point; wanted locations = {agent: location}, as this is a field", at="$.point")
    factors = _outcomes_by_channel(told.outcome, "{agent: outcome}", "$.outcomes", own)
    rest_failed = told.failed or told.outcome is None
    log.requested_query(query_id, factors)
    given = {} if told.locations is None else values.table(told.locations, "{agent: location}", "$.locations")
    if strangers := [agent for agent in given if agent not in factors]:
        raise UnknownQueryError(f"got locations of {strangers} without outcomes; wanted both or only outcomes")
    actual = {agent: measured_place(log.problem, agent, location) for agent, location in given.items()}
    places = log.problem.places(requested, awaited) | actual
    point = log.problem.joint({agent: places[agent] for agent in awaited if rest_failed or agent in factors})
    return point, None, factors, rest_failed


def _recorded_outcome(log: Logbook, query_id: str, row: int | None, channel: str) -> float:
    """Recorded outcome of a channel that the query no longer awaits; NaN if it failed."""
    data, column = log.history, log.problem.graph.place_of[channel]
    assert row is not None
    if not data.taken[row, column]:
        raise UnknownQueryError(f"query {query_id!r}: {channel!r} is not pending, as it was given up")
    outcome = float(data.factors[row, column])
    if np.isnan(outcome) and not np.isnan(total := data.totals[row]):
        raise ConflictError(f"query {query_id!r}: got an outcome of {channel!r}; recorded before: the total {total}")
    return outcome


def _require_same(query_id: str, what: str, outcome: float, recorded: float) -> None:
    """Refuse an outcome that differs from the recorded one; NaN means failed."""
    if outcome != recorded and not (math.isnan(outcome) and math.isnan(recorded)):
        got = f"a failure of {what}" if math.isnan(outcome) else f"{what} {outcome}"
        before = "a failure" if math.isnan(recorded) else recorded
        raise ConflictError(f"query {query_id!r}: got {got}; recorded before: {before}")


def measured_of(constraints: object, problem: Problem) -> dict[str, float]:
    """Measured quantities that have limits, as a user tells them; unknown quantities are left out."""
    given = problem.quantities(constraints)
    told = {name: values.outcome_from_user(value, f"the quantity {name!r}") for name, value in given.items()}
    return _known_entries(told)


def quantities_in(infos: Mapping[str, Mapping[str, Any]], problem: Problem) -> dict[str, float]:
    """Measured quantities that have limits, from an environment's infos; what is not a number is left out."""
    given = [info.get("constraints") for info in infos.values()]
    found = {name: value for table in given if isinstance(table, Mapping) for name, value in table.items()}
    return _known_entries({name: values.reported_number(found.get(name)) for name in problem.ranges})


def _known_entries(entries: Mapping[str, float]) -> dict[str, float]:
    """Entries of a table that are not NaN."""
    return {name: number for name, number in entries.items() if not math.isnan(number)}


def noise_of(noise_std: Noise, total: float | None, factors: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """Noise of the total (NaN if unknown), and of the channels' outcomes, from a user's argument."""
    if not isinstance(noise_std, Mapping):
        noise = values.noise_from_user(noise_std, "the evaluation")
        return noise, {} if np.isnan(noise) else dict.fromkeys(factors, noise)
    given = values.table(noise_std, "{channel: standard deviation}", "$.noise_std")
    if total is not None:
        raise ConfigError(f"got {values.short(given)} of a total; wanted a number", at="$.noise_std")
    if strangers := [channel for channel in given if channel not in factors]:
        raise UnknownQueryError(f"got noise_std of {strangers} without outcomes; wanted some of {list(factors)}")
    stds = {channel: values.noise_from_user(noise, repr(channel)) for channel, noise in given.items()}
    return np.nan, _known_entries(stds)


def _total_or_factors(outcome: Outcome, problem: Problem, own: OwnChannels) -> tuple[float | None, dict[str, float]]:
    """Total of a function (else None), and outcomes of factors; no outcome if the evaluation failed as a whole."""
    if isinstance(outcome, Mapping):
        return None, _outcomes_by_channel(outcome, "{factor: outcome}", "$.outcome", own)
    number, channels = values.outcome_from_user(outcome, "the evaluation"), problem.channels if own is None else own
    if problem.outcomes == "total":
        return number, {}
    if np.isnan(number):
        return None, {}
    if len(channels) != 1:
        hint = ". With outcomes = 'total' a team learns from both" if own is None else f" of its factors {list(own)}"
        got = f"got {number}, one number for several factors"
        raise ConfigError(f"{got}; wanted a table {{factor: outcome}}{hint}", at="$.outcome")
    return None, {channels[0]: number}


def _outcomes_by_channel(outcome: object, form: str, at: str, own: OwnChannels) -> dict[str, float]:
    """Outcomes by channel, NaN if failed."""
    given = {} if outcome is None else values.table(outcome, form, at)
    if own is not None and (foreign := [channel for channel in given if channel not in own]):
        raise ConfigError(f"got {foreign}; wanted only its own: {list(own)}", at=at)
    return {channel: values.outcome_from_user(value, repr(channel)) for channel, value in given.items()}


def measured_place(problem: Problem, agent: str, location: object) -> Float[np.ndarray, " d"]:
    """Check the location (d,) of an agent's measurement."""
    place, d = values.reported_place(location), problem.box.n_dims
    if place is None or place.shape != (d,) or not problem.box.is_near(place):
        got = f"location of {agent!r}: got {values.short(location)}"
        raise ShapeError(f"{got}; wanted {d} numbers {problem.box.NEAR}")
    return place


@dataclass(frozen=True)
class AgentInputs:
    """Factors and variables of an agent, and checks of its inputs."""

    name: str
    problem: Problem
    factors: tuple[str, ...]
    variables: tuple[str, ...]

    def checked_outcome(
        self, log: Logbook, query_id: str, before: OwnRow, told: ToldOutcome, order: int, reporter: str | None
    ) -> OwnRow | None:
        """Check outcomes of a query, and drop recorded outcomes; None if none is left; see ``Agent.tell``.

        ``before`` has outcomes that the agent got and that its log does not have yet. Totals are told to the
        ``reporter``, by default the first agent, which reports them.
        """
        first, outcome, point = reporter or self.problem.agents[0], told.outcome, told.point
        if self.problem.is_field:
            if point is not None:
                raise ConfigError("got a point; wanted location = …, as this is a field", at="$.point")
            if before.has_ended:
                raise UnknownQueryError(f"query {query_id!r} is not pending, as {self.name!r} has observed its end")
            outcome = outcome if isinstance(outcome, Mapping) else {self.name: None if told.failed else outcome}
        elif self.problem.shares_outcomes and not isinstance(outcome, Mapping) and self.name != first:
            wanted = f"it given to {first!r}, which reports it to the others"
            raise ConfigError(f"got a total; wanted {wanted}", at="$.outcome")
        if query_id in log.open:  # add outcomes that the log does not have yet
            awaited = log.open[query_id].awaited
            new = {f: np.nan if y is None else y for f, y in before.factors.items() if f in awaited}
            log = log.with_factors(query_id, new) if new else log
        if query_id in log.open and before.total is not msgspec.UNSET:
            log = log.with_total(query_id, np.nan if before.total is None else before.total)
        own_values = {} if point is None else values.table(point, "{variable: value}", "$.point")
        if foreign := [variable for variable in own_values if variable not in self.variables]:
            raise ConfigError(f"got {foreign}; wanted only its own: {list(self.variables)}", at="$.point")
        place = self.problem.named(log.requested_query(query_id).place) if own_values else {}
        point = {**place, **own_values} or None
        news = news_of(log, query_id, told._replace(outcome=outcome, point=point), self.factors)
        if news is None:
            return None
        if self.problem.is_field:
            return OwnRow.measured(order, self.problem, self.name, news.measurement(self.name, self.problem))
        actual = self.problem.coded(news.point)
        return OwnRow.of_news(order, news, self.factors, {variable: actual[variable] for variable in own_values})

    def checked_unrequested(self, before: OwnRow, told: ToldOutcome, order: int) -> OwnRow:
        """Check a measurement in a field without a query, such as at the start; see ``Agent.tell``."""
        if before.has_news:
            raise UnknownQueryError(f"got {self.name!r} again without a query; its measurement is already known")
        given = told.outcome if isinstance(told.outcome, Mapping) else {self.name: told.outcome}
        outcomes = {} if told.failed else _outcomes_by_channel(given, "{agent: outcome}", "$.outcome", self.factors)
        y = outcomes.get(self.name, np.nan)
        if told.locations is None:
            raise ConfigError("got none; wanted the location, as no query asked for this measurement", at="$.location")
        place = measured_place(self.problem, self.name, told.locations[self.name])
        _, noise = noise_of(told.noise_std, None, {self.name: y})
        measurement = Measurement.of(place, y, noise.get(self.name, np.nan))
        return OwnRow.measured(order, self.problem, self.name, measurement)

    def checked_attached(self, given: tables.Rows, present: int, order: int, *, takes_rounds: bool) -> list[OwnRow]:
        """Check unrequested evaluations of a function; see ``Agent.attach``. ``present`` is the default round."""
        data = tables.attached(given, self.problem, self.factors, takes_rounds=takes_rounds)
        channels = self.problem.channels
        is_by_factor = not self.problem.shares_outcomes or np.ndim(given.outcomes) == 2
        rounds = np.full(len(data), float(present)) if data.rounds is None else data.rounds
        has_total, rows = not is_by_factor and self.name == self.problem.agents[0], list[OwnRow]()
        for x, y, known, round, noise in zip(data.X, data.totals, data.factors, rounds, data.known_noise, strict=True):
            by_factor = dict(zip(channels, known.tolist(), strict=True)) if is_by_factor else {}
            stds = {channel: std for channel, std in zip(channels, noise[1:].tolist(), strict=True) if std == std}
            news = News(x, float(y) if has_total else None, by_factor, float(noise[0]), stds)
            place = {v: code for v, code in self.problem.coded(x).items() if v in self.variables}
            rows.append(OwnRow.of_news(order + len(rows), news, self.factors, place, float(round)))
        return rows

    def checked_info(self, log: Logbook, query_id: str, info: Mapping[str, Any], *, order: int, is_all: bool) -> OwnRow:
        """Check the info of a round from the agent's environment; see ``Agent.observe``."""
        sent: Mapping[str, np.ndarray] = {}
        if query_id != UNREQUESTED:
            point = log.query(query_id).point
            sent = self.problem.places(point, self.problem.channels_in(point))
        measurement, stops = measurements_of(info, sent.get(self.name), self.problem.box)
        return OwnRow.measured(order, self.problem, self.name, measurement, stops, has_ended=is_all)

    def checked_offer(
        self, candidates: ArrayLike | None, price: float, position: ArrayLike | None, *, takes_part: bool
    ) -> offers.Offer:
        """Check the agent's reachable locations in a round; see ``Agent.ask``."""
        if not values.reported_number(price) >= 0.0:
            raise ConfigError(f"got {values.short(price)}; wanted a finite number >= 0", at="$.price")
        if not self.problem.is_field:
            if not (candidates is None and position is None and price == 0.0 and takes_part):
                raise ConfigError("got candidates, a price or a position; wanted none: only a field has locations")
            return offers.Offer()
        places = None
        if candidates is not None:
            places = tuple(map(tuple, offers.checked_candidates(self.name, candidates, self.problem.box).tolist()))
        own_position = None if position is None else tuple(measured_place(self.problem, self.name, position).tolist())
        return offers.Offer(places, float(price), own_position, takes_part)


def checked_sites(sites: ArrayLike, problem: Problem) -> Float[np.ndarray, "k d"]:
    """Check all measurable locations (k, d), k >= 1, of a field."""
    if not problem.is_field or not len(checked := offers.checked_candidates("", sites, problem.box)):
        raise ConfigError("got no locations, or those of a function; wanted locations in a field", at="$.sites")
    return checked
