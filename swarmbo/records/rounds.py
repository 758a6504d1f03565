"""Records of rounds, and the labels and truth of a simulated environment."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import UNSET, UnsetType

from swarmbo.boundary.coordinates import Coordinates
from swarmbo.records.solve_report import LinkReport, SolveReport, Traffic

Goal = Literal["peak", "map", "level"]
TRUE_MAXIMUM = "true maximum"


class Labels(msgspec.Struct, frozen=True):
    """Names of an environment's outcome and units, for titles and tables, and coordinates of its input."""

    name: str = ""
    unit: str = ""
    axis_unit: str = ""
    coordinates: Coordinates | None = None

    @classmethod
    def of(cls, env: Any, truth: "GroundTruth | None") -> "Labels":
        """Labels of the truth, or without it the texts in the environment's table ``labels``."""
        given = getattr(env.unwrapped, "coordinates", None)
        coordinates = given if isinstance(given, Coordinates) else None
        if truth is not None:
            return cls(truth.name, truth.unit, truth.axis_unit, coordinates)
        given = getattr(env.unwrapped, "labels", None)
        stated: dict[str, Any] = dict(given) if isinstance(given, Mapping) else {}
        texts = {key: stated[key] for key in ("name", "unit", "axis_unit") if isinstance(stated.get(key), str)}
        return cls(**texts, coordinates=coordinates)


@dataclass(frozen=True)
class GroundTruth:
    """Truth of a simulated environment: for metrics and figures only, never shown to a team.

    Args:
        points: Evaluation points (m, d), in the unit of the action space.
        values: Noise-free field (m,) at these points, in the unit of the outcome; NaN where it is not known.
        maximum: Maximum of the field over all measurable locations, or a reference optimum; see ``maximum_is``.
        argmax: One location (d,) of that maximum.
        unit: Unit of the outcome, for labels.
        axis_unit: Unit of the locations, for labels.
        name: Name of the field, for titles.
        value: Function from any locations (k, d) to the noise-free field (k,).
        goal: Task of the field: its ``peak``, a ``map`` of all of it, or the set above a ``level``.
        level: Level of the goal ``level``; None for other goals.
        at_round: Function from a round to its truth, if the field changes; else None.
        maximum_is: Label of ``maximum``; ``reference optimum`` if it may not be the maximum.
    """

    points: Float[np.ndarray, "m d"]
    values: Float[np.ndarray, " m"]
    maximum: float
    argmax: Float[np.ndarray, " d"]
    unit: str
    axis_unit: str
    name: str
    value: Callable[[Float[np.ndarray, "k d"]], Float[np.ndarray, " k"]] = field(repr=False)
    goal: Goal = "peak"
    level: float | None = None
    at_round: "Callable[[int], GroundTruth] | None" = field(default=None, repr=False)
    maximum_is: str = TRUE_MAXIMUM

    def at(self, round_number: int) -> "GroundTruth":
        """Truth of a round; the same object if the field does not change."""
        return self if self.at_round is None else self.at_round(round_number)

    def delayed(self, rounds: int) -> "GroundTruth":
        """Truth of an environment that is some rounds behind the run; the same object without a change."""
        at_round = self.at_round
        if at_round is None or rounds == 0:
            return self
        return replace(self, at_round=lambda round_number: at_round(round_number - rounds))

    def changed(self, change: "Callable[[GroundTruth], GroundTruth]") -> "GroundTruth":
        """Truth that is changed in every round."""
        truth, at_round = change(self), self.at_round
        return truth if at_round is None else replace(truth, at_round=lru_cache(16)(lambda n: change(at_round(n))))


class Query(msgspec.Struct, frozen=True, eq=False):
    """A query of a team: one joint point; in a field, a location for each participant.

    Args:
        id: Id, for ``tell``.
        point: Value of each variable, in physical units or of the variable's own type; in a field ``agent[0]``,
            ``agent[1]``, … are the coordinates of the agent's location.
        points: Values (m,) of each agent's own variables; in a field the location (d,) of its measurement.
        mean: Expected total of a function, in the unit of the outcome. None in the initial design, in a field, and for
            methods without a belief.
        std: Standard deviation of the total.
        means: In a field, expected measurement of each agent.
        stds: In a field, standard deviation of each agent's measurement.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0])
        >>> query = team.ask({"a": [[0.2]], "b": [[0.9]]})
        >>> team.tell(query.id, {agent: float(place[0]) for agent, place in query.points.items()})
        >>> query.id, query.point, {agent: place.tolist() for agent, place in query.points.items()}
        ('q00001', {'a[0]': 0.2, 'b[0]': 0.9}, {'a': [0.2], 'b': [0.9]})
    """

    id: str
    point: dict[str, Any]
    points: dict[str, np.ndarray]
    mean: float | None = None
    std: float | None = None
    means: dict[str, float] = {}
    stds: dict[str, float] = {}

    def __eq__(self, other: object) -> bool:
        """True if two queries are equal; ``points`` are ``point`` by agent."""
        if not isinstance(other, Query):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__struct_fields__ if name != "points")

    def __ne__(self, other: object) -> bool:  # that of the base class compares identities
        return not self == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]  its tables may change


class Evaluation(msgspec.Struct, frozen=True):
    """One location and its outcome.

    Args:
        location: Location in the unit of the action space; for a joint point one number per variable, in the
            environment's order: its value, or the position of a choice in its list.
        measurement: Noisy outcome in its physical unit, for a joint point the sum of factors; None if any part failed.
        factors: Outcome of each factor, if observed individually; None for a failed one.
        mean: Prediction of the team before the evaluation.
        std: Standard deviation of the prediction.
        noise_std: Standard deviation of the noise of the measurement, or of each factor's outcome; left out if unknown.
        point: Value of each variable of a joint point; left out if all are real numbers.
    """

    location: list[float]
    measurement: float | None
    factors: dict[str, float | None] | None = None
    mean: float | None = None
    std: float | None = None
    noise_std: float | dict[str, float] | UnsetType = UNSET
    point: dict[str, Any] | UnsetType = UNSET

    @property
    def known_noise(self) -> float:
        """Standard deviation of the noise of the measurement; NaN if unknown."""
        noise = self.noise_std
        if isinstance(noise, dict):
            is_whole = self.factors is not None and set(noise) == set(self.factors)
            return math.sqrt(math.fsum(std**2 for std in noise.values())) if is_whole else math.nan
        return math.nan if isinstance(noise, UnsetType) else noise


class Sample(msgspec.Struct, frozen=True):
    """One agent's part in one round.

    Args:
        agent: Name of the agent.
        location: Actual location of the measurement, in the unit of the action space; of a function, the numbers of the
            agent's own variables, as in ``Evaluation.location``.
        measurement: Noisy outcome in its physical unit; None if it failed.
        target: Requested action; None for the measurement at reset.
        distance: Distance travelled, in the unit of the action space; 0 if unknown.
        cost: Cost of the measurement, in the unit of the outcome.
        mean: Prediction at the target before the measurement, with ``std``; None if there is none.
        declined: True if the agent abstained; ``location`` and ``target`` then carry no information.
        battery: Remaining share of its battery.
        failure: Reason for no measurement.
    """

    agent: str
    location: list[float]
    measurement: float | None
    target: list[float] | None = None
    distance: float = 0.0
    cost: float = 0.0
    mean: float | None = None
    std: float | None = None
    declined: bool = False
    noise_std: float | UnsetType = UNSET
    on_the_way: list[Evaluation] | UnsetType = UNSET
    path: list[list[float]] | UnsetType = UNSET
    battery: float | UnsetType = UNSET
    failure: str | UnsetType = UNSET

    @property
    def en_route(self) -> list[Evaluation]:
        """Measurements en route."""
        return [] if isinstance(self.on_the_way, UnsetType) else self.on_the_way


class Recommendation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Best point by a team's belief, the noise-free posterior mean there, and its standard deviation.

    Args:
        location: Location in physical units. For a function, the values of its variables in the order of its graph; a
            choice has its position in its list.
        mean: Posterior mean in the unit of the outcome; for a function, of the total. If outcomes of one function count
            as exact, the outcome told there.
        std: Standard deviation of the noise-free posterior, and at least the model's error at an exact outcome.
        point: Value of each variable of a function.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b", "c"], low=[0.0], high=[1.0])
        >>> query = team.ask({"a": [[0.1]], "b": [[0.5]], "c": [[0.9]]})
        >>> team.tell(query, {"a": 0.0, "b": 1.0, "c": 0.0})
        >>> best = team.recommend()
        >>> abs(best.location[0] - 0.5) < 0.1, best.std < query.stds["b"]
        (True, True)
        >>> team = sb.Team(sb.FactorGraph.from_scopes({"f": ["x", "y"]}), {"x": (0.0, 4.0), "y": (0.0, 1.0)})
        >>> team.attach([[0.0, 0.0], [2.0, 0.5], [4.0, 1.0]], [-8.0, -1.0, -9.0])
        >>> best = team.recommend()
        >>> best.point, best.location
        ({'x': 2.0, 'y': 0.5}, [2.0, 0.5])
    """

    location: list[float]
    mean: float
    std: float
    point: dict[str, Any] | None = None


class Score(msgspec.Struct, frozen=True):
    """Score of a round against the truth; all in the unit of the outcome.

    Args:
        simple_regret: Maximum of the field less the best true value at any measured location. If the field changes,
            that of this round alone; without measurements, that of the recommendation; without either, that of the
            previous round.
        batch_regret: Maximum less the best true value measured in this round (one term of R_T in Daxberger & Low 2017);
            None if every measurement of the round failed.
        total_regret: Sum over this round's measurements of maximum less true value (one term of their R'_T).
        recommendation_regret: Maximum less the true value at the recommendation; None before the first one.
        map_rmse: Root mean squared error of the belief's mean on the environment's evaluation points; None without a
            belief, and for functions, which have no map.
        level_f1: Accuracy of the belief's mean for the set above the level of interest: harmonic mean of precision
            and recall over the evaluation points, 1 if both sets are empty; None without level or belief.
        view_rmse: Map RMSE of every agent's local belief; ``map_rmse`` is then that of the agent with the most data.
            None with a shared belief.
        recommended_so_far: Sum of the recommendation regrets of this and all earlier rounds, without that at reset: the
            score of Daxberger & Low's experiments (2017). Rounds without a recommendation add nothing.
        unknown: Number of this round's measurements that ``total_regret`` lacks, as their true value is not known; left
            out if there are none.
    """

    simple_regret: float
    batch_regret: float | None
    total_regret: float
    recommendation_regret: float | None = None
    map_rmse: float | None = None
    level_f1: float | None = None
    view_rmse: dict[str, float] | None = None
    recommended_so_far: float = 0.0
    unknown: int | UnsetType = UNSET


class Neglected(msgspec.Struct, frozen=True):
    """Effect of the measurements that a field's belief by tiles leaves out, at some measured places.

    Largest differences of ``mean`` (in standard deviations) and ``std`` (as a share) if tiles have four times as many
    ``neighbours``.
    """

    places: int
    neighbours: int
    mean: float
    std: float

    def __str__(self) -> str:
        """Describe the effect in one sentence."""
        return (
            f"by the {self.neighbours} measurements nearest to each place; four times as many move means by at most "
            f"{self.mean:.2g} standard deviations, and these by {self.std:.1%}, at {self.places} places"
        )


class RoundRecord(msgspec.Struct, frozen=True):
    """One line of ``rounds.jsonl``, independent of the clock.

    Args:
        round: 0 for the measurements at reset, which have no ``query`` and no ``report`` of an agreement; then 1, 2, …
        samples: One per agent, in the environment's order of agents.
        sharing: Traffic of reporting this round's measurements to other agents.
        sharing_links: Report of links for ``sharing``; left out without faults, or if a base station forwards it.
        best: Largest measurement so far and its location; None while every measurement failed.
        recommendation: Maximum of the belief after this round; None without data.
        hyperparameters: Those of the belief, enough to rebuild it from the samples so far.
        score: Score against the truth, if the environment has it.
        links: Pairs of agents in radio contact at the decision.
        joint: Joint point of all agents and its outcome, for a function.
        source: Source of the measurements, if the environment states it; such as the objective, a simulator's version,
            and the reason of a failure.
        failure: Reason why the environment gave no outcomes: an exception of its step, or a timeout. All measurements
            of the round then failed, and the environment is as before.
        neglected: Effect of what the map leaves out, measured in the first round in which its belief is by tiles.
    """

    round: int
    samples: list[Sample]
    query: str | None = None
    report: SolveReport | None = None
    sharing: Traffic = Traffic()
    best: Recommendation | None = None
    recommendation: Recommendation | None = None
    hyperparameters: dict[str, Any] | None = None
    score: Score | None = None
    links: list[tuple[str, str]] = []
    joint: Evaluation | None = None
    source: dict[str, Any] | None = None
    failure: str | None = None
    sharing_links: LinkReport | UnsetType = UNSET
    neglected: Neglected | UnsetType = UNSET

    @property
    def evaluations(self) -> list[Evaluation]:
        """Evaluations of this round: requested evaluations, then those en route."""
        return [*self.asked, *(stop for sample in self.samples for stop in sample.en_route)]

    @property
    def asked(self) -> list[Evaluation]:
        """Requested evaluations: the joint point, or the locations of agents that did not abstain."""
        if self.joint is not None:
            return [self.joint]
        taken = [sample for sample in self.samples if not sample.declined]
        return [Evaluation(s.location, s.measurement, mean=s.mean, std=s.std, noise_std=s.noise_std) for s in taken]
