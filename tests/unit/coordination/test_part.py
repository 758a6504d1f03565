"""Common knowledge of a part: the tree of sums, the order of decoding, and comparisons of choices."""

import networkx as nx
import numpy as np
import pytest

from swarmbo.coordination.central import Central
from swarmbo.coordination.decoding import decode
from swarmbo.coordination.messages import Codec
from swarmbo.coordination.part import LocalView, Part
from swarmbo.coordination.requests import AllReduce, Compare, ToAll, single_request
from swarmbo.errors import TransportError
from swarmbo.graph import FactorGraph
from swarmbo.transport import Routes

GRAPH = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b", "c"], "h": ["c", "d"]})


def test_if_all_agents_are_in_range_the_tree_is_a_star_around_the_first_one() -> None:
    tree = Part(GRAPH, 0, Routes(GRAPH.agents)).tree
    assert tree.parent == {"a": None, "b": "a", "c": "a", "d": "a"}
    assert tree.children["a"] == ("b", "c", "d")
    assert tree.factors == {"a": ("f", "g", "h"), "b": ("g",), "c": ("h",), "d": ()}


def test_the_tree_follows_the_links_and_skips_agents_that_only_relay() -> None:
    links = nx.Graph([("a", "mast"), ("mast", "d"), ("d", "c"), ("c", "b")])
    tree = Part(GRAPH, 0, Routes(GRAPH.agents, links)).tree
    assert tree.parent == {"a": None, "b": "c", "c": "d", "d": "a"}
    assert tree.factors["d"] == ("g", "h")


def test_agents_out_of_reach_are_refused() -> None:
    with pytest.raises(TransportError):
        _ = Part(GRAPH, 0, Routes(GRAPH.agents, nx.Graph([("a", "b"), ("c", "d")]))).tree


@pytest.mark.parametrize("n", [1, 2, 17, 300])
def test_counted_bytes_of_data_for_all_are_those_of_encoded_messages(n: int) -> None:
    names = [f"{'long' * (i % 9)}{i}" for i in range(n)]
    graph = FactorGraph.from_scopes({f"w_{name}": [name] for name in names})
    links = nx.relabel_nodes(nx.balanced_tree(2, 9).subgraph(range(n)), dict(enumerate(names)))
    part = Part(graph, 7, Routes(names, links))
    data = {name: bytes([0, 5, 255, 256, 70_000][i % 5]) for i, name in enumerate(names)}
    sent = list[int]()
    for agent, parent in part.tree.parent.items():
        if parent is not None:
            behind = part.tree.behind[agent]
            up = ToAll.message(part, agent, parent, {name: data[name] for name in behind})
            sent += [len(Codec.encode(one.message)) for one in (up, ToAll.message(part, parent, agent, data, behind))]
    central = Central(part)
    assert central.run(single_request(ToAll(data))) == data
    assert (central.traffic.messages, central.traffic.bytes) == (len(sent), sum(sent))


@pytest.mark.parametrize("present", [("b",), ("b", "c"), ("c",)])
def test_sums_are_those_of_present_agents(present: tuple[str, ...]) -> None:
    part = Part(GRAPH, 0, Routes(GRAPH.agents), present=present)
    terms = {"a": 1.0, "b": 10.0, "c": 100.0}  # per owner of factors
    summed = Central(part).run(single_request(AllReduce(np.array([*terms.values()])[:, None, None])))
    assert summed == sum(terms[agent] for agent in present)


def test_the_order_is_breadth_first_from_the_first_variable_of_each_part() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b", "c"], "g": ["c", "d"], "h": ["b", "e"], "i": ["p", "q"]})
    assert Part(graph, 0, Routes(graph.agents)).order == ("a", "b", "c", "e", "d", "p", "q")


def test_two_optima_are_not_mixed() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b"]})
    message = {("f", "a"): np.zeros(2), ("f", "b"): np.zeros(2)}  # both values of both look equally good
    apart = np.array([[0.0, 1.0], [1.0, 0.0]])
    part = Part(graph, 0, Routes(graph.agents))
    assert Central(part).run(decode(LocalView.of(part), {"f": apart}, message, message)) == {"a": 0, "b": 1}


def test_the_first_of_equally_good_choices_is_kept() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b"]})
    part, equal = Part(graph, 0, Routes(graph.agents)), [np.array([1.0, 2.0]), np.array([2.0, 1.0])]
    verdict, best = Compare(equal, None).verdict(part)
    assert verdict.best == 1
    assert Compare(equal, best).verdict(part)[0].best == 0
    assert Compare([*equal, np.array([2.0, 2.0])], best).verdict(part)[0].best == 3


def test_forbidden_choices_are_repaired_once_and_better_ones_improved_from_then_on() -> None:
    graph = FactorGraph.from_scopes({"f": ["a", "b"], "g": ["b"]})
    part, tried = Part(graph, 0, Routes(graph.agents)), set[bytes]()
    broken, allowed = [np.array([-np.inf, 9.0])], [np.array([1.0, 2.0])]
    assert Compare(allowed, None, tried=tried).verdict(part)[0].stop is True  # as long as nothing was forbidden
    assert Compare(broken, None).verdict(part)[0].stop is True  # no repair is asked for
    verdict, best = Compare(broken, None, tried=tried).verdict(part)
    assert (verdict.best, verdict.stop) == (1, None)
    assert Compare(broken, best, tried=tried).verdict(part)[0].stop is True
    verdict, best = Compare(allowed, best, tried=tried).verdict(part)
    assert (verdict.best, verdict.stop) == (1, None)
    again, _ = Compare(allowed, best, moved=True, tried=tried).verdict(part)
    assert (again.best, again.stop) == (0, False)
