"""A service for a function with integers and categories. JSON and the run folder have the user's values."""

import json

import pytest

from swarmbo.deciding.tables import Rows, attached, read_rows
from swarmbo.runs import load_run
from swarmbo.runs.scenario import scenario_of
from swarmbo.serve.messages import AskRequest, TellRequest
from swarmbo.serve.server import open_broker

from .conftest import client_of

BOUNDS = {
    "solvent": {"kind": "categorical", "values": ["water", "ethanol", True, 2.5]},
    "stirs": {"kind": "integer", "low": 1, "high": 9, "step": 2},
    "molar": {"kind": "real", "low": 0.001, "high": 1.0, "log": True},
    "hours": [0, 4],
}
TYPES = {"solvent": (str, bool, float), "stirs": (int,), "molar": (float,), "hours": (float,)}
ROUNDS = 6


def scenario(**more):
    environment = {"id": "served/function-v0", "bounds": BOUNDS, **more}
    return scenario_of({"name": "mixture", "environment": environment, "rounds": ROUNDS, "initial": 3, "seed": 2})


def outcome_of(point):
    return 2.0 * (point["solvent"] == "ethanol") - abs(point["stirs"] - 5) - abs(point["hours"] - 1.0)


def test_typed_values_are_sent_and_accepted_and_invalid_ones_refused(tmp_path):
    with open_broker(scenario(), tmp_path / "run", 8, trust=False) as broker, client_of(broker) as client:
        for number in range(ROUNDS):
            asked = client.post("/ask", json={"key": str(number)}).json()
            point = asked["point"]
            assert all(type(value) in TYPES[name] for name, value in point.items())
            body = {"outcome": outcome_of(point)}
            if number == 1:
                body = {"outcome": 3.0, "point": {**point, "solvent": "ethanol", "stirs": 5}}
                for wrong in ({"solvent": "oil"}, {"stirs": 4}, {"stirs": "5"}, {"molar": 0.0}, {"hours": None}):
                    answer = client.post(f"/tell/{asked['query']}", json={**body, "point": {**point, **wrong}})
                    assert answer.status_code == 422
                    (name,) = wrong
                    assert answer.json()["what"].startswith(f"$.point.{name}: got ")
            assert client.post(f"/tell/{asked['query']}", json=body).status_code == 200
        state, best = client.get("/state").json(), client.get("/best").json()
        assert state["variables"]["stirs"] == {"kind": "integer", "low": 1, "high": 9, "step": 2, "log": False}
        assert best["point"] == {**best["point"], "solvent": "ethanol", "stirs": 5}
        assert set(best["recommended"]) == set(BOUNDS)
        history = broker.ledger.team.history.X
    with open_broker(scenario(), tmp_path / "run", 8, trust=False) as broker:  # everything is read again from disk
        assert broker.ledger.team.history.X.tolist() == history.tolist()
        problem = broker.ledger.team.problem
    run = load_run(tmp_path / "run")
    assert [record.joint.point for record in run.records[1:]] == [problem.named(x) for x in history]
    assert [record.joint.location for record in run.records[1:]] == history.tolist()
    table = run.table()
    assert table["solvent"] == [problem.named(x)["solvent"] for x in history]
    rows = read_rows(Rows(table), problem)
    again = attached(rows, problem)
    assert again.X.tolist() == history.tolist()
    line = json.loads((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()[2])
    assert line["joint"]["point"]["solvent"] == "ethanol"


def test_the_document_of_the_service_describes_typed_answers(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    with open_broker(scenario(), tmp_path / "run", 8, trust=False) as broker, client_of(broker) as client:
        described = client.get("/openapi.json").json()
        asked = client.post("/ask", json={"key": "k"})
        body = {"outcome": 1.0, "point": {**asked.json()["point"], "solvent": True}}
        for answer, name in ((asked, "Asked"), (client.get("/state"), "State"), (client.get("/best"), "Best")):
            schema = {"$ref": f"#/components/schemas/{name}", "components": described["components"]}
            jsonschema.validate(answer.json(), schema)
        schema = {"$ref": "#/components/schemas/TellRequest", "components": described["components"]}
        jsonschema.validate(body, schema)


def test_rounds_of_a_world_with_actions_in_tables_keep_outcomes_and_actual_points(tmp_path):
    """With channels, an action of an access point is a ``Dict``; some other worlds have a ``Discrete``."""
    places = {"access_points": [[0, 0], [60, 0]], "users": [[5, 0], [40, 0]]}
    world = {"id": "swarmbo/wlan_power-v0", "channels": [1, 6, 11], "topology": places}
    given = {"name": "cells", "environment": world, "rounds": 3, "initial": 3, "seed": 1}
    with open_broker(scenario_of(given), tmp_path / "run", 8, trust=False) as broker:
        for number in range(3):
            asked = broker.ask(AskRequest(key=str(number)))
            point = {**asked.point, "channel_1": 11}
            outcome = {"capacity_0": 1.0, "capacity_1": float(number)}
            broker.tell(asked.query, TellRequest(outcome=outcome, point=point))
    run = load_run(tmp_path / "run")
    assert [record.joint.measurement for record in run.records[1:]] == [1.0, 2.0, 3.0]
    assert {record.joint.point["channel_1"] for record in run.records[1:]} == {11}
    assert run.summary.score is not None
