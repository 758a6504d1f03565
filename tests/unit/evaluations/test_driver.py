"""Ledger and driver: each query is told once, whatever workers do; a ledger cut at any byte is restored."""

import errno
import importlib
import json
import os
import sys
import tempfile
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from threadpoolctl import threadpool_info, threadpool_limits

import swarmbo as sb
from swarmbo.errors import ConfigError, EvaluationError, RunFolderError, ShapeError, UnknownQueryError, UnwritableError
from swarmbo.evaluations import Driver, Ended, Ledger
from swarmbo.evaluations.executor import results_of_run, store_result
from swarmbo.evaluations.ledger import LEDGER, STATES, Event

SCOPES = {"f": ["x", "y"], "g": ["y", "z"]}
BOUNDS = {"x": (0.0, 1.0), "y": (-1.0, 1.0), "z": (0.0, 2.0)}
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "tell", "fail", "lose", "part"]), st.integers(0, 7)),
    min_size=1,
    max_size=14,
)


def team(outcomes="per-factor", seed=3, initial=3):
    return sb.Team(sb.FactorGraph.from_scopes(SCOPES), BOUNDS, outcomes=outcomes, initial=initial, seed=seed)


def value(point):
    return {"f": -((point["x"] - point["y"]) ** 2), "g": -((point["z"] - 0.4) ** 2) - point["y"] ** 2}


def bits(one):
    """State of a team in a comparable form."""
    state = one.state_dict()
    arrays = {name: np.asarray(array).tobytes() for name, array in state["arrays"].items()}
    return json.dumps(state["json"], sort_keys=True), arrays


def apply(ledger, operation, index):
    waiting = list(ledger.pending)
    if operation == "ask":
        ledger.ask({"key": index})
    if operation == "ask" or not waiting:
        return
    query_id = waiting[index % len(waiting)]
    outcomes, waits = value(ledger.query(query_id).point), ledger.team._log.open[query_id].awaited
    if operation == "tell":
        ledger.tell(query_id, {channel: outcomes[channel] for channel in waits}, noise_std=0.1 if index == 3 else None)
    elif operation == "part":
        ledger.tell(query_id, {waits[0]: outcomes[waits[0]]})
    elif operation == "fail":
        ledger.tell(query_id, failed=True)
    else:
        ledger.lost(query_id, "killed")


@given(operations=OPERATIONS, cut=st.floats(0.0, 1.0), every=st.sampled_from([1, 3, 25]))
def test_a_ledger_cut_anywhere_is_restored_up_to_its_last_complete_line(operations, cut, every):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("swarmbo.evaluations.ledger.STATE_EVERY", every)
        folder = Path(name)
        ledger = Ledger.create(folder, team())
        known = {len(ledger.events): (bits(ledger.team), ledger.pending)}
        for operation, index in operations:
            apply(ledger, operation, index)
            known[len(ledger.events)] = bits(ledger.team), ledger.pending
        text = (folder / LEDGER).read_bytes()
        (folder / LEDGER).write_bytes(text[: round(cut * len(text))])
        whole = (folder / LEDGER).read_bytes().count(b"\n")
        again = Ledger.open(folder, team)
        if whole:
            assert (bits(again.team), again.pending) == known[whole]
            assert again.events[:whole] == ledger.events[:whole]
        assert again.events[-1].kind == "begin"
        if whole == len(ledger.events):
            assert again.ask() == ledger.team.ask()


def test_what_the_team_refuses_is_not_logged(tmp_path):
    ledger = Ledger.create(tmp_path, team())
    query = ledger.ask()
    before = (tmp_path / LEDGER).read_bytes()
    for wrong in ({"f": "high"}, {"h": 1.0}, [1.0]):
        with pytest.raises(sb.SwarmboError):
            ledger.tell(query.id, wrong)
    with pytest.raises(UnknownQueryError, match="q00009"):
        ledger.tell("q00009", 1.0)
    with pytest.raises(UnknownQueryError, match="never asked"):
        ledger.lost("q00009", "killed")
    with pytest.raises(ConfigError, match=r"got 1e\+300"):
        ledger.tell(query.id, 1.0, point=query.point | {"x": 1e300})
    assert (tmp_path / LEDGER).read_bytes() == before
    assert ledger.tell(query.id, value(query.point))


def test_a_point_told_before_any_outcome_is_logged(tmp_path):
    ledger = Ledger.create(tmp_path, team())
    query = ledger.ask()
    assert ledger.tell(query.id, {}, point=query.point | {"x": 0.5})
    assert not ledger.tell(query.id, {}, point=query.point | {"x": 0.5})
    assert bits(Ledger.open(tmp_path, team).team) == bits(ledger.team)


def test_a_ledger_whose_team_asked_a_query_that_was_not_logged_refuses_further_calls(tmp_path):
    def failing(one):
        one.ask()
        raise RuntimeError("late")

    ledger = Ledger.create(tmp_path, team(), failing)
    with pytest.raises(RuntimeError, match="late"):
        ledger.ask()
    with pytest.raises(RunFolderError, match="refuses calls since one failed: RuntimeError: late; open it again"):
        ledger.ask()
    assert Ledger.open(tmp_path, team).n_asked == 0


def test_a_caller_that_changes_the_point_of_a_query_changes_no_event(tmp_path):
    ledger = Ledger.create(tmp_path, team())
    query = ledger.ask()
    asked = dict(query.point)
    query.point.pop("x")
    query.point["sum"] = 3.0
    assert ledger.query(query.id).point == ledger.asked(query.id).point == ledger.pending[query.id].point == asked


def test_all_events_are_replayed_on_the_data_with_which_the_team_of_a_ledger_began(tmp_path):
    begun = team()
    begun.attach([[0.5, 0.5, 0.5]], [[1.0, 2.0]])
    ledger = Ledger.create(tmp_path, begun)
    for _ in range(15):
        query = ledger.ask()
        ledger.tell(query.id, value(query.point))
    first, last = sorted(tmp_path.glob(STATES))
    last.unlink()  # as the message about a damaged one advises
    for known in (None, 0):
        assert bits(Ledger.open(tmp_path, team, known=known).team) == bits(ledger.team)
    assert first.is_file()


def test_a_ledger_on_a_full_disk_says_what_to_do(tmp_path, monkeypatch):
    ledger = Ledger.create(tmp_path, team())
    monkeypatch.setattr("os.fsync", lambda file: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left")))
    with pytest.raises(UnwritableError, match=r"cannot be written: No space left; .* resume the run, or open the led"):
        ledger.ask()


def test_other_teams_changed_lines_and_other_decisions_are_refused(tmp_path):
    ledger = Ledger.create(tmp_path, team())
    for _ in range(5):
        query = ledger.ask()
        ledger.tell(query.id, value(query.point))
    with pytest.raises(RunFolderError, match="is there already"):
        Ledger.create(tmp_path, team())
    with pytest.raises(RunFolderError, match="of another team"):
        Ledger.open(tmp_path, lambda: team(seed=4))
    with pytest.raises(RunFolderError, match="was replayed as q00001 at"):
        Ledger.open(tmp_path, team, lambda one: sb.Query(one.ask().id, {"x": 0.0}, {}))
    text = (tmp_path / LEDGER).read_bytes()
    (tmp_path / LEDGER).write_bytes(text.replace(b'"ask"', b'"lost"', 1))
    with pytest.raises(RunFolderError, match="line 2 was changed or damaged"):
        Ledger.open(tmp_path, team)
    (tmp_path / LEDGER).write_bytes(text)
    (state,) = tmp_path.glob(STATES)
    state.write_bytes(b"nothing")
    with pytest.raises(RunFolderError, match="is damaged"):
        Ledger.open(tmp_path, team)
    state.unlink()
    assert bits(Ledger.open(tmp_path, team).team) == bits(ledger.team)
    with pytest.raises(RunFolderError, match="cannot be read"):
        Ledger.open(tmp_path / "nowhere", team)


def test_an_outcome_that_an_earlier_version_treated_differently_is_reported_with_its_line(tmp_path):
    def in_field():
        return sb.Team.for_field(["a", "b"], low=[0.0, 0.0], high=[1.0, 1.0], seed=1)

    ledger = Ledger.create(tmp_path, in_field())
    query = ledger.ask()
    for outcome in (None, {"a": 1.0, "b": 2.0}):  # earlier versions ignored None; now it is a failure
        ledger._append(Event("tell", 1.0, query.id, outcome=outcome))
    with pytest.raises(RunFolderError, match=r"line 4: .*; recorded before: a failure; wanted .* versions that"):
        Ledger.open(tmp_path, in_field)


def test_a_ledger_that_another_program_opened_is_left_to_it(tmp_path):
    first = Ledger.create(tmp_path, team())
    query = first.ask()
    second = Ledger.open(tmp_path, team)
    for refused in (lambda: first.tell(query.id, value(query.point)), first.ask):
        with pytest.raises(RunFolderError, match="another program writes to it"):
            refused()
    second.tell(query.id, value(query.point))
    third, asked = Ledger.open(tmp_path, team), []
    assert bits(third.team) == bits(second.team)

    def slowly():
        asked.append(third.ask())  # logged by the other program meanwhile
        return team()

    with pytest.raises(RunFolderError, match="another program writes to it"):
        Ledger.open(tmp_path, slowly)
    assert len(asked) == 1
    assert bits(Ledger.open(tmp_path, team).team) == bits(third.team)


def test_decisions_and_their_replay_have_one_thread_of_linear_algebra(tmp_path):
    """With more, decisions from 150 outcomes differ in their last bits, also between numbers of cores."""
    threads = []

    def choose(one):
        threads.extend(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        return one.ask()

    with threadpool_limits(2, user_api="blas"):
        Ledger.create(tmp_path, team(), choose).ask()
        before = len(threads)
        Ledger.open(tmp_path, team, choose)
    assert set(threads) == {1}
    assert len(threads) == 2 * before


def test_data_that_a_team_had_before_are_restored(tmp_path):
    begun = team("total")
    begun.attach([[0.5, 0.0, 1.0]], [2.0])
    ledger = Ledger.create(tmp_path, begun)
    ledger.ask()
    again = Ledger.open(tmp_path, lambda: team("total"))
    assert bits(again.team) == bits(begun)


def test_data_that_a_team_had_before_survive_a_crash_during_the_first_line(tmp_path):
    begun = team("total")
    begun.attach([[0.5, 0.0, 1.0]], [2.0])
    Ledger.create(tmp_path, begun)
    for size in (40, 0):
        os.truncate(tmp_path / LEDGER, size)
        assert bits(Ledger.open(tmp_path, lambda: team("total")).team) == bits(begun)
    assert Ledger.open(tmp_path, lambda: team("total")).ask() == begun.ask()


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("known", range(5))
def test_outcomes_that_the_caller_lacks_are_replayed_although_a_state_has_them(tmp_path, monkeypatch, every, known):
    monkeypatch.setattr("swarmbo.evaluations.ledger.STATE_EVERY", every)
    ledger, replayed = Ledger.create(tmp_path, sobol_team()), []
    for _ in range(4):
        ledger.tell(ledger.ask().id, 1.0)
    again = Ledger.open(tmp_path, sobol_team, replayed=lambda _, event: replayed.append(event), known=known)
    told = [event.query for event in replayed if event.kind == "tell"]
    assert set(told) >= {f"q{number:05d}" for number in range(known + 1, 5)}
    assert bits(again.team) == bits(ledger.team)


def test_a_total_of_any_type_of_number_is_logged_as_a_number(tmp_path):
    designed = partial(team, "total", initial=12)  # all queries belong to the initial design, which is quick
    ledger = Ledger.create(tmp_path, designed())
    given = (np.float32(0.5), np.array(2.0), np.array([2.5]), np.nan, 3, True, np.True_, Decimal("2.5"), Fraction(5, 2))
    for outcome in given:
        assert ledger.tell(ledger.ask().id, outcome, noise_std=Fraction(1, 2))
    assert ledger.tell(ledger.ask().id, 1.0, point={"x": Decimal("0.5"), "y": np.float32(0.5), "z": np.array(1)})
    logged = [event.outcome for event in ledger.events if event.kind == "tell"]
    assert logged == [0.5, 2.0, 2.5, None, 3.0, 1.0, 1.0, 2.5, 2.5, 1.0]
    with pytest.raises(sb.SwarmboError, match="wanted a finite number >= 0"):
        ledger.tell(ledger.ask().id, 1.0, noise_std=np.inf)
    assert bits(Ledger.open(tmp_path, designed).team) == bits(ledger.team)


def test_limited_quantities_are_logged_and_restored(tmp_path):
    def make():
        return sb.Team(None, {"x": (0.0, 1.0)}, limits={"load": (None, 0.5)}, seed=1, initial=3)

    ledger, alone = Ledger.create(tmp_path, make()), make()
    for number in range(6):
        query, own = ledger.ask(), alone.ask()
        measured = {"load": None if number == 1 else np.float64(query.point["x"])}
        assert ledger.tell(query.id, query.point["x"], constraints=measured)
        assert not ledger.tell(query.id, query.point["x"], constraints=measured)
        alone.tell(own, own.point["x"], constraints=measured)
    with pytest.raises(ConfigError, match=r"got \['lod'\]; wanted some of the limits"):
        ledger.tell(query.id, query.point["x"], constraints={"lod": 1.0})
    for teller, pending in ((ledger, ledger.ask().id), (alone, alone.ask())):
        with pytest.raises(ShapeError, match="outcome of the quantity 'load': got 'heavy'; wanted a number, or None"):
            teller.tell(pending, 0.5, constraints={"load": "heavy"})
    assert bits(Ledger.open(tmp_path, make).team) == bits(ledger.team) == bits(alone)
    assert np.isnan(alone.history.measured).sum() == 1


def test_what_cannot_be_logged_is_refused_and_the_ledger_remains_usable(tmp_path):
    ledger = Ledger.create(tmp_path, team())
    query = ledger.ask()
    for refused in (
        lambda: ledger.ask({"by": object()}),
        lambda: ledger.lost(query.id, "killed", {"by": object()}),
        lambda: ledger.tell(query.id, {"f": 1.0}, note={"by": object()}),
        lambda: ledger.tell(query.id, {"f": 1.0}, point=query.point | {"x": object()}),
    ):
        with pytest.raises(sb.errors.ConfigError, match="cannot be logged"):
            refused()
    assert ledger.tell(query.id, {"f": 1.0}, noise_std={"f": None}, point=query.point | {"x": Fraction(1, 2)})
    assert bits(Ledger.open(tmp_path, team).team) == bits(ledger.team)


STUDIES = Path(__file__).parents[3] / "studies"


def sobol_team(**more):
    return sb.Team(None, {"x": (0.0, 1.0), "y": (0.0, 1.0)}, coordination="sobol", **more)


class Scripted:
    """Executor that ends outstanding tasks in random order, by statuses that ``ends`` gives for (task, tries)."""

    def __init__(self, seed, ends=lambda task, tries: "done"):
        self.rng, self.ends, self.out, self.tries, self.most = np.random.default_rng(seed), ends, [], {}, 0

    def submit(self, task, point):
        assert task not in self.out
        self.out.append(task)
        self.tries[task] = self.tries.get(task, 0) + 1
        self.most = max(self.most, len(self.out))

    def poll(self, timeout):
        count = self.rng.integers(timeout > 0.0, 3) if self.out else 0
        picked = self.rng.permutation(self.out)[:count]
        self.out = [task for task in self.out if task not in picked]
        found = [Ended(str(task), self.ends(str(task), self.tries[task]), float(len(task)), 1.0) for task in picked]
        return [*found, Ended("q99999", "done", 1.0)]  # of an earlier driver


def drive(tmp_path, executor, workers=4, total=40, **more):
    ledger = Ledger.create(tmp_path, sobol_team())

    def tell(query_id, end):
        done = end.status == "done"
        ledger.tell(query_id, end.value if done else None, note={} if done else {"failure": end.value})

    Driver(ledger, executor, workers, total, tell, **more).run()
    return ledger


@pytest.mark.parametrize("is_synchronous", [False, True])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_each_query_is_told_once_and_lost_ones_are_tried_four_times(tmp_path, seed, is_synchronous):
    def ends(task, tries):
        number = int(task[1:])
        if number % 7 == 0:
            return "lost" if number % 2 else "hung"
        if number % 5 == 0:
            return "lost" if tries <= 3 else "done"
        return "error" if number % 11 == 0 else "done"

    executor = Scripted(seed, ends)
    ledger = drive(tmp_path, executor, is_synchronous=is_synchronous)
    told = {event.query: event for event in ledger.events if event.kind == "tell"}
    tells = [event.query for event in ledger.events if event.kind == "tell"]
    assert sorted(tells) == [f"q{number:05d}" for number in range(1, 41)]
    assert executor.most <= (4 if is_synchronous else 5)
    for query_id, event in told.items():
        number = int(query_id[1:])
        tries = 4 if number % 7 == 0 or number % 5 == 0 else 1
        assert executor.tries[query_id] == tries
        assert ledger.losses(query_id) == (4 if number % 7 == 0 else 3 if number % 5 == 0 else 0)
        assert (event.outcome is None) == (number % 7 == 0 or (number % 11 == 0 and number % 5 != 0))
    if is_synchronous:
        assert tells == sorted(tells)
        kinds = [event.kind for event in ledger.events if event.kind in ("ask", "tell")]
        assert kinds == (["ask"] * 4 + ["tell"] * 4) * 10


def test_a_run_that_ended_within_a_batch_tells_its_rest_before_it_asks(tmp_path):
    ledger = Ledger.create(tmp_path, sobol_team())
    queries = [ledger.ask() for _ in range(4)]
    for query in queries[:2]:
        ledger.tell(query.id, 1.0)
    Driver(ledger, Scripted(0), 4, 8, lambda query_id, end: ledger.tell(query_id, end.value), is_synchronous=True).run()
    kinds = [event.kind for event in ledger.events if event.kind in ("ask", "tell")]
    assert kinds == (["ask"] * 4 + ["tell"] * 4) * 2


def test_without_queries_asked_ahead_no_outcome_is_missing_when_the_next_one_is_asked(tmp_path):
    ledger = drive(tmp_path, Scripted(0), workers=1, total=8, ahead=0)
    assert [event.kind for event in ledger.events if event.kind != "begin"] == ["ask", "tell"] * 8


@pytest.mark.parametrize("outcomes", [{"f": 1.0}, {}])
def test_a_partly_told_query_is_named_and_not_waited_for(tmp_path, outcomes):
    ledger = Ledger.create(tmp_path, team())
    with pytest.raises(sb.errors.ConfigError, match=r"query q0000. still waits; wanted all outcomes"):
        Driver(ledger, Scripted(0), 1, 4, lambda query_id, end: outcomes and ledger.tell(query_id, outcomes)).run()


@pytest.mark.parametrize(("key", "wrong", "least"), [("workers", 0, 1), ("ahead", -1, 0), ("total", 6.5, 0)])
def test_settings_with_which_nothing_would_be_evaluated_are_refused(tmp_path, key, wrong, least):
    with pytest.raises(sb.errors.ConfigError, match=f"{key}: got {wrong}; wanted an integer >= {least}"):
        drive(tmp_path, Scripted(0), **{"workers": 1, key: wrong})


def test_an_evaluation_that_raises_may_end_the_run(tmp_path):
    with pytest.raises(EvaluationError, match="query q00003: 6"):
        drive(tmp_path, Scripted(0, lambda task, _: "error" if task == "q00003" else "done"), stops=True)


def test_an_evaluation_that_stopped_the_run_is_tried_again(tmp_path):
    ledger = Ledger.create(tmp_path, sobol_team())
    query = ledger.ask()
    (tmp_path / "results").mkdir()
    store_result(results_of_run(tmp_path / "results"), Ended(query.id, "error", "no licence"))
    results, told = tmp_path / "results", {}
    # a worker that dies is reported with the file's end
    executor = Scripted(0, lambda task, _: "error" if [*results.glob(f"*/{task}.json")] else "done")

    def tell(query_id, end):
        told[query_id] = end.status
        ledger.tell(query_id, end.value)

    Driver(ledger, executor, 1, 2, tell, results=results, stops=True).run()
    assert (told, executor.tries[query.id]) == ({"q00001": "done", "q00002": "done"}, 1)


def test_results_on_the_disk_are_told_first_and_not_measured_again(tmp_path):
    (tmp_path / "results").mkdir()
    ledger = Ledger.create(tmp_path, sobol_team())
    for _ in range(5):
        ledger.ask()
    own = results_of_run(results := tmp_path / "results")
    store_result(own, Ended("q00004", "done", 4.0, 2.0))
    store_result(own, Ended("q00002", "done", 2.0, 2.0))
    ledger, executor = Ledger.open(tmp_path, sobol_team), Scripted(1)
    Driver(ledger, executor, 4, 10, lambda query_id, end: ledger.tell(query_id, end.value), results=results).run()
    tells = [(event.query, event.outcome) for event in ledger.events if event.kind == "tell"]
    assert tells[:2] == [("q00002", 2.0), ("q00004", 4.0)]
    assert sorted(executor.tries) == [f"q{number:05d}" for number in (1, 3, 5, 6, 7, 8, 9, 10)]
    assert not list(own.iterdir())


@pytest.mark.thorough
def test_workers_are_busy_if_a_task_lasts_ten_decisions(tmp_path):
    """On a simulated clock, with log-normal durations; the first and the last tasks do not count."""
    sys.path.insert(0, str(STUDIES))
    try:
        workers = importlib.import_module("workers")
        clock = workers.Clocked(8, 0)

        def choose(team):
            clock.spend(0.1)
            return team.ask()

        ledger, ends = Ledger.create(tmp_path, sobol_team(), choose), []  # times, and work begun until then

        def tell(query_id, end):
            ends.append((clock.now, clock.busy))
            ledger.tell(query_id, 1.0)

        Driver(ledger, clock, 8, 240, tell).run()
        (began, before), (ended, after) = ends[20], ends[220]
        assert (after - before) / (8 * (ended - began)) >= 0.95
    finally:
        sys.path.remove(str(STUDIES))
        for name in ("workers", "benchmark", "benchmark_problems", "benchmark_tables", "study"):
            sys.modules.pop(name, None)
