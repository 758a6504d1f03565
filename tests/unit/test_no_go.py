"""No-go regions: no team in a field or of a function queries them, with any method."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st
from matplotlib.path import Path as Outline

import swarmbo as sb
from swarmbo.errors import ConfigError, ShapeError, UnknownQueryError
from swarmbo.problem import Problem
from swarmbo.runs import run
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.scenario import scenario_of
from swarmbo.runs.scenario_files import dump
from swarmbo.spaces import Domain
from swarmbo.spaces.variables import MixedDomain

from .teams import CHAIN, ask_and_tell

BOX = Domain(np.array([-2.0, 10.0]), np.array([4.0, 30.0]))
LOGARITHMIC = MixedDomain.of([sb.Real(-2.0, 4.0), sb.Real(10.0, 30.0, log=True)])
DECADES = MixedDomain.of([sb.Real(1e-5, 1.0, log=True), sb.Real(-1.0, 1.0)])
STAR = sb.NoGoPolygon(corners=((-1.0, 12.0), (3.0, 14.0), (1.0, 18.0), (3.5, 28.0), (-1.5, 24.0)))
SHAPES = [sb.NoGoBox(low=(-1.0, 12.0), high=(2.0, 25.0)), sb.NoGoBall(centre=(1.0, 20.0), radius=2.5), STAR]
BOX_OF_SUM = {"x": (0.0, 1.0), "y": (-1.0, 3.0), "z": (0.0, 10.0)}
SHUT = sb.NoGoBall(variables=("x",), centre=(0.5,), radius=0.2)  # the region contains the maximum
APART = sb.NoGoBox(variables=("z", "x"), low=(2.0, 0.0), high=(9.0, 0.6))  # no factor has both variables
LINE = np.linspace(0.0, 1.0, 41)[:, None]


def is_within(region, X):
    """Mask of points within a region, by the definition of its shape in physical units."""
    if isinstance(region, sb.NoGoBox):
        return ((np.array(region.low) < X) & (np.array(region.high) > X)).all(axis=1)
    if isinstance(region, sb.NoGoBall):
        return ((X - np.array(region.centre)) ** 2).sum(axis=1) < region.radius**2
    return Outline(np.array(region.corners), closed=False).contains_points(X)


@pytest.mark.parametrize("box", [BOX, LOGARITHMIC], ids=["linear", "logarithmic"])
@pytest.mark.parametrize("region", SHAPES)
def test_depth_is_positive_exactly_within_and_its_slope_agrees_with_differences(region, box):
    rng = np.random.default_rng(0)
    U = rng.random((400, 2))
    depth, slope = region.depth(U, box)
    np.testing.assert_array_equal(depth > 0.0, is_within(region, box.from_unit(U)))
    step = 1e-7
    for axis in range(2):
        shift = step * np.eye(2)[axis]
        differences = (region.depth(U + shift, box)[0] - region.depth(U - shift, box)[0]) / (2.0 * step)
        assert np.mean(np.abs(differences - slope[:, axis]) < 1e-4) > 0.99  # except at ridges between two sides


@pytest.mark.parametrize("box", [BOX, LOGARITHMIC, DECADES], ids=["linear", "logarithmic", "over decades"])
def test_a_polygon_of_four_corners_has_the_depth_of_the_box(box):
    (left, bottom), (right, top) = box.from_unit(np.array([[0.3, 0.4], [0.8, 0.7]]))
    polygon = sb.NoGoPolygon(corners=((left, bottom), (right, bottom), (right, top), (left, top)))
    U = np.random.default_rng(0).random((400, 2))
    wanted, _ = sb.NoGoBox(low=(left, bottom), high=(right, top)).depth(U, box)
    depth, _ = polygon.depth(U, box)
    np.testing.assert_array_equal(depth > 0.0, wanted > 0.0)
    np.testing.assert_allclose(depth[depth > 0.0], wanted[depth > 0.0], atol=1e-12)


@pytest.mark.parametrize("beyond", [0.0, -1.0])
def test_borders_of_a_triangle_over_decades_are_straight_in_physical_units(beyond):
    triangle = sb.NoGoPolygon(corners=((beyond, 0.0), (1.0, 0.0), (beyond, 1.0)))
    t = np.random.default_rng(0).random((200, 1)) ** 4
    edge = t * [1.0, 0.0] + (1.0 - t) * [beyond, 1.0]
    edge = edge[edge[:, 0] > 1e-5]
    assert np.abs(triangle.depth(DECADES.to_unit(edge), DECADES)[0]).max() < 2e-3


@given(seed=st.integers(0, 10_000), chosen=st.sets(st.integers(0, 2), min_size=1), is_log=st.booleans())
def test_a_point_is_moved_to_almost_the_nearest_allowed_point(seed, chosen, is_log):
    axes = dict(zip("xy", LOGARITHMIC.variables, strict=True))
    problem = Problem.of(None, axes) if is_log else Problem.of_field(["a"], BOX)
    problem = problem.with_no_go([SHAPES[n] for n in sorted(chosen)])
    rng = np.random.default_rng(seed)
    u = rng.random(2)
    moved = problem.nearest_allowed(u)
    assert problem.is_allowed(moved[None])[0]
    assert ((moved >= 0.0) & (moved <= 1.0)).all()
    if problem.is_allowed(u[None])[0]:
        np.testing.assert_array_equal(moved, u)
    elsewhere = rng.random((4000, 2))
    nearest = np.linalg.norm(elsewhere[problem.is_allowed(elsewhere)] - u, axis=1).min()
    assert np.linalg.norm(moved - u) <= nearest + (1e-4 if chosen == {0} or (chosen == {2} and not is_log) else 0.05)


def outcomes_of(point):
    f = -((point["x"] - 0.5) ** 2) - 0.1 * (point["y"] - 1.0) ** 2
    return {"f": f, "g": -0.01 * (point["z"] - 5.0) ** 2}


def keeps_out(X):
    return not (np.abs(X[:, 0] - 0.5) < 0.2).any()


BY_FACTOR = {"thompson", "dec-hbo"}


@pytest.mark.parametrize(
    "acquisition",
    [
        *("auto", "dumbo", "thompson"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("expected-improvement", "dec-hbo")),
    ],
)
def test_no_acquisition_of_a_function_queries_a_region(acquisition):
    outcomes = "per-factor" if acquisition in BY_FACTOR else "total"
    team = sb.Team(CHAIN, BOX_OF_SUM, acquisition=acquisition, outcomes=outcomes, no_go=[SHUT], initial=6, seed=1)
    ask_and_tell(team, 12, outcomes_of)
    X = team.history.X
    assert keeps_out(X)
    assert np.abs(X[6:, 0] - 0.5).min() < 0.25  # near the best allowed value
    assert abs(team.recommend().point["x"] - 0.5) >= 0.2


@pytest.mark.parametrize(
    "coordination",
    [
        *("refined-max-sum", "random", "sobol", {"kind": "admm", "rounds": 5}),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("centralised", "isotropic-gp")),
    ],
)
def test_no_coordination_method_queries_a_region(coordination):
    team = sb.Team(CHAIN, BOX_OF_SUM, coordination=coordination, no_go=[SHUT, APART], initial=4, seed=2)
    ask_and_tell(team, 10, outcomes_of)
    X = team.history.X
    assert keeps_out(X)
    assert not ((X[:, 2] > 2.0) & (X[:, 2] < 9.0) & (X[:, 0] < 0.6)).any()


def test_the_penalty_of_a_factor_keeps_the_agreement_out_of_a_region():
    """The agreement lies at the border of the region, so that points inside move by less than a thousandth."""
    from swarmbo.acquisition.confidence_bounds import ConfidenceBounds
    from swarmbo.acquisition.penalties import spreads, with_limits
    from swarmbo.baselines import Centralised
    from swarmbo.belief import AdditiveGP

    problem = Problem.of(CHAIN, BOX_OF_SUM).with_no_go([SHUT])
    rng = np.random.default_rng(0)
    X = problem.domain.from_unit(rng.random((40, 3)))
    belief = AdditiveGP(CHAIN, BOX_OF_SUM).update(X, -((X[:, 0] - 0.5) ** 2)).fit(rng)
    functions = ConfidenceBounds.on_cube(belief, sqrt_beta=dict.fromkeys(CHAIN.factors, 0.0))
    free = Centralised().maximise(functions).point
    held = Centralised().maximise(with_limits(functions, problem.regions, spreads(functions, 0))).point
    assert not problem.is_allowed(free[None])[0]
    assert abs(abs(held[0] - 0.5) - 0.2) < 1e-3


def test_a_factor_reads_the_coordinates_of_a_region_in_their_order():
    from swarmbo.acquisition.box_functions import FixedPoint
    from swarmbo.acquisition.penalties import with_limits
    from swarmbo.graph import stacks_of

    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
    shut = sb.NoGoBox(low=(0.6, 0.0), high=(1.0, 0.3), variables=("y", "x"))
    problem = Problem.of(graph, {"x": (0.0, 1.0), "y": (0.0, 1.0)}).with_no_go([shut])
    held = with_limits(FixedPoint.at(graph, np.full(2, 0.5)), problem.regions, {"f": 1.0})
    (stack,) = stacks_of(graph)
    within, swapped = held.value(stack, np.array([[[0.1, 0.8], [0.8, 0.1]]]), ())[0]
    assert within < -1.0
    assert swapped == 0.0


@pytest.mark.parametrize(
    ("acquisition", "coordination"),
    [
        ("db-gp-ucb", "exact"),
        ("information", "max-sum"),
        ("expected-improvement", "greedy"),
        ("thompson", "independent"),
        ("db-gp-ucb", "random"),
    ],
)
def test_no_agent_in_a_field_measures_in_a_region(acquisition, coordination):
    pond = sb.NoGoBall(centre=(0.5,), radius=0.2)
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], acquisition=acquisition, coordination=coordination, no_go=[pond])
    for n in range(4):
        query = team.ask({"a": LINE, "b": LINE} if n % 2 else None)
        assert len(query.points) == 2
        assert all(abs(x[0] - 0.5) >= 0.2 - 1e-12 for x in query.points.values())
        team.tell(query, {agent: -((float(x[0]) - 0.5) ** 2) for agent, x in query.points.items()})
    assert abs(team.recommend().location[0] - 0.5) >= 0.2 - 1e-12


def test_a_robot_without_allowed_locations_skips_the_round_and_the_report_says_if_all_do():
    team = sb.Team.for_field(["a", "b"], [0.0], [1.0], no_go=[sb.NoGoBox(low=(0.4,), high=(0.6,))])
    assert list(team.ask({"a": [[0.5]], "b": [[0.5], [0.9]]}).points) == ["b"]
    assert team.last_report.status != "infeasible"
    assert team.ask({"a": [[0.5]], "b": [[0.45]]}).points == {}
    assert (team.last_report.status, team.last_report.violated) == ("infeasible", ("no_go[0]",))
    query = team.ask({"a": [], "b": []})
    assert query.points == {}
    assert team.last_report.status == "not_needed"
    team.tell(query, {})  # as a loop does for every query
    with pytest.raises(UnknownQueryError):
        team.tell(query, {"a": 1.0})


def test_a_users_planner_that_sends_an_agent_into_a_region_is_refused():
    class Stubborn:
        def decide(self, situation, acquisition):
            return sb.Decision({"a": np.array([0.5])}, sb.SolveReport("not_needed"))

    regions = [sb.NoGoBall(centre=(0.5,), radius=0.1)]
    team = sb.Team.for_field(["a"], [0.0], [1.0], coordination=Stubborn(), no_go=regions)
    words = r"Stubborn\.decide\(\) returned .*; wanted places outside the regions of no_go"
    with pytest.raises(ShapeError, match=words):
        team.ask()


def test_attached_measurements_in_a_region_are_learned():
    team = sb.Team.for_field(["a"], [0.0], [1.0], no_go=[sb.NoGoBall(centre=(0.5,), radius=0.2)])
    team.attach(LINE, -((LINE[:, 0] - 0.5) ** 2))
    assert team.belief.n_data == len(LINE)
    assert 0.2 <= abs(team.recommend().location[0] - 0.5) < 0.25
    whole = sb.Team(CHAIN, BOX_OF_SUM, no_go=[SHUT])
    whole.attach([[0.5, 1.0, 5.0], [0.1, 0.0, 1.0]], [1.0, 0.0])
    assert abs(whole.recommend().point["x"] - 0.5) >= 0.2


def test_without_regions_states_and_scenarios_do_not_mention_them():
    assert "no_go" not in Problem.of(CHAIN, BOX_OF_SUM).to_plain()
    assert "no_go" not in dump(scenario_of({"name": "n", "environment": {"id": "swarmbo/robot_team-v0"}}))


@pytest.mark.parametrize(
    "region",
    [
        {"kind": "box", "low": [200.0, 200.0], "high": [900.0, 900.0]},
        {"kind": "polygon", "corners": [[200.0, 200.0], [900.0, 200.0], [900.0, 900.0], [200.0, 900.0]]},
    ],
    ids=["box", "polygon"],
)
def test_a_run_keeps_out_of_the_regions_of_its_scenario(tmp_path, region):
    world = {"id": "swarmbo/sensor_field-v0", "sensors": 5, "field": {"gp": {"seed": 0}}}
    data = {"name": "n", "rounds": 3, "environment": world, "acquisition": {"kind": "thompson"}, "no_go": [region]}
    scenario = scenario_of(data)
    assert scenario_of({**msgspec.toml.decode(dump(scenario))}).no_go == scenario.no_go
    run(scenario, tmp_path / "out")
    places = [s.location for r in RunFolder(tmp_path / "out").records()[1:] for s in r.samples if s.location]
    assert len(places) > 3
    assert not is_within(sb.NoGoBox(low=(200.0, 200.0), high=(900.0, 900.0)), np.array(places)).any()


@pytest.mark.parametrize(
    ("regions", "words"),
    [
        ("lake", r"\$\.no_go: got 'lake'; wanted a list of regions"),
        ([3], r"\$\.no_go\[0\]: got 3; wanted a table with a kind, or sb\.NoGoBox, sb\.NoGoBall or sb\.NoGoPolygon"),
        ([{"kind": "lake"}], r"\$\.no_go\[0\]\.kind: got 'lake'; wanted"),
        ([{"kind": "ball", "centre": [0.0], "radius": -1.0}], r"\$\.no_go\[0\]\.radius: got -1\.0; wanted"),
        ([{"kind": "ball", "centre": [np.inf], "radius": 1.0}], r"\$\.no_go\[0\]\.centre: "),
        ([{"kind": "box", "low": [1.0], "high": [0.0]}], r"\$\.no_go\[0\]\.high: .*wanted as many finite numbers"),
        ([{"kind": "box", "low": [0.0], "high": [np.nan]}], r"\$\.no_go\[0\]\.high: "),
        ([{"kind": "box", "low": [], "high": []}], r"\$\.no_go\[0\]\.low: "),
        ([{"kind": "polygon", "corners": [[0, 0], [1, 1], [2, 2]]}], r"\$\.no_go\[0\]\.corners: .*wanted 3 to 1,000"),
        ([{"kind": "polygon", "corners": [[0, 0], [1, 0]]}], r"\$\.no_go\[0\]\.corners: .*wanted 3 to 1,000"),
        ([{"kind": "ball", "centre": [0.0]}], r"\$\.no_go\[0\]"),
        ([SHUT, {"kind": "box", "low": [0.0], "high": [1.0]}], r"\$\.no_go\[1\]: got a region of 1 coord.*; wanted 3"),
        (
            [sb.NoGoBox(variables=("w",), low=(0.0,), high=(1.0,))],
            r"\$\.no_go\[0\]\.variables: got \['w'\]; wanted some",
        ),
        ([sb.NoGoBox(variables=("x", "x"), low=(0, 0), high=(1, 1))], r"\.variables: .*no name twice"),
        ([SHUT] * 1001, r"\$\.no_go: got 1001 regions; wanted at most 1000"),
        ([sb.NoGoBox(variables=("x",), low=(-1.0,), high=(2.0,))], "wanted regions that leave some points to query"),
    ],
)
def test_invalid_regions_are_refused_in_one_line(regions, words):
    with pytest.raises(ConfigError, match=words) as refused:
        sb.Team(CHAIN, BOX_OF_SUM, no_go=regions)
    assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"\$\.no_go\[0\]\.variables: .*wanted none in a field"):
        sb.Team.for_field(["a"], [0.0], [1.0], no_go=[SHUT])


@pytest.mark.parametrize("ordered", [False, True])
def test_a_region_of_a_choice_is_refused(ordered):
    space = {"channel": sb.Categorical([1, 6, 11], ordered=ordered), "x": (0.0, 1.0)}
    for names, end in ((("channel",), (7,)), (None, (7, 1))):
        region = sb.NoGoBox(variables=names, low=(5, 0)[: len(end)], high=end)
        with pytest.raises(ConfigError, match=r"\$\.no_go\[0\]\.variables: got the choice 'channel'; .* a Constraint"):
            sb.Team(None, space, no_go=[region])


@pytest.mark.parametrize(
    ("region", "inside", "outside"),
    [
        ({"kind": "box", "variables": ["x", "y"], "low": [0.3, 0.0], "high": [0.7, 1.0]}, (0.4, 0.0), (0.3, 0.0)),
        ({"kind": "box", "variables": ["x", "y"], "low": [-1.0, 0.2], "high": [0.0, 0.4]}, None, (0.0, 0.3)),
        ({"kind": "ball", "variables": ["x", "y"], "centre": [0.5, 1.0], "radius": 0.2}, (0.5, 1.0), (0.2, 1.0)),
        ({"kind": "polygon", "variables": ["x", "y"], "corners": [[0, 0], [0.6, 0], [0, 0.6]]}, (0.3, 0.0), (0.7, 0.0)),
    ],
)
def test_a_region_that_ends_at_a_bound_includes_the_bound(region, inside, outside):
    graph = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
    problem = sb.Team(graph, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, no_go=[region]).problem
    assert problem.is_allowed(np.array([outside])).all()
    assert inside is None or not problem.is_allowed(np.array([inside])).any()


@pytest.mark.parametrize("variable", [sb.Integer(0, 10), sb.Real(0.0, 10.0, step=1.0), sb.Integer(0, 10**9)])
@pytest.mark.parametrize("side", ["low", "high"])
def test_a_region_that_ends_at_a_bound_includes_the_bound_of_a_grid(variable, side):
    def end(x):
        return x if side == "low" else variable.high - x

    ends = [end(0), end(3)]
    box = sb.NoGoBox(variables=("n",), low=(min(ends),), high=(max(ends),))
    ball = sb.NoGoBall(variables=("n",), centre=(end(1.5),), radius=1.5)
    polygon = sb.NoGoPolygon(
        variables=("n", "m"), corners=((ends[0], 0.0), (ends[1], 0.0), (ends[1], 1.0), (ends[0], 1.0))
    )
    for region in (box, ball, polygon):
        problem = Problem.of(None, {"n": variable, "m": (0.0, 1.0)}).with_no_go([region])
        codes = np.array([[end(n), m] for n in (0, 1, 2, 3, 4) for m in (0.0, 0.5, 1.0)], float)
        allowed = problem.is_allowed(problem.domain.to_unit(codes)).reshape(5, 3)
        np.testing.assert_array_equal(allowed.all(axis=1), [False, False, False, True, True])
        assert not allowed[:3].any()
