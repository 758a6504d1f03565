"""Files of a run folder: incomplete or missing ones, seals, files of others, full disks, clearing."""

import errno
import io
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from swarmbo.boundary.files import append_line, logged_lines, read_seal, seal
from swarmbo.errors import RunFolderError
from swarmbo.records import RoundRecord, Sample
from swarmbo.runs import run
from swarmbo.runs.figures import draw_run
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.stored_files import Timing, locked, run_files

OWN = (
    *("rounds.jsonl", "timings.jsonl.partial", "checkpoint-000012.npz", "checkpoint-000012.npz.0123abcd.partial"),
    *("ledger-000003.npz", "scenario.toml.partial", "figures/belief.png", "figures/run.gif.partial"),
    *("results/q00001.json", "tensorboard/events.out.tfevents.1.host"),
)
FOREIGN = (
    *("scenario.toml", ".lock", "notes.txt", "checkpoint-12.npz", "rounds.jsonl.x.partial", "rounds-jsonl"),
    *("belief.png", "figures/mine.png", "results/run-1/q00001.json", "tensorboard/notes", "deeper/rounds.jsonl"),
)


def test_files_of_a_run_are_found_in_one_search_of_each_folder(tmp_path, monkeypatch):
    assert run_files(tmp_path / "none") == []
    for name in (*OWN, *FOREIGN):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    patterns, search = [], Path.glob
    monkeypatch.setattr(Path, "glob", lambda path, pattern: patterns.append(pattern) or search(path, pattern))
    assert sorted(run_files(tmp_path)) == sorted(tmp_path / name for name in OWN)
    assert len(patterns) == 4


TIMING = Timing(0, 0.0, 0.1, 0.2, 0.3)


def line(number):
    samples = [Sample(agent="ä\n", location=[0.1 + 0.2, -1e-300], measurement=None)]
    return msgspec.json.encode(RoundRecord(round=number, samples=samples))


@pytest.fixture
def folder(tmp_path, bump_scenario):
    return RunFolder.create(RunFolder.make(tmp_path / "deep" / "run"), bump_scenario())


def test_a_last_line_cut_at_any_byte_is_skipped_and_replaced_by_the_next(folder):
    folder.append(line(0), TIMING)
    log = folder.path / "rounds.jsonl"
    first = log.read_bytes()
    folder.append(line(1), TIMING)
    whole = log.read_bytes()
    for length in range(len(first) + 1, len(whole)):
        log.write_bytes(whole[:length])
        assert folder.log().lines == [line(0)]
        folder.remove_partial_files()
        assert log.read_bytes() == first
        folder.append(line(1), TIMING)
        assert log.read_bytes() == whole


def test_a_last_line_of_zeros_after_a_power_cut_is_skipped(folder):
    folder.append(line(0), TIMING)
    with (folder.path / "rounds.jsonl").open("ab") as log:
        log.write(b"\0" * 40 + b"\n")
    assert folder.log().lines == [line(0)]


def test_nothing_is_cut_if_a_log_cannot_be_read(folder):
    folder.append(line(0))
    (folder.path / "timings.jsonl").mkdir()
    with (folder.path / "rounds.jsonl").open("ab") as log:
        log.write(b'{"round":1,')
    torn = (folder.path / "rounds.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match="timings"):
        folder.remove_partial_files()
    assert (folder.path / "rounds.jsonl").read_bytes() == torn


def test_an_incomplete_timing_is_left_out(folder):
    folder.append(line(0), TIMING)
    with (folder.path / "timings.jsonl").open("ab") as log:
        log.write(b'{"round":1,"deci')
    assert folder.timings() == [TIMING]


def test_objects_are_never_pickled(folder):
    with pytest.raises(ValueError, match="hold objects"):
        folder.write_arrays("x.npz", {"a": np.array([object()])})


def test_a_folder_that_is_not_empty_is_not_used_for_a_run(tmp_path, bump_scenario):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match="not empty"):
        run(bump_scenario(), tmp_path)
    with pytest.raises(RunFolderError, match="cannot be made"):
        run(bump_scenario(), tmp_path / "thesis.tex")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_clearing_deletes_only_files_of_the_run(folder):
    mine = {"notes.txt", "thesis.partial", "checkpoint-best.npz", "figures/belief.tiff", "figures/paper/belief.png"}
    (folder.path / "figures" / "paper").mkdir(parents=True)
    for name in mine:
        (folder.path / name).write_text("mine")
    folder.append(line(0), TIMING)
    folder.write_arrays("checkpoint-000001.npz", {})
    for name in (
        "checkpoint-000002.npz.partial",
        "summary.json.0a1b2c3d.partial",
        "figures/belief.svg",
        "figures/run.mp4",
    ):
        (folder.path / name).write_text("torn")
    folder.clear()
    left = {path.relative_to(folder.path).as_posix() for path in folder.path.rglob("*") if path.is_file()}
    assert left == mine


def test_clearing_deletes_all_figures_of_a_run(tmp_path, bump_scenario, blank):
    run(bump_scenario(rounds=1), tmp_path / "run")
    drawn = {path.name for path in draw_run(tmp_path / "run")}
    assert drawn == {path.name for path in (tmp_path / "run" / "figures").iterdir()}
    RunFolder.open(tmp_path / "run").clear()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_run_deletes_only_its_own_checkpoints(tmp_path, bump_scenario):
    (tmp_path / "run").mkdir()

    def keep_a_copy(record, was_logged):
        if record.round == 1:
            (tmp_path / "run" / "checkpoint-best.npz").write_text("mine")

    run(bump_scenario(rounds=3), tmp_path / "run", on_round=keep_a_copy)
    checkpoints = {path.name for path in (tmp_path / "run").glob("checkpoint-*.npz")}
    assert checkpoints == {"checkpoint-000003.npz", "checkpoint-best.npz"}


def test_a_run_killed_while_its_scenario_was_written_can_start_again(tmp_path, bump_scenario):
    for name in ("scenario.toml.partial", "scenario.toml.0a1b2c3d.partial"):
        (tmp_path / name).write_text("nam")
    run(bump_scenario(), tmp_path)
    assert RunFolder.open(tmp_path).scenario() == bump_scenario()


def test_after_an_interrupted_clearing_the_run_can_still_be_cleared(folder, monkeypatch):
    def stops(path):
        raise KeyboardInterrupt

    (folder.path / "figures").mkdir()
    folder.append(line(0), TIMING)
    folder.write_arrays("checkpoint-000001.npz", {})
    monkeypatch.setattr("pathlib.Path.rmdir", stops)
    with pytest.raises(KeyboardInterrupt):
        folder.clear()
    assert RunFolder.holds_run(folder.path)


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rounds.jsonl", lambda folder: folder.append(line(0), TIMING)),
        ("summary.json", lambda folder: folder.write_json("summary.json", {})),
        ("world.npz", lambda folder: folder.write_arrays("world.npz", {"a": np.ones(3)})),
    ],
)
def test_an_error_of_a_full_disk_names_the_file(folder, monkeypatch, name, write):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # like the system's error, which does not name the file

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(RunFolderError, match=rf"run/{name}: cannot be written: No space left on device"):
        write(folder)


@pytest.mark.parametrize("cause", ["write", "fsync", "truncate"])
def test_a_failed_append_leaves_the_log_unchanged_and_raises_the_system_s_error(tmp_path, monkeypatch, cause):
    """If a line does not fit, the system writes a part of it, and only the next call raises the error."""
    path, calls = tmp_path / "log", []
    append_line(path, b"first")

    class Log(io.FileIO):
        def write(self, data):
            calls.append(bytes(data))
            if cause in ("write", "truncate") and len(calls) > 2:
                raise OSError(errno.EDQUOT, "Quota exceeded")
            return super().write(data[:3])

        def truncate(self, size=None):
            if cause == "truncate":
                raise OSError(errno.EIO, "Input/output error")
            return super().truncate(size)

    def sync(file):
        if cause == "fsync":
            raise OSError(errno.EDQUOT, "Quota exceeded")

    monkeypatch.setattr("pathlib.Path.open", lambda self, mode, buffering: Log(self, mode))
    monkeypatch.setattr("os.fsync", sync)
    with pytest.raises(OSError, match="Quota"):
        append_line(path, b"second one")
    assert calls[:3] == [b"second one\n", b"ond one\n", b" one\n"]
    assert path.stat().st_size == len(b"first\n" + (b"second" if cause == "truncate" else b""))
    cause = None
    os.truncate(path, len(b"first\n"))
    append_line(path, b"second one")
    monkeypatch.undo()
    assert path.read_bytes() == b"first\nsecond one\n"


@pytest.mark.parametrize(
    ("name", "use", "words"),
    [
        ("rounds.jsonl", lambda folder: folder.records(), "cannot be read"),
        ("world.json", lambda folder: folder.clear(), "cannot be deleted"),
        ("rounds.jsonl", lambda folder: folder.append(line(0), TIMING), "cannot be written: Is a directory.*resume"),
        (".lock", lambda folder: locked(folder.path).__enter__(), "cannot be written: Is a directory"),
    ],
)
def test_an_error_names_a_folder_in_the_place_of_a_file(folder, name, use, words):
    (folder.path / name).mkdir()
    with pytest.raises(RunFolderError, match=f"run/{name}: {words}"):
        use(folder)
    assert RunFolder.holds_run(folder.path)


def test_missing_folders_and_folders_without_a_run_are_refused(tmp_path):
    with pytest.raises(RunFolderError, match="no such folder"):
        RunFolder.open(tmp_path / "nowhere")
    with pytest.raises(RunFolderError, match="no run lies here"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize("damage", ["rounds = 0", "rounds = ", "\0"])
def test_an_error_names_a_damaged_scenario_once(folder, damage):
    (folder.path / "scenario.toml").write_text(damage)
    with pytest.raises(RunFolderError) as caught:
        folder.scenario()
    assert str(caught.value).startswith(f"{folder.path / 'scenario.toml'}: ")
    assert str(caught.value).count(str(folder.path)) == 1


def test_the_seal_of_a_line_depends_on_all_lines_before_it():
    start = after = "0" * 32
    lines, sealed = [msgspec.json.encode(RoundRecord(number, [])) for number in range(3)], []
    for line in lines:
        sealed.append(seal(line, after))
        after = read_seal(sealed[-1], after).digest

    def read(*rows, start=start):
        text = b"".join(row + b"\n" for row in rows)
        return logged_lines(text, start, Path("rounds.jsonl"), RoundRecord, lambda record, n: record.round == n)

    whole = read(*sealed)
    assert (whole.lines, whole.digest, whole.damage) == (lines, after, None)
    assert whole.length == sum(map(len, sealed)) + 3
    for rows, begins, known in (
        (sealed, "1" * 32, 0),  # from a run with other settings
        ([sealed[0], sealed[2]], start, 1),  # one line was removed
        ([*sealed[:2], seal(lines[2])], start, 2),  # one line was replaced
    ):
        log = read(*rows, start=begins)
        assert log.lines == lines[:known]
        assert f"line {known + 1} was changed or damaged" in log.damage
    strange = seal(msgspec.json.encode(RoundRecord(5, [])), read_seal(sealed[1], "").digest)
    log = read(*sealed[:2], strange)
    assert "line 3 is not the record of round 2" in log.damage
    torn = read(*sealed[:2], lines[2])
    assert (torn.lines, torn.damage, torn.length) == (lines[:2], None, len(sealed[0]) + len(sealed[1]) + 2)
