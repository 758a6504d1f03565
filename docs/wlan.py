"""The tables of docs/wlan.md: what simple ways and teams reach in random WLANs, and what interference from all costs.

    python docs/wlan.py --topologies 5 --out wlan.jsonl

Takes about ten seconds for each team, topology and kind of interference.
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import numpy as np

import swarmbo as sb
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power import Utility, best_known
from swarmbo_envs.wlan_power.network import UtilityName

BUDGET = 60
TEAMS: dict[str, dict[str, str]] = {
    "team, DuMBO": {"acquisition": {"kind": "dumbo", "exploration": "paper"}},
    "team, Thompson": {"acquisition": "thompson"},
    "team, auto": {"acquisition": "auto"},
    "one isotropic GP for all": {"coordination": "isotropic-gp"},
    "CMA-ES": {"coordination": "cma-es"},
    "Sobol": {"coordination": "sobol"},
}
REFERENCES = ("all at maximum", "best equal power", "random", "independent tuning", "sequential greedy")


def rows(topology_seed: int, interference: str) -> Iterable[dict[str, Any]]:
    """Share of the best known capacity that each way finds in one topology, the best of ``BUDGET`` joint settings."""
    env = wlan_power_v0.parallel_env(topology_seed=topology_seed, interference=interference, max_cycles=BUDGET)
    capacity = env.best_known()[1]
    row = {"topology": topology_seed, "interference": interference, "best_known": capacity}
    if interference == "all":
        assumed = wlan_power_v0.parallel_env(topology_seed=topology_seed).best_known()[0]
        yield {
            **row,
            "method": "best if only the audible disturbed",
            "found": float(env.network.value(assumed[None])[0]),
        }
    for method, capacity in env.references(budget=BUDGET, seed=topology_seed).items():
        yield {**row, "method": method, "found": capacity}
    for method, kinds in TEAMS.items():
        observations, infos = env.reset(seed=topology_seed)
        team = sb.Team.for_env(env, seed=topology_seed, rounds=BUDGET, **kinds)
        team.begin(infos)
        while env.agents:
            observations, rewards, ended, cut, infos = env.step(team.act(observations, infos))
            team.observe(observations, rewards, ended, cut, infos)
        yield {**row, "method": method, "found": max(env.get_state()["arrays"]["totals"].tolist())}


def table(told: list[dict[str, Any]]) -> str:
    """Mean and least share over topologies, in Markdown."""
    lines = ["| way | audible only: mean | least | all disturb: mean | least |", "|---|---|---|---|---|"]
    for method in dict.fromkeys([*REFERENCES, *TEAMS, "best if only the audible disturbed"]):
        cells: list[str] = []
        for interference in ("audible", "all"):
            shares = [
                row["found"] / row["best_known"]
                for row in told
                if row["method"] == method and row["interference"] == interference
            ]
            cells += [f"{100 * np.mean(shares):.1f} %", f"{100 * np.min(shares):.1f} %"] if shares else ["", ""]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines)


def utilities(rate_mbps: float = 20.0) -> str:
    """What the best known powers for each utility come to by the others, on the default topology, in Markdown."""
    network = wlan_power_v0.parallel_env().network
    lines = [
        f"| best known powers for | sum (Mbit/s) | least rate (Mbit/s) | users with {rate_mbps:g} Mbit/s |",
        "|---|---|---|---|",
    ]
    for name in get_args(UtilityName):
        utility = Utility(name, rate_mbps if name == "users-above" else 0.0)
        rates = network.user_capacities(np.array([best_known(network, 1.0, 25.0, utility=utility)[0]]))[0]
        lines.append(f"| `{name}` | {rates.sum():,.1f} | {rates.min():.4g} | {(rates >= rate_mbps).sum()} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write down line by line, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topologies", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("wlan.jsonl"))
    parser.add_argument("--utilities", action="store_true", help="only the table of utilities")
    options = parser.parse_args()
    if options.utilities:
        print(utilities())  # noqa: T201
        return
    told: list[dict[str, Any]] = []
    with options.out.open("w", encoding="utf-8") as file:
        for seed in range(options.topologies):
            for interference in ("audible", "all"):
                for row in rows(seed, interference):
                    told.append(row)
                    file.write(json.dumps(row) + "\n")
                    file.flush()
    print(table(told))  # noqa: T201


if __name__ == "__main__":
    main()
