"""``swarmbo explain`` has an entry for every name, with meaning, default and command."""

from functools import partial
from typing import get_args

import pytest
from typer.testing import CliRunner

from swarmbo.cli import app
from swarmbo.cli.explain import _keys, _settings, _tables, explained, glossary, names
from swarmbo.records.solve_report import Status

run = CliRunner()


def output_of(*words: str, status: int = 0) -> str:
    result = run.invoke(app, ["explain", *words], env={"COLUMNS": "80"})
    assert result.exit_code == status
    return " ".join(result.output.split())


def test_every_name_has_an_entry_with_text(monkeypatch) -> None:
    monkeypatch.setattr("swarmbo.cli.explain._tables", partial(list, [*_tables()]))  # the same for every name
    entries = {name: list(explained(name)) for name in names()}
    assert len(entries) > 250
    assert not [name for name, found in entries.items() if not found or not all(any(e.paragraphs) for e in found)]


def test_every_status_has_an_entry() -> None:
    assert set(glossary()["status"]) == set(get_args(Status))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("max-sum", ["coordination: max-sum", "damping: Share of the previous", "Default: 0.5", "term: max-sum"]),
        ("coordination.damping", ["key: coordination.damping (", "max-sum", "[0, 1)", "--set coordination.damping="]),
        ("environment.field", ["kind of field: elevation, csv"]),
        ("environment.field.csv", ["v1, swarmbo/sensor_field-v0)", "Path of the file", "--set environment."]),
        ("environment.field.plume", ["Puffs emitted by sources", "no default"]),
        ("environment.field.plume.gusts", ["gusts (swarmbo/sensor_field-v0)", "Share of the wind", "Default: 0.6"]),
        ("generated.users", ["key: environment.topology.generated.users", "Number of users", "Default: 36"]),
        ("environment.simulation.runs", ["means over this many runs", "Default: 1"]),
        ("belief.time.lengthscale_median", ["(additive, exact)", "Median > 0"]),
        ("environment.field.csv", ["Measured points in a CSV", "field.value: Column of the measured"]),
        ("environment.field.plume", ["environment.field.plume.gusts: Share of the wind", "Default: 0.6"]),
        ("environment.field.survey", ["A survey shipped with", "environment.field.sites:"]),
        (
            "environment.field.value",
            ["key: environment.field.value (csv; swarmbo/", "environment.field.value (raster; "],
        ),
        (
            "belief.factors.f.kernel",
            ["key: belief.factors.NAME.kernel (additive)", "--set belief.factors.NAME.kernel="],
        ),
        ("transport.cuts[0].parts", ["key: transport.cuts[].parts (faulty)", "--set transport.cuts=[{…}]"]),
        ("safe.share", ["key: safe.share Least utility", "Default: 0.95", "--set safe.share="]),
        ("acquisition.box", ["Default: the defaults of its keys.", "acquisition.box.initial: First side"]),
        ("environment.departures", ["Default: []."]),
        ("environment.types", ["Default: {}."]),
        ("coordination", ["Default: that of the team."]),
        ("robot_team-v1", ["environment: swarmbo/robot_team-v1", "battery_s", "travel_cost"]),
        ("wlan", ["scenario: wlan", "try: swarmbo run wlan"]),
        ("sb.ShapeError", ["error: ShapeError"]),
        ("Trust-Region", ["term: trust region"]),
        ("world", ["term: world"]),
        ("gap", ["term: gap"]),
        ("limits", ["term: limit", "measured with each outcome"]),
        ("constraints", ["key: constraints", "term: constraint", "Linear"]),
        ("sb.Integer", ["term: integer", "whole values"]),
        ("stayed", ["term: stayed"]),
    ],
)
def test_an_entry_has_the_meaning_the_default_and_a_command(name: str, wanted: list[str]) -> None:
    text = output_of(name)
    assert [part for part in wanted if part not in text] == []


def test_no_two_entries_of_a_name_have_the_same_title() -> None:
    keys = {f"{path}.{each.name}".strip(".") for path, *_, maker in _tables() for each in _settings(maker)}
    titles = {key: [entry.title for entry in _keys(key)] for key in keys}
    assert not {key: found for key, found in titles.items() if len(found) != len(set(found))}


def test_variable_arguments_of_an_environment_are_no_settings() -> None:
    def make(robots: int = 2, *args: int, **more: int) -> None: ...

    assert [each.name for each in _settings(make)] == ["robots"]


def test_a_term_of_two_words_needs_no_quotes() -> None:
    assert output_of("trust", "region") == output_of("trust region")


def test_lines_fit_the_terminal_and_contain_no_markup() -> None:
    result = run.invoke(app, ["explain", "robot_team-v1"], env={"COLUMNS": "60"})
    assert max(map(len, result.output.splitlines())) <= 60
    assert not [mark for mark in ("``", "**", ":class:", "|---") if mark in result.output]


def test_a_table_cell_of_several_lines_becomes_one_line() -> None:
    result = run.invoke(app, ["explain", "wlan_power-v0"])
    assert not [line for line in result.output.splitlines() if "  " in line.strip()]


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    assert "did you mean 'camel'" in output_of("camle", status=2)
    assert "did you mean 'expected-improvement'" in output_of("ei", status=2)
    assert "did you mean 'exact'" in output_of("dpop", status=2)
    assert "see `swarmbo list`" in output_of("qqqqqq", status=2)


WRONG = ["coordination.rounds=-1", "workers.count=-1", "acquisition.weight=x"]
WRONG += [f"{slot}.kind=none" for slot in ("acquisition", "belief", "coordination", "transport")] + [
    "environment.id=no"
]


@pytest.mark.parametrize("setting", WRONG)
def test_a_refused_setting_names_the_command_that_explains_it(setting: str) -> None:
    result = run.invoke(app, ["check", "wlan", "--set", setting])
    assert result.exit_code == 2
    _, _, command = result.output.strip().rstrip(")").rpartition("(see: swarmbo explain ")
    assert command == setting.partition("=")[0]
    assert output_of(command)
