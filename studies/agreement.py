"""Quality of agreements by messages, compared with one computer that searches from 200 points.

    python studies/agreement.py       # runs missing cells, draws docs/images/agreement.png, prints the tables

Functions are drawn exactly from an additive Gaussian process on six graphs, evaluated at random points with noise, and
learned; each acquisition then makes the sum that agents maximise. The share of a method is (value - median of random
points) / (best of 200 centralised L-BFGS-B searches - median of random points).
"""

import time
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from papers_bounds import drawn, situation
from study import Line, Study, markdown, select

from swarmbo.acquisition import DECHBO, Acquisition, Auto, DuMBO, ExpectedImprovement, Thompson
from swarmbo.baselines import Centralised
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.coordination.methods.admm import ADMM
from swarmbo.coordination.methods.refined import RefinedMaxSum
from swarmbo.graph import BoxFunctions, FactorGraph
from swarmbo.graph.box_functions import total_value
from swarmbo.plotting import style

LENGTHSCALE, NOISE_VARIANCE, RANDOM_POINTS = 0.3, 1e-3, 2000
PAIRS_OF_GRID = {f"{r}{c}-": [f"x{r}{c}", f"x{r}{c + 1}"] for r in range(3) for c in range(2)} | {
    f"{r}{c}|": [f"x{r}{c}", f"x{r + 1}{c}"] for r in range(2) for c in range(3)
}
GRAPHS: dict[str, dict[str, list[str]]] = {
    "3 disjoint triples": {f"f{i}": [f"x{3 * i + j}" for j in range(3)] for i in range(3)},
    "chain of 8 pairs": {f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(8)},
    "tree of 5": {"a": ["x", "y", "z"], "b": ["z", "u"], "c": ["z", "v", "w"], "d": ["v", "q"], "e": ["y", "p"]},
    "ring of 6 pairs": {f"f{i}": [f"x{i}", f"x{(i + 1) % 6}"] for i in range(6)},
    "3 x 3 grid of pairs": PAIRS_OF_GRID,
    "chain of 4 quadruples": {f"f{i}": [f"x{3 * i + j}" for j in range(4)] for i in range(4)},
}
EVALUATIONS = (40, 100)
ACQUISITIONS: dict[str, Acquisition] = {
    "auto": Auto(),
    "DEC-HBO": DECHBO(),
    "DuMBO": DuMBO(exploration="paper"),
    "DuMBO, coupled": DuMBO(coupled=True, exploration="paper"),
    "Thompson": Thompson(),
    "log improvement": ExpectedImprovement(),
}
METHODS: dict[str, ADMM | RefinedMaxSum | Centralised] = {
    "ADMM": ADMM(),
    "refined max-sum": RefinedMaxSum(),
    "ADMM without recombination": ADMM(recombination_entries=0),
    "centralised, 5 searches": Centralised(starts=5),
}
BEST = Centralised(starts=200, screened=200)
COLOURS = dict(zip(METHODS, style.METHOD_COLOURS, strict=False))


def problem(graph_name: str, acquisition: str, t: int) -> BoxFunctions:
    """The sum that agents maximise after t evaluations of a drawn function."""
    graph, kind = FactorGraph.from_scopes(GRAPHS[graph_name]), ACQUISITIONS[acquisition]
    rng = np.random.default_rng([t, len(graph.variables), len(graph.factors)])
    X = rng.random((t, len(graph.variables)))
    y = drawn(graph, X, rng, LENGTHSCALE, onto=np.sqrt(NOISE_VARIANCE) * rng.standard_normal(t))
    now = situation(graph, X, y, t, seed=0)
    return kind.local_functions(now, kind.learn(now, AdditiveGPSettings(), None))


def run(graph_name: str, acquisition: str, t: int) -> Line:
    """Share that every method reached, and its cost."""
    functions = problem(graph_name, acquisition, t)
    low, high = functions.low, functions.high
    drawn = low + np.random.default_rng(t).random((RANDOM_POINTS, len(low))) * (high - low)
    median = float(np.median(total_value(functions, drawn)))
    best = BEST.maximise(functions).value
    line: Line = {"median": median, "best": best}
    for name, method in METHODS.items():
        start = time.process_time()
        agreement = method.maximise(functions)
        line[name] = {
            "share": (agreement.value - median) / (best - median),
            "seconds": round(time.process_time() - start, 4),
            "status": agreement.report.status,
            "messages": agreement.report.messages,
            "bytes": agreement.report.bytes,
        }
    return line


def table(lines: list[Line]) -> list[str]:
    """Tables of shares and of costs, by graph."""

    def shares(label: str, own: list[Line]) -> list[Any]:
        found = ([line[name]["share"] for line in own] for name in METHODS)
        return [label, *(f"{np.median(each):.3f} ({min(each):.3f})" for each in found)]

    def cost(own: list[Line], name: str) -> str:
        s, messages, size = (np.median([x[name][what] for x in own]) for what in ("seconds", "messages", "bytes"))
        return f"{1e3 * s:.0f}, {messages:.0f}, {size / 1e3:.0f}"

    rows = [shares(label, select(lines, graph=label)) for label in GRAPHS]
    names = [name for name in METHODS if "without" not in name]
    costs = [[label, *(cost(select(lines, graph=label), name) for name in names)] for label in GRAPHS]
    return [
        *markdown(["graph", *METHODS], [*rows, shares("**all**", lines)]),
        "",
        *markdown(["graph", *(f"{name}: ms, messages, kB" for name in names)], costs),
    ]


def histogram(ax: Axes, name: str, shares: list[float]) -> Axes:
    """Histogram of problems by share; shares outside of the axis are counted in the first or last bar."""
    centres = np.round(np.arange(0.75, 1.0601, 0.01), 2)
    edges = np.append(centres, centres[-1] + 0.01) - 0.005
    inside = np.clip(shares, centres[0], centres[-1])
    counts, _, bars = ax.hist(inside, bins=edges.tolist(), color=COLOURS[name], rwidth=0.86)
    labels = [f"{int(count)}" if count else "" for count in counts]
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    ax.bar_label(bars, labels=labels, color=style.MUTED, fontsize=8, padding=2, bbox=behind)
    ax.axvline(1.0, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=0.5)
    ax.set_title(name)
    enough = sum(share >= 0.98 for share in shares)
    summary = f"median {np.median(shares):.3f}\nleast {min(shares):.3f}\n{enough} of {len(shares)} at 0.98 or more"
    ax.text(0.02, 0.9, summary, transform=ax.transAxes, va="top", color=style.INK, fontsize=8.5, linespacing=1.5)
    ax.set_ylabel("problems")
    ax.grid(visible=False, axis="x")
    return ax


def draw(lines: list[Line], path: Path) -> Path:
    """One histogram per method, stacked vertically."""
    with style.applied():
        figure = style.new_figure(7.0, 1.75 * len(METHODS))
        axes: Any = figure.subplots(len(METHODS), 1, sharex=True, sharey=True)
        for ax, name in zip(axes, METHODS, strict=True):
            histogram(ax, name, [line[name]["share"] for line in lines])
        axes[0].set_ylim(top=1.15 * axes[0].get_ylim()[1])
        where: dict[str, Any] = {
            "xytext": (16, 0),
            "xycoords": ("data", "axes fraction"),
            "textcoords": "offset points",
        }
        where |= {"va": "top", "color": style.MUTED, "fontsize": 8.5}
        axes[0].annotate("best of 200\ncentralised searches", (1.0, 0.9), **where)
        axes[-1].set_xlabel("share: 0 is the median of random points, 1 the best of 200 centralised searches")
        axes[-1].set_xticks(np.arange(0.75, 1.051, 0.05), ["≤ 0.75", "0.80", "0.85", "0.90", "0.95", "1.00", "1.05"])
        return style.save(figure, path)


CHOICES = {"graph": tuple(GRAPHS), "acquisition": tuple(ACQUISITIONS), "t": EVALUATIONS}
PAGE, FIGURE = ("studies/agreement.md", "tables"), "agreement.png"
STUDY = Study(__doc__, "agreement.jsonl", run, CHOICES, table, page=PAGE, draw=draw, figure=FIGURE)

if __name__ == "__main__":
    STUDY.main()
