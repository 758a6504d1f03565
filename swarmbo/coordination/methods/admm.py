"""Consensus ADMM: factors keep copies of their variables, climb independently, and are pulled together.

For each factor i with local function phi_i, copy x_i and scaled dual u_i, penalty eta, in one round:

    x_i <- argmax phi_i(x) - eta/2 |x - z_{V_i} + u_i|²
    z_j <- mean over the factors i of variable j of x_i[j] + u_i[j]
    u_i <- u_i + x_i - z_{V_i}

Source: Boyd et al. 2011, sections 3.1.1, 3.3 and 7.2; Bardou et al. 2024 (DuMBO), section 4, where z_j is the mean of
the x_i only; both are equal as long as the duals of a variable sum to zero.
"""

from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo import settings
from swarmbo.coordination import box_steps, choices, refinement, requests
from swarmbo.coordination.agreement import BoxOutcome
from swarmbo.coordination.messages import Copy
from swarmbo.coordination.methods.max_sum import MaxSum
from swarmbo.coordination.part import BoxView, Part
from swarmbo.coordination.plan import BoxMethod, Plan, require_lockstep
from swarmbo.coordination.requests import Steps
from swarmbo.coordination.schema import are_not_negative
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.graph.box_functions import Climbing
from swarmbo.registry import FUNCTION, kind
from swarmbo.transport import Routes

_BALANCED = 100  # rounds that may change the penalty; to converge, it must be fixed later (Boyd et al. 2011, 3.4.1)
_RECOMBINES = MaxSum(rounds=20)
# number of a part's factors from which climbs are short, as the consensus would undo long climbs
_MANY = 128
_FEW = 8  # least number of values per variable with which starts of such a part are assembled
_LEAST = 0.01  # polishing such a part ends once four steps bring less than this share of its rise
_STILL = 1e-3  # root-mean-square move of variables, in box widths, at which such a part is polished
Points = Float[np.ndarray, "m n"]


@kind("coordination", FUNCTION)
class ADMM(BoxMethod, frozen=True, tag_field="kind", tag="admm"):
    """Consensus ADMM from several starts at once; then the runs' ends are recombined, and the best points polished.

    Starts are the points that the functions suggest, and the best of ``screened`` random joint points. One run of ADMM
    begins at each start. The ends of the runs give each variable several candidate values. Max-sum on tables of these
    candidates finds their best combination. It is often much better than the best run, since runs do well in different
    factors. Parts with factors too large for tables of ``recombination_entries`` are not recombined. In parts of one
    factor, its owner climbs alone. If functions are not concave, this is a local search, which may miss the optimum.

    In parts of 128 or more factors, a random joint point suits only a few factors. If tables can have eight values of
    each variable, max-sum then assembles a joint point from a lattice and searches for better points around it
    (``swarmbo.coordination.refinement``). The best one is polished; there are no copies of variables, and no rounds of
    consensus. Parts with larger factors run ADMM from screened points, as smaller parts do.

    Connected parts agree independently. All factors that share no variable form one part, which needs no rounds.

    Args:
        rounds: Largest number of rounds, 1 to 10 000.
        starts: Number of parallel runs, >= 1.
        screened: Number of random joint points that are evaluated to choose starts, >= 0.
        inner_steps: Gradient steps of a factor in a round, >= 1. Parts of 128 or more factors take half as many,
            rounded up. Their polishing stops once variables move by at most a thousandth of the box, or four steps
            bring less than a hundredth of the total gain of polishing.
        alone_steps: Gradient steps of a factor that shares no variable, >= 1.
        penalty: Initial penalty eta, > 0. Its unit is the spread of a part's values per squared side of the box. The
            spread is measured at 16 or more random points.
        tolerance: Stop when the primal and the dual residual are below this number, > 0, in box widths.
        balance: Ratio > 1 of primal to dual residual above which the penalty doubles; below its inverse it is halved.
        recombination_entries: Most entries of a factor's table when runs are recombined, >= 0; 0: no recombination.
        polish_steps: Number of joint gradient steps at the end, >= 0; 0: the best point is not polished.
        polished: Number of a part's best points that are polished in addition to the recombined one, >= 1.
        mode: ``lockstep``: agents wait for every message that they need, as described above. ``asynchronous``: agents
            wait for no message. At a deadline, they choose by the messages that they have received. Short runs begin at
            up to five starts. Then variables take turns to move, from the best start and from the ends of runs, and the
            best result is kept (``swarmbo.coordination.deadline_box``). From the settings above, this mode uses only
            ``starts``, ``inner_steps`` and ``penalty``.
        deadline: Number of ticks, >= 1, until all agents act. In a tick, a message crosses one or more links. This and
            the next two settings are for asynchronous mode.
        patience: Number of ticks, >= 1, after which a silent agent is assumed to be at the best start. Other agents
            then evaluate its factors if they can. Links with high loss get more ticks.
        threshold: Changes up to this size, >= 0, are not sent: of copies, in box widths; of values, in spreads.

    Example:
        >>> import swarmbo as sb
        >>> from swarmbo.testing.coordinator import TWO_BOWLS  # f(x, y) is drawn to 0.3, g(y, z) to 0.4
        >>> agreement = sb.ADMM(rounds=20).maximise(TWO_BOWLS)
        >>> agreement.point.round(3).tolist(), agreement.report.messages > 0
        ([0.317, 0.35, 0.383], True)
    """

    has_deadline_mode: ClassVar[bool] = True
    variables_search: ClassVar[bool] = False  # in lockstep
    rounds: Annotated[int, settings.within(1, 10_000)] = 12
    starts: settings.AtOnce = 12
    screened: Annotated[int, settings.within(0, 2**20)] = 256
    inner_steps: settings.Count = 4
    alone_steps: settings.Count = 30
    penalty: settings.Positive = 1.0
    tolerance: settings.Positive = 1e-3
    balance: Annotated[float, msgspec.Meta(gt=1)] = 10.0
    recombination_entries: settings.Whole = 1024
    polish_steps: settings.Whole = 40
    polished: settings.Count = 3
    mode: Literal["lockstep", "asynchronous"] = "lockstep"
    deadline: settings.Count = 60
    patience: settings.Count = 16
    threshold: settings.NonNegative = 1e-2

    def values_of(self, part: FactorGraph) -> int:
        """Number of candidate values of a part's variables when runs are recombined; 1 if they are not."""
        return max(1, min(2 * self.starts, refinement.root(self.recombination_entries, part.max_factor_size)))

    def plan(self, functions: BoxFunctions, routes: Routes, seed: int = 0) -> Plan[BoxFunctions, BoxOutcome]:
        """Make the plan in lockstep, as every agent computes it; factors that share no variable are one part.

        Raises:
            ConfigError: If the mode is asynchronous: an agreement by a deadline has no such plan.
        """
        require_lockstep(self)
        graph = functions.graph
        parts = [Part(part, i, routes) for i, part in enumerate(graph.components) if len(part.factors) > 1]
        if lonely := [part.factors[0] for part in graph.components if len(part.factors) == 1]:
            parts.append(Part(graph.of(lonely), len(graph.components), routes))
        return Plan(tuple(parts), lambda view, own: self.steps(BoxView.on(view, own), seed))

    def steps(self, view: BoxView, seed: int) -> Steps[BoxOutcome]:
        """Steps of an agent with some factors and variables of a part."""
        return self._together(view, seed) if any(view.part.is_shared.values()) else self._alone(view, seed)

    def _alone(self, view: BoxView, seed: int) -> Steps[BoxOutcome]:
        """Let factors that share no variable climb at once, and send the results to the owners of the variables."""
        functions, point = view.functions, np.zeros(len(view.column_of))
        candidates, n_given = self._candidate_starts(view, seed)
        for stack in view.stacks:
            X = stack.take(candidates)
            values = functions.value(stack, X, functions.unheard(X))
            values[:, :n_given] = np.inf  # given starts are always used
            best = np.argsort(-values, axis=1, kind="stable")[:, : self.starts]
            starts = np.take_along_axis(X, best[:, :, None], axis=1)
            if functions.levels:
                # given starts have similar choices, and one changed choice rarely leads out of a constraint's corner
                others = np.argsort(-values[:, n_given:], axis=1, kind="stable")[:, : self.polished] + n_given
                for row, factor in enumerate(stack.factors):
                    tried = candidates[[*range(min(n_given, self.polished)), *others[row]]]
                    own = choices.of_one(view, factor, tried, seed, self.alone_steps)
                    point[stack.columns[row]] = own
                continue
            climbed = box_steps.climbed_by(functions, stack, functions.unheard(starts))
            X, values, *_ = box_steps.ascend(climbed, starts, *view.box(stack), self.alone_steps)
            point[stack.columns] = X[np.arange(len(X)), values.argmax(axis=1)]
        return (yield from box_steps.settled(view, point, BoxOutcome(view.part.index, {}, {})))

    def _together(self, view: BoxView, seed: int) -> Steps[BoxOutcome]:
        """Agree within a part of several factors: rounds of consensus, recombination, polishing."""
        n_values, on_grid = self.values_of(view.graph), [x in view.functions.levels for x in view.graph.variables]
        outcome = BoxOutcome(view.part.index, {}, {})  # without rounds there are no copies, and no residuals
        if all(on_grid):  # no variable can climb
            best, _ = yield from self._starts(view, seed)
        elif _is_large(view) and n_values >= _FEW:
            pool = yield from refinement.narrowed(view, seed, min(n_values, refinement.MOST))
            values = yield from box_steps.part_total(view, pool)
            best = pool[[int(values.argmax())]]
        else:
            # with grids, `choices.in_turns` recombines later
            best, outcome = yield from self._by_rounds(view, seed, 1 if any(on_grid) else n_values)
        if any(on_grid):
            x = yield from choices.in_turns(view, best[: self.polished], seed, self.polish_steps)
            return (yield from box_steps.settled(view, x, outcome))
        still = {"tolerance": _STILL * len(view.graph.variables) ** 0.5, "least": _LEAST} if _is_large(view) else {}
        best, values, before = yield from box_steps.polish(view, best, self.polish_steps, **still)
        winner = int(values.argmax())
        is_polished = self.polish_steps > 0 and before.max() > -np.inf
        gain = float(values[winner] - before.max()) if is_polished else None
        return (yield from box_steps.settled(view, best[winner], outcome._replace(gain=gain)))

    def _by_rounds(self, view: BoxView, seed: int, n_values: int) -> Steps[tuple[Points, BoxOutcome]]:
        """Run rounds of consensus from several starts; return the best starts or ends, and their recombination."""
        Z, natural = yield from self._starts(view, seed)
        agreed, outcome = yield from self._rounds(view, Z, natural)
        pool = np.concatenate([Z, agreed])
        values = yield from box_steps.part_total(view, pool)
        order = np.argsort(-values, kind="stable")
        best = pool[order[: self.polished]]
        if n_values > 1:
            # the first point is the incumbent
            ends = pool[order[:n_values]]
            if _is_large(view):
                joined = yield from refinement.put_together(view, ends, _RECOMBINES)
            else:
                values_by_variable = {x: ends[:, view.column_of[x]] for x in view.graph.variables}
                joined = yield from choices.chosen(view, ends[0], values_by_variable, _RECOMBINES)
            best = np.concatenate([best, joined[None]])
        return best, outcome

    def _candidate_starts(self, view: BoxView, seed: int, fewest: int = 0) -> tuple[Points, int]:
        """Joint points among which starts are chosen, and the number of given points, which come first."""
        n_random, n_given = max(self.screened, self.starts, fewest), min(len(view.functions.starts), self.starts)
        return box_steps.drawn_starts(view.functions, view.seen, seed, self.starts, n_random), n_given

    def _starts(self, view: BoxView, seed: int) -> Steps[tuple[Points, float]]:
        drawn, n_given = self._candidate_starts(view, seed, box_steps.FEWEST)
        values = yield from box_steps.part_total(view, drawn)
        natural = box_steps.natural_penalty(values, n_given)
        n_candidates = n_given + max(self.screened, self.starts)  # further points serve the spread only
        values = values[:n_candidates].copy()
        values[:n_given] = np.inf
        return drawn[np.argsort(-values, kind="stable")[: self.starts]], natural

    def _rounds(self, view: BoxView, Z: Points, natural: float) -> Steps[tuple[Points, BoxOutcome]]:
        functions, sides = view.functions, view.functions.sides
        n_copies = sum(len(view.graph.scope(f)) for f in view.graph.factors)
        eta = np.full(len(Z), self.penalty * natural)  # per squared box width
        X = view.take(Z)
        U = [np.zeros_like(x) for x in X]
        known: list[Climbing | None] = [None] * len(X)
        # the right step length if the penalty dominates; longer steps follow
        steps = [np.broadcast_to(1.0 / eta, x.shape[:2]) for x in X]
        primal = dual = np.inf
        n_steps = (self.inner_steps + 1) // 2 if _is_large(view) else self.inner_steps
        for turn in range(1, self.rounds + 1):
            received = yield from box_steps.exchange(view, X)
            # x <- argmax phi(x) - eta/2 |x - z + u|²; variables of one factor have no other copy to agree with
            weights = np.where(view.degree > 1.0, eta[:, None] / sides**2, 0.0)
            centres, weights = [z - u for z, u in zip(view.take(Z), U, strict=True)], view.take(weights)
            climbs: list[box_steps.Climbed] = []
            for k, stack in enumerate(view.stacks):
                function = box_steps.climbed_by(functions, stack, received[k])
                penalty = box_steps.pulled_to(centres[k], weights[k])
                climbs.append(box_steps.ascend(function, X[k], *view.box(stack), n_steps, steps[k], penalty, known[k]))
            X, steps = [climb.X for climb in climbs], [climb.step for climb in climbs]
            # a round begins where the last one ended, so values are known there, unless received sums change them
            known = [None if functions.n_exchanges else climb.known for climb in climbs]
            # z <- mean of x + u over the factors of each variable, clipped to the box, as the box is a constraint
            # on z alone (Boyd et al. 2011, 7.1.1)
            summed = yield requests.Reduce(view, Copy, [x + u for x, u in zip(X, U, strict=True)], len(Z))
            agreed = np.clip(summed / view.degree, functions.low, functions.high)
            own_sides = [sides[stack.columns][:, None, :] for stack in view.stacks]
            gaps = [x - z for x, z in zip(X, view.take(agreed), strict=True)]
            apart = [((gap / side) ** 2).sum(axis=-1) for gap, side in zip(gaps, own_sides, strict=True)]
            moved = [(step**2).sum(axis=-1) for step in view.take((agreed - Z) / sides)]
            totals = yield requests.AllReduce.of(view, len(Z), apart, moved)._replace(fits=are_not_negative)
            # u <- u + x - z
            U = [u + gap for u, gap in zip(U, gaps, strict=True)]
            Z, (primals, duals) = agreed, np.sqrt(totals / n_copies)
            # in units of the natural penalty, so that the balance does not depend on the unit of the outcome
            duals = eta / natural * duals
            primal, dual = float(primals.max()), float(duals.max())
            if primal <= self.tolerance and dual <= self.tolerance:
                return Z, BoxOutcome(view.part.index, {}, {}, turn, True, primal, dual)
            if turn <= _BALANCED:
                grow, shrink = primals > self.balance * duals, duals > self.balance * primals
                goes_on = np.maximum(primals, duals) > self.tolerance
                factor = np.where(goes_on, np.where(grow, 2.0, np.where(shrink, 0.5, 1.0)), 1.0)
                eta = eta * factor
                # u is the dual over eta (scaled form), so it shrinks as eta grows (3.4.1)
                U = [u / factor[:, None] for u in U]
        return Z, BoxOutcome(view.part.index, {}, {}, self.rounds, False, primal, dual)


def _is_large(view: BoxView) -> bool:
    """True if a part has enough factors that its rounds are shortened; every agent knows their number."""
    return len(view.part.graph.factors) >= _MANY
