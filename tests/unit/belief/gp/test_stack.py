"""Posteriors of many separately observed factors, from rows of L⁻¹ only, compared with NumPy and SciPy."""

import pickle

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief import AdditiveGP
from swarmbo.belief.gp.cholesky import ROWS, Factorised
from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.gp.observations import Observations, factor_covariance
from swarmbo.belief.gp.stack import StackedParts
from swarmbo.graph import FactorGraph, stacks_of
from swarmbo.kernels import KERNEL_NAMES

from .dense import MINE, with_own

SCOPES = {"f": ["a", "b"], "g": ["b", "c"], "h": ["c"], "o": ["c", "a"], "p": ["a", "b", "c"]}
GRAPH = FactorGraph.from_scopes(SCOPES)


def belief_of(noise_variance: float = 1e-2, last: str = "rbf", time: TimeCorrelation | None = None) -> AdditiveGP:
    belief = AdditiveGP(GRAPH, noise_variance=noise_variance, outcomes="per-factor", time=time)
    return with_own(belief, kernels=(*KERNEL_NAMES, last))


def evaluations(t: int, seed: int, missing: float = 0.0):
    rng = np.random.default_rng(seed)
    X, F = rng.random((t, 3)), rng.normal(size=(t, 5))
    F[rng.random(F.shape) < missing] = np.nan
    return X, F


def parts_of(belief: AdditiveGP, data: Observations, base: StackedParts | None = None) -> StackedParts:
    return StackedParts.of(belief.hyperparameters, belief.scopes, data, base)


def arrays_of(parts: StackedParts) -> list[bytes]:
    blocks = [block.tobytes() for block in parts.inverse.blocks]
    return [*blocks, parts.alpha.tobytes(), parts.whitened.tobytes(), parts.counts.tobytes()]


@given(
    t=st.integers(1, 20),
    more=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    fades=st.booleans(),
    seed=st.integers(0, 9),
)
def test_rows_added_step_by_step_are_bit_identical_to_rows_added_together(t, more, fades, seed):
    belief, n = belief_of(last=MINE, time=TimeCorrelation("matern32", 5.0) if fades else None), t + sum(more)
    X, F = evaluations(n, seed, 0.3)
    known = belief.update(X[:t], F[:t])
    parts, data = parts_of(belief, known.observations), known.observations
    for step in more:
        t, known = t + step, belief.update(X[t : t + step], F[t : t + step])
        data = data.then(known.observations)
        parts = parts_of(belief, data, parts)
    assert arrays_of(parts) == arrays_of(parts_of(belief, belief.update(X, F).observations))


def test_pending_points_reduce_the_variance_and_keep_the_weights_of_the_mean_bit_identical():
    belief, rng = belief_of().update(*evaluations(19, 1)), np.random.default_rng(2)
    awaited = np.array([[True, True, False, False, True]])
    waiting = belief.condition_on_pending(rng.random((1, 3)), awaited=awaited)
    for stack in stacks_of(GRAPH):
        U = rng.random((len(stack.factors), 4, stack.size))
        before, after = belief.local(stack, U), waiting.local(stack, U)
        np.testing.assert_allclose(before.mean, after.mean, rtol=1e-12, atol=1e-14)
        own = awaited[0, [GRAPH.place_of[factor] for factor in stack.factors]]
        assert (after.var[own] < before.var[own]).all()
        np.testing.assert_array_equal(after.var[~own], before.var[~own])
    known, parts = parts_of(belief, belief.observations), parts_of(belief, belief.observations.then(waiting.ahead))
    np.testing.assert_array_equal(parts.alpha[:, :19], known.alpha)
    assert not parts.alpha[:, 19:].any()


def test_numerically_singular_matrices_get_the_jitter_that_lapack_needs():
    empty = belief_of(noise_variance=0.0)
    X, F = evaluations(10, 3)
    X[7], F[7] = X[2], F[2]
    data = empty.update(X, F).observations
    parts = parts_of(empty, data)
    plain = list[Factorised]()
    for i, own in enumerate(data.by_factor(5)):
        K = factor_covariance(empty.hyperparameters, empty.scopes[i], i, own, own)
        expected = Factorised.of(K, own.outcome)
        assert parts.jitters[i] == expected.jitter > 0.0
        np.testing.assert_allclose(parts.inverse.squares(np.array([i]), 10)[0], expected.inverse, rtol=1e-12)
        first = Factorised.of(K[:7, :7], own.outcome[:7])
        plain.append(first.extended(K[7:, :7], K[7:, 7:], own.outcome[7:]))
    first = empty.update(X[:7], F[:7])
    assert first.jitter == 0.0
    grown = first.update(X[7:], F[7:])
    assert 0.0 < grown.jitter < 1e-12
    for i, factor in enumerate(GRAPH.factors):
        (stack,) = stacks_of(GRAPH, [factor])
        U = np.random.default_rng(8).random((1, 6, stack.size))
        X = np.zeros((6, 3))
        X[:, [GRAPH.variables.index(variable) for variable in SCOPES[factor]]] = U[0]
        only = np.where(np.arange(5) == i, np.zeros((6, 1)), np.nan)
        asked = Observations.of(X, np.full(6, np.nan), only, np.zeros((6, 6)))
        cross = factor_covariance(empty.hyperparameters, empty.scopes[i], i, asked, data.of_channel(i))
        found = grown.local(stack, U)
        np.testing.assert_allclose(found.mean[0], cross @ plain[i].alpha, rtol=1e-5, atol=1e-5)
        explained = ((cross @ plain[i].inverse.T) ** 2).sum(axis=1)
        np.testing.assert_allclose(found.var[0], np.maximum(1.0 - explained, 0.0), rtol=1e-5, atol=1e-7)


def test_whether_a_matrix_is_singular_does_not_depend_on_data_of_other_factors():
    empty = belief_of(noise_variance=3e-15)
    X, F = evaluations(40, 12)
    X[1], F[2:, 0] = X[0], np.nan
    few, many = (parts_of(empty, empty.update(X[:t], F[:t]).observations) for t in (2, 40))
    assert few.jitters[0] == many.jitters[0] == 0.0
    every = np.array([0])
    np.testing.assert_array_equal(few.inverse.squares(every, 2), many.inverse.squares(every, 2))


@pytest.mark.parametrize("missing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("case", ["plain", "twice", "fading"])
def test_stored_means_at_the_data_are_the_predicted_means(missing, case):
    time = TimeCorrelation("matern12", 2.0) if case == "fading" else None
    empty = belief_of(noise_variance=0.0 if case == "twice" else 1e-2, time=time)
    X, F = evaluations(12, 10, missing)
    X[5], F[:, 0] = (X[3] if case == "twice" else X[5]), 1.0  # repeated outcomes without noise are singular
    if missing == 0.6:
        F[0] = np.nan  # then no factor was observed everywhere
        F[0, 1] = F[1:3, 1] = 2.0
        F[1:3, 0] = np.nan
    belief = empty.update(X, F, rounds=np.arange(12.0)).at(12.0)
    belief = belief if missing == 0.6 else belief.condition_on_pending(evaluations(2, 11)[0])
    order = [factor for stack in stacks_of(GRAPH) for factor in stack.factors]
    for factor, means in zip(order, belief.means_at_data, strict=True):
        columns = list(belief.scopes[GRAPH.place_of[factor]])
        np.testing.assert_allclose(means, belief.factor_posterior(factor, X[:, columns])[0], rtol=1e-6, atol=1e-8)


def test_a_copy_reads_its_own_rows():
    belief = belief_of().update(*evaluations(17, 8))
    (stack,), U = stacks_of(GRAPH, ["f"]), np.random.default_rng(9).random((1, 5, 2))
    expected = belief.local(stack, U)
    again = pickle.loads(pickle.dumps(belief))
    rows = again._conditioned.parts.inverse
    assert not set(rows.addresses) & set(belief._conditioned.parts.inverse.addresses)
    del belief
    np.testing.assert_array_equal(again.local(stack, U).var, expected.var)


def test_a_computed_belief_is_extended_if_its_data_come_first_and_all_else_is_the_same():
    X, F = evaluations(29, 4, 0.2)
    earlier = belief_of().update(X[:20], F[:20])
    later = belief_of().update(X, F)
    assert later.extended_from(earlier).base is None  # nothing was computed yet
    known = earlier._on_data.parts
    grown, alone = later.extended_from(earlier)._on_data.parts, later._on_data.parts
    assert arrays_of(grown) == arrays_of(alone)
    n_common = int(known.counts.min()) // ROWS
    assert n_common >= 1
    for b in range(n_common):
        assert np.shares_memory(grown.inverse.blocks[b], known.inverse.blocks[b])
    changed = F.copy()
    changed[3, 2] = 7.0
    moved = X.copy()
    moved[3, 2] = 0.123
    others = belief_of(0.02).update(X, F), belief_of().update(X, changed), belief_of().update(moved, F)
    for other in (*others, belief_of().update(X[:10], F[:10])):
        assert other.extended_from(earlier).base is None


def test_a_singular_matrix_is_computed_again():
    X, F = evaluations(12, 4)
    X[3], X[9] = X[2], X[1]  # repeated without noise
    for n in (8, 12):
        earlier, later = (belief_of(noise_variance=0.0).update(X[:m], F[:m]) for m in (n, 12))
        assert earlier.jitter > 0.0
        assert arrays_of(later.extended_from(earlier)._on_data.parts) == arrays_of(later._on_data.parts)


def test_a_dropped_cache_is_computed_again_bit_identically():
    X, F = evaluations(20, 5, 0.2)
    belief = belief_of().update(X[:11], F[:11])
    before = arrays_of(belief._on_data.parts)
    later = belief_of().update(X, F).extended_from(belief)
    expected, held = arrays_of(later._on_data.parts), later._on_data.parts.inverse.blocks[0]
    later.drop_cache()
    belief.drop_cache()
    assert later.base is None
    assert (arrays_of(later._on_data.parts), arrays_of(belief._on_data.parts)) == (expected, before)
    assert not np.shares_memory(later._on_data.parts.inverse.blocks[0], held)
    pending = later.condition_on_pending(X[:1])
    pending.drop_cache()
    assert pending.given is not None
