"""Shell completion of scenario names, and of the settings of the scenario on the command line."""

import pytest
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.errors import ConfigError
from swarmbo.registry import SLOTS
from swarmbo.runs.scenario import scenario_of
from swarmbo.runs.scenario_files import apply_overrides, available, find, read_toml, scenario_names, setting_completions


def completed(words, begun):
    line = {"COMP_WORDS": " ".join(["swarmbo", *words, begun]), "COMP_CWORD": str(len(words) + 1)}
    environment = {"_SWARMBO_COMPLETE": "complete_bash", **line}
    result = CliRunner().invoke(app, [], env=environment, prog_name="swarmbo")
    return result.stdout.split()


def test_names_and_files_of_scenarios_are_offered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text("")
    assert scenario_names("") == [*available(), "mine.toml"]
    assert completed(["run"], "field-") == scenario_names("field-") == ["field-plume", "field-soil"]
    assert completed(["sweep"], "mi") == ["michalewicz", "mine.toml"]


def test_settings_of_the_scenario_on_the_command_line_are_offered():
    assert completed(["run", "robots", "--set"], "coordination.kind=max") == ["coordination.kind=max-sum"]
    assert "coordination.table_budget=" in completed(["sweep", "robots", "--set"], "coordination.t")
    assert "coordination.penalty=" in completed(["check", "powell", "--set"], "coordination.p")
    assert "environment.audible_dbm=" in setting_completions("wlan", "environment.")
    assert "environment.id=swarmbo/wlan_power-v0" in setting_completions(None, "environment.id=")
    assert "rounds=" in setting_completions("no-such-scenario", "r")
    assert setting_completions("robots", "nothing.like") == []


@pytest.mark.parametrize("name", ["robots", "wlan", "field-plume", "camel"])
def test_every_offered_setting_exists(name):
    data, offered = read_toml(find(name)), setting_completions(name, "")
    assert len(offered) > 30
    for path in offered:
        table, _, key = path.rstrip("=").partition(".")
        if path.endswith("=") and table in SLOTS and "." not in key:
            message = ""
            try:
                scenario_of(apply_overrides(data, [f"{path}[[]]"]))
            except ConfigError as refused:
                message = str(refused)
            assert "unknown key" not in message, path


def test_settings_of_a_users_own_environment_are_completed(tmp_path):
    (tmp_path / "mine.toml").write_text(
        '[environment]\nid = "my_worlds:Pond"\ndepth = 3\n[environment.field]\nscale = 1.0\n'
    )
    assert setting_completions(str(tmp_path / "mine.toml"), "environment.d") == ["environment.depth="]
    assert setting_completions(str(tmp_path / "mine.toml"), "environment.field.") == ["environment.field.scale="]
