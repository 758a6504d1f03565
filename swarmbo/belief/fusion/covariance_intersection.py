"""Covariance intersection, for comparison: conservative even if a measurement has arrived by several paths."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float
from scipy.linalg import eigh
from scipy.optimize import minimize_scalar

from swarmbo.belief.features.feature_gp import FeatureGP, Information
from swarmbo.belief.fusion.fused_view import MOST, FusedView, is_information, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.boundary.rng import sobol
from swarmbo.kernels.registry import KERNEL_NAMES, OwnKernel, own_kernel


def intersection(
    first: Information, second: Information, importance: Float[np.ndarray, "p p"] | None = None
) -> tuple[Information, float]:
    """Fuse two estimates of the same weights, each from the prior N(0, I) and data of unknown overlap.

    The posterior precisions are averaged, P⁻¹ = a P₁⁻¹ + (1 - a) P₂⁻¹. If both reported covariances were at least the
    true ones, so is the fused one, whatever data they share. The share a, which is returned too, minimises
    trace(importance P), so the result is never worse than the better of the two by that measure. If ``importance``
    (None: the identity) is the mean of φφᵀ over the domain, the measure is the mean variance of the field. Both
    estimates contain the prior, so it counts once.

    Source: Julier & Uhlmann 1997.
    """
    p = first.n_features
    W = np.eye(p) if importance is None else importance
    # P₁⁻¹ V = P₂⁻¹ V Λ with Vᵀ P₂⁻¹ V = I: then P(a) = V (a Λ + (1 - a) I)⁻¹ Vᵀ for every a
    ratios, V = eigh(first.precision + np.eye(p), second.precision + np.eye(p))
    costs = np.einsum("ij,ik,kj->j", V, W, V)

    def measure(a: float) -> float:
        return float((costs / (a * ratios + (1.0 - a))).sum())

    inside = float(minimize_scalar(measure, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-6}).x)
    share = min((1.0, 0.0, inside), key=measure)  # in a tie the first wins, so that known information changes nothing
    return first.scaled(share) + second.scaled(1.0 - share), share


_PLACES = 256  # points for the mean variance
_REPEATS = 4  # number of times that an unchanged estimate is sent
_TOLERANCE = 1e-6  # relative change of the information below which it is not sent again


class _Body(msgspec.Struct, array_like=True):
    tally: dict[str, float]
    estimate: bytes


class CovarianceIntersection(FusedView):
    """An agent with one estimate, which it sends to its neighbours, and fuses with theirs by covariance intersection.

    Measurements are not tagged: messages have the same size for any number of agents, and no memory of sources is
    needed. The price is that independent measurements are averaged, not added. The estimate is never overconfident, and
    its mean variance over the domain is at most that of the better of the two fused estimates. An agent's own
    measurements are new to every agent, so they are added.

    An unchanged estimate is sent four times in case messages are lost. If a neighbour's estimate differs but contains
    nothing new, the neighbour gets the present estimate again.
    """

    content = _Body
    _repeats: dict[str, int]  # repeats that remain for each neighbour
    _answers: dict[str, int]  # number of answers to each neighbour that knew less

    @property
    def belief(self) -> FeatureGP:
        """Belief from its own measurements and received messages."""
        return self._by_features(self._estimate)

    @property
    def reached(self) -> dict[str, float]:
        """Measurements of each agent times the share with which they count."""
        return dict(sorted(self._tally.items()))

    @property
    def is_finished(self) -> bool:
        """True if it has sent its estimate often enough, and all neighbours hold the same proposal."""
        return not any(self._is_due(neighbour) for neighbour in self.neighbours)

    def _is_due(self, neighbour: str) -> bool:
        return self._repeats.get(neighbour, 0) > 0 or not self._agrees.get(neighbour, True)

    def _has_met(self, neighbour: str) -> None:
        self._repeats[neighbour] = _REPEATS

    def _tell_all(self) -> None:
        self._repeats, self._answers = dict.fromkeys(self.neighbours, _REPEATS), {}

    def _has_measured(self, n_new: int) -> None:
        self._estimate = self._estimate + self._information(slice(self.n_measurements - n_new, None))
        self._tally[self.name] = self._tally.get(self.name, 0.0) + n_new
        self._tell_all()

    def _has_adopted(self) -> None:
        self._estimate = self._information()
        self._tally = {self.name: float(self.n_measurements)} if self.n_measurements else {}
        self._tell_all()

    def _fits(self, said: _Body) -> bool:
        is_tally = self._is_known(said.tally) and all(0.0 <= n < MOST for n in said.tally.values())
        return is_tally and (not said.estimate or is_information(said.estimate, self.proposal.n_features))

    def _take(self, sender: str, said: _Body) -> None:
        p = self.proposal.n_features
        other = Information.unpacked(unpacked_bytes(said.estimate), p) if said.estimate else Information.none(p)
        has_time = self.n_columns > self.domain.n_dims
        now = float(np.append(self.X[:, -1], self.now).max()) if has_time else None
        kernel = self.hyperparameters.kernel
        own = None if kernel in KERNEL_NAMES else own_kernel(kernel)
        fused, share = intersection(self._estimate, other, _importance(self.proposal, self.domain.n_dims, now, own))
        if _is_same(fused, self._estimate):
            answers = self._answers.get(sender, 0)
            if answers < _REPEATS and not _is_same(other, self._estimate):  # the neighbour's estimate is out of date
                self._answers[sender] = answers + 1
                self._must_answer(sender)
            return
        own, theirs = self._tally, said.tally
        agents = dict.fromkeys([*own, *theirs])
        self._tally = {name: share * own.get(name, 0.0) + (1.0 - share) * theirs.get(name, 0.0) for name in agents}
        self._estimate = fused
        self._tell_all()

    def _must_answer(self, neighbour: str) -> None:
        self._repeats[neighbour] = max(self._repeats.get(neighbour, 0), 1)

    def _bodies(self) -> Iterable[tuple[str, msgspec.Struct]]:
        body = _Body(self._tally, packed_bytes(self._estimate.packed()) if self._estimate.count else b"")
        for neighbour in self.neighbours:
            if self._is_due(neighbour):
                self._repeats[neighbour] = max(self._repeats.get(neighbour, 0) - 1, 0)
                yield neighbour, body

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        plain = {"tally": dict(self._tally), "left": dict(self._repeats), "answers": dict(self._answers)}
        return plain, {"estimate": self._estimate.packed()}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        self._estimate = Information.unpacked(arrays["estimate"], self.proposal.n_features)
        self._tally, self._repeats, self._answers = dict(plain["tally"]), dict(plain["left"]), dict(plain["answers"])


def _is_same(first: Information, second: Information) -> bool:
    a, b = first.packed(), second.packed()
    return bool(np.abs(a - b).max() <= _TOLERANCE * max(1.0, np.abs(b).max()))


@lru_cache(maxsize=64)  # by the user's own kernel, too, as another may be registered under its name
def _importance(proposal: Proposal, n_dims: int, now: float | None, _: OwnKernel | None) -> Float[np.ndarray, "p p"]:
    """Mean of φφᵀ over the domain; with a time axis, in the round ``now``."""
    places = sobol(_PLACES, n_dims, None)
    if now is not None:
        places = np.column_stack([places, np.full(_PLACES, now)])
    Phi = proposal.basis.features(places)
    return Phi.T @ Phi / _PLACES
