"""Integers, choices and real numbers: swarmbo's sampler for Optuna compared with Optuna's own samplers.

    python studies/mixed.py                       # runs missing cells of all seeds; optuna-gp needs torch
    python studies/mixed.py --sampler swarmbo     # the same for one sampler
    python studies/mixed.py --page                # puts the table in docs/guide/optuna-ax.md

Each run is a study of 60 trials. A line has the least loss after 30 and after 60 trials. On `wlan` and `colouring` the
sampler `scopes` knows the parameters of each term and is told the sum; `per-factor` is also told the terms. On
`vessel`, a trial reports constraints, and only trials that keep them count.
"""

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import optuna
from study import Line, Study, markdown, select

from swarmbo.boundary.rng import stream
from swarmbo.integrations.optuna import SwarmboSampler
from swarmbo_envs.functions import library

EVALUATIONS = 60
NODES, COLOURS = 16, 3
POINTS, CHANNELS = 12, (1, 6, 11)
Terms = Callable[[Any], dict[str, float]]
Scopes = dict[str, list[str]]


def hartmann(seed: int) -> tuple[Terms, Scopes]:
    """Hartmann's function of six variables, of which three are integers, one is a choice and two are reals.

    The seed decides which variables these are, and the order of the choices.
    """
    function, order = library.hartmann(), stream(seed, "mixed", "order").permutation(6)
    places = stream(seed, "mixed", "choices").permutation([0.1, 0.3, 0.5, 0.7, 0.9])

    def terms(trial: Any) -> dict[str, float]:
        u = [trial.suggest_int(f"n{i}", 0, 10) / 10.0 for i in range(3)]
        u.append(places["abcde".index(trial.suggest_categorical("kind", list("abcde")))])
        u += [trial.suggest_float(f"x{i}", 0.0, 1.0) for i in range(2)]
        return {"f": -float(function.factor_values(np.array(u)[None, order]).sum())}

    return terms, {}


def colouring(seed: int) -> tuple[Terms, Scopes]:
    """Conflicts of three colours on a random graph of 16 nodes, with weights, and a small cost of each colour."""
    rng = stream(seed, "mixed", "graph")
    pairs = [pair for pair in combinations(range(NODES), 2) if rng.random() < 0.25]
    weights, costs = rng.uniform(0.5, 1.5, len(pairs)), rng.uniform(0.0, 0.3, (NODES, COLOURS))
    names = [f"v{i}" for i in range(NODES)]

    def terms(trial: Any) -> dict[str, float]:
        colour = [trial.suggest_categorical(name, list(range(COLOURS))) for name in names]
        met = zip(pairs, weights.tolist(), strict=True)
        out = {f"e{i}-{j}": weight if colour[i] == colour[j] else 0.0 for (i, j), weight in met}
        return out | {f"c{name}": float(costs[i, own]) for i, (name, own) in enumerate(zip(names, colour, strict=True))}

    return terms, {f"e{i}-{j}": [names[i], names[j]] for i, j in pairs} | {f"c{v}": [v] for v in names}


def example(_: int) -> tuple[Terms, Scopes]:
    """Example of the page on Optuna: a logarithmic rate, an integer, a choice and a stepped number."""

    def terms(trial: Any) -> dict[str, float]:
        rate = trial.suggest_float("rate", 1e-5, 1.0, log=True)
        layers = trial.suggest_int("layers", 1, 8)
        kind = trial.suggest_categorical("kind", ["relu", "tanh", "gelu"])
        dropout = trial.suggest_float("dropout", 0.0, 0.9, step=0.1)
        loss = 0.1 * abs(layers - 4) + {"relu": 0.2, "tanh": 0.5, "gelu": 0.0}[kind]
        return {"f": float((np.log10(rate) + 3.0) ** 2 + loss + (dropout - 0.3) ** 2)}

    return terms, {}


def wlan(seed: int) -> tuple[Terms, Scopes]:
    """Minus the throughput (bit/s/Hz, logarithm of Shannon's rate, summed) of 12 access points with power and channel.

    Each access point serves a station, and access points on the same channel interfere. A term depends on an access
    point and on the three that it receives best.
    """
    rng = stream(seed, "mixed", "places")
    access = rng.uniform(0.0, 100.0, (POINTS, 2))
    stations = access + rng.normal(0.0, 8.0, (POINTS, 2))
    gain = np.maximum(np.linalg.norm(stations[:, None] - access, axis=2), 1.0) ** -3.0
    near = [[i, *[j for j in np.argsort(-gain[i]).tolist() if j != i][:3]] for i in range(POINTS)]

    def terms(trial: Any) -> dict[str, float]:
        power = 10 ** (0.1 * np.array([trial.suggest_float(f"p{i}", 0.0, 20.0) for i in range(POINTS)]))
        channel = [trial.suggest_categorical(f"c{i}", list(CHANNELS)) for i in range(POINTS)]
        out = dict[str, float]()
        for i, group in enumerate(near):
            interference = sum(power[j] * gain[i, j] for j in group if j != i and channel[j] == channel[i])
            out[f"t{i}"] = -float(np.log(np.log2(1.0 + power[i] * gain[i, i] / (1e-5 + interference))))
        return out

    return terms, {f"t{i}": [f"{kind}{j}" for j in group for kind in "pc"] for i, group in enumerate(near)}


def vessel(_: int) -> tuple[Terms, Scopes]:
    """Cost of a pressure vessel in dollars: two thicknesses in sixteenths of an inch, a radius and a length in inches.

    Source: Kannan and Kramer 1994; the least known cost that keeps the constraints is 6,059.7.
    """

    def terms(trial: Any) -> dict[str, float]:
        shell, head = (0.0625 * trial.suggest_int(name, 1, 99) for name in ("shell", "head"))
        radius, length = trial.suggest_float("radius", 10.0, 200.0), trial.suggest_float("length", 10.0, 200.0)
        volume = np.pi * radius**2 * (length + 4.0 / 3.0 * radius)
        trial.set_constraint("shell", 0.0193 * radius - shell)
        trial.set_constraint("head", 0.00954 * radius - head)
        trial.set_constraint("volume", 1.0 - volume / 1_296_000.0)
        cost = 0.6224 * shell * radius * length + 1.7781 * head * radius**2
        return {"f": cost + 3.1661 * shell**2 * length + 19.84 * shell**2 * radius}

    return terms, {}


SAMPLERS = ("optuna-tpe", "optuna-gp", "swarmbo", "scopes", "per-factor")
PROBLEMS = {"hartmann": hartmann, "colouring": colouring, "example": example, "wlan": wlan, "vessel": vessel}


def sampler_of(name: str, scopes: Scopes, seed: int) -> Any:
    """Sampler by name; a suffix such as in ``swarmbo:ACQUISITION`` selects another acquisition."""
    if name == "optuna-tpe":
        return optuna.samplers.TPESampler(seed=seed)
    if name == "optuna-gp":
        return optuna.samplers.GPSampler(seed=seed)
    which, _, acquisition = name.partition(":")
    settings: dict[str, Any] = {"acquisition": acquisition} if acquisition else {}
    settings |= {"outcomes": "per-factor"} if which == "per-factor" else {}
    return SwarmboSampler(scopes=None if which == "swarmbo" else scopes, seed=seed, rounds=EVALUATIONS, **settings)


def run(problem: str, sampler: str, seed: int) -> Line:
    """Least losses of a study, and the processor seconds that it took."""
    terms, scopes = PROBLEMS[problem](seed)

    def objective(trial: Any) -> float:
        told = terms(trial)
        trial.set_user_attr("factors", told)
        return sum(told.values())

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(sampler=sampler_of(sampler, scopes, seed))
    start = time.process_time()
    study.optimize(objective, n_trials=EVALUATIONS)
    seconds = time.process_time() - start
    kept = [max(trial.constraints.values(), default=0.0) <= 0.0 for trial in study.trials]
    losses = [trial.value if keeps else np.inf for trial, keeps in zip(study.trials, kept, strict=True)]
    distinct = len({repr(sorted(trial.params.items())) for trial in study.trials})
    least = {f"least_{n}": float(f"{min(losses[:n]):.6g}") for n in (EVALUATIONS // 2, EVALUATIONS)}
    return least | {"distinct": distinct, "seconds": round(seconds, 1)}


def wanted(problem: str, sampler: str, _: int) -> bool:
    """False if the sampler needs scopes and the problem has none."""
    return bool(PROBLEMS[problem](0)[1]) or sampler not in ("scopes", "per-factor")


def table(lines: list[Line]) -> Iterator[str]:
    """Median and worst least loss of each sampler, and on how many seeds it is not above that of Optuna's GP."""
    samplers = list(dict.fromkeys(line["sampler"] for line in lines))
    rows = list[list[str]]()
    for problem in PROBLEMS:
        peer = {line["seed"]: line["least_60"] for line in select(lines, problem=problem, sampler="optuna-gp")}
        for sampler in sorted(samplers, key=lambda name: (SAMPLERS.index(name.partition(":")[0]), name)):
            own = select(lines, problem=problem, sampler=sampler)
            if own:
                half, whole = ([line[key] for line in own] for key in ("least_30", "least_60"))
                pairs = [(line["least_60"], peer[line["seed"]]) for line in own if line["seed"] in peer]
                below = sum(mine <= other for mine, other in pairs)
                seconds = statistics.median(line["seconds"] for line in own)
                cells = [f"{statistics.median(half):.3g}", f"{statistics.median(whole):.3g} ({max(whole):.3g})"]
                cells += ["" if sampler == "optuna-gp" else f"{below} of {len(pairs)}", f"{seconds:.0f} s"]
                rows.append([f"`{problem}`", f"`{sampler}`", *cells, str(len(own))])
    yield from markdown(
        ["problem", "sampler", "after 30", "after 60 (worst)", "not above `optuna-gp`", "time", "seeds"], rows
    )


CHOICES = {"problem": tuple(PROBLEMS), "sampler": SAMPLERS, "seed": range(1000, 1010)}
STUDY = Study(__doc__, "mixed.jsonl", run, CHOICES, table, ("guide/optuna-ax.md", "mixed"), wanted)

if __name__ == "__main__":
    STUDY.main()
