"""Checks of outcomes that a user tells or attaches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from swarmbo.belief.gp.data import checked_rounds
from swarmbo.boundary.values import LARGEST_OUTCOME, real_array, reported_place, short, table, told_noise, told_number
from swarmbo.deciding.logbook import Logbook, OpenQuery
from swarmbo.errors import ConfigError, ConflictError, ShapeError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.problem.data import Dataset, News

Outcome = SupportsFloat | None | Mapping[str, SupportsFloat | None]
Noise = SupportsFloat | None | Mapping[str, SupportsFloat | None]


def news_of(
    log: Logbook,
    query_id: str,
    outcome: Outcome,
    point: Mapping[str, float] | None,
    locations: Mapping[str, ArrayLike] | None,
    noise_std: Noise = None,
    *,
    failed: bool,
) -> News | None:
    """News from a user's outcome of a query, without outcomes that are known; None if all are; see ``AskTell.tell``."""
    problem, query = log.problem, log.asked_of(query_id)
    if problem.is_field:
        if point is not None:
            raise ConfigError("got a point; wanted locations = {agent: location}, as this is a field", at="$.point")
        told = {} if outcome is None else table(outcome, "{agent: outcome}", "$.outcomes")
        where = {} if locations is None else table(locations, "{agent: location}", "$.locations")
        log.asked_of(query_id, told)
        if strangers := [agent for agent in where if agent not in told]:
            raise UnknownQueryError(f"got locations of {strangers} without outcomes; wanted both or only outcomes")
        sent = problem.places(query.point, query.waits)
        places = sent | {agent: measured_place(problem, agent, where[agent]) for agent in where}
        total, factors, rest_failed = None, _numbers(told), failed
        spot = problem.joint({agent: places[agent] for agent in query.waits if failed or agent in factors})
    else:
        if locations is not None:
            raise ConfigError(
                "got locations; wanted point = {variable: value}, as this is a function", at="$.locations"
            )
        spot = query.point if point is None else problem.placed(point)
        total, factors = _outcome_of(outcome, problem)
        rest_failed = failed or not isinstance(outcome, Mapping)
        log.asked_of(query_id, factors)
    total_noise, noise = noise_of(noise_std, total, factors)
    known = {channel: y for channel, y in factors.items() if channel not in query.waits}
    for channel, y in known.items():
        require_same(query_id, repr(channel), y, known_outcome(log, query_id, query, channel))
    if not query.waits:
        _require_same_whole(log, query_id, query, total, is_failed=rest_failed and not known)
        return None
    new = {channel: y for channel, y in factors.items() if channel in query.waits}
    if total is None and rest_failed:
        new = dict.fromkeys(query.waits, np.nan) | new
    if known and not new and total is None:
        return None
    return News(spot, total, new, total_noise, {channel: noise[channel] for channel in new if channel in noise})


def known_outcome(log: Logbook, query_id: str, query: OpenQuery, channel: str) -> float:
    """Outcome of a channel for which a query does not wait any more; NaN if it failed."""
    data, column = log.history, log.problem.channels.index(channel)
    assert query.row is not None
    if data.taken is not None and not data.taken[query.row, column]:
        raise UnknownQueryError(f"query {query_id!r}: {channel!r} is not pending, as it was given up")
    outcome = float(data.factors[query.row, column])
    if np.isnan(outcome) and not np.isnan(total := data.totals[query.row]):
        raise ConflictError(f"query {query_id!r}: got an outcome of {channel!r}; told before: the total {total}")
    return outcome


def require_same(query_id: str, what: str, outcome: float | None, before: float | None) -> None:
    """Refuse an outcome that differs from the known one; None and NaN for failed ones."""
    got, known = (math.nan if y is None else y for y in (outcome, before))
    if got != known and not (math.isnan(got) and math.isnan(known)):
        got, known = ("a failure" if math.isnan(y) else str(y) for y in (got, known))
        raise ConflictError(f"query {query_id!r}: got {what} {got}; told before: {known}")


def _require_same_whole(log: Logbook, query_id: str, query: OpenQuery, total: float | None, *, is_failed: bool) -> None:
    """Refuse another total than the known one, and a failure of a query of which nothing failed."""
    data = log.history
    if total is not None:
        require_same(query_id, "the total", total, float(data.totals[query.row]))
    elif is_failed and not data.failed[query.row].any():
        told = {c: float(y) for c, y in zip(log.problem.channels, data.factors[query.row], strict=True) if y == y}
        raise ConflictError(f"query {query_id!r}: got a failure; told before: {short(told)}")


def attached(
    points: object,
    outcomes: object,
    problem: Problem,
    rounds: ArrayLike | float | None = None,
    agents: str | Sequence[str] | None = None,
    noise_std: object = None,
) -> Dataset:
    """Dataset of evaluations that a user attaches, NaN for failed or missing ones; see ``AskTell.attach``.

    Raises:
        ShapeError: If shapes do not fit, a location is not finite or far from the box, or a noise is negative.
        ConfigError: If a joint point is not in bounds, or an agent is unknown.

    Example:
        >>> from swarmbo.graph import FactorGraph
        >>> problem = Problem.of(FactorGraph.from_scopes({"f": ["x"], "g": ["y"]}), dict.fromkeys("xy", (0.0, 1.0)))
        >>> data = attached([[0.1, 0.2]], [1.5], problem)
        >>> data.X.tolist(), data.totals.tolist(), data.factors.tolist()
        ([[0.1, 0.2]], [1.5], [[nan, nan]])
    """
    X, y = real_array(points), real_array(outcomes)
    if X is None or y is None:
        got = short(points if X is None else outcomes)
        raise ShapeError(f"got {got}; wanted arrays of numbers, NaN where it failed")
    X, y = np.atleast_2d(X), np.where(np.abs(y) < LARGEST_OUTCOME, y, np.nan)
    rounds = None if rounds is None else checked_rounds(rounds, len(X))
    t, n, k = len(X), problem.domain.n_dims, len(problem.channels)
    unknown, nothing = np.full(t, np.nan), np.full((t, k), np.nan)
    noise = np.full((t, 1 + k), np.nan)
    if problem.is_field:
        y, d = y.reshape(-1), problem.box.n_dims
        if X.shape not in ((len(y), d), (len(y), d + 1)):
            raise ShapeError(f"got locations {X.shape} and {len(y)} outcomes; wanted ({len(y)}, {d})")
        if not (near := problem.box.is_near(X[:, :d]) & np.isfinite(X).all(axis=1)).all():
            row = int(np.argmin(near))
            raise ShapeError(f"locations[{row}]: got {X[row].tolist()}; wanted finite numbers, in or near the box")
        joint = np.full((t, n), np.nan)
        known = _known_noise(noise_std, y[:, None])[:, 0]
        for row, channel in enumerate(_measurers(problem, agents, t)):
            joint[row, problem.columns(problem.channels[channel])], nothing[row, channel] = X[row, :d], y[row]
            noise[row, 1 + channel] = known[row]
        return Dataset(joint, unknown, nothing, X[:, d] if X.shape[1] > d else rounds, noise_std=noise)
    if agents is not None:
        raise ConfigError("got agents; wanted none: of a function all of them set one joint point", at="$.agents")
    if X.shape != (t, n) or y.shape not in ((t,), (t, k)):
        raise ShapeError(f"got points {X.shape} and outcomes {y.shape}; wanted (t, {n}) and (t,) or (t, {k})")
    if y.ndim == 1 and problem.outcomes == "per-factor":
        if k > 1:
            raise ShapeError(f"got totals; this team observes factors: wanted outcomes ({t}, {k})")
        y = y[:, None]  # the total is the outcome of the only factor
    X = problem.points(X)
    if y.ndim == 1:
        noise[:, :1] = _known_noise(noise_std, y[:, None])
        return Dataset(X, y, nothing, rounds, noise_std=noise)
    noise[:, 1:] = _known_noise(noise_std, y)
    return Dataset(X, unknown, y, rounds, noise_std=noise)


def _known_noise(noise_std: object, y: Float[np.ndarray, "t k"]) -> Float[np.ndarray, "t k"]:
    """Standard deviation of the noise of attached outcomes; NaN if unknown."""
    given, (t, k) = real_array(np.nan if noise_std is None else noise_std), y.shape
    if given is None or given.shape not in ((), (t,), (t, k)):
        got = short(noise_std) if given is None else f"shape {given.shape}"
        raise ShapeError(f"noise_std: got {got} for {t} points; wanted a number, ({t},)" + (f" or {y.shape}" * (k > 1)))
    noise = np.broadcast_to(given[:, None] if given.ndim == 1 else given, (t, k))
    if (refused := ~np.isnan(noise) & ~((noise >= 0.0) & (noise < LARGEST_OUTCOME))).any():
        row, column = np.argwhere(refused)[0]
        raise ShapeError(f"noise_std[{row}]: got {noise[row, column]}; wanted a finite number >= 0, NaN if not known")
    return noise


def noise_of(noise_std: Noise, total: float | None, factors: Mapping[str, float]) -> tuple[float, dict[str, float]]:
    """Noise of the total, and of the outcomes of channels."""
    if not isinstance(noise_std, Mapping):
        noise = told_noise(noise_std, "the evaluation")
        return noise, {} if np.isnan(noise) else dict.fromkeys(factors, noise)
    given = table(noise_std, "{channel: standard deviation}", "$.noise_std")
    if total is not None:
        raise ConfigError(f"got {short(given)} of a total; wanted a number", at="$.noise_std")
    if strangers := [channel for channel in given if channel not in factors]:
        raise UnknownQueryError(f"got noise_std of {strangers} without outcomes; wanted some of {list(factors)}")
    noises = {channel: told_noise(noise, repr(channel)) for channel, noise in given.items()}
    return np.nan, {channel: noise for channel, noise in noises.items() if not np.isnan(noise)}


def _measurers(problem: Problem, agents: str | Sequence[str] | None, count: int) -> list[int]:
    """Channel of each attached measurement in a field."""
    given = problem.agents[0] if agents is None else agents
    names = [given] * count if isinstance(given, str) else list(given)
    if len(names) != count:
        raise ShapeError(f"got {len(names)} agents for {count} measurements; wanted one, or one for each")
    if strangers := [name for name in names if name not in problem.agents]:
        raise ConfigError(f"got {short(strangers[0])}; wanted one of {list(problem.agents)}", at="$.agents")
    return [problem.channels.index(name) for name in names]


def _outcome_of(outcome: Outcome, problem: Problem) -> tuple[float | None, dict[str, float]]:
    """Total of a function, or outcomes of factors: none of them if the evaluation failed as a whole."""
    if isinstance(outcome, Mapping):
        return None, _numbers(table(outcome, "{factor: outcome}", "$.outcome"))
    number = told_number(outcome, "the evaluation")
    if problem.outcomes == "total":
        return number, {}
    if np.isnan(number):
        return None, {}
    if len(problem.channels) > 1:
        raise ConfigError(
            f"got the total {number}; this team observes factors: wanted a table {{factor: outcome}}. With "
            "outcomes = 'total' a team learns from both",
            at="$.outcome",
        )
    return None, dict.fromkeys(problem.channels, number)


def _numbers(told: Mapping[str, Any]) -> dict[str, float]:
    return {channel: told_number(value, repr(channel)) for channel, value in told.items()}


def measured_place(problem: Problem, agent: str, location: object) -> Float[np.ndarray, " d"]:
    """Check the location (d,) of an agent's measurement."""
    place, d = reported_place(location), problem.box.n_dims
    if place is None or place.shape != (d,) or not problem.box.is_near(place):
        raise ShapeError(f"location of {agent!r}: got {short(location)}; wanted {d} numbers in or near the box")
    return place
