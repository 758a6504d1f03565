"""The default acquisition."""

import math
from typing import ClassVar

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import Box, ComposedFunctions, FixedPoint, on_box
from swarmbo.acquisition.chain_acquisition import ChainAcquisition
from swarmbo.acquisition.confidence_bounds import ConfidenceBounds, ContrastBounds
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.acquisition.information import DBGPUCB, Information, Straddle
from swarmbo.acquisition.noisy_improvement import NoisyImprovements
from swarmbo.acquisition.schedules import practical_beta
from swarmbo.acquisition.targeted_variance import TargetedVariance
from swarmbo.acquisition.thompson import SampledFunctions
from swarmbo.acquisition.trust_region import Restarts, TrustRegion, box_around
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import transforms
from swarmbo.belief.model.incumbents import incumbent, part_means, starting_points, to_beat
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import Learned, Model
from swarmbo.boundary.rng import stream
from swarmbo.graph import BoxFunctions, FactorGraph, stacks_of
from swarmbo.graph.groups import split_graph
from swarmbo.kernels.registry import KERNEL_NAMES, own_kernel
from swarmbo.records import Goal
from swarmbo.registry import FIELD, FUNCTION, kind
from swarmbo.settings import Even, NonNegative

_BOLDER = 4.0  # factor on the weight in bold bounds, such as bounds that do not alternate with draws
_BOLDEST = 20.0  # the same after an evaluation that almost repeated another
_SAME = 1e-3  # box widths within which it does
# number of factors above which the weight falls: n standard deviations add up to sqrt(n) times that of the sum
_MANY = 32
_PATIENCE = 3  # factor on the failures before a trust region shrinks, in noise
_PATIENCE_OF_ONE = 2  # the same for one factor without noise: a joint model of few variables improves irregularly
_LATE = 20  # least number of remaining rounds for a restart: with fewer, it ends worse than the previous search
_GLOBAL_ABOVE = 1e-3  # share of the first outcomes' spread: with more expected improvement, the search is global
_N_POINTS = 256  # random points at which this improvement is computed
_LITTLE = 1e-4  # share of that spread: with less expected in its trust region, one factor is searched globally, too
_LITTLE_IN_NOISE = 0.2  # the same as a share of the noise's standard deviation
_PERIOD = 2  # period of global searches of a stalled factor, or of one factor, and of draws in noise
_STALLED = 2  # idle evaluations until a factor is stalled, in units of those that halve a trust region
_DRAW_PERIOD = 3  # period in queries of joint draws of factors that share variables, as bounds do not leave a basin
_DRAWS_FROM = 2  # least number of evaluations for such draws, in units of the initial design
_CAUTIOUS_FROM = 3  # the same for cautious bounds between these draws
_IDLE = 6  # evaluations, at most three of a batch, in a row without progress after which draws replace bounds
_BOUND_PERIOD = 6  # period in queries of the bounds that remain then
_PROGRESS = 1e-4  # share of the first outcomes' spread: smaller gains are no progress
DRAWABLE = 128  # most factors for such draws: a draw of more factors explores too many at once
_GLOBAL_DRAW_PERIOD = 4  # period in queries of global searches of an untransformed sum's draw, to leave a wrong basin
# sides of a sum's trust region by member of a batch: in one region, bounds give almost the same point
_SIDES = (1.0, 0.5, 0.25)
_SIDES_BY_FACTOR = (1.0, 0.25, 0.0625)  # the same with a trust region per factor
_SIDES_AT_LAST = (0.25, 0.125, 0.0625)  # in the last batch, as exploration in one factor spoils all others
_GAIN = 0.01  # share of the first outcomes' spread: smaller gains do not count
_PER_PENDING = 0.3  # extra weight per pending point: with shared variables, bounds alone hardly spread a batch
_EVERYWHERE = 2.0  # side of a box that contains the cube, wherever its centre is
_COMBINE_GROWTH = 1.5  # growth of the evaluations after which the best of all parts is evaluated together
_RESTART_WEIGHT = 3.0  # weight of the standard deviation at a restart, relative to the papers' bounds


@kind("acquisition", FIELD, FUNCTION)
class Auto(ChainAcquisition, frozen=True, tag="auto"):
    """The rule that suits the task in a field, or the observations of a function.

    | task in a field | rule | rule if agents may abstain for a price |
    |---|---|---|
    | peak | ``db-gp-ucb``, ``annealed`` | ``db-gp-ucb``, ``annealed`` |
    | map | ``targeted-variance`` | ``information`` |
    | level | ``targeted-variance`` | ``straddle`` |

    For functions, the model with the largest evidence decides, and points are searched in a trust region:

    | observed | models, chosen by evidence | rule | trust region |
    |---|---|---|---|
    | totals of several factors | untransformed outcomes | bounds on the gain over the incumbent | one |
    | | a root of the distance below the best outcome | alternately a joint posterior draw and bounds | one |
    | | this root, with one factor of all variables | bounds | one |
    | | untransformed outcomes, with one factor of all variables | log expected improvement | none |
    | | untransformed outcomes, with a factor for each variable | as with the given factors | one |
    | single factors, no shared variables | untransformed, root, fourth root, logarithm, with a Matérn 5/2 or an RBF \
    kernel | log expected improvement | one per factor |
    | | a sum of functions of the factor's variables | log expected improvement of each | none |
    | one noisy factor of two or three variables | the same | noisy expected improvement | none |
    | single factors, shared variables | untransformed outcomes | in turn a joint posterior draw, cautious and bold \
    bounds | none |
    | any, with a time axis | untransformed outcomes | bounds | none |

    Turns, thresholds and the behaviour in batches and in noise are in docs/methods/acquisitions.md. With one factor,
    totals count as outcomes of that factor. A function of unknown structure is one factor. Trust regions react to
    posterior means, not to noisy outcomes.

    Every rule is a sum over factors, so agents agree on it by messages. Outcomes are sent to all agents that model
    them. With totals, a draw needs one number per evaluation from each factor to all others. Every agent computes trust
    regions, incumbents, restarts, transforms and splits from the history alone.

    Args:
        box: Settings of trust regions, except for totals of several factors.
        restarts: Settings of restarts for one factor.
        weight: Weight of the standard deviation in confidence bounds, >= 0; it is multiplied by sqrt(d log 2t) for a
            factor of d variables after t evaluations. Bounds of totals that do not alternate with draws have 4 times
            this weight, and so have bold bounds of single factors with shared variables. Without a time axis, the
            weight of these is also multiplied by sqrt(32 / n) for n > 32 and by 1 + 0.3 p for p pending points.
        n_features: Number of random features of each factor's prior draw, even, >= 2.
        box_of_totals: Trust regions for totals of several factors. A small first region ends in a near peak.

    These settings are for functions. The settings for fields are those of ``ChainAcquisition``.

    Example:
        >>> import swarmbo as sb
        >>> graph = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]})
        >>> team = sb.Team(graph, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, outcomes="per-factor", acquisition=sb.Auto())
        >>> X = np.random.default_rng(0).random((12, 2))
        >>> team.attach(X, -((X - 0.4) ** 2))
        >>> point = team.ask().point
        >>> all(abs(value - 0.4) < 0.05 for value in point.values())
        True
    """

    for_functions: ClassVar[tuple[str, ...]] = ("box", "restarts", "weight", "n_features", "box_of_totals")

    box: TrustRegion = msgspec.field(default_factory=TrustRegion)
    restarts: Restarts = msgspec.field(default_factory=Restarts)
    weight: NonNegative = 0.05
    n_features: Even = 512
    box_of_totals: TrustRegion = msgspec.field(default_factory=lambda: TrustRegion(initial=1.0, failures=5))

    def in_field(self, aim: Goal, *, priced: bool) -> ChainAcquisition:
        """Acquisition that suits a field, with the same settings.

        With prices, ``targeted-variance`` is not used, because it would stop measuring too early.
        """
        shared = {name: getattr(self, name) for name in self.for_fields}
        if aim == "peak":
            return DBGPUCB(exploration="annealed", **shared)  # scored by the best value at the end
        if not priced:
            return TargetedVariance(task=aim, **shared)
        return Straddle(**shared) if aim == "level" else Information(**shared)

    def learn(self, situation: JointSituation, belief_settings: AdditiveGPSettings, previous: Learned | None) -> Model:
        """Model of transformed outcomes, from the evaluations in use."""
        if belief_settings.time is None and not _is_by_factor(situation):
            return transforms.learn_totals(situation, belief_settings, previous)
        if belief_settings.time is not None or is_shared(situation.graph):
            return super().learn(situation, belief_settings, previous)
        if previous is not None and len(previous.forms) != len(situation.graph.factors):
            previous = None  # from another acquisition
        return transforms.learn_factors(situation, belief_settings, previous, self._restarted_at(situation, previous))

    def local_functions(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """Local functions on the unit cube, one per factor, that agents maximise in this round."""
        belief = model.belief
        if belief.has_time:  # old points become uncertain and are revisited anyway
            return self._bounds(situation, belief, 1.0)
        if _is_time_to_combine(situation):
            return FixedPoint.at(situation.graph, model.incumbent())
        if not _is_by_factor(situation):
            return self._for_totals(situation, model)
        if is_shared(situation.graph):
            return self._draws_and_bounds(situation, belief)
        is_whole = len(situation.graph.factors) == 1 and not model.divided and model.complete is None
        if is_whole and belief.n_data and transforms.is_clearly_noisy(model.learned):
            return NoisyImprovements.on_cube(belief, situation.seed)
        if is_whole and _is_turn_of_draw(situation, model):
            return self._draw(situation, belief, None)
        return self._improvements(situation, model)

    def _for_totals(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """Improvements or bounds with one factor of all variables; else a draw or bounds, by transform and turn."""
        belief, is_plain, n_models = model.belief, model.warp.kind == "none", len(model.learned.candidates)
        if len(model.learned.scopes or ()) == 1:
            if is_plain:
                return LogImprovements.over_incumbent(belief)
            return self._bounds(situation, belief, 1.0, self._region(situation, model))
        asked, is_batch = situation.n_asked, len(situation.pending) > 0
        is_noisy = _patience(belief.hyperparameters.total_noise_variance) > 1
        U = belief.domain.to_unit(belief.X[belief.known])
        is_repeated = bool((np.abs(U[:-1] - U[-1:]) < _SAME).all(axis=1).any())
        is_limited = situation.history.barred is not None  # better points break a limit
        if is_limited and is_repeated and not is_noisy and not is_batch:
            return self._bounds(situation, belief, _BOLDEST)
        if is_noisy and len(situation.graph.factors) <= DRAWABLE and (situation.n_batched or asked % _PERIOD):
            return self._draw(situation, belief, None)  # in noise, a few outcomes tell little
        # draws of an untransformed sum pay off once outcomes distinguish the functions
        has_enough = not is_noisy and belief.n_data >= belief.domain.n_dims
        if is_plain and has_enough and n_models == 1:
            return self._draw(situation, belief, None)
        region = self._region(situation, model, 1.0 if is_plain or not is_batch else _SIDES[asked % len(_SIDES)])
        if is_plain and not has_enough:
            return self._bounds(situation, belief, _BOLDER, region)
        # models alternate by member: if draws and bounds alternated in step, each model would use only one of them
        turn = asked // n_models if is_batch and n_models and n_models % 2 == 0 else asked
        if turn % 2:
            return self._bounds(situation, belief, 1.0, region)
        return self._draw(situation, belief, None if is_plain and turn % _GLOBAL_DRAW_PERIOD == 0 else region)

    def _region(self, situation: JointSituation, model: Model, share: float = 1.0) -> Box:
        """Trust region for totals, or one with a share of its side."""
        belief, steps, basis = model.belief, situation.steps(), situation.basis()
        box = _patient(self.box_of_totals, _patience(belief.hyperparameters.total_noise_variance))
        # untransformed totals are also searched globally, and such points do not count as steps of the trust region
        places = _places(situation, belief) if model.warp.kind == "none" else None
        state = box.state(_seen(belief, situation), steps=steps, places=places, basis=basis)
        return box_around(incumbent(belief), state.side * share)

    def _draws_and_bounds(self, situation: JointSituation, belief: AdditiveGP) -> BoxFunctions:
        """Draws, cautious and bold bounds in turn; only bold bounds with more than 128 factors."""
        t, n_factors, turn = len(situation.history), len(situation.graph.factors), situation.n_asked % _DRAW_PERIOD
        is_drawable = n_factors <= DRAWABLE
        if is_drawable and turn == 0 and t >= _DRAWS_FROM * situation.initial:
            return self._draw(situation, belief, None)
        # one of the two bounds between draws refines the best point, once the search has left wrong basins
        is_settled = is_drawable and t >= _CAUTIOUS_FROM * situation.initial
        is_cautious = is_settled and turn == 1 and not len(situation.pending)
        spread_out = math.sqrt(_MANY / max(_MANY, n_factors)) * (1.0 + _PER_PENDING * len(situation.out.points))
        bounds = self._bounds(situation, belief, (1.0 if is_cautious else _BOLDER) * spread_out)
        if not is_settled or situation.n_asked % _BOUND_PERIOD == 1:
            return bounds
        # without progress nearly all points are draws, as bounds do not leave a basin that they have explored
        idle = self._idle_factors(situation, belief)
        if not idle:
            return bounds
        others = [bounds.of(set(belief.graph.factors) - idle), self._draw(situation, belief, None).of(idle)]
        return ComposedFunctions(belief.graph, bounds.low, bounds.high, bounds.starts, others=others)

    def _idle_factors(self, situation: JointSituation, belief: AdditiveGP) -> frozenset[str]:
        """Factors of parts without progress in the last steps; each agent knows this for its own parts."""
        idle, basis = frozenset[str](), situation.basis()
        for part, (_, means) in zip(belief.graph.components, part_means(belief), strict=True):
            seen, steps = situation.part_means.get(part.factors[0], means), situation.steps(*part.factors)
            outcomes = np.where(np.isfinite(seen), seen, np.nan)
            if self.box.state(outcomes, steps=steps, gain=_PROGRESS, basis=basis).idle >= _IDLE:
                idle |= frozenset(part.factors)
        return idle

    def _draw(self, situation: JointSituation, belief: AdditiveGP, box: Box | None) -> SampledFunctions:
        """A joint draw of all factors, to be maximised in a box; None: everywhere."""
        when = {"evaluations": len(situation.history), "pending": len(situation.pending)}
        rngs = {f: stream(situation.seed, "auto draw", factor=f, **when) for f in belief.graph.factors}
        sample = belief.sample(rngs, stream(situation.seed, "auto draw", "noise", **when), self.n_features)
        return SampledFunctions(**on_box(belief, box), sample=sample)

    def _bounds(
        self, situation: JointSituation, belief: AdditiveGP, boldness: float, box: Box | None = None
    ) -> ContrastBounds:
        weight = boldness * self.weight * math.sqrt(math.log(2 * max(len(situation.history), 1)))
        return ContrastBounds.on_cube(belief, box, reference=incumbent(belief), weight=weight)

    def _improvements(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """Improvements of the factors in their trust regions; bounds while a restarted search explores."""
        belief, graph, centre = model.belief, situation.graph, model.incumbent()
        if self._is_exploring(situation, model):
            # Maxima of bounds lie in unexplored space. A search from random points mostly ends in the widest basin,
            # that of the last search.
            whole = belief if model.complete is None else model.complete.belief
            weight = _RESTART_WEIGHT * math.sqrt(practical_beta(len(whole.graph.variables), whole.n_data))
            return ConfidenceBounds.on_cube(whole, sqrt_beta=dict.fromkeys(whole.graph.factors, weight))
        low, high = self._boxes(situation, model, centre)
        columns = dict(zip(graph.factors, map(list, belief.scopes), strict=True))
        for factor in model.splits:
            low[columns[factor]], high[columns[factor]] = 0.0, 1.0
        starts = starting_points(belief, low, high)
        if not len(starts):
            starts = np.clip(centre, low, high)[None]
        whole = LogImprovements(graph, low, high, starts, belief=belief, reference=to_beat(belief))
        if not model.divided:
            return whole
        joined: list[BoxFunctions] = [whole]  # used for the other factors: split ones are not in the divided graph
        for factor, split in model.splits.items():
            part = LogImprovements.over_incumbent(split.by_factor_ahead)
            joined.append(part)
            starts[:, columns[factor]] = part.starts
        divided = split_graph(graph, model.divided, shared_outcomes=situation.outcomes == "total")
        return ComposedFunctions(divided, low, high, starts, others=joined)

    def _boxes(self, situation: JointSituation, model: Model, centre: Float[np.ndarray, " n"]) -> Box:
        if len(situation.graph.factors) > 1:
            return self._boxes_by_factor(situation, model.belief, centre)
        return box_around(centre, _EVERYWHERE) if model.splits else self._box_of_one(situation, model, centre)

    def _is_exploring(self, situation: JointSituation, model: Model) -> bool:
        """True for the first points after a restart."""
        restarted_at = model.learned.restarted_at
        n_steps = int(situation.chosen[restarted_at:].sum()) + len(situation.pending) - situation.n_foreign
        # a factor that its owner splits has not restarted, whatever another agent learned
        return restarted_at > 0 and n_steps < self.restarts.fresh and not model.divided

    def _box_of_one(self, situation: JointSituation, model: Model, centre: Float[np.ndarray, " n"]) -> Box:
        """Trust region of one factor since its last restart; at some turns everywhere, to find a higher peak."""
        belief, since = model.belief, model.learned.restarted_at
        hyper, places = belief.hyperparameters, _places(situation, belief)
        box = _patient(self.box, max(_PATIENCE_OF_ONE, _patience(max(hyper.noise_variances))))
        state = box.state(
            _seen(belief, situation)[since:],
            n_initial=self.restarts.fresh if since else 0,  # first points after a restart do not count
            steps=situation.steps()[since:],
            places=None if since else places,  # before a restart, points elsewhere are no steps of the region
            basis=situation.basis(since),
        )
        near, everywhere = box_around(centre, state.side), box_around(centre, _EVERYWHERE)
        if since or situation.n_asked % _PERIOD:
            return near
        # A trust region does not leave its peak. If two models alternate, the transform decides on points everywhere at
        # even queries: untransformed outcomes, which show a peak's shape, refine it.
        by_model = [candidate.hyperparameters for candidate in model.learned.candidates] or [hyper]
        has_little_noise = min(max(h.noise_variances) for h in by_model) <= transforms.NOISY
        if len(centre) == 1 and has_little_noise:  # all peaks of one variable are found soon
            return everywhere
        little, (noise,) = _LITTLE * state.spread, hyper.noise_variances
        if noise > transforms.NOISY:
            little = max(little, _LITTLE_IN_NOISE * math.sqrt(noise) * hyper.scales[0])
        (here,) = _potentials(situation, belief, near).values()
        return everywhere if here <= little else near

    def _restarted_at(self, situation: JointSituation, previous: Learned | None) -> int:
        """Number of evaluations before the last restart with one factor, possibly now; none while it may be split."""
        if previous is None:
            return 0
        since = previous.restarted_at
        if len(situation.graph.factors) > 1 or previous.may_split:
            return since
        history, hyper, start = situation.history, (previous.before or previous).hyperparameters, since
        if transforms.is_clearly_noisy(previous.before or previous):
            return since  # it is searched everywhere
        if since:  # the first points after a restart do not count
            later = np.flatnonzero(situation.chosen[since:])[self.restarts.fresh - 1 :] + since + 1
            start = int(later[0]) if len(later) else len(history)
        left = np.inf if situation.horizon is None else situation.horizon - situation.round
        start, steps, basis = max(start, previous.whole_since), situation.steps(), situation.basis()
        patience = _patience(max(hyper.noise_variances))
        is_due = left >= _LATE and self.restarts.is_due(
            history.sums, since=since, start=start, patience=patience, steps=steps, basis=basis
        )
        return len(history) if is_due else since

    def _boxes_by_factor(self, situation: JointSituation, belief: AdditiveGP, centre: Float[np.ndarray, " n"]) -> Box:
        """Trust region per factor around the incumbent, once little improvement is expected elsewhere."""
        # A stalled factor is searched globally in every second round. Members of a batch have regions of several sides;
        # in the last batch no factor is searched globally, as no decision follows.
        potentials = _potentials(situation, belief, box_around(centre, _EVERYWHERE))
        U, sides, is_last = belief.domain.to_unit(belief.X), np.zeros(len(centre)), _is_last_batch(situation)
        places = _places(situation, belief)
        shares = _SIDES_AT_LAST if is_last else _SIDES_BY_FACTOR
        # asynchronous workers, whose number of pending points is always the same, have all sides in turn
        is_batch = situation.n_batched == len(situation.out.points)
        share = shares[(situation.n_batched if is_batch else situation.n_asked) % len(shares)]
        for stack in stacks_of(belief.graph):
            means = belief.local_mean(stack, stack.take(U))
            for factor, columns, mean in zip(stack.factors, stack.columns, means, strict=True):
                index = belief.graph.place_of[factor]
                seen = np.where(np.isfinite(belief.factors[:, index]) & belief.eligible, mean, np.nan)
                box = _patient(self.box, _patience(belief.hyperparameters.noise_variances[index]))
                steps, basis = situation.steps(factor), situation.basis()
                state = box.state(seen, steps=steps, places=places[:, columns], gain=_GAIN, basis=basis)
                is_due = state.idle >= _STALLED * box.failures and situation.round % _PERIOD == 0
                is_open = is_due or potentials[factor] >= _GLOBAL_ABOVE * state.spread
                sides[columns] = _EVERYWHERE if is_open and not is_last else state.side * share
        return box_around(centre, sides)


def _potentials(situation: JointSituation, belief: AdditiveGP, box: Box) -> dict[str, float]:
    """Largest expected improvement of each factor at random points of a box."""
    rng = stream(situation.seed, "promise", evaluations=len(situation.history), pending=len(situation.pending))
    (low, high), coding = box, situation.coded_by
    improvements = LogImprovements(belief.graph, low, high, low[None], belief=belief, reference=to_beat(belief))
    if coding is not None:
        low, high = coding.box_outside(low, high)
    points = low + rng.random((_N_POINTS, len(low))) * (high - low)
    if coding is not None:  # only values that can be evaluated
        points = coding.inside(coding.domain.snapped(points))
    potentials = dict[str, float]()
    for stack in stacks_of(belief.graph):
        gains = improvements.value(stack, stack.take(points), ())
        potentials |= dict(zip(stack.factors, np.exp(gains.max(axis=1)).tolist(), strict=True))
    return potentials


def _places(situation: JointSituation, belief: AdditiveGP) -> Float[np.ndarray, "t n"]:
    """Evaluated points in the unit cube; regions have the whole axis of a choice, so choices count as equal."""
    U, coding = belief.domain.to_unit(belief.X), situation.coded_by
    return U if coding is None else coding.without_choices(U)


def _seen(belief: AdditiveGP, situation: JointSituation) -> Float[np.ndarray, " t"]:
    """Posterior means of evaluations in use: with noisy outcomes, a trust region would wait to beat noise."""
    seen = belief.eligible & ~situation.history.awaited.any(axis=1)
    # NaN marks unknown and pending outcomes, which are not failures of the region
    return np.where(seen, belief.posterior_mean(belief.X) if seen.any() else belief.totals, np.nan)


def _patient(box: TrustRegion, patience: int) -> TrustRegion:
    return msgspec.structs.replace(box, failures=patience * box.failures)


def _patience(noise_variance: float) -> int:
    return _PATIENCE if noise_variance > transforms.NOISY else 1


def _is_turn_of_draw(situation: JointSituation, model: Model) -> bool:
    """True if it is a draw's turn to search one noisy factor that is not split, as a few outcomes tell little."""
    hyper = model.belief.hyperparameters
    is_noisy = hyper.noise_variances[0] > transforms.VERY_NOISY and not model.learned.is_exact
    turn = situation.n_asked // max(len(model.learned.candidates), 1)  # all models that alternate are drawn
    may_draw = (kernel := hyper.kernels[0]) in KERNEL_NAMES or own_kernel(kernel).frequencies is not None
    return is_noisy and turn % _PERIOD == 0 and may_draw


def is_shared(graph: FactorGraph) -> bool:
    """True if factors share variables, constraints or limits: a gain of one may then be a loss of another."""
    return any(len(part.factors) > 1 for part in graph.components)


def _is_time_to_combine(situation: JointSituation) -> bool:
    """True if it is time to evaluate the best values of all parts together, which were evaluated separately."""
    # This adds no information, so it happens in the last round, or, without a horizon, whenever the evaluations have
    # grown by half. Agents of one part of the graph compute the same result.
    if situation.outcomes != "per-factor" or len(situation.graph.components) == 1:
        return False
    if situation.horizon is not None:
        return situation.round == situation.horizon
    n, next_time = len(situation.history) + len(situation.pending) + 1, float(situation.initial)
    while next_time < n:
        next_time = math.ceil(_COMBINE_GROWTH * next_time)
    return next_time == n > situation.initial


def _is_last_batch(situation: JointSituation) -> bool:
    """True if no later decision will know this outcome: the batch, or asynchronous workers, take all rounds left."""
    basis, horizon = situation.basis(), situation.horizon
    if horizon is None or situation.round > horizon or not len(basis):
        return False
    left, n_older = horizon - situation.round + 1, len(situation.out.points) - situation.n_batched
    size = int((basis == basis[-1]).sum())  # a batch is assumed to be as large as the last one
    return left + situation.n_batched <= size or (n_older > 0 and left <= 1 + n_older)


def _is_by_factor(situation: JointSituation) -> bool:
    return situation.outcomes == "per-factor" or len(situation.graph.factors) == 1
