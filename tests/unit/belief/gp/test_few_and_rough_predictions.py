"""Posteriors of many factors at one point each, and roughly at hundreds, held to those of eight points at once."""

import numpy as np
import pytest

from swarmbo.acquisition.confidence_bounds import ContrastBounds
from swarmbo.belief import AdditiveGP
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.kernels import KERNEL_NAMES, correlation
from swarmbo.kernels.compiled import CODES, rough_radial

SCOPES = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c"], "o": ["c", "a"], "p": ["a", "b", "c"]}
TOLERANCES = (("mean", 1e-11, 1e-12), ("var", 1e-9, 1e-12), ("dmean", 1e-9, 1e-10), ("dvar", 1e-9, 1e-10))
GRAPH = FactorGraph.from_scopes(SCOPES)


def belief_of(noise_variance: float = 1e-3, t: int = 21) -> AdditiveGP:
    kernels = dict(zip(GRAPH.factors, [*KERNEL_NAMES, "rbf"], strict=True))
    rng = np.random.default_rng(5)
    X, F = rng.random((t, 3)), rng.normal(size=(t, 5))
    F[rng.random(F.shape) < 0.2] = np.nan
    belief = AdditiveGP(GRAPH, kernel=kernels, noise_variance=noise_variance, outputscale=2.0, outcomes="per-factor")
    return belief.update(X, F)


def points_of(stack, m: int) -> np.ndarray:
    return np.random.default_rng(m).random((len(stack.factors), m, stack.size))


@pytest.mark.parametrize("m", [1, 2])
def test_at_one_point_or_two_it_is_what_it_is_among_eight(m):
    belief, reference = belief_of(), np.array([0.2, 0.9, 0.4])
    for stack in stacks_of(GRAPH):
        U = points_of(stack, 5)
        for ask in (belief.local, lambda *args, **more: belief.local_contrast(*args, reference, **more)):
            many, few = ask(stack, U, gradient=True), ask(stack, U[:, :m].copy(), gradient=True)
            alone = ask(stack, U[:, :m].copy())
            for name, rtol, atol in TOLERANCES:
                np.testing.assert_allclose(getattr(few, name), getattr(many, name)[:, :m], rtol=rtol, atol=atol)
            np.testing.assert_array_equal(alone.var, few.var)
        np.testing.assert_allclose(belief.local_mean(stack, U[:, :1]), belief.local_mean(stack, U)[:, :1], rtol=1e-11)


@pytest.mark.parametrize("m", [1, 16, 37])
def test_roughly_it_is_right_to_three_digits_of_the_prior(m):
    belief, reference = belief_of(), np.array([0.2, 0.9, 0.4])
    for stack in stacks_of(GRAPH):
        U = points_of(stack, m)
        right, rough = (belief.local_contrast(stack, U, reference, rough=rough) for rough in (False, True))
        np.testing.assert_allclose(rough.mean, right.mean, atol=2e-3)
        np.testing.assert_allclose(np.sqrt(rough.var), np.sqrt(right.var), atol=2e-3)
        assert (rough.mean != right.mean).any()


def test_what_single_precision_would_spoil_is_worked_out_in_double():
    belief, reference = belief_of(noise_variance=1e-13, t=31), np.array([0.2, 0.9, 0.4])
    spoilt = 0
    for stack in stacks_of(GRAPH):
        U = points_of(stack, 37)
        right, rough = (belief.local_contrast(stack, U, reference, rough=rough) for rough in (False, True))
        is_same = (rough.var == right.var).all(axis=1)
        spoilt += int(is_same.sum())
        np.testing.assert_array_equal(rough.mean[is_same], right.mean[is_same])
        np.testing.assert_allclose(np.sqrt(rough.var), np.sqrt(right.var), atol=2e-2)
    assert 0 < spoilt < 5  # of the kernels that are smooth


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_correlations_in_single_precision(kernel):
    r = np.concatenate([[0.0], np.geomspace(1e-4, 40.0, 999)])
    near = np.zeros(1000, dtype=np.float32)
    rough_radial(CODES[kernel], (r**2).astype(np.float32), near)
    np.testing.assert_allclose(near, correlation(kernel, r), rtol=2e-5, atol=1e-30)


def test_tables_ask_bounds_roughly_and_others_as_ever():
    from swarmbo.coordination.central import Central
    from swarmbo.coordination.part import BoxView, LocalView, Part
    from swarmbo.coordination.refinement import narrowed
    from swarmbo.transport import Routes

    asked = list[str]()

    class Noting(ContrastBounds):
        def value(self, stack, U, received):
            asked.append("value")
            return super().value(stack, U, received)

        def rough_value(self, stack, U, received):
            asked.append("rough")
            return super().rough_value(stack, U, received)

    bounds = Noting.on_cube(belief_of(), reference=np.full(3, 0.5), weight=1.0)
    part = Part(GRAPH, 0, Routes(GRAPH.agents, None))
    view = BoxView.on(LocalView.of(part), bounds)
    Central(part).run(narrowed(view, 0, 7))
    assert set(asked) == {"rough"}
    (stack, *_) = stacks_of(GRAPH)
    U = points_of(stack, 9)
    np.testing.assert_allclose(bounds.rough_value(stack, U, ()), bounds.value(stack, U, ()), atol=2e-3)
