"""A user's code that a scenario names runs in every process with --trust, and never without it."""

import json
import re
import shutil
import sys

import pytest

from swarmbo.compare import compare
from swarmbo.errors import ConfigError, OwnCodeError, RunFolderError
from swarmbo.kernels import registry
from swarmbo.runs import RunFolder, check, load, plan, resume, run, sweep
from swarmbo.runs.runner import completed_summary
from swarmbo.runs.scenario import scenario_of
from swarmbo.runs.trial import estimate
from swarmbo.runs.world import require_trust

METHODS = """
import pathlib
import swarmbo as sb
from own_helper import report

pathlib.Path(__file__).with_name("imported").touch()


class First:
    def __init__(self, skip=0, fail_at=None, sure=True):
        self.skip, self.fail_at = skip, fail_at

    def decide(self, situation, acquisition):
        if situation.round == self.fail_at:
            return 1 / 0
        return sb.Decision({a: situation.candidates[a][self.skip] for a in situation.movers}, report())


class Corner:
    def decide_joint(self, situation, acquisition):
        return [1.0] * situation.domain.n_dims, report()


class Half(sb.DECHBO, frozen=True):
    share: float = 0.5


class Common:
    def __init__(self, floor):
        self.settings = sb.AdditiveGPSettings(lengthscales="shared", noise_floor=floor)

    def learn(self, situation, acquisition, previous):
        return acquisition.learn(situation, self.settings, previous)


class Cusp:
    def correlation(self, r):
        return sb.kernels.correlation("matern12", r)

    def slope(self, r):
        return sb.kernels.correlation_and_slope("matern12", r)[1]


class Slopeless:
    def correlation(self, r):
        return 1.0 / (1.0 + r**2)
"""
WORLDS = """
from swarmbo_envs import robot_team_v0


def robots(robots=2, max_cycles=5):
    return robot_team_v0.parallel_env(robots=robots, max_cycles=max_cycles)


def stated(robots=2, max_cycles=5, state=None):
    env = robot_team_v0.parallel_env(robots=robots, max_cycles=max_cycles)
    env.get_state = lambda: {"numbers": {"json": {"n": {1}}, "arrays": {}}}.get(state, {"n": 1})
    return env


def nothing(robots=2):
    return 3


class Stranger:
    pass
"""
FIELD = {"name": "f", "rounds": 2, "environment": {"id": "swarmbo/robot_team-v0", "robots": 2}}


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A folder with a scenario and a user's modules beside it. The working directory is another folder."""
    folder, other = tmp_path / "mine", tmp_path / "elsewhere"
    folder.mkdir()
    other.mkdir()
    monkeypatch.chdir(other)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(registry, "_OWN", {})
    (folder / "own_methods.py").write_text(METHODS)
    (folder / "own_helper.py").write_text("import swarmbo as sb\ndef report(): return sb.SolveReport('not_needed')\n")
    (folder / "own_worlds.py").write_text(WORLDS)
    write(folder, "coordination.kind = 'own_methods:First'")
    yield folder
    for name in ("own_methods", "own_helper", "own_worlds"):
        sys.modules.pop(name, None)


def write(folder, *lines, world="swarmbo/robot_team-v0", more=""):
    text = f"name = 'f'\nrounds = 2\n{more}\n" + "\n".join(lines) + f"\n[environment]\nid = '{world}'\n"
    (folder / "s.toml").write_text(text + ("robots = 2\n" if "function" not in world else "function = 'camel'\n"))


def untouched(folder):
    return not (folder / "imported").exists() and "own_methods" not in sys.modules


def test_without_trust_nothing_is_imported_or_created(beside, cli):
    source, out = beside / "s.toml", beside / "out"
    made = scenario_of({**FIELD, "coordination": {"kind": "own_methods:First"}})
    attempts = [lambda: load(source), lambda: plan(source, 2, out=out)]
    attempts += [lambda: run(made, out), lambda: check(made), lambda: estimate(made)]
    for attempt in attempts:
        with pytest.raises(ConfigError, match=r"\$\.coordination\.kind: got 'own_methods:First', your own .* --trust"):
            attempt()
    for key, code in (("acquisition.kind", "own_methods:Half"), ("environment.id", "own_worlds:robots")):
        with pytest.raises(ConfigError, match=rf"\$\.{key}: got '{code}', your own code; wanted --trust"):
            load("robots", [f"{key}={code}"])
    with pytest.raises(ConfigError, match=r"\$\.acquisition.*got 'own_methods:Half', your own code; wanted --trust"):
        require_trust({"acquisition": "own_methods:Half"}, trust=False)
    require_trust({"environment": "own_worlds:robots"}, trust=False)  # not a table, so it is refused elsewhere
    for command in (["run", source, "--out", out], ["check", source], ["sweep", source]):
        done = cli(*command, status=2)
        assert "--trust" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert untouched(beside)
    assert not out.exists()


@pytest.mark.parametrize("attended", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_with_trust_own_code_runs_and_resumes_in_any_process_and_folder(beside, monkeypatch, tmp_path, cut, attended):
    write(beside, "coordination = {kind = 'own_methods:First', skip = 1}", more="step_timeout_s = 60" * attended)
    scenario, out = load(beside / "s.toml", trust=True), tmp_path / "out"
    whole = run(scenario, out, trust=True)
    assert scenario.modules == (str(beside),)
    assert RunFolder.open(out).scenario() == scenario
    (beside / "imported").unlink()
    sys.modules.pop("own_methods", None)
    assert completed_summary(scenario, out, trust=False) == whole
    assert untouched(beside)
    half = tmp_path / "half"
    shutil.copytree(out, half)
    cut(half, 2)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="--trust"):
        resume(half)
    assert resume(half, trust=True).score == whole.score
    assert (half / "rounds.jsonl").read_bytes() == (out / "rounds.jsonl").read_bytes()


@pytest.mark.slow
def test_sweep_runs_own_code_in_several_processes_but_plot_and_compare_never_load_it(beside, cli, monkeypatch, blank):
    trials = plan(beside / "s.toml", 1, ["coordination.skip=0,1"], beside / "runs", trust=True)
    assert [outcome.status for outcome in sweep(trials, workers=2)] == ["done"] * 2
    assert [outcome.status for outcome in sweep(trials)] == ["skipped"] * 2
    for name in ("own_methods", "own_helper"):
        sys.modules.pop(name, None)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(beside)])
    (beside / "imported").unlink()
    for command in (["compare", beside / "runs"], ["plot", trials[0].out], ["list"]):
        cli(*command)
    assert untouched(beside)
    assert str(beside) not in sys.path


def test_compare_notes_which_runs_used_other_code(beside, tmp_path):
    for seed in (0, 1, 2):
        run(load(beside / "s.toml", [f"seed={seed}"], trust=True), tmp_path / str(seed), trust=True)
        if seed == 1:
            assert not [note for note in compare([tmp_path]).notes if "own_methods" in note]
            with (beside / "own_methods.py").open("a") as file:
                file.write("# better\n")
    (note,) = [note for note in compare([tmp_path]).notes if "own_methods" in note]
    assert note.startswith("own_methods:First: its code differs between runs")
    assert "2 as " in note
    assert note.endswith(f"1 as {tmp_path / '2'}")


def test_an_own_belief_about_a_function_runs_and_resumes(beside, tmp_path, cut):
    settings = {"name": "c", "rounds": 12, "seed": 3}
    settings |= {"environment": {"id": "swarmbo/function-v0", "function": "camel"}}

    def log(belief, name):
        scenario = scenario_of(settings | {"belief": belief, "modules": [str(beside)]}, trust=True)
        run(scenario, tmp_path / name, trust=True)
        lines = (tmp_path / name / "rounds.jsonl").read_text().splitlines()
        return [json.loads(line)["joint"] for line in lines]

    mine = log({"kind": "own_methods:Common", "floor": 1e-4}, "own")
    assert mine == log({"kind": "additive", "lengthscales": "shared", "noise_floor": 1e-4}, "known")
    assert mine != log({"kind": "additive"}, "default")
    whole = (tmp_path / "own" / "rounds.jsonl").read_bytes()
    cut(tmp_path / "own", 12)
    resume(tmp_path / "own", trust=True)
    assert (tmp_path / "own" / "rounds.jsonl").read_bytes() == whole


def _leaves(value):
    """Leaves of nested lists and objects, in order."""
    if not isinstance(value, list | dict):
        yield value
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        yield from _leaves(value[key])


@pytest.mark.filterwarnings("default:no map and no film")
@pytest.mark.parametrize(
    "world", [pytest.param("swarmbo/robot_team-v0", marks=pytest.mark.thorough), "swarmbo/function-v0"]
)
def test_a_kernel_named_by_a_scenario_runs_and_resumes_with_trust(beside, cli, tmp_path, blank, world):
    def log(kernel):
        # expected improvement needs no frequencies, which this kernel lacks
        write(beside, f"belief.kernel = '{kernel}'", "acquisition.kind = 'expected-improvement'", world=world)
        run(load(beside / "s.toml", trust=True), out := tmp_path / kernel[-4:], trust=True)
        lines = [json.loads(line) for line in (out / "rounds.jsonl").read_text().splitlines()]
        return out, [[line["samples"], line["joint"], line["recommendation"]] for line in lines]

    out, mine = log("own_methods:Cusp")
    # equal except for rounding, because the library's own kernels are compiled
    for one, other in zip(_leaves(mine), _leaves(log("matern12")[1]), strict=True):
        assert one == (pytest.approx(other, rel=1e-6, abs=1e-6) if isinstance(other, float) else other)
    assert "own_methods:Cusp" in RunFolder.open(out).versions()
    registry._OWN.clear()
    (out / "summary.json").unlink()
    words = r"\$\.belief\.kernel: got 'own_methods:Cusp', your own code; wanted --trust"
    for attempt in (lambda: resume(out), lambda: load(out / "scenario.toml")):
        with pytest.raises(ConfigError, match=words):
            attempt()
    assert ("no map and no film" in cli("plot", out).output) == ("robot" in world)
    assert not registry._OWN  # figures load no code, and then have no map
    assert resume(out, trust=True).rounds == 2


def test_code_that_changed_since_a_run_began_is_refused(beside, tmp_path):
    trials = plan(beside / "s.toml", 1, out=beside / "runs", trust=True)
    run(trials[0].scenario, trials[0].out, trust=True)
    with (beside / "own_methods.py").open("a") as file:
        file.write("# better\n")
    words = "the code of own_methods:First was changed since the run began; put it back, or run it again, in another"
    for attempt in (
        lambda: run(trials[0].scenario, trials[0].out, trust=True),
        lambda: resume(trials[0].out, trust=True),
    ):
        with pytest.raises(RunFolderError, match=words):
            attempt()
    (again,) = sweep(trials)
    assert again.status == "failed"
    assert words in again.message
    run(trials[0].scenario, trials[0].out, trust=True, force=True)


def test_own_parts_for_functions_and_own_environments_run(beside, tmp_path):
    kinds = "acquisition = {kind = 'own_methods:Half', share = 0.1}", "coordination.kind = 'own_methods:Corner'"
    write(beside, *kinds, world="swarmbo/function-v0")
    run(load(beside / "s.toml", trust=True), tmp_path / "joint", trust=True)
    write(beside, world="own_worlds:robots")
    scenario = load(beside / "s.toml", trust=True)
    run(scenario, tmp_path / "field", trust=True)
    world = json.loads((tmp_path / "field" / "world.json").read_text())
    assert (world["id"], len(world["agents"])) == ("own_worlds:robots", 2)
    assert estimate(scenario, trust=True).seconds > 0.0


def test_an_exception_of_own_code_is_one_line_with_module_class_and_method(beside, cli, tmp_path):
    write(beside, "coordination = {kind = 'own_methods:First', fail_at = 2}")
    words = r"own_methods:First\.decide raised ZeroDivisionError: division by zero \(own_methods\.py:15\)"
    with pytest.raises(OwnCodeError, match=words):
        run(load(beside / "s.toml", trust=True), tmp_path / "out", trust=True)
    done = cli("run", beside / "s.toml", "--trust", "--quiet", "--out", tmp_path / "2", status=1)
    assert len(done.stderr.splitlines()) == 1
    assert "own_methods:First.decide raised ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("", r"returned \{'n': 1\}; wanted \{'json': plain data, 'arrays': .*, and a method set_state"),
        ("numbers", "returned 'json' that is not plain: Object of type set"),
    ],
)
def test_a_state_that_a_checkpoint_cannot_store_is_refused_in_one_line(beside, cli, tmp_path, state, words):
    write(beside, world="own_worlds:stated")
    done = cli("run", beside / "s.toml", "--trust", "--set", f"environment.state='{state}'", status=2)
    assert re.search(r"swarmbo: \$\.environment: get_state\(\) " + words, done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("lines", "world", "words"),
    [
        ("coordination.kind = 'own_method:First'", "", r"\$\.coordination\.kind: got .*no module 'own_method'"),
        ("acquisition.kind = 'own_methods:Half'", "", "wanted your subclass of swarmbo.ChainAcquisition with utility"),
        ("coordination = {kind = 'own_methods:First', skip = 1000000}", "", "wanted an integer up to 100000"),
        ("belief.kernel = 'own_methods:Slopeless'", "", r"kernel: got .*Slopeless', which has no slope\(r\); wanted"),
        ("", "own_worlds:nothing", "own_worlds:nothing returned 3; wanted a pettingzoo.ParallelEnv"),
        ("", "own_worlds:Stranger", "own_worlds:Stranger, which is .*wanted a class derived from pettingzoo"),
        ("", "os:system", "os:system, which is <built-in .*wanted a class derived from pettingzoo"),
    ],
)
def test_invalid_names_and_settings_are_refused_in_one_line_before_a_run_begins(beside, tmp_path, lines, world, words):
    write(beside, lines, world=world or "swarmbo/robot_team-v0")
    with pytest.raises(ConfigError, match=words) as refused:
        run(load(beside / "s.toml", trust=True), tmp_path / "out", trust=True)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_module_hidden_by_another_is_refused(beside, monkeypatch, tmp_path):
    (beside / "json.py").write_text("class First: pass\n")
    write(beside, "coordination.kind = 'json:First'")
    with pytest.raises(ConfigError, match=r"got 'json:First', but .*json\.py is hidden by .*; wanted another name"):
        load(beside / "s.toml", trust=True)
    (tmp_path / "elsewhere" / "own_methods.py").write_text(METHODS)
    write(beside, "coordination.kind = 'own_methods:First'")
    assert load(beside / "s.toml", trust=True).modules == (str(beside), str(tmp_path / "elsewhere"))


def test_modules_are_recorded_only_for_used_code_including_overrides(beside):
    plain = ["coordination.kind=greedy"]
    named = ["environment.id=own_worlds:robots", *plain]
    assert load(beside / "s.toml", named, trust=True).modules == (str(beside),)
    assert load(beside / "s.toml", plain, trust=True) == load(beside / "s.toml", plain)
