"""Messages over links: encoding, checks and sizes."""

import zlib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.coordination import messages as kinds
from swarmbo.coordination.messages import Codec, FromFactor, Label, Message, index_widths
from swarmbo.errors import TransportError

ENTRIES = np.array([1.0, -np.inf, 0.1])
MESSAGES: list[Message] = [
    kinds.FromVariable("f", "x", ENTRIES, 200),
    FromFactor("f", "x", ENTRIES),
    kinds.Conditioned("f", "x", ENTRIES),
    kinds.Choice("x", 3),
    kinds.Report(0, "a", ENTRIES, np.inf, True),
    kinds.Verdict(0, 2, False),
    kinds.FactorTable("f", (3, 1), ENTRIES),
    kinds.Eliminated("x", (1, 3), ENTRIES),
    kinds.Decided("x", (4, 70_000)),
    kinds.Line("f", "x", ENTRIES, 2.0),
    kinds.Consensus("f", "x", ENTRIES[:1]),
    kinds.Reduced(0, "a", ENTRIES.reshape(3, 1)),
    kinds.Broadcast(200, ENTRIES),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_survives_its_encoding(message: Message) -> None:
    again = Codec.read(Codec.encode(message))[1]
    assert again.key == message.key
    for sent, received in ((getattr(one, field) for one in (message, again)) for field in message.__struct_fields__):
        assert received.tobytes() == sent.tobytes() if isinstance(sent, np.ndarray) else received == sent


@given(decision=st.integers(0, 2**32 - 1), turn=st.integers(0, 2**32 - 1), message=st.sampled_from(MESSAGES))
def test_a_label_survives_and_has_the_same_size_whatever_its_numbers(decision: int, turn: int, message: Message):
    payload = Codec.encode(message, Label(decision, turn))
    label, again = Codec.read(payload)
    assert (label, again.key) == (Label(decision, turn), message.key)
    assert len(payload) == len(Codec.encode(message))


@given(data=st.data(), message=st.sampled_from(MESSAGES))
def test_any_change_cut_or_addition_in_transit_is_detected(data: st.DataObject, message: Message):
    payload = Codec.encode(message, Label(3, 1))
    place = data.draw(st.integers(0, len(payload) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != payload[place]))
    for mangled in (
        payload[:place] + bytes([other]) + payload[place + 1 :],
        payload[:place],
        payload + bytes([other]),
        payload[:place] + payload[place + 1 :],
    ):
        with pytest.raises(TransportError, match=r"changed in transit|cut off"):
            Codec.read(mangled)


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x93\xa1?\x01\x02", b"\x92\xa6choice\x01"])
def test_content_that_is_not_a_message_is_refused_even_if_its_checksum_is_right(content: bytes):
    labelled = bytes(8) + content
    with pytest.raises(TransportError, match="does not define"):
        Codec.read(zlib.crc32(labelled).to_bytes(4, "little") + labelled)


def test_a_key_is_the_kind_and_what_distinguishes_a_message_from_others_of_its_kind() -> None:
    nothing = np.zeros(0)
    assert len({message.key for message in MESSAGES}) == len(MESSAGES)
    keys = {kinds.FromVariable("f", "x", *rest).key for rest in ((nothing, 1), (ENTRIES, 2))}
    assert keys == {("variable", "f", "x")}
    assert kinds.Report(1, "a", nothing, 0.0, False).key == ("report", 1, "a")
    assert kinds.Decided("x", (3,)).key == ("decided", "x")


def test_numbers_survive_bit_identically_as_little_endian_float64_in_c_order() -> None:
    array = np.array([[0.1, -np.inf], [5e-324, -0.0]])
    payload = Codec.encode(FromFactor("f", "x", array.T))
    again = Codec.read(payload)[1]
    assert isinstance(again, FromFactor)
    assert array.T.astype("<f8").tobytes() in payload
    assert again.entries.tobytes() == array.T.tobytes()


@given(st.sampled_from([0, 1, 31, 32, 100, 8191, 8192, 8193]), st.text(max_size=40), st.integers(0, 2**20))
def test_the_size_is_known_without_packing_the_numbers(n: int, name: str, index: int) -> None:
    for message in (FromFactor(name, "x", np.zeros(n)), kinds.Reduced(index, name, np.zeros((2, n))), *MESSAGES):
        assert Codec.size(message) == len(Codec.encode(message))


@given(st.integers(0, 2**20) | st.sampled_from([127, 128, 255, 256, 65535, 65536]))
def test_the_width_of_an_index_is_known(index: int) -> None:
    width = len(Codec.encode(kinds.Choice("x", index))) - len(Codec.encode(kinds.Choice("x", 0)))
    assert index_widths(np.array([index, 0])).tolist() == [width, 0]
