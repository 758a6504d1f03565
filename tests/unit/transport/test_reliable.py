"""Acknowledged and repeated messages: each arrives once, whatever is lost, and unreachable agents are given up."""

import networkx as nx
import pytest
from hypothesis import given, strategies as st

from swarmbo.records import EdgeTraffic, by_name
from swarmbo.transport import Cut, Envelope, Event, Faults, Reliable

FAULTS = st.builds(
    Faults,
    loss=st.floats(0.0, 0.8),
    delay=st.integers(0, 5),
    duplicate=st.floats(0.0, 0.8),
    reorder=st.floats(0.0, 0.8),
    bandwidth=st.none() | st.integers(5, 200),
    seed=st.integers(0, 1000),
)


def received(transport):
    """All messages that arrive, by recipient."""
    out = {}
    while inboxes := transport.deliver():
        for agent, inbox in inboxes.items():
            out.setdefault(agent, []).extend(inbox)
    return out


@given(FAULTS, st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), max_size=20))
def test_every_message_arrives_exactly_once(faults, pairs):
    transport = Reliable(faults.open("abc", nx.path_graph("abc")))
    sent = [Envelope(sender, recipient, bytes([n])) for n, (sender, recipient) in enumerate(pairs)]
    for envelope in sent:
        transport.send(envelope)
    got = [envelope for inbox in received(transport).values() for envelope in inbox]
    assert sorted(got) == sorted(sent)
    assert not transport.given_up


def test_without_faults_inboxes_are_those_of_a_faultless_transport_and_nothing_is_repeated():
    transport = Reliable(Faults().open("abc"))
    for sender, payload in [("c", b"1"), ("b", b"2"), ("c", b"3")]:
        transport.send(Envelope(sender, "a", payload))
    assert [envelope.payload for envelope in transport.deliver()["a"]] == [b"2", b"1", b"3"]
    assert transport.deliver() == {}
    acknowledged = 2  # one answer to each of the two senders
    assert transport.traffic.messages == 3 + acknowledged


def test_an_agent_that_never_answers_is_given_up():
    for faults in (Faults(cuts=(Cut(parts=(("b",),)),)), Faults(deaths=(Event(agent="b", round=0),))):
        transport = Reliable(faults.open("abc"))
        transport.send(Envelope("a", "b", b"1"))
        transport.send(Envelope("a", "c", b"2"))
        assert set(received(transport)) == {"c"}
        assert transport.given_up == {("a", "b")}
        assert transport.report().silent == ("b",)
        ticks = transport.ticks
        transport.send(Envelope("a", "b", b"3" * 100_000))  # it is not tried again
        assert received(transport) == {}
        assert transport.ticks <= ticks + 2
        report = transport.report()
        assert report.repeated == report.total.bytes - 2


@pytest.mark.parametrize(("loss", "agents"), [(0.99999, "ab"), (1.0 - 2.0**-53, "abcdefghijkl")])
def test_an_agent_behind_links_that_lose_nearly_everything_is_given_up_in_bounded_time(monkeypatch, loss, agents):
    monkeypatch.setattr("swarmbo.transport.reliable._RAREST", 2e-3)  # after 20,000 repetitions, to save time
    transport = Reliable(Faults(loss=loss).open(agents, nx.path_graph(list(agents))))
    transport.send(Envelope(agents[0], agents[-1], b"1"))
    assert received(transport) == {}
    assert transport.given_up == {(agents[0], agents[-1])}
    assert transport.ticks < 50_000


@pytest.mark.parametrize("faults", [Faults(delay=2000), Faults(bandwidth=1)], ids=["delays", "little bandwidth"])
def test_an_agent_that_answers_over_slow_links_is_not_given_up(faults):
    transport = Reliable(faults.open("ab"))
    for n in range(5):
        transport.send(Envelope("a", "b", bytes([n]) * 500))
    assert sorted(envelope.payload[0] for envelope in received(transport)["b"]) == [0, 1, 2, 3, 4]
    assert transport.ticks > 1000
    assert not transport.given_up


def test_over_a_narrow_link_copies_do_not_hold_up_the_messages_that_follow():
    transport = Reliable(Faults(bandwidth=1).open("ab"))
    for n in range(4):
        transport.send(Envelope("a", "b", bytes([n]) * 2000))
        assert [envelope.payload[0] for envelope in received(transport)["b"]] == [n]
    assert transport.ticks < 4 * 2200


def test_a_cut_that_ends_delays_and_loses_nothing():
    transport = Reliable(Faults(cuts=(Cut(parts=(("b",),), steps=(0, 300)),)).open("ab"))
    transport.send(Envelope("a", "b", b"1"))
    assert [e.payload for e in received(transport)["b"]] == [b"1"]
    assert transport.ticks > 300
    report = transport.report()
    assert report.repeated == report.total.bytes - 1


@pytest.mark.parametrize("last", [150, 600, 990])
@pytest.mark.parametrize("bandwidth", [None, 100])
@pytest.mark.parametrize("who", ["a", "b", "cut"])
def test_a_silence_of_fewer_than_a_thousand_steps_delays_and_loses_nothing(who, bandwidth, last):
    deaths, joins = (Event(who, 0),), (Event(who, 0, last),)
    silence = {"cuts": (Cut(parts=(("b",),), steps=(0, last)),)} if who == "cut" else {"deaths": deaths, "joins": joins}
    transport = Reliable(Faults(delay=2, bandwidth=bandwidth, **silence).open("ab"))
    transport.send(Envelope("a", "b", b"1"))
    assert [e.payload for e in received(transport)["b"]] == [b"1"]
    assert not transport.given_up


def test_a_report_counts_acknowledgements_and_numbers_of_messages_as_repeated():
    transport = Reliable(Faults().open("ab"))
    for _ in range(10):
        transport.send(Envelope("a", "b", b"x" * 100))
    while transport.deliver():
        pass
    numbers, acknowledged = 5 * 10, 1 + 4 * 10
    assert transport.report().repeated == numbers + acknowledged == transport.traffic.bytes - 10 * 100


def test_traffic_of_links_is_kept_apart_if_names_contain_arrows():
    edges = {("a", "b>c"): EdgeTraffic(1), ("a>b", "c"): EdgeTraffic(2), ("a", "b"): EdgeTraffic(3)}
    assert [edge.messages for edge in by_name(edges).values()] == [1, 2, 3]
    assert list(by_name(edges)) == ["'a'>'b>c'", "'a>b'>'c'", "a>b"]
