import numpy as np
import pytest
from matplotlib.figure import Figure

from swarmbo.plotting.history import World
from swarmbo.plotting.variables import plot_found, plot_variables, variables_figure
from swarmbo.records import Evaluation, Recommendation, RoundRecord
from swarmbo.spaces import Domain

LOW, HIGH = np.array([0.0, -10.0, 5.0]), np.array([1.0, 10.0, 6.0])
WORLD = World(Domain(LOW, HIGH), name="f", maximum=0.0, argmax=np.array([0.5, 0.0, 5.5]), variables=("p", "q", "r"))
POINTS = [[0.0, -10.0, 5.0], [1.0, 0.0, 5.25], [0.25, 10.0, 6.0]]


def records_of(points, outcomes):
    best = Recommendation(points[1], 1.0, 0.1)
    made = [RoundRecord(0, [])]
    for number, (point, outcome) in enumerate(zip(points, outcomes, strict=True), 1):
        made.append(RoundRecord(number, [], joint=Evaluation(point, outcome), best=best, recommendation=best))
    return made


def test_each_column_is_a_rounds_point_as_shares_of_the_ranges_with_a_cross_above_what_failed():
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
def test_what_was_found_stands_beside_the_maximum_where_that_is_known(knows_the_truth):
    world = WORLD if knows_the_truth else World(WORLD.domain, variables=WORLD.variables)
    ax = plot_found(Figure().subplots(), records_of(POINTS, [1.0, 1.0, 2.0]), world)
    names = [text.get_text() for text in ax.get_xticklabels()]
    assert names == ["best", "recommended", *(["true maximum"] if knows_the_truth else [])]
    np.testing.assert_allclose(ax.images[0].get_array()[:, 0], (np.array(POINTS[1]) - LOW) / (HIGH - LOW))
    if knows_the_truth:
        np.testing.assert_allclose(ax.images[0].get_array()[:, 2], 0.5)


def test_a_run_that_evaluated_nothing_says_so():
    figure = variables_figure([RoundRecord(0, [])], WORLD)
    assert "nothing was evaluated yet" in [text.get_text() for ax in figure.axes for text in ax.texts]


def test_many_variables_name_every_few_rows():
    n = 100
    world = World(Domain(np.zeros(n), np.ones(n)), variables=tuple(f"x{i}" for i in range(n)))
    ax = plot_variables(Figure().subplots(), records_of(np.full((3, n), 0.5).tolist(), [1.0] * 3), world)
    assert [text.get_text() for text in ax.get_yticklabels()][:3] == ["x0", "x3", "x6"]
