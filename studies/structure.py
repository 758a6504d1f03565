"""Regret of a team with learned scopes, compared with the known scopes and with one factor.

    python studies/structure.py            # runs cells missing in structure.jsonl, seeds 0 to 5
    python studies/structure.py --page     # puts the tables in docs/studies/structure.md

A line has the simple regret after every evaluation and the processor seconds. It also has three numbers of pairs of
variables: true pairs that are found, true pairs, and found pairs. A true pair is in a factor of the function, and a
found pair in a scope at the end. The initial points are the same for all methods.
"""

import statistics
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from benchmark import INITIAL, Evaluations, bounds_of, graph_of
from benchmark_problems import Problem
from benchmark_tables import cell
from study import Line, Study, markdown, select

import swarmbo as sb
from swarmbo.graph import FactorGraph

PROBLEMS = {
    "powell-moved": Problem("powell", (60, 100), is_moved=True),
    "trimodal": Problem("trimodal", (40, 80)),
    "additive-gp": Problem("additive-gp", (30, 60)),
}
KNOWN, WHOLE = "known", "one whole factor"
METHODS: dict[str, dict[str, Any] | None] = {
    KNOWN: None,
    WHOLE: None,
    "sampled": {"kind": "sampled"},
    "screened": {"kind": "screened"},
}


def pairs(graph: FactorGraph) -> set[frozenset[str]]:
    """Pairs of variables that are in a common scope."""
    return {frozenset(pair) for scope in graph.scopes for pair in combinations(scope, 2)}


def run(name: str, method: str, seed: int) -> Line:
    """Regret, pairs and seconds of a run."""
    problem, evaluations, structure = PROBLEMS[name], Evaluations(PROBLEMS[name], seed), METHODS[method]
    function, budget = evaluations.function, problem.looks[-1]
    truth, sides = graph_of(problem, function), bounds_of(function)
    bounds = {variable: sides[variable] for variable in truth.variables}  # in one order, for equal designs
    belief: dict[str, Any] = {"kind": "additive"} | ({"structure": structure} if structure else {})
    given = truth if method == KNOWN else None
    team = sb.Team(given, bounds, belief=belief, seed=seed, rounds=budget, initial=INITIAL)
    for _ in range(budget):
        evaluations.asked(team, 1)
    found, true = pairs(team.model.belief.graph), pairs(truth)
    return {
        "seconds": round(evaluations.seconds, 2),
        "pairs": [len(found & true), len(true), len(found)],
        "regret": evaluations.regret(6),
    }


def rows(lines: list[Line], looks: tuple[int, ...]) -> Iterator[tuple[float, list[Any]]]:
    """Median final regret of each method, and its row."""
    for method in METHODS:
        if runs := select(lines, method=method):
            hits, true, met = (sum(line["pairs"][i] for line in runs) for i in range(3))
            recall = f"{hits / true:.0%}" if true else "no true pairs"
            precision = f"{hits / met:.0%}" if met else "no pairs found"
            regrets = [line["regret"][looks[-1] - 1] for line in runs]
            yield statistics.median(regrets), [method, cell(regrets, is_bold=False), recall, precision]


def table(lines: list[Line]) -> Iterator[str]:
    """One table for each problem, with methods from best to worst."""
    for name, problem in PROBLEMS.items():
        own = select(lines, problem=name)
        head = ["scopes", f"regret, N = {problem.looks[-1]}", "recall", "precision"]
        ranked = sorted(rows(own, problem.looks), key=lambda row: row[0])
        yield f"### {name}\n"
        yield from markdown(head, [row for _, row in ranked])
        yield ""


CHOICES = {"problem": tuple(PROBLEMS), "method": tuple(METHODS), "seed": range(6)}
STUDY = Study(__doc__, "structure.jsonl", run, CHOICES, table, page=("studies/structure.md", "tables"))

if __name__ == "__main__":
    STUDY.main()
