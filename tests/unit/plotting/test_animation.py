import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from PIL import Image
from scipy.optimize import LinearConstraint, minimize

from swarmbo.plotting import style
from swarmbo.plotting.animation import (
    MovingMap,
    _Layer,
    _legend_handles,
    _range,
    _Scene,
    render_frames,
    write_animation,
)
from swarmbo.plotting.history import measured_places
from swarmbo.plotting.maps import lattice_over
from swarmbo.records import Recommendation, RoundRecord, Sample

AGENTS = [f"robot_{i}" for i in range(4)]


def moving_over(world, agents=AGENTS, ax=None):
    lattice, colours = lattice_over(world, 20), (style.MEAN_COLOURS, Normalize(0, 1), "white")
    return MovingMap(Figure().subplots() if ax is None else ax, lattice, agents, colours, world), lattice


def test_artists_show_the_records(run):
    made = run(failing=0.3)
    moving, lattice = moving_over(made.world)
    past = made.records[:4]
    picture = lattice.image(np.arange(lattice.shown.size, dtype=float))
    drawn = moving.show(past, [("robot_0", "robot_3")], picture)
    for index, agent in enumerate(AGENTS):
        path, (disc, number) = measured_places(past, agent), drawn["robots"][2 * index : 2 * index + 2]
        np.testing.assert_array_equal(drawn["ways"][index].get_xydata(), path)
        np.testing.assert_array_equal(disc.get_xydata(), path[-1:])
        assert (number.get_position(), number.get_text()) == (tuple(path[-1]), str(index))
    ends = [past[-1].samples[0].location, past[-1].samples[3].location]
    np.testing.assert_array_equal(drawn["links"][0].get_segments(), [ends])
    failed = [s.location for r in past for s in r.samples if s.measurement is None]
    np.testing.assert_array_equal(drawn["failed"][0].get_xydata(), np.reshape(failed, (-1, 2)))
    np.testing.assert_array_equal(drawn["best"][0].get_xydata(), [past[-1].best.location])
    np.testing.assert_array_equal(moving.image.get_array(), picture)


def test_robots_at_the_same_place_are_drawn_side_by_side(run):
    moving, lattice = moving_over(run().world)
    west, east, south, north = lattice.extent
    middle, corner = np.array([west + east, south + north]) / 2, np.array([west, south])
    heads, _ = moving.separate_marks(np.array([middle, corner, middle, middle * 1.001]), None, have_batteries=False)
    assert heads[1].tolist() == corner.tolist()
    pixels = moving.ax.transData.transform(heads)
    disc = 11.0 * moving.ax.figure.dpi / 72
    gaps = np.abs(pixels[:, None] - pixels).max(axis=2)
    assert (gaps[~np.eye(4, dtype=bool)] > disc).all()


@pytest.mark.parametrize("corner", [(0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.5, 0.5)])
def test_nearby_robots_stay_on_the_map_and_cover_neither_batteries_nor_the_best_measurement(run, corner):
    made, ax = run(), style.new_figure(4.0, 4.0).subplots()
    moving, lattice = moving_over(made.world, ax=ax)
    low, size = made.world.domain.low, made.world.domain.high - made.world.domain.low
    shares = np.clip(corner + 0.03 * np.array([[0, 0], [0.3, 0], [1, 0.5], [0.2, 1.0]]), 0.0, 1.0)
    places = (low + size * shares).tolist()
    samples = [Sample(agent, place, 1.0, battery=0.4) for agent, place in zip(AGENTS, places, strict=True)]
    best = Recommendation(places[1], 1.0, 0.1)
    drawn = moving.show([RoundRecord(0, samples, best=best)], [], lattice.image(np.zeros(lattice.shown.size)))
    if corner != (0.0, 0.0) and corner != (0.0, 1.0):  # at these corners, other robots stand between it and the edge
        np.testing.assert_array_equal(drawn["best"][0].get_xydata(), places[1:2])
    discs = [ax.transData.transform(disc.get_xydata())[0] for disc in drawn["robots"][::2]]
    (star,) = ax.transData.transform(drawn["best"][0].get_xydata())
    radius = 0.5 * drawn["robots"][0].get_markersize() * ax.figure.dpi / 72
    assert min(np.hypot(*(disc - star)) for disc in discs) > 2 * radius
    bars = [bar.get_window_extent() for bar in drawn["batteries"][2::3]]
    for own, (disc, bar) in enumerate(zip(discs, bars, strict=True)):
        assert ax.bbox.y0 <= bar.y0
        assert bar.y1 <= ax.bbox.y1
        assert ax.bbox.x0 <= disc[0] - radius
        assert disc[0] + radius <= ax.bbox.x1
        assert abs(0.5 * (bar.x0 + bar.x1) - disc[0]) < 1e-6
        for other, hidden in enumerate(bars):
            nearest = np.clip(disc, hidden.min, hidden.max)
            assert np.hypot(*(nearest - disc)) > radius
            assert other == own or not hidden.overlaps(bar)


def test_a_single_robot_at_the_edge_is_neither_moved_nor_clipped(run):
    made = run()
    moving, lattice = moving_over(made.world, ["robot_0"])
    records = [RoundRecord(0, [Sample("robot_0", made.world.domain.low.tolist(), 1.0, battery=0.4)])]
    drawn = moving.show(records, [], lattice.image(np.zeros(lattice.shown.size)))
    disc, _ = drawn["robots"]
    assert disc.get_xydata().tolist() == [made.world.domain.low.tolist()]
    assert not any(artist.get_clip_on() for artist in (disc, *drawn["batteries"]))


def test_overlapping_marks_are_separated_by_least_squares_within_the_edges():
    """Compared with a general solver. A row wider than the available space begins at its left edge."""
    rng, weights, row = np.random.default_rng(0), np.array([1.0, 1.0, 20.0, 1.0, 3.0]), 10.0 * np.arange(5)
    for edges in ((-np.inf, np.inf), (3.0, np.inf), (-np.inf, 4.0), (-20.0, 22.0)):
        own = np.sort(rng.uniform(0.0, 9.0, 5))
        found = minimize(
            lambda x, own=own: float(weights @ (x - own) ** 2),
            own[0] + row,
            bounds=[(min(edges[0], own[0]), max(edges[1], own[-1]))] * 5,
            constraints=LinearConstraint(np.diff(np.eye(5), axis=0), 10.0),
            method="SLSQP",
        )
        assert found.success
        spots = np.column_stack([own, np.zeros(5)])
        aside = style.separating_shifts(spots, (10.0, 5.0), weights, edges)
        np.testing.assert_array_equal(aside[:, 1], 0.0)
        np.testing.assert_allclose(own + aside[:, 0], found.x, atol=1e-4)
        narrow = style.separating_shifts(spots, (10.0, 5.0), weights, (own[0], own[-1]))
        np.testing.assert_allclose(own + narrow[:, 0], own[0] + row)


def test_there_is_one_frame_per_round_all_differ_and_the_last_equals_its_rendering(run, tmp_path):
    made = run(rounds=2)
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


def test_a_robot_without_a_place_is_not_drawn(run):
    made = run(rounds=2)
    late = [msgspec.structs.replace(made.records[0], samples=made.records[0].samples[1:]), *made.records[1:]]
    first, second = render_frames(late, made.world, made.settings, [0, 1])
    assert (first != second).any()


@pytest.mark.slow
def test_a_long_run_skips_rounds_but_keeps_the_last(run, tmp_path, monkeypatch):
    made = run(rounds=23, robots=4)
    usual = write_animation(made.records, made.world, made.settings, tmp_path / "usual.gif")
    assert usual.stat().st_size < 1_500_000
    monkeypatch.setattr("swarmbo.plotting.animation._MOST_FRAMES", 10)
    path = write_animation(made.records, made.world, made.settings, tmp_path / "run.gif")
    rendered = render_frames(made.records, made.world, made.settings, [len(made.records) - 1], stride=3)
    with Image.open(path) as picture:
        assert picture.n_frames == 9  # rounds 0, 3, ..., 21 and 23
        picture.seek(8)
        assert np.abs(np.asarray(picture.convert("RGB")).astype(int) - rendered[0]).mean() < 3.0


@pytest.mark.parametrize(("failing", "found"), [(2.0, set()), (0.0, {"best measurement", "recommendation"})])
def test_the_legend_lists_only_what_is_drawn(run, failing, found):
    made = run(rounds=1, failing=failing)
    labels = {mark.get_label() for mark in _legend_handles(made.records, made.world)}
    assert labels == found | {"robot and its path", "radio link"} | ({"failed"} if failing else set())


def test_a_changing_field_shows_no_best_measurement_of_earlier_rounds(run):
    made = run(rounds=1, failing=0.0)
    n, still = len(made.records), made.world
    known = {"maxima": np.full(n, still.maximum), "argmaxes": np.tile(still.argmax, (n, 1))}
    moves = replace(still, frames=np.tile(still.values, (n, 1)), **known)
    for world, is_shown in ((still, True), (moves, False)):
        moving, lattice = moving_over(world)
        drawn = moving.show(made.records, [], lattice.image(np.zeros(lattice.shown.size)))
        labels = [mark.get_label() for mark in _legend_handles(made.records, world)]
        assert (len(drawn["best"]) > 0, "best measurement" in labels) == (is_shown, is_shown)


def test_the_true_level_is_drawn_in_each_round_of_a_changing_field_and_has_a_legend_entry_only_then(run):
    made = run(rounds=1, failing=0.0)
    n, still = len(made.records), replace(made.world, goal="level", level=float(np.median(made.world.values)))
    frames = np.stack([still.values + 0.2 * number for number in range(n)])
    moves = replace(still, frames=frames, maxima=np.zeros(n), argmaxes=np.tile(still.argmax, (n, 1)))
    sparse = replace(still, points=still.points[::3], values=still.values[::3])  # they form no lattice
    shapes = []
    for world, count in ((still, 1), (moves, n), (sparse, 1)):
        lattice = lattice_over(world, 20)
        look = style.MEAN_COLOURS, Normalize(0, 1), "white"
        moving = MovingMap(Figure().subplots(), lattice, AGENTS, look, world, world.level)
        for last in range(1, count + 1):
            drawn = moving.show(made.records[:last], [], lattice.image(np.zeros(lattice.shown.size)))
            lines = [line for part in drawn.get("true level", []) for line in part.get_segments()]
            labels = [mark.get_label() for mark in _legend_handles(made.records, world)]
            assert (len(lines) > 0) == ("true level" in labels) == (world is not sparse)
            shapes.append(np.concatenate(lines).tolist() if lines else [])
    assert shapes[1] == shapes[0]
    assert shapes[1] != shapes[2]


@pytest.mark.parametrize(
    "options",
    [
        {"truth": "none", "rounds": 0, "robots": 1, "failing": 0.0},
        {"truth": "sites", "rounds": 1, "robots": 16},
    ],
)
def test_every_kind_of_run_can_be_animated(run, tmp_path, options):
    made = run(**options)
    with Image.open(write_animation(made.records, made.world, made.settings, tmp_path / "run.gif")) as picture:
        assert np.asarray(picture.convert("L")).std() > 5


def test_equal_runs_give_equal_bytes(run, tmp_path):
    made = run(rounds=1, failing=2.0)
    paths = [write_animation(made.records, made.world, made.settings, tmp_path / f"{i}.gif") for i in range(2)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_numbers_follow_the_order_of_the_world_not_of_the_records(run, monkeypatch):
    monkeypatch.setattr("swarmbo.plotting.animation._MOST_APART", 0)
    made = run()
    first = msgspec.structs.replace(made.records[0], samples=made.records[0].samples[::-1])
    world, layer = replace(made.world, agents=tuple(AGENTS)), _Layer("Mean", lattice_over(made.world, 20), [None])
    moving = _Scene([first], world, [layer, replace(layer, is_deviation=True)]).maps[0]
    drawn = moving.show([first], [], layer.picture(0))["robots"]
    spots = {
        number.get_text(): tuple(disc.get_xydata()[0]) for disc, number in zip(drawn[::2], drawn[1::2], strict=True)
    }
    assert spots == {str(AGENTS.index(sample.agent)): tuple(sample.location) for sample in first.samples}


@pytest.mark.parametrize("value", [5.0, 1e17])
def test_a_constant_field_has_the_scale_of_other_figures(run, value):
    lattice = lattice_over(run().world, 20)
    layer = _Layer("Mean", lattice, [None, np.full(lattice.shown.size, value)])
    norm, zero = _range([layer]), _range([_Layer("Std", lattice, [np.zeros(lattice.shown.size)], is_deviation=True)])
    assert (norm.vmin, norm.vmax) == (0.5 * value, 1.5 * value)
    assert (zero.vmin, zero.vmax) == (0.0, 1.0)


LONG = "milligrams of nitrate nitrogen per kilogram of dry soil"


@pytest.mark.parametrize("unit", ["", "m", "mg/(m² d)", "µmol photons/(m² s)", LONG])
def test_titles_are_legible_and_end_before_the_labels_of_colour_bars(run, unit):
    made, lattice = run(truth="none"), lattice_over(run().world, 20)
    layers = [_Layer("Mean", lattice, [None]), _Layer("Std. deviation", lattice, [None], is_deviation=True)]
    with style.applied():
        figure = _Scene(made.records, replace(made.world, unit=unit), layers).figure
    titles = [ax._left_title for ax in figure.axes[:3]]
    boxes = [title.get_window_extent() for title in titles]
    bars = [ax.get_window_extent().x1 for ax in figure.axes[3:5]]
    for title, box, end in zip(titles, boxes, [*bars, figure.bbox.x1], strict=True):
        assert box.x1 < end
        assert title.get_fontsize() >= 7.0
    names = ["Mean", "Std. deviation", "Best measurement"]
    for title, name in zip(titles, names, strict=True):
        assert title.get_text().startswith(f"{name} ({unit[:4]}" if unit else name)
        assert title.get_fontsize() == 7.0 or title.get_text().endswith(f"({unit})" if unit else name)
    assert unit != LONG or titles[2].get_text().endswith("…)")
