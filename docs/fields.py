"""The tables of docs/fields.md: sensor fields by several methods, run by run; run it with `python docs/fields.py`.

Every run goes into a folder of its own (`runs/fields` by default) and is not repeated if it lies there complete.
"""

import argparse
from pathlib import Path

import msgspec
import numpy as np

from swarmbo.belief import ExactGPSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.records import RoundRecord
from swarmbo.runs import Scenario, load, run
from swarmbo.runs.folder import RunFolder

SEEDS = (0, 1)
NO_TIME, SHARED = "no time axis", "one belief that all share"
METHODS = {
    "as in the file": [],
    SHARED: [],
    "half of the messages between beliefs lost, one step a round": ["belief.loss=0.5", "belief.steps=1"],
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
    scenario = changed(load(name, [f"seed={seed}", *METHODS[method]]), method)
    path = out / name / method.replace(" ", "-") / str(seed)
    if not (path / "summary.json").is_file():
        run(scenario, path, force=True)
    return RunFolder(path).records()


def changed(scenario: Scenario, method: str) -> Scenario:
    """The same with another belief, where that is what a method changes."""
    fused = scenario.belief
    assert isinstance(fused, FusedSettings)
    assert isinstance(fused.prior, ExactGPSettings)
    if method == SHARED:  # with hundreds of measurements a fit takes a second
        return msgspec.structs.replace(scenario, belief=msgspec.structs.replace(fused.prior, refit_every=3))
    if method == NO_TIME:  # a belief that never forgets
        prior = msgspec.structs.replace(fused.prior, time=None)
        return msgspec.structs.replace(scenario, belief=msgspec.structs.replace(fused, prior=prior))
    return scenario


def value_of(name: str, records: list[RoundRecord]) -> float:
    """What the goal of a scenario is scored by."""
    scores = [getattr(record.score, GOALS[name]) for record in records[1:] if record.score is not None]
    return float(scores[-1] if name == "field-soil" else np.mean(scores))


def errors_of(name: str, records: list[RoundRecord]) -> str:
    """Map error of the best and the worst agent, over rounds as the goal of the scenario is."""
    spreads = []
    for record in records[1:]:
        if record.score is not None and record.score.map_rmse is not None:
            errors = (record.score.view_rmse or {"": record.score.map_rmse}).values()
            spreads.append((min(errors), max(errors)))
    low, high = spreads[-1] if name == "field-soil" else np.mean(spreads, axis=0)
    return f"{low:.3g}" if np.isclose(low, high) else f"{low:.3g} to {high:.3g}"


def kilobytes(records: list[RoundRecord]) -> tuple[float, float]:
    """Sent to agree, and to share measurements."""
    agreed = sum(0 if record.report is None else record.report.bytes for record in records)
    return agreed / 1000, sum(record.sharing.bytes for record in records) / 1000


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/fields"))
    out = parser.parse_args().out
    for name, title in TITLES.items():
        seeds = ", ".join(map(str, SEEDS))
        print(f"\n`{name}`, seeds {seeds}\n\n| | {title} | map RMSE, best to worst sensor | measurements ", end="")  # noqa: T201
        print("| kB to agree | kB to share |\n|---|---|---|---|---|---|")  # noqa: T201
        for method in METHODS:
            if method == NO_TIME and name == "field-soil":
                continue
            runs = [records_of(name, method, seed, out) for seed in SEEDS]
            counts = ", ".join(str(sum(len(record.evaluations) for record in records)) for records in runs)
            values = ", ".join(f"{value_of(name, records):.3f}" for records in runs)
            errors = ", ".join(errors_of(name, records) for records in runs)
            agreed, shared = np.mean([kilobytes(records) for records in runs], axis=0)
            print(f"| {method} | {values} | {errors} | {counts} | {agreed:,.0f} | {shared:,.0f} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
