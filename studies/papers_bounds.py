"""Shares of points and functions for which the papers' upper confidence bounds hold.

    python studies/papers_bounds.py

Functions are drawn exactly from an additive Gaussian process, evaluated at random points with noise, and bounded at
other random points: once with the belief's hyper-parameters set to the truth, once with fitted ones.
"""

from collections.abc import Iterator

import numpy as np
from study import markdown, say
from threadpoolctl import threadpool_limits

from swarmbo.acquisition import DECHBO, Acquisition, AddGPUCB, DuMBO
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.gp.hyperparameters import AdditiveHyperparameters
from swarmbo.belief.model import JointSituation, Learned
from swarmbo.graph import FactorGraph
from swarmbo.graph.box_functions import total_value
from swarmbo.kernels import kernel_matrix
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

DRAWS, POINTS, EVALUATIONS = 40, 500, (10, 30, 60)
LENGTHSCALE, NOISE_VARIANCE = 0.4, 1e-3
GRAPHS = {
    "3 disjoint pairs": {"f": ["a", "b"], "g": ["c", "d"], "h": ["e", "i"]},
    "ring of 6 pairs": {f"f{n}": [f"x{n}", f"x{(n + 1) % 6}"] for n in range(6)},
}
SETTINGS = AdditiveGPSettings(lengthscales="shared")


def truth(graph: FactorGraph) -> AdditiveHyperparameters:
    """Factors of equal variance 1 / n, one lengthscale."""
    k = len(graph.factors)
    return AdditiveHyperparameters(
        kernels=(SETTINGS.kernel,) * k,
        lengthscales=tuple((LENGTHSCALE,) * len(scope) for scope in graph.scopes),
        outputscales=(1.0 / k,) * k,
        noise_variances=(NOISE_VARIANCE,) * k,
        total_noise_variance=NOISE_VARIANCE,
        constants=(0.0,) * k,
        scales=(1.0,) * k,
    )


def drawn(
    graph: FactorGraph, X: np.ndarray, rng: np.random.Generator, lengthscale: float, onto: np.ndarray
) -> np.ndarray:
    """The sum of one function per factor at points (m, n), drawn jointly; factors have equal variances of sum 1."""
    total, place = onto, {variable: index for index, variable in enumerate(graph.variables)}
    for scope in graph.scopes:
        own = X[:, [place[variable] for variable in scope]]
        lengthscales = np.full(len(scope), lengthscale)
        K = kernel_matrix(SETTINGS.kernel, own, own, lengthscales, 1.0 / len(graph.factors))
        K.flat[:: len(K) + 1] += 1e-9
        total = total + np.linalg.cholesky(K) @ rng.standard_normal(len(K))
    return total


def situation(graph: FactorGraph, X: np.ndarray, y: np.ndarray, t: int, seed: int) -> JointSituation:
    """A team's situation on the unit cube in round t, after evaluations with totals."""
    n, k = len(graph.variables), len(graph.factors)
    history, domain = Dataset(X, y, np.full((len(y), k), np.nan)), Domain(np.zeros(n), np.ones(n))
    return JointSituation(graph, domain, history, np.zeros((0, n)), "total", None, t, None, seed)


def methods(graph: FactorGraph) -> dict[str, Acquisition]:
    """The papers' bounds that a graph allows, by name."""
    kinds: dict[str, Acquisition] = {
        "DEC-HBO, practical": DECHBO(),
        "DEC-HBO, theory": DECHBO(exploration="theory"),
        "DuMBO, paper": DuMBO(exploration="paper"),
        "DuMBO, practical": DuMBO(),
        "DuMBO, theory": DuMBO(exploration="theory"),
    }
    if all(len(graph.factors_of(variable)) == 1 for variable in graph.variables):
        kinds |= {"Add-GP-UCB, practical": AddGPUCB(), "Add-GP-UCB, theory": AddGPUCB(exploration="theory")}
    return dict(sorted(kinds.items()))


def trial(graph: FactorGraph, t: int, seed: int, *, fitted: bool) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """One drawn function: for each bound, whether it holds at each point, and its mean width in standard deviations."""
    rng = np.random.default_rng([seed, t, len(graph.factors)])
    U = rng.random((t + POINTS, len(graph.variables)))
    f = drawn(graph, U, rng, LENGTHSCALE, np.zeros(len(U)))
    now = situation(graph, U[:t], f[:t] + np.sqrt(NOISE_VARIANCE) * rng.standard_normal(t), 1, seed)
    model = Acquisition().learn(now, SETTINGS, None if fitted else Learned(truth(graph), fitted_at=t))
    mean, std = model.posterior(U[t:])
    bounds = {name: total_value(kind.local_functions(now, model), U[t:]) for name, kind in methods(graph).items()}
    bounds["mu + 2 sigma"] = mean + 2.0 * std
    holds = {name: bound >= f[t:] for name, bound in bounds.items()}
    return holds, {name: float(((bound - mean) / std).mean()) for name, bound in bounds.items()}


def cells(graph: FactorGraph, t: int, *, fitted: bool) -> dict[str, list[str]]:
    """For each bound: shares of points and of functions for which it holds, and its width."""
    trials = [trial(graph, t, seed, fitted=fitted) for seed in range(DRAWS)]
    out: dict[str, list[str]] = {}
    for name in trials[0][0]:
        holds = np.array([held[name] for held, _ in trials])
        width = np.mean([widths[name] for _, widths in trials])
        out[name] = [f"{100 * holds.mean():.1f} %", f"{100 * holds.all(axis=1).mean():.0f} %", f"{width:.1f}"]
    return out


def table() -> Iterator[str]:
    """The table, with a sentence above that explains it."""
    yield (
        f"Share of points, and of functions at all {POINTS} points, where f <= bound; mean of (bound - mu) / sigma. "
        f"{DRAWS} functions per row.\n"
    )
    rows = [["graph", "evaluations", "bound", *["points", "functions", "width"] * 2]]
    for label, scopes in GRAPHS.items():
        graph = FactorGraph.from_scopes(scopes)
        for t in EVALUATIONS:
            at_truth, at_fit = cells(graph, t, fitted=False), cells(graph, t, fitted=True)
            rows += [[label, str(t), name, *at_truth[name], *at_fit[name]] for name in at_truth]
    yield "| | | | true hyper-parameters | | | fitted | | |"
    yield from markdown([""] * 9, rows)[1:]


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        say(table())
