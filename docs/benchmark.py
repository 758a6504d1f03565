"""Methods beside one another on sums of factors: same initial points, same noise, same number of evaluations.

    python docs/benchmark.py --problem powell hartmann --method sobol auto   # runs what is missing of seeds 1000-1009
    python docs/benchmark.py --page                                          # rewrites the tables of docs and README

Each run adds a line of JSON to docs/benchmarks/PROBLEM.METHOD.jsonl: the simple regret (of the true value of the points
evaluated, without noise) after every evaluation, and the processor seconds spent on deciding. What is there is skipped.
Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: on busy cores more threads are slower, and change the last digits.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from benchmark_tables import Look, pages, results, tables
from scipy.stats import qmc

import swarmbo as sb
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.data import Dataset
from swarmbo.graph import FactorGraph
from swarmbo.rng import stream
from swarmbo.spaces import Domain
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.functions import AdditiveFunction, get

INITIAL = 10
SEEDS = range(1000, 1010)
FOLDER = Path(__file__).parent / "benchmarks"


def chain(seed: int) -> AdditiveFunction:
    """Twelve variables, each to be near the next one and near a place of its own, all moved by the seed."""
    scopes = {f"f{i}": [i, i + 1] for i in range(11)}

    def pair(X: np.ndarray) -> np.ndarray:
        return -((X[:, 0] - X[:, 1]) ** 2) - (X[:, 1] - 0.3) ** 2

    terms = dict.fromkeys(scopes, pair)
    still = AdditiveFunction.from_terms(
        terms, scopes, [0.0] * 12, [1.0] * 12, maximum=0.0, argmax=[0.3] * 12, name="Chain-12"
    )
    return replace(still, is_unbounded=True).moved(seed)


def wlan(seed: int) -> AdditiveFunction:
    """The capacity of 12 access points placed by the seed; its maximum is the best that is known."""
    env = wlan_power_v0.parallel_env(topology_seed=seed)
    network, graph = env.network, env.factor_graph()
    names = list(graph["bounds"])
    scopes = {factor: [names.index(v) for v in scope] for factor, scope in graph["scopes"].items()}
    low, high = zip(*graph["bounds"].values(), strict=True)

    def term(X: np.ndarray, at: int, scope: list[int]) -> np.ndarray:
        powers = np.tile(np.array(low), (len(X), 1))  # of those that it does not hear none counts
        powers[:, scope] = X
        return network.factor_values(powers)[:, at]

    terms: dict[str, Any] = {
        factor: lambda X, at=at, scope=scope: term(X, at, scope) for at, (factor, scope) in enumerate(scopes.items())
    }
    return AdditiveFunction.from_terms(terms, scopes, low, high, maximum=float(env.best_known()[1]), name="WLAN")


@dataclass(frozen=True)
class Problem:
    """A function, what is told of it, and when it is looked at.

    Args:
        function: Its name in the library, or what makes it from a seed.
        looks: Numbers of evaluations that the table shows; the last one is the budget.
        is_moved: Whether the optimum is moved, by the run's seed.
        per_factor: Whether every factor's outcome is told; peers get their sum.
        is_known: Whether the team is told the factors.
        noise: Standard deviation, as a share of the range of the function.
        settings: Of the function.
    """

    function: str | Callable[[int], AdditiveFunction]
    looks: tuple[int, int]
    is_moved: bool = False
    per_factor: bool = False
    is_known: bool = True
    noise: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def function_of(self, seed: int) -> AdditiveFunction:
        """The function of one run."""
        if isinstance(self.function, str):
            return get(self.function, moved=self.is_moved, seed=seed, **self.settings)
        return self.function(seed)


HARTMANNS = {"n_variables": 30, "block": 3, "largest": 1000.0}
NOISELESS = {
    "powell": Problem("powell", (60, 100)),
    "powell-moved": Problem("powell", (60, 100), is_moved=True),
    "powell-per-factor": Problem("powell", (60, 100), per_factor=True),
    "hartmann": Problem("hartmann", (60, 100)),
    "rastrigin": Problem("rastrigin", (100, 150)),
    "rastrigin-moved": Problem("rastrigin", (100, 150), is_moved=True),
    "rastrigin-per-factor": Problem("rastrigin", (100, 150), per_factor=True),
    "wells-per-factor": Problem("wells", (60, 100), per_factor=True),
    "hartmanns-per-factor": Problem("hartmann", (60, 100), True, True, settings=HARTMANNS),
    "ackley-per-factor": Problem("ackley", (60, 100), True, True, settings={"n_variables": 30, "block": 5}),
    "michalewicz": Problem("michalewicz", (100, 150), is_known=False),
    "chain": Problem(chain, (30, 60), is_known=False),
    "wlan": Problem(wlan, (30, 60)),
    "wlan-per-factor": Problem(wlan, (30, 60), per_factor=True),
    "zakharov": Problem("zakharov", (30, 60), is_known=False),
    "drop-wave": Problem("drop-wave", (30, 60), is_known=False),
}
PROBLEMS = NOISELESS | {f"{name}-noise": replace(problem, noise=0.01) for name, problem in NOISELESS.items()}
PEERS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {  # how it is made, and the packages that it runs on
    "sobol": (sb.Sobol, ()),
    "random": (sb.Random, ()),
    "isotropic-gp": (sb.IsotropicGP, ()),
    "cma-es": (sb.CMAES, ("cma",)),
    "turbo-1": (sb.Turbo1, ("gpytorch", "torch")),
    "optuna-tpe": (sb.OptunaTPE, ("optuna",)),
    "optuna-gp": (sb.OptunaGP, ("optuna", "torch")),
    "botorch-log-nei": (sb.BoTorchLogNEI, ("botorch", "gpytorch", "torch")),
    "ax": (sb.AxDefault, ("ax-platform", "botorch", "gpytorch", "torch")),
}
TEAMS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto-centralised": {"coordination": "centralised"},
    "dec-hbo": {"acquisition": "dec-hbo"},
    "dumbo": {"acquisition": "dumbo"},
    "thompson": {"acquisition": "thompson"},
    "expected-improvement": {"acquisition": "expected-improvement"},
    "egp-ts": {"belief": "ensemble", "acquisition": "egp-ts"},
    "egp-ei": {"belief": "ensemble", "acquisition": "egp-ei"},
}


def graph_of(function: AdditiveFunction, is_known: bool) -> FactorGraph:
    """The factors; all variables in one where they are not known."""
    if not is_known:
        return FactorGraph.from_scopes({"whole": function.variables})
    return FactorGraph.from_scopes({f: [function.variables[j] for j in s] for f, s in function.scopes.items()})


class Evaluations:
    """The function of a run, evaluated with the noise of that run: the n-th evaluation has the same for all methods.

    Args:
        problem: What is evaluated.
        seed: Of the run.
        budget: How many evaluations there are at most.
        limit: Processor seconds of deciding after which no further evaluation is made.
    """

    def __init__(self, problem: Problem, seed: int, budget: int, limit: float = np.inf) -> None:
        self.problem, self.seed, self.budget, self.limit = problem, seed, budget, limit
        self.function = problem.function_of(seed)
        self.deviation = problem.noise * self.function.spread() if problem.noise else 0.0
        self.best: list[float] = []
        self.seconds = 0.0

    @property
    def are_over(self) -> bool:
        """Whether budget or time is used up."""
        return len(self.best) >= self.budget or self.is_stopped

    @property
    def is_stopped(self) -> bool:
        """Whether the time was used up before the budget."""
        return len(self.best) < self.budget and self.seconds > self.limit

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Outcomes of all factors, and a record of the best true sum."""
        values = self.function.factor_values(x[None])[0]
        total = float(values.sum())
        self.best.append(max(total, self.best[-1]) if self.best else total)
        noise = stream(self.seed, "benchmark", "noise", evaluation=len(self.best)).normal(size=len(values))
        return values + self.deviation / np.sqrt(len(values)) * noise

    def timed(self, decide: Callable[[], Any]) -> Any:
        """What is decided; the processor seconds that it took are counted."""
        start = time.process_time()
        decided = decide()
        self.seconds += time.process_time() - start
        return decided


def run_peer(evaluations: Evaluations, settings: Any) -> None:
    """Let a peer choose."""
    problem, function, seed = evaluations.problem, evaluations.function, evaluations.seed
    graph, domain = graph_of(function, problem.is_known), Domain(function.low, function.high)
    n, budget = function.n_variables, problem.looks[-1]
    design = qmc.Sobol(n, rng=stream(seed, "initial design")).random_base2(4)[:INITIAL]
    X, totals = np.zeros((0, n)), np.zeros(0)

    def chosen() -> np.ndarray:
        t = len(totals)
        if t < INITIAL:
            return design[t]
        history = Dataset(X, totals, np.full((t, len(graph.factors)), np.nan))
        pending = np.zeros((0, n))
        turn = t - INITIAL + 1
        situation = JointSituation(graph, domain, history, pending, "total", None, turn, budget, seed, INITIAL)
        return settings.decide_joint(situation, None)[0]

    while not evaluations.are_over:
        x = domain.from_unit(evaluations.timed(chosen))
        X, totals = np.concatenate([X, x[None]]), np.append(totals, evaluations(x).sum())


def run_team(evaluations: Evaluations, settings: dict[str, Any]) -> None:
    """Let a team choose."""
    problem, function = evaluations.problem, evaluations.function
    bounds = {v: (float(a), float(b)) for v, a, b in zip(function.variables, function.low, function.high, strict=True)}
    budget, outcomes = problem.looks[-1], "per-factor" if problem.per_factor else "total"
    graph = graph_of(function, True) if problem.is_known else None
    team = sb.Team(graph, bounds, seed=evaluations.seed, rounds=budget, outcomes=outcomes, initial=INITIAL, **settings)
    while not evaluations.are_over:
        query = evaluations.timed(team.ask)
        values = evaluations(np.array([query.point[variable] for variable in function.variables]))
        told = dict(zip(function.scopes, values.tolist(), strict=True)) if problem.per_factor else float(values.sum())
        evaluations.timed(lambda query=query, told=told: team.tell(query, told))


def run(name: str, method: str, seed: int, budget: int | None = None, limit: float = np.inf) -> dict[str, Any]:
    """One line of results.

    Args:
        name: Of the problem.
        method: One of ``PEERS`` or ``TEAMS``.
        seed: Of the run.
        budget: Evaluations, if fewer than the problem's.
        limit: Processor seconds of deciding, after which the run stops.
    """
    problem = PROBLEMS[name]
    evaluations = Evaluations(problem, seed, min(budget or problem.looks[-1], problem.looks[-1]), limit)
    packages: tuple[str, ...] = ()
    if method in TEAMS:
        run_team(evaluations, TEAMS[method])
    else:
        make, packages = PEERS[method]
        run_peer(evaluations, make())
    assert evaluations.function.maximum is not None
    regret = [float(f"{evaluations.function.maximum - best:.6g}") for best in evaluations.best]
    line: dict[str, Any] = {"problem": name, "method": method, "seed": seed, "seconds": round(evaluations.seconds, 2)}
    if packages:
        line["versions"] = {package: version(package) for package in packages}
    if evaluations.is_stopped:
        line["stopped"] = f"after {limit:g} s"
    return line | {"regret": regret}


def looks() -> dict[str, Look]:
    """What the tables have to know of each problem."""
    return {
        name: Look(problem.looks, name.replace("-per-factor", "") if problem.per_factor else None)
        for name, problem in PROBLEMS.items()
    }


def missing(given: argparse.Namespace, problem: str, method: str) -> list[int]:
    """Seeds of which there is no run that is as long as wanted, or that was stopped."""
    there = results(given.out, problem, method)
    wanted = min(given.evaluations or PROBLEMS[problem].looks[-1], PROBLEMS[problem].looks[-1])
    done = {seed for seed, line in there.items() if len(line["regret"]) >= wanted or "stopped" in line}
    return [seed for seed in given.seeds if seed not in done]


def seeds_of(text: str) -> range:
    """A range of seeds, from ``FIRST-LAST`` or one number."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def main() -> None:
    """Run what is missing, print the tables, rewrite the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", nargs="*", choices=PROBLEMS, default=[])
    parser.add_argument("--method", nargs="*", choices=[*PEERS, *TEAMS], default=["auto"])
    parser.add_argument("--seeds", type=seeds_of, default=SEEDS, help="such as 1000-1009")
    parser.add_argument("--evaluations", type=int, help="end each run after so many, if fewer than the problem's")
    parser.add_argument("--limit", type=float, default=np.inf, help="processor seconds of deciding that end a run")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--table", action="store_true", help="print the tables of these seeds")
    parser.add_argument("--page", action="store_true", help="rewrite the tables in docs/benchmarks.md and README.md")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", module="botorch|linear_operator|gpytorch|ax|optuna")  # theirs, hundreds a run
    for problem in given.problem:
        for method in given.method:
            for seed in missing(given, problem, method):
                line = run(problem, method, seed, given.evaluations, given.limit)
                with (given.out / f"{problem}.{method}.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")
                shown = [line["regret"][look - 1] for look in PROBLEMS[problem].looks if look <= len(line["regret"])]
                print(problem, method, seed, shown, f"{line['seconds']} s", flush=True)  # noqa: T201
    if given.table:
        sys.stdout.write(tables(given.out, looks(), list(PEERS), given.seeds) + "\n")
    if given.page:
        for path, text in pages(FOLDER, looks(), list(PEERS), SEEDS).items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
