"""Learning and decisions of a team that sets the variables of one function."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import networkx as nx
import numpy as np
from jaxtyping import Float, Int

from swarmbo.belief.features.ensemble_settings import EnsembleSettings
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation, Learned, Model
from swarmbo.belief.model.limits import without_better_broken
from swarmbo.belief.model.model import learn_ensemble, learn_model
from swarmbo.boundary.rng import sobol, stream
from swarmbo.deciding.joint import Expect, Steps, joint_steps, recommended_steps
from swarmbo.deciding.logbook import Choice, Logbook
from swarmbo.deciding.near import APART, Room
from swarmbo.deciding.setup import Setup
from swarmbo.errors import ConfigError
from swarmbo.graph.factor_graph import grouped
from swarmbo.problem import Problem
from swarmbo.records import Recommendation, SolveReport
from swarmbo.registry import checked_as
from swarmbo.spaces.variables import MixedDomain
from swarmbo.worlds import Offers

# in sides of the box: a point this near to an evaluated one is moved by random steps of these lengths
_NEAREST, _STEPS = 1e-9, (1e-4, 1e-2)
_LONGER_STEPS = (2e-3, 2e-2)  # of a point within ``APART`` of a pending one
_GROWTH = 1.01  # of longer steps with each try, for crowded regions
_ENOUGH = 500  # tries after which grids may repeat pending values
_MOST_STEPS = 10_000  # tries near no-go regions; after these the same point is used again
_FLAT = 4  # equal totals, at least, after which the design goes on
_RARELY = 20  # tries of which one also repairs the constraints
Point = Float[np.ndarray, " n"]  # of all variables, or of some
Sites = Float[np.ndarray, "k d"] | None
# coordinates, places (q, a) of them, a distance that a point keeps from these, and the steps that it takes otherwise
_Apart = tuple[Int[np.ndarray, " a"], Float[np.ndarray, "q a"], float, tuple[float, float]]


@dataclass(frozen=True, eq=False)
class FunctionLearner:
    """Learner of a function's outcomes. Its models follow from the log, the seed and ``learned``, what the model of the
    last decision learned. ``last`` caches the last model, with its log.
    """

    setup: Setup
    learned: Learned | None = None
    last: tuple[Logbook, Model] | None = None

    @property
    def positions(self) -> Mapping[str, Float[np.ndarray, " d"]]:
        """Empty: agents of a function have no positions."""
        return {}

    def n_data(self, log: Logbook) -> int:
        """Number of evaluated points with at least one outcome."""
        return log.history.n_known

    def begin(self) -> "FunctionLearner":
        """Itself: an episode that begins changes nothing."""
        return self

    def fitted(self, log: Logbook) -> "FunctionLearner":
        """Learner with a model of the log."""
        return self.modelled(log)[0] if self.n_data(log) else self

    def modelled(self, log: Logbook) -> tuple["FunctionLearner", Model]:
        """Learner with the model of a log; pending points count as evaluated in the variance."""
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
            model = checked_as(Model, found, setup.acquisition, "learn")
        else:
            found = setup.belief.learn(situation, setup.acquisition, self.learned)  # a plugin's
            model = checked_as(Model, found, setup.belief, "learn")
        return replace(self, last=(log, model)), model

    def decided_elsewhere(self, log: Logbook, point: Point, report: SolveReport) -> tuple["FunctionLearner", Choice]:
        """Learner (as after a decision) and choice for a point that was decided elsewhere by the same log."""
        choice = Choice(point, report, chosen=self._designed(log) is None)
        if not choice.chosen:
            return self, choice
        learner, model = self.modelled(log)
        return replace(learner, learned=model.learned), learner.expected(log, choice)

    def expected(self, log: Logbook, choice: Choice) -> Choice:
        """Choice with its expected outcome, if a method chose it."""
        if not choice.chosen:
            return choice
        _, model = self.modelled(log)
        mean, std = (float(array[0]) for array in model.posterior(self.setup.problem.modelled(choice.point[None])))
        return replace(choice, mean=mean, std=std)

    def steps(self, log: Logbook, offers: Offers) -> Steps[tuple["FunctionLearner", Choice]]:
        """Decide the next joint point: one of the initial design, or that on which the agents agree."""
        if not (offers.agents is None and offers.candidates is None and not offers.prices):
            raise ConfigError("got agents, candidates or prices; wanted none: all agents set one joint point together")
        if (point := self._designed(log)) is not None:
            return self, Choice(point, SolveReport(status="not_needed"), chosen=False)
        setup, near = self.setup, self.setup.near
        learner, model = self.modelled(log)
        situation = self.situation(log, offers.links)
        U, report, room = yield from joint_steps(situation, model, setup)
        learner = replace(learner, learned=model.learned)
        if near is None or near.safe is None or room is None:
            return learner, Choice(self._place(log, U, room), report)
        told = log.history.X[np.isfinite(log.history.sums)]
        if not near.at_start(told).any():
            return learner, Choice(near.start, msgspec.structs.replace(report, stayed="present"))
        U = setup.problem.kept_out(U)
        # pending points narrow the variance, but tell nothing about the mean
        known = self.modelled(log.without(log.open))[1] if log.open and self.n_data(log) else model
        U, stayed = U if room.has(U) else room.centre, None
        for way in near.ways(U, room, stream(setup.seed, "safe", asked=log.asked)):
            expected = yield Expect(known, setup.problem.modelled(np.vstack([setup.problem.in_box(way), told])))
            U, stayed = near.kept_safe(way, told, log.out, expected, room)
            if stayed is None:
                break
        report = report if stayed is None else msgspec.structs.replace(report, stayed=stayed)
        return learner, Choice(setup.problem.in_box(U), report)

    def _designed(self, log: Logbook) -> Point | None:
        """Next point of the initial design: the present setting, or a Sobol point near it; None after the design."""
        setup, near, index = self.setup, self.setup.near, len(log.points)
        if near is not None and not near.at_start(log.points).any():
            return near.start
        told, problem = log.history.sums, setup.problem
        methods = setup.acquisition, setup.coordination
        is_own = not all(type(method).__module__.startswith("swarmbo.") for method in methods)
        may_be_flat = near is None and problem.outcomes == "total" and not (problem.ranges or log.failures or is_own)
        # while all totals are equal, no model can say where to look; a user's own method may know
        is_flat = may_be_flat and len(told) >= max(_FLAT, setup.initial) and bool((told == told[0]).all())
        if index >= setup.initial and not is_flat:
            return None
        U = sobol(1, setup.problem.domain.n_dims, stream(setup.seed, "initial design"), skip=index)[0]
        if near is None:
            return self._place(log, U)
        room = near.room(setup.problem.domain.to_unit(near.start))
        return self._place(log, room.low + U * (room.high - room.low), room)

    def recommend(self, log: Logbook, sites: Sites) -> "Steps[tuple[FunctionLearner, Recommendation | None]]":
        """Best evaluated point in expectation, or an allowed point near it. With outcomes per factor, it combines the
        best ones of the graph's connected parts. No later decision depends on this call.
        """
        if not self.n_data(log):
            return self, None
        learner, model = self.modelled(log)
        told, known = self.situation(log, None), model.complete or model
        return learner, (yield from recommended_steps(told, self.setup.problem, known))

    def to_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """State as plain data and arrays."""
        return {"learned": msgspec.to_builtins(self.learned)}, {}

    def from_state(self, plain: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> "FunctionLearner":
        """Restore the state of ``to_state``, with the same setup."""
        return FunctionLearner(self.setup, msgspec.convert(plain["learned"], Learned | None))

    def situation(self, log: Logbook, links: "nx.Graph[str] | None") -> JointSituation:
        """Everything that a method may read."""
        setup, problem = self.setup, self.setup.problem
        return JointSituation(
            graph=problem.graph,
            domain=problem.domain,
            history=without_better_broken(log.history, problem.ranges) if problem.ranges else log.history,
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
            failed=log.history.failed,
            regions=problem.regions,
            ranges=problem.ranges,
            coding=problem.coding,
        )

    def _place(self, log: Logbook, U: Point, room: Room | None = None) -> Point:
        problem = self.setup.problem
        U = problem.kept_out(np.clip(U, 0.0, 1.0))
        if room is not None and not room.has(U):
            U = room.centre
        return problem.in_box(self._deduplicated(log, U, room))

    def _deduplicated(self, log: Logbook, U: Point, room: Room | None = None) -> Point:
        """The point, or one near it if it was evaluated (unless outcomes fade) or is too near a pending one. With
        outcomes per factor, that holds for the variables of each pending factor. Every decision ends with this step,
        unless it is ``safe`` (``Near.kept_safe``). The step follows from the log and the seed.
        """
        belief, problem = self.setup.belief, self.setup.problem
        coding, fades = problem.coding, isinstance(belief, AdditiveGPSettings) and belief.time is not None
        whole = np.arange(len(U))
        # if outcomes fade, an old point is worth a new measurement
        told = [] if fades else [(whole, problem.domain.to_unit(log.points), _NEAREST, _STEPS)]
        pending = list(log.open.values())
        out: list[tuple[Int[np.ndarray, " a"], list[int]]] = [(whole, list(range(len(pending))))]
        if problem.outcomes == "per-factor":
            waits = [frozenset(query.waits) for query in pending]
            out = [(problem.columns(c), [n for n, own in enumerate(waits) if c in own]) for c in problem.channels]
        places = problem.domain.to_unit(log.out)
        ahead = [(at, places[np.ix_(waiting, at.tolist())], APART, _LONGER_STEPS) for at, waiting in out if waiting]
        if isinstance(domain := problem.domain, MixedDomain):
            told, ahead = ([one for one in some if not _are_all(problem, domain, *one[:2])] for some in (told, ahead))
        # by the number of queries: a team restored in mid-run draws the same steps
        rng = stream(self.setup.seed, "apart", asked=log.asked)
        rules = [*told, *ahead]
        by_column = grouped((column, n) for n, (columns, *_) in enumerate(rules) for column in columns.tolist())
        broken = _broken(rules, range(len(rules)), U)
        for tries in range(_MOST_STEPS):
            if coding is not None and tries == _ENOUGH:
                # on grids there may be no point that is apart from all pending values and new
                broken, rules = {n for n in broken if n < len(told)}, rules[: len(told)]
            if not broken:
                break
            columns, _, reach, steps = rules[min(broken)]
            moved = U.copy()
            moved[columns] = _moved(U[columns], steps, tries if reach == APART else 0, rng)
            if coding is not None:
                moved = problem.domain.to_unit(problem.in_box(_another_value(moved, columns, coding.domain, rng)))
            # few points may keep the constraints: now and then the nearest of them is taken
            moved = moved if room is None else np.clip(moved, room.low, room.high)
            moved = problem.kept_out(moved) if problem.constraints and tries % _RARELY == 0 else moved
            if problem.is_allowed(moved[None])[0] and (room is None or room.has(moved)):
                touched = {n for column in np.flatnonzero(moved != U).tolist() for n in by_column.get(column, ())}
                U, broken = moved, broken - touched | _broken(rules, touched, moved)
        return U


def _moved(u: Point, steps: tuple[float, float], tries: int, rng: np.random.Generator) -> Point:
    """Point a random step away, in the unit cube."""
    # log-uniform: short steps keep the decision, a few long ones leave crowded regions
    length = np.exp(rng.uniform(*np.log(steps))) * _GROWTH**tries
    step = min(length, 1.0) * rng.uniform(-1.0, 1.0, len(u))
    return (np.where((u + step < 0.0) | (u + step > 1.0), -step, step) + u).clip(0.0, 1.0)


def _are_all(
    problem: Problem, domain: MixedDomain, columns: Int[np.ndarray, " a"], points: Float[np.ndarray, "q a"]
) -> bool:
    """True if points have all joint values of some variables: then any point repeats one of them."""
    counts = domain.counts[columns]
    n_values = problem.n_points if len(columns) == domain.n_dims else math.prod(counts.tolist()) or math.inf
    return n_values <= len(points) and len(np.unique(domain.cells(points, columns), axis=0)) >= n_values


def _another_value(u: Point, columns: Int[np.ndarray, " a"], domain: MixedDomain, rng: np.random.Generator) -> Point:
    """Point with another value of one of some variables, if all of these have grids: steps leave no cell."""
    if all(int(column) in domain.levels for column in columns):
        column = int(rng.choice(columns))
        levels = domain.levels[column]
        other = levels[np.abs(levels - u[column]) > 1e-12]
        return np.where(np.arange(len(u)) == column, rng.choice(other), u)
    return u


def _broken(rules: Sequence[_Apart], which: Iterable[int], U: Point) -> set[int]:
    """Numbers, of ``which``, of rules that a point breaks: it is within a rule's distance of one of its places."""
    told = {n: rules[n] for n in which if n < len(rules)}
    return {n for n, (at, places, reach, _) in told.items() if (np.abs(places - U[at]).max(axis=1) <= reach).any()}
