"""The tables of docs/studies/sums.md, from the lines of studies/benchmarks.

A row is shown if there is a run for each of the seeds; what is missing is named below the table. A figure is bold if
the method is better than *every* other one on these same seeds: by a sign test on each pair, 5 % two-sided, which takes
nine seeds of ten.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from scipy.stats import binomtest
from study import DOCS, Line, between, markdown, read, select

DEFAULT = "auto"
SIGNIFICANCE = 0.05
Runs = Mapping[int, Line]  # by seed


@dataclass(frozen=True)
class Look:
    """When a problem is looked at.

    Args:
        at: Numbers of evaluations.
        totals: The problem of which peers, who see only totals, have the runs; None: this one.
    """

    at: tuple[int, int]
    totals: str | None = None


def results(folder: Path, problem: str, method: str) -> dict[int, Line]:
    """Runs by seed; of several lines for one seed, the last."""
    return {line["seed"]: line for line in read(folder / f"{problem}.{method}.jsonl")}


def at(runs: Runs, look: int, seeds: Sequence[int]) -> list[float] | None:
    """The regrets of all seeds after so many evaluations; None if a run is missing, or is shorter.

    They are rounded to 1e-9: methods that reached a corner where the maximum is are level, whatever their last digits.
    """
    if any(seed not in runs or len(runs[seed]["regret"]) < look for seed in seeds):
        return None
    return [round(max(runs[seed]["regret"][look - 1], 0.0), 9) for seed in seeds]


def is_better(own: Sequence[float], other: Sequence[float]) -> bool:
    """Whether regrets are smaller than others on the same seeds, by a sign test; ties speak for neither.

    Example:
        >>> is_better([1.0] * 9 + [3.0], [2.0] * 10), is_better([1.0] * 8 + [3.0] * 2, [2.0] * 10)
        (True, False)
    """
    wins = sum(a < b for a, b in zip(own, other, strict=True))
    losses = sum(a > b for a, b in zip(own, other, strict=True))
    return wins > losses and bool(binomtest(wins, wins + losses).pvalue < SIGNIFICANCE)


def best(columns: Mapping[str, Sequence[float] | None]) -> str | None:
    """The method that is better than every other one, if there is one; with nothing to compare there is none."""
    known = {name: regrets for name, regrets in columns.items() if regrets is not None}
    for name, regrets in known.items():
        others = [other for key, other in known.items() if key != name]
        if others and all(is_better(regrets, other) for other in others):
            return name
    return None


def number(value: float) -> str:
    """Three digits, and no exponent for what is large."""
    return f"{value:,.0f}" if value >= 100.0 else f"{value:.2g}"


def cell(regrets: Sequence[float] | None, is_bold: bool) -> str:
    """Median [smallest, largest]; a dash for what was not run so far."""
    if regrets is None:
        return "–"
    median, smallest, largest = map(number, (statistics.median(regrets), min(regrets), max(regrets)))
    return f"{f'**{median}**' if is_bold else median} [{smallest}, {largest}]"


def found(folder: Path, problem: str, look: Look, peers: Sequence[str]) -> dict[str, dict[int, Line]]:
    """All runs of a problem, by the name that a row has."""
    names = sorted(path.name.split(".")[1] for path in folder.glob(f"{problem}.*.jsonl"))
    runs = {name: results(folder, problem, name) for name in names}
    if look.totals is None or not runs:
        return runs
    return runs | {f"{peer} (total only)": results(folder, look.totals, peer) for peer in peers}


def wins(runs: Mapping[str, Runs], name: str, look: Look, seeds: Sequence[int]) -> str:
    """On how many seeds the default is better than a row, after as many evaluations as both have."""
    for n in reversed(look.at):
        own, other = at(runs.get(DEFAULT, {}), n, seeds), at(runs[name], n, seeds)
        if name != DEFAULT and own is not None and other is not None:
            better = sum(a < b for a, b in zip(own, other, strict=True))
            return f"{better} of {len(seeds)}" + ("" if n == look.at[-1] else f" (N = {n})")
    return ""


def table(folder: Path, problem: str, look: Look, peers: Sequence[str], seeds: Sequence[int]) -> Iterator[str]:
    """One table in Markdown, its methods from the best to the worst; nothing if no row is whole."""
    runs = found(folder, problem, look, peers)
    columns = {n: {name: at(own, n, seeds) for name, own in runs.items()} for n in look.at}
    first, last = look.at
    shown = [name for name in runs if columns[first][name] is not None]
    if not shown:
        return
    bold = {n: best(columns[n]) for n in look.at}

    def rank(name: str) -> tuple[bool, float]:
        regrets = columns[last][name]
        return regrets is None, statistics.median(regrets or columns[first][name] or [])

    def row(name: str) -> list[str]:
        cells = [cell(columns[n][name], bold[n] == name) for n in look.at]
        if is_hartmann:
            regrets = columns[last][name]
            cells.append("–" if regrets is None else f"{sum(r < 0.01 for r in regrets)} of {len(regrets)}")
        chosen = [runs[name][seed] for seed in seeds]
        seconds = statistics.median(line["seconds"] / (len(line["regret"]) - 10) for line in chosen)
        return [name, *cells, wins(runs, name, look, seeds), f"{seconds:.2g}"]

    is_hartmann = problem.startswith("hartmann")
    share = ["below 0.01"] if is_hartmann else []
    head = ["method", f"N = {first}", f"N = {last}", *share, f"seeds won by `{DEFAULT}`", "processor s per decision"]
    yield f"### {problem}\n"
    yield from markdown(head, map(row, sorted(shown, key=rank)))
    yield from absent(runs, shown, look, peers, seeds)
    yield ""


def absent(
    runs: Mapping[str, Runs], shown: Sequence[str], look: Look, peers: Sequence[str], seeds: Sequence[int]
) -> Iterator[str]:
    """Which peers, and the default, have no row, and how many of the seeds ran."""
    names = [DEFAULT, *(f"{peer} (total only)" if look.totals else peer for peer in peers)]
    gone = [name for name in dict.fromkeys([*names, *runs]) if name not in shown]
    if any(runs.get(name) for name in gone):  # a study without peers says nothing of them
        counts = [
            f"{name} ({sum(s in runs[name] for s in seeds)} of {len(seeds)} seeds)"
            if name in runs and any(s in runs[name] for s in seeds)
            else name
            for name in gone
        ]
        told = f"Not run on all seeds: {', '.join(counts)}."
        yield "\n" + fill(told, 120, break_on_hyphens=False)


def tables(folder: Path, problems: Mapping[str, Look], peers: Sequence[str], seeds: Sequence[int]) -> str:
    """All tables in Markdown."""
    lines = [line for problem, look in problems.items() for line in table(folder, problem, look, peers, seeds)]
    return "\n".join(lines).strip()


def in_short(folder: Path, problems: Mapping[str, Look], peers: Sequence[str], seeds: Sequence[int]) -> str:
    """The default and the best of the others, at the last look; bold is what is better than the other of the two."""
    rows = list[list[str]]()
    for problem, look in problems.items():
        runs = found(folder, problem, look, peers)
        last = {name: at(own, look.at[-1], seeds) for name, own in runs.items()}
        medians = {name: statistics.median(y) for name, y in last.items() if y and name != DEFAULT}
        if not medians:
            continue
        rival = min(medians, key=lambda name: medians[name])
        pair = {DEFAULT: last.get(DEFAULT), rival: last[rival]}
        own, other = (cell(pair[name], best(pair) == name) for name in pair)
        rows.append([f"`{problem}`", str(look.at[-1]), own, f"`{rival}` {other}", wins(runs, rival, look, seeds)])
    head = ["problem", "N", f"`{DEFAULT}`: regret", "best other method: regret", f"seeds won by `{DEFAULT}`"]
    return "\n".join(markdown(head, rows))


def versions(folder: Path, problems: Mapping[str, Look], peers: Sequence[str], seeds: Sequence[int]) -> str:
    """Which packages the peers ran on."""
    named: dict[str, set[str]] = {}
    for problem in problems:
        for peer in peers:
            for seed, line in results(folder, problem, peer).items():
                for package, version in line.get("versions", {}).items() if seed in seeds else ():
                    named.setdefault(package, set()).add(version)
    ran_on = ", ".join(f"{package} {' and '.join(sorted(named[package]))}" for package in sorted(named))
    return f"Comparison methods ran on {ran_on}"


def parallel(folder: Path) -> str:
    """Medians of rounds of several sizes; the lines have further methods."""
    lines, rows = select(read(folder.parent / "parallel.jsonl"), method=DEFAULT), list[list[str]]()
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
        rows.append([f"`{problem}`", *cells])
    head = [f"q = {size}" for size in sizes]
    return "\n".join(markdown(["problem", *head], rows))


def pages(folder: Path, problems: Mapping[str, Look], peers: Sequence[str], seeds: Sequence[int]) -> dict[Path, str]:
    """The pages with tables in them, as they should be.

    Args:
        folder: Of the lines.
        problems: When each is looked at.
        peers: Methods that see only totals.
        seeds: Of the runs that are shown.
    """
    page = DOCS / "studies" / "sums.md"
    text = page.read_text(encoding="utf-8")
    text = between(text, "in short", in_short(folder, problems, peers, seeds))
    text = between(text, "versions", versions(folder, problems, peers, seeds) + ".")
    return {page: between(text, "batches", parallel(folder))}
