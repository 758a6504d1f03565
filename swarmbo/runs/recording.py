"""One line of the log: what the world answered and what the team made of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from jaxtyping import Float
from msgspec import UNSET, UnsetType

from swarmbo.belief import means_by_agent
from swarmbo.belief.fusion import FusedBelief
from swarmbo.belief.model import Model
from swarmbo.metrics import score_round
from swarmbo.records import Evaluation, GroundTruth, LinkReport, Recommendation, RoundRecord, Sample
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld, Infos, Report


def record_reset(team: Team, infos: Infos, truth: GroundTruth | None) -> RoundRecord:
    """Round 0: the measurements at reset, of agents that made one.

    Args:
        team: After it learned from them.
        infos: What ``env.reset`` returned.
        truth: The world's, where it tells.
    """
    measured = [agent for agent in team.agents if Report.of(infos.get(agent, {})).is_placed]
    samples = [_sample(agent, infos[agent], None, None, (None, None)) for agent in measured]
    record = RoundRecord(round=0, samples=samples, sharing=team.last_sharing, sharing_links=_sharing_links(team))
    return _complete(None, team, truth, record)


def _sharing_links(team: Team) -> LinkReport | UnsetType:
    return UNSET if team.sharing_links is None else team.sharing_links


def record_round(
    previous: RoundRecord,
    team: Team,
    actions: Mapping[str, np.ndarray],
    infos: Infos,
    links: list[tuple[str, str]],
    truth: GroundTruth | None,
) -> RoundRecord:
    """A round after the measurements were learned.

    Args:
        previous: The round before, which says what was best so far.
        team: After it learned from them.
        actions: Where each agent was told to measure, or its part of the joint point.
        infos: What ``env.step`` returned; an agent that is missing has failed, and stays where it was.
        links: Who heard whom when the round was decided.
        truth: The world's, where it tells; that of any round.
    """
    before = {sample.agent: sample.location for sample in previous.samples}
    samples: list[Sample] = []
    for agent in team.agents:
        target = actions[agent].tolist() if agent in actions else None
        place = target if agent in infos and target is not None else before.get(agent, target)
        if place is not None:
            samples.append(_sample(agent, infos.get(agent, {}), target, place, _prediction(team, agent)))
    record = RoundRecord(
        round=previous.round + 1,
        samples=samples,
        query=None if team.last_query is None else team.last_query.id,
        report=team.last_report,
        sharing=team.last_sharing,
        sharing_links=_sharing_links(team),
        links=links,
        joint=evaluation_of(team, infos),
        source=next((source for info in infos.values() if (source := Report.of(info).source) is not None), None),
    )
    return _complete(previous, team, truth, record)


def _prediction(team: Team, agent: str) -> tuple[float | None, float | None]:
    query = team.last_query
    return (None, None) if query is None else (query.means.get(agent), query.stds.get(agent))


def _sample(
    agent: str,
    info: Mapping[str, Any],
    target: list[float] | None,
    place: list[float] | None,
    prediction: tuple[float | None, float | None],
) -> Sample:
    told = Report.of(info)
    return Sample(
        agent=agent,
        location=(place or []) if told.place is None else told.place.tolist(),
        measurement=told.outcome if math.isfinite(told.outcome) else None,
        target=target,
        distance=told.distance,
        cost=told.cost,
        mean=prediction[0],
        std=prediction[1],
        declined=told.declined,
        noise_std=UNSET if math.isnan(told.noise_std) else told.noise_std,
        on_the_way=[_stop(stop) for stop in told.on_the_way] or UNSET,
        path=UNSET if told.path is None else told.path.tolist(),
        battery=UNSET if math.isnan(told.battery) else told.battery,
        failure=UNSET if told.failure is None else told.failure,
    )


def _stop(told: Report) -> Evaluation:
    assert told.place is not None
    measurement = told.outcome if math.isfinite(told.outcome) else None
    noise = UNSET if measurement is None or math.isnan(told.noise_std) else told.noise_std
    return Evaluation(told.place.tolist(), measurement, noise_std=noise)


@dataclass(frozen=True)
class _Believed:
    """What the team believes after a round.

    Args:
        noise_std: Standard deviation of one measurement's noise.
        hyperparameters: Enough to rebuild the belief from the samples so far.
        recommendation: Where it holds the maximum to be.
        mean: What it expects at the truth's evaluation points (m,); None for joint points, of which there is no map.
        means: What each agent expects there, where each has a belief of its own.
    """

    noise_std: float
    hyperparameters: dict[str, Any] | None
    recommendation: Recommendation | None = None
    mean: Float[np.ndarray, " m"] | None = None
    means: dict[str, Float[np.ndarray, " m"]] | None = None


def _believed(team: Team, truth: GroundTruth | None) -> _Believed:
    if team.problem.is_field:
        belief = team.belief
        noise_std, hyperparameters = math.sqrt(belief.noise_variance), msgspec.to_builtins(belief.hyperparameters)
        if not belief.n_data:
            return _Believed(noise_std, hyperparameters)
        recommendation = team.recommend()
        if truth is None:
            return _Believed(noise_std, hyperparameters, recommendation)
        if isinstance(belief, FusedBelief):
            views = belief.views
            means = means_by_agent(views, truth.points)
            return _Believed(noise_std, hyperparameters, recommendation, means[views.representative], means)
        return _Believed(noise_std, hyperparameters, recommendation, belief.posterior(truth.points)[0])
    found, world = team.recommend(), team.world
    if found is None or found.point is None or not isinstance(world, FunctionWorld):
        return _Believed(0.0, None)
    place = Recommendation(world.place(found.point), found.mean, found.std)
    return _Believed(noise_std_of(team.model), msgspec.to_builtins(team.model.learned), place)


def _complete(previous: RoundRecord | None, team: Team, truth: GroundTruth | None, record: RoundRecord) -> RoundRecord:
    truth = None if truth is None else truth.at(record.round)
    believed, evaluations = _believed(team, truth), record.evaluations
    recommendation = believed.recommendation
    return msgspec.structs.replace(
        record,
        best=_best(None if previous is None else previous.best, evaluations, believed.noise_std),
        recommendation=recommendation,
        hyperparameters=believed.hyperparameters,
        score=None
        if truth is None
        else score_round(
            truth,
            previous,
            record.asked,
            recommendation,
            believed.mean,
            believed.means,
            on_the_way=evaluations[len(record.asked) :],
        ),
    )


def _best(so_far: Recommendation | None, evaluations: Sequence[Evaluation], noise_std: float) -> Recommendation | None:
    """The largest measurement and where; its standard deviation is that of its noise, as told or as believed."""
    for evaluation in evaluations:
        value = evaluation.measurement
        if value is not None and (so_far is None or value > so_far.mean):
            known = evaluation.known_noise
            so_far = Recommendation(evaluation.location, value, noise_std if math.isnan(known) else known)
    return so_far


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
