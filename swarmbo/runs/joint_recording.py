"""What the log says of a joint point, and of what a team with a factor graph believes."""

import math

import numpy as np
from msgspec import UNSET

from swarmbo.belief.model import Model
from swarmbo.records import Evaluation
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld, Infos


def evaluation_of(team: Team, infos: Infos) -> Evaluation | None:
    """The joint point of a round and its outcome.

    Args:
        team: In its world, after it learned from the round.
        infos: What ``env.step`` returned.

    Returns:
        None for a team in a field or in no world, or that was not asked yet. Where a factor failed, so did the sum.
    """
    world, query = team.world, team.last_query
    if not isinstance(world, FunctionWorld) or query is None:
        return None
    point, outcome = world.point(infos), world.outcome(infos)
    if point is not None and not team.problem.has_point(point):  # nothing can have been measured there
        point, outcome = None, dict[str, float | None]() if isinstance(outcome, dict) else None
    place = world.place(query.point if point is None else point)
    told = world.noise_std(infos)
    noise = UNSET if told == {} or told != told else told  # a NaN is not equal to itself
    if not isinstance(outcome, dict):
        return Evaluation(place, outcome, mean=query.mean, std=query.std, noise_std=noise)
    factors = {factor: outcome.get(factor) for factor in team.graph.factors}
    known = [value for value in factors.values() if value is not None]
    total = math.fsum(known) if len(known) == len(factors) else None
    return Evaluation(place, total, factors, query.mean, query.std, noise)


def noise_std_of(model: Model) -> float:
    """Standard deviation of an outcome's noise as believed; of a transformed outcome, at the best one."""
    h, warps = model.belief.hyperparameters, model.factor_warps
    if model.belief.is_coupled:
        variance = h.total_noise_variance * h.scales[0] ** 2
        at = model.warp.forward(np.array([model.warp.best]))
        return float(model.warp.marginals(at, np.array([variance]))[1][0])
    variances = [variance * scale**2 for variance, scale in zip(h.noise_variances, h.scales, strict=True)]
    if warps:
        best = [warp.forward(np.array([warp.best])) for warp in warps]
        stds = [w.marginals(z, np.array([v]))[1][0] for w, z, v in zip(warps, best, variances, strict=True)]
        variances = [std**2 for std in stds]
    return math.sqrt(math.fsum(variances))
