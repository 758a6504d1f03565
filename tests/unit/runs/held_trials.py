"""Trials of a sweep that wait after each round while a file exists, in any process."""

import importlib
import os
import time
from functools import partial

from swarmbo.runs import run

PATIENCE_S = 120.0


class HeldTrials:
    """Work for a sweep's processes. A waiting trial writes its process id beside its folder."""

    def __call__(self):
        return self.execute

    def execute(self, task, trial):
        module = importlib.import_module("swarmbo.runs.sweep")
        module.run = partial(run, on_round=partial(_wait, trial.out))
        return module._run_trial(task, trial)


def hold(trial):
    """Make a trial wait after its next round. Works before the sweep and while it runs."""
    trial.out.parent.mkdir(parents=True, exist_ok=True)
    trial.out.with_suffix(".hold").touch()


def release(trial):
    """Let a trial continue."""
    trial.out.with_suffix(".hold").unlink()


def process_of(trial):
    """Wait until a trial waits, and return its process id."""
    return int(text_of(trial.out.with_suffix(".pid")))


def text_of(path):
    """Wait until a file has content, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (path.is_file() and path.stat().st_size):
        assert time.monotonic() < deadline, f"{path}: nothing came"
        time.sleep(0.002)
    return path.read_text()


def _wait(out, record, was_logged):
    if not out.with_suffix(".hold").exists():
        return
    made = out.with_suffix(".new")
    made.write_text(str(os.getpid()))
    made.rename(out.with_suffix(".pid"))
    deadline = time.monotonic() + PATIENCE_S
    while out.with_suffix(".hold").exists() and time.monotonic() < deadline:
        time.sleep(0.002)
