"""What a team finds that is not told the structure of a function, by where its scopes come from.

    python docs/structure.py --seeds 0-5
    python docs/structure.py --table

Each run adds a line of JSON to docs/structure.jsonl: the simple regret after every evaluation, how many of the pairs of
variables that meet in a factor of the function meet in a scope at the end, how many meet there in all, and processor
seconds. What is there is skipped. The initial points are the same for all. Set OMP_NUM_THREADS=1 and
OPENBLAS_NUM_THREADS=1, as for docs/benchmark.py.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from benchmark import INITIAL, Evaluations, Problem, cell, seeds_of

import swarmbo as sb
from swarmbo.graph import FactorGraph
from swarmbo_envs.functions import AdditiveFunction

PROBLEMS = {
    "powell-moved": Problem("powell", (60, 100), is_moved=True),
    "trimodal": Problem("trimodal", (40, 80)),
    "additive-gp": Problem("additive-gp", (30, 60)),
    "michalewicz": Problem("michalewicz", (60, 100)),
}
KNOWN, WHOLE = "known", "one whole factor"
METHODS: dict[str, dict[str, Any] | None] = {
    KNOWN: None,
    WHOLE: None,
    "sampled": {"kind": "sampled"},
    "sampled, at most 4": {"kind": "sampled", "largest": 4},
    "screened": {"kind": "screened"},
}
OUT = Path(__file__).with_suffix(".jsonl")


def graph_of(function: AdditiveFunction) -> FactorGraph:
    """The function's factors, and one for each variable that it does not depend on."""
    scopes = {f: [function.variables[j] for j in scope] for f, scope in function.scopes.items()}
    idle = set(function.variables).difference(*scopes.values())
    return FactorGraph.from_scopes(scopes | {f"none of {v}": [v] for v in sorted(idle)})


def pairs(graph: FactorGraph) -> set[frozenset[str]]:
    """Pairs of variables that meet in a scope."""
    return {frozenset(pair) for scope in graph.scopes for pair in combinations(scope, 2)}


def run(name: str, method: str, seed: int) -> dict[str, Any]:
    """One line of results."""
    problem = PROBLEMS[name]
    evaluations = Evaluations(problem, seed)
    function = evaluations.function
    truth = graph_of(function)
    bounds = {v: (float(a), float(b)) for v, a, b in zip(function.variables, function.low, function.high, strict=True)}
    structure = METHODS[method]
    belief: dict[str, Any] = {"kind": "additive"} | ({"structure": structure} if structure else {})
    given = truth if method == KNOWN else None
    team = sb.Team(given, bounds, belief=belief, seed=seed, rounds=problem.looks[-1], initial=INITIAL)
    start = time.process_time()
    for _ in range(problem.looks[-1]):
        query = team.ask()
        x = np.array([query.point[variable] for variable in function.variables])
        team.tell(query, float(evaluations(x).sum()))
    seconds = time.process_time() - start
    found, true = pairs(team.model.belief.graph), pairs(truth)
    assert function.maximum is not None
    return {
        "problem": name,
        "method": method,
        "seed": seed,
        "seconds": round(seconds, 2),
        "pairs": [len(found & true), len(true), len(found)],
        "regret": [float(f"{function.maximum - best:.6g}") for best in evaluations.best],
    }


def results() -> dict[tuple[str, str, int], dict[str, Any]]:
    """What was run."""
    lines = [json.loads(line) for line in OUT.read_text().splitlines() if line] if OUT.exists() else []
    return {(line["problem"], line["method"], line["seed"]): line for line in lines}


def table() -> Iterator[str]:
    """One table in Markdown for each problem, its methods from the best to the worst."""
    done = results()
    for name, problem in PROBLEMS.items():
        first, last = problem.looks
        yield f"### {name}\n"
        yield f"| scopes | seeds | N = {first} | N = {last} | true pairs that meet | of all that meet | s a decision |"
        yield "|---|---|---|---|---|---|---|"
        rows = list[tuple[float, str]]()
        for method in METHODS:
            runs = [line for (p, m, _), line in done.items() if (p, m) == (name, method)]
            if not runs:
                continue
            seconds = statistics.median(line["seconds"] for line in runs) / (last - INITIAL)
            hits, true, met = (sum(line["pairs"][i] for line in runs) for i in range(3))
            recall = f"{hits / true:.0%}" if true else "none to find"
            precision = f"{hits / met:.0%}" if met else "none meet"
            row = f"| {method} | {len(runs)} | {cell(runs, first)} | {cell(runs, last)} | {recall} | {precision} "
            rows.append((statistics.median(line["regret"][last - 1] for line in runs), f"{row}| {seconds:.2g} |"))
        yield from (row for _, row in sorted(rows))
        yield ""


def main() -> None:
    """Run what is missing, or print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problem", nargs="+", choices=list(PROBLEMS), default=list(PROBLEMS))
    parser.add_argument("--method", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=seeds_of, default=list(range(6)))
    parser.add_argument("--table", action="store_true")
    given = parser.parse_args()
    if given.table:
        sys.stdout.write("\n".join(table()) + "\n")
        return
    for seed in given.seeds:
        for name in given.problem:
            for method in given.method:
                if (name, method, seed) in results():
                    continue
                line = run(name, method, seed)
                with OUT.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(name, method, seed, line["regret"][-1], line["pairs"], f"{line['seconds']} s", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
