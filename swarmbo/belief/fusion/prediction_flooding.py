"""Experts who tell one another what they predict at agreed places, and not why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from swarmbo.belief.fusion.committee import generalised_product, robust_committee
from swarmbo.belief.fusion.fused_view import are_numbers, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.gossip import Gossip
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.gp.data import checked_points
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.hyperparameters import ExactGPSettings
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain

Product = Literal["generalised-product", "robust-committee"]


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """A belief about agreed places only, and about each by itself: products of experts have no joint covariance.

    Args:
        places: Physical points (m, d).
        mean: Of the field (m,), in the unit of the outcome.
        var: Of the field (m,), in its square.
    """

    places: Float[np.ndarray, "m d"]
    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]

    def posterior(self, X: Float[np.ndarray, "k d"]) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " k"]]:
        """Mean (k,) and variance (k,) at some of the agreed places (k, d).

        Raises:
            ShapeError: If a point is none of them.
        """
        points, rows = checked_points(X, self.places.shape[1]), dict[bytes, int]()
        for row, place in enumerate(self.places):
            rows.setdefault(place.tobytes(), row)
        if strangers := [point.tolist() for point in points if point.tobytes() not in rows]:
            raise ShapeError(f"X: got {strangers[0]}; wanted some of the {len(self.places)} places that were agreed on")
        chosen = [rows[point.tobytes()] for point in points]
        return self.mean[chosen], self.var[chosen]


class PredictionFlooding(Gossip):
    """An expert with an exact GP of its own readings, and the newest predictions of all experts it has heard of.

    What it tells is 16 bytes a place, however many readings are behind it.

    Args:
        name: Its name; no other agent's.
        domain: The box of physical points.
        proposal: What all agents are started with.
        neighbours: Whom it speaks to, from the start.
        patience: Steps, >= 1, after which entries that nobody confirmed are sent again.
        places: Points (m, d), physical, with a time axis (m, d + 1), that all agents have agreed to predict at.
        product: How predictions are made into one.
    """

    def __init__(
        self,
        name: str,
        domain: Domain,
        proposal: Proposal,
        neighbours: Iterable[str] = (),
        patience: int = 3,
        *,
        places: Float[np.ndarray, "m d"],
        product: Product = "robust-committee",
    ) -> None:
        with_time = proposal.hyperparameters.time is not None
        self.places = checked_points(places, domain.n_dims + with_time)
        self.product: Product = product
        self._told: dict[str, Float[np.ndarray, "2 m"]] = {}
        super().__init__(name, domain, proposal, neighbours, patience)

    @property
    def own_belief(self) -> ExactGP:
        """What it believes by its own readings alone."""
        h, rows = self.proposal.hyperparameters, (self.X, self.y, self.noise)
        return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, *rows)

    @property
    def belief(self) -> PredictionTable:
        """What it believes by what has reached it."""
        h = self.proposal.hyperparameters
        prior_mean, prior_variance = h.offset + h.scale * h.mean, h.scale**2 * h.outputscale
        if not self._told:
            m = len(self.places)
            return PredictionTable(self.places, np.full(m, prior_mean), np.full(m, prior_variance))
        told = np.array([self._told[author] for author in sorted(self._told)])
        means, variances = told[:, 0], told[:, 1]
        if self.product == "generalised-product":
            return PredictionTable(self.places, *generalised_product(means, variances, prior_variance))
        return PredictionTable(self.places, *robust_committee(means, variances, prior_mean, prior_variance))

    def _entry(self, author: str, has: int) -> bytes:
        return packed_bytes(self._told[author].ravel())

    def _is_entry(self, number: int, content: bytes) -> bool:
        m = len(self.places)
        return are_numbers(content, 2 * m) and bool((unpacked_bytes(content)[m:] > 0.0).all())

    def _file(self, author: str, number: int, content: bytes) -> None:
        self._told[author] = unpacked_bytes(content).reshape(2, -1)
        self._holds(author, number)

    def _has_measured(self, n_new: int) -> None:
        self._told[self.name] = np.array(self.own_belief.posterior(self.places))
        self._holds(self.name, self.n_readings)

    def _has_adopted(self) -> None:
        super()._has_adopted()
        self._told = {}
        if self.n_readings:
            self._has_measured(0)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        plain, arrays = super()._state()
        return plain, arrays | {f"told/{author}": table.copy() for author, table in self._told.items()}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        super()._restore(plain, arrays)
        self._told = {author: arrays[f"told/{author}"] for author in self._has}
