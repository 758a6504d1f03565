"""Regret and best values of one run, and of compared methods."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from swarmbo.errors import ShapeError
from swarmbo.plotting import Difference, RegretCurves, World, comparison_figure, save
from swarmbo.plotting.comparison import bootstrap_band, plot_differences, plot_regret_curves
from swarmbo.plotting.regret import plot_best, plot_level_score, plot_map_error, plot_regret, regret_figure
from swarmbo.records import Evaluation, Recommendation, RoundRecord, Score
from swarmbo.spaces import Domain

from .conftest import axes

LINE = Domain(np.zeros(1), np.ones(1))


def heights(ax: Axes, start: str) -> np.ndarray:
    (line,) = [line for line in ax.get_lines() if str(line.get_label()).startswith(start)]
    return np.asarray(line.get_ydata())


def test_curves_show_the_recorded_scores_with_gaps_for_missing_ones(run):
    records = run().records
    ax = plot_regret(axes(), records, "m")
    np.testing.assert_array_equal(heights(ax, "simple"), [r.score.simple_regret for r in records])
    np.testing.assert_array_equal(heights(ax, "batch"), [r.score.batch_regret for r in records])
    np.testing.assert_array_equal(heights(ax, "recommendation"), [r.score.recommendation_regret for r in records])
    assert ax.get_ylabel() == "regret (m)"
    ax = plot_map_error(axes(), records, "m")
    np.testing.assert_array_equal(heights(ax, "posterior"), [r.score.map_rmse for r in records])
    ax = plot_map_error(axes(), run(rounds=2, failing=2.0).records, "m")
    assert np.isnan(heights(ax, "posterior")).all()
    records = run(failing=0.0).records
    ax = plot_best(axes(), records, World(LINE, maximum=500.0))
    np.testing.assert_array_equal(heights(ax, "best"), [r.best.mean for r in records])
    np.testing.assert_array_equal(heights(ax, "measurements"), [s.measurement for r in records for s in r.samples])
    np.testing.assert_array_equal(heights(ax, "true maximum"), [500.0, 500.0])


def test_a_regret_of_zero_lies_inside_the_axes(run):
    records = run(zero_regret=True).records
    assert records[-1].score.simple_regret == 0.0
    ax = plot_regret(axes(), records)
    low, high = ax.get_ylim()
    assert ax.get_yscale() == "symlog"
    assert low < 0.0 < max(r.score.batch_regret for r in records) < high


@pytest.mark.parametrize(
    ("outcomes", "scale"), [([-900.0, -30.0, -2.0], "log"), ([-3.0, -2.5, -2.0], "linear"), ([0.0, 0.0], "linear")]
)
def test_the_scale_depends_on_the_range_and_joint_points_have_no_batch_regret(outcomes, scale):
    ax = plot_regret(axes(), joint_records(outcomes))
    assert [line.get_label() for line in ax.get_lines()][:2] == ["simple: best so far", "recommendation"]
    assert not [line for line in ax.get_lines() if str(line.get_label()).startswith("batch")]
    assert ax.get_yscale() == scale


@pytest.mark.parametrize(
    "options", [{}, {"rounds": 0, "robots": 1, "failing": 0.0}, {"rounds": 2, "failing": 2.0}, {"zero_regret": True}]
)
def test_legends_do_not_cover_data(run, options):
    made = run(**options)
    figure = regret_figure(made.records, made.world)
    figure.draw_without_rendering()
    for ax in figure.axes:
        legend = ax.get_legend()
        assert legend.get_window_extent().y0 >= ax.get_window_extent().y1 - 3


def test_titles_lie_just_above_the_legends(run):
    made = run()
    for goal, least in (("peak", 2), ("map", 1)):
        figure = regret_figure(made.records, replace(made.world, goal=goal))
        figure.draw_without_rendering()
        gaps = [ax._left_title.get_window_extent().y0 - ax.get_legend().get_window_extent().y1 for ax in figure.axes]
        assert sum(0.0 < gap < 20.0 for gap in gaps) == least, gaps


def joint_records(outcomes, best=None):
    found = [Recommendation([0.5], value, 0.0) for value in best or [0.0] * len(outcomes)]
    scores = [Score(abs(outcome), abs(outcome), abs(outcome), abs(outcome), None) for outcome in outcomes]
    return [
        RoundRecord(number, [], joint=Evaluation([0.5], outcome), best=one, recommendation=one, score=score)
        for number, (outcome, score, one) in enumerate(zip(outcomes, scores, found, strict=True), 1)
    ]


@pytest.mark.parametrize("worst", [3, 2])
def test_values_far_below_all_others_are_marked_at_the_edge(worst):
    outcomes = [*[-1e6, -2e6, -3e6][:worst], -3.0, -2.5, -2.0, -1.5, -1.0, -0.5, -0.4, -0.3]
    ax = plot_best(axes(), joint_records(outcomes), World(LINE, maximum=0.0))
    bottom, top = ax.get_ylim()
    assert -5.0 < bottom < -2.0
    assert 0.0 < top < 1.0
    (below,) = [line for line in ax.get_lines() if line.get_label() == "_below"]
    below_axis = [number for number, outcome in enumerate(outcomes, 1) if outcome < bottom]
    assert below.get_xdata().tolist() == below_axis
    assert below_axis[:worst] == list(range(1, worst + 1))
    assert "(▾ lower)" in str(ax.get_lines()[0].get_label())


@pytest.mark.parametrize(
    "outcomes", [[-9.0, -5.0, -4.0, -3.0, -2.0, -2.0, -1.0, -1.0, 0.0], [-1e6, -1.0, -1.0], [2.0] * 9]
)
def test_an_axis_that_can_show_all_values_is_not_cut(outcomes):
    ax = plot_best(axes(), joint_records(outcomes), World(LINE, maximum=3.0))
    bottom, top = ax.get_ylim()
    assert bottom < min(outcomes)
    assert top > 3.0
    assert not [line for line in ax.get_lines() if line.get_label() == "_below"]


@pytest.mark.parametrize(
    ("best", "scale"),
    [
        ([-1e5, -3e3, -40.0, -0.9], "symlog"),  # Powell
        ([-1e5, -3e3, -40.0, 0.7], "symlog"),  # the same with noise
        ([-1e5, -3e3, 0.0, 0.0], "symlog"),  # the maximum was found
        ([2037.0, 2640.0, 2809.3, 2809.4], "linear"),  # a WLAN, where zero has no special meaning
        ([0.05, 1.0, 3.1, 3.2], "linear"),  # Hartmann
        ([-0.001, 0.5, 1.8, 2.0], "linear"),  # starts near zero by chance
        ([0.0, 0.0], "linear"),
    ],
)
def test_best_values_that_approach_zero_over_orders_of_magnitude_have_a_logarithmic_scale(best, scale):
    ax = plot_best(axes(), joint_records(best, best), World(LINE, maximum=max(*best, 0.0)))
    assert ax.get_yscale() == scale
    low, high = ax.get_ylim()
    assert low < min(best) <= max(*best, 0.0) < high or scale == "linear"
    ax.figure.canvas.draw()


def test_a_wide_band_does_not_set_a_logarithmic_axis():
    best = [-1e-10, -1e-12, -1e-14, -2e-18]
    records = joint_records(best, best)
    first = msgspec.structs.replace(records[0].recommendation, std=1e-3)
    records[0] = msgspec.structs.replace(records[0], recommendation=first)
    figure = regret_figure(records, World(LINE))
    figure.canvas.draw()
    ax = figure.axes[0]
    assert ax.get_yscale() == "symlog"
    assert -1e-9 < ax.get_ylim()[0] < -1e-10
    assert 0.0 < ax.get_ylim()[1] < 1e-15


def panels_of(figure):
    return [ax.get_title(loc="left") for ax in figure.axes]


def test_only_known_quantities_have_a_panel_and_four_panels_have_two_rows(run):
    unknown, made = run(truth="none"), run()
    assert panels_of(regret_figure(unknown.records, unknown.world)) == ["Found"]
    silent = [msgspec.structs.replace(one, measurement=None, declined=True) for one in made.records[0].samples]
    declined = [msgspec.structs.replace(record, samples=silent) for record in made.records]
    figure = regret_figure(declined, made.world)
    assert panels_of(figure) == ["Found", "Regret", "Map error", "Participation"]
    assert figure.get_figwidth() < 10


def test_a_round_that_evaluates_the_recommendation_is_marked():
    rounds = [
        RoundRecord(n, [], joint=Evaluation([x], float(n)), recommendation=Recommendation([recommended], 0.0, 0.1))
        for n, x, recommended in ((1, 0.0, 0.5), (2, 0.2, 0.7), (3, 0.7, 0.7))
    ]
    ax = plot_best(axes(), rounds, World(LINE))
    (marked,) = [line for line in ax.get_lines() if line.get_label() == "recommendation evaluated"]
    assert marked.get_xydata().tolist() == [[3.0, 3.0]]


def test_the_axis_of_an_f1_score_is_its_whole_range(run):
    records = [msgspec.structs.replace(r, score=msgspec.structs.replace(r.score, level_f1=0.95)) for r in run().records]
    ax = plot_level_score(axes(), records)
    assert ax.get_ylim() == (0.0, 1.02)


MEASUREMENTS = np.arange(4, 44, 4)


def curves(problem: str = "hills", method: str = "team", scale: float = 1.0, seeds: int = 12) -> RegretCurves:
    rng = np.random.default_rng(len(method))
    regrets = scale * rng.uniform(1.0, 3.0, (seeds, 10)) * np.exp(-0.05 * MEASUREMENTS)
    return RegretCurves(problem, method, MEASUREMENTS, regrets, "m")


def test_lines_are_means_over_seeds_with_a_bootstrap_band():
    curve = curves()
    ax = plot_regret_curves(Figure().subplots(), [curve], ["team"])
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


def test_differences_are_drawn_in_rows_with_their_intervals():
    rows = [Difference("hills", "greedy", 1.0, -1.0, 3.0, "m"), Difference("hills", "random", 5.0, None, None, "m")]
    ax = plot_differences(Figure().subplots(), rows, ["team", "greedy", "random"])
    _, interval, point, alone = ax.get_lines()
    np.testing.assert_array_equal(interval.get_xydata(), [[-1.0, 0.0], [3.0, 0.0]])
    np.testing.assert_array_equal([*point.get_xydata(), *alone.get_xydata()], [[1.0, 0.0], [5.0, 1.0]])
    assert [text.get_text() for text in ax.get_yticklabels()] == ["greedy", "random"]
    ax = plot_differences(Figure().subplots(), rows[1:], ["team", "greedy", "random"])  # each method keeps its row
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


def test_five_problems_are_drawn_in_rows_each_above_its_differences():
    names = [f"place {i}" for i in range(5)]
    many = [curves(place, method) for place in names for method in ("team", "greedy")]
    figure = comparison_figure(many, [Difference(place, "greedy", 1.0, 0.5, 2.0) for place in names], "team")
    figure.draw_without_rendering()
    tops = {ax.get_title(loc="left"): ax.get_position() for ax in figure.axes if ax.get_title(loc="left")}
    assert list(tops) == names
    assert len({round(place.x0, 3) for place in tops.values()}) == 3
    assert tops["place 3"].y0 < tops["place 0"].y0
    assert (len(figure.axes), figure.get_figwidth() < 12) == (10, True)


def test_differences_of_mean_regret_have_their_own_row_if_known():
    many = [curves(place, method) for place in ("hills", "soil") for method in ("team", "greedy")]
    ends = [Difference(place, "greedy", 1.0, 0.5, 2.0, "m") for place in ("hills", "soil")]
    summed = [Difference("hills", "greedy", -7.0, -9.0, -5.0, "m", "mean regret")]
    figure = comparison_figure(many, ends, "team", summed)
    assert [ax.get_visible() for ax in figure.axes] == [True] * 5 + [
        False
    ]  # soil has the task "map", so it has no regret
    bottom = figure.axes[4]
    assert bottom.get_xlabel() == "difference of mean regret (m)"
    np.testing.assert_array_equal(bottom.get_lines()[2].get_xydata(), [[-7.0, 0.0]])


def test_a_problem_without_the_reference_has_no_statement_about_better_and_worse():
    many = [curves("hills", "team"), curves("hills", "greedy"), curves("soil", "greedy")]
    figure = comparison_figure(many, [Difference("hills", "greedy", 1.0, 0.5, 2.0)], "team")
    titles = [ax.get_title(loc="center") for ax in figure.axes[2:]]
    assert titles == ["right of zero: worse than team", "nothing to compare with team"]


def test_right_of_zero_is_better_only_on_problems_where_more_is_better():
    many = [curves(place, method) for place in ("hills", "soil") for method in ("team", "greedy")]
    many = [replace(curve, more_is_better=curve.problem == "soil") for curve in many]
    figure = comparison_figure(many, [Difference(p, "greedy", 1.0, 0.5, 2.0) for p in ("hills", "soil")], "team")
    titles = [ax.get_title(loc="center") for ax in figure.axes[2:]]
    assert titles == ["right of zero: worse than team", "right of zero: better than team"]


def test_a_regret_of_zero_has_a_linear_scale():
    found = RegretCurves("hills", "team", np.array([4, 8]), np.array([[100.0, 0.0]]))
    assert plot_regret_curves(Figure().subplots(), [found], ["team"]).get_yscale() == "linear"


def test_curves_of_the_wrong_shape_are_refused():
    with pytest.raises(ShapeError, match=r"got regrets of shape \(3,\)"):
        RegretCurves("hills", "team", np.arange(3), np.arange(3.0))
    with pytest.raises(ShapeError, match="no regret curves"):
        comparison_figure([], [], "team")


def test_intervals_have_the_level_stated_in_the_figure():
    figure = comparison_figure([curves()], [], "team", level=0.995)
    assert "99.5 % bootstrap intervals" in figure.get_suptitle()
    low, high = bootstrap_band(curves().regrets, level=0.995)
    outline = figure.axes[0].collections[0].get_paths()[0].vertices
    assert (outline[:, 1].min(), outline[:, 1].max()) == (low.min(), high.max())


@pytest.mark.parametrize(("last", "scale"), [(-3.0, "linear"), (1e-3, "log")])
def test_curves_are_shown_completely_and_scores_to_maximise_have_linear_axes(last, scale):
    regrets = np.array([[5.0, last]])
    ax = plot_regret_curves(Figure().subplots(), [RegretCurves("p", "m", np.array([1, 2]), regrets)], ["m"])
    assert all(tick == round(tick) for tick in ax.get_xticks())  # whole numbers of measurements
    assert (ax.get_ylim()[0] < last, ax.get_yscale()) == (True, scale)
    f1 = RegretCurves("p", "m", np.array([1, 2]), regrets, more_is_better=True)
    assert plot_regret_curves(Figure().subplots(), [f1], ["m"]).get_yscale() == "linear"


def test_missing_scores_before_the_first_round_do_not_prevent_a_logarithmic_scale():
    regrets = np.array([[np.nan, 50.0, 1e-3], [np.nan, 60.0, 2e-3]])
    ax = plot_regret_curves(Figure().subplots(), [RegretCurves("p", "m", np.arange(3), regrets)], ["m"])
    assert ax.get_yscale() == "log"


def test_nine_methods_with_long_names_are_distinguishable_on_one_page():
    names = [f"coordination max-sum (iterations={n}, damping=0.5), acquisition db-gp-ucb (beta={n})" for n in range(9)]
    rows = [Difference("hills", name, 1.0, None, None, "m") for name in names[1:]]
    figure = comparison_figure([curves(method=name, seeds=1) for name in names], rows, names[0])
    looks = {(line.get_color(), line.get_marker()) for line in figure.axes[0].get_lines()}
    assert len(looks) == 9
    assert "one seed." in figure.get_suptitle()
    figure.draw_without_rendering()
    assert figure.get_tightbbox().width < 1.02 * figure.get_figwidth()
    assert figure.axes[0].get_window_extent().width > 0.5 * figure.bbox.width


@pytest.mark.parametrize("unit", [1e-9, 1e7])
def test_the_power_of_ten_of_an_axis_does_not_overlap_the_legend(run, unit):
    scaled = [msgspec.structs.replace(r, score=msgspec.structs.replace(r.score, map_rmse=unit)) for r in run().records]
    ax = plot_map_error(axes(), scaled)
    ax.figure.draw_without_rendering()
    power = ax.yaxis.get_offset_text()
    assert power.get_text()
    assert not ax.get_legend().get_texts()[0].get_window_extent().overlaps(power.get_window_extent())


def test_values_better_than_the_reference_optimum_are_shown():
    better = Score(-5.0, -5.0, -5.0, -5.0, None)
    ax = plot_regret(axes(), [msgspec.structs.replace(r, score=better) for r in joint_records([3.0, 5.0])])
    low, high = ax.get_ylim()
    assert low < -5.0 < high
