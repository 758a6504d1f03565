"""Figures of folders that somebody edited, and of worlds with odd names: one line, or a figure; never a traceback."""

import json

import pytest

from swarmbo.errors import SwarmboError
from swarmbo.runs import RunFolder, run
from swarmbo.runs.figures import draw_run
from swarmbo.runs.scenario_files import dump


@pytest.fixture
def editable(tmp_path, bump_scenario):
    """A run whose files have no digests, as those of earlier versions; ``edit(name, change)`` changes one."""
    path = tmp_path / "run"
    run(bump_scenario(rounds=2), path)
    folder = RunFolder.open(path)
    lines, world = folder.lines(), json.loads(folder.read_sealed("world.json"))
    (path / "scenario.toml").write_text(dump(folder.scenario()))
    (path / "rounds.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    (path / "summary.json").unlink()

    def edit(change_world=None, change_record=None):
        if change_world is not None:
            change_world(world)
        (path / "world.json").write_text(json.dumps(world))
        if change_record is not None:
            record = json.loads(lines[-1])
            change_record(record)
            lines[-1] = json.dumps(record).encode()
            (path / "rounds.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
        return path

    return edit


def set_at(*path_and_value):
    *path, key, value = path_and_value

    def change(table):
        for part in path:
            table = table[part]
        table[key] = value

    return change


@pytest.mark.parametrize(
    ("in_world", "in_record"),
    [
        (set_at("high", [1e308, 1e308]), None),
        (set_at("low", [5.0, 5.0]), None),
        (set_at("low", []), None),
        (None, set_at("samples", 0, "location", [0.1, 0.2, 0.3, 0.4, 0.5])),
        pytest.param(None, set_at("samples", 0, "agent", "nobody"), marks=pytest.mark.thorough),
        (None, set_at("hyperparameters", {})),
        (None, set_at("hyperparameters", "lengthscales", [0.0, 0.0])),
        (None, set_at("recommendation", "location", [])),
        pytest.param(
            set_at("standpoints", {"agent_0": [0.5, 0.5, 0.5], "nobody": []}), None, marks=pytest.mark.thorough
        ),
        (set_at("argmax", [0.5]), None),
    ],
)
def test_edited_folders_are_drawn_or_refused_in_one_line(editable, in_world, in_record):
    told = ""
    try:
        draw_run(editable(in_world, in_record))
    except SwarmboError as error:
        told = str(error)
    assert "\n" not in told
    assert len(told) < 1000


def test_dollars_in_units_are_shown_and_names_of_a_megabyte_are_cut_or_refused(editable):
    def change(world):
        world |= {"name": r"$\frac{$" + "n" * 10**6, "unit": "$", "axis_unit": r"$\frac{$" + "a" * 10**6}

    names = {path.name for path in draw_run(editable(change))}
    assert {"belief.png", "regret.png", "run.gif"} <= names
    with pytest.raises(SwarmboError, match="is a name of 1,000,000 characters; wanted at most 120"):
        draw_run(editable(None, set_at("samples", 0, "agent", "a" * 10**6)))
