import errno
import os

import msgspec
import numpy as np
import pytest

from swarmbo.errors import RunFolderError
from swarmbo.records import RoundRecord, Sample
from swarmbo.runs import run
from swarmbo.runs.figures import draw_run
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.stored_files import Timing, locked

TIMING = Timing(0, 0.0, 0.1, 0.2, 0.3)


def line(number):
    samples = [Sample(agent="ä\n", location=[0.1 + 0.2, -1e-300], measurement=None)]
    return msgspec.json.encode(RoundRecord(round=number, samples=samples))


@pytest.fixture
def folder(tmp_path, bump_scenario):
    return RunFolder.create(RunFolder.make(tmp_path / "deep" / "run"), bump_scenario())


def test_a_last_line_torn_at_any_byte_is_skipped_and_cut_and_the_next_one_follows(folder):
    folder.append(line(0), TIMING)
    log = folder.path / "rounds.jsonl"
    first = log.read_bytes()
    folder.append(line(1), TIMING)
    whole = log.read_bytes()
    for length in range(len(first) + 1, len(whole)):
        log.write_bytes(whole[:length])
        assert folder.log().lines == [line(0)]
        folder.sweep_out()
        assert log.read_bytes() == first
        folder.append(line(1), TIMING)
        assert log.read_bytes() == whole


def test_a_last_line_of_zeros_as_after_a_power_cut_is_skipped(folder):
    folder.append(line(0), TIMING)
    with (folder.path / "rounds.jsonl").open("ab") as log:
        log.write(b"\0" * 40 + b"\n")
    assert folder.log().lines == [line(0)]


def test_a_torn_timing_is_left_out(folder):
    folder.append(line(0), TIMING)
    with (folder.path / "timings.jsonl").open("ab") as log:
        log.write(b'{"round":1,"deci')
    assert folder.timings() == [TIMING]


def test_objects_are_never_pickled(folder):
    with pytest.raises(ValueError, match="hold objects"):
        folder.write_arrays("x.npz", {"a": np.array([object()])})


def test_a_folder_that_holds_anything_is_not_made_into_a_run(tmp_path, bump_scenario):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match="not empty"):
        run(bump_scenario(), tmp_path)
    with pytest.raises(RunFolderError, match="cannot be made"):
        run(bump_scenario(), tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_clearing_deletes_the_run_and_nothing_else(folder):
    mine = {"notes.txt", "thesis.partial", "checkpoint-best.npz", "figures/belief.tiff", "figures/paper/belief.png"}
    (folder.path / "figures" / "paper").mkdir(parents=True)
    for name in mine:
        (folder.path / name).write_text("mine")
    folder.append(line(0), TIMING)
    folder.write_arrays("checkpoint-000001.npz", {})
    for name in ("checkpoint-000002.npz.partial", "summary.json.partial", "figures/belief.svg", "figures/run.mp4"):
        (folder.path / name).write_text("torn")
    folder.clear()
    left = {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*") if path.is_file()}
    assert left == mine


def test_clearing_leaves_nothing_of_a_run_that_was_drawn(tmp_path, bump_scenario):
    run(bump_scenario(rounds=1), tmp_path / "run")
    drawn = {path.name for path in draw_run(tmp_path / "run")}
    assert drawn == {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    RunFolder.open(tmp_path / "run").clear()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_what_cannot_be_cleared_is_named(folder):
    (folder.path / "world.json").mkdir()
    with pytest.raises(RunFolderError, match=r"run/world\.json: cannot be deleted"):
        folder.clear()
    assert RunFolder.holds_run(folder.path)


def test_a_run_deletes_no_checkpoint_but_its_own(tmp_path, bump_scenario):
    (tmp_path / "run").mkdir()

    def keep_a_copy(record, was_logged):
        if record.round == 1:
            (tmp_path / "run" / "checkpoint-best.npz").write_text("mine")

    run(bump_scenario(rounds=3), tmp_path / "run", on_round=keep_a_copy)
    checkpoints = {path.name for path in (tmp_path / "run").glob("checkpoint-*.npz")}
    assert checkpoints == {"checkpoint-000003.npz", "checkpoint-best.npz"}


def test_a_run_that_was_killed_while_its_scenario_was_written_can_begin_again(tmp_path, bump_scenario):
    (tmp_path / "scenario.toml.partial").write_text("nam")
    run(bump_scenario(), tmp_path)
    assert RunFolder.open(tmp_path).scenario() == bump_scenario()


def test_a_clearing_that_stops_anywhere_leaves_a_run_that_can_be_cleared(folder, monkeypatch):
    def stops(path):
        raise KeyboardInterrupt

    (folder.path / "figures").mkdir()
    folder.append(line(0), TIMING)
    folder.write_arrays("checkpoint-000001.npz", {})
    monkeypatch.setattr("pathlib.Path.rmdir", stops)
    with pytest.raises(KeyboardInterrupt):
        folder.clear()
    assert RunFolder.holds_run(folder.path)


def test_a_log_that_cannot_be_read_is_named(folder):
    (folder.path / "rounds.jsonl").mkdir()
    with pytest.raises(RunFolderError, match=r"rounds\.jsonl: cannot be read"):
        folder.records()


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rounds.jsonl", lambda folder: folder.append(line(0), TIMING)),
        ("summary.json", lambda folder: folder.write_json("summary.json", {})),
        ("world.npz", lambda folder: folder.write_arrays("world.npz", {"a": np.ones(3)})),
    ],
)
def test_a_disk_that_is_full_is_named_with_the_file(folder, monkeypatch, name, write):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as the system's: it does not say which file

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunFolderError, match=rf"run/{name}: cannot be written: No space left on device"):
        write(folder)


@pytest.mark.parametrize("name", ["rounds.jsonl", "timings.jsonl"])
def test_a_log_that_cannot_be_written_is_named(folder, name):
    (folder.path / name).mkdir()
    with pytest.raises(RunFolderError, match=f"run/{name}: cannot be written: Is a directory.*resume"):
        folder.append(line(0), TIMING)


def test_a_lock_that_cannot_be_made_is_named(folder):
    (folder.path / ".lock").mkdir()
    with pytest.raises(RunFolderError, match=r"\.lock: cannot be written: Is a directory"), locked(folder.path):
        pass


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunFolderError, match="no such folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="no run lies here"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("damage", ["rounds = 0", "rounds = ", "\0"])
def test_a_damaged_scenario_is_named_once(folder, damage):
    (folder.path / "scenario.toml").write_text(damage)
    with pytest.raises(RunFolderError) as caught:
        folder.scenario()
    assert str(caught.value).startswith(f"{folder.path / 'scenario.toml'}: ")
    assert str(caught.value).count(str(folder.path)) == 1
