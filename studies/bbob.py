"""The 24 functions of BBOB, from the package ioh: regret of the default and of other optimisers after 50 evaluations.

    pip install ioh
    python studies/bbob.py --dimension 5 --method auto cma-es     # runs cells missing in bbob.jsonl
    python studies/bbob.py --table

The seed selects the instance of a function. The structure is unknown, and the ten initial points are the same for all
methods. Functions are to be minimised, so the team is told the negative value. Lines record versions of packages.
"""

import statistics
from collections.abc import Iterator
from typing import Any

from benchmark import PEERS, best_of, versions_of
from study import Line, Study, markdown, select

BUDGET = 50
METHODS = ("auto", "isotropic-gp", "cma-es", "optuna-tpe", "optuna-gp", "sobol", "random")


def run(function: int, dimension: int, method: str, seed: int) -> Line:
    """Regret of the best of 50 points, and processor seconds, of one run."""
    import ioh

    problem: Any = ioh.get_problem(function, seed, dimension, ioh.ProblemClass.BBOB)
    bounds = {f"x{j}": (-5.0, 5.0) for j in range(dimension)}
    best, seconds = best_of(bounds, method, seed, BUDGET, lambda point: -float(problem([point[x] for x in bounds])))
    packages = ("ioh", *(PEERS[method][1] if method in PEERS else ()))
    regret = float(f"{-best - float(problem.optimum.y):.6g}")
    return {"regret": regret, "seconds": round(seconds, 2), "versions": versions_of(packages)}


def table(lines: list[Line]) -> Iterator[str]:
    """Medians per function and their ranks, for each dimension and each set of instances on which some methods ran."""
    for dimension in sorted({line["dimension"] for line in lines}):
        here = select(lines, dimension=dimension)
        of = {method: {line["seed"] for line in select(here, method=method)} for method in METHODS}
        for instances in sorted({tuple(sorted(seeds)) for seeds in of.values() if seeds}, key=len):
            methods = [method for method, seeds in of.items() if seeds.issuperset(instances)]
            yield from _ranked([line for line in here if line["seed"] in instances], dimension, len(instances), methods)
            yield ""


def _ranked(lines: list[Line], dimension: int, n_instances: int, methods: list[str]) -> Iterator[str]:
    rows, shares = list[list[Any]](), {method: list[float]() for method in methods}
    ranks = {method: list[int]() for method in methods}
    for function in sorted({line["function"] for line in lines}):
        medians = dict[str, float]()
        for method in methods:
            medians[method] = statistics.median(
                line["regret"] for line in select(lines, method=method, function=function)
            )
        for method, median in medians.items():
            ranks[method].append(1 + sum(other < median for other in medians.values()))
            shares[method].append(median / least if (least := min(medians.values())) else float(median > 0.0) + 1.0)
        rows.append([f"f{function}", *(f"{median:.3g}" for median in medians.values())])
    rows.append(["first on", *(f"{own.count(1)} of {len(own)}" for own in ranks.values())])
    rows.append(["within 1.3 times", *(sum(share <= 1.3 for share in own) for own in shares.values())])
    rows.append(["at most, times", *(f"{max(own):.2g}" for own in shares.values())])
    rows.append(["mean rank", *(f"{statistics.mean(own):.2g}" for own in ranks.values())])
    yield from markdown([f"{dimension} variables, {n_instances} instances", *methods], rows, right=True)


CHOICES = {"function": tuple(range(1, 25)), "dimension": (2, 5, 10), "method": METHODS, "seed": range(1, 4)}
STUDY = Study(__doc__, "bbob.jsonl", run, CHOICES, table)

if __name__ == "__main__":
    STUDY.main()
