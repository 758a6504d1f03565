"""The tables of docs/studies/sums.md, from the lines of studies/benchmarks.

A row is shown if there is a run for each seed; missing rows are named below the table. A number is bold if the method
is better than *every* other method on the same seeds, by a two-sided sign test of each pair at 5 %. This takes nine
seeds of ten.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from textwrap import fill

from benchmark_problems import Problem
from scipy.stats import binomtest
from study import DOCS, Line, between, markdown, read, select

DEFAULT = "auto"
SIGNIFICANCE = 0.05
SIZE_OF_OTHERS = 8  # batch size with which other methods ran
Runs = Mapping[int, Line]  # by seed


def results(folder: Path, problem: str, method: str) -> dict[int, Line]:
    """Runs by seed; the last line counts if a seed has several."""
    return {line["seed"]: line for line in read(folder / f"{problem}.{method}.jsonl")}


def at(runs: Runs, look: int, seeds: Sequence[int]) -> list[float] | None:
    """Regrets of all seeds after ``look`` evaluations; None if a run is missing or too short.

    Regrets are rounded to 1e-9, so that methods that reach a maximum in a corner are equal despite their last digits.
    """
    if any(seed not in runs or len(runs[seed]["regret"]) < look for seed in seeds):
        return None
    return [round(max(runs[seed]["regret"][look - 1], 0.0), 9) for seed in seeds]


def is_better(own: Sequence[float], other: Sequence[float]) -> bool:
    """True if regrets are smaller than another method's on the same seeds, by a sign test that leaves out ties.

    Example:
        >>> is_better([1.0] * 9 + [3.0], [2.0] * 10), is_better([1.0] * 8 + [3.0] * 2, [2.0] * 10)
        (True, False)
    """
    wins = sum(a < b for a, b in zip(own, other, strict=True))
    losses = sum(a > b for a, b in zip(own, other, strict=True))
    return wins > losses and bool(binomtest(wins, wins + losses).pvalue < SIGNIFICANCE)


def best(columns: Mapping[str, Sequence[float] | None]) -> str | None:
    """The method that is better than every other method; None if there is no such method, or nothing to compare."""
    known = {name: regrets for name, regrets in columns.items() if regrets is not None}
    for name, regrets in known.items():
        others = [other for key, other in known.items() if key != name]
        if others and all(is_better(regrets, other) for other in others):
            return name
    return None


def number(value: float) -> str:
    """Two significant digits; values from 100 on as whole numbers."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.2g}"


def cell(regrets: Sequence[float] | None, is_bold: bool) -> str:
    """Median [smallest, largest]; a dash if there are no runs."""
    if regrets is None:
        return "–"
    median, smallest, largest = map(number, (statistics.median(regrets), min(regrets), max(regrets)))
    return f"{f'**{median}**' if is_bold else median} [{smallest}, {largest}]"


def total_only(peer: str) -> str:
    """Row name of a comparison method on a problem with outcomes per factor, where its runs with totals are shown."""
    return f"{peer} (total only)"


def found(folder: Path, name: str, problem: Problem, peers: Sequence[str]) -> dict[str, dict[int, Line]]:
    """All runs of a problem, by the name of their row."""
    methods = sorted(path.name.split(".")[1] for path in folder.glob(f"{name}.*.jsonl"))
    runs = {method: results(folder, name, method) for method in methods}
    if not problem.per_factor or not runs:
        return runs
    return runs | {total_only(peer): results(folder, name.replace("-per-factor", ""), peer) for peer in peers}


def wins(runs: Mapping[str, Runs], name: str, problem: Problem, seeds: Sequence[int]) -> str:
    """Number of seeds on which the default beats a row, after the largest number of evaluations that both have."""
    for n in reversed(problem.looks):
        own, other = at(runs.get(DEFAULT, {}), n, seeds), at(runs[name], n, seeds)
        if name != DEFAULT and own is not None and other is not None:
            better = sum(a < b for a, b in zip(own, other, strict=True))
            return f"{better} of {len(seeds)}" + ("" if n == problem.looks[-1] else f" (N = {n})")
    return ""


def table(folder: Path, title: str, problem: Problem, peers: Sequence[str], seeds: Sequence[int]) -> Iterator[str]:
    """One table in Markdown, with methods from best to worst; empty if no row has all seeds."""
    runs = found(folder, title, problem, peers)
    columns = {n: {name: at(own, n, seeds) for name, own in runs.items()} for n in problem.looks}
    first, last = problem.looks
    shown = [name for name in runs if columns[first][name] is not None]
    if not shown:
        return
    bold, is_hartmann = {n: best(columns[n]) for n in problem.looks}, title.startswith("hartmann")

    def rank(name: str) -> tuple[bool, float]:
        regrets = columns[last][name]
        return regrets is None, statistics.median(regrets or columns[first][name] or [])

    def row(name: str) -> list[str]:
        cells = [cell(columns[n][name], bold[n] == name) for n in problem.looks]
        if is_hartmann:
            regrets = columns[last][name]
            cells.append("–" if regrets is None else f"{sum(r < 0.01 for r in regrets)} of {len(regrets)}")
        chosen = [runs[name][seed] for seed in seeds]
        seconds = statistics.median(line["seconds"] / (len(line["regret"]) - 10) for line in chosen)
        return [name, *cells, wins(runs, name, problem, seeds), f"{seconds:.2g}"]

    share = ["below 0.01"] if is_hartmann else []
    head = ["method", f"N = {first}", f"N = {last}", *share, f"seeds won by `{DEFAULT}`", "processor s per decision"]
    yield f"### {title}\n"
    yield from markdown(head, map(row, sorted(shown, key=rank)))
    wanted = [DEFAULT, *(total_only(peer) if problem.per_factor else peer for peer in peers), *runs]
    yield from absent({name: runs.get(name, {}) for name in wanted if name not in shown}, seeds)
    yield ""


def absent(runs: Mapping[str, Runs], seeds: Sequence[int]) -> Iterator[str]:
    """Sentence on methods without a row and their numbers of seeds; empty if none of these methods has a run."""
    if any(runs.values()):  # a study without comparison methods does not name them
        counts = {name: sum(seed in own for seed in seeds) for name, own in runs.items()}
        named = (f"{name} ({count} of {len(seeds)} seeds)" if count else name for name, count in counts.items())
        yield "\n" + fill(f"Not run on all seeds: {', '.join(named)}.", 120, break_on_hyphens=False)


def tables(folder: Path, problems: Mapping[str, Problem], peers: Sequence[str], seeds: Sequence[int]) -> str:
    """All tables in Markdown."""
    lines = [line for name, problem in problems.items() for line in table(folder, name, problem, peers, seeds)]
    return "\n".join(lines).strip()


def in_short(folder: Path, problems: Mapping[str, Problem], peers: Sequence[str], seeds: Sequence[int]) -> str:
    """The default and the best other method at the end of a run; the significantly better one of the two is bold."""
    rows = list[list[str]]()
    for title, problem in problems.items():
        runs, look = found(folder, title, problem, peers), problem.looks[-1]
        last = {name: at(own, look, seeds) for name, own in runs.items()}
        medians = {name: statistics.median(y) for name, y in last.items() if y and name != DEFAULT}
        if not medians:
            continue
        rival = min(medians, key=lambda name: medians[name])
        pair = {DEFAULT: last.get(DEFAULT), rival: last[rival]}
        own, other = (cell(pair[name], best(pair) == name) for name in pair)
        rows.append([f"`{title}`", str(look), own, f"`{rival}` {other}", wins(runs, rival, problem, seeds)])
    head = ["problem", "N", f"`{DEFAULT}`: regret", "best other method: regret", f"seeds won by `{DEFAULT}`"]
    return "\n".join(markdown(head, rows))


def versions(folder: Path, peers: Sequence[str], seeds: Sequence[int]) -> str:
    """Sentence on the packages with which comparison methods ran."""
    lines = [line for line in read(folder) if line["method"] in peers and line["seed"] in seeds]
    named = sorted({item for line in lines for item in line.get("versions", {}).items()})
    ran_on = (
        f"{package} {' and '.join(version for _, version in own)}" for package, own in groupby(named, itemgetter(0))
    )
    return f"Comparison methods ran on {', '.join(ran_on)}"


def parallel(folder: Path, seeds: Sequence[int]) -> str:
    """Medians of the default for each batch size, and the least median of other methods with batches of eight."""
    rows = list[list[str]]()
    every = [line for line in read(folder.parent / "parallel.jsonl") if line["seed"] in seeds]
    lines = select(every, method=DEFAULT)
    sizes = sorted({line["batch"] for line in lines} | {1})
    for problem in dict.fromkeys(line["problem"] for line in lines):
        own = select(lines, problem=problem)
        ends = {size: [line["regret"][-1] for line in select(own, batch=size)] for size in sizes}
        alone = results(folder, problem, DEFAULT).values()
        ends[1] = ends[1] or [line["regret"][73] for line in alone if len(line["regret"]) >= 74]
        cells = (
            "–" if not y else number(statistics.median(y)) + (f" ({len(y)})" if len(y) != 10 else "")
            for y in ends.values()
        )
        others = dict[str, list[float]]()
        for line in select(every, problem=problem, batch=SIZE_OF_OTHERS):
            others.setdefault(line["method"], []).append(line["regret"][-1])
        whole = {name: statistics.median(y) for name, y in others.items() if len(y) == 10 and name != DEFAULT}
        rival = min(whole, key=lambda name: whole[name], default=None)
        rows.append([f"`{problem}`", *cells, "–" if rival is None else f"`{rival}` {number(whole[rival])}"])
    head = ["problem", *(f"q = {size}" for size in sizes), f"best other, q = {SIZE_OF_OTHERS}"]
    return "\n".join(markdown(head, rows))


def page(folder: Path, problems: Mapping[str, Problem], peers: Sequence[str], seeds: Sequence[int]) -> tuple[Path, str]:
    """The page with current tables; ``peers`` are comparison methods, which see totals only."""
    path = DOCS / "studies" / "sums.md"
    text = between(path.read_text(encoding="utf-8"), "in short", in_short(folder, problems, peers, seeds))
    text = between(text, "versions", versions(folder, peers, seeds) + ".")
    return path, between(text, "batches", parallel(folder, seeds))
