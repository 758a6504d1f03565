"""Reproductions of papers: their list, tables with printed numbers, repeated calls, invalid definitions."""

import importlib.util
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.compare.reproduction import (
    Cell,
    Reproduction,
    Scores,
    draw_reproduction,
    plan,
    read_reproduction,
    read_scores,
    rows_of,
)
from swarmbo.errors import ConfigError
from swarmbo.evaluations import Workers
from swarmbo.runs import load_run
from swarmbo.runs.scenario_files import reproductions
from swarmbo.runs.sweep import sweep
from swarmbo.settings import convert

TINY = """
# A tiny table.
paper = "Nobody 2000, table 1"
scores = ["simple_regret", "average_regret"]
seeds = 2
quick = { rounds = 1, seeds = 1 }
deviations = ["Two rounds only."]

[problems.camel]
rounds = 2
environment = { id = "swarmbo/function-v0", function = "camel" }
printed = { sobol = 0.5, SAASBO = 0.013 }

[problems.moved]
rounds = 2
environment = { id = "swarmbo/function-v0", function = "camel", moved = true }
seeded = "function_seed"
maximum = 2.0

[problems.nowhere]
rounds = 2
environment = { id = "swarmbo/function-v0", function = "push" }
needs = ["no_such_package"]

[methods.auto]

[methods.sobol]
coordination = { kind = "sobol" }

[methods.peer]
coordination = { kind = "turbo-1" }
needs = ["no_such_package"]

[methods.per-factor]
environment = { outcomes = "per-factor" }
problems = ["camel"]
"""


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    return tmp_path / "tiny.toml"


def called(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


THREADS = "concurrent.futures:ThreadPoolExecutor"  # threads start at once


def test_a_reproduction_shows_printed_numbers_beside_its_own_and_repeats_no_complete_run(tiny, tmp_path):
    out = tmp_path / "out"
    first = called(tiny, "--out", out, "--quiet", "--engine", THREADS)
    assert first.exit_code == 0, first.output
    folders = sorted(path.parent.relative_to(out).as_posix() for path in out.rglob("summary.json"))
    assert len(folders) == 10
    assert folders[:2] == ["camel/auto/seed-000", "camel/auto/seed-001"]
    text = (out / "table.md").read_text()
    sobol = next(line for line in text.splitlines() if line.startswith("| camel | sobol |"))
    regrets = [1.0316284534898774 - load_run(out / f"camel/sobol/seed-00{seed}").best.mean for seed in (0, 1)]
    assert f"| 2 | {np.mean(regrets):.3g} |" in sobol
    assert "| 0.5 | unclear |" in sobol  # two seeds are too few for a verdict
    (printed,) = [line.split("|")[2:-1] for line in text.splitlines() if "SAASBO" in line]
    assert [cell.strip() for cell in printed if cell.strip()][:2] == ["SAASBO (printed only)", "0.013"]
    for note in ("- Two rounds only.", "- peer: left out, as the package", "- nowhere: left out, as the package"):
        assert note in text
    assert (out / "figure.png").stat().st_size > 10_000

    shutil.rmtree(out / "camel" / "sobol" / "seed-001")
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("rounds.jsonl")}
    again = called(tiny, "--out", out, "--quiet", "--engine", THREADS)
    assert again.exit_code == 0
    tables = (text, (out / "table.md").read_text())
    without_time = [[line.rpartition(" | ")[0] for line in table.splitlines()] for table in tables]
    assert without_time[0] == without_time[1]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert (out / "camel" / "sobol" / "seed-001" / "summary.json").exists()


@pytest.mark.parametrize(
    ("before", "wrong", "line"),
    [
        ("l]\nrounds = ", "l]\nrounds = 'many' #", r"\$\.problems\.camel\.rounds: got 'many'; wanted an integer >= 1"),
        ("needs = ", "needs = 'peer' #", r"\$\.problems\.nowhere\.needs: got 'peer'; wanted a list"),
        ("scores = ", "scores = [] #", r"\$\.scores: got .*; wanted one or more scores"),
    ],
)
def test_a_wrong_value_in_a_definition_is_refused_with_its_path(tiny, before, wrong, line):
    text = tiny.read_text()
    assert before in text
    tiny.write_text(text.replace(before, wrong, 1))
    result = called(tiny)
    assert result.exit_code == 2
    assert re.fullmatch(f"swarmbo: {line}\n", result.stderr), result.stderr


def test_scores_are_computed_from_records_and_regret_from_a_stated_maximum(tiny, tmp_path):
    given = read_reproduction(str(tiny))
    only, _ = plan(given, tmp_path / "out", 1, ["moved"])
    assert {cell.problem for cell in only} == {"moved"}
    with pytest.raises(ConfigError, match="'move'; wanted one of camel, moved, nowhere"):
        plan(given, tmp_path / "out", 1, ["move"])
    cells, notes = plan(given, tmp_path / "out", 1, quick=True)
    planned = [(cell.method, len(cell.trials)) for cell in cells if cell.problem == "moved"]
    assert planned == [("auto", 1), ("sobol", 1)]
    assert [note.partition(":")[0] for note in notes] == ["A short check", "peer", "nowhere"]
    cells = [cell for cell in cells if cell.method == "sobol"]
    outcomes = sweep([trial for cell in cells for trial in cell.trials], Workers(engine=THREADS))
    (camel, moved), _ = read_scores(given, cells, outcomes)
    run = load_run(cells[0].trials[0].out)
    assert camel.at.tolist() == [1]
    assert camel.curves["average_regret"][0].tolist() == pytest.approx([run.records[1].score.total_regret])
    best = load_run(cells[1].trials[0].out).best.mean
    assert moved.curves["simple_regret"][0].tolist() == pytest.approx([2.0 - best])


def test_a_verdict_needs_six_seeds_with_the_same_sign_and_respects_scores_to_maximise():
    named = {"environment": {"id": "swarmbo/function-v0"}, "rounds": 1, "printed": {"mine": 0.5}}
    data = {"paper": "p", "quick": {"rounds": 1}, "methods": {"mine": {}}, "problems": {"a": named}}
    values = np.linspace(0.6, 0.8, 7)[:, None]
    for shown, verdict in (("simple_regret", "worse"), ("best", "better")):
        given = convert({**data, "scores": [shown]}, Reproduction)
        many, few = (
            rows_of(given, [Scores("a", "mine", list(range(n)), [1], {shown: values[:n]}, 0.1)])[0] for n in (7, 5)
        )
        assert (many[3], many[7], few[7]) == ("0.7", verdict, "unclear")


def test_a_verdict_needs_a_test_that_agrees_with_the_interval():
    named = {"environment": {"id": "swarmbo/function-v0"}, "rounds": 1, "printed": {"mine": 0.0}}
    data = {"paper": "p", "quick": {"rounds": 1}, "methods": {"mine": {}}, "problems": {"a": named}, "scores": ["best"]}
    same_sign, both_signs = ([[value], [1.0], [1.1], [1.2], [1.3], [1.4]] for value in (0.1, -0.1))
    seeds, given = list(range(6)), convert(data, Reproduction)
    rows = [
        rows_of(given, [Scores("a", "mine", seeds, [1], {"best": np.array(values)}, 0.1)])[0]
        for values in (same_sign, both_signs)  # p-values 1/32 and 2/32; both intervals are above zero
    ]
    assert all(float(row[4].strip("[]").split(",")[0]) > 0.0 for row in rows)
    assert [row[7] for row in rows] == ["better", "unclear"]


def test_methods_without_common_seeds_have_no_verdict_on_each_other():
    named = {"environment": {"id": "swarmbo/function-v0"}, "rounds": 1}
    data = {"paper": "p", "quick": {"rounds": 1}, "methods": {"auto": {}, "mine": {}}, "problems": {"a": named}}
    scores = [
        Scores("a", name, [seed], [1], {"best": np.ones((1, 1))}, 0.1) for seed, name in enumerate(data["methods"])
    ]
    assert [row[8] for row in rows_of(convert({**data, "scores": ["best"]}, Reproduction), scores)] == ["", ""]


def test_average_regret_is_over_successful_evaluations(tiny, tmp_path):
    fails = TINY.replace('function = "camel" }', 'function = "camel", failure_rate = 0.5 }')
    tiny.write_text(fails.replace("rounds = 2", "rounds = 8"))
    given = read_reproduction(str(tiny))
    cells = [cell for cell in plan(given, tmp_path / "out", 1, ["camel"])[0] if cell.method == "sobol"]
    (found,), _ = read_scores(given, cells, sweep(cells[0].trials, Workers(engine=THREADS)))
    records = load_run(cells[0].trials[0].out).records[1:]
    succeeded = np.array([record.joint.measurement is not None for record in records])
    assert 0 < succeeded.sum() < len(records)
    sums = np.cumsum([0.0 if record.score is None else record.score.total_regret for record in records])
    wanted = [total / count if count else np.nan for total, count in zip(sums, np.cumsum(succeeded), strict=True)]
    np.testing.assert_allclose(found.curves["average_regret"], [wanted])


@pytest.mark.parametrize(("axis", "at"), [("evaluations", [3.0, 5.5, 6.0]), ("rounds", [1.0, 2.0, 3.0])])
def test_counts_are_means_over_seeds_and_a_run_that_ended_early_keeps_its_last_score(axis, at, monkeypatch):
    def loaded(seed):
        rounds = ([(3, 1.0), (3, 2.0), (1, 3.0)], [(3, 4.0), (2, 5.0)])[seed]
        records = [SimpleNamespace(evaluations=[None] * n, best=SimpleNamespace(mean=best)) for n, best in rounds]
        summary, scenario = SimpleNamespace(seconds=1.0, rounds=len(rounds)), SimpleNamespace(seed=seed)
        return SimpleNamespace(records=[None, *records], summary=summary, scenario=scenario)

    monkeypatch.setattr("swarmbo.compare.reproduction.reading.load_run", loaded)
    given = convert({**DRAWN, "axis": axis, "scores": ["best"]}, Reproduction)
    (found,), notes = read_scores(given, [Cell("a", "mine", [SimpleNamespace(out=seed) for seed in (0, 1)])], [])
    assert (found.at.tolist(), found.curves["best"].tolist(), notes) == (at, [[1.0, 2.0, 3.0], [4.0, 5.0, 5.0]], [])


def test_runs_without_a_successful_evaluation_are_left_out_with_a_note(tiny, tmp_path):
    tiny.write_text(TINY.replace('function = "camel" }', 'function = "camel", failure_rate = 1.0 }', 1))
    out = tmp_path / "out"
    assert called(tiny, "--out", out, "--quiet", "--seeds", 1, "--engine", THREADS).exit_code == 0
    text = (out / "table.md").read_text()
    assert "nan" not in text
    assert f"- {out / 'camel' / 'auto' / 'seed-000'}: left out: no score, as all evaluations failed" in text


def test_paths_are_relative_to_the_definition_and_a_repeated_problem_is_run_once(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    mine = '\n[problems.mine]\nrounds = 1\nenvironment = { id = "swarmbo/robot_team-v0", field = { csv = "s.csv" } }\n'
    tiny.write_text(TINY + mine)
    cells, _ = plan(read_reproduction(str(tiny)), tmp_path / "out", 1, ["mine", "mine"])
    assert [cell.method for cell in cells] == ["auto", "sobol"]
    assert cells[0].trials[0].scenario.environment["field"] == {"csv": str(tmp_path / "s.csv")}


def test_the_command_and_the_names_in_a_table_can_be_used_as_they_are(tiny, tmp_path):
    named = TINY.replace("problems.camel]", 'problems."six hump"]').replace('problems = ["camel"]', "")
    tiny.write_text(named.replace("s.sobol]", 's."a|b"]'))
    out = tmp_path / "my tables"
    options = ["--quiet", "--seeds", "1", "--engine", THREADS]
    assert called(tiny, "--problem", "six hump", "--out", out, *options).exit_code == 0
    text = (out / "table.md").read_text()
    assert f'`swarmbo reproduce {tiny} --problem "six hump" --seeds 1 --out "{out}"`' in text
    assert "| six hump | a\\|b | 1 |" in text


def test_a_table_is_written_even_if_no_run_succeeds(tiny, tmp_path):
    tiny.write_text(TINY.replace('"swarmbo/function-v0", function', '"swarmbo/no_such_world-v0", function'))
    result = called(tiny, "--out", tmp_path / "out", "--quiet", "--engine", THREADS)
    assert result.exit_code == 1
    assert "failed: $.environment.id: got 'swarmbo/no_such_world-v0'" in (tmp_path / "out" / "table.md").read_text()


def test_names_are_listed_and_unknown_names_and_problems_are_refused(tiny):
    assert [line.split()[0] for line in called().output.splitlines()] == list(reproductions())
    wrong = called("dumbo")
    assert wrong.exit_code == 2
    assert "dumbo-table-2" in wrong.output
    tiny.write_text(TINY.replace('problems = ["camel"]', 'problems = ["camell"]'))
    with pytest.raises(ConfigError, match="'camell'; wanted some of camel, moved"):
        read_reproduction(str(tiny))


@pytest.mark.parametrize("name", reproductions())
def test_every_reproduction_has_valid_scenarios_and_includes_the_default_method(name, tmp_path):
    given = read_reproduction(name)
    assert "auto" in given.methods
    assert given.deviations
    cells, _ = plan(given, tmp_path, 1)
    there = [p for p in given.problems if all(map(importlib.util.find_spec, given.problems[p].needs))]
    assert {cell.problem for cell in cells} == set(there)
    assert set(given.quick.problems) <= given.problems.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", reproductions())
def test_the_short_check_of_every_reproduction_ends_with_a_table(name, tmp_path):
    result = called(name, "--quick", "--workers", 2, "--out", tmp_path, "--quiet")
    assert result.exit_code == 0, result.output
    lines = (tmp_path / "table.md").read_text(encoding="utf-8").splitlines()
    rows = [tuple(cell.strip() for cell in line.split("|")[1:3]) for line in lines if line.startswith("| ")]
    cells, _ = plan(read_reproduction(name), tmp_path, quick=True)
    assert rows[:1] == [("problem", "method")]
    measured = {row for row in rows[1:] if not row[1].endswith("(printed only)")}
    assert measured == {(cell.problem, cell.method) for cell in cells}


DRAWN = {
    "paper": "p",
    "quick": {"rounds": 1},
    "problems": {"a": {"environment": {"id": "swarmbo/function-v0"}, "rounds": 1, "printed": {"mine": 5.0}}},
    "methods": {"mine": {}},
    "scores": ["simple_regret", "recommended_regret"],
}


def test_printed_numbers_are_within_the_axes_and_labels_within_their_panel(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr("swarmbo.compare.reproduction.style.save", lambda figure, *_: kept.append(figure))
    curves = dict.fromkeys(DRAWN["scores"], np.array([[1.0, 0.5], [1.2, 0.6]]))
    scores = [Scores("a", "mine", [0, 1], np.array([1.0, 2.0]), curves, 0.1)]
    draw_reproduction(convert(DRAWN, Reproduction), scores, tmp_path / "f.png")
    (figure,) = kept
    figure.draw_without_rendering()
    assert figure.axes[0].get_ylim()[0] == 0.0
    assert figure.axes[0].get_ylim()[1] > 5.0
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"mine", "printed"}
    for ax in figure.axes:
        assert ax.yaxis.label.get_window_extent().height <= ax.get_window_extent().height


def test_the_legend_names_the_methods_of_all_problems(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr("swarmbo.compare.reproduction.style.save", lambda figure, *_: kept.append(figure))
    named = {"environment": {"id": "swarmbo/function-v0"}, "rounds": 1}
    data = {"paper": "p", "quick": {"rounds": 1}, "problems": {"a": named, "b": named}, "scores": ["best"]}
    given = convert({**data, "methods": {"mine": {}, "yours": {}}}, Reproduction)
    cells = (("a", "mine"), ("b", "mine"), ("b", "yours"))
    scores = [Scores(*cell, [0, 1], [1, 2], {"best": np.ones((2, 2))}, 0.1) for cell in cells]
    draw_reproduction(given, scores, tmp_path / "f.png")
    assert [text.get_text() for text in kept[0].legends[0].get_texts()] == ["mine", "yours"]
