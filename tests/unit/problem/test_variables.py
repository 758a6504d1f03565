"""Types of variables, their codes in the unit cube, and the coordinates of models."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo.graph import FactorGraph
from swarmbo.kernels.stationary import kernel_matrix
from swarmbo.problem import Problem
from swarmbo.problem.coding import Coding
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import MixedDomain, Variable, variable_of

COLOURS = sb.Categorical(["red", "green", "blue", "black"])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: sb.Real(1.0, 1.0), "high: got 1.0; wanted a number above low"),
        (lambda: sb.Real(0.0, 1.0, log=True), "low: got 0.0; wanted a number > 0 on a logarithmic axis"),
        (lambda: sb.Real(0.0, 1.0, step=0.3), r"high: got 1.0; wanted 0.0 plus a multiple of the step 0.3"),
        (lambda: sb.Real(0.0, float("inf")), "high: got inf"),
        (lambda: sb.Integer(1, 9, step=3), "high: got 9; wanted 1 plus a multiple of the step 3"),
        (lambda: sb.Integer(0, 9, log=True), "low: got 0"),
        (lambda: sb.Integer(10**17, 10**17 + 10), "low: got 100000000000000000; wanted an integer from -2.53 to 2.53"),
        (lambda: sb.Integer(-(2**53) - 1, 0), "low: got -9007199254740993; wanted an integer from -2.53 to 2.53"),
        (lambda: sb.Categorical(["a"]), "values: got .* wanted 2 to 10,000 different values"),
        (lambda: sb.Categorical(["a", "a"]), "wanted 2 to 10,000 different values"),
        (lambda: sb.Categorical([1.0, float("nan")]), "wanted texts, finite numbers, booleans or None"),
        (lambda: sb.Categorical([[1], [2]]), "wanted texts, finite numbers, booleans or None"),  # pyright: ignore
        (lambda: sb.Categorical("ab"), "values: got 'ab'; wanted a list of values"),
        (lambda: sb.Team(None, {"x": (-1e308, 1e308)}), "wanted finite low < high, and a finite difference"),
    ],
)
def test_wrong_types_are_refused_by_field(given: Any, message: str):
    with pytest.raises(ValueError, match=message):
        given()


@pytest.mark.parametrize("given", [(0.0,), (1.0, 0.0), "ab", {"kind": "integer"}, {"kind": "set"}, None, (0.0, np.nan)])
def test_invalid_bounds_are_refused_with_their_path(given: Any):
    with pytest.raises(ConfigError, match=r"\$\.bounds\.x"):
        Problem.of(None, {"x": given})


def test_values_have_codes_and_equal_numbers_count_as_one_value():
    of = sb.Categorical([1, True, None, "1", 2.5])
    assert [of.code(value) for value in (1, True, None, "1", 2.5)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [of.code(value) for value in (1.0, np.int64(1), np.float64(2.5), np.bool_(True))] == [0.0, 0.0, 4.0, 1.0]
    assert [of.code(value) for value in ("2.5", False, 2, [1])] == [None] * 4
    assert [sb.Integer(1, 9).code(value) for value in ("3", True)] == [None, None]
    odd = sb.Integer(1, 9, step=2)
    assert [odd.axis.has(code) for code in (1.0, 3.0000000001, 2.0, 11.0, np.nan)] == [True] * 2 + [False] * 3
    assert sb.Real(0.0, 1.0, step=0.1).value(0.6000000000000001) == 0.6
    assert sb.Real(1 / 3, 1 / 3 + 1.0, step=1.0).value(1 / 3) == 1 / 3


@pytest.mark.parametrize("step", [2.0**-64, 1e-19])
def test_a_grid_may_have_more_values_than_integers_can_count(step: float):
    assert 0.0 <= sb.Team(None, {"x": sb.Real(0.0, 1.0, step=step), "n": sb.Integer(0, 1)}).ask().point["x"] <= 1.0


@pytest.mark.parametrize("other", [(0.0, 1.0), sb.Integer(0, 1)])
def test_booleans_are_no_numbers_in_any_space(other: Any):
    """In a point; as an outcome, True counts as 1."""
    space = {"x": (0.0, 1.0), "y": other}
    team = sb.Team(None, space, seed=0)
    query, message = team.ask(), r"x: got (np\.)?True_?; wanted a number from 0 to 1"
    point: dict[str, Any] = {"x": True, "y": 0}
    for refused in (lambda: team.expect(point), lambda: team.tell(query, 1.0, point=point)):
        with pytest.raises(ConfigError, match=rf"^\$\.point\.{message}"):
            refused()
    with pytest.raises(ConfigError, match=rf"^\$\.start\.{message}"):
        sb.Team(None, space, start=point)
    for points in (
        [[0, 0], [True, 0]],
        [[0, 0], [np.True_, 0]],
        np.array([[False, False], [True, False]]),
        [np.zeros(2), np.array([True, 0], object)],
    ):
        with pytest.raises(ConfigError, match=r"^\$\.points\[\d\]\.x: got"):
            team.attach(points, [1.0, 2.0])
    team.attach([[0, 0], [1, 0]], [True, False])
    assert team.history.totals.tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("low", "high", "step", "n", "value"),
    [
        (-0.3, 0.3, 0.1, 3, 0.0),
        (-0.15, 0.15, 0.05, 3, 0.0),
        (-1000.0, 1000.0, 0.001, 1_000_001, 0.001),
        (1e15, 1e15 + 1.0, 0.125, 3, 1e15 + 0.375),
        (0.0, 1.0, 1 / 3, 2, 2 / 3),
        (-4.68, -2.3466666666666667, 1 / 3, 3, -3.68),
    ],
)
def test_a_value_near_zero_or_on_a_tiny_grid_has_no_rounding_error(low, high, step, n, value):
    assert sb.Real(low, high, step=step).value(low + n * step) == value
    constraint = sb.Constraint(scope=("a", "b"), allowed=lambda a, b: a != value)
    if value == 0.0:
        space = {"a": sb.Real(low, high, step=step), "b": sb.Integer(0, 3)}
        team = sb.Team(None, space, constraints=[constraint], seed=0, initial=12)
        assert value not in {query.point["a"] for query in team.ask(12)}


@pytest.mark.parametrize(
    "of", [sb.Real(0.5, 2.5, step=0.25), sb.Integer(1, 200, log=True), sb.Integer(-4, 8, step=3), COLOURS]
)
def test_each_value_of_a_grid_has_a_cell_whose_middle_is_its_place(of: Variable):
    domain = MixedDomain.of([of, sb.Real(0.0, 1.0, log=False)])
    assert isinstance(domain, MixedDomain)
    codes = of.axis.low + (of.axis.step) * np.arange(of.axis.count)
    X = np.column_stack([codes, np.full(len(codes), 0.5)])
    U = domain.to_unit(X)
    np.testing.assert_allclose(domain.from_unit(U), X, rtol=1e-12)
    if 0 in domain.levels:
        np.testing.assert_allclose(domain.levels[0], U[:, 0], atol=1e-12)
    edges = np.linspace(0.0, 1.0, 4001)
    swept = domain.from_unit(np.column_stack([edges, np.full(len(edges), 0.5)]))[:, 0]
    assert set(np.round(swept, 9)) == set(np.round(codes, 9))
    assert (np.diff(swept) >= 0.0).all()
    if not of.axis.is_log:  # all cells are equally wide
        counts = np.unique(swept, return_counts=True)[1]
        assert counts.max() - counts.min() <= 2  # borders may fall to either side


def test_plain_numbers_make_a_plain_box():
    assert type(MixedDomain.of([sb.Real(0.0, 1.0), variable_of((2, 3), "$.x")])) is Domain
    assert not Problem.of(None, {"x": sb.Real(0.0, 1.0)}).is_mixed


def test_a_logarithmic_axis_has_equal_ratios_equally_far_apart():
    domain = MixedDomain.of([sb.Real(0.001, 1000.0, log=True)])
    np.testing.assert_allclose(domain.to_unit(np.array([[0.001], [0.1], [10.0], [1000.0]]))[:, 0], [0, 1 / 3, 2 / 3, 1])


def coding_of(variables: dict[str, Variable]) -> Coding:
    domain = MixedDomain.of(list(variables.values()))
    assert isinstance(domain, MixedDomain)
    return Coding(FactorGraph.from_scopes({"f": list(variables)}), domain)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 7), st.integers(1, 20), st.booleans(), st.integers(0, 2**20))
def test_coordinates_are_read_back_and_constant_in_a_cell(n_choices: int, top: int, ordered: bool, seed: int):
    choice = sb.Categorical(range(n_choices), ordered=ordered)
    coding = coding_of({"c": choice, "n": sb.Integer(0, top), "x": sb.Real(0.1, 1.0, log=True)})
    U = np.random.default_rng(seed).random((20, 3))
    Z = coding.inside(U)
    assert Z.shape == (20, 2 + (n_choices if n_choices > 2 and not ordered else 1))
    np.testing.assert_allclose(coding.outside(Z), coding.domain.snapped(U), atol=1e-12)
    np.testing.assert_array_equal(coding.inside(coding.domain.snapped(U)), Z)
    assert ((Z >= 0.0) & (Z <= 1.0)).all()


@pytest.mark.parametrize("kernel", ["matern12", "matern52", "rbf"])
def test_any_two_choices_are_equally_similar_in_a_model(kernel: Any):
    """The prior covariance of two choices is that of two places at distance 1: k(1 / lengthscale), closed form."""
    coding = coding_of({"c": COLOURS, "x": sb.Real(0.0, 1.0)})
    Z = coding.inside(np.column_stack([(np.arange(4) + 0.5) / 4, np.full(4, 0.3)]))
    distances = np.sqrt(((Z[:, None] - Z[None]) ** 2).sum(axis=-1))
    np.testing.assert_allclose(distances, 1.0 - np.eye(4), atol=1e-12)
    r = distances / 0.7
    closed = {
        "matern12": np.exp(-r),
        "matern52": (1.0 + 5**0.5 * r + 5.0 * r**2 / 3.0) * np.exp(-(5**0.5) * r),
        "rbf": np.exp(-0.5 * r**2),
    }[kernel]
    np.testing.assert_allclose(kernel_matrix(kernel, Z, Z, np.full(5, 0.7), 2.0), 2.0 * closed, rtol=1e-9)


@pytest.mark.parametrize(
    ("variable", "more"),
    [
        (sb.Integer(np.int64(0), np.int64(4), step=np.int64(2)), {}),
        (
            sb.Real(np.float32(0), np.float64(3)),
            {"no_go": [sb.NoGoBall(variables=["x"], centre=np.ones(1), radius=0.5)]},
        ),
        ((0.0, 1.0), {"no_go": [sb.NoGoBox(variables=["x"], low=(np.float64(0.2),), high=np.array([0.4]))]}),
        ((0.0, 1.0), {"constraints": [sb.Linear(weights={"x": np.float32(2), "y": np.int64(1)}, at_most=np.int64(2))]}),
        (
            sb.Categorical(np.array(["a", "b"])),
            {"constraints": [sb.Linear(weights={"x": np.array([1.0, 2.0]), "y": 1}, at_most=2)]},
        ),
        (sb.Integer(0, 2), {"constraints": [sb.Constraint(scope=["x"], allowed=[np.True_, np.False_, np.True_])]}),
    ],
)
def test_numbers_of_numpy_are_accepted_in_settings_and_saved(variable, more, tmp_path):
    team = sb.Team(None, {"x": variable, "y": (0.0, 1.0)}, initial=2, seed=0, **more)
    team.tell(team.ask(), 1.0)
    team.save(tmp_path / "team.npz")
    assert sb.Team.load(tmp_path / "team.npz").ask() == team.ask()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: sb.Linear(weights=[1, 2], at_most=1), "weights: got [1, 2]; wanted a table"),
        (lambda: sb.Linear(weights={"x": [1, [2]]}, at_most=1), "weights.x[1]: got [2]; wanted a finite number"),
        (lambda: sb.Separation(variables=("x",), at_least=1), "variables: got ['x']; wanted a list of length 2"),
        (lambda: sb.NoGoBox(low=1, high=2), "low: got 1; wanted a list"),
        (lambda: sb.NoGoBall(centre="x", radius=2), "centre: got 'x'; wanted a list"),
        (lambda: sb.NoGoPolygon(corners=np.eye(3)), "corners[0]: got [1.0, 0.0, 0.0]; wanted a list of length 2"),
        (lambda: sb.Team(None, {"x": sb.Integer(0, 2)}, constraints=[sb.Constraint(scope=(), allowed=True)]),
         "$.constraints[0].scope: got (); wanted a list of names, at least one variable"),
    ],
)  # fmt: skip
def test_lists_and_tables_of_wrong_parts_are_refused_by_field(make, says):
    with pytest.raises(ConfigError) as caught:
        make()
    assert str(caught.value) == says


@pytest.mark.parametrize("y", [(0.0, 1.0), sb.Integer(0, 1)])
def test_a_table_with_values_that_variables_cannot_have_is_not_a_point(y):
    problem = Problem.of(None, {"x": (0.0, 1.0), "y": y})
    assert problem.has_point({"x": np.array(0.2), "y": 1})
    assert not any(problem.has_point({"x": x, "y": 1}) for x in ("a", None, [0.1], {}, np.nan, 1.1))
