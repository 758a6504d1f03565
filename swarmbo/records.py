"""What is written down: solve reports, samples, rounds, and the truth of a simulated world.

These are plain values. Everything that plots or tabulates starts from them, never from live objects.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from swarmbo.boundary.html import html_table

Goal = Literal["peak", "map", "level"]
TRUE_MAXIMUM = "true maximum"
Status = Literal[
    "exact",
    "converged",
    "max_rounds",
    "infeasible",
    "sequential",
    "not_needed",
    "centralised",
    "deadline",
    "blocked",
]


class Traffic(msgspec.Struct, frozen=True):
    """What crossed the links.

    Args:
        messages: Messages sent from one agent to another (an agent's notes to itself are free).
        bytes: Their encoded size, counted once a message.
        transmissions: Radio transmissions: a message relayed over h links counts h times.
    """

    messages: int = 0
    bytes: int = 0
    transmissions: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            self.messages + other.messages, self.bytes + other.bytes, self.transmissions + other.transmissions
        )


class EdgeTraffic(msgspec.Struct, frozen=True):
    """What one agent sent another, and what became of it.

    Args:
        messages: How many were sent.
        bytes: Their size.
        arrived: How many came, copies included.
        lost: How many never came.
        steps: From sending to arrival, of all that came, added up.
    """

    messages: int = 0
    bytes: int = 0
    arrived: int = 0
    lost: int = 0
    steps: int = 0

    def __add__(self, other: "EdgeTraffic") -> "EdgeTraffic":
        return EdgeTraffic(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def age(self) -> float:
        """Steps from sending to arrival, in the mean; NaN if nothing came."""
        return self.steps / self.arrived if self.arrived else math.nan


class LinkReport(msgspec.Struct, frozen=True):
    """How links fared while agents agreed over a transport with faults, or until a deadline.

    Args:
        ticks: Steps of the clock that it took, in each of which a message crosses one link or more.
        repeated: Bytes that were sent because others did not arrive in time, acknowledgements included.
        silent: Agents that were gone or unheard of when it ended.
        without: Agents that came out with no choice: they stay where they are, or decline.
        clashes: Pairs of variables whose choices forbid each other.
        edges: From whom to whom, as ``"a>b"``: what was sent.
    """

    ticks: int
    repeated: int = 0
    silent: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    clashes: int = 0
    edges: dict[str, EdgeTraffic] = {}

    @property
    def total(self) -> EdgeTraffic:
        """Of all edges."""
        return sum(self.edges.values(), EdgeTraffic())


class NetworkRecord(msgspec.Struct, frozen=True):
    """What a fleet's network took in a round, all members together; it depends on the clock, so the log has none of it.

    Args:
        round: Which one.
        restarts: How often processes were started again, by agent.
        repeated: Letters that were written again, as no receipt had come.
        refused: Parcels that were no letters, or letters that nobody should have written.
    """

    round: int
    restarts: dict[str, int] = {}
    repeated: int = 0
    refused: int = 0


class SolveReport(msgspec.Struct, frozen=True):
    """How an agreement was reached.

    Args:
        status: ``exact`` (proved optimal), ``converged`` (messages stopped changing), ``max_rounds`` (they did not),
            ``infeasible`` (what was chosen is forbidden, see ``violated``; by exact methods proved of all choices),
            ``sequential`` (agents chose in turn), ``not_needed`` (nothing was exchanged), ``centralised`` (somebody who
            has all factors in one place chose; no messages are counted), ``deadline`` (agents acted by what they had
            heard when it was time), ``blocked`` (agents that wait for one another waited for one that is gone: those
            that had not finished come out with no choice).
        rounds: Steps of the method's own exchange that wait for one another; parts of a graph run side by side, and the
            longest counts. Max-sum: renewals of the variables' and then the factors' messages. Exact: tables passed up
            between agents, then choices passed down. One agent after the other: choices waited for. What is handed over
            before or agreed and passed on after is counted in ``traffic`` only, by which methods compare.
        value: Sum of the factors at the chosen assignment; None where no factors were used.
        gap: Upper bound on optimum minus ``value``, in the unit of the factors; None where unknown. Of ``exact`` it is
            0, and above that where agents in a field went back to what they would have chosen one after the other.
            Of candidates it is a gap to the best of them.
        traffic: What crossed the links for it.
        primal_residual: How far the factors' own copies of variables were from their consensus at the end, in sides of
            the box, root mean square, in the worst part and run; None for methods without copies.
        dual_residual: How far the consensus still moved in the last round times the penalty's share of the natural one,
            in the same unit.
        polish_gain: By how much climbing from the consensus raised ``value``; None where nothing was polished.
        violated: The factors that forbid what was chosen, being -inf there.
        links: How links fared; left out where none has faults and nobody has a deadline.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
        >>> tables = dict.fromkeys(graph.factors, np.array([[0.0, 1.0], [1.0, 0.0]]))
        >>> reports = [method.solve(graph, tables).report for method in (sb.Exact(), sb.MaxSum())]
        >>> [(report.status, report.value, report.gap) for report in reports], reports[0].bytes < reports[1].bytes
        ([('exact', 2.0, 0.0), ('exact', 2.0, 0.0)], True)
    """

    status: Status
    rounds: int = 0
    value: float | None = None
    gap: float | None = None
    traffic: Traffic = Traffic()
    primal_residual: float | None = None
    dual_residual: float | None = None
    polish_gain: float | None = None
    violated: tuple[str, ...] = ()
    links: LinkReport | UnsetType = UNSET

    @property
    def upper_bound(self) -> float | None:
        """What no choice of the same tables exceeds, up to rounding; None where unknown, or the choice is forbidden."""
        return None if self.gap is None or self.value is None else self.value + self.gap

    @property
    def messages(self) -> int:
        """Messages between different agents."""
        return self.traffic.messages

    @property
    def bytes(self) -> int:
        """Encoded size of those messages."""
        return self.traffic.bytes

    def _repr_html_(self) -> str:
        """What it says, for notebooks; without what is not known."""
        rows = [("rounds", self.rounds), ("value", self.value), ("gap at most", self.gap)]
        rows += [("messages", self.messages), ("bytes", self.bytes), ("forbidden by", ", ".join(self.violated) or None)]
        return html_table(f"Agreement: {self.status}", [row for row in rows if row[1] is not None])


class Query(msgspec.Struct, frozen=True, eq=False):
    """What a team asks for: one joint point, which is a place for each agent that takes part.

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
        """Whether two say the same; ``points`` are ``point`` by agent."""
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
        """What it measured on the way."""
        return [] if isinstance(self.on_the_way, UnsetType) else self.on_the_way


class Recommendation(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a team holds for the best: where, the posterior mean there without noise, and its standard deviation.

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
    """How a round fares against the truth; all in the unit of the outcome.

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

    @property
    def evaluations(self) -> list[Evaluation]:
        """What was looked at in this round: what was asked for, then what was measured on the way."""
        return [*self.asked, *(stop for sample in self.samples for stop in sample.along)]

    @property
    def asked(self) -> list[Evaluation]:
        """What was asked for in this round: the joint point, or the own places of agents that did not decline."""
        if self.joint is not None:
            return [self.joint]
        looked = [sample for sample in self.samples if not sample.declined]
        return [Evaluation(s.location, s.measurement, mean=s.mean, std=s.std, noise_std=s.noise_std) for s in looked]


class Labels(msgspec.Struct, frozen=True):
    """What the outcomes and places of a world are called, for titles and tables.

    Args:
        name: What is measured.
        unit: Unit of the outcome.
        axis_unit: Unit of the locations.
    """

    name: str = ""
    unit: str = ""
    axis_unit: str = ""

    @classmethod
    def of(cls, env: Any, truth: "GroundTruth | None") -> "Labels":
        """Those of the truth, or where nobody knows it those that the world states: its attribute ``labels``, a table.

        What a world states that is no text is left out.
        """
        if truth is not None:
            return cls(truth.name, truth.unit, truth.axis_unit)
        told = getattr(env.unwrapped, "labels", None)
        stated: dict[str, Any] = dict(told) if isinstance(told, Mapping) else {}
        return cls(**{key: stated[key] for key in cls.__struct_fields__ if isinstance(stated.get(key), str)})


@dataclass(frozen=True)
class GroundTruth:
    """The truth of a simulated world: for metrics and figures only, never shown to a team.

    Args:
        points: Evaluation points (m, d), in the unit of the action space.
        values: The noise-free field there (m,), in the unit of the outcome.
        maximum: Its maximum over everything that an agent can measure; or the best value known, see ``maximum_is``.
        argmax: One location (d,) of that maximum.
        unit: Unit of the outcome, for labels.
        axis_unit: Unit of the locations, for labels.
        name: What the field is, for titles.
        value: The noise-free field at any locations (k, d) -> (k,).
        goal: What the field is watched for: its ``peak``, a ``map`` of all of it, or where it exceeds a ``level``.
        level: That level; None with other goals.
        at_round: The truth of another round, of a field that changes; None where it stays as it is.
        maximum_is: What to call ``maximum``: ``best known`` where nobody has proved that there is no better one.
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
        """The truth of a round; itself where nothing changes."""
        return self if self.at_round is None else self.at_round(round_number)

    def late(self, rounds: int) -> "GroundTruth":
        """The truth of a world that is some rounds behind those of the run; itself where nothing changes."""
        at_round = self.at_round
        if at_round is None or rounds == 0:
            return self
        return replace(self, at_round=lambda round_number: at_round(round_number - rounds))
