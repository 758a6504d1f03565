"""Whole runs over links with faults, by a deadline, beside lockstep without faults: regret at the end, and on the way.

    python docs/links_runs.py                    # runs what is missing of docs/links_runs.jsonl, seeds 100 to 109
    python docs/links_runs.py --seeds 100-105 --worlds wlan
    python docs/links_runs.py --table            # the tables of docs/links.md, from what is there

Everything is as in the scenarios robots, field (sensors, who hear of one another's readings over the same links) and
wlan (a network for each seed), by factor and by totals, but for the way to agree and the transport. All runs of a seed
share world and noise. On WLANs "independent" is where all end who tune for themselves, in as many rounds. Set
OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from swarmbo.compare.statistics import FEWEST_PAIRS, paired_difference
from swarmbo.runs.runner import run
from swarmbo.runs.scenario_files import load

FILE = Path(__file__).with_suffix(".jsonl")
LOCKSTEP, ALONE = "lockstep, no faults", "independent"
FAULTY = ["transport.kind=faulty"]


class World(NamedTuple):
    """What is run.

    Args:
        scenario: Its name.
        more: What else is set of it.
        counted: Which regret.
        kind: How they agree.
        deadline: In ticks.
        patience: In ticks.
        death: Who dies in which round.
    """

    scenario: str
    more: tuple[str, ...]
    counted: Literal["simple", "mean"]
    kind: str
    deadline: int
    patience: int
    death: tuple[str, int]


WORLDS = {
    "robots": World("robots", (), "simple", "max-sum", 60, 20, ("robot_1", 8)),
    "sensors": World("field", (), "mean", "max-sum", 80, 26, ("sensor_5", 8)),
    "wlan": World("wlan", (), "simple", "admm", 100, 16, ("ap_3", 20)),
    "wlan totals": World("wlan", ("environment.outcomes=total",), "simple", "admm", 100, 16, ("ap_3", 20)),
}
CASES = {
    "no faults": [],
    "30 %, delay up to 5": [*FAULTY, "transport.loss=0.3", "transport.delay=5"],
    "50 %, delay up to 5": [*FAULTY, "transport.loss=0.5", "transport.delay=5"],
    "30 %, one dies": [*FAULTY, "transport.loss=0.3"],
}
ALL = (LOCKSTEP, *CASES, ALONE)


def settings_of(world: str, case: str, seed: int) -> list[str]:
    """What is set of a scenario.

    Args:
        world: Its name.
        case: How they agree.
        seed: Of the run.
    """
    name, more, _, kind, deadline, patience, (dead, when) = WORLDS[world]
    out = [f"seed={seed}", *more, *([f"environment.topology_seed={seed}"] if name == "wlan" else [])]
    if case == LOCKSTEP:
        return out
    if case == ALONE:
        return [*out, "coordination.kind=" + ("sobol" if name == "wlan" else "independent")]
    out += [f"coordination.kind={kind}", "coordination.mode=asynchronous"]
    out += [f"coordination.deadline={deadline}", f"coordination.patience={patience}", *CASES[case]]
    if "dies" in case:
        out.append(f"transport.deaths=[{{agent='{dead}',round={when},step={deadline // 2}}}]")
    return out


def regret(world: str, case: str, seed: int) -> tuple[float, float]:
    """Of a run: what is counted of it, and the kilobytes of its agreements and of what was told of measurements."""
    name, counted = WORLDS[world].scenario, WORLDS[world].counted
    with tempfile.TemporaryDirectory() as folder:
        summary = run(load(name, settings_of(world, case, seed)), Path(folder) / "run")
    found = summary.mean_regret if counted == "mean" else summary.score and summary.score.simple_regret
    if case == ALONE and name == "wlan" and summary.maximum is not None:  # no team is asked: the world knows
        found = summary.maximum - summary.references["independent tuning"]
    if found is None:
        raise RuntimeError(f"{world}, {case}, seed {seed}: no regret")
    return float(found), (summary.agreement.bytes + summary.sharing.bytes) / 1000.0


def results() -> dict[str, dict[str, dict[int, tuple[float, float]]]]:
    """Regret and kilobytes by world, case and seed."""
    found: dict[str, dict[str, dict[int, tuple[float, float]]]] = defaultdict(lambda: defaultdict(dict))
    for line in map(json.loads, FILE.read_text().splitlines() if FILE.exists() else ()):
        found[line["world"]][line["case"]][line["seed"]] = (line["regret"], line["kB"])
    return found


def table(found: dict[str, dict[str, dict[int, tuple[float, float]]]]) -> str:
    """Mean regrets, their differences to lockstep without faults with 95 % intervals, and kilobytes, in Markdown."""
    worlds = [world for world in WORLDS if found[world][LOCKSTEP]]
    rows = ["| | " + " | ".join(f"{world}, {len(found[world][LOCKSTEP])} seeds" for world in worlds) + " |"]
    rows.append("|---" * (1 + len(worlds)) + "|")
    rows += [f"| {case} | {' | '.join(_cell(found[world], case) for world in worlds)} |" for case in ALL]
    return "\n".join(rows)


def _cell(cases: dict[str, dict[int, tuple[float, float]]], case: str) -> str:
    if not cases[case]:
        return "–"
    regrets = {seed: numbers[0] for seed, numbers in cases[case].items()}
    mean, sent = np.mean(list(regrets.values())), np.mean([numbers[1] for numbers in cases[case].values()])
    if case == LOCKSTEP:
        return f"{mean:.3g}; {sent / 1000.0:.1f} MB"
    before = {seed: numbers[0] for seed, numbers in cases[LOCKSTEP].items()}
    difference = paired_difference(regrets, before)
    if difference.n_pairs >= FEWEST_PAIRS:
        interval = f"[{difference.low:+.2g}, {difference.high:+.2g}]"
    else:  # no interval of so few says anything
        interval = "(" + ", ".join(f"{regrets[seed] - before[seed]:+.2g}" for seed in sorted(regrets)) + ")"
    return f"{difference.mean:+.2g} {interval}; {sent / 1000.0:.1f} MB"


def main() -> None:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description="Whole runs over links with faults")
    parser.add_argument("--seeds", default="100-109", help="first and last")
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--table", action="store_true", help="only print the table")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split("-"))
    for seed in range(first, last + 1) if not options.table else ():
        for world in options.worlds:
            for case in ALL:
                if seed in results()[world][case]:
                    continue
                found, sent = regret(world, case, seed)
                line = {"world": world, "case": case, "seed": seed, "regret": found, "kB": round(sent, 1)}
                with FILE.open("a") as out:
                    out.write(json.dumps(line) + "\n")
    sys.stdout.write(table(results()) + "\n")


if __name__ == "__main__":
    main()
