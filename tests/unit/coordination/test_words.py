"""Broadcasts of agents, together or sequentially: by messages as in one place, with equal traffic."""

from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from swarmbo.acquisition.by_view import EachSends
from swarmbo.coordination.by_messages import ByMessages
from swarmbo.coordination.central import Central
from swarmbo.coordination.part import Part
from swarmbo.coordination.participant import Participant, run
from swarmbo.coordination.requests import InTurn, ToAll, single_request
from swarmbo.deciding.central_driver import CountedExchanges, all_of
from swarmbo.graph import FactorGraph
from swarmbo.transport import InProcess, Routes


def some_graph(agents: tuple[str, ...]) -> FactorGraph:
    """A graph with one variable and one factor per agent."""
    own = {agent: agent for agent in agents}
    return FactorGraph.from_scopes(
        {f"f {a}": [a] for a in agents}, owners={f"f {a}": a for a in agents}, variable_owners=own
    )


def some_part(seed: int, n_agents: int) -> tuple[Part, "nx.Graph[str]"]:
    rng = np.random.default_rng(seed)
    names = tuple(f"agent {n}" for n in rng.permutation(n_agents))
    links: nx.Graph[str] = nx.Graph((names[n], names[int(rng.integers(n))]) for n in range(1, n_agents))
    links.add_nodes_from(names)
    links.add_edges_from(rng.choice(names, (n_agents, 2)).tolist())
    links.remove_edges_from(list(nx.selfloop_edges(links)))
    return all_of(some_graph(tuple(sorted(names))), Routes(names, links)), links


def by_messages(part: Part, links: "nx.Graph[str]", requests: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    agents = {name: Participant[Any](name) for name in part.graph.agents}
    for name, agent in agents.items():
        agent.begin([ByMessages(part, name, agent.post).program(single_request(requests[name]))])
    traffic = run(agents, InProcess().open(part.graph.agents, links))
    return {name: agent.outcomes[0] for name, agent in agents.items()}, traffic


@given(st.integers(0, 2**32 - 1), st.integers(1, 7))
def test_all_agents_receive_the_broadcasts_of_all_agents(seed: int, n_agents: int):
    part, links = some_part(seed, n_agents)
    broadcasts = {name: name.encode() * (place % 4) for place, name in enumerate(part.graph.agents)}
    received, traffic = by_messages(part, links, {name: ToAll({name: broadcasts[name]}) for name in broadcasts})
    central = Central(part)
    assert central.run(single_request(ToAll(broadcasts))) == broadcasts
    assert all(all_sent == broadcasts for all_sent in received.values())
    assert traffic == central.traffic
    assert traffic.messages == 2 * (n_agents - 1)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(0, 7))
def test_all_agents_receive_sequential_broadcasts_and_each_sender_knows_earlier_ones(
    seed: int, n_agents: int, n_speakers: int
):
    part, links = some_part(seed, n_agents)
    agents = part.graph.agents
    order = [agents[n] for n in np.random.default_rng(seed).permutation(n_agents)[:n_speakers]]

    def say(agent: str, before: Mapping[str, bytes]) -> bytes:
        assert list(before) == order[: order.index(agent)]
        return b"".join(before.values())[-3:] + agent[-1:].encode()

    received, traffic = by_messages(part, links, dict.fromkeys(agents, InTurn(order, say)))
    central = Central(part)
    sent = central.run(single_request(InTurn(order, say)))
    assert list(sent) == order
    assert all(all_sent == sent for all_sent in received.values())
    assert traffic == central.traffic
    assert traffic.messages == (len(order) + n_agents - 2 if order else 0)


def test_broadcasts_may_be_any_plain_data_and_are_counted_over_a_base_station():
    apart: nx.Graph[str] = nx.Graph([("a", "b")])
    agents, anything = ("a", "b", "c"), lambda *_: True
    broadcasts = CountedExchanges(some_graph(agents), Routes(agents, apart, has_base=True))
    sent = broadcasts.answer(EachSends("all", ("a", "c"), lambda agent, _: [agent, None, 0.1], anything))
    assert sent == {"a": ["a", None, 0.1], "c": ["c", None, 0.1]}
    assert broadcasts.sent["all"].messages == 4
    assert broadcasts.sent["all"].transmissions == 2 * (1 + 2)  # b over its link, c up to the base and down
    turns = broadcasts.answer(EachSends("turns", ("c", "a"), lambda agent, before: len(before), anything, True))
    assert turns == {"c": 0, "a": 1}
    assert broadcasts.sent["turns"].transmissions == 2 + 2 + 1  # from c to a, then from a to both
    with pytest.raises(TypeError):
        broadcasts.answer(EachSends("", ("a",), lambda agent, _: object(), anything))
