"""An environment of which some agents measure elsewhere, with their own instruments."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from pettingzoo.utils.wrappers import BaseParallelWrapper

from swarmbo.errors import ConfigError, TransportError
from swarmbo.fleet.hub import Hub
from swarmbo.fleet.letters import Answer
from swarmbo.problem import Problem
from swarmbo.worlds import Infos, Report

Info = Mapping[str, Any]


class MeasuredElsewhere(BaseParallelWrapper[str, Any, Any]):
    """Environment that moves all agents, and in which the outcomes of some come from their own instruments.

    After each reset and step these agents measure at their positions in the environment: at the locations of
    measurements en route in turn, and then at the last one. Agents that abstained do not measure. The log has in
    ``source`` the agents with own instruments, and the reasons of failures.

    Raises:
        ConfigError: If the environment cannot be restored to an earlier state: measurements cannot be repeated.
    """

    hub: Hub | None = None

    def __init__(self, env: Any, agents: tuple[str, ...]) -> None:
        super().__init__(env)
        self._measuring = agents
        if not hasattr(env.unwrapped, "get_state"):
            raise ConfigError(
                "got agents with --measure in an environment without get_state(); wanted one that has it",
                at="$.measures",
            )

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Reset the environment; agents that report their start measure there."""
        observations, infos = self.env.reset(seed=seed, options=options)
        return observations, self._measured(infos)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment, then collect the agents' own measurements."""
        *rest, infos = self.env.step(actions)
        return *rest, self._measured(infos)

    def _measured(self, infos: Infos) -> dict[str, Any]:
        places = {agent: _places(infos[agent]) for agent in self._measuring if agent in infos}
        if lost := [agent for agent, there in places.items() if not there and Report.of(infos[agent]).is_measured]:
            raise TransportError(f"the world does not say where {lost[0]!r} is; wanted its location, to measure there")
        asked = {agent: there for agent, there in places.items() if there}
        if self.hub is None or not asked:
            return dict(infos)
        answers, problem = self.hub.measure(asked), self.hub.problem
        found = dict(infos) | {agent: _told(infos[agent], answers[agent], problem, agent) for agent in asked}
        first = next(iter(found))
        failures = {agent: [answer.failure for answer in own if answer.failure] for agent, own in answers.items()}
        failed = {agent: why for agent, why in failures.items() if why}
        source = next((told for info in infos.values() if (told := Report.of(info).source) is not None), {})
        said = {"by_agents": list(asked), **({"failures": failed} if failed else {})}
        return found | {first: {**found[first], "source": {**source, **said}}}


def _places(info: Info) -> list[list[float]]:
    """Locations for an agent to measure: en route in turn, then its position; none if it abstained."""
    report = Report.of(info)
    ends = [] if report.declined or not report.is_placed else [report.place]
    return [place.tolist() for place in (*(stop.place for stop in report.on_the_way), *ends) if place is not None]


def _told(info: Info, answers: tuple[Answer, ...], problem: Problem, agent: str) -> dict[str, Any]:
    """An agent's info, with its own measurements in place of simulated ones."""
    report, told, left = Report.of(info), dict(info), list(answers)
    if report.on_the_way:
        stops = [{"location": stop.place, **_plain(left.pop(0), agent)} for stop in report.on_the_way]
        told["on_the_way"] = stops
    if not left:
        return told
    for key in ("measurement", "factors", "noise_std"):
        told.pop(key, None)
    if problem.is_field:
        return told | _plain(left[0], agent)
    known = [y for y in left[0].outcomes.values() if y is not None]
    total = sum(known) if len(known) == len(left[0].outcomes) else None
    return told | {"measurement": total, "factors": left[0].outcomes, "noise_std": left[0].noise}


def _plain(answer: Answer, agent: str) -> dict[str, Any]:
    """An answer in a field in the form of an info."""
    plain: dict[str, Any] = {"measurement": answer.outcomes[agent], "noise_std": answer.noise.get(agent)}
    if answer.location is not None:
        plain["location"] = np.array(answer.location)
    return plain
