import numpy as np
import pytest

from swarmbo.errors import ConfigError
from swarmbo_envs.fields.field import lattice, summit
from swarmbo_envs.fields.landscape import build_field, drawn
from swarmbo_envs.fields.settings import DrawSettings


def test_over_many_draws_mean_variance_and_correlation_are_those_of_the_kernel():
    places = np.array([[0.0, 0.0], [100.0, 0.0]])
    draws = np.array(
        [
            drawn(DrawSettings(kernel="matern32", lengthscale_m=100.0, std=2.0, mean=5.0, seed=seed))(places)
            for seed in range(1000)
        ]
    )
    covariance = np.cov(draws.T)
    assert draws.mean() == pytest.approx(5, abs=0.2)
    assert covariance[0, 0] == pytest.approx(4, rel=0.15)
    correlation = covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1])
    assert correlation == pytest.approx((1 + np.sqrt(3)) * np.exp(-np.sqrt(3)), abs=0.08)


def test_no_place_is_above_the_maximum():
    field = build_field({"gp": {"lengthscale_m": 300.0, "seed": 1}}, 500)
    assert field.value(lattice(field.low, field.high, 20_000)).max() <= field.maximum + 1e-9
    assert field.value(field.argmax[None])[0] == field.maximum


def test_the_summit_of_a_known_hill_is_found_between_the_places():
    centre = np.array([31.7, 12.3])
    value, place = summit(
        lambda X: 100 - ((X - centre) ** 2).sum(axis=1),
        lattice(np.zeros(2), np.array([50.0, 20.0]), 30),
        np.zeros(2),
        np.array([50.0, 20.0]),
    )
    assert value == pytest.approx(100, abs=1e-6)
    np.testing.assert_allclose(place, centre, atol=1e-2)


@pytest.mark.parametrize("n_points", [4, 7, 100, 333])
@pytest.mark.parametrize("size", [(1, 1), (100, 1), (1, 30)])
def test_a_lattice_never_exceeds_its_cap_and_includes_the_corners(n_points, size):
    high = np.array(size, dtype=float)
    places = lattice(np.zeros(2), high, n_points)
    assert 4 <= len(places) <= n_points
    assert {tuple(corner) for corner in ([0, 0], high, [high[0], 0], [0, high[1]])} <= {tuple(p) for p in places}


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"lengthscale_m": 0}, r"\$\.field\.gp\.lengthscale_m: got 0; wanted a length from 1e-6 to 1e12 m"),
        ({"mean": -1e200}, r"\$\.field\.gp\.mean: got -1e\+200; wanted a number from -1e12 to 1e12"),
        ({"size_m": [1e-300, 5]}, r"\$\.field\.gp\.size_m: got .*; wanted width and height from 1e-6 to 1e12 m"),
        ({"mean": float("nan")}, r"\$\.field\.gp\.mean"),
        ({"kernel": "matern"}, r"\$\.field\.gp\.kernel"),
        ({"size_m": [0, 5]}, r"\$\.field\.gp\.size_m"),
        ({"size_m": [5]}, r"\$\.field\.gp\.size_m"),
        ({"size_m": [1e-6, 1e12]}, r"\$\.field\.gp\.size_m: .*neither a million times the other"),
        ({"size_m": [1e3, 1e3], "lengthscale_m": 1e-4}, r"\$\.field\.gp\.lengthscale_m: .*from 0\.001 to 1e\+09 m"),
        ({"sede": 1}, r"\$\.field\.gp: unknown key 'sede'; did you mean 'seed'"),
    ],
)
def test_bad_priors_are_refused_with_the_path(table, message):
    with pytest.raises(ConfigError, match=message):
        build_field({"gp": table}, 100)


@pytest.mark.parametrize(("share", "std"), [(1e-6, 1e12), (1e6, 1e-12)])
@pytest.mark.parametrize("size_m", [[1e-6, 1e-6], [1e-6, 0.9], [1.1e6, 1e12], [1e12, 1e12]])
def test_priors_at_the_ends_of_their_ranges_are_drawn(share, std, size_m):
    lengthscale_m = float(np.clip(share * max(size_m), 1e-6, 1e12))
    prior = {"lengthscale_m": lengthscale_m, "std": std, "size_m": size_m, "mean": -1e12}
    field = build_field({"gp": prior}, 100)
    assert np.isfinite(field.value(field.points)).all()
    assert np.isfinite([field.maximum, field.minimum, *field.argmax]).all()


@pytest.mark.parametrize("table", [{}, {"elevation": "jacksboro", "gp": {}}, {"cvs": "a.csv"}])
def test_a_field_of_no_single_kind_is_refused(table):
    with pytest.raises(
        ConfigError,
        match=r"\$\.field: got .*; wanted exactly one of the keys 'elevation', 'csv', 'raster', 'gp', 'survey'",
    ):
        build_field(table, 100)


def test_an_unknown_elevation_model_is_refused():
    with pytest.raises(ConfigError, match=r"\$\.field\.elevation: got 'everest'"):
        build_field({"elevation": "everest"}, 100)
