"""Runs of sensor fields: what their records, summaries, world records and figures say."""

from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from swarmbo.compare import Comparison, ComparisonRow, compare, output
from swarmbo.compare.output import comparison_tables, draw_comparison
from swarmbo.compare.statistics import PairedDifference
from swarmbo.metrics import declined, level_f1, score_round, total_cost
from swarmbo.plotting.history import belief_after
from swarmbo.records import Evaluation, GroundTruth, Recommendation, RoundRecord, Sample, Score, Traffic
from swarmbo.runs import load, run
from swarmbo.runs.figures import draw_run, world_of
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import quantity, report_rows
from swarmbo.runs.telling import round_text
from swarmbo_envs import sensor_field_v0

CHEAP = ["rounds=4", "environment.sensors=5", "belief.prior.restarts=0", "environment.failure_rate=0.15"]


@pytest.fixture(scope="module", params=["field", "field-plume", pytest.param("field-soil", marks=pytest.mark.thorough)])
def done(request, tmp_path_factory):
    """The scenario's name and the folder of a short run of it."""
    folder = tmp_path_factory.mktemp("sensors") / "run"
    run(load(request.param, CHEAP), folder)
    return request.param, folder


def test_records_tell_who_declined_and_what_measuring_cost(done):
    _, path = done
    folder = RunFolder(path)
    records, summary = folder.records(), load_run(path).summary
    price = folder.scenario().environment["energy_price"]
    for record in records:
        assert len(record.samples) == 5
        for sample in record.samples:
            assert sample.cost == (0.0 if sample.declined or record.round == 0 else price)
            assert sample.measurement is None or not sample.declined
        assert len(record.evaluations) == sum(not sample.declined for sample in record.samples)
    n_declined = sum(sample.declined for record in records for sample in record.samples)
    assert summary.declined == declined(records) == n_declined
    assert summary.measurements + summary.failures + n_declined == 5 * 5
    assert summary.cost == pytest.approx(total_cost(records)) == pytest.approx(price * (20 - n_declined))
    labels = [label for label, _ in report_rows(summary)]
    assert "distance travelled" not in labels
    assert ("measurements not made" in labels) == (n_declined > 0)
    assert "cost" in labels


def test_the_closing_table_tells_what_the_goal_is_scored_by_and_of_when(done):
    name, path = done
    summary, rows = load_run(path).summary, dict(report_rows(load_run(path).summary))
    then = "" if name == "field-soil" else ", last round"
    assert (summary.goal, summary.moves) == (world_of(RunFolder(path)).goal, then != "")
    of_peak = {"simple regret, last round", "simple regret, mean over rounds"}
    of_peak |= {"regret at the recommendation, last round", "regret at the recommendations, summed over rounds"}
    labels = {label for label in rows if "regret" in label or "maximum" in label}
    assert labels == {f"true maximum{then}"} | (of_peak if name == "field" else set())
    scores = [record.score for record in RunFolder(path).records()]
    if name == "field-plume":
        mean = np.mean([score.level_f1 for score in scores[1:]])
        assert rows["F1 of the area above the level, mean over rounds"] == f"{mean:.3f}"
    assert quantity(scores[-1].map_rmse, summary.unit) in rows[f"map RMSE of 5 agents{then}"]
    text = round_text(RunFolder(path).records()[-1], Traffic())
    assert text.split(", ")[1].startswith("F1 0." if name == "field-plume" else "regret ")
    assert f"map error {scores[-1].map_rmse:.4g}" in text


def test_the_world_is_kept_for_every_round_with_its_goal(done):
    name, path = done
    folder = RunFolder(path)
    world = world_of(folder)
    settings = {key: value for key, value in folder.scenario().environment.items() if key != "id"}
    env = sensor_field_v0.parallel_env(**settings, max_cycles=4)
    env.reset(seed=0)
    truth = env.ground_truth()
    assert (world.goal, world.level) == (truth.goal, truth.level)
    assert list(world.standpoints) == env.possible_agents
    np.testing.assert_array_equal(world.standpoints["sensor_4"], env.stations.places[4])
    assert (world.frames is not None) == (name != "field-soil")
    for number in range(5):
        then, kept = truth.at(number), world.at(number)
        np.testing.assert_array_equal(kept.values, then.values)
        assert kept.maximum == then.maximum
        np.testing.assert_array_equal(kept.argmax, then.argmax)


def test_scores_are_against_the_field_of_their_round_by_the_belief_of_their_round(done):
    _, path = done
    folder = RunFolder(path)
    records, world, settings = folder.records(), world_of(folder), folder.scenario().belief.prior
    for number, record in enumerate(records):
        belief, then = belief_after(records[: number + 1], settings, world.domain), world.at(number)
        assert belief is not None
        assert record.score is not None
        mean = belief.posterior(then.points)[0]
        assert record.score.map_rmse == pytest.approx(np.sqrt(np.mean((mean - then.values) ** 2)), rel=1e-6)
        assert (record.score.level_f1 is None) == (world.level is None)
        if world.level is not None:
            assert record.score.level_f1 == pytest.approx(level_f1(mean, then.values, world.level), abs=1e-3)


@pytest.mark.thorough
def test_all_figures_are_drawn(done):
    name, path = done
    if name == "field-plume":  # once will do: all are written in one way
        every = {"agents.png", "belief.png", "error_traffic.png", "faults.png", "regret.png", "run.gif", "traffic.png"}
        assert {file.name for file in draw_run(path)} == every


def test_level_f1_is_the_mean_of_precision_and_recall():
    values, mean = np.array([0.0, 1.0, 2.0, 3.0, 4.0]), np.array([2.5, 0.0, 0.0, 3.0, 9.0])
    precision, recall = 2 / 3, 2 / 2
    assert level_f1(mean, values, 2.2) == pytest.approx(2 * precision * recall / (precision + recall))
    assert level_f1(values, values, 100.0) == 1.0
    assert level_f1(values, values, -1.0) == 1.0
    assert level_f1(-values, values, 2.2) == 0.0


def test_simple_regret_of_a_field_that_moves_is_of_the_round_and_where_nobody_looks_of_what_is_recommended():
    X = np.linspace(0.0, 10.0, 11)[:, None]

    def truth(number):
        def value(points):
            return -np.abs(points[:, 0] - number)

        return GroundTruth(X, value(X), 0.0, np.array([float(number)]), "", "", "", value, at_round=truth)

    previous, regrets = None, []
    for number, places in enumerate([[0.0], [5.0, 3.0], [], [9.0]]):
        score = score_round(truth(number), previous, [Evaluation([x], 1.0) for x in places], None, None)
        previous = RoundRecord(round=number, samples=[], score=score)
        regrets.append((score.simple_regret, score.batch_regret))
    assert regrets == [(0.0, 0.0), (2.0, 2.0), (2.0, None), (6.0, 6.0)]
    silent = score_round(truth(3), previous, [], Recommendation([7.5], 0.0, 1.0), None)
    assert (silent.simple_regret, silent.batch_regret) == (4.5, None)
    looking = score_round(truth(3), previous, [Evaluation([9.0], 1.0)], Recommendation([7.5], 0.0, 1.0), None)
    assert looking.simple_regret == 6.0
    still = GroundTruth(X, -X[:, 0], 0.0, np.zeros(1), "", "", "", lambda points: -points[:, 0])
    assert score_round(still, previous, [], Recommendation([1.0], 0.0, 1.0), None).simple_regret == 6.0


def test_older_lines_without_the_new_fields_are_read():
    line = b'{"round":1,"samples":[{"agent":"a","location":[1.0],"measurement":2.0}]}'
    record = msgspec.json.decode(line, type=RoundRecord)
    assert record.samples == [Sample("a", [1.0], 2.0)]
    assert len(record.evaluations) == 1
    score = msgspec.json.decode(b'{"simple_regret":1.0,"batch_regret":null,"total_regret":0.0}', type=Score)
    assert score.level_f1 is score.view_rmse is None


def test_methods_are_compared_by_what_their_goal_is_scored_by(done, tmp_path):
    """Every round counts where the field changes, the end where it stays; regret is of those who look for a peak."""
    name, path = done
    other = tmp_path / "random"
    run(load(name, [*CHEAP, "coordination.kind=random"]), other)
    comparison = compare([path, other], reference="random")
    metrics = {
        "field": ["simple_regret_over_rounds", "mean_regret", "map_rmse_over_rounds"],
        "field-soil": ["map_rmse"],
        "field-plume": ["level_f1_over_rounds", "map_rmse_over_rounds"],
    }[name]
    assert list(dict.fromkeys(row.metric for row in comparison.rows)) == metrics
    score = metrics[0].removesuffix("_over_rounds")
    records = {folder.name: RunFolder(folder).records() for folder in (path, other)}
    values = {name: [getattr(record.score, score) for record in of_run] for name, of_run in records.items()}
    chosen = slice(4, 5) if name == "field-soil" else slice(1, 5)
    means = {folder: np.mean(numbers[chosen]) for folder, numbers in values.items()}
    exact = next(row for row in comparison.rows if row.method == "exact")
    assert exact.decides
    assert exact.unit == {"field": "", "field-soil": "pH", "field-plume": ""}[name]
    assert exact.mean == pytest.approx(means["run"])
    assert exact.difference.mean == pytest.approx(means["run"] - means["random"])
    found = {method: runs[0].values for (_, method), runs in comparison.runs.items()}
    assert found == {"exact": values["run"], "random": values["random"]}
    title = comparison_tables(comparison)[0].title
    assert ("(negative: it is better)" in title) == (name == "field-plume")
    assert draw_comparison(comparison, tmp_path / "table.png").stat().st_size > 10_000


@pytest.mark.parametrize(("metric", "better"), [("level_f1", "team"), ("map_rmse", "random")])
def test_more_f1_and_less_error_are_better(metric, better):
    pairs = PairedDifference(0.2, 0.1, 0.3, n_pairs=9, unpaired=[])
    rows = [
        ComparisonRow("lake", "random", metric, "", 0.5, 9, "random"),
        ComparisonRow("lake", "team", metric, "", 0.7, 9, "random", pairs),
    ]
    (table,) = comparison_tables(Comparison(rows, {}, "random", []))
    assert list(table.columns[-1].cells) == ["", better]


def test_curves_stand_at_the_mean_number_of_measurements_of_their_seeds():
    """Teams that decline make more measurements with one seed than with another."""
    seeds = [([4, 8, 12], [3.0, 2.0, 1.0]), ([4, 5, 5], [3.0, 2.5, 2.5])]
    runs = [SimpleNamespace(goal="map", unit="m", measurements=counts, values=values) for counts, values in seeds]
    curves = output._curves("lake", "team", runs)
    assert curves.measurements.tolist() == [4.0, 6.5, 8.5]
    assert curves.quantity == "map RMSE"
