import pytest
from hypothesis import given, strategies as st

from swarmbo.errors import ConfigError
from swarmbo.runs.scenario_files import apply_overrides, parse_override, split_alternatives

words = st.text(st.characters(categories=("L", "N"), include_characters="-_"), min_size=1, max_size=8)


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
def test_values_are_toml_and_what_is_not_toml_is_a_string(text, value):
    assert parse_override(text) == (("k",), value)


@pytest.mark.parametrize("text", ["rounds", "=3", "a..b=3", ".a=3", "a.=3", ""])
def test_an_override_without_key_or_equals_sign_is_refused(text):
    with pytest.raises(ConfigError, match=r"wanted table\.key=value"):
        parse_override(text)


def test_a_value_that_starts_as_toml_and_is_not_is_refused_and_not_taken_as_a_word():
    with pytest.raises(ConfigError, match="not TOML") as caught:
        parse_override("environment.start=[1, 2")
    assert caught.value.at == "$.environment.start"


def test_overrides_make_tables_where_there_are_none_and_leave_the_input_alone():
    data = {"rounds": 1, "environment": {"field": {"csv": "a"}}}
    out = apply_overrides(data, ["environment.field.x=e", "belief.kernel=rbf", "rounds=7"])
    assert out == {"rounds": 7, "environment": {"field": {"csv": "a", "x": "e"}}, "belief": {"kernel": "rbf"}}
    assert data == {"rounds": 1, "environment": {"field": {"csv": "a"}}}


def test_the_last_of_two_overrides_wins():
    assert apply_overrides({}, ["seed=1", "seed=2"]) == {"seed": 2}


def test_a_new_kind_starts_its_table_afresh_in_whatever_order_it_is_given():
    data = {"coordination": {"kind": "max-sum", "damping": 0.3}}
    assert apply_overrides(data, ["coordination.kind=exact"]) == {"coordination": {"kind": "exact"}}
    assert apply_overrides(data, ["coordination.kind=max-sum"]) == data
    expected = {"coordination": {"kind": "exact", "table_budget": 9}}
    assert apply_overrides(data, ["coordination.table_budget=9", "coordination.kind=exact"]) == expected


def test_an_override_through_a_value_is_refused_with_its_path():
    with pytest.raises(ConfigError, match="wanted a table") as caught:
        apply_overrides({"environment": {"robots": 4}}, ["environment.robots.speed=1"])
    assert caught.value.at == "$.environment.robots"


@given(st.lists(words, min_size=1, max_size=5))
def test_alternatives_come_back_as_given(values):
    assert split_alternatives("a.b=" + ",".join(values)) == ("a.b", values)


@pytest.mark.parametrize("value", ["[[0, 0], [1, 1]]", '{ x = "a,b", y = [1, 2] }', '"a,b"', "'a,b'", '["a]", "b"]'])
def test_commas_inside_a_value_do_not_separate(value):
    assert split_alternatives(f"a={value},{value}") == ("a", [value, value])


@pytest.mark.parametrize("text", ["a=1,,2", "a=1,", "a=", "a"])
def test_empty_alternatives_are_refused(text):
    with pytest.raises(ConfigError):
        split_alternatives(text)


def test_a_kind_that_is_the_default_of_a_table_without_one_changes_nothing_else():
    data = {"belief": {"kernel": "rbf"}}
    assert apply_overrides(data, ["belief.kind=exact"]) == {"belief": {"kernel": "rbf", "kind": "exact"}}
