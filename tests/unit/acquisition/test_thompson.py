"""Thompson sampling: draws follow the posterior, and differ when they should."""

from dataclasses import replace

import numpy as np

from swarmbo.acquisition.thompson import Thompson
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.graph import stacks_of
from swarmbo.graph.box_functions import total_value

BELIEF = AdditiveGPSettings(max_iterations=20)


def test_sums_of_drawn_factors_have_the_posterior_of_the_sum(situation_of) -> None:
    first = situation_of(t=10, noise=2.0)
    kind = Thompson(n_features=256)
    model = kind.learn(first, BELIEF, None)
    U = np.random.default_rng(0).random((8, 5))
    rounds = [replace(first, round=r) for r in range(1, 301)]
    draws = np.array([total_value(kind.local_functions(situation, model), U) for situation in rounds])
    mean, var = model.belief.posterior(first.domain.from_unit(U))
    errors = (draws.mean(axis=0) - mean) / np.sqrt(var / len(draws))
    assert np.abs(errors).max() < 4.0
    ratio = draws.var(axis=0) / var
    assert ratio.min() > 0.7
    assert ratio.max() < 1.4


def test_a_draw_is_the_same_function_wherever_and_whenever_it_is_asked(situation_of) -> None:
    situation, kind = situation_of(), Thompson()
    U = np.random.default_rng(0).random((6, 5))
    once, again = (kind.local_functions(situation, kind.learn(situation, BELIEF, None)) for _ in range(2))
    assert np.array_equal(total_value(once, U), total_value(again, U))
    np.testing.assert_allclose(total_value(once, U)[2:3], total_value(once, U[2:3]), rtol=1e-5)


def test_rounds_seeds_and_queries_that_are_out_each_bring_another_draw(situation_of) -> None:
    kind, U = Thompson(), np.full((1, 5), 0.3)
    base = situation_of()
    model = kind.learn(base, BELIEF, None)
    others = [
        base,
        replace(base, round=4),
        replace(base, seed=1),
        replace(base, pending=situation_of(pending=1).pending),
    ]
    values = {float(total_value(kind.local_functions(situation, model), U)[0]) for situation in others}
    assert len(values) == 4


def test_value_and_gradient_agree_on_the_value(situation_of) -> None:
    situation, kind = situation_of(), Thompson()
    functions = kind.local_functions(situation, kind.learn(situation, BELIEF, None))
    for stack in stacks_of(functions.graph):
        X = np.random.default_rng(1).random((len(stack.factors), 3, stack.size))
        plain, with_gradient = functions.value(stack, X, ()), functions.value_and_gradient(stack, X, ())[0]
        np.testing.assert_allclose(plain, with_gradient, rtol=1e-12, atol=1e-12)
