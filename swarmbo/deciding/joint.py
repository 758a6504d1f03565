"""Decision of a function's next joint point, as steps that yield requests for other agents' data.

A team answers the requests at once (``central_driver``), an agent by messages (``agent.answers``).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float, Int

from swarmbo.acquisition import Acquisition, BoxFunctions
from swarmbo.acquisition.box_functions import MixedFunctions
from swarmbo.acquisition.penalties import is_met, moved_back, parts_together, spreads, with_limits, with_requirements
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model import JointSituation, Model, incumbents
from swarmbo.belief.model.limits import optimistic_stds, probably_feasible, probably_violated
from swarmbo.belief.model.model import in_structure
from swarmbo.belief.model.success import Requirement, least_margin, reference, requirements
from swarmbo.boundary.rng import stream
from swarmbo.coordination.agreement import Agreement
from swarmbo.coordination.plan import has_deadline
from swarmbo.coordination.requests import AllReduce, Steps
from swarmbo.coordination.schema import is_finite
from swarmbo.deciding.near import StepBox
from swarmbo.deciding.setup import Maximiser, Setup
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph
from swarmbo.problem import Problem
from swarmbo.problem.no_go import Limit
from swarmbo.records import Recommendation, SolveReport
from swarmbo.registry import checked_result, invalid_result, loggable_result

Point = Float[np.ndarray, " n"]
_ROUNDING = 1e-9  # box widths


class Ranking(NamedTuple):
    """Best evaluated points (k, n), best first, of the parts of a graph in which several factors share variables.

    Only the ``columns`` of these parts are valid. ``beaten`` (n,) is the best of evaluated and pending points.
    ``means`` has each part's sums of means (t,) at evaluated points, by the part's first factor.
    """

    points: Float[np.ndarray, "k n"]
    columns: Int[np.ndarray, " a"]
    beaten: Point
    means: Mapping[str, Float[np.ndarray, " t"]]


class Rank(NamedTuple):
    """Request for the best evaluations of each part; answered by a ``Ranking``, or None if each agent knows its own.

    ``belief`` need only be valid for own factors. ``factor_means`` (k, t) replace its means at evaluated points.
    """

    belief: AdditiveGP
    factor_means: Float[np.ndarray, "k t"] | None = None

    def parts(self) -> list[tuple[int, FactorGraph]]:
        """Numbered parts whose agents add up terms; in other parts one agent has all outcomes."""
        parts = enumerate(self.belief.graph.components) if len(self.belief.X) else ()
        return [(i, part) for i, part in parts if len(part.factors) > 1]

    def summed(self, own: Sequence[str]) -> Steps[Float[np.ndarray, " m"]]:
        """Steps that sum factors' means over the agents of each part, at evaluated points, then at pending points."""
        means = incumbents.means_of(self.belief, own, self.factor_means)
        ahead = incumbents.means_at_pending(self.belief, own)
        return (yield AllReduce(np.hstack([means, ahead])[:, None], is_finite))[0]

    def ranking(self, summed: Sequence[tuple[FactorGraph, Float[np.ndarray, " m"]]]) -> Ranking:
        """Ranking from some parts' sums."""
        belief, U = self.belief, incumbents.evaluated(self.belief)
        told = [incumbents.masked_means(belief, part, sums[: len(U)]) for part, sums in summed]
        points = incumbents.composed(told, U, incumbents.N_STARTS)
        beaten = points[0].copy()
        for (part, sums), (columns, seen) in zip(summed, told, strict=True) if len(belief.pending) else ():
            ahead = incumbents.pending_means(belief, part, sums[len(U) :])
            beaten[columns] = incumbents.or_best_pending(belief, columns, beaten, float(seen.max()), ahead)
        means = {part.factors[0]: seen for (part, _), (_, seen) in zip(summed, told, strict=True)}
        return Ranking(points, np.concatenate([columns for columns, _ in told]), beaten, means)


class Gather(NamedTuple):
    """Request for a number per factor, known to the factor's owner; answered by the numbers of all factors.

    A factor whose owner is absent has the number ``absent``; None: the mean of the other factors' numbers.
    """

    graph: FactorGraph
    numbers: Mapping[str, float]
    purpose: str = "spread"
    absent: float | None = None

    def among(self, members: Collection[str]) -> Mapping[str, float]:
        """Numbers of all factors, if only these agents report those of their factors."""
        known = {factor: number for factor, number in self.numbers.items() if self.graph.owner(factor) in members}
        absent = self.absent
        if absent is None:
            absent = float(np.mean(list(known.values()))) if known else 1.0
        return dict.fromkeys(self.graph.factors, absent) | known


class Whole(NamedTuple):
    """Request to complete joint points (..., n): valid in own factors' variables; the answer is valid in all."""

    points: Float[np.ndarray, "*k n"]
    graph: FactorGraph
    purpose: str = "best"


class Agree(NamedTuple):
    """Request to maximise the sum of the factors' functions; answered by an ``Agreement``.

    Only functions of own factors may be evaluated, unless all agents know all outcomes.
    """

    functions: BoxFunctions
    links: "nx.Graph[str] | None"
    seed: int
    again: bool = False


class Expect(NamedTuple):
    """Request for mean and std (m,) of the sum at joint points (m, n), by a model that is valid for own factors."""

    model: Model
    points: Float[np.ndarray, "m n"]

    def summed(self, graph: FactorGraph, own: Sequence[str]) -> Steps[Any]:
        """Steps that add up, over all agents, mean and variance of their own factors of the problem's graph."""
        model, points, terms = self.model, self.points, np.empty((len(own), 2, len(self.points)))
        for term, factor in zip(terms, own, strict=True):  # a single factor may be modelled in parts
            mean, std = model.factor_posterior(factor, points) if len(graph.factors) > 1 else model.posterior(points)
            term[:] = mean, std**2
        mean, variance = yield AllReduce(terms, is_finite)
        return mean, np.sqrt(np.maximum(variance, 0.0))


Request = Rank | Gather | Whole | Agree | Expect


class Judge(NamedTuple):
    """Common knowledge about candidate points: the step box, requirements of success, and learned limits.

    ``model`` predicts the outcomes of points, and ``evaluated`` (t, n) are the codes of evaluations to improve on.
    Points of an initial design or a baseline are checked by the box only: there is no model.
    """

    box: StepBox | None = None
    model: Model | None = None
    needed: Sequence[Requirement] = ()
    limits: Sequence[Limit] = ()
    evaluated: Float[np.ndarray, "t n"] = np.empty((0, 0))

    def lacks(self, U: Float[np.ndarray, "m n"]) -> Float[np.ndarray, " m"]:
        """Total violation of requirements and limits at points (m, n) of the unit cube; 0 if none is violated."""
        out = np.maximum(-least_margin(self.needed, U), 0.0) if self.needed else np.zeros(len(U))
        for limit in self.limits:
            out += np.where(limit.allows(U), 0.0, limit.region.depth(U, limit.bounds)[0])
        return out


def joint_steps(situation: JointSituation, model: Model, setup: Setup) -> Steps[tuple[Point, SolveReport, Judge]]:
    """Decide the next joint point (n,) of the unit cube: by an agreement on local functions, or by a baseline.

    With a present setting, the judge has the box around the best setting, to which the point is yet to be moved.
    """
    near_rules, coordination, box = setup.near, setup.coordination, None
    known_best = model.complete or model  # includes evaluations before a restart of the search
    if not isinstance(coordination, Maximiser):
        point, report = _baseline_decision(situation, setup)
        if near_rules is not None:
            box = near_rules.step_box((yield from _best(known_best, (yield Rank(known_best.belief)), situation)))
        return point, report, Judge(box)
    functions, ranking, inside = yield from _function_steps(situation, model, setup.acquisition)
    if near_rules is not None:
        box = near_rules.step_box((yield from _best(known_best, ranking, situation)))
        functions = _within(functions, box, near_rules.simple(box.centre))
    names = {"evaluations": len(situation.history), "pending": len(situation.pending)}
    # the seed depends only on counts of the history, which all agents know
    seed = int(stream(situation.seed, "agreement", **names).integers(2**63))
    links = _links(situation, functions.graph)
    limits = probably_violated(situation, model.belief.settings.time)
    functions = yield from _limit_steps(functions, situation, (*situation.regions, *limits), coordination, seed)
    agree = Agree(functions, links, seed)
    if needed := (yield from _requirements(situation if situation.coding is not None else inside, model)):
        best = (yield from _best(known_best, ranking, situation)) if box is None else box.centre
        agreement = yield from _agreed_within(needed, situation, best, agree)
    else:
        agreement = yield agree
    if np.isnan(agreement.report.value or 0.0):
        raise invalid_result(agreement.report.value, "functions of finite value", setup.acquisition, "local_functions")
    point = _checked(agreement.point, situation, coordination)
    judge = Judge(box, known_best, needed, limits, situation.history.X[np.isfinite(situation.history.sums)])
    return point, agreement.report, judge


def _baseline_decision(situation: JointSituation, setup: Setup) -> tuple[Point, SolveReport]:
    """Joint point of the unit cube by a baseline, which knows the whole history."""
    policy, seen = setup.coordination, situation.inside
    chosen: Any = policy.decide_joint(seen, setup.acquisition)
    if not (isinstance(chosen, tuple) and len(chosen) == 2):
        raise invalid_result(chosen, "a point and a SolveReport", policy, "decide_joint")
    point, report = _checked(chosen[0], seen, policy), loggable_result(SolveReport, chosen[1], policy, "decide_joint")
    return point if situation.coding is None else situation.coding.outside(point), report


def _function_steps(
    situation: JointSituation, model: Model, acquisition: Acquisition
) -> Steps[tuple[BoxFunctions, Ranking | None, JointSituation]]:
    """Local functions of the acquisition, the ranking that agents made together, and the model's situation."""
    coding, inside = situation.coding, in_structure(situation.inside, model.learned.structure)
    known = yield from _divided_by_all(situation, model)
    ranking = yield Rank(model.belief)
    if ranking is not None:
        inside = replace(inside, part_means=ranking.means)
    functions = checked_result(BoxFunctions, acquisition.local_functions(inside, known), acquisition, "local_functions")
    if ranking is not None:
        functions = functions.starting_from(ranking.points, ranking.columns, ranking.beaten)
    # while no feasible point is known, a trust region around the incumbent is too narrow
    if optimistic_stds(situation):
        functions = replace(functions, low=np.zeros_like(functions.low), high=np.ones_like(functions.high))
    return functions if coding is None else MixedFunctions.around(functions, coding), ranking, inside


def _limit_steps(
    functions: BoxFunctions, situation: JointSituation, limits: Sequence[Limit], coordination: object, seed: int
) -> Steps[BoxFunctions]:
    """Functions with penalties for regions, constraints and limits; each agent's part of box and starts is valid."""
    graph = functions.graph
    # penalties are in units of the utility's spread, which differs between factors
    if limits:
        spread = yield Gather(graph, spreads(functions, seed))
        functions = with_limits(functions, limits, spread)
    # a region may join parts, and a variable's owner may search in the box of another agent's factor
    is_joined = len(functions.graph.components) < len(graph.components)
    # then agents other than a factor's owner compute values of variables that only this factor has
    may_search = has_deadline(coordination) or getattr(coordination, "variables_search", False)
    is_searched = may_search and any(len(part.factors) == 1 and len(part.agents) > 1 for part in graph.components)
    if _is_known_by_owners(situation) and (is_joined or is_searched):
        points = np.stack([functions.low, functions.high, *functions.starts])
        low, high, *starts = yield Whole(points, graph, "box")
        functions = replace(functions, low=low, high=high, starts=np.reshape(starts, functions.starts.shape))
    return functions


def _within(functions: BoxFunctions, box: StepBox, simple: Float[np.ndarray, "k n"]) -> BoxFunctions:
    column_of, reach = functions.graph.column_of, _ROUNDING
    levels = {
        name: places[(places >= box.low[column_of[name]] - reach) & (places <= box.high[column_of[name]] + reach)]
        for name, places in functions.levels.items()
    }
    low, high = (np.clip(end, box.low, box.high) for end in (functions.low, functions.high))
    starts = np.clip(np.concatenate([functions.starts, simple]), low, high)
    return replace(functions, low=low, high=high, starts=starts, levels=levels)


def recommended_steps(situation: JointSituation, problem: Problem, model: Model) -> Steps[Recommendation]:
    """Best evaluated point in expectation, or an allowed one near it; if outcomes are exact, the best one told."""
    belief, history = model.belief, situation.history
    is_exact = model.learned.is_exact and not (_is_known_by_owners(situation) or (history.known_noise > 0.0).any())
    candidates = probably_feasible(situation, belief.settings.time) if problem.ranges else np.isfinite(history.sums)
    evaluated, outcomes = history.X[candidates], history.sums[candidates]

    def best_steps() -> Steps[Point]:
        # the model's best may break a limit, and is not needed if outcomes are exact
        if not (len(evaluated) and (problem.ranges or is_exact)):
            best = problem.nearest_allowed((yield from _best(model, (yield Rank(belief)), situation)))
            if not (len(evaluated) and (yield from _may_fail_together(best, situation, problem, model))):
                return best
        means = outcomes if is_exact else (yield Expect(model, problem.modelled(evaluated)))[0]
        return problem.nearest_allowed(problem.domain.to_unit(evaluated[means.argmax()]))

    U = yield from best_steps()
    point = problem.in_box(U)
    (mean,), (std,) = yield Expect(model, problem.modelled(point[None]))
    told = outcomes[(np.abs(problem.domain.to_unit(evaluated) - U) <= _ROUNDING).all(axis=1)]
    if is_exact and len(told):  # a transform may miss an exact outcome
        mean, std = told.max(), max(std, abs(told.max() - mean))
    return Recommendation(point.tolist(), float(mean), float(std), problem.named(point))


def _may_fail_together(U: Point, situation: JointSituation, problem: Problem, model: Model) -> Steps[bool]:
    """True if the best values of separate parts, combined into one point, failed there or are likely to fail."""
    if len(model.belief.graph.components) == 1 or model.belief.is_coupled:
        return False
    needed = [one for one in (yield from _requirements(situation, model)) if len(one.columns) == len(U)]
    lost = problem.domain.to_unit(situation.history.X[situation.history.failed.any(axis=1)])
    return bool((np.abs(lost - U) <= _ROUNDING).all(axis=1).any()) or any(one.is_risky(U) for one in needed)


def _divided_by_all(situation: JointSituation, model: Model) -> Steps[Model]:
    """Model whose graph splits every factor that any agent splits: all agents must use one graph."""
    graph = model.belief.graph
    may_split = bool(model.learned.forms) and graph.max_factor_size > 1  # no splits without transforms
    if not (_is_known_by_owners(situation) and may_split):
        return model
    is_split = {factor: float(factor in model.splits) for factor in graph.factors}
    said = yield Gather(graph, is_split, "splits", absent=0.0)
    divided = frozenset(factor for factor, number in said.items() if number)
    return replace(model, divided=divided, splits={f: split for f, split in model.splits.items() if f in divided})


def _is_known_by_owners(situation: JointSituation) -> bool:
    """True if there are several agents, and each knows the outcomes of its own factors only."""
    return situation.outcomes == "per-factor" and len(situation.graph.agents) > 1


def _requirements(situation: JointSituation, model: Model) -> Steps[tuple[Requirement, ...]]:
    """Requirements from failures, which lose weight over the longest time lengthscale of all factors."""
    times: Sequence[TimeCorrelation] = model.belief.hyperparameters.times
    if times and situation.history.failed.any():
        graph = model.belief.graph
        by_factor = dict(zip(graph.factors, times, strict=True))
        # the longest lengthscale counts, and each owner has fitted its own factors only
        lengths = yield Gather(graph, {factor: time.lengthscale for factor, time in by_factor.items()})
        times = [msgspec.structs.replace(time, lengthscale=lengths[factor]) for factor, time in by_factor.items()]
    return requirements(situation, times)


def _best(model: Model, ranking: Ranking | None, situation: JointSituation) -> Steps[Point]:
    best, means = model.incumbent(), model.factor_means()
    if means is not None:
        ranking = yield Rank(model.belief, means)
    if ranking is not None:
        best[ranking.columns] = ranking.points[0, ranking.columns]
    best = yield Whole(best, situation.inside.graph)
    return best if situation.coding is None else situation.coding.outside(best)


def _agreed_within(
    needed: Sequence[Requirement], situation: JointSituation, incumbent: Point, agree: Agree
) -> Steps[Agreement]:
    """Agree on a point that probably succeeds. If it fails the joint check, agree again; if still, move it back."""
    functions = agree.functions
    graph, origin = situation.graph, reference(situation, needed, incumbent)
    spread = yield Gather(functions.graph, spreads(functions, agree.seed))
    agreement = None
    # bounds of each factor do not imply the joint bound; equal shares of the margin do, but for terms within no scope
    for tight in (False, True):
        limited = with_requirements(functions, needed, origin, spread, tight=tight)
        agreement = yield agree._replace(functions=limited, again=tight)
        if is_met(needed, agreement.point, origin):
            break
    point = agreement.point.copy()
    for columns, own, _ in parts_together(graph, needed):
        back = origin.copy()
        back[columns] = point[columns]
        if not is_met(own, back, origin):
            point[columns] = moved_back(own, back, origin)[columns]
    return replace(agreement, point=point)


def _links(situation: JointSituation, graph: FactorGraph) -> "nx.Graph[str] | None":
    """Radio graph during the agreement; None: every agent reaches every other."""
    links = situation.links
    # learned scopes may join agents without contact; as they come from totals, a base station relays if needed
    is_own = graph.scopes == situation.graph.scopes or situation.outcomes != "total"
    return links if links is None or is_own or nx.is_connected(links) else None


def _checked(point: object, situation: JointSituation, coordination: object) -> Point:
    place, n = np.asarray(point, dtype=float), situation.domain.n_dims
    if place.shape != (n,) or not (np.abs(place - 0.5) < 0.5 + _ROUNDING).all():
        got = f"shape {place.shape}" if place.shape != (n,) else str(place.tolist())
        raise ShapeError(f"point of {type(coordination).__name__}: got {got}; wanted {n} finite numbers from 0 to 1")
    return place
