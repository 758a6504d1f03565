"""Max-sum with refinement: convergence, values that never fall, and equality of agents and the fast path."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.coordination import exact
from swarmbo.coordination.methods.refined import RefinedMaxSum
from swarmbo.errors import BudgetError
from swarmbo.graph import FactorGraph
from swarmbo.graph.box_functions import total_value

from .example_sums import CHAIN, DISJOINT, RING, TREE, Quadratics, check_agents, maximiser_of

FORESTS = [CHAIN, TREE, DISJOINT, {"f": ["x"]}]


@dataclass(frozen=True, eq=False)
class Bowls(Quadratics):
    """Quadratics with centres in the box."""

    steepness: float | None = 10.0


def maximum_of(functions: Bowls) -> float:
    return float(total_value(functions, maximiser_of(functions)[None])[0])


@settings(max_examples=12, deadline=None)
@given(
    scopes=st.sampled_from(FORESTS),
    seed=st.integers(0, 10_000),
    n_starts=st.integers(0, 2),
    steepness=st.sampled_from([1.0, 10.0, 300.0]),
    box=st.sampled_from([(0.0, 1.0), (0.0, 0.4), (0.37, 0.52)]),
)
def test_on_concave_sums_over_forests_it_converges_to_the_maximum(scopes, seed, n_starts, steepness, box) -> None:
    functions = Bowls.on_box(scopes, seed, n_starts=n_starts, box=box, steepness=steepness)
    agreement = RefinedMaxSum(levels=400).maximise(functions)
    assert agreement.report.status == "converged"
    assert agreement.value >= maximum_of(functions) - 1e-7
    assert (agreement.point >= functions.low).all()
    assert (agreement.point <= functions.high).all()
    assert agreement.value == pytest.approx(total_value(functions, agreement.point[None])[0], abs=1e-12)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
@pytest.mark.parametrize("box", [(0.0, 1.0), (-1.0, 3.0)])
def test_converged_means_that_the_last_lattice_is_finer_than_the_tolerance(tolerance, box) -> None:
    for seed in range(10):
        functions = Bowls.on_box({"f": ["x"]}, seed, box=box)
        agreement = RefinedMaxSum(tolerance=tolerance).maximise(functions)
        assert agreement.report.status == "converged"
        side = box[1] - box[0]
        assert abs(agreement.point[0] - functions.bowl("f")[1][0]) <= 0.5 * tolerance * side + 1e-12


def test_a_lattice_is_finer_by_the_same_factor_each_time_and_windows_cover_the_cell_before() -> None:
    functions = Bowls.on_box({"f": ["x", "y"]}, box=(-1.0, 3.0))
    grids = RefinedMaxSum(points=5, refinement=4).grids(functions.graph, functions)
    x = np.array([0.7, 1.1])
    for depth in range(1, 5):
        grid = np.sort(grids.at(depth, x), axis=1)
        np.testing.assert_allclose(np.diff(grid, axis=1), 1.0 / 4**depth)
        np.testing.assert_allclose(grid[:, [0, -1]] - x[:, None], [[-(4.0 ** (1 - depth)), 4.0 ** (1 - depth)]] * 2)


@pytest.mark.parametrize("seed", range(5))
def test_on_these_concave_sums_over_loops_it_finds_the_maximum(seed) -> None:
    functions = Bowls.on_box(RING, seed)
    assert RefinedMaxSum().maximise(functions).value >= maximum_of(functions) - 1e-6


@pytest.mark.thorough
def test_a_narrow_ridge_is_followed_by_windows_that_move() -> None:
    functions = Bowls.on_box({"f": ["x", "y"]}, 3, steepness=1e4)
    patient = RefinedMaxSum(points=5, refinement=8, levels=4000, tolerance=1e-8).maximise(functions)
    assert patient.report.status == "converged"
    assert patient.value >= maximum_of(functions) - 1e-7
    hasty = RefinedMaxSum(points=5, refinement=8, levels=10).maximise(functions)
    assert hasty.report.status == "max_rounds"
    assert hasty.value < patient.value - 1e-6


def coarse_optimum(functions: Bowls, points: int) -> float:
    """The best point of the first level's lattice, by exact elimination."""
    graph, lattice = functions.graph, np.linspace(0.0, 1.0, points)
    tables = {}
    for factor in graph.factors:
        size = len(graph.scope(factor))
        mesh = np.stack(np.meshgrid(*[lattice] * size, indexing="ij"), axis=-1).reshape(-1, size)
        tables[factor] = functions.own(factor, mesh)[0].reshape((points,) * size)
    return exact(graph, tables).value


@given(scopes=st.sampled_from(FORESTS), seed=st.integers(0, 10_000), points=st.integers(3, 12))
def test_on_rippled_functions_it_is_never_worse_than_the_coarse_grid_or_any_start(scopes, seed, points) -> None:
    functions = Bowls.on_box(scopes, seed, n_starts=2, ripples=0.7)
    agreement = RefinedMaxSum(points=points).maximise(functions)
    assert agreement.value >= coarse_optimum(functions, points) - 1e-12
    assert agreement.value >= total_value(functions, functions.starts).max() - 1e-12


def test_a_finer_first_level_finds_higher_ripples() -> None:
    sums = [Bowls.on_box(CHAIN, seed, ripples=1.5) for seed in range(10)]
    coarse, fine = (RefinedMaxSum(points=points, refinement=2) for points in (3, 33))
    gains = np.array([fine.maximise(one).value - coarse.maximise(one).value for one in sums])
    assert gains.max() > 0.1
    assert gains.min() > -1e-9


def test_the_best_coordinates_of_several_starts_are_put_together() -> None:
    """Two starts, each with one part on its narrow peak: only their recombination has both."""

    class Peaks(Bowls):
        def own(self, factor, X):
            centre = self.bowl(factor)[1]
            return np.exp(-1e6 * ((X - centre) ** 2).sum(axis=-1)), np.zeros_like(X)

    graph = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["c", "d"]})
    peaks = Peaks(graph, np.zeros(4), np.ones(4), np.zeros((0, 4)))
    f, g = peaks.bowl("f")[1], peaks.bowl("g")[1]
    starts = np.array([[*f, 0.01, 0.01], [0.01, 0.01, *g]])
    assert RefinedMaxSum(points=5).maximise(replace(peaks, starts=starts)).value == pytest.approx(2.0)


@settings(max_examples=10, deadline=None)
@given(scopes=st.sampled_from([CHAIN, RING, TREE]), seed=st.integers(0, 1000))
def test_functions_that_depend_on_their_neighbours_end_no_worse_than_they_start(scopes, seed) -> None:
    functions = Bowls.on_box(scopes, seed, n_starts=1, coupling=0.5)
    agreement = RefinedMaxSum().maximise(functions)
    assert agreement.value >= total_value(functions, functions.starts)[0]
    assert agreement.value == pytest.approx(total_value(functions, agreement.point[None])[0], abs=1e-12)
    assert agreement.report.status == "converged"


# Agents.


def owned(of_factors: str, of_variables: str) -> dict[str, dict[str, str]]:
    """Owners of the tree's factors and variables."""
    of = zip(("owners", "variable_owners"), ("abcd", "xyzuvwq"), (of_factors, of_variables), strict=True)
    return {kind: dict(zip(ones, owners, strict=True)) for kind, ones, owners in of}


TEAMS = {
    "one agent per variable": None,
    "two agents": owned("mnmn", "mnmnmnm"),
    "separate owners of factors and variables": owned("tttt", "1234567"),
    "one agent": owned("tttt", "ttttttt"),
}


@pytest.mark.parametrize(
    ("team", "coupling"),
    [
        pytest.param(team, coupling, marks=[] if n % 2 == is_coupled else pytest.mark.slow)
        for n, team in enumerate(TEAMS)
        for is_coupled, coupling in enumerate((0.0, 0.5))
    ],
)
def test_agents_on_a_forest_do_what_the_fast_path_does(team, coupling) -> None:
    functions = Bowls.on_box(TREE, 1, owners=TEAMS[team], n_starts=2, ripples=0.5, coupling=coupling)
    check_agents(functions, RefinedMaxSum())


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 1000), coupling=st.sampled_from([0.0, 0.5]), n_agents=st.integers(1, 5))
def test_agents_on_loops_do_what_the_fast_path_does(seed, coupling, n_agents) -> None:
    rng = np.random.default_rng(seed)
    owners = {
        "owners": {f"f{i}": f"agent_{rng.integers(n_agents)}" for i in range(5)},
        "variable_owners": {f"x{i}": f"agent_{rng.integers(n_agents)}" for i in range(5)},
    }
    functions = Bowls.on_box(RING, seed, owners=owners, n_starts=1, ripples=0.5, coupling=coupling)
    check_agents(functions, RefinedMaxSum(rounds=8))


def test_the_result_does_not_depend_on_what_agents_own() -> None:
    found = [RefinedMaxSum().maximise(Bowls.on_box(TREE, 4, owners=owners, ripples=0.5)) for owners in TEAMS.values()]
    assert len({agreement.point.tobytes() for agreement in found}) == 1


# What is refused.


def test_a_factor_of_too_many_variables_is_refused_with_the_entries_that_it_needs() -> None:
    with pytest.raises(BudgetError, match=r"'f' has 9 variables: with 4 values each.* 262144 entries.*16384.*admm"):
        RefinedMaxSum().maximise(Bowls.on_box({"f": [f"x{i}" for i in range(9)]}))
