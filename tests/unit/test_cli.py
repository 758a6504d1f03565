import errno
import json
import os
import re
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import swarmbo
from swarmbo.cli import app
from swarmbo.registry import SLOTS, TEAMS, kinds
from swarmbo.runs import RunFolder, load

SETTINGS = ("rounds=2", "environment.robots=2", "belief.restarts=0", "coordination.kind=random")
SMALL = [part for setting in SETTINGS for part in ("--set", setting)]
IN_THREADS = ["--engine", "concurrent.futures:ThreadPoolExecutor", "--trust"]  # threads start at once


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(*arguments, status=0):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == status, result.output
        return result

    return call


def test_version_and_help(invoke):
    assert invoke("--version").stdout == f"swarmbo {swarmbo.__version__}\n"
    for command in ("run", "resume", "plot", "list", "check", "sweep", "compare", "solve"):
        assert command in invoke("--help").stdout
        assert "Usage" in invoke(command, "--help").stdout


def test_help_shows_every_word_of_each_option(invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    commands = {(name,): command for name, command in typer.main.get_command(app).commands.items()}
    within = {(*way, name): sub for way, one in commands.items() for name, sub in getattr(one, "commands", {}).items()}
    for way, command in (commands | within).items():
        shown, told = {*invoke(*way, "--help").stdout.split()}, [one for one in command.params if not one.hidden]
        assert [one.name for one in told if not {*(one.help or "").split()} <= shown] == [], way


def test_the_module_can_be_run_as_the_command():
    run = subprocess.run([sys.executable, "-m", "swarmbo", "--version"], check=True, capture_output=True, text=True)
    assert run.stdout == f"swarmbo {swarmbo.__version__}\n"


@pytest.mark.thorough
def test_tables_on_an_ascii_terminal_have_replacements_for_other_characters(tmp_path):
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "swarmbo", "run", "robots", "--no-figures", *SMALL]
    ended = subprocess.run(command, capture_output=True, text=True, env=ascii_only, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.isascii()
    assert re.search(r"\| recommendation +\| \S+ \? \S+ m at", ended.stdout)


def test_help_does_not_import_numpy():
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom swarmbo.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "sys.exit('numpy' in sys.modules or 'scipy' in sys.modules or 'pettingzoo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_run_writes_its_folder_and_a_closing_table(invoke, tmp_path, blank):
    result = invoke("run", "robots", "--seed", 3, "--out", "here", *SMALL)
    assert re.search(r"best measurement.*m at \(", result.stdout)
    for label in ("recommendation", "map RMSE", "distance travelled", "messages to agree", "time in rounds"):
        assert label in result.stdout
    assert [line.split(":")[0] for line in result.stderr.splitlines()[:3]] == ["round 0/2", "round 1/2", "round 2/2"]
    assert json.loads((tmp_path / "here" / "summary.json").read_text())["seed"] == 3
    figures = {path.name for path in (tmp_path / "here" / "figures").iterdir()}
    assert {"belief.png", "regret.png", "traffic.png", "run.gif"} <= figures


def test_quiet_shows_only_the_result_and_the_default_folder_names_scenario_seed_and_settings(invoke, tmp_path):
    assert invoke("run", "robots", "--no-figures", "--quiet", "--seed", 4, *SMALL).stderr == ""
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("robots-4+rounds=2,environment.robots=2")
    assert not (folder / "figures").exists()


def test_run_and_resume_say_that_a_run_is_complete(invoke):
    invoke("run", "robots", "--out", "here", "--no-figures", *SMALL)
    for arguments in (("run", "robots", "--out", "here", "--no-figures", *SMALL), ("resume", "here", "--no-figures")):
        result = invoke(*arguments)
        assert "here: this run is complete already" in result.stdout
        assert "best measurement" in result.stdout


def test_another_run_is_refused_and_replaced_with_force(invoke):
    invoke("run", "robots", "--out", "here", "--no-figures", "--quiet", *SMALL)
    refused = invoke("run", "robots", "--out", "here", "--seed", 9, *SMALL, status=2)
    assert refused.stderr.startswith("swarmbo: here: holds another run (it differs in seed)")
    assert refused.stderr.count("\n") == 1
    invoke("run", "robots", "--out", "here", "--seed", 9, "--force", "--no-figures", "--quiet", *SMALL)


def test_a_file_in_place_of_a_folder_ends_a_command_with_one_line(invoke, tmp_path):
    (tmp_path / "note").write_text("mine")
    (tmp_path / "locked" / ".lock").mkdir(parents=True)
    for arguments, place in (
        (("run", "robots", "--out", "note", *SMALL), "note"),
        (("run", "robots", "--out", "note/run", *SMALL), "note/run"),
        (("run", "robots", "--out", "locked", *SMALL), "locked/.lock"),
        (("run", "robots", "--out", "x" * 300, *SMALL), "x" * 300),
        (("resume", "x" * 300), "x" * 300),
        (("compare", "x" * 300), "x" * 300),
    ):
        refused = invoke(*arguments, status=2).stderr
        assert refused.startswith(f"swarmbo: {place}"), refused
        assert refused.count("\n") == 1
    assert (tmp_path / "note").read_text() == "mine"


def test_a_full_disk_ends_a_run_with_one_line_and_resume_continues_it(invoke, monkeypatch):
    def full(file):
        if calls.pop(0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    calls = [False] * 9 + [True, True]  # the write of a checkpoint, and that of the line, which is tried anyway
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        stopped = invoke("run", "robots", "--out", "here", "--quiet", "--no-figures", *SMALL, status=1).stderr
    assert re.fullmatch(r"swarmbo: here/\S+: cannot be written: No space left on device.*\n", stopped)
    assert not calls
    invoke("resume", "here", "--no-figures", "--quiet")


@pytest.mark.thorough
def test_an_interrupted_run_says_how_to_continue(invoke, monkeypatch, tmp_path, blank):
    from swarmbo.runs.progress import Progress

    def stop(self, record, was_logged):
        if record.round == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Progress, "show", stop)
        result = invoke("run", "robots", "--out", "here", *SMALL, status=130)
    assert "`swarmbo resume here` goes on" in result.stderr
    assert not (tmp_path / "here" / "summary.json").exists()
    plotted = invoke("plot", "here")
    assert "regret.png" in plotted.stdout
    result = invoke("resume", "here", "--no-figures")
    assert "best measurement" in result.stdout
    assert "round 2/2" in result.stderr


def test_a_failure_of_the_environment_shows_its_traceback_and_how_to_continue(invoke, monkeypatch):
    from swarmbo_envs.robot_team import RobotTeam

    def break_down(self, actions):
        raise RuntimeError("a wheel\ncame off")

    with monkeypatch.context() as patch:
        patch.setattr(RobotTeam, "step", break_down)
        stops = ["--set", "when_step_fails=stop"]
        result = invoke("run", "robots", "--out", "my runs/a (1)", "--no-figures", *SMALL, *stops, status=1)
    assert "Traceback" in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("swarmbo: stopped by RuntimeError: a wheel came off")
    command = re.search("`swarmbo (.*)` goes on", last)[1]
    invoke(*shlex.split(command), "--no-figures", "--quiet")


@pytest.mark.parametrize("workers", [[], ["--workers", "1", *IN_THREADS[:2]]])
def test_a_run_that_own_code_stops_ends_with_a_command_that_continues_it(invoke, tmp_path, monkeypatch, workers):
    name = f"stopping_{len(workers)}"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\nfrom swarmbo_envs.functions.function_world import FunctionWorld\n"
        "class Stopping(FunctionWorld):\n    def step(self, actions):\n"
        "        assert Path('licence').exists(), 'no licence'\n        return super().step(actions)\n"
        "def stopping(**settings) -> 'Stopping':\n    return Stopping(function='camel', **settings)\n"
    )
    text = f'name = "own"\nrounds = 2\nwhen_step_fails = "stop"\n[environment]\nid = "{name}:stopping"\n'
    (tmp_path / "own.toml").write_text(text)
    options = ["--trust", "--quiet", "--no-figures", *workers]
    last = invoke("run", "own.toml", "--out", "here", *options, status=1).stderr.splitlines()[-1]
    assert "no licence" in last
    command = re.search("what was logged is safe, `swarmbo (.*)` goes on", last)[1]
    assert command == "resume here --trust"
    (tmp_path / "licence").touch()
    assert "failed" not in invoke(*shlex.split(command), "--no-figures", "--quiet").stdout


def test_own_code_that_raises_before_a_round_is_logged_is_a_refused_input(invoke, tmp_path):
    (tmp_path / "unready.py").write_text(
        "from swarmbo_envs.functions.function_world import FunctionWorld\nclass Unready(FunctionWorld):\n"
        "    def __init__(self, **settings):\n        super().__init__(function='camel', **settings)\n"
        "    def reset(self, seed=None, options=None):\n        raise ValueError('no key')\n"
    )
    (tmp_path / "own.toml").write_text('name = "own"\nrounds = 2\n[environment]\nid = "unready:Unready"\n')
    invoke("run", "robots", "--out", "another", *SMALL, "--quiet", "--no-figures")
    for options in (["--out", "new"], ["--out", "another", "--workers", "2"]):
        refused = invoke("run", "own.toml", "--trust", "--quiet", *options, status=2).stderr
        assert "raised ValueError: no key" in refused
        assert "goes on" not in refused


def test_a_served_scenario_is_refused_before_its_run_begins(invoke, tmp_path):
    text = 'rounds = 2\n[environment]\nid = "served/function-v0"\nbounds = { x = [0.0, 1.0] }\n'
    (tmp_path / "oven.toml").write_text(text)
    for command in (["run", "--out", "here"], ["fleet"], ["sweep", "--seeds", "2"], ["check"], ["check", "--quick"]):
        assert "wanted `swarmbo serve`" in invoke(command[0], "oven.toml", *command[1:], status=2).stderr
    assert [path.name for path in tmp_path.iterdir()] == ["oven.toml"]


def test_a_run_interrupted_before_it_began_is_not_said_to_continue(invoke, monkeypatch):
    def stop(scenario, trust):
        raise KeyboardInterrupt

    monkeypatch.setattr("swarmbo.runs.runner.assemble", stop)
    assert invoke("run", "robots", "--out", "here", *SMALL, status=130).stderr == "swarmbo: interrupted\n"


def test_a_file_that_cannot_be_written_is_named(invoke, tmp_path):
    invoke("run", "robots", "--out", "here", "--no-figures", "--quiet", *SMALL)
    for file, why in (("no/x.csv", "No such file or directory"), ("here/.lock/x.csv", "Not a directory")):
        assert invoke("export", "here", file, status=2).stderr == f"swarmbo: {file}: {why}\n"
    assert "Traceback" not in invoke("export", "here", "", status=2).stderr


@pytest.mark.parametrize("quick", [["--quick"], []])
def test_check_refuses_invalid_callbacks_and_missing_packages(invoke, tmp_path, monkeypatch, quick):
    (tmp_path / f"told_{len(quick)}.py").write_text("class Told:\n    pass\n")
    monkeypatch.setitem(sys.modules, "cma", None)
    own = ["--trust", "--set", f'callbacks=["told_{len(quick)}:Told"]']
    refused = invoke("check", "camel", *own, *quick, status=2).stderr
    assert "swarmbo: $.callbacks[0]: got told_" in refused
    assert ":Told; wanted a class with the methods begin" in refused
    if quick:  # otherwise another process, which has the package, runs it
        refused = invoke("check", "camel", "--set", "coordination=cma-es", *quick, status=2).stderr
        assert "$.coordination.kind: 'cma-es' needs the package 'cma', which is not installed; pip install" in refused


def test_list_shows_every_kind_with_its_teams(invoke, monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    out = invoke("list").stdout
    assert re.search(r"robots +Four robots", out)
    assert "swarmbo/robot_team-v0" in out
    lines = [line.split() for line in out.splitlines()]
    for slot in SLOTS:
        shown = lines[lines.index([f"{slot}:", "kind"]) + 1 :][: len(kinds(slot))]
        assert [words[0] for words in shown] == list(kinds(slot))
        for name, *words in shown:
            teams = {team for team in TEAMS if any(word.strip(",") == team for word in words[:2])}
            assert teams == {team for team in TEAMS if name in kinds(slot, team)}, name


def test_check_says_that_a_scenario_is_ready_to_run(invoke):
    assert "robots: ready to run" in invoke("check", "robots", "--quick").stdout


def test_sweep_then_compare(invoke, tmp_path, blank):
    both = [*SMALL[:-1], "coordination.kind=random,independent"]
    sweep = ("sweep", "robots", "--seeds", 2, "--out", "out", *both, *IN_THREADS)
    assert invoke(*sweep).stdout == "4 done, 0 resumed, 0 skipped: out\n"
    assert invoke(*sweep, "--quiet").stdout == "0 done, 0 resumed, 4 skipped: out\n"
    result = invoke("compare", "out", "--reference", "random", "--table", "t.csv", "--figure", "t.png")
    assert "simple regret at the end" in result.stdout
    assert "independent" in result.stdout
    assert (tmp_path / "t.csv").read_text().count("\n") == 7
    assert (tmp_path / "t.png").is_file()
    refused = invoke("compare", "out", "--figure", "t.gif", status=2)
    assert "--figure: got 'gif'; wanted png, pdf or svg" in refused.stderr
    refused = invoke("compare", "out", "--reference", "nobody", status=2)
    assert "wanted one of 'independent', 'random'" in refused.stderr or "'random', 'independent'" in refused.stderr


def test_a_round_that_the_environment_fails_is_reported_and_the_run_continues(invoke, monkeypatch):
    from swarmbo_envs.robot_team import RobotTeam

    step, calls = RobotTeam.step, []

    def breaks_down_once(self, actions):
        calls.append(actions)
        if len(calls) == 1:
            raise SystemExit("a wheel\ncame off")
        return step(self, actions)

    monkeypatch.setattr(RobotTeam, "step", breaks_down_once)
    result = invoke("run", "robots", "--out", "here", "--no-figures", *SMALL)
    assert "the environment failed: SystemExit: a wheel came off (test_cli.py:" in result.stderr.splitlines()[1]
    assert re.search(r"rounds failed by the environment\D+1", result.stdout)


@pytest.mark.thorough
def test_resume_draws_missing_figures(invoke, tmp_path, blank):
    invoke("run", "robots", "--out", "here", "--no-figures", *SMALL)
    assert not (tmp_path / "here" / "figures").exists()
    invoke("resume", "here")
    drawn = {path: path.stat().st_mtime_ns for path in (tmp_path / "here" / "figures").iterdir()}
    assert {"belief.png", "regret.png", "traffic.png", "run.gif"} <= {path.name for path in drawn}
    invoke("resume", "here")
    assert {path: path.stat().st_mtime_ns for path in drawn} == drawn


@pytest.mark.parametrize("command", [["compare", "."], ["solve", "channels"]])
def test_a_format_without_a_figure_is_refused(invoke, command):
    told = "swarmbo: --figure: got none; wanted the file of the figure for --format and --dpi\n"
    assert invoke(*command, "--dpi", 40, status=2).stderr == told


@pytest.mark.thorough
def test_every_command_that_draws_accepts_formats_of_figures(invoke, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", "")
    refused = invoke("run", "camel", "--set", "rounds=2", "--out", "here", "--format", "mp4", status=2)
    assert "no encoder of MP4" in refused.stderr
    assert not (tmp_path / "here").exists(), "refused before the run"
    invoke("sweep", "camel", "--set", "rounds=2", "--seeds", 1, "--quiet", "--format", "svg", *IN_THREADS)
    (run,) = (tmp_path / "runs" / "camel").glob("*/*")
    assert {path.suffix for path in (run / "figures").iterdir()} == {".svg"}
    assert "regret.pdf" in invoke("plot", run, "--format", "pdf", "--dpi", 40).stdout
    invoke("run", "camel", "--set", "rounds=2", "--out", run, "--quiet")
    assert (run / "figures" / "regret.png").is_file(), "a complete run is drawn in the format of the call"
    for asked, name in ((["table.pdf"], "table.pdf"), (["table", "--format", "svg"], "table.svg"), (["t"], "t.png")):
        assert invoke("compare", "runs", "--figure", *asked).stdout.splitlines()[-1] == name
        assert (tmp_path / name).stat().st_size > 1000


@pytest.mark.thorough
def test_a_sweep_with_a_failing_run_continues_and_ends_with_status_1(invoke, tmp_path):
    small = ["--seeds", 2, "--out", "out", *SMALL, *IN_THREADS]
    (tmp_path / "blocked").write_text("")
    invoke("sweep", "robots", *small, "--quiet")
    (folder,) = (tmp_path / "out" / "robots").iterdir()
    scenario = folder / "seed-001" / "scenario.toml"
    whole = scenario.read_text()
    changed = whole.replace("seed = 1", "seed = 7")
    for damaged, told in ((changed, "was changed or damaged"), (whole[:40], "is not TOML")):
        scenario.write_text(damaged)
        result = invoke("sweep", "robots", *small, status=1)
        assert "1 skipped, 1 failed" in result.stdout
        (line,) = [line for line in result.stderr.splitlines() if told in line]
        assert line.startswith(f"swarmbo: {folder.relative_to(tmp_path) / 'seed-001'}")
        assert line.count("seed-001") == 1


def test_a_run_without_a_round_says_that_there_is_nothing_to_draw(invoke, tmp_path):
    RunFolder.create(RunFolder.make(tmp_path / "run"), load("robots"))
    assert "no round is logged yet" in invoke("plot", tmp_path / "run").stderr


@pytest.mark.filterwarnings("default::swarmbo.errors.DataWarning")
def test_left_out_rows_are_reported_once_in_one_line_also_by_another_process(invoke, tmp_path, capfd):
    rows = [f"{5.72 + i / 500},{50.95 + i % 3 / 400},{i if i else -9999}" for i in range(8)]
    (tmp_path / "soil.csv").write_text("\n".join(["lon,lat,ph", *rows]))
    columns = {"csv": "soil.csv", "x": "lon", "y": "lat", "value": "ph", "coordinates": "degrees"}
    own = [part for key, value in columns.items() for part in ("--set", f"environment.field.{key}={value}")]
    told = f"swarmbo: $.field.csv: 1 of 8 rows of {str(tmp_path / 'soil.csv')!r} are left out: 1 with -9999 in 'ph'"
    result = invoke("run", "measured", *SMALL, *own, "--no-figures", "--quiet")
    assert result.stderr.startswith(told)
    assert result.stderr.count("\n") == 1
    before = sorted(tmp_path.rglob("*"))
    assert "measured: ready to run" in invoke("check", "measured", *SMALL, *own).stdout
    assert sorted(tmp_path.rglob("*")) == before
    written = capfd.readouterr().err
    assert written.startswith(told)
    assert written.count("\n") == 1


@pytest.mark.parametrize("width", [60, 200])
def test_lists_and_tables_fit_the_width_of_the_terminal_without_cutting_sentences(invoke, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    listed = invoke("list").stdout
    assert max(map(len, listed.splitlines())) <= width
    assert "They charge at bases in the corners" in " ".join(listed.split())
    invoke("run", "robots", *SMALL, "--no-figures", "--quiet", "--out", "one")
    assert max(map(len, invoke("run", "robots", *SMALL, "--no-figures", "--out", "one").stdout.splitlines())) <= width


def test_a_fleet_with_hosts_needs_keys_and_positive_times(invoke, tmp_path):
    ended = invoke("fleet", "wlan", "--out", tmp_path / "run", "--host", "world=192.168.0.2", status=2)
    assert "--keys: got none; wanted a folder that `swarmbo fleet keys` made" in ended.stderr
    for option in ("--patience", "--tick"):
        ended = invoke("fleet", "wlan", "--out", tmp_path / "run", option, "0", status=2)
        assert f"{option}: got 0.0; wanted seconds > 0" in ended.stderr


def test_a_fleet_refuses_wrong_options_before_it_waits_for_agents(invoke, tmp_path):
    pytest.importorskip("zenoh")
    for option in ("--elsewhere", "--measures"):
        ended = invoke("fleet", "camel", "--out", "run", option, "agent_9", status=2)
        assert ended.stderr.startswith(f"swarmbo: {option}: got 'agent_9'; wanted one of ['agent_0', 'agent_1']")
    own = tmp_path / "own.toml"
    own.write_text('rounds = 3\n[environment]\nid = "nowhere:World"\n')
    ended = invoke("fleet", own, status=2)
    assert "got 'nowhere:World', your own code; wanted kinds that every machine has" in ended.stderr
    assert "--trust" not in ended.stderr


def test_a_fleet_that_fails_to_start_leaves_its_folder_free(invoke):
    pytest.importorskip("zenoh")
    for _ in range(2):
        ended = invoke("fleet", "camel", "--out", "run", "--keys", "none", status=2)
        assert "authority.pem: no such file" in ended.stderr


def test_closing_tables_show_names_and_units_unchanged(invoke, tmp_path):
    rows = "".join(f"{x},{y},{x + y}\n" for x in (0, 50) for y in (0, 50, 100))
    (tmp_path / "s.csv").write_text(f"x,y,v\n{rows}")
    (tmp_path / "own.toml").write_text(
        'name = "v1 [/final] :warning:"\nrounds = 1\ncoordination = { kind = "random" }\n'
        '[environment]\nid = "swarmbo/robot_team-v0"\nrobots = 2\n'
        '[environment.field]\ncsv = "s.csv"\nvalue = "v"\nunit = "[mS/m]"\n'
    )
    told = invoke("run", "own.toml", "--no-figures").stdout
    assert "[mS/m]" in told
    assert "v1 [/final] :warning:" in told
