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
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.letters import Answer
from swarmbo.problem import Problem
from swarmbo.worlds import FunctionWorld, Infos, Report

_AT = "--measure"
_KEYS = ("measurement", "factors", "noise_std", "location")


# A robot, access point or instrument behind ``swarmbo agent NAME --measure module:function``: called with one place at
# a time, in a field the location (d,), physical, of a function the values of the agent's own variables, by name. It
# returns the outcome after the measurement: a number, or None or NaN if it failed. Or a table: ``measurement``, that
# number, or of an agent with several factors ``factors``, {factor: number}; ``noise_std`` if known, >= 0, of all or by
# factor; in a field ``location`` (d,), the actual one. Anything else is refused and ends the run.
Instrument = Callable[[Any], float | Mapping[str, Any] | None]


def loaded(name: str, trust: bool) -> Instrument:
    """Function that a command names as ``module:function``; a ConfigError if not trusted, found, or callable."""
    if not registry.is_own(name):
        raise ConfigError(f"got {name!r}; wanted 'module:function'", at=_AT)
    if not trust:
        raise ConfigError(f"got {name!r}, your own code; wanted --trust, which runs it", at=_AT)
    registry.find_in([os.getcwd()], name, _AT)
    found: Any = registry.load(name, _AT)
    if callable(found):
        return cast(Instrument, found)
    raise ConfigError(f"got {name!r}, which is {values.short(found)}; wanted a function of a location", at=_AT)


def require_measurable(problem: Problem, agent: str) -> None:
    """Refuse an agent that has nothing of its own to measure."""
    if problem.outcomes == "total":
        raise ConfigError("got totals, which no agent can measure alone; wanted outcomes per factor", at="--measures")
    if not problem.graph.factors_owned_by(agent):
        raise ConfigError(f"got {agent!r}, which owns no factor; wanted an agent that measures", at="--measures")


def require_fits(measure: Instrument | None, agent: str, measures: Sequence[str]) -> None:
    """Refuse an instrument of an agent that is not in ``measures``, and a listed agent without one."""
    if (measure is not None) is not (agent in measures):
        got = "nothing to measure by" if measure is None else "something to measure by"
        wanted = "--measure module:function" if measure is None else "a fleet begun with --measures of it"
        raise ConfigError(f"got {got} for {agent!r}; wanted {wanted}", at=_AT)


def answered(measure: Instrument, problem: Problem, agent: str, place: list[float]) -> Answer:
    """Measure at a place: codes of the agent's own variables, in a field its location. An exception of the instrument
    is a failed measurement, which the log names; a ShapeError if the result is inadmissible.
    """
    channels = problem.graph.factors_owned_by(agent)
    named = problem.valued(dict(zip(problem.graph.variables_owned_by(agent), place, strict=True)))
    try:
        told = measure(np.array(place) if problem.is_field else named)
    except Exception as error:  # noqa: BLE001
        return Answer(dict.fromkeys(channels), failure=values.error_text(error))
    try:
        return _answer(told if isinstance(told, Mapping) else {"measurement": told}, problem, agent)
    except SwarmboError as error:
        raise ShapeError(f"the measurement function of {agent!r} returned {values.short(told)}: {error}") from error


def _answer(told: Mapping[str, Any], problem: Problem, agent: str) -> Answer:
    channels, place = problem.graph.factors_owned_by(agent), told.get("location")
    if strange := [key for key in told if key not in _KEYS]:
        raise ShapeError(f"got {strange[0]!r}; wanted some of {list(_KEYS)}")
    if ("measurement" in told) is ("factors" in told) or ("measurement" in told and len(channels) > 1):
        wanted = "'measurement'" if len(channels) == 1 else f"'factors', a number for each of {list(channels)}"
        raise ShapeError(f"got {list(told)}; wanted {wanted}")
    given = told.get("factors", dict.fromkeys(channels, told.get("measurement")))
    if not isinstance(given, Mapping) or set(given) != set(channels):
        raise ShapeError(f"got {values.short(given)}; wanted a number for each of {list(channels)}")
    outcomes = {channel: values.outcome_from_user(given[channel], repr(channel)) for channel in channels}
    known = {channel: None if np.isnan(outcome) else outcome for channel, outcome in outcomes.items()}
    _, noise = noise_of(told.get("noise_std"), None, outcomes)
    if place is None:
        return Answer(known, noise)
    if not problem.is_field:
        raise ShapeError(f"got location {values.short(place)}; wanted none, as this is a function")
    return Answer(known, noise, tuple(measured_place(problem, agent, place).tolist()))


class MeasuredElsewhere(BaseParallelWrapper[str, Any, Any]):
    """Environment in which some agents measure by their own instruments, in place of its own measurements."""

    hub: Hub | None = None

    def __init__(self, env: Any, agents: tuple[str, ...], *, begins: bool = True) -> None:
        super().__init__(env)
        self._measuring, self._begins = agents, begins
        self._function = FunctionWorld(env) if hasattr(env.unwrapped, "factor_graph") else None
        if not hasattr(env.unwrapped, "get_state"):  # a failed step is then undone by repeating, and measuring, all
            got = "got agents with --measure in an environment without get_state()"
            raise ConfigError(f"{got}; wanted one that has it", at="--measures")

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment; agents that report their start measure there, if the run ``begins``."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations, self._measured(infos) if self._begins else infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment, then collect the agents' own measurements."""
        *rest, infos = self.env.step(actions)
        return *rest, self._measured(infos)

    def _measured(self, infos: Infos) -> dict[str, Any]:
        places = {agent: self._places(agent, infos[agent]) for agent in self._measuring if agent in infos}
        if lost := [agent for agent, there in places.items() if not there and Report.of(infos[agent]).is_measured]:
            got = f"the environment does not state where {lost[0]!r} is"
            raise TransportError(f"{got}; wanted its location, to measure there")
        asked = {agent: there for agent, there in places.items() if there}
        if self.hub is None or not asked:
            return dict(infos)
        answers, problem = self.hub.measure(asked), self.hub.problem
        found = dict(infos) | {agent: _told(infos[agent], answers[agent], problem, agent) for agent in asked}
        first = next(iter(found))  # a record takes the first source that an agent's info has
        failures = {agent: [answer.failure for answer in own if answer.failure] for agent, own in answers.items()}
        failed = {agent: why for agent, why in failures.items() if why}
        source = next((told for info in infos.values() if (told := Report.of(info).source) is not None), {})
        said = {"by_agents": list(asked), **({"failures": failed} if failed else {})}
        return found | {first: {**found[first], "source": {**source, **said}}}

    def _places(self, agent: str, info: Mapping[str, Any]) -> list[list[float]]:
        """Places (or codes) to measure: en route in turn, then its position; none if the agent abstained."""
        if self._function is not None and info.get("location") is not None:
            info = {**info, "location": self._function.coded(agent, info["location"])}
        report = Report.of(info)
        ends = [] if report.declined or not report.is_placed else [report.place]
        return [place.tolist() for place in (*(stop.place for stop in report.on_the_way), *ends) if place is not None]


def _told(info: Mapping[str, Any], answers: tuple[Answer, ...], problem: Problem, agent: str) -> dict[str, Any]:
    """An agent's info, with its own measurements in place of simulated ones."""
    report, told, left = Report.of(info), dict(info), list(answers)
    if report.on_the_way:
        stops = [{"location": stop.place, **_plain(left.pop(0), agent)} for stop in report.on_the_way]
        told["on_the_way"] = stops
    if not left:
        return told
    told.pop("factors", None)
    if problem.is_field:
        return told | _plain(left[0], agent)
    known = [y for y in left[0].outcomes.values() if y is not None]
    total = sum(known) if len(known) == len(left[0].outcomes) else None
    return told | {"measurement": total, "factors": left[0].outcomes, "noise_std": left[0].noise}


def _plain(answer: Answer, agent: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"measurement": answer.outcomes[agent], "noise_std": answer.noise.get(agent)}
    if answer.location is not None:
        plain["location"] = np.array(answer.location)
    return plain
