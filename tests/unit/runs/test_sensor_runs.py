"""Runs of sensor fields and WLANs: their records, summaries, ground truth and figures."""

import io
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from swarmbo.compare import Comparison, ComparisonRow, compare, output
from swarmbo.compare.output import comparison_tables, draw_comparison
from swarmbo.compare.statistics import PairedDifference
from swarmbo.metrics import declined, level_f1, total_cost
from swarmbo.plotting.history import belief_after
from swarmbo.records import RoundRecord, Sample, Score, Traffic
from swarmbo.runs import load, run
from swarmbo.runs.figures import draw_run, world_of
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.progress import round_text
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import CENTRALISED, THIS_RUN, quantity, reference_table, report_rows
from swarmbo.runs.scenario import scenario_of
from swarmbo_envs import sensor_field_v0, wlan_power_v0
from swarmbo_envs.wlan_power.wlan_power import WlanPower

CHEAP = ["rounds=4", "environment.sensors=5", "belief.prior.restarts=0", "environment.failure_rate=0.15"]


@pytest.fixture(scope="module", params=["field", "field-plume", pytest.param("field-soil", marks=pytest.mark.thorough)])
def done(request, tmp_path_factory):
    """The name of a scenario, and the folder of a short run."""
    folder = tmp_path_factory.mktemp("sensors") / "run"
    run(load(request.param, CHEAP), folder)
    return request.param, folder


def test_records_have_declined_measurements_and_costs(done):
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
    labels = dict(report_rows(summary))
    assert "distance travelled" not in labels
    # why is not known here: a price, no energy, no site left, or a lost process
    reason = f"{n_declined}: agents abstained or were absent" if n_declined else None
    assert labels.get("measurements not made") == reason
    assert "cost" in labels


def test_the_closing_table_shows_the_scores_of_the_goal_and_their_rounds(done):
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


def test_the_ground_truth_of_every_round_and_the_goal_are_saved(done):
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


def test_scores_compare_the_belief_and_the_field_of_the_same_round(done):
    _, path = done
    folder = RunFolder(path)
    records, world, settings = folder.records(), world_of(folder), folder.scenario().belief.prior
    for number, record in enumerate(records):
        belief, then = belief_after(records[: number + 1], settings, world.domain), world.at(number)
        mean = belief.posterior(then.points)[0]
        assert record.score.map_rmse == pytest.approx(np.sqrt(np.mean((mean - then.values) ** 2)), rel=1e-6)
        assert (record.score.level_f1 is None) == (world.level is None)
        if world.level is not None:
            assert record.score.level_f1 == pytest.approx(level_f1(mean, then.values, world.level), abs=1e-3)


def test_older_lines_without_the_new_fields_are_read():
    line = b'{"round":1,"samples":[{"agent":"a","location":[1.0],"measurement":2.0}]}'
    record = msgspec.json.decode(line, type=RoundRecord)
    assert record.samples == [Sample("a", [1.0], 2.0)]
    assert len(record.evaluations) == 1
    score = msgspec.json.decode(b'{"simple_regret":1.0,"batch_regret":null,"total_regret":0.0}', type=Score)
    assert score.level_f1 is score.view_rmse is None


def test_methods_are_compared_by_the_scores_of_their_goal(done, tmp_path):
    """In a changing field every round counts, otherwise only the last one. Only the goal "peak" has a regret."""
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
    assert ("(positive is better)" in title) == (name == "field-plume")
    assert draw_comparison(comparison, tmp_path / "table.png").stat().st_size > 10_000


@pytest.mark.parametrize(("metric", "better"), [("level_f1", "team"), ("map_rmse", "random")])
def test_a_higher_f1_and_a_lower_error_are_better(metric, better):
    pairs = PairedDifference(0.2, 0.1, 0.3, n_pairs=9, unpaired=[])
    rows = [
        ComparisonRow("lake", "random", metric, "", 0.5, 9, "random"),
        ComparisonRow("lake", "team", metric, "", 0.7, 9, "random", pairs),
    ]
    (table,) = comparison_tables(Comparison(rows, {}, "random", []))
    assert list(table.columns[-1].cells) == ["", better]


def test_curves_are_drawn_at_the_mean_number_of_measurements_over_seeds():
    """A team that declines may make more measurements with one seed than with another."""
    seeds = [([4, 8, 12], [3.0, 2.0, 1.0]), ([4, 5, 5], [3.0, 2.5, 2.5])]
    runs = [SimpleNamespace(goal="map", unit="m", measurements=counts, values=values) for counts, values in seeds]
    curves = output._curves("lake", "team", runs)
    assert curves.measurements.tolist() == [4.0, 6.5, 8.5]
    assert curves.quantity == "map RMSE"


def test_a_run_that_ended_early_keeps_its_last_score():
    seeds = [([4, 8, 12], [3.0, 2.0, 1.0]), ([4, 8], [5.0, 4.0])]
    runs = [SimpleNamespace(goal="map", unit="m", measurements=counts, values=values) for counts, values in seeds]
    curves = output._curves("lake", "team", runs)
    assert curves.measurements.tolist() == [4.0, 8.0, 10.0]
    assert curves.regrets.tolist() == [[3.0, 2.0, 1.0], [5.0, 4.0, 4.0]]


SMALL = {"generated": {"access_points": 4, "users": 9, "area_m": [150.0, 150.0]}}


@pytest.mark.slow
def test_the_wlan_scenario_improves_on_its_initial_design_and_its_film_ends_at_the_best_point(tmp_path, blank):
    scenario = msgspec.structs.replace(load("wlan"), rounds=14)
    summary = run(scenario, tmp_path / "run")
    joints = [record.joint for record in RunFolder.open(tmp_path / "run").records()[1:]]
    env = wlan_power_v0.parallel_env()
    true = env.network.value(np.array([joint.location for joint in joints]))
    assert [joint.measurement for joint in joints] == pytest.approx(true.tolist())
    assert true[10:].max() > true[:10].max()
    assert summary.maximum == pytest.approx(env.best_known()[1])
    assert summary.maximum_is == world_of(RunFolder.open(tmp_path / "run")).maximum_is == "reference optimum"
    assert summary.score.simple_regret == pytest.approx(summary.maximum - true.max())
    assert (summary.unit, summary.axis_unit) == ("Mbit/s", "dBm")
    drawn = {path.name for path in draw_run(tmp_path / "run")}
    assert drawn == {"regret.png", "traffic.png", "variables.png", "factor_graph.png", "run.gif"}
    with Image.open(tmp_path / "run" / "figures" / "run.gif") as film:
        assert film.n_frames == (np.diff(np.maximum.accumulate([0.0, *true])) > 0).sum()
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB"), dtype=float)
    env = wlan_power_v0.parallel_env(render_mode="rgb_array", max_cycles=14)
    env.reset(seed=scenario.seed)
    for joint in joints[: true.argmax() + 1]:  # the film ends at the best point
        env.step({agent: np.array([power]) for agent, power in zip(env.agents, joint.location, strict=True)})
    assert np.abs(last - env.render()).mean() < 4.0  # the same picture with fewer colours


def test_a_run_is_compared_with_reference_methods_of_equal_budget(tmp_path):
    table = {"id": "swarmbo/wlan_power-v0", "topology": SMALL}
    summary = run(scenario_of({"name": "small", "rounds": 8, "initial": 4, "environment": table}), tmp_path / "run")
    env = wlan_power_v0.parallel_env(topology=SMALL)
    assert summary.references["all at maximum"] == pytest.approx(env.network.value(np.full((1, 4), 25.0))[0])
    ways = ["best equal power", "random", "independent tuning", "sequential greedy", "one Gaussian process for all"]
    assert list(summary.references) == ["all at maximum", *ways]
    assert all(0.0 < value <= summary.maximum * (1 + 1e-9) for value in summary.references.values())
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(reference_table(summary))
    lines = console.export_text().splitlines()
    shares = [float(line.split("│")[3].strip(" %")) for line in lines if "%" in line]
    assert len(shares) == 7
    assert shares == sorted(shares, reverse=True)
    (own,) = [line for line in lines if "this run" in line]
    true = summary.maximum - summary.score.simple_regret
    assert f"{100 * true / summary.maximum:.1f} %" in own
    assert "mean of the last 2 rounds" not in dict(report_rows(summary))
    assert load_run(tmp_path / "run").summary == summary


def test_references_that_ignore_the_scenario_s_constraints_are_left_out(tmp_path):
    limits = {
        "no_go": [{"kind": "box", "low": [4.0], "high": [25.0], "variables": ["power_0"]}],
        "constraints": [{"kind": "linear", "weights": {"power_1": 1.0, "power_2": 1.0}, "at_most": 8.0}],
    }
    table = {"id": "swarmbo/wlan_power-v0", "topology": SMALL}
    for name, limit in limits.items():
        data = {"name": "small", "rounds": 8, "initial": 4, "environment": table, name: limit}
        summary = run(scenario_of(data), tmp_path / name)
        assert list(summary.references) == [CENTRALISED]
        assert set(summary.worst_off) == {THIS_RUN, CENTRALISED}
        assert summary.references[CENTRALISED] <= summary.maximum * (1 + 1e-9)


def test_numpy_numbers_from_an_environment_are_accepted_and_missing_values_left_out(tmp_path, monkeypatch):
    known = WlanPower.ground_truth
    methods = {
        "ground_truth": lambda self: replace(known(self), level=np.float64(3.0)),
        "references": lambda self, budget, seed: {"half": np.float32(0.5), "unknown": np.nan},
        "reference_points": lambda self, budget, seed: {},
        "worst_off": lambda self, point: {"least": np.float64(2.0), "simulated": None},
    }
    for name, method in methods.items():
        monkeypatch.setattr(WlanPower, name, method)
    table = {"id": "swarmbo/wlan_power-v0", "topology": SMALL}
    summary = run(scenario_of({"name": "small", "rounds": 2, "initial": 2, "environment": table}), tmp_path / "run")
    assert set(summary.references) == {"half", CENTRALISED}
    assert summary.worst_off == {label: {"least": 2.0} for label in (THIS_RUN, CENTRALISED)}
    done = load_run(tmp_path / "run")
    assert (done.summary, done.world.level) == (summary, 3.0)


@pytest.mark.thorough
def test_only_some_environments_have_a_film_and_changing_ones_have_no_references(tmp_path, blank):
    for environment in (
        {"id": "swarmbo/function-v0", "function": "camel"},
        {"id": "swarmbo/wlan_power-v0", "topology": SMALL, "mobility_m": 1.0},
    ):
        folder = tmp_path / environment["id"].partition("/")[2]
        summary = run(scenario_of({"name": "x", "rounds": 3, "environment": environment}), folder)
        assert not summary.references
        assert reference_table(summary) is None
        drawn = {path.name for path in draw_run(folder)}
        assert ("run.gif" in drawn) == ("topology" in environment)


def test_a_run_with_changing_users_resumes_and_reports_the_mean_of_its_last_rounds(tmp_path, same_when_resumed):
    changes = ["mobility_m=3.0", "leave_rate=0.1", "return_rate=0.3", "failure_rate=0.1"]
    small = "topology={generated={access_points=4,users=9,area_m=[150.0,150.0]}}"
    scenario = load(
        "wlan-mobility", ["rounds=8", "initial=4", *(f"environment.{setting}" for setting in (small, *changes))]
    )
    assert scenario.belief.time is not None  # old outcomes lose weight
    records = same_when_resumed(scenario, 5)
    assert records[-1].score is None  # no fixed function to compare with
    late = np.mean([record.joint.measurement for record in records[-2:] if record.joint.measurement is not None])
    rows = dict(report_rows(load_run(tmp_path / "whole").summary))
    assert rows["mean of the last 2 rounds"] == f"{late:.4g} Mbit/s"
    assert "true maximum" not in rows
