"""A factor graph as a drawing: variables as circles, factors as squares, each in the colour of its owner."""

from collections.abc import Mapping

import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from swarmbo.graph import FactorGraph
from swarmbo.plotting import style

Position = tuple[float, float]


def plot_factor_graph(ax: Axes, graph: FactorGraph, positions: Mapping[str, Position] | None = None) -> Axes:
    """Draw a factor graph.

    Args:
        ax: Where to draw.
        graph: The graph. A variable and a factor of one name are told apart.
        positions: Where each variable stands, for example where its robot is; a factor then stands in the middle of its
            scope. None lays out everything by itself, the same way each time.

    Returns:
        The axes.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from swarmbo.graph import FactorGraph
        >>> graph = FactorGraph.from_scopes({"f1": ["x1", "x2"], "f2": ["x2"]})
        >>> ax = plot_factor_graph(Figure().subplots(), graph)
        >>> sorted(text.get_text() for text in ax.texts)
        ['f1', 'f2', 'x1', 'x2']
    """
    places = _laid_out(graph) if positions is None else _on(graph, positions)
    edges = [
        (places["factor", factor], places["variable", variable])
        for factor in graph.factors
        for variable in graph.scope(factor)
    ]
    ax.add_collection(LineCollection(edges, colors=style.MUTED, linewidths=1.3, zorder=1))
    crowd = len(places)
    size = float(np.clip(9000 / max(crowd, 1), 130, 620))
    colours = {agent: style.agent_colour(index) for index, agent in enumerate(graph.agents)}
    nodes = [("variable", name, "o", colours[graph.variable_owner(name)]) for name in graph.variables]
    nodes += [("factor", name, "s", colours[graph.owner(name)]) for name in graph.factors]
    for kind, name, marker, colour in nodes:
        x, y = places[kind, name]
        is_inside = len(name) <= 3 and size > 250
        filled = (
            {"facecolor": colour, "edgecolor": "white"}
            if kind == "factor"
            else {"facecolor": "white", "edgecolor": colour}
        )
        ax.scatter([x], [y], s=size, marker=marker, linewidths=2.4, zorder=2, **filled)
        ax.annotate(
            name,
            (x, y),
            xytext=(0, 0 if is_inside else 0.62 * np.sqrt(size)),
            textcoords="offset points",
            ha="center",
            va="center" if is_inside else "bottom",
            fontsize=9 if is_inside else 7.5,
            color="white" if is_inside and kind == "factor" else style.INK,
            path_effects=[] if is_inside else style.cased(2.5),
            zorder=3,
        )
    ax.margins(0.12)
    ax.set_aspect("equal", adjustable="datalim")
    ax.set_axis_off()
    return ax


def factor_graph_figure(graph: FactorGraph, positions: Mapping[str, Position] | None = None) -> Figure:
    """A drawing of a factor graph with a legend of owners; arguments are those of ``plot_factor_graph``."""
    with style.applied():
        figure = style.new_figure(7.0, 5.0)
        plot_factor_graph(figure.subplots(), graph, positions)
        handles = [
            Line2D([], [], marker="o", linestyle="none", markerfacecolor="white", color=style.MUTED, label="variable"),
            Line2D([], [], marker="s", linestyle="none", color=style.MUTED, label="factor"),
            *(
                Line2D([], [], color=style.agent_colour(index), linewidth=4, label=agent)
                for index, agent in enumerate(graph.agents)
            ),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6))
    return figure


def _laid_out(graph: FactorGraph) -> dict[tuple[str, str], Position]:
    """Distances on the page follow distances in the graph; parts that are not joined stand side by side."""
    drawn: nx.Graph[tuple[str, str]] = nx.Graph()
    drawn.add_nodes_from(("variable", variable) for variable in graph.variables)
    for factor in graph.factors:
        drawn.add_edges_from((("factor", factor), ("variable", variable)) for variable in graph.scope(factor))
    places: dict[tuple[str, str], Position] = {}
    left = 0.0
    for part in nx.connected_components(drawn):
        members = [node for node in drawn if node in part]  # in the graph's order: sets have none that repeats
        piece: nx.Graph[tuple[str, str]] = nx.Graph()
        piece.add_nodes_from(members)
        piece.add_edges_from(drawn.subgraph(members).edges)
        radius = max(0.6, 0.45 * np.sqrt(len(members)))
        found = nx.kamada_kawai_layout(piece, scale=radius) if len(members) > 1 else {members[0]: np.zeros(2)}
        for node, place in found.items():
            places[node] = (float(place[0]) + left + radius, float(place[1]))
        left += 2 * radius + 0.7
    return places


def _on(graph: FactorGraph, positions: Mapping[str, Position]) -> dict[tuple[str, str], Position]:
    places = {("variable", variable): positions[variable] for variable in graph.variables}
    stacked: dict[Position, int] = {}
    for factor in graph.factors:
        x, y = np.mean([positions[variable] for variable in graph.scope(factor)], axis=0)
        span = float(np.ptp(np.array(list(positions.values())), axis=0).max()) or 1.0
        if len(graph.scope(factor)) == 1:  # beside its only variable, not on top of it
            y += 0.12 * span
        place = (float(x), float(y))
        stacked[place] = stacked.get(place, 0) + 1
        places["factor", factor] = (place[0] + 0.07 * span * (stacked[place] - 1), place[1])
    return places
