"""Figures of functions: joint points, with a row per variable and a column per round, and the factor graph."""

from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator

from swarmbo.boundary.values import counted
from swarmbo.graph import FactorGraph
from swarmbo.plotting import style
from swarmbo.plotting.history import Records, World
from swarmbo.plotting.maps import add_colour_bar

_MOST_NAMES = 40
_LONGEST = 28  # characters of a variable's name, and of its values
_DARK = 0.6  # shares below have dark colours
_BETWEEN, _MOST_FOUND = 8.0, 0.6  # pixels between adjacent values; their largest share of the panels' width
Position = tuple[float, float]
_WIDEST = 14.0  # edge lengths: a connected part that would reach beyond this starts a new row
_PART_GAP = 0.9
_MOST_NODES = 120  # nodes of a drawing that can be read


def plot_variables(ax: Axes, records: Records, world: World) -> Axes:
    """Draw every joint point that was evaluated, as shares of the variables' ranges; a cross where it failed."""
    rounds = [record.round for record in records if record.joint is not None]
    if not rounds:
        return style.write_message(ax, "nothing was evaluated yet")
    places = np.array([record.joint.location for record in records if record.joint is not None], dtype=float)
    _draw_shares(ax, world.domain.to_unit(places).T, (rounds[0] - 0.5, rounds[-1] + 0.5))
    failed = [record.round for record in records if record.joint is not None and record.joint.measurement is None]
    if failed:  # an empty line that is not clipped would take room at the corner of the page
        marks: dict[str, Any] = {"color": style.VERMILLION, "markersize": 5.0, "clip_on": False, "label": "failed"}
        ax.plot(failed, np.full(len(failed), -0.5), "x", **marks)
    ax.set_title("Evaluated (×: failed)" if failed else "Evaluated")
    style.rounds_axis(ax)
    return _name_rows(ax, world)


def plot_found(ax: Axes, records: Records, world: World) -> Axes:
    """Draw the best point, the recommendation and, if known, the true maximum, as shares of the variables' ranges."""
    last = records[-1]
    points = {
        "best": None if last.best is None else last.best.location,
        "recommended": None if last.recommendation is None else last.recommendation.location,
        world.maximum_is: None if world.argmax is None else world.argmax.tolist(),
    }
    shares_by_name = {name: world.domain.to_unit(np.array(at)) for name, at in points.items() if at is not None}
    if not shares_by_name:
        return style.write_message(ax, "")
    image = _draw_shares(ax, np.array(list(shares_by_name.values())).T, (-0.5, len(shares_by_name) - 0.5))
    text_style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7}
    for column, (name, shares) in enumerate(shares_by_name.items()):
        for row, (variable, code) in enumerate(zip(world.types, points[name] or (), strict=False)):
            value = variable.value(code)
            text = style.shortened(f"{value:.4g}" if isinstance(value, float) else str(value), _LONGEST)
            ax.text(column, row, text, color="white" if shares[row] < _DARK else "black", **text_style)
    ax.set_xticks(range(len(shares_by_name)), list(shares_by_name), rotation=40, ha="right", rotation_mode="anchor")
    ax.set_title("Found")
    add_colour_bar(ax, image, "share of range")
    return _name_rows(ax, world)


def variables_figure(records: Records, world: World) -> Figure:
    """Figure of all joint points of a run, next to the best point and the recommendation."""
    with style.applied():
        figure = style.new_figure(10.5, float(np.clip(1.8 + 0.17 * world.domain.n_dims, 2.8, 9.0)))
        left_ax, right = figure.subplots(1, 2, width_ratios=(8, 2.5 if world.types else 1), sharey=True)
        plot_variables(left_ax, records, world)
        plot_found(right, records, world)
        right.tick_params(labelleft=False)
        figure.draw_without_rendering()
        widest = max((text.get_window_extent().width for text in right.texts), default=0.0) + _BETWEEN
        needed, room = widest * len(right.get_xticks()), left_ax.bbox.width + right.bbox.width
        if needed > right.bbox.width and (grid := right.get_gridspec()) is not None:  # long names of choices
            more = max(0.0, needed / _MOST_FOUND - room)
            figure.set_figwidth(figure.get_figwidth() + more / figure.dpi)
            grid.set_width_ratios((room + more - needed, needed))
    return figure


def _draw_shares(ax: Axes, shares: Float[np.ndarray, "d k"], sides: tuple[float, float]) -> AxesImage:
    colours: dict[str, Any] = {"cmap": style.MEAN_COLOURS, "vmin": 0.0, "vmax": 1.0, "interpolation": "nearest"}
    image = ax.imshow(shares, extent=(*sides, len(shares) - 0.5, -0.5), origin="upper", aspect="auto", **colours)
    ax.grid(visible=False)
    return image


def _name_rows(ax: Axes, world: World) -> Axes:
    rows = list(range(0, len(world.variables), -(-len(world.variables) // _MOST_NAMES)))
    ax.yaxis.set_major_locator(FixedLocator(rows))
    types = [f": {style.shortened(variable.in_words, _LONGEST)}" for variable in world.types or ()]
    names = [style.shortened(name, _LONGEST) for name in world.variables]
    ax.set_yticklabels([names[row] + (types[row] if types else "") for row in rows])
    return ax


def plot_factor_graph(ax: Axes, graph: "FactorGraph | nx.Graph[Any]", agents: Sequence[str] | None = None) -> Axes:
    """Draw a factor graph, or one of networkx (``FactorGraph.of_any``), laid out the same way each time.

    ``agents`` are owners in the order of their colours.

    Example:
        >>> from matplotlib.figure import Figure
        >>> from swarmbo.graph import FactorGraph
        >>> graph = FactorGraph.from_scopes({"f1": ["x1", "x2"], "f2": ["x2"]})
        >>> ax = plot_factor_graph(Figure().subplots(), graph)
        >>> sorted(text.get_text() for text in ax.texts)
        ['f1', 'f2', 'x1', 'x2']
    """
    graph = FactorGraph.of_any(graph)
    places = _layout(graph)
    edges = [(places["factor", f], places["variable", v]) for f in graph.factors for v in graph.scope(f)]
    ax.add_collection(LineCollection(edges, colors=style.MUTED, linewidths=1.3, zorder=1))
    is_in_rows = float(np.ptp([x for x, _ in places.values()])) <= _WIDEST
    size = float(np.clip(9000 / max(len(places), 1), 280 if is_in_rows else 130, 620))
    colours = {agent: style.agent_colour(index) for index, agent in enumerate(agents or graph.agents)}
    short_labels = {"variable": short_names(graph.variables)[1], "factor": short_names(graph.factors)[1]}
    nodes = [("variable", name, "o", colours[graph.variable_owner(name)]) for name in graph.variables]
    nodes += [("factor", name, "s", colours[graph.owner(name)]) for name in graph.factors]
    for kind, name, marker, colour in nodes:
        x, y = places[kind, name]
        label = short_labels[kind].get(name, name)
        face, edge = (colour, "white") if kind == "factor" else ("white", colour)
        node: dict[str, Any] = {"marker": marker, "facecolor": face, "edgecolor": edge}
        ax.scatter([x], [y], s=size, linewidths=2.4, zorder=2, clip_on=False, **node)  # nodes at the edge are whole
        text_style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "zorder": 3, "color": style.INK}
        if size > 250 and len(label) <= 3:
            fontsize = min(8.5, 1.25 * np.sqrt(size) / max(len(label), 2))
            text_style |= {"xytext": (0, 0), "va": "center", "fontsize": fontsize}
            is_dark = np.dot(to_rgb(colour), [0.3, 0.59, 0.11]) < 0.62
            text_style |= {"color": "white" if is_dark else style.INK} if kind == "factor" else {}
        else:
            side, va = (1.0, "bottom") if kind == "variable" else (-1.0, "top")  # neighbours' labels differ
            text_style |= {"xytext": (0, side * 0.62 * np.sqrt(size)), "va": va, "fontsize": 7.5}
            text_style |= {"bbox": {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.85}}
        ax.annotate(label, (x, y), **text_style)
    ax.margins(0.12)
    ax.set_aspect("equal")  # by the box: new limits would cut nodes at the edge
    ax.set_axis_off()
    return ax


def short_names(names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Common beginning of names up to an underscore, and each name's end; both empty unless all ends are numbers."""
    ends = {name: name.rpartition("_")[2] for name in names}
    beginnings = {name.removesuffix(end) for name, end in ends.items()}
    if len(beginnings) != 1 or "" in beginnings or not all(end.isdecimal() for end in ends.values()):
        return "", {}
    return beginnings.pop(), ends


def factor_graph_figure(graphs: "FactorGraph | nx.Graph[Any] | Mapping[str, FactorGraph]") -> Figure:
    """Figure of a factor graph, or of several by title, with owners; for more than 120 nodes, histograms of degrees."""
    by_title = graphs if isinstance(graphs, Mapping) else {"": FactorGraph.of_any(graphs)}
    if max(len(graph.variables) + len(graph.factors) for graph in by_title.values()) > _MOST_NODES:
        return _degrees_figure(by_title)
    with style.applied():
        figure = style.new_figure(7.0, 5.0 * len(by_title))
        grid = figure.add_gridspec(len(by_title))
        axes = [figure.add_subplot(row) for row in grid]
        agents = tuple(dict.fromkeys(agent for graph in by_title.values() for agent in graph.agents))
        for ax, (title, graph) in zip(axes, by_title.items(), strict=True):
            plot_factor_graph(ax, graph, agents)
            ax.set_title(title)
        # a page in the shape of the graphs, about an inch between neighbours
        width = max(ax.dataLim.width for ax in axes) + 1.0
        heights = [ax.dataLim.height + 1.0 for ax in axes]
        inches = 1.0 if width < 12 else 12.0 / width
        figure.set_size_inches(max(4.5, inches * width), max(2.0, inches * sum(heights) + 0.8))
        grid.set_height_ratios(heights)
        mark: dict[str, Any] = {"linestyle": "none", "color": style.MUTED}
        handles: list[Line2D] = []
        marks: dict[str, Any] = {"variable": {"marker": "o", "markerfacecolor": "white"}, "factor": {"marker": "s"}}
        for kind, look in marks.items():
            start, _ = short_names([name for graph in by_title.values() for name in getattr(graph, f"{kind}s")])
            # ``variable power_…`` where nodes show the numbers at the ends of the names
            handles.append(Line2D([], [], label=f"{kind} {start}…" if start else kind, **mark, **look))
        colours = [style.agent_colour(index) for index in range(len(agents))]
        if len(set(colours)) == len(agents):  # else a colour would not tell the agent
            handles += [Line2D([], [], color=c, linewidth=4, label=a) for c, a in zip(colours, agents, strict=True)]
        columns = style.legend_columns(figure.get_figwidth(), handles, 1.2)
        figure.legend(handles=handles, loc="outside lower center", ncols=columns)
    return figure


def _degrees_figure(by_title: Mapping[str, FactorGraph]) -> Figure:
    """Histograms: variables in a factor, factors at a variable, and factors that an agent owns."""
    with style.applied():
        figure = style.new_figure(10.5, 3.4 * len(by_title))
        rows = figure.subplots(len(by_title), 3, squeeze=False)
        for axes, (title, graph) in zip(rows, by_title.items(), strict=True):
            owned = [len(graph.factors_owned_by(agent)) for agent in graph.agents]
            shared = [len(graph.factors_of(variable)) for variable in graph.variables]
            counts = {"variables of a factor": ([len(scope) for scope in graph.scopes], "factors", style.BLUE)}
            counts["factors of a variable"] = shared, "variables", style.GREEN
            counts["factors of an agent"] = owned, "agents", style.ORANGE
            for ax, (label, (values, what, colour)) in zip(axes, counts.items(), strict=True):
                numbers, frequencies = np.unique(values, return_counts=True)
                ax.bar(numbers, frequencies, width=0.8, color=colour)
                ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
                ax.yaxis.set_major_locator(MaxNLocator(5, integer=True))
                ax.set_xlabel(label)
                ax.set_ylabel(what)
            parts = counted(len(graph.components), "connected part")
            text = f"{len(graph.variables)} variables, {len(graph.factors)} factors, {parts}"
            axes[0].set_title(" · ".join(filter(None, (title, text))))
    return figure


def _layout(graph: FactorGraph) -> dict[tuple[str, str], Position]:
    """Positions of nodes, with distances as in the graph; connected parts are side by side, in rows."""
    rows: list[dict[tuple[str, str], Position]] = [{}]
    offset = 0.0
    for part in graph.components:
        positions = _part_layout(part)
        xs, ys = zip(*positions.values(), strict=True)
        width, middle = max(xs) - min(xs), 0.5 * (max(ys) + min(ys))
        if offset and offset + width > _WIDEST:
            offset = 0.0
            rows.append({})
        rows[-1] |= {node: (x - min(xs) + offset, y - middle) for node, (x, y) in positions.items()}
        offset += width + _PART_GAP
    places: dict[tuple[str, str], Position] = {}
    top = 0.0
    for row in rows:
        ys = [y for _, y in row.values()]
        places |= {node: (x, y - max(ys) + top) for node, (x, y) in row.items()}
        top -= max(ys) - min(ys) + _PART_GAP
    return places


def _part_layout(part: FactorGraph) -> dict[tuple[str, str], Position]:
    graph: nx.Graph[Any] = nx.Graph()
    graph.add_nodes_from(("variable", variable) for variable in part.variables)
    start = {("variable", variable): (float(index), 0.0) for index, variable in enumerate(part.variables)}
    for index, factor in enumerate(part.factors):
        scope = [("variable", variable) for variable in part.scope(factor)]
        graph.add_edges_from((("factor", factor), variable) for variable in scope)
        # Factors start at the middle of their scopes, which suits chains; above and below alternately, so none overlap.
        side = 0.6 if index % 2 else -0.6
        start["factor", factor] = (float(np.mean([start[variable][0] for variable in scope])) + 0.01 * index, side)
    if len(graph) < 2:
        return start
    layout = nx.kamada_kawai_layout(graph, pos=start)
    places = np.array([layout[node] for node in graph])
    places -= places.mean(axis=0)
    _, _, axes = np.linalg.svd(places)
    rotated = places @ axes.T  # the longest direction across the page
    rotated *= np.where(rotated[0] > 0, -1.0, 1.0)  # the first variable to the left, whatever sign the solver chose
    lengths = [np.linalg.norm(rotated[i] - rotated[j]) for i, j in nx.convert_node_labels_to_integers(graph).edges]
    rotated /= max(float(np.median(lengths)), 1e-9)
    return {node: (float(x), float(y)) for node, (x, y) in zip(graph, rotated, strict=True)}
