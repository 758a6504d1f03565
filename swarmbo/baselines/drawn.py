"""Points independent of outcomes, random or from a sequence; and views of a history for one-outcome methods."""

from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Acquisition, Decision, Situation
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import sobol, stream
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Settings


def seen_totals(situation: JointSituation) -> tuple[Float[np.ndarray, "t n"], Float[np.ndarray, " t"]]:
    """Evaluated points in the unit cube and their totals, in the order of arrival; NaN if an outcome is missing."""
    history = situation.history
    totals = np.where(np.isfinite(history.totals), history.totals, history.factors.sum(axis=1))
    return situation.domain.to_unit(history.X), np.where(np.isfinite(totals), totals, np.nan)


def known_totals(situation: JointSituation) -> tuple[Float[np.ndarray, "t n"], Float[np.ndarray, " t"]]:
    """Evaluated points and totals without failed evaluations."""
    U, y = seen_totals(situation)
    return U[np.isfinite(y)], y[np.isfinite(y)]


class Trial(NamedTuple):
    """An evaluation for methods that keep trials: its point in the unit cube, status and total (NaN if unknown)."""

    point: list[float]
    status: Literal["complete", "failed", "running"]
    total: float


def trials(situation: JointSituation) -> list[Trial]:
    """Trials for a method rebuilt for each decision: results in order, then pending ones, also partly known."""
    U, y = seen_totals(situation)
    awaited = situation.history.awaited
    partly = np.zeros(len(y), dtype=bool) if awaited is None else awaited.any(axis=1) & ~np.isfinite(y)
    out = np.concatenate([situation.domain.to_unit(situation.pending), U[partly]])
    told = [
        Trial(np.clip(u, 0.0, 1.0).tolist(), "complete" if np.isfinite(total) else "failed", total)
        for u, total in zip(U[~partly], y[~partly].tolist(), strict=True)
    ]
    return told + [Trial(np.clip(u, 0.0, 1.0).tolist(), "running", np.nan) for u in out]


def n_asked(situation: JointSituation) -> int:
    """Number of points requested so far, different for any two decisions."""
    return len(situation.history) + len(situation.pending)


@kind("coordination", FIELD, FUNCTION)
class Random(Settings, frozen=True, tag_field="kind", tag="random"):
    """Each agent picks one of its reachable locations, or values of its variables, uniformly.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x"]})
        >>> twins = [sb.Team(graph, {"x": (0.0, 1.0)}, coordination="random", initial=1) for _ in range(2)]
        >>> for outcome, team in enumerate(twins):
        ...     team.tell(team.ask(), float(outcome))
        >>> twins[0].ask().point == twins[1].ask().point  # no outcome is looked at
        True
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose with one named random stream per agent and round; the acquisition is not used."""
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            rng = stream(situation.seed, "random baseline", agent=agent, round=situation.round)
            points[agent] = situation.candidates[agent][rng.integers(len(situation.candidates[agent]))]
        return Decision(points, SolveReport(status="not_needed"))

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """A point of the unit cube, by one named random stream per agent; the acquisition is not used."""
        graph, point = situation.graph, np.empty(situation.domain.n_dims)
        for agent in dict.fromkeys(graph.variable_owners):
            own = np.array([owner == agent for owner in graph.variable_owners])
            rng = stream(situation.seed, "random baseline", agent=agent, evaluations=n_asked(situation))
            point[own] = rng.random(int(own.sum()))
        return point, SolveReport(status="not_needed")


@kind("coordination", FUNCTION)
class Sobol(Settings, frozen=True, tag_field="kind", tag="sobol"):
    """The scrambled Sobol sequence of the initial design, continued without regard to outcomes.

    Source: Owen 1998 (scrambling); Joe & Kuo 2008 (direction numbers), by SciPy.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)}, coordination="sobol", initial=1)
        >>> sorted(int(8 * query.point["x"]) for query in team.ask(8))  # one in each eighth
        [0, 1, 2, 3, 4, 5, 6, 7]
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Next point of the sequence, in the unit cube; the acquisition is not used."""
        rng = stream(situation.seed, "initial design")
        return sobol_point(rng, situation.domain.n_dims, n_asked(situation)), SolveReport(status="not_needed")


def sobol_point(rng: np.random.Generator, n_dims: int, index: int) -> Float[np.ndarray, " n"]:
    """Point number ``index`` >= 0 of a scrambled Sobol sequence."""
    return sobol(1, n_dims, rng, skip=index)[0]
