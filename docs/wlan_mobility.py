"""The table "users who walk" in docs/wlan.md: what it is worth to let old outcomes fade.

    python docs/wlan_mobility.py --seeds 0-9
    python docs/wlan_mobility.py --table

One run is one random topology, drawn by the seed that also drives the team and the walks. It adds a line of JSON to
docs/wlan_mobility.jsonl: in every round the true capacity of the setting that was tried, that of a median random
setting, and the best known for where users then are. What is there is skipped. Set OMP_NUM_THREADS=1 and
OPENBLAS_NUM_THREADS=1.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import swarmbo as sb
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power.best_known import best_known

ROUNDS, DESIGN = 80, 10
LOW, HIGH = 1.0, 25.0  # dBm
STEPS_M = (0.0, 1.0, 4.0)  # standard deviation of a user's step between rounds, along each axis
FADING = {"kind": "additive", "time": {}}
FILE = Path(__file__).parent / "wlan_mobility.jsonl"
METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, time": {"belief": FADING},
    "dumbo": {"acquisition": "dumbo"},
    "dumbo, time": {"acquisition": "dumbo", "belief": FADING},
    "dec-hbo": {"acquisition": "dec-hbo"},
    "dec-hbo, time": {"acquisition": "dec-hbo", "belief": FADING},
    "thompson": {"acquisition": "thompson"},
    "thompson, time": {"acquisition": "thompson", "belief": FADING},
    "sobol": {"coordination": "sobol"},
}


def run(method: str, outcomes: str, step_m: float, seed: int) -> dict[str, Any]:
    """Capacities, round by round, in one topology."""
    env = wlan_power_v0.parallel_env(topology_seed=seed, outcomes=outcomes, max_cycles=ROUNDS, mobility_m=step_m)
    drawn = np.random.default_rng(seed).uniform(LOW, HIGH, (500, len(env.possible_agents)))
    _, infos = env.reset(seed=seed)
    team = sb.Team.for_env(env, seed=seed, rounds=ROUNDS, **METHODS[method])
    team.begin(infos)
    found, random, best, start = list[float](), list[float](), list[float](), time.process_time()
    seconds = 0.0
    while env.agents:
        start = time.process_time()
        actions = team.act(dict.fromkeys(env.agents), infos)
        told = env.step(actions)
        team.observe(*told)
        seconds += time.process_time() - start
        infos, powers = told[-1], np.array([action[0] for action in actions.values()])
        found.append(float(env.network.value(powers[None])[0]))
        random.append(float(np.median(env.network.value(drawn))))
        best.append(best_known(env.network, LOW, HIGH, starts=8)[1])
    return {
        "method": method,
        "outcomes": outcomes,
        "step_m": step_m,
        "seed": seed,
        **{name: [round(v, 3) for v in values] for name, values in (("found", found), ("random", random), ("best", best))},
        "seconds": round(seconds, 2),
    }


def share(row: dict[str, Any]) -> float:
    """How much of the way from a random setting to the best known was kept, in the mean over rounds after the design."""
    found, random, best = (np.array(row[name])[DESIGN:] for name in ("found", "random", "best"))
    return float(((found - random) / (best - random)).mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--method", nargs="*", default=list(METHODS))
    parser.add_argument("--outcomes", nargs="*", default=["per-factor"])
    parser.add_argument("--steps", nargs="*", type=float, default=list(STEPS_M))
    parser.add_argument("--seeds", default="0-9")
    o = parser.parse_args()
    a, _, b = o.seeds.partition("-")
    for s in o.steps:
        for out in o.outcomes:
            for m in o.method:
                rows = [run(m, out, s, k) for k in range(int(a), int(b or a) + 1)]
                print(s, out, m, " ".join(f"{share(r):.3f}" for r in rows), f"mean {np.mean([share(r) for r in rows]):.3f}", rows[0]["seconds"], flush=True)


if __name__ == "__main__":
    main()
