"""Measurements of one agent by its own instrument, a user's function."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from pettingzoo.utils.wrappers import BaseParallelWrapper

from swarmbo import registry
from swarmbo.boundary import values
from swarmbo.deciding.told import measured_place, noise_of
from swarmbo.errors import ConfigError, ShapeError, SwarmboError, TransportError
from swarmbo.fleet.hub import Hub, Results
from swarmbo.fleet.messages import MeasurementResult
from swarmbo.problem import Problem
from swarmbo.worlds import FunctionWorld, Infos, Report

_AT = "--measure"
_KEYS = ("measurement", "factors", "noise_std", "location")

# Function of ``swarmbo agent NAME --measure module:function``, which measures with a robot, access point or instrument.
# It is called with one place at a time: in a field the location (d,), physical; in a function the values of the agent's
# own variables by name. It returns the outcome: a number, or None or NaN if the measurement failed. Or it returns a
# table: ``measurement``, that number (for several factors ``factors``, {factor: number}); ``noise_std`` >= 0, if known,
# for all or by factor; in a field ``location`` (d,), the actual one. Anything else is refused and ends the run.
Instrument = Callable[[Any], float | Mapping[str, Any] | None]


def load_instrument(name: str, trust: bool) -> Instrument:
    """Function that a command names as ``module:function``; a ConfigError if not trusted, found, or callable."""
    if not registry.is_user_code(name):
        raise ConfigError(f"got {name!r}; wanted 'module:function'", at=_AT)
    if not trust:
        raise ConfigError(f"got {name!r}, your own code; wanted --trust, which runs it", at=_AT)
    registry.add_module_folders([os.getcwd()], name, _AT)
    found: Any = registry.load(name, _AT)
    if callable(found):
        return cast(Instrument, found)
    raise ConfigError(f"got {name!r}, which is {values.short(found)}; wanted a function of a location", at=_AT)


def require_measurable(problem: Problem, agent: str) -> None:
    """Refuse an agent without a channel to measure."""
    if problem.outcomes == "total":
        raise ConfigError("got totals, which no agent can measure alone; wanted outcomes per factor", at="--measures")
    if not problem.graph.factors_owned_by(agent):
        raise ConfigError(f"got {agent!r}, which owns no factor; wanted an agent that measures", at="--measures")


def require_consistent(measure: Instrument | None, agent: str, measures: Sequence[str]) -> None:
    """Refuse an instrument of an agent that is not in ``measures``, and a listed agent without an instrument."""
    if measure is None and agent in measures:
        raise ConfigError(f"got no instrument for {agent!r}; wanted --measure module:function", at=_AT)
    if measure is not None and agent not in measures:
        raise ConfigError(f"got an instrument for {agent!r}; wanted a fleet started with --measures {agent}", at=_AT)


def measured(measure: Instrument, problem: Problem, agent: str, place: list[float]) -> MeasurementResult:
    """Measure at a place: codes of the agent's own variables, in a field its location. If the instrument raises, the
    measurement has failed, for a reason that is logged. A ShapeError if the result is inadmissible.
    """
    point = problem.valued(dict(zip(problem.graph.variables_owned_by(agent), place, strict=True)))
    try:
        returned = measure(np.array(place) if problem.is_field else point)
    except Exception as error:  # noqa: BLE001
        return MeasurementResult(dict.fromkeys(problem.graph.factors_owned_by(agent)), failure=values.error_text(error))
    try:
        return _checked(returned if isinstance(returned, Mapping) else {"measurement": returned}, problem, agent)
    except SwarmboError as error:
        raise ShapeError(f"the measurement function of {agent!r} returned {values.short(returned)}: {error}") from error


def _checked(returned: Mapping[str, Any], problem: Problem, agent: str) -> MeasurementResult:
    channels, location = problem.graph.factors_owned_by(agent), returned.get("location")
    if unknown := [key for key in returned if key not in _KEYS]:
        raise ShapeError(f"got {unknown[0]!r}; wanted some of {list(_KEYS)}")
    if ("measurement" in returned) is ("factors" in returned) or ("measurement" in returned and len(channels) > 1):
        wanted = "'measurement'" if len(channels) == 1 else f"'factors', a number for each of {list(channels)}"
        raise ShapeError(f"got {list(returned)}; wanted {wanted}")
    by_channel = returned.get("factors", dict.fromkeys(channels, returned.get("measurement")))
    if not isinstance(by_channel, Mapping) or set(by_channel) != set(channels):
        raise ShapeError(f"got {values.short(by_channel)}; wanted a number for each of {list(channels)}")
    numbers = {channel: values.outcome_from_user(by_channel[channel], repr(channel)) for channel in channels}
    outcomes = {channel: None if np.isnan(number) else number for channel, number in numbers.items()}
    _, noise = noise_of(returned.get("noise_std"), None, numbers)
    if location is None:
        return MeasurementResult(outcomes, noise)
    if not problem.is_field:
        raise ShapeError(f"got location {values.short(location)}; wanted none, as this is a function")
    return MeasurementResult(outcomes, noise, tuple(measured_place(problem, agent, location).tolist()))


class InstrumentWrapper(BaseParallelWrapper[str, Any, Any]):
    """Environment that replaces the measurements of some agents by those of their own instruments."""

    hub: Hub | None = None

    def __init__(self, env: Any, agents: tuple[str, ...], *, is_new_run: bool = True) -> None:
        super().__init__(env)
        self._measuring, self._is_new_run = agents, is_new_run
        self._function = FunctionWorld(env) if hasattr(env.unwrapped, "factor_graph") else None
        if not hasattr(env.unwrapped, "get_state"):  # a failed step would repeat all measurements
            got = "got agents with --measure in an environment without get_state()"
            raise ConfigError(f"{got}; wanted one that has it", at="--measures")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment; agents that report their start measure there, unless the run is resumed."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations, self._with_measurements(infos) if self._is_new_run else infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment, then collect the agents' own measurements."""
        *rest, infos = self.env.step(actions)
        return *rest, self._with_measurements(infos)

    def _with_measurements(self, infos: Infos) -> dict[str, Any]:
        places = {agent: self._places(agent, infos[agent]) for agent in self._measuring if agent in infos}
        if lost := [agent for agent, here in places.items() if not here and Report.of(infos[agent]).is_measured]:
            got = f"the environment does not state where {lost[0]!r} is"
            raise TransportError(f"{got}; wanted its location, to measure there")
        asked = {agent: here for agent, here in places.items() if here}
        if self.hub is None or not asked:
            return dict(infos)
        results, problem = self.hub.measure(asked), self.hub.problem
        measured = dict(infos) | {agent: _merged(infos[agent], results[agent], problem, agent) for agent in asked}
        failures = {agent: [result.failure for result in found if result.failure] for agent, found in results.items()}
        failures = {agent: reasons for agent, reasons in failures.items() if reasons}
        sources = (Report.of(info).source for info in infos.values())
        source = {**next((source for source in sources if source is not None), {}), "by_agents": list(asked)}
        source |= {"failures": failures} if failures else {}
        first = next(iter(measured))  # a record takes the first source that an agent's info has
        return measured | {first: {**measured[first], "source": source}}

    def _places(self, agent: str, info: Mapping[str, Any]) -> list[list[float]]:
        """Places (or codes) to measure, in order: those en route, then the agent's position unless it abstained."""
        if self._function is not None and info.get("location") is not None:
            info = {**info, "location": self._function.coded(agent, info["location"])}
        report = Report.of(info)
        places = [stop.place for stop in report.on_the_way]
        if report.is_placed and not report.declined:
            places.append(report.place)
        return [place.tolist() for place in places if place is not None]


def _merged(info: Mapping[str, Any], results: Results, problem: Problem, agent: str) -> dict[str, Any]:
    stops, merged = Report.of(info).on_the_way, dict(info)
    if stops:
        en_route = zip(stops, results[: len(stops)], strict=True)
        merged["on_the_way"] = [{"location": stop.place, **_plain(result, agent)} for stop, result in en_route]
    if len(results) == len(stops):
        return merged
    merged.pop("factors", None)
    last = results[-1]
    if problem.is_field:
        return merged | _plain(last, agent)
    known = [outcome for outcome in last.outcomes.values() if outcome is not None]
    total = sum(known) if len(known) == len(last.outcomes) else None
    return merged | {"measurement": total, "factors": last.outcomes, "noise_std": last.noise}


def _plain(result: MeasurementResult, agent: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"measurement": result.outcomes[agent], "noise_std": result.noise.get(agent)}
    if result.location is not None:
        plain["location"] = np.array(result.location)
    return plain
