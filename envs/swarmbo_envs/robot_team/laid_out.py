"""Fields on the ground that robots can reach; unreachable places do not count."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from swarmbo.errors import ConfigError, DataWarning
from swarmbo_envs.fields.field import Field
from swarmbo_envs.ground import Ground, Region, Ways
from swarmbo_envs.ground.grid import widest_shut
from swarmbo_envs.robot_team.settings import MOST_CELLS, RobotTeamSettings
from swarmbo_envs.shared import Place, Places, grid_points

_PLACES_FOR_MAXIMUM = 400  # along the longer side
# cells in the width of a passage that is surely open, along an axis and across
_OPEN = (2.0, 2.0 * np.sqrt(2.0))
_LOOKED_AT = 32  # sites between which all paths are compared
_DETOUR = 0.1  # of the map's longer side: a detour that is worth a warning
_SHARE = 0.05  # of the map: an unreachable share that is worth a warning


def laid_out(
    field: Field,
    anchors: Mapping[str, Sequence[tuple[float, float]] | None],
    regions: Sequence[Region] = (),
    cells: int = 128,
    clearance_m: float = 0.0,
) -> tuple[Field, Ground]:
    """Ground with its no-go regions and the field's gaps, and the field restricted to reachable places.

    ``anchors`` are places that must be free, by the settings that name them. A closed passage that matters is told.
    """
    at = "$.no_go" if regions else "$.field"
    if field.gaps is not None:
        (west, south), (east, north) = field.low.tolist(), field.high.tolist()
        regions = [*regions, Region.of_cells(field.gaps, (west, south, east, north))]
    named = {f"$.{name}[{n}]": np.array(X, dtype=float) for name, Xs in anchors.items() for n, X in enumerate(Xs or ())}
    for name, place in named.items():
        field.require_on_map(place, name)
    ground = Ground(field.low, field.high, regions, cells, clearance_m, named, at)
    _tell_of_shut(ground, field.sites, named, at)
    return measurable(field, ground, at), ground


def _tell_of_shut(ground: Ground, sites: Places, anchors: Mapping[str, Place], at: str) -> None:
    """Warn about the widest closed passage, if it matters."""
    if (width := widest_shut(ground)) is None:
        return
    side, cell = float((ground.high - ground.low).max()), float(ground.cell.max())
    tries = [int(np.ceil(number * side / width)) + 1 for number in _OPEN]
    is_cut_off = (ground.blocked & ~ground.touched()).mean() >= _SHARE
    fix = "they are too narrow for any cells" if is_cut_off and tries[0] > MOST_CELLS else ""
    for cells in (cells for cells in tries if ground.shape.max() < cells <= MOST_CELLS):
        try:
            finer = Ground(ground.low, ground.high, ground.regions, cells, ground.clearance_m, anchors, at)
        except ConfigError:
            fix = "regions have too many corners for finer cells" if is_cut_off else ""
            break
        if gain := _gain(ground, finer, sites):
            fix = f"route_cells = {cells} would leave them open, and {gain}"
            break
    if fix:
        told = f"passages of up to about {width:.3g} m are shut by cells of {cell:.3g} m, and nobody drives through"
        warnings.warn(f"{at}: {told}: {fix}", DataWarning, stacklevel=3)


def _gain(ground: Ground, finer: Ground, sites: Places) -> str:
    """Gain of finer cells, in words; empty if it does not matter."""
    free, then_free = ground.part_of(sites) > 0, finer.part_of(sites) > 0
    if (gained := float((then_free & ~free).mean())) >= _SHARE:
        return f"bring {100.0 * gained:.0f} % more of the sites within reach"
    some = sites[free & then_free]
    some = some[np.linspace(0, len(some) - 1, min(_LOOKED_AT, len(some))).astype(int)]
    now, then = (Ways(each, 1.0, 1.0).times_between(some, some) for each in (ground, finer))  # at 1 m/s: metres
    shorter = float(np.subtract(now, then, out=np.zeros_like(now), where=np.isfinite(then)).max(initial=0.0))
    if shorter < _DETOUR * float((ground.high - ground.low).max()):
        return ""
    about = float(f"{shorter:.2g}")
    return f"make ways up to {about:,g} m shorter" if np.isfinite(shorter) else "join what is apart"


def measurable(field: Field, ground: Ground, at: str = "$.field") -> Field:
    """Field restricted to free places: its sites, the points of its truth, and its maximum."""
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


def _highest(field: Field, ground: Ground, sites: Places) -> Place:
    """Best free place of a lattice over the map, then of ever finer ones about the best so far."""
    best, half = (field.low + field.high) / 2, (field.high - field.low) / 2
    found = sites[field.value(sites).argmax()]
    steps = np.linspace(-1.0, 1.0, _PLACES_FOR_MAXIMUM + 1)
    for _ in range(3):
        places = np.clip(best + grid_points(steps, steps) * half, field.low, field.high)
        places = np.vstack([found, places[ground.part_of(places) > 0]])
        found = best = places[field.value(places).argmax()]
        half, steps = half * 4 / _PLACES_FOR_MAXIMUM, np.linspace(-1.0, 1.0, 41)
    return found


def checked_starts(settings: RobotTeamSettings, field: Field) -> Float[np.ndarray, "robots 2"] | None:
    """Starts of the settings; None to draw them. If only sites can be measured, they move to the nearest free ones."""
    if (settings.starts is None or field.sites_only) and settings.robots > len(field.sites):
        raise ConfigError(f"got {settings.robots}; wanted at most one per site: {len(field.sites)}", at="$.robots")
    bases = settings.rules().bases
    if settings.starts is None and bases is not None:
        places = np.array(bases, dtype=float)
        is_distinct = len(np.unique(places, axis=0)) == len(places)
        return places if is_distinct and not field.sites_only else nearest_free_sites(places, field.sites)
    if settings.starts is None:
        return None
    starts = np.array(settings.starts, dtype=float)
    for i, start in enumerate(starts):
        if (start == starts[:i]).all(axis=1).any():
            raise ConfigError(f"got {start.tolist()} twice; wanted different locations", at=f"$.starts[{i}]")
    return nearest_free_sites(starts, field.sites) if field.sites_only else starts


def nearest_free_sites(starts: Float[np.ndarray, "robots 2"], sites: Places) -> Float[np.ndarray, "robots 2"]:
    """For each start in turn, the nearest site that is still free."""
    free, chosen = np.ones(len(sites), dtype=bool), list[int]()
    for start in starts:
        chosen.append(int(np.where(free, ((sites - start) ** 2).sum(axis=1), np.inf).argmin()))
        free[chosen[-1]] = False
    return sites[chosen]
