"""User-defined kernels do what built-in kernels do."""

import sys
from types import ModuleType

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RationalQuadratic

import swarmbo as sb
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, ShapeError
from swarmbo.kernels import correlation, correlation_and_slope, kernel_matrix, register_kernel, registry
from swarmbo.kernels.stationary import spectral_frequencies

GRAPH = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
BOUNDS = {"x": (0.0, 1.0), "y": (0.0, 2.0), "z": (-1.0, 1.0)}
ALPHA = 1.5
TOO_FLAT = {"correlation": lambda r: np.exp(-0.25 * r**4), "slope": lambda r: r**2 * np.exp(-0.25 * r**4)}


def rq(r):
    return (1.0 + r**2 / (2.0 * ALPHA)) ** -ALPHA


def rq_slope(r):
    return (1.0 + r**2 / (2.0 * ALPHA)) ** (-ALPHA - 1.0)


def rq_frequencies(rng, k, d):
    return rng.standard_normal((k, d)) * np.sqrt(rng.gamma(ALPHA, 1.0 / ALPHA, size=(k, 1)))


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch):
    monkeypatch.setattr(registry, "_OWN", {})


@pytest.fixture
def twin():
    register_kernel(
        "twin",
        correlation=lambda r: correlation("matern12", r),
        slope=lambda r: correlation_and_slope("matern12", r)[1],
        frequencies=lambda rng, k, d: spectral_frequencies(rng, "matern12", np.ones(d), k),
    )
    return "twin"


def played(kernel, acquisition):
    belief = sb.AdditiveGPSettings(kernel=kernel, refit_every=2)
    team = sb.Team(GRAPH, BOUNDS, belief=belief, acquisition=acquisition, initial=4, seed=2)
    points = []
    for _ in range(7):
        query = team.ask()
        points.append(list(query.point.values()))
        team.tell(query, float(-np.sum(np.square(points[-1]))))
    return np.array(points), team


@pytest.mark.parametrize("acquisition", ["dec-hbo", "thompson", "auto"])
def test_team_with_a_copy_of_a_kernel_decides_as_with_the_kernel(twin, acquisition):
    points, team = played(twin, acquisition)
    # up to the first decision: later ones amplify rounding
    np.testing.assert_allclose(points[:5], played("matern12", acquisition)[0][:5], rtol=0.0, atol=1e-6)
    again = sb.Team.from_state_dict(team.state_dict())
    assert again.ask().point == team.ask().point


def test_exact_belief_with_an_own_kernel_is_the_posterior_of_another_library():
    register_kernel("rq", correlation=rq, slope=rq_slope)
    rng = np.random.default_rng(0)
    X, y, Z = rng.random((20, 2)), rng.standard_normal(20), rng.random((7, 2))
    field = sb.FactorGraph.from_scopes({"f": ["x", "y"]})
    belief = sb.AdditiveGP(field, kernel="rq", lengthscale=0.4, outputscale=2.0, noise_variance=0.1).update(X, y)
    kernel = 2.0 * RationalQuadratic(length_scale=0.4, alpha=ALPHA)
    wanted = GaussianProcessRegressor(kernel, alpha=0.1, optimizer=None).fit(X, y).predict(Z, return_std=True)
    mean, var = belief.posterior(Z)
    np.testing.assert_allclose((mean, np.sqrt(var)), wanted, atol=1e-9)


def test_functions_that_work_in_place_are_a_kernel_like_others():
    def correlation_in_place(r):
        r *= r
        r *= -0.5
        return np.exp(r, out=r)

    register_kernel("in place", correlation=correlation_in_place, slope=lambda r: correlation_and_slope("rbf", r)[1])
    for r in (np.array([0.0, 0.5, 2.0]), np.array([[1.5]])):
        np.testing.assert_allclose(correlation_and_slope("in place", r), correlation_and_slope("rbf", r), rtol=1e-15)
    fits = []
    for kernel in ("in place", "rbf"):
        belief = sb.AdditiveGP(GRAPH, BOUNDS, kernel=kernel).update(
            np.random.default_rng(0).random((9, 3)), np.arange(9)
        )
        fits.append(belief.fit(np.random.default_rng(0)).hyperparameters.lengthscales)
    np.testing.assert_allclose(np.concatenate(fits[0]), np.concatenate(fits[1]), rtol=1e-4)


def test_a_team_in_a_field_accepts_a_user_defined_kernel(twin):
    asked = []
    for kernel in (twin, "matern12"):
        settings = sb.ExactGPSettings(kernel=kernel)
        team = sb.Team.for_field(["a", "b"], [0.0, 0.0], [1.0, 1.0], belief=settings, rounds=5, seed=1)
        for _ in range(3):
            query = team.ask()
            asked.append(np.array([query.points[agent] for agent in ("a", "b")]))
            team.tell(query, {agent: float(place.sum()) for agent, place in query.points.items()})
    np.testing.assert_array_equal(asked[:3], asked[3:])


def test_own_frequencies_are_scaled_and_draw_the_kernel():
    register_kernel("rq", correlation=rq, slope=rq_slope, frequencies=rq_frequencies)
    lengths = np.array([0.4, 1.1])
    v = spectral_frequencies(stream(0, "test"), "rq", lengths, 200_000)
    X = np.array([[0.1, 0.0], [0.0, 1.1], [0.3, -0.7]])
    expected = kernel_matrix("rq", X, np.zeros((1, 2)), lengths, 1.0)[:, 0]
    np.testing.assert_allclose(np.cos(X @ v.T).mean(axis=1), expected, atol=0.008)


@pytest.mark.parametrize("method", ["consensus", "covariance-intersection"])
def test_new_local_beliefs_have_the_features_of_a_kernel_that_was_registered_again(method):
    for length in (1.0, 0.25):
        register_kernel(
            "again",
            correlation=lambda r, q=length: np.exp(-0.5 * (r / q) ** 2),
            slope=lambda r, q=length: np.exp(-0.5 * (r / q) ** 2) / q**2,
            frequencies=lambda rng, k, d, q=length: rng.standard_normal((k, d)) / q,
        )
        belief = sb.FusedSettings(method=method, n_features=1024, prior=sb.ExactGPSettings(kernel="again"))
        view = sb.Team.for_field(["a", "b"], [0.0], [1.0], belief=belief).belief.agents["a"]
        first, second = view.proposal.basis.features(np.array([[0.0], [view.hyperparameters.lengthscales[0]]]))
        assert first @ second / (first @ first) == pytest.approx(np.exp(-0.5 / length**2), abs=0.08)


def test_a_kernel_without_frequencies_can_be_learned_but_not_drawn():
    register_kernel("rq", correlation=rq, slope=rq_slope)
    assert played("rq", "dec-hbo")[1].n_data == 7
    graph, sides = sb.FactorGraph.from_scopes({"f": ["x"], "g": ["x", "y"]}), {"x": (0.0, 1.0), "y": (0.0, 1.0)}
    apart = {"outcomes": "per-factor", "belief": sb.AdditiveGPSettings(kernel="rq")}
    sb.Team(sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]}), sides, **apart)  # no draws
    sb.Team(None, sides, belief=sb.AdditiveGPSettings(kernel="rq"))  # no draws of one factor
    sb.Team(graph, sides, coordination="sobol", belief=sb.AdditiveGPSettings(kernel="rq"))  # Sobol uses no kernel
    own, ensemble = {"kind": "additive", "kernel": "rq"}, {"kind": "ensemble", "kernels": ["rbf", "rq"]}
    for kind, belief in (("auto", own), ("thompson", own), ("egp-ei", ensemble)):
        with pytest.raises(ConfigError, match="got 'rq', which was registered without frequencies"):
            sb.Team(graph, sides, belief=belief, acquisition=kind)


def test_in_noise_one_factor_with_a_kernel_without_frequencies_is_searched_without_draws():
    register_kernel("rq", correlation=rq, slope=rq_slope)
    team, rng = sb.Team(None, {"x": (0.0, 1.0)}, belief=sb.AdditiveGPSettings(kernel="rq"), initial=6), stream(0, "own")
    for _ in range(10):  # with another kernel, draws begin with the seventh
        x = (query := team.ask()).point["x"]
        team.tell(query, -((x - 0.4) ** 2) + 0.1 * rng.normal())
    assert team.model.belief.hyperparameters.noise_variances[0] > 0.01


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda rng, k, d: np.zeros((d, k)), r"got an array of shape \(2, 16384\); wanted finite numbers of shape \(1"),
        (lambda rng, k, d: np.full((k, d), np.nan), "got an array of shape .*; wanted finite numbers"),
        (lambda rng, k, d: rq_frequencies(rng, k, d) / (2 * np.pi), r"got E cos\(v·x\) .*; wanted c\(r\) = 0\."),
        (lambda rng, k, d: rng.standard_normal((k, d)), r"got E cos\(v·x\) of about .*; wanted c\(r\) = "),
        (lambda rng, k, d: np.hstack([rq_frequencies(rng, k, 1)] * d), r"got E cos\(v·x\) of about .* at r = 0\.[37]"),
    ],
    ids=["transposed", "not finite", "in cycles", "another kernel", "equal along the axes"],
)
def test_frequencies_that_are_not_draws_of_the_kernel_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=rf"\$\.frequencies: kernel 'rq': {message}"):
        register_kernel("rq", correlation=rq, slope=rq_slope, frequencies=wrong)


def test_frequencies_of_another_shape_are_refused_when_they_are_drawn():
    def moody(rng, k, d):
        return rq_frequencies(rng, k, d) if k > 8 else np.zeros((d, k))

    register_kernel("rq", correlation=rq, slope=rq_slope, frequencies=moody)
    with pytest.raises(ShapeError, match=r"frequencies of kernel 'rq': got shape \(2, 8\); wanted \(8, 2\)"):
        spectral_frequencies(stream(0, "test"), "rq", np.ones(2), 8)


def test_a_kernel_on_a_line_alone_may_have_frequencies():
    def waves(rng, k, d):
        assert d == 1
        return rng.choice([-1.0, 1.0], (k, d))

    register_kernel("cosine", correlation=np.cos, slope=lambda r: np.sinc(r / np.pi), frequencies=waves)
    assert np.abs(spectral_frequencies(stream(0, "test"), "cosine", np.full(1, 2.0), 8)).tolist() == [[0.5]] * 8


def test_a_user_defined_cusped_kernel_keeps_close_points_apart():
    register_kernel("cusp", correlation=lambda r: np.exp(-r), slope=lambda r: correlation_and_slope("matern12", r)[1])
    beliefs = [
        sb.AdditiveGP(GRAPH, kernel=kernel, noise_variance=1e-8).update([[0.5] * 3, [0.5 + 1e-9] * 3], [0.0, 1e-9])
        for kernel in ("cusp", "matern12")
    ]
    Z = [[0.5 + 3e-10] * 3, [0.4] * 3]
    np.testing.assert_array_equal(beliefs[0].posterior(Z)[0], beliefs[1].posterior(Z)[0])


@pytest.mark.parametrize(
    ("name", "functions", "words"),
    [
        ("matern52", {}, "got 'matern52'; wanted a name other than"),
        ("", {}, "got ''; wanted a name"),
        ("rq", {"slope": rq}, r"\$\.slope: kernel 'rq': got .* at r = 0\.05; wanted -c'\(r\) / r = "),
        ("rq", {"correlation": lambda r: 2.0 * rq(r)}, r"\$\.correlation: .*wanted c\(0\) = 1"),
        ("rq", {"correlation": lambda r: 1.0}, r"\$\.correlation: .*got float of shape \(\); wanted an array"),
        ("rq", {"slope": lambda r: rq_slope(r) / r}, r"\$\.slope: .*wanted finite numbers at r = \[0\.0"),
        ("rq", TOO_FLAT, "got a covariance matrix with the eigenvalue -.*; wanted a positive definite function"),
    ],
)
def test_functions_that_are_not_kernels_are_refused(name, functions, words):
    with np.errstate(all="ignore"), pytest.raises(ConfigError, match=words):
        register_kernel(name, **({"correlation": rq, "slope": rq_slope} | functions))
    assert registry.kernel_names() == registry.KERNEL_NAMES


def test_a_state_loads_no_kernel_unless_it_is_trusted_or_given_again(monkeypatch):
    table = {"kind": "additive", "kernel": "own_kernels:Cusp"}
    cusp = {"correlation": lambda _, r: np.exp(-r), "slope": lambda _, r: correlation_and_slope("matern12", r)[1]}
    module = ModuleType("own_kernels")
    module.Cusp = type("Cusp", (), cusp)
    monkeypatch.setitem(sys.modules, "own_kernels", module)
    state = sb.Team(GRAPH, BOUNDS, belief=table, acquisition="dec-hbo").state_dict()
    registry._OWN.clear()
    with pytest.raises(ConfigError, match="got the kernel 'own_kernels:Cusp', your own code"):
        sb.Team.from_state_dict(state)
    again = [sb.Team.from_state_dict(state, belief=table), sb.Team.from_state_dict(state, trust=True)]
    assert again[0].ask().point == again[1].ask().point


@pytest.mark.parametrize(
    "use",
    [
        lambda name: sb.AdditiveGP(GRAPH, kernel=name),
        lambda name: sb.AdditiveGPSettings(kernel=name),
        lambda name: sb.ExactGPSettings(kernel=name),
        lambda name: sb.Team(GRAPH, BOUNDS, belief={"kind": "additive", "kernel": name}),
        lambda name: sb.Team(GRAPH, BOUNDS, belief={"kind": "additive", "factors": {"f": {"kernel": name}}}),
        lambda name: AdditiveHyperparameters((name,), ((1.0,),), (1.0,), (0.0,), 0.0, (0.0,), (1.0,)),
        lambda name: kernel_matrix(name, np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), 1.0),
    ],
)
def test_a_name_that_was_not_registered_is_refused(use):
    with pytest.raises(ValueError, match=r"got .*'unheard'.*; wanted one of '?matern12'?, '?matern32"):
        use("unheard")
