"""`swarmbo cite` prints the references of the methods that runs used, and no others."""

import re

import pytest

from swarmbo.errors import ConfigError
from swarmbo.registry import SLOTS, kinds
from swarmbo.runs import load, run
from swarmbo.runs.citing import table
from swarmbo.runs.scenario import scenario_of
from swarmbo.settings import convert

ENTRY = re.compile(r"@(\w+)\{(\w+),\n(.*?)\n\}", re.DOTALL)
VENUES = {"booktitle", "journal", "publisher", "howpublished"}


def keys_of(text):
    """Keys of a text, which must consist of BibTeX entries."""
    entries = ENTRY.findall(text)
    assert not ENTRY.sub("", text).strip()
    for _, key, fields in entries:
        assert fields.count("{") == fields.count("}"), key
    keys = [key for _, key, _ in entries]
    assert len(keys) == len(set(keys))
    return set(keys)


@pytest.mark.parametrize("slot", SLOTS)
def test_every_kind_is_in_the_table_of_references(slot):
    of_kinds = [one.partition(" = ") for one in table()["uses"] if " & " not in one]
    assert {kind for key, _, kind in of_kinds if key == f"{slot}.kind"} == set(kinds(slot))


def test_conditions_of_references_match_some_settings():
    for part in (part for condition in table()["uses"] for part in condition.split(" & ")):
        path, _, value = part.partition(" = ")
        slot, *keys = path.split(".")
        if slot in SLOTS and keys != ["kind"]:
            stated = {keys[0]: {keys[1]: value} if keys[1:] else {"true": True}.get(value, value)}
            assert any(_fits(settings, stated) for settings in kinds(slot).values()), part


def _fits(settings, stated):
    try:
        return bool(convert(stated, settings))
    except ConfigError:
        return False


def test_every_entry_is_complete_and_used():
    entries, used = table()["entries"], {key for keys in table()["uses"].values() for key in keys}
    assert used == set(entries)
    assert set(table()["alone"]) < set(kinds("coordination"))
    for key, fields in entries.items():
        assert {"type", "author", "title", "year"} <= set(fields), key
        assert len(VENUES & set(fields)) >= 1, key
        assert fields["year"] in key
        assert key.removesuffix(fields["year"]) in re.sub(r"[^a-z]", "", fields["author"].lower())


@pytest.mark.parametrize(
    ("given", "used", "unused"),
    [
        ({}, {"daxberger2017", "dechter1999", "rasmussen2006", "terry2021"}, {"cohn1996", "gotovos2013"}),
        ({"coordination": {"kind": "max-sum", "bound": "mplp"}}, {"farinelli2008", "globerson2007"}, {"dechter1999"}),
        ({"belief": {"kind": "fused", "method": "consensus"}}, {"kempe2003", "rahimi2007"}, {"julier1997"}),
    ],
)
def test_references_follow_the_settings_of_the_run(tmp_path, cli, bump_scenario, given, used, unused):
    data = {"name": "bump", "rounds": 1, "environment": bump_scenario().environment, **given}
    run(scenario_of(data), tmp_path / "one")
    keys = keys_of(cli("cite", tmp_path).stdout)
    assert "swarmbo" in keys
    assert used <= keys
    assert not unused & keys


def test_choices_of_auto_and_of_the_environment_are_cited(tmp_path, cli):
    settings = ["rounds=1", "environment.task=level", "environment.level=900.0", "environment.robots=2"]
    run(load("robots", settings), tmp_path / "one")
    keys = keys_of(cli("cite", tmp_path).stdout)
    assert {"cohn1996", "krause2008", "gotovos2013", "hunter2007"} <= keys
    assert not {"daxberger2017", "karney2011"} & keys
    (tmp_path / "one" / "summary.json").unlink()
    assert "it is not known yet which acquisition 'auto' has chosen" in cli("cite", tmp_path).stderr


def test_a_run_without_an_acquisition_cites_none(tmp_path, cli):
    run(load("camel", ["rounds=12", "coordination.kind=sobol"]), tmp_path / "one")
    model = {"rasmussen2006", "duvenaud2011"}  # of the model that recommends a point
    assert keys_of(cli("cite", tmp_path).stdout) == {"swarmbo", "terry2021", "owen1998", "joe2008", *model}
