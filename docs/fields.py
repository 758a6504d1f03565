"""The tables of docs/fields.md: sensor fields by several methods, run by run; run it with `python docs/fields.py`.

Every run goes into a folder of its own (`runs/fields` by default) and is not repeated if it lies there complete.
"""

import argparse
from pathlib import Path

import msgspec
import numpy as np

from swarmbo.experiment import Scenario, load, run
from swarmbo.experiment.folder import RunFolder
from swarmbo.records import RoundRecord

SEEDS = (0, 1)
NO_TIME = "no time axis"
METHODS = {
    "as in the file": [],
    "every sensor for itself": ["coordination.kind=independent"],
    "random spots": ["coordination.kind=random"],
    NO_TIME: [],
}
GOALS = {"field": "simple_regret", "field-soil": "map_rmse", "field-plume": "level_f1"}
TITLES = {
    "field": "simple regret, mean over rounds",
    "field-soil": "map RMSE at the end, pH",
    "field-plume": "F1 of the level, mean over rounds",
}


def records_of(name: str, method: str, seed: int, out: Path) -> list[RoundRecord]:
    """The rounds of a run, which is made if it is not there."""
    scenario = load(name, [f"seed={seed}", *METHODS[method]])
    if method == NO_TIME:
        scenario = without_time(scenario)
    path = out / name / method.replace(" ", "-") / str(seed)
    if not (path / "summary.json").is_file():
        run(scenario, path, force=True)
    return RunFolder(path).records()


def without_time(scenario: Scenario) -> Scenario:
    """The same with a belief that never forgets."""
    return msgspec.structs.replace(scenario, belief=msgspec.structs.replace(scenario.belief, time=None))


def value_of(name: str, records: list[RoundRecord]) -> float:
    """What the goal of a scenario is scored by."""
    scores = [getattr(record.score, GOALS[name]) for record in records[1:] if record.score is not None]
    return float(scores[-1] if name == "field-soil" else np.mean(scores))


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/fields"))
    out = parser.parse_args().out
    for name, title in TITLES.items():
        seeds = ", ".join(map(str, SEEDS))
        print(f"\n`{name}`, seeds {seeds}\n\n| | {title} | measurements | traffic, kB |\n|---|---|---|---|")  # noqa: T201
        for method in METHODS:
            if method == NO_TIME and name == "field-soil":
                continue
            runs = [records_of(name, method, seed, out) for seed in SEEDS]
            counts = [sum(len(record.evaluations) for record in records) for records in runs]
            sizes = [
                sum(r.sharing.bytes + (0 if r.report is None else r.report.bytes) for r in records) / 1000
                for records in runs
            ]
            values = ", ".join(f"{value_of(name, records):.3f}" for records in runs)
            print(f"| {method} | {values} | {', '.join(map(str, counts))} | {np.mean(sizes):,.0f} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
