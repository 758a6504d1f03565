import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from swarmbo.errors import ShapeError
from swarmbo.plotting import Difference, RegretCurves, comparison_figure, save
from swarmbo.plotting.comparison import bootstrap_band, plot_differences, plot_regret_curves

MEASUREMENTS = np.arange(4, 44, 4)


def curves(problem: str = "hills", method: str = "team", scale: float = 1.0, seeds: int = 12) -> RegretCurves:
    rng = np.random.default_rng(len(method))
    regrets = scale * rng.uniform(1.0, 3.0, (seeds, 10)) * np.exp(-0.05 * MEASUREMENTS)
    return RegretCurves(problem, method, MEASUREMENTS, regrets, "m")


def test_lines_are_means_over_seeds_with_their_band():
    ax = Figure().subplots()
    curve = curves()
    assert plot_regret_curves(ax, [curve], ["team"]) is ax
    (line,) = ax.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), MEASUREMENTS)
    np.testing.assert_array_equal(line.get_ydata(), curve.regrets.mean(axis=0))
    low, high = bootstrap_band(curve.regrets)
    outline = ax.collections[0].get_paths()[0].vertices
    assert outline[:, 1].min() == low.min()
    assert outline[:, 1].max() == high.max()


def test_band_agrees_with_scipys_percentile_bootstrap():
    sample = np.random.default_rng(3).gamma(2.0, size=40)
    theirs = stats.bootstrap((sample,), np.mean, method="percentile", rng=np.random.default_rng(0)).confidence_interval
    low, high = bootstrap_band(sample[:, None], resamples=20_000)
    np.testing.assert_allclose([low[0], high[0]], [theirs.low, theirs.high], rtol=0.02)
    np.testing.assert_allclose(bootstrap_band(np.array([[3.0, 1.0]])), [[3.0, 1.0]] * 2)  # one seed has no width


def test_differences_stand_in_rows_with_their_intervals():
    ax = Figure().subplots()
    rows = [Difference("hills", "greedy", 1.0, -1.0, 3.0, "m"), Difference("hills", "random", 5.0, None, None, "m")]
    plot_differences(ax, rows, ["team", "greedy", "random"])
    _, interval, point, alone = ax.get_lines()
    np.testing.assert_array_equal(interval.get_xydata(), [[-1.0, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal([*point.get_xydata(), *alone.get_xydata()], [[1.0, 0.0], [5.0, 1.0]])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["greedy", "random"]
    ax = plot_differences(Figure().subplots(), rows[1:], ["team", "greedy", "random"])  # each keeps its row
    np.testing.assert_array_equal(ax.get_lines()[1].get_xydata(), [[5.0, 1.0]])


def test_one_column_per_problem_and_one_colour_per_method(tmp_path):
    many = [curves(place, method) for place in ("hills", "soil") for method in ("team", "greedy", "random")]
    rows = [Difference(c.problem, c.method, 1.0, 0.5, 2.0, "m") for c in many if c.method != "team"]
    figure = comparison_figure(many, rows, "team")
    tops = figure.axes[:2]
    assert [ax.get_title(loc="left") for ax in tops] == ["hills", "soil"]
    for index in range(3):
        assert tops[0].get_lines()[index].get_color() == tops[1].get_lines()[index].get_color()
    assert save(comparison_figure(many, rows, "team"), tmp_path / "new" / "c.png").stat().st_size > 20_000


def test_cumulated_regret_has_a_row_of_its_own_where_it_is_known():
    many = [curves(place, method) for place in ("hills", "soil") for method in ("team", "greedy")]
    ends = [Difference(place, "greedy", 1.0, 0.5, 2.0, "m") for place in ("hills", "soil")]
    summed = [Difference("hills", "greedy", -7.0, -9.0, -5.0, "m", "mean regret")]
    figure = comparison_figure(many, ends, "team", summed)
    assert [ax.get_visible() for ax in figure.axes] == [True] * 5 + [False]  # soil is mapped: there is no peak to miss
    bottom = figure.axes[4]
    assert bottom.get_xlabel() == "difference of mean regret (m)"
    np.testing.assert_array_equal(bottom.get_lines()[2].get_xydata(), [[-7.0, 0.0]])


def test_regret_of_zero_needs_no_logarithm():
    found = RegretCurves("hills", "team", np.array([4, 8]), np.array([[100.0, 0.0]]))
    assert plot_regret_curves(Figure().subplots(), [found], ["team"]).get_yscale() == "linear"


def test_curves_of_the_wrong_shape_are_refused():
    with pytest.raises(ShapeError, match=r"got regrets of shape \(3,\)"):
        RegretCurves("hills", "team", np.arange(3), np.arange(3.0))
    with pytest.raises(ShapeError, match="no regret curves"):
        comparison_figure([], [], "team")
