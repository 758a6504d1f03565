"""The study in docs/wlan.md: how fast methods tune random WLANs, by what is told of an evaluation.

    python docs/wlan_study.py --seeds 0-19
    python docs/wlan_study.py --table

One run is one random topology, drawn by the seed that also drives the team. It adds a line of JSON to
docs/wlan_study.jsonl: the best true capacity found after every evaluation, that of a median random setting, and the
best known. What is there is skipped. Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1. Other people's methods are
compared with on such networks in docs/benchmarks.md (`wlan`).
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import swarmbo as sb
from swarmbo_envs import wlan_power_v0

BUDGET = 60
FILE = Path(__file__).parent / "wlan_study.jsonl"
METHODS: dict[str, dict[str, Any]] = {
    "auto": {},
    "dumbo": {"acquisition": {"kind": "dumbo", "exploration": "paper"}},
    "dec-hbo": {"acquisition": "dec-hbo"},
    "thompson": {"acquisition": "thompson"},
    "isotropic-gp": {"coordination": "isotropic-gp"},
    "sobol": {"coordination": "sobol"},
}
PEERS = ("isotropic-gp", "sobol")  # look at the total, whatever is told


def run(method: str, outcomes: str, seed: int) -> dict[str, Any]:
    """Capacities in one topology."""
    env = wlan_power_v0.parallel_env(topology_seed=seed, outcomes=outcomes, max_cycles=BUDGET)
    low, high = 1.0, 25.0
    drawn = np.random.default_rng(seed).uniform(low, high, (2000, len(env.possible_agents)))
    best, median = float(env.best_known()[1]), float(np.median(env.network.value(drawn)))
    _, infos = env.reset(seed=seed)
    team = sb.Team.for_env(env, seed=seed, rounds=BUDGET, **METHODS[method])
    team.begin(infos)
    start = time.process_time()
    while env.agents:
        told = env.step(team.act(dict.fromkeys(env.agents), infos))
        team.observe(*told)
        infos = told[-1]
    found = np.maximum.accumulate(env.get_state()["arrays"]["totals"])
    return {
        "method": method,
        "outcomes": outcomes,
        "seed": seed,
        "random": median,
        "best": best,
        "found": [round(float(value), 6) for value in found],
        "seconds": round(time.process_time() - start, 2),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Shares of the way from a median random setting to the best known, in Markdown."""
    lines = [
        f"| method | told | share at {BUDGET}: mean | least | evaluations to 90 %: median | largest | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        for outcomes in ("per-factor", "total"):
            own = [row for row in rows if (row["method"], row["outcomes"]) == (method, outcomes)]
            if not own:
                continue
            shares = np.array([(np.array(r["found"]) - r["random"]) / (r["best"] - r["random"]) for r in own])
            reached = [int(np.argmax(s >= 0.9)) + 1 if (s >= 0.9).any() else np.inf for s in shares]
            lines.append(
                f"| `{method}` | {outcomes} | {100 * shares[:, -1].mean():.1f} % | {100 * shares[:, -1].min():.1f} % | "
                f"{_count(float(np.median(reached)))} | {_count(max(reached))} | {len(own)} |"
            )
    return "\n".join(lines)


def _count(evaluations: float) -> str:
    return f"{evaluations:g}" if np.isfinite(evaluations) else f"more than {BUDGET}"


def main() -> None:
    """Run what is missing, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", nargs="*", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--outcomes", nargs="*", choices=["per-factor", "total"], default=["per-factor", "total"])
    parser.add_argument("--seeds", default="0-19")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    rows = (
        [json.loads(line) for line in options.out.read_text(encoding="utf-8").splitlines()]
        if options.out.exists()
        else []
    )
    if options.table:
        print(table(rows))  # noqa: T201
        return
    first, _, last = options.seeds.partition("-")
    done = {(row["method"], row["outcomes"], row["seed"]) for row in rows}
    with options.out.open("a", encoding="utf-8") as file:
        for method in options.method:
            for outcomes in ["total"] if method in PEERS else options.outcomes:
                for seed in range(int(first), int(last or first) + 1):
                    if (method, outcomes, seed) not in done:
                        row = run(method, outcomes, seed)
                        file.write(json.dumps(row) + "\n")
                        file.flush()
                        print(method, outcomes, seed, row["found"][-1] / row["best"], row["seconds"])  # noqa: T201


if __name__ == "__main__":
    main()
