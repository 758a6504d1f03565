"""Invalid requests get one JSON line with what, got, wanted and fix, and the service continues."""

import asyncio
import json
import sys

import pytest
from hypothesis import given, settings, strategies as st

from swarmbo.errors import ConfigError
from swarmbo.serve import app as application
from swarmbo.serve.messages import document, refusal_of
from swarmbo.settings import unknown_key_message

from .conftest import TOKEN, client_of, open_broker, value_of

pytest.importorskip("starlette")


def refused(answer, *statuses):
    """Check that an answer is a refusal of one JSON line; return it."""
    assert answer.status_code in statuses, (answer.status_code, answer.text)
    assert answer.text.count("\n") == 1
    assert "Traceback" not in answer.text
    refusal = answer.json()
    assert set(refusal) == {"what", "got", "wanted", "fix"}
    assert refusal["what"]
    assert refusal["wanted"]
    assert refusal["fix"]
    return refusal


INVALID_JSON = (b"", b"{", b"nan", b'{"key": NaN}', b"\xff\xfe", b'{"key": "\xff"}', b"[" * 30_000)
TOO_DEEP, TOO_LONG = b'{"a":' * 9 + b"1" + b"}" * 9, b" " * (64 * 1024 + 1)
INVALID_TABLES = (b"[]", b"3", b'"key"', b"null", b"{}")
INVALID_KEYS = (b'{"kee": 1}', b'{"key": 3}', b'{"key": ""}', b'{"key": "' + b"k" * 201 + b'"}')
INVALID_LEASES = (b'{"key": "k", "lease_s": 0}', b'{"key": "k", "lease_s": 1e300}')
INVALID_OUTCOMES = (b'{"outcome": "1"}', b'{"outcome": [1]}', b'{"outcome": {"zz": 1}}', b'{"failed": 1}')
INVALID_NOISE = b'{"outcome": 1, "noise_std": -1}'
NOISE = "a finite number >= 0 and < 1e+60, or None or NaN if it is not known"
INVALID_POINTS = (b'{"outcome": 1, "point": {"x": 0}}', b'{"outcome": 1, "point": {"x": 9, "y": 0, "z": 0}}')
INVALID_POINTS += (b'{"outcome": 1, "point": {"x": 1' + b"0" * 400 + b', "y": 0, "z": 0}}',)
INVALID_LOCATIONS = b'{"outcome": 1, "locations": {"a": [0, 0]}}'
REFUSED = [*((body, 400) for body in (*INVALID_JSON, TOO_DEEP)), (TOO_LONG, 413)]
REFUSED += [
    (body, 422)
    for body in (
        *INVALID_TABLES,
        *INVALID_KEYS,
        *INVALID_LEASES,
        *INVALID_OUTCOMES,
        INVALID_NOISE,
        *INVALID_POINTS,
        INVALID_LOCATIONS,
    )
]


@pytest.mark.parametrize("path", ["/ask", "/tell/q00001"])
def test_invalid_bodies_are_refused_without_a_change_of_state(client, broker, path):
    client.post("/ask", json={"key": "first"})
    before = broker.state()
    for body, status in REFUSED:
        answer = client.post(path, content=body)
        assert (answer.status_code, broker.state()) == (status, before), body
        refused(answer, status)
    assert client.post("/tell/q00001", json={"outcome": 1}).json()["is_new"]


@pytest.mark.parametrize(
    ("path", "body", "got", "wanted"),
    [
        ("/ask", {}, "no 'key'", "key, lease_s"),
        ("/ask", {"key": 1}, "1", "text"),
        ("/ask", {"key": "k", "leases": 1}, "'leases'", None),
        ("/ask", {"key": ""}, "''", "text of length >= 1"),
        ("/tell/q00001", {"outcome": 1, "noise_std": 1e300}, "1e+300", NOISE),
        ("/ask", [], "[]", "a table"),
        ("/tell/q00009", {"outcome": 1}, "'q00009'", None),
        ("/tell/q00001", {"outcome": "much"}, "'much'", "a number or a table or nothing"),
        ("/tell/q00001", {"outcome": 2}, "the total 2.0", "1.0"),
        ("/tell/q00001", {"outcome": 1, "failed": True}, "1.0 and failed = true", "one of them"),
        ("/tell/q00001", {"outcome": {"a": 1}}, "['a']", "some of ['f', 'g'] or the total"),
        ("/tell/q00001", {"outcome": None}, "a failure of the total", "1.0"),
    ],
)
def test_a_refusal_says_what_was_got_and_what_is_wanted(client, path, body, got, wanted):
    client.post("/ask", json={"key": "first"})
    client.post("/tell/q00001", json={"outcome": 1})
    refusal = client.post(path, json=body).json()
    assert refusal["got"] == got
    assert wanted is None or refusal["wanted"] == wanted


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("key", "lease_s", "outcome", "failed", "point", "locations", "noise_std")
BODIES = st.one_of(
    st.binary(max_size=80),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4).map(lambda value: json.dumps(value).encode()),
)


@settings(max_examples=60)
@given(path=st.sampled_from(["/ask", "/tell/q00001", "/tell/q%00%0a", "/tell/../../etc"]), body=BODIES)
def test_no_request_body_makes_the_service_fail(tmp_path_factory, path, body):
    broker = open_broker(tmp_path_factory.mktemp("desk"), lambda: 0.0)
    with client_of(broker) as client:
        answer = client.post(path, content=body)
    if answer.status_code != 200:
        refused(answer, 400, 404, 413, 422)


FORGED = f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"


@pytest.mark.parametrize("path", ["/ask", "/tell/q00001", "/state", "/best", "/openapi.json"])
def test_forged_tokens_are_refused(broker, path):
    method = "POST" if path in ("/ask", "/tell/q00001") else "GET"
    with client_of(broker, None) as client:
        for header in (None, "", "Bearer", "Bearer wrong", *FORGED, f"Basic {TOKEN}", TOKEN, "Bearer é"):
            headers = [] if header is None else [(b"authorization", header.encode())]
            answer = client.request(method, path, headers=headers, content=b'{"key":"k"}')
            assert answer.status_code == 401, header
            assert TOKEN not in json.dumps(refused(answer, 401))
    assert broker.state().asked == 0


def test_the_scheme_of_a_token_is_case_insensitive(broker):
    with client_of(broker, None) as client:
        assert client.get("/state", headers={"Authorization": f"bearer {TOKEN}"}).status_code == 200


def test_the_page_and_the_health_check_need_no_token(broker):
    with client_of(broker, None) as client:
        assert client.get("/healthz").json() == {"status": "ok"}
        page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    # the page loads nothing from other servers
    assert "http://" not in page.text.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page.text


def test_other_paths_and_methods_are_refused(client):
    refused(client.get("/nowhere"), 404)
    refused(client.post("/ask/", json={"key": "k"}, follow_redirects=False), 404)
    refused(client.get("/ask"), 405)
    refused(client.delete("/state"), 405)


def test_outcomes_per_factor_can_be_told_in_parts(tmp_path, clock):
    with client_of(open_broker(tmp_path, clock, "per-factor")) as client:
        asked = client.post("/ask", json={"key": "k"}).json()
        values, path = value_of(asked["point"]), f"/tell/{asked['query']}"
        first = client.post(path, json={"outcome": {"f": values["f"]}, "noise_std": {"f": 0.1}}).json()
        assert first["is_pending"]
        assert not first["told"]
        refused(client.post(path, json={"outcome": {"f": values["f"] + 1}}), 409)
        assert client.post(path, json={"outcome": {"f": values["f"]}}).status_code == 200
        refused(client.post(path, json={"outcome": 1.0}), 422)
        assert not client.post(path, json={"outcome": {"g": values["g"]}}).json()["is_pending"]
        best = client.get("/best").json()
    assert best["outcome"] == pytest.approx(sum(values.values()))
    assert best["point"] == best["recommended"] == asked["point"]


def test_a_point_that_is_told_before_the_last_outcome_counts(tmp_path, clock):
    broker = open_broker(tmp_path, clock, "per-factor")
    with client_of(broker) as client:
        asked = client.post("/ask", json={"key": "k"}).json()
        path, moved = f"/tell/{asked['query']}", {"x": 0.25, "y": 0.5, "z": 0.125}
        assert client.post(path, json={"outcome": {}, "point": moved}).json()["is_pending"]
        assert client.post(path, json={"outcome": {"f": 1.0}}).json()["is_pending"]
        elsewhere = {"x": 0.0, "y": 0.0, "z": 1.5}  # x and y also belong to f, which is known
        client.post(path, json={"outcome": {"g": 2.0}, "point": elsewhere})
        best = client.get("/best").json()
    assert best["point"] == best["recommended"] == moved | {"z": 1.5}
    assert broker.ledger.team.history.X.tolist() == [[0.25, 0.5, 1.5]]


def test_agents_in_a_field_can_tell_their_locations(tmp_path, clock):
    broker = open_broker(tmp_path, clock, "field")
    with client_of(broker) as client:
        asked = client.post("/ask", json={"key": "k"}).json()
        assert set(asked["locations"]) == {"a", "b"}
        path = f"/tell/{asked['query']}"
        body = {"outcome": {"a": 2.0}, "locations": {"a": [0.5, 1.5]}}
        assert client.post(path, json=body).json()["is_pending"]
        refused(client.post(path, json={"outcome": {"b": 1.0}, "locations": {"b": [0.5]}}), 422)
        refused(client.post(path, json={"outcome": {"c": 1.0}}), 422)
        assert not client.post(path, json={"failed": True}).json()["is_pending"]
        state = client.get("/state").json()
    model = {"recommended": None, "mean": None, "std": None}
    assert state["best"] == {"outcome": 2.0, "query": "q00001", "point": {"x": 0.5, "y": 1.5}, **model}
    assert (state["outcomes"], state["failed"], state["told"]) == ([2.0, None], 1, 1)
    assert open_broker(tmp_path, clock, "field").ledger.team.history.X[0, :2].tolist() == [0.5, 1.5]


def test_a_slow_body_is_refused_after_a_timeout(broker, monkeypatch):
    monkeypatch.setattr(application, "SLOWEST_BODY", 0.05)
    app, sent = application.Application(broker, TOKEN), []

    async def receive():
        await asyncio.sleep(0.01 if not sent else 10.0)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message):
        sent.append(message)

    async def request():
        headers = [(b"authorization", f"Bearer {TOKEN}".encode())]
        scope = {"type": "http", "method": "POST", "path": "/ask", "raw_path": b"/ask", "query_string": b""}
        await app(
            {**scope, "headers": headers, "http_version": "1.1", "scheme": "http", "server": ("h", 1)}, receive, send
        )

    asyncio.run(asyncio.wait_for(request(), 5.0))
    assert sent[0]["status"] == 408


def test_requests_beyond_the_queue_are_refused(broker, client, monkeypatch):
    monkeypatch.setattr(application, "MOST_WAITING", 0)
    answer = client.post("/ask", json={"key": "k"})
    refused(answer, 503)
    assert answer.headers["retry-after"] == "1"


def test_an_internal_error_of_the_service_is_one_line(broker, client, monkeypatch, capsys):
    monkeypatch.setattr(broker, "ask", lambda request: 1 / 0)
    refused(client.post("/ask", json={"key": "k"}), 500)
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_openapi_document_is_valid_and_describes_the_answers(client):
    jsonschema = pytest.importorskip("jsonschema")
    described = client.get("/openapi.json").json()
    assert described == json.loads(json.dumps(document()))
    components = described["components"]["schemas"]
    for schema in components.values():
        jsonschema.Draft202012Validator.check_schema(schema)

    def fits(answer, method, path):
        responses = described["paths"][path][method]["responses"]
        schema = responses[str(answer.status_code)]["content"]["application/json"]["schema"]
        jsonschema.validate(answer.json(), {**schema, "components": described["components"]})

    fits(client.get("/healthz"), "get", "/healthz")
    fits(client.post("/ask", json={"key": "k"}), "post", "/ask")
    fits(client.post("/ask", json={}), "post", "/ask")
    fits(client.get("/state"), "get", "/state")
    for outcome in (1.0, 1.0, 2.0):
        fits(client.post("/tell/q00001", json={"outcome": outcome}), "post", "/tell/{id}")
    fits(client.get("/state"), "get", "/state")
    fits(client.get("/best"), "get", "/best")
    fits(client.post("/tell/q00009", json={"outcome": 1.0}), "post", "/tell/{id}")
    if validator := pytest.importorskip("openapi_spec_validator"):
        validator.validate(described)


@pytest.mark.parametrize("kind", [None, "linear", "pkg.mod:Class"])
def test_a_refusal_of_a_key_names_the_known_ones(kind):
    assert refusal_of(ConfigError(unknown_key_message("colour", ["x", "y"], kind))).wanted == "x, y"


def test_own_code_that_ends_a_request_does_not_end_the_service():
    worker = application._Worker()

    async def call(work):
        return await asyncio.wait_for(worker.call(0, work), 30.0)

    def own_code():
        sys.exit("no licence")

    def cancelled():
        raise asyncio.CancelledError

    try:
        with pytest.raises(RuntimeError, match="no licence") as caught:
            asyncio.run(call(own_code))
        assert "own_code" in [entry.name for entry in caught.traceback]
        with pytest.raises(RuntimeError, match="CancelledError"):
            asyncio.run(call(cancelled))
        assert asyncio.run(call(lambda: 1)) == 1
    finally:
        worker.close()
