"""Compare methods on sums of factors, with the same initial points, noise and number of evaluations.

    python studies/benchmark.py --problem powell hartmann --method sobol auto   # runs missing cells of seeds 1000-1009
    python studies/benchmark.py --page                                          # rewrites the tables of docs
    python studies/benchmark.py --problem powell-moved --method auto --batch 8  # rounds of 8: parallel.jsonl

Each run adds a line of JSON to benchmarks/PROBLEM.METHOD.jsonl: the simple regret (of the true value of the points
evaluated, without noise) after every evaluation, and the processor seconds spent on decisions. Set OMP_NUM_THREADS=1:
on busy cores, more threads are slower and change the last digits.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from benchmark_problems import PROBLEMS, Problem
from benchmark_tables import page, tables
from study import FOLDER, Line, Study, say

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.graph import FactorGraph
from swarmbo_envs.functions import AdditiveFunction

INITIAL = 10
SEEDS = range(1000, 1010)
LINES = FOLDER / "benchmarks"
ROUNDED = 64  # evaluations after the initial ones, in rounds of one size

PEERS: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {  # constructor, and packages that it needs
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


def settings_of(method: str) -> dict[str, Any]:
    """Settings of a team for a method."""
    return {"coordination": PEERS[method][0]()} if method in PEERS else TEAMS[method]


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions."""
    return {package: version(package) for package in packages}


def best_of(
    space: Mapping[str, Any], method: str, seed: int, budget: int, value: Callable[[dict[str, Any]], float]
) -> tuple[float, float]:
    """The largest value within a budget of points, and the processor seconds of the whole search."""
    team = sb.Team(None, space, seed=seed, rounds=budget, initial=INITIAL, **settings_of(method))
    best, start = -np.inf, time.process_time()
    for _ in range(budget):
        query = team.ask()
        found = value(query.point)
        best = max(best, found)
        team.tell(query, found)
    return best, time.process_time() - start


def graph_of(problem: Problem, function: AdditiveFunction) -> FactorGraph:
    """Factors that a team knows, or one of all variables if it knows none; and one per variable without a factor."""
    scopes = problem.scopes_of(function) or {"whole": tuple(range(function.n_variables))}
    named = {factor: [function.variables[j] for j in scope] for factor, scope in scopes.items()}
    idle = set(function.variables).difference(*named.values())
    return FactorGraph.from_scopes(named | {f"none of {v}": [v] for v in sorted(idle)})


def bounds_of(function: AdditiveFunction) -> dict[str, tuple[float, float]]:
    """The lowest and the highest value of each variable."""
    sides = zip(function.variables, function.low, function.high, strict=True)
    return {variable: (float(low), float(high)) for variable, low, high in sides}


class Evaluations:
    """The function of a run with its noise; the noise of the n-th evaluation is the same for all methods.

    Args:
        problem: Problem with the function and its noise.
        seed: Seed of the run.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self.seed, self.function = seed, problem.function_of(seed)
        self.deviation = problem.noise * self.function.spread() if problem.noise else 0.0
        self.best: list[float] = []
        self.seconds = 0.0

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Outcomes of all factors; records the best true sum."""
        values = self.function.factor_values(x[None])[0]
        self.best.append(max([float(values.sum()), *self.best[-1:]]))
        noise = stream(self.seed, "benchmark", "noise", evaluation=len(self.best)).normal(size=len(values))
        return values + self.deviation / np.sqrt(len(values)) * noise

    def regret(self, digits: int) -> list[float]:
        """Simple regret after each evaluation."""
        assert self.function.maximum is not None
        return [float(f"{self.function.maximum - best:.{digits}g}") for best in self.best]

    def timed(self, decide: Callable[[], Any]) -> Any:
        """Result of a decision, whose processor seconds are counted."""
        start = time.process_time()
        decided = decide()
        self.seconds += time.process_time() - start
        return decided

    def asked(self, team: sb.Team, count: int) -> np.ndarray:
        """Points (q, n) of a round in which a team asks for a number of points and is told all their outcomes."""
        queries = self.timed(lambda: team.ask(count))
        X = np.array([[query.point[variable] for variable in self.function.variables] for query in queries])
        for query, values in zip(queries, map(self, X), strict=True):
            by_factor = dict(zip(self.function.scopes, values.tolist(), strict=True))
            told = by_factor if team.problem.outcomes == "per-factor" else float(values.sum())
            self.timed(lambda query=query, told=told: team.tell(query, told))
        return X


def team_of(problem: Problem, function: AdditiveFunction, method: str, seed: int, budget: int) -> sb.Team:
    """The team of a method; comparison methods are told totals."""
    is_peer = method in PEERS
    return sb.Team(
        None if problem.structure == "unknown" and not is_peer else graph_of(problem, function),
        bounds_of(function),
        seed=seed,
        rounds=budget,
        outcomes="per-factor" if problem.per_factor and not is_peer else "total",
        initial=INITIAL,
        **settings_of(method),
    )


def run(name: str, method: str, seed: int) -> Line:
    """Regret after every evaluation, and the seconds of all decisions."""
    problem, evaluations = PROBLEMS[name], Evaluations(PROBLEMS[name], seed)
    team = team_of(problem, evaluations.function, method, seed, problem.looks[-1])
    for _ in range(problem.looks[-1]):
        evaluations.asked(team, 1)
    line: Line = {"seconds": round(evaluations.seconds, 2)}
    if packages := PEERS[method][1] if method in PEERS else ():
        line["versions"] = versions_of(packages)
    return line | {"regret": evaluations.regret(6)}


def in_batches(name: str, method: str, size: int, seed: int) -> Line:
    """Regret after rounds of one batch each, and distances between the points of a batch."""
    evaluations, least = Evaluations(PROBLEMS[name], seed), list[float]()
    function = evaluations.function
    team = team_of(PROBLEMS[name], function, method, seed, INITIAL + ROUNDED)
    evaluations.asked(team, INITIAL)
    for _ in range(ROUNDED // size):
        X = evaluations.asked(team, size)
        gaps = np.abs((X[:, None] - X) / (function.high - function.low)).max(axis=2)
        least.extend((gaps + np.diag(np.full(size, np.inf))).min(axis=1).tolist())
    line: Line = {"seconds": round(evaluations.seconds, 1)}
    if size > 1:
        line |= {"least": float(f"{min(least):.2g}"), "near": round(float(np.mean(np.array(least) < 0.01)), 3)}
    return line | {"regret": evaluations.regret(4)[INITIAL - 1 :: size][:: max(1, 16 // size)]}


CHOICES: dict[str, Sequence[Any]] = {"problem": tuple(PROBLEMS), "method": (*PEERS, *TEAMS)}
RUNS = Study(__doc__, "benchmarks", run, CHOICES | {"seed": SEEDS}, lambda _: ())
BATCHES = Study(__doc__, "parallel.jsonl", in_batches, CHOICES | {"batch": (8,), "seed": SEEDS}, lambda _: ())


def main() -> None:
    """Run missing cells, print the tables, rewrite the page."""
    parser = RUNS.parser()
    parser.set_defaults(problem=[], method=["auto"])
    parser.epilog = "--table prints the tables of these seeds; with --problem, missing cells are run first."
    parser.add_argument("--batch", type=int, nargs="*", default=[], help="sizes of batches, each a divisor of 64")
    parser.add_argument("--page", action="store_true", help="rewrite the tables in docs")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", module="botorch|linear_operator|gpytorch|ax|optuna")  # hundreds per run
    study, out = (BATCHES, FOLDER / BATCHES.file) if given.batch else (RUNS, given.out)
    study.work(study.cells(given), out, given.jobs)
    if given.table:
        say([tables(given.out, PROBLEMS, list(PEERS), given.seed)])
    if given.page:
        path, text = page(LINES, PROBLEMS, list(PEERS), SEEDS)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
