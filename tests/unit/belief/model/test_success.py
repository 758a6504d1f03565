"""A probability of success is learned from few outcomes, and forgotten where outcomes fade."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model.success import SuccessGP, demand, excess_of

SCOPES = [(0, 1), (1, 2)]


def _shapes(n: int) -> dict[str, np.ndarray]:
    """Dead regions of a fifth of the box, as masks of common random points."""
    U = np.random.default_rng(5).random((4000, n))
    distance = ((U - 0.45) ** 2).sum(axis=1)
    side = np.sqrt(0.2)
    return {
        "wall": U[:, 0] > 0.8,
        "corner": (U[:, 0] < side) & (U[:, 1] < side),
        "corner across factors": (U[:, 0] < side) & (U[:, -1] < side),
        "ball": distance < np.quantile(distance, 0.2),
    }


@pytest.mark.parametrize("shape", ["wall", "corner", "corner across factors", "ball"])
def test_a_dead_fifth_is_known_from_sixty_outcomes(shape) -> None:
    U, dead = np.random.default_rng(5).random((4000, 3)), _shapes(3)[shape]
    model = SuccessGP.learned(U[:60], ~dead[:60], SCOPES)
    right = (model.logit(U[60:]) > 0.0) == ~dead[60:]
    assert right.mean() > 0.87  # saying always that it succeeds is right in 0.8


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2), st.integers(0, 12))
def test_one_failure_repels_its_neighbourhood_and_nothing_far(place, n_good) -> None:
    rng, at = np.random.default_rng(n_good), np.array(place)
    U = rng.random((n_good, 2))
    U = U[np.abs(U - at).max(axis=1) > 0.3]
    model = SuccessGP.learned(np.vstack([U, at]), np.array([True] * len(U) + [False]))
    near, far = np.clip(at + 0.01, 0.0, 1.0), (at + 0.5) % 1.0
    assert model.logit(near[None])[0] < demand(0.0)
    assert model.logit(near[None])[0] < model.logit(far[None])[0]


def test_successes_around_it_outvote_a_failure_by_chance() -> None:
    rng = np.random.default_rng(0)
    U = 0.5 + 0.02 * rng.normal(size=(20, 2))
    assert SuccessGP.learned(U, np.arange(20) != 7).logit(U[7:8])[0] > demand(0.0)


def test_many_outcomes_cost_no_more_than_those_that_tell() -> None:
    U = np.random.default_rng(0).random((3000, 2))
    model = SuccessGP.learned(U, U[:, 0] < 0.8)
    assert len(model.weights) == 200
    V = np.random.default_rng(1).random((500, 2))
    assert ((model.logit(V) > 0.0) == (V[:, 0] < 0.8)).mean() > 0.95


def test_a_failure_of_long_ago_is_forgotten_where_outcomes_fade() -> None:
    U, told = np.array([[0.2, 0.2], [0.8, 0.8]]), np.array([True, False])
    memory, rounds = TimeCorrelation(kernel="matern12", lengthscale=5.0), np.array([1.0, 1.0])
    logits = [
        SuccessGP.learned(U, told, rounds=rounds, now=now, memory=memory).logit(U[1:])[0] for now in (1.0, 10.0, 500.0)
    ]
    unfaded = SuccessGP.learned(U, told)
    assert logits[0] == pytest.approx(unfaded.logit(U[1:])[0])
    assert logits[0] < logits[1] < logits[2] == pytest.approx(unfaded.offset)


@given(st.lists(st.booleans(), max_size=60))
def test_the_excess_is_the_largest_of_all_the_latest_outcomes(told) -> None:
    over = [sum(-0.2 if success else 0.8 for success in told[start:]) for start in range(len(told) + 1)]
    assert excess_of(told) == pytest.approx(max(over), abs=1e-9)
    assert 0.0 <= excess_of(told) <= max(0.8 * told.count(False), 0.0) + 1e-9
