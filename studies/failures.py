"""Queries that fail, and regret, if evaluations fail in a fifth of the box next to the best point.

    python studies/failures.py                 # runs missing cells of seeds 0-9, then prints the table
    python studies/failures.py --page          # puts the table in docs/studies/failures.md

Every run is made twice. For a query in the failing region, the team is told a failure in one run. In the other run, it
is told a bad number: the worst of the first eight outcomes.
"""

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from study import Line, Study, markdown, select

import swarmbo as sb
from swarmbo.boundary.rng import stream

METHODS = ("auto", "dec-hbo", "dumbo", "expected-improvement", "thompson")
OUTCOMES = ("total", "per-factor")
QUERIES, INITIAL = 30, 8
VARIABLES = "abcd"
SCOPES = {"f": ["a", "b"], "g": ["c", "d"]}
GAP = 0.03  # distance from the best point to the failing region, in sides of the box
SHARE = 0.2  # share of the box that fails


def region(shape: str, best: np.ndarray) -> Callable[[np.ndarray], bool]:
    """A test for points that fail: beyond a wall in one variable, or in a corner or a disc of the first two."""
    if shape == "wall":
        return lambda x: bool(x[0] > best[0] + GAP)
    if shape == "corner":
        return lambda x: bool((x[:2] > best[:2] + GAP).all())
    radius = np.sqrt(SHARE / np.pi)
    centre = best[:2] + (radius + GAP) / np.sqrt(2.0)
    return lambda x: bool(((x[:2] - centre) ** 2).sum() < radius**2)


def problem(shape: str, seed: int) -> tuple[Callable[[np.ndarray], dict[str, float]], Callable[[np.ndarray], bool]]:
    """Two bowls with ripples, and a test for failures; the seed draws a best point for which the region fits in."""
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


def run(method: str, told: str, shape: str, seed: int, as_number: bool) -> Line:
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
        values, is_failing = outcomes(x), fails(x)
        answer = values if told == "per-factor" else {"total": sum(values.values())}
        if not is_failing:
            seen.append(answer)
            best = max(best, sum(values.values()))
        elif as_number:
            answer = {name: min((other[name] for other in seen[:INITIAL]), default=-3.0) for name in answer}
        failed += number >= INITIAL and is_failing
        given = answer if told == "per-factor" else answer["total"]
        team.tell(query, None if is_failing and not as_number else given)
    return {"failed": failed, "regret": -best}


def table(lines: list[Line]) -> list[str]:
    """Medians and ranges over seeds and shapes."""

    def rows() -> Iterator[list[str]]:
        for told, method in product(OUTCOMES, METHODS):
            cells = list[str]()
            for as_number in (False, True):
                own = select(lines, told=told, method=method, as_number=as_number)
                failed, regret = ([line[key] for line in own] for key in ("failed", "regret"))
                cells.append(f"{np.median(failed):.0f}")
                cells.append(f"{np.median(regret):.2g} [{min(regret):.2g}, {max(regret):.2g}]")
            yield [told, f"`{method}`", *cells]

    head = ["outcomes", "acquisition", "failures reported: count", "failures reported: regret"]
    head += ["bad numbers told: count", "bad numbers told: regret"]
    return markdown(head, rows())


SHAPES = ("wall", "corner", "disc")
CHOICES = {"method": METHODS, "told": OUTCOMES, "shape": SHAPES, "seed": range(10), "as_number": (False, True)}
STUDY = Study(__doc__, "failures.jsonl", run, CHOICES, table, page=("studies/failures.md", "table"))

if __name__ == "__main__":
    STUDY.main()
