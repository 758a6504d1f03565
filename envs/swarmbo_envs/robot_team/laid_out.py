"""A field on the ground where robots may drive: of what nobody can reach nothing counts."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError, DataWarning
from swarmbo_envs.fields.field import Field
from swarmbo_envs.ground import Ground, Region
from swarmbo_envs.ground.passages import widest_shut
from swarmbo_envs.robot_team.settings import MOST_CELLS

_PLACES_FOR_MAXIMUM = 400  # along the longer side


def laid_out(
    field: Field,
    anchors: Mapping[str, Sequence[tuple[float, float]] | None],
    regions: Sequence[Region] = (),
    cells: int = 128,
    clearance_m: float = 0.0,
) -> tuple[Field, Ground]:
    """The ground with its no-go regions, to which the gaps of a field belong, and the field as far as it is measured.

    Args:
        field: What is measured.
        anchors: Places that must be free, by the settings they are from.
        regions: What is no-go besides.
        cells: Along the map's longer side.
        clearance_m: How far to keep from all of that.

    Raises:
        ConfigError: If an anchor is not on the map or not free, or nothing is left to drive or to measure.

    Warns:
        DataWarning: If there is a passage between regions that cells are too large for, and how wide it is.
    """
    at = "$.no_go" if regions else "$.field"
    if field.gaps is not None:
        (west, south), (east, north) = field.low.tolist(), field.high.tolist()
        regions = [*regions, Region.of_cells(field.gaps, (west, south, east, north))]
    named = {f"$.{name}[{n}]": np.array(X, dtype=float) for name, Xs in anchors.items() for n, X in enumerate(Xs or ())}
    for name, place in named.items():
        if not ((place >= field.low) & (place <= field.high)).all():
            raise ConfigError(
                f"got {place.tolist()}; wanted a place on the map, x from {field.low[0]:g} to {field.high[0]:g} m "
                f"and y from {field.low[1]:g} to {field.high[1]:g} m",
                at=name,
            )
    ground = Ground(field.low, field.high, regions, cells, clearance_m, named, at)
    _tell_of_shut(ground, at)
    return _measurable(field, ground, at), ground


def _tell_of_shut(ground: Ground, at: str) -> None:
    """One line of the widest passage that nobody drives through since cells are large."""
    if (width := widest_shut(ground)) is None:
        return
    cell = float(ground.cell.max())
    cells = int(np.ceil(2.0 * float((ground.high - ground.low).max()) / width)) + 1
    told = f"{at}: passages of up to about {width:.3g} m are shut by cells of {cell:.3g} m, and nobody drives through"
    fix = f"route_cells = {cells} would leave them open" if cells <= MOST_CELLS else "they are too narrow for any cells"
    warnings.warn(f"{told}: {fix}", DataWarning, stacklevel=2)


def _measurable(field: Field, ground: Ground, at: str) -> Field:
    """A field of which only what is free counts: its sites, the points of its truth, and its maximum."""
    if ground.is_open:
        return field
    sites, points = (X[ground.part_of(X) > 0] for X in (field.sites, field.points))
    if not len(sites):
        raise ConfigError("got no-go regions that leave no site to measure; wanted at least one", at=at)
    points = points if len(points) else sites
    best = field.argmax
    if field.sites_only or not ground.part_of(best[None])[0]:
        best = sites[field.value(sites).argmax()] if field.sites_only else _highest(field, ground, sites)
    maximum, minimum = float(field.value(best[None])[0]), float(field.value(sites).min())
    return replace(field, sites=sites, points=points, maximum=maximum, argmax=best, minimum=minimum)


def _highest(field: Field, ground: Ground, sites: Float[np.ndarray, "k 2"]) -> Float[np.ndarray, " 2"]:
    """The best free place of a lattice over the map, then of ever finer ones about the best so far."""
    best, half = (field.low + field.high) / 2, (field.high - field.low) / 2
    found = sites[field.value(sites).argmax()]
    steps = np.linspace(-1.0, 1.0, _PLACES_FOR_MAXIMUM + 1)
    for _ in range(3):
        offsets = np.stack(np.meshgrid(steps, steps), axis=-1).reshape(-1, 2)
        places = np.clip(best + offsets * half, field.low, field.high)
        places = np.vstack([found, places[ground.part_of(places) > 0]])
        found = best = places[field.value(places).argmax()]
        half, steps = half * 4 / _PLACES_FOR_MAXIMUM, np.linspace(-1.0, 1.0, 41)
    return found
