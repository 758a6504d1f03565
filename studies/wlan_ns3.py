"""Tables of docs/studies/wireless.md that need ns-3: ranks of powers by capacity and by throughput, and judged teams.

    python studies/wlan_ns3.py rank --access-points 12 --users 36 --side 300 --seeds 0-1
    python studies/wlan_ns3.py judge --seeds 0-2

Judges are runs of ns-3 on which no team was tuned. Lines go to wlan_ns3_rank.jsonl and wlan_ns3_judge.jsonl.
"""

import functools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from study import Line, Study, choose, markdown, play, select

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo_envs import wlan_power_v0

LOW, HIGH = 1.0, 25.0
ROUNDS, POINTS = 40, 24
JUDGES = {"run": 101, "runs": 4, "processes": 2}
NAMES = {
    "audible": "capacity, audible only",
    "all": "capacity, all disturb",
    "shared": "shared airtime",
    "throughput, run 2": "throughput, another run",
}
Size = tuple[int, int, float]  # access points, users, side in metres


@functools.cache
def world(size: Size, seed: int, interference: str = "audible", airtime: str = "full") -> Any:
    """A network of a size."""
    return _made(size, seed, interference=interference, airtime=airtime)


@functools.cache
def ns3(size: Size, seed: int, **simulation: int) -> Any:
    """The same network, with throughput by ns-3."""
    return _made(size, seed, radio="ns3", objective="throughput", simulation=simulation)


def _made(size: Size, seed: int, **more: Any) -> Any:
    drawn = {"access_points": size[0], "users": size[1], "area_m": [size[2], size[2]]}
    return wlan_power_v0.parallel_env(topology={"generated": drawn}, topology_seed=seed, max_cycles=ROUNDS, **more)


def capacity(env: Any, powers: np.ndarray) -> float:
    """Value of the environment's objective at given powers."""
    return float(env.outcomes(powers).sum())


def rank(access_points: int, users: int, side: float, seed: int, point: int) -> Line:
    """Capacity and throughput at random powers; throughput of a second run shows the effect of chance on ranks."""
    size = (access_points, users, side)
    powers = LOW + stream(seed, "ranked powers").random((POINTS, access_points))[point] * (HIGH - LOW)
    simulated, began = {"throughput": ns3(size, seed), "throughput, run 2": ns3(size, seed, run=2)}, time.perf_counter()
    line = {name: capacity(env, powers) for name, env in simulated.items()}
    line["seconds"] = (time.perf_counter() - began) / len(simulated)
    line["shared"] = capacity(world(size, seed, "audible", "shared"), powers)
    return line | {name: capacity(world(size, seed, name), powers) for name in ("audible", "all")}


def rank_table(lines: list[Line]) -> Iterator[str]:
    """Rank correlation with throughput by network."""
    rows = list[list[str]]()
    for aps, users, side in dict.fromkeys((x["access_points"], x["users"], x["side"]) for x in lines):
        own, told = select(lines, access_points=aps, users=users, side=side), list[list[float]]()
        for seed in sorted({line["seed"] for line in own}):
            of = select(own, seed=seed)
            columns = {name: [line[name] for line in of] for name in (*NAMES, "throughput")}
            told.append([float(spearmanr(columns[name], columns["throughput"]).statistic) for name in NAMES])
            rows.append([f"{aps}, {users}", str(seed), *(f"{value:.2f}" for value in told[-1])])
        rows.append([f"{aps}, {users}", "mean", *(f"{value:.2f}" for value in np.mean(told, axis=0))])
    yield from markdown(["access points, users", "topology", *NAMES.values()], rows)
    if lines:
        yield ""
        head = ["closed form over throughput", "topologies: least", "largest", "settings within 1.5"]
        yield from markdown(head, _ratios(lines))
        yield f"\nmedian seconds per evaluation: {np.median([line['seconds'] for line in lines]):.2f}"


def _ratios(lines: list[Line]) -> list[list[str]]:
    """Ratios of the closed forms to throughput: of means of a topology's settings, and of single settings."""
    rows = list[list[str]]()
    networks = dict.fromkeys((x["access_points"], x["seed"]) for x in lines)
    for name in ("audible", "all", "shared"):
        means = list[float]()
        for k, seed in networks:
            own = select(lines, access_points=k, seed=seed)
            means.append(float(np.sum([x[name] for x in own]) / np.sum([x["throughput"] for x in own])))
        near = np.mean([abs(np.log(x[name] / x["throughput"])) <= np.log(1.5) for x in lines])
        rows.append([NAMES[name], f"{min(means):.2f}", f"{max(means):.2f}", f"{100 * near:.0f} %"])
    return rows


def tuned(env: Any, seed: int, **kinds: str) -> np.ndarray:
    """The powers with a team's largest measurement."""
    best, place = -np.inf, np.full(len(env.possible_agents), (LOW + HIGH) / 2.0)
    for _, infos in play(env, sb.Team.for_env(env, seed=seed, rounds=ROUNDS, **kinds), seed):
        if (found := sum(info.get("measurement", np.nan) for info in infos.values())) > best:
            best, place = found, np.concatenate([info["location"] for info in infos.values()])
    return place


def judge(access_points: int, users: int, side: float, seed: int) -> Line:
    """Capacity and throughput of powers that different methods find."""
    size = (access_points, users, side)
    audible, everybody, jury = world(size, seed), world(size, seed, "all"), ns3(size, seed, **JUDGES)
    drawn = LOW + stream(seed, "random powers of the jury").random((3, access_points)) * (HIGH - LOW)
    ways = {
        "all at maximum": [np.full(access_points, HIGH)],
        "all at 13 dBm": [np.full(access_points, 13.0)],
        "random (mean of 3)": list(drawn),
        "best known capacity": [everybody.best_known()[0]],
        "team tuned on capacity, audible only": [tuned(audible, seed)],
        "team tuned on capacity, all disturb": [tuned(everybody, seed)],
        "team tuned on throughput": [tuned(ns3(size, seed), seed)],
        "Sobol on throughput": [tuned(ns3(size, seed), seed, coordination="sobol")],
    }
    return {
        "ways": {
            way: [float(np.mean([capacity(env, powers) for powers in found])) for env in (everybody, jury)]
            for way, found in ways.items()
        }
    }


def judge_table(lines: list[Line]) -> list[str]:
    """Means over networks."""
    ways = lines[0]["ways"] if lines else ()
    means = {way: np.mean([line["ways"][way] for line in lines], axis=0) for way in ways}
    rows = [[way, f"{found:.0f}", f"{throughput:.1f}"] for way, (found, throughput) in means.items()]
    return markdown(["powers", "capacity, all disturb (Mbit/s)", "throughput (Mbit/s)"], rows)


SIZE = {"access_points": (6,), "users": (18,), "side": (200.0,), "seed": range(3)}
STUDIES = {
    "rank": Study(__doc__, "wlan_ns3_rank.jsonl", rank, SIZE | {"point": range(POINTS)}, rank_table),
    "judge": Study(__doc__, "wlan_ns3_judge.jsonl", judge, SIZE, judge_table),
}

if __name__ == "__main__":
    choose(STUDIES)
