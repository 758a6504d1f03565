"""Regret of whole runs with a deadline over links with faults, compared with lockstep without faults.

    python studies/links_runs.py                    # runs cells missing in links_runs.jsonl, seeds 100 to 109
    python studies/links_runs.py --seeds 100-105 --world wlan
    python studies/links_runs.py --page             # puts the table in docs/studies/links.md

Runs differ from the scenarios robots, field and wlan only in the coordination method and the transport. In field,
sensors report measurements over the same links. In wlan, each seed has another network, with outcomes per factor or
totals. All runs of a seed share world and noise. On WLANs, "independent" is the end of independent tuning in as many
rounds.
"""

import tempfile
from pathlib import Path

import numpy as np
from links import ALONE, CURVE, FAILURE, LABELS, LOCKSTEP, WORLDS
from study import Line, Study, markdown, select

from swarmbo.compare.statistics import FEWEST_PAIRS, paired_difference
from swarmbo.runs.runner import run
from swarmbo.runs.scenario_files import load

FAULTY = ["transport.kind=faulty"]
AGREED = {  # kind of regret, coordination method, and the agent that fails, with its round
    "robots": ("simple", "max-sum", "robot_1", 8),
    "sensors": ("mean", "max-sum", "sensor_5", 8),
    "wlan": ("simple", "admm", "ap_3", 20),
    "wlan totals": ("simple", "admm", "ap_3", 20),
}
CASES = {
    "no faults": [],
    CURVE: [*FAULTY, "transport.loss=0.3", "transport.delay=5"],
    "50 %, delay up to 5": [*FAULTY, "transport.loss=0.5", "transport.delay=5"],
    FAILURE: [*FAULTY, "transport.loss=0.3"],
}
ALL = (LOCKSTEP, *CASES, ALONE)


def settings_of(world: str, case: str, seed: int) -> list[str]:
    """Overrides of a scenario."""
    (name, _, deadline, patience, more), (_, kind, failed, when) = WORLDS[world], AGREED[world]
    out = [f"seed={seed}", *more, *([f"environment.topology_seed={seed}"] if name == "wlan" else [])]
    if case == LOCKSTEP:
        return out
    if case == ALONE:
        return [*out, "coordination.kind=" + ("sobol" if name == "wlan" else "independent")]
    out += [f"coordination.kind={kind}", "coordination.mode=asynchronous"]
    out += [f"coordination.deadline={deadline}", f"coordination.patience={patience}", *CASES[case]]
    if case == FAILURE:
        out.append(f"transport.deaths=[{{agent='{failed}',round={when},step={deadline // 2}}}]")
    return out


def regret(world: str, case: str, seed: int) -> Line:
    """Regret of a run, and the kilobytes of its agreements and of reports of measurements."""
    name, counted = WORLDS[world].scenario, AGREED[world][0]
    with tempfile.TemporaryDirectory() as folder:
        summary = run(load(name, settings_of(world, case, seed)), Path(folder) / "run")
    found = summary.mean_regret if counted == "mean" else summary.score and summary.score.simple_regret
    if case == ALONE and name == "wlan" and summary.maximum is not None:  # computed by the world, not by a team
        found = summary.maximum - summary.references["independent tuning"]
    if found is None:
        raise RuntimeError(f"{world}, {case}, seed {seed}: no regret")
    return {"regret": float(found), "kB": round((summary.agreement.bytes + summary.sharing.bytes) / 1000.0, 1)}


def signed(value: float) -> str:
    """Signed number of two significant digits; values from 100 on as whole numbers."""
    return f"{value:+,.0f}" if abs(value) >= 100.0 else f"{value:+.2g}"


def table(lines: list[Line]) -> list[str]:
    """Mean regrets, their differences to lockstep without faults with 95 % intervals, and megabytes sent."""

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
        return f"{signed(difference.mean)}; {sent}"  # too few pairs for an interval

    worlds = {world: len(seeds) for world in AGREED if (seeds := regrets(world, LOCKSTEP))}
    head = ["regret; MB sent", *(f"{world}, {count} seeds" for world, count in worlds.items())]
    return markdown(head, [[LABELS.get(case, case), *(cell(world, case) for world in worlds)] for case in ALL])


CHOICES = {"world": tuple(AGREED), "case": ALL, "seed": range(100, 110)}
STUDY = Study(__doc__, "links_runs.jsonl", regret, CHOICES, table, page=("studies/links.md", "runs"))

if __name__ == "__main__":
    STUDY.main()
