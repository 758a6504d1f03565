"""Whole runs over links with faults, by a deadline, and lockstep without faults: regret at the end, and on the way.

    python studies/links_runs.py                    # runs what is missing of links_runs.jsonl, seeds 100 to 109
    python studies/links_runs.py --seeds 100-105 --world wlan
    python studies/links_runs.py --page             # puts the table in docs/studies/links.md

Everything is as in the scenarios robots, field (sensors, which report measurements over the same links) and wlan (a
network for each seed), by factor and by totals, but for the way to agree and the transport. All runs of a seed share
world and noise. On WLANs "independent" is where all end who tune for themselves, in as many rounds.
"""

import tempfile
from pathlib import Path

import numpy as np
from links import ALONE, CURVE, DEATH, LABELS, LOCKSTEP, WORLDS
from study import Line, Study, markdown, select

from swarmbo.compare.statistics import FEWEST_PAIRS, paired_difference
from swarmbo.runs.runner import run
from swarmbo.runs.scenario_files import load

FAULTY = ["transport.kind=faulty"]
AGREED = {  # which regret counts, how they agree, and the agent that fails, with its round
    "robots": ("simple", "max-sum", "robot_1", 8),
    "sensors": ("mean", "max-sum", "sensor_5", 8),
    "wlan": ("simple", "admm", "ap_3", 20),
    "wlan totals": ("simple", "admm", "ap_3", 20),
}
CASES = {
    "no faults": [],
    CURVE: [*FAULTY, "transport.loss=0.3", "transport.delay=5"],
    "50 %, delay up to 5": [*FAULTY, "transport.loss=0.5", "transport.delay=5"],
    DEATH: [*FAULTY, "transport.loss=0.3"],
}
ALL = (LOCKSTEP, *CASES, ALONE)


def settings_of(world: str, case: str, seed: int) -> list[str]:
    """Overrides of a scenario."""
    (name, _, deadline, patience, more), (_, kind, dead, when) = WORLDS[world], AGREED[world]
    out = [f"seed={seed}", *more, *([f"environment.topology_seed={seed}"] if name == "wlan" else [])]
    if case == LOCKSTEP:
        return out
    if case == ALONE:
        return [*out, "coordination.kind=" + ("sobol" if name == "wlan" else "independent")]
    out += [f"coordination.kind={kind}", "coordination.mode=asynchronous"]
    out += [f"coordination.deadline={deadline}", f"coordination.patience={patience}", *CASES[case]]
    if case == DEATH:
        out.append(f"transport.deaths=[{{agent='{dead}',round={when},step={deadline // 2}}}]")
    return out


def regret(world: str, case: str, seed: int) -> Line:
    """Regret of a run, and the kilobytes of its agreements and of what was told of measurements."""
    name, counted = WORLDS[world].scenario, AGREED[world][0]
    with tempfile.TemporaryDirectory() as folder:
        summary = run(load(name, settings_of(world, case, seed)), Path(folder) / "run")
    found = summary.mean_regret if counted == "mean" else summary.score and summary.score.simple_regret
    if case == ALONE and name == "wlan" and summary.maximum is not None:  # no team is asked: the world knows
        found = summary.maximum - summary.references["independent tuning"]
    if found is None:
        raise RuntimeError(f"{world}, {case}, seed {seed}: no regret")
    return {"regret": float(found), "kB": round((summary.agreement.bytes + summary.sharing.bytes) / 1000.0, 1)}


def signed(value: float) -> str:
    """Two digits, and no exponent for what is large."""
    return f"{value:+,.0f}" if abs(value) >= 100.0 else f"{value:+.2g}"


def table(lines: list[Line]) -> list[str]:
    """Mean regrets, their differences to lockstep without faults with 95 % intervals, and what was sent."""

    def regrets(world: str, case: str) -> dict[int, float]:
        return {line["seed"]: line["regret"] for line in select(lines, world=world, case=case)}

    def cell(world: str, case: str) -> str:
        own, before = regrets(world, case), regrets(world, LOCKSTEP)
        if not own:
            return "–"
        sent = f"{np.mean([line['kB'] for line in select(lines, world=world, case=case)]) / 1000.0:.1f}"
        if case == LOCKSTEP:
            return f"{np.mean(list(own.values())):.3g}; {sent}"
        difference = paired_difference(own, before)
        if difference.low is not None and difference.high is not None and difference.n_pairs >= FEWEST_PAIRS:
            return f"{signed(difference.mean)} [{signed(difference.low)}, {signed(difference.high)}]; {sent}"
        return f"{signed(difference.mean)}; {sent}"  # no interval of so few says anything

    worlds = {world: len(seeds) for world in AGREED if (seeds := regrets(world, LOCKSTEP))}
    head = ["regret; MB sent", *(f"{world}, {count} seeds" for world, count in worlds.items())]
    return markdown(head, [[LABELS.get(case, case), *(cell(world, case) for world in worlds)] for case in ALL])


CHOICES = {"world": tuple(AGREED), "case": ALL, "seed": range(100, 110)}
STUDY = Study(__doc__, "links_runs.jsonl", regret, CHOICES, table, page=("studies/links.md", "runs"))

if __name__ == "__main__":
    STUDY.main()
