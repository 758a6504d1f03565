"""A small floor plan tuned from its present setting: docs/studies/wireless.md.

    python studies/start.py run --seeds 0-9

Six access points and twelve users; all powers are at maximum at first. ``limited`` steps are of at most 3 dB from the
best setting, ``safe`` settings have 95 % of the present utility with a probability of 0.9 by the model.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from study import Line, Study, markdown, select

import swarmbo as sb
from swarmbo_envs import wlan_power_v0

ROUNDS, HIGH = 20, 25.0
PLAN = {
    "access_points": [[8, 8], [32, 8], [56, 8], [8, 32], [32, 32], [56, 32]],
    "users": [
        *([5, 12], [14, 3], [28, 11], [38, 4], [52, 13], [60, 5]),
        *([3, 28], [13, 37], [27, 36], [36, 27], [58, 38], [47, 30]),
    ],
}
WAYS: dict[str, dict[str, Any]] = {
    "none": {},
    "start": {"start": "largest"},
    "limited": {"start": "largest", "step_limit": 3.0},
    "safe": {"start": "largest", "safe": {}},
}


def tuned(way: str, utility: str, airtime: str, outcomes: str, seed: int) -> Line:
    """Utilities of all settings that a team asks, and of all at maximum."""
    world: Any = wlan_power_v0.parallel_env(
        topology=PLAN, utility=utility, airtime=airtime, outcomes=outcomes, max_cycles=ROUNDS
    ).unwrapped
    observations, infos = world.reset(seed=seed)
    team = sb.Team.for_env(world, seed=seed, **WAYS[way])
    asked = list[float]()
    while world.agents:
        step = world.step(team.act(observations, infos))
        team.observe(*step)
        observations, infos = step[0], step[-1]
        asked.append(round(float(world.utility.value(world.network, team.history.X[-1:])[0]), 4))
    largest = float(world.utility.value(world.network, np.full((1, len(PLAN["access_points"])), HIGH))[0])
    return {"asked": asked, "largest": round(largest, 4), "best": round(world.best_known()[1], 4)}


def table(lines: list[Line]) -> Iterator[str]:
    """Seeds that end above all at maximum, and rounds below 95 % of it."""
    rows = list[list[Any]]()
    keys = ("utility", "airtime", "outcomes", "way")
    for key in sorted({tuple(line[name] for name in keys) for line in lines}, reverse=True):
        own = select(lines, **dict(zip(keys, key, strict=True)))
        above = sum(max(line["asked"]) > line["largest"] * (1 + 1e-9) for line in own)
        ends = np.mean([max(line["asked"]) / line["best"] for line in own])
        below = [float(np.mean(np.array(line["asked"]) < 0.95 * line["largest"])) for line in own]
        share = f"{100 * own[0]['largest'] / own[0]['best']:.1f} %"
        rows.append([*key, share, f"{100 * ends:.1f} %", f"{above} of {len(own)}", f"{100 * np.mean(below):.1f} %"])
    head = [
        "utility",
        "airtime",
        "outcomes",
        "way",
        "all at maximum",
        "best of 20",
        "above it",
        "rounds below 95 % of it",
    ]
    yield from markdown(head, rows)


def is_known(way: str, utility: str, airtime: str, outcomes: str, seed: int) -> bool:
    """True if the utility has such outcomes: the least rate of all is no sum."""
    return utility == "sum" or outcomes == "total"


CELLS = {
    "way": tuple(WAYS),
    "utility": ("sum", "minimum-rate"),
    "airtime": ("full", "shared"),
    "outcomes": ("total", "per-factor"),
    "seed": range(10),
}
STUDIES = {"run": Study(__doc__, "start.jsonl", tuned, CELLS, table, ("studies/wireless.md", "start"), wanted=is_known)}

if __name__ == "__main__":
    if (name := "".join(sys.argv[1:2])) not in STUDIES:
        sys.exit(f"got {name or 'no study'}; wanted one of {', '.join(STUDIES)}")
    STUDIES[name].main(sys.argv[2:])
