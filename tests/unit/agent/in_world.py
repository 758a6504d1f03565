"""A team in one environment, and agents in an equal one, where each agent gets only its own information."""

from collections.abc import Callable
from typing import Any

import numpy as np

import swarmbo as sb
from swarmbo.agent import Agent, run
from swarmbo.deciding.offers import random_candidates
from swarmbo.transport import InProcess
from swarmbo.worlds import FieldWorld, Step
from swarmbo.worlds.fields import WorldTravel

from .carried import recommended_by


class OwnTravel(WorldTravel):
    """Travel times of one agent, and nonsense for the other agents."""

    def __init__(self, world: Any, name: str) -> None:
        super().__init__(world)
        self.name = name

    def rounds(self, agent: str, origins: Any, places: Any) -> Any:
        return super().rounds(agent, origins, places) if agent == self.name else np.full((3, 3), np.nan)

    def rounds_left(self, agent: str) -> int:
        assert agent == self.name
        return super().rounds_left(agent)

    def base(self, agent: str) -> Any:
        assert agent == self.name
        return super().base(agent)


class InWorld:
    """Each agent knows only its own candidates, price, travel times and measurements."""

    def __init__(self, make: Callable[..., Any], settings: dict[str, Any], **given: Any) -> None:
        self.env, other = make(**settings), make(**settings)
        self.team, self.world, self.other = sb.Team.for_env(self.env, **given), FieldWorld(other), other
        self.observations, self.infos = self.env.reset(seed=2)
        _, starts = other.reset(seed=2)
        self.problem, travels = self.world.problem, hasattr(other.unwrapped, "travel_rounds")
        self.passes = "samples_per_leg" in settings
        known: dict[str, Any] = {"level": self.world.level, "sites": self.world.sites()}
        self.travel = {name: OwnTravel(other.unwrapped, name) if travels else None for name in self.problem.agents}
        self.agents = {
            name: Agent(name, self.problem, travel=self.travel[name], has_base=True, **known, **given)
            for name in self.problem.agents
        }
        self.transport = InProcess().open(self.agents)
        start = self.world.begin(starts)
        self.stands = self.problem.places(start.point, start.factors)
        for name, place in self.stands.items():
            self.agents[name].tell(None, start.factors[name], location=place)

    def ask_all(self) -> None:
        """Ask all agents."""
        offers = self.world.offers(list(self.agents))
        for name, agent in self.agents.items():
            agent.links = offers.links
            places = None if offers.candidates is None else offers.candidates[name]
            if places is None:
                places = random_candidates(name, self.world.boxes[name], self.problem, 1, self.team.round + 1)
            price, stands = offers.prices.get(name, 0.0), offers.standpoints.get(name)
            agent.ask(candidates=places, price=price, position=stands)

    def play(self) -> None:
        """Play a round, in which agents and team must go to the same places."""
        self.ask_all()
        run(self.agents, self.transport)
        self.act()

    def act(self) -> None:
        """Execute the decisions of agents and team, which must be equal."""
        decided = {
            variable: value for agent in self.agents.values() for variable, value in (agent.decision() or {}).items()
        }
        actions = self.team.act(self.observations, self.infos)
        assert self.team.last_query is not None
        assert decided == dict(self.team.last_query.point)
        wanted = self.team.last_report
        assert wanted is not None
        reports = [agent.report for agent in self.agents.values() if agent.report is not None]
        assert [(one.status, one.value, one.gap) for one in reports] == [
            (wanted.status, wanted.value, wanted.gap)
        ] * len(self.agents)
        step = self.env.step(actions)
        self.team.observe(*step)
        self.observations, self.infos = step[0], step[-1]
        seen = Step(*self.other.step(actions))
        news = self.world.news(decided, seen)
        self.stands = {**self.stands, **self.problem.places(news.point, news.factors)}
        measured = self.problem.places(news.point, news.factors)
        for name, agent in self.agents.items():
            if self.passes or not measured:
                agent.observe(self.team.last_query.id, seen.infos[name])
            elif name in measured:
                agent.tell(self.team.last_query.id, news.factors[name], location=measured[name])

    def recommend(self) -> None:
        """Check that agents and team recommend the same."""
        for agent in self.agents.values():
            agent.links = self.world.links()
        wanted = [self.team.recommend()] * len(self.agents)
        assert recommended_by(self.agents, self.transport) == wanted
