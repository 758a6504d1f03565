"""Compiled kernels are those in NumPy; and the number of threads."""

import numba
import numpy as np
import pytest

from swarmbo.kernels import KERNEL_NAMES, correlation_and_slope
from swarmbo.kernels.compiled import CODES, fall, radial
from swarmbo.kernels.threads import n_threads

falls, put = numba.njit(lambda x: fall(x)), numba.njit(lambda *given: radial(*given))  # compiled code can call them


def test_the_exponential_is_right_to_two_units_in_the_last_place():
    rng = np.random.default_rng(0)
    halves = np.arange(0.5, 1000.0) * np.log(2.0)  # where its series changes
    x = np.concatenate([[0.0, 1e-300, 1e-9], 700.0 * rng.random(2000), halves[halves < 699.0]])
    found, wanted = np.array([falls(each) for each in x]), np.exp(-x)
    assert (np.abs(found - wanted) <= 2.0 * np.spacing(wanted)).all()
    assert falls(1e9) == falls(700.0) < 1e-303


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_covariances_and_slopes_are_those_in_numpy(kernel):
    squares = np.concatenate([[0.0, 1e-30, 1e12, 1e300, np.inf], 40.0 * np.random.default_rng(0).random(50)])
    near, slope = np.empty_like(squares), np.empty_like(squares)
    put(CODES[kernel], squares, 3.0, near, slope)
    wanted = correlation_and_slope(kernel, np.sqrt(squares))
    np.testing.assert_allclose(near, 3.0 * wanted[0], rtol=1e-14, atol=1e-290)
    np.testing.assert_allclose(slope, 3.0 * wanted[1], rtol=1e-14, atol=1e-290)


@pytest.mark.parametrize(("setting", "wanted"), [("3", 3), ("4,2", 4), (" 5 , 2,1", 5)])
def test_the_number_of_threads_is_the_first_number_in_the_environment(setting, wanted, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert n_threads() == wanted


@pytest.mark.parametrize("setting", ["", "0", "-2", "many", ",4"])
def test_an_invalid_number_of_threads_is_ignored(setting, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    cores = n_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert n_threads() == cores >= 1
