"""The default: what a newcomer gets."""

import math
from dataclasses import replace

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.contrast_bounds import ContrastBounds
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.acquisition.fixed_point import FixedPoint
from swarmbo.acquisition.groupings import graph_of_groups
from swarmbo.acquisition.incumbents import incumbent, starting_points
from swarmbo.acquisition.joint_situation import History, JointSituation
from swarmbo.acquisition.model import JointAcquisition, Learned, Model, learned_belief
from swarmbo.acquisition.thompson import SampledFunctions
from swarmbo.acquisition.trust_box import BoxState, TrustBox, box_around
from swarmbo.belief.additive import AdditiveGP
from swarmbo.belief.additive_settings import AdditiveGPSettings
from swarmbo.belief.warping import Warp, WarpKind
from swarmbo.graph import FactorGraph
from swarmbo.rng import stream
from swarmbo.settings import require

_WARPS: tuple[tuple[WarpKind, float], ...] = (("none", 1.0), ("power", 0.5), ("power", 0.25), ("log", 1.0))


class Auto(JointAcquisition, frozen=True, tag="auto"):
    """Outcomes made easier to model, a trust box around the incumbent, and a rule that suits what is observed.

    | what is observed | outcomes modelled | rule | box |
    |---|---|---|---|
    | totals of several factors | their square root below the best | by turns a joint posterior draw and a confidence \
bound on the difference to the incumbent | one for all |
    | totals of one factor | none, root, fourth root or logarithm, by evidence | log expected improvement | one, with \
restarts |
    | outcomes by factor | their logarithm below the best | log expected improvement of each factor | one per factor |
    | totals, structure unknown | as they are | draw and bound by turns, on one factor per variable | none |

    Every rule is a sum over factors, so agents agree on it by messages like on any other. Beyond those of the agreement
    it costs what the papers' methods cost: outcomes are told to whoever models them; a draw needs one number per
    evaluation from each factor to all others, which is counted with them. Boxes, incumbents and restarts are worked out
    by every agent from the history alone, so they cost nothing, and nothing of them needs saving.

    Args:
        box: How trust boxes react; restarts are used with one factor only.
        restart_after: With one factor, start over after this many evaluations without a gain, >= 1; 0 never does.
        weight: Of the standard deviation in confidence bounds, times sqrt(log 2t), >= 0.
        weight_unknown: The same where the structure is unknown.
        n_features: Random features of each factor's prior draw, an even number >= 2.
    """

    box: TrustBox = msgspec.field(default_factory=TrustBox)
    restart_after: int = 12
    weight: float = 0.05
    weight_unknown: float = 0.22
    n_features: int = 512

    def __post_init__(self) -> None:
        require(self, "restart_after", lambda v: v >= 0, "an integer >= 0")
        require(self, "weight", lambda v: v >= 0.0, "a number >= 0")
        require(self, "weight_unknown", lambda v: v >= 0.0, "a number >= 0")
        require(self, "n_features", lambda v: v >= 2 and v % 2 == 0, "an even number >= 2")

    def learn(self, situation: JointSituation, belief_settings: AdditiveGPSettings, previous: Learned | None) -> Model:
        """The model of transformed outcomes, of the evaluations that are in use."""
        graph, history = _graph_in_use(situation), situation.history
        if situation.outcomes == "per-factor" and graph is situation.graph:
            warps = tuple(Warp.fitted("log", column) for column in history.factors.T)
            columns = [warp.forward(column) for warp, column in zip(warps, history.factors.T, strict=True)]
            warped = History(
                history.X, np.full(len(history), np.nan), np.array(columns).T.reshape(history.factors.shape)
            )
            belief, learned = learned_belief(situation, graph, warped, belief_settings, previous)
            return Model(belief.condition_on_pending(situation.pending), learned, factor_warps=warps)
        first = self._state(situation).first if len(graph.factors) == 1 else 0
        used = History(history.X[first:], history.totals[first:], history.factors[first:])
        if len(graph.factors) == 1:
            return self._one_factor(situation, graph, used, belief_settings, previous)
        warp = Warp() if situation.structure == "unknown" else Warp.fitted("power", used.totals, 0.5)
        belief, learned = learned_belief(situation, graph, _warped(used, warp), belief_settings, previous)
        return Model(belief.condition_on_pending(situation.pending), learned, warp)

    def _one_factor(
        self,
        situation: JointSituation,
        graph: FactorGraph,
        used: History,
        settings: AdditiveGPSettings,
        previous: Learned | None,
    ) -> Model:
        """One factor is cheap to fit: the transform with the largest evidence, chosen whenever a fit is due."""
        n = len(situation.history)
        is_due = previous is None or not previous.fitted_at or n - previous.fitted_at >= settings.refit_every
        if not is_due and previous is not None:
            warp = Warp.fitted(previous.warp_kind, used.totals, previous.warp_power)
            belief, learned = learned_belief(situation, graph, _warped(used, warp), settings, previous)
            return Model(belief.condition_on_pending(situation.pending), learned, warp)
        best: tuple[float, AdditiveGP, Learned, Warp] | None = None
        for kind, power in _WARPS:
            warp = Warp.fitted(kind, used.totals, power)
            belief, learned = learned_belief(situation, graph, _warped(used, warp), settings, None)
            learned = msgspec.structs.replace(learned, warp_kind=kind, warp_power=power)
            evidence = _evidence(belief, used.totals, warp)
            if best is None or evidence > best[0]:
                best = evidence, belief, learned, warp
        assert best is not None
        return Model(best[1].condition_on_pending(situation.pending), best[2], best[3])

    def local_functions(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """What agents maximise in this round."""
        belief, n = model.belief, model.belief.domain.n_dims
        graph, t = belief.graph, len(situation.history)
        if situation.structure == "unknown" and len(graph.factors) > 1:
            low, high = np.zeros(n), np.ones(n)
            return self._by_turns(situation, belief, low, high, self.weight_unknown)
        centre = incumbent(belief)
        if situation.outcomes == "per-factor":
            low, high = self._boxes_by_factor(situation, centre)
        else:
            state = self._state(situation)
            if state.n_fresh > 0:
                place = stream(situation.seed, "restart", evaluations=t, pending=len(situation.pending)).random(n)
                return FixedPoint.at(graph, place)
            low, high = box_around(centre, state.side)
            if len(graph.factors) > 1:
                return self._by_turns(situation, belief, low, high, self.weight)
        starts = starting_points(belief, low, high)
        return LogImprovements(graph=graph, low=low, high=high, starts=starts, belief=belief, reference=centre)

    def _by_turns(
        self,
        situation: JointSituation,
        belief: AdditiveGP,
        low: Float[np.ndarray, " n"],
        high: Float[np.ndarray, " n"],
        weight: float,
    ) -> BoxFunctions:
        t, p = len(situation.history), len(situation.pending)
        starts = starting_points(belief, low, high)
        if (t + p) % 2:
            reference, scaled = incumbent(belief), weight * math.sqrt(math.log(2 * max(t, 1)))
            return ContrastBounds(
                graph=belief.graph,
                low=low,
                high=high,
                starts=starts,
                belief=belief,
                reference=reference,
                weight=scaled,
            )
        when = {"evaluations": t, "pending": p}
        rngs = {factor: stream(situation.seed, "auto draw", factor=factor, **when) for factor in belief.graph.factors}
        sample = belief.sample(rngs, stream(situation.seed, "auto draw", "noise", **when), self.n_features)
        return SampledFunctions(graph=belief.graph, low=low, high=high, starts=starts, sample=sample)

    def _state(self, situation: JointSituation) -> BoxState:
        restarts = self.restart_after if len(situation.graph.factors) == 1 else 0
        box = msgspec.structs.replace(self.box, restart_after=restarts)
        return box.replay(situation.history.totals, situation.initial)

    def _boxes_by_factor(
        self, situation: JointSituation, centre: Float[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """A box per factor around the incumbent; a shared variable gets the widest of its factors' sides."""
        graph, n = situation.graph, situation.domain.n_dims
        place = {variable: j for j, variable in enumerate(graph.variables)}
        sides = np.zeros(n)
        for i, factor in enumerate(graph.factors):
            side = self.box.replay(situation.history.factors[:, i], situation.initial).side
            columns = [place[variable] for variable in graph.scope(factor)]
            sides[columns] = np.maximum(sides[columns], side)
        return np.clip(centre - sides / 2.0, 0.0, 1.0), np.clip(centre + sides / 2.0, 0.0, 1.0)


def _graph_in_use(situation: JointSituation) -> FactorGraph:
    if situation.structure == "known":
        return situation.graph
    return graph_of_groups(situation.graph, [(variable,) for variable in situation.graph.variables])


def _warped(history: History, warp: Warp) -> History:
    return replace(history, totals=warp.forward(history.totals), factors=np.full_like(history.factors, np.nan))


def _evidence(belief: AdditiveGP, totals: Float[np.ndarray, " t"], warp: Warp) -> float:
    """Log density of the outcomes themselves, up to what all transforms share."""
    seen = totals[np.isfinite(totals)]
    scale = belief.hyperparameters.scales[0]
    return belief.log_evidence() - len(seen) * math.log(scale) + float(warp.log_slope(seen).sum())
