"""Figures of run folders: this module reads the data, and ``swarmbo.plotting`` draws them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from swarmbo import plotting
from swarmbo.belief import ExactGPSettings, Views
from swarmbo.belief.fusion import FusedBelief, FusedSettings
from swarmbo.boundary.files import naming
from swarmbo.errors import ConfigError, RunFolderError, StateVersionError, typed
from swarmbo.graph import FactorGraph
from swarmbo.kernels import unloaded_kernels
from swarmbo.plotting import Formats, World, style
from swarmbo.records import RoundRecord
from swarmbo.registry import name_of
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.scenario import make_environment
from swarmbo.runs.states import WorldRecord, graph_in_use, read_checkpoint, read_truth, read_world
from swarmbo.runs.world import environment_maker
from swarmbo.team import Team

_DRAWN_FILE = "figures.json"
_LONGEST_NAME, _LONGEST_UNIT, _LARGEST_PLACE = 120, 40, 1e100


def world_of(folder: RunFolder) -> World:
    """World of a run for figures."""
    record, text_fields = read_world(folder), ("unit", "axis_unit", "maximum_is")
    fields: dict[str, Any] = {key: getattr(record, key) for key in ("maximum", "goal", "level", "coordinates")}
    fields |= {key: style.shortened(getattr(record, key), _LONGEST_UNIT) for key in text_fields} | read_truth(folder)
    return World(
        record.domain,
        style.shortened(record.name, _LONGEST_NAME),
        argmax=None if record.argmax is None else np.array(record.argmax),
        agents=tuple(record.agents),
        variables=tuple(record.variables),
        types=tuple(record.types),
        graph=_graph_of(record),
        standpoints={agent: np.array(place) for agent, place in record.standpoints.items()},
        bases={agent: np.array(place) for agent, place in record.bases.items()},
        no_go=[[np.array(ring) for ring in rings] for rings in record.no_go],
        **fields,
    )


def _graph_of(record: WorldRecord) -> FactorGraph | None:
    if record.scopes is None:
        return None
    in_scopes = {variable for scope in record.scopes.values() for variable in scope}
    owners = {variable: owner for variable, owner in record.variable_owners.items() if variable in in_scopes}
    return FactorGraph.from_scopes(record.scopes, owners=record.owners, variable_owners=owners)


def draw_run(path: Path, formats: Formats | None = None) -> list[Path]:
    """Draw a (possibly incomplete) run into its folder ``figures``, by default as PNG and GIF."""
    folder, formats = RunFolder.open(path), formats or Formats()
    records = folder.records()
    if not records:
        return []
    used_graph, world = graph_in_use(records[-1], read_world(folder)), _with_world_rounds(world_of(folder), records)
    scenario = folder.scenario()
    parts = (scenario.acquisition, scenario.coordination)
    kinds = [str(part["kind"] if isinstance(part, dict) else name_of(part)) for part in parts]
    method = f"{' + '.join(style.shortened(kind, _LONGEST_UNIT) for kind in kinds)}, seed {scenario.seed}"
    world = replace(world, graph_in_use=used_graph, method=method)
    if not all(abs(edge) < _LARGEST_PLACE for edge in (*world.domain.low, *world.domain.high)):
        raise RunFolderError(f"{folder.path}: cannot be drawn: its box of locations is not finite, or beyond 1e100")
    belief, target = scenario.belief, folder.path / "figures"
    fused = isinstance(belief, FusedSettings)
    prior = belief.prior if fused else belief
    with naming(target, "figures cannot be written", f"; later, `swarmbo plot {typed(folder.path)}` draws them"):
        can_rebuild = not unloaded_kernels(prior)  # figures load no user code
        settings = prior if isinstance(prior, ExactGPSettings) and can_rebuild else None
        views = views_of(folder) if fused else None
        files = plotting.write_figures(records, world, settings, target, fused, views, formats, folder.network())
        replay = write_replay(folder, records, target / f"run.{formats.animation}") if world.variables else None
    files = files if replay is None else [*files, replay]
    folder.write_json(_DRAWN_FILE, _Drawn(len(records), [file.name for file in files], formats.dpi))
    return files


def views_of(folder: RunFolder) -> Views | None:
    """Local beliefs of all agents after the last round, bit-identical to the run; None without a usable checkpoint."""
    try:
        checkpoint = read_checkpoint(folder)
        if checkpoint is None or checkpoint.round != len(folder.records()) - 1:
            return None
        # only the belief is needed here, and no user code is loaded for a figure
        team = Team.from_state_dict(checkpoint.team, acquisition="db-gp-ucb", coordination="exact")
    except (ConfigError, RunFolderError, StateVersionError):  # the figure is drawn without it, with a note
        return None
    belief = team.belief if team.problem.is_field else None
    return belief.views if isinstance(belief, FusedBelief) else None


def drawn_files(path: Path, formats: Formats | None = None) -> list[Path]:
    """Files of a run's figures if they show all its rounds in these ``formats`` (None: any); else an empty list."""
    folder = RunFolder.open(path)
    try:
        drawn = msgspec.json.decode(folder.read_sealed(_DRAWN_FILE), type=_Drawn)
    except (FileNotFoundError, ValueError):
        return []
    endings = {Path(name).suffix[1:] for name in drawn.files}
    if formats and not (drawn.dpi == formats.dpi and endings <= {formats.figures, formats.animation}):
        return []
    files = [path / "figures" / name for name in drawn.files]
    is_whole = all(file.is_file() for file in files) and drawn.records == len(folder.records())
    return files if is_whole else []


def _with_world_rounds(world: World, records: Sequence[RoundRecord]) -> World:
    """World of a run with one state per logged round: a failed round has the state of the round before."""
    if world.frames is None or world.maxima is None or world.argmaxes is None:
        return world
    clock = np.cumsum([record.failure is None for record in records]) - 1
    return replace(world, frames=world.frames[clock], maxima=world.maxima[clock], argmaxes=world.argmaxes[clock])


class _Drawn(msgspec.Struct, frozen=True):
    """``figures.json``, written after all figures: the number of logged rounds shown, file names, dots per inch."""

    records: int
    files: list[str]
    dpi: int = Formats.dpi


_MOST_FRAMES = 40
_COLOURS = ["#ffffff", "#000000", style.INK, *(style.agent_colour(index) for index in range(12))]


def write_replay(folder: RunFolder, records: Sequence[RoundRecord], path: Path) -> Path | None:
    """Write an animation of the rounds with a new best; None if the world has no ``replay`` or cannot be made here."""
    scenario = folder.scenario()
    if not hasattr(environment_maker(scenario.environment["id"]), "replay"):
        return None
    try:
        environment = scenario.environment | {"render_mode": "rgb_array"}
        env = make_environment(msgspec.structs.replace(scenario, environment=environment), is_served=True)
    except ConfigError:  # its simulator or its data are missing on this machine
        return None
    earlier, frames = [None, *(record.best for record in records[:-1])], list[Any]()
    improved = [record.round for record, best in zip(records, earlier, strict=True) if record.best != best]
    improved = improved or [records[-1].round]  # thinned evenly, with the last of them
    shown_rounds = {improved[int(i)] for i in np.linspace(0, len(improved) - 1, min(len(improved), _MOST_FRAMES))}
    env.reset(seed=scenario.seed)
    for record in records:
        for evaluation in record.evaluations:
            env.unwrapped.replay(evaluation.location, evaluation.measurement)
        if record.round in shown_rounds:
            frames.append(env.render())
    env.close()
    return style.write_frames(frames, path, _COLOURS) if frames else None
