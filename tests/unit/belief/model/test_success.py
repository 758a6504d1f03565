"""Probability of success: learned from few outcomes, forgotten, and compared with scikit-learn and with integrals."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.special import expit, log_expit, logsumexp
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from swarmbo.belief.gp.hyperparameters import TimeCorrelation
from swarmbo.belief.model.success import SuccessGP, Term, excess_of, required_logit

SCOPES = [(0, 1), (1, 2)]


def _shapes(n: int) -> dict[str, np.ndarray]:
    """Failing regions of a fifth of the box, as masks of common random points."""
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
def test_a_failing_fifth_is_learned_from_sixty_outcomes(shape) -> None:
    U, fails = np.random.default_rng(5).random((4000, 3)), _shapes(3)[shape]
    model = SuccessGP.learned(U[:60], ~fails[:60], SCOPES)
    right = (model.logit(U[60:]) > 0.0) == ~fails[60:]
    assert right.mean() > 0.87  # a constant prediction of success is right in 0.8


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=2), st.integers(0, 12))
def test_one_failure_repels_its_neighbourhood_and_nothing_far(place, n_good) -> None:
    rng, at = np.random.default_rng(n_good), np.array(place)
    U = rng.random((n_good, 2))
    U = U[np.abs(U - at).max(axis=1) > 0.3]
    model = SuccessGP.learned(np.vstack([U, at]), np.array([True] * len(U) + [False]))
    near, far = np.clip(at + 0.01, 0.0, 1.0), (at + 0.5) % 1.0
    assert model.logit(near[None])[0] < required_logit(0.0)
    assert model.logit(near[None])[0] < model.logit(far[None])[0]


def test_successes_around_a_failure_by_chance_outvote_it() -> None:
    rng = np.random.default_rng(0)
    U = 0.5 + 0.02 * rng.normal(size=(20, 2))
    assert SuccessGP.learned(U, np.arange(20) != 7).logit(U[7:8])[0] > required_logit(0.0)


def test_many_failures_raise_the_requirement_only_if_they_depend_on_the_point() -> None:
    U = np.random.default_rng(2).random((60, 2))
    by_chance = SuccessGP.learned(U, np.random.default_rng(3).random(60) > 0.4)
    behind_a_wall = SuccessGP.learned(U, U[:, 0] < 0.6)
    assert required_logit(12.0, by_chance.odds) == required_logit(0.0)
    assert required_logit(4.0, behind_a_wall.odds) > required_logit(2.0, behind_a_wall.odds) > 1.0


def test_many_outcomes_cost_no_more_than_the_informative_ones() -> None:
    U = np.random.default_rng(0).random((3000, 2))
    model = SuccessGP.learned(U, U[:, 0] < 0.8)
    assert len(model.weights) == 200
    V = np.random.default_rng(1).random((500, 2))
    assert ((model.logit(V) > 0.0) == (V[:, 0] < 0.8)).mean() > 0.95


def test_of_many_failures_the_last_ones_are_used() -> None:
    U, succeeded = np.random.default_rng(0).random((400, 2)), np.arange(400) % 3 == 0
    used = SuccessGP.learned(U, succeeded).U
    last = U[~succeeded][-80:]
    assert (used[:, None] == last).all(axis=2).any(axis=0).all()


def test_many_failures_say_nothing_about_places_far_from_all_of_them() -> None:
    U = np.random.default_rng(0).random((20, 2))
    model = SuccessGP.learned(U, np.arange(20) == 0)
    assert model.logit(U[1:]).max() < 0.0
    assert model.logit(np.full((1, 2), 1e3))[0] >= 0.0


def test_an_old_failure_is_forgotten_with_a_time_axis() -> None:
    U, succeeded = np.array([[0.2, 0.2], [0.8, 0.8]]), np.array([True, False])
    memory, rounds = TimeCorrelation(kernel="matern12", lengthscale=5.0), np.array([1.0, 1.0])
    models = (SuccessGP.learned(U, succeeded, rounds=rounds, now=now, memory=memory) for now in (1.0, 10.0, 500.0))
    logits = [model.logit(U[1:])[0] for model in models]
    without_memory = SuccessGP.learned(U, succeeded)
    assert logits[0] == pytest.approx(without_memory.logit(U[1:])[0])
    assert logits[0] < logits[1] < logits[2] == pytest.approx(without_memory.offset)


@given(st.integers(0, 1000), st.sampled_from([1, 3]))
def test_slopes_of_the_logit_are_those_of_finite_differences_and_0_along_a_choice(seed, count) -> None:
    rng = np.random.default_rng(seed)
    U, counts = rng.random((12, 2)), np.array([1, count])
    U[:, 1] = (np.floor(U[:, 1] * count) + 0.5) / count if count > 1 else U[:, 1]
    terms = [Term((0,), 2.0, 0.3), Term((0, 1), 1.0, 0.5), Term((1,), 1.5, 0.4)]
    model = SuccessGP.given(terms, 1.0, U, rng.random(12) < 0.6, counts=counts)
    X = U[:5] + 0.01 * rng.random((5, 2))
    _, slope = model.part(terms, X, np.arange(2))
    for axis, shift in enumerate(1e-6 * np.eye(2)):
        np.testing.assert_allclose(slope[:, axis], (model.logit(X + shift) - model.logit(X - shift)) / 2e-6, atol=1e-5)


@given(st.lists(st.booleans(), max_size=60))
def test_the_excess_is_the_largest_of_all_the_latest_outcomes(succeeded) -> None:
    over = [sum(-0.2 if success else 0.8 for success in succeeded[start:]) for start in range(len(succeeded) + 1)]
    assert excess_of(succeeded) == pytest.approx(max(over), abs=1e-9)
    assert 0.0 <= excess_of(succeeded) <= max(0.8 * succeeded.count(False), 0.0) + 1e-9


_ANY = 1e6  # a lengthscale over which nothing changes


@pytest.mark.parametrize("seed", range(4))
def test_mode_and_evidence_are_those_of_scikit_learn(seed) -> None:
    rng = np.random.default_rng(seed)
    U, V = rng.random((25, 2)), rng.random((7, 2))
    succeeded = U.sum(axis=1) + 0.3 * rng.normal(size=25) < 1.2
    kernel = ConstantKernel(4.0, "fixed") * RBF([0.3, _ANY], "fixed")
    kernel += ConstantKernel(2.0, "fixed") * RBF([0.5, 0.5], "fixed")
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(U, succeeded)
    ours = SuccessGP.given([Term((0,), 4.0, 0.3), Term((0, 1), 2.0, 0.5)], 0.0, U, succeeded, counts=np.ones(2))
    assert ours.evidence == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-6)
    np.testing.assert_allclose(ours.logit(V), theirs.latent_mean_and_variance(V)[0], atol=1e-4)


@pytest.mark.parametrize("succeeded", [[False], [True, False], [False, False]])
def test_with_few_outcomes_mode_and_evidence_are_those_of_the_integral(succeeded) -> None:
    U, terms, offset = np.array([[0.2], [0.4]])[: len(succeeded)], [Term((0,), 2.0, 0.3)], 1.4
    model = SuccessGP.given(terms, offset, U, np.array(succeeded), counts=np.ones(U.shape[1]))
    K = 2.0 * np.exp(-0.5 * (U - U.T) ** 2 / 0.09)
    axis = np.linspace(-9.0, 9.0, 361)
    g = np.stack(np.meshgrid(*[axis] * len(succeeded), indexing="ij"), axis=-1).reshape(-1, len(succeeded))
    sign = np.where(succeeded, 1.0, -1.0)
    prior = -0.5 * np.einsum("mi,ij,mj->m", g, np.linalg.inv(K), g) - 0.5 * np.linalg.slogdet(2 * np.pi * K)[1]
    joint = prior + log_expit(sign * (offset + g)).sum(axis=1)
    np.testing.assert_allclose(model.logit(U) - offset, g[joint.argmax()], atol=0.05)
    exact = logsumexp(joint) + len(succeeded) * np.log(axis[1] - axis[0])
    assert model.evidence == pytest.approx(exact, abs=0.05)  # Laplace's is an approximation
    mean = np.exp(joint - logsumexp(joint)) @ expit(offset + g[:, 0])
    assert expit(model.logit(U[:1]))[0] == pytest.approx(mean, abs=0.07)
