"""A run as its world draws it, as a moving picture: what was tried is set again, or robots drive over their ground."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from swarmbo.belief import ExactGPSettings
from swarmbo.errors import ConfigError, DataWarning, MissingPackageError
from swarmbo.plotting import World, style
from swarmbo.plotting.frames import write_frames
from swarmbo.plotting.landscape import write_landscape
from swarmbo.records import RoundRecord
from swarmbo.runs.folder import RunFolder
from swarmbo.runs.scenario import make_environment
from swarmbo.runs.world import has_scene, is_filmed

_MOST_FRAMES = 40
_SCENE = 960, 600  # pixels
_COLOURS = ["#ffffff", "#000000", style.INK, *(style.agent_colour(index) for index in range(12))]


def write_film(folder: RunFolder, records: Sequence[RoundRecord], path: Path) -> Path | None:
    """Write the rounds of a run that found something better, up to the best one, as its world draws them.

    Args:
        folder: Of the run, complete or not.
        records: Its rounds.
        path: Where to; its ending names the format.

    Returns:
        The path; None where the world cannot be made, or has no ``replay``: its figures show what pictures of it would.
    """
    scenario = folder.scenario()
    if not is_filmed(scenario.environment["id"]):
        return None
    try:
        env = make_environment(replace(scenario, environment=scenario.environment | {"render_mode": "rgb_array"}))
    except ConfigError:  # its simulator or its data are not where the figures are drawn
        return None
    shown, frames = _shown(records), list[Any]()
    env.reset(seed=scenario.seed)
    for record in records:
        for evaluation in record.evaluations:
            env.unwrapped.replay(evaluation.location, evaluation.measurement)
        if record.round in shown:
            frames.append(env.render())
    env.close()
    return write_frames(frames, path, _COLOURS) if frames else None


def write_scene(
    folder: RunFolder, records: Sequence[RoundRecord], world: World, settings: ExactGPSettings, path: Path
) -> Path | None:
    """Write the rounds of a run in three dimensions, where its world can be drawn so.

    Args:
        folder: Of the run, complete or not.
        records: Its rounds.
        world: Its world.
        settings: The belief's settings of the run.
        path: Where to; its ending names the format.

    Returns:
        The path; None where the world is flat, or cannot be made or drawn here, of which a ``DataWarning`` says why.
    """
    scenario = folder.scenario()
    if not has_scene(scenario.environment["id"]):
        return None
    try:
        scene = make_environment(scenario).unwrapped.scene(*_SCENE)
    except MissingPackageError as error:
        warnings.warn(f"{path} is left out: {error.message}", DataWarning, stacklevel=2)
        return None
    except ConfigError:  # its data are not where the figures are drawn
        return None
    if scene is None:
        return None
    try:
        return write_landscape(records, world, settings, scene, path)
    finally:
        scene.close()


def _shown(records: Sequence[RoundRecord]) -> set[int]:
    """Rounds that found something better, thinned out evenly: the film ends on the best. Without any the last round."""
    better, best = list[int](), -np.inf
    for record in records:
        if record.evaluations and record.best is not None and record.best.mean > best:
            best = record.best.mean
            better.append(record.round)
    if not better:
        return {records[-1].round}
    return {better[int(i)] for i in np.linspace(0, len(better) - 1, min(len(better), _MOST_FRAMES))}
