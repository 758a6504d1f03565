import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.evaluations import Workers
from swarmbo.registry import name_of
from swarmbo.runs import RunFolder, load, plan, run, sweep
from swarmbo.runs.reading import read_summary
from swarmbo.runs.stored_files import locked
from swarmbo.runs.sweep import _run_trial, folder_name, setting_slug

sys.path.append(str(Path(__file__).parent))  # workers also import from this folder

from held_trials import HeldTrials, hold, process_of, release, text_of

IN_THREADS = Workers(engine="concurrent.futures:ThreadPoolExecutor")  # threads start at once
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows, SIGTERM also kills at once

FILE = """
name = "small"
rounds = 2
seed = 5
[environment]
id = "swarmbo/robot_team-v0"
robots = 2
field = { gp = { lengthscale_m = 800.0 } }
[belief]
restarts = 0
[coordination]
kind = "random"
"""


@pytest.fixture
def small(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(FILE)
    return file


def test_every_combination_is_planned_with_seeds_that_begin_at_the_scenario_s(tmp_path, small):
    alternatives = ["coordination.kind=random,independent", "environment.noise_std=0.1,0.2", "rounds=3"]
    trials = plan(small, 3, ["belief.kernel=rbf", *alternatives], tmp_path)
    planned = [trial.scenario for trial in trials]
    found = {(type(one.coordination).__name__, one.environment["noise_std"], one.seed) for one in planned}
    assert found == set(itertools.product(("Random", "Independent"), (0.1, 0.2), (5, 6, 7)))
    assert {one.rounds for one in planned} == {3}
    assert len({trial.out for trial in trials}) == 12
    settings = "coordination.kind=random,environment.noise_std=0.1,belief.kernel=rbf,rounds=3"
    assert trials[0].out == tmp_path / "small" / settings / "seed-005"


def test_alternatives_of_a_table_can_be_kinds_or_whole_tables(tmp_path, small):
    trials = plan(small, 1, ['belief={kind = "exact", kernel = "rbf"},fused,{ restarts = 1 }'], tmp_path)
    beliefs = [trial.scenario.belief for trial in trials]
    assert [name_of(belief) for belief in beliefs] == ["exact", "fused", "exact"]
    assert (beliefs[0].kernel, beliefs[2].restarts) == ("rbf", 1)
    assert len({trial.out for trial in trials}) == 3


def test_invalid_settings_are_found_before_anything_runs(tmp_path, small):
    with pytest.raises(ConfigError, match=r"^\$\.environment\.noise_std: "):
        plan(small, 2, ["environment.noise_std=0.1,-1"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_repeated_alternative_is_refused(small):
    with pytest.raises(ConfigError, match="got rounds=3 twice"):
        plan(small, 1, ["rounds=3,4,3"])


def test_less_than_one_seed_or_process_is_refused(small):
    for n_seeds in (0, -3, 2.5, True):
        with pytest.raises(ConfigError, match="wanted an integer >= 1"):
            plan(small, n_seeds)
    with pytest.raises(ConfigError, match="integer from 1 to 4096"):
        sweep([], workers=0)


def test_a_sweep_skips_complete_trials_resumes_unfinished_ones_and_changes_no_other_run(tmp_path, small, interrupted):
    trials = plan(small, 4, ["coordination.kind=independent"], tmp_path)
    half, done, other, fresh = (trial.out for trial in trials)
    run(trials[1].scenario, done)
    run(load(small, ["rounds=1", "seed=7"]), other)

    interrupted(trials[0].scenario, half, 1)
    with (half / "rounds.jsonl").open("ab") as log:
        log.write(b'{"round":')  # incomplete
    watched = []
    outcomes = sweep(trials, workers=2, on_run=watched.append)
    assert [outcome.status for outcome in outcomes] == ["resumed", "skipped", "failed", "done"], [
        outcome.message for outcome in outcomes
    ]
    assert "holds another run (it differs in rounds, coordination.kind); " in outcomes[2].message
    assert sorted(outcome.status for outcome in watched) == ["done", "failed", "resumed", "skipped"]
    assert [len(RunFolder(path).records()) for path in (half, done, other, fresh)] == [3, 3, 2, 3]
    assert [outcome.status for outcome in sweep(trials[:2])] == ["skipped", "skipped"]
    for trial in (trials[0], trials[3]):  # the same bytes as alone in a process
        run(trial.scenario, tmp_path / trial.out.name)
        assert (trial.out / "rounds.jsonl").read_bytes() == (tmp_path / trial.out.name / "rounds.jsonl").read_bytes()


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.thorough), pytest.param(2, marks=pytest.mark.slow)]
)
def test_a_killed_process_fails_only_its_own_trial(tmp_path, small, monkeypatch, workers):
    """With two workers, another trial is also running. It waits until the first has failed."""
    monkeypatch.setattr(sys.modules["swarmbo.runs.sweep"], "_make_worker", HeldTrials())
    trials = plan(small, 3, ["rounds=4"], tmp_path)
    killed, other, _ = trials
    held = trials[:workers]
    for trial in held:
        hold(trial)

    def kill_in_mid_run():
        pids = [process_of(trial) for trial in held]
        os.kill(pids[0], KILL)

    watched = []

    def release_once_one_has_failed(outcome):
        watched.append(outcome)
        if outcome.trial == killed and workers == 2:
            release(other)

    killer = threading.Thread(target=kill_in_mid_run)
    killer.start()
    outcomes = sweep(trials, workers=workers, on_run=release_once_one_has_failed)
    killer.join()
    assert [outcome.status for outcome in outcomes] == ["failed", "done", "done"]
    assert watched[0] == outcomes[0]
    assert {id(outcome) for outcome in watched} == {id(outcome) for outcome in outcomes}
    assert "was killed" in outcomes[0].message
    assert "the same command goes on" in outcomes[0].message
    assert [len(RunFolder(trial.out).records()) for trial in trials] == [1, 5, 5]
    monkeypatch.undo()
    assert [outcome.status for outcome in sweep(trials, IN_THREADS)] == ["resumed", "skipped", "skipped"]
    assert len(RunFolder(killed.out).records()) == 5


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_processes_of_a_killed_sweep_end(tmp_path, small):
    """The locks of their folders are released."""
    settings = ["--set", "rounds=500", "--seeds", "2", "--workers", "2", "--out", tmp_path, "--quiet"]
    command = [sys.executable, "-m", "swarmbo", "sweep", small, *settings]
    parent = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    folders = [tmp_path / "small" / "rounds=500" / f"seed-00{seed}" for seed in (5, 6)]
    for folder in folders:
        text_of(folder / "rounds.jsonl")
    parent.kill()
    parent.wait()
    for folder in folders:
        assert len(RunFolder(folder).records()) < 501
        wait_until_free(folder)


def wait_until_free(folder):
    deadline = time.monotonic() + 120
    while True:
        try:
            with locked(folder):
                return
        except RunFolderError:
            assert time.monotonic() < deadline, "a process of the sweep is still there"
            time.sleep(0.05)


def test_an_environment_that_ends_the_process_fails_only_its_trial(tmp_path, small, monkeypatch):
    def leave(scenario, out, **_):
        raise SystemExit(3)

    trial = plan(small, 1, out=tmp_path)[0]
    monkeypatch.setattr(sys.modules["swarmbo.runs.sweep"], "run", leave)
    outcome = _run_trial("trial 0", trial)
    assert outcome.status == "failed"
    assert outcome.message.startswith("SystemExit: 3")


def test_a_run_does_not_depend_on_the_number_of_threads(tmp_path, small):
    scenario = load(small, ["environment.field.gp.lengthscale_m=300", "coordination.kind=independent"])
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            run(scenario, tmp_path / str(threads))
    logs = [(tmp_path / threads / "rounds.jsonl").read_bytes() for threads in ("1", "2")]
    assert logs[0] == logs[1]


def test_settings_that_are_not_safe_file_names_get_separate_folders():
    odd = [*(f"environment.field.csv=/data/a{mark}b.csv" for mark in " :"), "x=" + "y" * 300, "x=" + "y" * 301]
    slugs = [setting_slug([text]) for text in odd]
    assert len(set(slugs)) == 4
    assert all(len(slug) <= 96 and "/" not in slug and " " not in slug for slug in slugs)
    assert setting_slug([]) == "default"
    assert folder_name("..") not in {"", ".", ".."}


@pytest.mark.thorough
def test_an_invalid_run_folder_fails_only_its_trial(tmp_path, small):
    strange, sound = plan(small, 2, out=tmp_path)
    run(sound.scenario, sound.out)
    RunFolder.create(RunFolder.make(strange.out), strange.scenario)
    (strange.out / "rounds.jsonl").mkdir()
    outcomes = sweep([strange, sound], IN_THREADS)
    assert [outcome.status for outcome in outcomes] == ["failed", "skipped"]
    assert "rounds.jsonl: got a folder; wanted a file that the run wrote" in outcomes[0].message


def _handle_interrupts():
    """Undo that a process started in the background of a shell, and its children, ignore interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no process groups that can be interrupted")
def test_an_interrupt_while_a_sweep_starts_its_processes_is_reported_in_one_line(tmp_path):
    """A terminal interrupts all processes, even those that are still importing modules and catch nothing."""
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, sys, time\n"
        "if 'spawn_main' in ' '.join(sys.orig_argv):\n"
        f"    pathlib.Path({str(tmp_path / 'starting')!r}).touch()\n"
        "    time.sleep(5)\n"
    )
    command = ["-m", "swarmbo", "sweep", "camel", "--seeds", "2", "--workers", "2", "--out", str(tmp_path / "runs")]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    alone = {"start_new_session": True, "preexec_fn": _handle_interrupts, "env": {**os.environ, "PYTHONPATH": path}}
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, text=True, **alone)
    try:
        while not (tmp_path / "starting").exists():
            assert process.poll() is None
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        _, written = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert written == "swarmbo: interrupted; the same command goes on where it stopped\n"


@pytest.mark.thorough
def test_an_interrupt_ends_the_processes_of_a_sweep_at_once(tmp_path, small):
    trials = plan(small, 3, ["rounds=3,100000"], tmp_path)  # the long ones would take hours
    before = multiprocessing.active_children()

    def interrupt(outcome):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep([trials[0], trials[3]], workers=2, on_run=interrupt)
    assert [process for process in multiprocessing.active_children() if process not in before] == []
    assert [outcome.status for outcome in sweep(trials[:1])] == ["skipped"]


CHEAP = ["rounds=1", "environment.robots=2", "belief.restarts=0", "coordination.kind=random"]


def meet(folder, n_times, seed):
    """Let two processes run into the same folder n times, at random offsets; count how often both succeed."""
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
            # Both may succeed if they run the same scenario, or if the second replaces the first after its end.
            assert errors != [None, None] or force or same
            last = 0 if same or errors[1] is not None else 1
            there = RunFolder.open(out)
            assert there.scenario() == scenarios[last]
            assert (out / "rounds.jsonl").read_bytes() == logs[last]
            assert read_summary(there) is not None
            assert len(there.timings()) == 2
    return both


@pytest.mark.slow
def test_200_collisions_of_two_runs_each_leave_one_complete_run(tmp_path):
    assert 0 < meet(tmp_path, 200, 1) < 200
