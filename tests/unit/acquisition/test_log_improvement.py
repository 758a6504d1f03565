"""Log expected improvement against quadrature, far into the tails."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from swarmbo.acquisition.expected_improvement import log_improvement


def by_quadrature(z: float) -> float:
    """log of the integral of u phi(u - z) over u > 0, by substitution that leaves a well-scaled integrand."""
    if z > -1.0:
        return float(np.log(quad(lambda u: u * norm.pdf(u - z), 0.0, max(z, 0.0) + 40.0, epsabs=0, limit=500)[0]))
    # h(z) = phi(z) / z² * integral of v exp(-v - v² / (2 z²)) dv
    scaled = quad(lambda v: v * np.exp(-v - v**2 / (2.0 * z**2)), 0.0, 200.0, epsabs=0, epsrel=1e-13, limit=500)[0]
    return float(norm.logpdf(z) - 2.0 * np.log(-z) + np.log(scaled))


@pytest.mark.parametrize("z", [-1e6, -1e3, -100.0, -20.001, -19.999, -8.0, -1.001, -0.999, 0.0, 0.7, 6.0, 30.0])
def test_it_is_the_integral(z: float) -> None:
    value, _, _ = log_improvement(np.array([z]), np.ones(1))
    assert value[0] == pytest.approx(by_quadrature(z), rel=1e-11, abs=1e-11)


@given(st.floats(-1e5, 1e5), st.floats(1e-6, 1e3))
def test_it_is_finite_and_scales_with_the_unit(mean: float, std: float) -> None:
    value, by_mean, by_std = log_improvement(np.array([mean]), np.array([std]))
    assert np.isfinite([value, by_mean, by_std]).all()
    other, _, _ = log_improvement(np.array([10.0 * mean]), np.array([10.0 * std]))
    assert other[0] == pytest.approx(value[0] + np.log(10.0), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("z", [-500.0, -30.0, -20.0, -10.0, -1.0, 0.0, 2.0, 20.0])
@pytest.mark.parametrize("std", [0.01, 3.0])
def test_derivatives_are_those_of_the_value(z: float, std: float) -> None:
    def value(m: float, s: float) -> float:
        return float(log_improvement(np.array([m]), np.array([s]))[0][0])

    mean, step = z * std, 1e-5 * std
    _, by_mean, by_std = log_improvement(np.array([mean]), np.array([std]))
    assert by_mean[0] == pytest.approx((value(mean + step, std) - value(mean - step, std)) / (2 * step), rel=1e-5)
    assert by_std[0] == pytest.approx(
        (value(mean, std + step) - value(mean, std - step)) / (2 * step), rel=1e-5, abs=1e-7
    )


def test_derivatives_do_not_jump_where_the_formulas_change() -> None:
    for border in (-20.0, -1.0):
        z = border + np.array([-1e-9, 1e-9])
        for before, after in log_improvement(z, np.ones(2)):
            assert before == pytest.approx(after, rel=1e-7)
