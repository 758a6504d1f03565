"""Reports of agents after a step, parsed in one place so that a run continues with any world."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.boundary.values import reported_noise, reported_number, reported_place

_LONGEST_WORDS = 200  # characters of a failure message
Infos = Mapping[str, Mapping[str, Any]]  # by agent, as ``env.reset`` and ``env.step`` return them


class Step(NamedTuple):
    """Result of ``env.step``, each by agent."""

    observations: Mapping[str, Any]
    rewards: Mapping[str, Any]
    terminations: Mapping[str, bool]
    truncations: Mapping[str, bool]
    infos: Infos


class Report(NamedTuple):
    """Report of one agent; ``docs/environments/contract.md`` explains each key.

    Numbers that are missing, not finite, or beyond 1e60 are NaN; distance and cost are then 0. ``factor_noise`` has
    known standard deviations only. An agent that ``declined`` abstained, so no measurement has failed.

    Example:
        >>> report = Report.of({"location": [0.5], "measurement": "high", "cost": 2})
        >>> report.place.tolist(), report.outcome, report.cost, report.declined
        ([0.5], nan, 2.0, False)
    """

    place: Float[np.ndarray, " d"] | None = None
    is_placed: bool = False
    outcome: float = np.nan
    is_measured: bool = False
    factors: Mapping[str, float] = {}
    noise_std: float = np.nan
    factor_noise: Mapping[str, float] = {}
    declined: bool = False
    distance: float = 0.0
    cost: float = 0.0
    source: dict[str, Any] | None = None
    on_the_way: "tuple[Report, ...]" = ()
    path: Float[np.ndarray, "k d"] | None = None
    battery: float = np.nan
    failure: str | None = None

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "Report":
        """Report of an agent's info."""
        factors, noise, source, failure = (info.get(key) for key in ("factors", "noise_std", "source", "failure"))
        by_factor = noise if isinstance(noise, Mapping) else {}
        known = {name: std for name, told in by_factor.items() if not math.isnan(std := reported_noise(told))}
        return cls(
            place=reported_place(info.get("location")),
            is_placed=info.get("location") is not None,
            outcome=reported_number(info.get("measurement")),
            is_measured="measurement" in info,
            factors={name: reported_number(told) for name, told in factors.items()}
            if isinstance(factors, Mapping)
            else {},
            noise_std=reported_noise(noise),
            factor_noise=known,
            declined=not np.all(info.get("sampled", True)),
            distance=_amount(info.get("distance")),
            cost=_amount(info.get("cost")),
            source=dict(source) if isinstance(source, Mapping) else None,
            on_the_way=_on_the_way(info.get("on_the_way")),
            path=_path(info.get("path")),
            battery=float(np.clip(reported_number(info.get("battery")), 0.0, 1.0)),
            failure=" ".join(failure.split())[:_LONGEST_WORDS] if isinstance(failure, str) else None,
        )


def _on_the_way(told: object) -> tuple[Report, ...]:
    stops = [stop for stop in told if isinstance(stop, Mapping)] if isinstance(told, list | tuple) else []
    plain = [Report.of({key: stop.get(key) for key in ("location", "measurement", "noise_std")}) for stop in stops]
    return tuple(report for report in plain if report.place is not None)


def _path(told: object) -> Float[np.ndarray, "k d"] | None:
    rows = [reported_place(row) for row in told] if isinstance(told, list | tuple | np.ndarray) else []
    places = [row for row in rows if row is not None]
    is_path = bool(places) and len(places) == len(rows) and len({len(place) for place in places}) == 1
    return np.array(places) if is_path else None


def _amount(value: object) -> float:
    amount = reported_number(value)
    return amount if math.isfinite(amount) else 0.0
