"""Experts, each with readings of its own: products of what they predict, and agents that make these.

A committee can be asked like one Gaussian process: at any place, and about several jointly. Agents that tell one
another predictions at agreed places, and no readings, are what it is compared with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from swarmbo.belief.fusion.fused_view import are_numbers, packed_bytes, unpacked_bytes
from swarmbo.belief.fusion.gossip import Gossip
from swarmbo.belief.fusion.measurement_flooding import MeasurementFlooding, Measurements
from swarmbo.belief.fusion.proposal import Proposal
from swarmbo.belief.gp.data import checked_points
from swarmbo.belief.gp.exact import ExactGP
from swarmbo.belief.gp.hyperparameters import ExactGPSettings
from swarmbo.belief.gp.spatial import FieldGP
from swarmbo.belief.views import PosteriorCache
from swarmbo.errors import ShapeError
from swarmbo.spaces import Domain

Predictions = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]
Product = Literal["generalised-product", "robust-committee"]

_SMALLEST = 1e-12  # share of the prior variance below which a variance is taken for rounding


def generalised_product(
    means: Float[np.ndarray, "k m"], variances: Float[np.ndarray, "k m"], prior_variance: float
) -> Predictions:
    """The generalised product of experts: precisions are averaged, by how much each expert knows of the place.

    The weight of an expert is what it has learned of the place, ½ log(prior variance / its variance), as a share of
    what all have; equal where none has learned anything. As weights sum to 1 the product is never surer than its
    surest expert: safe if experts share data, too unsure if they do not.

    Source: Cao & Fleet 2014, with weights normalised to a sum of 1.

    Args:
        means: Of each expert at each place, in the unit of the outcome.
        variances: As ``means``, > 0, in its square.
        prior_variance: Of the field, which all experts share.

    Returns:
        Means (m,) and variances (m,).

    Example:
        >>> mean, var = generalised_product(np.array([[1.0], [5.0]]), np.array([[0.1], [2.0]]), 2.0)
        >>> mean.round(6).tolist(), var.round(6).tolist()  # the second expert has seen nothing
        ([1.0], [0.1])
    """
    variances = np.maximum(variances, _SMALLEST * prior_variance)
    learned = np.maximum(0.5 * np.log(prior_variance / variances), 0.0)
    total = learned.sum(axis=0)
    weights = np.where(total > 0.0, learned / np.where(total > 0.0, total, 1.0), 1.0 / len(means))
    precision = (weights / variances).sum(axis=0)
    return (weights * means / variances).sum(axis=0) / precision, 1.0 / precision


def robust_committee(
    means: Float[np.ndarray, "k m"], variances: Float[np.ndarray, "k m"], prior_mean: float, prior_variance: float
) -> Predictions:
    """The robust Bayesian committee machine: precisions add up, by what each expert knows.

    With weights b = ½ log(prior variance / variance): precision = Σ b / variance + (1 - Σ b) / prior variance, so that
    the prior counts once. Where nobody knows anything it is the prior. It takes the experts' data as independent given
    the field at the place, so it is too sure where they are not. The weight of an expert whose variance is below e⁻² of
    the prior's is above 1: near its own readings the committee is surer than it, be it of that expert alone.

    Source: Deisenroth & Ng 2015, robust Bayesian committee machine.

    Args:
        means: Of each expert at each place, in the unit of the outcome.
        variances: As ``means``, > 0, in its square.
        prior_mean: Of the field, which all experts share.
        prior_variance: As ``prior_mean``.

    Returns:
        Means (m,) and variances (m,).

    Example:
        >>> mean, var = robust_committee(np.array([[5.0], [5.0]]), np.array([[2.0], [2.0]]), 5.0, 2.0)
        >>> mean.round(6).tolist(), var.round(6).tolist()  # nobody has seen anything
        ([5.0], [2.0])
    """
    variances = np.maximum(variances, _SMALLEST * prior_variance)
    weights = np.maximum(0.5 * np.log(prior_variance / variances), 0.0)
    precision = 1.0 / prior_variance + (weights * (1.0 / variances - 1.0 / prior_variance)).sum(axis=0)
    shift = (weights * (means - prior_mean) / variances).sum(axis=0)
    return prior_mean + shift / precision, 1.0 / precision


@dataclass(frozen=True, eq=False)
class CommitteePosterior:
    """Marginals of a committee at m points: its means and variances, and the correlations of one expert.

    Args:
        mean: Means (m,), in the unit of the outcome.
        var: Variances (m,), in its square.
        expert: Whose correlations are taken.
        factor: What its standard deviations (m,) are multiplied by.
    """

    mean: Float[np.ndarray, " m"]
    var: Float[np.ndarray, " m"]
    expert: PosteriorCache
    factor: Float[np.ndarray, " m"]

    def cov(self, rows: Int[np.ndarray, " r"], cols: Int[np.ndarray, " c"]) -> Float[np.ndarray, "r c"]:
        """Covariances (r, c) between two subsets of the points, in the square of the outcome's unit.

        Args:
            rows: Indices into the points (r,), or a slice.
            cols: Indices into the points (c,), or a slice.
        """
        return self.factor[rows, None] * self.expert.cov(rows, cols) * self.factor[cols]


@dataclass(frozen=True, eq=False, kw_only=True)
class CommitteeGP(FieldGP):
    """The robust Bayesian committee machine of experts who each know the readings of one author.

    It takes the cube of each author's number of readings to make, not the cube of their sum. It is a product at every
    place by itself. What it says of several places jointly is the correlation that one expert, its owner, sees between
    them, scaled to the committee's variances: a covariance, and near the owner a good one, but far from it the owner
    has only its prior to go by. Measurements to come take the share of variance that they take of the owner's own.

    Its place and time are those of its base, ``FieldGP``.

    Source: of the product Deisenroth & Ng 2015; of the rest none, it is ours.

    Args:
        experts: With readings, and all with the same hyper-parameters.
        own: The owner's expert, perhaps without readings.
        foreseen: The same, knowing of the measurements to come.
    """

    experts: tuple[ExactGP, ...]
    own: ExactGP
    foreseen: ExactGP

    @property
    def n_data(self) -> int:
        """Number of outcomes of all authors."""
        return sum(expert.n_data for expert in self.experts)

    def posterior_mean(self, X: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Means (m,) of the field at physical points (m, d).

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        return self.posterior(X)[0]

    def posterior_cache(self, X: ArrayLike) -> CommitteePosterior:
        """The posterior at fixed physical points (m, d), from which covariances between subsets are cheap.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        points, h = self._points(X), self.hyperparameters
        told = [expert.posterior(points) for expert in self.experts or (self.own,)]
        means, variances = np.array([mean for mean, _ in told]), np.array([var for _, var in told])
        mean, var = robust_committee(means, variances, h.offset + h.scale * h.mean, self.prior_variance)
        expert, least = self.foreseen.posterior_cache(points), _SMALLEST * self.prior_variance
        var = var * np.clip(expert.var / np.maximum(self.own.posterior(points)[1], least), 0.0, 1.0)
        return CommitteePosterior(mean, var, expert, np.sqrt(var / np.maximum(expert.var, least)))

    def condition_on_pending(self, X: Float[np.ndarray, "q d"]) -> "CommitteeGP":
        """A belief whose variance knows of measurements to come, and whose mean does not move.

        Args:
            X: Points (q, d), physical, that will be measured with the usual noise; added to those pending already.

        Raises:
            ShapeError: If the shape does not fit, or a value is not finite.
        """
        return replace(self, foreseen=self.foreseen.condition_on_pending(self._points(X)))


class CommitteeFlooding(MeasurementFlooding):
    """An agent that collects readings as its base does, and has an expert of its own for each author of them.

    The messages are those of ``MeasurementFlooding``; what it saves is computation. Experts that tell one another
    predictions, and no readings, are ``PredictionFlooding``.

    Example:
        >>> from swarmbo.belief.fusion import Proposal, exchange
        >>> from swarmbo.belief.gp.hyperparameters import Hyperparameters
        >>> from swarmbo.spaces import Domain
        >>> from swarmbo.transport import InProcess
        >>> start = Proposal(0, "", Hyperparameters("rbf", (0.3,), 1.0, 0.1), seed=0, n_features=20)
        >>> domain = Domain(np.zeros(1), np.ones(1))
        >>> a, b = CommitteeFlooding("a", domain, start, ["b"]), CommitteeFlooding("b", domain, start, ["a"])
        >>> a.measure([[0.2]], [1.0])
        >>> traffic = exchange([a, b], InProcess().open(["a", "b"]), steps=10)
        >>> b.belief.n_data, [expert.n_data for expert in b.belief.experts]
        (1, [1])
    """

    @property
    def knowledge(self) -> None:
        """None: of two agents with the same readings each takes the correlations of its own expert."""
        return None

    def _made(self) -> CommitteeGP:
        experts = {author: self._exact(Measurements.of(log.rows)) for author, log in sorted(self._logs.items())}
        own = experts.get(self.name, self._exact(Measurements.of(np.zeros((0, self.n_columns + 2)))))
        return CommitteeGP(
            domain=self.domain,
            hyperparameters=self.proposal.hyperparameters,
            experts=tuple(experts.values()),
            own=own,
            foreseen=own,
        )

    def _exact(self, measurements: Measurements) -> ExactGP:
        h = self.proposal.hyperparameters
        return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, *measurements)


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
            raise ShapeError(f"X: got {strangers[0]}; wanted some of the {len(self.places)} agreed locations")
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
        """Belief by its own readings alone."""
        h, rows = self.proposal.hyperparameters, (self.X, self.y, self.noise)
        return ExactGP.from_hyperparameters(ExactGPSettings(kernel=h.kernel), self.domain, h, *rows)

    @property
    def belief(self) -> PredictionTable:
        """Belief by what has reached it."""
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
        self._holds(self.name, self.n_measurements)

    def _has_adopted(self) -> None:
        super()._has_adopted()
        self._told = {}
        if self.n_measurements:
            self._has_measured(0)

    def _state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        plain, arrays = super()._state()
        return plain, arrays | {f"told/{author}": table.copy() for author, table in self._told.items()}

    def _restore(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
        super()._restore(plain, arrays)
        self._told = {author: arrays[f"told/{author}"] for author in self._has}
