"""Teams that plan routes and other methods on five landscapes: runs and tables of docs/studies/routes.md.

    python studies/routes.py --task level map peak --seeds 100-109  # runs cells missing in routes.jsonl
    python studies/routes.py --table                                # prints the tables

With ``--along 2``, robots also measure twice on each leg, which plans do not take into account.

Robots start side by side at one depot that the seed draws, and drive half of the default distance in a round. With
``--spread``, starts are drawn and the distance is the default. All methods of a seed have the same depot, headings,
noise and number of rounds.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from study import Line, Study, markdown, play, select

import swarmbo as sb
from swarmbo.boundary.rng import stream
from swarmbo.compare.statistics import paired_difference
from swarmbo.metrics import level_f1, map_rmse
from swarmbo_envs import robot_team_v0, robot_team_v1

QUANTILE = 0.85  # the level is this quantile of the field
FIELDS: dict[str, dict[str, Any]] = {
    "elevation": {"field": {"elevation": "jacksboro"}, "noise_std": 5.0},
    "window": {"field": {"elevation": "jacksboro", "window": [60, 140, 128, 128]}, "noise_std": 5.0},
    "topobathy": {"field": {"elevation": "topobathy"}, "noise_std": 10.0},
    "drawn": {"field": {"gp": {"lengthscale_m": 500.0}}, "noise_std": 0.05},  # a field for each seed
    "oxford-ph": {"field": {"survey": "oxford-ph"}, "noise_std": 0.05, "max_cycles": 8},
}
GROUP = ("task", "robots", "spread", "along")  # keys that the runs of a table share
Kinds = tuple[str | dict[str, Any], str | dict[str, Any]]  # acquisition, coordination
LAWN_MOWER: Kinds = ("information", "lawn-mower")
VARIANCE = "variance one step, greedy"
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
    },
    "map": {
        "information, greedy": ("information", "greedy"),
        "lawn-mower": LAWN_MOWER,
        VARIANCE: ("targeted-variance", "greedy"),
        ROUTES["sequential"]: ("targeted-variance", {"kind": "routes", "order": "sequential"}),
        ROUTES["auction"]: ("targeted-variance", "routes"),
    },
    "peak": {
        "db-gp-ucb, greedy": (ANNEALED, "greedy"),
        "lawn-mower": LAWN_MOWER,
        "explore_share = 0.8": (ANNEALED, {"kind": "routes", "explore_share": 0.8}),
    },
}
REFERENCE = {"level": ROUTES["auction"], "map": ROUTES["auction"], "peak": "explore_share = 0.8"}
SCORES = {"level": ("level_f1", "map_rmse"), "map": ("map_rmse",), "peak": ("simple", "cumulative", "map_rmse")}


def is_wanted(task: str, method: str, name: str, _: int, robots: int, spread: bool, along: int) -> bool:
    """True if a method belongs to a task, and a field has measurements along legs."""
    return method in METHODS[task] and not (along and name == "oxford-ph")  # robots sample its sites


def survey(name: str, seed: int, robots: int, spread: bool, along: int) -> Any:
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


def run(task: str, method: str, name: str, seed: int, robots: int, spread: bool, along: int) -> Line:
    """Scores of a survey."""
    env: Any = survey(name, seed, robots, spread, along)
    truth = env.unwrapped.ground_truth()
    level = float(np.quantile(truth.values, QUANTILE))
    acquisition, coordination = METHODS[task][method]
    if isinstance(acquisition, dict) and task == "level":
        acquisition = {**acquisition, "level": level}
    team = sb.Team.for_env(env, acquisition=acquisition, coordination=coordination, seed=seed)
    found = list[list[float]]()
    for _, infos in play(env, team, seed):
        found.append([float(truth.value(info["location"][None])[0]) for info in infos.values()])
    mean = team.belief.posterior_mean(truth.points)
    regrets = truth.maximum - np.array(found)
    return {
        "level_f1": level_f1(mean, truth.values, level),
        "map_rmse": map_rmse(mean, truth.values),
        "simple": float(regrets.min()),
        "cumulative": float(regrets.mean()),
    }


def pooled(rows: list[Line], method: str, task: str, score: str) -> str:
    """Score of the reference minus a method's, paired by landscape and seed; errors in percent of the method's mean."""

    def values(name: str) -> dict[tuple[str, int], float]:
        return {(row["field"], row["seed"]): row[score] for row in select(rows, method=name)}

    own, reference = values(method), values(REFERENCE[task])
    if method == REFERENCE[task] or not reference:
        return ""
    pairs = sorted(own.keys() & reference.keys())
    scale = dict.fromkeys(FIELDS, 1.0)
    if score != "level_f1":
        scale = {f: 0.01 * float(np.mean([own[p] for p in pairs if p[0] == f] or [1.0])) or 1.0 for f in FIELDS}
    told = paired_difference(
        *({i: found[pair] / scale[pair[0]] for i, pair in enumerate(pairs)} for found in (reference, own))
    )
    digits = 2 if score == "level_f1" else 1
    return f"{told.mean:+.{digits}f} [{told.low:+.{digits}f}, {told.high:+.{digits}f}]"


def tables(lines: list[Line]) -> Iterator[str]:
    """Means by landscape, and differences pooled over all of them."""
    for group in sorted({tuple(line[key] for key in GROUP) for line in lines}):
        task, robots, spread, along = group
        own = select(lines, **dict(zip(GROUP, group, strict=True)))
        names = {name: len({row["seed"] for row in own if row["field"] == name}) for name in FIELDS}
        names = {name: count for name, count in names.items() if count}
        run_here = {row["method"] for row in own}
        for score in SCORES[task]:
            unit = "" if score == "level_f1" else ", %"
            where = f"{robots} robots, {'spread starts' if spread else 'one depot'}"
            yield f"\n{task}, {where}, {along} measurements on each leg: {score}, seeds {names}\n"
            rows = list[list[str]]()
            for method in METHODS[task]:
                if method not in run_here:
                    continue
                found = [[row[score] for row in select(own, method=method, field=name)] for name in names]
                means = (f"{np.mean(values):.3g}" if values else "–" for values in found)
                rows.append([method, *means, pooled(own, method, task, score)])
            yield from markdown(["method", *names, f"{REFERENCE[task]} minus row{unit}"], rows)


NAMES = tuple(dict.fromkeys(method for own in METHODS.values() for method in own))
CHOICES = {"task": tuple(METHODS), "method": NAMES, "field": tuple(FIELDS), "seed": range(8)}
CHOICES |= {"robots": (4,), "spread": (False,), "along": (0,)}
STUDY = Study(__doc__, "routes.jsonl", run, CHOICES, tables, wanted=is_wanted)

if __name__ == "__main__":
    STUDY.main()
