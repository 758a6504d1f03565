"""A small floor plan tuned from its present setting: docs/studies/wireless.md.

    python studies/start.py run --seeds 0-9
    python studies/start.py greedy      # decisions of which greedy by the model ends above what is agreed

Six access points and twelve users; all powers are at maximum at first. ``limited`` steps are of at most 3 dB from the
best setting, ``safe`` settings have 95 % of the present utility with a probability of 0.9 by the model.
"""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from study import Line, Study, markdown, say, select

import swarmbo as sb
from swarmbo.graph import stacks_of
from swarmbo_envs import wlan_power_v0

ROUNDS, HIGH, LEVELS = 20, 25.0, 25
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


class Watched:
    """ADMM, and how often best responses in turn, from the best setting on the same functions, end above it."""

    def __init__(self) -> None:
        self.above, self.decisions = 0, 0

    def maximise(self, functions: Any, links: Any = None, seed: int = 0) -> Any:
        """Agree by ADMM."""

        def total(points: np.ndarray) -> np.ndarray:
            taken = [(stack, stack.take(points)) for stack in stacks_of(functions.graph, functions.graph.factors)]
            return np.sum([functions.value(stack, X, ()).sum(axis=0) for stack, X in taken], axis=0)

        agreement = sb.ADMM().maximise(functions, links, seed)
        x, unchanged, column = functions.starts[0].copy(), 0, 0
        while unchanged < len(x):
            tried = np.repeat(x[None], LEVELS + 1, axis=0)
            tried[1:, column] = np.linspace(functions.low[column], functions.high[column], LEVELS)
            values = total(tried)
            unchanged += 1
            if values.max() > values[0] + 1e-9 * abs(values[0]):
                x, unchanged = tried[values.argmax()], 1
            column = (column + 1) % len(x)
        reached, agreed = total(np.array([x, agreement.point]))
        self.decisions, self.above = self.decisions + 1, self.above + int(reached > agreed + 1e-9 * abs(agreed))
        return agreement


def greedy() -> list[str]:
    """Decisions of which greedy by the model ends above what is agreed, over four seeds."""
    rows = list[list[Any]]()
    for utility, outcomes in (("sum", "total"), ("sum", "per-factor"), ("minimum-rate", "total")):
        for way in ("start", "limited"):
            seen = Watched()
            for seed in range(4):
                tuned(way, utility, "shared", outcomes, seed, coordination=seen)
            rows.append([utility, outcomes, way, f"{seen.above} of {seen.decisions}"])
    return markdown(["utility", "outcomes", "way", "greedy above"], rows)


def tuned(way: str, utility: str, airtime: str, outcomes: str, seed: int, **settings: Any) -> Line:
    """Utilities of all settings that a team asks, and of all at maximum."""
    world: Any = wlan_power_v0.parallel_env(
        topology=PLAN, utility=utility, airtime=airtime, outcomes=outcomes, max_cycles=ROUNDS
    ).unwrapped
    observations, infos = world.reset(seed=seed)
    team = sb.Team.for_env(world, seed=seed, **WAYS[way], **settings)
    asked = list[float]()
    while world.agents:
        step = world.step(team.act(observations, infos))
        team.observe(*step)
        observations, infos = step[0], step[-1]
        asked.append(round(float(world.utility.value(world.network, team.history.X[-1:])[0]), 4))
    largest = float(world.utility.value(world.network, np.full((1, len(PLAN["access_points"])), HIGH))[0])
    return {"asked": asked, "largest": round(largest, 4), "best": round(world.best_known()[1], 4)}


def table(lines: list[Line]) -> Iterator[str]:
    """Shares of the best settings, and rounds below 95 % of all at maximum."""
    rows, ways = list[list[Any]](), [way for way in WAYS if select(lines, way=way)]
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
    if (name := "".join(sys.argv[1:2])) in STUDIES:
        STUDIES[name].main(sys.argv[2:])
    elif name == "greedy":
        say(greedy())
    else:
        sys.exit(f"got {name or 'no study'}; wanted one of {', '.join(STUDIES)}, greedy")
