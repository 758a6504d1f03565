"""A small floor plan tuned from its present setting: docs/studies/wireless.md.

    python studies/start.py --seeds 0-9
    python studies/start.py --way safe --seeds 10-19

There are six access points and twelve users. At first, all powers are at maximum. ``limited`` changes a power by at
most 3 dB from the best setting. ``safe`` asks for settings that, by the model, keep 95 % of the present utility with a
probability of 0.9.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from study import Line, Study, markdown, play, select

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
    "start": {"start": "largest"},
    "limited": {"start": "largest", "step_limit": 3.0},
    "safe": {"start": "largest", "safe": {}},
}


def tuned(way: str, utility: str, airtime: str, outcomes: str, seed: int) -> Line:
    """Utilities of all settings that a team asks for, and of all powers at maximum."""
    world: Any = wlan_power_v0.parallel_env(
        topology=PLAN, utility=utility, airtime=airtime, outcomes=outcomes, max_cycles=ROUNDS
    ).unwrapped
    team, asked = sb.Team.for_env(world, seed=seed, **WAYS[way]), list[float]()
    for _ in play(world, team, seed):
        asked.append(round(float(world.utility.value(world.network, team.history.X[-1:])[0]), 4))
    largest = float(world.utility.value(world.network, np.full((1, len(PLAN["access_points"])), HIGH))[0])
    return {"asked": asked, "largest": round(largest, 4), "best": round(world.best_known()[1], 4)}


def table(lines: list[Line]) -> Iterator[str]:
    """Shares of best settings, and of rounds below 95 % of all powers at maximum, over seeds that all ways have."""
    rows, ways = list[list[Any]](), [way for way in WAYS if select(lines, way=way)]
    lines = [line for line in lines if all(select(lines, seed=line["seed"], way=way) for way in ways)]
    keys = ("utility", "airtime", "outcomes")
    for key in sorted({tuple(line[name] for name in keys) for line in lines}, reverse=True):
        of_key, cells = select(lines, **dict(zip(keys, key, strict=True))), list[str]()
        for way in ways:
            own = select(of_key, way=way)
            ends = np.mean([max(line["asked"]) / line["best"] for line in own])
            below = np.mean([float(np.mean(np.array(line["asked"]) < 0.95 * line["largest"])) for line in own])
            cells.append(f"{100 * ends:.1f} %, {100 * below:.1f} %")
        rows.append([*key, f"{100 * of_key[0]['largest'] / of_key[0]['best']:.1f} %", *cells])
    yield from markdown([*keys, "first setting", *(f"`{way}`" for way in ways)], rows)


def is_known(way: str, utility: str, airtime: str, outcomes: str, seed: int) -> bool:
    """True if a utility has these outcomes: the smallest rate of all users is not a sum."""
    return utility == "sum" or outcomes == "total"


CELLS = {
    "way": tuple(WAYS),
    "utility": ("sum", "minimum-rate"),
    "airtime": ("full", "shared"),
    "outcomes": ("total", "per-factor"),
    "seed": range(10),
}
STUDY = Study(__doc__, "start.jsonl", tuned, CELLS, table, ("studies/wireless.md", "start"), is_known)

if __name__ == "__main__":
    STUDY.main()
