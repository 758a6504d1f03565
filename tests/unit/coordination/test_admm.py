"""Consensus ADMM: maxima of concave sums, status reports, and equality of agents and the fast path."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st
from scipy.optimize import minimize

from swarmbo.coordination.box_steps import drawn_starts, natural_penalty, polish
from swarmbo.coordination.central import Central
from swarmbo.coordination.methods import admm
from swarmbo.coordination.methods.admm import ADMM
from swarmbo.coordination.methods.refined import RefinedMaxSum
from swarmbo.coordination.part import BoxView, LocalView, Part
from swarmbo.coordination.refinement import MOST
from swarmbo.errors import ShapeError
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.graph.box_functions import total_value
from swarmbo.transport import Routes

from .example_sums import CHAIN, DISJOINT, RING, TREE, Quadratics as Sum, check_agents, maximiser_of


@st.composite
def random_scopes(draw) -> dict[str, list[str]]:
    """Up to six factors of one to three variables, in one part or several, with loops or without."""
    names = [f"x{i}" for i in range(draw(st.integers(1, 7)))]
    n_factors = draw(st.integers(1, 6))
    scope = st.lists(st.sampled_from(names), min_size=1, max_size=min(3, len(names)), unique=True)
    return {f"f{i}": draw(scope) for i in range(n_factors)}


BOXES = st.sampled_from([(0.0, 1.0), (0.0, 0.4), (0.4, 0.55)])


@dataclass(frozen=True, eq=False)
class InUnits(Sum):
    """The same sum in another unit: maximisers do not change."""

    unit: float = 1.0

    def own(self, factor: str, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = super().own(factor, X)
        return self.unit * value, self.unit * slope


@given(
    scopes=random_scopes(),
    seed=st.integers(0, 10_000),
    box=BOXES,
    n_starts=st.integers(0, 2),
    starts=st.integers(1, 3),
    screened=st.sampled_from([0, 0, 1, 2]),
    unit=st.sampled_from([1e-8, 1e-3, 1.0, 1e8]),
)
def test_however_few_points_are_screened_rounds_find_the_maximiser(
    scopes, seed, box, n_starts, starts, screened, unit
) -> None:
    """The paper's own mode is one random start and nothing screened; a unit must not decide the penalty either."""
    functions = InUnits.on_box(scopes, seed, box=box, n_starts=n_starts, unit=unit)
    few = {"starts": starts, "screened": screened, "recombination_entries": 0, "polish_steps": 0}
    agreement = ADMM(rounds=1500, tolerance=1e-6, alone_steps=200, **few).maximise(functions, seed=seed)
    np.testing.assert_allclose(agreement.point, maximiser_of(Sum.on_box(scopes, seed, box=box)), atol=1e-4)
    assert agreement.report.status == "converged"


@pytest.mark.parametrize("unit", [2.0**-90, 2.0**-50, 2.0**50])
@pytest.mark.parametrize("scopes", [CHAIN, {"f": ["x", "y"], "g": ["z"]}], ids=["one part", "two parts"])
def test_the_unit_of_outcomes_does_not_change_the_maximiser(scopes, unit) -> None:
    found = [ADMM(starts=1).maximise(InUnits.on_box(scopes, 3, unit=each), seed=0).point for each in (1.0, unit)]
    np.testing.assert_array_equal(*found)


def test_the_natural_penalty_is_proportional_to_the_unit_and_independent_of_the_level() -> None:
    values = np.random.default_rng(0).normal(size=64)
    assert natural_penalty(values, 0) == 12.0 * values.std()
    for unit in (1e-30, 1e30):
        assert natural_penalty(unit * values, 0) == pytest.approx(unit * natural_penalty(values, 0))
    assert natural_penalty(1e3 + values, 0) == pytest.approx(natural_penalty(values, 0))
    assert natural_penalty(np.append(50.0, values), 1) == natural_penalty(values, 0)  # given points don't count
    assert natural_penalty(np.append(-np.inf, values), 0) == natural_penalty(values, 0)
    same = np.append(3.0, np.zeros(16))  # a given point shows the unit if random ones are equal
    assert natural_penalty(same, 1) == 12.0 * same.std()
    for flat in (np.zeros(16), np.full(16, 0.1), np.full(16, -np.inf), np.full(1, 7.0)):
        assert natural_penalty(flat, 0) == natural_penalty(flat, 1) == 1.0


@given(scopes=random_scopes(), seed=st.integers(0, 10_000), box=BOXES)
def test_on_concave_sums_the_defaults_find_the_maximiser_with_more_polish(scopes, seed, box) -> None:
    functions = Sum.on_box(scopes, seed, box=box)
    agreement = ADMM(polish_steps=200, alone_steps=200).maximise(functions, seed=seed)
    np.testing.assert_allclose(agreement.point, maximiser_of(functions), atol=1e-4)
    assert agreement.value == pytest.approx(total_value(functions, agreement.point[None])[0], abs=1e-12)


@pytest.mark.parametrize("scopes", [CHAIN, {**CHAIN, "g": ["y"]}], ids=["one part", "one of two"])
def test_too_few_rounds_are_reported_with_residuals_that_are_too_large(scopes) -> None:
    functions = Sum.on_box(scopes, 1)
    few, many = (ADMM(rounds=rounds, tolerance=1e-4).maximise(functions).report for rounds in (2, 500))
    assert (few.status, few.rounds) == ("max_rounds", 2)
    assert max(few.primal_residual, few.dual_residual) > 1e-4
    assert many.status == "converged"
    assert max(many.primal_residual, many.dual_residual) <= 1e-4


@given(scopes=random_scopes(), seed=st.integers(0, 1000))
def test_sums_over_variables_count_each_variable_once_whoever_owns_the_factors(scopes, seed) -> None:
    functions = Sum.on_box(scopes, seed)
    entries, counted = np.random.default_rng(seed).random((3, len(functions.low))), np.zeros(3)
    for graph in functions.graph.components:
        part = Part(graph, 0, Routes(graph.agents))
        for agent in graph.agents:
            view = BoxView.on(LocalView.of(part, agent), functions.of(graph.factors_owned_by(agent)))
            counted += sum((rows.sum(axis=0) for rows in view.by_variable(entries)), np.zeros(3))
    np.testing.assert_allclose(counted, entries.sum(axis=1))


@pytest.mark.parametrize("residual", ["primal", "dual"])
def test_convergence_requires_both_residuals_to_be_small(residual) -> None:
    """A large penalty makes copies agree at once, on a point that still moves; a small one lets them stay apart."""
    method = ADMM(rounds=3, starts=1, penalty={"primal": 1e-4, "dual": 1e4}[residual], balance=1e9, tolerance=1e-2)
    report = method.maximise(Sum.on_box(CHAIN, 2)).report
    found = {"primal": report.primal_residual, "dual": report.dual_residual}
    assert found.pop(residual) > 1e-2 >= max(found.values())
    assert report.status == "max_rounds"


def textbook(functions: Sum, z: np.ndarray, rounds: int, method: ADMM, natural: float) -> np.ndarray:
    """Boyd et al. 2011, eqs. (7.3) to (7.5) and (3.13), for quadratics far from the bounds, with exact maximisation."""
    graph, side = functions.graph, float(functions.high[0] - functions.low[0])
    place = {variable: i for i, variable in enumerate(graph.variables)}
    columns = [[place[v] for v in graph.scope(f)] for f in graph.factors]
    degree = np.bincount(np.concatenate(columns))
    us, eta = [np.zeros(len(own)) for own in columns], method.penalty * natural / side**2
    for _ in range(rounds):
        xs = []
        for factor, own, u in zip(graph.factors, columns, us, strict=True):
            P, centre = functions.bowl(factor)
            pull = np.diag(eta * (degree[own] > 1))
            xs.append(np.linalg.solve(P + pull, P @ centre + pull @ (z[own] - u)))
            assume(((functions.low[own] < xs[-1]) & (xs[-1] < functions.high[own])).all())
        new = np.zeros(len(z))
        for own, x, u in zip(columns, xs, us, strict=True):
            new[own] += (x + u) / degree[own]
        us = [u + x - new[own] for own, x, u in zip(columns, xs, us, strict=True)]
        primal = np.sqrt(sum(((x - new[own]) ** 2).sum() for own, x in zip(columns, xs, strict=True)))
        moved = np.sqrt(sum(((new[own] - z[own]) ** 2).sum() for own in columns))
        dual = eta * side**2 / natural * moved
        z = new
        scale = 2.0 if primal > method.balance * dual else 0.5 if dual > method.balance * primal else 1.0
        eta, us = eta * scale, [u / scale for u in us]
    return z


@given(
    seed=st.integers(0, 10_000),
    rounds=st.integers(1, 8),
    penalty=st.sampled_from([0.1, 1.0, 10.0]),
    balance=st.sampled_from([1.5, 1e9]),
)
def test_rounds_are_those_of_the_textbook(seed, rounds, penalty, balance) -> None:
    functions = Sum.on_box(CHAIN, seed, box=(-5.0, 6.0), n_starts=1)
    plain = {"starts": 1, "tolerance": 1e-12, "recombination_entries": 0, "polish_steps": 0}
    method = ADMM(rounds=rounds, penalty=penalty, balance=balance, inner_steps=400, **plain)
    seen = drawn_starts(functions, functions.graph.variables, seed, 1, method.screened)
    natural = 12.0 * total_value(functions, seen[1:]).std()
    expected = textbook(functions, seen[0], rounds, method, natural)
    if total_value(functions, expected[None])[0] <= total_value(functions, seen[:1])[0]:
        expected = seen[0]  # the better one of start and end is handed back
    np.testing.assert_allclose(method.maximise(functions, seed=seed).point, expected, atol=1e-5)


# Functions that are not concave.


def central_searches(functions: Sum, seed: int, n: int) -> tuple[float, float]:
    """The best of n quasi-Newton climbs of the sum from random points, and the median value of those points."""

    def falling(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = 0.0, np.zeros(len(x))
        for stack in stacks_of(functions.graph):
            own, by_own = functions.value_and_gradient(stack, stack.take(x[None]), ())
            value -= float(own.sum())
            np.subtract.at(slope, stack.columns, by_own[:, 0])
        return value, slope

    starts = functions.low + np.random.default_rng(seed).random((n, len(functions.low))) * functions.high
    bounds = list(zip(functions.low, functions.high, strict=True))
    found = [minimize(falling, start, jac=True, bounds=bounds, method="L-BFGS-B").fun for start in starts]
    return -min(found), float(np.median(total_value(functions, starts)))


@pytest.mark.parametrize("scopes", [RING, pytest.param(TREE, marks=pytest.mark.slow)], ids=["ring", "tree"])
def test_on_rippled_sums_admm_is_as_good_as_forty_central_searches(scopes) -> None:
    shares = []
    for seed in range(3):
        functions = Sum.on_box(scopes, seed, ripples=0.05)
        best, median = central_searches(functions, seed, 40)
        shares.append((ADMM().maximise(functions, seed=seed).value - median) / (best - median))
    assert np.median(shares) >= 0.98


def test_runs_that_do_well_in_different_places_are_recombined() -> None:
    def median_gain(**more) -> float:
        method, sums = ADMM(rounds=3, **more), [Sum.on_box(CHAIN, seed, ripples=0.3) for seed in range(10)]
        return float(np.median([method.maximise(one, seed=one.seed).value for one in sums]))

    assert median_gain() > median_gain(recombination_entries=0) + 0.05


def test_a_factor_with_too_many_variables_for_a_table_goes_without_recombination() -> None:
    scopes = {"f": [f"x{i}" for i in range(11)], "g": ["x0", "y"]}
    functions = Sum.on_box(scopes, 3)
    method = ADMM(polish_steps=300)
    assert method.values_of(functions.graph) == 1
    np.testing.assert_allclose(method.maximise(functions).point, maximiser_of(functions), atol=1e-4)


@pytest.mark.parametrize(("size", "entries", "values"), [(2, 1024, 24), (3, 1024, 10), (4, 1024, 5), (2, 0, 1)])
def test_no_table_is_larger_than_asked_for(size, entries, values) -> None:
    graph = FactorGraph.from_scopes({"f": [f"x{i}" for i in range(size)], "g": ["x0"]})
    assert ADMM(recombination_entries=entries).values_of(graph) == values


@settings(max_examples=10, deadline=None)
@given(scopes=random_scopes(), seed=st.integers(0, 10_000), coupling=st.sampled_from([0.0, 0.5]))
def test_polish_never_lowers_the_value(scopes, seed, coupling) -> None:
    functions = Sum.on_box(scopes, seed, ripples=0.3, coupling=coupling)
    routes, more = Routes(functions.graph.agents), ADMM()
    rough = ADMM(polish_steps=0).maximise(functions, seed=seed)
    smooth = more.maximise(functions, seed=seed)
    assert smooth.value >= rough.value - 1e-12
    assert (smooth.report.polish_gain or 0.0) >= 0.0
    for index, graph in enumerate(functions.graph.components):
        part = Part(graph, index, routes)
        Z = np.random.default_rng(seed).random((6, len(functions.low)))
        point, value, before = Central(part).run(polish(BoxView.on(LocalView.of(part), functions), Z, 15))
        assert (value >= before).all()
        columns = [functions.graph.variables.index(variable) for variable in part.graph.variables]
        apart = np.setdiff1d(np.arange(len(functions.low)), columns)
        assert (point[:, apart] == Z[:, apart]).all()  # other parts are left alone


@dataclass(frozen=True, eq=False)
class Counted(Sum):
    """Records the shapes of points at which gradients are evaluated."""

    asked: list[tuple[int, ...]] = field(default_factory=list)

    def value_and_gradient(self, stack, U, received):
        self.asked.append(U.shape)
        return super().value_and_gradient(stack, U, received)


def polished(functions: Sum, Z: np.ndarray, steps: int, **more) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points after some steps, and their values after and before."""
    part = Part(functions.graph, 0, Routes(functions.graph.agents))
    return Central(part).run(polish(BoxView.on(LocalView.of(part), functions), Z, steps, **more))


def test_polish_does_not_end_because_of_the_length_of_its_first_step() -> None:
    functions = Sum.on_box(CHAIN, seed=3)

    def gain(steps: int, tolerance: float) -> float:
        _, value, before = polished(functions, np.full((1, 5), 0.5), steps, tolerance=tolerance)
        return float(value[0] - before[0])

    assert gain(100, 0.2) > 0.9 * gain(100, 1e-7) > 2.0 * gain(1, 0.2)  # the first step is 0.1 long


def test_polish_continues_from_a_worse_point_although_the_best_one_has_converged() -> None:
    functions = Sum.on_box(CHAIN, seed=3)
    high, low = polished(functions, functions.low[None], 100)[0] + 1e-5, functions.high[None]
    (alone,) = polished(functions, low, 40)[1]
    assert polished(functions, low, 10)[1][0] < alone  # ten steps are too few
    assert polished(functions, np.concatenate([high, low]), 40)[1][1] == alone


def test_polish_ends_when_four_steps_add_little_to_its_gain() -> None:
    def gain(least: float) -> tuple[float, int]:
        functions = Counted.on_box(CHAIN, seed=3)
        _, value, before = polished(functions, np.full((1, 5), 0.5), 100, least=least)
        return float(value[0] - before[0]), len(functions.asked)

    (most, all_steps), (some, steps) = gain(0.0), gain(0.01)
    assert 0.98 * most < some < most
    assert 4 < steps < all_steps / 2


def test_random_results_depend_on_the_seed_only() -> None:
    functions = Sum.on_box(RING, ripples=0.5)
    first, again, other = (ADMM(screened=0, rounds=2).maximise(functions, seed=seed).point for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != other.tobytes()


@pytest.mark.parametrize("scopes", [{"f": ["x"]}, {"f": ["x"], "g": ["x"]}], ids=["alone", "together"])
def test_suggested_points_are_starts_even_if_random_ones_have_higher_values(scopes) -> None:
    class TwoHills(Sum):
        def own(self, factor, X):
            hills = [(1.0, 0.2), (0.5, 0.8)]
            D = [(height, X - place, height * np.exp(-50.0 * (X - place) ** 2)) for height, place in hills]
            return sum(e for _, _, e in D).sum(-1), -100.0 * sum(d * e for _, d, e in D)

    graph = FactorGraph.from_scopes(scopes)
    functions = TwoHills(graph, np.zeros(1), np.ones(1), np.array([[0.7]]))
    few = ADMM(starts=1).maximise(functions)
    assert few.point[0] == pytest.approx(0.8, abs=1e-3)
    assert ADMM(starts=2).maximise(functions).point[0] == pytest.approx(0.2, abs=1e-3)


@pytest.mark.parametrize("method", [ADMM(), ADMM(starts=1, screened=0), RefinedMaxSum()])
def test_a_constant_sum_keeps_the_first_start_and_a_box_without_sides_gives_its_corner(method) -> None:
    class Flat(Sum):
        def own(self, factor, X):
            return np.zeros(X.shape[:-1]), np.zeros_like(X)

    agreement = method.maximise(Flat(FactorGraph.from_scopes(CHAIN), np.zeros(5), np.ones(5), np.full((1, 5), 0.125)))
    assert (agreement.point.tolist(), agreement.report.status) == ([0.125] * 5, "converged")
    agreement = method.maximise(Sum.on_box(CHAIN, box=(0.25, 0.25)))
    assert (agreement.point.tolist(), agreement.report.status) == ([0.25] * 5, "converged")


# Agents.

FEW: dict[str, int] = {"rounds": 3, "starts": 3, "screened": 8, "polish_steps": 4, "alone_steps": 5}


@pytest.mark.parametrize(
    ("scopes", "n_agents"),  # none stated: an agent for each variable
    [
        *((CHAIN, 1), (RING, None), (TREE, 2), (DISJOINT, None)),
        *(pytest.param(scopes, 2, marks=pytest.mark.slow) for scopes in (CHAIN, RING, DISJOINT)),
        *(pytest.param(scopes, None, marks=pytest.mark.slow) for scopes in (CHAIN, TREE)),
    ],
)
def test_agents_do_what_the_fast_path_does(scopes, n_agents) -> None:
    owners = None
    if n_agents:
        named = {"owners": list(scopes), "variable_owners": sorted({x for scope in scopes.values() for x in scope})}
        owners = {kind: {one: f"agent_{n % n_agents}" for n, one in enumerate(ones)} for kind, ones in named.items()}
    check_agents(Sum.on_box(scopes, 5, owners=owners, ripples=0.3, coupling=0.5), ADMM())


@pytest.mark.parametrize(
    "scopes", [CHAIN, DISJOINT, pytest.param(RING, marks=pytest.mark.slow)], ids=["chain", "disjoint", "ring"]
)
def test_agents_of_large_parts_do_what_the_fast_path_does(scopes, monkeypatch) -> None:
    monkeypatch.setattr(admm, "_MANY", 2)
    for n_starts, entries in ((0, 1024), (2, 32)):  # with so few entries factors of three variables go without tables
        functions = Sum.on_box(scopes, 5, ripples=0.3, coupling=0.5, n_starts=n_starts)
        check_agents(functions, ADMM(**FEW, recombination_entries=entries))


def test_owners_of_disjoint_factors_send_nothing() -> None:
    own = {x: f for f, scope in DISJOINT.items() for x in scope}
    owners = {"owners": {f: f for f in DISJOINT}, "variable_owners": own}
    report = check_agents(Sum.on_box(DISJOINT, 1, owners=owners), ADMM())
    assert (report.messages, report.rounds, report.status) == (0, 0, "converged")


def test_parts_do_not_depend_on_one_another() -> None:
    both = {**CHAIN, "g": ["y", "z"], "h": ["z"]}
    one, two = Sum.on_box(CHAIN, 4, ripples=0.3), Sum.on_box(both, 4, ripples=0.3)
    assert ADMM().maximise(two, seed=1).point[:5].tobytes() == ADMM().maximise(one, seed=1).point.tobytes()


# What is refused.


def test_a_function_with_nan_values_is_refused() -> None:
    class Broken(Sum):
        def own(self, factor, X):
            value, slope = super().own(factor, X)
            return np.full_like(value, np.nan), slope

    graph = FactorGraph.from_scopes(CHAIN)
    with pytest.raises(ShapeError, match="'f0'"):
        ADMM().maximise(Broken(graph, np.zeros(5), np.ones(5), np.zeros((0, 5))))


@pytest.mark.parametrize("scopes", [CHAIN, {"f": ["x0", "x1"]}])
def test_a_choice_without_a_value_loses_to_others(scopes) -> None:
    class Partial(Sum):
        def own(self, factor, X):
            high = X > 0.5  # constant around each level
            bad = high[..., 0] & (self.graph.factors[0] == factor)
            return np.where(bad, np.nan, high.sum(axis=-1)), np.zeros_like(X)

    variables = FactorGraph.from_scopes(scopes).variables
    found = ADMM().maximise(Partial.on_box(scopes, levels=dict.fromkeys(variables, np.array([0.25, 0.75]))))
    assert found.point.tolist() == [0.25] + [0.75] * (len(variables) - 1)


def test_with_a_grid_variable_recombination_entries_have_no_effect() -> None:
    functions = Sum.on_box(CHAIN, 3, levels={"x1": np.array([0.25, 0.75])})
    few = {"rounds": 2, "starts": 3, "screened": 8, "polish_steps": 2}
    found = [ADMM(**few, recombination_entries=n).maximise(functions, seed=1) for n in (0, 1024)]
    assert found[0].point.tobytes() == found[1].point.tobytes()
    assert found[0].report == found[1].report


@pytest.mark.parametrize("coupling", [0.0, 0.3])
def test_a_round_reuses_the_evaluation_at_the_end_of_the_last_one(coupling):
    """Except with coupling, where messages from neighbours change what a factor maximises."""
    rounds, steps, functions = 5, 3, Counted.on_box(CHAIN, seed=3, coupling=coupling)
    method = ADMM(rounds=rounds, inner_steps=steps, tolerance=1e-12, polish_steps=0, recombination_entries=0)
    method.maximise(functions)
    in_rounds = [shape for shape in functions.asked if shape[1] == method.starts]  # not the final points
    assert len(in_rounds) == (rounds * (1 + steps) if coupling else 1 + rounds * steps)


def test_climbs_are_half_as_long_in_parts_of_128_factors_and_more() -> None:
    few = {"starts": 1, "screened": 0, "recombination_entries": 0, "polish_steps": 0, "tolerance": 1e-12}
    for n_factors, n_steps in ((127, 3), (128, 2)):
        functions = Counted.on_box({f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(n_factors)})
        ADMM(rounds=2, inner_steps=3, **few).maximise(functions)
        # the second round starts where the first one ended; the result is evaluated once more
        assert [shape[0] for shape in functions.asked] == [n_factors] * (1 + 2 * n_steps + 1)


@pytest.mark.thorough
def test_large_parts_find_the_maximiser_too() -> None:
    functions = Sum.on_box({f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(128)}, seed=3)
    best = maximiser_of(functions)
    agreement = ADMM(rounds=300, starts=1, screened=0, recombination_entries=0).maximise(functions)
    np.testing.assert_allclose(agreement.point, best, atol=3e-3)


def test_large_parts_of_small_factors_are_as_good_as_the_best_of_a_fine_grid() -> None:
    n, m = 128, 49
    functions = Sum.on_box({f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(n)}, seed=4, ripples=0.1, n_starts=1)
    agreement = ADMM().maximise(functions)
    (stack,), grid = stacks_of(functions.graph), np.linspace(0.0, 1.0, m)
    U = np.broadcast_to(np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1).reshape(-1, 2), (n, m * m, 2))
    best = np.zeros(m)  # of all earlier factors, per value of the shared variable
    for table in functions.value(stack, U, ()).reshape(n, m, m):
        best = (best[:, None] + table).max(axis=0)
    start = float(total_value(functions, functions.starts)[0])
    assert agreement.value - start > 0.999 * (best.max() - start)


def test_large_parts_evaluate_no_random_joint_points(monkeypatch) -> None:
    monkeypatch.setattr(admm, "_MANY", 2)
    asked = list[int]()

    class Looked(Sum):
        def value(self, stack, U, received):
            asked.append(U.shape[1])
            return super().value(stack, U, received)

    report = ADMM(screened=256).maximise(Looked.on_box(CHAIN, n_starts=1)).report
    assert asked[0] == MOST**2  # a table for recombination
    assert max(asked) == MOST**2
    assert (report.rounds, report.primal_residual, report.status) == (0, None, "converged")
