"""One line of the log: what the world answered and what the team made of it."""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from swarmbo.metrics import score_round
from swarmbo.records import GroundTruth, Recommendation, RoundRecord, Sample
from swarmbo.team import Team

Infos = Mapping[str, Mapping[str, Any]]


def record_reset(team: Team, infos: Infos, truth: GroundTruth | None) -> RoundRecord:
    """Round 0: the measurements at reset, of agents that made one.

    Args:
        team: After it learned from them.
        infos: What ``env.reset`` returned.
        truth: The world's, where it tells.
    """
    measured = [agent for agent in team.agents if "location" in infos.get(agent, {})]
    samples = [_sample(agent, infos[agent], None, None, (None, None)) for agent in measured]
    return _complete(None, team, truth, RoundRecord(round=0, samples=samples, sharing=team.last_sharing))


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
        actions: Where each agent was told to measure.
        infos: What ``env.step`` returned; an agent that is missing has failed, and stays where it was.
        links: Who heard whom when the round was decided.
        truth: The world's, where it tells.
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
        links=links,
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
    location = [float(x) for x in np.asarray(info["location"], dtype=float)] if "location" in info else (place or [])
    value = float(info.get("measurement", math.nan))
    return Sample(
        agent=agent,
        location=location,
        measurement=value if math.isfinite(value) else None,
        target=target,
        distance=float(info.get("distance", 0.0)),
        cost=float(info.get("cost", 0.0)),
        mean=prediction[0],
        std=prediction[1],
    )


def _complete(previous: RoundRecord | None, team: Team, truth: GroundTruth | None, record: RoundRecord) -> RoundRecord:
    has_data = team.belief.n_data > 0
    recommendation = team.recommend() if has_data else None
    mean = team.belief.posterior(truth.points)[0] if truth is not None and has_data else None
    return msgspec.structs.replace(
        record,
        best=_best(None if previous is None else previous.best, record.samples, math.sqrt(team.belief.noise_variance)),
        recommendation=recommendation,
        hyperparameters=msgspec.to_builtins(team.belief.hyperparameters),
        score=None if truth is None else score_round(truth, previous, record.samples, recommendation, mean),
    )


def _best(so_far: Recommendation | None, samples: list[Sample], noise_std: float) -> Recommendation | None:
    """The largest measurement and where; its standard deviation is that of one measurement's noise, as believed."""
    for sample in samples:
        if sample.measurement is not None and (so_far is None or sample.measurement > so_far.mean):
            so_far = Recommendation(sample.location, sample.measurement, noise_std)
    return so_far
