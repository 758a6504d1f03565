"""Base class of all worlds, and the parser of agents' reports."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
from jaxtyping import Float
from pettingzoo import AECEnv, ParallelEnv

from swarmbo.acquisition import Travel
from swarmbo.boundary import values
from swarmbo.boundary.values import is_number, reported_noise, reported_number, reported_place, short, storable
from swarmbo.errors import ConfigError
from swarmbo.problem import Problem
from swarmbo.problem.data import News
from swarmbo.spaces import Domain

_LONGEST_FAILURE = 200  # characters of a failure message
Infos = Mapping[str, Mapping[str, Any]]  # by agent, as ``env.reset`` and ``env.step`` return them
Positions = Mapping[str, Float[np.ndarray, " d"]]


class Step(NamedTuple):
    """Result of ``env.step``; each field is a table by agent."""

    observations: Mapping[str, Any]
    rewards: Mapping[str, Any]
    terminations: Mapping[str, bool]
    truncations: Mapping[str, bool]
    infos: Infos

    @classmethod
    def of(cls, returned: Any) -> "Step":
        """Check what ``env.step`` returned; a ConfigError if it is not such a tuple."""
        if not isinstance(returned, tuple | list) or len(returned) != len(cls._fields):
            raise ConfigError(f"step() returned {short(returned)}; wanted {', '.join(cls._fields)}", "$.environment")
        step = cls(*returned)
        for name in ("observations", "infos"):
            if not isinstance(table := getattr(step, name), Mapping):
                raise ConfigError(f"step() returned {name} {short(table)}; wanted a table by agent", "$.environment")
        return step


class Report(NamedTuple):
    """Report of one agent; ``docs/environments/contract.md`` explains each key.

    Numbers that are missing, not finite, or beyond 1e60 are NaN; such a distance or cost is 0. ``factor_noise`` has
    known standard deviations only. An agent that ``declined`` abstained, so no measurement has failed. In a field, an
    outcome from outside the box has failed. ``failure`` is the reason that the agent states, or the fault in its info.

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
    def of(cls, info: Mapping[str, Any], box: Domain | None = None) -> "Report":
        """Parse an agent's info; ``box`` is that of the field, None for a function."""
        info = info or {}  # None: the agent reports nothing
        noise, source, failure, sampled = (info.get(key) for key in ("noise_std", "source", "failure", "sampled"))
        location, measured = info.get("location"), info.get("measurement")
        place, outcome = reported_place(location), reported_number(measured)
        is_placed, wrong = location is not None, None
        if box is not None:
            place = place if place is not None and place.shape == box.low.shape and box.is_near(place) else None
            if is_placed and place is None:
                wrong = f"location: got {short(location)}; wanted {box.n_dims} numbers {box.NEAR}"
                is_placed, outcome = False, np.nan
        if not is_number(measured):
            wrong = wrong or f"measurement: got {short(measured)}; wanted a number"

        factors, stds = (value if isinstance(value, Mapping) else {} for value in (info.get("factors"), noise))
        return cls(
            place=place,
            is_placed=is_placed,
            outcome=outcome,
            is_measured="measurement" in info,
            factors={name: reported_number(value) for name, value in factors.items()},
            noise_std=reported_noise(noise),
            factor_noise={name: std for name, value in stds.items() if not math.isnan(std := reported_noise(value))},
            declined=sampled is not None and not np.all(sampled),
            distance=float(np.nan_to_num(reported_number(info.get("distance")))),
            cost=float(np.nan_to_num(reported_number(info.get("cost")))),
            source=storable(source) if isinstance(source, Mapping) else None,
            on_the_way=_on_the_way(info.get("on_the_way"), box),
            path=_path(info.get("path"), box),
            battery=float(np.clip(reported_number(info.get("battery")), 0.0, 1.0)),
            failure=" ".join(failure.split())[:_LONGEST_FAILURE] if isinstance(failure, str) else wrong,
        )


def _on_the_way(stated: object, box: Domain | None) -> tuple[Report, ...]:
    stops = [stop for stop in stated if isinstance(stop, Mapping)] if isinstance(stated, list | tuple) else []
    keys = ("location", "measurement", "noise_std")
    reports = [Report.of({key: stop.get(key) for key in keys}, box) for stop in stops]
    return tuple(report for report in reports if report.place is not None)


def _path(stated: object, box: Domain | None) -> Float[np.ndarray, "k d"] | None:
    rows = [reported_place(row) for row in stated] if isinstance(stated, list | tuple | np.ndarray) else []
    lengths = {None if row is None else len(row) for row in rows} | (set() if box is None else {box.n_dims})
    return np.array(rows, dtype=float) if rows and len(lengths) == 1 and None not in lengths else None


@dataclass(frozen=True)
class Offers:
    """Options of a world for a decision. None means unknown, except that without ``agents`` all take part, and without
    ``links`` all are linked. ``prices`` (unit of the outcome) has agents that may abstain, ``standpoints`` static ones.
    """

    agents: tuple[str, ...] | None = None
    candidates: Mapping[str, Float[np.ndarray, "k d"]] | None = None
    boxes: Mapping[str, Domain] = field(default_factory=dict[str, Domain])
    prices: Mapping[str, float] = field(default_factory=dict[str, float])
    standpoints: Mapping[str, Float[np.ndarray, " d"]] = field(default_factory=dict[str, np.ndarray])
    links: "nx.Graph[str] | None" = None
    level: float | None = None
    sites: Float[np.ndarray, "k d"] | None = None
    travel: Travel | None = None


class World(ABC):
    """A PettingZoo environment as a team sees it; never the ground truth.

    Implementations: ``FieldWorld``, ``FunctionWorld`` and ``OneShotWorld``, each with the ``problem`` of the team.
    """

    problem: Problem

    def __init__(self, env: "ParallelEnv[str, Any, Any]") -> None:
        self._env: ParallelEnv[str, Any, Any] = env
        self._world: Any = env.unwrapped

    @property
    def horizon(self) -> int | None:
        """Rounds in an episode; None if the environment does not state them."""
        return getattr(self._world, "max_cycles", None)

    def links(self) -> "nx.Graph[str] | None":
        """Current communication links; None if unknown."""
        return self._optional("interaction_graph")

    def sites(self) -> Float[np.ndarray, "k d"] | None:
        """All measurable places; None if unknown."""
        return None

    def _optional(self, name: str, default: Any = None) -> Any:
        return getattr(self._world, name)() if hasattr(self._world, name) else default

    @abstractmethod
    def offers(self, agents: Sequence[str] | None = None) -> Offers:
        """Options of a decision by agents that have observations; with None, options that hold in any episode."""

    @abstractmethod
    def begin(self, infos: Infos) -> News | None:
        """Abandon an evaluation in progress; return the measurements made at ``env.reset``, None if none were made."""

    def continued_actions(self, agents: Sequence[str]) -> dict[str, Any] | None:
        """Actions that continue an evaluation of several steps; None if no evaluation is in progress."""
        return None

    @abstractmethod
    def actions(self, point: Mapping[str, Any], agents: Sequence[str], now: Positions | None = None) -> dict[str, Any]:
        """Actions that together evaluate a joint point, inside the agents' spaces and in their number type."""

    def place_of(self, actions: Mapping[str, Any]) -> Float[np.ndarray, " n"]:
        """Joint point that actions evaluate."""
        raise ConfigError("got actions of another policy; wanted an environment without `measurement`", at="$.policy")

    @abstractmethod
    def news(self, sent: Mapping[str, Any] | None, step: Step) -> News | None:
        """Result of evaluating the ``sent`` joint point, from ``env.step``; None while the evaluation continues."""


def require_parallel(env: Any) -> None:
    """Refuse anything but a parallel PettingZoo environment whose agents are named by strings."""
    missing = [name for name in ("possible_agents", "action_space", "reset", "step") if not hasattr(env, name)]
    if isinstance(env, AECEnv):
        got = "whose agents act one after the other"
        fix = ": parallel_env(…) of its module, or pettingzoo.utils.aec_to_parallel(env)"
    elif missing or not list(env.possible_agents):
        got = f"which has no {missing[0] if missing else 'agents'}"
        fix = ", whose agents are named by possible_agents; wrap a single-agent environment as one"
    else:
        values.distinct_names(list(env.possible_agents), "agent", "$.environment.possible_agents")
        return
    raise ConfigError(f"got {short(env)}, {got}; wanted a PettingZoo ParallelEnv{fix}", at="$.environment")
