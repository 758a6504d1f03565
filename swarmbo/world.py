"""What a team asks of a PettingZoo environment, whichever environment it is."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import networkx as nx
import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Float
from pettingzoo import ParallelEnv

from swarmbo.errors import ConfigError
from swarmbo.spaces import Domain


class World:
    """A sensing environment as its team sees it: places, links and measurements; never the truth.

    Args:
        env: A ``ParallelEnv`` whose agents share one finite ``Box`` of actions, and whose infos carry
            ``"measurement"`` and ``"location"``. What it offers of ``candidates(agent)``, ``interaction_graph()`` and
            ``sites()`` is used.

    Raises:
        ConfigError: If action spaces are no finite boxes, or differ.
    """

    def __init__(self, env: "ParallelEnv[str, Any, Any]") -> None:
        domains = [Domain.of_space(env.action_space(agent)) for agent in env.possible_agents]
        if not domains:
            raise ConfigError("the environment has no agents", at="$.environment")
        first = domains[0]
        if not all(np.array_equal(d.low, first.low) and np.array_equal(d.high, first.high) for d in domains):
            raise ConfigError("agents have different action spaces; wanted one box for all", at="$.environment")
        self.agents = tuple(env.possible_agents)
        self.domain = first
        self._env = env
        self._world: Any = env.unwrapped

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode, where the environment says."""
        return getattr(self._world, "max_cycles", None)

    @property
    def live(self) -> tuple[str, ...]:
        """The agents that take part now."""
        return tuple(self._env.agents)

    def candidates(self, agents: Sequence[str]) -> dict[str, Float[np.ndarray, "k d"]] | None:
        """What each agent can measure in this round; None if the environment does not say."""
        if not hasattr(self._world, "candidates"):
            return None
        return {agent: np.asarray(self._world.candidates(agent), dtype=float) for agent in agents}

    def links(self) -> "nx.Graph[str] | None":
        """Who hears whom now; None if the environment does not say."""
        return self._world.interaction_graph() if hasattr(self._world, "interaction_graph") else None

    def sites(self) -> Float[np.ndarray, "k d"] | None:
        """Every place that can be measured at all; None if the environment does not say."""
        return np.asarray(self._world.sites(), dtype=float) if hasattr(self._world, "sites") else None

    def action(self, agent: str, point: Float[np.ndarray, " d"]) -> np.ndarray:
        """The action that measures at a point, inside the agent's space and in its number type."""
        space = cast(Box, self._env.action_space(agent))  # Domain.of_space has seen to that
        return np.clip(point.astype(space.dtype), space.low, space.high)

    @staticmethod
    def report(info: Mapping[str, Any]) -> tuple[Any, Any]:
        """Where an agent measured and what; None for what it does not say."""
        return info.get("location"), info.get("measurement")
