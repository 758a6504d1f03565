"""Environments whose agents each measure at a place of their own in one field."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import networkx as nx
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float
from pettingzoo import ParallelEnv

from swarmbo.errors import ConfigError
from swarmbo.problem import Problem
from swarmbo.problem.data import Measurement, News
from swarmbo.records import Goal
from swarmbo.spaces import Domain
from swarmbo.worlds.infos import Infos, Report, Step
from swarmbo.worlds.protocol import Offers, Positions
from swarmbo.worlds.travel import WorldTravel


class FieldWorld:
    """A sensing environment as its team sees it: places, links and measurements; never the truth.

    Args:
        env: A ``ParallelEnv`` whose agents have finite boxes of actions, all of one number of coordinates, and whose
            infos carry ``"measurement"`` and ``"location"``. What it offers of ``candidates(agent)``,
            ``interaction_graph()``, ``sites()``, ``standpoints()``, ``task``, ``level``, ``travel_rounds(agent, …)``
            with ``rounds_left(agent)`` and ``base(agent)``, and ``prices()`` is used. With
            the last, agents may decline to measure: the last coordinate of an action is then the wish to, from 0 to 1.

    Raises:
        ConfigError: If action spaces are no finite boxes, or of different numbers of coordinates.
    """

    def __init__(self, env: "ParallelEnv[str, Any, Any]") -> None:
        domains = [Domain.of_space(env.action_space(agent)) for agent in env.possible_agents]
        if not domains:
            raise ConfigError("the environment has no agents", at="$.environment")
        if len({domain.n_dims for domain in domains}) > 1:
            raise ConfigError(
                "agents have different action spaces; wanted boxes of one number of coordinates", at="$.environment"
            )
        self._env, self._world = env, cast(Any, env.unwrapped)
        agents, d = tuple(env.possible_agents), domains[0].n_dims - self.may_decline
        self.boxes = {agent: Domain(own.low[:d], own.high[:d]) for agent, own in zip(agents, domains, strict=True)}
        low, high = zip(*((own.low, own.high) for own in self.boxes.values()), strict=True)
        box = Domain(np.min(low, axis=0), np.max(high, axis=0))
        self.problem = Problem.of_field(agents, box, self.task, self.level, priced=self.may_decline)

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode, where the environment says."""
        return getattr(self._world, "max_cycles", None)

    @property
    def may_decline(self) -> bool:
        """Whether agents may do without a measurement."""
        return hasattr(self._world, "prices")

    @property
    def task(self) -> Goal | None:
        """What the field is watched for; None where the environment does not say, or calls something else so."""
        task = getattr(self._world, "task", None)
        return cast(Goal, task) if isinstance(task, str) and task in get_args(Goal) else None

    @property
    def stated_task(self) -> Goal | None:
        """The task, unless it is what a world of its class has where nobody says."""
        usual = inspect.signature(type(self._world)).parameters.get("task")
        return None if usual is not None and usual.default == self.task else self.task

    @property
    def level(self) -> float | None:
        """The level that the field is watched for; None where there is none."""
        level = getattr(self._world, "level", None)
        return None if level is None else float(level)

    def links(self) -> "nx.Graph[str] | None":
        """Who hears whom now; None if the environment does not say."""
        return self._world.interaction_graph() if hasattr(self._world, "interaction_graph") else None

    def sites(self) -> Float[np.ndarray, "k d"] | None:
        """Every place that can be measured at all; None if the environment does not say."""
        return np.asarray(self._world.sites(), dtype=float) if hasattr(self._world, "sites") else None

    def no_go(self) -> list[list[Float[np.ndarray, "k 2"]]]:
        """Regions that nobody may enter, each by its rings; empty if the environment does not say."""
        regions = self._world.no_go() if hasattr(self._world, "no_go") else []
        return [[np.asarray(ring, dtype=float) for ring in rings] for rings in regions]

    def bases(self) -> dict[str, Float[np.ndarray, " d"]]:
        """Where agents must be when their batteries are empty; of those that have a base."""
        if not hasattr(self._world, "base"):
            return {}
        told = {agent: self._world.base(agent) for agent in self.problem.agents}
        return {agent: np.asarray(base, dtype=float) for agent, base in told.items() if base is not None}

    def standpoints(self) -> dict[str, Float[np.ndarray, " d"]]:
        """Where agents stand that never move; empty if the environment does not say."""
        places = self._world.standpoints() if hasattr(self._world, "standpoints") else {}
        return {agent: np.asarray(place, dtype=float) for agent, place in places.items()}

    def offers(self, agents: Sequence[str] | None = None) -> Offers:
        """What there is to choose from; of agents that observed something, those that are live take part."""
        if agents is None:
            return Offers(boxes=self.boxes, standpoints=self.standpoints(), level=self.level)
        world, prices = self._world, self._world.prices() if self.may_decline else {}
        live = tuple(agent for agent in self.problem.agents if agent in agents and agent in self._env.agents)
        candidates = None
        if hasattr(world, "candidates"):
            candidates = {agent: np.asarray(world.candidates(agent), dtype=float) for agent in live}
        return Offers(
            agents=live,
            candidates=candidates,
            boxes=self.boxes,
            prices={agent: float(prices[agent]) for agent in live if agent in prices},
            standpoints=self.standpoints(),
            links=self.links(),
            level=self.level,
            sites=self.sites(),
            travel=WorldTravel(world) if hasattr(world, "travel_rounds") else None,
        )

    def begin(self, infos: Infos) -> News:
        """What agents measured where they start."""
        return self.news(None, Step({}, {}, {}, {}, infos))

    def held(self, agents: Sequence[str]) -> None:
        """None, as one step is one measurement."""

    def actions(
        self,
        point: Mapping[str, float],
        agents: Sequence[str],
        now: Positions | None = None,
    ) -> dict[str, np.ndarray]:
        """Where each agent measures, inside its space and in its number type.

        An agent with nowhere to go is told to stay where it is, or to do without a measurement where it can.
        """
        middle, now = (self.problem.box.low + self.problem.box.high) / 2, now or {}
        sent = self.problem.places_of(point)
        actions: dict[str, np.ndarray] = {}
        for agent in (agent for agent in agents if agent in self._env.agents):
            space = cast(Box, self._env.action_space(agent))  # Domain.of_space has seen to that
            place = sent[agent] if agent in sent else now.get(agent, middle)
            wanted = np.append(place, float(agent in sent)) if self.may_decline else place
            actions[agent] = np.clip(wanted.astype(space.dtype), space.low, space.high)
        return actions

    def news(self, sent: Mapping[str, float] | None, step: Step) -> News:
        """What agents measured in a step.

        An agent that was sent somewhere and reports nothing has failed; one that declined has not. So has one that
        reports no number, or a place that can't be: whatever a world says, the team goes on.
        """
        problem = self.problem
        targets = {} if sent is None else problem.places_of(sent)
        found = {
            agent: measurements_of(agent, step.infos.get(agent, {}), targets.get(agent), problem.box)
            for agent in problem.agents
        }
        return news_of_measurements(problem, found)


def measurements_of(
    agent: str, info: Mapping[str, Any], target: Float[np.ndarray, " d"] | None, box: Domain
) -> tuple[Measurement | None, tuple[Measurement, ...]]:
    """What one agent in a field says in its info of a step.

    Args:
        agent: Its name.
        info: As ``env.step`` returned it.
        target: Where it was sent; None: nowhere.
        box: Of the field.

    Returns:
        What it measured in the end, None if that is nothing and has not failed; and what it measured on the way.
    """

    def can_be(place: Float[np.ndarray, " c"]) -> bool:
        return place.shape == (box.n_dims,) and bool(box.is_near(place))

    report = Report.of(info)
    stops = tuple(
        Measurement(agent, stop.place, stop.outcome, stop.noise_std if np.isfinite(stop.outcome) else np.nan)
        for stop in report.on_the_way
        if stop.place is not None and can_be(stop.place)
    )
    if report.declined:
        return None, stops
    if report.place is not None and can_be(report.place):
        return Measurement(agent, report.place, report.outcome, report.noise_std), stops
    if target is None:
        return None, stops
    # it does not say where it is: where it was sent, as far as anybody knows
    return Measurement(agent, target, np.nan if report.is_placed else report.outcome, report.noise_std), stops


def news_of_measurements(
    problem: Problem, found: "Mapping[str, tuple[Measurement | None, tuple[Measurement, ...]]]"
) -> News:
    """What a team is told of a round, from what its agents say of it.

    Args:
        problem: The field.
        found: By agent, in the problem's order, as ``readings_of`` has it.
    """
    ended = {agent: measurement for agent, (measurement, _) in found.items() if measurement is not None}
    return News(
        problem.joint({agent: measurement.place for agent, measurement in ended.items()}),
        None,
        {agent: measurement.outcome for agent, measurement in ended.items()},
        noise={
            agent: measurement.noise_std for agent, measurement in ended.items() if not np.isnan(measurement.noise_std)
        },
        on_the_way=tuple(stop for _, stops in found.values() for stop in stops),
    )
