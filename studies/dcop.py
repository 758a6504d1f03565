"""Problems in tables: cost, bound and seconds of swarmbo's methods compared with toulbar2, which proves an optimum.

    pip install pytoulbar2
    python studies/dcop.py                                            # runs cells missing in dcop.jsonl
    cd ~/pyDcop/tests/instances; python …/studies/dcop.py --problem *.y*ml --seeds 0    # files: .yaml, .uai or .wcsp
    python studies/dcop.py --table

Costs are drawn by seed. ``colouring`` forbids equal neighbours and has integer costs of colours. ``grid`` has
logarithms of potentials, as files of UAI. The other kinds have integer costs, as files of WCSP. Seconds count solving
only, without reading a file and building toulbar2's network.
"""

import math
import statistics
import time
from argparse import ArgumentTypeError
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
from study import Line, Study, markdown, select

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.errors import BudgetError, ConfigError
from swarmbo.interchange import TableProblem, read_problem

LIMIT = 60  # seconds of toulbar2
DIGITS, DOUBLE = 9, 15  # largest number of decimals of toulbar2's costs; digits that double precision holds
OWN = {"exact": sb.Exact(), "max-sum": sb.MaxSum(bound="mplp"), "dsa": sb.DSA(), "mgm": sb.MGM()}
SIZES = {"colouring": 3, "grid": 2, "loops": 6, "sparse": 4, "dense": 5, "triples": 3}


class Instance(str):
    """A kind of drawn problem, or the path of a file."""

    def __new__(cls, text: str) -> "Instance":
        """Refuse other text."""
        if text not in SIZES and not Path(text).is_file():
            raise ArgumentTypeError(f"got {text!r}; wanted {', '.join(SIZES)}, or the path of a file")
        return super().__new__(cls, text)


def scopes_of(kind: str, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Pairs or triples of variables that share a table."""
    if kind == "triples":
        return [tuple(rng.choice(30, 3, replace=False).tolist()) for _ in range(40)]
    graph: nx.Graph[Any] = {
        "colouring": lambda: nx.gnm_random_graph(40, 70, rng),
        "grid": lambda: nx.convert_node_labels_to_integers(nx.grid_2d_graph(10, 10)),
        "loops": lambda: nx.circulant_graph(50, [1, 2]),
        "sparse": lambda: nx.gnm_random_graph(60, 75, rng),
        "dense": lambda: nx.gnm_random_graph(30, 100, rng),
    }[kind]()
    return list(graph.edges)


def drawn(kind: str, seed: int) -> TableProblem:
    """A problem of a kind: a table for each scope, and one for each variable."""
    rng, size = stream(seed, "study of problems in tables", kind), SIZES[kind]
    pairs = scopes_of(kind, rng)
    scopes = [*pairs, *((i,) for i in sorted({i for scope in pairs for i in scope}))]

    def costs(scope: tuple[int, ...]) -> np.ndarray:
        shape = (size,) * len(scope)
        if kind == "colouring" and len(scope) == 2:
            return np.where(np.eye(size) > 0, np.inf, 0.0)
        return rng.normal(size=shape) if kind == "grid" else rng.integers(0, 100, shape).astype(float)

    named = {f"f{j}": [f"x{i}" for i in scope] for j, scope in enumerate(scopes)}
    graph = sb.FactorGraph.from_scopes(named)
    tables = {f"f{j}": -costs(scope) for j, scope in enumerate(scopes)}
    return TableProblem(kind, graph, tables, dict.fromkeys(graph.variables, tuple(range(size))), "min")


def by_toulbar2(problem: TableProblem) -> Line:
    """Cost of toulbar2's choice, by our tables, and its proven bound; both are None without a choice."""
    from pytoulbar2 import CFN

    graph, tables = problem.graph, {factor: -table for factor, table in problem.tables.items()}
    largest = sum(float(np.abs(table[np.isfinite(table)]).max(initial=0.0)) for table in tables.values())
    digits = min(DIGITS, DOUBLE - math.ceil(math.log10(max(largest, 1.0))))
    if digits < 0:
        raise ConfigError(f"got costs of up to {largest:.2g} in sum; wanted at most 1e{DOUBLE}: divide them")
    network, start = CFN(resolution=digits), time.process_time()
    try:
        for variable, values in problem.domains.items():
            network.AddVariable(variable, range(len(values)))
        for factor, table in tables.items():
            network.AddFunction(list(graph.scope(factor)), table.ravel().tolist())
        start = time.process_time()
        found = network.Solve(timeLimit=LIMIT)
    except network.Contradiction:  # a table forbids all combinations
        found = None
    seconds = time.process_time() - start
    if found is None:
        status = "infeasible" if seconds < LIMIT else "out of time"
        return {"status": status, "seconds": seconds, "value": None, "bound": None}
    choice, bound = dict(zip(problem.domains, found[0], strict=True)), problem.told(-network.GetDDualBound())
    told = problem.told(sum(float(problem.tables[f][tuple(choice[x] for x in graph.scope(f))]) for f in graph.factors))
    is_proven = abs(told - bound) <= len(graph.factors) * 10.0**-digits
    return {"status": "exact" if is_proven else "out of time", "seconds": seconds, "value": told, "bound": bound}


def run(instance: str, method: str, seed: int) -> Line:
    """Cost, bound and processor seconds of one choice; cost and bound are None if there are none."""
    found: Line
    try:
        problem = drawn(instance, seed) if instance in SIZES else read_problem(instance)
        if method == "toulbar2":
            found = by_toulbar2(problem) | {"versions": {"pytoulbar2": version("pytoulbar2")}}
        else:
            start = time.process_time()
            solution = OWN[method].solve(problem.graph, problem.tables, seed=seed)
            found = {"status": solution.report.status, "seconds": time.process_time() - start}
            for key, own in ("value", solution.value), ("bound", solution.upper_bound):
                found[key] = problem.told(own) if own is not None and np.isfinite(own) else None
    except (BudgetError, ConfigError) as error:
        none = dict.fromkeys(("seconds", "value", "bound"))
        return {"status": "refused", **none, "why": str(error).split("; wanted")[0]}
    for key, digits in ("seconds", 4), ("value", DIGITS), ("bound", DIGITS):
        found[key] = None if found[key] is None else round(found[key], digits)
    return found


def table(lines: list[Line]) -> Iterator[str]:
    """Drawn problems: median milliseconds, and mean losses in % of the optimum. Files: numbers of optimal choices.

    Cells without a number: ``×`` if all runs were refused, ``–`` if none has an allowed choice, and empty if the method
    was not run or no optimum is proven.
    """
    best = {(line["problem"], line["seed"]): line["value"] for line in select(lines, method="toulbar2", status="exact")}

    def pairs(own: list[Line], key: str = "value") -> list[tuple[float, float]]:
        """Pairs of a cost or bound and the proven optimum, if both are known."""
        every = [(line[key], best.get((line["problem"], line["seed"]))) for line in own]
        return [(found, least) for found, least in every if found is not None and least is not None]

    def mean(own: list[Line], key: str = "value", sign: int = 1) -> str:
        losses = [sign * 100 * (found - least) / abs(least) for found, least in pairs(own, key)]
        if not losses:
            return "–" if own and all(line["status"] == "infeasible" for line in own) else ""
        return f"{statistics.mean(losses):.2g}{f' ({len(losses)})' * (len(losses) < len(own))}"

    def milliseconds(own: list[Line]) -> str:
        known = [line["seconds"] for line in own if line["seconds"] is not None]
        return f"{1000 * statistics.median(known):.0f}" if known else "×" * bool(own)

    rows, counts = list[list[str]](), list[list[str]]()
    for kind in SIZES:
        of = {method: select(lines, problem=kind, method=method) for method in METHODS}
        loss = [mean(of[method]) for method in HEURISTIC]
        if any(of.values()):
            rows.append([kind, *map(milliseconds, of.values()), *loss, mean(of["max-sum"], "bound", -1)])
    heads = ["toulbar2, ms", *OWN, "max-sum, %", "dsa", "mgm", "bound"]
    yield from markdown(["problem", *heads], rows, right=True)
    files = {line["problem"]: Path(line["problem"]).suffix.replace("yml", "yaml") for line in lines}
    for ending in sorted({own for problem, own in files.items() if problem not in SIZES}):
        here = [line for line in lines if files[line["problem"]] == ending]
        of = [select(here, method=method) for method in METHODS]
        optimal = [sum(abs(found - least) < 1e-4 for found, least in pairs(own)) for own in of]
        counts.append([f"{len({line['problem'] for line in here})} {ending}", *map(str, optimal)])
    if counts:
        yield from ["", *markdown(["files", *METHODS], counts, right=True)]


HEURISTIC = ("max-sum", "dsa", "mgm")
METHODS = ("toulbar2", *OWN)
CHOICES = {"problem": tuple(map(Instance, SIZES)), "method": METHODS, "seed": range(10)}
STUDY = Study(__doc__, "dcop.jsonl", run, CHOICES, table, page=("studies/papers.md", "dcop"))

if __name__ == "__main__":
    STUDY.main()
