"""Methods beside one another on sums of factors: same initial points, same noise, same number of evaluations.

    python docs/benchmark.py --problem powell hartmann --method sobol auto --seeds 0-9
    python docs/benchmark.py --table

Each run adds a line of JSON to docs/benchmarks/PROBLEM.METHOD.jsonl: the simple regret (of the true value of the points
evaluated, without noise) after every evaluation, and the processor seconds spent on deciding. What is there is skipped.
Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1: on busy cores more threads are slower, and change the last digits.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

import swarmbo as sb
from swarmbo.acquisition.joint_situation import History, JointSituation
from swarmbo.baselines import CMAES, BoTorchLogEI, IsotropicGP, Random, Sobol, Turbo1
from swarmbo.graph import FactorGraph
from swarmbo.rng import stream
from swarmbo.spaces import Domain
from swarmbo_envs.functions import AdditiveFunction, get

INITIAL = 10
FOLDER = Path(__file__).parent / "benchmarks"


@dataclass(frozen=True)
class Problem:
    """A function, what is told of it, and when it is looked at.

    Args:
        function: Its name in the library.
        looks: Numbers of evaluations that the table shows; the last one is the budget.
        is_moved: Whether the optimum is moved, by the run's seed.
        per_factor: Whether every factor's outcome is told; peers get their sum.
        is_known: Whether the team is told the factors.
        noise: Standard deviation, as a share of the range of the function.
    """

    function: str
    looks: tuple[int, ...]
    is_moved: bool = False
    per_factor: bool = False
    is_known: bool = True
    noise: float = 0.0

    def function_of(self, seed: int) -> AdditiveFunction:
        """The function of one run."""
        return get(self.function, moved=self.is_moved, seed=seed)


NOISELESS = {
    "powell": Problem("powell", (60, 100)),
    "powell-moved": Problem("powell", (60, 100), is_moved=True),
    "powell-per-factor": Problem("powell", (60, 100), per_factor=True),
    "hartmann": Problem("hartmann", (60, 100)),
    "rastrigin": Problem("rastrigin", (100, 150)),
    "rastrigin-moved": Problem("rastrigin", (100, 150), is_moved=True),
    "rastrigin-per-factor": Problem("rastrigin", (100, 150), per_factor=True),
    "michalewicz": Problem("michalewicz", (100, 150), is_known=False),
    "zakharov": Problem("zakharov", (30, 60), is_known=False),
    "drop-wave": Problem("drop-wave", (30, 60), is_known=False),
}
PROBLEMS = NOISELESS | {
    f"{name}-noise": Problem(p.function, p.looks, p.is_moved, p.per_factor, p.is_known, 0.01)
    for name, p in NOISELESS.items()
}
PEERS: dict[str, Callable[[Problem], Any]] = {
    "sobol": lambda problem: Sobol(),
    "random": lambda problem: Random(),
    "cma-es": lambda problem: CMAES(),
    "isotropic-gp": lambda problem: IsotropicGP(),
    "turbo-1": lambda problem: Turbo1(),
    "botorch-log-ei": lambda problem: BoTorchLogEI(is_noisy=problem.noise > 0.0),
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
    """The function of a run, evaluated with the noise of that run: the n-th evaluation has the same for all methods."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.seed = problem, seed
        self.function = problem.function_of(seed)
        self.deviation = problem.noise * self.function.spread() if problem.noise else 0.0
        self.best: list[float] = []

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Outcomes of all factors, and a record of the best true sum."""
        values = self.function.factor_values(x[None])[0]
        total = float(values.sum())
        self.best.append(max(total, self.best[-1]) if self.best else total)
        noise = stream(self.seed, "benchmark", "noise", evaluation=len(self.best)).normal(size=len(values))
        return values + self.deviation / np.sqrt(len(values)) * noise


def run_peer(evaluations: Evaluations, settings: Any) -> float:
    """Let a peer choose; the processor seconds that took."""
    problem, function, seed = evaluations.problem, evaluations.function, evaluations.seed
    graph, domain = graph_of(function, problem.is_known), Domain(function.low, function.high)
    n, seconds = function.n_variables, 0.0
    design = qmc.Sobol(n, rng=stream(seed, "initial design")).random_base2(4)[:INITIAL]
    X, totals = np.zeros((0, n)), np.zeros(0)
    for t in range(problem.looks[-1]):
        start = time.process_time()
        if t < INITIAL:
            point = design[t]
        else:
            history = History(X, totals, np.full((t, len(graph.factors)), np.nan))
            pending = np.zeros((0, n))
            situation = JointSituation(
                graph, domain, history, pending, "total", None, t - INITIAL + 1, problem.looks[-1], seed, INITIAL
            )
            point, _ = settings.decide_joint(situation, None)
        seconds += time.process_time() - start
        x = domain.from_unit(point)
        X, totals = np.concatenate([X, x[None]]), np.append(totals, evaluations(x).sum())
    return seconds


def run_team(evaluations: Evaluations, settings: dict[str, Any]) -> float:
    """Let a team choose; the processor seconds that took."""
    problem, function = evaluations.problem, evaluations.function
    bounds = {v: (float(a), float(b)) for v, a, b in zip(function.variables, function.low, function.high, strict=True)}
    budget, outcomes = problem.looks[-1], "per-factor" if problem.per_factor else "total"
    graph = graph_of(function, True) if problem.is_known else None
    team = sb.Team(graph, bounds, seed=evaluations.seed, rounds=budget, outcomes=outcomes, initial=INITIAL, **settings)
    seconds = 0.0
    for _ in range(budget):
        start = time.process_time()
        query = team.ask()
        seconds += time.process_time() - start
        values = evaluations(np.array([query.point[variable] for variable in function.variables]))
        told = dict(zip(function.scopes, values.tolist(), strict=True)) if problem.per_factor else float(values.sum())
        start = time.process_time()
        team.tell(query, told)
        seconds += time.process_time() - start
    return seconds


def run(name: str, method: str, seed: int) -> dict[str, Any]:
    """One line of results."""
    problem = PROBLEMS[name]
    evaluations = Evaluations(problem, seed)
    is_team = method in TEAMS
    seconds = run_team(evaluations, TEAMS[method]) if is_team else run_peer(evaluations, PEERS[method](problem))
    assert evaluations.function.maximum is not None
    regret = [float(f"{evaluations.function.maximum - best:.6g}") for best in evaluations.best]
    return {"problem": name, "method": method, "seed": seed, "seconds": round(seconds, 2), "regret": regret}


def results(folder: Path, problem: str, method: str) -> dict[int, dict[str, Any]]:
    """What was run, by seed."""
    path = folder / f"{problem}.{method}.jsonl"
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    return {line["seed"]: line for line in lines}


def number(value: float) -> str:
    """Three digits, and no exponent for what is large."""
    return f"{value:,.0f}".replace(",", " ") if value >= 100.0 else f"{max(value, 0.0):.2g}"


def cell(runs: list[dict[str, Any]], look: int) -> str:
    """Median [min, max] of the simple regret."""
    regrets = [line["regret"][look - 1] for line in runs]
    median, smallest, largest = map(number, (statistics.median(regrets), min(regrets), max(regrets)))
    return f"**{median}** [{smallest}, {largest}]"


def table(folder: Path) -> Iterator[str]:
    """One table in Markdown for each problem, its methods from the best to the worst."""
    for problem, settings in PROBLEMS.items():
        if not any(folder.glob(f"{problem}.*.jsonl")):
            continue
        first, last = settings.looks
        share = " below 0.01 |" if settings.function == "hartmann" else ""
        yield f"### {problem}\n"
        yield f"| method | seeds | N = {first} | N = {last} |{share} processor s a decision |"
        yield "|---|---|---|---|---|" + ("---|" if share else "")
        found: dict[str, list[dict[str, Any]]] = {}
        for path in folder.glob(f"{problem}.*.jsonl"):
            found[path.name.split(".")[1]] = list(results(folder, problem, path.name.split(".")[1]).values())
        if settings.per_factor:  # peers see the sum, so their runs are those with totals
            same = problem.replace("-per-factor", "")
            found |= {f"{peer} (total only)": list(results(folder, same, peer).values()) for peer in PEERS}
        order = {
            name: statistics.median(line["regret"][last - 1] for line in runs) for name, runs in found.items() if runs
        }
        for method in sorted(order, key=lambda name: order[name]):
            runs = found[method]
            if share:
                share = f" {sum(line['regret'][last - 1] < 0.01 for line in runs)} of {len(runs)} |"
            seconds = statistics.median(line["seconds"] for line in runs) / (last - INITIAL)
            yield f"| {method} | {len(runs)} | {cell(runs, first)} | {cell(runs, last)} |{share} {seconds:.2g} |"
        yield ""


def seeds_of(text: str) -> list[int]:
    """``0-9`` or ``0,3,5``."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problem", nargs="+", choices=list(PROBLEMS), default=[])
    parser.add_argument("--method", nargs="+", choices=[*PEERS, *TEAMS], default=[])
    parser.add_argument("--seeds", type=seeds_of, default=list(range(10)))
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for problem in given.problem:
        for method in given.method:
            done = results(given.out, problem, method)
            for seed in given.seeds:
                if seed in done:
                    continue
                line = run(problem, method, seed)
                with (given.out / f"{problem}.{method}.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")
                shown = [line["regret"][look - 1] for look in PROBLEMS[problem].looks]
                print(problem, method, seed, shown, f"{line['seconds']} s", flush=True)  # noqa: T201
    if given.table:
        sys.stdout.write("\n".join(table(given.out)) + "\n")


if __name__ == "__main__":
    main()
