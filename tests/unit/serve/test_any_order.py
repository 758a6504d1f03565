"""For any order of asks, tells, waits and kills, a query has one client at a time, and nothing is lost or repeated."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from swarmbo.errors import SwarmboError

from .conftest import MOST_PENDING, ROUNDS, Clock, client_of, make_team, open_broker, value_of

pytest.importorskip("starlette")

INDEX = st.integers(0, 9)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), INDEX, st.sampled_from([1.0, 10.0, 1000.0])),
        st.tuples(st.just("tell"), INDEX, st.sampled_from(["value", "value", "other", "failed", "nobody's"])),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 10]), st.just(0.0)),
        st.tuples(st.just("kill"), INDEX, st.just(0.0)),
    ),
    max_size=25,
)


def bits(team):
    state = team.state_dict()
    arrays = {name: np.asarray(array).tobytes() for name, array in state["arrays"].items()}
    return json.dumps(state["json"], sort_keys=True), arrays


class Model:
    """A model of the service with all guarantees to clients."""

    def __init__(self, folder, kind):
        self.folder, self.kind, self.clock = folder, kind, Clock()
        self.points, self.keys, self.leases, self.told = {}, {}, {}, {}
        self.broker = open_broker(folder, self.clock, kind)

    def ask(self, index, lease_s):
        key, now = f"key-{index}", self.clock.now
        with client_of(self.broker) as client:
            answer = client.post("/ask", json={"key": key, "lease_s": lease_s})
        free = [query for query, (_, until) in self.leases.items() if until <= now]
        if answer.status_code in (410, 429):
            assert key not in self.keys
            assert not free
            assert len(self.leases) == MOST_PENDING or len(self.points) == ROUNDS
            assert (answer.status_code == 410) == (not self.leases)
            return
        assert answer.status_code == 200, answer.text
        asked = answer.json()
        query = asked["query"]
        assert self.points.setdefault(query, asked["point"]) == asked["point"]
        if key in self.keys:
            assert query == self.keys[key]
        elif query in self.leases:
            assert query in free
        else:
            assert not free
            assert query not in self.told
            assert len(self.leases) < MOST_PENDING
        self.keys[key] = query
        assert asked["told"] == (query in self.told)
        holder, until = self.leases.get(query, (None, 0.0))
        if query not in self.told and (until <= now or holder == key):
            until = until if holder == key and until > now else now + lease_s
            self.leases[query] = key, until
            assert asked["until"] == until
        else:
            assert asked["until"] is None

    def tell(self, index, what):
        names = list(self.points)
        if what == "nobody's" or not names:
            with client_of(self.broker) as client:
                assert client.post(f"/tell/q{90000 + index}", json={"outcome": 1.0}).status_code == 404
            return
        query = names[index % len(names)]
        outcome = self.outcome(query)
        if what == "other":
            outcome = {name: y + 1.0 for name, y in outcome.items()} if isinstance(outcome, dict) else outcome + 1.0
        body = {"failed": True} if what == "failed" else {"outcome": outcome}
        with client_of(self.broker) as client:
            answer = client.post(f"/tell/{query}", json=body)
        if self.told.setdefault(query, body) != body:
            assert answer.status_code == 409, answer.text
            return
        assert answer.status_code == 200, answer.text
        assert answer.json()["is_new"] == (query in self.leases)
        assert answer.json()["told"] == len(self.told)
        self.leases.pop(query, None)

    def outcome(self, query):
        if self.kind == "field":
            return {agent: float(sum(place)) for agent, place in self.broker._answer(query, "").locations.items()}
        values = value_of(self.points[query])
        return values if self.kind == "per-factor" else sum(values.values())

    def kill(self):
        before = bits(self.broker.ledger.team), self.broker.state()
        self.broker = open_broker(self.folder, self.clock, self.kind)
        assert (bits(self.broker.ledger.team), self.broker.state()) == before

    def check(self):
        state = self.broker.state()
        assert {one.query: one.until for one in state.pending} == {q: until for q, (_, until) in self.leases.items()}
        assert (state.asked, state.told) == (len(self.points), len(self.told))
        per_query = 2 if self.kind == "field" else 1
        assert state.failed == per_query * sum(body.get("failed", False) for body in self.told.values())
        assert len(state.outcomes) == per_query * len(self.told)
        totals = [self.total(body["outcome"]) for body in self.told.values() if "outcome" in body]
        assert state.best.outcome == (max(totals) if totals else None)

    def total(self, outcome):
        if not isinstance(outcome, dict):
            return outcome
        return max(outcome.values()) if self.kind == "field" else sum(outcome.values())

    def undisturbed(self):
        """Check that a team without kills decides the same."""
        team = make_team(self.kind)
        for event in self.broker.ledger.events:
            if event.kind == "ask":
                assert team.ask().point == event.point
            elif event.kind == "tell":
                team.tell(event.query, event.outcome, failed=event.failed)
        assert bits(team) == bits(self.broker.ledger.team)


EXAMPLE = [("ask", index, 10.0) for index in range(5)] + [("tell", index, "value") for index in (2, 0, 1)]
EXAMPLE += [("kill", 0, 0.0), ("ask", 7, 1.0), ("wait", 10, 0.0), ("ask", 8, 10.0), ("ask", 9, 10.0)]
EXAMPLE += [("tell", 3, "other"), ("tell", 3, "value"), ("tell", 4, "failed"), ("ask", 5, 1.0), ("ask", 6, 1.0)]
EXAMPLE += [("kill", 0, 0.0), ("wait", 10, 0.0), ("ask", 1, 1.0), ("ask", 6, 1.0), ("wait", 10, 0.0), ("ask", 5, 1.0)]
EXAMPLE += [("tell", index, "value") for index in range(8)] + [("ask", 0, 1.0), ("kill", 0, 0.0)]


@pytest.mark.parametrize("kind", [pytest.param("total", marks=pytest.mark.thorough), "per-factor", "field"])
@settings(max_examples=4)
@example(operations=EXAMPLE)
@given(operations=OPERATIONS)
def test_the_service_keeps_its_guarantees_for_any_order_of_calls_and_kills(kind, operations):
    with tempfile.TemporaryDirectory() as folder:
        model = Model(Path(folder), kind)
        for operation, index, how in operations:
            if operation == "ask":
                model.ask(index, how)
            elif operation == "tell":
                model.tell(index, how)
            elif operation == "wait":
                model.clock.now += index
            else:
                model.kill()
            model.check()
        model.kill()
        model.undisturbed()


def test_a_recommendation_changes_no_decision(tmp_path):
    model = Model(tmp_path, "field")
    for index in range(3):
        model.ask(index, 10.0)
        model.tell(index, "value")
        before = bits(model.broker.ledger.team)
        assert model.broker.best().recommended is not None
        assert bits(model.broker.ledger.team) == before
    model.undisturbed()


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch, capsys):
    model = Model(tmp_path, "total")
    model.ask(0, 10.0)

    def full(path, line):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("swarmbo.evaluations.ledger.append_line", full)
        with client_of(model.broker) as client:
            answer = client.post("/tell/q00001", json={"outcome": 1.0})
            assert answer.status_code == 503
            assert "No space left" in answer.json()["what"]
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "No space left" in line
    with client_of(model.broker) as client:  # refused until the folder is opened again
        retried = client.post("/tell/q00001", json={"outcome": 1.0})  # a client that retries
        for answer in (retried, client.post("/ask", json={"key": "more"}), client.get("/best"), client.get("/healthz")):
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
            assert "No space left" in answer.json()["what"]
    model.broker = open_broker(tmp_path, model.clock)
    assert list(model.broker.ledger.pending) == ["q00001"]
    model.check()
    model.tell(0, "value")
    with pytest.raises(SwarmboError):
        model.broker.ledger.tell("q00001", 7.0)
