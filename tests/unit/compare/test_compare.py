import csv
import json
import shutil

import numpy as np
import pytest

from swarmbo.compare import compare
from swarmbo.compare.comparison import Comparison, ComparisonRow, method_labels, problem_names
from swarmbo.compare.output import comparison_tables, draw_comparison, table_writer
from swarmbo.compare.statistics import paired_difference
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.metrics import scores_of
from swarmbo.runs import RunFolder, load, run
from swarmbo.runs.reading import find_runs


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    return tmp_path_factory.mktemp("made") / "runs"


@pytest.fixture
def runs(tmp_path, made_once, bump_scenario):
    """Two methods on two problems (of two and three rounds) with three seeds. One method lacks one seed."""
    if not made_once.exists():
        make_runs(made_once, bump_scenario)
    return shutil.copytree(made_once, tmp_path / "runs")


def make_runs(folder, bump_scenario):
    for rounds in (2, 3):
        for kind in ("independent", "random"):
            for seed in (0, 1, 2):
                if (rounds, kind, seed) != (3, "random", 2):
                    scenario = bump_scenario(coordination=kind, seed=seed, rounds=rounds)
                    run(scenario, folder / f"{kind}-{rounds}-{seed}")


def final(path):
    records = RunFolder(path).records()
    mean_regret = scores_of(records[1:], "total_regret").sum() / sum(len(record.samples) for record in records[1:])
    score = records[-1].score
    return {"simple_regret": score.simple_regret, "mean_regret": mean_regret, "map_rmse": score.map_rmse}


def test_means_and_differences_are_computed_from_the_records(runs):
    comparison = compare([runs], reference="independent")
    assert comparison.reference == "independent"
    assert len({row.problem for row in comparison.rows}) == 2
    for rounds, problem in zip((2, 3), dict.fromkeys(row.problem for row in comparison.rows), strict=True):
        seeds = (0, 1, 2) if rounds == 2 else (0, 1)
        for metric in ("simple_regret", "mean_regret", "map_rmse"):
            reference, other = [row for row in comparison.rows if (row.problem, row.metric) == (problem, metric)]
            assert reference.method == "independent"
            assert reference.difference is None
            assert (other.method, other.n_seeds, reference.n_seeds) == ("random", len(seeds), 3)
            alone, random = (
                np.array([final(runs / f"{kind}-{rounds}-{seed}")[metric] for seed in seeds])
                for kind in ("independent", "random")
            )
            assert other.mean == pytest.approx(random.mean())
            assert other.difference.mean == pytest.approx((random - alone).mean())
            assert other.difference.low <= other.difference.mean <= other.difference.high


def test_notes_name_unpaired_seeds_and_incomplete_runs(runs):
    (runs / "random-2-1" / "summary.json").unlink()
    notes = " | ".join(compare([runs], reference="independent").notes)
    assert "random-2-1: not complete" in notes
    assert "do not both have seeds 2" in notes
    assert "do not both have seeds 1" in notes


def test_damaged_runs_are_named_and_the_other_runs_compared(runs):
    for damaged, file in (("random-2-1", "rounds.jsonl"), ("random-2-2", "scenario.toml"), ("random-3-0", "world.npz")):
        (runs / damaged / file).write_bytes((runs / damaged / file).read_bytes()[1:])
    comparison = compare([runs], reference="independent")
    for damaged in ("random-2-1/rounds.jsonl", "random-2-2/scenario.toml", "random-3-0/world.npz"):
        assert any(damaged in note and note.endswith("; left out") for note in comparison.notes)
    seeds = [[run.seed for run in own] for (_, method), own in comparison.runs.items() if method == "random"]
    assert seeds == [[0], [1]]


def test_a_run_given_twice_counts_once(tmp_path, runs, bump_scenario):
    run(bump_scenario(coordination="random", seed=0, rounds=2), tmp_path / "again")
    comparison = compare([runs, tmp_path / "again", runs])
    assert [row.n_seeds for row in comparison.rows if row.method == "random"][:3] == [3, 3, 3]
    assert any("same problem, method and seed" in note for note in comparison.notes)


def test_only_the_requested_methods_are_compared(runs, tmp_path, bump_scenario):
    run(bump_scenario(coordination="greedy", rounds=2), tmp_path / "greedy")
    comparison = compare([runs, tmp_path / "greedy"], reference="random", against=["greedy"])
    assert {row.method for row in comparison.rows} == {"random", "greedy"}
    with pytest.raises(ConfigError, match="wanted one of 'independent', 'random'"):
        compare([runs], reference="max-sum")


def test_folders_without_runs_and_runs_without_a_ground_truth_are_refused(tmp_path, bump_scenario):
    with pytest.raises(RunFolderError, match="no run lies in"):
        find_runs([tmp_path])
    with pytest.raises(RunFolderError, match="no such folder"):
        find_runs([tmp_path / "nowhere"])
    run(bump_scenario(environment={"tells_truth": False}), tmp_path / "blind")
    with pytest.raises(RunFolderError, match="nothing to compare"):
        compare([tmp_path])


def test_two_seeds_give_no_verdict_and_an_invalid_level_is_always_refused(tmp_path, bump_scenario):
    for kind in ("independent", "random"):
        for seed in (0, 1):
            run(bump_scenario(coordination=kind, seed=seed, rounds=2), tmp_path / f"{kind}-{seed}")
    for table in comparison_tables(compare([tmp_path], reference="random")):
        assert list(table.columns[-1].cells) == ["needs 6 pairs", ""]
    with pytest.raises(ConfigError, match=r"^--level: "):
        compare([tmp_path / "random-0"], level=1.5)


def test_settings_outside_tables_distinguish_methods_and_constraints_distinguish_problems(tmp_path):
    ball = '[{kind = "ball", centre = [0.0, 0.0], radius = 0.1}]'
    for name, more in {"few": ["initial=2"], "more": ["initial=4"], "shut": ["initial=4", f"no_go={ball}"]}.items():
        run(load("camel", ["rounds=3", *more]), tmp_path / name)
    comparison = compare([tmp_path])
    assert [method for _, method in comparison.runs] == ["initial=2", "initial=4", "initial=4"]
    assert len({problem for problem, _ in comparison.runs}) == 2
    assert not any("left out" in note for note in comparison.notes)


def test_an_error_says_that_all_evaluations_of_a_run_failed(tmp_path):
    run(load("camel", ["rounds=2", "environment.failure_rate=1.0"]), tmp_path / "failed")
    with pytest.raises(RunFolderError, match="all evaluations failed"):
        compare([tmp_path])


@pytest.mark.parametrize(("smallest", "better"), [(-0.2, "unclear"), (0.2, "r")])
def test_a_verdict_needs_more_than_an_interval_without_zero(smallest, better):
    own, other = dict(enumerate([0.1, smallest, 0.9, 1.0, 1.1, 1.2])), dict.fromkeys(range(6), 0.0)
    difference = paired_difference(own, other)
    assert difference.is_clear
    rows = [
        ComparisonRow("p", name, "simple_regret", "", 0.0, 6, "r", found, True, values)
        for name, found, values in (("r", None, other), ("m", difference, own))
    ]
    (table,) = comparison_tables(Comparison(rows, {}, "r", []))
    assert list(table.columns[-1].cells) == ["", better]


def test_the_table_states_why_there_is_no_difference(tmp_path, bump_scenario):
    for kind, seed, rounds in (("random", 0, 2), ("random", 0, 3), ("greedy", 1, 2)):
        run(bump_scenario(coordination=kind, seed=seed, rounds=rounds), tmp_path / f"{kind}-{rounds}")
    for table in comparison_tables(compare([tmp_path], reference="greedy")):
        method, difference = table.columns[1].cells, table.columns[4].cells
        assert list(zip(method, difference, strict=True)) == [
            ("greedy", "reference"),
            ("random", "no common seed"),
            ("random", "reference not run here"),
        ]


def method(coordination, **belief):
    return {"belief": {"kind": "exact", **belief}, "coordination": {"kind": coordination}}


SLOW, QUICK = ({"lengthscale_median": length, "kernel": "rbf"} for length in (6.0, 3.0))
IN_TABLES = ["belief time.lengthscale_median=3.0", "belief time.lengthscale_median=6.0"]
WITHOUT = ["belief time=None", "belief time.kernel=rbf"]


@pytest.mark.parametrize(
    ("methods", "labels"),
    [
        ([method("exact")], ["exact"]),
        ([method("exact"), method("random")], ["exact", "random"]),
        ([method("exact", kernel=k) for k in ("rbf", "matern52")], ["belief kernel=rbf", "belief kernel=matern52"]),
        ([method("exact", n=1), method("max-sum", n=2)], ["belief n=1, exact", "belief n=2, max-sum"]),
        ([method("exact", time=time) for time in (QUICK, SLOW)], IN_TABLES),
        ([method("exact", time=time) for time in (None, {"kernel": "rbf"})], WITHOUT),
    ],
)
def test_labels_have_only_the_settings_that_differ(methods, labels):
    assert method_labels(methods) == labels


def test_settings_that_differ_only_between_problems_do_not_make_methods():
    """Runs of two scenarios with different beliefs in one folder, one of them with two coordination methods."""
    methods = [method("exact", time=SLOW), method("random", time=SLOW), method("exact", time=None, kernel="matern52")]
    assert method_labels(methods, ["plume", "plume", "soil"]) == ["exact", "random", "exact"]
    assert method_labels(methods[::2], ["plume", "soil"]) == ["exact", "exact"]


def problem(scenario, rounds=25, **environment):
    return json.dumps([environment, rounds, {}], sort_keys=True), scenario


def test_problems_of_one_scenario_are_named_by_their_environment_or_by_swept_settings():
    soil = [(problem("soil", field={"value": value}), value) for value in ("ph", "zinc")]
    robots = [(problem("robots", robots=number, speed=1.0), "dem") for number in (2, 3)]
    longer = [(problem("wlan", 40), "WLAN"), (problem("wlan", 60, noise={"std": 1.0}), "WLAN")]
    names = problem_names([*soil, *robots, *longer, (problem("camel"), "camel")])
    assert list(names.values()) == [
        *("soil: ph", "soil: zinc", "robots (robots=2)", "robots (robots=3)"),
        *("wlan (rounds=40, noise.std by default)", "wlan (noise.std=1.0, rounds=60)", "camel"),
    ]


def test_a_comparison_is_written_as_csv_and_drawn(runs, tmp_path):
    comparison = compare([runs], reference="independent")
    with table_writer(path := tmp_path / "table.csv")(comparison, path).open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len(comparison.rows) == 12
    assert lines[-1]["unpaired"] == "2"
    for line, row in zip(lines, comparison.rows, strict=True):
        assert float(line["mean"]) == row.mean
        assert line["difference"] == ("" if row.difference is None else str(row.difference.mean))
    assert len(comparison_tables(comparison)) == 3
    assert draw_comparison(comparison, tmp_path / "table.png").stat().st_size > 10_000
    with pytest.raises(RunFolderError, match="not supported"):
        draw_comparison(comparison, tmp_path / "table.xlsx")
    for ending in ("csv", "md"):
        with pytest.raises(RunFolderError, match=rf"none.t\.{ending}: cannot be written"):
            table_writer(path := tmp_path / "none" / f"t.{ending}")(comparison, path)


def test_a_note_says_that_runs_have_different_problems_and_swept_problems_have_names(tmp_path, bump_scenario):
    for rounds in (1, 2):
        run(bump_scenario(coordination="random", rounds=rounds), tmp_path / f"random-{rounds}")
    alone = compare([tmp_path])
    (problem, other) = {row.problem: row.method for row in alone.rows}.items()
    assert {problem[0].partition(" (")[2], other[0].partition(" (")[2]} == {"rounds=1)", "rounds=2)"}
    assert problem[1] == other[1] == "random", "a single method also has a name"
    (note,) = alone.notes
    assert note.startswith(f"these are runs of 2 different problems ({problem[0]}, {other[0]}); methods are compared")
    assert not compare([tmp_path / "random-1"]).notes
    for rounds in (1, 2):
        run(bump_scenario(coordination="greedy", rounds=rounds), tmp_path / f"greedy-{rounds}")
    assert not compare([tmp_path]).notes, "each problem has methods to compare"


def test_a_whole_number_is_the_same_setting_as_integer_and_float(tmp_path, bump_scenario):
    for seed, ends_at in enumerate((3, 3.0)):
        run(bump_scenario({"ends_at": ends_at}, rounds=1, seed=seed), tmp_path / str(seed))
    found = compare([tmp_path])
    assert {row.n_seeds for row in found.rows} == {2}
    assert [len(runs) for runs in found.runs.values()] == [2]
