import numpy as np
import pytest
from scipy.spatial import Delaunay

import swarmbo as sb
from swarmbo.errors import ConfigError
from swarmbo_envs import robot_team_v0
from swarmbo_envs.fields.field import lattice
from swarmbo_envs.fields.landscape import build_field
from swarmbo_envs.fields.measured import Kriging, thinned


@pytest.fixture
def points():
    generator = np.random.default_rng(0)
    X = np.round(generator.uniform([180_000, 330_000], [183_000, 334_000], size=(60, 2)), 1)
    return X, np.round(500 + 300 * np.sin(X[:, 0] / 400) + 100 * np.cos(X[:, 1] / 500), 2)


@pytest.fixture
def table(tmp_path, points):
    def write(text=None, **more):
        path = tmp_path / "soil.csv"
        if text is None:
            rows = [f"{x},{y},{z},clay" for (x, y), z in zip(*points, strict=True)]
            text = "\n".join(["east,north,zinc,kind", *rows]) + "\n"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return {"csv": str(path), "x": "east", "y": "north", "value": "zinc", **more}

    return write


def test_with_sites_only_the_field_has_the_measured_sites_and_values(table, points):
    X, z = points
    field = build_field(table(unit="ppm"), 10)
    np.testing.assert_array_equal(field.sites, X)
    np.testing.assert_array_equal(field.value(X), z)
    assert field.sites_only
    assert not field.interpolated
    assert (field.maximum, field.unit) == (z.max(), "ppm")
    np.testing.assert_array_equal(field.argmax, X[z.argmax()])
    assert "sites only" in field.name
    np.testing.assert_array_equal(field.low, X.min(axis=0))


def test_the_interpolant_equals_the_data_at_the_sites(table, points):
    X, z = points
    field = build_field(table(sites="interpolated"), 2000)
    np.testing.assert_allclose(field.value(X), z, rtol=1e-9)
    assert field.interpolated
    assert not field.sites_only
    assert "interpolated" in field.name
    assert field.maximum >= z.max()


def test_kriging_equals_the_solution_of_the_bordered_system(points):
    """Oracle: the weights of every place, from the bordered kriging system."""
    X, z = points
    X = X - X.mean(axis=0)
    kriging = Kriging(X, z)
    separation = np.hypot(*(X[:, None] - X[None]).transpose(2, 0, 1))
    spacing = np.median(np.where(np.eye(len(X)), np.inf, separation).min(axis=1))

    def correlation(r):
        scaled = np.sqrt(3) * r / (1.5 * spacing)
        return (1 + scaled) * np.exp(-scaled)

    n = len(X)
    system = np.ones((n + 1, n + 1))
    system[:n, :n], system[n, n] = correlation(separation), 0
    asked = np.random.default_rng(1).uniform(X.min(axis=0), X.max(axis=0), size=(50, 2))
    right = np.ones((n + 1, 50))
    right[:n] = correlation(np.hypot(*(X[:, None] - asked[None]).transpose(2, 0, 1)))
    weights = np.linalg.solve(system, right)[:n]
    np.testing.assert_allclose(kriging(asked), weights.T @ z, rtol=1e-8)


def test_no_place_of_an_interpolated_map_is_above_the_maximum(table):
    field = build_field(table(sites="interpolated"), 2000)
    values = field.value(lattice(field.low, field.high, 40_000))
    assert values.max() <= field.maximum + 1e-9
    assert field.value(field.argmax[None])[0] == pytest.approx(field.maximum)


def test_candidates_of_an_interpolated_field_lie_in_the_hull_and_nearly_reach_max_sites(table, points):
    X, _ = points
    field = build_field(table(sites="interpolated"), 500)
    assert 400 < len(field.sites) <= 500
    grown = X.mean(axis=0) + (X - X.mean(axis=0)) * (1 + 1e-6)
    assert (Delaunay(grown).find_simplex(field.sites) >= 0).all()


DIAMOND = "east,north,zinc\n0,10,1\n10,0,2\n20,10,3\n10,20,4\n"
SLIVER = "east,north,zinc\n0,0,1\n500,280,2\n900,500,3\n200,111.5,2\n"


@pytest.mark.parametrize("max_sites", range(4, 10))
def test_a_small_max_sites_is_kept(table, points, max_sites):
    field = build_field(table(sites="interpolated"), max_sites)
    assert max_sites / 2 <= len(field.sites) <= max_sites
    assert len(np.unique(field.sites, axis=0)) == len(field.sites)
    assert field.minimum == pytest.approx(field.value(field.sites).min())


@pytest.mark.parametrize("text", [DIAMOND, SLIVER])
@pytest.mark.parametrize("max_sites", [4, 5, 6, 7, 8, 9, 100])
def test_candidates_lie_in_the_hull_even_if_a_lattice_misses_it(table, text, max_sites):
    field = build_field(table(text, sites="interpolated"), max_sites)
    assert 4 <= len(field.sites) <= max_sites
    assert len(field.points) >= 4
    corners = np.loadtxt(text.splitlines()[1:], delimiter=",")
    if text == DIAMOND and max_sites == 4:  # too few of the bounding box's corners lie in the hull
        np.testing.assert_array_equal(field.sites, corners[:, :2])
        assert field.minimum == pytest.approx(corners[:, 2].min())
    grown = corners[:, :2].mean(axis=0) + (corners[:, :2] - corners[:, :2].mean(axis=0)) * (1 + 1e-6)
    assert (Delaunay(grown).find_simplex(field.sites) >= 0).all()


def test_thinned_sites_are_a_subset_that_leaves_no_site_far_away(points):
    X, _ = points
    for n_points in (1, 4, 9, 60, 100):
        kept = thinned(X, n_points)
        assert len(kept) == min(n_points, len(X))
        assert {tuple(site) for site in kept} <= {tuple(site) for site in X}
        apart = np.hypot(*(kept[:, None] - kept[None]).transpose(2, 0, 1)) + np.diag(np.full(len(kept), np.inf))
        to_next = np.hypot(*(X[:, None] - kept[None]).transpose(2, 0, 1)).min(axis=1)
        assert to_next.max() <= apart.min()  # otherwise the farthest site would have been taken before the last one


def test_sites_on_one_line_still_span_a_map(table):
    field = build_field(table("east,north,zinc\n0,7,1\n10,7,5\n30,7,3\n"), 100)
    assert (field.low < field.high).all()
    assert field.value(np.array([[29.0, 7.0]]))[0] == 3


def test_a_byte_order_mark_blank_lines_and_spaces_are_accepted(table):
    field = build_field(table(b"\xef\xbb\xbfeast, north ,zinc\r\n\r\n0, 0, 1\r\n1,1,2\r\n\r\n"), 100)
    assert len(field.sites) == 2


HEADER = "east,north,zinc\n"
MAP = {"sites": "interpolated"}


@pytest.mark.parametrize(
    ("text", "more", "message"),
    [
        ("", {}, r"csv: '.*soil\.csv' is empty; wanted a header line and rows of numbers"),
        (HEADER, {}, "csv: .* is empty"),
        (b"\xff\xfe\x00east", {}, "csv: cannot read"),
        ("east,north,lead\n1,2,3\n", {}, r"value: .*soil\.csv: no column 'zinc'; columns: east, north, lead"),
        ("x,north,zinc\n1,2,3\n", {}, r"x: .*soil\.csv: no column 'east'"),
        ("1,2,3\n1,3,many\n", {}, r"value: .*soil\.csv: line 3, column 'zinc': got 'many'; wanted a fin"),
        ("1,2,inf\n1,3,1\n", {}, r"value: .*soil\.csv: line 2, column 'zinc': got 'inf'"),
        (
            "1,2,1e20\n1,3,1\n",
            {"missing": []},
            r"value: .*soil\.csv: line 2, column 'zinc': got '1e20'; wanted a number below 1e12",
        ),
        ("0,0,1\n1,0,1e200\n", {}, r"value: .*soil\.csv: line 3, column 'zinc': got '1e200'; wanted a num"),
        ("0,0,1\n1e200,0,2\n", {}, r"x: .*soil\.csv: line 3, column 'east': got '1e200'; wanted a number below"),
        ("0,-1e12,1\n1,0,2\n", {}, r"y: .*soil\.csv: line 2, column 'north': got '-1e12'; wanted a number below"),
        (
            "1,2,nan\n1,3,-9999\n",
            {"missing": [-9999]},
            "csv: no row of .* is complete: 1 without a number in 'zinc'; 1 with -9999 in 'zinc'; wanted num",
        ),
        ("1,2,3\n1,3,1\n", {"missing": list(range(17))}, "missing: .* at most 16 numbers"),
        ("1,2,3\n1,2,4\n", {}, "csv: got 1 distinct sites in .*; wanted at least 2"),
        ("1,1,3\n2,2,4\n3,3,4\n", MAP, "sites: .* on one line"),
        ("1,1,3\n2,2,4\n", MAP, "sites: got 2 distinct sites"),
        (
            "0,0,1\n10,0,2\n10.000000001,0,5\n0,10,4\n",
            MAP,
            r"csv: got sites \[10\.0, 0\.0\] and \[10\.000000001, 0\.0\], 1e-09 m apart; wanted at least",
        ),
        ("0,0,1\n1e-200,0,2\n", {}, r"csv: .* \[1e-200, 0\.0\], 0 m apart; wanted at least 1e-06"),
        (
            "0,0,1\n1e4,0,2\n1e4,6.9,5\n0,1e4,4\n5e3,5e3,0\n",
            MAP,
            r"csv: .* \[10000\.0, 0\.0\] and \[10000\.0, 6\.9\], 6\.9 m apart; wanted at least 7\.0",
        ),
        ("1,2,3\n1,3,1\n", {"sites": "all"}, "sites: got 'all'"),
    ],
)
def test_bad_files_are_refused_in_one_line_with_the_path(table, text, more, message):
    text = HEADER + text if text[:1] in ("0", "1") else text
    with pytest.raises(ConfigError, match=rf"^\$\.field\.{message}") as error:
        build_field(table(text, **more), 100)
    assert "\n" not in str(error.value)


def test_numbers_just_below_the_limit_are_accepted(table):
    text = "east,north,zinc\n-9e11,-9e11,-9e11\n9e11,9e11,9e11\n9e11,-9e11,1\n"
    for sites in ("only", "interpolated"):
        field = build_field(table(text, sites=sites), 100)
        assert np.isfinite(field.value(field.points)).all()


def test_a_robot_without_a_site_left_to_measure_has_not_failed(table):
    given = table("east,north,zinc\n" + "".join(f"{100 * i},{100 * j},{i + j}\n" for i in range(3) for j in range(2)))
    env = robot_team_v0.parallel_env(robots=2, field=given, max_cycles=4)
    team, (observations, infos) = sb.Team.for_env(env, seed=0), env.reset(seed=0)
    while env.agents:
        observations, *rest = env.step(team.act(observations, infos))
        team.observe(observations, *rest)
    assert (team.n_data, team.failures) == (6, 0)
    assert [info["sampled"] for info in rest[-1].values()] == [False, False]
    sb.testing.check_environment(lambda: robot_team_v0.parallel_env(robots=6, field=given, max_cycles=4))


def test_an_empty_path_says_how_to_give_a_file():
    words = r"^\$\.field\.csv: no file is given; .*--set environment\.field\.csv=FILE for .* 'measured'"
    with pytest.raises(ConfigError, match=words):
        build_field({"csv": "", "x": "x", "y": "y", "value": "v"}, 100)


@pytest.mark.parametrize("path", ["nowhere.csv", ".", "with\0null"])
def test_a_file_that_is_not_there_is_refused(path):
    with pytest.raises(ConfigError, match=r"\$\.field\.csv: cannot read .*; wanted a CSV file"):
        build_field({"csv": path, "x": "x", "y": "y", "value": "v"}, 100)
