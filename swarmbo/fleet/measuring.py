"""Measurements of one agent by its own instrument, a user's function."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np

from swarmbo.boundary.values import error_text, real_array, short, told_noise, told_number
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.fleet.letters import Answer
from swarmbo.problem import Problem
from swarmbo.registry.plugins import find_in, is_own, load

_AT = "--measure"
_KEYS = ("measurement", "factors", "noise_std", "location")


class Instrument(Protocol):
    """Robot, access point or instrument behind ``swarmbo agent NAME --measure module:function``.

    It is called with one location at a time, and returns after the measurement. An exception in it is a failed
    measurement, which the log names, and the run continues.

    Example:
        >>> def depth(place):
        ...     return 12.5 - 0.1 * place[0]
        >>> from swarmbo.problem import Problem
        >>> from swarmbo.spaces import Domain
        >>> field = Problem.of_field(["boat"], Domain(np.zeros(2), np.full(2, 9.0)))
        >>> answered(depth, field, "boat", [5.0, 1.0]).outcomes
        {'boat': 12.0}
    """

    def __call__(self, place: Any, /) -> float | Mapping[str, Any] | None:
        """Measure.

        Args:
            place: In a field, the location (d,), physical, as an array; of a function the values of the agent's own
                variables, by name.

        Returns:
            The outcome: a number; None or NaN if it failed. Or a table: ``measurement``, that number, or of an agent
            that owns several factors ``factors``, ``{factor: number}``; ``noise_std`` if known, >= 0, of all or by
            factor; in a field ``location`` (d,), the actual one. Anything else is refused and ends the run.
        """
        ...


def loaded(name: str, trust: bool) -> Instrument:
    """Load the function that a command names as ``module:function``, installed or in the present folder.

    Raises:
        ConfigError: If it is not trusted, cannot be loaded, or cannot be called.
    """
    if not is_own(name):
        raise ConfigError(f"got {name!r}; wanted 'module:function'", at=_AT)
    if not trust:
        raise ConfigError(f"got {name!r}, code that swarmbo does not bring; wanted --trust, which runs it", at=_AT)
    find_in([os.getcwd()], name, _AT)
    found: Any = load(name, _AT)
    if callable(found):
        return cast(Instrument, found)
    raise ConfigError(f"got {name!r}, which is {short(found)}; wanted a function of a place", at=_AT)


def require_measurable(problem: Problem, agent: str) -> None:
    """Refuse an agent that has nothing of its own to measure."""
    if problem.outcomes == "total":
        raise ConfigError("got totals, which no agent can measure alone; wanted outcomes per factor", at="$.measures")
    if not problem.graph.factors_owned_by(agent):
        raise ConfigError(f"got {agent!r}, which owns no factor; wanted an agent that measures", at="$.measures")


def require_fits(measure: Instrument | None, agent: str, measures: Sequence[str]) -> None:
    """Refuse an agent with an own instrument that the plan does not list, and conversely."""
    if (measure is not None) is not (agent in measures):
        got = "nothing to measure by" if measure is None else "something to measure by"
        wanted = "--measure module:function" if measure is None else "a fleet begun with --measures of it"
        raise ConfigError(f"got {got} for {agent!r}; wanted {wanted}", at=_AT)


def answered(measure: Instrument, problem: Problem, agent: str, place: list[float]) -> Answer:
    """Measure at a location, given as values of the agent's own variables.

    Raises:
        ShapeError: If the result is inadmissible.
    """
    channels = problem.graph.factors_owned_by(agent)
    named = dict(zip(problem.graph.variables_owned_by(agent), place, strict=True))
    try:
        told = measure(np.array(place) if problem.is_field else named)
    except Exception as error:  # noqa: BLE001  any exception of an instrument is a failed measurement
        return Answer(dict.fromkeys(channels), failure=error_text(error))
    try:
        return _answer(told if isinstance(told, Mapping) else {"measurement": told}, problem, channels)
    except ShapeError as error:
        raise ShapeError(f"what measures for {agent!r} returned {short(told)}: {error}") from error


def _answer(told: Mapping[str, Any], problem: Problem, channels: tuple[str, ...]) -> Answer:
    if strange := [key for key in told if key not in _KEYS]:
        raise ShapeError(f"got {strange[0]!r}; wanted some of {list(_KEYS)}")
    if ("measurement" in told) is ("factors" in told) or ("measurement" in told and len(channels) > 1):
        wanted = "'measurement'" if len(channels) == 1 else f"'factors', a number for each of {list(channels)}"
        raise ShapeError(f"got {list(told)}; wanted {wanted}")
    given = told.get("factors", dict.fromkeys(channels, told.get("measurement")))
    if not isinstance(given, Mapping) or set(given) != set(channels):
        raise ShapeError(f"got {short(given)}; wanted a number for each of {list(channels)}")
    outcomes = {channel: _known(told_number(given[channel], repr(channel))) for channel in channels}
    stds = told.get("noise_std")
    by_channel = stds if isinstance(stds, Mapping) else dict.fromkeys(channels, stds)
    noise = {channel: told_noise(by_channel.get(channel), repr(channel)) for channel in channels}
    return Answer(outcomes, {channel: std for channel, std in noise.items() if std == std}, _location(told, problem))


def _location(told: Mapping[str, Any], problem: Problem) -> tuple[float, ...] | None:
    if (given := told.get("location")) is None:
        return None
    place = real_array(given)
    if not problem.is_field or place is None or place.shape != (problem.box.n_dims,) or not problem.box.is_near(place):
        raise ShapeError(f"got location {short(given)}; wanted, in a field, {problem.box.n_dims} numbers in or near it")
    return tuple(place.tolist())


def _known(number: float) -> float | None:
    return None if np.isnan(number) else number
