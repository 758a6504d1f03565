"""Posteriors of single factors: gradients, and independence of other factors."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief import AdditiveGP
from swarmbo.belief.gp import additive_prediction, stack as stacks, stack_fit, stack_predict
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.kernels import KERNEL_NAMES, threads

from .dense import MINE, with_own

SMOOTH = [name for name in KERNEL_NAMES if name != "matern12"] + [MINE]
SCOPES = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "a"], "o": ["d"], "p": ["b"]}
GRAPH = FactorGraph.from_scopes(SCOPES)
BOUNDS = {"a": (-2.0, 3.0), "b": (0.0, 10.0), "c": (5.0, 5.5), "d": (-1.0, 1.0)}


def belief_of(outcomes, kernels=("matern52",) * 5):
    rng = np.random.default_rng(0)
    lengths = {variable: 0.4 * (high - low) for variable, (low, high) in BOUNDS.items()}
    belief = AdditiveGP(GRAPH, BOUNDS, outcomes=outcomes, lengthscale=lengths, noise_variance=1e-2)
    belief = with_own(belief, kernels=tuple(kernels), outputscales=(0.3, 2.0, 1.0, 5.0, 0.7))
    X, factors = belief.domain.from_unit(rng.random((25, 4))), rng.normal(size=(25, 5)) * 3.0
    if outcomes == "total":
        return belief.update(X, factors.sum(axis=1))
    factors[rng.random(factors.shape) < 0.3] = np.nan
    return belief.update(X, factors)


def central_differences(f, U, step=1e-6):
    """Derivatives of f(U) -> (g, m) with respect to the last axis of U (g, m, a)."""
    steps = step * np.eye(U.shape[-1])
    return np.stack([(f(U + ahead) - f(U - ahead)) / (2.0 * step) for ahead in steps], axis=-1)


@pytest.mark.parametrize("is_contrast", [False, True])
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
@pytest.mark.parametrize(
    "kernels", [*([kernel] * 5 for kernel in SMOOTH), ["rbf", "matern32", "matern52", "rbf", "rbf"]]
)
def test_gradients_of_factors_and_contrasts_equal_finite_differences(outcomes, kernels, is_contrast):
    belief, rng = belief_of(outcomes, kernels), np.random.default_rng(1)
    reference = rng.random(4)

    def ask(stack, U, **more):
        return belief.local_contrast(stack, U, reference, **more) if is_contrast else belief.local(stack, U, **more)

    for stack, m in product(stacks_of(GRAPH), (1, 7)):  # single points have code of their own
        U = rng.random((len(stack.factors), m, stack.size))
        found, plain = ask(stack, U, gradient=True), ask(stack, U)
        np.testing.assert_allclose(plain.mean, found.mean, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(plain.var, found.var, rtol=1e-11)
        for name, derivative in (("mean", found.dmean), ("var", found.dvar)):
            expected = central_differences(lambda V, stack=stack, name=name: getattr(ask(stack, V), name), U)
            np.testing.assert_allclose(derivative, expected, rtol=1e-5, atol=1e-6)


def test_a_contrast_with_itself_is_certain_and_zero():
    belief = belief_of("total")
    reference = np.random.default_rng(1).random(4)
    for stack in stacks_of(GRAPH):
        found = belief.local_contrast(stack, stack.take(reference[None]), reference, gradient=True)
        np.testing.assert_allclose(found.mean, 0.0, atol=1e-12)
        np.testing.assert_allclose(found.var, 0.0, atol=1e-14)
        np.testing.assert_allclose(found.dvar, 0.0, atol=1e-12)
        assert np.abs(found.dmean).max() > 0.0


@given(
    outcomes=st.sampled_from(["total", "per-factor"]),
    kernels=st.lists(st.sampled_from(KERNEL_NAMES), min_size=5, max_size=5),
    subset=st.sets(st.sampled_from(GRAPH.factors), min_size=1),
    m=st.integers(1, 9),
)
def test_results_of_a_factor_are_bit_identical_whatever_else_is_in_its_stack(outcomes, kernels, subset, m):
    belief = belief_of(outcomes, kernels)
    rng = np.random.default_rng(2)
    reference, points = rng.random(4), {factor: rng.random((m, len(SCOPES[factor]))) for factor in GRAPH.factors}

    def everything(factors):
        out = {}
        sample = belief.sample({f: np.random.default_rng(3) for f in GRAPH.factors}, np.random.default_rng(4), 32)
        for stack in stacks_of(GRAPH, factors):
            U = np.array([points[factor] for factor in stack.factors])
            own = [
                belief.local(stack, U, gradient=True),
                belief.local(stack, U),
                belief.local_contrast(stack, U, reference, gradient=True),
            ]
            arrays = [array for part in own for array in vars(part).values() if array is not None]
            arrays += [sample.value(stack, U), *sample.value_and_gradient(stack, U)]
            out |= {factor: [array[g].tobytes() for array in arrays] for g, factor in enumerate(stack.factors)}
        return out

    together = everything(GRAPH.factors)
    for factor, alone in everything(subset).items():
        assert alone == together[factor]


def test_results_of_a_factor_are_bit_identical_however_often_others_were_observed():
    """An agent knows the outcomes of its own factors only, its team those of all factors."""
    rng = np.random.default_rng(0)
    X, F = rng.random((29, 4)), rng.normal(size=(29, 5))
    F[21:, 1] = np.nan
    own = np.full_like(F, np.nan)
    own[:, 1] = F[:, 1]
    (stack,), U = stacks_of(GRAPH, ["g"]), rng.random((1, 6, 2))
    found = [AdditiveGP(GRAPH, outcomes="per-factor").update(X, factors=factors) for factors in (F, own)]
    together, alone = (belief.local(stack, U, gradient=True) for belief in found)
    for one, other in zip(vars(together).values(), vars(alone).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_cusped_kernels_keep_close_points_apart():
    belief = AdditiveGP(FactorGraph.from_scopes({"f": ["a"]}), kernel="matern12", noise_variance=0.0)
    belief = belief.update([[0.5]], [1.0])
    (stack,) = stacks_of(belief.graph)
    U = 0.5 + np.array([[[0.0], [1e-9], [1e-6]]])
    np.testing.assert_allclose(belief.local(stack, U).mean[0], np.exp(-(U[0, :, 0] - 0.5) / 0.3), rtol=1e-12)


def test_results_are_bit_identical_for_any_number_of_threads(monkeypatch):
    """Results are posteriors, draws from them, and fits."""
    monkeypatch.setattr(threads, "_FEWEST", 1)
    rng, shares = np.random.default_rng(7), list[slice]()
    U, reference = rng.random((2, 6, 2)), rng.random(4)

    def noted(n_rows, work, in_threads=threads.in_threads):
        in_threads(n_rows, lambda rows: (shares.append(rows), work(rows))[1])

    for module in (stack_predict, stack_fit, additive_prediction, stacks):
        monkeypatch.setattr(module, "in_threads", noted)

    def everything(n_threads):
        monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
        belief = belief_of("per-factor")
        (stack,) = stacks_of(GRAPH, ["f", "g"])
        sample = belief.sample({f: np.random.default_rng(i) for i, f in enumerate(GRAPH.factors)}, rng)
        found = belief.local_contrast(stack, U, reference, gradient=True)
        fitted = belief.fit(np.random.default_rng(0)).hyperparameters
        arrays = [found.mean, found.var, found.dmean, found.dvar, *sample.value_and_gradient(stack, U)]
        return [array.tobytes() for array in arrays], fitted

    alone, n_alone = everything(1), len(shares)
    assert everything(2) == alone
    assert len(shares) > 2 * n_alone  # two threads share the work
