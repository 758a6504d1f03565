"""One Gaussian process over all variables, with one lengthscale."""

import math
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float

from swarmbo.acquisition.box_functions import BoxFunctions
from swarmbo.acquisition.confidence_bounds import ContrastBounds
from swarmbo.acquisition.penalties import bounded, gone_back, is_met, spreads
from swarmbo.acquisition.trust_region import TrustRegion, box_around
from swarmbo.baselines.drawn import n_asked, seen_totals
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.incumbents import incumbent, starting_points
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.model import in_structure
from swarmbo.belief.model.structure import LearnedStructure
from swarmbo.belief.model.success import reference, requirements
from swarmbo.belief.model.warping import Warp, WarpKind
from swarmbo.boundary.rng import stream
from swarmbo.coordination.box_steps import ascend
from swarmbo.graph import stacks_of
from swarmbo.records import SolveReport
from swarmbo.registry import FUNCTION, kind
from swarmbo.settings import AtOnce, NonNegative, Settings, Whole


@kind("coordination", FUNCTION)
class IsotropicGP(Settings, frozen=True, tag_field="kind", tag="isotropic-gp"):
    """Centralised reference without factors, strong on bowl-shaped functions.

    A Matern-5/2 process with a single lengthscale is fitted to transformed outcomes for each decision. The confidence
    bound on the difference to the incumbent is mean + scale sqrt(0.2 n log 2t) std. It is maximised in a trust region
    around the incumbent, by ascent from the best of random points. It cannot be split between agents. After failed
    evaluations it is bounded like every acquisition; a failed factor counts as a failed evaluation.

    Args:
        exploration_scale: Factor on the square root of beta, >= 0.
        warp: Transform of outcomes; ``power`` is the square root below the best.
        box: Settings of the trust region.
        raw_samples: Random points that starts are chosen from, >= 1.
        starts: Starting points of ascents, >= 1.
        steps: Steps of the ascent, >= 0.

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
        """Maximise the bound in the trust region; the team's acquisition is not used."""
        n, report = situation.domain.n_dims, SolveReport(status="not_needed")
        rng = stream(situation.seed, "isotropic baseline", evaluations=n_asked(situation))
        U, y = seen_totals(situation)
        whole = in_structure(situation, LearnedStructure(scopes=(tuple(range(n)),), shares=(), chosen_at=0, state=()))
        side = self.box.side(y, steps=situation.steps(), basis=situation.basis())
        U, y = U[np.isfinite(y)], y[np.isfinite(y)]
        if not len(y):
            return rng.random(n), report
        graph = whole.graph
        belief = AdditiveGP.create(AdditiveGPSettings(lengthscales="shared"), graph, situation.domain)
        z = Warp.fitted(self.warp, y).forward(y)
        belief = belief.update(situation.domain.from_unit(U), z).fit(rng).condition_on_pending(situation.out.points)
        centre = incumbent(belief)
        low, high = box_around(centre, side)
        weight = self.exploration_scale * math.sqrt(0.2 * math.log(2 * len(y)))
        starts = starting_points(belief, low, high)
        bound: BoxFunctions = ContrastBounds(
            graph=graph, low=low, high=high, starts=starts, belief=belief, reference=centre, weight=weight
        )
        needed = requirements(whole)
        origin = reference(whole, needed, centre) if needed else centre
        if needed:
            bound = bounded(bound, needed, origin, spreads(bound, situation.seed))
        (stack,) = stacks_of(graph)
        raw = np.concatenate([bound.starts, low + rng.random((self.raw_samples, n)) * (high - low)])
        best = np.argsort(-bound.value(stack, raw[None], ())[0], kind="stable")[: self.starts]
        ends = low[None, None], high[None, None]
        climbed, values, _ = ascend(
            lambda X: bound.value_and_gradient(stack, X, ()), raw[None, best], *ends, self.steps
        )
        point = climbed[0, int(values[0].argmax())]
        return point if not needed or is_met(needed, point, origin) else gone_back(needed, point, origin), report
