"""The table "users who walk" in docs/wlan.md: what it is worth to let old outcomes fade.

    python docs/wlan_mobility.py --seeds 0-9
    python docs/wlan_mobility.py --table

One run is one random topology, drawn by the seed that also drives the team and the walks. It adds a line of JSON to
docs/wlan_mobility.jsonl: how much of the way from a median random setting to the best known, both for where users then
are, the setting that was tried went in each round, by its true capacity. What is there is skipped. Set
OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import swarmbo as sb
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power.references import best_known

ROUNDS = 80
_DESIGN = 10  # rounds that no method chose, and that don't count
_DRAWN = 500  # random settings, of which the median is the zero of the scale
_CLIMBS = 8  # starts of the search for the best known, in every round
LOW, HIGH = 1.0, 25.0  # dBm
STEPS_M = (0.0, 1.0, 4.0)  # standard deviation of a user's step between rounds, along each axis
FADING = {"kind": "additive", "time": {"kernel": "matern12"}}
FILE = Path(__file__).parent / "wlan_mobility.jsonl"
METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, weight / 4": {"acquisition": {"kind": "auto", "weight": 0.0125}},  # what it is with a time axis
    "auto, time": {"belief": FADING},
    "dumbo": {"acquisition": {"kind": "dumbo", "exploration": "paper"}},
    "dumbo, time": {"acquisition": {"kind": "dumbo", "exploration": "paper"}, "belief": FADING},
    "thompson": {"acquisition": "thompson"},
    "thompson, time": {"acquisition": "thompson", "belief": FADING},
    "sobol": {"coordination": "sobol"},
}


def run(method: str, step_m: float, seed: int) -> dict[str, Any]:
    """What was reached round by round in one topology."""
    env = wlan_power_v0.parallel_env(topology_seed=seed, outcomes="per-factor", max_cycles=ROUNDS, mobility_m=step_m)
    drawn = np.random.default_rng(seed).uniform(LOW, HIGH, (_DRAWN, len(env.possible_agents)))
    _, infos = env.reset(seed=seed)
    team = sb.Team.for_env(env, seed=seed, rounds=ROUNDS, **METHODS[method])
    team.begin(infos)
    shares, seconds = list[float](), 0.0
    while env.agents:
        start = time.process_time()
        actions = team.act(dict.fromkeys(env.agents), infos)
        told = env.step(actions)
        team.observe(*told)
        seconds += time.process_time() - start
        infos, powers = told[-1], np.array([[float(action[0]) for action in actions.values()]])
        found, random = float(env.network.value(powers)[0]), float(np.median(env.network.value(drawn)))
        shares.append((found - random) / (best_known(env.network, LOW, HIGH, starts=_CLIMBS)[1] - random))
    return {
        "method": method,
        "step_m": step_m,
        "seed": seed,
        "shares": [round(share, 4) for share in shares],
        "seconds": round(seconds, 2),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Means over rounds after the design and over seeds, and the least over seeds, in Markdown."""
    lines = ["| method | " + " | ".join(f"{step:g} m: mean | least" for step in STEPS_M) + " | seeds |"]
    lines.append("|---" * (2 * len(STEPS_M) + 2) + "|")
    for method in METHODS:
        cells, n = list[str](), 0
        for step in STEPS_M:
            own = [row["shares"] for row in rows if (row["method"], row["step_m"]) == (method, step)]
            kept, n = [float(np.mean(shares[_DESIGN:])) for shares in own], len(own)
            cells.append(f"{100 * np.mean(kept):.1f} % | {100 * min(kept):.1f} %" if kept else "- | -")
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {n} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--steps", nargs="*", type=float, default=list(STEPS_M))
    parser.add_argument("--seeds", default="0-9")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    text = options.out.read_text(encoding="utf-8") if options.out.exists() else ""
    rows = [json.loads(line) for line in text.splitlines()]
    if options.table:
        print(table(rows))  # noqa: T201
        return
    first, _, last = options.seeds.partition("-")
    done = {(row["method"], row["step_m"], row["seed"]) for row in rows}
    with options.out.open("a", encoding="utf-8") as file:
        for seed in range(int(first), int(last or first) + 1):
            for step_m in options.steps:
                for method in options.method:
                    if (method, step_m, seed) not in done:
                        row = run(method, step_m, seed)
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                        print(method, step_m, seed, np.mean(row["shares"][_DESIGN:]), row["seconds"])  # noqa: T201


if __name__ == "__main__":
    main()
