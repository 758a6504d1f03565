import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from matplotlib.axes import Axes
from PIL import Image

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.errors import ShapeError
from swarmbo.plotting import Formats, World, style, write_figures
from swarmbo.plotting.agent_maps import agent_maps_figure, error_of
from swarmbo.plotting.animation import render_frames
from swarmbo.plotting.belief_map import belief_map_figure, plot_error, plot_mean, plot_std, plot_truth
from swarmbo.plotting.history import belief_after, failures, measured_places, measurements
from swarmbo.plotting.maps import (
    Lattice,
    draw_bases,
    frame_map,
    lattice_order,
    lattice_over,
    plot_field,
    plot_findings,
    plot_lattice,
    plot_paths,
)
from swarmbo.spaces import Domain

from .conftest import axes


def lines(ax: Axes, label: str) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in ax.get_lines() if line.get_label() == label]


def test_the_belief_recomputed_from_records_equals_that_of_the_run(run):
    made = run(failing=0.2)
    belief = belief_after(made.records, made.settings, made.world.domain)
    X, y = measurements(made.records)
    np.testing.assert_array_equal(belief.X, X)
    np.testing.assert_array_equal(belief.y, y)
    mean, var = belief.posterior(np.array([made.records[-1].recommendation.location]))
    np.testing.assert_allclose(mean, made.records[-1].recommendation.mean)
    np.testing.assert_allclose(np.sqrt(var), made.records[-1].recommendation.std, rtol=1e-5)


def test_places_far_outside_the_map_do_not_stretch_the_figure(run):
    made = run(failing=0.0)
    samples = list(made.records[-1].samples)
    for i, place in enumerate([[1e7, 400.0], [500.0, -1e9]]):
        samples[i] = msgspec.structs.replace(samples[i], location=place)
    stray = msgspec.structs.replace(made.records[-1], samples=samples)
    figure = belief_map_figure([*made.records[:-1], stray], made.world, made.settings)
    figure.canvas.draw()
    box = figure.get_tightbbox()
    assert max(box.width / figure.get_figwidth(), box.height / figure.get_figheight()) < 1.2


@pytest.mark.parametrize("robots", [4, 25])
def test_the_title_is_above_the_panels_for_any_number_of_robots(run, robots):
    made = run(robots=robots, rounds=0)
    square = replace(made.world, domain=Domain(np.zeros(2), np.full(2, 800.0)))
    figure = belief_map_figure(made.records, square, made.settings)
    figure.draw_without_rendering()
    top = max(ax.get_tightbbox().y1 for ax in figure.axes if ax.get_title(loc="left"))
    assert figure._suptitle.get_window_extent().y0 > top + 3.0


def test_numbers_that_agree_in_many_digits_have_short_labels_beside_a_map():
    with style.applied():
        x, ax = np.linspace(0.0, 1.0, 20), style.new_figure(4.0, 4.0).subplots()
        lattice = Lattice(x, x, np.ones((20, 20), dtype=bool))
        plot_lattice(ax, lattice, 1e9 + 1e-3 * lattice.points[:, 0], label="value")
        ax.figure.canvas.draw()
        bar = ax.figure.axes[1].yaxis
    labels = [text.get_text() for text in bar.get_ticklabels()]
    assert ("0.0002" in labels, bar.get_offset_text().get_text()) == (True, "+1e9")


def test_long_names_neither_widen_a_figure_nor_exceed_it(run):
    made = run(rounds=1)
    name = "a very long name of an autonomous underwater vehicle "
    samples = [[msgspec.structs.replace(s, agent=name + s.agent) for s in record.samples] for record in made.records]
    pairs = zip(made.records, samples, strict=True)
    longer = [msgspec.structs.replace(record, samples=own, links=[]) for record, own in pairs]
    figure = belief_map_figure(longer, made.world, made.settings)
    figure.canvas.draw()
    assert figure.get_tightbbox().width < 1.05 * figure.get_figwidth()
    (frame,) = render_frames(longer, replace(made.world, name=3 * name), made.settings, [1])
    caption = frame[: len(frame) // 15]
    assert (caption < 128).any()
    assert (caption[:, -4:] == 255).all()


@pytest.mark.parametrize(("points", "note"), [("none", "the truth is not known"), ("lattice", "no measurement has")])
def test_an_empty_error_map_states_the_reason(run, points, note):
    ax = axes()
    plot_error(ax, None, run(truth=points).world)
    assert [text.get_text() for text in ax.texts if note in text.get_text()]


def test_paths_are_the_recorded_locations_and_robots_differ_by_marker_and_colour(run):
    made = run(robots=5)
    ax = plot_paths(axes(), made.records)
    for index in range(5):
        expected = [record.samples[index].location for record in made.records]
        (drawn,) = lines(ax, f"robot_{index}")
        np.testing.assert_array_equal(drawn, expected)
    marked = [line for line in ax.get_lines() if line.get_linestyle() == "None" and line.get_marker() not in ("s", "x")]
    assert len({line.get_marker() for line in marked}) == len({line.get_color() for line in marked}) == 5


def test_failed_measurements_are_marked_at_their_places(run):
    made = run(failing=0.3)
    expected = [s.location for r in made.records for s in r.samples if s.measurement is None]
    (drawn,) = lines(plot_paths(axes(), made.records), "failed")
    assert len(expected) > 0
    np.testing.assert_array_equal(drawn, expected)
    assert lines(plot_paths(axes(), run(failing=0.0).records), "failed") == []


def test_best_measurement_and_recommendation_are_marked_at_their_recorded_places(run):
    made = run()
    ax = plot_findings(axes(), made.records)
    np.testing.assert_array_equal(lines(ax, "best measurement")[0], [made.records[-1].best.location])
    np.testing.assert_array_equal(lines(ax, "recommendation")[0], [made.records[-1].recommendation.location])


def test_images_show_the_posterior_of_the_belief(run):
    made = run()
    belief = belief_after(made.records, made.settings, made.world.domain)
    lattice = lattice_over(made.world, 30)
    mean, var = belief.posterior(lattice.points)
    for plot, expected in ((plot_mean, mean), (plot_std, np.sqrt(var))):
        ax = plot(axes(), belief, made.world, lattice)
        np.testing.assert_allclose(np.ma.getdata(ax.images[0].get_array()).ravel(), expected)
        assert ax.images[0].origin == "lower"  # north is up on a user's own axes, too


def test_image_pixels_are_centred_on_the_lattice(run):
    lattice = lattice_over(run().world, 41)
    left, right, bottom, top = lattice.extent
    ny, nx = lattice.shown.shape
    np.testing.assert_allclose(left + (np.arange(nx) + 0.5) * (right - left) / nx, lattice.x)
    np.testing.assert_allclose(bottom + (np.arange(ny) + 0.5) * (top - bottom) / ny, lattice.y)


def test_a_ground_truth_on_a_lattice_is_an_image_for_any_order_of_its_points(run):
    world = run().world
    order = np.random.default_rng(0).permutation(len(world.points))
    ax = plot_field(axes(), world.points[order], world.values[order])
    np.testing.assert_array_equal(np.ma.getdata(ax.images[0].get_array()).ravel(), world.values)


@pytest.mark.parametrize("truth", ["lattice", "sites"])
def test_unknown_values_of_the_ground_truth_are_blank_and_do_not_affect_scales(run, truth):
    made = run(truth=truth, rounds=4)
    values = np.where(np.arange(len(made.world.values)) % 7 == 0, np.nan, made.world.values)
    frames = np.tile(values, (len(made.records), 1))
    frames[0] = np.nan
    peaks = {"maxima": frames[:, 1], "argmaxes": np.tile(made.world.argmax, (len(frames), 1))}
    world = replace(made.world, values=values, level=400.0)
    figure = belief_map_figure(made.records, world, made.settings)
    belief = belief_after(made.records, made.settings, world.domain)
    error = np.abs(belief.posterior(world.points)[0] - values)
    for ax, shown, low in ((figure.axes[0], values, None), (figure.axes[3], error, 0.0)):
        drawn = ax.images[0] if truth == "lattice" else ax.collections[0]
        np.testing.assert_array_equal(np.ma.filled(drawn.get_array(), np.nan).ravel(), shown)
        assert drawn.norm.vmin <= np.nanmin(shown) if low is None else drawn.norm.vmin == low
        assert drawn.norm.vmax >= np.nanmax(shown)
    assert error_of(belief, world) == pytest.approx(np.sqrt(np.nanmean(error**2)))
    agent_maps_figure(made.records, world, made.settings, None).canvas.draw()
    for changing, at in ((replace(world, frames=frames, **peaks), [0, 4]), (replace(world, values=frames[0]), [4])):
        assert len(render_frames(made.records, changing, made.settings, at)) == len(at)
    unknown = belief_map_figure(made.records, changing, made.settings)
    assert [ax.get_title(loc="left") for ax in unknown.axes[:2]] == ["Belief: mean", "Belief: standard deviation"]


def test_at_scattered_sites_the_ground_truth_is_drawn_as_discs_and_the_belief_is_hidden_far_from_them(run):
    world = run(truth="sites").world
    ax = plot_truth(axes(), world)
    (discs,) = ax.collections
    assert len(ax.images) == 0
    np.testing.assert_array_equal(discs.get_offsets(), world.points)
    np.testing.assert_array_equal(discs.get_array(), world.values)
    (errors,) = plot_field(axes(), world.points, world.values, colours=style.ERROR_COLOURS).collections
    assert discs.get_edgecolors()[0].min() == 1.0 > errors.get_edgecolors()[0, :3].max()  # an error near 0 is white
    lattice = lattice_over(world, 60)
    distance = np.linalg.norm(lattice.points[:, None] - world.points[None], axis=2).min(axis=1)
    shown = lattice.shown.ravel()
    assert 0 < shown.sum() < shown.size
    assert distance[shown].max() <= distance[~shown].min()
    assert shown[distance < 10.0].all()


@pytest.mark.parametrize(
    ("options", "panels"),
    [
        ({"rounds": 3}, 4),
        ({"truth": "none", "rounds": 0, "robots": 1, "failing": 0.0}, 2),
        pytest.param({"truth": "sites", "rounds": 1, "failing": 2.0, "robots": 16}, 4, marks=pytest.mark.thorough),
    ],
)
def test_the_map_is_written_and_is_not_blank(run, tmp_path, options, panels):
    made = run(**options)
    figure = belief_map_figure(made.records, made.world, made.settings)
    titled = [ax for ax in figure.axes if ax.get_title(loc="left")]
    assert len(titled) == panels
    path = style.save(figure, tmp_path / "figures" / "belief.png", 40)
    with Image.open(path) as picture:
        assert np.asarray(picture.convert("L")).std() > 5
    assert all(ax.get_aspect() == 1.0 for ax in titled)


def test_without_a_measurement_the_map_says_so_and_still_shows_failed_attempts(run):
    made = run(rounds=2, failing=2.0)
    figure = belief_map_figure(made.records, made.world, made.settings)
    mean = figure.axes[1]
    assert any("no measurement has succeeded" in text.get_text() for text in mean.texts)
    assert len(lines(mean, "failed")[0]) == len(failures(made.records)) == 12
    np.testing.assert_array_equal(lines(mean, "robot_0")[0], measured_places(made.records, "robot_0"))


def test_a_domain_without_two_axes_is_refused(run):
    made = run()
    world = World(Domain(np.zeros(3), np.ones(3)))
    with pytest.raises(ShapeError, match=r"2 axes, got 3"):
        belief_map_figure(made.records, world, made.settings)


def test_maps_share_a_scale_and_the_error_panel_shows_the_absolute_error_of_the_mean(run):
    made = run(failing=0.0)
    belief = belief_after(made.records, made.settings, made.world.domain)
    figure = belief_map_figure(made.records, replace(made.world, method="auto + exact, seed 3"), made.settings)
    (panel,) = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("Error")]
    drawn = np.sort(np.asarray((panel.images or panel.collections)[0].get_array()).ravel())
    wanted = np.sort(np.abs(belief.posterior(made.world.points)[0] - made.world.values))
    np.testing.assert_allclose(drawn, wanted, rtol=1e-6)
    assert "auto + exact, seed 3" in figure.get_suptitle()
    truth, mean = figure.axes[0].images[0], figure.axes[1].images[0]
    assert truth.get_clim() == mean.get_clim()
    labels = {ax.get_ylabel() for ax in figure.axes}
    assert {"true value (m)", "posterior mean (m)", "posterior standard deviation (m)"} <= labels


@pytest.mark.parametrize(("extent", "unit"), [(4000.0, "m"), (12_000.0, "km")])
def test_large_maps_are_in_kilometres(extent, unit):
    ax = axes()
    frame_map(ax, World(Domain(np.zeros(2), np.full(2, extent)), axis_unit="m"))
    assert ax.get_xlabel() == f"x, east ({unit})"
    assert (ax.xaxis.get_major_formatter()(extent, 0) == "12") is (unit == "km")
    if unit == "km":
        assert ax.yaxis.get_major_formatter()(5_318_545.0, 0) == "5318.545"


def test_an_agent_that_always_declines_has_no_path_and_figures_are_still_drawn(run, tmp_path):
    made = run(rounds=1, failing=0.0)
    records = []
    for record in made.records:
        lazy = msgspec.structs.replace(record.samples[1], measurement=None, declined=True)
        records.append(msgspec.structs.replace(record, samples=[record.samples[0], lazy, *record.samples[2:]]))
    assert write_figures(records, made.world, made.settings, tmp_path, formats=Formats.of([], 40))
    drawn = plot_paths(axes(), records)
    assert lines(drawn, "robot_1") == []
    np.testing.assert_array_equal(lines(drawn, "robot_2")[0], measured_places(records, "robot_2"))


@pytest.mark.parametrize("size", [[1000.0, 40.0], [40.0, 1000.0]])
def test_labels_of_a_long_narrow_map_do_not_overlap(run, size):
    made = run(rounds=1, failing=0.0)
    X = np.stack(np.meshgrid(*(np.linspace(0.0, side, 21) for side in size)), axis=-1).reshape(-1, 2)
    world = World(Domain(np.zeros(2), np.array(size)), "", "m", "m", X, X.sum(axis=1), X.sum(), X[-1])
    place = [0.5 * size[0], 0.5 * size[1]]
    records = [msgspec.structs.replace(r, best=None, recommendation=None) for r in made.records]
    for record in records:
        record.samples[:] = [msgspec.structs.replace(s, location=place, target=None) for s in record.samples]
    figure = belief_map_figure(records, world, made.settings)
    figure.canvas.draw()
    texts = [label for ax in figure.axes for label in (ax._left_title, ax.yaxis.label) if label.get_text()]
    drawn = [text.get_window_extent() for text in texts]
    assert len(drawn) > 8
    assert not any(one.overlaps(other) for one, other in itertools.combinations(drawn, 2))
    assert np.ptp(lattice_over(world).points, axis=0).tolist() == size
    assert min(lattice_over(world).shown.shape) > 30


def test_uneven_sites_are_not_a_lattice_in_any_unit():
    columns = np.array([0.0, 1.0, 5.0, 6.0, 9.0])
    points = np.stack(np.meshgrid(columns, columns), axis=-1).reshape(-1, 2)
    assert [lattice_order(unit * points) for unit in (1.0, 1e-9)] == [None, None]


def test_a_map_without_error_has_the_colour_of_zero():
    world = World(
        Domain(np.zeros(2), np.ones(2)), points=np.random.default_rng(0).random((9, 2)), values=np.full(9, 5.0)
    )
    hyper = Hyperparameters("matern52", (0.3, 0.3), 1.0, 0.01, offset=5.0)
    belief = ExactGP.from_hyperparameters(ExactGPSettings(), world.domain, hyper, world.points, world.values)
    (sites, *_) = plot_error(axes(), belief, world).collections
    assert (sites.norm.vmin, sites.norm.vmax) == (0.0, 1.0)
    assert not sites.get_array().any()


def test_colours_follow_the_order_of_the_world_not_of_the_records(run):
    made, names = run(), [f"robot_{i}" for i in range(4)]
    first = msgspec.structs.replace(made.records[0], samples=made.records[0].samples[::-1])
    world = replace(made.world, agents=tuple(names), bases=dict.fromkeys(names, np.zeros(2)))
    paths = plot_paths(axes(), [first, *made.records[1:]], world).lines
    colours = {line.get_label(): line.get_color() for line in paths if line.get_label() in names}
    assert [colours[name] for name in names] == [line.get_color() for line in draw_bases(axes(), world)]
    legend = belief_map_figure([first, *made.records[1:]], world, made.settings).legends[0].legend_handles
    assert {line.get_label(): line.get_color() for line in legend if line.get_label() in names} == colours
