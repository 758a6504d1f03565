"""What a team asks of a world, whichever kind of problem it poses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import networkx as nx
import numpy as np
from jaxtyping import Float
from pettingzoo import AECEnv

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
    """What a world has to say before a decision; nothing by default.

    Args:
        agents: Who takes part in this round; None: all.
        candidates: The places (k, d) that each agent can measure in this round; None where the world does not say.
        boxes: Where each agent can measure at all; agents that are missing anywhere in the problem's box.
        prices: What a measurement costs agents that may decline it, in the unit of the outcome.
        standpoints: Where agents stand that never move.
        links: Who hears whom now; None: everyone.
        level: The level that the world is watched for; None where there is none.
        sites: Every place (k, d) that can be measured at all; None where the world does not say.
        travel: How many rounds ways take; None where the world does not say.
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


class World(Protocol):
    """A PettingZoo environment as a team sees it; never the truth.

    ``FieldWorld``, ``FunctionWorld`` and ``OneShotWorld`` are three.
    """

    @property
    def problem(self) -> Problem:
        """What the team works on."""
        ...

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode, where the environment says."""
        ...

    def links(self) -> "nx.Graph[str] | None":
        """Who hears whom now; None if the environment does not say."""
        ...

    def sites(self) -> Float[np.ndarray, "k d"] | None:
        """Every place that can be measured at all; None if the environment does not say."""
        ...

    def offers(self, agents: Sequence[str] | None = None) -> Offers:
        """What there is to choose from.

        Args:
            agents: Those that observed something; None: what is true whether or not an episode is under way.
        """
        ...

    def begin(self, infos: Infos) -> News | None:
        """Give up what is going on; what agents measured where they start, as ``env.reset`` told it."""
        ...

    def held(self, agents: Sequence[str]) -> dict[str, np.ndarray] | None:
        """The actions that go on with an evaluation of several steps; None unless one is under way."""
        ...

    def actions(
        self,
        point: Mapping[str, float],
        agents: Sequence[str],
        now: Positions | None = None,
    ) -> dict[str, np.ndarray]:
        """The actions of agents that together evaluate a joint point, inside their spaces and in their number type.

        Args:
            point: Value of each variable, but those of agents that take no part.
            agents: Who acts.
            now: Where agents are that have a place.
        """
        ...

    def news(self, sent: Mapping[str, float] | None, step: Step) -> News | None:
        """What an evaluation came to, of what ``env.step`` returned; None while it goes on.

        Args:
            sent: The joint point that was asked for, as in ``actions``; None: none was.
            step: What ``env.step`` returned.
        """
        ...


def require_parallel(env: object) -> None:
    """Refuse what is no PettingZoo environment whose agents act at once.

    Raises:
        ConfigError: It says what is wanted instead.
    """
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
