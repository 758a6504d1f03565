"""The tables of docs/studies/sensors.md: sensor fields by several methods.

python studies/fields.py               # runs cells missing in fields.jsonl (minutes), then prints the tables
python studies/fields.py --page        # puts the tables in docs/studies/sensors.md
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from study import Line, Study, markdown, select

from swarmbo.belief import ExactGPSettings
from swarmbo.belief.fusion import FusedSettings
from swarmbo.records import RoundRecord
from swarmbo.runs import Scenario, load, run as run_scenario
from swarmbo.runs.folder import RunFolder

NO_TIME, SHARED = "no time axis", "one belief that all share"
METHODS = {
    "as in the file": [],
    SHARED: [],
    "half of the messages between beliefs lost, one step a round": ["belief.loss=0.5", "belief.steps=1"],
    "independent sensors": ["coordination.kind=independent"],
    "random locations": ["coordination.kind=random"],
    NO_TIME: [],
}
LABELS = {
    "as in the file": "as shipped",
    SHARED: "shared belief",
    "half of the messages between beliefs lost, one step a round": "lossy beliefs",
}
STILL = "field-soil"  # its field does not change, so scores are those at the end
GOALS = {
    "field": ("simple_regret", "simple regret, mean over rounds"),
    STILL: ("map_rmse", "map RMSE at the end, pH"),
    "field-plume": ("level_f1", "F1 of the level, mean over rounds"),
}


def changed(scenario: Scenario, method: str) -> Scenario:
    """The scenario, with another belief if the method changes the belief."""
    fused = scenario.belief
    assert isinstance(fused, FusedSettings)
    assert isinstance(fused.prior, ExactGPSettings)
    if method == SHARED:  # fitted every third round, because a fit of hundreds of measurements takes a second
        return msgspec.structs.replace(scenario, belief=msgspec.structs.replace(fused.prior, refit_every=3))
    if method == NO_TIME:  # a belief that never forgets
        prior = msgspec.structs.replace(fused.prior, time=None)
        return msgspec.structs.replace(scenario, belief=msgspec.structs.replace(fused, prior=prior))
    return scenario


def errors_of(name: str, records: list[RoundRecord]) -> list[float]:
    """Map errors of the best and the worst agent: means over rounds, or final ones if the field does not change."""
    spreads = []
    for record in records[1:]:
        if record.score is not None and record.score.map_rmse is not None:
            errors = (record.score.view_rmse or {"": record.score.map_rmse}).values()
            spreads.append((min(errors), max(errors)))
    return [float(each) for each in (spreads[-1] if name == STILL else np.mean(spreads, axis=0))]


def run(name: str, method: str, seed: int) -> Line:
    """Score, map errors, measurements and kilobytes of a run."""
    scenario = changed(load(name, [f"seed={seed}", *METHODS[method]]), method)
    with tempfile.TemporaryDirectory() as folder:
        run_scenario(scenario, Path(folder) / "run")
        records = RunFolder(Path(folder) / "run").records()
    scores = [getattr(record.score, GOALS[name][0]) for record in records[1:] if record.score is not None]
    return {
        "score": float(scores[-1] if name == STILL else np.mean(scores)),
        "errors": errors_of(name, records),
        "measurements": sum(len(record.evaluations) for record in records),
        "agreement_kB": sum(0 if record.report is None else record.report.bytes for record in records) / 1000,
        "sharing_kB": sum(record.sharing.bytes for record in records) / 1000,
    }


def table(lines: list[Line]) -> Iterator[str]:
    """One table for each scenario."""

    def spread(low: float, high: float) -> str:
        return f"{low:.3g}" if np.isclose(low, high) else f"{low:.3g} to {high:.3g}"

    def row(method: str, own: list[Line]) -> list[str]:
        sent = f"{np.mean([line['sharing_kB'] for line in own]):,.0f}"
        each = ([f"{line['score']:.3f}" for line in own], [spread(*line["errors"]) for line in own])
        counts = ", ".join(str(line["measurements"]) for line in own)
        return [LABELS.get(method, method), *map(", ".join, each), counts, sent]

    for name, (_, title) in GOALS.items():
        own = sorted(select(lines, name=name), key=lambda line: line["seed"])
        head: list[Any] = ["case", title, "map RMSE by sensor", "measurements", "kB, sharing"]
        yield f"\n`{name}`, seeds {', '.join(map(str, dict.fromkeys(line['seed'] for line in own)))}\n"
        yield from markdown(head, [row(method, runs) for method in METHODS if (runs := select(own, method=method))])


def is_wanted(name: str, method: str, _: int) -> bool:
    """False for the method without a time axis in the field that does not change."""
    return (name, method) != (STILL, NO_TIME)


CHOICES = {"name": tuple(GOALS), "method": tuple(METHODS), "seed": range(2)}
STUDY = Study(__doc__, "fields.jsonl", run, CHOICES, table, ("studies/sensors.md", "tables"), is_wanted)

if __name__ == "__main__":
    STUDY.main()
