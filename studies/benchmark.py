"""Methods on sums of factors: same initial points, same noise, same number of evaluations.

    python studies/benchmark.py --problem powell hartmann --method sobol auto   # what is missing of seeds 1000-1009
    python studies/benchmark.py --page                                          # rewrites the tables of docs
    python studies/benchmark.py --problem powell-moved --method auto --batch 8  # rounds of 8: parallel.jsonl

Each run adds a line of JSON to benchmarks/PROBLEM.METHOD.jsonl: the simple regret (of the true value of the points
evaluated, without noise) after every evaluation, and the processor seconds spent on deciding. Set OMP_NUM_THREADS=1:
on busy cores more threads are slower, and change the last digits.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from benchmark_problems import PROBLEMS, Problem
from benchmark_tables import Look, pages, parallel, results, tables
from study import FOLDER, Line, Study, append, parser_of, say, seeds_of

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo_envs.functions import AdditiveFunction

INITIAL = 10
SEEDS = range(1000, 1010)
LINES = FOLDER / "benchmarks"
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
        planned: Evaluations that a method is told to plan for; None: as many as the problem has at its last look.
    """

    def __init__(
        self, problem: Problem, seed: int, budget: int, limit: float = np.inf, planned: int | None = None
    ) -> None:
        self.problem, self.seed, self.budget, self.limit = problem, seed, budget, limit
        self.planned = problem.looks[-1] if planned is None else planned
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


def rounds(evaluations: Evaluations, method: str, counts: Iterable[int]) -> Iterator[np.ndarray]:
    """The points (q, n) of each round of a method that asks for so many and is told all of them."""
    problem, function = evaluations.problem, evaluations.function
    bounds = {v: (float(a), float(b)) for v, a, b in zip(function.variables, function.low, function.high, strict=True)}
    is_peer = method not in TEAMS
    settings = {"coordination": PEERS[method][0]()} if is_peer else TEAMS[method]
    outcomes = "per-factor" if problem.per_factor and not is_peer else "total"
    graph = None if problem.structure == "unknown" and not is_peer else graph_of(problem, function)
    budget = evaluations.planned
    team = sb.Team(graph, bounds, seed=evaluations.seed, rounds=budget, outcomes=outcomes, initial=INITIAL, **settings)
    for count in counts:
        if evaluations.are_over:
            return
        queries = evaluations.timed(lambda count=count: team.ask(count))
        X = np.array([[query.point[variable] for variable in function.variables] for query in queries])
        for query, values in zip(queries, map(evaluations, X), strict=True):
            told = dict(zip(function.scopes, values.tolist(), strict=True))
            total = float(values.sum())
            evaluations.timed(
                lambda query=query, told=told if outcomes == "per-factor" else total: team.tell(query, told)
            )
        yield X


def in_batches(name: str, method: str, size: int, seed: int) -> Line:
    """Results where each round asks for a batch and is told all of it."""
    problem, budget = PROBLEMS[name], INITIAL + ROUNDED
    evaluations = Evaluations(problem, seed, budget, planned=budget)
    function, least, regret = evaluations.function, list[float](), list[float]()
    assert function.maximum is not None
    for X in rounds(evaluations, method, [INITIAL] + [size] * (ROUNDED // size)):
        if len(evaluations.best) > INITIAL and size > 1:
            gaps = np.abs((X[:, None] - X) / (function.high - function.low)).max(axis=2)
            least.extend((gaps + np.diag(np.full(size, np.inf))).min(axis=1).tolist())
        regret.append(float(f"{function.maximum - evaluations.best[-1]:.4g}"))
    line: Line = {"seconds": round(evaluations.seconds, 1)}
    if size > 1:
        line |= {"least": float(f"{min(least):.2g}"), "near": round(float(np.mean(np.array(least) < 0.01)), 3)}
    return line | {"regret": regret[:: max(1, 16 // size)]}


def run(name: str, method: str, seed: int, budget: int | None = None, limit: float = np.inf) -> Line:
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
    for _ in rounds(evaluations, method, repeat(1)):
        pass
    assert evaluations.function.maximum is not None
    regret = [float(f"{evaluations.function.maximum - best:.6g}") for best in evaluations.best]
    line: Line = {"problem": name, "method": method, "seed": seed, "seconds": round(evaluations.seconds, 2)}
    if packages := () if method in TEAMS else PEERS[method][1]:
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
    return [seed for seed in given.seed if seed not in done]


BATCHES = Study(
    __doc__,
    "parallel.jsonl",
    in_batches,
    {"problem": tuple(PROBLEMS), "method": (*PEERS, *TEAMS), "batch": (8,), "seed": SEEDS},
    lambda _: parallel(LINES).splitlines(),
)


def main() -> None:
    """Run what is missing, print the tables, rewrite the pages."""
    parser = parser_of(__doc__)
    parser.add_argument("--problem", nargs="*", choices=PROBLEMS, default=[])
    parser.add_argument("--method", nargs="*", choices=[*PEERS, *TEAMS], default=["auto"])
    parser.add_argument("--seeds", dest="seed", type=seeds_of, default=SEEDS, help="such as 1000-1009")
    parser.add_argument("--evaluations", type=int, help="end each run after so many, if fewer than the problem's")
    parser.add_argument("--limit", type=float, default=np.inf, help="processor seconds of deciding that end a run")
    parser.add_argument("--batch", type=int, nargs="*", default=[], help="rounds of so many, a divisor of 64 each")
    parser.add_argument("--out", type=Path, default=LINES)
    parser.add_argument("--table", action="store_true", help="print the tables of these seeds")
    parser.add_argument("--page", action="store_true", help="rewrite the tables in docs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", module="botorch|linear_operator|gpytorch|ax|optuna")  # theirs, hundreds a run
    if given.batch:
        BATCHES.work(BATCHES.cells(given), FOLDER / BATCHES.file)
    for problem in given.problem if not given.batch else ():
        for method in given.method:
            for seed in missing(given, problem, method):
                line = run(problem, method, seed, given.evaluations, given.limit)
                append(given.out / f"{problem}.{method}.jsonl", line)
                shown = [line["regret"][look - 1] for look in PROBLEMS[problem].looks if look <= len(line["regret"])]
                say([f"{problem} {method} {seed} {shown} {line['seconds']} s"])
    if given.table:
        say([tables(given.out, looks(), list(PEERS), given.seed)])
    if given.page:
        for path, text in pages(LINES, looks(), list(PEERS), SEEDS).items():
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
