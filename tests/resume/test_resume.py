"""A run that is killed at any time and resumed writes the same bytes as an undisturbed run."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from swarmbo.runs import load, resume, run

FUSED = ["belief.prior.restarts=0", "belief.loss=0.3", "belief.steps=2"]
SETTINGS = {
    "robots": ["rounds=8", "environment.robots=3", "belief.restarts=1"],
    "field-plume": ["rounds=5", "environment.sensors=4", "environment.failure_rate=0.2", *FUSED],
    "camel": ["rounds=20", "environment.failure_rate=0.1", "environment.noise_std=0.1"],
}
CHEAP = ["rounds=2", "environment.robots=2", "belief.restarts=1", "coordination.kind=random"]
COMMAND = [sys.executable, "-c", "from swarmbo.cli import main; main()"]
LOG = "rounds.jsonl"


def swarmbo(*arguments):
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*COMMAND, *map(str, arguments)], **quiet)  # type: ignore[call-overload]


def start(folder, name):
    flags = [part for setting in SETTINGS[name] for part in ("--set", setting)]
    return swarmbo("run", name, "--seed", 11, "--out", folder, "--no-figures", "--quiet", *flags)


@pytest.fixture(scope="module", params=["robots", "field-plume", "camel"])
def whole(tmp_path_factory, request):
    """A scenario, the log of its undisturbed run, and the duration of that run."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    began = time.monotonic()
    run(load(request.param, ["seed=11", *SETTINGS[request.param]]), folder)
    return request.param, (folder / LOG).read_bytes(), time.monotonic() - began


def kill_and_resume(folder, whole, seed):
    """Kill the run, then the resumed run, each at a random time after its first write; then complete it."""
    name, log, seconds = whole
    rng = np.random.default_rng(seed)
    n_kills, logged = 0, 0
    for process in (start(folder, name), swarmbo("resume", folder, "--no-figures", "--quiet")):
        while not (folder / "scenario.toml").is_file() and process.poll() is None:
            time.sleep(0.002)
        time.sleep(rng.uniform(0, seconds))
        n_kills += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.communicate()
        there = (folder / LOG).read_bytes() if (folder / LOG).is_file() else b""
        assert log.startswith(there), "a logged byte is wrong"
        assert len(there) >= logged, "a logged round was lost"
        logged = there.rfind(b"\n") + 1
    resume(folder)
    assert (folder / LOG).read_bytes() == log
    return n_kills


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_runs_killed_at_20_random_moments_resume_to_the_same_bytes(tmp_path, whole):
    n_kills, seed = 0, 100
    while n_kills < 20:
        n_kills += kill_and_resume(tmp_path / str(seed), whole, seed)
        seed += 1


class Killed(BaseException):
    """Simulates the end of the process at a certain call."""


@pytest.fixture(scope="module")
def cheap(tmp_path_factory):
    """A complete run of two rounds."""
    folder = tmp_path_factory.mktemp("cheap") / "run"
    run(load("robots", CHEAP), folder)
    return folder


@pytest.mark.thorough
def test_a_run_that_ends_at_any_writing_call_resumes_to_the_same_bytes(tmp_path, monkeypatch, cheap):
    """The run ends at each of its fsyncs (data written, not yet renamed), renames and deletions in turn."""
    scenario, log = load("robots", CHEAP), (cheap / LOG).read_bytes()
    rounds = 0
    for name in ("os.fsync", "pathlib.Path.replace", "pathlib.Path.unlink"):
        module, attribute = name.rsplit(".", 1)
        owner = os if module == "os" else __import__("pathlib").Path
        call = getattr(owner, attribute)
        for last in range(1, 1000):
            count = 0

            def dies(*arguments, call=call, last=last, **more):
                nonlocal count
                count += 1
                if count == last:
                    raise Killed
                return call(*arguments, **more)

            folder = tmp_path / f"{attribute}-{last}"
            with monkeypatch.context() as patch:
                patch.setattr(owner, attribute, dies)
                try:
                    run(scenario, folder)
                except Killed:
                    rounds += 1
                else:
                    break  # the run has fewer calls than this
            if (folder / "scenario.toml").is_file():
                resume(folder)
            else:
                shutil.rmtree(folder)
                run(scenario, folder)
            assert (folder / LOG).read_bytes() == log
    assert rounds > 20


def test_a_round_with_an_incomplete_last_line_is_measured_again(tmp_path, cheap):
    log = (cheap / LOG).read_bytes()
    last = log.rstrip(b"\n").rfind(b"\n") + 1
    shutil.copytree(cheap, tmp_path / "run")
    for length in [last, last + 1, *range(last + 7, len(log), (len(log) - last) // 5), len(log) - 1]:
        (tmp_path / "run" / LOG).write_bytes(log[:length])
        resume(tmp_path / "run")
        assert (tmp_path / "run" / LOG).read_bytes() == log
