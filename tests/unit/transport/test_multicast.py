"""Telling several agents the same, by relays or over a base station."""

import networkx as nx
from hypothesis import given, settings, strategies as st

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


@given(st.integers(2, 60), st.floats(0.02, 0.6), st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_transmissions_are_the_links_on_shortest_paths_and_two_where_there_is_none(n: int, p: float, seed: int) -> None:
    links = nx.relabel_nodes(nx.fast_gnp_random_graph(n, p, seed), {i: f"r{i}" for i in range(n)})
    routes, everybody = Routes([*links, "off"], links), frozenset([*links, "off"])
    for sender in routes.agents:
        hops = nx.single_source_shortest_path_length(links, sender) if sender in links else {}
        for recipients in (everybody, [*links][::2], [*links[sender]] if sender in links else [], []):
            expected = sum(hops.get(other, 2) for other in recipients if other != sender)
            assert multicast_traffic(routes, sender, recipients, 1).transmissions == expected


def test_links_that_may_still_change_are_read_each_time() -> None:
    links = nx.path_graph(["a", "b", "c"])
    frozen, view = nx.freeze(links.copy()), links.subgraph(["a", "b", "c"])  # a view is frozen, too

    def transmissions() -> list[int]:
        return [multicast_traffic(Routes("abc", own), "a", ["c"], 1).transmissions for own in (links, frozen, view)]

    assert transmissions() == [2, 2, 2]
    links.add_edge("a", "c")
    assert transmissions() == [1, 2, 1]
