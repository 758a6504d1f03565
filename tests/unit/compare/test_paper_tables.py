"""Paired differences, and tables of a comparison for papers, in LaTeX and Markdown."""

import itertools
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats
from scipy.stats import rankdata

from swarmbo.compare.comparison import Comparison, ComparisonRow
from swarmbo.compare.output import table_writer
from swarmbo.compare.statistics import holm, mean_interval, paired_difference, paired_p
from swarmbo.errors import ConfigError, ShapeError


def of(values, other=None, **more):
    """The paired difference between results by seed, by default to zeros."""
    others = [0.0] * len(values) if other is None else other
    return paired_difference(dict(enumerate(values)), dict(enumerate(others)), **more)


def test_the_mean_is_over_common_seeds_and_unpaired_seeds_are_listed():
    difference = paired_difference({0: 5.0, 1: 6.0, 2: 9.0, 8: 100.0}, {0: 1.0, 1: 3.0, 2: 2.0, 7: -50.0})
    assert difference.mean == pytest.approx((4 + 3 + 7) / 3)
    assert difference.n_pairs == 3
    assert difference.unpaired == [7, 8]


def test_pairing_removes_the_common_effect_of_a_seed():
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 100, size=20)
    difference = of(luck + 1 + 0.1 * rng.normal(size=20), luck)
    assert difference.is_clear
    assert 0.9 < difference.low < difference.mean < difference.high < 1.1


def test_for_normal_differences_the_interval_is_close_to_student_s():
    differences = np.random.default_rng(5).normal(0.3, 2.0, size=200)
    ours = of(differences)
    student = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert ours.low == pytest.approx(student.low, abs=0.03)
    assert ours.high == pytest.approx(student.high, abs=0.03)


def test_about_95_percent_of_intervals_cover_the_truth():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        sample = of(rng.exponential(1.0, size=30), resamples=500)
        covered += sample.low <= 1.0 <= sample.high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_same_data_give_the_same_interval_and_swapping_mirrors_the_mean():
    rng = np.random.default_rng(2)
    one, two = rng.normal(size=12), rng.normal(size=12)
    assert of(one, two) == of(one, two)
    assert of(one, two).mean == pytest.approx(-of(two, one).mean)


@pytest.mark.parametrize(
    ("values", "others", "mean", "interval", "is_clear"),
    [
        (range(3, 9), range(1, 7), 2.0, (2.0, 2.0), True),  # the same difference for all seeds
        ([3.0, 4.0], [3.0, 4.0], 0.0, (0.0, 0.0), False),  # a tie
        ([3.0], [1.0], 2.0, (None, None), False),
        ([math.nan, 1.0, 2.0], [0.0] * 3, math.nan, (None, None), False),
    ],
)
def test_equal_differences_have_an_interval_of_width_zero_and_one_pair_or_nan_have_none(
    values, others, mean, interval, is_clear
):
    found = of(values, others)
    assert ((found.low, found.high), found.is_clear) == (interval, is_clear)
    assert found.mean == pytest.approx(mean, nan_ok=True)


@pytest.mark.parametrize(("n_pairs", "is_clear"), [(2, False), (5, False), (6, True)])
def test_up_to_five_pairs_of_the_same_sign_are_not_clear(n_pairs, is_clear):
    """n random signs agree with probability 2^(1 - n): more than 5 % for five signs, less for six."""
    difference = of(range(1, n_pairs + 1))
    assert difference.low > 0
    assert difference.is_clear is is_clear


@pytest.mark.parametrize(("shift", "size"), [(1e9, 1e-6), (0.0, 1e-200), (0.0, 1e200)])
def test_the_interval_moves_and_grows_with_the_differences(shift, size):
    """Third powers of small differences underflow and those of large ones overflow. The interval must not."""
    around_zero = of([0.0, 1.0, 3.0, 4.0])
    ours = of([shift, shift + size, shift + 3 * size, shift + 4 * size])
    assert ours.low == pytest.approx(shift + size * around_zero.low, rel=1e-15 if shift else 1e-9)
    assert ours.high == pytest.approx(shift + size * around_zero.high, rel=1e-15 if shift else 1e-9)


@pytest.mark.parametrize("level", [0.0, 1.0, -1.0, math.nan])
def test_no_common_seed_and_a_level_outside_0_and_1_are_refused(level):
    with pytest.raises(ShapeError, match="no seed is in both"):
        paired_difference({0: 1.0}, {1: 1.0})
    with pytest.raises(ConfigError, match="between 0 and 1"):
        paired_difference({0: 1.0}, {0: 1.0}, level)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=6), st.floats(0.1, 10.0))
def test_an_interval_lies_within_the_range_of_the_differences(numbers, unit):
    differences = [unit * number for number in numbers]
    found = of(differences)
    assert min(differences) <= found.low <= found.high <= max(differences)


RNG = np.random.default_rng(0)
BASE = {seed: float(5.0 + RNG.normal()) for seed in range(9)}
METHODS = {
    "exact": BASE,
    "max_sum (p=5%)": {seed: value - 2.0 - 0.01 * seed for seed, value in BASE.items()},
    "[own] a|b": {seed: value + float(RNG.normal()) for seed, value in BASE.items()},
    "late": {seed: BASE[seed] + 1e-6 * (seed + 1) for seed in (0, 1, 2)},
}


def comparison(metric="simple_regret", unit="m"):
    def row(name, values):
        difference = None if name == "exact" else paired_difference(values, BASE)
        mean = float(np.mean(list(values.values())))
        return ComparisonRow("robots_1", name, metric, unit, mean, len(values), "exact", difference, True, values)

    rows = [row(name, values) for name, values in METHODS.items()]
    unseen = ComparisonRow("robots_1", "exact", "map_rmse", unit, 1.0, 9, "exact", values=BASE)
    return Comparison([*rows, unseen], {}, "exact", [])


def latex_rows(text):
    """Cells of the rows of one table, after a check of its structure."""
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")
    assert len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    opened = re.findall(r"\\(begin|end)\{(\w+)\}", text)
    assert opened == [("begin", "table"), ("begin", "tabular"), ("end", "tabular"), ("end", "table")]
    columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", text)[1]
    body = re.search(r"\\toprule\n(.*)\\midrule\n(.*)\\bottomrule", text, re.DOTALL)
    lines = (body[1] + body[2]).splitlines()
    assert all(line.endswith(r" \\") for line in lines)
    assert all(not line.startswith("[") for line in lines)  # LaTeX reads it as an option of a line break
    rows = [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in lines]
    assert {len(row) for row in rows} == {len(columns)}
    bare = re.sub(r"\$[^$]*\$|\\[%&_#${}]", "", "".join(lines).replace("&", ""))
    assert not set("%_#^~") & set(bare)
    return [[cell.strip() for cell in row] for row in rows]


def test_latex_is_well_formed_and_names_are_escaped(tmp_path):
    path = table_writer(tmp_path / "t.tex")(comparison(), tmp_path / "t.tex")
    text = path.read_text(encoding="utf-8")
    head, *rows = latex_rows(text)
    assert head == ["method", "seeds", "mean", "difference", "p"]
    assert [row[0] for row in rows] == ["exact", r"\textbf{max\_sum (p=5\%)}", "{[}own] a|b", "late"]
    assert rows[1][2].startswith(r"\textbf{")
    assert rows[1][3].startswith("$-$2.04 {[}$-$")
    assert r"e-0" not in rows[3][3]
    assert r"$\times 10^{-6}$" in rows[3][3]
    assert rows[3][4] == ""  # too few pairs for a test
    assert r"robots\_1: simple regret at the end (m), smaller is better" in text
    assert r"\label{tab:robots-1}" in text


def test_markdown_has_the_same_numbers(tmp_path):
    text = table_writer(tmp_path / "t.md")(comparison(), tmp_path / "t.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(re.split(r"(?<!\\)\|", line)) for line in lines}) == 1
    low, high = mean_interval(list(METHODS["max_sum (p=5%)"].values()))
    mean = np.mean(list(METHODS["max_sum (p=5%)"].values()))
    assert rf"| **max\_sum (p=5%)** | 9 | **{mean:.4g} \[{low:.3g}, {high:.3g}\]** |" in text
    tested = [paired_p(METHODS[name], BASE) for name in list(METHODS)[1:3]]
    adjusted = holm(tested)
    assert [line.split("|")[-2].strip() for line in lines[3:5]] == [f"{p:.3f}" for p in adjusted]


def test_the_level_of_intervals_is_stated_exactly(tmp_path):
    found = replace(comparison(), level=0.995)
    assert "with 99.5 % bootstrap" in table_writer(tmp_path / "t.md")(found, tmp_path / "t.md").read_text("utf-8")


def test_for_scores_to_maximise_the_table_says_that_larger_is_better(tmp_path):
    text = table_writer(tmp_path / "t.md")(comparison("level_f1", ""), tmp_path / "t.md").read_text(encoding="utf-8")
    assert "larger is better" in text
    best = max(METHODS, key=lambda name: np.mean(list(METHODS[name].values())))
    assert [name for name in METHODS if f"**{name}**" in text.replace("\\", "")] == [best]


@pytest.mark.parametrize(
    "differences",
    [
        [3.0, 5.0, 4.0, -1.0, 8.0, 9.5, 2.0],
        [1.0, 1.0, -2.0, 3.0, 3.0, 5.0],
        [*[0.0] * 10, 1.0, 2.0, 3.0, 4.0, 5.0],  # equal results for most seeds
        [*[0.0] * 9, 1.0, 2.0, 2.0, -2.0, 4.0, 5.0, 6.0],
    ],
)
def test_p_values_equal_those_of_all_assignments_of_signs(differences):
    """Brute force: the share of sign assignments with an equally extreme sum of signed ranks. Ties are left out."""
    unequal = [difference for difference in differences if difference]
    ranks = rankdata(np.abs(unequal))
    own = abs(float(np.sum(np.sign(unequal) * ranks)))
    sums = [abs(float(np.dot(signs, ranks))) for signs in itertools.product((-1, 1), repeat=len(ranks))]
    wanted = np.mean(np.array(sums) >= own - 1e-9)
    assert paired_p(dict(enumerate(differences)), dict.fromkeys(range(99), 0.0)) == pytest.approx(wanted)


def test_equal_results_have_a_p_value_of_one_and_two_pairs_have_none():
    assert paired_p(BASE, BASE) == 1.0
    assert paired_p({0: 1.0, 1: 2.0}, {0: 2.0, 1: 3.0}) is None


def test_holm_agrees_with_the_step_down_procedure():
    p = [0.011, 0.5, 0.02, 0.013, 0.04]
    adjusted = holm(p)
    for level in np.linspace(0.005, 0.9, 180):
        rejected = set[int]()
        for rank, place in enumerate(np.argsort(p)):
            if p[place] > level / (len(p) - rank):
                break
            rejected.add(int(place))
        assert {i for i, value in enumerate(adjusted) if value <= level} == rejected


def test_unknown_endings_of_tables_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"wanted a name that ends in \.csv, \.tex or \.md"):
        table_writer(tmp_path / "t.xlsx")
