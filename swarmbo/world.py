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
        env: A ``ParallelEnv`` whose agents have finite boxes of actions, all of one number of coordinates, and whose
            infos carry ``"measurement"`` and ``"location"``. What it offers of ``candidates(agent)``,
            ``interaction_graph()``, ``sites()``, ``standpoints()``, ``level`` and ``prices()`` is used. With the last,
            agents may decline to measure: the last coordinate of an action is then the wish to, from 0 to 1.

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
        self.agents = tuple(env.possible_agents)
        self._env = env
        self._world: Any = env.unwrapped
        d = domains[0].n_dims - self.may_decline
        self.boxes = {agent: Domain(own.low[:d], own.high[:d]) for agent, own in zip(self.agents, domains, strict=True)}
        self.domain = Domain(
            np.min([own.low for own in self.boxes.values()], axis=0),
            np.max([own.high for own in self.boxes.values()], axis=0),
        )

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

    @property
    def may_decline(self) -> bool:
        """Whether agents may do without a measurement."""
        return hasattr(self._world, "prices")

    def prices(self, agents: Sequence[str]) -> dict[str, float]:
        """What a measurement costs each agent, in the unit of the outcome; empty where none can be declined."""
        prices = self._world.prices() if self.may_decline else {}
        return {agent: float(prices[agent]) for agent in agents if agent in prices}

    def standpoints(self) -> dict[str, Float[np.ndarray, " d"]]:
        """Where agents stand that never move; empty if the environment does not say."""
        places = self._world.standpoints() if hasattr(self._world, "standpoints") else {}
        return {agent: np.asarray(place, dtype=float) for agent, place in places.items()}

    @property
    def level(self) -> float | None:
        """The level that the field is watched for; None where there is none."""
        level = getattr(self._world, "level", None)
        return None if level is None else float(level)

    def action(self, agent: str, point: Float[np.ndarray, " d"], *, measures: bool = True) -> np.ndarray:
        """The action that measures at a point, inside the agent's space and in its number type.

        Args:
            agent: Its name.
            point: Where.
            measures: Whether it shall; where agents can't decline, it does in any case.
        """
        space = cast(Box, self._env.action_space(agent))  # Domain.of_space has seen to that
        wanted = np.append(point, float(measures)) if self.may_decline else point
        return np.clip(wanted.astype(space.dtype), space.low, space.high)

    @staticmethod
    def declined(info: Mapping[str, Any]) -> bool:
        """Whether an agent did without a measurement: then none has failed."""
        return not np.all(info.get("sampled", True))

    @staticmethod
    def report(info: Mapping[str, Any]) -> tuple[Any, Any]:
        """Where an agent measured and what; None for what it does not say."""
        return info.get("location"), info.get("measurement")
