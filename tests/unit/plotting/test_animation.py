import itertools

import numpy as np
import pytest
from PIL import Image

from swarmbo.plotting.animation import render_frames, write_animation


def test_one_frame_a_round_every_frame_differs_and_the_last_is_as_it_was_rendered(run, tmp_path):
    made = run(rounds=4)
    path = write_animation(made.records, made.world, made.settings, tmp_path / "figures" / "run.gif")
    rendered = render_frames(made.records, made.world, made.settings, [len(made.records) - 1])
    with Image.open(path) as picture:
        assert picture.n_frames == len(made.records)
        frames = []
        for index in range(picture.n_frames):
            picture.seek(index)
            frames.append(np.asarray(picture.convert("RGB")).astype(int))
    assert all((a != b).any() for a, b in itertools.pairwise(frames))
    assert np.abs(frames[-1] - rendered[0]).mean() < 2.0
    assert (frames[-1][0, 0] == 255).all()


@pytest.mark.thorough
def test_a_long_run_is_thinned_out_and_its_last_round_kept(run, tmp_path, monkeypatch):
    monkeypatch.setattr("swarmbo.plotting.animation._MOST_FRAMES", 10)
    made = run(rounds=23, robots=2)
    path = write_animation(made.records, made.world, made.settings, tmp_path / "run.gif")
    rendered = render_frames(made.records, made.world, made.settings, [len(made.records) - 1], stride=3)
    with Image.open(path) as picture:
        assert picture.n_frames == 9  # rounds 0, 3, ..., 21 and 23
        picture.seek(8)
        assert np.abs(np.asarray(picture.convert("RGB")).astype(int) - rendered[0]).mean() < 3.0


@pytest.mark.parametrize(
    "options",
    [
        {"truth": "none", "rounds": 2},
        {"truth": "sites", "rounds": 2},
        {"rounds": 0, "robots": 1, "failing": 0.0},
        {"robots": 16, "rounds": 1},
    ],
)
def test_every_kind_of_run_can_be_animated(run, tmp_path, options):
    made = run(**options)
    with Image.open(write_animation(made.records, made.world, made.settings, tmp_path / "run.gif")) as picture:
        assert np.asarray(picture.convert("L")).std() > 5


@pytest.mark.thorough
def test_a_usual_run_is_small(run, tmp_path):
    made = run(rounds=23, robots=4)
    path = write_animation(made.records, made.world, made.settings, tmp_path / "run.gif")
    assert path.stat().st_size < 1_500_000


def test_equal_runs_give_equal_bytes(run, tmp_path):
    made = run(rounds=2, failing=2.0)
    paths = [write_animation(made.records, made.world, made.settings, tmp_path / f"{i}.gif") for i in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()
