"""The bytes in docs/studies/bytes.md are those on the wire, and agree with the format of messages."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

import swarmbo as sb
from swarmbo.transport import Envelope, InProcessTransport

ROOT = Path(__file__).parents[2]
ROUNDS, STARTS, DECISIONS = 3, 4, 2
FIXED = sb.ADMM(rounds=ROUNDS, starts=STARTS, tolerance=1e-300, screened=16, polish_steps=4)
SCOPES = {f"f{i}": [f"x{i}", f"x{i + 1}"] for i in range(4)}
AGENTS = 5  # one per variable; the agent of a factor's first variable owns the factor
LABEL = 12  # bytes of checksum, decision and turn in front of every message of an agreement
ARRAY, NIL, FLOAT = 1, 1, 9  # bytes in MessagePack; an array has up to 15 entries


def text(name: str) -> int:
    return 1 + len(name)


def raw(n_numbers: int) -> int:
    """Bytes of an array of numbers: 8 per number, after a header of 2 or 3."""
    return 8 * n_numbers + (2 if 8 * n_numbers < 256 else 3)


@pytest.fixture
def audit(script: Any) -> Any:
    return script("decentralisation")


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> list[Envelope]:
    """All envelopes that any transport carries."""
    seen, send = list[Envelope](), InProcessTransport.send

    def noted(self: InProcessTransport, envelope: Envelope) -> None:
        seen.append(envelope)
        send(self, envelope)

    monkeypatch.setattr(InProcessTransport, "send", noted)
    return seen


def by_tag(wire: list[Envelope]) -> tuple[Counter[str], Counter[str]]:
    messages, sizes = Counter[str](), Counter[str]()
    for envelope in wire:
        if envelope.sender != envelope.recipient:
            tag = msgspec.msgpack.decode(envelope.payload[LABEL:])[0]
            messages[tag] += 1
            sizes[tag] += len(envelope.payload)
    return messages, sizes


@pytest.mark.parametrize(
    ("acquisition", "mode"),
    [
        *(("thompson", "per-factor"), ("dumbo", "total"), ("dumbo", "mixed")),
        *(pytest.param("thompson", mode, marks=pytest.mark.slow) for mode in ("total", "mixed")),
        pytest.param("dumbo", "per-factor", marks=pytest.mark.slow),
    ],
)
def test_bytes_by_kind_are_those_on_the_wire(audit: Any, wire: list[Envelope], acquisition: str, mode: str):
    by_kind, total = audit.measured(audit.function(SCOPES), mode, acquisition, FIXED, DECISIONS)
    messages, sizes = by_tag(wire)
    assert by_kind["copies"] == sizes["copy"] + sizes["consensus"]
    assert by_kind["slopes"] == sizes["slope"]
    assert by_kind["published"] == sizes["published"]
    assert (by_kind["published"] > 0) == (acquisition == "dumbo")
    assert by_kind["sums"] == sizes["tally"] + sizes["ruling"] > 0
    assert by_kind["max-sum"] == sum(sizes.values()) - sum(by_kind[kind] for kind in audit.COLUMNS[:4])
    assert total.bytes == sum(sizes.values()) + sum(by_kind[kind] for kind in audit.COLUMNS[5:])

    # format and number of messages: one per round for every factor that shares a variable with another agent's factor
    shared = [(f"f{i}", f"x{i + 1}") for i in range(3)]  # the factor's first variable belongs to its owner
    assert messages["copy"] == DECISIONS * ROUNDS * len(shared)
    head = LABEL + ARRAY + text("copy") + raw(STARTS)
    assert sizes["copy"] == DECISIONS * ROUNDS * sum(head + text(factor) + text(x) for factor, x in shared)
    assert messages["tally"] == messages["ruling"]
    assert messages["tally"] % (AGENTS - 1) == 0  # every sum goes up a tree of the agents once, and down again


@pytest.mark.parametrize("mode", ["per-factor", "total", "mixed"])
def test_sums_outside_of_the_agreement_have_the_length_of_their_format(audit: Any, mode: str):
    by_kind, _ = audit.measured(audit.function(SCOPES), mode, "dumbo", FIXED, DECISIONS)
    up = LABEL + ARRAY + text("tally") + 1 + text("x0")  # the index of the part is one byte
    down = LABEL + ARRAY + text("ruling") + 1
    k, d = len(SCOPES), AGENTS  # a variable for each agent
    told = k + 1 + d + 2  # outcomes of factors and sum; point; order; number of outcomes known before
    numbers = {
        "best": list(range(audit.INITIAL, audit.INITIAL + DECISIONS)) if mode == "per-factor" else [],
        "what came": [told if mode == "per-factor" else told + 2 * (k + 1)] * DECISIONS,  # outcomes, and their noise
        "point": [d] * DECISIONS,
    }
    for kind, lengths in numbers.items():
        assert by_kind[kind] == sum((AGENTS - 1) * (up + down + 2 * raw(length)) for length in lengths)


@pytest.mark.parametrize(("method", "label"), [("add-gp-ucb", "by ADMM"), ("auto", "`auto`")])
@pytest.mark.parametrize("mode", ["per-factor", "total"])
def test_rows_of_the_page_agree_with_the_script(audit: Any, mode: str, method: str, label: str):
    world = audit.WORLDS["4 disjoint pairs"]
    _, *row = audit.row_of("", *audit.cells_of(*audit.measured(world, mode, *audit.METHODS[method])))
    page = (ROOT / "docs" / "studies" / "bytes.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"\*\*4 disjoint pairs\*\*\n\n((?:\|.*\n)+)", page)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert [cells for name, *cells in rows if name == f"{mode}, {label}"] == [row]


def test_robots_that_choose_sequentially_send_reports_only(audit: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(audit, "DECISIONS", 1)
    agreement, sharing = audit.robots("greedy")
    assert agreement.messages == 0  # each agent computes the choices of all
    assert sharing.messages == 2 * 3
    reading = ARRAY + 1 + 1 + ARRAY + ARRAY + 2 * FLOAT + FLOAT + NIL + NIL + ARRAY + 1  # a measurement without a query
    least = 4 * (text("robot_0") + ARRAY + ARRAY + reading + FLOAT)
    assert 3 * 4 * reading < sharing.bytes < 3 * (least + 4 * 200)
