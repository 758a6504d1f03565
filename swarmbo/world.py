"""What a team asks of a PettingZoo environment, whichever environment it is."""

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
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
        if any((d.low != domains[0].low).any() or (d.high != domains[0].high).any() for d in domains[1:]):
            raise ConfigError("agents have different action spaces; wanted one box for all", at="$.environment")
        self.agents = tuple(env.possible_agents)
        self.domain = domains[0]
        self._env: Any = env.unwrapped

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode, where the environment says."""
        return getattr(self._env, "max_cycles", None)

    def candidates(self, agents: Sequence[str]) -> dict[str, Float[np.ndarray, "k d"]] | None:
        """What each agent can measure in this round; None if the environment does not say."""
        if not hasattr(self._env, "candidates"):
            return None
        return {agent: np.asarray(self._env.candidates(agent), dtype=float) for agent in agents}

    def links(self) -> "nx.Graph[str] | None":
        """Who hears whom now; None if the environment does not say."""
        return self._env.interaction_graph() if hasattr(self._env, "interaction_graph") else None

    def sites(self) -> Float[np.ndarray, "k d"] | None:
        """Every place that can be measured at all; None if the environment does not say."""
        return np.asarray(self._env.sites(), dtype=float) if hasattr(self._env, "sites") else None

    def action(self, agent: str, point: Float[np.ndarray, " d"]) -> np.ndarray:
        """The action that measures at a point, inside the agent's space and in its number type."""
        space = self._env.action_space(agent)
        return np.clip(point.astype(space.dtype), space.low, space.high)

    @staticmethod
    def report(info: Mapping[str, Any]) -> tuple[Any, float]:
        """Where an agent measured (None if it does not say) and what (NaN if it does not say)."""
        return info.get("location"), float(info.get("measurement", np.nan))
