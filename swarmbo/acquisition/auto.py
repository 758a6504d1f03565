"""The default: what a newcomer gets."""

import math

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.contrast_bounds import ContrastBounds
from swarmbo.acquisition.expected_improvement import LogImprovements
from swarmbo.acquisition.fixed_point import FixedPoint
from swarmbo.acquisition.incumbents import incumbent, starting_points
from swarmbo.acquisition.joint_situation import JointSituation
from swarmbo.acquisition.model import JointAcquisition, Learned, Model
from swarmbo.acquisition.splitting import SplitImprovements, split_graph
from swarmbo.acquisition.thompson import SampledFunctions
from swarmbo.acquisition.transforms import learn_factors, learn_totals
from swarmbo.acquisition.trust_box import BoxState, TrustBox, box_around
from swarmbo.belief.additive_settings import AdditiveGPSettings
from swarmbo.rng import stream
from swarmbo.settings import require

_BOLDER = 4.0  # bounds alone need more of the standard deviation than beside draws


class Auto(JointAcquisition, frozen=True, tag="auto"):
    """Outcomes made easier to model, a trust box around the incumbent, and a rule that suits what is observed.

    | what is observed | models, chosen by evidence | rule | box |
    |---|---|---|---|
    | totals of several factors | outcomes as they are | confidence bounds on differences to the incumbent | one |
    | | a root of the distance below the best | by turns a joint posterior draw and such bounds | one |
    | factors by themselves | as they are, root, fourth root, logarithm | log expected improvement | one per factor |
    | | a sum over the factor's variables | the same, variable by variable | none |

    One factor of which totals are told is observed by itself; so is a function whose structure is not known. Its box
    starts over when it no longer gains. A factor is split into its variables only if it shares none of them.

    Every rule is a sum over factors, so agents agree on it by messages like on any other. Beyond those of the agreement
    it costs what the papers' methods cost: outcomes are told to whoever models them; a draw needs one number per
    evaluation from each factor to all others, which is counted with them. Boxes, incumbents, restarts, transforms and
    splits are worked out by every agent from the history alone, so they cost nothing.

    Args:
        box: How trust boxes react; restarts are used with one factor only.
        restart_after: With one factor, start over after this many evaluations without a gain, >= 1; 0 never does.
        weight: Of the standard deviation in confidence bounds, times sqrt(d log 2t) for a factor of d variables, >= 0;
            bounds that do not take turns with draws have four times as much.
        n_features: Random features of each factor's prior draw, an even number >= 2.
    """

    box: TrustBox = msgspec.field(default_factory=TrustBox)
    restart_after: int = 12
    weight: float = 0.05
    n_features: int = 512

    def __post_init__(self) -> None:
        require(self, "restart_after", lambda v: v >= 0, "an integer >= 0")
        require(self, "weight", lambda v: v >= 0.0, "a number >= 0")
        require(self, "n_features", lambda v: v >= 2 and v % 2 == 0, "an even number >= 2")

    def learn(self, situation: JointSituation, belief_settings: AdditiveGPSettings, previous: Learned | None) -> Model:
        """The model of transformed outcomes, of the evaluations that are in use."""
        if not _is_by_factor(situation):
            return learn_totals(situation, belief_settings, previous)
        is_split = previous is not None and bool(previous.splits)
        first = 0 if is_split else self._state(situation).first
        return learn_factors(situation, belief_settings, previous, first)

    def local_functions(self, situation: JointSituation, model: Model) -> BoxFunctions:
        """What agents maximise in this round."""
        if _is_by_factor(situation):
            return self._improvements(situation, model)
        belief = model.belief
        low, high = box_around(incumbent(belief), self._state(situation).side)
        t, p = len(situation.history), len(situation.pending)
        starts = starting_points(belief, low, high)
        by_turns = model.warp.kind != "none"
        if by_turns and (t + p) % 2 == 0:
            when = {"evaluations": t, "pending": p}
            rngs = {f: stream(situation.seed, "auto draw", factor=f, **when) for f in belief.graph.factors}
            sample = belief.sample(rngs, stream(situation.seed, "auto draw", "noise", **when), self.n_features)
            return SampledFunctions(graph=belief.graph, low=low, high=high, starts=starts, sample=sample)
        weight = self.weight * (1.0 if by_turns else _BOLDER) * math.sqrt(math.log(2 * max(t, 1)))
        return ContrastBounds(
            graph=belief.graph,
            low=low,
            high=high,
            starts=starts,
            belief=belief,
            reference=incumbent(belief),
            weight=weight,
        )

    def _improvements(self, situation: JointSituation, model: Model) -> BoxFunctions:
        belief, graph = model.belief, situation.graph
        centre, columns = model.incumbent(), dict(zip(graph.factors, map(list, belief.scopes), strict=True))
        if len(graph.factors) == 1:
            state = self._state(situation)
            if state.n_fresh > 0 and not model.splits:
                when = {"evaluations": len(situation.history), "pending": len(situation.pending)}
                return FixedPoint.at(graph, stream(situation.seed, "restart", **when).random(len(graph.variables)))
            low, high = box_around(centre, state.side)
        else:
            low, high = self._boxes_by_factor(situation, centre)
        for factor in model.splits:
            low[columns[factor]], high[columns[factor]] = 0.0, 1.0
        starts = starting_points(belief, low, high)
        if not len(starts):
            starts = np.clip(centre, low, high)[None]
        whole = LogImprovements(graph=graph, low=low, high=high, starts=starts, belief=belief, reference=centre)
        if not model.splits:
            return whole
        parts = dict[str, LogImprovements]()
        for factor, split in model.splits.items():
            own = columns[factor]
            parts[factor] = LogImprovements.on_cube(split, reference=centre[own])
            best = parts[factor].starts
            starts[:, own] = best[np.arange(len(starts)) % len(best)]
        divided = split_graph(graph, model.splits, shared_outcomes=situation.outcomes == "total")
        return SplitImprovements(graph=divided, low=low, high=high, starts=starts, whole=whole, parts=parts)

    def _state(self, situation: JointSituation) -> BoxState:
        restarts = self.restart_after if len(situation.graph.factors) == 1 else 0
        outcomes = situation.history.totals
        if len(situation.graph.factors) == 1:
            outcomes = np.where(np.isfinite(outcomes), outcomes, situation.history.factors[:, 0])
        box = msgspec.structs.replace(self.box, restart_after=restarts)
        return box.replay(outcomes, situation.initial)

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


def _is_by_factor(situation: JointSituation) -> bool:
    return situation.outcomes == "per-factor" or len(situation.graph.factors) == 1
