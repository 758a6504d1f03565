"""Agents that fuse what they hear by covariance intersection: safe whichever way the same reading has travelled."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float
from scipy.stats import qmc

from swarmbo.belief.feature_gp import FeatureGP
from swarmbo.belief.fusion.fusing_agent import FusingAgent, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.intersection import intersection
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.information import Information
from swarmbo.spaces import Domain

_PLACES = 256  # where the mean variance is taken
_SAME = 1e-6  # share of the fused information; a change below it is not worth a message


class _Body(msgspec.Struct, array_like=True):
    tally: dict[str, float]
    estimate: bytes


class CovarianceIntersection(FusingAgent):
    """An agent with one estimate, which it tells its neighbours, and fuses with theirs by covariance intersection.

    Nothing is tagged: messages have one size, whatever the number of agents, and no memory of who is who is needed. The
    price is that independent readings are not added up, only averaged: the estimate is never surer than it may be, and
    never worse, by its mean variance over the domain, than the better one of the two it was fused from. Its own
    readings are news to everybody, so they are added.

    Args:
        name: Its name; no other agent's.
        domain: The box of physical points.
        proposal: What all agents are started with.
        neighbours: Whom it speaks to, from the start.
        repeats: How often, >= 1, it tells an estimate that does not change any more, in case messages are lost.

    Example:
        >>> from swarmbo.belief.fusion import exchange
        >>> from swarmbo.belief.hyperparameters import Hyperparameters
        >>> from swarmbo.transport import InProcess
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> names = ["a", "b"]
        >>> a, b = (CovarianceIntersection(name, domain, start, names) for name in names)
        >>> a.measure([[0.2]], [1.0])
        >>> traffic = exchange([a, b], InProcess().open(names), steps=10)
        >>> b.reached
        {'a': 1.0}
    """

    def __init__(
        self, name: str, domain: Domain, proposal: Proposal, neighbours: Iterable[str] = (), repeats: int = 4
    ) -> None:
        self.repeats = repeats
        super().__init__(name, domain, proposal, neighbours)
        self._has_adopted()

    @property
    def belief(self) -> FeatureGP:
        """What it believes by what has reached it."""
        return FeatureGP(
            domain=self.domain,
            hyperparameters=self.proposal.hyperparameters,
            basis=self.proposal.basis,
            information=self._estimate,
        )

    @property
    def reached(self) -> dict[str, float]:
        """Readings of each agent times the share with which they count."""
        return dict(sorted(self._tally.items()))

    @property
    def is_finished(self) -> bool:
        """Whether it has told its estimate often enough, and all neighbours hold the same proposal."""
        disagree = any(not self._agrees.get(neighbour, True) for neighbour in self.neighbours)
        return (self._left == 0 or self._estimate.count == 0.0) and not disagree

    def meet(self, neighbours: Iterable[str]) -> None:
        """Whom it speaks to from now on: those that its radio reaches."""
        before = self.neighbours
        super().meet(neighbours)
        if set(self.neighbours) - set(before):
            self._left = self.repeats  # somebody new does not know the estimate

    def _has_measured(self, n_new: int) -> None:
        self._estimate = self._estimate + self._information(slice(self.n_readings - n_new, None))
        self._tally[self.name] = self._tally.get(self.name, 0.0) + n_new
        self._left = self.repeats

    def _has_adopted(self) -> None:
        self._estimate = self._information()
        self._tally = {self.name: float(self.n_readings)} if self.n_readings else {}
        self._left = self.repeats

    def _importance(self) -> Float[np.ndarray, "p p"]:
        """Mean of φφᵀ over the domain; with a time axis at the moment of its own last reading."""
        places = qmc.Sobol(self.domain.n_dims, scramble=False).random(_PLACES)
        if self.n_columns > self.domain.n_dims:
            last = float(self.X[:, -1].max(initial=0.0))
            places = np.column_stack([places, np.full(_PLACES, last)])
        Phi = self.proposal.basis.features(places)
        return Phi.T @ Phi / _PLACES

    def _take(self, sender: str, body: msgspec.Raw) -> None:
        said = msgspec.msgpack.decode(body, type=_Body)
        other = Information.unpacked(unpacked_bytes(said.estimate), self.proposal.n_features)
        fused, share = intersection(self._estimate, other, self._importance())
        before = self._estimate.packed()
        if np.abs(fused.packed() - before).max() <= _SAME * max(1.0, np.abs(before).max()):
            return
        agents = [*self._tally, *(agent for agent in said.tally if agent not in self._tally)]
        self._tally = {
            agent: share * self._tally.get(agent, 0.0) + (1.0 - share) * said.tally.get(agent, 0.0) for agent in agents
        }
        self._estimate, self._left = fused, self.repeats

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        if self.is_finished:
            return
        self._left = max(self._left - 1, 0)
        body = _Body(self._tally, packed_bytes(self._estimate.packed()))
        for neighbour in self.neighbours:
            yield neighbour, body

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"tally": dict(self._tally), "left": self._left}, {"estimate": self._estimate.packed()}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        tally, left = dict(plain["tally"]), plain["left"]
        self._has_adopted()
        self._estimate = Information.unpacked(arrays["estimate"], self.proposal.n_features)
        self._tally, self._left = tally, left
