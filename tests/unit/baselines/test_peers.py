import importlib
import importlib.util

import numpy as np
import pytest

from swarmbo.baselines import CMAES, BoTorchLogEI, Turbo1
from swarmbo.baselines.peer_packages import peer_package
from swarmbo.errors import ConfigError

needs_torch = [
    pytest.mark.peers,
    pytest.mark.skipif(importlib.util.find_spec("botorch") is None, reason="needs the extra `peers`"),
    pytest.mark.filterwarnings("default"),  # their warnings are theirs
]
needs_cma = [
    pytest.mark.peers,
    pytest.mark.skipif(importlib.util.find_spec("cma") is None, reason="needs the extra `peers`"),
]
cma_peer = pytest.param(CMAES(), marks=needs_cma, id="cma-es")
turbo_peer = pytest.param(Turbo1(candidates=300), marks=needs_torch, id="turbo-1")
log_ei_peer = pytest.param(BoTorchLogEI(restarts=2, raw_samples=32), marks=needs_torch, id="log-ei")
noisy_peer = pytest.param(BoTorchLogEI(is_noisy=True, restarts=2, raw_samples=32), marks=needs_torch, id="noisy-log-ei")


def bowl(X):
    return -((np.asarray(X) - 1.0) ** 2).sum(axis=1)


def some_points(t: int, n: int = 2, seed: int = 0):
    return np.random.default_rng(seed).uniform(-2.0, 3.0, (t, n))


@pytest.mark.parametrize("method", [CMAES(), Turbo1(), BoTorchLogEI()])
def test_without_its_package_a_peer_says_in_one_line_what_to_install(method, joint_situation, monkeypatch):
    def absent(name: str):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", absent)
    X = some_points(8)
    with pytest.raises(ConfigError, match=r"^\$.coordination.kind: .* pip install swarmbo\[peers\]$"):
        method.decide_joint(joint_situation(X, bowl(X)), None)


def test_the_line_names_the_package_that_is_missing_and_other_trouble_is_not_hidden(monkeypatch):
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


@pytest.mark.parametrize("method", [cma_peer, turbo_peer, log_ei_peer, noisy_peer])
def test_a_decision_is_a_function_of_history_pending_points_and_seed(method, joint_situation):
    X = some_points(9)
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, report = method.decide_joint(joint_situation(X, bowl(X)), None)
    again, _ = method.decide_joint(joint_situation(X, bowl(X)), None)
    other, _ = method.decide_joint(joint_situation(X, bowl(X), seed=1), None)
    beside, _ = method.decide_joint(joint_situation(X, bowl(X), pending=-2.0 + 5.0 * first), None)
    assert (first == again).all()
    assert (first != other).any()
    assert np.abs(beside - first).max() > 1e-6
    assert ((first >= 0.0) & (first <= 1.0)).all()
    assert report.messages == 0
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


@pytest.mark.parametrize("method", [cma_peer, turbo_peer, log_ei_peer, noisy_peer])
def test_failed_evaluations_are_survived_even_if_all_failed(method, joint_situation):
    X = some_points(8)
    y = np.where(np.arange(8) % 3 == 0, np.nan, bowl(X))
    for outcomes in (y, np.full(8, np.nan)):
        point, _ = method.decide_joint(joint_situation(X, outcomes), None)
        assert np.isfinite(point).all()


@pytest.mark.parametrize(
    ("method", "within"),
    [
        pytest.param(CMAES(), 0.3, marks=needs_cma, id="cma-es"),
        pytest.param(Turbo1(candidates=300), 0.05, marks=needs_torch, id="turbo-1"),
        pytest.param(BoTorchLogEI(restarts=2, raw_samples=32), 0.05, marks=needs_torch, id="log-ei"),
    ],
)
def test_peers_find_the_top_of_a_bowl(method, within, joint_situation):
    X = some_points(4)
    for _ in range(20):
        point, _ = method.decide_joint(joint_situation(X, bowl(X)), None)
        X = np.concatenate([X, (-2.0 + 5.0 * point)[None]])
    assert bowl(X[:4]).max() < -0.4
    assert bowl(X).max() > -within


@pytest.mark.peers
def test_replayed_cma_es_asks_what_one_that_was_never_stopped_asks(joint_situation):
    cma = pytest.importorskip("cma")
    from swarmbo.rng import stream

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
def test_cma_es_that_sees_no_differences_starts_again_with_a_larger_population(joint_situation):
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
@pytest.mark.filterwarnings("default")
def test_draws_of_turbo_have_the_mean_and_variance_of_gpytorchs_posterior():
    torch = pytest.importorskip("torch")
    from swarmbo.baselines.turbo import _draw, _fitted

    rng = np.random.default_rng(0)
    U, X = rng.random((12, 2)), rng.random((40, 2))
    U = np.concatenate([U, U])  # told twice, differently: the noise counts
    z = np.sin(5.0 * U).sum(axis=1) + np.repeat([-0.4, 0.4], 12)
    model = _fitted(U, z)
    draws = np.array([_draw(rng, model, U, z, X) for _ in range(1500)])
    model.eval()
    with torch.no_grad():
        posterior = model(torch.tensor(X))
        mean, std = posterior.mean.numpy(), posterior.stddev.numpy()
    assert np.abs(draws.mean(axis=0) - mean).max() < 5.0 * std.max() / np.sqrt(1500)
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.15)


@pytest.mark.peers
@pytest.mark.filterwarnings("default")
def test_log_ei_asks_where_the_closed_form_of_expected_improvement_is_largest(joint_situation):
    torch = pytest.importorskip("torch")
    pytest.importorskip("botorch")
    from scipy.stats import norm

    from swarmbo.baselines.botorch_log_ei import _fitted

    X = np.linspace(-2.0, 3.0, 5)[:, None]
    y = np.sin(2.0 * X[:, 0])
    point, _ = BoTorchLogEI().decide_joint(joint_situation(X, y), None)
    model, _ = _fitted((X + 2.0) / 5.0, y)
    grid = np.linspace(0.0, 1.0, 2001)
    with torch.no_grad():
        posterior = model.posterior(torch.tensor(grid[:, None, None]))
        mean, std = posterior.mean.numpy().ravel(), posterior.variance.sqrt().numpy().ravel()
    gap = mean - y.max()
    improvement = gap * norm.cdf(gap / std) + std * norm.pdf(gap / std)
    assert abs(point[0] - grid[int(improvement.argmax())]) < 2e-3
