"""What a transport with faults loses."""

import networkx as nx
import pytest

from swarmbo.errors import ConfigError, TransportError
from swarmbo.records import Traffic
from swarmbo.settings import convert
from swarmbo.transport import Envelope, Faults


def arrivals(transport, sender, recipient, n):
    """For each of n messages, sent in steps of their own, whether it arrives."""
    fates = []
    for _ in range(n):
        transport.send(Envelope(sender, recipient, b"12"))
        fates.append(bool(transport.deliver()))
    return fates


def test_a_share_of_the_messages_is_lost_and_all_are_counted():
    transport = Faults(loss=0.3).open(["a", "b"])
    fates = arrivals(transport, "a", "b", 4000)
    assert sum(fates) == pytest.approx(2800, abs=4 * (4000 * 0.3 * 0.7) ** 0.5)
    assert transport.traffic == Traffic(messages=4000, bytes=8000, transmissions=4000)


def test_each_direction_loses_on_its_own_and_whatever_others_carry():
    alone = Faults(loss=0.5, seed=3).open(["a", "b", "c"])
    there = arrivals(alone, "a", "b", 200)
    busy = Faults(loss=0.5, seed=3).open(["a", "b", "c"])
    arrivals(busy, "b", "a", 17)
    arrivals(busy, "a", "c", 5)
    assert arrivals(busy, "a", "b", 200) == there
    assert arrivals(alone, "b", "a", 200) != there
    assert arrivals(Faults(loss=0.5, seed=4).open("ab"), "a", "b", 200) != there


def test_a_relayed_message_has_to_survive_every_link():
    transport = Faults(loss=0.3).open("abcd", nx.path_graph(["a", "b", "c", "d"]))
    assert sum(arrivals(transport, "a", "d", 4000)) == pytest.approx(4000 * 0.7**3, abs=130)


def test_nothing_crosses_a_cut_until_it_heals():
    transport = Faults().open("abcd", nx.path_graph(["a", "b", "c", "d"]))
    transport.cut(["a", "b"])
    for sender, recipient in ["bc", "cb", "ad"]:
        assert arrivals(transport, sender, recipient, 3) == [False] * 3
    for sender, recipient in ["ab", "cd"]:
        assert arrivals(transport, sender, recipient, 3) == [True] * 3
    transport.cut(["a"], ["b"])
    assert arrivals(transport, "a", "b", 3) == [False] * 3
    transport.heal()
    assert arrivals(transport, "a", "d", 3) == [True] * 3


def test_a_note_to_oneself_is_never_lost():
    transport = Faults(loss=0.9).open("ab")
    transport.cut(["a"])
    assert all(arrivals(transport, "a", "a", 50))


@pytest.mark.parametrize("loss", [-0.1, 1.0, float("nan")])
def test_other_shares_are_refused(loss):
    with pytest.raises(ConfigError, match=r"a number in \[0, 1\)"):
        convert({"kind": "faults", "loss": loss}, Faults)


def test_unknown_agents_are_refused():
    with pytest.raises(TransportError, match="unknown agent"):
        Faults().open("ab").send(Envelope("a", "x", b""))
