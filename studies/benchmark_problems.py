"""Problems of `benchmark.py`: functions of the library, and further ones that are defined here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize

from swarmbo.boundary.rng import stream
from swarmbo.kernels import draw
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.functions import AdditiveFunction, get

Scopes = Mapping[str, tuple[int, ...]]


def everywhere(
    name: str, terms: Mapping[str, Any], scopes: Mapping[str, list[int]], edge: tuple[float, float], argmax: list[float]
) -> AdditiveFunction:
    """A function with a maximum of 0 on a cube, which is also defined outside of the cube."""
    low, high = ([side] * len(argmax) for side in edge)
    still = AdditiveFunction.from_terms(terms, scopes, low, high, maximum=0.0, argmax=argmax, name=name)
    return replace(still, is_unbounded=True)


def neighbours(n_variables: int) -> dict[str, list[int]]:
    """Scopes of pairs in a chain."""
    return {f"f{i}": [i, i + 1] for i in range(n_variables - 1)}


def chain(seed: int) -> AdditiveFunction:
    """Twelve variables: neighbours should be equal, and all but the first near 0.3; the seed moves the optimum."""

    def pair(X: np.ndarray) -> np.ndarray:
        return -((X[:, 0] - X[:, 1]) ** 2) - (X[:, 1] - 0.3) ** 2

    scopes = neighbours(12)
    return everywhere("Chain-12", dict.fromkeys(scopes, pair), scopes, (0.0, 1.0), [0.3] * 12).moved(seed)


def rosenbrock(seed: int, n_variables: int = 16) -> AdditiveFunction:
    """Rosenbrock, negated, on [-2.048, 2.048]^n: pairs of neighbours, a curved valley; moved by the seed."""

    def pair(X: np.ndarray) -> np.ndarray:
        return -100.0 * (X[:, 1] - X[:, 0] ** 2) ** 2 - (1.0 - X[:, 0]) ** 2

    name, scopes = f"Rosenbrock-{n_variables}", neighbours(n_variables)
    return everywhere(name, dict.fromkeys(scopes, pair), scopes, (-2.048, 2.048), [1.0] * n_variables).moved(seed)


def dixon_price(seed: int, n_variables: int = 20) -> AdditiveFunction:
    """Dixon and Price, negated, on [-10, 10]^n: pairs of neighbours, later ones heavier; moved by the seed."""

    def pair(X: np.ndarray, weight: int) -> np.ndarray:
        return -weight * (2.0 * X[:, 1] ** 2 - X[:, 0]) ** 2

    scopes = {"first": [0]} | {f"f{i}": [i - 1, i] for i in range(1, n_variables)}
    terms: dict[str, Any] = {"first": lambda X: -((X[:, 0] - 1.0) ** 2)}
    terms |= {f"f{i}": partial(pair, weight=i + 1) for i in range(1, n_variables)}
    argmax = [2.0 ** -(1.0 - 2.0**-i) for i in range(n_variables)]  # x_i^2 = x_{i-1} / 2
    return everywhere(f"Dixon-Price-{n_variables}", terms, scopes, (-10.0, 10.0), argmax).moved(seed)


def gp_graph(seed: int, n_variables: int = 20, n_factors: int = 30) -> AdditiveFunction:
    """One draw from a Gaussian process for each pair of variables on a path, and for other pairs that the seed draws.

    All draws have variance 1 and a lengthscale of 0.3. The maximum is the best of 64 local searches; it is not
    proven.
    """
    rng, n = stream(seed, "graph of processes"), n_variables
    path = [(i, i + 1) for i in range(n - 1)]
    others = [(i, j) for i in range(n) for j in range(i + 2, n)]
    chosen = rng.choice(len(others), n_factors - len(path), replace=False)
    scopes = {f"f{i}": pair for i, pair in enumerate([*path, *(others[int(k)] for k in chosen)])}
    terms = {f: draw(stream(seed, "graph draw", factor=f), "matern52", np.full(2, 0.3), 1.0) for f in scopes}
    plain = AdditiveFunction.from_terms(terms, scopes, [0.0] * n, [1.0] * n)
    X = rng.random((16_384, n))
    best = X[np.argsort(-plain.value(X))[:64]]
    bounds = [(0.0, 1.0)] * n
    found = [minimize(lambda x: -plain.value(x[None])[0], x, method="L-BFGS-B", bounds=bounds) for x in best]
    return replace(plain, maximum=-min(float(each.fun) for each in found), name="graph of processes")


def wlan(seed: int, **settings: Any) -> AdditiveFunction:
    """The capacity of a WLAN with full airtime placed by the seed, by default of 12 access points."""
    env = wlan_power_v0.parallel_env(topology_seed=seed, airtime="full", **settings)
    network, graph = env.network, env.factor_graph()
    names = list(graph["bounds"])
    scopes = {factor: [names.index(v) for v in scope] for factor, scope in graph["scopes"].items()}
    low, high = zip(*graph["bounds"].values(), strict=True)

    def term(X: np.ndarray, at: int, scope: list[int]) -> np.ndarray:
        powers = np.tile(np.array(low), (len(X), 1))  # powers of access points out of range have no effect
        powers[:, scope] = X
        return network.factor_values(powers)[:, at]

    terms: dict[str, Any] = {
        factor: lambda X, at=at, scope=scope: term(X, at, scope) for at, (factor, scope) in enumerate(scopes.items())
    }
    return AdditiveFunction.from_terms(terms, scopes, low, high, maximum=float(env.best_known()[1]), name="WLAN")


@dataclass(frozen=True)
class Problem:
    """A function, the outcomes that a team is told, and the numbers of evaluations that tables show.

    Args:
        function: Name of a function in the library, or a constructor that takes a seed.
        looks: Numbers of evaluations that the table shows; the last number is the budget.
        is_moved: Whether the run's seed moves the optimum of a function of the library.
        per_factor: Whether every factor's outcome is told; comparison methods get the sum.
        structure: Whether the team knows the factors, no factors, or wrong factors (totals only).
        noise: Standard deviation, as a share of the range of the function.
        settings: Settings of the function.
    """

    function: str | Callable[..., AdditiveFunction]
    looks: tuple[int, int]
    is_moved: bool = False
    per_factor: bool = False
    structure: Literal["known", "unknown", "wrong"] = "known"
    noise: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def function_of(self, seed: int) -> AdditiveFunction:
        """The function of one run."""
        if isinstance(self.function, str):
            return get(self.function, moved=self.is_moved, seed=seed, **self.settings)
        return self.function(seed, **self.settings)

    def scopes_of(self, function: AdditiveFunction) -> Scopes | None:
        """Structure that a team knows. A wrong pair has one variable of each half; no factor contains such a pair."""
        half = function.n_variables // 2
        pairs = {f"w{i}": (i, i + half) for i in range(half)}
        return {"known": function.scopes, "unknown": None, "wrong": pairs}[self.structure]


HARTMANNS = {"n_variables": 30, "block": 3, "largest": 1000.0}
ACKLEYS = {"n_variables": 30, "block": 5}
STRIP = {"access_points": 20, "users": 60, "area_m": (1000.0, 60.0)}
DENSE = {"access_points": 9, "users": 36, "area_m": (90.0, 90.0), "separation_m": 15.0, "most_heard": 8}
NOISELESS = {
    "powell": Problem("powell", (60, 100)),
    "powell-moved": Problem("powell", (60, 100), is_moved=True),
    "powell-per-factor": Problem("powell", (60, 100), per_factor=True),
    "powell-moved-per-factor": Problem("powell", (60, 100), is_moved=True, per_factor=True),
    "hartmann": Problem("hartmann", (60, 100)),
    "rastrigin": Problem("rastrigin", (100, 150)),
    "rastrigin-moved": Problem("rastrigin", (100, 150), is_moved=True),
    "rastrigin-per-factor": Problem("rastrigin", (100, 150), per_factor=True),
    "wells-per-factor": Problem("wells", (60, 100), per_factor=True),
    "hartmanns-per-factor": Problem("hartmann", (60, 100), True, True, settings=HARTMANNS),
    "ackley": Problem("ackley", (60, 100), is_moved=True, settings=ACKLEYS),
    "ackley-per-factor": Problem("ackley", (60, 100), True, True, settings=ACKLEYS),
    "rosenbrock": Problem(rosenbrock, (60, 100)),
    "rosenbrock-wrong": Problem(rosenbrock, (60, 100), structure="wrong"),
    "dixon-price": Problem(dixon_price, (60, 100)),
    "gp-graph": Problem(gp_graph, (60, 100)),
    "michalewicz": Problem("michalewicz", (100, 150), structure="unknown"),
    "chain": Problem(chain, (30, 60), structure="unknown"),
    "wlan": Problem(wlan, (30, 60)),
    "wlan-per-factor": Problem(wlan, (30, 60), per_factor=True),
    "wlan-strip": Problem(wlan, (30, 60), settings={"topology": {"generated": STRIP}}),
    "wlan-shadowed": Problem(wlan, (30, 60), settings={"shadowing_db": 6.0}),
    "wlan-dense": Problem(wlan, (30, 60), settings={"topology": {"generated": DENSE}}),
    "camel": Problem("camel", (20, 40)),
    "shekel": Problem("shekel", (100, 150)),
    "zakharov": Problem("zakharov", (30, 60), structure="unknown"),
    "drop-wave": Problem("drop-wave", (30, 60), structure="unknown"),
}
PROBLEMS = NOISELESS | {f"{name}-noise": replace(problem, noise=0.01) for name, problem in NOISELESS.items()}
