"""Ranges are declared once, and hold for tables of scenarios and for settings made in Python."""

import importlib
import inspect
import math
import pkgutil
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo
import swarmbo_envs
from swarmbo.errors import ConfigError
from swarmbo.registry import SLOTS, kinds
from swarmbo.settings import Count, Fraction, Positive, Probability, ProperFraction, Settings, Share, convert, within

BEYOND = {"ge": -1, "gt": 0, "le": 1, "lt": 0}  # step from each kind of end to a number outside of the range


class Kettle(Settings, frozen=True, tag_field="kind", tag="kettle"):
    litres: Positive = 1.0
    cups: Annotated[int, within(1, 12)] = 4
    spare: Annotated[int, msgspec.Meta(ge=2, multiple_of=2, title="an even number")] | None = None
    height: Annotated[float, within(1e-6, 1e12, "a height", "m")] = 1.0
    full: Fraction = 1.0
    lost: Share = 0.0
    slack: ProperFraction = 0.5
    leaks: Probability = 0.0
    people: Count = 1
    warmth: float = 20.0


class Kitchen(Settings, frozen=True):
    kettle: Kettle = Kettle()


def refused(make, *given, **fields):
    with pytest.raises(ConfigError) as caught:
        make(*given, **fields)
    return str(caught.value)


@pytest.mark.parametrize(
    ("field", "got", "wanted"),
    [
        ("litres", 0.0, "a number > 0"),
        ("litres", math.inf, "a number > 0"),
        ("litres", math.nan, "a number > 0"),
        ("cups", 13, "an integer from 1 to 12"),
        ("spare", 3, "an even number >= 2, or nothing"),
        ("height", 1e-7, "a height from 1e-6 to 1e12 m"),
        ("full", 0.0, "a number in (0, 1]"),
        ("lost", 1.0, "a number in [0, 1)"),
        ("slack", 1.0, "a number between 0 and 1"),
        ("leaks", -0.1, "a probability from 0 to 1"),
        ("people", 0, "an integer >= 1"),
        ("warmth", -math.inf, "a finite number"),
    ],
)
def test_python_and_tables_refuse_a_number_out_of_range_with_the_same_message(field, got, wanted):
    assert refused(Kettle, **{field: got}) == f"{field}: got {got!r}; wanted {wanted}"
    table = {"kettle": {"kind": "kettle", field: got}}
    where = f"$.house.kettle.{field}"
    assert refused(convert, table, Kitchen, "$.house") == f"{where}: got {got!r}; wanted {wanted}"


@pytest.mark.parametrize("got", ["3", True, 3.0, None, [3]])
def test_values_that_are_not_integers_are_also_refused_in_python(got):
    assert refused(Kettle, people=got) == f"people: got {got!r}; wanted an integer >= 1"
    assert Kettle(people=np.int64(3), litres=np.float64(2), warmth=3).people == 3


@pytest.mark.parametrize("field", ["people", "warmth"])
def test_python_and_tables_refuse_an_integer_too_large_for_a_float(field):
    table = {"kettle": {"kind": "kettle", field: 10**400}}
    assert refused(Kettle, **{field: 10**400}).startswith(f"{field}: got 1000")
    assert refused(convert, table, Kitchen, "$.house").startswith(f"$.house.kettle.{field}: got 1000")


def all_kinds(base=Settings):
    for kind in base.__subclasses__():
        yield kind
        yield from all_kinds(kind)


def ranges_of(kind):
    """Field, type and range of every range that a kind of settings declares."""
    for field in msgspec.structs.fields(kind):
        parts = (field.type,) if hasattr(field.type, "__metadata__") else getattr(field.type, "__args__", ())
        for part in parts:
            yield from ((field.name, part.__origin__, meta) for meta in getattr(part, "__metadata__", ()))


def ends_of(kind):
    """For every end of these ranges, the field and a number beyond the end."""
    for field, type_, meta in ranges_of(kind):
        for end, step in BEYOND.items():
            if (stated := getattr(meta, end)) is not None:
                yield field, type_(stated + step * max(1, abs(stated)) * (meta.multiple_of or 1))


@pytest.fixture
def library_kinds():
    """All kinds of settings of the library and the environments."""
    assert all(kinds(slot) for slot in SLOTS)  # loads all kinds of scenarios
    for package in (swarmbo, swarmbo_envs):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    return [kind for kind in all_kinds() if kind.__module__.startswith(("swarmbo.", "swarmbo_envs."))]


@pytest.mark.parametrize(
    ("kind", "wrong", "words"),
    [
        (swarmbo.DECHBO, {"exploration": "theoretical"}, "'theoretical'; wanted one of 'practical', 'theory', "),
        (swarmbo.DECHBO, {"exploration": 1}, "got 1; wanted one of 'practical'"),
        (swarmbo.InProcess, {"as_agents": "no"}, "got 'no'; wanted true or false"),
        (swarmbo.AdditiveGPSettings, {"lengthscales": "aut"}, "did you mean 'auto'"),
    ],
    ids=str,
)
def test_an_unknown_option_is_also_refused_in_python(kind, wrong, words):
    with pytest.raises(ConfigError, match=words) as caught:
        kind(**wrong)
    assert caught.value.at in wrong


def test_settings_within_settings_may_be_tables_in_python():
    faults = swarmbo.Faults(deaths=[{"agent": "a", "round": 2}])  # type: ignore[list-item]
    assert faults.named == {"a"}
    assert swarmbo.Faults(deaths=faults.deaths) == faults
    with pytest.raises(ConfigError, match=r"deaths\[0\]: unknown key 'rund'; did you mean 'round'"):
        swarmbo.Faults(deaths=[{"agent": "a", "rund": 2}])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"box.failures: got 0; wanted an integer >= 1"):
        swarmbo.Auto(box={"failures": 0})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"box: got 3; wanted"):
        swarmbo.Auto(box=3)  # type: ignore[arg-type]


def test_ranges_agree_with_the_record(library_kinds):
    """After an intended change of a range, change the record too."""
    found = set[str]()
    for kind in library_kinds:
        for field, _, meta in ranges_of(kind):
            (by, *_) = (base.__name__ for base in kind.__mro__ if field in inspect.get_annotations(base))
            ends = [f"{end} {getattr(meta, end)}" for end in (*BEYOND, "multiple_of") if getattr(meta, end) is not None]
            found |= {f"{by}.{field}: {', '.join(ends)}"} if ends else set()
    assert found == set(Path(__file__).with_name("setting_ranges.txt").read_text(encoding="utf-8").splitlines())


def test_numbers_beyond_any_declared_range_are_refused_in_python_and_tables(library_kinds):
    made = [kind for kind in library_kinds if not any(field.required for field in msgspec.structs.fields(kind))]
    tried = {(kind, field, beyond) for kind in made for field, beyond in ends_of(kind)}
    assert {kind.__module__.partition(".")[0] for kind, *_ in tried} == {"swarmbo", "swarmbo_envs"}
    for kind, field, beyond in tried:
        assert refused(kind, **{field: beyond}).startswith(f"{field}: got {beyond!r}; wanted"), kind
        assert refused(convert, {field: beyond}, kind).startswith(f"$.{field}: got {beyond!r}; wanted"), kind


@given(st.floats())
def test_a_range_accepts_exactly_the_numbers_within_it(number):
    ranges = {"litres": 0 < number < math.inf, "height": 1e-6 <= number <= 1e12, "lost": 0 <= number < 1}
    for field, inside in ranges.items():
        for make in (lambda f=field: Kettle(**{f: number}), lambda f=field: convert({f: number}, Kettle)):
            if inside:
                assert getattr(make(), field) == number
            else:
                refused(make)


def test_booleans_of_numpy_are_accepted():
    assert swarmbo.Real(1.0, 10.0, log=np.True_) == swarmbo.Real(1.0, 10.0, log=True)
