"""Runs that are loaded: their records and tables, and their display in notebooks."""

import builtins
import csv
import importlib
import io
import os
import shutil
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace

import swarmbo as sb
from swarmbo.errors import ConfigError, DataWarning, RunFolderError
from swarmbo.records import Recommendation
from swarmbo.runs import RunFolder, load, resume, run
from swarmbo.runs.citing import cite
from swarmbo.runs.reading import STDOUT, export
from swarmbo.runs.report import report_rows
from swarmbo.runs.scenario_files import dump
from swarmbo.runs.table import measurements, stacked, to_frame, write_csv

WORLDS = {
    "robots": ("robots", ["rounds=2", "environment.robots=2"]),
    "powell": ("powell", ["rounds=2"]),
    "wlan": ("wlan", ["rounds=2", "environment.topology={generated={access_points=4,users=8}}"]),
    "field": ("field-plume", ["rounds=2", "environment.sensors=4"]),
    "totals": ("camel", ["rounds=3"]),
}


def small(name):
    source, overrides = WORLDS[name]
    return load(source, overrides)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Short runs of each kind of environment, made once."""
    made = {}

    def of(name):
        if name not in made:
            made[name] = tmp_path_factory.mktemp("runs") / name
            run(small(name), made[name])
        return made[name]

    return of


def rows(table):
    return [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]


@pytest.mark.parametrize("name", ["robots", "field"])
def test_a_row_is_a_measurement_of_one_agent(done, name):
    loaded = sb.load_run(done(name))
    expected = [
        (record.round, sample.agent, sample.location, sample.measurement, sample.cost, record.query)
        for record in RunFolder.open(done(name)).records()
        for sample in record.samples
        if not sample.declined
    ]
    assert len(expected) >= 4
    found = [
        (r["round"], r["agent"], [r["x"], r["y"]], r["value"], r["cost"], r["query"]) for r in rows(loaded.table())
    ]
    assert found == expected
    assert set(loaded.table()["status"]) <= {"ok", "failed"}


@pytest.mark.parametrize("name", ["wlan", "powell"])
def test_a_row_is_the_outcome_of_one_factor_if_outcomes_are_per_factor(done, name):
    loaded = sb.load_run(done(name))
    world, table = loaded.world, rows(loaded.table())
    expected = [
        (record.round, factor, value, dict(zip(world.variables, record.joint.location, strict=True)))
        for record in loaded.records[1:]
        for factor, value in record.joint.factors.items()
    ]
    assert [(r["round"], r["factor"], r["value"], {v: r[v] for v in world.variables}) for r in table] == expected
    assert all(row["agent"] == world.owners[row["factor"]] for row in table)


def test_a_row_is_the_total_if_only_totals_are_measured(done):
    loaded = sb.load_run(done("totals"))
    totals = loaded.records[1:]
    bare = [replace(record, joint=replace(record.joint, factors=None)) for record in totals]
    table = rows(measurements(bare, loaded.world, loaded.scenario))
    assert [row["value"] for row in table] == [record.joint.measurement for record in totals]
    assert all(row["factor"] is None and row["agent"] is None for row in table)


def test_a_failed_measurement_has_a_row_without_a_value(tmp_path, mischief, bump_scenario):
    mischief.fails = lambda agent, number: agent == "agent_1" and number == 2
    run(bump_scenario(rounds=3), tmp_path / "run")
    table = rows(sb.load_run(tmp_path / "run").table())
    assert [(r["round"], r["agent"]) for r in table if r["status"] == "failed"] == [(2, "agent_1")]
    assert [r["value"] is None for r in table] == [r["status"] == "failed" for r in table]
    mischief.fails, mischief.steps = (lambda agent, number: False), 0
    mischief.raises = lambda number: ValueError("x") if number == 2 else None
    run(bump_scenario(rounds=3), tmp_path / "other")
    table = rows(sb.load_run(tmp_path / "other").table())
    assert [(r["round"], r["status"]) for r in table if r["round"] == 2] == [(2, "failed")] * 2


def test_known_noise_has_a_column(done):
    loaded = sb.load_run(done("robots"))
    assert set(loaded.table()["noise_std"]) == {None}
    first = loaded.records[1]
    noisy = [replace(sample, noise_std=0.5) for sample in first.samples]
    record = replace(first, samples=noisy)
    assert measurements([record], loaded.world, loaded.scenario)["noise_std"] == [0.5] * len(noisy)
    loaded = sb.load_run(done("wlan"))
    joint = replace(loaded.records[1].joint, noise_std={"capacity_1": 2.0})
    record = replace(loaded.records[1], joint=joint)
    table = measurements([record], loaded.world, loaded.scenario)
    assert dict(zip(table["factor"], table["noise_std"], strict=True))["capacity_1"] == 2.0
    assert table["noise_std"].count(None) == len(table["factor"]) - 1


def test_a_team_accepts_the_table_of_a_run(done, tmp_path):
    loaded = sb.load_run(done("wlan"))
    graph = sb.FactorGraph.from_scopes(loaded.world.scopes, owners=loaded.world.owners)
    bounds = dict(zip(loaded.world.variables, zip(loaded.world.low, loaded.world.high, strict=True), strict=True))
    write_csv(loaded.table(), tmp_path / "rows.csv")
    forms = [loaded.table(), tmp_path / "rows.csv"]
    forms += [loaded.to_dataframe()] if importlib.util.find_spec("pandas") else []
    for table in forms:
        team = sb.Team(graph, bounds, outcomes="per-factor")
        team.attach(table)
        factors = [{f: row[n] for n, f in enumerate(graph.factors)} for row in team.history.factors.tolist()]
        assert factors == [record.joint.factors for record in loaded.records[1:]]
    field = sb.load_run(done("robots"))
    team = sb.Team.for_field(field.world.agents, field.world.low, field.world.high)
    team.attach(field.table())
    assert team.n_data == 6


def test_an_incomplete_run_is_read_up_to_its_last_round(tmp_path, bump_scenario, interrupted):
    interrupted(bump_scenario(), tmp_path / "half", 2)
    half = sb.load_run(tmp_path / "half")
    assert half.summary is None
    assert not half.is_complete
    assert "2 of 4 rounds" in repr(half)
    assert "2 of 4 rounds" in half._repr_html_()
    assert max(half.table()["round"]) == 2
    with (tmp_path / "half" / "rounds.jsonl").open("ab") as log:
        log.write(b'{"round": 3, "sam')  # incomplete
    assert sb.load_run(tmp_path / "half").table() == half.table()
    resume(tmp_path / "half")
    whole = sb.load_run(str(tmp_path / "half"))
    assert whole.is_complete
    assert whole.best == whole.summary.best
    assert rows(whole.table())[:6] == rows(half.table())


@pytest.mark.filterwarnings("default::swarmbo.errors.DataWarning")
def test_a_damaged_log_is_read_up_to_the_damage_with_a_warning(tmp_path, cli, bump_scenario):
    run(bump_scenario(), tmp_path / "run")
    log = tmp_path / "run" / "rounds.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], lines[3].replace(b"0.", b"1.", 1), *lines[4:]]))
    damaged = sb.load_run(tmp_path / "run")
    with pytest.raises(RunFolderError, match="line 4 was changed or damaged"):
        _ = damaged.records
    with pytest.warns(DataWarning, match=r"line 4 was changed or damaged.*has the 3 rounds before it"):
        table = damaged.table()
    assert max(table["round"]) == 2
    for folder in (tmp_path / "run", tmp_path):
        result = cli("export", folder, status=1)
        assert "line 4 was changed" in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1
        assert (folder / "measurements.csv").is_file()
    with pytest.raises(RunFolderError, match="no such folder"):
        sb.load_run(tmp_path / "none")


def test_numbers_are_read_back_from_csv_bit_for_bit(done, cli, tmp_path):
    for name in ("robots", "wlan"):
        table = sb.load_run(done(name)).table()
        named = tmp_path / "t.parquet"  # written as CSV, because of --csv
        assert cli("export", done(name), named, "--csv").stdout.strip() == str(named)
        with named.open(newline="") as file:
            back = list(csv.DictReader(file))
        assert [row["value"] for row in back] == [str(value) for value in table["value"]]
        assert [float(row["value"]) for row in back] == table["value"]
    assert cli("export", done("wlan"), "-").stdout == named.read_text()


@pytest.mark.filterwarnings("default::swarmbo.errors.SwarmboWarning")
@pytest.mark.parametrize("name", ["scenario.toml", "world.json"])
def test_a_damaged_run_in_a_folder_is_named_and_left_out(done, cli, tmp_path, name):
    for seed in ("seed-000", "seed-001"):
        shutil.copytree(done("robots"), tmp_path / seed)
    (tmp_path / "seed-000" / name).write_text("{]")
    exported, cited = cli("export", tmp_path, status=1).stderr, cli("cite", tmp_path)
    with (tmp_path / "measurements.csv").open(newline="") as file:
        assert {row["run"] for row in csv.DictReader(file)} == {"seed-001"}
    assert "terry2021" in cited.stdout
    for text in (exported, cited.stderr):
        assert f"{tmp_path / 'seed-000' / name}: " in text
        assert text.strip().endswith("; left out")
    shutil.rmtree(tmp_path / "seed-001")
    assert "left out" not in cli("cite", tmp_path, status=2).stderr


def test_a_run_with_a_damaged_log_is_named_and_not_cited(done, cli, tmp_path):
    shutil.copytree(done("robots"), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    log = tmp_path / "run" / "rounds.jsonl"
    log.write_text(log.read_text().replace(":", ";", 1))
    assert f"{log}" in cli("cite", tmp_path, status=2).stderr
    with pytest.raises(RunFolderError, match="got no run"):
        cite([])


@pytest.mark.filterwarnings("default::swarmbo.errors.SwarmboWarning")
def test_runs_in_a_folder_are_one_table(done, cli, tmp_path):
    for name in ("robots", "totals"):
        shutil.copytree(done(name), tmp_path / "sweep" / name / "seed-000")
    begun = tmp_path / "sweep" / "robots" / "seed-001"  # no world.json yet
    begun.mkdir()
    shutil.copy(done("robots") / "scenario.toml", begun)
    assert "seed-001: no round is logged; left out" in cli("export", tmp_path / "sweep").stderr
    shutil.copytree(begun, tmp_path / "begun" / "seed-001")
    assert "no run there has logged a round" in cli("export", tmp_path / "begun", status=2).stderr
    cited = cli("cite", tmp_path / "sweep")
    assert (cited.stderr, "terry2021" in cited.stdout) == (f"swarmbo: {begun}: no round is logged; left out\n", True)
    refused = cli("export", begun, status=2).stderr
    assert refused.startswith(f"swarmbo: {begun}/world.json: cannot be read (No such file or directory); delete ")
    with (tmp_path / "sweep" / "measurements.csv").open(newline="") as file:
        back = list(csv.DictReader(file))
    assert {row["run"] for row in back} == {"robots/seed-000", "totals/seed-000"}
    tables = [sb.load_run(done(name)).table() for name in ("robots", "totals")]
    assert len(back) == sum(len(table["value"]) for table in tables)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names there are always Unicode")
def test_folders_whose_names_are_not_utf_8_are_named_in_tables(done, cli, tmp_path):
    for name in (b"caf\xe9", b"caf\xe8"):
        shutil.copytree(done("totals"), tmp_path / "runs" / os.fsdecode(name))
    for target in ("-", tmp_path / "table.csv"):
        cli("export", tmp_path / "runs", target)
    rows = csv.DictReader((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines())
    assert {row["run"] for row in rows} == {"caf\\xe9", "caf\\xe8"}
    refused = cli("run", "camel", "--set", "environment.function=caf\udce9", "--out", tmp_path / "out", status=2)
    assert "caf" in refused.stderr
    scenario = replace(load("camel", ["rounds=1"]), modules=("/caf\udce9",))
    with pytest.raises(ConfigError, match=r"modules\[0\]: got '/caf.udce9', which is not UTF-8; rename"):
        run(scenario, tmp_path / "out")
    with pytest.raises(ConfigError, match="which is not UTF-8"):
        dump(replace(scenario, modules=(), environment={**scenario.environment, "caf\udce9": 1}))
    pytest.importorskip("pyarrow")
    cli("export", tmp_path / "runs", tmp_path / "table.parquet")


def test_a_new_run_deletes_the_tables_of_the_old_run(tmp_path, cli, bump_scenario):
    run(bump_scenario(), tmp_path / "run")
    cli("export", tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    run(bump_scenario(seed=3), tmp_path / "run", force=True)
    assert not (tmp_path / "run" / "measurements.csv").exists()
    assert (tmp_path / "run" / "notes.txt").exists()


def test_frames_and_parquet_have_types(done, cli):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = sb.load_run(done("robots")).table()
    frame = sb.load_run(done("robots")).to_dataframe()
    assert frame["value"].tolist() == table["value"]
    assert frame["predicted_mean"].dtype == frame["value"].dtype == float
    cli("export", done("robots"), "--parquet")
    again = pandas.read_parquet(done("robots") / "measurements.parquet")
    assert list(again.columns) == list(table)
    assert again["value"].tolist() == table["value"]
    assert np.isnan(again["predicted_mean"][0])
    empty = to_frame({name: [] for name in table})
    assert list(empty.columns) == list(table)


def test_a_missing_package_is_reported_in_one_line(done, cli, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"to_dataframe\(\) needs .* 'pandas'.*pip install \"swarmbo\[pandas\]\""):
        sb.load_run(done("robots")).to_dataframe()
    result = cli("export", done("robots"), tmp_path / "t.parquet", status=2)
    assert "Parquet needs the package 'pyarrow'" in result.stderr
    assert not list(tmp_path.iterdir())
    cli("export", done("robots"), tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--csv", "--parquet"], "wanted one of them"),
        (["-", "--parquet"], "wanted a file"),
        (["no/such/t.csv"], "No such file"),
        (["t.xlsx"], "got 't.xlsx'; wanted a name that ends in .csv or .parquet, or --csv"),
    ],
)
def test_invalid_targets_of_export_are_refused_in_one_line(done, cli, arguments, message):
    result = cli("export", done("robots"), *arguments, status=2)
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_notebook_shows_the_closing_table_and_the_figures(done, tmp_path):
    from tests.unit.test_notebooks import Checked

    path = tmp_path / "run"
    shutil.copytree(done("totals"), path)
    loaded = sb.load_run(path)
    shown = Checked(loaded._repr_html_())
    assert [row[0] for row in shown.rows][:2] == ["best measurement", "recommendation"]
    assert Checked(loaded.summary._repr_html_()).rows == shown.rows
    pictures = loaded.plot("regret")
    assert [file.name for file in pictures] == ["regret.png"]
    start = '<img alt="regret" style="max-width:100%" src="data:image/png;base64,iVBOR'
    assert pictures._repr_html_().startswith(start)
    drawn = (path / "figures" / "regret.png").stat().st_mtime_ns
    assert "run" not in {file.stem for file in loaded.plot()}
    assert (path / "figures" / "regret.png").stat().st_mtime_ns == drawn  # not drawn again
    with pytest.raises(ConfigError, match=r"got 'rgret'; wanted some of .*regret"):
        loaded.plot("rgret")


def test_standard_output_gets_the_same_bytes_as_a_file(tmp_path, monkeypatch):
    run(load("camel", ["rounds=1", "name=Höhe → 1"]), tmp_path / "run")
    written, _ = export(tmp_path / "run")
    out = io.TextIOWrapper(raw := io.BytesIO(), encoding="cp1252", errors="replace", newline="\n")
    monkeypatch.setattr(sys, "stdout", out)
    assert export(tmp_path / "run", STDOUT) == (None, True)
    out.flush()
    assert raw.getvalue() == written.read_bytes()


class ZMQInteractiveShell:
    """A class with the name of a notebook's kernel."""


@pytest.mark.parametrize("fails", [False, True])
def test_a_notebook_shows_one_bar_and_updates_it(fails, tmp_path, monkeypatch, bump_scenario, capsys):
    display = pytest.importorskip("IPython.display")
    states, seen = [], []

    def update(bar):
        states.append(bar._repr_mimebundle_([], [])["text/html"])

    def show(bar, display_id):
        assert display_id
        update(bar)
        return SimpleNamespace(update=update)

    def on_round(record, was_logged):
        seen.append((record.round, was_logged))
        if fails and record.round == 2:
            raise RuntimeError("enough")

    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    monkeypatch.setattr(display, "display", show)
    with pytest.raises(RuntimeError, match="enough") if fails else nullcontext():
        run(bump_scenario(), str(tmp_path / "run"), progress=True, on_round=on_round)
    assert seen == [(number, False) for number in range(3 if fails else 5)]
    assert len(states) == len(seen) + 1
    assert "4/4" in states[-1] if not fails else "2/4" in states[-1]
    assert capsys.readouterr() == ("", "")  # nothing but the bar


def test_a_bar_is_shown_only_on_request(tmp_path, bump_scenario, capsys):
    run(bump_scenario(), tmp_path / "run")
    assert capsys.readouterr() == ("", "")
    run(bump_scenario(seed=2), tmp_path / "shown", progress=True)
    assert "round 4/4" in capsys.readouterr().err


def test_very_small_numbers_keep_their_significant_digits(tmp_path, bump_scenario):
    summary = run(bump_scenario(rounds=1), tmp_path / "run")
    tiny = Recommendation(summary.recommendation.location, 4.988e-9, 3.6e-11)
    rows = dict(report_rows(replace(summary, recommendation=tiny, unit="A")))
    assert rows["recommendation"].startswith("4.988e-09 ± 3.6e-11 A at")


def test_a_variable_named_run_does_not_replace_the_names_of_runs():
    joined = stacked({"a": {"run": [0.5], "value": [1.0]}, "b": {"run": [0.7], "value": [2.0]}})
    assert joined == {"run": ["a", "b"], "point.run": [0.5, 0.7], "value": [1.0, 2.0]}
