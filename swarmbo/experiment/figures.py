"""Figures of runs that lie in folders: this reads, ``swarmbo.plotting`` draws."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np

from swarmbo import plotting
from swarmbo.belief import ExactGPSettings
from swarmbo.belief.fusion.settings import FusedSettings
from swarmbo.errors import RunFolderError
from swarmbo.experiment.compare import Comparison, ScoreTrace
from swarmbo.experiment.compared_by import MORE_IS_BETTER, SCORE_TEXT, SHORT_TEXT
from swarmbo.experiment.film import write_film
from swarmbo.experiment.folder import RunFolder
from swarmbo.experiment.scopes_in_use import graph_in_use
from swarmbo.experiment.views import views_of
from swarmbo.experiment.world_record import WorldRecord, read_truth, read_world
from swarmbo.graph import FactorGraph
from swarmbo.plotting import Difference, RegretCurves, World
from swarmbo.spaces import Domain


def world_of(folder: RunFolder) -> World:
    """The world of a run as figures see it.

    Raises:
        RunFolderError: If it is missing or damaged.
    """
    record = read_world(folder)
    arrays = read_truth(folder)
    return World(
        domain=Domain(np.array(record.low), np.array(record.high)),
        name=record.name,
        unit=record.unit,
        axis_unit=record.axis_unit,
        points=arrays.get("points"),
        values=arrays.get("values"),
        maximum=record.maximum,
        argmax=None if record.argmax is None else np.array(record.argmax),
        variables=tuple(record.variables),
        graph=_graph_of(record),
        standpoints={agent: np.array(place) for agent, place in record.standpoints.items()},
        goal=record.goal,
        level=record.level,
        frames=arrays.get("frames"),
        maxima=arrays.get("maxima"),
        argmaxes=arrays.get("argmaxes"),
    )


def _graph_of(record: WorldRecord) -> FactorGraph | None:
    if record.scopes is None:
        return None
    inside = {variable for scope in record.scopes.values() for variable in scope}
    owners = {variable: owner for variable, owner in record.variable_owners.items() if variable in inside}
    return FactorGraph.from_scopes(record.scopes, owners=record.owners, variable_owners=owners)


def draw_run(path: Path) -> list[Path]:
    """Draw a run, complete or not, into its folder ``figures``.

    Args:
        path: The folder of the run.

    Returns:
        The files written; none before the first round is logged.

    Raises:
        RunFolderError: If no run lies there, it is damaged, or the figures cannot be written.
    """
    folder = RunFolder.open(path)
    records = folder.records()
    if not records:
        return []
    world = replace(world_of(folder), graph_in_use=graph_in_use(records[-1], read_world(folder)))
    belief, into = folder.scenario().belief, path / "figures"
    fused = isinstance(belief, FusedSettings)
    prior = belief.prior if fused else belief
    try:
        settings = prior if isinstance(prior, ExactGPSettings) else None
        files = plotting.write_figures(records, world, settings, into, fused, views_of(folder) if fused else None)
        film = write_film(folder, records, into / "run.gif") if world.variables else None
        return files if film is None else [*files, film]
    except OSError as error:
        raise RunFolderError(f"{into}: figures cannot be written: {error.strerror or error}") from error


def draw_comparison(comparison: Comparison, path: Path) -> Path:
    """Draw a comparison: of all methods, round by round, what the goal is scored by, and the paired differences.

    Args:
        comparison: What ``compare`` returned.
        path: Where to; its ending names the format.

    Raises:
        RunFolderError: If a run is damaged, or the figure cannot be written.
    """
    curves = [_curves(key, list(traces)) for key, traces in itertools.groupby(comparison.traces, _curve_of)]
    differences = [
        Difference(
            row.landscape,
            row.method,
            row.difference.mean,
            row.difference.low,
            row.difference.high,
            row.unit,
            SHORT_TEXT[row.metric],
            row.metric in MORE_IS_BETTER,
        )
        for row in comparison.rows
        if row.decides and row.difference is not None
    ]
    try:
        return plotting.write_comparison_figure(curves, differences, comparison.reference, path)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written: {error.strerror}") from error
    except ValueError as error:
        if "is not supported" not in str(error):
            raise
        raise RunFolderError(f"{path}: {error}") from error


def _curve_of(trace: ScoreTrace) -> tuple[str, str]:
    return trace.landscape, trace.method


def _curves(key: tuple[str, str], traces: list[ScoreTrace]) -> RegretCurves:
    n_rounds = min(len(trace.values) for trace in traces)  # a world may end an episode early
    return RegretCurves(
        landscape=key[0],
        method=key[1],
        measurements=np.mean([trace.measurements[:n_rounds] for trace in traces], axis=0),  # who declines makes fewer
        regrets=np.array([trace.values[:n_rounds] for trace in traces]),
        unit=traces[0].unit,
        quantity=SCORE_TEXT[traces[0].scored],
        more_is_better=traces[0].scored in MORE_IS_BETTER,
    )
