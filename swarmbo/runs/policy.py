"""What the runner needs of a team, whichever kind it is."""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from swarmbo.records import PointQuery, Query, SolveReport, Traffic

Infos = Mapping[str, Mapping[str, Any]]


class Policy(Protocol):
    """A team in a PettingZoo loop: ``Team`` and ``FieldTeam`` are two.

    Attributes:
        agents: Their names.
        last_query: What was asked for last.
        last_report: How it was agreed.
        last_sharing: What telling one another the outcomes took.
    """

    agents: tuple[str, ...]
    last_report: SolveReport | None
    last_sharing: Traffic

    @property
    def last_query(self) -> PointQuery | Query | None:
        """What was asked for last."""
        ...

    def begin(self, infos: Infos) -> None:
        """Start an episode with the infos of ``env.reset``."""
        ...

    def act(self, observations: Mapping[str, Any], infos: Infos | None = None) -> dict[str, np.ndarray]:
        """Actions for every live agent."""
        ...

    def observe(
        self,
        observations: Mapping[str, Any],
        rewards: Mapping[str, float],
        terminations: Mapping[str, bool],
        truncations: Mapping[str, bool],
        infos: Infos,
    ) -> None:
        """Learn from what ``env.step`` returned."""
        ...

    def refit(self) -> None:
        """Do now what learning is due, so that it can be timed by itself."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """All of the team, as plain data and arrays."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> Any:
        """Go on from a saved state."""
        ...
