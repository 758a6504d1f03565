"""Queries, what came of them, and how that compares with the truth: a line of a run's log."""

import math
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from swarmbo.records.solve_report import SolveReport
from swarmbo.records.traffic import LinkReport, Traffic


class Query(msgspec.Struct, frozen=True, eq=False):
    """A query of a team: one joint point, which is a place for each agent that takes part.

    Args:
        id: Name it with this when telling its outcomes.
        point: Value of each variable, in physical units; in a field ``agent[0]``, ``agent[1]``, … are the coordinates
            of the agent's place.
        points: For each agent its own variables (m,) of these; in a field the place (d,) to measure.
        mean: What the belief of a function expects of the total there, in the unit of the outcome; None in the initial
            design, for methods that have no belief, and in a field.
        std: Its standard deviation.
        means: In a field, what each agent is expected to measure.
        stds: The standard deviations of these.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team.for_field(["a", "b"], low=[0.0], high=[1.0])
        >>> query = team.ask({"a": [[0.2]], "b": [[0.9]]})
        >>> team.tell(query.id, {agent: float(place[0]) for agent, place in query.points.items()})
        >>> query.id, query.point, {agent: place.tolist() for agent, place in query.points.items()}
        ('q00001', {'a[0]': 0.2, 'b[0]': 0.9}, {'a': [0.2], 'b': [0.9]})
        >>> team = sb.Team(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)}, initial=1)
        >>> designed = team.ask()
        >>> team.tell(designed.id, -abs(designed.point["x"] - 0.3))
        >>> chosen = team.ask()
        >>> designed.id, chosen.id, designed.mean is None, chosen.std > 0.0
        ('q00001', 'q00002', True, True)
    """

    id: str
    point: dict[str, float]
    points: dict[str, np.ndarray]
    mean: float | None = None
    std: float | None = None
    means: dict[str, float] = {}
    stds: dict[str, float] = {}

    def __eq__(self, other: object) -> bool:
        """True if two say the same; ``points`` are ``point`` by agent."""
        mine, names = astuple(self), self.__struct_fields__
        if not isinstance(other, Query):
            return NotImplemented
        return all(a == b for name, a, b in zip(names, mine, astuple(other), strict=True) if name != "points")

    __hash__ = None  # pyright: ignore[reportAssignmentType]  its tables may change


class Evaluation(msgspec.Struct, frozen=True):
    """One place and what was measured there.

    Args:
        location: In the unit of the action space; of a joint point one value per variable, in the world's order.
        measurement: The noisy outcome in its physical unit, of a joint point that of the sum of all factors; None if it
            failed, or a part of it did.
        factors: Outcome of each factor, where they are told one by one; None for one that failed.
        mean: What the team predicted before.
        std: The prediction's standard deviation.
        noise_std: Standard deviation of the noise of the measurement, or of each factor's outcome; left out where the
            world does not say.
    """

    location: list[float]
    measurement: float | None
    factors: dict[str, float | None] | None = None
    mean: float | None = None
    std: float | None = None
    noise_std: float | dict[str, float] | UnsetType = UNSET

    @property
    def known_noise(self) -> float:
        """Standard deviation of the noise of the measurement; NaN where it is not known."""
        noise = self.noise_std
        if isinstance(noise, dict):
            is_whole = self.factors is not None and set(noise) == set(self.factors)
            return math.sqrt(math.fsum(std**2 for std in noise.values())) if is_whole else math.nan
        return math.nan if isinstance(noise, UnsetType) else noise


class Sample(msgspec.Struct, frozen=True):
    """One agent's part in one round.

    Args:
        agent: Its name.
        location: Where the measurement was really taken, in the unit of the action space; where agents set variables of
            one function, the values of its own.
        measurement: The noisy outcome in its physical unit; None if the measurement failed.
        target: The action it was asked for; None for the measurement at reset.
        distance: Distance travelled for it, in the unit of the action space; 0 where the world does not say.
        cost: What it cost, in the unit of the outcome.
        mean: The belief's prediction at the target before measuring; None where there was none.
        std: The prediction's standard deviation.
        declined: Whether the agent declined to measure; ``location`` and ``target`` say nothing new then.
        noise_std: Standard deviation of the noise of its measurement; left out where the world does not say.
        on_the_way: What it measured besides before it got there, in turn; left out where there is nothing.
        path: Places along what it drove; left out where the world does not say.
        battery: Share of its battery that is left; left out where the world does not say.
        failure: Why it measured nothing; left out where the world does not say.
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
    def along(self) -> list[Evaluation]:
        """Measurements on the way."""
        return [] if isinstance(self.on_the_way, UnsetType) else self.on_the_way


class Recommendation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The best point by a team's belief, the posterior mean there without noise, and its standard deviation.

    Args:
        location: In physical units: a place in a field, or the values of a function's variables in the order of its
            graph.
        mean: In the unit of the outcome; of a function that of the total.
        std: Its standard deviation.
        point: Of a function, the value of each variable.

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
    point: dict[str, float] | None = None


class Score(msgspec.Struct, frozen=True):
    """Score of a round against the truth; all in the unit of the outcome.

    Args:
        simple_regret: Maximum of the field less the best true value at any location measured so far. Of a field that
            changes, of this round alone; where nothing was measured in it, that of the recommendation, and before there
            is one that of the round before.
        batch_regret: Maximum less the best true value measured in this round (one term of R_T in Daxberger & Low 2017);
            None if every measurement of the round failed.
        total_regret: Sum over this round's measurements of maximum less true value (one term of their R'_T).
        recommendation_regret: Maximum less the true value at the recommendation; None before there is one.
        map_rmse: Root mean squared error of the belief's mean on the world's evaluation points; None without belief,
            and where agents set variables of one function, of which there is no map.
        level_f1: How well the belief's mean says where the field exceeds the level that is watched: harmonic mean of
            precision and recall over the evaluation points, 1 where both sets are empty; None without level or belief.
        view_rmse: The map RMSE of every agent's own view, where each has a belief of its own; ``map_rmse`` is then that
            of the agent that knows most. None where all share one.
        recommended_so_far: Sum of the recommendation regrets of this and all earlier rounds, the one at reset left out:
            the score of Daxberger & Low's experiments (2017). Rounds without a recommendation add nothing.
    """

    simple_regret: float
    batch_regret: float | None
    total_regret: float
    recommendation_regret: float | None = None
    map_rmse: float | None = None
    level_f1: float | None = None
    view_rmse: dict[str, float] | None = None
    recommended_so_far: float = 0.0


class RoundRecord(msgspec.Struct, frozen=True):
    """One line of ``rounds.jsonl``. Nothing in it depends on the clock.

    Args:
        round: 0 for the measurements at reset, then 1, 2, …
        samples: One per agent, in the environment's order of agents.
        query: Id of the query that asked for them; None in round 0.
        report: How the agents agreed; None in round 0.
        sharing: Traffic of passing this round's measurements to the other agents.
        sharing_links: How links fared meanwhile; left out where none has faults, or a base station passes them on.
        best: The largest measurement so far and where; None while every measurement failed.
        recommendation: The belief's maximum after this round; None while there is no data.
        hyperparameters: The belief's, enough to rebuild it from the samples up to here.
        score: Against the truth, where the world tells it.
        links: Pairs of agents in radio contact when the round was decided.
        joint: The joint point of all agents and its outcome, where they set variables of one function.
        source: What was measured and what by, where the world says; such as the objective, a simulator's version, and
            why it failed.
        failure: Why the world gave no outcomes at all: what its step raised, or that it took too long. All measurements
            of the round have failed then, and the world is as it was before.
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

    @property
    def evaluations(self) -> list[Evaluation]:
        """Evaluations of this round: what was asked for, then what was measured on the way."""
        return [*self.asked, *(stop for sample in self.samples for stop in sample.along)]

    @property
    def asked(self) -> list[Evaluation]:
        """Evaluations that were asked for: the joint point, or the own places of agents that did not decline."""
        if self.joint is not None:
            return [self.joint]
        looked = [sample for sample in self.samples if not sample.declined]
        return [Evaluation(s.location, s.measurement, mean=s.mean, std=s.std, noise_std=s.noise_std) for s in looked]
