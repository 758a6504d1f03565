"""Kinds are named by the tag of their settings class, in all tables and messages."""

import msgspec
import pytest

from swarmbo import registry
from swarmbo.deciding.setup import DEFAULT_KINDS, part
from swarmbo.errors import ConfigError
from swarmbo.registry import FIELD, FUNCTION, SLOTS, TEAMS, kind, kinds, name_of, settings_of
from swarmbo.runs.scenario import scenario_of
from swarmbo.settings import Settings

WORLD = {"id": "swarmbo/robot_team-v0"}


@pytest.fixture
def own_registry(monkeypatch):
    kinds("belief")  # loads all kinds
    monkeypatch.setattr(registry, "_KINDS", {slot: dict(known) for slot, known in registry._KINDS.items()})
    registry.schema.cache_clear()
    yield
    registry.schema.cache_clear()


def test_a_decorator_is_all_that_a_new_kind_needs(own_registry):
    @kind("coordination", FIELD)
    class ByLot(Settings, frozen=True, tag_field="kind", tag="by-lot"):
        tickets: int = 3

    scenario = scenario_of({"name": "n", "environment": WORLD, "coordination": {"kind": "by-lot", "tickets": 7}})
    assert scenario.coordination == ByLot(tickets=7)
    assert "by-lot" in kinds("coordination", FIELD)
    assert "by-lot" not in kinds("coordination", FUNCTION)
    with pytest.raises(ConfigError, match=r"\$\.coordination: unknown key 'ticket'; did you mean 'tickets'"):
        scenario_of({"name": "n", "environment": WORLD, "coordination": {"kind": "by-lot", "ticket": 7}})
    with pytest.raises(ConfigError, match=r"got 'by-lo'.*did you mean 'by-lot'"):
        scenario_of({"name": "n", "environment": WORLD, "coordination": {"kind": "by-lo"}})
    with pytest.raises(ConfigError, match="got 'by-lot', which is not for agents that set the variables"):
        part("coordination", "by-lot", FUNCTION)


def test_a_kind_with_a_used_name_or_without_one_is_refused(own_registry):
    with pytest.raises(ValueError, match="Exact2: wanted an unused tag, not 'exact'"):

        @kind("coordination", FIELD)
        class Exact2(Settings, frozen=True, tag_field="kind", tag="exact"): ...

    with pytest.raises(ValueError, match="Nameless: wanted an unused tag"):

        @kind("coordination", FIELD)
        class Nameless(Settings, frozen=True): ...


@pytest.mark.parametrize("slot", SLOTS)
def test_kinds_are_sorted_named_by_their_tags_and_fit_some_team(slot):
    known = kinds(slot)
    assert list(known) == sorted(known)
    assert all(name_of(settings) == name for name, settings in known.items())
    assert known.keys() == kinds(slot, FIELD).keys() | kinds(slot, FUNCTION).keys()


@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("slot", SLOTS)
def test_every_kind_is_accepted_by_name_and_by_table_for_its_teams(slot, team):
    fitting = kinds(slot, team)
    assert DEFAULT_KINDS[team][slot] in fitting
    for name, settings in kinds(slot).items():
        for given in (name, {"kind": name}, settings()):
            if name in fitting:
                assert settings_of(slot, given, "$", team) == settings()
            else:
                with pytest.raises(ConfigError, match=f"got '{name}', which is not for {TEAMS[team]}"):
                    settings_of(slot, given, "$", team)
        assert msgspec.to_builtins(settings())["kind"] == name
