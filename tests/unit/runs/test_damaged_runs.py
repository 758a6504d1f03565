"""Damage to a run folder is reported in one line, or has no effect."""

import io
import json
import os
import shutil
import zipfile

import numpy as np
import pytest

from swarmbo.boundary.files import read_arrays, seal
from swarmbo.errors import RunFolderError, SwarmboError
from swarmbo.plotting import style
from swarmbo.runs import RunFolder, resume, run
from swarmbo.runs.figures import draw_run, drawn_files, world_of
from swarmbo.runs.reading import read_summary
from swarmbo.runs.scenario_files import dump
from swarmbo.runs.states import read_checkpoint

LOG = "rounds.jsonl"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def runs(made, tmp_path, bump_scenario, interrupted):
    """Copies of a run of 4 rounds that was interrupted after round 2, and of the same run when complete."""
    if not (made / "half").exists():
        run(bump_scenario(), made / "whole")
        interrupted(bump_scenario(), made / "half", 2)
    return tuple(shutil.copytree(made / name, tmp_path / name) for name in ("half", "whole"))


def everything_read(path):
    """All information that is read from a run folder."""
    folder = RunFolder.open(path)
    scenario, lines, timings = folder.scenario(), folder.log().lines, folder.timings()
    summary, world, checkpoint = read_summary(folder), world_of(folder), read_checkpoint(folder)
    assert checkpoint is not None
    arrays = [world.points.tolist(), world.values.tolist(), world.domain.low.tolist(), world.maximum]
    return scenario, lines, timings, summary, arrays, repr(checkpoint)


def flip(path, rng):
    """Change a random digit of a file (in array files, any byte), and return its position."""
    files = sorted(file for file in path.iterdir() if file.is_file() and file.stat().st_size)
    file = files[rng.integers(len(files))]
    text = bytearray(file.read_bytes())
    is_text = file.suffix != ".npz"
    places = [i for i, byte in enumerate(text) if not is_text or chr(byte).isdigit()]
    at = places[rng.integers(len(places))]
    others = [byte for byte in (b"0123456789" if is_text else range(256)) if byte != text[at]]
    text[at] = others[rng.integers(len(others))]
    file.write_bytes(text)
    return f"{file.name} at {at}"


def flip_and_use(runs, tmp_path, seed):
    rng, (half, whole) = np.random.default_rng(seed), runs
    before, base = (half, everything_read(half)) if seed % 2 else (whole, everything_read(whole))
    there = tmp_path / f"flipped-{seed}"
    shutil.copytree(before, there)
    where, refused = flip(there, rng), None
    try:
        now = everything_read(there)
        resume(there)
    except SwarmboError as error:
        refused = str(error)
    if refused is None:
        assert now == base, where
        assert (there / LOG).read_bytes() == (whole / LOG).read_bytes(), where
    else:
        assert "\n" not in refused, where
        assert str(there) in refused, where
    shutil.rmtree(there)
    return refused is not None


def test_a_changed_digit_is_detected_or_has_no_effect(tmp_path, runs):
    assert sum(flip_and_use(runs, tmp_path, seed) for seed in range(6)) > 2


@pytest.mark.slow
def test_500_changed_digits_are_detected_or_have_no_effect(tmp_path, runs):
    assert sum(flip_and_use(runs, tmp_path, seed) for seed in range(1000, 1500)) > 250


def test_the_repair_that_the_error_of_a_damaged_line_suggests_works(runs):
    half, whole = runs
    rows = (half / LOG).read_bytes().splitlines(keepends=True)
    (half / LOG).write_bytes(b"".join([*rows[:2], rows[2].replace(b"1.5", b"1.6", 1)]))
    for use in (resume, draw_run):
        with pytest.raises(RunFolderError, match=r"line 3 was changed or damaged.*delete it and what follows it"):
            use(half)
    (half / LOG).write_bytes(b"".join(rows[:2]))
    resume(half)
    assert (half / LOG).read_bytes() == (whole / LOG).read_bytes()


def test_settings_edited_after_the_start_of_a_run_are_refused(runs):
    for path in runs:
        scenario = path / "scenario.toml"
        text = scenario.read_text()
        for before, after in (("noise_ratio_floor = 1.0", "noise_ratio_floor = 2.0"), ("restarts = 0", "restarts = 2")):
            scenario.write_text(text.replace(before, after))
            assert scenario.read_text() != text
            for use in (resume, draw_run):
                with pytest.raises(RunFolderError, match=r"scenario\.toml: was changed or damaged.*in another folder"):
                    use(path)
        scenario.write_text("# formatted by hand\n\n" + text.replace(" = ", "="))
        resume(path)


def test_files_without_digests_are_refused(runs):
    half, _ = runs
    for name in ("world.json", "checkpoint.json"):
        text = (half / name).read_bytes()
        (half / name).write_bytes(text[: text.rfind(b",")] + b"}")
        with pytest.raises(RunFolderError, match=rf"{name}.*its digest is missing"):
            resume(half)
        (half / name).write_bytes(text)
    (half / "scenario.toml").write_text(dump(RunFolder.open(half).scenario()) + '[versions]\nnumpy = "2.0"\n')
    with pytest.raises(RunFolderError, match=r"scenario\.toml: was changed or damaged"):
        resume(half)


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x05\x06" + b"\0" * 18, "text", "object", "claim", "packed"])
def test_invalid_arrays_and_arrays_that_claim_to_be_huge_are_refused(tmp_path, content):
    path = tmp_path / "x.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
        if content.startswith(b"PK\x05"):
            assert read_arrays(path) == {}
            return
    elif content == "packed":
        np.savez_compressed(path, a=np.zeros(10**6))
    elif content == "object":
        np.savez(path, a=np.array([object()]))
    else:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (200_000_000_000,)}
        )
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", b"not an array" if content == "text" else header.getvalue() + b"\0" * 80)
    with pytest.raises(ValueError, match=r"\w"):
        read_arrays(path)


@pytest.mark.parametrize("name", ["../world.npz", "/etc/passwd", "checkpoint-000001.npz", 7, None])
def test_a_checkpoint_that_names_other_arrays_is_refused(runs, name):
    half, _ = runs
    folder = RunFolder.open(half)
    plain = json.loads(folder.read_sealed("checkpoint.json"))
    (half / "checkpoint.json").write_bytes(seal(json.dumps(plain | {"arrays": name}).encode()))
    with pytest.raises(RunFolderError, match=r"checkpoint\.json: is damaged .*wanted checkpoint-000002\.npz"):
        resume(half)


@pytest.mark.parametrize("change", [lambda array: array + 1, lambda array: array[None]], ids=["number", "shape"])
def test_changed_arrays_are_refused_even_in_a_valid_archive(runs, change):
    half, _ = runs
    arrays = read_arrays(half / "checkpoint-000002.npz")
    name = max(arrays, key=lambda name: arrays[name].size)
    np.savez(half / "checkpoint-000002.npz", **{**arrays, name: change(arrays[name])})
    with pytest.raises(RunFolderError, match=r"checkpoint-000002\.npz was changed or damaged: its digest does not fit"):
        resume(half)


OWN = ["scenario.toml", LOG, "timings.jsonl", "world.json", "checkpoint.json", "figures", "figures/regret.png", ".lock"]


@pytest.mark.skipif(os.name == "nt", reason="making links needs rights there")
@pytest.mark.parametrize("name", OWN)
def test_a_link_in_a_run_folder_is_refused_and_its_target_is_not_changed(tmp_path, runs, name):
    half, _ = runs
    (half / "figures").mkdir()
    target = tmp_path / "precious"
    place = half / name
    if name == "figures":
        place.rmdir()
        target.mkdir()
        (target / "regret.png").write_text("mine")
    else:
        target.write_bytes(place.read_bytes() if place.is_file() else b"mine")
        place.unlink(missing_ok=True)
    place.symlink_to(target)
    before = [(file.name, file.read_bytes()) for file in (target.iterdir() if target.is_dir() else [target])]
    for use in (resume, draw_run):
        with pytest.raises(RunFolderError, match=f"{name}: got a link; wanted a (file|folder) that the run wrote"):
            use(half)
    assert [(file.name, file.read_bytes()) for file in (target.iterdir() if target.is_dir() else [target])] == before


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
@pytest.mark.parametrize("name", [LOG, "checkpoint.json", "world.npz", "summary.json", "checkpoint-000002.npz"])
def test_a_pipe_in_a_run_folder_is_refused_at_once(runs, name):
    half, _ = runs
    (half / name).unlink(missing_ok=True)
    os.mkfifo(half / name)
    for use in (resume, draw_run):
        with pytest.raises(RunFolderError, match=f"{name}: got a pipe; wanted a file"):
            use(half)


def test_partial_files_of_a_killed_process_are_removed(runs):
    half, whole = runs
    (half / "figures").mkdir()
    for name in ("checkpoint.json.partial", "checkpoint-000003.npz.0a1b2c3d.partial", "figures/run.gif.partial"):
        (half / name).write_text("torn")
    (half / "thesis.partial").write_text("mine")
    resume(half)
    assert [path.name for path in half.rglob("*.partial")] == ["thesis.partial"]
    assert (half / LOG).read_bytes() == (whole / LOG).read_bytes()


def test_a_run_killed_while_it_was_drawn_counts_as_not_drawn(runs, monkeypatch):
    _, whole = runs
    saved = []

    def writes(figure, path, dpi=150):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"a picture")
        saved.append(path)
        return path

    def dies(figure, path, dpi=150):
        if saved:
            raise KeyboardInterrupt
        return writes(figure, path)

    with monkeypatch.context() as patch:
        patch.setattr(style, "save", dies)
        with pytest.raises(KeyboardInterrupt):
            draw_run(whole)
    assert saved[0].is_file()
    assert not drawn_files(whole)
    monkeypatch.setattr(style, "save", writes)
    files = draw_run(whole)
    assert drawn_files(whole)
    files[-1].unlink()
    assert not drawn_files(whole)
