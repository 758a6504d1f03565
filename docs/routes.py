"""Teams that plan routes against others, on five landscapes: the runs behind docs/routes.md, and its tables.

    python docs/routes.py --task level map peak --seeds 100-109  # adds what is missing of docs/routes.jsonl
    python docs/routes.py --table                                # prints the tables
    python docs/routes.py --speed                                # time of a decision against the number of robots

With ``--along 2`` robots measure twice on each leg besides, on which no plan counts.

Robots start side by side at one depot, drawn by seed, and reach half as far in a round as by default (``--spread``:
drawn starts and the default reach). All methods of a seed meet the same depot, headings, noise and number of rounds.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.compare.statistics import PairedDifference, paired_difference
from swarmbo.metrics import level_f1, map_rmse
from swarmbo_envs import robot_team_v0, robot_team_v1

LINES = Path(__file__).with_suffix(".jsonl")
QUANTILE = 0.85  # of the field, that the level is
FIELDS: dict[str, dict[str, Any]] = {
    "elevation": {"field": {"elevation": "jacksboro"}, "noise_std": 5.0},
    "window": {"field": {"elevation": "jacksboro", "window": [60, 140, 128, 128]}, "noise_std": 5.0},
    "topobathy": {"field": {"elevation": "topobathy"}, "noise_std": 10.0},
    "drawn": {"field": {"gp": {"lengthscale_m": 500.0}}, "noise_std": 0.05},  # a field for each seed
    "oxford-ph": {"field": {"survey": "oxford-ph"}, "noise_std": 0.05, "max_cycles": 8},
}
KEYS = ("task", "method", "field", "seed", "robots", "spread", "along")
Kinds = tuple[str | dict[str, Any], str | dict[str, Any]]  # acquisition, coordination
LAWN_MOWER: Kinds = ("information", "lawn-mower")
VARIANCE = "variance one step, greedy"
MCTS = "routes, Dec-MCTS"
ROUTES = {"auction": "routes, auction", "sequential": "routes, sequential"}
ANNEALED = {"kind": "db-gp-ucb", "exploration": "annealed"}
METHODS: dict[str, dict[str, Kinds]] = {
    "level": {
        "straddle, greedy": ({"kind": "straddle"}, "greedy"),
        "straddle, exact": ({"kind": "straddle"}, "exact"),
        "lawn-mower": LAWN_MOWER,
        VARIANCE: ({"kind": "targeted-variance"}, "greedy"),
        ROUTES["sequential"]: ({"kind": "targeted-variance"}, {"kind": "routes", "order": "sequential"}),
        ROUTES["auction"]: ({"kind": "targeted-variance"}, "routes"),
        MCTS: ({"kind": "targeted-variance"}, "dec-mcts"),
    },
    "map": {
        "information, greedy": ("information", "greedy"),
        "lawn-mower": LAWN_MOWER,
        VARIANCE: ("targeted-variance", "greedy"),
        ROUTES["sequential"]: ("targeted-variance", {"kind": "routes", "order": "sequential"}),
        ROUTES["auction"]: ("targeted-variance", "routes"),
        MCTS: ("targeted-variance", "dec-mcts"),
    },
    "peak": {
        "db-gp-ucb, greedy": (ANNEALED, "greedy"),
        "lawn-mower": LAWN_MOWER,
        "explore_share = 0.8": (ANNEALED, {"kind": "routes", "explore_share": 0.8}),
    },
}
REFERENCE = {"level": ROUTES["auction"], "map": ROUTES["auction"], "peak": "explore_share = 0.8"}
SCORES = {"level": ("level_f1", "map_rmse"), "map": ("map_rmse",), "peak": ("simple", "cumulative", "map_rmse")}


def survey(name: str, seed: int, robots: int, spread: bool, along: int = 0) -> Any:
    """The world of a seed."""
    arguments: dict[str, Any] = {"max_cycles": 25, **FIELDS[name], "robots": robots}
    if name == "drawn":
        arguments["field"] = {"gp": {**arguments["field"]["gp"], "seed": seed}}
    make = robot_team_v0.parallel_env
    if along:
        make, arguments["samples_per_leg"] = robot_team_v1.parallel_env, along
    if spread:
        return make(**arguments)
    plain: Any = make(**arguments).unwrapped
    field, rng = plain.field, stream(seed, "depot")
    side = field.high - field.low
    depot = field.low + side * rng.uniform(0.05, 0.95, size=2)
    around = 0.01 * side.max() * np.array([[i % 8, i // 8] for i in range(robots)])
    starts = np.clip(depot + around, field.low, field.high - 0.0005 * side * np.arange(robots)[:, None])
    drive_s = plain.round_time_s - np.pi / plain.settings.turn_rate_rad_s
    half_s = np.pi / plain.settings.turn_rate_rad_s + 0.5 * drive_s
    return make(**arguments, starts=starts.tolist(), round_time_s=half_s)


def run(task: str, method: str, name: str, seed: int, robots: int, spread: bool, along: int) -> dict[str, Any]:
    """One survey, from start to end, and what it came to."""
    env: Any = survey(name, seed, robots, spread, along)
    truth = env.unwrapped.ground_truth()
    level = float(np.quantile(truth.values, QUANTILE))
    acquisition, coordination = METHODS[task][method]
    if isinstance(acquisition, dict) and task == "level" and acquisition["kind"] in ("straddle", "targeted-variance"):
        acquisition = {**acquisition, "level": level}
    team = sb.Team.for_env(env, acquisition=acquisition, coordination=coordination, seed=seed)
    observations, infos = env.reset(seed=seed)
    found, decided, messages = list[list[float]](), 0.0, 0
    while env.agents:
        before = time.process_time()
        actions = team.act(observations, infos)
        decided += time.process_time() - before
        messages += 0 if team.last_report is None else team.last_report.messages
        step = env.step(actions)
        team.observe(*step)
        observations, infos = step[0], step[-1]
        found.append([float(truth.value(info["location"][None])[0]) for info in infos.values()])
    mean = team.belief.posterior_mean(truth.points)
    regrets = truth.maximum - np.array(found)
    return {
        "task": task, "method": method, "field": name, "seed": seed, "robots": robots, "spread": spread, "along": along,
        "level_f1": level_f1(mean, truth.values, level), "map_rmse": map_rmse(mean, truth.values),
        "simple": float(regrets.min()), "cumulative": float(regrets.mean()),
        "decide_ms": 1e3 * decided / len(found), "messages": messages / len(found),
    }  # fmt: skip


def known(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """What was run before, by what it was a run of."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    return {tuple(row[key] for key in KEYS): row for row in rows}


def relative(rows: list[dict[str, Any]], method: str, task: str, score: str) -> PairedDifference | None:
    """What the reference has less a method, paired by landscape and seed; errors in percent of the method's mean."""
    by: dict[str, dict[tuple[str, int], float]] = {}
    for row in rows:
        by.setdefault(row["method"], {})[row["field"], row["seed"]] = row[score]
    if method not in by or REFERENCE[task] not in by:
        return None
    pairs = sorted(by[method].keys() & by[REFERENCE[task]].keys())
    scale = dict.fromkeys(FIELDS, 1.0)
    if score != "level_f1":
        scale = {f: 0.01 * float(np.mean([by[method][p] for p in pairs if p[0] == f] or [1.0])) for f in FIELDS}
    one, other = ({i: by[m][p] / (scale[p[0]] or 1.0) for i, p in enumerate(pairs)} for m in (REFERENCE[task], method))
    return paired_difference(one, other)


def tables(path: Path) -> None:
    """Print what the runs came to: means by landscape, and differences pooled over all of them."""
    rows = list(known(path).values())
    for task, robots, spread, along in sorted({tuple(row[k] for k in ("task", *KEYS[4:])) for row in rows}):
        own = [r for r in rows if (r["task"], *(r[k] for k in KEYS[4:])) == (task, robots, spread, along)]
        names = [name for name in FIELDS if any(row["field"] == name for row in own)]
        for score in SCORES[task]:
            unit = "" if score == "level_f1" else ", %"
            n = {name: len({r["seed"] for r in own if r["field"] == name}) for name in names}
            where = f"{robots} robots, {'spread starts' if spread else 'one depot'}"
            print(f"\n{task}, {where}, {along} measurements on each leg: {score}, seeds {n}\n")  # noqa: T201
            print(f"| | {' | '.join(names)} | {REFERENCE[task]} less it{unit} |")  # noqa: T201
            print("|---|" + "---|" * (len(names) + 1))  # noqa: T201
            for method in METHODS[task]:
                if not any(row["method"] == method for row in own):
                    continue
                means = [[r[score] for r in own if (r["method"], r["field"]) == (method, name)] for name in names]
                told = relative(own, method, task, score) if method != REFERENCE[task] else None
                digits = 2 if score == "level_f1" else 1
                pooled = (
                    "" if told is None else f"{told.mean:+.{digits}f} [{told.low:+.{digits}f}, {told.high:+.{digits}f}]"
                )
                cells = " | ".join(f"{np.mean(values):.3g}" if values else "–" for values in means)
                print(f"| {method} | {cells} | {pooled} |")  # noqa: T201


def speed(rounds: int = 12) -> None:
    """Print the processor time of decisions, fits left out, in the middle of a survey of the elevation model."""
    print("| robots | " + " | ".join(map(str, (4, 8, 16, 32, 64))) + " |\n|---|" + "---|" * 5)  # noqa: T201
    for method in (VARIANCE, ROUTES["sequential"], ROUTES["auction"], MCTS):
        cells: list[str] = []
        for robots in (4, 8, 16, 32, 64):
            acquisition, coordination = METHODS["map"][method]
            env: Any = survey("elevation", 0, robots, spread=False)
            settings: Any = {"kind": "exact", "refit_every": 10_000}
            team = sb.Team.for_env(env, belief=settings, acquisition=acquisition, coordination=coordination)
            observations, infos = env.reset(seed=0)
            times = list[float]()
            for _ in range(min(rounds, 192 // robots)):
                before = time.process_time()
                actions = team.act(observations, infos)
                times.append(time.process_time() - before)
                step = env.step(actions)
                team.observe(*step)
                observations, infos = step[0], step[-1]
            cells.append(f"{1e3 * float(np.median(times[1:])):.0f}")
        print(f"| {method}, ms | {' | '.join(cells)} |", flush=True)  # noqa: T201


def main() -> None:
    """Run what is missing, or tell what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--method", nargs="+", help="only these")
    parser.add_argument("--field", nargs="+", choices=list(FIELDS), default=list(FIELDS))
    parser.add_argument("--seeds", default="0-7", help="first-last")
    parser.add_argument("--robots", type=int, default=4)
    parser.add_argument("--spread", action="store_true")
    parser.add_argument("--along", type=int, default=0, help="measurements on each leg, besides the one at its end")
    parser.add_argument("--lines", type=Path, default=LINES)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--speed", action="store_true")
    given = parser.parse_args()
    if given.table:
        tables(given.lines)
    elif given.speed:
        speed()
    else:
        first, last = map(int, given.seeds.split("-"))
        there = known(given.lines)
        for seed in range(first, last + 1):
            for task in given.task:
                for name in given.field:
                    for method in given.method or METHODS[task]:
                        key = (task, method, name, seed, given.robots, given.spread, given.along)
                        if key not in there and not (given.along and name == "oxford-ph"):  # robots sample its sites
                            row = run(*key)
                            with given.lines.open("a") as lines:
                                lines.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
