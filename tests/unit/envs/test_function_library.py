"""Functions of the library have the maxima that they state; simulations are compared with oracles."""

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize

from swarmbo.errors import ConfigError
from swarmbo_envs.functions import FUNCTIONS, get
from swarmbo_envs.functions.additive_function import typed
from swarmbo_envs.functions.papers import moved_objects, path_value

SMALL = {"rastrigin": {"n_variables": 20}, "michalewicz": {"n_variables": 5}, "wells": {"n_variables": 6}}
SMALL["additive-gp"] = {"n_variables": 3}
FORMS = {"plain": {}, "moved": {"moved": True}, "rescaled": {"rescaled": True}}
FORMS["both"] = FORMS["moved"] | FORMS["rescaled"]

# values from the literature and from multi-start searches, independent of the code's own constants
KNOWN = {
    "ackley": 0.0,
    "ackley-positive": 4.710965,
    "branin": -0.397887,
    "camel": 1.0316285,
    "drop-wave": 1.0,
    "eggholder": 959.6406627,
    "gsobol": -(2.0**-4),
    "hartmann": 3.322368,
    "michalewicz": 9.6601517,
    "powell": 0.0,
    "rastrigin": 0.0,
    "shekel": 10.53641,
    "wells": 40 * 39.1661657,
    "zakharov": 0.0,
}


@pytest.mark.parametrize("steepness", [1, 10, 100])
def test_no_peak_of_michalewicz_with_many_variables_is_higher_than_the_maximum(steepness):
    f = get("michalewicz", n_variables=110, steepness=steepness)
    highest = []
    for i in range(1, f.n_variables + 1):
        peaks = np.pi * np.sqrt((np.arange(i) + 0.5) / i)  # where the sine of i x^2 / pi is 1 or -1
        width = np.pi / (2 * i) / np.sqrt(2 * steepness)
        X = np.clip(peaks[:, None] + width * np.linspace(-0.3, 0.3, 401), 0.0, np.pi)
        highest.append((np.sin(X) * np.sin(i * X**2 / np.pi) ** (2 * steepness)).max())
    values = f.factor_values(f.argmax[None])[0]
    assert (values >= np.array(highest) - 1e-12).all()
    assert f.maximum == pytest.approx(values.sum())


def test_types_of_some_variables_keep_the_best_of_the_others():
    types = {"x0": {"kind": "integer", "low": 0, "high": 9}, "x3": {"kind": "integer", "low": 0, "high": 3}}
    f = typed(get("rastrigin", n_variables=4, block=2), types)
    best = max(f.value(np.array([[a, 0.0, 0.0, b]]))[0] for a in range(10) for b in range(4))
    assert f.maximum == pytest.approx(best, abs=1e-9)
    g = get("ackley", n_variables=2, moved=True)  # a real variable has codes on another axis, too
    types = {
        "x0": {"kind": "real", "low": 1.0, "high": 1000.0, "log": True},
        "x1": {"kind": "real", "low": 0, "high": 1},
    }
    assert typed(g, types).maximum == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("form", ["plain", "both"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_stated_argmax_has_the_stated_maximum(name, form):
    f = get(name, seed=3, **FORMS[form], **SMALL.get(name, {}))
    assert f.value(f.argmax[None])[0] == pytest.approx(f.maximum, abs=1e-7 * max(1.0, abs(f.maximum)))
    assert ((f.low <= f.argmax) & (f.argmax <= f.high)).all()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_point_near_the_argmax_has_a_larger_value(name):
    """A curve of regret on a logarithmic axis would end at such a point."""
    f = get(name, seed=3, **SMALL.get(name, {}))
    bounds = list(zip(f.low, f.high, strict=True))
    top = -minimize(lambda x: -f.value(x[None])[0], f.argmax, bounds=bounds, method="L-BFGS-B").fun
    assert top <= f.maximum + 1e-12 * max(1.0, abs(f.maximum))


@pytest.mark.parametrize("name", KNOWN)
def test_the_maximum_equals_that_of_the_literature(name):
    assert get(name).maximum == pytest.approx(KNOWN[name], abs=1e-6 * max(1.0, abs(KNOWN[name])))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_search_finds_a_better_point(name):
    f = get(name, seed=5, **FORMS["both"], **SMALL.get(name, {}))
    rng = np.random.default_rng(0)
    sides = f.high - f.low
    anywhere = f.low + rng.random((1500, f.n_variables)) * sides
    near = np.clip(f.argmax + 0.01 * rng.standard_normal((1500, f.n_variables)) * sides, f.low, f.high)
    points = np.concatenate([anywhere, near])
    values = f.value(points)
    slack = 1e-7 * max(1.0, abs(f.maximum))
    for start in points[np.argsort(values)[-1:]]:
        method, bounds = "Nelder-Mead" if f.n_variables <= 6 else "L-BFGS-B", list(zip(f.low, f.high, strict=True))
        value = partial(lambda x, f: -f.value(np.clip(x, f.low, f.high)[None])[0], f=f)
        found = minimize(value, start, method=method, bounds=bounds, options={"maxiter": 200})
        assert -found.fun <= f.maximum + slack
    assert values.max() <= f.maximum + slack


SUMS = {
    "ackley": ({"n_variables": 6, "block": 3}, 0.0),
    "hartmann": ({"n_variables": 6, "block": 3, "largest": 100.0}, 101.0 * 3.86278),
    "shekel": ({"m": 7}, 10.4029406),
    "wells": ({"n_variables": 8, "block": 4}, 8 * 39.1661657),
}


@pytest.mark.parametrize("form", ["plain", "both"])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_blocks_reaches_the_sum_of_their_maxima_and_searches_find_no_more(name, form):
    own, maximum = SUMS[name]
    f = get(name, seed=1, **own, **FORMS[form])
    assert f.maximum == pytest.approx(maximum, rel=1e-6)
    assert f.value(f.argmax[None])[0] == pytest.approx(f.maximum, rel=1e-9, abs=1e-9)
    rng = np.random.default_rng(1)
    for factor, scope in f.scopes.items():
        index = list(scope)
        low, high, top = f.low[index], f.high[index], f.terms[factor](f.argmax[None, index])[0]
        for start in low + rng.random((8, len(index))) * (high - low):
            value = partial(lambda x, term: -term(x[None])[0], term=f.terms[factor])
            found = minimize(value, start, method="L-BFGS-B", bounds=list(zip(low, high, strict=True)))
            assert -found.fun <= top + 1e-6 * max(1.0, abs(top))


def test_the_maximum_of_a_drawn_factor_of_five_variables_is_as_good_as_many_local_searches():
    assert get("additive-gp", n_variables=5, size=5, lengthscale=0.3, seed=11).maximum >= 3.0127


def test_no_point_of_a_fine_grid_beats_the_maximum_of_a_drawn_chain():
    f, u = get("additive-gp", seed=0), np.linspace(0.0, 1.0, 65)
    grid, best = np.stack(np.meshgrid(u, u, indexing="ij"), axis=-1).reshape(-1, 2), np.zeros(len(u))
    for term in reversed(f.terms.values()):  # the best sum of all later terms, per value of a term's first variable
        best = (term(grid).reshape(len(u), len(u)) + best).max(axis=1)
    assert best.max() <= f.maximum + 1e-9


def test_a_rotated_block_of_wells_has_peaks_of_three_heights_and_is_not_a_sum_over_its_variables():
    f = get("wells", n_variables=2, seed=0)
    rng, heights = np.random.default_rng(0), set()
    for start in f.low + rng.random((60, 2)) * (f.high - f.low):
        found = minimize(lambda x: -f.value(x[None])[0], start, method="L-BFGS-B", bounds=[(-9.0, 9.0)] * 2)
        heights.add(round(-found.fun, 3))
    assert heights == {78.332, 64.196, 50.059}
    corners = f.value(np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]]))
    assert abs(corners[0] - corners[1] - corners[2] + corners[3]) > 0.1


TRIMODAL = [(10, 3, 3), (24, 6, 4), (24, 11, 2), (40, 5, 8), (40, 18, 2)]
TRIMODAL += [(40, 35, 1), (96, 5, 19), (96, 29, 3), (120, 55, 2)]


@pytest.mark.parametrize("setting", TRIMODAL)
def test_the_maximum_of_trimodal_is_that_of_the_heavy_component_within_a_thousandth(setting):
    d, size, groups = setting
    f = get("trimodal", n_variables=d, size=size, groups=groups, seed=2)
    assert f.value(f.argmax[None])[0] == pytest.approx(f.maximum, abs=1e-3)
    assert len({j for scope in f.scopes.values() for j in scope}) == size * groups
    assert f.maximum / groups == pytest.approx(np.log(0.8) - size / 2 * np.log(2 * np.pi * 0.01 * size**0.1))


@given(
    st.integers(0, 10_000), st.sampled_from(sorted(FORMS)), st.sampled_from(["powell", "camel", "hartmann", "branin"])
)
def test_terms_add_up_and_depend_only_on_their_scopes(seed, form, name):
    f = get(name, seed=seed, **FORMS[form])
    rng = np.random.default_rng(seed)
    X = f.low + rng.random((3, f.n_variables)) * (f.high - f.low)
    assert f.factor_values(X).sum(axis=1) == pytest.approx(f.value(X))
    for k, scope in enumerate(f.scopes.values()):
        other = f.low + rng.random((3, f.n_variables)) * (f.high - f.low)
        other[:, list(scope)] = X[:, list(scope)]
        assert (f.factor_values(other)[:, k] == f.factor_values(X)[:, k]).all()


@pytest.mark.parametrize("name", ["powell", "hartmann", "rastrigin"])
def test_the_moved_optimum_depends_only_on_the_seed(name):
    plain, (one, again, two) = get(name), (get(name, moved=True, seed=seed) for seed in (1, 1, 2))
    assert (one.argmax == again.argmax).all()
    assert (one.argmax != two.argmax).all()
    shares = (one.argmax - one.low) / (one.high - one.low)
    assert ((shares > 0.099) & (shares < 0.901)).all()
    assert np.abs(one.argmax - plain.argmax).max() > 0.1 * (plain.high - plain.low).max()


def test_rescaling_changes_the_sensitivity_to_each_axis_and_keeps_the_optimum():
    plain, stretched = get("powell"), get("powell", rescaled=True, seed=4)
    assert stretched.argmax == pytest.approx(plain.argmax)
    step = np.eye(24)
    drops = plain.value(stretched.argmax + step) / stretched.value(stretched.argmax + step)
    assert drops.max() / drops.min() > 2.0


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("nonsense", {}, "wanted one of ackley"),
        ("shekel", {"m": 4}, "wanted 5, 7 or 10"),
        ("trimodal", {"size": 1}, "groups of >= 2"),
        ("hartmann", {"n_variables": 5}, "wanted a multiple of 6"),
        ("hartmann", {"block": 4}, "wanted 3 or 6"),
        ("hartmann", {"largest": 0.5}, "largest 0.5"),
        ("wells", {"n_variables": 5}, "wanted a multiple of 2"),
        ("wells", {"n_variables": 60, "block": 60}, "got blocks of 60.*wanted at most 20"),
        ("michalewicz", {"n_variables": -1}, r"n_variables: got -1; wanted an integer >= 1"),
        ("ackley", {"n_variables": 0}, r"n_variables: got 0; wanted an integer >= 1"),
        ("michalewicz", {"steepness": -3}, "got -3; wanted an integer >= 1"),
        ("additive-gp", {"size": 7}, r"environment\.size: got 7; wanted 1 to 6"),
        ("additive-gp", {"lengthscale": 0.0}, r"environment\.lengthscale: got 0.0; wanted a finite number > 0"),
        ("additive-gp", {"lengthscale": np.inf}, r"environment\.lengthscale: got inf; wanted a finite number > 0"),
        ("rover", {"obstacles": -1}, r"environment\.obstacles: got -1; wanted an integer >= 0"),
        ("rover", {"half_m": 0.0}, r"environment\.half_m: got 113 squares of half side 0.0; wanted a number > 0"),
        ("rover", {"half_m": 0.45}, "got 113 squares of half side 0.45; wanted .* start and goal free"),
    ],
)
def test_unknown_functions_and_invalid_settings_are_refused(name, settings, message):
    with pytest.raises(ConfigError, match=message):
        get(name, **settings)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_can_be_pickled(name):
    plain = get(name, **SMALL.get(name, {}))
    for function in (plain, plain.moved(2).rescaled(2)):
        again = pickle.loads(pickle.dumps(function))
        sides = np.random.default_rng(0).random((20, function.n_variables))
        X = function.low + sides * (function.high - function.low)
        np.testing.assert_array_equal(again.factor_values(X), function.factor_values(X))


NO_SQUARES = np.zeros((0, 2))
STEP = 0.01


def goal_of(seed):
    """The goal of the push function of a seed."""
    pytest.importorskip("Box2D")
    return get("push", seed=seed).terms["f"].keywords["goals"][0]


def pushed_along_a_line(start, duration):
    """Final place of an object pushed along the x axis, in one dimension. Hand and object stick while they touch."""
    hand, thing = 0.1 * 0.6 * 2.0, 0.05 * np.pi
    x, v, place, speed = -start + 0.0, 0.0, 0.0, 0.0
    for step in range(int(10 * duration) + 100):
        wanted = 30.0 * hand * (5.0 - v) if step < int(10 * duration) else 0.0
        v += STEP * wanted / hand
        if x + 0.3 >= place - 1.0 and v > speed:  # perfectly plastic
            v = speed = (hand * v + thing * speed) / (hand + thing)
        v -= np.sign(v) * min(abs(v), STEP * 2.0 / hand)
        speed -= np.sign(speed) * min(abs(speed), STEP * 5.0 / thing)
        if x + 0.3 >= place - 1.0 and v > speed:
            v = speed = (hand * v + thing * speed) / (hand + thing)
        x, place = x + STEP * v, place + STEP * speed
    return place


def test_a_push_that_does_not_touch_the_object_leaves_it_at_the_origin():
    goal = goal_of(3)
    value = get("push", seed=3).value(np.array([[5.0, 5.0, 1.0]]))
    assert value[0] == pytest.approx(5.0 - np.hypot(*goal), abs=1e-12)


@pytest.mark.parametrize("duration", [12.0, 20.0])
def test_a_push_along_a_line_agrees_with_mechanics_in_one_dimension(duration):
    pytest.importorskip("Box2D")
    row = np.array([[-4.0, 0.0, 5.0, 0.0, duration, 0.0, 0.0]])
    end = moved_objects(row, np.zeros((1, 2)))[0]
    assert end[1] == pytest.approx(0.0, abs=1e-5)
    assert end[0] == pytest.approx(pushed_along_a_line(4.0, duration), abs=0.15)


def test_mirrored_pushes_move_the_object_to_mirrored_places():
    pytest.importorskip("Box2D")
    row = np.array([3.0, 1.0, -6.0, -3.0, 9.0, 0.4, 1.0])
    mirrored = row * [1, -1, 1, -1, 1, -1, -1]
    a, b = (moved_objects(one[None], np.zeros((1, 2)))[0] for one in (row, mirrored))
    assert np.hypot(*a) > 0.5
    np.testing.assert_allclose(b, a * [1, -1], atol=2e-3)


@pytest.mark.parametrize(("number", "beside", "above"), [(0, 1.5, 0.8), (1, 2.0, 1.3)])
def test_two_robots_have_hands_two_metres_wide_and_push_a_square_and_a_disc(number, beside, above):
    pytest.importorskip("Box2D")
    starts = np.array([[0.0, 2.0], [0.0, -2.0]])
    for off in ([beside, 0.0], [0.0, above]):  # the distance at which a hand touches the object
        for share in (0.9, 1.1):
            commands = np.zeros((2, 7))
            commands[:, 0], commands[number, :2] = 40.0, starts[number] + share * np.array(off)
            moved = np.abs(moved_objects(commands, starts) - starts).max(axis=1) > 1e-6
            assert moved.tolist() == [share < 1.0 and number == n for n in range(2)]


def test_two_robots_that_push_are_two_agents():
    pytest.importorskip("Box2D")
    from swarmbo_envs import robot_push_v0

    f = get("push", n_variables=14)
    idle = np.array([[-5, -5, 0, 0, 2, 0, 0, 5, -5, 0, 0, 2, 0, 0]], dtype=float)
    assert f.value(idle)[0] == pytest.approx(0.0, abs=1e-9)
    below = np.array([[-1.6, 1.4, 8, 3, 8, 0.4, 0, 5, -5, 0, 0, 2, 0, 0]], dtype=float)
    assert f.value(below)[0] > 0.5
    env = robot_push_v0.parallel_env(variables=14)
    assert {agent: env.action_space(agent).shape for agent in env.possible_agents} == {"agent_0": (7,), "agent_1": (7,)}


def points_between(ends):
    return ((np.linspace(*ends, 30) + 0.1) / 1.2).ravel()[None]


@pytest.mark.parametrize("through", [False, True])
def test_a_straight_path_costs_its_length_and_twenty_times_its_length_in_squares(through):
    line = points_between(([0.05, 0.05], [0.95, 0.95]))
    length = 0.9 * np.sqrt(2.0)
    assert path_value(line, NO_SQUARES, 0.025, through)[0] == pytest.approx(-0.05 * length, abs=1e-6)
    crossed = 0.05 * np.sqrt(2.0)
    with_square = path_value(line, np.array([[0.5, 0.5], [0.2, 0.8]]), 0.025, through)[0]
    assert with_square == pytest.approx(-0.05 * length - 20.0 * crossed, abs=0.06)


@pytest.mark.parametrize("through", [False, True])
def test_repeated_points_of_a_path_count_once(through):
    ends = [0.2, 0.2, 0.2, 0.2, 0.6, 0.8, 0.6, 0.8]
    line = np.array([[*ends, 0.6, 0.8]])
    assert path_value(line, NO_SQUARES, 0.025, through) == path_value(line[:, 2:6], NO_SQUARES, 0.025, through)
    one_place = (np.full((1, 8), 0.5) + 0.1) / 1.2
    assert path_value(one_place, NO_SQUARES, 0.025, through)[0] == pytest.approx(-10.0 * 4 * 0.45)


def test_missing_start_and_goal_costs_ten_times_the_distance_and_leaving_the_map_costs_like_a_square():
    line = points_between(([0.1, 0.5], [0.9, 0.5]))
    missed = 0.05 + 0.45 + 0.05 + 0.45
    assert path_value(line, NO_SQUARES, 0.025, True)[0] == pytest.approx(-0.05 * 0.8 - 10.0 * missed, abs=1e-6)
    out = points_between(([0.5, 0.5], [1.05, 0.5]))
    missed = 0.45 + 0.45 + 0.1 + 0.45
    wanted = -0.05 * 0.55 - 20.0 * 0.05 - 10.0 * missed
    assert path_value(out, NO_SQUARES, 0.025, True)[0] == pytest.approx(wanted, abs=0.03)


def test_obstacles_are_drawn_by_the_seed_and_leave_start_and_goal_free():
    first, again, other = (get("rover", seed=seed).terms["f"].keywords["centres"] for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert first.shape == other.shape == (113, 2)
    assert not np.array_equal(first, other)
    for end in (0.05, 0.95):
        assert np.abs(first - end).max(axis=1).min() > 0.05


def test_a_network_scores_low_without_learning_and_like_logistic_regression_with_it():
    pytest.importorskip("sklearn")
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    f = get("network", data="iris", trainings=2)
    idle, able, rounded = f.value(np.array([[20, 20, -6, 16], [20, 20, -2, 8], [20.4, 19.6, -2, 8.3]]))
    linear = cross_val_score(LogisticRegression(max_iter=1000), *load_iris(return_X_y=True)).mean()
    assert idle < 0.75 < linear - 0.1 < able <= 1.0
    assert able == rounded
    assert able * 45 * 2 == pytest.approx(round(able * 45 * 2), abs=1e-9)


@pytest.mark.parametrize(
    ("name", "settings"), [("push", {"n_variables": 5}), ("rover", {"n_variables": 9}), ("network", {"data": "mnist"})]
)
def test_invalid_sizes_and_data_are_refused_with_the_valid_ones(name, settings):
    with pytest.raises(ConfigError, match="wanted"):
        get(name, **settings)
