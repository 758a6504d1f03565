"""Transports with faults: losses, delays, cuts and failed agents."""

import random
from typing import Any

import msgspec
import networkx as nx
import pytest

from swarmbo.errors import ConfigError
from swarmbo.records import Traffic
from swarmbo.settings import convert
from swarmbo.transport import Cut, Envelope, Event, Faults


def cut(transport, *parts):
    """Cut a network into some parts from now on, or heal it."""
    cuts = (Cut(tuple(map(tuple, parts))),) if parts else ()
    transport.faults = msgspec.structs.replace(transport.faults, cuts=cuts)


def arrivals(transport, sender, recipient, n):
    """For each of n messages, one sent per step, whether it arrives."""
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


def test_losses_of_each_direction_are_independent_of_other_traffic():
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
    cut(transport, ["a", "b"])
    for sender, recipient in ["bc", "cb", "ad"]:
        assert arrivals(transport, sender, recipient, 3) == [False] * 3
    for sender, recipient in ["ab", "cd"]:
        assert arrivals(transport, sender, recipient, 3) == [True] * 3
    cut(transport, ["a"], ["b"])
    assert arrivals(transport, "a", "b", 3) == [False] * 3
    cut(transport)
    assert arrivals(transport, "a", "d", 3) == [True] * 3


def test_a_message_to_its_own_sender_is_never_lost():
    transport = Faults(loss=0.9).open("ab")
    cut(transport, ["a"])
    assert all(arrivals(transport, "a", "a", 50))


def steps_in_transit(transport, n, size=2):
    """For each of n messages, all sent at once, the steps until it arrives."""
    for k in range(n):
        transport.send(Envelope("a", "b", bytes([k]) * size))
    took = {}
    for step in range(1, 200):
        for envelope in transport.deliver().get("b", []):
            took.setdefault(envelope.payload[0], step)
    return [took[k] for k in range(n)]


def test_delays_are_drawn_up_to_the_largest_and_let_messages_overtake_one_another():
    took = steps_in_transit(Faults(delay=3).open("ab"), 200)
    assert set(took) == {1, 2, 3, 4}
    assert took != sorted(took)
    assert steps_in_transit(Faults().open("ab"), 5) == [1] * 5


def test_a_delay_is_counted_on_every_link_of_the_path():
    transport = Faults(delay=2, seed=1).open("abc", nx.path_graph(["a", "c", "b"]))
    assert max(steps_in_transit(transport, 200)) == 5


def test_messages_that_arrive_twice_are_sent_and_counted_once():
    transport = Faults(duplicate=0.4).open("ab")
    for _ in range(1000):
        transport.send(Envelope("a", "b", b"1"))
    assert len(transport.deliver()["b"]) == pytest.approx(1400, abs=60)
    assert transport.traffic.messages == transport.edges["a", "b"].messages == 1000


def test_inboxes_are_shuffled_without_loss_or_gain():
    sent = [bytes([k]) for k in range(20)]
    transport = Faults(reorder=0.999).open("ab")
    for payload in sent:
        transport.send(Envelope("a", "b", payload))
    got = [envelope.payload for envelope in transport.deliver()["b"]]
    assert got != sent
    assert sorted(got) == sent


def test_a_link_carries_its_bandwidth_per_step_and_further_messages_wait():
    assert steps_in_transit(Faults(bandwidth=10).open("ab"), 5, size=5) == [1, 1, 2, 2, 3]
    assert steps_in_transit(Faults(bandwidth=2).open("ab"), 2, size=5) == [3, 5]
    transport = Faults(bandwidth=5).open("ab")
    transport.send(Envelope("a", "b", b"12345"))
    transport.send(Envelope("b", "a", b"12345"))  # the other direction has its own bandwidth
    assert set(transport.deliver()) == {"a", "b"}


def test_a_message_behind_a_long_queue_does_not_iterate_over_its_steps():
    transport = Faults(bandwidth=1).open("ab")
    for _ in range(4000):  # 400,000 steps; iterating would visit all earlier ones per message
        transport.send(Envelope("a", "b", bytes(100)))
    transport.send(Envelope("b", "a", b"1"))
    assert transport.deliver().keys() == {"a"}
    assert max(transport._due)[0] == 400_000


def test_no_link_of_a_path_carries_more_than_its_bandwidth_and_all_links_carry_at_the_same_time():
    def arrived(turns):
        transport, found = Faults(bandwidth=10).open("abc", nx.path_graph(["a", "b", "c"])), []
        for sent in [*turns, *[""] * 9]:
            for sender in sent:
                transport.send(Envelope(sender, "c", sender.encode() * 10))
            found.append("".join(envelope.sender for envelope in transport.deliver().get("c", [])))
        return found

    assert arrived(["aaa"])[:3] == ["a"] * 3
    for seed in range(20):
        rng = random.Random(seed)
        turns = ["".join(rng.choices("ab", k=rng.randrange(4))) for _ in range(4)]
        found = arrived(turns)
        assert max(map(len, found)) <= 1
        assert sorted("".join(found)) == sorted("".join(turns))


FROM_STEP_2: list[dict[str, Any]] = [
    {"cuts": (Cut(parts=(("c",),), steps=(2, 9)),)},
    {"deaths": (Event(agent="b", round=0, step=2),)},
    {"deaths": (Event(agent="a", round=0, step=2),)},
]


@pytest.mark.parametrize("faults", FROM_STEP_2, ids=["a cut", "a relay", "the sender"])
def test_faults_apply_when_a_waiting_message_crosses_a_link(faults):
    transport = Faults(bandwidth=2, **faults).open("abc", nx.path_graph(["a", "b", "c"]))
    for k in range(4):  # one per step
        transport.send(Envelope("a", "c", bytes([k]) * 2))
    arrived = [envelope.payload[0] for _ in range(9) for envelope in transport.deliver().get("c", [])]
    assert arrived == [0, 1]


def test_cuts_apply_in_their_rounds_and_steps_only():
    faults = Faults(cuts=(Cut(parts=(("a",),), rounds=(3, 4), steps=(1, 2)),))
    assert arrivals(faults.open("ab", round=2), "a", "b", 4) == [True] * 4
    assert arrivals(faults.open("ab", round=3), "a", "b", 4) == [True, False, False, True]


def test_messages_avoid_a_failed_relay_if_links_allow():
    ring, deaths = nx.cycle_graph(5), (Event(agent="1", round=0, step=1), Event(agent="4", round=0, step=2))
    links = nx.relabel_nodes(ring, str)  # from 0 to 2 over 1, or over 4 and 3
    transport = Faults(deaths=deaths).open(list("01234"), links)
    arrived, hops = [], []
    for _ in range(3):
        before = transport.traffic.transmissions
        transport.send(Envelope("0", "2", b"x"))
        hops.append(transport.traffic.transmissions - before)
        arrived.append("2" in transport.deliver())
    assert hops == [2, 3, 2]
    assert arrived == [True, True, False]  # over the relay; over the other path; no path is left


def test_a_failed_agent_sends_receives_and_relays_nothing_until_it_joins_again():
    faults = Faults(deaths=(Event(agent="b", round=2, step=1),), joins=(Event(agent="b", round=4),))
    path = nx.path_graph(["a", "b", "c"])
    for sender, recipient in ["ab", "bc", "ac"]:
        assert arrivals(faults.open("abc", path, round=1), sender, recipient, 2) == [True, True]
        assert arrivals(faults.open("abc", path, round=2), sender, recipient, 2) == [recipient != "b", False]
        assert arrivals(faults.open("abc", path, round=3), sender, recipient, 2) == [False, False]
        assert arrivals(faults.open("abc", path, round=4), sender, recipient, 2) == [True, True]
    transport = faults.open("abc", path, round=3)
    transport.send(Envelope("b", "a", b"1"))
    assert transport.traffic == Traffic()  # failed agents send nothing


def test_an_agent_whose_first_event_is_to_join_was_absent_before():
    faults = Faults(joins=(Event(agent="b", round=2),), deaths=(Event(agent="b", round=5),))
    assert ["".join(faults.present("ab", round)) for round in (0, 1, 2, 4, 5)] == ["a", "a", "ab", "ab", "a"]


def test_edges_report_what_was_sent_and_lost_and_how_old_it_was():
    transport = Faults(delay=4, loss=0.5, seed=2).open("ab")
    for _ in range(100):
        transport.send(Envelope("a", "b", b"12"))
    ages = [step for step in range(1, 6) for _ in transport.deliver().get("b", [])]
    edge = transport.edges["a", "b"]
    assert (edge.messages, edge.bytes, edge.arrived, edge.lost) == (100, 200, len(ages), 100 - len(ages))
    assert edge.age == pytest.approx(sum(ages) / len(ages))


def test_draws_differ_by_team_and_round_and_repeat():
    def fates(**when):
        return arrivals(Faults(loss=0.5).open("ab", **when), "a", "b", 100)

    drawn = [fates(), fates(seed=0, round=0), fates(seed=0, round=1), fates(seed=1, round=0)]
    assert all(one != other for n, one in enumerate(drawn) for other in drawn[:n])
    assert fates(seed=1, round=0) == drawn[3]


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        *(({"loss": loss}, r"a number in \[0, 1\)") for loss in (-0.1, 1.0, float("nan"))),
        ({"cuts": [{"parts": []}]}, "at least one part"),
        ({"cuts": [{"parts": [["a"], ["b", "a"]]}]}, "no agent in two"),
        ({"cuts": [{"parts": [["a"]], "rounds": [4, 3]}]}, "the first and the last"),
        ({"deaths": [{"agent": "a"}]}, "round"),
        ({"deaths": [{"agent": "a", "round": 1, "when": 2}]}, "unknown key 'when'"),
    ],
)
def test_impossible_faults_are_refused(table, wanted):
    with pytest.raises(ConfigError, match=wanted):
        convert({"kind": "faulty", **table}, Faults)


@pytest.mark.parametrize("given", [{"deaths": (("a", 0),)}, {"cuts": [5]}, {"joins": Event("a", 0)}, {"deaths": None}])
def test_malformed_events_and_cuts_are_refused_with_their_path(given):
    with pytest.raises(ConfigError, match=r"^(deaths(\[0\])?|cuts\[0\]|joins): got .*; wanted a (table|list)$"):
        Faults(**given)
