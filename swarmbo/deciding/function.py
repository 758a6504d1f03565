"""Learning and decisions of a team that sets the variables of one function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial import KDTree

from swarmbo.acquisition.expected_improvement import JointImprovement
from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, Learned, Model
from swarmbo.belief.model.limits import barring_better_infeasible
from swarmbo.belief.model.model import learn_ensemble, learn_model
from swarmbo.boundary.rng import sobol, stream
from swarmbo.deciding.joint import Expect, Judge, joint_steps, recommended_steps
from swarmbo.deciding.logbook import Choice, Logbook
from swarmbo.deciding.near import APART, Near, StepBox
from swarmbo.deciding.setup import Setup
from swarmbo.errors import ConfigError
from swarmbo.graph.factor_graph import grouped
from swarmbo.records import Recommendation, SolveReport
from swarmbo.registry import checked_result
from swarmbo.steps import Steps
from swarmbo.worlds import Offers

# least distance from evaluated points, and shortest and longest random step away from a point; in box widths
_NEAREST, _STEPS = 1e-9, (1e-4, 1e-2)
_STEPS_FROM_PENDING = (1.1e-3, 4e-3)  # the same for pending points, where the distance kept is ``APART``
_GROWTH = 1.01  # growth of these steps with each try, to leave crowded regions
_HALVED, _HALVINGS = 50, 12  # tries before steps from evaluated points halve (regions can be tiny), and most halvings
_ENOUGH = 1_000  # failed tries after which broken rules of pending points are dropped
_MOST_TRIES = 10_000
_FEW, _MANY, _MORE = 64, 1_000, 30_000  # random points on grids that compete to replace one; more if few are allowed
_PROJECTED = 8  # number of these points that are moved to the nearest allowed point, which takes long
_LED = 16  # the model compares points only for at most this many rules, as this may need sums over all agents
_FLAT = 4  # the initial design continues while all totals are equal, if there are at least this many
_RARELY = 20  # every 20th try also moves the point to the nearest point that keeps the constraints
Point = Float[np.ndarray, " n"]  # of all variables, or of some
Sites = Float[np.ndarray, "k d"] | None
Rules = Sequence["_KeepApart"]


class _KeepApart(NamedTuple):
    """Rule that a point differs from evaluated, or pending, points in some of the ``columns``."""

    columns: Int[np.ndarray, " a"]
    others: Float[np.ndarray, "q a"]
    are_pending: bool

    def is_broken_by(self, U: Point) -> bool:
        """True if a point is too near to one of the others."""
        distance = APART if self.are_pending else _NEAREST
        return bool((np.abs(self.others - U[self.columns]).max(axis=1) <= distance).any())

    def are_broken_by(self, points: Float[np.ndarray, "m n"]) -> Bool[np.ndarray, " m"]:
        """``is_broken_by`` of many points."""
        distance = np.asarray(KDTree(self.others).query(points[:, self.columns], p=np.inf)[0])
        return distance <= (APART if self.are_pending else _NEAREST)


@dataclass(frozen=True, eq=False)
class FunctionLearner:
    """Learner of a function's outcomes. Its models follow from the log, the seed, and ``learned``: the learned part of
    the last decision's model. ``last`` caches the last model, with its log.
    """

    setup: Setup
    learned: Learned | None = None
    last: tuple[Logbook, Model] | None = None

    @property
    def positions(self) -> Mapping[str, Float[np.ndarray, " d"]]:
        """Empty: agents of a function have no positions."""
        return {}

    @property
    def takes_rounds(self) -> bool:
        """True if the belief reads rounds of data: it has a time axis, or is a user's own, which may read them."""
        belief = self.setup.belief
        has_time = isinstance(belief, AdditiveGPSettings) and belief.time is not None
        return has_time or not isinstance(belief, AdditiveGPSettings | EnsembleSettings)

    def n_data(self, log: Logbook) -> int:
        """Number of evaluated points with at least one outcome."""
        return log.history.n_known

    def begin(self) -> "FunctionLearner":
        """Itself: a new episode changes nothing."""
        return self

    def fitted(self, log: Logbook) -> "FunctionLearner":
        """Learner with a model of the log."""
        return self.modelled(log)[0] if self.n_data(log) else self

    def modelled(self, log: Logbook) -> tuple["FunctionLearner", Model]:
        """Learner that caches the model of a log, and this model; pending points count as evaluated in the variance."""
        if self.last is not None and self.last[0] is log:
            return self, self.last[1]
        earlier = None if self.last is None else self.last[1]
        setup, situation = self.setup, self.situation(log, None).inside
        if earlier is not None:
            situation = replace(situation, earlier=earlier.belief)  # saves time, and changes no result
        if isinstance(setup.belief, EnsembleSettings):
            model = learn_ensemble(situation, setup.belief, self.learned, earlier)
        elif isinstance(setup.belief, AdditiveGPSettings):
            found = learn_model(setup.acquisition.learn, situation, setup.belief, self.learned)
            model = checked_result(Model, found, setup.acquisition, "learn")
        else:
            found = setup.belief.learn(situation, setup.acquisition, self.learned)  # a user's own belief
            model = checked_result(Model, found, setup.belief, "learn")
        model = model if (barred := situation.history.barred) is None else model.barring(situation.history.X, barred)
        return replace(self, last=(log, model)), model

    def decided_elsewhere(self, log: Logbook, point: Point, report: SolveReport) -> tuple["FunctionLearner", Choice]:
        """Learner (as after a decision) and choice for a point that was decided elsewhere from the same log."""
        if self.is_designing(log):
            return self, Choice(point, report, chosen=False)
        learner, model = self.modelled(log)
        return replace(learner, learned=model.learned), learner.expected(log, Choice(point, report))

    def expected(self, log: Logbook, choice: Choice) -> Choice:
        """Choice with its expected outcome, if a method chose it."""
        if not choice.chosen:
            return choice
        _, model = self.modelled(log)
        mean, std = (float(array[0]) for array in model.posterior(self.setup.problem.modelled(choice.point[None])))
        return replace(choice, mean=mean, std=std)

    def steps(self, log: Logbook, offers: Offers) -> Steps[tuple["FunctionLearner", Choice]]:
        """Decide the next joint point: one of the initial design, or the point on which the agents agree."""
        if not (offers.agents is None and offers.candidates is None and not offers.prices):
            raise ConfigError("got agents, candidates or prices; wanted none: all agents set one joint point together")
        if self.is_designing(log):
            point = yield from self._design_steps(log)
            return self, Choice(point, SolveReport(status="not_needed"), chosen=False)
        setup, near_rules = self.setup, self.setup.near
        learner, model = self.modelled(log)
        situation = self.situation(log, offers.links)
        U, report, judge = yield from joint_steps(situation, model, setup)
        if judge.box is not None:
            U = np.clip(U, judge.box.low, judge.box.high)
        learner = replace(learner, learned=model.learned)
        if near_rules is None or near_rules.safe is None or (box := judge.box) is None:
            return learner, Choice((yield from self._place(log, U, judge)), report)
        U, stayed = yield from self._safe_steps(log, model, near_rules, U, box, judge)
        report = report if stayed is None else msgspec.structs.replace(report, stayed=stayed)
        return learner, Choice(U, report)

    def _safe_steps(
        self, log: Logbook, model: Model, near: Near, U: Point, box: StepBox, judge: Judge
    ) -> Steps[tuple[Point, Literal["best", "present"] | None]]:
        """Safe physical point near a wanted point, and None; or a known setting and its name (``Near.first_safe``)."""
        problem, evaluated = self.setup.problem, log.history.X[np.isfinite(log.history.sums)]
        if not near.at_start(evaluated).any():
            return near.start, "present"
        U = problem.nearest_allowed(U)
        # a model without pending points, as these narrow the variance without any outcome
        known = self.modelled(log.without(log.open))[1] if log.open and self.n_data(log) else model
        U, stayed = U if box.contains(U) else box.centre, None
        for candidates in near.lines_back(U, box, stream(self.setup.seed, "safe", asked=log.n_asked)):
            expected = yield Expect(known, problem.modelled(np.vstack([problem.in_box(candidates), evaluated])))
            fits = problem.is_allowed(candidates) & box.contains(candidates) & (judge.lacks(candidates) == 0.0)
            U, stayed = near.first_safe(candidates, evaluated, log.outstanding_points, expected, fits)
            if stayed is None:
                break
        return problem.in_box(U), stayed

    def is_designing(self, log: Logbook) -> bool:
        """True if the next point is of the initial design, which goes on while all totals are equal."""
        setup, problem, near, told = self.setup, self.setup.problem, self.setup.near, log.history.sums
        if near is not None and not near.at_start(log.points).any():
            return True
        if len(log.points) < setup.initial and (near is None or self._has_new_points_at(near, log)):
            return True
        # while all totals are equal, no model can say where to look; a user's own method may know
        is_own = not all(type(one).__module__.startswith("swarmbo.") for one in (setup.acquisition, setup.coordination))
        if near is not None or problem.outcomes != "total" or problem.ranges or log.failures or is_own:
            return False
        return len(told) >= max(_FLAT, setup.initial) and bool((told == told[0]).all())

    def _has_new_points_at(self, near: Near, log: Logbook) -> bool:
        """False if all points of the step box around the present setting were asked: on grids they may be few."""
        to_unit = self.setup.problem.domain.to_unit
        box, U = near.step_box(to_unit(near.start)), to_unit(log.points)
        points = self._few(box)
        asked = _KeepApart(np.arange(U.shape[1]), U, are_pending=False)
        return points is None or not asked.are_broken_by(points[box.contains(points)]).all()

    def _few(self, box: StepBox | None) -> Float[np.ndarray, "m n"] | None:
        """All allowed points, or all in the cells of a step box, if they are on grids and few."""
        problem = self.setup.problem
        return problem.few if box is None or problem.few is not None else problem.few_within(box.low, box.high)

    def _design_steps(self, log: Logbook) -> Steps[Point]:
        """Next point of the initial design: the present setting if there is one, then Sobol points (near it)."""
        near, domain, box = self.setup.near, self.setup.problem.domain, None
        if near is not None and not near.at_start(log.points).any():
            return near.start
        U = sobol(1, domain.n_dims, stream(self.setup.seed, "initial design"), skip=len(log.points))[0]
        if near is not None:
            box = near.step_box(domain.to_unit(near.start))
            U = box.low + U * (box.high - box.low)
        return (yield from self._place(log, U, Judge(box)))

    def recommend(self, log: Logbook, sites: Sites) -> "Steps[tuple[FunctionLearner, Recommendation | None]]":
        """Best evaluated point in expectation, or an allowed point near it. With outcomes per factor, it combines the
        best points of the graph's connected parts. No later decision depends on this call.
        """
        if not self.n_data(log):
            return self, None
        settled = log.without(log.open) if log.open else log  # pending points narrow the variance without any outcome
        learner, model = self.modelled(settled)
        told, known = self.situation(settled, None), model.complete or model
        return learner if settled is log else self, (yield from recommended_steps(told, self.setup.problem, known))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """State as plain data and arrays."""
        return {"learned": msgspec.to_builtins(self.learned)}, {}

    def from_state(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "FunctionLearner":
        """Restore the state of ``to_state``, with the same setup."""
        return FunctionLearner(self.setup, msgspec.convert(plain["learned"], Learned | None))

    def situation(self, log: Logbook, links: "nx.Graph[str] | None") -> JointSituation:
        """Everything that a method may read."""
        setup, problem, history = self.setup, self.setup.problem, log.history
        if problem.ranges:
            moves = getattr(setup.belief, "time", None) is not None
            history = barring_better_infeasible(history, problem.ranges, moves=moves)
        return JointSituation(
            graph=problem.graph,
            domain=problem.domain,
            history=history,
            pending=log.pending,
            outcomes=problem.outcomes,
            links=links,
            round=log.round,
            horizon=setup.horizon,
            seed=setup.seed,
            initial=setup.initial,
            structure=problem.structure,
            pending_rounds=log.pending_rounds,
            n_batched=log.n_batched,
            n_foreign=sum(query.row is None and not query.chosen for query in log.open.values()),
            regions=problem.regions,
            ranges=problem.ranges,
            coding=problem.coding,
        )

    def _place(self, log: Logbook, U: Point, judge: Judge) -> Steps[Point]:
        """Physical point near a wanted point of the unit cube. Every decision ends with this step, unless it is
        ``safe`` (``Near.first_safe``). Log and seed determine it.

        The point keeps constraints, no_go and the step box. If possible it then, in the order of preference:
        repeats no evaluated point; repeats no pending one; meets requirements of success and learned limits; repeats no
        pending values of a factor. Where this needs other values on grids, those with the largest expected improvement
        or, without a model, the nearest are chosen. Real numbers and fine grids change by small random steps.
        """
        problem, box = self.setup.problem, judge.box
        U = problem.nearest_allowed(np.clip(U, 0.0, 1.0))
        if box is not None and not box.contains(U):
            U = box.centre
        # the stream depends on the number of queries, so that a restored team draws the same steps
        rng = stream(self.setup.seed, "apart", asked=log.n_asked)
        on_grids, few = () if problem.coding is None else problem.coding.domain.levels, self._few(box)
        grids = set(on_grids if few is None else range(len(U)))
        rules = grouped((grids.issuperset(rule.columns.tolist()), rule) for rule in self._rules(log))
        listed, other_rules = rules.get(True, ()), rules.get(False, ())
        for number, rule in enumerate((None, *listed) if grids else ()):
            if not (judge.lacks(U[None])[0] if rule is None else rule.is_broken_by(U)):
                continue
            columns = np.array(sorted(grids)) if rule is None or few is not None else rule.columns
            points = self._others(U, columns, rng, box) if few is None else few
            is_allowed = problem.is_allowed(points) & (True if box is None else box.contains(points))
            related = [other for other in listed if np.isin(other.columns, columns).any()]
            better = _preferred(U, points[is_allowed], judge, related)
            if len(better):
                utility = yield from self._utility(better, U, judge if number < _LED else Judge())
                U = better[rng.choice(np.flatnonzero(utility == utility.max()))]
        return problem.in_box(self._stepped_apart(U, other_rules, box, rng))

    def _rules(self, log: Logbook) -> Rules:
        """Rules that keep a point apart from evaluated points (unless outcomes fade), then from pending points.

        With outcomes per factor, there is a rule for the variables of each pending factor. In the last round, from
        which no decision learns, parts of the graph may repeat pending values.
        """
        belief, problem, all_axes = self.setup.belief, self.setup.problem, np.arange(self.setup.problem.domain.n_dims)
        fades = isinstance(belief, AdditiveGPSettings) and belief.time is not None
        # if outcomes fade, an evaluated point may be measured again
        rules = [] if fades else [_KeepApart(all_axes, problem.domain.to_unit(log.points), are_pending=False)]
        queries = list(log.open.values())
        waiting: list[tuple[Int[np.ndarray, " a"], list[int]]] = [(all_axes, list(range(len(queries))))]
        is_last = log.round == self.setup.horizon
        if problem.outcomes == "per-factor" and not is_last:
            waits = [frozenset(query.awaited) for query in queries]
            waiting = [(problem.columns(c), [n for n, own in enumerate(waits) if c in own]) for c in problem.channels]
        places = problem.domain.to_unit(log.outstanding_points)
        for columns, rows in waiting:
            if rows:
                rules.append(_KeepApart(columns, places[np.ix_(rows, columns.tolist())], are_pending=True))
        return rules

    def _others(
        self, U: Point, columns: Int[np.ndarray, " a"], rng: np.random.Generator, box: StepBox | None
    ) -> Float[np.ndarray, "m n"]:
        """Random points with one, two or any number of other values on grids."""
        problem = self.setup.problem
        assert problem.coding is not None
        levels, points = [problem.coding.domain.levels[c] for c in columns.tolist()], U[None]
        if box is not None:
            low, high = box.low[columns] - _NEAREST, box.high[columns] + _NEAREST
            levels = [u[(lo <= u) & (u <= hi)] for u, lo, hi in zip(levels, low, high, strict=True)]
        for size in (_MANY, _MORE):  # few points may keep the constraints
            values = np.column_stack([rng.choice(places, size) for places in levels])
            is_changed = rng.random(values.shape).argsort(axis=1) < np.resize([1, 1, 2, len(columns)], (size, 1))
            values = np.unique(np.where(is_changed, values, U[columns]), axis=0)
            points = np.tile(U, (len(values), 1))
            points[:, columns] = values
            near = [problem.nearest_allowed(point) for point in rng.permutation(points)[: _PROJECTED * (size > _MANY)]]
            points = np.vstack([points[problem.is_allowed(points)], *near])
            if len(points) >= min(_FEW, len(values)):
                break
        return points

    def _utility(self, points: Float[np.ndarray, "m n"], U: Point, judge: Judge) -> Steps[Float[np.ndarray, " m"]]:
        """Log expected improvement on the best evaluated mean; nearness to ``U`` without a model or an owner."""
        problem, m = self.setup.problem, len(points)
        if judge.model is not None:
            X = np.vstack([problem.in_box(points), judge.evaluated])
            mean, std = yield Expect(judge.model, problem.modelled(X))
            if np.isfinite(std).all():
                beaten = (mean[m:] if len(judge.evaluated) else mean).max()
                return JointImprovement(float(beaten)).rank(mean[:m], std[:m] ** 2)
        return -np.abs(points - U).sum(axis=1)

    def _stepped_apart(self, U: Point, rules: Rules, box: StepBox | None, rng: np.random.Generator) -> Point:
        """Point that breaks no rule, if found: ``U`` itself, or a point some random steps away from it."""
        problem = self.setup.problem
        rules_of_column = grouped((column, n) for n, rule in enumerate(rules) for column in rule.columns.tolist())
        broken = {n for n, rule in enumerate(rules) if rule.is_broken_by(U)}
        dropped, fewest, since = set[int](), len(broken), 0
        for tries in range(_MOST_TRIES):
            if len(broken) < fewest:
                fewest, since = len(broken), tries
            elif tries - since == _ENOUGH:
                # in a small region there may be no new point that is apart from all pending ones
                hopeless = {n for n in broken if rules[n].are_pending}
                if not hopeless:
                    break
                dropped, broken = dropped | hopeless, broken - hopeless
                fewest, since = len(broken), tries
            if not broken:
                break
            moved, rule = U.copy(), rules[min(broken)]
            shrinking = 0.5 ** min(tries // _HALVED, _HALVINGS)
            steps, growth = (_STEPS_FROM_PENDING, _GROWTH**tries) if rule.are_pending else (_STEPS, shrinking)
            moved[rule.columns] = _moved(U[rule.columns], steps, growth, rng)
            if box is not None:
                moved = np.clip(moved, box.low, box.high)
            moved = problem.domain.snapped(moved)
            if problem.coding is not None and (moved == U).all():
                moved = problem.coding.domain.beside(U, rule.columns, tries + 1, rng)
            if problem.constraints and tries % _RARELY == 0:  # random steps rarely keep constraints
                moved = problem.nearest_allowed(moved)
            if problem.is_allowed(moved[None])[0] and (box is None or box.contains(moved)):
                # rules of unchanged variables stay broken or kept
                changed = np.flatnonzero(moved != U).tolist()
                touched = {n for column in changed for n in rules_of_column.get(column, ())} - dropped
                broken = (broken - touched) | {n for n in touched if rules[n].is_broken_by(moved)}
                U = moved
        return U


def _preferred(U: Point, points: Float[np.ndarray, "m n"], judge: Judge, rules: Rules) -> Float[np.ndarray, "k n"]:
    """Best of some points, compared in this order: fewest broken rules on evaluated points, on pending points, no
    violation of requirements or limits, fewest broken rules on pending values of factors, least violation. None if
    ``U`` equals the best in all but the last.
    """
    points = np.vstack([U, points])
    lacks, (evaluated, pending, of_factors) = judge.lacks(points), np.zeros((3, len(points)))
    for rule in rules:
        repeats = evaluated if not rule.are_pending else pending if len(rule.columns) == len(U) else of_factors
        repeats += rule.are_broken_by(points)
    ranks = np.column_stack([evaluated, pending, lacks > 0.0, of_factors, lacks])
    best = np.array(min(ranks.tolist()))
    return points[(ranks == best).all(axis=1)] if (best[:-1] != ranks[0, :-1]).any() else points[:0]


def _moved(u: Point, steps: tuple[float, float], growth: float, rng: np.random.Generator) -> Point:
    """Point a random step away from ``u``; coordinates that would leave the unit cube step the other way."""
    # log-uniform: most steps are short and stay near the decided point; a few long steps leave crowded regions
    length = np.exp(rng.uniform(*np.log(steps))) * growth
    step = min(length, 1.0) * rng.uniform(-1.0, 1.0, len(u))
    return (np.where((u + step < 0.0) | (u + step > 1.0), -step, step) + u).clip(0.0, 1.0)
