"""Local functions over typed variables: slopes, cells, and decisions against brute force."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.acquisition.box_functions import MixedFunctions
from swarmbo.coordination.agreement import Agreement
from swarmbo.graph import FactorGraph, stacks_of

CHAIN = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"]}
LOOP = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "a"]}
DISCRETE: dict[str, Any] = {
    "a": sb.Categorical(["r", "g", "b", "y"]),
    "b": sb.Integer(1, 5),
    "c": sb.Categorical([1, 6, 11]),
    "d": sb.Categorical(["low", "middle", "high"], ordered=True),
}
MIXED = {**DISCRETE, "b": sb.Real(0.01, 1.0, log=True), "d": (0.0, 2.0)}


class Watched:
    """A user's own coordination: it records the functions and the agreements of another method."""

    def __init__(self, method: Any) -> None:
        self.method, self.functions, self.agreement = method, list[Any](), list[Agreement]()

    def maximise(self, functions: Any, links: Any = None, seed: int = 0) -> Agreement:
        self.functions.append(functions)
        self.agreement.append(self.method.maximise(functions, links, seed))
        return self.agreement[-1]


def decided(
    types: dict[str, Any], scopes: dict[str, list[str]], acquisition: str, rounds: int = 3, method: Any = None
) -> Iterator[tuple[MixedFunctions, Agreement]]:
    """Functions of some decisions, and the agreements on them."""
    graph = FactorGraph.from_scopes(scopes)
    watched = Watched(method or sb.ADMM(rounds=3, starts=3, screened=16))
    problem = sb.Problem.of(graph, {v: types[v] for v in graph.variables}, outcomes="per-factor")
    team = sb.Team(problem, acquisition=acquisition, coordination=watched, seed=1, initial=5)
    for _ in range(5 + rounds):
        query = team.ask()
        u = problem.domain.to_unit(problem.placed(query.point))
        team.tell(query, {f: float(np.sin(4.0 * u[problem.columns(f)] + i).sum()) for i, f in enumerate(graph.factors)})
    yield from zip(watched.functions, watched.agreement, strict=True)


def total(functions: Any, X: np.ndarray) -> np.ndarray:
    """Sum of all factors at joint points, without exchanges."""
    assert functions.n_exchanges == 0
    return sum(functions.value(stack, stack.take(X), ()).sum(axis=0) for stack in stacks_of(functions.graph))  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("acquisition", ["dec-hbo", "expected-improvement", "thompson"])
def test_slopes_are_those_of_finite_differences_and_zero_along_grids(acquisition: str):
    for functions, _ in decided(MIXED, CHAIN, acquisition, 1):
        assert isinstance(functions, MixedFunctions)
        domain, rng, step = functions.coding.domain, np.random.default_rng(0), 1e-6
        for stack in stacks_of(functions.graph):
            U = rng.uniform(0.05, 0.95, (len(stack.factors), 7, stack.size))
            got = tuple(np.zeros(U.shape[:2]) for _ in range(functions.n_exchanges))
            _, slopes = functions.value_and_gradient(stack, U, got)
            for axis in range(stack.size):
                ahead, behind = U.copy(), U.copy()
                ahead[..., axis] += step
                behind[..., axis] -= step
                ends = [functions.value_and_gradient(stack, X, got)[0] for X in (ahead, behind)]
                is_grid = domain.steps[stack.columns[:, axis]] > 0.0
                numeric = np.where(is_grid[:, None], 0.0, (ends[0] - ends[1]) / (2.0 * step))
                np.testing.assert_allclose(
                    slopes[..., axis], numeric, rtol=2e-3, atol=1e-4 * (1 + np.abs(slopes).max())
                )


def test_ordered_values_and_integers_have_no_slope_although_a_model_reads_them_as_numbers():
    scopes = {"f": ["a", "b", "d"]}
    for functions, _ in decided({**DISCRETE, "a": (0.0, 1.0)}, scopes, "dec-hbo", rounds=1):
        (stack,) = stacks_of(functions.graph)
        U = np.random.default_rng(0).random((1, 20, 3))
        slope = functions.value_and_gradient(stack, U, ())[1]
        assert (slope[0, :, 0] != 0.0).all()
        assert (slope[0, :, 1:] == 0.0).all()


def test_functions_are_constant_in_a_cell_and_limits_of_choices_are_the_whole_axis():
    for functions, _ in decided(MIXED, CHAIN, "dec-hbo", 1):
        domain, X = functions.coding.domain, np.random.default_rng(1).random((40, 4))
        np.testing.assert_array_equal(total(functions, X), total(functions, domain.snapped(X)))
        is_choice = functions.coding.is_choice
        np.testing.assert_array_equal([functions.low[is_choice], functions.high[is_choice]], [[0.0] * 2, [1.0] * 2])


def test_a_trust_region_limits_numbers_and_no_choices():
    functions, _ = next(decided(DISCRETE | {"b": (0.0, 1.0)}, CHAIN, "dec-hbo", 1))
    (inner,), is_choice = functions.others, functions.coding.is_choice
    narrow = replace(inner, low=np.full(len(inner.low), 0.4), high=np.full(len(inner.low), 0.6))
    found = MixedFunctions.around(narrow, functions.coding)
    np.testing.assert_array_equal(found.low, np.where(is_choice, 0.0, 0.4))
    np.testing.assert_array_equal(found.high, np.where(is_choice, 1.0, 0.6))


def every_point(functions: MixedFunctions) -> np.ndarray:
    return np.array(list(product(*(functions.levels[variable] for variable in functions.graph.variables))))


def allowed(functions: MixedFunctions, X: np.ndarray) -> np.ndarray:
    return X[((functions.low - 1e-9 <= X) & (functions.high + 1e-9 >= X)).all(axis=1)]


@pytest.mark.parametrize("acquisition", ["dec-hbo", "thompson"])
def test_on_a_forest_of_discrete_variables_the_decision_is_the_best_of_all_points(acquisition: str):
    for functions, agreement in decided(DISCRETE, CHAIN, acquisition):
        best = total(functions, allowed(functions, every_point(functions))).max()
        assert total(functions, agreement.point[None])[0] == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("types", [DISCRETE, MIXED], ids=["choices", "mixed"])
def test_on_a_loop_the_decision_is_never_worse_than_its_starts(types: dict[str, Any]):
    for functions, agreement in decided(types, LOOP, "dec-hbo"):
        reached = total(functions, agreement.point[None])[0]
        assert reached >= total(functions, functions.starts).max() - 1e-9
        if types is DISCRETE:
            values = total(functions, allowed(functions, every_point(functions)))
            assert reached >= np.quantile(values, 0.95)
