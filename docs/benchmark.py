"""Methods beside one another on sums of factors: same initial points, same noise, same number of evaluations.

    python docs/benchmark.py --problem powell hartmann --method sobol auto   # runs what is missing of seeds 1000-1009
    python docs/benchmark.py --page                                          # rewrites the tables of docs and README
    python docs/benchmark.py --problem powell-moved --method auto --batch 8  # rounds of 8: docs/parallel.jsonl

Each run adds a line of JSON to docs/benchmarks/PROBLEM.METHOD.jsonl: the simple regret (of the true value of the points
evaluated, without noise) after every evaluation, and the processor seconds spent on deciding. What is there is skipped.
Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: on busy cores more threads are slower, and change the last digits.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from benchmark_problems import PROBLEMS, Problem
from benchmark_tables import Look, pages, results, tables
from scipy.stats import qmc

import swarmbo as sb
from swarmbo.belief.model.joint_situation import JointSituation
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain
from swarmbo_envs.functions import AdditiveFunction

INITIAL = 10
SEEDS = range(1000, 1010)
FOLDER = Path(__file__).parent / "benchmarks"
BATCHES = FOLDER.parent / "parallel.jsonl"
ROUNDED = 64  # evaluations after the initial ones, in rounds of one size

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
    "dumbo-paper": {"acquisition": sb.DuMBO(exploration="paper")},
    "add-gp-ucb": {"acquisition": "add-gp-ucb"},
    "thompson": {"acquisition": "thompson"},
    "expected-improvement": {"acquisition": "expected-improvement"},
    "egp-ts": {"belief": "ensemble", "acquisition": "egp-ts"},
    "egp-ei": {"belief": "ensemble", "acquisition": "egp-ei"},
}


def graph_of(problem: Problem, function: AdditiveFunction) -> FactorGraph:
    """The factors that are told; all variables in one where none are."""
    scopes = problem.scopes_of(function) or {"whole": tuple(range(function.n_variables))}
    return FactorGraph.from_scopes({f: [function.variables[j] for j in s] for f, s in scopes.items()})


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
    graph, domain = graph_of(problem, function), Domain(function.low, function.high)
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
    graph = None if problem.structure == "unknown" else graph_of(problem, function)
    team = sb.Team(graph, bounds, seed=evaluations.seed, rounds=budget, outcomes=outcomes, initial=INITIAL, **settings)
    while not evaluations.are_over:
        query = evaluations.timed(team.ask)
        values = evaluations(np.array([query.point[variable] for variable in function.variables]))
        told = dict(zip(function.scopes, values.tolist(), strict=True)) if problem.per_factor else float(values.sum())
        evaluations.timed(lambda query=query, told=told: team.tell(query, told))


def in_batches(name: str, method: str, seed: int, size: int) -> dict[str, Any]:
    """One line of results where each round asks for a batch and is told all of it.

    Args:
        name: Of the problem.
        method: One of ``PEERS``, as the team's coordination, or ``TEAMS``.
        seed: Of the run.
        size: Of a batch.
    """
    problem, budget = PROBLEMS[name], INITIAL + ROUNDED
    evaluations = Evaluations(problem, seed, budget)
    function, outcomes = evaluations.function, "per-factor" if problem.per_factor else "total"
    low, high = function.low, function.high
    bounds = {v: (float(a), float(b)) for v, a, b in zip(function.variables, low, high, strict=True)}
    graph = None if problem.structure == "unknown" else graph_of(problem, function)
    settings = TEAMS[method] if method in TEAMS else {"coordination": PEERS[method][0]()}
    team = sb.Team(graph, bounds, seed=seed, rounds=budget, outcomes=outcomes, initial=INITIAL, **settings)
    least, regret = list[float](), list[float]()
    for count in [INITIAL] + [size] * (ROUNDED // size):
        queries = evaluations.timed(lambda count=count: team.ask(count))
        X = np.array([[query.point[variable] for variable in function.variables] for query in queries])
        for query, values in zip(queries, map(evaluations, X), strict=True):
            told = dict(zip(function.scopes, values.tolist(), strict=True))
            evaluations.timed(
                lambda query=query, told=told: team.tell(
                    query, told if team.outcomes == "per-factor" else sum(told.values())
                )
            )
        if len(evaluations.best) > INITIAL and size > 1:
            gaps = np.abs((X[:, None] - X) / (high - low)).max(axis=2) + np.diag(np.full(size, np.inf))
            least.extend(gaps.min(axis=1).tolist())
        assert function.maximum is not None
        regret.append(float(f"{function.maximum - evaluations.best[-1]:.4g}"))
    line = {"problem": name, "method": method, "batch": size, "seed": seed, "seconds": round(evaluations.seconds, 1)}
    if size > 1:
        line |= {"least": float(f"{min(least):.2g}"), "near": round(float(np.mean(np.array(least) < 0.01)), 3)}
    return line | {"regret": regret[:: max(1, 16 // size)]}


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


def run_batches(given: argparse.Namespace) -> None:
    """Run what is missing of rounds of several sizes."""
    lines = [json.loads(line) for line in BATCHES.read_text().splitlines()] if BATCHES.exists() else []
    done = {(line["problem"], line["method"], line["batch"], line["seed"]) for line in lines}
    wanted = [
        (p, m, size, seed) for p in given.problem for m in given.method for size in given.batch for seed in given.seeds
    ]
    for problem, method, size, seed in [run for run in wanted if run not in done]:
        line = in_batches(problem, method, seed, size)
        with BATCHES.open("a") as file:
            file.write(json.dumps(line) + "\n")


def main() -> None:
    """Run what is missing, print the tables, rewrite the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problem", nargs="*", choices=PROBLEMS, default=[])
    parser.add_argument("--method", nargs="*", choices=[*PEERS, *TEAMS], default=["auto"])
    parser.add_argument("--seeds", type=seeds_of, default=SEEDS, help="such as 1000-1009")
    parser.add_argument("--evaluations", type=int, help="end each run after so many, if fewer than the problem's")
    parser.add_argument("--limit", type=float, default=np.inf, help="processor seconds of deciding that end a run")
    parser.add_argument("--batch", type=int, nargs="*", default=[], help="rounds of so many, a divisor of 64 each")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--table", action="store_true", help="print the tables of these seeds")
    parser.add_argument("--page", action="store_true", help="rewrite the tables in docs/benchmarks.md and README.md")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", module="botorch|linear_operator|gpytorch|ax|optuna")  # theirs, hundreds a run
    if given.batch:
        run_batches(given)
    for problem in given.problem if not given.batch else ():
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
