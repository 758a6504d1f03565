import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, to_rgba
from matplotlib.figure import Figure

from swarmbo.plotting import World, style
from swarmbo.plotting.animation import MovingMap
from swarmbo.plotting.belief_map import plot_level
from swarmbo.plotting.maps import lattice_over, plot_sensors
from swarmbo.plotting.regret import plot_best, plot_declined, plot_regret
from swarmbo.records import RoundRecord, Sample, Score
from swarmbo.spaces import Domain

STANDS = {"sensor_0": np.array([10.0, 10.0]), "sensor_1": np.array([50.0, 40.0]), "sensor_2": np.array([90.0, 20.0])}
DOMAIN = Domain(np.zeros(2), np.array([100.0, 60.0]))


def axes() -> Axes:
    return Figure().subplots()


def records():
    first = [Sample(agent, place.tolist(), 1.0) for agent, place in STANDS.items()]
    second = [
        Sample("sensor_0", [15.0, 12.0], 2.0),
        Sample("sensor_1", [50.0, 40.0], None, declined=True),
        Sample("sensor_2", [88.0, 30.0], None),
    ]
    score = Score(0.5, None, 0.0, map_rmse=1.0)
    return [RoundRecord(0, first, score=score), RoundRecord(1, second, score=score)]


def test_sensors_are_drawn_where_they_stand_with_beams_to_what_they_looked_at():
    ax = axes()
    assert plot_sensors(ax, records(), STANDS) is ax
    earlier, beams, stands, spots = ax.collections
    assert len(earlier.get_offsets()) == 5  # those of the last round too; nobody's who slept
    np.testing.assert_array_equal(stands.get_offsets(), list(STANDS.values()))
    np.testing.assert_array_equal(spots.get_offsets(), [[15.0, 12.0]])
    segments = beams.get_segments()
    np.testing.assert_array_equal(segments, [[[10.0, 10.0], [15.0, 12.0]], [[90.0, 20.0], [88.0, 30.0]]])
    colours = stands.get_facecolor()
    assert (colours[1] != colours[0]).any()
    np.testing.assert_array_equal(colours[0], to_rgba("white"))
    (failed,) = ax.get_lines()
    np.testing.assert_array_equal(failed.get_xydata(), [[88.0, 30.0]])


def test_a_moving_map_of_sensors_follows_the_records_and_draws_the_level():
    ax, world = axes(), World(DOMAIN, standpoints=STANDS)
    lattice = lattice_over(world, 30)
    moving = MovingMap(ax, lattice, list(STANDS), (style.MEAN_COLOURS, Normalize(0, 100), "white"), world, level=50.0)
    drawn = moving.show(records(), [("sensor_0", "sensor_1")], lattice.image(lattice.points[:, 0]))
    np.testing.assert_array_equal(drawn["links"][0].get_segments(), [[STANDS["sensor_0"], STANDS["sensor_1"]]])
    _, _, spots, failed = drawn["sensors"]
    np.testing.assert_array_equal(spots.get_offsets(), [[15.0, 12.0]])
    np.testing.assert_array_equal(failed.get_xydata(), [[88.0, 30.0]])
    (boundary,) = drawn["level"][0].get_segments()
    np.testing.assert_allclose(boundary[:, 0], 50.0)
    drawn = moving.show(records()[:1], [], lattice.image(lattice.points[:, 0]))
    assert len(drawn["sensors"][-1].get_offsets()) == 3
    assert moving.image.get_animated()


def test_the_line_of_a_level_lies_where_the_truth_crosses_it():
    X = np.stack(np.meshgrid(np.linspace(0, 100, 26), np.linspace(0, 60, 16)), axis=-1).reshape(-1, 2)
    ax = plot_level(axes(), World(DOMAIN, points=X, values=X[:, 0]), 33.0)
    (contour,) = ax.collections
    np.testing.assert_allclose(contour.get_paths()[0].vertices[:, 0], 33.0)
    assert not plot_level(axes(), World(DOMAIN, points=X, values=X[:, 0]), 1000.0).collections


def test_bars_stack_those_who_measured_and_those_who_did_not():
    ax = plot_declined(axes(), records())
    measured, without = (bars.patches for bars in ax.containers)
    assert [bar.get_height() for bar in measured] == [3, 2]
    assert [bar.get_height() for bar in without] == [0, 1]
    assert [bar.get_y() for bar in without] == [3, 2]


def test_of_a_field_that_moves_no_best_so_far_is_claimed():
    ax = plot_best(axes(), records(), World(Domain(np.zeros(1), np.ones(1)), maxima=np.array([3.0, 4.0])))
    labels = [line.get_label() for line in ax.get_lines()]
    assert "best so far" not in labels
    (truth,) = [line for line in ax.get_lines() if line.get_label() == "true maximum"]
    assert truth.get_ydata().tolist() == [3.0, 4.0]
    labels = [line.get_label() for line in plot_regret(axes(), records(), moves=True).get_lines()]
    assert "simple: best of this round" in labels
    assert not any(label.startswith("batch") for label in labels)


def test_agents_are_called_by_their_role():
    assert style.role_of(["sensor_0", "sensor_1"]) == "sensor"
    assert style.role_of(["sensor_0", "robot_1"]) == "agent"
    assert style.role_of(["alice"]) == "agent"
