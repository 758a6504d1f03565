"""Ledgers: any interleaving of asks, losses and tells, cut at any byte, is restored as if nothing had happened."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

import swarmbo as sb
from swarmbo.errors import RunFolderError, UnknownQueryError
from swarmbo.evaluations import Ledger
from swarmbo.evaluations.ledger import LEDGER, STATES

SCOPES = {"f": ["x", "y"], "g": ["y", "z"]}
BOUNDS = {"x": (0.0, 1.0), "y": (-1.0, 1.0), "z": (0.0, 2.0)}
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "tell", "fail", "lose", "part"]), st.integers(0, 7)),
    min_size=1,
    max_size=14,
)


def team(outcomes="per-factor", seed=3):
    return sb.Team(sb.FactorGraph.from_scopes(SCOPES), BOUNDS, outcomes=outcomes, initial=3, seed=seed)


def value(point):
    return {"f": -((point["x"] - point["y"]) ** 2), "g": -((point["z"] - 0.4) ** 2) - point["y"] ** 2}


def bits(one):
    """State of a team, comparable."""
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
    told, waits = value(ledger.query(query_id).point), ledger.team._log.open[query_id].waits
    if operation == "tell":
        ledger.tell(query_id, {channel: told[channel] for channel in waits}, noise_std=0.1 if index == 3 else None)
    elif operation == "part":
        ledger.tell(query_id, {waits[0]: told[waits[0]]})
    elif operation == "fail":
        ledger.tell(query_id, failed=True)
    else:
        ledger.lost(query_id, "killed")


@given(operations=OPERATIONS, cut=st.floats(0.0, 1.0), every=st.sampled_from([1, 3, 25]))
def test_a_ledger_cut_anywhere_is_as_it_was_after_its_whole_lines(operations, cut, every):
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
            assert again.ask() == ledger.ask()


def test_what_the_team_refuses_is_not_logged(tmp_path):
    ledger = Ledger.create(tmp_path, team())
    query = ledger.ask()
    before = (tmp_path / LEDGER).read_bytes()
    for told in ({"f": "high"}, {"h": 1.0}, [1.0]):
        with pytest.raises(sb.SwarmboError):
            ledger.tell(query.id, told)
    with pytest.raises(UnknownQueryError, match="q00009"):
        ledger.tell("q00009", 1.0)
    with pytest.raises(UnknownQueryError, match="never asked"):
        ledger.lost("q00009", "killed")
    assert (tmp_path / LEDGER).read_bytes() == before
    assert ledger.tell(query.id, value(query.point))


def test_other_teams_changed_lines_and_other_decisions_are_refused(tmp_path):
    ledger = Ledger.create(tmp_path, team())
    for _ in range(5):
        query = ledger.ask()
        ledger.tell(query.id, value(query.point))
    with pytest.raises(RunFolderError, match="is there already"):
        Ledger.create(tmp_path, team())
    with pytest.raises(RunFolderError, match="of another team"):
        Ledger.open(tmp_path, lambda: team(seed=4))
    with pytest.raises(RunFolderError, match="came out as q00001 at"):
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


def test_data_that_a_team_had_before_are_restored(tmp_path):
    begun = team("total")
    begun.attach([[0.5, 0.0, 1.0]], [2.0])
    ledger = Ledger.create(tmp_path, begun)
    ledger.ask()
    again = Ledger.open(tmp_path, lambda: team("total"))
    assert bits(again.team) == bits(begun)


def test_a_total_of_a_numpy_type_is_logged_as_a_number(tmp_path):
    ledger = Ledger.create(tmp_path, team("total"))
    for outcome in (np.float32(0.5), np.array(2.0), np.nan, 3):
        assert ledger.tell(ledger.ask().id, outcome)
    assert [event.outcome for event in ledger.events if event.kind == "tell"] == [0.5, 2.0, None, 3.0]
    assert bits(Ledger.open(tmp_path, lambda: team("total")).team) == bits(ledger.team)
