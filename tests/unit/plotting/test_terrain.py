"""Figures of robots on terrain (paths, no-go regions, bases, batteries) and of fixed sensors (beams, levels)."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from matplotlib.colors import Normalize, to_hex, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle

from swarmbo.belief import ExactGP, ExactGPSettings
from swarmbo.boundary import look
from swarmbo.plotting import World, style
from swarmbo.plotting.animation import MovingMap, _legend_handles, render_frames
from swarmbo.plotting.belief_map import belief_map_figure, plot_level
from swarmbo.plotting.history import measured_places, path_of
from swarmbo.plotting.maps import draw_bases, lattice_order, lattice_over, plot_sensors
from swarmbo.plotting.regret import plot_best, plot_declined, plot_regret
from swarmbo.records import Evaluation, Recommendation, RoundRecord, Sample, Score
from swarmbo.spaces import Domain

from .conftest import axes

DOMAIN = Domain(np.zeros(2), np.full(2, 100.0))
RING = np.array([[40.0, 40.0], [70.0, 40.0], [70.0, 70.0], [40.0, 70.0]])


def made(battery=0.5):
    grid = np.stack(np.meshgrid(*[np.linspace(0, 100, 21)] * 2), axis=-1).reshape(-1, 2)
    free = ~((grid > 40) & (grid < 70)).all(axis=1)
    truth = {"points": grid[free], "values": grid[free].sum(axis=1), "maximum": 200.0, "argmax": np.full(2, 100.0)}
    world = World(DOMAIN, **truth, no_go=[[RING]], bases={"robot_0": np.array([5.0, 5.0])})
    first = Sample("robot_0", [10.0, 10.0], 20.0)
    path = [[10.0, 10.0], [30.0, 60.0], [30.0, 90.0]]
    stops = [Evaluation([20.0, 35.0], 55.0), Evaluation([30.0, 60.0], None)]
    then = Sample("robot_0", [30.0, 90.0], 120.0, on_the_way=stops, path=path, battery=battery)
    return world, [RoundRecord(0, [first]), RoundRecord(1, [then])]


def test_paths_are_the_driven_ones_and_stops_are_the_places_of_measurements():
    _, records = made()
    driven = [[10, 10], [10, 10], [30, 60], [30, 90], [30, 90]]
    assert path_of(records, "robot_0").tolist() == driven
    assert measured_places(records, "robot_0").tolist() == [[10, 10], [20, 35], [30, 60], [30, 90]]
    straight = [RoundRecord(n, [Sample("a", [float(n), 0.0], 1.0)]) for n in range(2)]
    assert path_of(straight, "a").tolist() == [[0, 0], [1, 0]]


def test_a_base_has_the_colour_of_its_agent_if_another_agent_has_no_base():
    world = World(DOMAIN, bases={"b": np.array([5.0, 5.0])}, agents=("a", "b"))
    assert [line.get_color() for line in draw_bases(axes(), world)] == [style.agent_colour(1)]


def test_a_map_shows_no_go_regions_the_base_and_the_driven_path():
    world, records = made()
    figure = belief_map_figure(records, world, ExactGPSettings())
    maps = [ax for ax in figure.axes if ax.get_title(loc="left")]
    assert len(maps) == 4
    for ax in maps:
        regions = [patch for patch in ax.patches if isinstance(patch, PathPatch)]
        assert len(regions) == 1
        assert regions[0].get_path().contains_point((50.0, 50.0))
        assert any(line.get_xydata().tolist() == [[5.0, 5.0]] for line in ax.lines)
    assert any(line.get_xydata().tolist() == path_of(records, "robot_0").tolist() for line in maps[1].lines)
    labels = {text.get_text() for text in figure.legends[0].get_texts()}
    assert {"no-go", "base"} <= labels


def test_holes_in_a_lattice_get_the_nearest_point():
    world, _ = made()
    assert lattice_order(world.points) is None
    lattice, which = lattice_order(world.points, has_holes=True)
    own = lattice.points
    distance = np.hypot(*(own[:, None] - world.points).transpose(2, 0, 1))
    np.testing.assert_allclose(distance[np.arange(len(own)), which], distance.min(axis=1))


def test_a_hole_of_a_region_is_not_filled():
    with style.applied():
        ax = style.new_figure(2.0, 2.0).subplots()
        inner = np.array([[50.0, 50.0], [60.0, 50.0], [60.0, 60.0], [50.0, 60.0]])
        for ring in (inner, inner[::-1]):
            patch = look.draw_no_go(ax, [RING, ring])
            corners = patch.get_path().to_polygons()
            area = [float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) for x, y in (np.array(c[:-1]).T for c in corners)]
            assert area[0] > 0 > area[1]


def test_frames_show_the_charge_of_batteries():
    frames = []
    for battery in (0.1, 0.9):
        world, records = made(battery)
        frames.append(render_frames(records, world, ExactGPSettings(), [0, 1]))
    (_, empty), (_, full) = frames
    np.testing.assert_array_equal(frames[0][0], frames[1][0])
    changed = (empty != full).any(axis=2)
    assert 0 < changed.sum() < 0.01 * changed.size
    labels = [{mark.get_label() for mark in _legend_handles(shown, world)} for shown in (records, records[:1])]
    assert ["battery" in each for each in labels] == [True, False]
    figure = style.new_figure(2.0, 2.0)
    boxes = look.draw_battery(figure.subplots(), np.zeros(2), 0.25, look.BLUE)
    assert all(isinstance(box, Rectangle) for box in boxes)
    assert boxes[1].get_width() == 0.25 * boxes[0].get_width()


@pytest.mark.parametrize("robot", range(12))
def test_a_nearly_empty_battery_looks_different_for_every_robot(robot):
    ax, colour = style.new_figure(2.0, 2.0).subplots(), look.agent_colour(robot)
    looks = [look.draw_battery(ax, np.zeros(2), share, colour) for share in (0.1, 0.5)]
    fills = [to_hex(boxes[1].get_facecolor()) for boxes in looks]
    outlines = [to_hex(boxes[2].get_edgecolor()) for boxes in looks]
    assert fills == [colour, colour]
    assert outlines[0] != outlines[1]


def test_the_goal_level_draws_the_level_line_and_no_peak():
    world, records = made()
    X, y = np.array([[10.0, 10.0], [30.0, 90.0]]), np.array([20.0, 120.0])
    belief = ExactGP.create(ExactGPSettings(), DOMAIN).update(X, y)
    found = Recommendation([30.0, 90.0], 120.0, 1.0)
    more = {"hyperparameters": msgspec.to_builtins(belief.hyperparameters), "best": found, "recommendation": found}
    records = [msgspec.structs.replace(record, **more) for record in records]
    figure = belief_map_figure(records, replace(world, goal="level", level=100.0), ExactGPSettings())
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "level 100" in labels
    assert not {"best measurement", "recommendation", "true maximum"} & set(labels)
    lines = [sum(to_hex(c.get_edgecolor()[0]) == style.INK for c in ax.collections) for ax in figure.axes[:3]]
    assert lines == [1, 2, 0]  # truth (despite its holes), mean (with the line of the truth), deviation
    assert "true level" in labels


@pytest.mark.parametrize(("goal", "level"), [("peak", None), ("level", 2.0)])
def test_a_film_draws_level_lines_bases_above_paths_and_recent_rounds_thicker(goal, level):
    world = replace(made()[0], goal=goal, level=level)
    rounds = [RoundRecord(n, [Sample("robot_0", [float(n), 0.0], 1.0)]) for n in range(20)]
    found = Recommendation([3.0, 0.0], 1.0, 1.0)
    rounds[-1] = msgspec.structs.replace(rounds[-1], best=found, recommendation=found)
    lattice = lattice_over(world, 20)
    ax = Figure().subplots()
    moving = MovingMap(ax, lattice, ["robot_0"], (style.MEAN_COLOURS, Normalize(0, 1), "white"), world, level)
    drawn = moving.show(rounds, [], lattice.image(lattice.points[:, 0] / 25.0))
    assert moving.image.origin == "lower"
    assert drawn["ways"][0].get_xydata()[0].tolist() == [0.0, 0.0]
    assert drawn["recent"][0].get_xydata()[:, 0].tolist() == [13.0, 14.0, 15.0, 16.0, 17.0, 18.0, 19.0]
    order = list(drawn)
    assert order.index("bases") > order.index("recent")
    assert len(drawn["bases"]) == 1
    lines = [line[:, 0].tolist() for line in drawn["level"][0].get_segments()]
    assert all(np.allclose(line, 50.0) for line in lines)
    assert len(lines) == (level is not None)
    assert [len(drawn["best"]), len(drawn["recommendation"])] == [goal == "peak"] * 2


STANDS = {"sensor_0": np.array([10.0, 10.0]), "sensor_1": np.array([50.0, 40.0]), "sensor_2": np.array([90.0, 20.0])}
FIELD = Domain(np.zeros(2), np.array([100.0, 60.0]))


def records():
    first = [Sample(agent, place.tolist(), 1.0) for agent, place in STANDS.items()]
    second = [
        Sample("sensor_0", [15.0, 12.0], 2.0),
        Sample("sensor_1", [50.0, 40.0], None, declined=True),
        Sample("sensor_2", [88.0, 30.0], None),
    ]
    score = Score(0.5, None, 0.0, map_rmse=1.0)
    return [RoundRecord(0, first, score=score), RoundRecord(1, second, score=score)]


def test_sensors_are_drawn_at_their_places_with_beams_to_their_measurements():
    ax = plot_sensors(axes(), records(), STANDS)
    earlier, beams, stands, spots = ax.collections
    assert len(earlier.get_offsets()) == 5  # all attempts, also of the last round, but none of sensors that declined
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
    ax, world = axes(), World(FIELD, standpoints=STANDS)
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
    ax = plot_level(axes(), World(FIELD, points=X, values=X[:, 0]), 33.0)
    (contour,) = ax.collections
    np.testing.assert_allclose(contour.get_paths()[0].vertices[:, 0], 33.0)
    assert not plot_level(axes(), World(FIELD, points=X, values=X[:, 0]), 1000.0).collections


def test_bars_stack_agents_with_and_without_a_measurement():
    ax = plot_declined(axes(), records())
    measured, without = (bars.patches for bars in ax.containers)
    assert [bar.get_height() for bar in measured] == [3, 2]
    assert [bar.get_height() for bar in without] == [0, 1]
    assert [bar.get_y() for bar in without] == [3, 2]


def test_a_changing_field_has_no_best_so_far():
    ax = plot_best(axes(), records(), World(Domain(np.zeros(1), np.ones(1)), maxima=np.array([3.0, 4.0])))
    labels = [line.get_label() for line in ax.get_lines()]
    assert "best so far" not in labels
    (truth,) = [line for line in ax.get_lines() if line.get_label() == "true maximum"]
    assert truth.get_ydata().tolist() == [3.0, 4.0]
    labels = [line.get_label() for line in plot_regret(axes(), records(), moves=True).get_lines()]
    assert "simple: best of this round" in labels
    assert not any(label.startswith("batch") for label in labels)


def test_agents_are_named_by_their_role():
    assert style.role_of(["sensor_0", "sensor_1"]) == "sensor"
    assert style.role_of(["sensor_0", "robot_1"]) == "agent"
    assert style.role_of(["alice"]) == "agent"
    assert style.role_of(["autonomous_underwater_vehicle_0"]) == "agent"
