"""Worlds of agents that each measure their own location in one field."""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from pettingzoo import ParallelEnv

from swarmbo.acquisition.situation import NEVER
from swarmbo.boundary import values
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.problem import Problem
from swarmbo.problem.data import Measurement, News
from swarmbo.records import Goal
from swarmbo.settings import convert
from swarmbo.spaces import Domain
from swarmbo.worlds.protocol import Infos, Offers, Report, Step, World


class FieldWorld(World):
    """A sensing environment as its team sees it: places, links and measurements; never the ground truth.

    ``docs/environments/contract.md`` lists the optional methods of its ``ParallelEnv``. With ``prices()``, agents may
    abstain: an action then has one more coordinate, from 0 to 1, and an agent measures if it is >= 0.5.
    """

    def __init__(self, env: "ParallelEnv[str, Any, Any]") -> None:
        domains = [Domain.of_space(env.action_space(agent)) for agent in env.possible_agents]
        if len({domain.n_dims for domain in domains}) > 1:
            got = "agents have different action spaces"
            raise ConfigError(f"{got}; wanted boxes with the same number of coordinates", at="$.environment")
        super().__init__(env)
        agents, d = tuple(env.possible_agents), domains[0].n_dims - self.may_decline
        self.boxes = {agent: Domain(own.low[:d], own.high[:d]) for agent, own in zip(agents, domains, strict=True)}
        low, high = zip(*((own.low, own.high) for own in self.boxes.values()), strict=True)
        box = Domain(np.min(low, axis=0), np.max(high, axis=0))
        self.problem = Problem.of_field(agents, box, self.task, self.level, priced=self.may_decline)

    @property
    def may_decline(self) -> bool:
        """True if agents may abstain."""
        return hasattr(self._world, "prices")

    @property
    def task(self) -> Goal | None:
        """Task in the field; None if the environment states none."""
        return convert(getattr(self._world, "task", None), Goal | None, "$.environment.task")

    @property
    def stated_task(self) -> Goal | None:
        """The task; None if it is the default of the environment's class."""
        parameter = inspect.signature(type(self._world)).parameters.get("task")
        return None if parameter is not None and parameter.default == self.task else self.task

    @property
    def level(self) -> float | None:
        """Watched level; None if there is none."""
        level = getattr(self._world, "level", None)
        if level is not None and math.isnan(values.reported_number(level)):
            raise ConfigError(f"got {values.short(level)}; wanted a finite number, or None", at="$.environment.level")
        return None if level is None else float(level)

    def sites(self) -> Float[np.ndarray, "k d"] | None:
        """All measurable places; None if unknown."""
        sites = self._optional("sites")
        return None if sites is None else np.asarray(sites, dtype=float)

    def no_go(self) -> list[list[Float[np.ndarray, "k 2"]]]:
        """Regions that no agent may enter, each a list of rings; empty if unknown."""
        return [[np.asarray(ring, dtype=float) for ring in rings] for rings in self._optional("no_go", [])]

    def bases(self) -> dict[str, Float[np.ndarray, " d"]]:
        """Bases of agents, to which they must return before their batteries are empty."""
        bases = {agent: WorldTravel(self._world).base(agent) for agent in self.problem.agents}
        return {agent: base for agent, base in bases.items() if base is not None}

    def standpoints(self) -> dict[str, Float[np.ndarray, " d"]]:
        """Positions of static agents; empty if unknown."""
        places, d = dict[str, Float[np.ndarray, " d"]](), self.problem.box.n_dims
        for agent, stated in self._by_agent("standpoints").items():
            place = values.reported_place(stated)
            if place is None or place.shape != (d,):
                raise ShapeError(f"standpoints() of {agent!r}: got {values.short(stated)}; wanted {d} coordinates")
            places[agent] = place
        return places

    def _by_agent(self, name: str) -> dict[str, Any]:
        table, at = self._optional(name, {}), f"$.environment.{name}()"
        values.known_names(values.table(table, "{agent: …}", at), self.problem.agents, at)
        return dict(table)

    def offers(self, agents: Sequence[str] | None = None) -> Offers:
        """Options of a decision; live agents with observations take part."""
        if agents is None:
            return Offers(boxes=self.boxes, standpoints=self.standpoints(), level=self.level)
        world, prices = self._world, self._by_agent("prices")
        live = tuple(agent for agent in self.problem.agents if agent in agents and agent in self._env.agents)
        return Offers(
            agents=live,
            candidates={agent: world.candidates(agent) for agent in live} if hasattr(world, "candidates") else None,
            boxes=self.boxes,
            prices={agent: prices[agent] for agent in live if agent in prices},
            standpoints=self.standpoints(),
            links=self.links(),
            level=self.level,
            sites=self.sites(),
            travel=WorldTravel(world) if hasattr(world, "travel_rounds") else None,
        )

    def begin(self, infos: Infos) -> News:
        """Measurements at the starts."""
        return self.news(None, Step({}, {}, {}, {}, infos))

    def actions(
        self, point: Mapping[str, float], agents: Sequence[str], now: Mapping[str, np.ndarray] | None = None
    ) -> dict[str, np.ndarray]:
        """Measurement locations of agents; an agent without a goal stays where it is, and abstains if it may."""
        middle, now = (self.problem.box.low + self.problem.box.high) / 2, now or {}
        sent = self.problem.places_of(point)
        actions: dict[str, np.ndarray] = {}
        for agent in (agent for agent in agents if agent in self._env.agents):
            place = sent[agent] if agent in sent else now.get(agent, middle)
            chosen = np.append(place, float(agent in sent)) if self.may_decline else place
            space: Any = self._env.action_space(agent)
            actions[agent] = np.clip(chosen.astype(space.dtype), space.low, space.high)
        return actions

    def place_of(self, actions: Mapping[str, Any]) -> Float[np.ndarray, " n"]:
        """Locations that agents are sent to, up to rounding; NaN for an agent that abstains."""
        places, d = dict[str, Float[np.ndarray, " d"]](), self.problem.box.n_dims
        values.known_names(values.table(actions, "{agent: action}", "$.actions"), self.problem.agents, "$.actions")
        for agent, action in {**dict.fromkeys(self._env.agents), **actions}.items():  # None: a live agent lacks one
            place, box = Report.of({"location": action}).place, Domain.of_space(self._env.action_space(agent))
            if place is None or place.shape != box.low.shape or (abs(box.to_unit(place) - 0.5) > 0.5 + 1e-6).any():
                raise ConfigError(f"got {values.short(action)}; wanted an action of its space", at=f"$.actions.{agent}")
            if not self.may_decline or place[d] >= 0.5:
                places[agent] = place[:d]
        return self.problem.joint(places)

    def news(self, sent: Mapping[str, float] | None, step: Step) -> News:
        """Measurements of a step; without a valid report, an agent with a target has failed, unless it abstained."""
        targets, problem = {} if sent is None else self.problem.places_of(sent), self.problem
        arguments = {agent: (step.infos.get(agent, {}), targets.get(agent), problem.box) for agent in problem.agents}
        return news_of_measurements(problem, {agent: measurements_of(*own) for agent, own in arguments.items()})


class WorldTravel:
    """Travel times of an environment with ``travel_rounds``, and optional ``rounds_left`` and ``base``."""

    def __init__(self, world: Any) -> None:
        self._world = world

    def rounds(
        self, agent: str, origins: Float[np.ndarray, "n d"], places: Float[np.ndarray, "m d"]
    ) -> Int[np.ndarray, "n m"]:
        """Fewest rounds from each origin to each place."""
        rounds, wanted = np.asarray(self._world.travel_rounds(agent, origins, places)), (len(origins), len(places))
        if rounds.shape != wanted or rounds.dtype.kind not in "iu" or (rounds < 0).any():
            got = f"travel_rounds({agent!r}, …): got {values.short(rounds)}, {rounds.dtype} of shape {rounds.shape}"
            raise ShapeError(f"{got}; wanted whole numbers {wanted}, >= 0")
        return rounds

    def rounds_left(self, agent: str) -> int:
        """Number of rounds for which an agent can still move."""
        return int(min(self._world.rounds_left(agent), NEVER)) if hasattr(self._world, "rounds_left") else NEVER

    def base(self, agent: str) -> Float[np.ndarray, " d"] | None:
        """Location where an agent must be when it cannot move any more; None if it may be anywhere."""
        place = self._world.base(agent) if hasattr(self._world, "base") else None
        return None if place is None else np.asarray(place, dtype=float)


def measurements_of(
    info: Mapping[str, Any], target: Float[np.ndarray, " d"] | None, box: Domain
) -> tuple[Measurement | None, tuple[Measurement, ...]]:
    """Measurement of one agent at its stop (None if absent), and those en route, by its info."""
    report = Report.of(info, box)
    stops = tuple(
        Measurement.of(stop.place, stop.outcome, stop.noise_std if np.isfinite(stop.outcome) else np.nan)
        for stop in report.on_the_way
        if stop.place is not None
    )
    if report.declined:
        return None, stops
    place = target if report.place is None else report.place  # without a reported location the requested one is assumed
    return None if place is None else Measurement.of(place, report.outcome, report.noise_std), stops


def news_of_measurements(
    problem: Problem, found: "Mapping[str, tuple[Measurement | None, tuple[Measurement, ...]]]"
) -> News:
    """News of a round for a team, from the results of ``measurements_of`` for its agents, in the problem's order."""
    measurements = {agent: measurement for agent, (measurement, _) in found.items() if measurement is not None}
    place = problem.joint({agent: np.array(measurement.place) for agent, measurement in measurements.items()})
    outcomes = {agent: own.numbers[0] for agent, own in measurements.items()}
    noise = {agent: own.noise_std for agent, own in measurements.items() if own.noise_std is not None}
    stops = tuple((agent, stop) for agent, (_, own) in found.items() for stop in own)
    return News(place, None, outcomes, noise=noise, on_the_way=stops)
