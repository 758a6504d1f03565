"""Baselines that set all variables of a function: points at random, one process for all, and a centralised search."""

import numpy as np
import pytest
from scipy.stats import qmc

import swarmbo as sb
from swarmbo.acquisition import DuMBO, Thompson
from swarmbo.acquisition.trust_region import TrustRegion
from swarmbo.baselines import Centralised, IsotropicGP, Random, Sobol
from swarmbo.baselines.one_outcome import seen_totals
from swarmbo.belief.gp.additive import AdditiveGP
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.belief.model.warping import Warp
from swarmbo.boundary.rng import sobol, stream
from swarmbo.errors import ConfigError
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.graph.box_functions import total_value
from swarmbo.problem.data import Dataset
from swarmbo.records import SolveReport, Traffic
from swarmbo.spaces import Domain
from swarmbo.testing.coordinator import Bowls

from .conftest import bowl, some_points


def test_sobol_continues_the_scrambled_sequence_that_the_initial_design_begins(joint_situation):
    sequence = qmc.Sobol(4, rng=stream(3, "initial design")).random_base2(5)
    for t in (0, 1, 10, 31):
        now = joint_situation(np.zeros((t, 4)), np.zeros(t), seed=3)
        point, report = Sobol().decide_joint(now, None)
        assert (point == sequence[t]).all()
        assert report.messages == 0


def test_sobol_continues_the_design_of_variables_with_types():
    space = {"c": sb.Categorical(["a", "b", "c", "d"]), "i": sb.Integer(1, 9, log=True), "x": (0.0, 2.0)}
    designs = [sb.Team(None, space, coordination="sobol", initial=first, seed=1).ask(16) for first in (3, 16)]
    one, other = ([query.point for query in design] for design in designs)
    assert one == other


@pytest.mark.parametrize("n", [0, 1, 31, 32])
def test_any_number_of_points_begins_the_sequence_without_a_warning(n):
    points = sobol(n, 3, None)
    assert (points == qmc.Sobol(3, scramble=False).random_base2(5)[:n]).all()
    assert points.shape == (n, 3)


def test_pending_points_are_not_asked_for_again(joint_situation):
    known, more = joint_situation(np.zeros((5, 4)), np.zeros(5)), np.zeros((1, 4))
    for method in (Sobol(), Random()):
        first, _ = method.decide_joint(known, None)
        second, _ = method.decide_joint(joint_situation(np.zeros((5, 4)), np.zeros(5), pending=more), None)
        assert not np.isclose(first, second).any()


def test_the_draw_of_a_variable_does_not_depend_on_how_many_other_variables_there_are(joint_situation):
    small, _ = Random().decide_joint(joint_situation(np.zeros((5, 4)), np.zeros(5)), None)
    large, _ = Random().decide_joint(joint_situation(np.zeros((5, 8)), np.zeros(5)), None)
    assert (small == large[:4]).all()
    assert len(set(large.tolist())) == 8
    draws = [Random().decide_joint(joint_situation(np.zeros((t, 4)), np.zeros(t)), None)[0] for t in range(200)]
    assert np.abs(np.mean(draws, axis=0) - 0.5).max() < 0.1
    assert min(np.min(draws), 1.0 - np.max(draws)) < 0.02


def test_the_total_is_the_sum_of_outcomes_of_factors_unless_one_is_missing(joint_situation):
    X = np.array([[-2.0] * 4, [3.0] * 4, [0.5] * 4, [1.0] * 4])
    parts = [[np.nan, np.nan], [1.0, 2.0], [1.0, np.nan], [4.0, 5.0]]
    now = joint_situation(X, [7.0, np.nan, np.nan, 8.0], factors=parts)
    U, y = seen_totals(now)
    assert U[:, 0].tolist() == [0.0, 1.0, 0.5, 0.6]
    np.testing.assert_array_equal(y, [7.0, 3.0, np.nan, 8.0])


def written_out(now, X, y, scale):
    """The bound at points of the unit cube, from the joint posterior; and the fitted belief."""
    whole = FactorGraph.from_scopes({"whole": now.graph.variables})
    belief = AdditiveGP.create(AdditiveGPSettings(lengthscales="shared"), whole, now.domain)
    belief = belief.update(X, Warp.fitted("power", y).forward(y))
    belief = belief.fit(stream(0, "isotropic baseline", evaluations=len(y)))

    def bound(U):
        mean, covariance = belief.joint_posterior(now.domain.from_unit(np.concatenate([U, centre[None]])))
        spread = covariance.diagonal() + covariance[-1, -1] - 2.0 * covariance[-1]
        weight = scale * np.sqrt(0.2 * X.shape[1] * np.log(2 * len(y)))
        return (mean - mean[-1] + weight * np.sqrt(np.maximum(spread, 0.0)))[:-1]

    centre = now.domain.to_unit(X[int(y.argmax())])
    return belief, bound, centre


def waves(X):
    return np.sin(4.0 * X).sum(axis=1)


@pytest.mark.parametrize(("function", "scale", "n"), [(bowl, 0.1, 4), (bowl, 4.0, 4), (waves, 0.1, 2), (waves, 2.0, 2)])
def test_the_isotropic_gp_asks_for_the_point_of_its_box_with_the_largest_bound(function, scale, n, joint_situation):
    X = some_points(14 if n == 4 else 30, n)
    y = function(X)
    now = joint_situation(X, y, initial=len(y))
    method = IsotropicGP(exploration_scale=scale, box=TrustRegion(initial=0.5 if n == 4 else 1.0), steps=300)
    point, report = method.decide_joint(now, None)
    belief, bound, centre = written_out(now, X, y, scale)
    half = 0.25 if n == 4 else 0.5
    low, high = np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
    rng = np.random.default_rng(1)
    far = low + rng.random((1500, n)) * (high - low)
    near = np.clip(point + rng.normal(size=(1500, n)) * 10.0 ** rng.uniform(-4, -1, (1500, 1)), low, high)
    values = bound(np.concatenate([point[None], far, near]))
    assert len(set(belief.hyperparameters.lengthscales[0])) == 1
    assert ((point >= low) & (point <= high)).all()
    assert values[0] >= values.max() - 1e-6 * np.ptp(values)
    assert report.messages == 0


def test_the_box_of_the_isotropic_gp_halves_after_failures(joint_situation):
    X = some_points(4, 4)
    X[0] = 1.0
    worse = np.concatenate([X, some_points(30, 4, seed=1)])
    near, _ = IsotropicGP().decide_joint(joint_situation(worse, bowl(worse)), None)
    assert np.abs(near - 0.6).max() <= 2.0**-7 / 2 + 1e-12  # the smallest box


def test_the_isotropic_gp_finds_the_top_of_a_bowl(joint_situation):
    X = some_points(6, 4)
    for _ in range(25):
        point, _ = IsotropicGP().decide_joint(joint_situation(X, bowl(X), initial=6), None)
        X = np.concatenate([X, (-2.0 + 5.0 * point)[None]])
    assert bowl(X[:6]).max() < -1.0
    assert bowl(X).max() > -0.02


def test_the_isotropic_gp_uses_failures_and_pending_points(joint_situation):
    X = some_points(8, 4)
    y = np.where(np.arange(8) == 2, np.nan, bowl(X))
    first, _ = IsotropicGP(exploration_scale=1.0).decide_joint(joint_situation(X, y), None)
    with_pending, _ = IsotropicGP(exploration_scale=1.0).decide_joint(
        joint_situation(X, y, pending=-2.0 + 5.0 * first), None
    )
    blind, _ = IsotropicGP().decide_joint(joint_situation(X, np.full(8, np.nan)), None)
    assert np.abs(first - with_pending).max() > 0.05
    assert ((blind >= 0.0) & (blind <= 1.0)).all()


SCOPES = {"f": ["a"], "g": ["a", "b"]}


def functions_of(kind: Thompson | DuMBO, seed: int = 0) -> BoxFunctions:
    graph, rng = FactorGraph.from_scopes(SCOPES), np.random.default_rng(seed)
    X = rng.random((15, 2))
    y = np.sin(9.0 * X[:, 0]) + np.cos(7.0 * X.sum(axis=1))
    history, domain = Dataset(X, y, np.full((15, 2), np.nan)), Domain(np.zeros(2), np.ones(2))
    now = JointSituation(graph, domain, history, np.zeros((0, 2)), "total", None, 1, None, seed)
    return kind.local_functions(now, kind.learn(now, AdditiveGPSettings(), None))


@pytest.mark.parametrize("kind", [Thompson(), DuMBO(), DuMBO(coupled=True)], ids=["draw", "dumbo", "coupled"])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_centralised_search_finds_the_maximum_of_a_fine_grid(kind, seed) -> None:
    functions = functions_of(kind, seed)
    axis = np.linspace(0.0, 1.0, 201)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    on_grid = total_value(functions, grid)
    found = Centralised().maximise(functions, seed=seed)
    # between two lattice points a smooth function rises by little more than between the highest of them
    assert on_grid.max() - 1e-9 <= found.value <= on_grid.max() + 0.01 * np.ptp(on_grid)
    assert found.value == pytest.approx(total_value(functions, found.point[None])[0], abs=1e-12)
    nearby = np.clip(found.point + 1e-3 * np.random.default_rng(seed).normal(size=(500, 2)), 0.0, 1.0)
    assert total_value(functions, nearby).max() <= found.value + 1e-7 * np.ptp(on_grid)  # a local maximum


class Fenced(Bowls):
    """Bowls in which the far tenth of each factor's first variable is forbidden."""

    def value_and_gradient(self, stack, U, received):
        value, gradient = super().value_and_gradient(stack, U, received)
        return np.where(U[..., 0] > 0.9, -np.inf, value), gradient


def test_the_centralised_search_climbs_although_some_points_are_forbidden():
    graph = FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
    box = np.zeros(3), np.ones(3), np.empty((0, 3))
    fenced, free = (Centralised(starts=4).maximise(functions(graph, *box)) for functions in (Fenced, Bowls))
    assert fenced.point == pytest.approx(free.point, abs=1e-5)


def test_the_centralised_search_reports_its_status_and_no_traffic() -> None:
    found = Centralised(starts=2).maximise(functions_of(Thompson()))
    assert found.report == SolveReport(status="centralised", value=found.value, traffic=Traffic())


def test_more_starts_are_no_worse() -> None:
    few, many = (Centralised(starts=n).maximise(functions_of(Thompson()), seed=5).value for n in (3, 30))
    assert many >= few - 1e-12


def test_a_team_uses_the_centralised_search_but_not_with_separate_agents() -> None:
    graph = sb.FactorGraph.from_scopes(SCOPES)
    for as_agents in (False, True):
        bounds, transport = {"a": (0.0, 1.0), "b": (-1.0, 1.0)}, sb.InProcess(as_agents=as_agents)
        team = sb.Team(graph, bounds, coordination="centralised", initial=2, seed=1, transport=transport)
        for _ in range(2):
            query = team.ask()
            team.tell(query, query.point["a"] - query.point["b"] ** 2)
        if as_agents:
            with pytest.raises(ConfigError, match="Centralised decides centrally"):
                team.ask()
        else:
            team.ask()
            assert team.last_report.status == "centralised"
