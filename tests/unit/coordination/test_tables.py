"""Tables: checks at the boundary, one order of summation, forbidden values, and the order of decisions."""

import itertools
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination import Exact, MaxSum
from swarmbo.coordination.tables import Conflicts, checked_tables, sizes_of, spreads, total
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph

GRAPH = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y"]})
GOOD = {"f": np.zeros((2, 3)), "g": np.zeros(3)}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"f": np.zeros((2, 3))}, "'g' has no table"),
        (GOOD | {"h": np.zeros(1)}, "'h', which is not a factor"),
        (GOOD | {"g": np.zeros((3, 1))}, "got 2 axes; wanted 1"),
        (GOOD | {"g": 1.0}, "got 0 axes; wanted 1"),
        (GOOD | {"g": np.zeros(4)}, "'y' has 3 values in the table of 'f' but 4 in that of 'g'"),
        (GOOD | {"f": np.zeros((0, 3))}, "'x' has no value"),
        (GOOD | {"g": np.array([0, np.nan, 0])}, r"got nan at \(1,\)"),
        (GOOD | {"f": np.array([[0, 0, 0], [0, 0, np.inf]])}, r"got inf at \(1, 2\)"),
        (GOOD | {"g": np.array([0, 1e300, 0])}, r"got 1e\+300"),
        (GOOD | {"g": np.array([0, -1e300, -np.inf])}, "use -inf to forbid"),
        (GOOD | {"g": np.array([0, 2**53, 2**53 + 1])}, "got 9007199254740993; .* float64 does not round"),
        (GOOD | {"g": [0, 2**70, -(2**70) - 1]}, "float64 does not round"),
        (GOOD | {"g": ["0", "1", "2"]}, "wanted an array of numbers"),
    ],
)
@pytest.mark.parametrize("method", [MaxSum(), Exact()])
def test_tables_that_do_not_fit_are_refused(method: MaxSum | Exact, wrong: dict[str, np.ndarray], says: str) -> None:
    with pytest.raises(ShapeError, match=says):
        method.solve(GRAPH, wrong)


def test_tables_become_float64_in_c_order_and_are_copied_only_if_necessary() -> None:
    tables = {"f": np.asfortranarray(np.arange(6).reshape(2, 3)), "g": np.array([0.0, -np.inf, 1.0])}
    checked = checked_tables(GRAPH, tables)
    assert checked["f"].dtype == np.float64
    assert checked["f"].flags.c_contiguous
    assert np.shares_memory(checked["g"], tables["g"])
    assert sizes_of(GRAPH, checked) == {"x": 2, "y": 3}


def test_the_work_to_check_tables_grows_with_their_number_and_not_with_its_square(steps_of_names) -> None:
    def check(names: list[str]) -> None:
        checked_tables(FactorGraph.from_scopes({name: ["x"] for name in names}), dict.fromkeys(names, np.zeros(2)))

    assert steps_of_names(check, 500) < 20 * steps_of_names(check, 50)


def test_lists_are_tables_too_and_read_only_arrays_stay_untouched() -> None:
    table = np.eye(2)
    table.flags.writeable = False
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "x"]})
    for method in (MaxSum(), Exact()):
        assert method.solve(graph, {"f": table, "g": [[0, 0], [0, 5]]}).value == 6.0


def test_total_adds_from_first_to_last() -> None:
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** (np.arange(1000) % 7)
    folded = 0.0
    for value in values.tolist():
        folded += value
    assert total(values) == folded
    assert total(np.array([1.0, -np.inf])) == -np.inf


@pytest.mark.parametrize(
    ("table", "expected"),
    [([[1.0, 4.0], [2.0, 2.0]], 3.0), ([1.0, -np.inf, 3.0], 2.0), ([-np.inf, -np.inf], 0.0), ([7.0, 7.0], 0.0)],
)
def test_spread_is_that_of_the_finite_entries(table: list[float], expected: float) -> None:
    assert spreads(np.array(table)[None]) == [expected]


SHARED = FactorGraph.from_scopes({"f": ["x", "y", "z"], "g": ["y", "z"], "h": ["z", "w"]})
SIZES = dict(zip(SHARED.variables, (2, 3, 4, 2), strict=True))


def forbidding(seed, share):
    rng = np.random.default_rng(seed)
    shapes = {f: [SIZES[x] for x in SHARED.scope(f)] for f in SHARED.factors}
    return {f: np.where(rng.random(shape) < share, -np.inf, 0.0) for f, shape in shapes.items()}


@given(st.integers(0, 1000), st.floats(0.0, 1.0))
def test_a_pair_is_forbidden_if_a_factor_forbids_it_whatever_else_is_chosen(seed, share):
    tables = forbidding(seed, share)
    claims = Conflicts.of(SHARED, tables)
    for x, y in itertools.permutations(SHARED.variables, 2):
        shared = [f for f in SHARED.factors if {x, y} <= set(SHARED.scope(f))]
        for i, j in itertools.product(range(SIZES[x]), range(SIZES[y])):
            lines = [tables[f][tuple({x: i, y: j}.get(v, slice(None)) for v in SHARED.scope(f))] for f in shared]
            wanted = any(np.all(line == -np.inf) for line in lines)
            assert ((x, y) in claims.forbidden and claims.forbidden[x, y][i, j]) == wanted


def test_neighbours_never_decide_at_the_same_time():
    claims = Conflicts.of(SHARED, forbidding(0, 0.5))
    assert {x: "".join(sorted(y)) for x, y in claims.neighbours.items()} == {"x": "yz", "y": "xz", "z": "wxy", "w": "z"}
    assert all(claims.colour[x] != claims.colour[y] for x, others in claims.neighbours.items() for y in others)
    assert claims.n_colours == 3


@given(st.integers(0, 1000), st.floats(0.1, 0.9))
def test_allowed_values_never_clash_whichever_earlier_decisions_are_received(seed, share):
    """In any order, each variable takes any allowed value, given some of the earlier decisions."""
    rng = np.random.default_rng(seed)
    claims = Conflicts.of(SHARED, forbidding(seed, share))
    decisions = {}
    for x in rng.permutation(SHARED.variables):
        received = {y: value for y, value in decisions.items() if rng.random() < 0.5}
        open_to = np.flatnonzero(claims.allowed(x, SIZES[x], received))
        decisions[x] = int(rng.choice(open_to)) if len(open_to) else None
    assert claims.clashes(decisions) == 0


def test_a_variable_waits_for_decisions_of_earlier_neighbours_but_not_of_later_ones():
    graph = FactorGraph.from_scopes({"f": ["x", "y"]})
    claims = Conflicts.of(graph, {"f": np.where(np.eye(3), -np.inf, 0.0)[:, :2]})  # x has a third value, y has not
    assert claims.allowed("x", 3, {}).tolist() == [True, True, True]
    assert claims.allowed("y", 2, {}).tolist() == [False, False]
    assert claims.allowed("y", 2, {"x": 1}).tolist() == [True, False]
    assert claims.allowed("y", 2, {"x": None}).tolist() == [True, True]
    assert claims.clashes({"x": 1, "y": 1}) == 1
    assert claims.clashes({"x": 1, "y": None}) == 0


def test_integers_that_a_float_rounds_are_refused_and_other_numbers_are_not():
    graph = FactorGraph.from_scopes({"f": ["x"]})
    exact = Decimal("12345678901234567.5"), Fraction(10**17, 3), 2**60
    assert checked_tables(graph, {"f": np.array(exact, dtype=object)})["f"].tolist() == [*map(float, exact)]
    for table in (np.ma.array([2**53 + 1, 0]), np.array([2**53 + 1, -np.inf], dtype=object)):
        with pytest.raises(ShapeError, match="got 9007199254740993; wanted whole numbers that float64 does not round"):
            checked_tables(graph, {"f": table})
    masked = np.ma.array([7, 1], mask=[True, False], dtype=object)
    with pytest.raises(ShapeError, match="got nan at"):
        checked_tables(graph, {"f": masked})
