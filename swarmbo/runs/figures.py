"""Figures of runs that lie in folders: this reads, ``swarmbo.plotting`` draws."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from swarmbo import plotting
from swarmbo.belief import ExactGPSettings
from swarmbo.belief.fusion import FusedBelief
from swarmbo.belief.fusion.settings import FusedSettings
from swarmbo.boundary.values import said
from swarmbo.errors import ConfigError, RunFolderError, StateVersionError, SwarmboError
from swarmbo.graph import FactorGraph
from swarmbo.kernels import unloaded_kernels
from swarmbo.plotting import AgentViews, Formats, World
from swarmbo.records import RoundRecord
from swarmbo.runs.checkpoint import read_checkpoint
from swarmbo.runs.film import write_film, write_scene
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.scopes_in_use import graph_in_use
from swarmbo.runs.world_record import WorldRecord, read_truth, read_world
from swarmbo.spaces import Domain
from swarmbo.team import Team

_NOTE = "figures.json"
_LONGEST_NAME, _LONGEST_UNIT, _LARGEST_PLACE = 120, 40, 1e100
# What drawing may come to where a file of an earlier version, which has no digest, was edited.
_MISFITS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    MemoryError,
    RuntimeError,
)


def world_of(folder: RunFolder) -> World:
    """The world of a run as figures see it.

    Raises:
        RunFolderError: If it is missing or damaged.
    """
    record = read_world(folder)
    arrays = read_truth(folder)
    return World(
        domain=Domain(np.array(record.low), np.array(record.high)),
        name=_shortened(record.name, _LONGEST_NAME),
        unit=_shortened(record.unit, _LONGEST_UNIT),
        axis_unit=_shortened(record.axis_unit, _LONGEST_UNIT),
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
        maximum_is=_shortened(record.maximum_is, _LONGEST_UNIT),
        no_go=[[np.array(ring) for ring in rings] for rings in record.no_go],
        bases={agent: np.array(place) for agent, place in record.bases.items()},
    )


def _graph_of(record: WorldRecord) -> FactorGraph | None:
    if record.scopes is None:
        return None
    inside = {variable for scope in record.scopes.values() for variable in scope}
    owners = {variable: owner for variable, owner in record.variable_owners.items() if variable in inside}
    return FactorGraph.from_scopes(record.scopes, owners=record.owners, variable_owners=owners)


def draw_run(path: Path, formats: Formats | None = None) -> list[Path]:
    """Draw a run, complete or not, into its folder ``figures``.

    Args:
        path: The folder of the run.
        formats: What figures and animation are written as; None: as PNG and GIF.

    Returns:
        The files written; none before the first round is logged. What is there then is noted in ``figures.json``.

    Raises:
        RunFolderError: If no run lies there, it is damaged, or the figures cannot be written.
        ConfigError: If the animation cannot be encoded.
    """
    folder = RunFolder.open(path)
    try:
        return _draw(folder, formats or Formats())
    except SwarmboError:
        raise
    except _MISFITS as error:
        if folder.is_sealed:  # as it was written: the mistake is ours
            raise
        raise RunFolderError(
            f"{path}: cannot be drawn: what lies there does not fit together ({said(error)})"
        ) from error


def _draw(folder: RunFolder, formats: Formats) -> list[Path]:
    records = folder.records()
    if not records:
        return []
    world = replace(world_of(folder), graph_in_use=graph_in_use(records[-1], read_world(folder)))
    world = _in_step(world, records)
    if not all(abs(edge) < _LARGEST_PLACE for edge in (*world.domain.low, *world.domain.high)):
        raise RunFolderError(f"{folder.path}: cannot be drawn: its box of locations is not finite, or beyond 1e100")
    _require_short_names(folder, [*world.variables, *(sample.agent for record in records for sample in record.samples)])
    belief, into = folder.scenario().belief, folder.path / "figures"
    fused = isinstance(belief, FusedSettings)
    prior = belief.prior if fused else belief
    try:
        can_rebuild = not unloaded_kernels(prior)  # for a figure no code of a user's own is loaded
        settings = prior if isinstance(prior, ExactGPSettings) and can_rebuild else None
        views = views_of(folder) if fused else None
        files = plotting.write_figures(records, world, settings, into, fused, views, formats, folder.network())
        film = write_film(folder, records, into / f"run.{formats.animation}") if world.variables else None
        if settings is not None and world.has_map:
            film = write_scene(folder, records, world, settings, into / f"scene.{formats.animation}")
    except OSError as error:
        raise RunFolderError(f"{into}: figures cannot be written: {error.strerror or error}") from error
    files = files if film is None else [*files, film]
    folder.write_json(_NOTE, _Drawn(len(records), [file.name for file in files], formats.dpi))
    return files


def views_of(folder: RunFolder) -> AgentViews | None:
    """The view of every agent after the last round of which there is a checkpoint, to the bit as it was in the run.

    Args:
        folder: Of a run, complete or not, whose agents each have a belief of their own.

    Returns:
        The views and their round; None where there is no checkpoint that can be read, as before the first round, and
        in worlds that cannot write down their state.
    """
    try:
        checkpoint = read_checkpoint(folder)
        if checkpoint is None or checkpoint.round >= len(folder.lines()):
            return None
        # no part but the belief matters here, and none of a user's own is loaded for a figure
        team = Team.from_state_dict(checkpoint.team, acquisition="db-gp-ucb", coordination="exact")
    except (ConfigError, RunFolderError, StateVersionError):  # a figure can do without it, and says so
        return None
    belief = team.belief if team.problem.is_field else None
    return AgentViews(checkpoint.round, belief.views) if isinstance(belief, FusedBelief) else None


def _require_short_names(folder: RunFolder, names: Sequence[str]) -> None:
    longest = max(names, key=len, default="")
    if len(longest) > _LONGEST_NAME:
        raise RunFolderError(
            f"{folder.path}: cannot be drawn: {longest[:20]!r}… is a name of {len(longest):,} characters; wanted at "
            f"most {_LONGEST_NAME}"
        )


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def is_drawn(path: Path, formats: Formats | None = None) -> bool:
    """Whether the figures of a run are there, of all its rounds: whoever is killed while drawing leaves some out.

    Args:
        path: The folder of the run.
        formats: What they must have been written as; None: as anything.

    Raises:
        RunFolderError: If no run lies there, or it is damaged.
    """
    folder = RunFolder.open(path)
    if (drawn := _noted(folder)) is None:
        return False
    if formats is not None and not drawn.is_as(formats):
        return False
    there = all((path / "figures" / name).is_file() for name in drawn.files)
    return there and drawn.records == len(folder.lines())


def drawn_files(path: Path) -> list[Path]:
    """The figures that were drawn of a run last, complete or not.

    Raises:
        RunFolderError: As ``is_drawn``.
    """
    drawn = _noted(RunFolder.open(path))
    return [] if drawn is None else [path / "figures" / name for name in drawn.files]


def _noted(folder: RunFolder) -> "_Drawn | None":
    try:
        return msgspec.json.decode(folder.read_sealed(_NOTE), type=_Drawn)
    except (FileNotFoundError, ValueError):
        return None


def _in_step(world: World, records: Sequence[RoundRecord]) -> World:
    """The world as it was in each round of a run: it took no part in those in which it failed."""
    if world.frames is None or world.maxima is None or world.argmaxes is None:
        return world
    clock = np.cumsum([record.failure is None for record in records]) - 1
    return replace(world, frames=world.frames[clock], maxima=world.maxima[clock], argmaxes=world.argmaxes[clock])


class _Drawn(msgspec.Struct, frozen=True):
    """``figures.json``: written when all figures are.

    Args:
        records: Lines of the log that they show.
        files: Their names.
        dpi: Dots per inch.
    """

    records: int
    files: list[str]
    dpi: int = Formats.dpi

    def is_as(self, formats: Formats) -> bool:
        """Whether all that was drawn is in these formats."""
        ends = {Path(name).suffix[1:] for name in self.files}
        return self.dpi == formats.dpi and ends <= {formats.figures, formats.animation}
