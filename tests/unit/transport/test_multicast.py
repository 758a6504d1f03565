"""Telling several agents the same, by relays or over a base station."""

import networkx as nx

from swarmbo.records import Traffic
from swarmbo.transport import Routes, multicast_traffic


def test_a_relay_is_no_recipient_but_a_transmission_more() -> None:
    routes = Routes(["a", "b"], nx.path_graph(["a", "mast", "b"]))
    assert multicast_traffic(routes, "a", ["b"], 10) == Traffic(messages=1, bytes=10, transmissions=2)
    everyone_else = [agent for agent in routes.agents if agent != "a"]
    assert multicast_traffic(routes, "a", everyone_else, 10) == Traffic(messages=1, bytes=10, transmissions=2)


def test_a_recipient_out_of_contact_is_told_over_the_base_station_in_two_transmissions() -> None:
    routes = Routes(["a", "b", "far"], nx.Graph([("a", "b")]))
    assert multicast_traffic(routes, "a", ["far"], 10) == Traffic(messages=1, bytes=10, transmissions=2)
    assert multicast_traffic(routes, "far", ["a", "b"], 3) == Traffic(messages=2, bytes=6, transmissions=4)


def test_nobody_to_tell_costs_nothing() -> None:
    assert multicast_traffic(Routes(["a"]), "a", [], 10) == Traffic()


def test_a_sender_among_the_recipients_costs_nothing() -> None:
    for links in (None, nx.complete_graph(["a", "b", "c"])):
        traffic = multicast_traffic(Routes(["a", "b", "c"], links), "a", frozenset("abc"), 10)
        assert traffic == Traffic(messages=2, bytes=20, transmissions=2)


def test_who_is_heard_directly_takes_one_transmission_whoever_else_relays() -> None:
    links = nx.Graph([("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")])
    routes = Routes("abcd", links)
    for recipients in (["b"], ["b", "c"], ["b", "d"], ["d"]):
        hops = sum(nx.shortest_path_length(links, "a", other) for other in recipients)
        assert multicast_traffic(routes, "a", recipients, 5).transmissions == hops
