"""Policies that choose the actions of a run instead of the team, which still learns from the measurements."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from swarmbo.boundary.values import short
from swarmbo.errors import ConfigError
from swarmbo.registry import is_user_code, load, make
from swarmbo.team import Team
from swarmbo.worlds import Infos

_AT = "$.policy"


class Policy(Protocol):
    """A user's policy; its settings are the arguments of its class. ``begin`` may be missing."""

    def begin(self, env: Any, seed: int) -> None:
        """Begin an episode in a PettingZoo environment that was reset."""
        ...

    def act(self, observations: Mapping[str, Any]) -> Mapping[str, Any]:
        """Action of each agent, from the observations of all agents."""
        ...


def policy_table(stated: object) -> dict[str, Any]:
    """Table of a policy: the name of its class as ``kind``, and its settings."""
    given: Mapping[Any, Any] = stated if isinstance(stated, Mapping) else {"kind": stated}
    table = {str(key): value for key, value in given.items()}
    if not is_user_code(table.get("kind")):
        got = f"got {short(table.get('kind'))}"
        raise ConfigError(f"{got}; wanted 'module:Class', or a table with that `kind` and its settings", at=_AT)
    return table


def make_policy(stated: object) -> Policy:
    """Make the policy of a scenario; the caller has checked that its code is trusted."""
    settings = policy_table(stated)
    name = settings.pop("kind")
    policy = make(load(name, _AT), name, settings, _AT)
    if not callable(getattr(policy, "act", None)):
        raise ConfigError(f"{name} has no method act; wanted act(observations), which returns the actions", at=_AT)
    return policy


class PolicyTeam(Team):
    """A team whose actions a policy chooses. It sends no messages to agree on them, and learns from their outcomes."""

    def follow_policy(self, policy: Policy, env: Any) -> None:
        """Let a policy choose the actions; ``env`` is the team's environment."""
        self._policy, self._policy_env = policy, env

    def act(self, observations: Mapping[str, Any], infos: Infos | None = None) -> dict[str, Any]:
        """Actions of the policy for every live agent."""
        if self.round == 0 and hasattr(self._policy, "begin"):
            self._policy.begin(self._policy_env, self.seed)
        chosen: Any = self._policy.act(observations)
        if not isinstance(chosen, Mapping) or set(chosen) != set(observations):
            got = f"act() returned {short(chosen)}"
            raise ConfigError(f"{got}; wanted an action for each of {', '.join(observations)}", at=_AT)
        actions = {agent: np.asarray(a, float) if isinstance(a, list | tuple) else a for agent, a in chosen.items()}
        self.follow(actions, infos)
        return actions
