"""Evaluations and their outcomes, in one table for every kind of team."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from jaxtyping import Bool, Float, Int

if TYPE_CHECKING:
    from swarmbo.problem.problem import Problem

_FILLED: Any = None  # default of columns that ``Dataset`` fills


def known(number: float) -> float | None:
    """None for a failed outcome or an unknown noise."""
    return float(number) if math.isfinite(number) else None


class Measurement(msgspec.Struct, frozen=True, array_like=True):
    """Measurement of an agent in a field, also in messages and states; None for a failed outcome or unknown noise."""

    place: tuple[float, ...]
    outcome: float | None
    noise_std: float | None = None

    @classmethod
    def of(cls, place: Float[np.ndarray, " d"], outcome: float, noise_std: float) -> "Measurement":
        """Make a measurement from numbers, NaN for a failed outcome or unknown noise."""
        return cls(tuple(place.tolist()), known(outcome), known(noise_std))

    @property
    def numbers(self) -> tuple[float, float]:
        """Outcome and noise, NaN for a failed outcome or unknown noise."""
        return (
            math.nan if self.outcome is None else self.outcome,
            math.nan if self.noise_std is None else self.noise_std,
        )


@dataclass(frozen=True, eq=False)
class News:
    """Outcome of one evaluation, as a team receives it.

    ``point`` is the actual one, physical, NaN for variables of agents without a part. Outcomes are NaN if failed,
    ``total`` is None if not given; noises are standard deviations, NaN or left out if unknown. Measurements en route
    have their agents, in the team's order.
    """

    point: Float[np.ndarray, " n"]
    total: float | None
    factors: Mapping[str, float]
    total_noise: float = np.nan
    noise: Mapping[str, float] = field(default_factory=dict[str, float])
    on_the_way: tuple[tuple[str, Measurement], ...] = ()

    def measurement(self, agent: str, problem: "Problem") -> Measurement:
        """Measurement of an agent in a field whose outcome is in ``factors``."""
        place = self.point[problem.columns(agent)]
        return Measurement.of(place, self.factors[agent], self.noise.get(agent, np.nan))

    def evaluation(self, channels: Sequence[str], round_number: float | None = None) -> "Dataset":
        """The point and its outcomes as one row, without measurements en route."""
        factors, noise = ([given.get(channel, np.nan) for channel in channels] for given in (self.factors, self.noise))
        rounds, noise_std = None if round_number is None else np.array([round_number]), [[self.total_noise, *noise]]
        outcomes = np.array([self.total], float), np.array([factors], float)
        return Dataset(self.point[None], *outcomes, rounds, noise_std=np.array(noise_std, float))

    def of(self, channels: Collection[str]) -> "News":
        """News without outcomes and en-route measurements of other channels; the point stays."""
        return replace(
            self,
            factors={channel: y for channel, y in self.factors.items() if channel in channels},
            noise={channel: std for channel, std in self.noise.items() if channel in channels},
            on_the_way=tuple(made for made in self.on_the_way if made[0] in channels),
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """Evaluations of joint points, one per row, and their outcomes, one column per channel.

    A channel is the source of one kind of outcome: a factor of a function, which reads the variables of its scope, or
    an agent in a field, which reads its measurement location. The total reads all factors of a function. Rows are in
    the order of their first outcome.

    Args:
        X: Joint points (t, n), physical, columns as the variables; NaN for variables of agents without a part.
        totals: Outcome of the sum of all channels (t,); NaN if unknown or failed, and in a field.
        factors: Outcome of each channel (t, k); NaN if unknown or failed.
        rounds: Round (t,) of each request; needed if the belief has a time axis.
        attached: Mask (t,) of unrequested evaluations; by default none.
        chosen: Mask (t,) of evaluations that a method chose: not attached, in the initial design, or measured
            at the start. None: all after the first ``initial`` of the situation.
        awaited: Mask (t, k) of pending outcomes of partly known evaluations; by default none.
        taken: Mask (t, k) of channels whose outcomes were requested and not given up; by default all.
        noise_std: Standard deviation of the noise of each outcome (t, 1 + k), the total's first, in its unit; NaN if
            unknown, as by default. It replaces the fitted noise.
        basis: Number of evaluations (t,) known at the request of each; None: all before it.
        measured: Measured quantities (t, c) that have limits, NaN if unknown; None: there are none.
        query: Number (t,) of the query of each, from 1; 0 for unrequested evaluations, as by default.
        barred: Mask (t,) of evaluations that may not be incumbents; None: there are none.

    Example:
        >>> data = Dataset(np.zeros((2, 1)), np.full(2, np.nan), np.array([[1.0, np.nan], [2.0, 3.0]]))
        >>> len(data), data.failed.tolist()
        (2, [[False, True], [False, False]])
    """

    X: Float[np.ndarray, "t n"]
    totals: Float[np.ndarray, " t"]
    factors: Float[np.ndarray, "t k"]
    rounds: Float[np.ndarray, " t"] | None = None
    attached: Bool[np.ndarray, " t"] = _FILLED
    chosen: Bool[np.ndarray, " t"] | None = None
    awaited: Bool[np.ndarray, "t k"] = _FILLED
    taken: Bool[np.ndarray, "t k"] = _FILLED
    noise_std: Float[np.ndarray, "t c"] = _FILLED
    basis: Int[np.ndarray, " t"] | None = None
    query: Int[np.ndarray, " t"] = _FILLED
    measured: Float[np.ndarray, "t c"] | None = None
    barred: Bool[np.ndarray, " t"] | None = None

    def __post_init__(self) -> None:
        t, cells = len(self.totals), self.factors.shape
        missing: dict[str, tuple[Any, Any]]  # shape and value
        missing = {"attached": (t, False), "query": (t, 0), "awaited": (cells, False), "taken": (cells, True)}
        missing["noise_std"] = ((t, 1 + cells[-1]), np.nan)
        for name, column in vars(self).items():
            if column is None and name in missing:
                column = np.full(*missing[name])
            if column is not None:  # a view: the caller's own array stays writeable
                object.__setattr__(self, name, column.view())
                getattr(self, name).flags.writeable = False

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def failed(self) -> Bool[np.ndarray, "t k"]:
        """Mask of failed outcomes: neither known nor pending."""
        return np.isnan(self.factors) & np.isnan(self.totals)[:, None] & self.taken & ~self.awaited

    @property
    def known_noise(self) -> Float[np.ndarray, "t c"]:
        """Copy of ``noise_std``, which may be changed."""
        return self.noise_std.copy()

    @property
    def n_known(self) -> int:
        """Number of evaluations with at least one outcome."""
        return int((np.isfinite(self.totals) | np.isfinite(self.factors).any(axis=1)).sum())

    def take(self, rows: slice) -> "Dataset":
        """Subset of rows."""
        return Dataset(**{name: column[rows] for name, column in vars(self).items() if column is not None})

    def begins_with(self, other: "Dataset") -> bool:
        """True if the first rows equal another dataset."""
        mine = self.take(slice(len(other)))
        pairs = ((getattr(mine, name), getattr(other, name)) for name in ("X", "totals", "factors", "known_noise"))
        return len(mine) == len(other) and all(np.array_equal(a, b, equal_nan=True) for a, b in pairs)

    def then(self, other: "Dataset") -> "Dataset":
        """Append rows; a column that either lacks is left out."""
        pairs = {name: (mine, getattr(other, name)) for name, mine in vars(self).items()}
        both = {name: np.concatenate(pair) for name, pair in pairs.items() if not any(part is None for part in pair)}
        return Dataset(**both)

    @property
    def sums(self) -> Float[np.ndarray, " t"]:
        """Totals, or the sums of all channels' outcomes where totals are not known; NaN if unknown or ``barred``.

        Only histories of situations have barred evaluations: there, these are the sums that may be incumbents.
        """
        sums = np.where(np.isfinite(self.totals), self.totals, self.factors.sum(axis=1))
        return sums if self.barred is None else np.where(self.barred, np.nan, sums)

    def with_sums(self) -> "Dataset":
        """Add totals of rows with outcomes of all channels."""
        sums, noise = self.sums, self.known_noise
        is_sum = np.isnan(self.totals) & ~np.isnan(sums)
        noise[is_sum, 0] = np.sqrt((noise[is_sum, 1:] ** 2).sum(axis=1))  # variances of independent noises add up
        return replace(self, totals=sums, noise_std=noise)
