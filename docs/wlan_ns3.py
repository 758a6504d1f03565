"""The tables of docs/wlan.md that need ns-3: how capacity and throughput rank powers, and who is judged how by ns-3.

    python docs/wlan_ns3.py rank --access-points 12 --users 36 --side 300 --topologies 2
    python docs/wlan_ns3.py judge --topologies 3

Judges: runs of ns-3 that no team was tuned on. Each line is written down as it is measured.
"""

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo_envs import wlan_power_v0

LOW, HIGH = 1.0, 25.0
ROUNDS = 40
JUDGES = {"run": 101, "runs": 4, "processes": 2}


def world(options: argparse.Namespace, seed: int, **more: Any) -> Any:
    """A network of the size that is asked for."""
    drawn = {"access_points": options.access_points, "users": options.users, "area_m": [options.side, options.side]}
    return wlan_power_v0.parallel_env(topology={"generated": drawn}, topology_seed=seed, max_cycles=ROUNDS, **more)


def ns3(options: argparse.Namespace, seed: int, **simulation: Any) -> Any:
    """The same network, its throughput by ns-3."""
    return world(options, seed, radio="ns3", objective="throughput", simulation=simulation)


def rank(options: argparse.Namespace, seed: int) -> Iterable[dict[str, Any]]:
    """Both objectives at random powers, and throughput by another run too: what chance alone does to the order."""
    radios = {name: world(options, seed, interference=name) for name in ("audible", "all")}
    simulated = {"throughput": ns3(options, seed), "throughput, run 2": ns3(options, seed, run=2)}
    for number, powers in enumerate(
        LOW + stream(seed, "ranked powers").random((options.points, options.access_points)) * (HIGH - LOW)
    ):
        began = time.perf_counter()
        row = {name: float(env.outcomes(powers).sum()) for name, env in simulated.items()}
        seconds = (time.perf_counter() - began) / len(simulated)
        row |= {name: float(env.outcomes(powers).sum()) for name, env in radios.items()}
        yield {"topology": seed, "point": number, "seconds": seconds, **row}


def tuned(env: Any, seed: int, **kinds: str) -> np.ndarray:
    """The powers at which a team measured the most."""
    observations, infos = env.reset(seed=seed)
    team = sb.Team.for_env(env, seed=seed, rounds=ROUNDS, **kinds)
    team.begin(infos)
    best, place = -np.inf, np.full(len(env.agents), (LOW + HIGH) / 2.0)
    while env.agents:
        observations, rewards, ended, cut, infos = env.step(team.act(observations, infos))
        team.observe(observations, rewards, ended, cut, infos)
        if (found := sum(info.get("measurement", np.nan) for info in infos.values())) > best:
            best, place = found, np.concatenate([info["location"] for info in infos.values()])
    return place


def judge(options: argparse.Namespace, seed: int) -> Iterable[dict[str, Any]]:
    """Powers found in different ways, with their capacity and their throughput."""
    audible, everybody = world(options, seed), world(options, seed, interference="all")
    jury, k = ns3(options, seed, **JUDGES), options.access_points
    drawn = LOW + stream(seed, "random powers of the jury").random((3, k)) * (HIGH - LOW)
    ways = {
        "all at maximum": [np.full(k, HIGH)],
        "all at 13 dBm": [np.full(k, 13.0)],
        "random (mean of 3)": list(drawn),
        "best known capacity": [everybody.best_known()[0]],
        "team tuned on capacity, audible only": [tuned(audible, seed)],
        "team tuned on capacity, all disturb": [tuned(everybody, seed)],
        "team tuned on throughput": [tuned(ns3(options, seed), seed)],
        "Sobol on throughput": [tuned(ns3(options, seed), seed, coordination="sobol")],
    }
    for way, found in ways.items():
        throughputs = [float(jury.outcomes(powers).sum()) for powers in found]
        capacities = [float(everybody.outcomes(powers).sum()) for powers in found]
        yield {"topology": seed, "way": way, "throughput": np.mean(throughputs), "capacity": np.mean(capacities)}


def rank_table(rows: list[dict[str, Any]]) -> str:
    """Rank correlation with throughput by topology, in Markdown."""
    names = ("audible", "all", "throughput, run 2")
    lines = [
        "| topology | capacity, audible only | capacity, all disturb | throughput, another run |",
        "|---|---|---|---|",
    ]
    told: list[list[float]] = []
    for seed in sorted({row["topology"] for row in rows}):
        of = [row for row in rows if row["topology"] == seed]
        columns = {name: [row[name] for row in of] for name in (*names, "throughput")}
        told.append([float(spearmanr(columns[name], columns["throughput"]).statistic) for name in names])
        lines.append(f"| {seed} | " + " | ".join(f"{value:.2f}" for value in told[-1]) + " |")
    lines.append("| mean | " + " | ".join(f"{value:.2f}" for value in np.mean(told, axis=0)) + " |")
    seconds = [row["seconds"] for row in rows]
    return "\n".join([*lines, "", f"median seconds per evaluation: {np.median(seconds):.2f}"])


def judge_table(rows: list[dict[str, Any]]) -> str:
    """Means over topologies, in Markdown."""
    lines = ["| powers | capacity, all disturb (Mbit/s) | throughput (Mbit/s) |", "|---|---|---|"]
    for way in dict.fromkeys(row["way"] for row in rows):
        of = [row for row in rows if row["way"] == way]
        means = [np.mean([row[name] for row in of]) for name in ("capacity", "throughput")]
        lines.append(f"| {way} | {means[0]:.0f} | {means[1]:.1f} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write down line by line, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("rank", "judge"))
    parser.add_argument("--access-points", type=int, default=6)
    parser.add_argument("--users", type=int, default=18)
    parser.add_argument("--side", type=float, default=200.0)
    parser.add_argument("--topologies", type=int, default=3)
    parser.add_argument("--points", type=int, default=24)
    parser.add_argument("--out", type=Path, default=Path("wlan_ns3.jsonl"))
    options = parser.parse_args()
    measure, table = {"rank": (rank, rank_table), "judge": (judge, judge_table)}[options.what]
    rows: list[dict[str, Any]] = []
    with options.out.open("w", encoding="utf-8") as file:
        for seed in range(options.topologies):
            for row in measure(options, seed):
                rows.append(row)
                file.write(json.dumps(row) + "\n")
                file.flush()
    print(table(rows))  # noqa: T201


if __name__ == "__main__":
    main()
