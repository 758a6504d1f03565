"""Where evaluations fail, held to scikit-learn's Gaussian-process classifier and to integrals by brute force."""

import numpy as np
import pytest
from scipy.special import expit, log_expit, logsumexp
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from swarmbo.belief.model.success import SuccessGP, Term

_ANY = 1e6  # a lengthscale over which nothing changes


@pytest.mark.parametrize("seed", range(4))
def test_mode_and_evidence_are_those_of_scikit_learn(seed) -> None:
    rng = np.random.default_rng(seed)
    U, V = rng.random((25, 2)), rng.random((7, 2))
    succeeded = U.sum(axis=1) + 0.3 * rng.normal(size=25) < 1.2
    kernel = ConstantKernel(4.0, "fixed") * RBF([0.3, _ANY], "fixed")
    kernel += ConstantKernel(2.0, "fixed") * RBF([0.5, 0.5], "fixed")
    theirs = GaussianProcessClassifier(kernel, optimizer=None).fit(U, succeeded)
    ours = SuccessGP.given([Term((0,), 4.0, 0.3), Term((0, 1), 2.0, 0.5)], 0.0, U, succeeded)
    assert ours.evidence == pytest.approx(theirs.log_marginal_likelihood_value_, abs=1e-6)
    np.testing.assert_allclose(ours.logit(V), theirs.latent_mean_and_variance(V)[0], atol=1e-4)


@pytest.mark.parametrize("told", [[False], [True, False], [False, False]])
def test_with_few_outcomes_mode_and_evidence_are_those_of_the_integral(told) -> None:
    U, terms, offset = np.array([[0.2], [0.4]])[: len(told)], [Term((0,), 2.0, 0.3)], 1.4
    model = SuccessGP.given(terms, offset, U, np.array(told))
    K = 2.0 * np.exp(-0.5 * (U - U.T) ** 2 / 0.09)
    axis = np.linspace(-9.0, 9.0, 361)
    g = np.stack(np.meshgrid(*[axis] * len(told), indexing="ij"), axis=-1).reshape(-1, len(told))
    sign = np.where(told, 1.0, -1.0)
    prior = -0.5 * np.einsum("mi,ij,mj->m", g, np.linalg.inv(K), g) - 0.5 * np.linalg.slogdet(2 * np.pi * K)[1]
    joint = prior + log_expit(sign * (offset + g)).sum(axis=1)
    np.testing.assert_allclose(model.logit(U) - offset, g[joint.argmax()], atol=0.05)
    exact = logsumexp(joint) + len(told) * np.log(axis[1] - axis[0])
    assert model.evidence == pytest.approx(exact, abs=0.05)  # Laplace's is an approximation
    mean = np.exp(joint - logsumexp(joint)) @ expit(offset + g[:, 0])
    assert expit(model.logit(U[:1]))[0] == pytest.approx(mean, abs=0.07)
