"""Flooding of summaries: each agent's information about the weights of an agreed basis, the newest one replacing it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from swarmbo.belief.features.feature_gp import FeatureGP
from swarmbo.belief.features.information import Information
from swarmbo.belief.fusion.fused_view import is_information, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.gossip import Gossip
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.spaces import Domain


class SummaryFlooding(Gossip):
    """An agent that adds up the newest summaries of all agents it has heard of.

    A summary holds all of its author's readings, and its number is theirs; it replaces the one before. So the belief is
    the exact posterior, under the agreed basis, of the readings that ``reached`` tells.

    Example:
        >>> from swarmbo.belief.fusion import exchange
        >>> from swarmbo.belief.gp.hyperparameters import Hyperparameters
        >>> from swarmbo.transport import InProcess
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> a, b = SummaryFlooding("a", domain, start, ["b"]), SummaryFlooding("b", domain, start, ["a"])
        >>> a.measure([[0.2]], [1.0])
        >>> traffic = exchange([a, b], InProcess().open(["a", "b"]), steps=10)
        >>> b.reached, traffic.messages  # two greetings, one with the summary, and the word that it has arrived
        ({'a': 1.0}, 3)
    """

    def __init__(
        self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = (), patience: int = 3
    ) -> None:
        self._summaries: dict[str, Information] = {}
        super().__init__(name, domain, proposal, neighbours, patience)

    @property
    def belief(self) -> FeatureGP:
        """What it believes by what has reached it."""
        total = Information.none(self.proposal.n_features)
        for author in sorted(self._summaries):  # one order everywhere: equal knowledge gives equal beliefs to the bit
            total = total + self._summaries[author]
        return FeatureGP(
            domain=self.domain,
            hyperparameters=self.proposal.hyperparameters,
            basis=self.proposal.basis,
            information=total,
        )

    def _entry(self, author: str, has: int) -> bytes:
        return packed_bytes(self._summaries[author].packed())

    def _is_entry(self, number: int, content: bytes) -> bool:
        return is_information(content, self.proposal.n_features)

    def _file(self, author: str, number: int, content: bytes) -> None:
        self._summaries[author] = Information.unpacked(unpacked_bytes(content), self.proposal.n_features)
        self._holds(author, number)

    def _has_measured(self, n_new: int) -> None:
        new = self._information(slice(self.n_readings - n_new, None))
        before = self._summaries.get(self.name, Information.none(self.proposal.n_features))
        self._summaries[self.name] = before + new
        self._holds(self.name, self.n_readings)

    def _has_adopted(self) -> None:
        super()._has_adopted()
        self._summaries = {}
        if self.n_readings:
            self._has_measured(self.n_readings)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        plain, arrays = super()._state()
        packed = {f"summary/{author}": information.packed() for author, information in self._summaries.items()}
        return plain, arrays | packed

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        super()._restore(plain, arrays)
        p = self.proposal.n_features
        self._summaries = {author: Information.unpacked(arrays[f"summary/{author}"], p) for author in self._has}
