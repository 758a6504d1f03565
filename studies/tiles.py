"""Accuracy and cost of beliefs by tiles: the table of docs/studies/scaling.md.

    python studies/tiles.py            # runs cells missing in tiles.jsonl (minutes), then prints the table
    python studies/tiles.py --page     # puts the table in docs/studies/scaling.md

A field is drawn from a Gaussian process, measured at random locations and predicted at the 16,384 sites of a grid. Up
to 5,000 measurements, the exact posterior is also computed. Times are processor times, and memory is the peak that a
prediction allocates.
"""

import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
from study import Line, Study, markdown, select

from swarmbo.belief import ExactGP, ExactGPSettings, Hyperparameters
from swarmbo.belief.gp import tiles
from swarmbo.boundary.rng import stream
from swarmbo.kernels import draw
from swarmbo.spaces import Domain

LENGTH, EXACT_TO = 0.15, 5000
SIDE = np.linspace(0.0, 1.0, 128)
SITES = np.stack(np.meshgrid(SIDE, SIDE), axis=-1).reshape(-1, 2)


def predicted(belief: ExactGP) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Means and deviations at the sites, seconds and MB; ``belief`` has no results in memory yet."""
    tracemalloc.start()
    start = time.process_time()
    mean, var = belief.posterior(SITES)
    seconds, megabytes = time.process_time() - start, tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return mean, np.sqrt(var), seconds, megabytes


def run(measurements: int, noise: float, seed: int) -> Line:
    """Differences to the exact posterior and to the field, and the belief's estimate of its error by tiles."""
    rng, lengths = stream(seed, "tiles", n=measurements), np.full(2, LENGTH)
    field, X = draw(rng, "matern52", lengths, 1.0), rng.random((measurements, 2))
    y, truth = field(X) + noise * rng.normal(size=measurements), field(SITES)
    hyper = Hyperparameters("matern52", (LENGTH, LENGTH), 1.0, noise**2)

    def belief() -> ExactGP:
        return ExactGP.from_hyperparameters(ExactGPSettings(), Domain(np.zeros(2), np.ones(2)), hyper, X, y)

    def scores(name: str, mean: np.ndarray, seconds: float, megabytes: float) -> Line:
        error, regret = np.sqrt(np.mean((mean - truth) ** 2)), truth.max() - truth[mean.argmax()]
        return {
            f"{name}_{key}": float(v)
            for key, v in {"s": seconds, "MB": megabytes, "map_rmse": error, "regret": regret}.items()
        }

    mean, std, *cost = predicted(belief())
    estimate = belief().neglected()
    line = scores("tiles", mean, *cost) | {"said_mean": estimate.mean, "said_std": estimate.std}
    if measurements > EXACT_TO:
        return line
    tiled_from, tiles.TILED_FROM = tiles.TILED_FROM, EXACT_TO
    try:
        exact, exact_std, *cost = predicted(belief())
    finally:
        tiles.TILED_FROM = tiled_from
    off = np.abs(mean - exact) / exact_std
    differences = {"off_rms": np.sqrt(np.mean(off**2)), "off_max": off.max(), "std_max": (std / exact_std).max() - 1.0}
    return line | scores("exact", exact, *cost) | {key: float(value) for key, value in differences.items()}


def table(lines: list[Line]) -> Iterator[str]:
    """Means over seeds; largest values of maxima."""

    def row(n: int, noise: float, own: list[Line]) -> list[str]:
        def both(key: str, text: str) -> str:
            names = [name for name in ("exact", "tiles") if f"{name}_{key}" in own[0]]
            return "→".join(f"{np.mean([line[f'{name}_{key}'] for line in own]):{text}}" for name in names)

        def most(key: str) -> str:
            return f"{max(line[key] for line in own):.2g}" if key in own[0] else ""

        costs, errors = (both("s", ".2g"), both("MB", ",.0f")), (both("map_rmse", ".4f"), both("regret", ".4f"))
        return [f"{n:,}, {noise:g}", *costs, most("off_max"), most("said_mean"), *errors]

    head = ["measurements, noise std", "s", "MB", "error of means", "estimated error", "map RMSE", "regret"]
    cells = {(line["measurements"], line["noise"]): None for line in sorted(lines, key=lambda x: x["measurements"])}
    yield from markdown(head, [row(n, e, select(lines, measurements=n, noise=e)) for n, e in cells], right=True)


CHOICES = {"measurements": (5000, 100000), "noise": (0.05, 0.3), "seed": range(2)}
STUDY = Study(__doc__, "tiles.jsonl", run, CHOICES, table, page=("studies/scaling.md", "tiles"))

if __name__ == "__main__":
    STUDY.main()
