"""Figures of each agent's own belief: maps, and errors over rounds and bytes."""

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from swarmbo.belief import Views
from swarmbo.boundary.coordinates import Coordinates
from swarmbo.plotting import World
from swarmbo.plotting.agent_maps import NO_VIEWS, agent_maps_figure, plot_view_errors
from swarmbo.plotting.history import agents_of
from swarmbo.plotting.run_figures import ErrorTraces, error_traffic_figure, plot_errors
from swarmbo.records import Traffic
from swarmbo.spaces import Domain

from .conftest import axes, belief_by, map_error


def neighbours_views(made):
    """Views in which each agent has its own data and that of the next agent."""
    agents = agents_of(made.records)
    pairs = zip(agents, [*agents[1:], agents[0]], strict=True)
    return Views({a: belief_by(made, {a, b}) for a, b in pairs}, agents[0])


def headline_of(figure):
    return figure.subfigs[0].texts[0].get_text().replace("\n", " ")


def titles_of(figure):
    return {ax.get_title(loc="left") for ax in figure.axes} - {""}


def errors_in(figure):
    """Errors in the titles of the maps, and in the panel below by label."""
    by_map = {" ".join(t.split("\n")[:2]): float(t.split("RMSE ")[1]) for t in titles_of(figure) if "RMSE " in t}
    (panel,) = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("Map error of every")]
    return by_map, {line.get_label(): line.get_ydata() for line in panel.lines}


def test_each_agent_has_a_map_of_its_own_data_and_of_its_fused_belief_on_a_common_scale(run):
    made = run(rounds=2)
    agents, views = agents_of(made.records), neighbours_views(made)
    figure = agent_maps_figure(made.records, made.world, made.settings, views)
    by_map, by_agent = errors_in(figure)
    own = {agent: map_error(belief_by(made, {agent}), made.world) for agent in agents}
    fused = {agent: map_error(views.by_agent[agent], made.world) for agent in agents}
    pooled = map_error(belief_by(made, set(agents)), made.world)
    wanted = {"all data pooled": pooled}
    wanted |= {f"{a} own data": e for a, e in own.items()} | {f"{a} fused": e for a, e in fused.items()}
    assert by_map == pytest.approx(wanted, rel=6e-3)
    np.testing.assert_allclose(by_agent["own data alone"], list(own.values()))
    np.testing.assert_allclose(by_agent["fused"], list(fused.values()))
    np.testing.assert_allclose(by_agent["all data pooled"], pooled)
    ((low, high),) = {(image.norm.vmin, image.norm.vmax) for ax in figure.axes for image in ax.images}
    assert low <= made.world.values.min()
    assert high >= made.world.values.max()


def test_without_views_the_figure_says_so(run):
    made = run(rounds=2)
    figure = agent_maps_figure(made.records, made.world, made.settings, None)
    assert headline_of(figure).endswith(NO_VIEWS)
    by_map, by_agent = errors_in(figure)
    assert all(name.endswith(("own data", "pooled")) for name in by_map)
    assert "fused" not in by_agent


@pytest.mark.parametrize("agents", [("a", "b"), ()])
def test_before_the_first_measurement_the_maps_of_all_agents_say_so(run, agents):
    made = run(rounds=0)
    world, nothing = replace(made.world, agents=agents), msgspec.structs.replace(made.records[0], samples=[])
    figure = agent_maps_figure([nothing], world, made.settings, None)
    assert {title.split("\n")[0] for title in titles_of(figure)} >= {*agents, "all data", "truth"}
    assert sum("no measurement" in text.get_text() for ax in figure.axes for text in ax.texts) == len(agents) + 1
    figure.canvas.draw()


def test_with_many_agents_four_have_maps_and_all_have_errors(run):
    made = run(robots=9, rounds=2)
    figure = agent_maps_figure(made.records, made.world, made.settings, neighbours_views(made))
    by_map, by_agent = errors_in(figure)
    agents = agents_of(made.records)
    assert len(by_map) == 9
    assert {f"{agents[0]} fused", f"{agents[-1]} own data"} <= set(by_map)
    assert len(by_agent["fused"]) == len(by_agent["own data alone"]) == 9
    assert "maps of 4 of 9 robots" in headline_of(figure)


def test_an_agent_without_measurements_has_a_note_and_no_error(run):
    made = run(rounds=2)
    failing, records = agents_of(made.records)[1], []
    for record in made.records:
        samples = [msgspec.structs.replace(s, measurement=None) if s.agent == failing else s for s in record.samples]
        records.append(msgspec.structs.replace(record, samples=samples))
    figure = agent_maps_figure(records, made.world, made.settings, None)
    assert "no measurement" in [text.get_text() for ax in figure.axes for text in ax.texts]
    assert np.isnan(errors_in(figure)[1]["own data alone"]).tolist() == [False, True, False, False]


def test_without_a_ground_truth_there_are_maps_and_no_errors(run):
    made = run(rounds=2)
    world = World(made.world.domain)
    figure = agent_maps_figure(made.records, world, made.settings, neighbours_views(made))
    titles = titles_of(figure)
    assert len(titles) == 9
    assert not any("RMSE" in title or "error" in title for title in titles)


@pytest.mark.parametrize("robots", [1, pytest.param(2, marks=pytest.mark.slow), 9])
def test_the_figure_fits_a_page_and_its_texts_do_not_overlap(run, robots):
    made = run(robots=robots, rounds=2)
    figure = agent_maps_figure(made.records, made.world, made.settings, neighbours_views(made))
    assert figure.get_figwidth() < 7.5  # inches: A4 without margins
    figure.canvas.draw()
    drawn = figure.canvas.get_renderer()
    titles = [ax._left_title.get_window_extent(drawn) for ax in figure.axes if ax.get_title(loc="left")]
    titles += [text.get_window_extent(drawn) for text in figure.subfigs[0].texts]
    assert not [pair for pair in itertools.combinations(titles, 2) if pair[0].overlaps(pair[1])]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in titles)


@pytest.mark.parametrize("has_views", [True, False])
def test_the_figure_of_a_tall_map_fits_a_page_too(run, has_views):
    made = run(robots=1, rounds=0, failing=0.0)
    points = made.world.points * np.array([1e-3, 10.0])
    world = replace(made.world, domain=Domain(np.zeros(2), np.array([1.0, 8000.0])), points=points)
    figure = agent_maps_figure(made.records, world, made.settings, neighbours_views(made) if has_views else None)
    assert figure.get_figheight() < (11.0 if has_views else 7.0)


def test_errors_are_drawn_above_their_agents():
    ax = plot_view_errors(axes(), {"b": 2.0, "a": None}, {"a": 0.5, "b": 1.0}, None, "m")
    np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], [[2.0, np.nan], [1.0, 0.5]])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["b", "a"]


def with_views(made, errors):
    """The records with given errors of views and known traffic."""
    return [
        msgspec.structs.replace(
            record,
            sharing=Traffic(1, 1000 * (n + 1), 1),
            score=msgspec.structs.replace(record.score, view_rmse=dict(enumerate(row)) if row else None),
        )
        for n, (record, row) in enumerate(zip(made.records, errors, strict=True))
    ]


def test_traces_have_the_logged_errors_and_recompute_the_others(run):
    made = run(rounds=2, failing=0.0)
    records = with_views(made, [[3.0, 5.0, 10.0], [1.0, 1.0, 4.0], None])
    records[2] = msgspec.structs.replace(records[2], score=None)
    traces = ErrorTraces.of(records, made.world, made.settings)
    agents = agents_of(records)
    np.testing.assert_array_equal(traces.rounds, [0, 1, 2])
    np.testing.assert_array_equal(traces.shared_kb, [1.0, 3.0, 6.0])
    np.testing.assert_allclose(traces.fused[:, :2], [[3.0, 1.0], [6.0, 2.0], [10.0, 4.0]])
    assert np.isnan(traces.fused[:, 2]).all()
    for n in range(3):
        alone = [map_error(belief_by(made, {agent}, n + 1), made.world) for agent in agents]
        assert traces.alone[n] == pytest.approx(np.mean(alone))
        assert traces.pooled[n] == pytest.approx(map_error(belief_by(made, set(agents), n + 1), made.world))


def test_traces_of_an_older_log_have_the_one_error_that_it_states(run):
    made = run(rounds=2, failing=0.0)
    records = [
        msgspec.structs.replace(record, score=msgspec.structs.replace(record.score, map_rmse=error))
        for record, error in zip(with_views(made, [None, [1.0, 3.0], None]), [5.0, 9.0, None], strict=True)
    ]
    traces = ErrorTraces.of(records, made.world, made.settings)
    np.testing.assert_array_equal(traces.fused, [[5.0, 1.0, np.nan], [5.0, 2.0, np.nan], [5.0, 3.0, np.nan]])


def test_errors_are_drawn_against_rounds_and_against_bytes_that_shared_measurements(run):
    made = run(rounds=2, failing=0.0)
    records = with_views(made, [[3.0, 5.0], [1.0, 2.0], [0.5, 0.7]])
    figure = error_traffic_figure(records, made.world, made.settings)
    for ax, at in zip(figure.axes, ([0, 1, 2], [1.0, 3.0, 6.0]), strict=True):
        lines = {line.get_label(): line for line in ax.lines}
        np.testing.assert_allclose(lines["fused, mean over agents"].get_ydata(), [4.0, 1.5, 0.6])
        for line in lines.values():
            np.testing.assert_array_equal(line.get_xdata(), at)
        (band,) = ax.collections
        heights = band.get_paths()[0].vertices
        for x, low, high in zip(at, [3.0, 1.0, 0.5], [5.0, 2.0, 0.7], strict=True):
            there = heights[heights[:, 0] == x, 1]
            assert (there.min(), there.max()) == (low, high)


def test_rounds_without_a_score_leave_a_gap(run):
    made = run(rounds=1, failing=0.0)
    first, second = with_views(made, [[1.0, 2.0], [1.0, 2.0]])
    traces = ErrorTraces.of([msgspec.structs.replace(first, score=None), second], made.world, made.settings)
    assert np.isnan(traces.fused[:, 0]).all()
    assert traces.fused[1, 1] == 1.5


def test_in_a_long_run_beliefs_are_recomputed_for_some_rounds_and_the_last(run, monkeypatch):
    made = run(rounds=6, failing=0.0)
    monkeypatch.setattr("swarmbo.plotting.run_figures.MOST_REBUILT", 3)
    traces = ErrorTraces.of(with_views(made, 7 * [[1.0, 2.0]]), made.world, made.settings)
    for trace in (traces.pooled, traces.alone):
        assert np.isfinite(trace).tolist() == [True, False, False, True, False, False, True]
    assert np.isfinite(traces.fused).all()
    ax = plot_errors(axes(), traces, traces.rounds)
    (pooled,) = [line for line in ax.lines if line.get_label() == "all data pooled"]
    np.testing.assert_array_equal(pooled.get_xdata(), [0, 3, 6])


def test_equal_agents_have_no_band_and_a_label_says_so(run):
    made = run(rounds=1, failing=0.0)
    for errors, is_alike in (([[3.0, 3.0], [1.0, 1.0 + 1e-9]], True), ([[3.0, 3.0], [1.0, 1.1]], False)):
        ax = error_traffic_figure(with_views(made, errors), made.world, made.settings).axes[0]
        labels = {line.get_label() for line in ax.lines}
        assert ("fused, all agents alike" in labels) == is_alike == (not ax.collections)


def test_maps_of_agents_have_the_degrees_of_the_input_and_no_go_regions(run):
    made = run(rounds=1)
    where = Coordinates.about([[7.6, 51.95], [7.615, 51.958]])
    ring = np.array([[100.0, 100.0], [300.0, 100.0], [300.0, 300.0]])
    world = replace(made.world, coordinates=where, no_go=[[ring]])
    figure = agent_maps_figure(made.records, world, made.settings, neighbours_views(made))
    figure.canvas.draw()
    drawn = [ax for ax in figure.axes if ax.get_xlabel() == "lon (degrees)"]
    assert len(drawn) == 5
    for ax in drawn:
        assert len(ax.patches) == 1
        for place, label in zip(ax.get_xticks(), ax.get_xticklabels(), strict=True):
            assert float(label.get_text()) == pytest.approx(where.own(np.array([[place, 400.0]]))[0, 0], abs=1e-6)


def test_all_errors_lie_within_the_axis_and_long_names_do_not_overlap(run):
    ax = plot_view_errors(axes(), {"a": 0.85, "b": 0.966}, {"a": 0.77, "b": 0.77}, 0.77)
    assert 0.99 < ax.get_ylim()[1] < 1.2
    made = run(rounds=1)
    names = {f"robot_{n}": f"autonomous_surface_vehicle_{n}_of_the_north_sea" for n in range(4)}
    records = []
    for record in made.records:
        samples = [msgspec.structs.replace(s, agent=names[s.agent]) for s in record.samples]
        records.append(msgspec.structs.replace(record, samples=samples))
    figure = agent_maps_figure(records, made.world, made.settings, None)
    figure.canvas.draw()
    (panel,) = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("Map error")]
    texts = [ax._left_title for ax in figure.axes if ax.get_title(loc="left")] + panel.get_xticklabels()
    drawn = [text.get_window_extent() for text in texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(drawn, 2))
    assert panel.bbox.height > 0.8 * figure.dpi
