"""Helpers for tests of teams: a common graph, an environment, a user's loop, and a state that goes through JSON."""

import json
from typing import Any

import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

import swarmbo as sb

CHAIN = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
CUBE = dict.fromkeys("xyz", (0.0, 1.0))


def drive(env: Any, team: Any, rounds: int | None = None, *, seed: int = 0) -> list[tuple[dict[str, Any], Any]]:
    """Play an episode, or its first rounds; return the actions and infos of each round."""
    observations, infos = env.reset(seed=seed)
    played: list[tuple[dict[str, Any], Any]] = []
    while env.agents and len(played) != rounds:
        actions = team.act(observations, infos)
        observations, *rest, infos = env.step(actions)
        team.observe(observations, *rest, infos)
        played.append((actions, infos))
    return played


def springs(point: Any) -> dict[str, float]:
    """Outcomes of the chain's factors; the largest sum is 0, where all variables are 0.3."""
    x, y, z = (point[name] for name in "xyz")
    return {"f": -((x - y) ** 2) - (y - 0.3) ** 2, "g": -((y - z) ** 2)}


def tell(team: Any, query: Any, value_of: Any) -> None:
    """Tell the value of each agent's location in a field; or the value of a point, per factor or as a sum."""
    if team.problem.is_field:
        return team.tell(query, {agent: value_of(place) for agent, place in query.points.items()})
    outcome = value_of(query.point)
    is_sum = isinstance(outcome, dict) and team.outcomes == "total"
    return team.tell(query, sum(outcome.values()) if is_sum else outcome)


def ask_and_tell(team: Any, rounds: int, value_of: Any) -> list[Any]:
    """Ask and tell for some rounds; return the queries."""
    queries: list[Any] = []
    for _ in range(rounds):
        queries.append(team.ask())
        tell(team, queries[-1], value_of)
    return queries


def saved(team: Any) -> Any:
    """The team restored from its state, after a round trip through JSON."""
    state = team.state_dict()
    return sb.Team.from_state_dict({"json": json.loads(json.dumps(state["json"])), "arrays": state["arrays"]})


class Played(ParallelEnv[str, Any, Any]):
    """A PettingZoo environment that records actions; subclasses define rewards (``pays``) and infos (``tells``).

    Args:
        spaces: Action space of each agent.
        cycles: Number of the last round.
        leaves: Round after which an agent leaves.
    """

    metadata = {"name": "played", "render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, spaces: dict[str, Any], cycles: int | None = None, leaves: dict[str, int] | None = None) -> None:
        self.possible_agents, self.agents, self.spaces = list(spaces), [], spaces
        self.cycles, self.leaves, self.acted = cycles, leaves or {}, list[dict[str, Any]]()
        self.seen = Box(-np.inf, np.inf, (1,), np.float64)

    def action_space(self, agent: str) -> Any:
        return self.spaces[agent]

    def observation_space(self, agent: str) -> Any:
        return self.seen

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents, self.round, self.rng = list(self.possible_agents), 0, np.random.default_rng(seed)
        return {agent: np.zeros(1) for agent in self.agents}, {agent: {} for agent in self.agents}

    def pays(self, actions: dict[str, Any]) -> dict[str, float]:
        return dict.fromkeys(actions, 0.0)

    def tells(self, actions: dict[str, Any]) -> dict[str, Any]:
        return {agent: {} for agent in actions}

    def step(self, actions: dict[str, Any]) -> Any:
        assert set(actions) == set(self.agents)
        assert all(self.spaces[agent].contains(action) for agent, action in actions.items()), actions
        self.round += 1
        self.acted.append(actions)
        gone = {agent: self.leaves.get(agent) == self.round for agent in self.agents}
        cut = dict.fromkeys(self.agents, self.round == self.cycles)
        seen = {agent: np.array([float(self.round)]) for agent in self.agents}
        self.agents = [agent for agent in self.agents if not gone[agent] and not cut[agent]]
        return seen, self.pays(actions), gone, cut, self.tells(actions)
