"""Wrong scenarios end with one line (path of the key, got and wanted), status 2 and no traceback."""

import copy
import datetime
import math
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import HealthCheck, given, settings, strategies as st
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.runs.scenario_files import find

BASE = tomllib.loads(find("robots").read_text(encoding="utf-8"))
BASE["environment"] |= {"speed_m_s": 5.0, "starts": [[100.0, 100.0], [900.0, 100.0], [100.0, 900.0], [900.0, 900.0]]}
BASE["coordination"] = {"kind": "max-sum", "rounds": 5, "damping": 0.25}


def check(file, *arguments):
    return CliRunner().invoke(app, ["check", "--quick", str(file), *arguments])


def assert_refused(result, at=None):
    assert result.exit_code == 2, (result.output, result.exception)
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    line = result.stderr
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert line.startswith("swarmbo: ")
    assert "Traceback" not in line
    if at is not None:
        assert line.startswith(f"swarmbo: {at}: "), line
    return line


def write(folder, data):
    file = Path(folder) / "scenario.toml"
    file.write_text(tomli_w.dumps(data), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("override", "at", "words"),
    [
        ("environment.robts=3", "$.environment", "unknown key 'robts'; did you mean 'robots'?"),
        ("rouns=3", "$", "unknown key 'rouns'; did you mean 'rounds'?"),
        (
            "acquisition={ kind = 'thompson', seed = 3 }",
            *("$.acquisition", "table_entries, n_features; did you mean 'seed'? (--set seed=…)"),
        ),
        ("acquisition.markov_ordr=3", "$.acquisition", "did you mean 'markov_order'?"),
        ("environment.robots=four", "$.environment.robots", "got 'four'; wanted an integer from 1 to 1024"),
        ("rounds=2.5", "$.rounds", "got 2.5; wanted an integer from 1 to 100000"),
        ("environment.robots=0", "$.environment.robots", "got 0; wanted"),
        ("environment=3", "$.environment", "got 3; wanted a table"),
        ("environment.starts=[[1, 1], [2, 'b']]", "$.environment.starts[1][1]", "got 'b'; wanted a finite number"),
        (
            "constraints=[{ kind = 'linear', weights = { x = 'w' } }]",
            "$.constraints[0].weights.x",
            "got 'w'; wanted a num",
        ),
        (
            "constraints=[{ kind = 'linear', weights = { a = 1, x = [1, 'w'] } }]",
            "$.constraints[0].weights.x[1]",
            "'w'; w",
        ),
        ("constraints=[{ kind = 'linear', weights = 1 }]", "$.constraints[0].weights", "got 1; wanted a table"),
        (
            "constraints=[{ kind = 'linear' }]",
            "$.constraints[0]",
            "got no 'weights'; known keys: kind, weights, at_most",
        ),
        ("constraints=[{ weights = { x = 1 } }]", "$.constraints[0]", "got no 'kind'; wanted 'linear' or"),
        ("environment={ id = 'swarmbo/function-v0', function = 3 }", "$.environment.function", "got 3; wanted text"),
        ("constraints=['linear']", "$.constraints[0]", "got 'linear'; wanted a table"),
        (
            "environment.starts=[[1, 1], [2, 2], [3, 3], [1e9, 5]]",
            "$.environment.starts[3]",
            "got [1000000000.0, 5.0]; w",
        ),
        ("coordination.kind=votes", "$.coordination.kind", "got 'votes'; wanted one of 'dsa', 'exact', 'greedy'"),
        ("belief.kernel=matern53", "$.belief.kernel", "one of 'matern12', 'matern32', 'matern52', 'rbf'; did you mean"),
        ("belief.kind=additive", "$.belief.kind", "got 'additive', which is not for agents that each measure a place"),
        ("environment.field={ elevation = 'alps' }", "$.environment.field.elevation", "wanted one of 'jacksboro'"),
        ("environment.id=swarmbo/moon-v0", "$.environment.id", "got 'swarmbo/moon-v0'; wanted an environment of"),
        (
            "environment.field={ elevation = 'jacksboro', window = [0, 0, 1, 9999] }",
            *("$.environment.field.window", "got [0, 0, 1, 9999]"),
        ),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(override, at, words):
    assert words in assert_refused(check("robots", "--set", override), at)


@pytest.fixture
def measured(tmp_path):
    """Check the scenario for measured data, with a CSV file of the given text."""

    def call(text, *more):
        (tmp_path / "data.csv").write_text(text)
        overrides = [f"environment.field.csv={tmp_path / 'data.csv'}", *more]
        return check("measured", *[part for override in overrides for part in ("--set", override)])

    return call


@pytest.mark.parametrize("name", ["field", "field-soil", "robots"])
def test_a_level_that_is_not_stated_is_refused_before_a_run_begins(name, tmp_path):
    wrong = ["--set", "acquisition.kind=straddle"]
    assert_refused(check(name, *wrong), "$.acquisition.level")
    result = CliRunner().invoke(app, ["run", name, *wrong, "--out", str(tmp_path / "run")])
    assert_refused(result, "$.acquisition.level")
    assert not (tmp_path / "run").exists()
    assert check(name, *wrong, "--set", "acquisition.level=1.0").exit_code == 0


def test_usable_measured_data_are_accepted(measured):
    rows = "\n".join(f"{x},{y},{math.sin(x) + y}" for x in range(5) for y in range(5))
    assert measured(f"x_m,y_m,value\n{rows}\n").exit_code == 0


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("", "$.environment.field.csv"),
        ("x_m,y_m,value\n", "$.environment.field.csv"),
        ("x_m,y_m,value\n" + "".join(f"{x},{x},nan\n" for x in range(9)), "$.environment.field"),
        ("x_m,y_m,value\n1,2,high\n2,3,4\n3,4,5\n", "$.environment.field"),
        ("x_m,y_m,ph\n1,2,3\n2,3,4\n3,4,5\n", "$.environment.field.value"),
    ],
)
def test_a_table_without_usable_numbers_is_refused(measured, text, at):
    assert at in assert_refused(measured(text))


def test_a_table_that_is_not_stated_or_does_not_exist_is_refused(measured, tmp_path):
    assert_refused(check("measured"), "$.environment.field.csv")
    assert_refused(measured("x", f"environment.field.csv={tmp_path / 'nowhere.csv'}"), "$.environment.field.csv")


@pytest.mark.parametrize("content", [b"rounds = ", b"\x89PNG\r\n\x1a\n\xff", b"", b"= 3", b"a = " + b"[" * 3000])
def test_a_file_that_is_not_a_scenario_is_refused(tmp_path, content):
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    line = assert_refused(check(file))
    assert str(file) in line or "$." in line


@pytest.mark.parametrize("name", ["nowhere.toml", "nowhere", "."])
def test_a_path_that_is_not_a_file_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert name in assert_refused(check(name))


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_run_and_sweep_refuse_a_wrong_setting_too(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [command, "robots", "--set", "environment.robots=0"])
    assert_refused(result, "$.environment.robots")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["resume", "plot", "compare"])
def test_a_folder_without_a_run_is_refused(tmp_path, command):
    assert_refused(CliRunner().invoke(app, [command, str(tmp_path)]))
    assert_refused(CliRunner().invoke(app, [command, str(tmp_path / "nowhere")]))


# Mutated files. Sizes are limited, because a test cannot build very large environments.
words = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
scalars = st.one_of(
    st.booleans(),
    st.integers(-3, 40),
    st.sampled_from([2**31, -(2**63), 2**63, 10**40]),
    st.floats(allow_nan=True, allow_infinity=True, width=32),
    words,
    st.sampled_from(["robots", "exact", "random", "jacksboro", "../x.csv", "swarmbo/robot_team-v0", "\n", "\x1b[31m"]),
    st.sampled_from([datetime.date(2026, 11, 20), datetime.datetime(2026, 11, 20, 3, 4, 5), datetime.time(1, 2)]),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)
known = ["robots", "field", "kind", "rounds", "seed", "csv", "x", "kernel", "starts", "window", "gp", "versions"]
keys = st.sampled_from(known) | words


def tables_of(data, path=()):
    yield path
    for key, value in data.items():
        if isinstance(value, dict):
            yield from tables_of(value, (*path, key))


def table_at(data, path):
    for key in path:
        data = data[key]
    return data


@st.composite
def mutated(draw):
    """The scenario with one to three settings replaced, added, renamed, deleted or moved to another table."""
    data = copy.deepcopy(BASE)
    for _ in range(draw(st.integers(1, 3))):
        table = table_at(data, draw(st.sampled_from(list(tables_of(data)))))
        action = draw(st.sampled_from(["replace", "replace", "add", "rename", "delete", "move"]))
        if action == "add" or not table:
            table[draw(keys)] = draw(values)
            continue
        key = draw(st.sampled_from(sorted(table)))
        if action == "replace":
            table[key] = draw(values)
        elif action == "rename":
            table[draw(keys)] = table.pop(key)
        elif action == "delete":
            del table[key]
        else:
            value = table.pop(key)
            table_at(data, draw(st.sampled_from(list(tables_of(data)))))[draw(keys)] = value
    return data


# Numbers of any size, in scenarios of every environment.
WORLDS = {name: tomllib.loads(find(name).read_text(encoding="utf-8")) for name in ("powell", "wlan", "field-plume")}
WORLDS["robots"] = BASE
MORE = {
    "powell": [("coordination", {"kind": "admm", "starts": 2, "screened": 4, "rounds": 5, "penalty": 0.5})],
    "wlan": [("belief", {"kind": "additive", "restarts": 1}), ("acquisition", {"kind": "thompson", "n_features": 64})],
    "field-plume": [("acquisition", {"kind": "information", "candidates": 16})],
    "robots": [("acquisition", {"kind": "db-gp-ucb", "exploration_scale": 1.0, "candidates": 16})],
}
sizes = st.one_of(
    st.builds(lambda digit, power: digit * 10**power, st.integers(-9, 9), st.integers(0, 30)),
    st.builds(lambda digit, power: digit * 10.0**power, st.integers(-9, 9), st.integers(-307, 307)),
)


@st.composite
def oversized(draw):
    """A scenario of any environment, with one or two numbers of any size."""
    name = draw(st.sampled_from(sorted(WORLDS)))
    data = copy.deepcopy(WORLDS[name])
    for table, settings_of_it in MORE[name]:
        data[table] = dict(settings_of_it)
    numbers = [
        (path, key)
        for path in tables_of(data)
        for key, value in table_at(data, path).items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    for path, key in draw(st.lists(st.sampled_from(numbers), min_size=1, max_size=2)):
        table_at(data, path)[key] = draw(sizes)
    return data


def assert_checked(folder, data):
    """True if a scenario is accepted; if not, assert that it is refused in one readable line."""
    result = check(write(folder, data))
    if result.exit_code != 0:
        line = assert_refused(result)
        assert "$" in line
        assert len(line) < 1100
    return result.exit_code == 0


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.one_of(mutated(), oversized()))
def test_mutated_scenarios_are_accepted_or_refused_with_the_path_of_the_key(tmp_path_factory, data):
    assert_checked(tmp_path_factory.getbasetemp(), data)


@pytest.mark.slow
def test_accepted_ones_of_10000_mutated_scenarios_run_no_longer_than_check_estimates(tmp_path):
    """One in a hundred accepted scenarios is tried, and run if ``check`` estimates less than 20 s."""
    accepted = []

    @settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
    @given(data=st.one_of(mutated(), oversized()))
    def check_all(data):
        if assert_checked(tmp_path, data):
            accepted.append(data)

    check_all()
    for number, data in enumerate(accepted[::100]):
        file = write(tmp_path, data)
        takes = CliRunner().invoke(app, ["check", str(file)])
        if takes.exit_code != 0:
            assert_refused(takes)
        elif (told := re.search(r"takes about (\d+) s", takes.stdout)) is not None and int(told.group(1)) < 20:
            command = [sys.executable, "-m", "swarmbo", "run", str(file), "--quiet", "--out", f"{tmp_path}/{number}"]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert "Traceback" not in ended.stderr, (data, ended.stderr)


@pytest.mark.parametrize(
    ("name", "override", "at"),
    [
        ("powell", "environment.parameters={ n_variables = 1000000 }", "$.environment.parameters"),
        ("robots", "belief.restarts=1000000", "$.belief.restarts"),
        ("powell", "coordination={ kind = 'admm', starts = 1000000 }", "$.coordination.starts"),
        ("powell", "coordination={ kind = 'admm', screened = 1000000000 }", "$.coordination.screened"),
        ("powell", "coordination={ kind = 'turbo-1', candidates = 1000000000 }", "$.coordination.candidates"),
        ("powell", "belief={ kind = 'additive', lengthscale_log_std = 1e300 }", "$.belief.lengthscale_log_std"),
        ("robots", "belief={ kind = 'exact', lengthscale_median = 1e-300 }", "$.belief.lengthscale_median"),
        ("robots", "environment.field={ gp = { size_m = [1e12, 1e-6] } }", "$.environment.field.gp.size_m"),
        ("robots", "environment.field={ gp = { lengthscale_m = 1e12 } }", "$.environment.field.gp.lengthscale_m"),
    ],
)
def test_numbers_too_large_or_small_for_any_run_are_refused(name, override, at):
    assert_refused(check(name, "--set", override), at)


@pytest.mark.parametrize("text", ["a." * 3000 + "b = 1", "[" + "a." * 3000 + "b]", "x = " + "[" * 90 + "]" * 90])
def test_extremely_nested_tables_are_refused(tmp_path, text):
    (tmp_path / "deep.toml").write_text(text)
    assert "nested" in assert_refused(check(tmp_path / "deep.toml"))
    assert_refused(check("robots", "--set", "a." * 3000 + "b=1"), "--set")


def test_errors_have_a_readable_length(tmp_path):
    data = copy.deepcopy(BASE)
    data["environment"] |= {"x" * 50_000: 1}
    assert len(assert_refused(check(write(tmp_path, data)))) < 1100
    assert len(assert_refused(check("robots", "--set", "environment.field={ csv = '" + "y" * 50_000 + "' }"))) < 1100


@pytest.mark.thorough
def test_the_time_of_a_long_run_is_estimated_and_a_run_beyond_memory_refused(monkeypatch):
    monkeypatch.setattr("swarmbo.runs.trial.PATIENCE_S", 5.0)
    short = CliRunner().invoke(app, ["check", "robots", "--set", "rounds=2", "--set", "coordination.kind=random"])
    assert re.search(r"its rounds take (about|more than) \d+ (s|min)", short.stdout), short.output
    long = CliRunner().invoke(app, ["check", "robots", "--set", "rounds=100000"])
    line = assert_refused(long) if long.exit_code else long.stdout
    assert re.search(r"needs more memory than is available|take (about|more than) [\d,]+ (days|years)", line)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_pipes_and_devices_are_refused_as_tables(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path, told in ((tmp_path / "pipe", "it is a pipe"), ("/dev/zero", "it is a device")):
        for name, key in (("measured", "environment.field.csv"), ("wlan", "environment.topology.csv")):
            assert told in assert_refused(check(name, "--set", f"{key}={path}"))
        assert told in assert_refused(check(path))


@given(at=st.floats(0, 1), cut=st.integers(0, 6), insert=st.text(st.characters(exclude_categories=("Cs",)), max_size=4))
def test_files_with_damaged_characters_are_accepted_or_refused_in_one_line(tmp_path_factory, at, cut, insert):
    text = tomli_w.dumps(BASE)
    place = int(at * len(text))
    file = tmp_path_factory.getbasetemp() / "damaged.toml"
    file.write_text(text[:place] + insert + text[place + cut :], encoding="utf-8", newline="")
    result = check(file)
    if result.exit_code != 0:
        line = assert_refused(result)
        assert "$" in line or str(file) in line
