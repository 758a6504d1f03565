"""Messages counted in arrays: as many, as long and over as many links as those that are sent one by one."""

import networkx as nx
import numpy as np
import pytest

from swarmbo.coordination import MaxSum
from swarmbo.coordination.messages import Codec, FromFactor, text_widths
from swarmbo.coordination.participant import solve_with_agents
from swarmbo.graph import FactorGraph
from swarmbo.transport import InProcess

# names, numbers of values and indices of every width that is told apart
OWNERS = {"f": "a", "g": "b" * 40, "ß" * 20: "c" * 300, "i": "a"}
SCOPES = {"f": ["x", "y"], "g": ["y", "z" * 31], "ß" * 20: ["z" * 31, "x", "ü" * 20], "i": ["x"]}
SIZES = {"x": 2, "y": 31, "z" * 31: 32, "ü" * 20: 300}
GRAPH = FactorGraph.from_scopes(SCOPES, OWNERS, dict(zip(SIZES, ["a", "b" * 40, "a", "a"], strict=True)))
LINKS = {
    "everyone hears everyone": None,
    "relayed": nx.path_graph(GRAPH.agents),
    "relayed by one that owns nothing": nx.path_graph([*GRAPH.agents[:2], "relay", *GRAPH.agents[2:]]),
}


@pytest.mark.parametrize("links", LINKS.values(), ids=LINKS)
@pytest.mark.parametrize("forbidden", [0.0, 0.5, 0.999])
def test_rounds_comparisons_choices_and_repairs_take_what_agents_send(links: nx.Graph | None, forbidden: float) -> None:
    rng = np.random.default_rng(3)
    tables = {f: rng.normal(size=[SIZES[x] for x in GRAPH.scope(f)]) for f in GRAPH.factors}
    for table in tables.values():
        table[rng.random(table.shape) < forbidden] = -np.inf
    method, transport = MaxSum(rounds=9, repairs=4, bound="mplp"), InProcess().open(GRAPH.agents, links)
    by_agents = solve_with_agents(method, GRAPH, tables, transport)
    assert by_agents == method.solve(GRAPH, tables, links)
    assert by_agents.report.traffic == transport.traffic


@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 2**16 - 1, 2**16])
def test_names_take_what_messagepack_has_for_them(length: int) -> None:
    entries = np.zeros(0)
    without = Codec.size(FromFactor("", "x", entries))
    assert text_widths(["n" * length]).tolist() == [Codec.size(FromFactor("n" * length, "x", entries)) - without]
