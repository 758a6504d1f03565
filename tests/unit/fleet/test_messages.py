"""A message arrives as it was written, or is refused in one line."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import swarmbo as sb
from swarmbo.agent.schema import Participants
from swarmbo.deciding.offers import Offer
from swarmbo.deciding.own_rows import OwnRow, OwnRows
from swarmbo.errors import TransportError
from swarmbo.fleet.messages import (
    MAX_MESSAGE_BYTES,
    AgreementMessage,
    Decide,
    Decision,
    End,
    Heartbeat,
    Invitation,
    Measure,
    MeasurementResult,
    Measurements,
    Message,
    Ping,
    Readmission,
    Receipt,
    RecordOutcome,
    SendSnapshot,
    Snapshot,
    agent_accepts,
    decode,
    digest_of,
    encode,
)
from swarmbo.fleet.plan import HUB, Plan
from swarmbo.problem.data import Measurement
from swarmbo.records import SolveReport, Traffic
from swarmbo.spaces import Domain

NUMBERS = st.dictionaries(st.text(max_size=8), st.floats(allow_nan=False, allow_infinity=False), max_size=4)
REPORT = SolveReport(status="converged", rounds=3)
PLACES = st.tuples(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
OFFERS = st.none() | st.builds(Offer, st.none() | st.tuples(PLACES), st.floats(0.0, 9.0), st.none() | PLACES)
STOPS = st.builds(Measurement, PLACES, st.none() | st.floats(-1e60, 1e60), st.none() | st.floats(0.0, 9.0))
ANSWERS = st.builds(MeasurementResult, NUMBERS, NUMBERS, st.none() | PLACES, st.text(max_size=9))
ROWS = st.builds(
    OwnRow,
    st.integers(0, 9),
    NUMBERS,
    st.just(msgspec.UNSET) | st.none() | st.floats(-1e60, 1e60),
    NUMBERS,
    st.none() | st.floats(0.0, 9.0),
    NUMBERS,
    st.none() | st.floats(0.0, 9.0),
    st.tuples(STOPS),
    st.booleans(),
)
ROWS_BY_QUERY = st.builds(OwnRows, st.dictionaries(st.text(max_size=8), ROWS, max_size=2))
PARTICIPANTS = st.builds(
    Participants, st.integers(1, 99), st.just(("a", "b")), st.dictionaries(st.just("c"), ROWS_BY_QUERY)
)
MESSAGES = st.one_of(
    st.builds(AgreementMessage, st.binary(max_size=300)),
    st.builds(
        Decide,
        st.integers(1, 10**6),
        st.none() | st.just((("a", "b"),)),
        OFFERS,
        st.none() | PARTICIPANTS,
        st.integers(0, 99),
    ),
    st.builds(SendSnapshot, st.integers(1, 99), st.integers(0, 99)),
    st.builds(Snapshot, st.integers(1, 99), st.binary(max_size=99)),
    st.builds(
        Readmission,
        st.integers(1, 99),
        st.integers(0, 99),
        ROWS_BY_QUERY,
        st.binary(max_size=99),
        st.dictionaries(st.text(max_size=8), ROWS, max_size=2),
    ),
    st.builds(Heartbeat, st.binary(max_size=8), st.booleans()),
    st.builds(Ping, st.integers(0, 99)),
    st.builds(
        Decision, st.integers(1, 99), st.text(max_size=9), NUMBERS, st.just(REPORT), st.just({"news": Traffic(1, 2, 3)})
    ),
    st.builds(RecordOutcome, st.integers(1, 99), st.none() | st.text(max_size=9), ROWS),
    st.builds(Invitation, st.just(Plan("run", {"a": "tcp/127.0.0.1:7447"}, {}, {}))),
    st.builds(Measure, st.integers(1, 99), st.tuples(PLACES)),
    st.builds(Measurements, st.integers(1, 99), st.tuples(ANSWERS), st.text(max_size=9)),
    st.just(End()),
    st.builds(Receipt, st.binary(min_size=16, max_size=16)),
)


@given(MESSAGES)
def test_a_message_arrives_as_it_was_written(message):
    assert decode(encode(message)) == message


@settings(max_examples=60)
@given(MESSAGES, st.data())
def test_a_message_changed_in_transit_is_refused(message, data):
    packet = bytearray(encode(message))
    place = data.draw(st.integers(0, len(packet) - 1))
    packet[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(TransportError, match="changed in transit"):
        decode(bytes(packet))


@settings(max_examples=150)
@given(MESSAGES, st.data())
def test_changed_content_with_a_valid_digest_is_a_message_or_refused(message, data):
    # after random changes and a new digest, the result is some message or an error
    body = bytearray(encode(message)[16:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    packet = digest_of(bytes(body)) + bytes(body)
    try:
        found = decode(packet)
    except TransportError:
        return
    assert isinstance(found, Message)


def outcome_message(**row):
    """A message with an outcome of an agent."""
    return msgspec.msgpack.encode(["Told", 1, "q", {"order": 0, **row}])


def decide_message(value, of):
    """A request to decide, with an outcome of an absent agent."""
    participants = {"number": 1, "members": ["a"], "said": {"b": {"told": {"q": {"order": 0, of: value}}}}}
    return msgspec.msgpack.encode(["Begin", 1, None, None, participants, 0])


def body(*parts):
    return msgspec.msgpack.encode(parts)


INFINITE = "got a number that is NaN or infinite; wanted finite"
INVALID_MESSAGES = {
    "nothing": (b"", "wanted 17 to"),
    "no MessagePack": (b"\xc1", "got bytes that are not a message"),
    "a table": (msgspec.msgpack.encode({"no": "letter"}), "got bytes that are not a message"),
    "nested too deep": (b"\x91" * 100_000, "got bytes that are not a message"),
    "NaN": (outcome_message(place={"x": math.nan}), INFINITE),
    "infinite": (outcome_message(factors={"f": math.inf}), INFINITE),
    "NaN in a place": (outcome_message(on_the_way=[[[0.0, math.nan], 1.0]]), INFINITE),
    "infinite outcome": (outcome_message(on_the_way=[[[0.0], math.inf]]), INFINITE),
    "infinite candidate": (body("Begin", 1, None, {"candidates": [[0.0, -math.inf]]}), INFINITE),
    "NaN price": (body("Begin", 1, None, {"price": math.nan}), INFINITE),
    "NaN in a place to measure": (body("Measure", 1, [[math.nan]]), INFINITE),
    "infinite measurement": (body("Measured", 1, [[{"f": math.inf}]]), INFINITE),
    "NaN outcome of an absent agent": (decide_message({"f": math.nan}, "factors"), INFINITE),
    "infinite total of an absent agent": (decide_message(math.inf, "total"), INFINITE),
    "infinite sample of an absent agent": (decide_message([[[0.0], math.inf]], "on_the_way"), INFINITE),
    "NaN place in a readmission": (
        body("Back", 1, 0, {}, b"", {"q": {"order": 0, "place": {"x": math.nan}}}),
        INFINITE,
    ),
    "infinite place of an absent agent": (body("Word", 1, "q", {}, REPORT, {}, 0, 0, {"x": math.inf}), INFINITE),
    "too long": (bytes(MAX_MESSAGE_BYTES), f"wanted 17 to {MAX_MESSAGE_BYTES}"),
}


@pytest.mark.parametrize(("content", "why"), INVALID_MESSAGES.values(), ids=INVALID_MESSAGES)
def test_invalid_bytes_are_refused_in_one_line(content, why):
    with pytest.raises(TransportError, match=why):
        decode(digest_of(content) + content)


def test_fields_that_a_later_version_adds_are_ignored():
    content = body("End", "\ud800".encode("utf-8", "surrogatepass"))
    assert decode(digest_of(content) + content) == End()


def test_a_message_that_is_too_long_is_not_encoded():
    with pytest.raises(TransportError, match="wanted at most"):
        encode(AgreementMessage(bytes(MAX_MESSAGE_BYTES)))


FUNCTION = sb.Problem.of(
    sb.FactorGraph.from_scopes({"f": ["x"], "g": ["y"]}, owners={"f": "a", "g": "b"}),
    {"x": (0.0, 1.0), "y": (0.0, 1.0)},
    {"x": "a", "y": "b"},
    outcomes="per-factor",
)
FIELD = sb.Problem.of_field(["a", "b"], Domain(np.zeros(2), np.ones(2)))
PLACE = dict(zip(FIELD.graph.variables_owned_by("a"), (0.5, 0.5), strict=True))
STOP = Measurement((0.5, 0.5), 1.0)


@pytest.mark.parametrize(
    ("problem", "query", "row", "fits"),
    [
        (FUNCTION, "q00001", OwnRow(0, {"f": 1.0}, place={"x": 0.5}, noise={"f": 0.1}), True),
        (FUNCTION, None, OwnRow(0, {"f": 1.0}), False),
        (FUNCTION, "q00001", OwnRow(0, {"g": 1.0}), False),
        (FUNCTION, "q00001", OwnRow(0, {"f": 1e61}), False),
        (FUNCTION, "q00001", OwnRow(0, {"f": 1.0}, place={"y": 0.5}), False),
        (FUNCTION, "q00001", OwnRow(0, {"f": 1.0}, place={"x": 9.0}), False),
        (FUNCTION, "q00001", OwnRow(0, {"f": 1.0}, noise={"f": -0.1}), False),
        (FUNCTION, "q00001", OwnRow(0, {"f": 1.0}, noise={"g": 0.1}), False),
        (FUNCTION, "q00001", OwnRow(0, total=1.0), False),  # outcomes are per factor here
        (FUNCTION, "q00001", OwnRow(0, total_noise=-1.0), False),
        (FUNCTION, "q00001", OwnRow(0, on_the_way=(STOP,)), False),
        (FUNCTION, "q00001", OwnRow(-1, {"f": 1.0}), False),
        (FIELD, None, OwnRow(0, {"a": 1.0}, place=PLACE, on_the_way=(STOP,)), True),
        (FIELD, "q00001", OwnRow(0, has_ended=True), True),
        (FIELD, None, OwnRow(0, {"a": 1.0}), False),  # a measurement without a place
        (FIELD, None, OwnRow(0, {"a": 1.0}, place=dict.fromkeys(PLACE, 1e9)), False),
        (FIELD, None, OwnRow(0, {"b": 1.0}, place=PLACE), False),
        (FIELD, None, OwnRow(0, on_the_way=(Measurement((0.5,), 1.0),)), False),
    ],
)
def test_an_agent_accepts_only_possible_outcomes_of_its_own_from_the_hub(problem, query, row, fits):
    assert agent_accepts(HUB, RecordOutcome(1, query, row), "a", problem) is fits
    assert not agent_accepts("b", RecordOutcome(1, query, row), "a", problem)
    if query is not None:
        back = Readmission(1, 0, OwnRows({query: row}), b"", {query: row})
        assert agent_accepts(HUB, back, "a", problem) is (fits or row.total is not msgspec.UNSET)
        assert not agent_accepts(HUB, msgspec.structs.replace(back, last_joined=-1), "a", problem)
