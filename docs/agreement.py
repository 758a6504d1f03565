"""How good agreements by messages are, beside one computer that searches from 200 points.

    python docs/agreement.py            # works out what is missing, draws docs/images/agreement.png, prints the tables

Functions are drawn exactly from an additive Gaussian process on six graphs, evaluated at random points with noise, and
learned; each acquisition then makes the sum that agents maximise. The share of a method is (value - median of random
points) / (best of 200 centralised L-BFGS-B searches - median of random points). Each problem adds a line of JSON to
docs/agreement.jsonl; what is there is skipped.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from threadpoolctl import threadpool_limits

from swarmbo.acquisition import DECHBO, Acquisition, Auto, DuMBO, ExpectedImprovement, Thompson
from swarmbo.baselines import Centralised
from swarmbo.belief.gp.additive_settings import AdditiveGPSettings
from swarmbo.belief.model import JointSituation
from swarmbo.coordination import RefinedMaxSum
from swarmbo.coordination.local_functions import LocalFunctions, total_value
from swarmbo.coordination.methods.admm import ADMM
from swarmbo.graph import FactorGraph
from swarmbo.kernels import kernel_matrix
from swarmbo.plotting import style
from swarmbo.problem.data import Dataset
from swarmbo.spaces import Domain

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
ACQUISITIONS: dict[str, tuple[Acquisition, tuple[int, ...]]] = {  # and numbers of evaluations
    "auto": (Auto(), (40, 100)),
    "DEC-HBO": (DECHBO(), (40, 100)),
    "DuMBO": (DuMBO(exploration="paper"), (40, 100)),
    "DuMBO, coupled": (DuMBO(coupled=True, exploration="paper"), (40, 100)),
    "Thompson": (Thompson(), (40, 100)),
    "log improvement": (ExpectedImprovement(), (40, 100)),
}
METHODS: dict[str, ADMM | RefinedMaxSum | Centralised] = {
    "ADMM": ADMM(),
    "refined max-sum": RefinedMaxSum(),
    "ADMM without recombination": ADMM(recombination_entries=0),
    "centralised, 5 searches": Centralised(starts=5),
}
BEST = Centralised(starts=200, screened=200)
COLOURS = dict(zip(METHODS, style.METHOD_COLOURS, strict=False))
FILE = Path(__file__).parent / "agreement.jsonl"
FIGURE = Path(__file__).parent / "images" / "agreement.png"


def problem(graph_name: str, acquisition: str, t: int) -> LocalFunctions:
    """What agents maximise after t evaluations of a drawn function."""
    graph = FactorGraph.from_scopes(GRAPHS[graph_name])
    n, k = len(graph.variables), len(graph.factors)
    rng = np.random.default_rng([t, n, k])
    place = {variable: i for i, variable in enumerate(graph.variables)}
    X = rng.random((t, n))
    y = np.sqrt(NOISE_VARIANCE) * rng.standard_normal(t)
    for scope in graph.scopes:
        own = X[:, [place[variable] for variable in scope]]
        K = kernel_matrix("matern52", own, own, np.full(len(scope), LENGTHSCALE), 1.0 / k)
        K.flat[:: t + 1] += 1e-9
        y += np.linalg.cholesky(K) @ rng.standard_normal(t)
    history, domain = Dataset(X, y, np.full((t, k), np.nan)), Domain(np.zeros(n), np.ones(n))
    now = JointSituation(graph, domain, history, np.zeros((0, n)), "total", None, t, None, 0)
    kind = ACQUISITIONS[acquisition][0]
    return kind.local_functions(now, kind.learn(now, AdditiveGPSettings(), None))


def result(graph_name: str, acquisition: str, t: int) -> dict[str, Any]:
    """One line: what every method reached, and what it took."""
    functions = problem(graph_name, acquisition, t)
    low, high = functions.low, functions.high
    drawn = low + np.random.default_rng(t).random((RANDOM_POINTS, len(low))) * (high - low)
    median = float(np.median(total_value(functions, drawn)))
    best = BEST.maximise(functions).value
    line: dict[str, Any] = {"graph": graph_name, "acquisition": acquisition, "t": t, "median": median, "best": best}
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


def problems() -> Iterator[tuple[str, str, int]]:
    """All of them."""
    for graph_name in GRAPHS:
        for acquisition, (_, evaluations) in ACQUISITIONS.items():
            for t in evaluations:
                yield graph_name, acquisition, t


def results(path: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """What is there."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(line["graph"], line["acquisition"], line["t"]): line for line in lines}


def row(label: str, lines: list[dict[str, Any]]) -> str:
    """Median and least share of each method."""
    cells: list[str] = []
    for name in METHODS:
        shares = [line[name]["share"] for line in lines]
        cells.append(f"{np.median(shares):.3f} ({min(shares):.3f})")
    return f"| {label} | {len(lines)} | {' | '.join(cells)} |"


def tables(lines: list[dict[str, Any]]) -> Iterator[str]:
    """Shares by acquisition and graph, and what they took, in Markdown."""
    yield f"| median (least) share | problems | {' | '.join(METHODS)} |"
    yield "|---" * (2 + len(METHODS)) + "|"
    for by in ("acquisition", "graph"):
        for label in ACQUISITIONS if by == "acquisition" else GRAPHS:
            yield row(label, [line for line in lines if line[by] == label])
    yield row("**all**", lines)
    yield ""
    yield "| medians | " + " | ".join(f"{name}: ms, messages, kB" for name in METHODS) + " |"
    yield "|---" * (1 + len(METHODS)) + "|"
    for label in GRAPHS:
        own = [line for line in lines if line["graph"] == label]
        cells: list[str] = []
        for name in METHODS:
            seconds, messages, size = (
                float(np.median([line[name][what] for line in own])) for what in ("seconds", "messages", "bytes")
            )
            cells.append(f"{1e3 * seconds:.0f}, {messages:.0f}, {size / 1e3:.0f}")
        yield f"| {label} | {' | '.join(cells)} |"


def histogram(ax: Axes, name: str, shares: list[float]) -> Axes:
    """Numbers of problems by share; what lies outside is counted in the first or last bar."""
    centres = np.round(np.arange(0.75, 1.0601, 0.01), 2)
    edges = np.append(centres, centres[-1] + 0.01) - 0.005
    inside = np.clip(shares, centres[0], centres[-1])
    drawn: Any = ax.hist(inside, bins=edges.tolist(), color=COLOURS[name], rwidth=0.86)
    labels = [f"{int(count)}" if count else "" for count in drawn[0]]
    behind = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    ax.bar_label(drawn[2], labels=labels, color=style.MUTED, fontsize=8, padding=2, bbox=behind)
    ax.axvline(1.0, color=style.INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=0.5)
    ax.set_title(name)
    enough = sum(share >= 0.98 for share in shares)
    said = f"median {np.median(shares):.3f}\nleast {min(shares):.3f}\n{enough} of {len(shares)} at 0.98 or more"
    ax.text(0.02, 0.9, said, transform=ax.transAxes, va="top", color=style.INK, fontsize=8.5, linespacing=1.5)
    ax.set_ylabel("problems")
    ax.grid(visible=False, axis="x")
    return ax


def draw(lines: list[dict[str, Any]], path: Path) -> Path:
    """One histogram per method, over one another."""
    with style.applied():
        figure = style.new_figure(7.0, 1.75 * len(METHODS))
        axes: Any = figure.subplots(len(METHODS), 1, sharex=True, sharey=True)
        for ax, name in zip(axes, METHODS, strict=True):
            histogram(ax, name, [line[name]["share"] for line in lines])
        axes[0].set_ylim(top=1.15 * axes[0].get_ylim()[1])
        axes[0].annotate(
            "best of 200\ncentralised searches",
            (1.0, 0.9),
            xytext=(16, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            color=style.MUTED,
            fontsize=8.5,
        )
        axes[-1].set_xlabel("share: 0 is the median of random points, 1 the best of 200 centralised searches")
        axes[-1].set_xticks(np.arange(0.75, 1.051, 0.05), ["≤ 0.75", "0.80", "0.85", "0.90", "0.95", "1.00", "1.05"])
        return style.save(figure, path)


def main() -> None:
    """Work out what is missing, draw and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=FILE, help="where the lines of JSON are")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    given = parser.parse_args()
    done = results(given.out)
    with threadpool_limits(1, user_api="blas"):
        for key in problems():
            if key not in done:
                done[key] = result(*key)
                with given.out.open("a") as file:
                    file.write(json.dumps(done[key]) + "\n")
                shares = {name: round(done[key][name]["share"], 4) for name in METHODS}
                print(*key, shares, file=sys.stderr, flush=True)  # noqa: T201
    lines = [done[key] for key in problems()]
    draw(lines, given.figure)
    sys.stdout.write("\n".join(tables(lines)) + "\n")


if __name__ == "__main__":
    main()
