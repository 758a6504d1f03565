"""All figures of one run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from swarmbo.belief import ExactGPSettings
from swarmbo.graph import FactorGraph
from swarmbo.plotting import style
from swarmbo.plotting.agent_maps import AgentViews, agent_maps_figure
from swarmbo.plotting.animation import write_animation
from swarmbo.plotting.belief_map import belief_map_figure
from swarmbo.plotting.factor_graph import factor_graph_figure
from swarmbo.plotting.formats import Formats
from swarmbo.plotting.history import Records, World
from swarmbo.plotting.regret import regret_figure
from swarmbo.plotting.traces import error_traffic_figure
from swarmbo.plotting.traffic import faults_figure, total_traffic, traffic_figure
from swarmbo.plotting.variables import variables_figure
from swarmbo.records import NetworkRecord


def write_figures(
    records: Records,
    world: World,
    settings: ExactGPSettings | None,
    folder: Path,
    fused: bool = False,
    views: AgentViews | None = None,
    formats: Formats | None = None,
    network: Sequence[NetworkRecord] = (),
) -> list[Path]:
    """Write the figures of a run, complete or not: ``regret.png``, ``traffic.png`` if there was any, and what suits its
    world.

    ``faults.png`` shows over time what went wrong, where something did: messages lost, age of news, failures, and what
    a fleet's ``network`` took.

    Of agents in a plane these are ``belief.png`` and ``run.gif``, with the ``settings`` of the run's belief. Of agents
    that set the variables of one function they are ``variables.png`` and, where its factors are told or were learned,
    ``factor_graph.png``. Names end as the formats do.

    If each agent had a belief of its own (``fused``), maps show the exact belief of all measurements pooled, and say
    so; ``agents.png`` and, where errors are logged, ``error_traffic.png`` are added.
    """
    if not records:
        return []
    formats, written = formats or Formats(), list[Path]()

    def write(name: str, figure: Figure) -> None:
        style.name_figure(figure, world.name, world.method)
        written.append(style.save(figure, folder / f"{name}.{formats.figures}", formats.dpi))

    belief = settings if world.has_map else None
    told = replace(world, name=f"{world.name} · belief by all data pooled".lstrip(" ·")) if fused else world
    if belief is not None:
        write("belief", belief_map_figure(records, told, belief))
    write("regret", regret_figure(records, world))
    if total_traffic(records).messages:
        write("traffic", traffic_figure(records))
    if (faults := faults_figure(records, network)) is not None:
        write("faults", faults)
    if world.variables:
        write("variables", variables_figure(records, world))
    if graphs := _graphs(world, records[-1].round):
        write("factor_graph", factor_graph_figure(graphs))
    if fused and belief is not None:
        write("agents", agent_maps_figure(records, world, belief, views))
    is_scored = any(record.score is not None and record.score.map_rmse is not None for record in records)
    if fused and settings is not None and is_scored:
        write("error_traffic", error_traffic_figure(records, world, settings))
    if belief is not None and any(record.samples for record in records):
        written.append(write_animation(records, told, belief, folder / f"run.{formats.animation}"))
    return written


def _graphs(world: World, last_round: int) -> dict[str, FactorGraph]:
    """The graph that agents were told and the one that they had at the end, by title."""
    told, used = world.graph, world.graph_in_use
    if used is None:
        return {} if told is None else {"": told}
    after = f"in use after round {last_round}"
    if told is None:
        return {f"Scopes {after}": used}
    if {frozenset(scope) for scope in told.scopes} == {frozenset(scope) for scope in used.scopes}:
        return {f"Scopes as told, and {after}": told}
    return {"Scopes as told": told, f"Scopes {after}": used}
