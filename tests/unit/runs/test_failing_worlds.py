"""If an environment raises, ends its process, hangs or answers nonsense, the run still records all its rounds."""

import dataclasses
import itertools
import os
import re
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pettingzoo
import pytest
from gymnasium.spaces import Box

from swarmbo.boundary.processes import picklable
from swarmbo.boundary.rng import stream
from swarmbo.errors import ConfigError, RunFolderError
from swarmbo.runs import RunFolder, check, load, resume, run
from swarmbo.runs.child_processes import _StepFailure
from swarmbo.runs.figures import _with_world_rounds, draw_run, world_of
from swarmbo.runs.report import report_rows
from swarmbo.runs.rounds import Hooks
from swarmbo.runs.runner import _resume
from swarmbo.runs.scenario import scenario_of
from swarmbo.runs.trial import _limit_memory, estimate
from swarmbo.spaces import Domain
from swarmbo_envs.functions.function_world import FunctionWorld
from swarmbo_envs.sensor_field.sensor_field import SensorField


def log(path):
    return (path / "rounds.jsonl").read_bytes()


@pytest.mark.parametrize("keeps_state", [True, False])
@pytest.mark.parametrize("error", [RuntimeError("the sea floor\nopened"), SystemExit(3), SystemExit()])
def test_a_round_whose_step_raises_is_recorded_as_failed_and_the_run_continues(mischief, played, error, keeps_state):
    mischief.raises = lambda steps: error if steps == 3 else None
    summary, records = played(rounds=6, environment={"keeps_state": keeps_state})
    assert [record.round for record in records] == list(range(7))
    failed = records[3]
    assert failed.failure.startswith(type(error).__name__)
    assert failed.failure.endswith(")")
    assert "\n" not in failed.failure
    assert [sample.measurement for sample in failed.samples] == [None, None]
    assert all(sample.target is not None for sample in failed.samples)
    assert [record.failure for record in records if record.round != 3] == [None] * 6
    assert (summary.measurements, summary.failures) == (12, 2)
    assert mischief.made[-1].round == 5  # the environment completed five rounds
    assert dict(report_rows(summary))["rounds failed by the environment"] == "1"
    # its state was restored: later rounds measure like those of a working environment, one round behind
    for number, record in enumerate(records[4:], start=3):
        for sample in record.samples:
            noise = 0.01 * stream(0, "bump", "noise", agent=sample.agent, round=number).normal()
            truth = np.exp(-4.0 * ((np.array(sample.location) - 0.7) ** 2).sum())
            assert sample.measurement == pytest.approx(truth + noise, abs=1e-12)


@pytest.mark.parametrize("keeps_state", [True, False])
def test_a_run_with_failed_rounds_resumes_to_the_same_bytes_without_retrying_them(
    tmp_path, mischief, bump_scenario, interrupted, keeps_state
):
    scenario = bump_scenario(rounds=6, environment={"keeps_state": keeps_state})
    mischief.raises = lambda steps: RuntimeError("a wave") if steps == 3 else None
    run(scenario, tmp_path / "whole")
    mischief.steps = 0
    interrupted(scenario, tmp_path / "half", 4)
    mischief.raises = lambda steps: None
    resume(tmp_path / "half")
    assert log(tmp_path / "half") == log(tmp_path / "whole")


@pytest.fixture
def priced(bump_scenario, monkeypatch):
    """The small test world with agents that may abstain, and that need not state their location."""
    world_id = bump_scenario().environment["id"]
    spec = pettingzoo.parallel_registry[world_id]

    class Priced(spec.entry_point):
        silent, price = (), 0.0

        def action_space(self, agent):
            return Box(0.0, 1.0, (3,), dtype=np.float64)

        def prices(self):
            return {"agent_0": 0.0, "agent_1": self.price}

        def _measure(self, places):
            infos = super()._measure({agent: place[:2] for agent, place in places.items()})
            for agent, place in places.items():
                if len(place) == 3 and place[2] < 0.5:
                    infos[agent] = {"sampled": False}
                elif agent in self.silent:
                    infos[agent]["location"] = (0.5,) if self.round == 2 else None
            return infos

    priced_spec = dataclasses.replace(spec, entry_point=Priced)
    monkeypatch.setitem(pettingzoo.parallel_registry, world_id, priced_spec)
    return Priced


@pytest.mark.parametrize("silent", [("agent_0",), ("agent_0", "agent_1")])
@pytest.mark.parametrize("tells_truth", [True, False])
def test_agents_that_may_abstain_need_not_report_their_location(tmp_path, played, priced, blank, silent, tells_truth):
    priced.silent = silent
    summary, records = played(environment={"tells_truth": tells_truth}, coordination="independent")
    assert {len(sample.location) for record in records[1:] for sample in record.samples} == {2}
    assert [sample.location for sample in records[1].samples] == [sample.target[:2] for sample in records[1].samples]
    assert records[2].samples[0].failure.startswith("location: got (0.5,)")
    assert len(summary.best.location) == 2
    assert draw_run(tmp_path / "run")


def test_agents_that_abstain_do_not_fail_in_a_round_whose_step_raises(mischief, priced, played):
    priced.price = 0.4
    mischief.raises = lambda steps: RuntimeError("a wave") if steps == 4 else None
    summary, records = played(rounds=5, coordination="independent")
    assert [[sample.declined for sample in record.samples] for record in records if record.failure] == [[False, True]]
    assert summary.failures == 1


def test_a_run_whose_every_round_fails_ends(mischief, played):
    mischief.raises = lambda steps: SystemExit("no licence")
    summary, _ = played()
    assert (summary.rounds, summary.measurements, summary.failures) == (4, 2, 8)


def test_an_interrupt_is_not_a_failure_of_the_environment(tmp_path, mischief, bump_scenario):
    mischief.raises = lambda steps: KeyboardInterrupt() if steps == 2 else None
    with pytest.raises(KeyboardInterrupt):
        run(bump_scenario(), tmp_path / "run")


@pytest.mark.parametrize("value", [1e60, -1e60, np.inf, np.nan, 1e308])
def test_a_run_with_absurd_measurements_ends(mischief, played, value):
    mischief.outcome = lambda number: value if number in (2, 3) else None
    summary, records = played(coordination="exact")
    assert (summary.rounds, len(records)) == (4, 5)


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        ({"location": "here"}, "location: got 'here'; wanted 2 numbers " + Domain.NEAR),
        ({"location": [0.5, 0.5, 0.5]}, "location: got [0.5, 0.5, 0.5]; wanted 2 numbers " + Domain.NEAR),
        ({"location": [1e9, 0.5]}, "location: got [1000000000.0, 0.5]; wanted 2 numbers " + Domain.NEAR),
        ({"measurement": "12"}, "measurement: got '12'; wanted a number"),
        ({"path": [[0.0, 0.0, 0.0], [0.5, 0.5, 0.5]]}, None),
    ],
)
def test_the_log_has_the_accepted_outcomes_and_the_reasons_for_refused_ones(mischief, played, report, reason):
    mischief.told = lambda agent: report if agent == "agent_0" else {}
    summary, records = played(coordination="exact")
    samples = [sample for record in records[1:] for sample in record.samples if sample.agent == "agent_0"]
    assert [sample.failure or None for sample in samples] == [reason] * 4
    assert all((sample.measurement is None) == (reason is not None) for sample in samples)
    assert all(np.shape(sample.location) == (2,) and not sample.path for sample in samples)
    assert summary.best.location[0] <= 1.0


def test_the_log_says_why_an_evaluation_at_an_unknown_point_failed(tmp_path, monkeypatch):
    step = FunctionWorld.step

    def lost(self, actions):
        *result, infos = step(self, actions)
        return *result, infos | {"agent_0": infos["agent_0"] | {"location": "here"}}

    monkeypatch.setattr(FunctionWorld, "step", lost)
    summary = run(load("camel", ["rounds=2"]), tmp_path / "run")
    assert (summary.measurements, summary.failures) == (0, 2)
    record = RunFolder(tmp_path / "run").records()[1]
    (sample,) = (sample for sample in record.samples if sample.agent == "agent_0")
    assert (sample.measurement, record.joint.measurement) == (None, None)
    assert sample.failure == "location: got 'here'; wanted the form of an action"


@pytest.mark.parametrize(("index", "name"), [(0, "observations"), (4, "infos")])
def test_a_step_without_a_table_is_a_failed_round(tmp_path, monkeypatch, index, name):
    step = FunctionWorld.step

    def without(self, actions):
        result = list(step(self, actions))
        result[index] = None
        return result

    monkeypatch.setattr(FunctionWorld, "step", without)
    assert run(load("camel", ["rounds=2"]), tmp_path / "run").failed_rounds == 2
    assert f"step() returned {name} None; wanted a table by agent" in RunFolder(tmp_path / "run").records()[1].failure


@pytest.mark.parametrize("returned", [None, ({}, {}, {}, {})])
def test_a_step_that_returns_no_five_tables_is_named(tmp_path, monkeypatch, returned):
    monkeypatch.setattr(FunctionWorld, "step", lambda self, actions: returned)
    wanted = "wanted observations, rewards, terminations, truncations, infos"
    reason = f"$.environment: step() returned {returned and '({}, {}, {}, {})'}; {wanted}"
    threads = ["rounds=2", "workers.engine=concurrent.futures:ThreadPoolExecutor"]
    for number, more in enumerate((["rounds=2"], threads)):
        run(load("camel", more, trust=True), tmp_path / f"run{number}", trust=True)
        assert RunFolder(tmp_path / f"run{number}").records()[1].failure == f"ConfigError: {reason}"
    with pytest.raises(ConfigError, match=re.escape(reason)):
        run(load("camel", ["when_step_fails=stop"]), tmp_path / "stops")


@pytest.mark.parametrize("use", [check, lambda scenario: run(scenario, Path("nowhere"))])
def test_a_reset_that_returns_no_pair_is_refused(monkeypatch, tmp_path, bump_scenario, use):
    monkeypatch.chdir(tmp_path)
    maker = pettingzoo.spec("parallel", "tests/bump-v0").entry_point
    monkeypatch.setattr(maker, "reset", lambda self, seed=None, options=None: None)
    with pytest.raises(
        ConfigError, match=r"^\$\.environment: .*reset\(\) returned None; wanted observations and infos"
    ):
        use(bump_scenario())


@pytest.mark.parametrize("use", [check, lambda scenario: run(scenario, Path("nowhere"))])
def test_a_reset_that_would_end_the_process_is_refused(monkeypatch, tmp_path, mischief, bump_scenario, use):
    def leave(self, seed=None, options=None):
        raise SystemExit(1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pettingzoo.spec("parallel", "tests/bump-v0").entry_point, "reset", leave)
    with pytest.raises(ConfigError, match=r"^\$\.environment: .*its reset ended with SystemExit: 1"):
        use(bump_scenario())


def test_a_changing_field_does_not_advance_in_a_failed_round(tmp_path, monkeypatch, interrupted):
    """Scores and figures show the field in the environment's own round, which is one behind after the failure."""
    step, steps, truths = SensorField.step, [], []

    def fails_once(self, actions):
        steps.append(actions)
        if len(steps) == 2:
            raise RuntimeError
        truths.append(self.unwrapped.ground_truth())
        return step(self, actions)

    monkeypatch.setattr(SensorField, "step", fails_once)
    scenario = load("field-plume", ["rounds=3", "environment.sensors=3", "belief.kind=exact", "belief.restarts=0"])
    summary = run(scenario, tmp_path / "run")
    assert summary.maximum == truths[-1].at(2).maximum != truths[-1].at(3).maximum
    folder = RunFolder(tmp_path / "run")
    steps.clear()

    interrupted(scenario, tmp_path / "half", 2)
    resume(tmp_path / "half")
    assert log(tmp_path / "half") == log(tmp_path / "run")
    shown = _with_world_rounds(world_of(folder), folder.records())
    assert [float(shown.at(number).maximum) for number in range(4)] == [
        truths[-1].at(number).maximum for number in (0, 1, 1, 2)
    ]


HANGING = """
import os, time
import numpy as np
from gymnasium.spaces import Box
from pettingzoo import ParallelEnv

class Hanging(ParallelEnv):
    metadata = {"name": "hanging_v0"}
    render_mode = None

    def __init__(self, max_cycles=5, hangs=0, exits=0, keeps_state=True, resets=True):
        self.possible_agents = ["a", "b"]
        self.hangs, self.exits, self.resets = hangs, exits, resets
        if keeps_state:
            self.get_state = lambda: {"json": {"round": self.round}, "arrays": {}}

    def set_state(self, state):
        self.round = state["json"]["round"]

    def action_space(self, agent):
        return self.box

    observation_space = action_space
    box = Box(0.0, 1.0, (2,), dtype=np.float64)

    def reset(self, seed=None, options=None):
        while not self.resets:
            pass
        self.round, self.agents = 0, list(self.possible_agents)
        return dict.fromkeys(self.agents), {agent: {} for agent in self.agents}

    def step(self, actions):
        if self.round + 1 == self.hangs and not os.path.exists(f"hung-{self.hangs}"):
            open(f"hung-{self.hangs}", "w").close()
            while True:
                time.sleep(1.0)  # a reset that hangs is busy
        if self.round + 1 == self.exits and not os.path.exists(f"left-{self.exits}"):
            open(f"left-{self.exits}", "w").close()
            os._exit(7)
        self.round += 1
        infos = {agent: {"measurement": float(place.sum()), "location": place} for agent, place in actions.items()}
        flags = dict.fromkeys(self.agents, False)
        return dict.fromkeys(self.agents), dict.fromkeys(self.agents, 0.0), flags, flags, infos
"""


@pytest.fixture
def hanging(tmp_path, monkeypatch):
    """An environment that other processes can import, and that hangs once or ends its process once."""
    (tmp_path / "hanging_world.py").write_text(textwrap.dedent(HANGING))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    pettingzoo.register("parallel", "tests/hanging-v0", "hanging_world:Hanging")
    kinds = {"coordination": {"kind": "random"}, "belief": {"restarts": 0}}
    plain = {"name": "hanging", "rounds": 5, "step_timeout_s": 2.0, **kinds}
    yield lambda **settings: scenario_of({**plain, "environment": {"id": "tests/hanging-v0", **settings}})
    del pettingzoo.parallel_registry["tests/hanging-v0"]


def test_steps_that_hang_or_end_their_process_are_recorded_and_the_run_continues(tmp_path, hanging):
    watched = []
    scenario = hanging(hangs=2, exits=3)
    summary = run(scenario, tmp_path / "run", on_round=lambda record, was_logged: watched.append(record.round))
    records = RunFolder(tmp_path / "run").records()
    assert [record.round for record in records] == sorted(set(watched)) == list(range(6))
    assert records[2].failure == "no answer within 2 s"
    assert records[4].failure == "the world ended its process, with status 7"  # the third round of the environment
    assert [len([s for s in record.samples if s.measurement is not None]) for record in records[1:]] == [2, 0, 2, 0, 2]
    assert (summary.rounds, summary.failures) == (5, 4)
    assert resume(tmp_path / "run") == summary


def test_a_pause_of_the_run_does_not_count_as_time_of_a_step(tmp_path, hanging, monkeypatch):
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 100.0).__next__)  # each check comes after a pause
    monkeypatch.setattr("swarmbo.runs.child_processes.time", clock)
    assert run(msgspec.structs.replace(hanging(), step_timeout_s=60.0), tmp_path / "run").failed_rounds == 0


@pytest.mark.slow
def test_a_hang_of_an_environment_without_saved_states_is_recorded(tmp_path, hanging):
    run(hanging(hangs=3, keeps_state=False), tmp_path / "run")
    records = RunFolder(tmp_path / "run").records()
    assert [record.failure for record in records] == [None, None, None, "no answer within 2 s", None, None]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"resets": False}, "its reset failed: no answer within 2 s"),
        ({"colour": "red"}, "refused its settings: TypeError"),
    ],
)
def test_a_failed_reset_or_refused_settings_in_the_child_process_are_an_error_here(
    tmp_path, hanging, settings, message
):
    with pytest.raises(ConfigError, match=rf"^\$\.environment: .*{message}"):
        run(hanging(**settings), tmp_path / "run")


def test_a_time_limit_needs_an_environment_that_another_process_can_make(tmp_path, hanging):
    known = pettingzoo.parallel_registry
    known["tests/hanging-v0"] = dataclasses.replace(known["tests/hanging-v0"], entry_point=lambda **settings: None)
    with pytest.raises(ConfigError, match=r"^\$\.step_timeout_s: .*cannot be made in a separate process"):
        run(hanging(), tmp_path / "run")


@pytest.mark.slow
def test_an_environment_that_hangs_does_not_block_an_estimate_of_its_time(hanging, monkeypatch):
    monkeypatch.setattr("swarmbo.runs.trial.PATIENCE_S", 2.0)
    assert estimate(hanging(resets=False)).text() == "more than 2 s"
    estimated = estimate(hanging(hangs=1)).text()  # five rounds of at least 0.5 s on average
    assert estimated == "more than 2 s (belief exact, coordination random)"


def test_a_step_that_was_logged_just_before_its_process_was_killed_stays_valid(tmp_path, bump_scenario, interrupted):
    scenario = bump_scenario(environment={"keeps_state": False})
    run(scenario, tmp_path / "whole")
    interrupted(scenario, tmp_path / "half", 2)
    _resume(tmp_path / "half", False, Hooks(known_failures={2: "no answer within 2 s"}))
    assert log(tmp_path / "half") == log(tmp_path / "whole")


def test_a_logged_round_that_hangs_when_repeated_is_an_error(tmp_path, hanging, monkeypatch):
    ends = iter([_StepFailure(2, "no answer within 2 s")] * 2)
    monkeypatch.setattr("swarmbo.runs.child_processes._run_in_child", lambda *given: next(ends))
    with pytest.raises(RunFolderError, match="round 2 is logged and cannot be repeated: no answer within 2 s"):
        run(hanging(), tmp_path / "run")


def test_an_exception_that_cannot_be_sent_still_says_where_it_was_raised():
    class LocalError(Exception):
        pass

    try:
        raise LocalError("the sea floor opened")
    except LocalError as error:
        sent = picklable(error)
    assert str(sent) == "LocalError: the sea floor opened"
    assert "in test_an_exception_that_cannot_be_sent" in sent.__notes__[0]


@pytest.mark.skipif(os.name == "nt", reason="there are no such limits")
def test_memory_is_not_limited_if_the_system_refuses_to(monkeypatch):
    """Like macOS, where every process reserves more addresses than there is memory."""

    def refuse(*given):
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("resource.setrlimit", refuse)
    _limit_memory()


@pytest.mark.parametrize(
    "wrong",
    [
        {"goal": "maximum"},
        {"unit": None},
        {"maximum": np.nan},
        {"maximum": np.inf},
        {"level": np.nan},
        {"argmax": np.full(2, np.nan)},
    ],
)
def test_a_truth_that_could_not_be_read_again_is_refused_before_the_first_round(
    tmp_path, mischief, bump_scenario, monkeypatch, wrong
):
    check(scenario := bump_scenario(rounds=3))
    world = type(mischief.made[-1])
    true = world._truth
    monkeypatch.setattr(world, "_truth", lambda self: dataclasses.replace(true(self), **wrong))
    with pytest.raises(ConfigError, match=r"^\$\.environment: labels or ground_truth\(\): "):
        run(scenario, tmp_path / "out")
    assert not (tmp_path / "out" / "rounds.jsonl").exists()
