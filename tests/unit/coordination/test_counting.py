"""Messages counted in arrays: as many, as long and over as many links as those that are made one by one."""

import networkx as nx
import numpy as np
import pytest

from swarmbo.coordination.central import Central, Counts
from swarmbo.coordination.flooding import Flooding
from swarmbo.coordination.messages import Choice, Codec, FromFactor, FromVariable, Report, Verdict, text_widths
from swarmbo.coordination.part import Part
from swarmbo.coordination.requests import Compare, Letter, ToFactors, ToVariables, asked
from swarmbo.coordination.tables import sizes_of
from swarmbo.graph import FactorGraph
from swarmbo.records import Traffic
from swarmbo.transport import Routes

OWNERS = {"f": "a", "g": "b" * 40, "ß" * 20: "c" * 300, "i": "a"}
SCOPES = {"f": ["x", "y"], "g": ["y", "z" * 31], "ß" * 20: ["z" * 31, "x", "ü" * 20], "i": ["x"]}
SIZES = {"x": 2, "y": 31, "z" * 31: 32, "ü" * 20: 300}
GRAPH = FactorGraph.from_scopes(SCOPES, OWNERS, dict(zip(SIZES, ["a", "b" * 40, "a", "a"], strict=True)))
LINKS = {
    "everyone hears everyone": None,
    "relayed": nx.path_graph(GRAPH.agents),
    "relayed by one that owns nothing": nx.path_graph([*GRAPH.agents[:2], "relay", *GRAPH.agents[2:]]),
}


def taken_by(part: Part, letters: list[Letter]) -> Traffic:
    crossing = [letter for letter in letters if letter.sender != letter.recipient]
    return Traffic(
        messages=len(crossing),
        bytes=sum(len(Codec.encode(letter.message)) for letter in crossing),
        transmissions=sum(part.routes.hops(letter.sender, letter.recipient) for letter in crossing),
    )


@pytest.fixture(params=LINKS)
def part(request: pytest.FixtureRequest) -> Part:
    return Part(GRAPH, 0, Routes(GRAPH.agents, LINKS[request.param]))


def laid_out() -> Flooding:
    tables = {f: np.zeros([SIZES[x] for x in GRAPH.scope(f)]) for f in GRAPH.factors}
    return Flooding(GRAPH, tables, GRAPH.variables, sizes_of(GRAPH, tables))


def test_rounds_take_what_their_messages_take(part: Part) -> None:
    flooding, choices = laid_out(), np.array([1, 130, 31, 299])
    request = ToFactors(flooding, np.zeros(flooding.n_entries), choices)
    central = Central(part)
    for _ in range(2):
        central.run(asked(request))
    once = taken_by(part, list(request.letters()))
    assert central.traffic == once + once
    answering = ToVariables(flooding, np.zeros(flooding.n_entries))
    central.run(asked(answering))
    assert central.traffic == once + once + taken_by(part, list(answering.letters()))


def test_messages_on_some_edges_only(part: Part) -> None:
    flooding, edges = laid_out(), GRAPH.edges
    said = np.arange(len(edges.factors)) % 2 == 0
    entries = np.zeros(flooding.n_entries)
    letters = [
        Letter(GRAPH.owner(f), GRAPH.variable_owner(x), FromFactor(f, x, flooding.message(entries, f, x)))
        for (f, x), is_said in zip([(f, x) for f in GRAPH.factors for x in GRAPH.scope(f)], said, strict=True)
        if is_said
    ]
    counted = Counts(part).numbers(FromFactor, flooding.edge_sizes, said)
    assert counted == taken_by(part, letters)
    assert counted != Counts(part).numbers(FromFactor, flooding.edge_sizes)
    assert counted != Counts(part).numbers(FromVariable, flooding.edge_sizes, said)


def test_words_take_what_choices_take(part: Part) -> None:
    """Of each variable one to each other owner of its factors, as long as the index makes it."""
    choices, letters = np.array([127, 128, 300, 2**16]), list[Letter]()
    for variable, index in zip(GRAPH.variables, choices.tolist(), strict=True):
        actor, owners = GRAPH.variable_owner(variable), {GRAPH.owner(f) for f in GRAPH.factors_of(variable)}
        letters += [Letter(actor, owner, Choice(variable, index)) for owner in owners]
    assert Counts(part).words(choices) == taken_by(part, letters)


@pytest.mark.parametrize("n_choices", [1, 40])
def test_comparisons_take_what_reports_and_verdicts_take(part: Part, n_choices: int) -> None:
    values = [np.zeros(4)] * n_choices
    central, tree = Central(part), part.tree
    central.run(asked(Compare(values, None)))
    letters: list[Letter] = []
    for agent, parent in tree.parent.items():
        if parent is not None:
            behind = np.zeros((n_choices, len(tree.factors[agent])))
            letters.append(Letter(agent, parent, Report(0, agent, behind, 0.0, False)))
            letters.append(Letter(parent, agent, Verdict(0, 1, False)))
    assert central.traffic == taken_by(part, letters)


@pytest.mark.parametrize("length", [0, 1, 31, 32, 255, 256, 2**16 - 1, 2**16])
def test_names_take_what_messagepack_has_for_them(length: int) -> None:
    entries = np.zeros(0)
    without = Codec.size(FromFactor("", "x", entries))
    assert text_widths(["n" * length]).tolist() == [Codec.size(FromFactor("n" * length, "x", entries)) - without]
