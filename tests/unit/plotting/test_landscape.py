"""Films in three dimensions: what is drawn where, and what becomes of them where nothing can draw."""

import sys

import msgspec
import numpy as np
import pytest
from PIL import Image

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.errors import DataWarning, MissingPackageError
from swarmbo.plotting import World
from swarmbo.plotting.landscape import _APART, write_landscape
from swarmbo.plotting.style import side_by_side
from swarmbo.records import RoundRecord, Sample
from swarmbo.runs import load, run
from swarmbo.runs.figures import draw_run
from swarmbo.spaces import Domain
from swarmbo_envs import robot_team_v1


class Flat:
    """A scene seen from straight above, a pixel a metre."""

    size, larger, higher = (100, 80), 10.0, 1.0

    def __init__(self):
        self.poses = []

    def picture(self, ground, poses, turn=0.0):
        self.poses.append(poses)
        return np.full((80, 100, 3), 200, dtype=np.uint8)

    def pixels(self, places, above=0.0):
        return np.asarray(places)


def records():
    """Two robots; one drives round a corner, the other stays."""
    corner = [[10.0, 10.0], [50.0, 10.0], [50.0, 50.0]]
    belief = ExactGP.create(ExactGPSettings(), Domain(np.zeros(2), np.array([100.0, 80.0])))
    belief = belief.update(np.array([[10.0, 10.0], [80.0, 70.0]]), np.array([1.0, 2.0]))
    fitted = msgspec.to_builtins(belief.hyperparameters)
    first = [Sample("a", [10.0, 10.0], 1.0), Sample("b", [80.0, 70.0], 2.0)]
    second = [Sample("a", [50.0, 50.0], None, path=corner, failure="stuck"), Sample("b", [80.0, 70.0], 2.1)]
    return [RoundRecord(0, first, hyperparameters=fitted), RoundRecord(1, second, hyperparameters=fitted)]


def test_robots_are_shown_along_what_they_drove_and_end_where_they_are(tmp_path):
    scene, world = Flat(), World(Domain(np.zeros(2), np.array([100.0, 80.0])))
    path = write_landscape(records(), world, ExactGPSettings(), scene, tmp_path / "scene.gif")
    with Image.open(path) as film:
        assert len(scene.poses) == film.n_frames == 5
    ways = np.array(scene.poses)[:, 0]
    np.testing.assert_allclose(ways[:, :2], [[10, 10], [30, 10], [50, 10], [50, 30], [50, 50]])
    np.testing.assert_allclose(ways[1:, 2], [0, 0, np.pi / 2, np.pi / 2])
    np.testing.assert_allclose(np.array(scene.poses)[:, 1, :2], [[80, 70]] * 5)


def test_numbers_of_robots_in_one_place_stand_side_by_side():
    spots = np.array([[50.0, 9.0], [52.0, 10.0], [51.0, 8.0], [70.0, 9.0], [200.0, 9.0], [51.0, 60.0]])
    moved = spots + side_by_side(spots, _APART)
    across, up = np.abs(moved[:, None] - moved).transpose(2, 0, 1)
    assert ((across >= _APART[0] - 0.1) | (up >= _APART[1])).sum() == 30  # all pairs but each with itself
    assert moved[4:].tolist() == spots[4:].tolist()  # who is alone stays
    assert np.argsort(moved[:4, 0]).tolist() == np.argsort(spots[:4, 0]).tolist()
    np.testing.assert_array_equal(moved[:, 1], spots[:, 1])


@pytest.fixture
def scene():
    pytest.importorskip("mujoco")
    arguments = {"field": {"gp": {"size_m": [900.0, 700.0]}}, "robots": 2, "physics": "mujoco", "separation_m": 5.0}
    try:
        made = robot_team_v1.parallel_env(**arguments).scene(320, 240)
    except MissingPackageError as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.mark.thorough
@pytest.mark.parametrize("turn", [0.0, 30.0])
def test_what_is_painted_is_where_its_pixels_are_said_to_be(scene, turn):
    """The camera's equations against what MuJoCo drew: a green square on a blue ground."""
    ground = np.zeros((140, 180, 3), dtype=np.uint8)
    ground[..., 2] = 255
    ground[100:110, 30:40] = [0, 255, 0]  # from the south, from the west; 5 m a cell
    drawn = scene.picture(ground, np.array([[800.0, 600.0, 0.0], [800.0, 100.0, 0.0]]), turn).astype(int)
    rows, columns = np.nonzero(drawn[..., 1] > drawn[..., [0, 2]].max(axis=2) + 40)
    told = scene.pixels(np.array([[175.0, 525.0]]))[0]
    assert len(rows) > 20
    np.testing.assert_allclose(told, [columns.mean(), rows.mean()], atol=2.0)


@pytest.mark.thorough
def test_where_nothing_draws_the_run_says_so_and_has_its_other_figures(tmp_path, monkeypatch):
    pytest.importorskip("mujoco")

    for name in ("egl", "osmesa"):
        monkeypatch.setitem(sys.modules, f"mujoco.{name}", None)
    small = ["rounds=1", "environment.field.window=[200, 128, 12, 12]", "environment.robots=2"]
    run(load("robots-mujoco", small), tmp_path / "run")
    with pytest.warns(DataWarning, match=r"scene.gif is left out: .*EGL or OSMesa.*egl: import of mujoco.egl halted"):
        files = draw_run(tmp_path / "run")
    assert {file.name for file in files} >= {"run.gif", "belief.png", "regret.png"}
