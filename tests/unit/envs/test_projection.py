"""The projection of longitudes and latitudes to metres, and its inverse."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad

from swarmbo.boundary.coordinates import LocalProjection
from swarmbo.errors import ConfigError

EQUATOR_M, FLATTENING = 6378137.0, 1 / 298.257223563  # WGS 84, as NIMA TR8350.2 states them
SQUARED = FLATTENING * (2 - FLATTENING)

LATITUDES = st.floats(-89.5, 89.5)
OFFSETS = st.floats(-8.0, 8.0)


def along_meridian(latitude):
    """Radius of curvature of a meridian."""
    return EQUATOR_M * (1 - SQUARED) / (1 - SQUARED * np.sin(np.deg2rad(latitude)) ** 2) ** 1.5


def along_parallel(latitude):
    """Radius of a circle of latitude."""
    return EQUATOR_M / np.sqrt(1 - SQUARED * np.sin(np.deg2rad(latitude)) ** 2) * np.cos(np.deg2rad(latitude))


@given(LATITUDES, st.floats(-179.0, 179.0))
def test_distances_on_the_central_meridian_are_arc_lengths_of_the_ellipse(latitude, meridian):
    x, y = LocalProjection(meridian, 0.0, 0.0).metres(np.array([[meridian, latitude]]))[0]
    arc = np.deg2rad(1.0) * quad(along_meridian, 0.0, latitude, epsrel=1e-11)[0]
    assert (x, y) == pytest.approx((0.0, arc), abs=1e-4)


@given(st.floats(-80.0, 80.0), OFFSETS)
def test_the_projection_is_conformal(latitude, offset):
    """With true lengths along the central meridian, only the transverse Mercator projection is conformal."""
    projection, step = LocalProjection(30.0, 0.0, 0.0), 1e-4
    near = np.array([[30.0 + offset, latitude]]) + step * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]])
    east, west, north, south = projection.metres(near)
    by_east = (east - west) / (2 * np.deg2rad(step)) / along_parallel(latitude)
    by_north = (north - south) / (2 * np.deg2rad(step)) / along_meridian(latitude)
    np.testing.assert_allclose([by_north[1], -by_north[0]], by_east, atol=1e-6)
    x = projection.metres(np.array([[30.0 + offset, latitude]]))[0, 0]
    assert np.hypot(*by_east) == pytest.approx(1 + (x / 6.371e6) ** 2 / 2, abs=5e-4)


@given(st.lists(st.tuples(st.floats(-8.0, 8.0), LATITUDES), min_size=1, max_size=5))
def test_degrees_inverts_metres(places):
    degrees = np.array(places) + np.array([170.0, 0.0])
    projection = LocalProjection(170.0, 1234.5, -77.0)
    back = projection.degrees(projection.metres(degrees))
    np.testing.assert_allclose(np.mod(back[:, 0] - degrees[:, 0] + 180, 360), 180, atol=1e-7)
    np.testing.assert_allclose(back[:, 1], degrees[:, 1], atol=1e-9)


def test_the_projection_agrees_with_proj():
    """Values of pyproj 3.7, +proj=tmerc +lon_0=9 +k=1 +ellps=WGS84."""
    degrees = np.array([[9, 0], [10, 48], [20, -70], [5, 60], [9.2, 12]], dtype=float)
    expected = [
        [0.0, 0.0],
        [74624.96247102098, 5318911.573864951],
        [418070.68060423795, -7806835.872166304],
        [-223109.31732592403, 6660821.531019661],
        [21780.570897903286, 1327092.3732278456],
    ]
    np.testing.assert_allclose(LocalProjection(9.0, 0.0, 0.0).metres(degrees), expected, rtol=0, atol=1e-6)


@given(st.floats(-180.0, 180.0), st.floats(-70.0, 70.0), st.integers(0, 2**32 - 1))
def test_a_map_begins_at_its_south_west_corner_wherever_it_lies(longitude, latitude, seed):
    """Also across the antimeridian, and with longitudes from 0 to 360."""
    spread = np.random.default_rng(seed).uniform(-0.05, 0.05, size=(9, 2))
    degrees = spread + np.array([longitude, latitude])
    degrees[:, 0] = np.mod(degrees[:, 0] + 180, 360) - 180
    projection = LocalProjection.about(degrees, "$.field")
    metres = projection.metres(degrees)
    np.testing.assert_allclose(metres.min(axis=0), 0.0, atol=1e-6)
    expected = np.deg2rad(np.ptp(spread, axis=0)) * [along_parallel(latitude), along_meridian(latitude)]
    np.testing.assert_allclose(metres.max(axis=0), expected, rtol=0.01)
    counted_on = np.column_stack([np.mod(degrees[:, 0], 360), degrees[:, 1]])
    np.testing.assert_allclose(projection.metres(counted_on), metres, atol=1e-6)


@pytest.mark.parametrize("degrees", [[[-20.0, 0.0], [20.0, 0.0]], [[0.0, 5.0], [120.0, 5.0], [240.0, 5.0]]])
def test_places_that_span_half_the_world_are_refused(degrees):
    wide = r"reach [\d,]+ km .*; wanted at most 1,200 km|span 240 degrees .*; wanted at most 90 degrees"
    with pytest.raises(ConfigError, match=rf"^\$\.field\.csv: .* ({wide})"):
        LocalProjection.about(np.array(degrees), "$.field")
