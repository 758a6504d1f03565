"""Scenarios: defaults, limits, files and their locations, overrides."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given, strategies as st

import swarmbo
from swarmbo.errors import ConfigError
from swarmbo.registry import SLOTS
from swarmbo.runs import scenario as module
from swarmbo.runs.scenario import require_practical_numbers, require_shallow, scenario_of
from swarmbo.runs.scenario_files import (
    apply_overrides,
    available,
    dump,
    find,
    load,
    locate,
    parse_override,
    reproductions,
    split_alternatives,
    summary_line,
)

MINIMAL = {"name": "mine", "environment": {"id": "swarmbo/robot_team-v0"}}
words = st.text(st.characters(categories=("L", "N"), include_characters="-_"), min_size=1, max_size=8)


def test_missing_tables_and_kinds_take_their_defaults():
    scenario = scenario_of({**MINIMAL, "belief": {"kernel": "rbf"}})
    kinds = {table: msgspec.to_builtins(getattr(scenario, table))["kind"] for table in module.SLOTS}
    assert kinds == module.DEFAULT_KINDS[module.FIELD]
    assert scenario.belief.kernel == "rbf"
    assert (scenario.rounds, scenario.seed) == (25, 0)


def test_a_scenario_built_in_code_has_the_same_defaults():
    assert module.Scenario(name="mine", environment={"id": "swarmbo/robot_team-v0"}) == scenario_of(MINIMAL)


def test_a_dumped_scenario_is_read_back_equal(tmp_path):
    nasty = 'soil "pH"\\ über\u2028'
    world = {"id": "x/y-v0", "nested": {"a": [1, 2.5, {"b": nasty}], "c": True}, "empty": {}, "half": 0.1}
    coordination = {"kind": "max-sum", "damping": 0.1 + 0.2}
    stated = {"rounds": 7, "seed": 2**60, "environment": world, "coordination": coordination}
    scenario = scenario_of({**MINIMAL, **stated})
    file = tmp_path / "again.toml"
    file.write_text(dump(scenario) + '[versions]\nnumpy = "2"\n', encoding="utf-8")
    assert load(file) == scenario
    choice = {"id": "x/y-v0", "types": {"x": {"values": ["oak", None]}}}
    with pytest.raises(ConfigError, match=r"\$\.environment\.types\.x\.values\[1\]: got None, which TOML cannot state"):
        dump(scenario_of({"name": "n", "environment": choice}))


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"rounds": 0}, "$.rounds"),
        ({"rounds": 100_001}, "$.rounds"),
        ({"seed": -1}, "$.seed"),
        ({"name": "  "}, "$.name"),
        ({"name": "a\nb"}, "$.name"),
        ({"environment": {}}, "$.environment.id"),
        ({"environment": {"id": 3}}, "$.environment.id"),
        ({"environment": {"id": "a", "max_cycles": 3}}, "$.environment.max_cycles"),
        ({"belief": {"kernel": "matern12 "}}, "$.belief.kernel"),
        ({"coordination": {"kind": "nobody"}}, "$.coordination.kind"),
        ({"transport": 3}, "$.transport"),
    ],
)
def test_a_wrong_value_is_refused_with_the_path_of_its_key(change, at):
    with pytest.raises(ConfigError, match=f"^{re.escape(at)}: "):
        scenario_of({**MINIMAL, **change})


@pytest.mark.parametrize("key", ["name", "environment"])
def test_an_error_names_a_missing_key(key):
    with pytest.raises(ConfigError, match=rf"^\$\.{key}: .*missing"):
        scenario_of({k: v for k, v in MINIMAL.items() if k != key})


def test_the_name_defaults_to_the_name_of_the_file(tmp_path):
    file = tmp_path / "soil.toml"
    file.write_text('[environment]\nid = "a"')
    assert load(file).name == "soil"


def test_paths_in_a_file_are_relative_to_it_and_paths_in_overrides_to_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    file = tmp_path / "there" / "soil.toml"
    file.write_text('[environment]\nid = "a"\nfield = { csv = "data/soil.csv", x = "e" }')
    monkeypatch.chdir(tmp_path / "here")
    assert load(file).environment["field"] == {"csv": str(tmp_path / "there" / "data" / "soil.csv"), "x": "e"}
    moved = load(file, ["environment.field.csv=mine.csv"])
    assert moved.environment["field"]["csv"] == str(tmp_path / "here" / "mine.csv")
    lakes = 'no_go = [{ geojson = "lake.geojson" }, { corners = [[0, 0], [1, 0], [0, 1]] }]'
    file.write_text(f'[environment]\nid = "a"\nfield.raster = "dem.tif"\ntopology.csv = "office.csv"\n{lakes}')
    environment = load(file).environment
    assert environment["topology"]["csv"] == str(tmp_path / "there" / "office.csv")
    assert environment["field"]["raster"] == str(tmp_path / "there" / "dem.tif")
    assert environment["no_go"][0]["geojson"] == str(tmp_path / "there" / "lake.geojson")
    file.write_text('[environment]\nid = "a"\nfield = { csv = "data/soil.csv", x = "e" }')
    absolute = os.path.abspath(os.sep + "data.csv")
    assert load(file, [f"environment.field.csv={absolute}"]).environment["field"]["csv"] == absolute


def test_every_included_scenario_loads_by_its_name_and_has_a_description():
    assert {"robots", "robots-depot", "robots-window", "robots-topobathy", "measured"} <= available().keys()
    for name, path in available().items():
        assert load(name).name == name
        assert len(summary_line(path)) > 20


def test_a_name_is_searched_first_inside_the_package_and_then_beside_it(tmp_path, monkeypatch):
    package = tmp_path / "swarmbo"
    monkeypatch.setattr(swarmbo, "__file__", str(package / "__init__.py"))
    beside, inside = tmp_path / "scenarios", package / "_scenarios"
    for folder in (beside, inside):
        folder.mkdir(parents=True)
    (beside / "one.toml").write_text("")
    assert find("one") == beside / "one.toml"
    (inside / "one.toml").write_text("")
    assert find("one") == inside / "one.toml"
    assert find("two") is None
    (inside / "papers").mkdir()
    (inside / "papers" / "two.toml").write_text("")
    (inside / "deep").mkdir()
    (inside / "deep" / "three.toml").write_text("")
    assert list(available()) == ["deep/three", "one"]
    assert find("deep/three") == inside / "deep" / "three.toml"
    assert reproductions() == {"two": inside / "papers" / "two.toml"}


def test_a_file_without_suffix_is_found_and_a_folder_of_the_same_name_does_not_hide_a_scenario(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text("")
    Path("robots").mkdir()
    assert locate("mine") == Path("mine")
    assert locate("robots").name == "robots.toml"


FAULTS = [(b"rounds = = 3", "not TOML"), (b"\xff\xfe\x00", "not UTF-8")]
FAULTS += [(b"a = " + b"[" * 5000, "nested|not TOML"), (b"a = " + b"9" * 5000, "not TOML")]


@pytest.mark.parametrize(("content", "words"), FAULTS)
def test_a_file_that_is_not_toml_is_refused_with_its_name(tmp_path, content, words):
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{re.escape(str(file))}: .*({words})"):
        load(file)


@pytest.mark.parametrize("name", ["missing.toml", ".", "no-such-scenario"])
def test_a_missing_file_or_a_folder_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"^{re.escape(name)}: "):
        load(name)


def test_a_misspelt_scenario_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"did you mean 'robots'\?$"):
        load("robot")


@pytest.mark.parametrize(
    ("key", "fits", "beyond"),
    [
        ("restarts", 100_000, 100_001),
        ("restarts", -100_000, -100_001),
        ("table_budget", 2**31, 2**31 + 1),
        ("entries", 2**31, 2**31 + 1),
        ("step", 1e12, 1.1e12),
        ("step", -1e-12, -0.9e-12),
        ("step", 0.0, 1e-13),
    ],
)
@pytest.mark.parametrize("within", [lambda t: t, lambda t: {"inner": t}, lambda t: {"list": [{}, t]}])
def test_a_number_at_its_limit_is_accepted_and_beyond_it_refused_at_any_depth(key, fits, beyond, within):
    def check(value):
        tables = {slot: within({key: value}) if slot == SLOTS[0] else {} for slot in SLOTS}
        require_practical_numbers(SimpleNamespace(**tables))

    check(fits)
    check([fits, fits])
    for wrong in (beyond, [fits, beyond]):
        with pytest.raises(ConfigError, match=rf"\$\.{SLOTS[0]}.*{key}.*: got"):
            check(wrong)


def test_seeds_and_switches_have_no_limit():
    table = {"seed": 2**60, "sampling_seed": 2**60, "switch": True, "name": "1e99"}
    require_practical_numbers(SimpleNamespace(**dict.fromkeys(SLOTS, table)))


@pytest.mark.parametrize("wrap", [lambda inner: {"a": inner}, lambda inner: [inner]])
def test_tables_can_be_nested_at_most_32_deep(wrap):
    def nested(depth):
        value = {}
        for _ in range(depth - 2):
            value = wrap(value)
        return {"top": value}

    require_shallow(nested(32), at="here")
    with pytest.raises(ConfigError, match="here: is nested more than 32 deep"):
        require_shallow(nested(33), at="here")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=3", 3),
        ("k=1e-3", 1e-3),
        ("k=true", True),
        ("k=max-sum", "max-sum"),
        ('k="3"', "3"),
        ("k=[1, 2]", [1, 2]),
        ('k={ csv = "a.csv", x = "e" }', {"csv": "a.csv", "x": "e"}),
        ("k=../data/soil.csv", "../data/soil.csv"),
        ("k=a=b", "a=b"),
        ("k=2026-11-20", "2026-11-20"),
        ("k=1\nother=2", "1\nother=2"),
        ("k=", ""),
    ],
)
def test_values_are_toml_or_otherwise_strings(text, value):
    assert parse_override(text) == (("k",), value)


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=3", ".a=3", "a.=3", ""])
def test_an_override_without_key_or_equals_sign_is_refused(text):
    with pytest.raises(ConfigError, match=r"wanted table\.key=value"):
        parse_override(text)


def test_a_value_that_begins_like_toml_but_is_invalid_is_refused():
    with pytest.raises(ConfigError, match=r"^\$\.environment\.start: .*not TOML"):
        parse_override("environment.start=[1, 2")


def test_overrides_add_missing_tables_and_do_not_change_the_input():
    data = {"rounds": 1, "environment": {"field": {"csv": "a"}}}
    out = apply_overrides(data, ["environment.field.x=e", "belief.kernel=rbf", "rounds=7"])
    assert out == {"rounds": 7, "environment": {"field": {"csv": "a", "x": "e"}}, "belief": {"kernel": "rbf"}}
    assert data == {"rounds": 1, "environment": {"field": {"csv": "a"}}}


def test_the_last_of_two_overrides_wins():
    assert apply_overrides({}, ["seed=1", "seed=2"]) == {"seed": 2}


def test_a_new_kind_replaces_its_table_in_any_order_of_overrides():
    data = {"coordination": {"kind": "max-sum", "damping": 0.3}}
    assert apply_overrides(data, ["coordination.kind=exact"]) == {"coordination": {"kind": "exact"}}
    assert apply_overrides(data, ["coordination.kind=max-sum"]) == data
    expected = {"coordination": {"kind": "exact", "table_budget": 9}}
    assert apply_overrides(data, ["coordination.table_budget=9", "coordination.kind=exact"]) == expected


def test_an_override_inside_a_plain_value_is_refused_with_its_path():
    with pytest.raises(ConfigError, match=r"^\$\.environment\.robots: .*wanted a table"):
        apply_overrides({"environment": {"robots": 4}}, ["environment.robots.speed=1"])


@given(st.lists(words, min_size=1, max_size=5))
def test_alternatives_are_split_at_commas(values):
    assert split_alternatives("a.b=" + ",".join(values)) == [f"a.b={value}" for value in values]


@pytest.mark.parametrize(
    "value",
    ["[[0, 0], [1, 1]]", '{ x = "a,b", y = [1, 2] }', '"a,b"', "'a,b'", '["a]", "b"]', "o'brien.csv", "soil [1.csv"],
)
def test_commas_inside_a_value_do_not_separate(value):
    assert split_alternatives(f"a={value},{value}") == [f"a={value}"] * 2


@pytest.mark.parametrize("text", ["a=1,,2", "a=1,", "a=", "a"])
def test_empty_alternatives_are_refused(text):
    wanted = "single commas" if "=" in text else r"got 'a'; wanted table\.key=value"
    with pytest.raises(ConfigError, match=wanted):
        split_alternatives(text)


def test_an_override_with_the_default_kind_keeps_the_other_keys():
    data = {"belief": {"kernel": "rbf"}}
    assert apply_overrides(data, ["belief.kind=exact"]) == {"belief": {"kernel": "rbf", "kind": "exact"}}
