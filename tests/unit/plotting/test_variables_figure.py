"""Figures of joint points, of best values, and of factor graphs."""

import itertools

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from swarmbo.graph import FactorGraph
from swarmbo.plotting import plot_factor_graph, style
from swarmbo.plotting.history import World
from swarmbo.plotting.variables import factor_graph_figure, plot_found, plot_variables, variables_figure
from swarmbo.records import Evaluation, Recommendation, RoundRecord
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import Categorical

LOW, HIGH = np.array([0.0, -10.0, 5.0]), np.array([1.0, 10.0, 6.0])
WORLD = World(Domain(LOW, HIGH), name="f", maximum=0.0, argmax=np.array([0.5, 0.0, 5.5]), variables=("p", "q", "r"))
POINTS = [[0.0, -10.0, 5.0], [1.0, 0.0, 5.25], [0.25, 10.0, 6.0]]


def records_of(points, outcomes):
    best = Recommendation(points[1], 1.0, 0.1)
    made = [RoundRecord(0, [])]
    for number, (point, outcome) in enumerate(zip(points, outcomes, strict=True), 1):
        made.append(RoundRecord(number, [], joint=Evaluation(point, outcome), best=best, recommendation=best))
    return made


def test_each_column_shows_a_rounds_point_scaled_to_the_ranges_with_a_cross_for_failures():
    ax = plot_variables(Figure().subplots(), records_of(POINTS, [1.0, None, 2.0]), WORLD)
    (image,) = ax.images
    expected = (np.array(POINTS) - LOW) / (HIGH - LOW)
    np.testing.assert_allclose(image.get_array(), expected.T)
    assert image.get_clim() == (0.0, 1.0)
    left, right, bottom, top = image.get_extent()
    assert (left, right) == (0.5, 3.5)
    assert (image.origin, top < bottom) == ("upper", True)
    labels = dict(zip(ax.get_yticks(), [text.get_text() for text in ax.get_yticklabels()], strict=True))
    assert labels == {0: "p", 1: "q", 2: "r"}
    (crosses,) = [line for line in ax.lines if line.get_label() == "failed"]
    assert crosses.get_xdata().tolist() == [2]
    assert not plot_variables(Figure().subplots(), records_of(POINTS, [1.0, 3.0, 2.0]), WORLD).lines


@pytest.mark.parametrize("knows_the_truth", [True, False])
def test_the_best_point_is_drawn_beside_the_maximum_if_that_is_known(knows_the_truth):
    world = WORLD if knows_the_truth else World(WORLD.domain, variables=WORLD.variables)
    ax = plot_found(Figure().subplots(), records_of(POINTS, [1.0, 1.0, 2.0]), world)
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert names == ["best", "recommended", *(["true maximum"] if knows_the_truth else [])]
    np.testing.assert_allclose(ax.images[0].get_array()[:, 0], (np.array(POINTS[1]) - LOW) / (HIGH - LOW))
    if knows_the_truth:
        np.testing.assert_allclose(ax.images[0].get_array()[:, 2], 0.5)


def test_without_evaluations_the_figure_says_so():
    figure = variables_figure([RoundRecord(0, [])], WORLD)
    assert "nothing was evaluated yet" in [text.get_text() for ax in figure.axes for text in ax.texts]


def test_with_many_variables_only_some_rows_have_names():
    n = 100
    world = World(Domain(np.zeros(n), np.ones(n)), variables=tuple(f"x{i}" for i in range(n)))
    ax = plot_variables(Figure().subplots(), records_of(np.full((3, n), 0.5).tolist(), [1.0] * 3), world)
    assert [text.get_text() for text in ax.get_yticklabels()][:3] == ["x0", "x3", "x6"]


def test_long_names_of_variables_leave_room_for_the_picture():
    world = World(Domain(np.zeros(2), np.ones(2)), variables=("x" * 200, "y"))
    figure = variables_figure(records_of(np.full((3, 2), 0.5).tolist(), [1.0] * 3), world)
    figure.canvas.draw()
    assert figure.axes[0].bbox.width > 0.5 * figure.bbox.width


def test_long_names_of_neighbours_do_not_overlap():
    ax = plot_factor_graph(Figure().subplots(), FactorGraph.from_scopes({"f" * 30: ["x" * 30]}))
    ax.figure.canvas.draw()
    one, other = (text.get_window_extent() for text in ax.texts)
    assert not one.overlaps(other)


@pytest.fixture
def graph() -> FactorGraph:
    return FactorGraph.from_scopes(
        {"f1": ["x1", "x3"], "f2": ["x2"], "f3": ["x3", "x4"]},
        owners={"f1": "a", "f2": "b", "f3": "a"},
        variable_owners={"x1": "a", "x3": "a", "x2": "b", "x4": "b"},
    )


def drawn(graph):
    ax = plot_factor_graph(Figure().subplots(), graph)
    edges = next(c for c in ax.collections if isinstance(c, LineCollection)).get_segments()
    return ax, {text.get_text(): np.array(text.xy) for text in ax.texts}, edges


def least_gap(places):
    nodes = np.array(list(places.values()))
    return (np.linalg.norm(nodes[:, None] - nodes[None], axis=2) + 9.0 * np.eye(len(nodes))).min()


def test_every_node_has_a_name_and_every_edge_joins_a_factor_to_its_variable(graph):
    _, places, edges = drawn(graph)
    assert set(places) == {"x1", "x2", "x3", "x4", "f1", "f2", "f3"}
    expected = [(places[f], places[v]) for f in graph.factors for v in graph.scope(f)]
    np.testing.assert_allclose(edges, expected)
    np.testing.assert_array_equal(drawn(graph)[2], edges)
    assert least_gap(places) > 0.3


def test_nodes_at_the_edge_are_not_clipped_and_lie_within_the_page():
    figure = factor_graph_figure(
        FactorGraph.from_scopes({"f": ["lamp_1", "heat", "fan"], "g": ["lamp_2", "fan", "heat"]})
    )
    figure.canvas.draw()
    ax = figure.axes[0]
    for nodes in [one for one in ax.collections if not isinstance(one, LineCollection)]:
        radius, centre = (
            np.sqrt(nodes.get_sizes()[0]) / 2 * figure.dpi / 72,
            ax.transData.transform(nodes.get_offsets())[0],
        )
        assert figure.bbox.padded(-radius).contains(*centre)
        assert ax.bbox.padded(-radius).contains(*centre) or not nodes.get_clip_on()


def test_colours_are_those_of_the_owners(graph):
    ax, places, _ = drawn(graph)
    nodes = [c for c in ax.collections if not isinstance(c, LineCollection)]
    at = {name: next(n for n in nodes if np.allclose(n.get_offsets()[0], place)) for name, place in places.items()}
    assert to_hex(at["f2"].get_facecolor()[0]) == style.agent_colour(1)
    assert to_hex(at["f3"].get_facecolor()[0]) == style.agent_colour(0)
    assert to_hex(at["x4"].get_edgecolor()[0]) == style.agent_colour(1)


def test_several_graphs_have_titles_and_each_agent_has_one_colour(graph, tmp_path):
    other = FactorGraph.from_scopes(
        {"g": ["x2", "x4"], "h": ["x1", "x3"]}, variable_owners=dict(zip(graph.variables, "aaba", strict=True))
    )
    figure = factor_graph_figure({"told": graph, "in use": other})
    assert style.save(figure, tmp_path / "graph.png").stat().st_size > 10_000
    assert graph.agents == ("a", "b")
    assert other.agents == ("b", "a")
    for ax in figure.axes:
        place = next(text.xy for text in ax.texts if text.get_text() == "x2")
        (node,) = [c for c in ax.collections if len(c.get_offsets()) == 1 and np.allclose(c.get_offsets()[0], place)]
        assert to_hex(node.get_edgecolor()[0]) == style.agent_colour(1)
    assert [ax.get_title(loc="left") or ax.get_title() for ax in figure.axes] == ["told", "in use"]
    assert [{text.get_text() for text in ax.texts} for ax in figure.axes] == [
        {*one.factors, *one.variables} for one in (graph, other)
    ]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["variable", "factor", "a", "b"]
    assert figure.get_figheight() > factor_graph_figure(graph).get_figheight() + 0.5


@pytest.mark.parametrize(("n", "named"), [(12, 12), (13, 0)])
def test_agents_are_in_the_legend_if_each_has_its_own_colour(n, named):
    scopes = {f"f_{i}": [f"x_{i}"] for i in range(n)}
    figure = factor_graph_figure(FactorGraph.from_scopes(scopes, {f"f_{i}": f"agent_{i}" for i in range(n)}))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["variable x_…", "factor f_…", *(f"agent_{i}" for i in range(named))]


def test_many_separate_parts_are_drawn_in_rows_that_fit_a_page():
    graph = FactorGraph.from_scopes({f"f{i}": [f"x{i}{j}" for j in range(5)] for i in range(20)})
    _, places, _ = drawn(graph)
    x, y = np.array(list(places.values())).T
    assert np.ptp(x) <= 14.0
    assert np.ptp(y) > 5.0
    assert least_gap(places) > 0.8  # in units of the edge length


def test_a_very_large_graph_is_drawn_as_histograms_of_degrees():
    graph = FactorGraph.from_scopes({f"f_{i}": [f"x_{i}", f"x_{i + 1}"] for i in range(100)})
    figure = factor_graph_figure(graph)
    of_factor, of_variable, _ = figure.axes
    assert [(bar.get_x() + 0.4, bar.get_height()) for bar in of_factor.patches] == [(2.0, 100.0)]
    assert [bar.get_height() for bar in of_variable.patches] == [2.0, 99.0]  # both ends, and all variables between
    assert "101 variables, 100 factors, 1 connected part" in of_factor.get_title(loc="left")


def test_no_node_at_the_edge_is_cut_off():
    figure = factor_graph_figure(FactorGraph.from_scopes({"f": [f"x{n}" for n in range(6)]}))
    style.name_figure(figure, "a title takes room")
    figure.canvas.draw()
    (ax,) = figure.axes
    for node in ax.collections[1:]:
        ((x, y),) = ax.transData.transform(node.get_offsets())
        radius = 0.5 * np.sqrt(node.get_sizes()[0]) * figure.dpi / 72
        assert ax.bbox.x0 <= x - radius < x + radius <= ax.bbox.x1
        assert ax.bbox.y0 <= y - radius < y + radius <= ax.bbox.y1


@pytest.mark.parametrize("choice", ["a rather long name of one wood", "w" * 9, "m" * 28])
@pytest.mark.parametrize("variables", [WORLD.variables, tuple(f"{name}{'v' * 27}" for name in WORLD.variables)])
def test_names_of_choices_do_not_overlap(choice, variables):
    kinds = tuple(Categorical([choice, "steel"]) for _ in variables)
    world = World(Domain(np.zeros(3), np.ones(3)), variables=variables, types=kinds, argmax=np.zeros(3))
    figure = variables_figure(records_of([[0.0, 0.0, 0.0]] * 3, [1.0, None, 2.0]), world)
    assert figure.axes[0].get_title(loc="left") == "Evaluated (×: failed)"
    figure.canvas.draw()
    drawn = [text.get_window_extent() for text in figure.axes[1].texts]
    assert len(drawn) == 9
    assert figure.axes[0].bbox.width > 0.35 * sum(ax.bbox.width for ax in figure.axes[:2])
    assert not any(one.overlaps(other) for one, other in itertools.combinations(drawn, 2))
