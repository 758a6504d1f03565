"""Speed of methods that tune random WLANs, one for each seed: tables of docs/studies/wireless.md.

    python studies/wlan.py told           # outcomes per factor and totals; cells missing in wlan_study.jsonl
    python studies/wlan.py walking        # users who walk, with and without a time axis; wlan_mobility.jsonl
    python studies/wlan.py ways           # teams and heuristics, with interference from all or not; wlan_ways.jsonl

With ``--table``, nothing is run. A share is 0 at a median random setting and 1 at the reference optimum. In ``ways``,
it is relative to the reference optimum. docs/studies/sums.md has comparison methods on such networks.
"""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from study import Line, Round, Study, choose, markdown, play, select

import swarmbo as sb
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power import best_known

BUDGET, WALKED = 60, 80  # rounds
DESIGN = 10  # rounds of the initial design, which do not count if users walk
LOW, HIGH = 1.0, 25.0  # dBm
FULL: dict[str, Any] = {"airtime": "full"}  # all users have the whole channel
STEPS_M = (0.0, 1.0, 4.0)  # standard deviation of a user's step between rounds, along each axis
DUMBO = {"acquisition": {"kind": "dumbo", "exploration": "paper"}}
FADING = {"belief": {"kind": "additive", "time": {"kernel": "matern12"}}}
THOMPSON = {"acquisition": "thompson"}
PEERS = {"isotropic-gp": {"coordination": "isotropic-gp"}, "sobol": {"coordination": "sobol"}}  # these see totals only
METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "dumbo": DUMBO,
    "dec-hbo": {"acquisition": "dec-hbo"},
    "thompson": THOMPSON,
    **PEERS,
}
WALKING: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, weight / 4": {"acquisition": {"kind": "auto", "weight": 0.0125}},  # the weight that a time axis implies
    "auto, time": FADING,
    "dumbo": DUMBO,
    "dumbo, time": DUMBO | FADING,
    "thompson": THOMPSON,
    "thompson, time": THOMPSON | FADING,
    "sobol": PEERS["sobol"],
}
TEAMS: dict[str, dict[str, Any]] = {
    "team, DuMBO": DUMBO,
    "team, Thompson": THOMPSON,
    "team, auto": {"acquisition": "auto"},
    "one isotropic GP for all": PEERS["isotropic-gp"],
    "CMA-ES": {"coordination": "cma-es"},
    "Sobol": PEERS["sobol"],
}
REFERENCES = ("all at maximum", "best equal power", "random", "independent tuning", "sequential greedy")
ASSUMED = "best if only the audible disturbed"


def tuned(env: Any, seed: int, rounds: int, **settings: Any) -> Iterator[Round]:
    """The rounds of a team that tunes a network."""
    return play(env, sb.Team.for_env(env, seed=seed, rounds=rounds, **settings), seed)


def totals(env: Any) -> np.ndarray:
    """True capacities of all rounds."""
    return env.get_state()["arrays"]["totals"]


def median_of(env: Any, seed: int, count: int) -> float:
    """True capacity of a median random setting, for the users' present positions."""
    drawn = np.random.default_rng(seed).uniform(LOW, HIGH, (count, len(env.possible_agents)))
    return float(np.median(env.network.value(drawn)))


def told(method: str, outcomes: str, seed: int) -> Line:
    """Best true capacity after every evaluation, that of a median random setting, and the reference optimum."""
    env = wlan_power_v0.parallel_env(**FULL, topology_seed=seed, outcomes=outcomes, max_cycles=BUDGET)
    best, median, start = float(env.best_known()[1]), median_of(env, seed, 2000), time.process_time()
    for _ in tuned(env, seed, BUDGET, **METHODS[method]):
        pass
    seconds, found = time.process_time() - start, np.maximum.accumulate(totals(env))
    found = [round(float(value), 6) for value in found]
    return {"random": median, "best": best, "found": found, "seconds": round(seconds, 2)}


def is_told(method: str, outcomes: str, _: int) -> bool:
    """True if a method accepts these outcomes."""
    return outcomes == "total" or method not in PEERS


def told_table(lines: list[Line]) -> list[str]:
    """Shares, and evaluations until the share is 90 %."""

    def count(evaluations: float) -> str:
        return f"{evaluations:g}" if np.isfinite(evaluations) else f"> {BUDGET}"

    def rows() -> Iterator[list[Any]]:
        for method in METHODS:
            for outcomes in ("per-factor", "total"):
                if own := select(lines, method=method, outcomes=outcomes):
                    shares = np.array([(np.array(r["found"]) - r["random"]) / (r["best"] - r["random"]) for r in own])
                    reached = [int(np.argmax(s >= 0.9)) + 1 if (s >= 0.9).any() else np.inf for s in shares]
                    ends = [f"{100 * end:.1f} %" for end in (shares[:, -1].mean(), shares[:, -1].min())]
                    counts = [count(float(np.median(reached)))]
                    yield [f"`{method}`", outcomes, *ends, *counts]

    head = [f"share after {BUDGET}: mean", "smallest share", "evaluations to 90 %, median"]
    return markdown([_method_of(lines), "outcomes", *head], rows())


def _method_of(lines: list[Line]) -> str:
    return f"method, {len({line['seed'] for line in lines})} seeds"


def walking(method: str, step_m: float, seed: int) -> Line:
    """Share of each round, by true capacity and the reference optimum for the users' positions in that round."""
    env = wlan_power_v0.parallel_env(**FULL, topology_seed=seed, max_cycles=WALKED, mobility_m=step_m)
    shares, seconds, start = list[float](), 0.0, time.process_time()
    for played in tuned(env, seed, WALKED, **WALKING[method]):
        seconds += time.process_time() - start
        powers = np.array([[float(action[0]) for action in played.actions.values()]])
        found, random = float(env.network.value(powers)[0]), median_of(env, seed, 500)
        shares.append((found - random) / (best_known(env.network, LOW, HIGH, starts=8)[1] - random))
        start = time.process_time()
    return {"shares": [round(share, 4) for share in shares], "seconds": round(seconds, 2)}


def walking_table(lines: list[Line]) -> list[str]:
    """Means over rounds after the design and over seeds."""

    def rows() -> Iterator[list[Any]]:
        for method in WALKING:
            cells = list[str]()
            for step in STEPS_M:
                own = [line["shares"] for line in select(lines, method=method, step_m=step)]
                kept = [float(np.mean(shares[DESIGN:])) for shares in own]
                cells.append(f"{100 * np.mean(kept):.1f} %" if kept else "-")
            yield [method, *cells]

    return markdown([_method_of(lines), *(f"{step:g} m" for step in STEPS_M)], rows())


def ways(seed: int, interference: str) -> Line:
    """Reference optimum of a network, and the best capacity that each method finds with equally many settings."""
    env = wlan_power_v0.parallel_env(**FULL, topology_seed=seed, interference=interference, max_cycles=BUDGET)
    best, found = env.best_known()[1], dict[str, float]()
    if interference == "all":
        assumed = wlan_power_v0.parallel_env(**FULL, topology_seed=seed).best_known()[0]
        found[ASSUMED] = float(env.network.value(assumed[None])[0])
    found |= env.references(budget=BUDGET, seed=seed)
    for method, settings in TEAMS.items():
        for _ in tuned(env, seed, BUDGET, **settings):
            pass
        found[method] = float(totals(env).max())
    return {"best_known": best, "found": found}


def ways_table(lines: list[Line]) -> list[str]:
    """Mean and smallest share over networks."""

    def cells(method: str, interference: str) -> list[str]:
        own = [line for line in select(lines, interference=interference) if method in line["found"]]
        shares = [line["found"][method] / line["best_known"] for line in own]
        return [f"{100 * np.mean(shares):.1f} %", f"{100 * np.min(shares):.1f} %"] if shares else ["", ""]

    head = ["method", "audible only: mean", "least", "all disturb: mean", "least"]
    names = [*REFERENCES, *TEAMS, ASSUMED]
    return markdown(head, [[name, *cells(name, "audible"), *cells(name, "all")] for name in names])


TOLD = {"method": tuple(METHODS), "outcomes": ("per-factor", "total"), "seed": range(20)}
WALKS = {"method": tuple(WALKING), "step_m": STEPS_M, "seed": range(5)}
WAYS = {"seed": range(5), "interference": ("audible", "all")}
PAGE = "studies/wireless.md"
STUDIES = {
    "told": Study(__doc__, "wlan_study.jsonl", told, TOLD, told_table, (PAGE, "told"), is_told),
    "walking": Study(__doc__, "wlan_mobility.jsonl", walking, WALKS, walking_table, (PAGE, "walking")),
    "ways": Study(__doc__, "wlan_ways.jsonl", ways, WAYS, ways_table),
}

if __name__ == "__main__":
    choose(STUDIES)
