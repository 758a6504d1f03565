"""Two processes that run into one new folder at about the same time: nothing is mixed, and nothing is lost."""

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from swarmbo.errors import RunFolderError
from swarmbo.runs import RunFolder, load, run
from swarmbo.runs.reading import read_summary

CHEAP = ["rounds=1", "environment.robots=2", "belief.restarts=0", "coordination.kind=random"]


def meet(folder, n_times, seed):
    """Let two processes run into a folder n times, at random offsets; how often both ended well."""
    rng, scenarios = np.random.default_rng(seed), [load("robots", [*CHEAP, f"seed={seed}"]) for seed in (1, 2)]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        alone = [pool.submit(run, scenario, folder / f"alone-{n}") for n, scenario in enumerate(scenarios)]
        logs = [
            future.result() and (folder / f"alone-{n}" / "rounds.jsonl").read_bytes() for n, future in enumerate(alone)
        ]
        began = time.perf_counter()
        pool.submit(run, scenarios[0], folder / "timed").result()
        seconds, both = time.perf_counter() - began, 0
        for number in range(n_times):
            out, force, same = folder / str(number), rng.random() < 0.3, rng.random() < 0.3
            first = pool.submit(run, scenarios[0], out)
            time.sleep(rng.uniform(0.0, 1.2 * seconds))
            second = pool.submit(run, scenarios[0 if same else 1], out, force=force)
            errors = [future.exception() for future in (first, second)]
            assert all(error is None or isinstance(error, RunFolderError) for error in errors), errors
            assert None in errors, errors
            both += errors == [None, None]
            # Both may end well where they want the same, or the second replaces what the first one has completed.
            assert errors != [None, None] or force or same
            last = 0 if same or errors[1] is not None else 1
            there = RunFolder.open(out)
            assert there.scenario() == scenarios[last]
            assert (out / "rounds.jsonl").read_bytes() == logs[last]
            assert read_summary(there) is not None
            assert len(there.timings()) == 2
    return both


@pytest.mark.slow
def test_200_meetings_of_two_runs_end_as_one_each(tmp_path):
    assert 0 < meet(tmp_path, 200, 1) < 200
