"""Methods that see only the total: random and Sobol points, and one Gaussian process; a history as they see it."""

import math
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition import Acquisition, Decision, Situation
from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.confidence_bounds import ContrastBounds
from swarmbo.acquisition.penalties import is_met, moved_back, spreads, with_requirements
from swarmbo.acquisition.trust_region import TrustRegion, box_around
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.incumbents import incumbent
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import in_structure
from swarmbo.belief.model.structure import LearnedStructure
from swarmbo.belief.model.success import reference, requirements
from swarmbo.belief.model.warping import Warp, WarpKind
from swarmbo.boundary.rng import sobol, stream
from swarmbo.coordination.box_steps import ascend
from swarmbo.graph import stacks_of
from swarmbo.records import SolveReport
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import AtOnce, NonNegative, Settings, Whole


def seen_totals(situation: JointSituation) -> tuple[Float[np.ndarray, "t n"], Float[np.ndarray, " t"]]:
    """Evaluated points in the unit cube and their totals, in the order of arrival; NaN if an outcome is missing."""
    totals = situation.history.sums
    return situation.domain.to_unit(situation.history.X), np.where(np.isfinite(totals), totals, np.nan)


class Trial(NamedTuple):
    """An evaluation for methods that keep trials: its point in the unit cube, status and total (NaN if unknown)."""

    point: list[float]
    status: Literal["complete", "failed", "running"]
    total: float


def trials(situation: JointSituation) -> list[Trial]:
    """Trials for a method that is rebuilt for each decision: ended trials in order, then pending or partly known."""
    U, y = seen_totals(situation)
    is_partly_known = situation.history.awaited.any(axis=1) & ~np.isfinite(y)
    running = np.concatenate([situation.domain.to_unit(situation.pending), U[is_partly_known]])
    ended = [
        Trial(np.clip(u, 0.0, 1.0).tolist(), "complete" if np.isfinite(total) else "failed", total)
        for u, total in zip(U[~is_partly_known], y[~is_partly_known].tolist(), strict=True)
    ]
    return ended + [Trial(np.clip(u, 0.0, 1.0).tolist(), "running", np.nan) for u in running]


def n_asked(situation: JointSituation) -> int:
    """Number of evaluated and pending points. It grows with every decision, unless a query is given up."""
    return len(situation.history) + len(situation.pending)


@kind("coordination", FIELD, FUNCTION)
class Random(Settings, frozen=True, tag_field="kind", tag="random"):
    """Each agent draws one of its reachable locations, or values of its variables, uniformly.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x"]})
        >>> twins = [sb.Team(graph, {"x": (0.0, 1.0)}, coordination="random", initial=1) for _ in range(2)]
        >>> for outcome, team in enumerate(twins):
        ...     team.tell(team.ask(), float(outcome))
        >>> twins[0].ask().point == twins[1].ask().point  # outcomes have no effect
        True
    """

    def decide(self, situation: Situation, acquisition: Acquisition) -> Decision:
        """Choose by a random stream for each agent and round; the acquisition is not used."""
        points: dict[str, np.ndarray] = {}
        for agent in situation.movers:
            rng = stream(situation.seed, "random baseline", agent=agent, round=situation.round)
            points[agent] = situation.candidates[agent][rng.integers(len(situation.candidates[agent]))]
        return Decision(points, SolveReport(status="not_needed"))

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Random point (n,) of the unit cube, by a stream for each agent; ``acquisition`` is not used."""
        graph, point = situation.graph, np.empty(situation.domain.n_dims)
        for agent in dict.fromkeys(graph.variable_owners):
            own = np.array([owner == agent for owner in graph.variable_owners])
            rng = stream(situation.seed, "random baseline", agent=agent, evaluations=n_asked(situation))
            point[own] = rng.random(int(own.sum()))
        return point, SolveReport(status="not_needed")


@kind("coordination", FUNCTION)
class Sobol(Settings, frozen=True, tag_field="kind", tag="sobol"):
    """The scrambled Sobol sequence of the initial design, continued; outcomes have no effect.

    Source: Owen 1998 (scrambling); Joe & Kuo 2008 (direction numbers), by SciPy.

    Example:
        >>> import swarmbo as sb
        >>> team = sb.Team(sb.FactorGraph.from_scopes({"f": ["x"]}), {"x": (0.0, 1.0)}, coordination="sobol", initial=1)
        >>> sorted(int(8 * query.point["x"]) for query in team.ask(8))  # one in each eighth
        [0, 1, 2, 3, 4, 5, 6, 7]
    """

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Next point (n,) of the sequence, in the unit cube; ``acquisition`` is not used."""
        rng, coding = stream(situation.seed, "initial design"), situation.coded_by
        # a choice has several coordinates in models, but one in a design
        n = (situation if coding is None else coding).domain.n_dims
        point = sobol(1, n, rng, skip=n_asked(situation))[0]
        return point if coding is None else coding.inside(point), SolveReport(status="not_needed")


@kind("coordination", FUNCTION)
class IsotropicGP(Settings, frozen=True, tag_field="kind", tag="isotropic-gp"):
    """Centralised reference without factors: confidence bounds of a Gaussian process with one lengthscale.

    It is strong on bowl-shaped functions. For each decision, a Matern-5/2 process is fitted to transformed totals. The
    confidence bound on the gain over the incumbent is mean + scale sqrt(0.2 n log 2t) std, with n variables and t
    evaluations. It is maximised in a trust region around the incumbent, by ascent from the best of random points. The
    method cannot be split between agents. Points that are likely to fail are avoided, as by every acquisition. An
    evaluation with a failed factor counts as failed.

    Args:
        exploration_scale: Scale of the standard deviation in the bound, >= 0.
        warp: Transform of outcomes; ``power``: the square root of the distance below the best outcome.
        box: Settings of the trust region.
        raw_samples: Number of random points from which starts are chosen, >= 1.
        starts: Number of ascents, >= 1.
        steps: Number of steps of an ascent, >= 0.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
        >>> team = sb.Team(graph, dict.fromkeys("xy", (0.0, 1.0)), coordination="isotropic-gp", initial=4)
        >>> for _ in range(8):
        ...     query = team.ask()
        ...     team.tell(query, -sum((value - 0.3) ** 2 for value in query.point.values()))
        >>> totals = team.history.totals
        >>> bool(totals[4:].max() > totals[:4].max())  # better than the initial design
        True
    """

    exploration_scale: NonNegative = 0.1
    warp: WarpKind = "power"
    box: TrustRegion = msgspec.field(default_factory=TrustRegion)
    raw_samples: AtOnce = 512
    starts: AtOnce = 20
    steps: Whole = 40

    def decide_joint(self, situation: JointSituation, acquisition: Any) -> tuple[Float[np.ndarray, " n"], SolveReport]:
        """Point (n,) of the unit cube with the largest bound in the trust region; ``acquisition`` is not used."""
        n, report = situation.domain.n_dims, SolveReport(status="not_needed")
        rng = stream(situation.seed, "isotropic baseline", evaluations=n_asked(situation))
        U, y = seen_totals(situation)
        structure = LearnedStructure(scopes=(tuple(range(n)),), shares=(), chosen_at=0, state=())
        one_factor = in_structure(situation, structure)
        side = self.box.state(y, steps=situation.steps(), basis=situation.basis()).side
        U, y = U[np.isfinite(y)], y[np.isfinite(y)]
        if not len(y):
            return rng.random(n), report
        belief = AdditiveGP.create(AdditiveGPSettings(lengthscales="shared"), one_factor.graph, situation.domain)
        z = Warp.fitted(self.warp, y).forward(y)
        belief = belief.update(situation.domain.from_unit(U), z).fit(rng).condition_on_pending(situation.out.points)
        centre = incumbent(belief)
        low, high = box_around(centre, side)
        weight = self.exploration_scale * math.sqrt(0.2 * math.log(2 * len(y)))
        bound: BoxFunctions = ContrastBounds.on_cube(belief, (low, high), reference=centre, weight=weight)
        needed, origin = requirements(one_factor), centre
        if needed:
            origin = reference(one_factor, needed, centre)
            bound = with_requirements(bound, needed, origin, spreads(bound, situation.seed))
        (stack,) = stacks_of(belief.graph)
        random_starts = np.concatenate([bound.starts, low + rng.random((self.raw_samples, n)) * (high - low)])
        best = np.argsort(-bound.value(stack, random_starts[None], ())[0], kind="stable")[: self.starts]
        ends = low[None, None], high[None, None]
        points, values, *_ = ascend(
            lambda X: bound.value_and_gradient(stack, X, ()), random_starts[None, best], *ends, self.steps
        )
        point = points[0, int(values[0].argmax())]
        return point if not needed or is_met(needed, point, origin) else moved_back(needed, point, origin), report
