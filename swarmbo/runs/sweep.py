"""Sweeps: runs of one scenario with every combination of alternative settings, over a range of seeds."""

import itertools
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import msgspec

from swarmbo.boundary.values import error_text, whole_number
from swarmbo.errors import ConfigError, RunFolderError, SwarmboError
from swarmbo.evaluations import Workers, make_executor
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.runner import check, completed_summary, resume, run
from swarmbo.runs.scenario import Scenario
from swarmbo.runs.scenario_files import load, split_alternatives

AnyPath = str | os.PathLike[str]
_LONGEST_SLUG = 96
_KILLED = (
    "the process that ran this was killed, perhaps for lack of memory; "
    "the same command goes on where it stopped and skips what is done"
)


@dataclass(frozen=True)
class Trial:
    """One run of a sweep: its scenario, its folder, and the trust in user code."""

    scenario: Scenario
    out: Path
    trust: bool = False


@dataclass(frozen=True)
class Outcome:
    """Outcome of a trial: ``resumed`` if it had begun, ``skipped`` if it was complete; ``message``: why it failed."""

    trial: Trial
    status: Literal["done", "resumed", "skipped", "failed"]
    message: str = ""


def plan(
    source: AnyPath, n_seeds: int, overrides: Sequence[str] = (), out: AnyPath = "runs", trust: bool = False
) -> list[Trial]:
    """Trials of a sweep, in folders ``out/<name>/<settings>/seed-<seed>``; seeds, the scenario's first, vary fastest.

    ``table.key=a,b`` gives alternatives; every combination is run. All settings are checked; nothing is run.
    """
    n_seeds = whole_number(n_seeds, 1, "--seeds")
    choices = [split_alternatives(override) for override in overrides]
    if repeated := [value for choice in choices for value in choice if choice.count(value) > 1]:
        raise ConfigError(f"got {repeated[0]} twice; wanted different values", at="--set")
    choices.sort(key=lambda choice: len(choice) == 1)  # alternatives come first in the names of folders
    trials: list[Trial] = []
    for chosen in itertools.product(*choices):
        scenario = load(source, chosen, trust)
        check(scenario, trust)
        for seed in range(scenario.seed, scenario.seed + n_seeds):
            folder = Path(out) / folder_name(scenario.name) / setting_slug(chosen) / f"seed-{seed:03d}"
            trials.append(Trial(msgspec.structs.replace(scenario, seed=seed), folder, trust))
    return trials


def setting_slug(overrides: Sequence[str]) -> str:
    """Folder name of settings: ``coordination.kind=max-sum``; ``default`` if there are none."""
    return folder_name(",".join(overrides)) or "default"


def sweep(
    trials: Sequence[Trial], workers: int | Workers = 1, on_run: Callable[[Outcome], None] | None = None
) -> list[Outcome]:
    """Run missing trials and resume partial ones; return the outcomes in the order of the trials.

    Each trial runs in a worker process with one thread for linear algebra, so results do not depend on ``workers``. A
    failed trial or killed process does not stop the others.

    Args:
        trials: Trials that ``plan`` returned.
        workers: Number of processes, at least 1; or ``Workers`` of another engine, whose code is trusted.
        on_run: Called at the end of each trial.
    """
    workers = Workers.of(count=workers) if isinstance(workers, int) else workers
    outcomes: dict[int, Outcome] = {}

    def add(number: int, outcome: Outcome) -> None:
        outcomes[number] = outcome
        if on_run is not None:
            on_run(outcome)

    pending = dict[str, int]()
    for number, trial in enumerate(trials):
        summary = None
        with suppress(RunFolderError):  # damaged: running it fails with the same message, and the others go on
            summary = completed_summary(trial.scenario, trial.out, trial.trust)
        if summary is not None:
            add(number, Outcome(trial, "skipped"))
        else:
            pending[f"trial {number}"] = number
    if not pending:
        return [outcomes[number] for number in range(len(trials))]
    workers = msgspec.structs.replace(workers, count=min(workers.count, len(pending)))
    executor = make_executor(workers, _make_worker, None, None, trials[0].scenario.modules or ())
    try:
        for task, number in pending.items():
            executor.submit(task, trials[number])
        while pending:
            for ended in executor.poll(1.0):
                number = pending.pop(ended.task)
                reason = _KILLED if ended.status == "lost" else str(ended.value)
                add(number, ended.value if ended.status == "done" else Outcome(trials[number], "failed", reason))
    finally:  # also after an interrupt: running trials can be resumed later, and no other begins
        executor.close()
    return [outcomes[number] for number in range(len(trials))]


def _make_worker() -> Callable[[str, Trial], Outcome]:
    return _run_trial


def _run_trial(task: str, trial: Trial) -> Outcome:
    try:
        has_begun = RunFolder.holds_run(trial.out) and RunFolder.open(trial.out).scenario() == trial.scenario
        if has_begun:
            resume(trial.out, trust=trial.trust)
        else:
            run(trial.scenario, trial.out, trust=trial.trust)
    except SwarmboError as error:
        return Outcome(trial, "failed", str(error))
    except (Exception, SystemExit) as error:  # noqa: BLE001  a world's own failure: reported, the others continue
        return Outcome(trial, "failed", error_text(error))
    return Outcome(trial, "resumed" if has_begun else "done")


def folder_name(text: str) -> str:
    """Text as one safe part of a path; a digest distinguishes shortened texts."""
    safe = re.sub(r"[^\w.=,+-]+", "_", text, flags=re.ASCII).strip(".")
    if safe == text and len(safe) <= _LONGEST_SLUG:
        return safe
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=4).hexdigest()
    return f"{safe[: _LONGEST_SLUG - 9]}-{digest}"
