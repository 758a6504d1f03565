"""Base of worlds for teams, for all kinds of problems."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float
from pettingzoo import AECEnv, ParallelEnv

from swarmbo.acquisition import Travel
from swarmbo.boundary.values import short
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem
from swarmbo.problem.data import News
from swarmbo.spaces import Domain
from swarmbo.worlds.infos import Infos, Step

Places = Mapping[str, Float[np.ndarray, "k d"]]
Positions = Mapping[str, Float[np.ndarray, " d"]]


@dataclass(frozen=True)
class Offers:
    """Options that a world offers for a decision; none by default.

    ``agents`` None are all, ``links`` None connect all, ``boxes`` missing are the problem's, and other parts None are
    unknown. ``prices``, in the unit of the outcome, are of agents that may abstain; ``standpoints`` of static ones.
    """

    agents: tuple[str, ...] | None = None
    candidates: Places | None = None
    boxes: Mapping[str, Domain] = field(default_factory=dict[str, Domain])
    prices: Mapping[str, float] = field(default_factory=dict[str, float])
    standpoints: Mapping[str, Float[np.ndarray, " d"]] = field(default_factory=dict[str, np.ndarray])
    links: "nx.Graph[str] | None" = None
    level: float | None = None
    sites: Float[np.ndarray, "k d"] | None = None
    travel: Travel | None = None


class World(ABC):
    """A PettingZoo environment as a team sees it; never the ground truth.

    Implementations: ``FieldWorld``, ``FunctionWorld`` and ``OneShotWorld``, each with the ``problem`` of the team.
    """

    problem: Problem

    def __init__(self, env: "ParallelEnv[str, Any, Any]") -> None:
        self._env: ParallelEnv[str, Any, Any] = env
        self._world: Any = env.unwrapped

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode, if the environment states them."""
        return getattr(self._world, "max_cycles", None)

    def links(self) -> "nx.Graph[str] | None":
        """Present communication links; None if unknown."""
        return self._world.interaction_graph() if hasattr(self._world, "interaction_graph") else None

    def sites(self) -> Float[np.ndarray, "k d"] | None:
        """All measurable places; None if unknown."""
        return None

    @abstractmethod
    def offers(self, agents: Sequence[str] | None = None) -> Offers:
        """Options of a decision of agents with observations; None: options that are independent of an episode."""

    @abstractmethod
    def begin(self, infos: Infos) -> News | None:
        """Abandon an evaluation in progress; return the measurements at the starts, from ``env.reset``."""

    def held(self, agents: Sequence[str]) -> dict[str, Any] | None:
        """Actions that continue an evaluation of several steps; None without one."""
        return None

    @abstractmethod
    def actions(self, point: Mapping[str, Any], agents: Sequence[str], now: Positions | None = None) -> dict[str, Any]:
        """Actions that together evaluate a joint point, inside the agents' spaces and in their number type."""

    def place_of(self, actions: Mapping[str, Any]) -> Float[np.ndarray, " n"]:
        """Joint point that actions evaluate."""
        raise ConfigError("got actions of another policy; wanted an environment without `measurement`", at="$.policy")

    @abstractmethod
    def news(self, sent: Mapping[str, Any] | None, step: Step) -> News | None:
        """Result of an evaluation from ``env.step`` of the ``sent`` joint point; None while it continues."""

    def _within(self, agent: str, action: np.ndarray) -> np.ndarray:
        """Action inside an agent's space, a box, and in its number type."""
        space: Any = self._env.action_space(agent)
        return np.clip(action.astype(space.dtype), space.low, space.high)


def require_parallel(env: object) -> None:
    """Refuse anything but a parallel PettingZoo environment."""
    lacking = [name for name in ("possible_agents", "action_space", "reset", "step") if not hasattr(env, name)]
    if not lacking and not isinstance(env, AECEnv):
        return
    fix, got = "wanted a PettingZoo ParallelEnv", f"got {short(env)}"
    if isinstance(env, AECEnv):
        got += ", whose agents act one after the other"
        fix += ": parallel_env(…) of its module, or pettingzoo.utils.aec_to_parallel(env)"
    elif lacking:
        got += f", which has no {lacking[0]}"
        fix += ", whose agents are named by possible_agents; an environment of one agent can be written as one"
    raise ConfigError(f"{got}; {fix}", at="$.environment")
