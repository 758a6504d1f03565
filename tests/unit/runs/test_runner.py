import errno
import math
import os
import shutil
import time
from types import SimpleNamespace

import msgspec
import numpy as np
import pettingzoo
import pytest

from swarmbo.belief import ExactGP, Hyperparameters
from swarmbo.errors import ConfigError, RunFolderError, StateVersionError
from swarmbo.fleet.run import _assembled
from swarmbo.records import Evaluation, Labels, RoundRecord
from swarmbo.runs import RunFolder, check, load, resume, run
from swarmbo.runs.figures import draw_run
from swarmbo.runs.recording import summarise
from swarmbo.runs.runner import assemble
from swarmbo.runs.states import read_world
from swarmbo.runs.stored_files import locked
from swarmbo.runs.trial import estimate
from swarmbo.spaces import Domain


def log(path):
    return (path / "rounds.jsonl").read_bytes()


def resumed(folder):
    """Resume a run; return the reported rounds, and whether each was already logged."""
    rounds = []
    resume(folder, on_round=lambda record, was_logged: rounds.append((record.round, was_logged)))
    return rounds


def truth(sample):
    return math.exp(-4 * sum((x - 0.7) ** 2 for x in sample.location))


@pytest.fixture(scope="module")
def whole():
    """Logs of complete runs, by settings of their environments."""
    return {}


@pytest.fixture
def crashed(tmp_path, mischief, bump_scenario, whole):
    """A run of 6 rounds whose environment crashed in the 4th, and the log of the same run without a crash."""

    def make(**environment):
        drawn = {"restarts": 1}  # fits draw random starts, whose stream must continue too
        scenario = bump_scenario(rounds=6, belief=drawn, environment=environment, when_step_fails="stop")
        if (settings := str(environment)) not in whole:
            run(scenario, tmp_path / "whole")
            whole[settings] = log(tmp_path / "whole")
        mischief.crash_at = 4
        with pytest.raises(RuntimeError, match="sea floor"):
            run(scenario, tmp_path / "crashed")
        mischief.crash_at = None
        return tmp_path / "crashed", whole[settings]

    return make


def test_environment_and_team_have_the_seed_of_the_scenario(tmp_path, mischief, bump_scenario):
    run(bump_scenario(seed=17), tmp_path / "run")
    assert mischief.made[-1].seed == 17
    assert assemble(bump_scenario(seed=17))[1].seed == 17
    assert read_world(RunFolder(tmp_path / "run")).name == "bump of seed 17"


def test_methods_with_the_same_seed_share_the_field_the_starts_and_the_noise(tmp_path, bump_scenario):
    for kind in ("random", "independent"):
        run(bump_scenario(coordination=kind, seed=5), tmp_path / kind)
    first, second = (RunFolder(tmp_path / kind).records() for kind in ("random", "independent"))
    assert first[0].samples == second[0].samples
    one, two = ([sample for record in records[1:] for sample in record.samples] for records in (first, second))
    assert [sample.location for sample in one] != [sample.location for sample in two]
    noise = [[sample.measurement - truth(sample) for sample in part] for part in (one, two)]
    np.testing.assert_allclose(noise[0], noise[1], atol=1e-12)


def test_records_and_summary_describe_the_run(played):
    summary, records = played(rounds=3)
    assert [record.round for record in records] == [0, 1, 2, 3]
    samples = [sample for record in records for sample in record.samples]
    best = max(samples, key=lambda sample: sample.measurement)
    assert (records[-1].best.location, records[-1].best.mean) == (best.location, best.measurement)
    assert summary.best == records[-1].best
    truths = [truth(sample) for sample in samples]
    assert records[-1].score.simple_regret == pytest.approx(1.0 - max(truths))
    assert summary.mean_regret == pytest.approx(1.0 - np.mean(truths[2:]))
    assert summary.distance == {"agent_0": 6.0, "agent_1": 6.0}
    assert (summary.rounds, summary.measurements, summary.failures) == (3, 8, 0)
    assert records[0].query is None
    assert [sample.target for sample in records[0].samples] == [None, None]
    assert all(sample.target == sample.location for record in records[1:] for sample in record.samples)
    assert len({record.query for record in records[1:]}) == 3
    assert [record.sharing.messages for record in records] == [0, 2, 2, 2]  # outcomes are shared before each decision


def test_predictions_are_made_by_the_belief_before_the_measurement(played, bump_scenario):

    _, records = played(rounds=3)
    settings, square = bump_scenario().belief, Domain(np.zeros(2), np.ones(2))
    for number in (1, 2, 3):
        data = [sample for record in records[:number] for sample in record.samples]
        X, y = (np.array([getattr(sample, name) for sample in data]) for name in ("location", "measurement"))
        hyperparameters = msgspec.convert(records[number - 1].hyperparameters, Hyperparameters)
        belief = ExactGP.from_hyperparameters(settings, square, hyperparameters, X, y)
        mean, var = belief.posterior(np.array([sample.target for sample in records[number].samples]))
        np.testing.assert_allclose([sample.mean for sample in records[number].samples], mean, rtol=1e-6)
        np.testing.assert_allclose([sample.std for sample in records[number].samples], np.sqrt(var), rtol=1e-6)


def test_a_log_depends_only_on_scenario_and_seed_and_not_on_the_clock(tmp_path, monkeypatch, bump_scenario):
    for name, seed in (("a", 3), ("b", 4)):
        run(bump_scenario(seed=seed), tmp_path / name)
    monkeypatch.setattr("time.perf_counter", iter(range(0, 10**6, 37)).__next__)
    run(bump_scenario(seed=3), tmp_path / "c")
    assert log(tmp_path / "a") == log(tmp_path / "c") != log(tmp_path / "b")
    assert RunFolder(tmp_path / "c").timings()[1].total == 4 * 37


def test_failed_measurements_are_recorded_as_none_and_the_run_continues(mischief, played):
    mischief.fails = lambda agent, number: number == 2 or (agent == "agent_1" and number < 2)
    summary, records = played()
    assert [s.measurement for s in records[2].samples] == [None, None]
    assert records[2].score.batch_regret is None
    assert records[2].score.simple_regret == records[1].score.simple_regret
    assert (summary.measurements, summary.failures) == (6, 4)


def test_a_run_whose_measurements_all_fail_ends(mischief, played):
    mischief.fails = lambda agent, number: True
    summary, _ = played()
    assert (summary.measurements, summary.best, summary.recommendation, summary.score) == (0, None, None, None)


@pytest.mark.parametrize(("rounds", "late"), [(1, 1), (4, 1), (8, 2), (9, 3)])
def test_late_rounds_are_the_last_quarter_rounded_up(rounds, late):
    records = [RoundRecord(n, [], joint=Evaluation([0.0], float(n))) for n in range(rounds + 1)]
    scenario = SimpleNamespace(name="mine", seed=0)
    summary = summarise(scenario, records, Labels(), None, seconds=0.0)
    assert (summary.late_rounds, summary.late_mean) == (late, rounds - 0.5 * (late - 1))


def test_an_agent_that_does_not_report_is_recorded_at_its_last_place(mischief, played):
    mischief.silent = lambda agent, number: agent == "agent_0" and number in (2, 3)
    _, records = played()
    there = records[1].samples[0].location
    for number in (2, 3):
        silent, other = records[number].samples
        assert (silent.measurement, silent.location) == (None, there)
        assert other.measurement is not None
    assert records[4].samples[0].measurement is not None


def test_an_environment_that_ends_early_ends_the_run(tmp_path, bump_scenario):
    summary = run(bump_scenario(environment={"ends_at": 2}), tmp_path / "run")
    assert summary.rounds == 2
    assert resume(tmp_path / "run") == summary


def test_a_coordination_method_can_be_given_by_name(tmp_path, bump_scenario):
    scenario = bump_scenario()
    named = msgspec.structs.replace(scenario, coordination="independent")
    assert run(named, tmp_path / "word").rounds == run(scenario, tmp_path / "usual").rounds


def test_a_run_without_a_ground_truth_has_no_scores(tmp_path, bump_scenario):
    summary = run(bump_scenario(environment={"tells_truth": False}), tmp_path / "run")
    assert (summary.score, summary.maximum, summary.mean_regret) == (None, None, None)
    assert summary.best is not None
    assert read_world(RunFolder(tmp_path / "run")).maximum is None


@pytest.mark.parametrize("keeps_state", [True, False])
def test_a_run_stopped_by_its_environment_resumes_to_the_same_bytes(crashed, keeps_state):
    folder, whole = crashed(keeps_state=keeps_state)
    assert whole.startswith(log(folder))
    assert len(RunFolder(folder).records()) == 4
    replayed = [] if keeps_state else [(n, True) for n in range(4)]
    assert resumed(folder) == [*replayed, (4, False), (5, False), (6, False)]
    assert log(folder) == whole


def test_rounds_after_an_old_checkpoint_are_run_again_and_compared_with_the_log(tmp_path, crashed, mischief):
    folder, whole = crashed()
    old = tmp_path / "old"
    shutil.copytree(folder, old)
    resume(folder)
    for name in ("rounds.jsonl", "timings.jsonl"):  # the log of the complete run with the checkpoint of round 3
        shutil.copy(folder / name, old / name)
    assert resumed(old) == [(4, True), (5, True), (6, True)]
    assert log(old) == whole


def test_without_a_checkpoint_the_run_starts_over_and_checks_every_logged_line(crashed):
    folder, whole = crashed()
    (folder / "checkpoint.json").unlink()
    assert resumed(folder) == [(n, n < 4) for n in range(7)]
    assert log(folder) == whole


def test_a_checkpoint_beyond_the_end_of_the_log_is_not_used(crashed):
    folder, whole = crashed()
    lines = log(folder).splitlines(keepends=True)
    (folder / "rounds.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:9])
    resume(folder)
    assert log(folder) == whole


@pytest.mark.parametrize("content", [None, b"PK"])
def test_the_repair_that_the_error_of_a_damaged_ground_truth_suggests_works(crashed, content):
    folder, whole = crashed()
    if content is None:
        (folder / "world.npz").unlink()
    else:
        (folder / "world.npz").write_bytes(content)
    for use in (resume, draw_run):
        with pytest.raises(RunFolderError, match=r"world\.npz: (cannot be read|is damaged) .*; delete world\.json"):
            use(folder)
    (folder / "world.json").unlink()
    resume(folder)
    assert log(folder) == whole


def test_the_repair_that_the_error_of_a_damaged_world_file_suggests_works(tmp_path, bump_scenario):
    folder = tmp_path / "run"
    run(bump_scenario(), folder)
    whole, world = log(folder), (folder / "world.json").read_bytes()
    (folder / "world.json").write_bytes(b"{")
    with pytest.raises(RunFolderError, match=r"delete world\.json and summary\.json there, and `swarmbo resume"):
        draw_run(folder)
    for name in ("world.json", "summary.json"):
        (folder / name).unlink()
    resume(folder)
    assert (log(folder), (folder / "world.json").read_bytes()) == (whole, world)


def test_an_error_says_that_figures_cannot_be_written(crashed, monkeypatch):
    def full(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder, _ = crashed()
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(RunFolderError, match=r"figures cannot be written: No space left.*; later, `swarmbo plot"):
            draw_run(folder)
    shutil.rmtree(folder / "figures")
    (folder / "figures").write_text("")
    with pytest.raises(RunFolderError, match="figures: got a file; wanted a folder"):
        draw_run(folder)


def test_a_run_whose_figures_cannot_be_written_shows_its_result(tmp_path, cli, monkeypatch):
    def full(file, *given):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("swarmbo.plotting.run_figures.style.save", full)
    shown = cli("run", "camel", "--set", "rounds=1", "--out", tmp_path / "run", status=2)
    assert shown.stdout.endswith(f"written to {tmp_path / 'run'}\n")
    assert "best measurement" in shown.stdout
    assert shown.stderr.endswith(f"later, `swarmbo plot {tmp_path / 'run'}` draws them\n")


def test_an_error_names_changed_versions_if_a_repeated_round_differs(crashed, mischief, monkeypatch):
    folder, _ = crashed()
    (folder / "checkpoint.json").unlink()
    mischief.fails = lambda agent, number: number == 2
    monkeypatch.setattr("swarmbo.runs.rounds.versions", lambda: {"numpy": "99.0"})
    with pytest.raises(RunFolderError, match=rf"round 2 differs.*numpy {np.__version__} -> 99\.0"):
        resume(folder)


def test_a_run_whose_environment_has_changed_cannot_be_resumed(crashed, mischief):
    folder, _ = crashed()
    mischief.shift = 0.5
    with pytest.raises(RunFolderError, match="environment of this run has changed"):
        resume(folder)


def test_the_repair_that_the_error_of_a_damaged_checkpoint_suggests_works(crashed):
    folder, whole = crashed()
    for damage in (b"{", b"[]", b'{"version": 1}'):
        (folder / "checkpoint.json").write_bytes(damage)
        with pytest.raises(RunFolderError, match="delete it"):
            resume(folder)
    (folder / "checkpoint.json").unlink()
    resume(folder)
    assert log(folder) == whole


def test_a_checkpoint_of_another_version_is_refused(crashed):
    folder, _ = crashed()
    file = folder / "checkpoint.json"
    file.write_text(file.read_text().replace('"version": 1', '"version": 99', 1))
    with pytest.raises(StateVersionError, match="version 99"):
        resume(folder)


def test_a_complete_run_is_not_changed(tmp_path, mischief, bump_scenario):
    scenario, folder = bump_scenario(), tmp_path / "run"
    summary = run(scenario, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    mischief.crash_at = 1
    assert run(scenario, folder) == summary
    assert resume(folder) == summary
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_another_run_is_not_overwritten_unless_forced(tmp_path, bump_scenario):
    folder = tmp_path / "run"
    run(bump_scenario(rounds=2), folder)
    with pytest.raises(RunFolderError, match="differs in rounds"):
        run(bump_scenario(rounds=3), folder)
    assert len(RunFolder(folder).records()) == 3
    (folder / "notes.txt").write_text("mine")
    assert run(bump_scenario(rounds=3), folder, force=True).rounds == 3
    assert (folder / "notes.txt").read_text() == "mine"
    logged = []
    run(bump_scenario(rounds=3), folder, force=True, on_round=lambda record, was_logged: logged.append(was_logged))
    assert logged == [False] * 4  # the same complete run starts again


def test_an_unfinished_run_is_not_overwritten(crashed):
    folder, _ = crashed()
    with pytest.raises(RunFolderError, match=r"holds 3 of 6 rounds of this run; `swarmbo resume"):
        run(RunFolder(folder).scenario(), folder)


def test_a_run_that_another_process_is_writing_is_refused(crashed):
    folder, _ = crashed()
    with locked(folder), pytest.raises(RunFolderError, match="another process"):
        resume(folder)


def test_nothing_is_written_if_the_environment_refuses_its_settings(tmp_path, bump_scenario):
    with pytest.raises(ConfigError, match="refused its settings: TypeError"):
        run(bump_scenario(environment={"colour": "red"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_check_finds_errors_that_occur_at_reset(mischief, bump_scenario):
    check(bump_scenario())
    assert mischief.made[-1].round == 0
    with pytest.raises(ConfigError, match="which has no agents"):
        check(bump_scenario(environment={"agents": 0}))


def test_a_run_in_a_field_has_no_references_even_if_its_environment_offers_them(tmp_path, bump_scenario, monkeypatch):
    world, scenario = pettingzoo.spec("parallel", "tests/bump-v0").entry_point, bump_scenario()
    monkeypatch.setattr(world, "references", lambda env, budget, seed: {"a simple method": 1.0}, raising=False)
    assert not run(scenario, tmp_path / "run").references


@pytest.mark.parametrize(("overrides", "n"), [([], 10), (["initial=3"], 3)])
def test_a_scenario_sets_the_number_of_points_of_the_initial_design(overrides, n):
    scenario = load("wlan", overrides)
    _, team = assemble(scenario)
    assert team.setup.initial == n
    assert _assembled(scenario)[1].setup.initial == n  # also for a fleet


@pytest.mark.parametrize("name", ["wlan", "robots"])
def test_an_initial_design_of_no_points_or_of_a_field_is_refused(name):
    with pytest.raises(ConfigError, match=r"\$\.initial"):
        assemble(load(name, ["initial=0" if name == "wlan" else "initial=3"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "methods"),
    [("powell", "additive, coordination admm"), ("robots", "exact, coordination exact"), ("wlan", "additive")],
)
def test_the_estimated_time_is_within_a_factor_of_three_of_a_run_s_processor_time(name, methods, tmp_path):
    scenario = load(name, [])
    run(load(name, ["rounds=14"]), tmp_path / "compiles")
    began = time.process_time()
    run(scenario, tmp_path / "run")
    taken, found = time.process_time() - began, estimate(scenario)
    assert not found.is_least
    assert f"belief {methods}" in found.text()
    assert taken / 3.0 < found.seconds < 3.0 * taken, (taken, found.text())
