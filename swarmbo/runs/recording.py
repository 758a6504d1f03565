"""Records of a run in progress: one line of the log for each round, and the final summary."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from swarmbo import metrics
from swarmbo.belief import means_by_agent
from swarmbo.belief.fusion import FusedBelief
from swarmbo.belief.model import Model
from swarmbo.boundary.values import reported_number, short
from swarmbo.evaluations import Event
from swarmbo.records import TRUE_MAXIMUM, Evaluation, GroundTruth, Labels, Query, Recommendation, RoundRecord, Sample
from swarmbo.runs.report import CENTRALISED, THIS_RUN, Summary
from swarmbo.runs.scenario import Scenario
from swarmbo.team import Team
from swarmbo.worlds import FunctionWorld, Infos, Report

_Location = list[float] | None


def record_reset(team: Team, infos: Infos, truth: GroundTruth | None) -> RoundRecord:
    """Round 0: measurements at reset, after the team learned them."""
    box = team.problem.box if team.problem.is_field else None
    reports = {agent: Report.of(infos.get(agent, {}), box) for agent in team.agents}
    samples = [_sample(agent, report) for agent, report in reports.items() if report.is_placed]
    record = RoundRecord(round=0, samples=samples, sharing=team.last_sharing, sharing_links=team.sharing_links or UNSET)
    return _completed(None, team, truth, record)


def record_round(
    previous: RoundRecord,
    team: Team,
    actions: Mapping[str, Any],
    infos: Infos,
    links: list[tuple[str, str]],
    truth: GroundTruth | None,
    ask: tuple[Query, Event] | None = None,
) -> RoundRecord:
    """Record of a round after the team learned its measurements; ``ask``: query and event, by default the last."""
    if ask is None:
        query, report, sharing = team.last_query, team.last_report, team.last_sharing
    else:
        query, report, sharing = ask[0], ask[1].report, ask[1].sharing
    world, box = team.world, team.problem.box if team.problem.is_field else None
    earlier_locations = {sample.agent: sample.location for sample in previous.samples}
    samples: list[Sample] = []
    for agent in team.agents:
        info = infos.get(agent) or {}
        if isinstance(world, FunctionWorld):
            target = world.coded(agent, actions[agent]) if agent in actions else None
            stated = info.get("location")
            info = {**info, "location": world.coded(agent, stated)}
            if stated is not None and info["location"] is None:
                wrong = f"location: got {short(stated)}; wanted the form of an action"
                info |= {"measurement": None, "failure": info.get("failure", wrong)}
        else:
            target = actions[agent].tolist() if agent in actions else None
        stop = target if box is None or target is None else target[: box.n_dims]  # without the choice to measure
        place = stop if agent in infos and stop is not None else earlier_locations.get(agent, stop)
        own = Report.of(info, box)
        if not infos and box is not None and query is not None and agent in actions and agent not in query.points:
            own = own._replace(declined=True)
        if place is not None:
            samples.append(_sample(agent, own, target, place, query))
    record = RoundRecord(
        round=previous.round + 1,
        samples=samples,
        query=None if query is None else query.id,
        report=report,
        sharing=sharing,
        sharing_links=team.sharing_links or UNSET,
        links=links,
        joint=evaluation_of(team, infos, query),
        source=next((source for info in infos.values() if (source := Report.of(info).source) is not None), None),
    )
    return _completed(previous, team, truth, record)


def _sample(
    agent: str, report: Report, target: _Location = None, assumed_place: _Location = None, query: Query | None = None
) -> Sample:
    return Sample(
        agent=agent,
        location=(assumed_place or []) if report.place is None else report.place.tolist(),
        measurement=report.outcome if math.isfinite(report.outcome) else None,
        target=target,
        distance=report.distance,
        cost=report.cost,
        mean=None if query is None else query.means.get(agent),
        std=None if query is None else query.stds.get(agent),
        declined=report.declined,
        noise_std=UNSET if math.isnan(report.noise_std) else report.noise_std,
        on_the_way=[_en_route_evaluation(stop) for stop in report.on_the_way] or UNSET,
        path=UNSET if report.path is None else report.path.tolist(),
        battery=UNSET if math.isnan(report.battery) else report.battery,
        failure=UNSET if report.failure is None else report.failure,
    )


def _en_route_evaluation(report: Report) -> Evaluation:
    assert report.place is not None
    measurement = report.outcome if math.isfinite(report.outcome) else None
    noise_std = UNSET if measurement is None or math.isnan(report.noise_std) else report.noise_std
    return Evaluation(report.place.tolist(), measurement, noise_std=noise_std)


def _belief_summary(team: Team) -> tuple[float, dict[str, Any] | None, Recommendation | None]:
    if team.problem.is_field:
        belief = team.belief
        noise_std, hyperparameters = math.sqrt(belief.noise_variance), msgspec.to_builtins(belief.hyperparameters)
        return noise_std, hyperparameters, team.recommend() if belief.n_data else None
    found, world = team.recommend(), team.world
    if found is None or found.point is None or not isinstance(world, FunctionWorld):
        return 0.0, None, None
    place = world.place(found.point)
    place = Recommendation(place, found.mean, found.std, world.named(place) if world.is_typed else None)
    return noise_std_of(team.model), msgspec.to_builtins(team.model.learned), place


def _map_means(team: Team, truth: GroundTruth) -> tuple[np.ndarray | None, dict[str, np.ndarray] | None]:
    """Posterior means at the truth's points, (m,) each: the team's, and the mean of each agent with a local belief."""
    if not team.problem.is_field or not team.belief.n_data:
        return None, None
    if not isinstance(belief := team.belief, FusedBelief):
        return belief.posterior(truth.points)[0], None
    means = means_by_agent(belief.views, truth.points)
    return means[belief.views.representative], means


def _completed(previous: RoundRecord | None, team: Team, truth: GroundTruth | None, record: RoundRecord) -> RoundRecord:
    noise_std, hyperparameters, recommendation = _belief_summary(team)
    evaluations, asked, score = record.evaluations, record.asked, None
    if truth is not None:
        truth = truth.at(record.round)
        (mean, means), en_route = _map_means(team, truth), evaluations[len(asked) :]
        score = metrics.score_round(truth, previous, asked, recommendation, mean=mean, means=means, on_the_way=en_route)
    neglected = UNSET if previous is None else previous.neglected
    if neglected is UNSET and team.problem.is_field and hasattr(team.belief, "neglected"):
        neglected = team.belief.neglected() or UNSET  # None except by tiles; a user's belief may lack it
    return msgspec.structs.replace(
        record,
        best=_best(None if previous is None else previous.best, evaluations, noise_std),
        recommendation=recommendation,
        hyperparameters=hyperparameters,
        neglected=neglected,
        score=score,
    )


def _best(best: Recommendation | None, evaluations: Sequence[Evaluation], noise_std: float) -> Recommendation | None:
    """Largest measurement so far and its location; ``std`` is that of its noise, as reported or else as believed."""
    for evaluation in evaluations:
        value = evaluation.measurement
        if value is not None and (best is None or value > best.mean):
            noise = evaluation.known_noise
            std, point = noise_std if math.isnan(noise) else noise, evaluation.point
            best = Recommendation(evaluation.location, value, std, None if isinstance(point, UnsetType) else point)
    return best


def evaluation_of(team: Team, infos: Infos, query: Query | None) -> Evaluation | None:
    """Joint point of a query and its outcome; None in a field. The sum failed if a factor failed."""
    world = team.world
    if not isinstance(world, FunctionWorld) or query is None:
        return None
    point, outcome = world.point(infos, query.point), world.outcome(infos)
    # at a point outside the problem nothing can have been measured
    if point is not None and not team.problem.has_point(point):
        point, outcome = None, dict[str, float | None]() if isinstance(outcome, dict) else None
    place = world.place(query.point if point is None else point)
    noise_std = world.noise_std(infos)
    known_noise = UNSET if noise_std == {} or noise_std != noise_std else noise_std  # a NaN is not equal to itself
    values = world.named(place) if world.is_typed else UNSET
    if not isinstance(outcome, dict):
        return Evaluation(place, outcome, mean=query.mean, std=query.std, noise_std=known_noise, point=values)
    factors = {factor: outcome.get(factor) for factor in team.graph.factors}
    outcomes = [value for value in factors.values() if value is not None]
    total = math.fsum(outcomes) if len(outcomes) == len(factors) else None
    return Evaluation(place, total, factors, query.mean, query.std, known_noise, values)


def noise_std_of(model: Model) -> float:
    """Standard deviation of the noise of an outcome, as believed; for transformed outcomes, at the best outcome."""
    h, warps = model.belief.hyperparameters, model.factor_warps
    if model.belief.is_coupled:
        variances, warps = [h.total_noise_variance * h.scales[0] ** 2], [model.warp]
    else:
        variances = [variance * scale**2 for variance, scale in zip(h.noise_variances, h.scales, strict=True)]
    if warps:
        at_best = [warp.forward(np.array([warp.best])) for warp in warps]
        stds = [warp.marginals(z, np.array([v]))[1][0] for warp, z, v in zip(warps, at_best, variances, strict=True)]
        variances = [std**2 for std in stds]
    return math.sqrt(math.fsum(variances))


def find_references(
    scenario: Scenario, env: Any, team: Team, truth: GroundTruth | None, best: Recommendation | None
) -> tuple[dict[str, float], dict[str, dict[str, float]]]:
    """Best true value of each baseline within the scenario's rounds (none in a field), and least individual outcomes.

    Baselines need the world's ``references(budget, seed)``; the centralised process also needs a ground truth. Least
    outcomes need ``worst_off(place)``, those of heuristic baselines also ``reference_points(budget, seed)``. With
    no-go regions or constraints, which a world does not know, the centralised process is the only baseline.
    """
    values, places, world = dict[str, float](), dict[str, Any](), team.world
    if best is not None:
        places[THIS_RUN] = best.location
    if isinstance(world, FunctionWorld) and hasattr(env.unwrapped, "references"):
        budget = {"budget": scenario.rounds, "seed": scenario.seed}
        if not team.problem.regions:
            values = _finite_numbers(env.unwrapped.references(**budget))
            places |= env.unwrapped.reference_points(**budget) if hasattr(env.unwrapped, "reference_points") else {}
        if truth is not None:
            values[CENTRALISED], places[CENTRALISED] = _centralised(scenario, team, world, truth)
    if not hasattr(env.unwrapped, "worst_off"):
        return values, {}
    worst_off = {label: _finite_numbers(env.unwrapped.worst_off(place)) for label, place in places.items()}
    return values, {label: worst for label, worst in worst_off.items() if worst}


def _finite_numbers(table: Mapping[str, Any]) -> dict[str, float]:
    """Finite numbers of an environment's table as Python floats; other values, as after a failure, are left out."""
    return {label: number for label, value in table.items() if not math.isnan(number := reported_number(value))}


def _centralised(scenario: Scenario, team: Team, world: FunctionWorld, truth: GroundTruth) -> tuple[float, np.ndarray]:
    """Best value and location found with one isotropic Gaussian process that observes the true total of its points."""
    settings = {name: getattr(scenario, name) for name in ("seed", "rounds", "no_go", "constraints")}
    team = Team(None, team.problem.variables, coordination="isotropic-gp", **settings)
    best_value, best_place = -np.inf, np.zeros(0)
    for _ in range(scenario.rounds):
        query = team.ask()
        place = np.array(world.place(query.point))
        value = float(truth.value(place[None])[0])
        team.tell(query, value)
        best_value, best_place = (value, place) if value > best_value else (best_value, best_place)
    return best_value, best_place


def summarise(
    scenario: Scenario, records: Sequence[RoundRecord], labels: Labels, truth: GroundTruth | None, seconds: float
) -> Summary:
    """Summary of a run, with the parts that follow from its records."""
    last = records[-1]
    evaluations = [evaluation for record in records for evaluation in record.evaluations]
    succeeded = sum(evaluation.measurement is not None for evaluation in evaluations)
    late_rounds = math.ceil(last.round / 4)
    late_joints = [record.joint for record in records[1:][-late_rounds:] if record.joint is not None]
    late_outcomes = [joint.measurement for joint in late_joints if joint.measurement is not None]
    goal, moves = ("peak", False) if truth is None else (truth.goal, truth.at_round is not None)
    links = metrics.links_over_rounds(records)
    sharing_links = metrics.links_over_rounds(records, metrics.sharing_links_of)
    sources = [record.source for record in records if record.source is not None]
    first = sources[0] if sources else {}
    blocked = sum(record.report is not None and record.report.status == "blocked" for record in records)
    return Summary(
        name=scenario.name,
        seed=scenario.seed,
        rounds=last.round,
        measurements=succeeded,
        failures=len(evaluations) - succeeded,
        best=last.best,
        recommendation=last.recommendation,
        score=last.score,
        mean_regret=None if math.isnan(regret := metrics.mean_regret(records)) else regret,
        maximum=None if truth is None else float(truth.at(last.round).maximum),
        distance=metrics.distance_travelled(records),
        agreement=metrics.agreement_traffic(records),
        sharing=metrics.sharing_traffic(records),
        unit=labels.unit,
        axis_unit=labels.axis_unit,
        is_joint=any(record.joint is not None for record in records),
        source={key: value for key, value in first.items() if all(source.get(key) == value for source in sources)},
        declined=metrics.declined(records),
        cost=metrics.total_cost(records),
        late_mean=float(np.mean(late_outcomes)) if late_outcomes else None,
        late_rounds=late_rounds,
        goal=goal,
        moves=moves,
        maximum_is=TRUE_MAXIMUM if truth is None else truth.maximum_is,
        best_round=next((r.round for r in records if last.best is not None and r.best == last.best), None),
        at_reset=len(records[0].evaluations),
        failed_rounds=sum(record.failure is not None for record in records),
        links=UNSET if links is None else links,
        blocked=UNSET if links is None else blocked,
        sharing_links=UNSET if sharing_links is None else sharing_links,
        coordinates=labels.coordinates or UNSET,
        neglected=last.neglected,
        metrics={str(metric): value for metric, value in metrics.metrics_of(records, goal, moves).items()},
        seconds=seconds,
    )
