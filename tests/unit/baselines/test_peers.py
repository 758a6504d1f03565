import dataclasses
import importlib
import importlib.util
import random
import sys

import numpy as np
import pytest

import swarmbo as sb
from swarmbo.baselines import CMAES, AxDefault, BoTorchLogNEI, OptunaGP, OptunaTPE, Turbo1
from swarmbo.baselines.one_outcome import trials
from swarmbo.baselines.peers import peer_package
from swarmbo.errors import ConfigError, MissingPackageError
from swarmbo.graph import FactorGraph

from .conftest import bowl, some_points

METHODS = [
    (CMAES(), "cma"),
    (Turbo1(candidates=300), "gpytorch"),
    (BoTorchLogNEI(restarts=2, raw_samples=32), "botorch"),
    (OptunaTPE(), "optuna"),
    (OptunaGP(), "torch"),
    (AxDefault(), "ax"),
]


def peer(method, package, *more):
    is_absent = importlib.util.find_spec(package) is None
    marks = [
        pytest.mark.peers,
        pytest.mark.skipif(is_absent, reason="needs the extra `peers`"),
        pytest.mark.filterwarnings("ignore"),  # warnings of these packages do not matter here
    ]
    return pytest.param(method, *more, marks=marks, id=type(method).__name__)


PEERS = [peer(*case) for case in METHODS]
STUDIES = PEERS[3:]


@pytest.mark.parametrize("method", [method for method, _ in METHODS])
def test_without_its_package_a_peer_names_in_one_line_what_to_install(method, joint_situation, monkeypatch):
    def absent(name: str):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    X = some_points(8)
    with pytest.raises(ConfigError, match=r"^\$.coordination.kind: .* pip install \"swarmbo\[peers\]\"$"):
        method.decide_joint(joint_situation(X, bowl(X)), None)


@pytest.mark.parametrize(("method", "package"), METHODS)
def test_a_team_or_an_agent_refuses_a_peer_without_its_package_at_once(method, package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    problem = sb.Problem.of(None, {"x": (0.0, 1.0)}, None, "total")
    for make in (sb.Team, lambda *given, **more: sb.Agent(problem.agents[0], *given, **more)):
        with pytest.raises(MissingPackageError, match=r"^\$.coordination.kind: .* needs the package '"):
            make(problem, coordination=method)


def test_the_message_names_the_missing_package_and_other_import_errors_are_not_hidden(monkeypatch):
    def lacks_torch(name: str):
        raise ModuleNotFoundError("No module named 'torch'", name="torch.nn")

    monkeypatch.setattr(importlib, "import_module", lacks_torch)
    with pytest.raises(ConfigError, match="needs the package 'torch'"):
        peer_package("botorch.models", "botorch-log-ei")

    def broken(name: str):
        raise ImportError("libmkl.so: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(ImportError, match="libmkl"):
        peer_package("torch", "turbo-1")


@pytest.mark.parametrize("method", PEERS)
def test_a_decision_is_a_function_of_history_pending_points_and_seed(method, joint_situation):
    X = some_points(9)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, report = method.decide_joint(joint_situation(X, bowl(X)), None)
    again, _ = method.decide_joint(joint_situation(X, bowl(X)), None)
    other, _ = method.decide_joint(joint_situation(X, bowl(X), seed=1), None)
    with_pending, _ = method.decide_joint(joint_situation(X, bowl(X), pending=-2.0 + 5.0 * first), None)
    assert (first == again).all()
    assert (first != other).any()
    assert np.abs(with_pending - first).max() > 1e-6
    assert ((first >= 0.0) & (first <= 1.0)).all()
    assert report.messages == 0
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("method", PEERS)
def test_any_history_is_accepted(method, joint_situation):
    """Some or all evaluations failed; points were evaluated twice; points are pending before any outcome."""
    X, twice, nothing = some_points(8), np.concatenate([some_points(5)] * 2), np.zeros((0, 2))
    histories = [
        (X, np.where(np.arange(8) % 3 == 0, np.nan, bowl(X)), nothing),
        (X, np.full(8, np.nan), nothing),
        (twice, bowl(twice) + np.arange(10) / 10.0, nothing),
        (nothing, [], some_points(6)),  # more than the initial design has
        (nothing, [], some_points(7)),
    ]
    points = [method.decide_joint(joint_situation(x, y, pending=out), None)[0] for x, y, out in histories]
    assert all(((point >= 0.0) & (point <= 1.0)).all() for point in points)
    assert (points[-1] != points[-2]).any()


WITHIN, STEPS = (0.3, 0.05, 0.05, 0.3, 0.05, 0.05), (20, 20, 8, 20, 8, 8)


@pytest.mark.parametrize(
    ("method", "within", "steps"), [peer(*case, *more) for case, *more in zip(METHODS, WITHIN, STEPS, strict=True)]
)
def test_peers_find_the_top_of_a_bowl(method, within, steps, joint_situation):
    X = some_points(4)
    for _ in range(steps):
        point, _ = method.decide_joint(joint_situation(X, bowl(X)), None)
        X = np.concatenate([X, (-2.0 + 5.0 * point)[None]])
    assert bowl(X[:4]).max() < -0.4
    assert bowl(X).max() > -within


@pytest.mark.peers
def test_a_replayed_cma_es_asks_the_same_points_as_an_uninterrupted_one(joint_situation):
    cma = pytest.importorskip("cma")
    from swarmbo.boundary.rng import stream

    X = some_points(4)
    rng = stream(0, "cma-es baseline", "generations", restart=0)
    start = (X[int(bowl(X).argmax())] + 2.0) / 5.0
    options = {"bounds": [0.0, 1.0], "randn": lambda *shape: rng.standard_normal(shape), "verbose": -9, "seed": np.nan}
    live = cma.CMAEvolutionStrategy(start, 0.25, options)
    for _ in range(5):
        generation = live.ask()
        for asked in generation:
            point, _ = CMAES().decide_joint(joint_situation(X, bowl(X)), None)
            np.testing.assert_allclose(point, asked, atol=1e-12)
            X = np.concatenate([X, (-2.0 + 5.0 * point)[None]])
        live.tell(generation, (-bowl(X[-len(generation) :])).tolist())


@pytest.mark.peers
def test_pending_points_that_cma_es_did_not_choose_are_not_of_its_generation():
    pytest.importorskip("cma")
    graph, asked = sb.FactorGraph.from_scopes({"f": ["x", "y"]}), []
    for foreign in (0, 1, 2):
        team = sb.Team(graph, dict.fromkeys("xy", (0.0, 1.0)), coordination=CMAES(population=6), initial=2)
        for query in team.ask(2):
            team.tell(query, -query.point["x"])
        expected = [team.expect({"x": 0.9, "y": 0.9 - 0.1 * i}) for i in range(foreign)]
        points = []
        for _ in range(8):
            points.append(team.ask())
            team.tell(points[-1], -points[-1].point["x"])
            if expected and len(points) > 2:
                team.tell(expected.pop(), -1.0)
        asked.append([query.point for query in points])
    assert asked[1:] == asked[:1] * 2


@pytest.mark.peers
def test_later_outcomes_do_not_change_how_cma_es_ranked_a_failure(joint_situation):
    pytest.importorskip("cma")
    for seed in range(6):
        X, y = some_points(4), bowl(some_points(4))
        for number in range(5):  # a generation of four, and the first point of the next
            point, _ = CMAES(population=4).decide_joint(joint_situation(X, y, seed=seed), None)
            X = np.concatenate([X, (-2.0 + 5.0 * point)[None]])
            y = np.append(y, [np.nan, np.nan, -100.0, -1.0, -1.0][number])
        second = [
            CMAES(population=4).decide_joint(joint_situation(X, [*y[:-1], last], seed=seed), None)[0]
            for last in (0.0, -1e3, np.nan)
        ]
        np.testing.assert_array_equal(second[1:], second[:1] * 2)


@pytest.mark.peers
def test_cma_es_with_equal_outcomes_restarts_with_a_larger_population(joint_situation):
    pytest.importorskip("cma")
    X = some_points(4)
    y = np.zeros(4)
    for _ in range(300):
        point, _ = CMAES(population=4).decide_joint(joint_situation(X, y), None)
        X, y = np.concatenate([X, (-2.0 + 5.0 * point)[None]]), np.append(y, 0.0)
    spread_early, spread_late = X[4:12].std(), X[-30:].std()
    assert np.isfinite(X).all()
    assert spread_late > 0.1 * spread_early


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_draws_of_turbo_have_the_mean_and_variance_of_gpytorchs_posterior():
    torch = pytest.importorskip("torch")
    from swarmbo.baselines.turbo import _draw, _fitted

    rng = np.random.default_rng(0)
    U, X = rng.random((12, 2)), rng.random((40, 2))
    U = np.concatenate([U, U])  # evaluated twice with different outcomes: the noise counts
    z = np.sin(5.0 * U).sum(axis=1) + np.repeat([-0.4, 0.4], 12)
    model = _fitted(U, z)
    draws = np.array([_draw(rng, model, U, z, X) for _ in range(1500)])
    model.eval()
    with torch.no_grad():
        posterior = model(torch.tensor(X))
        mean, std = posterior.mean.numpy(), posterior.stddev.numpy()
    assert np.abs(draws.mean(axis=0) - mean).max() < 5.0 * std.max() / np.sqrt(1500)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.15)


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_log_nei_asks_where_improvement_over_joint_draws_at_the_points_evaluated_is_largest(noise, joint_situation):
    torch = pytest.importorskip("torch")
    pytest.importorskip("botorch")
    from swarmbo.baselines.peers import _fitted

    X = np.linspace(-2.0, 3.0, 7)[:, None]
    y = np.sin(2.0 * X[:, 0]) + noise * np.array([0.3, -1.2, 0.8, 0.1, -0.5, 1.1, -0.4])
    point, _ = BoTorchLogNEI().decide_joint(joint_situation(X, y), None)
    model, U = _fitted((X + 2.0) / 5.0, y)
    grid = np.linspace(0.0, 1.0, 201)
    with torch.no_grad():
        posterior = model.posterior(torch.tensor(np.concatenate([U.numpy(), grid[:, None]])))
        mean, covariance = posterior.mean.numpy().ravel(), posterior.distribution.covariance_matrix.numpy()
    rng = np.random.default_rng(0)
    root = np.linalg.cholesky(covariance + 1e-6 * np.eye(len(mean)))
    draws = mean + rng.standard_normal((20_000, len(mean))) @ root.T
    improvement = np.maximum(draws[:, 7:] - draws[:, :7].max(axis=1, keepdims=True), 0.0).mean(axis=0)
    chosen = np.interp(point[0], grid, improvement)
    assert chosen > 0.9 * improvement.max()
    assert np.median(improvement) < 0.5 * improvement.max()  # otherwise almost any place would pass


@pytest.mark.parametrize("method", STUDIES)
def test_replayed_studies_print_nothing_and_leave_global_random_states_alone(method, joint_situation, capfd):
    torch = pytest.importorskip("torch")
    X = some_points(6)
    method.decide_joint(joint_situation(X, bowl(X)), None)  # imports may print something
    states = torch.random.get_rng_state(), random.getstate()
    capfd.readouterr()
    method.decide_joint(joint_situation(X, bowl(X)), None)
    assert capfd.readouterr() == ("", "")
    assert (torch.random.get_rng_state() == states[0]).all()
    assert random.getstate() == states[1]


@pytest.mark.parametrize("method", STUDIES)
def test_the_initial_design_replaces_the_random_points_of_studies(method, joint_situation):
    X = some_points(4)
    down, up = (method.decide_joint(joint_situation(X, sign * bowl(X)), None)[0] for sign in (1.0, -1.0))
    assert np.abs(down - up).max() > 1e-3  # outcomes count from the first decision on


def test_partly_told_evaluations_are_running_trials(joint_situation):
    X = some_points(4)
    situation = joint_situation(X, bowl(X), pending=some_points(1, seed=1))
    factors = np.stack([bowl(X), np.array([1.0, np.nan, np.nan, 2.0])], axis=1)
    changes = {"totals": np.full(4, np.nan), "factors": factors, "awaited": np.arange(8).reshape(4, 2) == 3}
    history = dataclasses.replace(situation.history, **changes)
    graph = FactorGraph.from_scopes({"f": ["x0"], "g": ["x1"]})
    kept = trials(dataclasses.replace(situation, graph=graph, history=history))
    assert [trial.status for trial in kept] == ["complete", "failed", "complete", "running", "running"]
    assert [trial.total for trial in kept[:3:2]] == pytest.approx(factors[[0, 3]].sum(axis=1).tolist())
    np.testing.assert_allclose(kept[-1].point, situation.domain.to_unit(X[1:2])[0])


@pytest.mark.parametrize(
    ("package", "method", "rounds"), [("cma", "cma-es", 150), ("torch", "turbo-1", 15), ("torch", "botorch-log-nei", 8)]
)
def test_the_unit_of_outcomes_does_not_change_decisions(package, method, rounds):
    pytest.importorskip(package)

    def decided(unit):
        team, out = sb.Team(None, dict.fromkeys("xy", (0.0, 1.0)), coordination=method, seed=0), []
        for _ in range(rounds):
            x, y = (query := team.ask()).point.values()
            team.tell(query, -unit * ((x - 0.3) ** 2 + (y - 0.6) ** 2))
            out.append((x, y))
        return np.array(out)

    np.testing.assert_allclose(decided(2.0**-40), decided(1.0), rtol=0.0, atol=1e-9)
