"""Where a fifth of the box fails, right beside the best point: how many queries fail, and what is found all the same.

    python docs/failures.py                 # runs what is missing of seeds 0-9, into docs/failures.jsonl
    python docs/failures.py --page          # rewrites the table in docs/failures.md

Every run is made twice: a query in the failing region is told as failed, or as a bad number, the worst of the first
eight outcomes. What is there is skipped. Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

import argparse
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

import swarmbo as sb
from swarmbo.boundary.rng import stream

LOG, PAGE = Path(__file__).with_suffix(".jsonl"), Path(__file__).with_suffix(".md")
METHODS = ("auto", "dec-hbo", "dumbo", "expected-improvement", "thompson")
OUTCOMES = ("total", "per-factor")
QUERIES, INITIAL = 30, 8
VARIABLES = "abcd"
SCOPES = {"f": ["a", "b"], "g": ["c", "d"]}
GAP = 0.03  # from the best point to where evaluations fail, in sides of the box
SHARE = 0.2  # of the box


def region(shape: str, best: np.ndarray) -> Callable[[np.ndarray], bool]:
    """Whether a point fails: beyond a wall in one variable, or in a corner or a disc of the first two."""
    if shape == "wall":
        return lambda x: bool(x[0] > best[0] + GAP)
    if shape == "corner":
        return lambda x: bool((x[:2] > best[:2] + GAP).all())
    radius = np.sqrt(SHARE / np.pi)
    centre = best[:2] + (radius + GAP) / np.sqrt(2.0)
    return lambda x: bool(((x[:2] - centre) ** 2).sum() < radius**2)


def problem(shape: str, seed: int) -> tuple[Callable[[np.ndarray], dict[str, float]], Callable[[np.ndarray], bool]]:
    """Two bowls with ripples, best at a point that the seed moves as far as the failing region leaves room."""
    rng = stream(seed, "failing", shape=shape)
    best = rng.uniform(0.3, 0.7, 4)
    if shape == "wall":
        best[0] = 1.0 - SHARE - GAP
    elif shape == "corner":
        width = rng.uniform(0.35, 0.5)
        best[:2] = 1.0 - GAP - np.array([width, SHARE / width])
    else:
        best[:2] = rng.uniform(0.15, 0.35, 2)
    turns = rng.uniform(0.0, 2.0 * np.pi, 2)

    def outcomes(x: np.ndarray) -> dict[str, float]:
        out = dict[str, float]()
        for name, turn, own in zip(SCOPES, turns, (slice(0, 2), slice(2, 4)), strict=True):
            c, s = np.cos(turn), np.sin(turn)
            u = np.array([[c, -s], [s, c]]) @ (x[own] - best[own])
            out[name] = -float(u[0] ** 2 + 3.0 * u[1] ** 2 + 0.05 * (1.0 - np.cos(9.0 * u[0])))
        return out

    return outcomes, region(shape, best)


def run(method: str, told: str, shape: str, seed: int, as_number: bool) -> dict[str, float]:
    """Failed queries after the initial design, and the regret of the best query that did not fail."""
    outcomes, fails = problem(shape, seed)
    team = sb.Team(
        sb.FactorGraph.from_scopes(SCOPES),
        dict.fromkeys(VARIABLES, (0.0, 1.0)),
        outcomes=told,
        acquisition={"kind": method} | ({"exploration": "paper"} if method == "dumbo" else {}),
        initial=INITIAL,
        rounds=INITIAL + QUERIES,
        seed=seed,
    )
    seen, best, failed = list[dict[str, float]](), -np.inf, 0
    for number in range(INITIAL + QUERIES):
        query = team.ask()
        x = np.array([query.point[name] for name in VARIABLES])
        values, is_dead = outcomes(x), fails(x)
        if not is_dead:
            seen.append(values)
            best = max(best, sum(values.values()))
        elif as_number:
            values = {name: min((other[name] for other in seen[:INITIAL]), default=-3.0) for name in values}
        failed += number >= INITIAL and is_dead
        answer = values if told == "per-factor" else sum(values.values())
        team.tell(query, None if is_dead and not as_number else answer)
    return {"failed": failed, "regret": -best}


def page(lines: list[dict[str, object]]) -> str:
    """The table: medians and ranges over seeds."""
    rows = [
        "| outcomes | acquisition | fail, of 30 | regret | as a bad number: fail | regret | ratio of medians |",
        "|---|---|---|---|---|---|---|",
    ]
    for told, method in itertools.product(OUTCOMES, METHODS):
        cells = list[str]()
        medians = list[float]()
        for as_number in (False, True):
            own = [x for x in lines if (x["told"], x["method"], x["as_number"]) == (told, method, as_number)]
            failed = [int(str(x["failed"])) for x in own]
            regret = [float(str(x["regret"])) for x in own]
            medians.append(float(np.median(regret)))
            cells += [
                f"{np.median(failed):.0f} [{min(failed)}, {max(failed)}]",
                f"{np.median(regret):.2g} [{min(regret):.2g}, {max(regret):.2g}]",
            ]
        rows.append(f"| {told} | `{method}` | {' | '.join(cells)} | {medians[0] / medians[1]:.2g} |")
    return "\n".join(rows)


def main() -> None:
    """Run what is missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", action="store_true", help="rewrite the table in docs/failures.md")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=LOG)
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.out.read_text().splitlines()] if given.out.exists() else []
    if given.page:
        text = PAGE.read_text()
        PAGE.write_text(
            re.sub(r"(?s)(<!-- table -->\n).*?(<!-- end -->)", lambda m: f"{m[1]}\n{page(lines)}\n\n{m[2]}", text)
        )
        return
    keys = ("method", "told", "shape", "seed", "as_number")
    done = {tuple(line[key] for key in keys) for line in lines}
    shapes = ("wall", "corner", "disc")
    for seed in range(given.seeds):
        for method, told, shape, as_number in itertools.product(METHODS, OUTCOMES, shapes, (False, True)):
            if (method, told, shape, seed, as_number) in done:
                continue
            line = {"method": method, "told": told, "shape": shape, "seed": seed, "as_number": as_number}
            with given.out.open("a") as log:
                log.write(json.dumps(line | run(method, told, shape, seed, as_number)) + "\n")


if __name__ == "__main__":
    main()
