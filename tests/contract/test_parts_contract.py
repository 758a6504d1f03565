"""The library's own beliefs, coordination methods and transports pass the checks for users' parts."""

import pytest

import swarmbo as sb
from swarmbo.kernels import KERNEL_NAMES
from swarmbo.transport import Faults

BOX = sb.Domain([10.0, -200.0], [110.0, 100.0])
GRAPH = sb.FactorGraph.from_scopes({"f": ["x", "y"], "g": ["y", "z"]})
SIDES = {"x": (0.0, 1.0), "y": (-3.0, 5.0), "z": (10.0, 20.0)}


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
def test_exact_beliefs(kernel):
    settings = sb.ExactGPSettings(kernel=kernel)
    sb.testing.check_belief(
        lambda: sb.ExactGP.create(settings, BOX), lambda state: sb.ExactGP.from_state_dict(settings, BOX, state)
    )


@pytest.mark.parametrize("kernel", KERNEL_NAMES)
@pytest.mark.parametrize("outcomes", ["total", "per-factor"])
def test_additive_beliefs(kernel, outcomes):
    settings = sb.AdditiveGPSettings(kernel=kernel)
    domain = sb.AdditiveGP(GRAPH, SIDES).domain
    sb.testing.check_belief(lambda: sb.AdditiveGP.create(settings, GRAPH, domain, outcomes))


def test_an_additive_belief_of_given_hyperparameters():
    sb.testing.check_belief(lambda: sb.AdditiveGP(GRAPH, SIDES, lengthscale=3.0, noise_variance=0.1))


# with few rounds; the example of check_coordinator tests the defaults of two of them
METHODS = [
    sb.Exact(),
    sb.MaxSum(rounds=8),
    sb.DSA(rounds=12),
    sb.MGM(rounds=12),
    sb.ADMM(rounds=3, starts=3, screened=16),
]
REFINED = [kind(points=9, levels=5) for kind in (sb.RefinedMaxSum, sb.RefinedDSA, sb.RefinedMGM)]
BASELINES = [
    sb.Centralised(starts=4, screened=64),
    sb.Random(),
    sb.Sobol(),
    sb.IsotropicGP(),
    sb.Independent(),
    sb.Greedy(),
    sb.LawnMower(),
]
BOUNDED = [sb.MaxSum(rounds=8, bound="mplp"), sb.DSA(variant="A", rounds=12, bound="mplp")]
BY_A_DEADLINE = [
    sb.MaxSum(mode="asynchronous", deadline=10, patience=4),
    sb.ADMM(mode="asynchronous", deadline=16, patience=6, starts=2, inner_steps=2),
]


@pytest.mark.parametrize(
    "settings",
    [
        *METHODS,
        *REFINED,
        *BASELINES,
        *(pytest.param(settings, marks=pytest.mark.thorough) for settings in BOUNDED),
        *(pytest.param(one, id=f"{one.__struct_config__.tag} by a deadline") for one in BY_A_DEADLINE),
    ],
    ids=lambda settings: settings.__struct_config__.tag,
)
def test_coordination_methods(settings):
    sb.testing.check_coordinator(lambda: settings)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")  # warnings of these packages
@pytest.mark.parametrize(
    ("settings", "package"),
    [
        (sb.CMAES, "cma"),
        (sb.BoTorchLogNEI, "botorch"),
        (sb.Turbo1, "gpytorch"),
        (sb.OptunaGP, "torch"),
        (sb.OptunaTPE, "optuna"),
        (sb.AxDefault, "ax"),
    ],
)
def test_peers(settings, package):
    pytest.importorskip(package)
    sb.testing.check_coordinator(settings)


@pytest.mark.parametrize("make", [sb.InProcess, lambda: sb.InProcess(as_agents=True), Faults])
def test_transports(make):
    sb.testing.check_transport(make)
