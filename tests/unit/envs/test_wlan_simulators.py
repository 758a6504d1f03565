"""A simulator that is killed, hangs or answers nonsense costs one outcome, not the run. No ns-3 is needed here."""

import copy
import json
import os
import pickle
import sys
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from swarmbo.errors import ConfigError, StateVersionError
from swarmbo.runs import run, scenario
from swarmbo.runs.figures import draw_run, world_of
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.reading import load_run
from swarmbo.runs.report import reference_table, report_rows
from swarmbo_envs import wlan_power_v0
from swarmbo_envs.wlan_power.ns3 import Children, Failure, Library, radio

FAKE = Path(__file__).with_name("fake_simulator.py")
TRIANGLE = {"access_points": [[0, 0], [60, 0], [30, 50]], "users": [[5, 5], [40, 0], [30, 40]], "serving": [0, 1, 1]}
THROUGHPUT = {"radio": "ns3", "objective": "throughput", "topology": TRIANGLE}
QUESTION = {"users": 2, "power_dbm": [3.0, 5.0], "serving": [1, 0], "objective": "throughput", "run": 1}
FAULTS = {
    "killed": "killed by SIGKILL",
    "ended": "ended with code 3",
    "hung": "did not answer within 1 s",
    "half": "ended with code 0",
    **dict.fromkeys(("garbage", "list", "wrong id", "too few", "nan", "negative", "text"), "no answer"),
}


@pytest.fixture
def plan(tmp_path):
    """Write the behaviours of the simulators to a file, and return its path."""

    def write(*behaviours):
        (tmp_path / "plan").write_text(json.dumps(behaviours))
        return tmp_path / "plan"

    return write


@pytest.fixture
def simulated(plan, monkeypatch):
    """A WLAN with the stand-in for ns-3."""
    made = []

    def make(*behaviours, timeout_s=1.0, simulation=None, **settings):
        found = Library(plan(*behaviours), Path("/nowhere"), "3.99")
        monkeypatch.setattr(radio, "compiled_library", lambda: found)
        monkeypatch.setattr(radio, "_CHILD", FAKE)
        settings = {"simulation": {"timeout_s": timeout_s} | (simulation or {}), **THROUGHPUT, **settings}
        made.append(wlan_power_v0.parallel_env(**settings))
        made[-1].reset(seed=0)
        return made[-1]

    yield make
    for env in made:
        env.close()


def children_of(path, **settings):
    return Children([sys.executable, str(FAKE), str(path)], is_answer=radio._is_answer, **settings)


def started(path):
    """Ids of the started processes."""
    return [int(line) for line in path.with_name("started").read_text().split()]


def is_there(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def measure(env, power=10.0):
    return env.step({agent: [power + i] for i, agent in enumerate(env.agents)})[4]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_one_answer_and_one_process(plan, fault):
    path = plan("answer", fault, "answer")
    children = children_of(path, timeout_s=1.0)
    answers = [children.ask([QUESTION])[0] for _ in range(4)]
    assert [answers[i]["mbps"] for i in (0, 2, 3)] == [[5.0, 3.0]] * 3
    assert isinstance(answers[1], Failure)
    assert FAULTS[fault] in answers[1].reason
    assert answers[1].output == ("NS_FATAL, terminating" if fault == "ended" else "")
    assert len(pids := started(path)) == 2
    assert not is_there(pids[0])
    children.close()
    assert not is_there(pids[1])


def test_a_process_that_ended_between_two_requests_is_replaced_without_a_failure(plan):
    path = plan("dead afterwards")
    children = children_of(path)
    assert children.ask([QUESTION])[0]["mbps"] == [5.0, 3.0]
    child = children._pool.get()
    children._pool.put(child)
    while child.is_running:
        time.sleep(0.01)
    assert children.ask([QUESTION])[0]["mbps"] == [5.0, 3.0]
    children.close()


def test_parallel_requests_keep_their_order_and_one_fault_does_not_affect_the_others(plan):
    path = plan("answer", "killed")
    children = children_of(path, processes=3)
    answers = children.ask([QUESTION | {"run": run} for run in range(1, 7)])
    good = [(run, answer["mbps"][0]) for run, answer in enumerate(answers, start=1) if not isinstance(answer, Failure)]
    assert good == [(run, 5.0 * run) for run, _ in good]
    assert len(good) == 5
    children.close()
    assert not any(is_there(pid) for pid in started(path))


def test_a_process_is_replaced_after_its_maximum_number_of_uses(plan):
    path = plan()
    children = children_of(path, most_uses=2)
    for _ in range(5):
        assert children.ask([QUESTION])[0]["mbps"] == [5.0, 3.0]
    assert len(started(path)) == 3
    children.close()


def test_a_simulator_that_does_not_start_is_a_failure_with_its_reason(plan):
    assert "cannot be started" in str(Children(["/no/such/program"]).start())
    silent = Children([sys.executable, "-c", "import sys; sys.exit('no library here')"])
    assert str(silent.start()) == "the simulator ended with code 1: no library here"
    other = Children([sys.executable, "-c", "print(7)"])
    assert "no answer" in str(other.start())
    assert isinstance(other.ask([QUESTION])[0], Failure)


def test_copies_have_their_own_processes_and_deleted_objects_end_theirs(plan):
    path = plan()
    children = children_of(path)
    children.ask([QUESTION])
    for copied in (copy.deepcopy(children), pickle.loads(pickle.dumps(children))):
        assert copied.ask([QUESTION])[0]["mbps"] == [5.0, 3.0]
        copied.close()
    pids = started(path)
    assert len(set(pids)) == 3
    assert is_there(pids[0])
    del children
    assert not is_there(pids[0])


@pytest.mark.parametrize(("fault", "outcomes"), [("killed", "per-factor"), ("garbage", "total")])
def test_a_fault_is_a_failed_outcome_of_the_environment(simulated, fault, outcomes):
    env = simulated("answer", fault, outcomes=outcomes)
    before, failed, after = measure(env), measure(env), measure(env)
    wanted = [10.0, 22.0, 0.0] if outcomes == "per-factor" else [32.0] * 3  # the third access point has no users
    for good in (before, after):
        assert [info["measurement"] for info in good.values()] == wanted
        assert {json.dumps(info["source"]) for info in good.values()} == {
            '{"objective": "throughput", "radio": "ns3", "ns3": "3.99", "run": 1, "runs": 1}'
        }
    for info in failed.values():
        assert "measurement" not in info
        assert FAULTS[fault] in info["source"]["failure"]
        assert FAULTS[fault] in info["failure"]
    assert np.isnan(env.get_state()["arrays"]["totals"]).tolist() == [False, True, False]
    env.set_state(env.get_state())
    assert np.isfinite(env.state()).all()


def test_a_run_continues_after_faults_and_logs_them(simulated, tmp_path, monkeypatch):
    simulated("answer", "killed", "hung", "garbage")  # the run makes its own environment, with the same stand-in
    table = {"id": "swarmbo/wlan_power-v0", "simulation": {"timeout_s": 1.0}, **THROUGHPUT}
    wanted = scenario.scenario_of({"name": "faults", "rounds": 12, "environment": table})
    summary = run(wanted, tmp_path / "run")
    assert (summary.measurements, summary.failures) == (9, 3)
    assert report_rows(summary)[0] == ("measured", "objective throughput, radio ns3, ns3 3.99, run 1, runs 1")
    lines = [json.loads(line) for line in (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()]
    assert [line["joint"]["measurement"] is None for line in lines[1:6]] == [False, True, True, True, False]
    source = {"objective": "throughput", "radio": "ns3", "ns3": "3.99", "run": 1}
    assert all(line["source"].items() >= source.items() for line in lines[1:])
    assert "SIGKILL" in lines[2]["source"]["failure"]
    assert lines[-1]["recommendation"] is not None


def test_users_that_left_are_not_simulated_and_an_empty_network_needs_no_simulator(simulated):
    env = simulated("answer", "answer", "garbage", departures=[[2, 1], [3, 0], [3, 2]])
    measured = [[info["measurement"] for info in measure(env).values()] for _ in range(3)]
    assert measured == [[10.0, 22.0, 0.0], [10.0, 11.0, 0.0], [0.0, 0.0, 0.0]]


def test_outcomes_are_means_over_runs(simulated):
    env = simulated(simulation={"run": 3, "runs": 4, "processes": 2})
    assert [info["measurement"] for info in measure(env).values()] == [45.0, 99.0, 0.0]  # runs 3 to 6
    assert env.rules.source["runs"] == 4
    assert env.rules.source["run"] == 3


def test_capacity_is_computed_from_the_simulator_s_sinr(simulated):
    env = simulated(objective="capacity", simulation={"runs": 5}, airtime="full")
    users = 20.0 * np.log2(1.0 + np.array([10.0, 11.0, 11.0]))
    measured = [info["measurement"] for info in measure(env).values()]
    assert measured == pytest.approx([users[0], users[1] + users[2], 0.0])
    assert (env.rules.source["objective"], env.rules.source["runs"]) == ("capacity", 1)
    assert env.ground_truth() is not None
    assert simulated().ground_truth() is None


def test_a_state_of_another_objective_or_simulated_time_is_refused_but_not_of_another_timeout(simulated):
    env = simulated()
    state = env.get_state()
    simulated(timeout_s=9.0, simulation={"processes": 2}).set_state(state)
    for other in ({"objective": "capacity"}, {"simulation": {"seconds": 2.0}}, {"simulation": {"run": 2}}):
        with pytest.raises(StateVersionError, match="another environment"):
            simulated(**other).set_state(state)
    with pytest.raises(StateVersionError, match="another environment"):
        wlan_power_v0.parallel_env(topology=TRIANGLE).set_state(state)


def test_results_of_the_closed_form_name_their_objective():
    env = wlan_power_v0.parallel_env(topology=TRIANGLE)
    env.reset(seed=0)
    assert all(info["source"] == {"objective": "capacity", "radio": "closed-form"} for info in measure(env).values())
    assert env.outcomes([3.0, 4.0, 5.0]) == pytest.approx(env.network.factor_values(np.array([[3.0, 4.0, 5.0]]))[0])


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A folder that looks like the installed wheel, with its own cache."""
    (tmp_path / "ns3" / "include" / "ns3").mkdir(parents=True)
    (tmp_path / "ns3" / "include" / "ns3" / "wifi-module.h").touch()
    (tmp_path / "ns3" / "lib64").mkdir()
    (tmp_path / "ns3" / "lib64" / "libns3.99-core-default.so").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(radio, "_wheel", lambda: ("3.99", tmp_path / "ns3"))
    return tmp_path


def compiler(folder, text):
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_compiled_library_is_built_once_per_version(wheel, monkeypatch):
    says = 'echo "$@" >> "$(dirname $0)/calls"; while [ "$1" != -o ]; do shift; done; touch "$2"'
    monkeypatch.setenv("CXX", compiler(wheel, says))
    first = radio.compiled_library()
    assert radio.compiled_library() == first
    calls = (wheel / "calls").read_text().splitlines()
    assert len(calls) == 1
    assert "-lns3.99-wifi-default" in calls[0]
    assert first.path.parent == wheel / "cache" / "swarmbo"
    assert list(first.path.parent.iterdir()) == [first.path]
    assert first.environment["LD_LIBRARY_PATH"].startswith(str(wheel / "ns3" / "lib64"))
    monkeypatch.setattr(radio, "_wheel", lambda: ("3.100", wheel / "ns3"))
    assert radio.compiled_library().path != first.path
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX")
    assert radio.compiled_library().path.is_file()  # cached, so no compiler is needed


def test_errors_of_the_compiler_say_what_to_install(wheel, monkeypatch):
    monkeypatch.setenv("CXX", compiler(wheel, "echo \"x.cc:1: fatal error: 'new' file not found\" >&2; exit 1"))
    with pytest.raises(ConfigError, match=r"^\$\.radio: .* finds no standard headers .*apt install g\+\+`$"):
        radio.compiled_library()
    monkeypatch.setenv("CXX", compiler(wheel, "echo 'x.cc:9:1: error: no such member' >&2; exit 1"))
    with pytest.raises(ConfigError, match=r"cannot compile .* no such member$"):
        radio.compiled_library()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ConfigError, match=r"^\$\.radio: .* found no compiler \(g\+\+.*install g\+\+`$"):
        radio.compiled_library()
    assert list((wheel / "cache").rglob("*.so")) == []


def test_an_error_names_a_cache_that_cannot_be_written(wheel, monkeypatch):
    (wheel / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(wheel / "file"))
    monkeypatch.setenv("CXX", compiler(wheel, "true"))
    with pytest.raises(ConfigError, match="set XDG_CACHE_HOME"):
        radio.compiled_library()


def test_an_error_says_how_to_install_a_missing_wheel(monkeypatch):
    def missing(name):
        raise radio.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(radio.importlib.metadata, "distribution", missing)
    with pytest.raises(ConfigError, match=r"^\$\.radio: 'ns3' needs .* pip install \"swarmbo\[ns3\]\"$"):
        wlan_power_v0.parallel_env(radio="ns3")


@pytest.mark.thorough
def test_a_simulated_run_has_references_and_its_film_needs_no_further_simulation(simulated, tmp_path, monkeypatch):
    simulated()
    table = {"id": "swarmbo/wlan_power-v0", **THROUGHPUT}
    run(scenario.scenario_of({"name": "filmed", "rounds": 6, "environment": table}), tmp_path / "run")
    summary = load_run(tmp_path / "run").summary
    assert (summary.unit, summary.axis_unit) == ("Mbit/s", "dBm"), "also where nobody knows the truth"
    assert " Mbit/s at (" in dict(report_rows(summary))["best measurement"]
    assert world_of(RunFolder.open(tmp_path / "run")).name == "WLAN of 3 access points and 3 users"
    simple = ["best equal power", "independent tuning", "random", "sequential greedy"]
    assert set(summary.references) == {"all at maximum", *(f"{way}, by the closed form" for way in simple)}
    assert set(summary.worst_off) == {"this run", *summary.references}
    console = Console(width=120, file=StringIO())
    console.print(reference_table(summary))
    shown = console.file.getvalue()
    assert "of the reference optimum" not in shown, "nobody knows it"
    assert f"{summary.best.mean:.4g}" in next(line for line in shown.splitlines() if "this run" in line)
    asked = (tmp_path / "asked").stat().st_size
    assert "run.gif" in {path.name for path in draw_run(tmp_path / "run")}
    assert (tmp_path / "asked").stat().st_size == asked == 6 + 5 + 6  # rounds, references, worst-off users

    def missing():
        raise ConfigError("no ns-3 here")

    monkeypatch.setattr(radio, "compiled_library", missing)
    assert "variables.png" in {path.name for path in draw_run(tmp_path / "run")}
