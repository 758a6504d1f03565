import itertools

import msgspec
import numpy as np
import pytest
from matplotlib.figure import Figure

from swarmbo.belief import ExactGP, Hyperparameters, Views
from swarmbo.plotting import AgentViews, World, write_figures
from swarmbo.plotting.agent_maps import NO_VIEWS, agent_maps_figure, plot_view_errors
from swarmbo.plotting.history import agents_of


def exact(made, agents, last=-1):
    """The belief by the data of some agents up to a record, made from scratch."""
    records = made.records[: len(made.records) + 1 + last]
    own = [s for r in records for s in r.samples if s.agent in agents and s.measurement is not None]
    learned = msgspec.convert(records[-1].hyperparameters, Hyperparameters)
    X, y = np.array([s.location for s in own]), np.array([s.measurement for s in own])
    return ExactGP.from_hyperparameters(made.settings, made.world.domain, learned, X, y)


def error(belief, world):
    return np.sqrt(np.mean((belief.posterior(world.points)[0] - world.values) ** 2))


def neighbours_views(made, number, last=-1):
    """Every agent believes by its own data and those of the next one."""
    agents = agents_of(made.records)
    pairs = zip(agents, [*agents[1:], agents[0]], strict=True)
    return AgentViews(number, Views({a: exact(made, {a, b}, last) for a, b in pairs}, agents[0]))


def headline_of(figure):
    return figure.subfigs[0].texts[0].get_text().replace("\n", " ")


def titles_of(figure):
    return {ax.get_title(loc="left") for ax in figure.axes} - {""}


def errors_in(figure):
    """Errors by title of the maps, and by label of the panel below."""
    by_map = {" ".join(t.split("\n")[:2]): float(t.split("RMSE ")[1]) for t in titles_of(figure) if "RMSE " in t}
    (panel,) = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("Map error of every")]
    return by_map, {line.get_label(): line.get_ydata() for line in panel.lines}


def test_agents_have_a_map_of_their_own_data_and_one_of_what_they_believe_in_one_scale(run):
    made = run(rounds=2)
    agents, views = agents_of(made.records), neighbours_views(made, 2)
    figure = agent_maps_figure(made.records, made.world, made.settings, views)
    by_map, by_agent = errors_in(figure)
    own = {agent: error(exact(made, {agent}), made.world) for agent in agents}
    fused = {agent: error(views.views.by_agent[agent], made.world) for agent in agents}
    pooled = error(exact(made, set(agents)), made.world)
    wanted = {"all data pooled": pooled}
    wanted |= {f"{a} own data": e for a, e in own.items()} | {f"{a} fused": e for a, e in fused.items()}
    assert by_map == pytest.approx(wanted, rel=6e-3)
    np.testing.assert_allclose(by_agent["own data alone"], list(own.values()))
    np.testing.assert_allclose(by_agent["fused"], list(fused.values()))
    np.testing.assert_allclose(by_agent["all data pooled"], pooled)
    ((low, high),) = {(image.norm.vmin, image.norm.vmax) for ax in figure.axes for image in ax.images}
    assert low <= made.world.values.min()
    assert high >= made.world.values.max()


def test_views_of_an_earlier_round_are_drawn_beside_the_data_of_that_round(run):
    made = run(rounds=4)
    views = neighbours_views(made, 2, last=-3)
    figure = agent_maps_figure(made.records, made.world, made.settings, views)
    by_map, _ = errors_in(figure)
    agents = agents_of(made.records)
    pooled, fused = (error(exact(made, some, -3), made.world) for some in (set(agents), set(agents[1:3])))
    assert by_map["all data pooled"] == pytest.approx(pooled, rel=6e-3)
    assert by_map[f"{agents[1]} fused"] == pytest.approx(fused, rel=6e-3)
    assert "round 2, the last that can be rebuilt (the log goes to 4)" in headline_of(figure)


def test_without_views_the_figure_says_so(run):
    made = run(rounds=2)
    figure = agent_maps_figure(made.records, made.world, made.settings, None)
    assert [text.get_text() for ax in figure.axes for text in ax.texts] == [NO_VIEWS]
    by_map, by_agent = errors_in(figure)
    assert all(name.endswith(("own data", "pooled")) for name in by_map)
    assert "fused" not in by_agent


def test_of_many_agents_four_have_maps_and_all_have_errors(run):
    made = run(robots=9, rounds=2)
    figure = agent_maps_figure(made.records, made.world, made.settings, neighbours_views(made, 2))
    by_map, by_agent = errors_in(figure)
    agents = agents_of(made.records)
    assert len(by_map) == 9
    assert {f"{agents[0]} fused", f"{agents[-1]} own data"} <= set(by_map)
    assert len(by_agent["fused"]) == len(by_agent["own data alone"]) == 9
    assert "maps of 4 of 9 robots" in headline_of(figure)


def test_an_agent_without_readings_has_a_note_and_no_error_of_its_own(run):
    made = run(rounds=2)
    mute, records = agents_of(made.records)[1], []
    for record in made.records:
        samples = [msgspec.structs.replace(s, measurement=None) if s.agent == mute else s for s in record.samples]
        records.append(msgspec.structs.replace(record, samples=samples))
    figure = agent_maps_figure(records, made.world, made.settings, None)
    assert "no measurement" in [text.get_text() for ax in figure.axes for text in ax.texts]
    assert np.isnan(errors_in(figure)[1]["own data alone"]).tolist() == [False, True, False, False]


def test_without_truth_there_are_maps_and_no_errors(run):
    made = run(rounds=2)
    world = World(made.world.domain)
    figure = agent_maps_figure(made.records, world, made.settings, neighbours_views(made, 2))
    titles = titles_of(figure)
    assert len(titles) == 9
    assert not any("RMSE" in title or "error" in title for title in titles)


@pytest.mark.parametrize("robots", [1, 2, 9])
def test_the_figure_is_as_wide_as_a_column_and_nothing_lies_over_anything_else(run, robots):
    made = run(robots=robots, rounds=2)
    figure = agent_maps_figure(made.records, made.world, made.settings, neighbours_views(made, 1))
    assert figure.get_figwidth() < 7.5  # inches: A4 less its margins
    figure.canvas.draw()
    drawn = figure.canvas.get_renderer()
    titles = [ax._left_title.get_window_extent(drawn) for ax in figure.axes if ax.get_title(loc="left")]
    titles += [text.get_window_extent(drawn) for text in figure.subfigs[0].texts]
    assert not [pair for pair in itertools.combinations(titles, 2) if pair[0].overlaps(pair[1])]
    assert all(box.x0 >= 0 and box.x1 <= figure.bbox.width for box in titles)


@pytest.mark.thorough
def test_a_fused_run_has_maps_of_its_agents(run, tmp_path):
    made = run(rounds=2)
    views = neighbours_views(made, 2)
    files = write_figures(made.records, made.world, made.settings, tmp_path, fused=True, views=views)
    assert {"agents.png", "belief.png", "error_traffic.png", "run.gif"} <= {path.name for path in files}


def test_errors_stand_over_their_agents():
    ax = plot_view_errors(Figure().subplots(), {"b": 2.0, "a": None}, {"a": 0.5, "b": 1.0}, None, "m")
    np.testing.assert_array_equal([line.get_ydata() for line in ax.lines], [[2.0, np.nan], [1.0, 0.5]])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["b", "a"]
