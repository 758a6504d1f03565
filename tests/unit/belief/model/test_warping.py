import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from swarmbo.belief import Warp

KINDS = st.sampled_from(["none", "power", "log"])
POWERS = st.sampled_from([0.25, 0.3, 0.5, 1.0])
OUTCOMES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@given(kind=KINDS, power=POWERS, y=OUTCOMES, more=OUTCOMES)
def test_backward_undoes_forward(kind, power, y, more):
    warp = Warp.fitted(kind, np.array(y), power)
    points = np.array(y + more)
    reach = np.abs(points - warp.best).max() + abs(warp.best) + warp.spread
    assume(reach / warp.spread < 1e6)
    np.testing.assert_allclose(warp.backward(warp.forward(points)), points, rtol=0.0, atol=1e-9 * reach)


@given(kind=KINDS, power=POWERS, y=OUTCOMES, more=OUTCOMES)
def test_forward_keeps_the_order_also_above_the_best(kind, power, y, more):
    warp = Warp.fitted(kind, np.array(y), power)
    assert (np.diff(warp.forward(np.sort(np.array(y + more)))) >= 0.0).all()
    ahead = warp.best + warp.spread * np.linspace(-3.0, 3.0, 200)
    assert (np.diff(warp.forward(ahead)) > 0.0).all()


@pytest.mark.parametrize(("kind", "power"), [("power", 0.5), ("power", 0.25), ("log", 1.0), ("none", 1.0)])
def test_the_slope_of_the_transform_equals_finite_differences(kind, power):
    warp = Warp.fitted(kind, np.array([-3.0, 1.0, 5.0, 9.0]), power)
    y = np.array([-5.0, 0.0, 3.0, 8.99, 9.0, 12.0])
    slope = (warp.forward(y + 1e-6) - warp.forward(y - 1e-6)) / 2e-6
    np.testing.assert_allclose(np.exp(warp.log_slope(y)), slope, rtol=1e-6)


@pytest.mark.parametrize(("kind", "power"), [("power", 0.5), ("power", 0.3), ("log", 1.0)])
@pytest.mark.parametrize("mean", [-6.0, 0.2, 4.6])
@pytest.mark.parametrize("std", [1e-4, 3.0])
def test_moments_equal_adaptive_quadrature(kind, power, mean, std):
    warp = Warp.fitted(kind, np.array([-3.0, 1.0, 5.0, 9.0]), power)
    kinks = {"power": 0.0, "log": -np.log(0.01)}

    def moment(order, centre):
        def density(x):
            return (warp.backward(np.array([mean + std * x]))[0] - centre) ** order * norm.pdf(x)

        places = [place for place in ((kinks[kind] - mean) / std, -6.0, 0.0) if abs(place) < 20.0]
        return quad(density, -20.0, 20.0, points=places, limit=500, epsabs=0.0, epsrel=1e-9)[0]

    middle = float(warp.backward(np.array([mean]))[0])
    expected = middle + moment(1, middle - 1.0) - 1.0
    found, deviation = warp.marginals(np.array([mean]), np.array([std**2]))
    assert deviation[0] == pytest.approx(np.sqrt(moment(2, expected)), rel=1e-6)
    assert found[0] == pytest.approx(expected, abs=1e-6 * deviation[0])


def test_moments_of_a_certain_value_are_that_value():
    for kind in ("none", "power", "log"):
        warp = Warp.fitted(kind, np.array([1.0, 2.0, 7.0]))
        found, deviation = warp.marginals(np.array([-0.3, 1.0]), np.zeros(2))
        np.testing.assert_allclose(found, warp.backward(np.array([-0.3, 1.0])), rtol=1e-14)
        np.testing.assert_array_equal(deviation, 0.0)


@given(mean=st.floats(-1e3, 1e3), variance=st.floats(0.0, 1e6), kind=st.sampled_from(["power", "log"]))
def test_moments_are_finite_whatever_the_belief_says(mean, variance, kind):
    warp = Warp.fitted(kind, np.array([-1e12, 0.0, 1e12]))
    found, deviation = warp.marginals(np.array([mean]), np.array([variance]))
    assert np.isfinite([found, deviation]).all()
    assert (deviation >= 0.0).all()


@pytest.mark.parametrize("y", [[], [3.0], [2.0, 2.0, 2.0], [np.nan, np.nan], [1e12, 1e12 + 1e-3]])
def test_outcomes_that_do_not_vary_are_left_as_they_are(y):
    assert Warp.fitted("power", np.array(y)) == Warp()


def test_the_spread_does_not_count_outcomes_equal_to_the_best_if_most_are():
    warp = Warp.fitted("power", np.array([-100.0, 5.0, 3.0, 5.0, 1.0, 5.0, 5.0]))
    assert (warp.best, warp.spread) == (5.0, 4.0)


def test_failed_measurements_do_not_count_and_stay_failed():
    warp = Warp.fitted("power", np.array([1.0, np.nan, 3.0, 9.0]))
    assert (warp.best, warp.spread) == (9.0, 6.0)
    assert np.isnan(warp.forward(np.array([np.nan, 1.0]))).tolist() == [True, False]
